"""Sheets in space with one facet per region: graphs, images in three outputs, and slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import torch
from matplotlib.colors import to_rgba
from mpl_toolkits.mplot3d import Axes3D
from torch import Tensor

from splinecam.geometry.subdivision import Mesh
from splinecam.plot import axes3d
from splinecam.plot.arrays import Floats, Ints, to_numpy
from splinecam.plot.colors import Coloring, ColorOptions, color_regions
from splinecam.plot.depth_buffer import Polygons, nearest
from splinecam.plot.palette import BOUNDARY, BOUNDARY_ON_DARK, INK
from splinecam.plot.scene import Scene, Strokes
from splinecam.questions.boundary import decision_boundary, winners_of
from splinecam.questions.partition_data import PartitionData

_LIGHT = (70.0, 50.0)  # degrees: where the light is, counter-clockwise from the eye, and how high
_EDGE, _EDGE_ALPHA = (0.45, 0.2), (0.75, 0.4)  # width in points and strength: first, last layer
_EDGE_SHARE, _POINTS = 0.08, 300.0  # of the spacing, when the sheet is about so many points wide
_BOUNDARY_WIDTH = 1.7  # points
_LIGHTNESS = 0.45  # of a sheet on which the boundary is dark
_PLANE = (0.35, 0.38, 0.42, 0.35)
_GRAPH_VIEWS = [(33.0, azimuth) for azimuth in (-60.0, 30.0, 120.0, -150.0)]
_VIEWS = list(product([50.0, 30.0, 15.0], [30.0 * k - 170 for k in range(12)]))
_SOME_VIEWS = list(product([30.0], [30.0 * k - 170 for k in range(1, 12, 3)]))
_MANY = 100_000  # corners of facets up to which all of these views are tried
_SEEN = 160  # pixels of the pictures from which the best view is chosen


@dataclass(frozen=True)
class Look:
    """How sheets are drawn.

    boundary_colors: of the decision boundary of each sheet, if it is drawn; None for one that is
    seen on its colours. alpha: the opacity of facets. darkest: the share of its colour that a facet
    has when it faces away from the light. height: of a graph over a plane of width 1; None if all
    axes have the same scale. plane: the level of a translucent plane in a graph. colorbar: explain
    the colours of the first sheet.
    """

    edges: bool
    boundary_colors: Sequence[Any] | None
    alpha: float = 1.0
    darkest: float = 0.5
    height: float | None = None
    plane: float | None = None
    colorbar: bool = False


@dataclass(frozen=True)
class Sheet:
    """The cells of a partition as facets in space.

    place: the points (N, 3) of plane coordinates (N, 2) and outputs (N, n_out); points: (V, 3) of
    the mesh's vertices; region: (F,) the region of each cell; layer: (E,) the layer that drew each
    edge, -1 for the border, -2 for the decision boundary. level: at which a single output changes
    its class. height: as in ``Look``.
    """

    part: PartitionData
    place: Callable[[Tensor, Tensor], Tensor]
    coloring: Coloring
    points: Floats
    region: Ints
    layer: Ints
    level: float
    height: float | None

    @classmethod
    def of(
        cls,
        part: PartitionData,
        place: Callable[[Tensor, Tensor], Tensor],
        color: Any,
        options: ColorOptions,
        height: float | None = None,
    ) -> Sheet:
        """The regions with their colours, or the cells of the classes."""
        coloring = color_regions(part, color, options)
        level = options.level
        if coloring.mesh is part.mesh:
            points, region = place(part.vertices, part.values), np.arange(len(part))
            layer = part.mesh.edge_layer
        else:
            overlay = winners_of(part, "argmax", level, whole=True).overlay
            values = overlay.z[:, 1:] + level if part.values.shape[1] == 1 else overlay.z
            points = place(part._frame.to_plane(overlay.mesh.uv), values)
            layer = torch.where(overlay.source >= 0, part.mesh.edge_layer[overlay.source], -2)
            region = to_numpy(overlay.face)
        own = to_numpy(points), region, to_numpy(layer)
        return cls(part, place, coloring, *own, level, height)

    @property
    def mesh(self) -> Mesh:
        return self.coloring.mesh

    @cached_property
    def corners(self) -> Ints:
        """The vertices of each cell, (F, k), the last one repeated."""
        return padded_corners(self.mesh)

    @cached_property
    def page(self) -> Floats:
        """The points (V, 3) in units that have the same length on all axes."""
        if self.height is None:
            return self.points
        wide, _, high = np.ptp(self.points, axis=0)
        return np.asarray(self.points * [1, 1, self.height * wide / (high or 1.0)])

    @cached_property
    def normals(self) -> Floats:
        """The normals of the cells on the page, (F, 3), as long as the cells are large."""
        at = self.page[self.corners]
        at = at - at[:, :1]
        return np.asarray(np.cross(at, np.roll(at, -1, 1)).sum(1) / 2)

    @cached_property
    def areas(self) -> Floats:
        """The areas of the cells in the plane, (F,)."""
        return np.asarray(to_numpy(self.mesh.areas_and_centroids()[0]))

    def edges(self, alpha: float) -> Strokes:
        """The cells' edges except those of the boundary, thinner and paler for later layers."""
        shown = np.flatnonzero(self.layer >= -1)
        ends, layer = to_numpy(self.mesh.edges)[shown], np.maximum(self.layer[shown], 0)
        late = layer / max(len(self.part.layers) - 1, 1)
        color = np.tile(to_rgba(INK), (len(shown), 1))
        color[:, 3] = _EDGE_ALPHA[0] + (_EDGE_ALPHA[1] - _EDGE_ALPHA[0]) * late
        color[:, 3] *= alpha
        # Lines are thinner where they are closer together.
        size = np.linalg.norm(np.diff(self.page[ends], axis=1)[:, 0], axis=1)
        total = np.cumsum(np.bincount(layer, size, minlength=len(self.part.layers)))
        area = np.linalg.norm(self.normals, axis=1).sum()
        room = total[layer] * np.ptp(self.page, axis=0).max()
        spacing = _POINTS * area / np.where(room > 0, room, 1)
        width = np.minimum(_EDGE[0] + (_EDGE[1] - _EDGE[0]) * late, _EDGE_SHARE * spacing)
        width[self.layer[shown] < 0] = _EDGE[0]
        beside = _twice(to_numpy(self.mesh.halfedge_face().view(-1, 2))[shown])
        return Strokes.of(self.points[ends], beside, color, width, 1)

    def boundary(self, color: Any, colors: Floats) -> Strokes:
        """The decision boundary, by default in a colour that is seen on the cells' (F, 4)."""
        if not color:
            lightness = self.areas @ colors[:, :3].mean(1) / self.areas.sum()
            color = BOUNDARY if lightness > _LIGHTNESS else BOUNDARY_ON_DARK
        maps, found = self.part._maps, decision_boundary(self.part, level=self.level)
        regions = _twice(to_numpy(found.regions))
        inside = torch.as_tensor(regions[:, :1], device=found.points.device)
        shift = (found.local_ends - maps.anchor[inside])[:, :, None]
        values = maps.value[inside] + (maps.weight[inside] * shift).sum(3)
        points = self.place(found.ends.flatten(0, 1), values.flatten(0, 1))
        # All cells of a region are in one plane, which the largest one shows best.
        cell, by_size = np.zeros(len(self.part), np.int64), np.argsort(self.areas)
        cell[self.region[by_size]] = by_size
        ends = to_numpy(points).reshape(-1, 2, 3)
        return Strokes.of(ends, cell[regions], to_rgba(color), _BOUNDARY_WIDTH, 2)

    def lit_colors(self, view: tuple[float, float], look: Look) -> Floats:
        """The colours of the cells, (F, 4), in the light of an eye at an elevation and azimuth."""
        colors = self.coloring.cell_colors()
        size = np.linalg.norm(self.normals, axis=1)
        normal = self.normals / np.where(size > 0, size, 1)[:, None]
        # A facet is seen from the side that faces the eye, and the light is on the eye's side.
        side = np.where(normal @ _toward(*view) < 0, -1, 1)
        light = _toward(np.copysign(_LIGHT[1], view[0]), view[1] - _LIGHT[0])
        facing = side * (normal @ light)
        strength = look.darkest + (1 - look.darkest) * (1 + facing) / 2
        return np.concatenate([colors[:, :3] * strength[:, None], colors[:, 3:] * look.alpha], 1)


