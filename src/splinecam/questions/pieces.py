"""The pieces of a network along segments, as flat arrays, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from splinecam._util.arrays import offsets_of, owners_of, take, take_rows
from splinecam._util.backend import backend_of
from splinecam._util.tolerances import EPS, SAFETY, SLOPE_PRECISION
from splinecam.arrangement.envelope import winner_changes
from splinecam.engine.along_segments import Breaks, OpenPlaces, errors_along
from splinecam.errors import SplineCamError, ValidationError
from splinecam.network.capture.models import Output
from splinecam.network.program import Program
from splinecam.questions.partition_data import class_number
from splinecam.questions.wanted import Wanted

Rows = Tensor | slice
_FEWEST = 16  # points in a pass, however wide the layers


@dataclass(eq=False)
class Pieces:
    """S segments with their P points, and the M pieces between neighbouring points.

    starts, ends: (S, D) the ends of the segments; breaks: their points; model, program: the network
    and what was captured of it; output: the selected output of a model with several; dtype: the
    model's floating-point type; wanted: the question that pieces were divided for, None if all are.
    """

    starts: Tensor
    ends: Tensor
    breaks: Breaks
    model: nn.Module
    program: Program
    output: Output
    dtype: torch.dtype
    wanted: Wanted | None = None

    @property
    def complete(self) -> Tensor:
        """The pieces on which the network is affine, (M,); the others have one class each."""
        if self.breaks.settled is None:
            return torch.ones_like(self.before, dtype=torch.bool)
        return ~self.breaks.settled[self.before]

    def require(self, what: str, wanted: Wanted | None = None) -> None:
        """Raise an error unless a question can be answered, or all pieces are complete."""
        own = self.wanted
        if own is None or (wanted is not None and own.covers(wanted)):
            return
        raise SplineCamError(
            f"The path was divided for {own.words} alone (refine=), so that "
            f"{int((~self.complete).sum()):,} of {len(self.before):,} pieces are not divided. "
            f"For {what}, leave refine= out: sc.along(model, path)."
        )

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

    @cached_property
    def errors(self) -> tuple[Tensor, dict[str, Tensor]]:
        """The rounding errors along each segment: of outputs (S, n_out), and of layers (S, n)."""
        breaks = self.breaks
        if not breaks.shared:
            return breaks.error[None], {k: error[None] for k, error in breaks.layer_errors.items()}
        return errors_along(self.program, self.starts, self.ends, breaks.offsets, breaks.t)

    def select(self, segments: Tensor) -> Pieces:
        """Some of the segments, (N,), without their doubts."""
        points, counts = take_rows(self.breaks.offsets, segments)
        return self.cut_out(segments, offsets_of(counts), points, [])

    def cut_out(
        self, segments: Rows, offsets: Tensor, points: Rows, doubts: list[OpenPlaces]
    ) -> Pieces:
        """Some of the segments with their points, which begin at the offsets, and their doubts."""
        t, values = self.breaks.t[points], self.breaks.values[points]
        breaks = replace(self.breaks, offsets=offsets, t=t, values=values, doubts=doubts)
        if breaks.settled is not None:
            breaks = replace(breaks, settled=breaks.settled[points])
        starts, ends = self.starts[segments], self.ends[segments]
        return replace(self, starts=starts, ends=ends, breaks=breaks)

    def inputs(self, segment: Tensor, t: Tensor) -> Tensor:
        """The inputs (N, *input_shape) at positions t (N,) of segments (N,)."""
        x = torch.lerp(take(self.starts, segment), take(self.ends, segment), t[:, None])
        return x.view(-1, *self.program.input_shape)


def output_number(output: Any, names: tuple[str, ...] | None, outputs: int) -> int:
    """The number of an output that is given by number or name; None means the only one."""
    if output is None:
        if outputs == 1:
            return 0
        raise ValueError(f"say which of the {outputs} outputs is meant: output=0, ...")
    return class_number(output, names if outputs > 1 else None, outputs)


def piece_inputs(pieces: Pieces, share: float = 0.5) -> tuple[Tensor, Tensor]:
    """The segments and the positions of points inside all pieces, (M,) each, at a share of each."""
    pieces.require("what is linear on pieces")
    before, t = pieces.before, pieces.breaks.t
    return take(pieces.segment, before), torch.lerp(take(t, before), take(t, before + 1), share)


def rows_in_pass(program: Program) -> int:
    """How many points are run at a time where derivatives are taken."""
    widest = max(prod(program.input_shape), *program.widths)
    return max(_FEWEST, backend_of(program.device).numbers // widest)


def gradient_blocks(
    pieces: Pieces, output: int, factor: Tensor | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the segments of pieces (B,), and gradients of an output, times a factor (M,)."""
    segment, t = piece_inputs(pieces)
    rows, factor = rows_in_pass(pieces.program), torch.ones_like(t) if factor is None else factor
    for own, at, share in zip(*(torch.split(x, rows) for x in (segment, t, factor)), strict=True):
        with torch.inference_mode(False), torch.enable_grad():
            x = pieces.inputs(own, at).requires_grad_()
            y = pieces.program(x).reshape(x.shape[0], -1)[:, output]
            (made,) = torch.autograd.grad((y * share).sum(), x, materialize_grads=True)
        yield own, made


