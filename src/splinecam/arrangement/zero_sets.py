"""Zero sets of functions of the outputs: levels of an output, ties of two outputs.

In a face a function vanishes on one chord, which follows from its signs at the corners as in
``refine``. Only the chords are needed, so no face is cut.

The borders between the largest outputs are then edges of a mesh like any other, with shared
vertices and proper faces on both sides, however degenerate the outputs are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from splinecam._util.arrays import owners_of, take, take_rows
from splinecam._util.tolerances import SAFETY
from splinecam.arrangement.chords import Zeros, find_chords
from splinecam.arrangement.crossings import Ambiguities, Functions, Signs, find_edge_crossings
from splinecam.arrangement.refine import Refinement, in_blocks, sign_changes, zero_corners
from splinecam.geometry.subdivision import Mesh

_LAYER = 0  # provenance of the new edges; the old ones have -1, and their own number as unit


@dataclass(frozen=True)
class Overlay:
    """A mesh that is cut further."""

    mesh: Mesh
    z: Tensor  # (V, n) the values at its vertices
    source: Tensor  # (E,) the edge of the original mesh from which each edge comes, -1 for new ones
    face: Tensor  # (F,) the face of the original mesh in which each one lies
    ambiguities: list[Ambiguities]


def overlay(
    mesh: Mesh,
    z: Tensor,
    cut: Callable[[Mesh, Tensor, int], Refinement],
    faces: Tensor | None = None,
) -> Overlay:
    """Cut a mesh, or only some of its faces (N,), by the values z (V, n) and a provenance."""
    part, number = mesh, torch.arange(mesh.num_edges, device=mesh.edges.device)
    if faces is not None:
        part, vertices, number = mesh.select(faces)
        z = take(z, vertices)
    # Pieces of an edge inherit its provenance, so the number of the edge travels with them.
    marked = replace(part, edge_layer=torch.full_like(number, -1), edge_unit=number)
    made = cut(marked, z, _LAYER)
    source = made.mesh.edge_unit.masked_fill(made.mesh.edge_layer == _LAYER, -1)
    face = parents_of(mesh, made.mesh, source)
    return Overlay(made.mesh, made.carry(z), source, face, made.ambiguities)


def parents_of(old: Mesh, new: Mesh, source: Tensor) -> Tensor:
    """The face of an old mesh in which each face lies, (F,); source: (E,) old edges, or -1."""
    beside, before = new.halfedge_face().view(-1, 2), old.halfedge_face().view(-1, 2)
    parent = source.new_full((new.num_faces,), -1)
    for side in (0, 1):
        # A piece runs in the direction of its edge, so the same side of both is the same face.
        known = ((source >= 0) & (beside[:, side] >= 0)).nonzero()[:, 0]
        parent[beside[known, side]] = before[source[known], side]
    a, b = beside[source < 0].unbind(1)
    while bool((parent < 0).any()):  # faces without a piece of an old edge learn it from others
        parent.scatter_reduce_(0, a, parent[b], "amax").scatter_reduce_(0, b, parent[a], "amax")
    return parent


_BITS = 1 << 30  # signs in memory at a time

CLOSE = "an output is too close to its level, or to another output, to tell its side"


@dataclass(frozen=True)
class ZeroSets:
    """N straight pieces of zero sets, with the larger values to their left."""

    uv: Tensor  # (P, 2) points
    ends: Tensor  # (N, 2) start and end
    column: Tensor  # (N,) the function
    faces: Tensor  # (N, 2) to the left and right, -1 outside
    signs: Tensor  # (N, 2) of the function there, 0 outside and where it vanishes on the whole face
    ambiguities: list[Ambiguities]


def zero_sets(mesh: Mesh, functions: Functions) -> ZeroSets:
    """The zero set of each function; the first function counts where several share a segment."""
    none = functions.unit[:0]
    changes, on_edges = [(none, none)], [(none, none)]
    passing: list[Zeros] = []
    ambiguities: list[Ambiguities] = []
    step = max(64, _BITS // max(1, mesh.num_vertices))
    for first in range(0, functions.m, step):
        columns = torch.arange(first, min(first + step, functions.m), device=mesh.uv.device)
        chosen = _columns_of(functions, columns)
        signs, unclear = chosen.signs()
        if unclear.shape[0]:
            ambiguities.append(Ambiguities(mesh.uv[unclear], CLOSE))
        edge, column = sign_changes(mesh.edges, signs)
        changes.append((edge, columns[column]))
        zeros = zero_corners(mesh, chosen, signs)
        if zeros is not None:
            passing.append(replace(zeros, column=columns[zeros.column]))
        if signs.vanish:
            edge, column = _along(mesh, signs)
            on_edges.append((edge, columns[column]))
    crossings = find_edge_crossings(mesh, functions, *_joined(changes))
    zeros = Zeros.join(*passing) if passing else None
    chords = find_chords(mesh, crossings, zeros, max(1, functions.m))
    # Counter-clockwise from rise to fall a function is positive: left of the way from fall to rise.
    start, end = chords.lines.start, chords.lines.end
    falling = chords.falling[:, None]
    inside = torch.where(falling, torch.stack([start, end], 1), torch.stack([end, start], 1))
    face = take(chords.faces, chords.chord_faces())

    edge, column = _joined(on_edges)
    along, beside = mesh.edges[edge], mesh.halfedge_face().view(-1, 2)[edge]
    sides = torch.stack([_sign(mesh, functions, f, column) for f in beside.unbind(1)], 1)
    turned = sides[:, :1] < sides[:, 1:]
    along, beside, sides = (torch.where(turned, x.flip(1), x) for x in (along, beside, sides))

    points = torch.cat([mesh.uv, crossings.points.uv])
    ends, column = torch.cat([inside, along]), torch.cat([chords.column, column])
    kept = _first_of_each(ends, column, points.shape[0])
    return ZeroSets(
        points,
        ends[kept],
        column[kept],
        torch.cat([torch.stack([face, face], 1), beside])[kept],
        torch.cat([sides.new_tensor([1, -1]).expand(inside.shape), sides])[kept],
        ambiguities + crossings.ambiguities + chords.ambiguities,
    )


def _columns_of(functions: Functions, columns: Tensor) -> Functions:
    """Some of the functions, (m,)."""
    f, other = functions, functions.other
    unit, level, error, wanted = (x[columns] for x in (f.unit, f.level, f.error, f.wanted))
    other = None if other is None else other[columns]
    return Functions(f.z, unit, level, error, wanted, columns, other)


def _joined(pairs: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Edges and columns of all blocks, ordered by edge."""
    edge, order = torch.sort(torch.cat([edges for edges, _ in pairs]), stable=True)
    return edge, take(torch.cat([columns for _, columns in pairs]), order)


