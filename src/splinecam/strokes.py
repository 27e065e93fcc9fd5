"""Chosen chords in chosen faces: the differences of two units where they are wanted, only there."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from splinecam.arrange import split_once
from splinecam.births import Births
from splinecam.chords import Arrangement, Loops
from splinecam.cutting import (
    TWICE,
    UNCLEAR,
    Doubts,
    EdgeCuts,
    Ends,
    Refinement,
    boundaries,
    chords_between,
    cut_edges,
    draw,
    first_places,
    short_chords,
    unrefined,
)
from splinecam.field import Pairs
from splinecam.mesh import Mesh
from splinecam.predicates import SAFETY
from splinecam.ragged import following, offsets_of, owners_of, take_rows

__all__ = ["Halves", "draw_strokes", "halve"]


@dataclass(frozen=True)
class _Strokes:
    """Where the chords begin and end; which: (N,) those of the wanted ones that were found.

    bare: other faces that have divided edges.
    """

    cuts: EdgeCuts
    falls: Ends
    rises: Ends
    which: Tensor
    bare: Tensor
    doubts: list[Doubts]


def draw_strokes(
    mesh: Mesh,
    pairs: Pairs,
    face: Tensor,
    column: Tensor,
    unit: Tensor,
    op: int,
    *,
    max_faces: int | None = None,
) -> Refinement:
    """Draw the zeros of the columns into the faces, ordered by both; face, column, unit (N,)."""
    if not face.shape[0]:
        return unrefined(mesh, [])
    strokes = _strokes(mesh, pairs, face, column)
    if not strokes.falls.key.shape[0]:
        return unrefined(mesh, strokes.doubts)
    made = draw(
        mesh,
        strokes.cuts,
        strokes.falls,
        strokes.rises,
        strokes.falls.key // pairs.m,
        unit[strokes.which],
        op,
        bare=strokes.bare,
        max_faces=max_faces,
    )
    return replace(made, doubts=strokes.doubts + made.doubts)


@dataclass(frozen=True)
class Halves:
    """Faces (N,) cut in two: the left half keeps the number, the right one is new, (N,).

    ends: (N, 2) the end vertices of the chord; which: (N,) those of the wanted ones that were cut;
    births: the new vertices, all on edges, and blur, (W,), the errors of their places there.
    """

    mesh: Mesh
    births: Births
    blur: Tensor
    face: Tensor
    new_face: Tensor
    ends: Tensor
    which: Tensor
    doubts: list[Doubts]


def halve(mesh: Mesh, pairs: Pairs, face: Tensor, column: Tensor, unit: Tensor, op: int) -> Halves:
    """Cut each of the faces (N,), ascending, by one column; unit (N,) marks the new edges."""
    strokes = _strokes(mesh, pairs, face, column)
    cuts, m = strokes.cuts, pairs.m
    split = cuts.divide(mesh, op)
    cut_face = strokes.falls.key // m
    count = cut_face.shape[0]
    index = torch.arange(count, device=face.device)
    loops = boundaries(mesh, cuts, cut_face)
    chords, lines = chords_between(loops, index, strokes.falls, strokes.rises, split)
    out = Arrangement(split.uv, split.edges)
    halves = split_once(loops, chords, lines, out)
    bare = boundaries(mesh, cuts, strokes.bare)
    parts = [Loops(mesh.offsets, mesh.corners), bare, halves]
    pool = Loops(
        offsets_of(torch.cat([part.sizes() for part in parts])),
        torch.cat([part.half for part in parts]),
    )
    first_half = mesh.num_faces + strokes.bare.shape[0]
    row = torch.arange(mesh.num_faces, device=face.device)
    row[strokes.bare] = mesh.num_faces + torch.arange(strokes.bare.shape[0], device=face.device)
    row[cut_face] = first_half + 2 * index
    chosen = pool.select(torch.cat([row, first_half + 2 * index + 1]))
    refined = Mesh(
        uv=out.uv,
        edges=out.edges,
        offsets=chosen.offsets,
        corners=chosen.half,
        edge_op=torch.cat([split.edge_op, index.new_full((count,), op)]),
        edge_unit=torch.cat([split.edge_unit, unit[strokes.which]]),
        vertex_op=split.vertex_op,
    )
    ends = torch.stack([lines.start, lines.end], 1)
    return Halves(
        mesh=refined,
        births=cuts.births(),
        blur=cuts.shift,
        face=cut_face,
        new_face=mesh.num_faces + index,
        ends=ends,
        which=strokes.which,
        doubts=strokes.doubts + short_chords(lines),
    )


def _strokes(mesh: Mesh, pairs: Pairs, face: Tensor, column: Tensor) -> _Strokes:
    """Find the ends of the chords: face, column (N,), ordered by both, without repetitions."""
    m = pairs.m
    rows, counts = take_rows(mesh.offsets, face)
    owner = owners_of(counts, rows.shape[0])
    vertex, half = mesh.edges.view(-1)[mesh.corners[rows]], mesh.corners[rows]
    columns = column[owner]
    value, error = pairs.at(vertex, columns), pairs.error[columns]
    sign = (value > SAFETY * error).long() - (value < -SAFETY * error).long()
    after = following(offsets_of(counts), rows.shape[0])
    key = face[owner] * m + columns

    hit = (sign * sign[after] < 0).nonzero()[:, 0]
    hits, origin = torch.unique((half[hit] >> 1) * m + columns[hit], return_inverse=True)
    cuts = cut_edges(mesh, pairs, hits // m, hits % m)
    at = torch.empty_like(cuts.given)
    at[cuts.given] = torch.arange(at.shape[0], device=at.device)
    at = at[origin]
    rank = cuts.group[at] - cuts.first[cuts.edge[at]]
    start = first_places(mesh, cuts)[rows]
    backwards = (half[hit] & 1) == 1
    reverse = cuts.extra[half[hit] >> 1] - 1 - rank
    place = start[hit] + 1 + torch.where(backwards, reverse, rank)

    zero, before, entering = _passed_zeros(sign, after)
    shift = error[zero] / value[before].abs()
    blur = shift[:, None] * (mesh.uv[vertex[before]] - mesh.uv[vertex[zero]])
    ends = Ends(
        torch.cat([key[hit], key[zero]]),
        torch.cat([place, start[zero]]),
        torch.cat([cuts.blur[at], blur]),
    )
    falling = torch.cat([sign[hit] > 0, entering < 0])
    (falls, again), (rises, _) = _one_each(ends, falling), _one_each(ends, ~falling)
    unclear = ((sign == 0) & (value.abs() > error)).nonzero()[:, 0]
    off = pairs.blur(vertex[unclear], columns[unclear])
    unclear = unclear[value[unclear].abs() > error[unclear] + off]
    doubts = [*cuts.doubts]
    if bool(again.any()):
        doubts.append(Doubts(mesh.means()[falls.key[again] // m], TWICE))
    if unclear.shape[0]:
        doubts.append(Doubts(mesh.uv[torch.unique(vertex[unclear])], UNCLEAR))
    which = torch.searchsorted(face * m + column, falls.key)
    return _Strokes(cuts, falls, rises, which, _bare(mesh, cuts, falls.key // m), doubts)


def _passed_zeros(sign: Tensor, after: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Corners at which a function passes through zero, those before them, and the sign beyond.

    Of a run of zeros the first corner stands for all.
    """
    first = ((sign != 0) & (sign[after] == 0)).nonzero()[:, 0]
    walk = after[after[first]]
    while bool((sign[walk] == 0).any()):
        walk = torch.where(sign[walk] == 0, after[walk], walk)
    through = (sign[walk] != sign[first]).nonzero()[:, 0]
    before = first[through]
    return after[before], before, sign[walk[through]]


def _one_each(ends: Ends, chosen: Tensor) -> tuple[Ends, Tensor]:
    """Of the chosen ends the first of each key, and whether there were more."""
    index = chosen.nonzero()[:, 0]
    ends = Ends(ends.key[index], ends.place[index], ends.blur[index]).sorted()
    _, counts = torch.unique_consecutive(ends.key, return_counts=True)
    first = offsets_of(counts)[:-1]
    return Ends(ends.key[first], ends.place[first], ends.blur[first]), counts > 1


def _bare(mesh: Mesh, cuts: EdgeCuts, drawn: Tensor) -> Tensor:
    """Faces at divided edges in which nothing is drawn."""
    beside = torch.zeros(mesh.num_faces + 1, dtype=torch.bool, device=drawn.device)
    beside[mesh.halfedge_face().view(-1, 2)[cuts.group_edge]] = True  # -1, outside, is the last
    beside[drawn] = False
    return beside[:-1].nonzero()[:, 0]
