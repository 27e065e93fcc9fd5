"""Which units are on other sides at the two ends of segments, by forward passes alone.

The network is run in its own precision, with a centre and the ends of all segments of a ball as one
batch. TF32, by which CUDA multiplies float32 by default, is off: it would move too many signs. A
unit that is on different sides at two points switches between them at least once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from splinecam._util.backend import backend_of, single_precision
from splinecam._util.tolerances import FEW_ROUNDINGS, MEASURED
from splinecam.geometry.ball_lines import BallLines
from splinecam.network.nonlinearities import Nonlinearity, PiecewiseScalar, SmoothScalar
from splinecam.network.program import Program

_MEASURED = 8  # ends at which rounding errors are measured
_TABLES = 8  # tables of live values that exist at a time, at most


@dataclass(frozen=True)
class EndCounts:
    """Numbers of units, by ball, segment and layer.

    lower: on different sides at the two ends for sure, (N, d, L); ends: the same as computed, of
    which rounding may have moved some; open: within rounding of a border at one end; points:
    (N, L) not on the same side at all ends and the centre of a ball.
    """

    lower: Tensor
    ends: Tensor
    open: Tensor
    points: Tensor


class _Counts(NamedTuple):
    """The same for a block of balls and one layer, (k, d) and (k,)."""

    lower: Tensor
    ends: Tensor
    open: Tensor
    points: Tensor


def count_at_ends(
    program: Program,
    lines: BallLines,
    dtype: torch.dtype,
    *,
    memory: int,
    report: Callable[[int], object] = lambda count: None,
) -> EndCounts:
    """Compare the ends of all segments of balls; dtype: in which the network is run.

    memory: bytes to stay within. report: is called with the number of balls that are done.
    """
    own = program if dtype == program.dtype else program.to(program.device, dtype)
    points = 2 * lines.count + 1
    width = max(prod(program.input_shape), *program.widths)
    limit = min(backend_of(program.device).end_numbers, memory // (dtype.itemsize * _TABLES))
    step = max(1, limit // (points * width))
    found, lines = [], lines.to(program.device)
    with torch.inference_mode(), single_precision():
        slack, reach = _rounding(program, own, lines)
        for start in range(0, len(lines), step):
            index = torch.arange(start, min(start + step, len(lines)))
            x = torch.cat([lines.centers[index, None], *lines.ends(index)], 1).to(dtype)
            x = x.view(-1, *program.input_shape)
            walk = zip(own.walk(x), slack, strict=True)
            blocks = [_compare(layer, z, points, e * reach[index]) for (layer, z), e in walk]
            found.append([torch.stack(part, -1).int().cpu() for part in zip(*blocks, strict=True)])
            report(len(index))
    if not program.layers:
        none = torch.zeros((len(lines), lines.count, 0), dtype=torch.int32)
        return EndCounts(none, none, none, none[:, 0])
    return EndCounts(*(torch.cat(part).clone() for part in zip(*found, strict=True)))


def _rounding(program: Program, own: Program, lines: BallLines) -> tuple[list[float], Tensor]:
    """How far values of each layer may be off, and how many times as far in each ball.

    It is measured at some ends by another precision. Balls with larger inputs than there are taken
    to have larger errors in proportion.
    """
    chosen = torch.linspace(0, len(lines) - 1, min(_MEASURED, len(lines))).long()
    size = lines.centers.abs().amax(1) + lines.radius
    reach = (size / size[chosen].amax()).clamp(min=1)
    first, _ = lines.ends(chosen)
    x = first[:, 0].reshape(-1, *program.input_shape)
    fine = own.dtype == torch.float64
    other = program.to(program.device, torch.float32) if fine else program
    eps = torch.finfo(own.dtype).eps
    scale = eps / torch.finfo(torch.float32).eps if fine else 1.0
    slack = []
    for (_, z), (_, exact) in zip(own.walk(x), other.walk(x), strict=True):
        off = float((z.double() - exact.double()).abs().max()) if z.numel() else 0.0
        most = float(z.abs().max()) if z.numel() else 0.0
        slack.append(MEASURED * max(scale * off, FEW_ROUNDINGS * eps * most))
    return slack, reach


def _compare(layer: Nonlinearity, z: Tensor, points: int, error: Tensor) -> _Counts:
    """Compare values z of a layer at the points of balls, of which the first is the centre.

    error: of the values in each ball.
    """
    balls, d, error = error.shape[0], points // 2, error.to(z)
    if isinstance(layer, SmoothScalar):
        none = torch.zeros((balls, d), dtype=torch.int64, device=z.device)
        return _Counts(none, none, none, none[:, 0])
    if isinstance(layer, PiecewiseScalar) and layer.at_zero:
        return _compare_signs(z.reshape(balls, points, -1), d, error)
    z = z.reshape(balls, points, *layer.shape)
    tiny = torch.finfo(z.dtype).tiny  # what is zero is on both sides
    first, last, centre = (
        part.reshape(-1, *layer.shape)
        for part in (z[:, 1 : d + 1], z[:, d + 1 :], z[:, :1].expand(z[:, 1:].shape))
    )

    def apart(a: Tensor, b: Tensor, error: Tensor | float) -> Tensor:
        made = layer.apart(a, b, error)
        return made.view(balls, -1, made.shape[1])

    slack = error.repeat_interleave(d)[:, None].expand(-1, prod(layer.shape))
    doubt = ~(layer.decided(first, tiny, slack) & layer.decided(last, tiny, slack))
    others = z[:, 1:].reshape(-1, *layer.shape)
    counts = apart(first, last, slack), apart(first, last, tiny), doubt.view(balls, d, -1)
    mixed = apart(centre, others, tiny).any(1)
    return _Counts(*(part.count_nonzero(-1) for part in (*counts, mixed)))


def _compare_signs(z: Tensor, d: int, error: Tensor) -> _Counts:
    """The same for units with their one border at zero: z (k, 2 d + 1, n).

    The range of its values in a ball tells whether a unit may switch there. Few do, and only their
    values are compared. Were it all of them, that would take about three times the memory of z.
    """
    low, high, slack = z.amin(1), z.amax(1), error[:, None]
    some = (low <= slack) & (high >= -slack) & ((low != 0) | (high != 0))
    ball, unit = some.nonzero(as_tuple=True)
    values = z[ball, :, unit]
    above, below, near = values > 0, values < 0, values.abs() <= slack[ball]
    first, last = slice(1, d + 1), slice(d + 1, None)
    ends = (above[:, first] & below[:, last]) | (below[:, first] & above[:, last])
    mixed = (above != above[:, :1]).any(1)
    doubt = near & (above | below)  # what is zero is on both sides
    lower, doubt = ends & ~(near[:, first] | near[:, last]), doubt[:, first] | doubt[:, last]

    def by_ball(found: Tensor) -> Tensor:
        count = torch.zeros((z.shape[0], *found.shape[1:]), dtype=torch.int32, device=z.device)
        return count.index_add_(0, ball, found.int())

    return _Counts(by_ball(lower), by_ball(ends), by_ball(doubt), by_ball(mixed))
