"""The pieces of a network along segments, as flat arrays, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from splinecam._util.backend import backend_of
from splinecam._util.csr import owners_of, take
from splinecam._util.tolerances import EPS, SAFETY
from splinecam.analysis.class_names import class_number
from splinecam.arrangement.line_envelope import end_winners, winner_changes
from splinecam.engine.along_segments import Breaks
from splinecam.network.capture.outputs import Output
from splinecam.network.program import Program

__all__ = ["Decisions", "Pieces", "decisions", "mean_gradients", "output_number", "piece_inputs"]

_FEWEST = 16  # points in a pass, however wide the layers


@dataclass(eq=False)
class Pieces:
    """S segments with their P points, and the M pieces between neighbouring points.

    starts, ends: (S, D) the ends of the segments; breaks: their points; model, program: the network
    and what was captured of it; output: the selected output of a model with several; dtype: the
    model's floating-point type.
    """

    starts: Tensor
    ends: Tensor
    breaks: Breaks
    model: nn.Module
    program: Program
    output: Output
    dtype: torch.dtype

    @cached_property
    def counts(self) -> Tensor:
        """The number of points of each segment, (S,)."""
        return self.breaks.offsets.diff()

    @cached_property
    def segment(self) -> Tensor:
        """The segment of each point, (P,)."""
        return owners_of(self.counts, self.breaks.t.shape[0])

    @cached_property
    def before(self) -> Tensor:
        """The point at which each piece begins, (M,); it ends at the next one."""
        inside = torch.ones_like(self.breaks.t, dtype=torch.bool)
        inside[self.breaks.offsets[1:] - 1] = False
        return inside.nonzero()[:, 0]

    def inputs(self, segment: Tensor, t: Tensor) -> Tensor:
        """The inputs (N, *input_shape) at positions t (N,) of segments (N,)."""
        x = torch.lerp(take(self.starts, segment), take(self.ends, segment), t[:, None])
        return x.view(-1, *self.program.input_shape)


def output_number(output: Any, names: tuple[str, ...] | None, outputs: int) -> int:
    """The number of an output that is given by its number or name; of one output, None is it."""
    if output is None:
        if outputs == 1:
            return 0
        raise ValueError(f"say which of the {outputs} outputs is meant: output=0, ...")
    return class_number(output, names if outputs > 1 else None, outputs)


def piece_inputs(pieces: Pieces, share: float = 0.5) -> tuple[Tensor, Tensor]:
    """The segments and the positions of points inside all pieces, (M,) each.

    share: the part of each piece that lies before the point.
    """
    before, t = pieces.before, pieces.breaks.t
    return take(pieces.segment, before), torch.lerp(take(t, before), take(t, before + 1), share)


def rows_in_pass(program: Program) -> int:
    """How many points are run at a time where derivatives are taken."""
    widest = max(prod(program.input_shape), *program.widths)
    return max(_FEWEST, backend_of(program.device).numbers // widest)


def mean_gradients(pieces: Pieces, output: int) -> Tensor:
    """The mean gradient of an output along each segment, (S, D), without sampling.

    The gradient is constant on a piece, so that the mean is the sum of the gradients at the middle
    of each piece, times the length of the piece. One backward pass finds it for many pieces.
    """
    segment, t = piece_inputs(pieces)
    length = pieces.breaks.t.diff()[pieces.before]
    total = torch.zeros_like(pieces.starts)
    rows = rows_in_pass(pieces.program)
    parts = zip(*(torch.split(x, rows) for x in (segment, t, length)), strict=True)
    with torch.inference_mode(False):
        for own, at, share in parts:
            with torch.enable_grad():
                x = pieces.inputs(own, at).requires_grad_()
                y = pieces.program(x).reshape(x.shape[0], -1)[:, output]
                (made,) = torch.autograd.grad((y * share).sum(), x, materialize_grads=True)
            total.index_add_(0, own, made.reshape(own.shape[0], -1))
    return total


@dataclass(frozen=True)
class Decisions:
    """The intervals of equal class along segments, (N,) each, in order along each segment.

    segment: the segment of each interval; begin: the position at which it begins; label: its class.
    """

    segment: Tensor
    begin: Tensor
    label: Tensor

    @cached_property
    def is_first(self) -> Tensor:
        """Whether an interval is the first one of its segment, (N,)."""
        first = torch.ones_like(self.segment, dtype=torch.bool)
        first[1:] = self.segment[1:] != self.segment[:-1]
        return first


def decisions(pieces: Pieces, level: float = 0.0) -> Decisions:
    """The classes along segments: the largest output; of one output 1 above the level, else 0."""
    values, error = pieces.breaks.values, pieces.breaks.error
    if values.shape[1] == 1:
        values = torch.cat([torch.full_like(values, level), values], 1)
        error = torch.cat([error.new_full((1,), EPS * abs(level)), error])
    t, before = pieces.breaks.t, pieces.before
    winner, owner = values.argmax(1), take(pieces.segment, before)
    label, unlike = take(winner, before), take(winner, before) != take(winner, before + 1)
    row, end = unlike.nonzero()[:, 0], label.clone()
    first, last = take(values, take(before, row)), take(values, take(before, row) + 1)
    label[row], end[row] = end_winners(first, last, SAFETY * error)
    found = winner_changes(first, last, error)
    place = take(before, take(row, found.row))
    at = torch.lerp(take(t, place), take(t, place + 1), found.s)
    other = torch.ones_like(unlike)  # pieces that begin with another class than that before them
    other[1:] = (owner[1:] != owner[:-1]) | (label[1:] != end[:-1])
    kept = other.nonzero()[:, 0]
    segment = torch.cat([take(owner, kept), take(pieces.segment, place)])
    begin = torch.cat([take(t, take(before, kept)), at])
    label = torch.cat([take(label, kept), found.after])
    order = torch.sort(begin, stable=True).indices
    order = take(order, torch.sort(take(segment, order), stable=True).indices)
    segment, begin, label = (take(x, order) for x in (segment, begin, label))
    changed = torch.ones_like(segment, dtype=torch.bool)
    changed[1:] = (segment[1:] != segment[:-1]) | (label[1:] != label[:-1])
    return Decisions(segment[changed], begin[changed], label[changed])