def _first_of_each(ends: Tensor, column: Tensor, points: int) -> Tensor:
    """The segments (K,) without those between the same points of later functions."""
    low, high = ends.sort(1).values.unbind(1)
    order = column.argsort(stable=True)
    key = (low * points + high)[order]
    key, again = torch.sort(key, stable=True)
    first = torch.ones_like(key, dtype=torch.bool)
    first[1:] = key[1:] != key[:-1]
    return order[again[first]].sort().values


def _along(mesh: Mesh, signs: Signs) -> tuple[Tensor, Tensor]:
    """Edges along which a function vanishes, unless it vanishes on the faces of both sides."""
    zero = signs.zero
    a, b = mesh.edges.unbind(1)

    def both(rows: slice) -> Tensor:
        return take(zero, a[rows]) & take(zero, b[rows])

    edge, column = in_blocks(both, mesh.num_edges, signs)
    beside = mesh.halfedge_face().view(-1, 2)[edge]
    flat = [_flat(mesh, signs, face, column) for face in beside.unbind(1)]
    kept = (~(flat[0] & flat[1])).nonzero()[:, 0]
    return edge[kept], column[kept]


def _flat(mesh: Mesh, signs: Signs, face: Tensor, column: Tensor) -> Tensor:
    """Whether functions (N,) vanish on whole faces (N,); the outside counts as such a face."""
    vertex, which = _corners(mesh, face)
    size = signs.at(vertex, column[which]).abs()
    return torch.zeros_like(face).index_add_(0, which, size) == 0


def _sign(mesh: Mesh, functions: Functions, face: Tensor, column: Tensor) -> Tensor:
    """Signs of functions (N,) on faces (N,) that they do not cut."""
    vertex, which = _corners(mesh, face)
    value = functions.at(vertex, column[which])
    high = functions.error.new_zeros(face.shape).scatter_reduce_(0, which, value, "amax")
    low = functions.error.new_zeros(face.shape).scatter_reduce_(0, which, value, "amin")
    clear = torch.maximum(high, -low) > SAFETY * functions.error[column]
    return torch.where(clear, torch.where(high > -low, 1, -1), 0)


def _corners(mesh: Mesh, face: Tensor) -> tuple[Tensor, Tensor]:
    """The vertices of faces (N,), -1 for none, and which of the faces each belongs to."""
    inside = (face >= 0).nonzero()[:, 0]
    rows, counts = take_rows(mesh.offsets, face[inside])
    return take(mesh.corner_vertices(), rows), inside[owners_of(counts, rows.shape[0])]
