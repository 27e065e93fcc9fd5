"""The facets, edges and curves of a surface, as items of a scene."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from matplotlib.colors import to_rgba

from splinecam.geometry.subdivision import Mesh
from splinecam.plot.colors import Coloring
from splinecam.plot.lines import Floats, Ints, to_numpy
from splinecam.plot.palette import BOUNDARY, BOUNDARY_ON_DARK, INK
from splinecam.plot.scene import NEAREST, Items, Neighbours
from splinecam.questions.boundary import decision_boundary, winners_of
from splinecam.questions.partition_data import PartitionData
from splinecam.questions.winners import Winners

MANY = 30_000  # facets up to which edges are drawn
_LIGHT = (70.0, 50.0)  # degrees: where the light is, counter-clockwise from the eye, and how high
_DARKEST, _BRIGHTEST = 0.45, 1.0  # of a facet's colour, by how it faces the light
_EDGE, _EDGE_ALPHA = (0.45, 0.2), (0.75, 0.4)  # width in points and strength: first, last layer
_EDGE_SHARE, _POINTS = 0.08, 250.0  # of the spacing, when the plane is about so many points wide
_BOUNDARY_WIDTH = 1.7  # points
_LIGHTNESS = 0.45  # of a surface on which the boundary is dark
_PLANE = (0.35, 0.38, 0.42, 0.35)
_ELEVATION, _AZIMUTHS = 33.0, (-60.0, 30.0, 120.0, -150.0)


@dataclass(frozen=True)
class Surface:
    """The graph of output k: points (V, 3) over the vertices of a mesh, and its cells.

    region: (F,) the region of each cell; half: (F,) whether the cell is above (1) or below (-1) the
    level, 0 if cells are not split there. layer: (E,) the layer that drew each edge, -1 for the
    border, -2 for the decision boundary. winners: if cells are split at the decision boundary.
    height: of the surface on the page, where the plane has the width 1.
    """

    part: PartitionData
    k: int
    level: float
    height: float
    mesh: Mesh
    points: Floats
    region: Ints
    half: Ints
    layer: Ints
    winners: Winners | None = None

    @classmethod
    def of(
        cls, part: PartitionData, k: int, level: float, *, split: bool, height: float
    ) -> Surface:
        """The regions at the height of output k, or the cells of the decision boundary's split."""
        start = part, k, level, height
        if not split:
            points, region = _lifted(part, part.mesh, part.values[:, k]), np.arange(len(part))
            half, layer = np.zeros_like(region), to_numpy(part.edge_layer)
            return cls(*start, part.mesh, points, region, half, layer)
        found = winners_of(part, "argmax", level, whole=True)
        overlay, alone = found.overlay, part.values.shape[1] == 1
        z = overlay.z[:, 1] + level if alone else overlay.z[:, k]
        points = _lifted(part, overlay.mesh, z)
        half = np.asarray(2 * to_numpy(found.winner) - 1) * alone
        layer = to_numpy(torch.where(overlay.source >= 0, part.edge_layer[overlay.source], -2))
        return cls(*start, overlay.mesh, points, to_numpy(overlay.face), half, layer, found)

    @property
    def name(self) -> str:
        """The name of the third axis."""
        return "f" if self.part.values.shape[1] == 1 else f"f, output {self.k}"

    @cached_property
    def areas(self) -> Floats:
        return cell_areas(self.mesh)

    @cached_property
    def beside(self) -> Ints:
        return cells_beside(self.mesh)

    @cached_property
    def slope(self) -> Floats:
        """Slopes of the cells on the page, (F, 2)."""
        extent = np.ptp(self.points, axis=0)
        stretch = self.height * extent[0] / (extent[2] or 1.0)
        return np.asarray(stretch * to_numpy(self.part.weight[:, self.k])[self.region])

    def limits(self, heights: list[float]) -> Floats:
        """The ends of u, v and f, (3, 2), with some heights included."""
        z = [*heights, self.points[:, 2].min(), self.points[:, 2].max()]
        uv = self.points[:, :2]
        return np.array([*zip(uv.min(0), uv.max(0), strict=True), (min(z), max(z))])

    def neighbours(self) -> Neighbours:
        """The pairs of cells with an edge between them."""
        left, right = self.beside.T
        inner = left != right
        ends = self.points[to_numpy(self.mesh.edges)[inner], :2]
        start, along = ends[:, 0], ends[:, 1] - ends[:, 0]
        return Neighbours(left[inner], right[inner], start, along, self.mesh.num_faces)

    def best_view(self) -> tuple[float, float]:
        """Elevation and azimuth from which most of the surface faces the eye."""
        seen = [self.areas @ np.maximum(self._facing(a, _ELEVATION), 0) for a in _AZIMUTHS]
        return _ELEVATION, _AZIMUTHS[int(np.argmax(seen))]

    def lit_colors(self, coloring: Coloring, azimuth: float) -> Floats:
        """The colours of the cells, (F, 4), in the light of an eye at an azimuth."""
        colors = cell_colors(coloring)
        colors = colors.copy() if coloring.mesh is self.mesh else colors[self.region]
        size = np.sqrt(1 + (self.slope**2).sum(1))
        facing = self._facing(azimuth - _LIGHT[0], _LIGHT[1]) / size
        strength = _DARKEST + (_BRIGHTEST - _DARKEST) * (1 + facing) / 2
        colors[:, :3] = np.clip(colors[:, :3] * strength[:, None], 0, 1)
        return colors

    def _facing(self, azimuth: float, elevation: float) -> Floats:
        """How far the cells face a direction, (F,): cosines, times their sizes."""
        turn, up = np.radians(azimuth), np.radians(elevation)
        toward = np.cos(up) * np.array([np.cos(turn), np.sin(turn)])
        return np.asarray(np.sin(up) - self.slope @ toward)


