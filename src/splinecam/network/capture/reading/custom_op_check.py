"""The check of a custom operation: along random lines, it is affine from border to border."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam.network.capture.reading.probe import SLACK, WEIGHT
from splinecam.network.capture.tracing.diagnosis import first_line

__all__ = ["Problem", "check_custom_op"]

Function = Callable[[Tensor], Tensor]

_SCALES = (0.125, 1.0, 1.0, 8.0, 64.0)  # how far from zero the ends of the lines are
_PIECES = 512  # at most so many pieces of a line are looked at,
_NUMBERS = 1 << 22  # or fewer, so that their points hold no more numbers
_SHORT = 2.0**-20  # pieces shorter than this, relative to the line, prove nothing
_PLACES = (0.0625, 0.375, 0.9375)  # where in a piece the operation is evaluated


_AFFINE = (
    "registered with affine=True, but is not affine",
    "If it bends along straight lines, register it with cuts=",
)
_WITH_BORDERS = (
    "not affine between the zeros of its cuts function",
    "Add the missing borders to cuts; if it is smooth, it has no linear regions",
)


class Problem(Exception):
    """The reason why a registration does not hold."""


@dataclass(frozen=True)
class _Line:
    """The points of a line from one input to another, (1, ...) each."""

    start: Tensor
    end: Tensor

    def at(self, t: Tensor) -> Tensor:
        t = t.view(-1, *[1] * (self.start.dim() - 1))
        return (1 - t) * self.start + t * self.end

    def place(self, t: Tensor) -> str:
        """A point of the line, for a message."""
        x = self.at(t.reshape(1)).flatten()
        numbers = ", ".join(f"{number:.4g}" for number in x[:4].tolist())
        return f"x = [{numbers}{', ...' if x.numel() > 4 else ''}]"


def check_custom_op(
    run: Function, borders: Function | None, shape: tuple[int, ...], device: torch.device
) -> None:
    """Raise a Problem unless ``run`` is affine and continuous between the zeros of ``borders``.

    Both take (B, *shape) and give (B, ...); without borders it must be affine everywhere.
    """
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        for scale in _SCALES:
            ends = scale * torch.randn(2, *shape, generator=generator, dtype=torch.float64)
            line = _Line(*torch.split(ends.to(device), 1))
            values = _check_rows("it", run, line)
            t = line.start.new_zeros(0) if borders is None else _crossings(borders, line)
            numbers = max(line.start.numel(), values[0].numel())
            _check_pieces(run, line, _pieces(t, numbers, generator), borders is not None)


def _check_rows(what: str, run: Function, line: _Line) -> Tensor:
    """The values at the ends and between them, if every point has its own, and always the same."""
    x = line.at(torch.tensor([0, WEIGHT, 1], dtype=torch.float64, device=line.start.device))
    try:
        values = run(x)
    except Exception as error:
        shape, reason = tuple(x.shape), first_line(error)
        raise Problem(f"{what} cannot be run on a tensor {shape} of float64: {reason}") from error
    if not isinstance(values, Tensor) or values.dim() == 0 or values.shape[0] != x.shape[0]:
        raise Problem(f"{what} must give one tensor, with the batch in its first dimension")
    if not values.is_floating_point():
        raise Problem(f"{what} must give floating-point numbers, not {values.dtype}")
    if not bool(values.isfinite().all()):
        raise Problem(f"{what} gives values that are not finite, near {line.place(x.new_zeros(1))}")
    if not _agree(run(x), values):
        raise Problem(f"{what} gives different values for the same input: call model.eval()")
    if not _agree(torch.cat([run(row) for row in torch.split(x, 1)]), values):
        raise Problem(f"{what} mixes the points of the batch: every row must depend on its own row")
    return values


def _agree(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(((a - b).abs() <= SLACK * b.abs().max()).all())


def _crossings(borders: Function, line: _Line) -> Tensor:
    """Where on a line the functions vanish, in order; they must be affine."""
    values = _check_rows("its cuts function", borders, line).flatten(1)
    first, between, last = values
    if not _agree(between, (1 - WEIGHT) * first + WEIGHT * last):
        raise Problem(
            "its cuts function is not affine in x: give the functions whose zeros are the "
            f"borders, such as x - knot; see {line.place(line.start.new_zeros(1))}"
        )
    t = first / (first - last)
    crossings: Tensor = t[(t > 0) & (t < 1)].sort().values
    return crossings


def _pieces(t: Tensor, numbers: int, generator: torch.Generator) -> Tensor:
    """The beginnings and the ends of the pieces of a line, (N, 2); some of them if very many.

    numbers: how many a point has.
    """
    ends = torch.cat([t.new_zeros(1), t, t.new_ones(1)])
    most = max(8, min(_PIECES, _NUMBERS // max(1, numbers)))
    if ends.shape[0] > most:
        skip = int(torch.randint(ends.shape[0] - most, (1,), generator=generator))
        ends = ends[skip : skip + most]
    pieces = torch.stack([ends[:-1], ends[1:]], 1)
    return pieces[pieces[:, 1] - pieces[:, 0] > _SHORT]


def _check_pieces(run: Function, line: _Line, pieces: Tensor, has_borders: bool) -> None:
    """Raise a Problem unless it is affine on every piece, and equal on both sides of a border."""
    if not pieces.shape[0]:
        return
    begin, length = pieces[:, :1], pieces[:, 1:] - pieces[:, :1]
    places = torch.tensor(_PLACES, dtype=torch.float64, device=pieces.device)
    t = begin + length * places
    values = run(line.at(t.flatten())).reshape(*t.shape, -1)
    low, middle, high = values.unbind(1)
    share = (places[1] - places[0]) / (places[2] - places[0])
    limit = SLACK * values.abs().max()
    deviation = (torch.lerp(low, high, share) - middle).abs().amax(1)
    if bool((deviation > limit).any()):
        where = line.place(t[int(deviation.argmax()), 1])
        size = float(deviation.max() / values.abs().max())
        what, remedy = _WITH_BORDERS if has_borders else _AFFINE
        raise Problem(
            f"it is {what}, as near {where}: it is off by {size:.1g} of its values. {remedy}; "
            "if it computes in float32, let it use the type of its input"
        )
    slope = (high - low) / (places[2] - places[0])
    start, end = low - places[0] * slope, high + (1 - places[2]) * slope
    jump = (start[1:] - end[:-1]).abs().amax(1) * (pieces[1:, 0] == pieces[:-1, 1])
    if bool((jump > 2 * limit).any()):
        where = line.place(pieces[1:, 0][int(jump.argmax())])
        raise Problem(
            f"it is not continuous: it jumps at a border, at {where}, by {float(jump.max()):.3g}"
        )
