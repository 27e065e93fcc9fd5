"""Dense layers at all vertices of a mesh by the compiled kernel: one call for each of them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from torch import Tensor

from splinecam.arrangement.signs import Signs, all_bits
from splinecam.engine import line_values as bending
from splinecam.engine.activations import LayerInput, State, extended, room_for
from splinecam.kernels import Dense, DenseResult, History, Kernel
from splinecam.network.nonlinearities import Nonlinearity, PiecewiseScalar
from splinecam.network.ops import Bound
from splinecam.network.program import Program

__all__ = ["WIDE", "evaluate_dense"]

# Units up to which all signs are found along with the values; in wider layers most never change.
WIDE = 1 << 12

_DIRECT = ("direct", "direct")


@dataclass(frozen=True)
class _Input:
    """What a dense layer multiplies: z at the first vertices, or its positive part, with bounds."""

    z: Tensor
    rectified: bool
    bound: Bound


def evaluate_dense(program: Program, index: int, state: State, kernel: Kernel) -> LayerInput | None:
    """Evaluate a stage that is one product with a matrix; None if it is not, or not known how."""
    cut, dense = program.stages[index].layer, program.dense(index)
    if dense is None or (cut is not None and not _by_signs(cut)):
        return None
    name, step = dense
    weight: Tensor = step.args[1]
    given, history = _input(name, weight.shape[1], state), state.history
    if given is None or (history is None and state.known < state.mesh.num_vertices):
        return None
    bias: Tensor | None = step.args[2] if len(step.args) > 2 else None
    width, units = weight.shape
    ways = _DIRECT if history is None else _ways(history, units, width)
    shape, table = (state.mesh.num_vertices, width), None
    if ways != _DIRECT:  # else the new values would be mixed from rows that are written over
        table = extended(state.dead(program.stages[index].live_in), shape)
    if table is None:
        table = room_for(shape, weight.device, grows=True)
    layer = Dense(
        z=given.z,
        rectified=given.rectified,
        columns=weight.T.contiguous(),
        bias=None if bias is None else bias.contiguous(),
        magnitude=given.bound.magnitude,
        error=given.bound.error,
        history=history,
        methods=ways,
    )
    seen = kernel.dense(state.mesh, layer, table, signs=cut is not None)
    state.settled({step.name: table}, {step.name: Bound(seen.modulus, seen.error)})
    return _ready(seen, width)


def _by_signs(cut: Nonlinearity) -> bool:
    return isinstance(cut, PiecewiseScalar) and cut.at_zero and prod(cut.shape) <= WIDE


def _input(name: str, units: int, state: State) -> _Input | None:
    """What is multiplied, so many numbers for each vertex, if the kernel can find it."""
    cut = state.pending
    if cut is not None and cut.result == name:
        if not cut.rectifies:
            return None
        z, rectified = state.rows[cut.argument], True
    elif state.made is None and state.grown is None and name in state.rows:
        z, rectified = state.rows[name], False
    else:
        return None
    if prod(z.shape[1:]) != units or not z.is_contiguous():
        return None
    return _Input(z.view(z.shape[0], units), rectified, state.bounds[name])


def _ways(history: History, units: int, width: int) -> tuple[str, str]:
    """How to find the values at new vertices, on edges and inside faces."""
    costs = bending.DENSE
    ways = costs.ways(history.counts, width, units + width, units * width)
    return _DIRECT if ways is None or not history.has_breakpoints else (ways[0], ways[1])


def _ready(seen: DenseResult, width: int) -> LayerInput:
    if seen.signs is None:
        return LayerInput(seen.low, seen.high)
    positive, negative = seen.signs
    wanted = positive[:0] if seen.clear else all_bits(width, positive.device)  # else not needed
    signs = Signs(positive, negative, wanted, seen.clear)
    return LayerInput(seen.low[0], seen.high[0], signs, seen)
