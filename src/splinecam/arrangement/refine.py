"""Cut a mesh by the zero sets of many functions that are affine on every face.

1. Signs:  decided once per vertex, so all faces around it agree (``signs``).
2. Edges:  where a function changes sign along an edge, a new vertex; both faces of the edge see it.
3. Chords: around a convex face a function falls once from + to - and rises once from - to +; the
           chord runs between these two places, which are corners by now.
4. Faces:  each is cut by its chords on its own (``weave``; ``arrange`` for those with close calls).
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
from splinecam.arrangement import breakpoints as breakpoints
from splinecam.arrangement.breakpoints import find_kinks
from splinecam.arrangement.find_chords import Zeros, cross_faces
from splinecam.arrangement.functions import Functions
from splinecam.arrangement.refinement import (
    UNCLEAR,
    Ambiguities,
    KernelRefinement,
    Refinement,
    cut_edges,
    draw_chords,
    unrefined,
)
from splinecam.arrangement.signs import Signs
from splinecam.geometry.subdivision import Mesh
from splinecam.kernels import GpuKernel, Kernel, LayerFunctions

__all__ = ["ClearLayer", "in_blocks", "refine", "refine_compiled", "sign_changes", "zero_corners"]


class ClearLayer(NamedTuple):
    """Units that vanish at no vertex: values z (V, n), where they are positive (V, W), errors (n,).

    jump: (n,) by how much the slope of the result changes where a unit passes through zero, None
    for 1.
    """

    z: Tensor
    positive: Tensor
    error: Tensor
    jump: Tensor | None


def refine(
    mesh: Mesh,
    functions: Functions,
    op: int,
    *,
    max_faces: int | None = None,
    gpu: GpuKernel | None = None,
) -> Refinement:
    """Cut every face along the zero sets of the functions; ``op`` is their provenance.

    gpu: the steps for a GPU, which cut where nothing comes close to anything else.
    """
    if not functions.m:
        return unrefined(mesh, [])
    made = None if gpu is None else _by_gpu(gpu, mesh, functions, op, max_faces)
    if made is not None:
        return made
    signs, unclear = functions.signs()
    cuts = cut_edges(mesh, functions, *sign_changes(mesh.edges, signs))
    zeros = zero_corners(mesh, functions, signs)
    ambiguities = [*cuts.ambiguities]
    if unclear.shape[0]:
        ambiguities.append(Ambiguities(mesh.uv[unclear], UNCLEAR))
    if not cuts.edge.shape[0] and zeros is None:
        return unrefined(mesh, ambiguities)
    crossed = cross_faces(mesh, cuts, zeros, functions.m)
    ambiguities += crossed.ambiguities
    unit = crossed.column if functions.whole else take(functions.label, crossed.column)
    made = draw_chords(mesh, cuts, crossed.drawing, unit, op, max_faces=max_faces)
    found = find_kinks(functions, cuts, made, crossed.column, mesh.num_vertices)
    return replace(made, ambiguities=ambiguities + made.ambiguities, breakpoints=found)


def refine_compiled(
    kernel: Kernel,
    mesh: Mesh,
    layer: ClearLayer,
    op: int,
    *,
    max_faces: int | None = None,
) -> Refinement | None:
    """The same by the compiled kernel, or None where something comes close to something else.

    The cells and their order are those of the tensor operations.
    """
    made = kernel.refine(mesh, LayerFunctions(*layer, op, max_faces))
    if isinstance(made, str):
        return unrefined(mesh, []) if made == "unchanged" else None
    return KernelRefinement(made.mesh, made.history)


def _by_gpu(
    gpu: GpuKernel, mesh: Mesh, functions: Functions, op: int, max_faces: int | None
) -> Refinement | None:
    """The same by the steps for a GPU, which find out themselves where something vanishes."""
    found, jump = functions.found, functions.jump
    if found is None:
        return None
    layer = LayerFunctions(
        z=functions.z,
        positive=found.positive,
        negative=found.negative,
        error=functions.error,
        slope_difference=jump,
        wanted=functions.wanted,
        layer=op,
        max_faces=max_faces,
        breakpoints_from=None if jump is None else breakpoints.FEWEST,
    )
    made = gpu.refine(mesh, layer)
    if isinstance(made, str):
        return unrefined(mesh, []) if made == "unchanged" else None
    return Refinement(made.mesh, made.on_edges, made.inside, [], breakpoints=made.breakpoints)


# -- edges ------------------------------------------------------------------------------------


def sign_changes(edges: Tensor, signs: Signs) -> tuple[Tensor, Tensor]:
    """Edges and columns where the ends have opposite signs, ordered by edge, then column."""

    def changes(rows: slice) -> Tensor:
        a, b = (end.contiguous() for end in edges[rows].unbind(1))
        words = take(signs.positive, a).bitwise_xor_(take(signs.positive, b))
        if signs.vanish:  # what is zero at one end, changes in one of both only
            words &= take(signs.negative, a).bitwise_xor_(take(signs.negative, b))
        return words

    return in_blocks(changes, edges.shape[0], signs)


def in_blocks(words: Callable[[slice], Tensor], count: int, signs: Signs) -> tuple[Tensor, Tensor]:
    """Row and column of every set bit of ``words``, of which a block of rows is made at a time."""
    width = signs.positive.shape[1]
    backend = backend_of(signs.positive.device)
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


# -- corners ----------------------------------------------------------------------------------


def zero_corners(mesh: Mesh, functions: Functions, signs: Signs) -> Zeros | None:
    """Where functions pass through zero at a corner; None when there is no such place.

    Of a run of zeros the first corner stands for all.
    """
    if not signs.vanish:
        return None
    zero = signs.zero()
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
        position_error = shift[:, None] * (mesh.uv[p] - mesh.uv[v])
        falling = torch.full_like(corner, entering < 0, dtype=torch.bool)
        found.append((corner, column, falling, position_error))
    falls, rises = found
    if not falls[0].shape[0] + rises[0].shape[0]:
        return None
    return Zeros(*(torch.cat(pair) for pair in zip(falls, rises, strict=True)))
