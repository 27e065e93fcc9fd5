"""Where functions of the outputs vanish: levels of an output, ties of two outputs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from splinecam.cutting import Refinement
from splinecam.functions import Functions
from splinecam.mesh import Mesh
from splinecam.overlay import Cutter, Overlay, overlay
from splinecam.predicates import SAFETY
from splinecam.ragged import owners_of, take, take_rows
from splinecam.refine import in_blocks, refine
from splinecam.signs import Signs

__all__ = ["ZeroSets", "zero_sets"]

_BITS = 1 << 30  # signs held at a time


@dataclass(frozen=True)
class ZeroSets:
    """Edges (N,) of an overlay on which a function vanishes, and the function's number, (N,).

    signs: (N, 2) its sign left and right of the edge; 0 where it vanishes on the whole face, and
    outside.
    """

    overlay: Overlay
    edge: Tensor
    label: Tensor
    signs: Tensor


def zero_sets(mesh: Mesh, functions: Functions) -> ZeroSets:
    """The edges of the zero set of each function; of an area on which it vanishes, the outline.

    Where several functions vanish on one edge, the first of them counts.
    """
    nobody = functions.m
    along = mesh.edges.new_full((mesh.num_edges,), nobody)
    step = max(64, _BITS // max(1, mesh.num_vertices))
    blocks = torch.split(torch.arange(nobody, device=along.device), step)

    def cutter(columns: Tensor) -> Cutter:
        def cut(mesh: Mesh, z: Tensor, op: int) -> Refinement:
            chosen = _only(functions, columns, z)
            edge, column = _along(mesh, chosen.signs()[0])
            along.scatter_reduce_(0, mesh.edge_unit[edge], columns[column], "amin")
            return refine(mesh, chosen, op)

        return cut

    made = overlay(mesh, functions.z, [cutter(block) for block in blocks if len(block)])
    label = torch.where(made.label >= 0, made.label, along[made.source])
    edge = (label < nobody).nonzero()[:, 0]
    label = label[edge]
    sides = made.mesh.halfedge_face().view(-1, 2)[edge]
    functions = replace(functions, z=made.z)
    signs = [_sign(made.mesh, functions, face, label) for face in sides.unbind(1)]
    return ZeroSets(made, edge, label, torch.stack(signs, 1))


def _only(functions: Functions, columns: Tensor, z: Tensor) -> Functions:
    """Some of the functions, each labelled by its number, at the vertices of another mesh."""
    other = functions.other
    return Functions(
        z,
        functions.unit[columns],
        functions.level[columns],
        functions.error[columns],
        functions.wanted[columns],
        columns,
        None if other is None else other[columns],
    )


def _along(mesh: Mesh, signs: Signs) -> tuple[Tensor, Tensor]:
    """Old edges at both ends of which a function vanishes, unless it does so on both sides."""
    zero = signs.zero()
    a, b = mesh.edges.unbind(1)

    def both(rows: slice) -> Tensor:
        return take(zero, a[rows]) & take(zero, b[rows])

    edge, column = in_blocks(both, mesh.num_edges, signs)
    old = (mesh.edge_op[edge] < 0).nonzero()[:, 0]
    edge, column = edge[old], column[old]
    beside = mesh.halfedge_face().view(-1, 2)[edge]
    flat = [_flat(mesh, signs, face, column) for face in beside.unbind(1)]
    kept = (~(flat[0] & flat[1])).nonzero()[:, 0]
    return edge[kept], column[kept]


def _flat(mesh: Mesh, signs: Signs, face: Tensor, column: Tensor) -> Tensor:
    """Whether functions (N,) vanish on whole faces (N,); the outside counts as such a face."""
    inside = (face >= 0).nonzero()[:, 0]
    rows, counts = take_rows(mesh.offsets, face[inside])
    which = inside[owners_of(counts, rows.shape[0])]
    size = signs.at(mesh.corner_vertices()[rows], column[which]).abs()
    return torch.zeros_like(face).index_add_(0, which, size) == 0


def _sign(mesh: Mesh, functions: Functions, face: Tensor, column: Tensor) -> Tensor:
    """Signs of functions (N,) on faces (N,) that they do not cut."""
    inside = (face >= 0).nonzero()[:, 0]
    rows, counts = take_rows(mesh.offsets, face[inside])
    which = inside[owners_of(counts, rows.shape[0])]
    value = functions.at(mesh.corner_vertices()[rows], column[which])
    high = functions.error.new_zeros(face.shape).scatter_reduce_(0, which, value, "amax")
    low = functions.error.new_zeros(face.shape).scatter_reduce_(0, which, value, "amin")
    clear = torch.maximum(high, -low) > SAFETY * functions.error[column]
    return torch.where(clear, torch.where(high > -low, 1, -1), 0)
