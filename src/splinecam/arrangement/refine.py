"""Cut a mesh along the zero sets of many functions that are affine on every face.

1. Signs are decided once per vertex, so that all faces around it agree (``signs``).
2. Where a function changes sign along an edge there is a new vertex, which both faces beside the
   edge share (``edge_crossings``).
3. Around a convex face a function falls once from + to - and rises once from - to +. Its chord runs
   between these two places, which are corners by now (``find_chords``).
4. Each face is cut by its chords on its own: by ``general_position``, or, where something is too
   close to something else, by ``incremental`` (``insert_chords``).

There are two cutters. The compiled kernel cuts on a CPU, and tensor operations cut elsewhere, on a
GPU with the help of compiled steps. Both give the same cells in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.bits import bits_of, rows_with_bits
from splinecam._util.csr import take
from splinecam.arrangement import breakpoints
from splinecam.arrangement.edge_crossings import UNCLEAR, Ambiguities, find_edge_crossings
from splinecam.arrangement.find_chords import Zeros, find_chords
from splinecam.arrangement.functions import Functions
from splinecam.arrangement.insert_chords import insert_chords
from splinecam.arrangement.refinement import NewVertices, Refinement, unrefined
from splinecam.arrangement.signs import Signs
from splinecam.errors import LimitError
from splinecam.geometry.subdivision import Mesh
from splinecam.kernels import GpuKernel, Kernel, LayerFunctions

__all__ = ["ClearLayer", "in_blocks", "refine", "refine_compiled", "sign_changes", "zero_corners"]


class ClearLayer(NamedTuple):
    """Units that vanish at no vertex: values z (V, n), where they are positive (V, W), errors (n,).

    slope_difference: (n,) that of the slopes of the result on both sides of zero, None for 1.
    """

    z: Tensor
    positive: Tensor
    error: Tensor
    slope_difference: Tensor | None


def refine_compiled(
    kernel: Kernel, mesh: Mesh, units: ClearLayer, layer: int, *, max_faces: int | None = None
) -> Refinement | None:
    """Cut every face along the zero sets of the units by the compiled kernel.

    Returns None where something is too close to something else: then ``refine`` has to do it.
    layer: the provenance of the new edges and vertices.
    """
    made = kernel.refine(mesh, LayerFunctions(*units, layer, max_faces))
    if isinstance(made, str):
        return _without(made, mesh)
    return Refinement(made.mesh, made.history, [])


def refine(
    mesh: Mesh,
    functions: Functions,
    layer: int,
    *,
    max_faces: int | None = None,
    gpu: GpuKernel | None = None,
) -> Refinement:
    """Cut every face along the zero sets of the functions by tensor operations.

    layer: the provenance of the new edges and vertices. gpu: compiled steps for a GPU, which cut
    where nothing is too close to anything else.
    """
    if not functions.m:
        return unrefined(mesh, [])
    made = None if gpu is None else _refine_on_gpu(gpu, mesh, functions, layer, max_faces)
    if made is not None:
        return made
    signs, unclear = functions.signs()
    crossings = find_edge_crossings(mesh, functions, *sign_changes(mesh.edges, signs))
    zeros = zero_corners(mesh, functions, signs)
    ambiguities = [*crossings.ambiguities]
    if unclear.shape[0]:
        ambiguities.append(Ambiguities(mesh.uv[unclear], UNCLEAR))
    if not crossings.edge.shape[0] and zeros is None:
        return unrefined(mesh, ambiguities)
    chords = find_chords(mesh, crossings, zeros, functions.m)
    unit = chords.column if functions.whole else take(functions.label, chords.column)
    made, on_chords = insert_chords(mesh, crossings, chords, unit, layer, max_faces=max_faces)
    new = made.new
    enough = new.on_edges.count + new.inside.count >= breakpoints.FEWEST
    if on_chords is not None and enough and functions.slope_difference is not None:
        on_lines = chords.lines, on_chords, chords.column, mesh.num_vertices
        found = (
            breakpoints.edge_breakpoints(functions, crossings),
            breakpoints.chord_breakpoints(functions, crossings, *on_lines),
        )
        new = replace(new, breakpoints=found)
    return Refinement(made.mesh, new, ambiguities + chords.ambiguities + made.ambiguities)


def _refine_on_gpu(
    gpu: GpuKernel, mesh: Mesh, functions: Functions, layer: int, max_faces: int | None
) -> Refinement | None:
    """Cut by the steps for a GPU; None where something is too close to something else."""
    signs, slope_difference = functions.known_signs, functions.slope_difference
    if signs is None:
        return None
    cutting = LayerFunctions(
        z=functions.z,
        positive=signs.positive,
        negative=signs.negative,
        error=functions.error,
        slope_difference=slope_difference,
        wanted=functions.wanted,
        layer=layer,
        max_faces=max_faces,
        breakpoints_from=None if slope_difference is None else breakpoints.FEWEST,
    )
    made = gpu.refine(mesh, cutting)
    if isinstance(made, str):
        return _without(made, mesh)
    return Refinement(made.mesh, NewVertices(made.on_edges, made.inside, made.breakpoints), [])


def _without(reason: str, mesh: Mesh) -> Refinement | None:
    """What a compiled kernel's reason for no refinement means; None: others have to do it."""
    if reason == "too many faces":
        raise LimitError(reason)
    return unrefined(mesh, []) if reason == "unchanged" else None