def mean_gradients(pieces: Pieces, output: int, first: int = 0) -> Tensor:
    """The mean gradient of an output along each segment, (S, D), without sampling.

    The gradient is constant on each piece, so that the mean is a sum over pieces. It is an error if
    this does not add up to the change of the output. first: the number of the first segment.
    """
    length = pieces.breaks.t.diff()[pieces.before]
    mean = torch.zeros_like(pieces.starts)
    for own, made in gradient_blocks(pieces, output, length):
        mean.index_add_(0, own, made.flatten(1))
    offsets, values = pieces.breaks.offsets, pieces.breaks.values[:, output]
    change = take(values, offsets[1:] - 1) - take(values, offsets[:-1])
    terms = mean * (pieces.ends - pieces.starts)
    off, size = (terms.sum(1) - change).abs(), terms.abs().sum(1) + change.abs()
    wrong = (~(off <= SLOPE_PRECISION * size)).nonzero()[:, 0]
    for doubt in pieces.breaks.doubts if wrong.shape[0] else ():  # which have been reported
        wrong = wrong[~torch.isin(wrong, doubt.segment)]
    if not wrong.shape[0]:
        return mean
    # Every breakpoint may be as far off as the rounding of the output explains.
    some = pieces.select(wrong)
    limit = SAFETY * some.errors[0][:, output] * some.counts
    for place in (~(off[wrong] <= limit)).nonzero()[:1, 0].tolist():
        index = int(wrong[place])
        raise ValidationError(
            f"The integrated gradients of segment {first + index} add up to "
            f"{float(terms[index].sum()):.6g}, but output {output} changes by "
            f"{float(change[index]):.6g}. If the model was changed since, run it again. If an "
            "operation has a gradient of its own, that is not the gradient of its values."
        )
    return mean


@dataclass(frozen=True)
class Decisions:
    """The intervals of equal class along segments, (N,) each, in order along each segment.

    segment: the segment of each interval; begin: the position at which it begins; label: its class.
    """

    segment: Tensor
    begin: Tensor
    label: Tensor


def decisions(pieces: Pieces, level: float = 0.0) -> Decisions:
    """The classes along segments: the largest output; of one output 1 above the level, else 0.

    Of outputs that are equal on a whole piece, the first one is its class.
    """
    values, t, offsets = pieces.breaks.values, pieces.breaks.t, pieces.breaks.offsets
    pieces.require("other classes", Wanted.classes(values.shape[1], "argmax", float(level)))
    single = values.shape[1] == 1
    if single:
        values = torch.cat([torch.full_like(values, level), values], 1)
    label, disputed = _leaders(values, pieces.breaks.error)
    disputed[offsets[1:] - 1] = False  # no piece begins where a segment ends
    row, end = disputed.nonzero()[:, 0], label.clone()
    first, last = take(values, row), take(values, row + 1)
    # Comparing two outputs rounds once more.
    size = EPS * torch.maximum(first.abs(), last.abs())
    error = _with_level(pieces.breaks.error, single) + size
    found = winner_changes(first, last, error)
    if found.inexact.shape[0] and pieces.breaks.shared:
        owner = _segments(offsets, row)
        some, own = torch.unique(take(owner, found.inexact)), torch.zeros_like(pieces.counts)
        own[some] = torch.arange(some.shape[0], device=some.device)
        theirs = torch.isin(owner, some).nonzero()[:, 0]
        least = _with_level(pieces.select(some).errors[0], single)
        error[theirs] = take(least, take(own, take(owner, theirs))) + take(size, theirs)
        found = winner_changes(first, last, error)
    label[row], end[row] = found.begin, found.end
    place = take(row, found.row)
    at = torch.lerp(take(t, place), take(t, place + 1), found.s)
    other = torch.ones_like(disputed)  # pieces that begin with another class than that before them
    other[1:] = label[1:] != end[:-1]
    other[offsets[:-1]], other[offsets[1:] - 1] = True, False
    kept = other.nonzero()[:, 0]
    segment = _segments(offsets, torch.cat([kept, place]))
    begin, label = torch.cat([take(t, kept), at]), torch.cat([take(label, kept), found.after])
    order = torch.sort(begin, stable=True).indices
    order = take(order, torch.sort(take(segment, order), stable=True).indices)
    segment, begin, label = (take(x, order) for x in (segment, begin, label))
    changed = torch.ones_like(segment, dtype=torch.bool)
    changed[1:] = (segment[1:] != segment[:-1]) | (label[1:] != label[:-1])
    return Decisions(segment[changed], begin[changed], label[changed])


def _segments(offsets: Tensor, points: Tensor) -> Tensor:
    """The segments of points, (N,) each."""
    return torch.searchsorted(offsets, points, right=True) - 1


def _with_level(error: Tensor, single: bool) -> Tensor:
    """The errors of all scores; the level, which comes before a single output, has none."""
    return torch.cat([torch.zeros_like(error), error], -1) if single else error


def _leaders(values: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
    """The largest of values (P, n) at points, and whether it may change up to the next, (P,)."""
    winner = values.argmax(1)
    disputed = torch.zeros_like(winner, dtype=torch.bool)
    disputed[:-1] = winner[1:] != winner[:-1]
    # One of two neighbours is among these points.
    some = values[::2]
    best = some.gather(1, winner[::2, None])
    slack = 2 * SAFETY * (error.max() + EPS * best.abs().max())
    rivals = some >= best - slack
    if int(torch.count_nonzero(rivals)) > some.shape[0]:
        close = torch.ones_like(disputed)
        close[::2] = rivals.sum(1) > 1
        disputed[:-1] |= close[:-1] & close[1:]
    return winner, disputed
