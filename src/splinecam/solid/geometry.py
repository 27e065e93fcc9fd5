"""A surface in three dimensions by itself: coordinates, structure and measures."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from splinecam._util.arrays import as_rows
from splinecam._util.bvh import BoxTree
from splinecam._util.options import as_float64
from splinecam._util.tolerances import EPS, OVERLAY_SLACK, SAFETY
from splinecam.errors import SplineCamError
from splinecam.network.capture.models import dtype_of
from splinecam.partitions.captured import Captured
from splinecam.solid import measures
from splinecam.solid.caps import caps_of
from splinecam.solid.data import SurfaceData
from splinecam.solid.outputs import Output, chosen_output
from splinecam.solid.structure import Structure, triangles_of


class SurfaceGeometry:
    """The vertices and faces of a surface, as ``Surface`` describes them, and their measures."""

    def __init__(
        self,
        data: SurfaceData,
        box: Any,
        network: Captured,
        *,
        level: float = 0.0,
        output: Output = 0,
    ) -> None:
        self.box, self.network, self.level, self.output = box, network, float(level), output
        self.vertices, self.face_offsets, self.face_vertices = on_host(
            data.vertices, data.face_offsets, data.face_vertices
        )
        self.gradients, self.bias = on_host(data.gradients, data.bias)
        self.edge_layer, self.face_region = on_host(data.edge_layer, data.face_region)
        self.unresolved, self.data = tuple(data.unresolved), data
        self.structure = Structure(self.face_offsets, self.face_vertices)

    def __len__(self) -> int:
        return int(self.face_offsets.shape[0]) - 1

    def __repr__(self) -> str:
        parts = self.components
        state = "closed" if self.closed else f"{len(self.open_edges):,} open edges"
        return (
            f"Surface({len(self):,} faces, {self.vertices.shape[0]:,} vertices, "
            f"{parts:,} component{'s' * (parts != 1)}, {state}, level {self.level:g})"
        )

    # -- coordinates ----------------------------------------------------------------------------

    @cached_property
    def _corners(self) -> Tensor:
        """The corners of the box, (K, 3)."""
        return on_host(self.box.corners)[0].to(torch.float64)

    @cached_property
    def _sides(self) -> tuple[Tensor, Tensor]:
        """Normals (P, 3), outwards and of length 1, and offsets (P,) of the box's sides."""
        normals, offsets = on_host(*self.box.planes)
        return normals.to(torch.float64), offsets.to(torch.float64)

    @cached_property
    def _extent(self) -> float:
        """The diameter of the box, or half of it."""
        return float((self._corners - self._corners[0]).norm(dim=1).max())

    @cached_property
    def _rounding(self) -> float:
        """How far rounding may move a vertex, which is not little in a box far from the origin."""
        return SAFETY * EPS * float(self._corners.abs().max())

    @property
    def _slack(self) -> float:
        """The distance up to which a vertex lies on a side of the box."""
        return OVERLAY_SLACK * self._extent + self._rounding

    def inputs(self, points: Any = None) -> Tensor:
        """Points of the box as inputs (N, ...) of the model, in its floating-point type.

        points: (N, 3), by default the vertices.
        """
        uvw = self.vertices if points is None else as_float64(points, "points")
        x: Tensor = self.box.to_input(uvw)
        model = getattr(self.network, "model", None)
        return x if model is None else x.to(dtype_of(model))

    def values(self, points: Any) -> Tensor:
        """The output at points of the box, computed by the network in float64, (N,).

        points: (N, 3), in the box's coordinates.
        """
        x = self.box.to_input(as_float64(points, "points"))
        with torch.inference_mode(False), torch.no_grad():
            y = as_rows(self.network(x)).cpu()
        return chosen_output(y, self.output)

    # -- structure ------------------------------------------------------------------------------

    @property
    def components(self) -> int:
        """The number of connected components."""
        return self.structure.components

    @property
    def euler(self) -> int:
        """Vertices minus edges plus faces; where parts touch, each part counts for itself."""
        return self.structure.euler

    @property
    def genus(self) -> int:
        """The number of handles; openings at the sides of the box count as closed by discs."""
        return self.structure.genus

    @property
    def closed(self) -> bool:
        """Whether each edge has a face on both sides."""
        return not self.structure.border.numel()

    @property
    def edges(self) -> Tensor:
        """The ends of the edges, (E, 2)."""
        first = self.structure.first
        return torch.stack([self.face_vertices[first], self.structure.end[first]], 1)

    @property
    def edge_layers(self) -> Tensor:
        """The layer of each edge, -1 on a side of the box, -2 for an auxiliary edge, (E,)."""
        return self.edge_layer[self.structure.first]

    @property
    def open_edges(self) -> Tensor:
        """The ends of the edges with one face only, which lie on sides of the box, (B, 2)."""
        border = self.structure.border
        return torch.stack([self.face_vertices[border], self.structure.end[border]], 1)

    @property
    def face_layers(self) -> Tensor:
        """The last layer that bounds each face, -1 where only sides of the box do, (F,)."""
        none = torch.full((len(self),), -1)
        return none.scatter_reduce_(0, self.structure.face, self.edge_layer.long(), "amax")

    def triangles(self) -> Tensor:
        """Triangles between the vertices that fill the faces, in their orientation, (T, 3)."""
        return self._triangles[0]

    @cached_property
    def _triangles(self) -> tuple[Tensor, Tensor]:
        return triangles_of(self.structure, self.vertices)

    @property
    def crowded_edges(self) -> Tensor:
        """The ends of edges in which several parts touch, with more than two faces, (N, 2)."""
        found = self.structure.crowded
        return torch.stack([self.face_vertices[found], self.structure.end[found]], 1)

    # -- measures -------------------------------------------------------------------------------

    @cached_property
    def normals(self) -> Tensor:
        """The unit normals of the faces, towards larger outputs, (F, 3)."""
        size = self.gradients.norm(dim=1, keepdim=True)
        normals: Tensor = self.gradients / torch.where(size > 0, size, 1)
        return normals

    @cached_property
    def areas(self) -> Tensor:
        """The areas of the faces, (F,)."""
        areas: Tensor = measures.crosses(self.vertices, self.structure).norm(dim=1)
        return areas

    @property
    def area(self) -> float:
        """The area of the surface."""
        return float(self.areas.sum())

    @cached_property
    def _centres(self) -> Tensor:
        """The mean of the corners of each face, (F, 3)."""
        total = self.vertices.new_zeros(len(self), 3)
        total.index_add_(0, self.structure.face, self.vertices[self.structure.vertex])
        return total / self.structure.counts[:, None]

    @property
    def centroid(self) -> Tensor:
        """The mean of all points of the surface, (3,), in the box's coordinates."""
        middle: Tensor = self._triangle_areas @ self.vertices[self.triangles()].mean(1)
        return middle / self._triangle_areas.sum()

    @cached_property
    def _triangle_areas(self) -> Tensor:
        corners = self.vertices[self.triangles()]
        sides = corners[:, 1:] - corners[:, :1]
        areas: Tensor = torch.linalg.cross(sides[:, 0], sides[:, 1]).norm(dim=1) / 2
        return areas

    @cached_property
    def curvature(self) -> Tensor:
        """The angle between the faces at each edge, in radians, (E,); NaN at open edges.

        It is above 0 where the part of the box with smaller outputs is convex.
        """
        return measures.turns(self.vertices, self.structure, self.normals)

    @cached_property
    def component_areas(self) -> Tensor:
        """The area of each component, (K,)."""
        return measures.sums(self.areas, self.structure.component, self.components)

    @cached_property
    def component_volumes(self) -> Tensor:
        """The volume that each component encloses, (K,), NaN where it is open.

        It is below 0 where the smaller outputs are outside.
        """
        flux = measures.fluxes(self.vertices, self.structure, self._corners.mean(0))
        found = measures.sums(flux, self.structure.component, self.components)
        opened = self.structure.component[self.structure.face[self.structure.border]]
        found[opened] = torch.nan
        return found

    @cached_property
    def volume(self) -> float:
        """The volume of the part of the box where the output is below the level."""
        return float(self._volume_at(self.vertices))

    def _volume_at(self, points: Tensor) -> Tensor:
        """The same for vertices that may move on the sides of the box where they lie there."""
        middle = self._corners.mean(0)
        total = measures.fluxes(points, self.structure, middle).sum()
        if self._is_capped:
            return total
        self._require_sides("The volume")
        heights, caps = self._sides[1] - self._sides[0] @ middle, self._caps
        border = caps.side, caps.start, caps.end
        areas = measures.cap_areas(torch.cat([points, self._corners]), border, caps.normals)
        return total + heights @ areas / 3

    @property
    def _is_capped(self) -> bool:
        return bool((self.face_region < 0).any())

    @cached_property
    def _caps(self) -> measures.Caps:
        # Where the output is the level in a region, rounding must not make it smaller.
        level = self.level - float(self.data.report.get("rounding", 0.0))

        def below(points: Tensor) -> Tensor:
            found: Tensor = self.values(points) < level
            return found

        return caps_of(
            self.structure, self.vertices, self._corners, self._sides, below, self._slack
        )

    @cached_property
    def _lost(self) -> int:
        """The number of open edges inside of the box."""
        ends = torch.stack([self._caps.end, self._caps.start], 1)
        size = torch.tensor([self.vertices.shape[0] + self._corners.shape[0], 1])
        return int((~torch.isin(self.open_edges @ size, ends @ size)).sum())

    def _require_sides(self, what: str) -> None:
        """Raise an error if the surface has a border inside of the box."""
        if self._lost:
            raise SplineCamError(
                f"{what} needs a surface that ends on the sides of the box only, and "
                f"{self._lost:,} open edges lie inside. See surface.unresolved."
            )

    def distance(self, points: Any) -> Tensor:
        """The distances of points from the surface, (N,).

        Points of another surface show how far two surfaces are apart: ``other.sample(n).points``.

        points: (N, 3), in the box's coordinates.
        """
        at = as_float64(points, "points")
        if not len(self):
            return torch.full_like(at[:, 0], torch.inf)
        return measures.distances(at, self.vertices[self.triangles()], self._tree)[0]

    @cached_property
    def _tree(self) -> BoxTree:
        corners = self.vertices[self.triangles()]
        return BoxTree(corners.amin(1), corners.amax(1))


def on_host(*arrays: Any) -> tuple[Tensor, ...]:
    """Arrays or tensors of any device as tensors in memory."""
    return tuple(torch.as_tensor(each).detach().cpu() for each in arrays)
