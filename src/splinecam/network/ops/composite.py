"""Operations that are written out as others: recurrent layers, distances, norms and losses.

Each function takes ``emit``, which adds a call to the graph and returns its result, and the
arguments of the operation as values of the graph. It returns what stands for the operation's
result, or the reason against the call.
"""

from __future__ import annotations

import operator
from math import inf
from typing import Any

import torch

from splinecam.network.ops.affine import TRAINING
from splinecam.network.ops.nonlinear import JUMP, LENGTH, MIXES
from splinecam.network.ops.registry import Call, CompositeRule, Emitter, register
from splinecam.network.values import MANY_POINTS

_ATEN = torch.ops.aten
_MEAN, _SUM = 1, 2  # how torch numbers the reductions of a loss


def _cell(emit: Emitter, call: Call) -> Any:
    """One step of a recurrent layer."""
    x = emit(_ATEN.linear.default, call["input"], call["w_ih"], call["b_ih"])
    h = emit(_ATEN.linear.default, call["hx"], call["w_hh"], call["b_hh"])
    return emit(_ATEN.relu.default, emit(_ATEN.add.Tensor, x, h))


def _layers(emit: Emitter, call: Call) -> Any:
    """All layers of a recurrent network, time step by time step: its outputs and last states."""
    if call["train"] and call["dropout"] > 0:
        return TRAINING
    time = 1 if call["batch_first"] else 0
    steps = emit.shape(call["input"])[time]
    if not isinstance(steps, int) or steps >= MANY_POINTS:
        return MIXES
    directions = 2 if call["bidirectional"] else 1
    size = 4 if call["has_biases"] else 2
    weights = [call["params"][i : i + size] for i in range(0, len(call["params"]), size)]
    states = emit(_ATEN.unbind.int, call["hx"], 0)
    x, last = call["input"], []
    for layer in range(call["num_layers"]):
        outputs = []
        for i in range(layer * directions, (layer + 1) * directions):
            h = emit(operator.getitem, states, i)
            backward = i % directions == 1
            hidden = _direction(emit, x, h, weights[i], time, range(steps), backward)
            last.append(hidden[-1])
            hidden = hidden[::-1] if backward else hidden
            outputs.append(emit(_ATEN.stack.default, hidden, time))
        x = outputs[0] if directions == 1 else emit(_ATEN.cat.default, outputs, -1)
    return x, emit(_ATEN.stack.default, last, 0)


def _direction(
    emit: Emitter, x: Any, h: Any, weights: Any, time: int, steps: range, backward: bool
) -> list[Any]:
    """The states of one layer in one direction, in the order in which they are computed."""
    w_ih, w_hh, b_ih, b_hh = [*weights, None, None][:4]
    driven = emit(_ATEN.linear.default, x, w_ih, b_ih)
    states = []
    for t in reversed(steps) if backward else steps:
        now = emit(_ATEN.select.int, driven, time, t)
        before = emit(_ATEN.linear.default, h, w_hh, b_hh)
        h = emit(_ATEN.relu.default, emit(_ATEN.add.Tensor, now, before))
        states.append(h)
    return states


def _norm(emit: Emitter, x: Any, p: Any, dims: list[int], keepdim: bool) -> Any:
    """The p-norm over dimensions, if it is piecewise linear."""
    if p == 0:
        return f"{JUMP}: it counts entries that are not zero"
    if p not in (1, inf, -inf):
        return LENGTH
    x = emit(_ATEN.abs.default, x)
    if p == 1:
        return emit(_ATEN.sum.dim_IntList, x, dims, keepdim)
    return emit(_ATEN.amax.default if p == inf else _ATEN.amin.default, x, dims, keepdim)


def _vector_norm(emit: Emitter, call: Call) -> Any:
    p = call.get("ord", call.get("p", 2))
    dims = call.get("dim")
    dims = [dims] if isinstance(dims, int) else list(dims or range(len(emit.shape(call["self"]))))
    return _norm(emit, call["self"], 2 if p is None else p, dims, bool(call.get("keepdim")))


def _matrix_norm(emit: Emitter, call: Call) -> Any:
    dims = call.get("dim")
    one = isinstance(dims, int) or (dims is not None and len(dims) == 1)
    return _vector_norm(emit, call) if one and not isinstance(call["ord"], str) else LENGTH


def _pairwise_distance(emit: Emitter, call: Call) -> Any:
    difference = emit(_ATEN.sub.Tensor, call["x1"], call["x2"])
    difference = emit(_ATEN.add.Scalar, difference, call["eps"])
    return _norm(emit, difference, call["p"], [-1], call["keepdim"])


def _cdist(emit: Emitter, call: Call) -> Any:
    first = emit(_ATEN.unsqueeze.default, call["x1"], -2)
    second = emit(_ATEN.unsqueeze.default, call["x2"], -3)
    return _norm(emit, emit(_ATEN.sub.Tensor, first, second), call["p"], [-1], False)


def _l1_loss(emit: Emitter, call: Call) -> Any:
    each = emit(_ATEN.abs.default, emit(_ATEN.sub.Tensor, call["self"], call["target"]))
    if call["reduction"] == _MEAN:
        return emit(_ATEN.mean.default, each)
    return emit(_ATEN.sum.default, each) if call["reduction"] == _SUM else each


def _masked_select(emit: Emitter, call: Call) -> Any:
    """The entries that a mask picks for each point, one point after the other."""
    x, mask = call["self"], call["mask"]
    shape, given = emit.shape(x), emit.shape(mask)
    if len(given) == len(shape) and given[0] == 1:
        mask, given = emit(_ATEN.select.int, mask, 0, 0), given[1:]
    inner = shape[len(shape) - len(given) :]
    if len(given) >= len(shape) or any(m not in (1, n) for m, n in zip(given, inner, strict=True)):
        return "its mask must be one for all points, and no larger than what it picks from"
    mask = emit(_ATEN.expand.default, mask, inner)
    skipped = [None] * (len(shape) - len(given))
    picked = emit(_ATEN.index.Tensor, x, [*skipped, mask])
    return emit(_ATEN.reshape.default, picked, [-1])


register("rnn_relu_cell", CompositeRule(_cell, notes="linear and relu"))
_STEPS = "linear and relu, for every time step; eval mode"
register("rnn_relu.input", CompositeRule(_layers, notes=_STEPS))
_WHICH = "of order 1, or infinite"
register("linalg_vector_norm norm", CompositeRule(_vector_norm, notes=f"{_WHICH}; over features"))
register("linalg_norm", CompositeRule(_matrix_norm, notes=f"of vectors, {_WHICH}; over features"))
register("pairwise_distance", CompositeRule(_pairwise_distance, notes=_WHICH))
register("cdist", CompositeRule(_cdist, notes=_WHICH))
register("l1_loss", CompositeRule(_l1_loss, notes="for each point of the batch on its own"))
register("masked_select", CompositeRule(_masked_select, constants=("mask",), notes="constant mask"))