def _lifted(part: PartitionData, mesh: Mesh, z: torch.Tensor) -> Floats:
    uv = to_numpy(part.frame.to_plane(mesh.uv))
    return np.concatenate([uv, to_numpy(z)[:, None]], 1)


def twice(pair: Ints) -> Ints:
    """Pairs (N, 2) in which -1 is replaced by the other entry."""
    return np.where(pair < 0, pair[:, ::-1], pair)


def cell_areas(mesh: Mesh) -> Floats:
    """The areas of the cells in the coordinates of a mesh, (F,)."""
    return np.asarray(to_numpy(mesh.areas_and_centroids()[0]))


def cells_beside(mesh: Mesh) -> Ints:
    """The cells beside each edge, (E, 2), the same cell twice at the border."""
    return twice(to_numpy(mesh.halfedge_face().view(-1, 2)))


def cell_colors(coloring: Coloring) -> Floats:
    """The colour of each cell, (F, 4); where numbers are affine, that of the mean vertex."""
    fill = coloring.fill
    if fill.colors is not None:
        return fill.colors
    assert fill.numbers is not None
    assert coloring.norm is not None
    assert coloring.cmap is not None
    numbers = fill.numbers
    if fill.slopes is not None:
        numbers = numbers + (fill.slopes * to_numpy(coloring.mesh.means())).sum(1)
    return np.asarray(coloring.cmap(coloring.norm(numbers)), np.float64)


def padded_corners(mesh: Mesh) -> Ints:
    """The vertices of each cell, (F, k), the last one repeated up to the largest number."""
    vertex, offsets = to_numpy(mesh.corner_vertices()), to_numpy(mesh.offsets)
    last = np.diff(offsets)[:, None] - 1
    place = np.minimum(np.arange(int(last.max()) + 1), last)
    return np.asarray(vertex[offsets[:-1, None] + place])