def _twice(pair: Ints) -> Ints:
    """Pairs (N, 2) in which -1 is replaced by the other entry."""
    return np.where(pair < 0, pair[:, ::-1], pair)


def padded_corners(mesh: Mesh) -> Ints:
    """The vertices of each cell, (F, k), the last one repeated up to the largest number."""
    vertex, offsets = to_numpy(mesh.corner_vertices()), to_numpy(mesh.offsets)
    last = np.diff(offsets)[:, None] - 1
    place = np.minimum(np.arange(int(last.max()) + 1), last)
    return np.asarray(vertex[offsets[:-1, None] + place])


def _toward(elevation: float, azimuth: float) -> Floats:
    """The direction towards an eye, (3,)."""
    up, turn = np.radians(elevation), np.radians(azimuth)
    return np.array([np.cos(up) * np.cos(turn), np.cos(up) * np.sin(turn), np.sin(up)])


def best_view(sheets: Sequence[Sheet]) -> tuple[float, float]:
    """The elevation and azimuth from which most of the sheets is seen, and least at an angle.

    A graph is seen where it faces the eye. Of several sheets, the one that is seen least counts.
    """
    if sheets[0].height is not None:
        normals = sheets[0].normals
        return max(_GRAPH_VIEWS, key=lambda view: np.maximum(normals @ _toward(*view), 0).sum())
    corners = np.concatenate([each.page[each.corners].reshape(-1, 3) for each in sheets])
    middle = np.asarray(corners.min(0) + corners.max(0)) / 2
    reach = float(np.ptp(corners, axis=0).max()) or 1.0
    views = _SOME_VIEWS if len(corners) > _MANY else _VIEWS
    return max(views, key=lambda view: _seen(sheets, view, middle, reach))


