"""Find the vertices that neighbouring units have in common.

Both units beside an edge of the coarse mesh have found the same new vertices on it, up to rounding.
They are united along the edge, in order. A united vertex has the coordinates and the values that
the first of its units has found.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam._util.csr import offsets_of
from splinecam.atlas.borders import Border
from splinecam.engine.tiling import OnEdges, unite
from splinecam.geometry.subdivision import Mesh

__all__ = ["Missing", "Seams", "find_seams"]


@dataclass(frozen=True)
class Missing:
    """Vertices that a tile lacks on its edges: rounding has hidden them from it.

    tile: its number; edge: (N,) of the tile or the strip; in_strip: (N,) which of both; seam: (N,)
    the united vertices in order along the edge.
    """

    tile: int
    edge: Tensor
    in_strip: Tensor
    seam: Tensor


@dataclass(frozen=True)
class Seams:
    """The C vertices that units have in common.

    vertices: per unit the numbers (S,) of the vertices of its border. owner, place: (C,) the unit
    that a vertex is taken from, and the place in that unit's border. missing: of the units that
    lack something.
    """

    vertices: list[Tensor]
    owner: Tensor
    place: Tensor
    missing: list[Missing]

    @property
    def num_vertices(self) -> int:
        return int(self.owner.shape[0])


def find_seams(mesh: Mesh, borders: list[Border]) -> Seams:
    """Unite the vertices on the borders of units; mesh: the coarse mesh."""
    on_edges = OnEdges(
        *(
            torch.cat(column)
            for column in zip(*(_on_edges(mesh, b, k) for k, b in enumerate(borders)), strict=True)
        )
    )
    order, starts = unite(mesh, on_edges)
    on_edges = OnEdges(*(column[order] for column in on_edges))
    union = torch.cumsum(starts.long(), 0) - 1
    leader = starts.nonzero()[:, 0]
    # First the vertices of the coarse mesh, then the united ones.
    sizes = [border.vertex.shape[0] for border in borders]
    first = offsets_of(torch.tensor(sizes)).tolist()
    coarse = torch.cat([border.coarse_vertex for border in borders])
    tile = torch.repeat_interleave(torch.arange(len(borders)), torch.tensor(sizes))
    place = torch.arange(coarse.shape[0]) - torch.tensor(first[:-1])[tile]
    known = (coarse >= 0).nonzero()[:, 0]
    ids, of_known = torch.unique(coarse[known], return_inverse=True)
    lowest = known.new_zeros(ids.shape[0])
    lowest.scatter_reduce_(0, of_known, known, "amin", include_self=False)
    owner = torch.cat([tile[lowest], on_edges.number[leader]])
    place = torch.cat([place[lowest], on_edges.vertex[leader]])
    number = torch.full_like(coarse, -1)
    number[known] = of_known
    number[torch.tensor(first[:-1])[on_edges.number] + on_edges.vertex] = ids.shape[0] + union
    counts = torch.bincount(on_edges.edge[leader], minlength=mesh.num_edges)
    along = _Along(ids.shape[0], counts, offsets_of(counts), mesh.edges)
    vertices = list(torch.split(number, sizes))
    missing = []
    for index, (border, mine) in enumerate(zip(borders, vertices, strict=True)):
        begin = along.rank(border, mine, 0)
        lacks = along.rank(border, mine, 1) - begin - 1
        if bool((lacks > 0).any()):
            missing.append(along.missing(index, border, begin, lacks))
    return Seams(vertices, owner, place, missing)


def _on_edges(mesh: Mesh, border: Border, number: int) -> OnEdges:
    """The new vertices on edges, at which all pieces of an edge but the first begin."""
    start = border.ends[:, 0]
    begins = border.coarse_vertex[start] < 0
    start, root = start[begins], border.root[begins]
    a, b = mesh.uv[mesh.edges[root]].unbind(1)
    d = b - a
    t = (((border.uv[start] - a) * d).sum(1) / (d * d).sum(1)).clamp(0, 1)
    return OnEdges(root, start, torch.full_like(root, number), t)


@dataclass(frozen=True)
class _Along:
    """The united vertices along edges of the coarse mesh, whose numbers begin at ``first``.

    counts: (E,) of each edge; offsets: (E + 1,); edges: (E, 2) of the coarse mesh.
    """

    first: int
    counts: Tensor
    offsets: Tensor
    edges: Tensor

    def rank(self, border: Border, number: Tensor, end: int) -> Tensor:
        """How many vertices of its edge come before an end of each piece, itself included, (P,)."""
        seam = number[border.ends[:, end]]
        at_end = self.counts[border.root] + 1 if end else torch.zeros_like(border.root)
        within = seam - self.first - self.offsets[border.root] + 1
        return torch.where(seam < self.first, at_end, within)

    def missing(self, tile: int, border: Border, begin: Tensor, lacks: Tensor) -> Missing:
        """The vertices that lie inside pieces of a tile's border."""
        row = torch.repeat_interleave(torch.arange(lacks.shape[0]), lacks)
        step = torch.arange(row.shape[0]) - offsets_of(lacks)[row]
        seam = self.first + self.offsets[border.root[row]] + begin[row] + step
        return Missing(tile, border.edge[row], border.in_strip[row], seam)