# -- signs at the ends of edges ---------------------------------------------------------------


def sign_changes(edges: Tensor, signs: Signs) -> tuple[Tensor, Tensor]:
    """Edges and columns where the ends have opposite signs, ordered by edge, then column."""

    def changes(rows: slice) -> Tensor:
        a, b = (end.contiguous() for end in edges[rows].unbind(1))
        words = take(signs.positive, a).bitwise_xor_(take(signs.positive, b))
        if signs.vanish:  # a function that is zero at one end changes in one of both only
            words &= take(signs.negative, a).bitwise_xor_(take(signs.negative, b))
        return words

    return in_blocks(changes, edges.shape[0], signs)


def in_blocks(words: Callable[[slice], Tensor], count: int, signs: Signs) -> tuple[Tensor, Tensor]:
    """Row and column of every set bit of ``words``, which gives the words of a block of rows."""
    backend, width = backend_of(signs.positive.device), signs.positive.shape[1]
    step = max(1, backend.sign_words // max(width, 1))
    if backend.asynchronous and count <= step:
        return bits_of(words(slice(count)))
    some_rows, some_words = [], []
    for start in range(0, count, step):
        block = words(slice(start, start + step))
        rows = rows_with_bits(block)
        some_rows.append(rows + start)
        some_words.append(take(block, rows))
    row, column = bits_of(torch.cat(some_words))
    return take(torch.cat(some_rows), row), column


def zero_corners(mesh: Mesh, functions: Functions, signs: Signs) -> Zeros | None:
    """Where functions pass through zero at a corner; None when there is no such place.

    The first corner of a run of zeros stands for all of them.
    """
    if not signs.vanish:
        return None
    zero = signs.zero
    vertex, after = mesh.corner_vertices(), mesh.next_corner()
    previous = vertex[mesh.previous_corner()]
    found = []
    for leaving, entering in ((signs.positive, -1), (signs.negative, 1)):

        def begins(rows: slice, words: Tensor = leaving) -> Tensor:
            return take(zero, vertex[rows]) & take(words, previous[rows])

        corner, column = in_blocks(begins, vertex.shape[0], signs)
        ahead, sign = corner, torch.zeros_like(corner)
        while bool((sign == 0).any()):
            ahead = torch.where(sign == 0, after[ahead], ahead)
            sign = signs.at(vertex[ahead], column)
        through = (sign == entering).nonzero()[:, 0]
        corner, column = corner[through], column[through]
        p, v = previous[corner], vertex[corner]
        shift = functions.error[column] / functions.at(p, column).abs()
        position_error = shift[:, None] * (mesh.uv[p] - mesh.uv[v])
        falling = torch.full_like(corner, entering < 0, dtype=torch.bool)
        found.append(Zeros(corner, column, falling, position_error))
    zeros = Zeros.join(found)
    return zeros if zeros.corner.shape[0] else None
