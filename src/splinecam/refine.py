"""Cut a mesh by the zero sets of many functions that are affine on every face.

1. Signs:  decided once per vertex, so all faces around it agree (``signs``).
2. Edges:  where a function changes sign along an edge, a new vertex; both faces of the edge see it.
3. Chords: around a convex face a function falls once from + to - and rises once from - to +; the
           chord runs between these two places, which are corners by now.
4. Faces:  each is cut by its chords on its own (``weave``; ``arrange`` for those with close calls).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam.arrange import arrange
from splinecam.chords import Arrangement, Chords, Lines, Loops
from splinecam.functions import Functions
from splinecam.mesh import Mesh
from splinecam.predicates import UV_ERROR, cluster
from splinecam.ragged import (
    argsort_rows,
    lengths,
    offsets_of,
    owners_of,
    places_of,
    take,
    take_rows,
)
from splinecam.signs import Signs, set_bits
from splinecam.weave import weave

__all__ = ["Births", "Doubts", "Refinement", "refine"]

# Words of signs are compared this many at a time, so that they stay in the cache.
_CHUNK = 1 << 18


@dataclass(frozen=True)
class Births:
    """New vertices as points between two older ones: ``lerp(x[p], x[q], t)``, all (N,)."""

    p: Tensor
    q: Tensor
    t: Tensor

    def select(self, chosen: Tensor | slice) -> Births:
        """Some of the new vertices."""
        return Births(self.p[chosen], self.q[chosen], self.t[chosen])

    def interpolate(self, x: Tensor) -> Tensor:
        """Values at the new vertices from the values x of the older ones."""
        t = self.t.view(-1, *[1] * (x.dim() - 1))
        return x.index_select(0, self.p).lerp_(x.index_select(0, self.q), t)


@dataclass(frozen=True)
class Doubts:
    """Places (N, 2) that rounding could not settle, and why."""

    uv: Tensor
    reason: str


@dataclass(frozen=True)
class Refinement:
    """The refined mesh; its new vertices: first those on edges, then those inside faces."""

    mesh: Mesh
    on_edges: Births
    inside: Births
    doubts: list[Doubts]


def refine(
    mesh: Mesh, functions: Functions, op: int, *, max_faces: int | None = None
) -> Refinement:
    """Cut every face along the zero sets of the functions; ``op`` is their provenance."""
    if not functions.m:
        return Refinement(mesh, _no_births(mesh), _no_births(mesh), [])
    signs, unclear = functions.signs()
    cuts = _cut_edges(mesh, functions, signs)
    falls, rises, doubts = _chord_ends(mesh, cuts)
    doubts += cuts.doubts
    if unclear.shape[0]:
        doubts.append(
            Doubts(mesh.uv[unclear], "a unit switches too close to a vertex to tell its side")
        )
    if not falls.key.shape[0]:
        return Refinement(mesh, _no_births(mesh), _no_births(mesh), doubts)
    births = Births(cuts.a, cuts.b, cuts.t)
    made_by = mesh.vertex_op.new_full(cuts.t.shape, op)
    split = mesh.divide(cuts.group_edge, births.interpolate(mesh.uv), made_by)
    faces, local = torch.unique_consecutive(falls.key // functions.m, return_inverse=True)
    loops = _boundaries(mesh, cuts, faces)
    column = falls.key % functions.m
    chords, lines = _chords(loops, local, falls, rises, split)
    if max_faces is not None:
        max_faces -= mesh.num_faces - faces.shape[0]
    made = Arrangement(split.uv, split.edges)
    left = weave(loops, chords, lines, made, max_faces=max_faces)
    if left.shape[0]:
        if max_faces is not None:
            max_faces -= sum(loop.offsets.shape[0] - 1 for loop in made.loops)
        arrange(*_restrict(loops, chords, left), lines, made, max_faces=max_faces)
    return _assemble(mesh, split, faces, made, lines, functions.unit[column], births, op, doubts)


# -- edges ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Cuts:
    """Where functions change sign along edges, ordered along each edge.

    Hits, (N,): edge, column, whether the function falls from edges[e, 0] on, group (the new
    vertex), and blur (N, 2), how far rounding may shift the cut along the edge. Groups, (C,): edge,
    end vertices a, b, fraction t; first: (E + 1,) the groups of each edge.
    """

    edge: Tensor
    column: Tensor
    falling: Tensor
    group: Tensor
    blur: Tensor
    group_edge: Tensor
    a: Tensor
    b: Tensor
    t: Tensor
    first: Tensor
    functions: Functions
    signs: Signs
    doubts: list[Doubts]


def _cut_edges(mesh: Mesh, functions: Functions, signs: Signs) -> _Cuts:
    edge, column = _sign_changes(mesh.edges, signs)
    a, b = take(mesh.edges, edge).unbind(1)
    za, zb = functions.at(a, column), functions.at(b, column)
    slope = (za - zb).abs()
    t = za.abs() / slope
    side = take(mesh.uv, b) - take(mesh.uv, a)
    shift = functions.error[column] / slope
    blur = side * shift[:, None]
    error = shift + UV_ERROR / lengths(side)
    order = argsort_rows(edge, t)
    edge, column, t, error, blur = (take(x, order) for x in (edge, column, t, error, blur))
    group, best, doubtful = cluster(edge, t, error)
    group_edge = edge[best]
    a, b, t_best = mesh.edges[group_edge, 0], mesh.edges[group_edge, 1], t[best]
    doubts = []
    if bool(doubtful.any()):
        e = edge[doubtful].repeat(2)
        td = torch.cat([t[doubtful], t_best[group[doubtful]]])[:, None]
        place = torch.lerp(mesh.uv[mesh.edges[e, 0]], mesh.uv[mesh.edges[e, 1]], td)
        doubts.append(Doubts(place, "cuts of an edge too close to tell apart"))
    first = offsets_of(torch.bincount(group_edge, minlength=mesh.num_edges))
    falling = za[order] > 0
    return _Cuts(
        edge,
        column,
        falling,
        group,
        blur,
        group_edge,
        a,
        b,
        t_best,
        first,
        functions,
        signs,
        doubts,
    )


def _sign_changes(edges: Tensor, signs: Signs) -> tuple[Tensor, Tensor]:
    """Edges and columns where the ends have opposite signs, ordered by edge, then column."""

    def changes(rows: slice) -> Tensor:
        a, b = edges[rows].unbind(1)
        falls = take(signs.positive, a) & take(signs.negative, b)
        return falls | take(signs.negative, a) & take(signs.positive, b)

    return _in_blocks(changes, edges.shape[0], signs)


def _in_blocks(words: Callable[[slice], Tensor], count: int, signs: Signs) -> tuple[Tensor, Tensor]:
    """Row and column of every set bit of ``words``, of which a block of rows is made at a time."""
    found = []
    step = max(1, _CHUNK // max(signs.positive.shape[1], 1))
    for start in range(0, count, step):
        row, column = set_bits(words(slice(start, start + step)))
        found.append((row + start, column))
    return torch.cat([r for r, _ in found]), torch.cat([c for _, c in found])


# -- chords -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Ends:
    """One end of each chord: key = face * m + column, and the place on the boundary, all (N,).

    blur: (N, 2) how far, and in which direction, rounding may shift the end along its edge.
    """

    key: Tensor
    place: Tensor
    blur: Tensor

    def sorted(self) -> _Ends:
        key, order = torch.sort(self.key)
        return _Ends(key, take(self.place, order), take(self.blur, order))


def _chord_ends(mesh: Mesh, cuts: _Cuts) -> tuple[_Ends, _Ends, list[Doubts]]:
    """Where functions fall and where they rise around the faces, sorted by (face, column).

    Signs alternate around a cycle, so both lists have the same keys.
    """
    m = cuts.functions.m
    corner = mesh.halfedge_corner()
    owners = mesh.owners()
    extra = cuts.first[1:] - cuts.first[:-1]  # new vertices on each edge
    refined = offsets_of(1 + extra[mesh.corners >> 1])
    start = refined[:-1] - refined[mesh.offsets[:-1]][owners]
    rank = cuts.group - cuts.first[cuts.edge]
    zeros = _zero_corners(mesh, cuts)

    def ends(falling: bool) -> _Ends:
        # A function that falls along a -> b falls on half-edge 2e and rises on 2e + 1.
        backwards = (cuts.falling != falling).long()
        at = corner[2 * cuts.edge + backwards]
        inside = (at >= 0).nonzero()[:, 0]
        at = at[inside]
        r = rank[inside]
        reverse = extra[cuts.edge[inside]] - 1 - r
        place = start[at] + 1 + torch.where(backwards[inside] == 1, reverse, r)
        key = owners[at] * m + cuts.column[inside]
        blur = cuts.blur[inside]
        if zeros is not None:
            zc, zk, zb = zeros[0 if falling else 1]
            key = torch.cat([key, owners[zc] * m + zk])
            place = torch.cat([place, start[zc]])
            blur = torch.cat([blur, zb])
        return _Ends(key, place, blur).sorted()

    falls, rises = ends(True), ends(False)
    repeated = falls.key[1:] == falls.key[:-1]
    doubts = []
    if bool(repeated.any()):
        face = falls.key[1:][repeated] // m
        doubts.append(
            Doubts(mesh.means()[face], "a unit crosses a region's border more than twice")
        )
    return falls, rises, doubts


_Zeros = tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


def _zero_corners(mesh: Mesh, cuts: _Cuts) -> _Zeros | None:
    """Corners at which a function passes through zero: (falls, rises), each corner, column, blur.

    Of a run of zeros the first corner stands for all; None when no function vanishes at a vertex.
    """
    signs = cuts.signs
    zero = signs.zero()
    if not bool(zero.any()):
        return None
    vertex, before, after = mesh.corner_vertices(), mesh.previous_corner(), mesh.next_corner()
    previous = vertex[before]
    found = []
    for leaving, entering in ((signs.positive, -1), (signs.negative, 1)):

        def left(rows: slice, words: Tensor = leaving) -> Tensor:
            return take(zero, vertex[rows]) & take(words, previous[rows])

        corner, column = _in_blocks(left, vertex.shape[0], signs)
        walk, sign = corner, torch.zeros_like(corner)
        while bool((sign == 0).any()):
            walk = torch.where(sign == 0, after[walk], walk)
            sign = signs.at(vertex[walk], column)
        through = (sign == entering).nonzero()[:, 0]
        corner, column = corner[through], column[through]
        p, v = previous[corner], vertex[corner]
        shift = cuts.functions.error[column] / cuts.functions.at(p, column).abs()
        found.append((corner, column, shift[:, None] * (mesh.uv[p] - mesh.uv[v])))
    return found[0], found[1]


def _boundaries(mesh: Mesh, cuts: _Cuts, faces: Tensor) -> Loops:
    """Boundaries of the chosen faces along the divided edges."""
    entries, counts = take_rows(mesh.offsets, faces)
    old = mesh.corners[entries]
    first = cuts.first[old >> 1]
    extra = cuts.first[(old >> 1) + 1] - first
    sizes = 1 + extra
    offsets = offsets_of(sizes)
    owner = owners_of(sizes)
    step = places_of(sizes, owner, offsets)
    back = old[owner] & 1
    piece = torch.where(back == 1, extra[owner] - step, step)
    edge = torch.where(piece == 0, old[owner] >> 1, mesh.num_edges + first[owner] + piece - 1)
    half = 2 * edge + back
    face_offsets = offsets[offsets_of(counts)]
    return Loops(face_offsets, half)


def _chords(
    loops: Loops, face: Tensor, falls: _Ends, rises: _Ends, split: Mesh
) -> tuple[Chords, Lines]:
    line = torch.arange(face.shape[0], device=face.device)
    p, q = torch.minimum(falls.place, rises.place), torch.maximum(falls.place, rises.place)
    start, end = (split.edges.view(-1)[loops.half[loops.offsets[face] + x]] for x in (p, q))
    a, b = split.uv[start], split.uv[end]
    # Across the line both ends are blurred by error / |gradient|; the estimate is the better the
    # more steeply the line meets the edge, so the smaller one counts.
    along = (b - a) / lengths(b - a)[:, None]
    across = [
        (x.blur[:, 0] * along[:, 1] - x.blur[:, 1] * along[:, 0]).abs() for x in (falls, rises)
    ]
    lines = Lines(start, end, a, b, torch.minimum(*across) + UV_ERROR)
    return Chords(face, p, q, line), lines


def _restrict(loops: Loops, chords: Chords, faces: Tensor) -> tuple[Loops, Chords]:
    """Only some faces and their chords."""
    rank = loops.offsets.new_full((loops.offsets.shape[0] - 1,), -1)
    rank[faces] = torch.arange(faces.shape[0], device=faces.device)
    chosen = chords.select((rank[chords.face] >= 0).nonzero()[:, 0])
    chosen.face = rank[chosen.face]
    return loops.select(faces), chosen


# -- the refined mesh -------------------------------------------------------------------------


def _assemble(
    mesh: Mesh,
    split: Mesh,
    faces: Tensor,
    made: Arrangement,
    lines: Lines,
    unit: Tensor,
    on_edges: Births,
    op: int,
    doubts: list[Doubts],
) -> Refinement:
    """Untouched faces first, then the pieces of the cut ones."""
    untouched = torch.ones(mesh.num_faces, dtype=torch.bool, device=faces.device)
    untouched[faces] = False
    entries, counts = take_rows(mesh.offsets, untouched.nonzero()[:, 0])
    crossing = _join(made.vertex_line, lines.start)
    edge_line = _join(made.edge_line, lines.start)
    count = crossing.shape[0]
    refined = Mesh(
        uv=made.uv,
        edges=made.edges,
        offsets=offsets_of(torch.cat([counts, *[loop.sizes() for loop in made.loops]])),
        corners=torch.cat([mesh.corners[entries], *[loop.half for loop in made.loops]]),
        edge_op=torch.cat([split.edge_op, edge_line.new_full(edge_line.shape, op)]),
        edge_unit=torch.cat([split.edge_unit, unit[edge_line]]),
        vertex_op=torch.cat([split.vertex_op, crossing.new_full((count,), op)]),
    )
    inside = Births(lines.start[crossing], lines.end[crossing], _join(made.vertex_s, lines.error))
    doubts += [Doubts(uv, "crossings too close to tell apart") for uv in made.doubts]
    return Refinement(refined, on_edges, inside, doubts)


def _join(parts: list[Tensor], like: Tensor) -> Tensor:
    return torch.cat(parts) if parts else like[:0]


def _no_births(mesh: Mesh) -> Births:
    none = mesh.edges[:0, 0]
    return Births(none, none, mesh.uv[:0, 0])
