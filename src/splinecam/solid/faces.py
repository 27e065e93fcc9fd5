"""Faces of a surface as polygons, joined where a grid or a seam between parts has divided them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from splinecam._util.arrays import counts_of, following, offsets_of, owners_of, take, take_rows
from splinecam._util.graphs import components, cycles
from splinecam._util.tolerances import PLANAR, UNRESOLVED_REACH
from splinecam.solid.complex import AUXILIARY, Complex


@dataclass(frozen=True, eq=False)
class FlatFaces:
    """Polygons with H corners between V vertices.

    uvw: (V, 3); ends: (E, 2) of edges; start, edge: (H,) the vertex of each corner, and the edge
    after it; layer: (H,) of that edge; offsets: (F + 1,) of the polygons; group: (P,) the polygon
    to which each of P pieces belongs.
    """

    uvw: Tensor
    ends: Tensor
    start: Tensor
    edge: Tensor
    layer: Tensor
    offsets: Tensor
    group: Tensor

    @classmethod
    def of(cls, whole: Complex, face: Tensor, turned: Tensor) -> FlatFaces:
        """Faces (F,) of a complex, some of which are turned over."""
        arrays = whole.arrays
        rows, sizes = take_rows(arrays.face_offsets, face)
        owner, offsets = owners_of(sizes, rows.shape[0]), offsets_of(sizes)
        back = turned[owner]
        place = torch.arange(len(rows), device=rows.device)
        place = torch.where(back, offsets[owner] + offsets[owner + 1] - 1 - place, place)
        half = take(arrays.corners, rows)[place] ^ back.long()
        start, edge = take(arrays.edges.view(-1), half), half >> 1
        vertices, start = torch.unique(start, return_inverse=True)
        edges, place = torch.unique(edge, return_inverse=True)
        ends = torch.searchsorted(vertices, take(arrays.edges, edges))
        layer, group = arrays.edge_layer[edge], torch.arange(len(face), device=face.device)
        return cls(take(whole.uvw, vertices), ends, start, place, layer, offsets, group)

    @classmethod
    def together(cls, parts: Sequence[FlatFaces], reach: float) -> FlatFaces:
        """Polygons of parts of a complex that were cut apart at auxiliary faces.

        reach: the distance up to which vertices of several parts are the same on these faces.
        """
        if len(parts) == 1:
            return parts[0]
        vertices = [0, *accumulate(len(part.uvw) for part in parts)]
        edges = [0, *accumulate(len(part.ends) for part in parts)]
        uvw, layer = (torch.cat([getattr(x, name) for x in parts]) for name in ("uvw", "layer"))
        start, ends = (
            torch.cat([getattr(x, name) + k for x, k in zip(parts, vertices, strict=False)])
            for name in ("start", "ends")
        )
        edge = torch.cat([x.edge + k for x, k in zip(parts, edges, strict=False)])
        seam = edge[(layer == AUXILIARY) & (take(counts_of(edge, len(ends)), edge) == 1)]
        same = _first_alike(uvw, torch.unique(ends[seam]), reach)
        start, ends = same[start], same[ends]
        low, high = ends[seam].sort(1).values.T
        number, alike = (
            torch.arange(len(ends), device=ends.device),
            torch.unique(low * len(uvw) + high, return_inverse=True)[1],
        )
        first = torch.full_like(seam, len(ends)).scatter_reduce_(0, alike, seam, "amin")
        number[seam] = first[alike]
        offsets = offsets_of(torch.cat([x.offsets.diff() for x in parts]))
        group = torch.arange(len(offsets) - 1, device=offsets.device)
        return cls(uvw, ends, start, number[edge], layer, offsets, group)

    def lacking(self) -> Tensor:
        """The middles of auxiliary edges that have one polygon only, (N, 3)."""
        once = take(counts_of(self.edge, len(self.ends)), self.edge) == 1
        return self.uvw[self.ends[self.edge[once & (self.layer == AUXILIARY)]]].mean(1)

    def joined(self) -> FlatFaces:
        """The polygons joined across auxiliary edges, where they are one polygon."""
        auxiliary = self.layer == AUXILIARY
        if not bool(auxiliary.any()):
            return self
        count = len(self.offsets) - 1
        owner = owners_of(self.offsets.diff(), len(self.start))
        at = auxiliary.nonzero()[:, 0]
        edge, order = torch.sort(self.edge[at], stable=True)
        pair = (edge[1:] == edge[:-1]).nonzero()[:, 0]
        ends = owner[at[order[pair]]], owner[at[order[pair + 1]]]
        # Where three units of a maximum are equal in a line, faces bend in an auxiliary edge.
        flat = self._level(ends)
        pair, ends = pair[flat], (ends[0][flat], ends[1][flat])
        # Pieces that stay as they are.
        apart = torch.zeros(count, dtype=torch.bool, device=at.device)
        while True:
            free = ~(apart[ends[0]] | apart[ends[1]])
            group = components(count, ends[0][free], ends[1][free])
            gone = torch.zeros_like(auxiliary)
            gone[at[order[pair[free]]]] = gone[at[order[pair[free] + 1]]] = True
            gone &= take(counts_of(group, count), group[owner]) > 1
            found = self._outlines(group[owner], ~gone)
            if not isinstance(found, Tensor):
                break
            apart |= found[group]
        kept, offsets = found
        return self._straightened(kept, offsets, group, gone)

    def _level(self, pair: tuple[Tensor, Tensor]) -> Tensor:
        """Whether the smaller one of two polygons lies in the plane of the larger one, (N,)."""
        sizes, uvw = self.offsets.diff(), self.uvw
        owner, after = owners_of(sizes, len(self.start)), following(self.offsets, len(self.start))
        anchor = uvw[self.start[self.offsets[:-1]]]
        points = uvw[self.start] - anchor[owner]
        normal = torch.zeros_like(anchor)
        normal.index_add_(0, owner, torch.linalg.cross(points, points[after]))
        area = normal.norm(dim=1)
        larger = torch.where(area[pair[0]] >= area[pair[1]], pair[0], pair[1])
        rows, counts = take_rows(self.offsets, pair[0] + pair[1] - larger)
        own = larger[owners_of(counts, len(rows))]
        off = ((uvw[self.start[rows]] - anchor[own]) * normal[own]).sum(1).abs()
        reach = UNRESOLVED_REACH * (uvw.amax(0) - uvw.amin(0)).norm() * area[own]
        far = torch.zeros_like(larger, dtype=torch.bool)
        far[owners_of(counts, len(rows))[off > reach]] = True
        return ~far

    def _outlines(self, group: Tensor, kept: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """The corners in order along groups of polygons, or the groups that have no one outline.

        group: (H,) of each corner; kept: which corners are left.
        """
        corner = kept.nonzero()[:, 0]
        owner, count = group[corner], int(group.max()) + 1
        after = following(self.offsets, len(self.start))
        n = len(self.uvw)
        key, order = torch.sort(owner * n + self.start[corner])
        wanted = owner * n + self.start[after[corner]]
        place = torch.searchsorted(key, wanted).clamp(max=len(key) - 1)
        bad = torch.zeros(count, dtype=torch.bool, device=owner.device)
        bad[owner[key[place] != wanted]] = True
        bad[key[1:][key[1:] == key[:-1]] // n] = True
        bad |= counts_of(owner, count) == 0
        if bool(bad.any()):
            return bad
        offsets, members = cycles(order[place])
        first = owner[members[offsets[:-1]]]
        bad |= counts_of(first, count) != 1
        if bool(bad.any()):
            return bad
        turn = torch.argsort(first)
        rows, sizes = take_rows(offsets, turn)
        return corner[members[rows]], offsets_of(sizes)

    def _straightened(
        self, kept: Tensor, offsets: Tensor, group: Tensor, gone: Tensor
    ) -> FlatFaces:
        """The polygons of some corners, without vertices at which an edge only goes straight on."""
        n, start, layer = len(self.uvw), self.start[kept], self.layer[kept]
        after = following(offsets, len(start))
        before = torch.empty_like(after)
        before[after] = torch.arange(len(after), device=after.device)
        touched = torch.zeros(n, dtype=torch.bool, device=kept.device)
        touched[self.ends[self.edge[gone]].view(-1)] = True
        ends = self.ends[torch.unique(self.edge[kept])].view(-1)
        two = touched & (counts_of(ends, n) == 2)
        uvw = self.uvw
        one, other = (uvw[start[x]] - uvw[start] for x in (after, before))
        sine = torch.linalg.cross(one, other).norm(dim=1)
        bent = sine > PLANAR * one.norm(dim=1) * other.norm(dim=1)
        bent |= layer != layer[before]
        two[start[bent]] = False
        left = ~two[start]
        sizes = offsets.new_zeros(len(offsets) - 1)
        sizes.index_add_(0, owners_of(offsets.diff(), len(start)), left.long())
        few = sizes < 3
        left |= few[owners_of(offsets.diff(), len(start))]
        sizes = torch.where(few, offsets.diff(), sizes)
        corner = kept[left]
        return FlatFaces(
            self.uvw,
            self.ends,
            self.start[corner],
            self.edge[corner],
            self.layer[corner],
            offsets_of(sizes),
            group,
        )


def _first_alike(points: Tensor, some: Tensor, reach: float) -> Tensor:
    """For each point (V, 3) the first that is as good as the same, for those of some (N,)."""
    label, count = torch.zeros_like(some), len(some)
    for x in points[some].unbind(1):
        value, order = torch.sort(x)
        step = torch.zeros_like(some)
        step[order[1:]] = (value.diff() > reach).long()
        place = torch.empty_like(some)
        place[order] = step[order].cumsum(0)
        label = torch.unique(label * count + place, return_inverse=True)[1]
    same = torch.arange(len(points), device=points.device)
    first = torch.full_like(some, len(points)).scatter_reduce_(0, label, some, "amin")
    same[some] = first[label]
    return same
