"""Sheets in space with one facet per region: images of the plane in three outputs, and slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import torch
from matplotlib.colors import to_rgba
from mpl_toolkits.mplot3d import Axes3D
from torch import Tensor

from splinecam.errors import SplineCamError
from splinecam.geometry.subdivision import Mesh
from splinecam.plot import axes3d
from splinecam.plot.colors import Coloring, ColorOptions, color_regions, output_name
from splinecam.plot.depth_buffer import DepthScene, Polygons, nearest
from splinecam.plot.lines import Floats, Ints, to_numpy
from splinecam.plot.palette import BOUNDARY, INK
from splinecam.plot.scene import Items
from splinecam.plot.surface_items import (
    cell_areas,
    cell_colors,
    cells_beside,
    joined,
    padded_corners,
    twice,
)
from splinecam.questions.boundary import decision_boundary, output_of, winners_of
from splinecam.questions.partition_data import PartitionData
from splinecam.questions.winners import Winners

_LIGHT = (70.0, 50.0)  # degrees: where the light is, counter-clockwise from the eye, and how high
_DARKEST = 0.5  # share of its colour that a facet has when it faces away from the light
_EDGE, _EDGE_ALPHA = (0.5, 0.3), (0.75, 0.5)  # width in points and strength: first, last layer
_EDGE_SHARE, _POINTS = 0.08, 300.0  # of the spacing, when the sheet is about so many points wide
_BOUNDARY_WIDTH = 1.7  # points
_ELEVATIONS, _AZIMUTHS = [50.0, 30.0, 15.0], [30.0 * k - 170 for k in range(12)]
_MANY = 100_000  # corners of facets up to which all of these views are tried
_SEEN = 160  # pixels of the pictures from which the best view is chosen
_FLAT = 0.02  # of the largest extent, around a sheet that has none in some direction


@dataclass(frozen=True)
class Look:
    """What is drawn of a sheet: its colours, edges and boundary, and the colour of the latter."""

    color: Any
    edges: bool = True
    boundary: bool = False
    boundary_color: Any = None


@dataclass(frozen=True)
class Sheet:
    """The cells of a partition as facets in space.

    place: the points (N, 3) of plane coordinates (N, 2) and outputs (N, n_out); points: (V, 3) of
    the mesh's vertices; region: (F,) the region of each cell; layer: (E,) the layer that drew each
    edge, -1 for the border, -2 for the decision boundary. coloring: of the cells; winners: if cells
    are split at the decision boundary. level: at which a single output changes its class.
    """

    part: PartitionData
    place: Callable[[Tensor, Tensor], Tensor]
    coloring: Coloring
    mesh: Mesh
    points: Floats
    region: Ints
    layer: Ints
    level: float
    winners: Winners | None = None

    @classmethod
    def of(
        cls,
        part: PartitionData,
        place: Callable[[Tensor, Tensor], Tensor],
        color: Any,
        options: ColorOptions,
    ) -> Sheet:
        """The regions with their colours, or the cells of the classes."""
        coloring = color_regions(part, color, options)
        level = options.level
        if coloring.mesh is part.mesh:
            points, region = place(part.vertices, part.values), np.arange(len(part))
            layer = to_numpy(part.edge_layer)
            return cls(part, place, coloring, part.mesh, to_numpy(points), region, layer, level)
        found = winners_of(part, "argmax", level, whole=True)
        overlay = found.overlay
        values = overlay.z[:, 1:] + level if part.values.shape[1] == 1 else overlay.z
        points = to_numpy(place(part.frame.to_plane(overlay.mesh.uv), values))
        layer = to_numpy(torch.where(overlay.source >= 0, part.edge_layer[overlay.source], -2))
        region = to_numpy(overlay.face)
        return cls(part, place, coloring, overlay.mesh, points, region, layer, level, found)

    @cached_property
    def corners(self) -> Ints:
        """The vertices of each cell, (F, k), the last one repeated."""
        return padded_corners(self.mesh)

    @cached_property
    def normals(self) -> Floats:
        """The normals of the cells, (F, 3), as long as the cells are large."""
        at = self.points[self.corners]
        at = at - at[:, :1]
        return np.asarray(np.cross(at, np.roll(at, -1, 1)).sum(1) / 2)

    @cached_property
    def areas(self) -> Floats:
        return cell_areas(self.mesh)

    @cached_property
    def beside(self) -> Ints:
        return cells_beside(self.mesh)

    def facets(self, colors: Floats) -> Items:
        """The cells with their colours."""
        cell = np.arange(len(self.corners))
        return Items.of(self.points, self.corners, np.stack([cell, cell], 1), 0, face=colors)

    def edges(self, alpha: float) -> Items:
        """The cells' edges except those of the boundary, thinner and paler for later layers."""
        shown = np.flatnonzero(self.layer >= -1)
        ends, layer = to_numpy(self.mesh.edges)[shown], np.maximum(self.layer[shown], 0)
        late = layer / max(len(self.part.layers) - 1, 1)
        color = np.tile(to_rgba(INK), (len(shown), 1))
        color[:, 3] = _EDGE_ALPHA[0] + (_EDGE_ALPHA[1] - _EDGE_ALPHA[0]) * late
        color[:, 3] *= alpha
        # Lines are thinner where they are closer together.
        size = np.linalg.norm(np.diff(self.points[ends], axis=1)[:, 0], axis=1)
        total = np.cumsum(np.bincount(layer, size, minlength=len(self.part.layers)))
        area = np.linalg.norm(self.normals, axis=1).sum()
        room = total[layer] * np.ptp(self.points, axis=0).max()
        spacing = _POINTS * area / np.where(room > 0, room, 1)
        width = np.minimum(_EDGE[0] + (_EDGE[1] - _EDGE[0]) * late, _EDGE_SHARE * spacing)
        width[self.layer[shown] < 0] = _EDGE[0]
        style: Any = {"rank": 1, "line": color, "width": width}
        return Items.of(self.points, ends, self.beside[shown], 0, **style)

    def boundary(self, color: Any) -> Items:
        """The decision boundary."""
        style: Any = {"rank": 2, "line": to_rgba(color), "width": _BOUNDARY_WIDTH}
        if self.winners is not None:  # the boundary runs along edges of the cells
            edge = to_numpy(self.winners.borders()[0])
            ends = to_numpy(self.mesh.edges)[edge]
            return Items.of(self.points, ends, self.beside[edge], 0, **style)
        part, found = self.part, decision_boundary(self.part, level=self.level)
        cells = twice(to_numpy(found.regions))
        inside = torch.as_tensor(cells[:, :1], device=found.points.device)
        shift = (found.local_ends - part.maps.anchor[inside])[:, :, None]
        values = part.maps.value[inside] + (part.maps.weight[inside] * shift).sum(3)
        points = self.place(found.ends.flatten(0, 1), values.flatten(0, 1))
        ends = np.arange(len(points)).reshape(-1, 2)
        return Items.of(to_numpy(points), ends, cells, 0, **style)

    def lit_colors(self, view: tuple[float, float], darkest: float, alpha: float) -> Floats:
        """The colours of the cells, (F, 4), in the light of an eye at an elevation and azimuth."""
        colors = cell_colors(self.coloring)
        colors = colors.copy() if self.coloring.mesh is self.mesh else colors[self.region]
        size = np.linalg.norm(self.normals, axis=1)
        normal = self.normals / np.where(size > 0, size, 1)[:, None]
        # A facet is seen from the side that faces the eye.
        side = np.where(normal @ _toward(*view) < 0, -1, 1)
        facing = side * (normal @ _toward(_LIGHT[1], view[1] - _LIGHT[0]))
        colors[:, :3] *= (darkest + (1 - darkest) * (1 + facing) / 2)[:, None]
        colors[:, 3] *= alpha
        return colors


