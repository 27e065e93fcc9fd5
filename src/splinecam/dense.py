"""Dense layers at all vertices of a mesh by the compiled kernel: one call for each of them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from torch import Tensor

from splinecam import bending
from splinecam.cuts import Cut, KnotCut
from splinecam.kernels import Dense, History, Kernel, Seen
from splinecam.ops import Bound
from splinecam.predicates import EPS, SAFETY
from splinecam.program import Program
from splinecam.signs import Signs, all_bits
from splinecam.state import Ready, State, extended, room_for
from splinecam.values import Ref

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


def evaluate_dense(program: Program, index: int, state: State, kernel: Kernel) -> Ready | None:
    """Evaluate a stage that is one product with a matrix; None if it is not, or not known how."""
    cut, step = program.stages[index].cut, program.product(index)
    if step is None or (cut is not None and not _by_signs(cut)):
        return None
    given, history = _input(step.args[0], state), state.history
    if given is None or (history is None and state.known < state.mesh.num_vertices):
        return None
    weight: Tensor = step.args[1]
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
        ways=ways,
        eps=EPS,
        safety=SAFETY,
    )
    seen = kernel.dense(state.mesh, layer, table, look=cut is not None)
    state.settled({step.name: table}, {step.name: Bound(seen.modulus, seen.error)})
    return _ready(seen, width)


def _by_signs(cut: Cut) -> bool:
    return isinstance(cut, KnotCut) and cut.at_zero and prod(cut.shape) <= WIDE


def _input(argument: object, state: State) -> _Input | None:
    """What is multiplied, if the compiled loops can find it."""
    if not isinstance(argument, Ref):
        return None
    name, cut = argument.name, state.pending
    if cut is not None and cut.result == name:
        if not cut.rectifies:
            return None
        given = _Input(state.rows[cut.argument], True, state.bounds[name])
    elif state.made is None and state.grown is None and name in state.rows:
        given = _Input(state.rows[name], False, state.bounds[name])
    else:
        return None
    return given if given.z.dim() == 2 and given.z.is_contiguous() else None


def _ways(history: History, units: int, width: int) -> tuple[str, str]:
    """How to find the values at new vertices, on edges and inside faces."""
    points, crossings = history.points, history.crossings
    if not history.bends:
        return _DIRECT
    new = [(points, points, history.edge_terms), (crossings, 2 * crossings, history.inside_terms)]
    costs = bending.COMPILED
    direct = costs.direct(points + crossings, units + width, units * width)
    ways, cost = costs.cheapest(new, width)
    return _DIRECT if direct <= max(cost, costs.least) else (ways[0], ways[1])


def _ready(seen: Seen, width: int) -> Ready:
    if seen.signs is None:
        return Ready(seen.low, seen.high)
    positive, negative = seen.signs
    signs = Signs(positive, negative, all_bits(width, positive.device), seen.clear)
    return Ready(seen.low[0], seen.high[0], signs, seen)
