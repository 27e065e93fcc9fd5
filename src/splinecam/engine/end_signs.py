"""Which units are on other sides at the two ends of segments, by forward passes alone.

The network is run in its own precision, with a centre and the ends of all segments of a ball as one
batch. A unit that is on different sides at two points switches between them at least once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.tolerances import FEW_ROUNDINGS, MEASURED
from splinecam.geometry.ball_lines import BallLines
from splinecam.network.nonlinearities import Nonlinearity, PiecewiseScalar, SmoothScalar
from splinecam.network.program import Program

_MEASURED = 8  # ends at which rounding errors are measured
_ONE = torch.ones((), dtype=torch.int64)
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
    found = []
    with torch.inference_mode():
        slack = _rounding(program, own, lines)
        for start in range(0, len(lines), step):
            index = torch.arange(start, min(start + step, len(lines)))
            x = torch.cat([lines.centers[index, None], *lines.ends(index)], 1)
            x = x.view(-1, *program.input_shape)
            walk = zip(own.walk(x), slack, strict=True)
            blocks = [_compare(layer, z, (len(index), points), e) for (layer, z), e in walk]
            found.append([torch.stack(part, -1).int().cpu() for part in zip(*blocks, strict=True)])
            report(len(index))
    return EndCounts(*(torch.cat(part).clone() for part in zip(*found, strict=True)))


def _rounding(program: Program, own: Program, lines: BallLines) -> list[float]:
    """How far values of each layer may be off, measured at some ends by another precision."""
    chosen = torch.linspace(0, len(lines) - 1, min(_MEASURED, len(lines))).long()
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
    return slack


def _compare(layer: Nonlinearity, z: Tensor, shape: tuple[int, int], slack: float) -> _Counts:
    """Compare values z of a layer at the points of balls, which come first the centre."""
    balls, points = shape
    d = points // 2
    if isinstance(layer, SmoothScalar):
        none = torch.zeros((balls, d), dtype=torch.int64, device=z.device)
        return _Counts(none, none, none, none[:, 0])
    if isinstance(layer, PiecewiseScalar) and layer.at_zero:
        z = z.reshape(balls, points, -1)
        return _compare_signs(z, d, slack)
    z = z.reshape(balls, points, *layer.shape)
    tiny = torch.finfo(z.dtype).tiny  # what is zero is on both sides
    first, last, centre = (
        part.reshape(-1, *layer.shape)
        for part in (z[:, 1 : d + 1], z[:, d + 1 :], z[:, :1].expand(z[:, 1:].shape))
    )

    def apart(a: Tensor, b: Tensor, error: float) -> Tensor:
        made = layer.apart(a, b, error)
        return made.view(balls, -1, made.shape[1])

    doubt = ~(layer.decided(first, tiny, slack) & layer.decided(last, tiny, slack))
    others = z[:, 1:].reshape(-1, *layer.shape)
    counts = apart(first, last, slack), apart(first, last, tiny), doubt.view(balls, d, -1)
    mixed = apart(centre, others, tiny).any(1)
    return _Counts(*(part.count_nonzero(-1) for part in (*counts, mixed)))


def _compare_signs(z: Tensor, d: int, slack: float) -> _Counts:
    """The same for units with their one border at zero: z (k, 2 d + 1, n).

    Few units switch, and few are near zero. So only signs are compared everywhere.
    """
    above = z > 0
    ball, point, unit = (above[:, 1:] != above[:, :1]).nonzero(as_tuple=True)
    mixed = torch.zeros_like(z[:, 0, 0], dtype=torch.int64)
    mixed.index_put_((torch.unique(ball * z.shape[2] + unit) // z.shape[2],), _ONE.to(mixed), True)
    # On different sides are units of which one end is on the side of the centre.
    pair = torch.stack([ball, point % d, unit], 1)
    pair, times = torch.unique(pair, dim=0, return_counts=True)
    ball, way, unit = pair[times == 1].unbind(1)
    values = torch.stack([z[ball, way + 1, unit], z[ball, way + 1 + d, unit]])
    counts = []
    for known in (values.abs().amin(0) > slack, values.amin(0) < 0):
        count = torch.zeros((z.shape[0], d), dtype=torch.int64, device=z.device)
        counts.append(count.index_put_((ball[known], way[known]), _ONE.to(z.device), True))
    near = (z[:, 1:].abs() <= slack).nonzero()
    near = near[z[near[:, 0], near[:, 1] + 1, near[:, 2]] != 0]
    near[:, 1] %= d  # a unit may be near zero at both ends
    ball, way, _ = torch.unique(near, dim=0).unbind(1)
    doubt = torch.zeros_like(counts[0]).index_put_((ball, way), _ONE.to(z.device), True)
    return _Counts(counts[0], counts[1], doubt, mixed)