def _toward(elevation: float, azimuth: float) -> Floats:
    """The direction towards an eye, (3,)."""
    up, turn = np.radians(elevation), np.radians(azimuth)
    return np.array([np.cos(up) * np.cos(turn), np.cos(up) * np.sin(turn), np.sin(up)])


def best_view(sheets: Sequence[Sheet]) -> tuple[float, float]:
    """The elevation and azimuth from which most of the sheets is seen, and least at an angle.

    Of several sheets, the one that is seen least counts.
    """
    corners = np.concatenate([each.points[each.corners].reshape(-1, 3) for each in sheets])
    middle = np.asarray(corners.min(0) + corners.max(0)) / 2
    reach = float(np.ptp(corners, axis=0).max()) or 1.0
    few = slice(1, None, 3) if len(corners) > _MANY else slice(None)
    views = list(product(_ELEVATIONS[few], _AZIMUTHS[few]))
    return max(views, key=lambda view: _seen(sheets, view, middle, reach))


def _seen(
    sheets: Sequence[Sheet], view: tuple[float, float], middle: Floats, reach: float
) -> float:
    """The share of the plane of each sheet that is seen, less where it is seen at an angle."""
    eye, right = _toward(*view), _toward(0.0, view[1] + 90)
    axes = np.array([right, np.cross(eye, right), -eye]).T * _SEEN / (2 * reach)
    shift = np.array([_SEEN / 2, _SEEN / 2, 0.0])
    page = [((each.points - middle) @ axes + shift)[each.corners] for each in sheets]
    item = nearest([Polygons.in_space(each, np.zeros((len(each), 4))) for each in page], _SEEN)
    start = np.cumsum([0, *(len(each) for each in page)])
    count = np.bincount(item[item >= 0], minlength=start[-1])
    shares = []
    for sheet, first, last in zip(sheets, start, start[1:], strict=False):
        size = np.linalg.norm(sheet.normals, axis=1)
        shadow = np.abs(sheet.normals @ eye)  # the size on the page
        whole = np.maximum(shadow * (_SEEN / (2 * reach)) ** 2, 1)
        share = np.minimum(count[first:last] / whole, 1) * shadow / np.where(size > 0, size, 1)
        shares.append(float(sheet.areas @ share / sheet.areas.sum()))
    return min(shares)