def facets(surface: Surface, colors: Floats) -> Items:
    """The cells, padded to the largest number of corners."""
    cell, corners = np.arange(len(colors)), padded_corners(surface.mesh)
    return Items.of(surface.points, corners, np.stack([cell, cell], 1), surface.half, face=colors)


def edges(surface: Surface) -> Items:
    """The cells' edges except those of the boundary, thinner and paler for later layers."""
    part, shown = surface.part, np.flatnonzero(surface.layer >= -1)
    ends, layer = to_numpy(surface.mesh.edges)[shown], np.maximum(surface.layer[shown], 0)
    late = layer / max(len(part.layers) - 1, 1)
    color = np.tile(to_rgba(INK), (len(shown), 1))
    color[:, 3] = _EDGE_ALPHA[0] + (_EDGE_ALPHA[1] - _EDGE_ALPHA[0]) * late
    # Lines are thinner where they are closer together.
    size = np.linalg.norm(np.diff(surface.points[ends, :2], axis=1)[:, 0], axis=1)
    total = np.cumsum(np.bincount(layer, size, minlength=len(part.layers)))
    spacing = _POINTS / np.ptp(surface.points[:, 0]) * part.domain.area / total[layer]
    width = np.minimum(_EDGE[0] + (_EDGE[1] - _EDGE[0]) * late, _EDGE_SHARE * spacing)
    width[surface.layer[shown] < 0] = _EDGE[0]
    cells = surface.beside[shown]
    half = surface.half[cells[:, 0]]
    return Items.of(surface.points, ends, cells, half, rank=1, line=color, width=width)


def boundary(surface: Surface, color: Any, colors: Floats) -> Items:
    """The decision boundary on the surface, by default in a colour that is seen on the cells'."""
    part, k = surface.part, surface.k
    if not color:
        lightness = surface.areas @ colors[:, :3].mean(1) / surface.areas.sum()
        color = BOUNDARY if lightness > _LIGHTNESS else BOUNDARY_ON_DARK
    style: Any = {"rank": 2, "line": to_rgba(color), "width": _BOUNDARY_WIDTH}
    if surface.winners is not None:  # the boundary runs along edges of the cells
        edge = to_numpy(surface.winners.borders()[0])
        ends = to_numpy(surface.mesh.edges)[edge]
        return Items.of(surface.points, ends, surface.beside[edge], NEAREST, **style)
    found = decision_boundary(part, level=surface.level)
    cells = twice(to_numpy(found.regions))
    maps, inside = part.maps, torch.as_tensor(cells[:, :1], device=found.points.device)
    shift = found.local_ends - maps.anchor[inside]
    z = maps.value[inside, k] + (maps.weight[inside, k] * shift).sum(2)
    points = np.concatenate([to_numpy(found.ends), to_numpy(z)[:, :, None]], 2).reshape(-1, 3)
    return Items.of(points, np.arange(len(points)).reshape(-1, 2), cells, NEAREST, **style)


def plane(part: PartitionData, level: float) -> Items:
    """The domain at the height of the level."""
    uv = to_numpy(part.domain.corners)
    points = np.concatenate([uv, np.full((len(uv), 1), level)], 1)
    return Items.of(points, np.arange(len(uv))[None], np.zeros((1, 2), np.int64), 0, face=_PLANE)


def joined(parts: list[Items]) -> Items:
    """All items in one, padded to the same number of corners."""
    start = np.cumsum([0, *(len(each.points) for each in parts)])
    wide = max(3, *(each.corners.shape[1] for each in parts))
    corners = [
        np.pad(each.corners, ((0, 0), (0, wide - each.corners.shape[1])), mode="edge") + first
        for each, first in zip(parts, start, strict=False)
    ]
    names = ("points", "cells", "rank", "half", "face", "line", "width")
    rest = {name: np.concatenate([getattr(each, name) for each in parts]) for name in names}
    return Items(corners=np.concatenate(corners), **rest)