def _seen(
    sheets: Sequence[Sheet], view: tuple[float, float], middle: Floats, reach: float
) -> float:
    """The share of the plane of each sheet that is seen, less where it is seen at an angle."""
    eye, right = _toward(*view), _toward(0.0, view[1] + 90)
    axes = np.array([right, np.cross(eye, right), -eye]).T * _SEEN / (2 * reach)
    shift = np.array([_SEEN / 2, _SEEN / 2, 0.0])
    page = [((each.page - middle) @ axes + shift)[each.corners] for each in sheets]
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
    look: Look,
    names: Sequence[str],
    ax: Axes3D | None,
    view: tuple[float, float] | None,
) -> Axes3D:
    """Draw sheets on axes with some names, as seen from an elevation and azimuth."""
    ax, fit = axes3d.place_axes(ax, look.colorbar)
    if view is None and fit.own:
        view = best_view(sheets)
    if view is not None:
        ax.view_init(*view)
    points, corners = [each.points for each in sheets], [each.corners for each in sheets]
    if look.plane is not None:
        uv = to_numpy(sheets[0].part.domain.corners)
        points.append(np.concatenate([uv, np.full((len(uv), 1), look.plane)], 1))
        corners.append(np.arange(len(uv))[None])
    every = np.concatenate(points)
    axes3d.label_axes(fit, names, np.stack([every.min(0), every.max(0)], 1), look.height)
    face, strokes, first = [], [], 0
    for k, sheet in enumerate(sheets):
        face.append(sheet.lit_colors((float(ax.elev), float(ax.azim)), look))
        own = [sheet.edges(look.alpha)] if look.edges else []
        if look.boundary_colors is not None:
            own.append(sheet.boundary(look.boundary_colors[k], face[k]))
        strokes += [each.on_facets(first) for each in own]
        first += len(sheet.corners)
    lines = Strokes.joined(strokes) if strokes else None
    if look.plane is not None:
        face.append(np.array([_PLANE]))
        if lines is not None:  # the boundary lies on the plane, too
            third = np.where(lines.rank == 2, first, lines.facets[:, 0])
            lines = replace(lines, facets=np.column_stack([lines.facets, third]))
    ax.add_collection(Scene(every, _joined(points, corners), np.concatenate(face), lines))
    if look.colorbar:
        axes3d.explain_colors(fit, sheets[0].coloring)
    return ax


def _joined(points: list[Floats], corners: list[Ints]) -> Ints:
    """The corners of facets in all points together, with as many for each facet."""
    start = np.cumsum([0, *(len(each) for each in points)])
    most = max(each.shape[1] for each in corners)
    padded = [np.pad(c, ((0, 0), (0, most - c.shape[1])), mode="edge") for c in corners]
    return np.concatenate([c + first for c, first in zip(padded, start, strict=False)])