def draw_sheets(
    sheets: Sequence[Sheet],
    looks: Sequence[Look],
    *,
    ax: Axes3D | None,
    view: tuple[float, float] | None,
    names: Sequence[str],
    alpha: float = 1.0,
    darkest: float = _DARKEST,
    beside: bool = False,
) -> tuple[Axes3D, axes3d.AxesFit]:
    """Draw sheets on axes that have the same scale in all directions.

    names: of the axes; alpha: the opacity of facets; darkest: the share of its colour that a facet
    has when it faces away from the light; beside: keep room for a colour bar.
    """
    ax, fit = axes3d.place_axes(ax, beside)
    if view is None and fit.own:
        view = best_view(sheets)
    if view is not None:
        ax.view_init(*view)
    axes3d.label_axes(fit, names, _limits(sheets))
    eye = (float(ax.elev), float(ax.azim))
    facets = [sheet.facets(sheet.lit_colors(eye, darkest, alpha)) for sheet in sheets]
    start = np.cumsum([0, *(len(each.cells) for each in facets)])
    lines: list[Items] = []
    for sheet, look, first in zip(sheets, looks, start, strict=False):
        own = [sheet.edges(alpha)] if look.edges else []
        own += [sheet.boundary(look.boundary_color or BOUNDARY)] if look.boundary else []
        lines += [each.on_cells(int(first)) for each in own]
    ax.add_collection(DepthScene(joined([*facets, *lines]), clip_on=False))
    return ax, fit


def _limits(sheets: Sequence[Sheet]) -> Floats:
    """The ends of the three axes, (3, 2)."""
    points = np.concatenate([sheet.points for sheet in sheets])
    ends = np.stack([points.min(0), points.max(0)], 1)
    size = np.diff(ends)
    flat = size < _FLAT * (size.max() or 1.0)
    return np.asarray(ends + flat * np.array([[-1, 1]]) * _FLAT * (size.max() or 1.0))


def draw_image(
    part: PartitionData,
    output: Any,
    ax: Axes3D | None,
    view: tuple[float, float] | None,
    look: Look,
    options: ColorOptions,
    colorbar: bool,
) -> Axes3D:
    """Draw the image of the plane in three outputs, or in three sums of outputs."""
    matrix, names = _projection(part, output)

    def place(_: Tensor, values: Tensor) -> Tensor:
        return values @ matrix

    sheet = Sheet.of(part, place, look.color, options)
    ax, fit = draw_sheets([sheet], [look], ax=ax, view=view, names=names, beside=colorbar)
    if colorbar:
        axes3d.explain_colors(fit, sheet.coloring)
    return ax


def _projection(part: PartitionData, output: Any) -> tuple[Tensor, list[str]]:
    """The matrix (n_out, 3) that three outputs or a given matrix stand for, and names of axes."""
    n = int(part.values.shape[1])
    if np.ndim(output) == 1 and len(output) == 3:
        chosen = [output_of(part, k) for k in output]
        eye = torch.eye(n, dtype=torch.float64, device=part.values.device)
        return eye[:, chosen], [output_name(part, k) for k in chosen]
    if tuple(np.shape(output)) == (n, 3):
        return torch.as_tensor(output).to(part.values), [f"axis {k}" for k in (1, 2, 3)]
    raise SplineCamError(
        f"output has the shape {tuple(np.shape(output))}: give one output, three of them such as "
        f"(0, 1, 2), or a matrix ({n}, 3) that projects the {n} outputs onto three axes."
    )
