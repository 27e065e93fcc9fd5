"""Cut a mesh by the zero sets of many functions that are affine on every face.

1. Signs:  decided once per vertex, so all faces around it agree (``signs``).
2. Edges:  where a function changes sign along an edge, a new vertex; both faces of the edge see it.
3. Chords: around a convex face a function falls once from + to - and rises once from - to +; the
           chord runs between these two places, which are corners by now.
4. Faces:  each is cut by its chords on its own (``weave``; ``arrange`` for those with close calls).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from splinecam.cutting import (
    TWICE,
    UNCLEAR,
    Doubts,
    EdgeCuts,
    Ends,
    Refinement,
    cut_edges,
    draw,
    first_places,
    unrefined,
)
from splinecam.functions import Functions
from splinecam.kinks import find_kinks
from splinecam.mesh import Mesh
from splinecam.ragged import take
from splinecam.signs import Signs, set_bits

__all__ = ["Zeros", "chord_ends", "in_blocks", "refine", "sign_changes", "zero_corners"]

# Words of signs are compared this many at a time, so that they stay in the cache.
_CHUNK = 1 << 18


def refine(
    mesh: Mesh, functions: Functions, op: int, *, max_faces: int | None = None
) -> Refinement:
    """Cut every face along the zero sets of the functions; ``op`` is their provenance."""
    if not functions.m:
        return unrefined(mesh, [])
    signs, unclear = functions.signs()
    cuts = cut_edges(mesh, functions, *sign_changes(mesh.edges, signs))
    falls, rises, doubts = chord_ends(mesh, cuts, zero_corners(mesh, functions, signs), functions.m)
    doubts += cuts.doubts
    if unclear.shape[0]:
        doubts.append(Doubts(mesh.uv[unclear], UNCLEAR))
    if not falls.key.shape[0]:
        return unrefined(mesh, doubts)
    face, column = falls.key // functions.m, falls.key % functions.m
    unit = functions.label[column]
    made = draw(mesh, cuts, falls, rises, face, unit, op, max_faces=max_faces)
    kinks = find_kinks(functions, cuts, made, column, mesh.num_vertices)
    return replace(made, doubts=doubts + made.doubts, kinks=kinks)


# -- edges ------------------------------------------------------------------------------------


def sign_changes(edges: Tensor, signs: Signs) -> tuple[Tensor, Tensor]:
    """Edges and columns where the ends have opposite signs, ordered by edge, then column."""

    def changes(rows: slice) -> Tensor:
        a, b = edges[rows].unbind(1)
        falls = take(signs.positive, a) & take(signs.negative, b)
        return falls | take(signs.negative, a) & take(signs.positive, b)

    return in_blocks(changes, edges.shape[0], signs)


def in_blocks(words: Callable[[slice], Tensor], count: int, signs: Signs) -> tuple[Tensor, Tensor]:
    """Row and column of every set bit of ``words``, of which a block of rows is made at a time."""
    found = []
    step = max(1, _CHUNK // max(signs.positive.shape[1], 1))
    for start in range(0, count, step):
        row, column = set_bits(words(slice(start, start + step)))
        found.append((row + start, column))
    return torch.cat([r for r, _ in found]), torch.cat([c for _, c in found])


# -- chords -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Zeros:
    """Corners at which functions pass through zero, (N,): corner, column, and blur (N, 2)."""

    corner: Tensor
    column: Tensor
    blur: Tensor


def chord_ends(
    mesh: Mesh, cuts: EdgeCuts, zeros: tuple[Zeros, Zeros] | None, m: int
) -> tuple[Ends, Ends, list[Doubts]]:
    """Where m functions fall and where they rise around the faces, sorted by (face, column).

    zeros: where they do so at corners. Signs alternate around a cycle, so both have the same keys.
    """
    corner = mesh.halfedge_corner()
    owners = mesh.owners()
    extra, start = cuts.extra(), first_places(mesh, cuts)
    rank = cuts.group - cuts.first[cuts.edge]

    def ends(falling: bool) -> Ends:
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
            passing = zeros[0 if falling else 1]
            key = torch.cat([key, owners[passing.corner] * m + passing.column])
            place = torch.cat([place, start[passing.corner]])
            blur = torch.cat([blur, passing.blur])
        return Ends(key, place, blur).sorted()

    falls, rises = ends(True), ends(False)
    repeated = falls.key[1:] == falls.key[:-1]
    doubts = []
    if bool(repeated.any()):
        face = falls.key[1:][repeated] // m
        doubts.append(Doubts(mesh.means()[face], TWICE))
    return falls, rises, doubts


def zero_corners(mesh: Mesh, functions: Functions, signs: Signs) -> tuple[Zeros, Zeros] | None:
    """Where functions fall, and where they rise, through zero at a corner.

    Of a run of zeros the first corner stands for all; None when no function vanishes at a vertex.
    """
    zero = signs.zero()
    if not bool(zero.any()):
        return None
    vertex, before, after = mesh.corner_vertices(), mesh.previous_corner(), mesh.next_corner()
    previous = vertex[before]
    found = []
    for leaving, entering in ((signs.positive, -1), (signs.negative, 1)):

        def left(rows: slice, words: Tensor = leaving) -> Tensor:
            return take(zero, vertex[rows]) & take(words, previous[rows])

        corner, column = in_blocks(left, vertex.shape[0], signs)
        walk, sign = corner, torch.zeros_like(corner)
        while bool((sign == 0).any()):
            walk = torch.where(sign == 0, after[walk], walk)
            sign = signs.at(vertex[walk], column)
        through = (sign == entering).nonzero()[:, 0]
        corner, column = corner[through], column[through]
        p, v = previous[corner], vertex[corner]
        shift = functions.error[column] / functions.at(p, column).abs()
        found.append(Zeros(corner, column, shift[:, None] * (mesh.uv[p] - mesh.uv[v])))
    return found[0], found[1]
