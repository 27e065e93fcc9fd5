"""How the faces of a surface hang together: edges, components, borders, genus, and triangles.

A half-edge is numbered as the corner where it begins, and runs to the next corner of its face. Its
twin belongs to the neighbouring face and runs back. Where parts of a surface touch in a vertex or
an edge, that vertex or edge counts once for each part: all parts are then proper surfaces.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from splinecam._util.arrays import following, offsets_of, owners_of, places_of, take
from splinecam._util.graphs import components


@dataclass(frozen=True, eq=False)
class Structure:
    """The structure of F polygons: offsets (F + 1,), and vertex (C,) of their corners."""

    offsets: Tensor
    vertex: Tensor

    @cached_property
    def counts(self) -> Tensor:
        """The number of corners of each face, (F,)."""
        return self.offsets.diff()

    @cached_property
    def face(self) -> Tensor:
        """The face of each corner, (C,)."""
        return owners_of(self.counts, self.vertex.shape[0])

    @cached_property
    def following(self) -> Tensor:
        """The next corner of the same face, (C,)."""
        return following(self.offsets, self.vertex.shape[0])

    @cached_property
    def end(self) -> Tensor:
        """The vertex where each half-edge ends, (C,)."""
        return take(self.vertex, self.following)

    @cached_property
    def twin(self) -> Tensor:
        """The half-edge that runs back along each half-edge, -1 on a border, (C,)."""
        low, high = torch.minimum(self.vertex, self.end), torch.maximum(self.vertex, self.end)
        back = (self.vertex > self.end).long()
        size = 1 + int(high.max()) if high.numel() else 1
        key = torch.unique(low * size + high, return_inverse=True)[1] * 2 + back
        order = torch.sort(key, stable=True).indices
        counts = torch.bincount(key)
        # Where more than two faces meet in an edge, the first one and the first back are twins.
        rank = torch.empty_like(key)
        ordered = take(key, order)
        rank[order] = places_of(counts, ordered, offsets_of(counts))
        places = counts.shape[0] + 1, int(rank.max()) + 1 if rank.numel() else 1
        slot = key.new_full(places, -1)
        slot[key, rank] = torch.arange(key.shape[0])
        twin: Tensor = slot[key ^ 1, rank]
        return twin

    @cached_property
    def crowded(self) -> Tensor:
        """One half-edge of each pair of vertices between which several edges run, (N,)."""
        ends = torch.stack([take(self.vertex, self.first), take(self.end, self.first)], 1)
        which, times = torch.unique(
            ends.sort(1).values, dim=0, return_inverse=True, return_counts=True
        )[1:]
        one = torch.zeros_like(times).scatter_reduce_(0, which, torch.arange(len(which)), "amax")
        return take(self.first, one[times > 1])

    @cached_property
    def first(self) -> Tensor:
        """One half-edge of each edge, the lower one of two twins, (E,)."""
        index = torch.arange(self.vertex.shape[0])
        return ((self.twin < 0) | (index < self.twin)).nonzero()[:, 0]

    @cached_property
    def edge(self) -> Tensor:
        """The edge of each half-edge, (C,)."""
        edge = torch.empty_like(self.vertex)
        index, twin = torch.arange(self.first.shape[0]), take(self.twin, self.first)
        edge[self.first] = index
        edge[twin[twin >= 0]] = index[twin >= 0]
        return edge

    @cached_property
    def border(self) -> Tensor:
        """The half-edges without a twin, (B,)."""
        return (self.twin < 0).nonzero()[:, 0]

    @cached_property
    def inner(self) -> Tensor:
        """One half-edge of each pair of twins."""
        return self.first[take(self.twin, self.first) >= 0]

    @cached_property
    def component(self) -> Tensor:
        """The component of each face, (F,), numbered by lowest faces."""
        there = take(self.face, self.inner), take(self.face, take(self.twin, self.inner))
        return components(self.counts.shape[0], *there)

    @property
    def components(self) -> int:
        """The number of components."""
        return int(self.component.max()) + 1 if self.component.numel() else 0

    @cached_property
    def _sheet(self) -> Tensor:
        """The vertex of each corner, counted once for each part that touches it, (C,)."""
        begun = self.inner
        ended = take(self.following, take(self.twin, begun))
        after = take(self.following, begun)
        twin = take(self.twin, begun)
        ends = torch.cat([begun, after]), torch.cat([ended, twin])
        return components(self.vertex.shape[0], *ends)

    @cached_property
    def loops(self) -> Tensor:
        """The closed curve that each border half-edge belongs to, (B,)."""
        ends = take(self._sheet, self.border), take(self._sheet, take(self.following, self.border))
        if not self.border.numel():
            return self.border
        curve = components(int(self._sheet.max()) + 1, *ends)
        loops: Tensor = torch.unique(take(curve, ends[0]), return_inverse=True)[1]
        return loops

    @property
    def euler(self) -> int:
        """Vertices minus edges plus faces."""
        vertices = int(self._sheet.max()) + 1 if self._sheet.numel() else 0
        return vertices - self.first.shape[0] + self.counts.shape[0]

    @property
    def genus(self) -> int:
        """The number of handles of all components, with a disc in each curve of the border."""
        curves = int(self.loops.max()) + 1 if self.loops.numel() else 0
        return (2 * self.components - self.euler - curves) // 2


def triangles_of(structure: Structure, points: Tensor) -> tuple[Tensor, Tensor]:
    """Triangles (T, 3) that fill convex polygons, and the face (T,) of each.

    Each face is a fan around a corner whose neighbours are sharp, so that no triangle is flat where
    corners of a face lie on a line.
    """
    after, counts = structure.following, structure.counts
    before = torch.empty_like(after)
    before[after] = torch.arange(after.shape[0])
    at = take(points, structure.vertex)
    turn = torch.linalg.cross(at - take(at, before), take(at, after) - at).square().sum(1)
    sharp = torch.minimum(take(turn, before), take(turn, after))
    best = sharp.new_zeros(counts.shape[0]).scatter_reduce_(0, structure.face, sharp, "amax")
    index = torch.arange(after.shape[0])
    fits = torch.where(sharp >= take(best, structure.face), index, after.shape[0])
    apex = index.new_full((counts.shape[0],), after.shape[0])
    apex.scatter_reduce_(0, structure.face, fits, "amin")
    face = owners_of(counts - 2)
    step = places_of(counts - 2, face, offsets_of(counts - 2)) + 1
    begin, size = take(structure.offsets, face), take(counts, face)
    own = take(apex, face)
    corner = [begin + (own - begin + step + k) % size for k in (0, 1)]
    return torch.stack([take(structure.vertex, c) for c in (own, *corner)], 1), face
