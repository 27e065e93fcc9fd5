"""Which units are on other sides at the two ends of segments, by forward passes alone.

The centre of each ball is run in float64. Its ends are run as their differences from the centre, in
float32. These are many times smaller than the values, so that their rounding moves hardly a sign,
although a pass costs no more than one of the model itself. A unit that is on different sides at two
points switches between them at least once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from splinecam._util.backend import backend_of, single_precision
from splinecam._util.tolerances import EPS, FEW_ROUNDINGS, MEASURED
from splinecam.geometry.ball_lines import BallLines
from splinecam.network.nonlinearities import (
    MaxNonlinearity,
    Nonlinearity,
    PiecewiseScalar,
    SmoothScalar,
)
from splinecam.network.program import FAR, Program

_MEASURED = 4  # balls in which rounding errors are measured, at two ends each
_TABLES = 16  # tables of live values that exist at a time, at most
_SHORT = torch.float32
_LOOSE = 2.0**-20  # by which comparisons in single precision are too wide


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
    *,
    memory: int,
    report: Callable[[int], object] = lambda count: None,
) -> EndCounts:
    """Compare the ends of all segments of balls.

    memory: bytes to stay within. report: is called with the number of balls that are done.
    """
    coarse = program.to(program.device, _SHORT)
    points = 2 * lines.count + 1
    width = max(prod(program.input_shape), *program.widths)
    limit = min(backend_of(program.device).end_numbers, memory // (_SHORT.itemsize * _TABLES))
    step = max(1, limit // (points * width))
    found, lines = [], lines.to(program.device)
    with torch.inference_mode(), single_precision():
        slack, reach = _rounding(program, coarse, lines)
        for start in range(0, len(lines), step):
            index = torch.arange(start, min(start + step, len(lines)))
            centers = lines.centers[index]
            ways = torch.cat(lines.ends(index), 1) - centers[:, None]
            errors = [e * reach[index] for e in slack]
            blocks: list[_Counts] = []
            for _ in _follow(program, coarse, centers, ways, errors, blocks):
                pass
            found.append([torch.stack(part, -1).int().cpu() for part in zip(*blocks, strict=True)])
            report(len(index))
    if not program.layers:
        none = torch.zeros((len(lines), lines.count, 0), dtype=torch.int32)
        return EndCounts(none, none, none, none[:, 0])
    return EndCounts(*(torch.cat(part).clone() for part in zip(*found, strict=True)))


def _rounding(program: Program, coarse: Program, lines: BallLines) -> tuple[list[float], Tensor]:
    """How far values of each layer may be off, and how many times as far in each ball.

    It is measured at some ends by float64. Balls with larger inputs or radii than there are taken
    to have larger errors in proportion.
    """
    chosen = torch.linspace(0, len(lines) - 1, min(_MEASURED, len(lines))).long()
    reach = torch.ones_like(lines.radius)
    for size in (lines.centers.abs().amax(1) + lines.radius, lines.radius):
        reach = torch.maximum(reach, size / size[chosen].amax())
    centers = lines.centers[chosen, None]
    x = torch.stack([ends[:, 0] for ends in lines.ends(chosen)], 1)
    none, slack = [0 * reach[chosen]] * len(program.layers), []
    walk = _follow(program, coarse, centers[:, 0], x - centers, none)
    exact = program.walk(x.view(-1, *program.input_shape))
    for (z, way), (_, true) in zip(walk, exact, strict=True):
        off, least = 0.0, 0.0
        if z.numel():
            z, way = z.repeat_interleave(2, 0), way.double() / FAR
            off = float((z + way - true).abs().max())
            least = EPS * float(z.abs().max()) + torch.finfo(_SHORT).eps * float(way.abs().max())
        slack.append(MEASURED * max(off, FEW_ROUNDINGS * least))
    return slack, reach


def _follow(
    program: Program,
    coarse: Program,
    centers: Tensor,
    ways: Tensor,
    errors: list[Tensor],
    counted: list[_Counts] | None = None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the units of each layer at k centres, and FAR times their differences.

    ways: (k, 2 d, n) from the centres to the first ends, then to the last ones; errors: (k,) of the
    values of each layer; counted: a list that gets the counts of each layer.
    """
    live = {program.input_name: centers.view(-1, *program.input_shape)}
    far = (FAR * ways).to(_SHORT).view(-1, *program.input_shape)
    moved, ends, count = {program.input_name: far}, ways.shape[1], None
    for i, layer in enumerate(program.layers):
        names = program.stages[i].live_in
        live = program.advance(i, {name: live[name] for name in names})
        moved = coarse.advance(i, {name: moved[name] for name in names})  # offsets round away
        if count is not None and counted is not None:
            counted.append(count())  # while a GPU is busy with the stage
        z, way = live[layer.source], moved[layer.source]
        made = layer.apply(live[layer.argument])
        if isinstance(layer, PiecewiseScalar) and layer.period is None:
            count, rise = _scalars(layer, z.flatten(1), way.view(len(z), ends, -1), errors[i])
        elif isinstance(layer, MaxNonlinearity):
            count, rise = _maxima(layer, z.flatten(1), way.view(len(z), ends, -1), errors[i])
        else:
            count = partial(_others, layer, z, way, errors[i])
            begin = live[layer.argument].repeat_interleave(ends, 0)
            end = layer.apply(begin + moved[layer.argument].double() / FAR)
            rise = (FAR * (end - made.repeat_interleave(ends, 0))).to(_SHORT)
        yield z, way
        live = {**live, layer.result: made}
        moved = {**moved, layer.result: rise.view(-1, *made.shape[1:])}
    if count is not None and counted is not None:
        counted.append(count())


def _scalars(
    layer: PiecewiseScalar, z: Tensor, way: Tensor, error: Tensor
) -> tuple[Callable[[], _Counts], Tensor]:
    """Compare units z (k, n) of one variable at the ends, FAR times ``way`` (k, 2 d, n) away.

    Returns what counts them, and FAR times the rises of the function. Few units may pass a knot in
    a ball, and only their values are looked at; all others are on one piece, with one slope.
    """
    ball, unit = _may_pass(layer, z, way, error).nonzero(as_tuple=True)
    slope = layer.slopes.gather(0, layer.pieces(z).long()) if not layer.rectifies else z > 0
    rise = way * slope.to(way)[:, None]
    begin, levels, steps = z[ball, unit], layer.levels[:, unit], way[ball, :, unit].T.double() / FAR
    gap, reach = (begin - levels).abs().amin(0), steps.abs().amax(0)
    kept = ((gap <= reach + error[ball]) & (torch.maximum(gap, reach) > 0)).nonzero()[:, 0]
    ball, unit, begin, levels, steps = (x[..., kept] for x in (ball, unit, begin, levels, steps))
    slopes, values = layer.slopes[:, unit], torch.cat([begin[None], begin + steps])
    few = replace(layer, levels=levels, slopes=slopes, shape=(len(unit),))

    most = torch.finfo(values.dtype).max
    knots = [-most * torch.ones_like(begin), *levels.clamp(max=most)]
    sides = zip(slopes, knots, [*knots[1:], -knots[0]], strict=True)
    parts = (a * (values[1:].clamp(b, c) - begin.clamp(b, c)) for a, b, c in sides)
    rise[ball, :, unit] = (FAR * reduce(torch.add, parts)).T.to(rise)
    return partial(_counts_of, few, values, error[ball], ball, len(z)), rise


def _may_pass(layer: PiecewiseScalar, z: Tensor, way: Tensor, error: Tensor) -> Tensor:
    """Which units may pass a knot or be within rounding of one, (k, n); in single precision."""
    reach = torch.maximum(way.amax(1), way.amin(1).neg_()).div_(FAR)
    gap = z.abs() if layer.rectifies else (z - layer.levels[:, None]).abs().amin(0)
    least = torch.finfo(_SHORT).tiny  # of reaches that are less, all digits may be lost
    wide = reach.add_(error[:, None].to(reach) + least).mul_(1 + _LOOSE)
    return gap.to(wide) <= wide


def _maxima(
    layer: MaxNonlinearity, z: Tensor, way: Tensor, error: Tensor
) -> tuple[Callable[[], _Counts], Tensor]:
    """The same for maxima over groups of units, of which few may change their winner."""
    if layer.smallest:
        count, rise = _maxima(replace(layer, smallest=False), -z, -way, error)
        return count, -rise
    k, ends, _ = way.shape
    columns = list(layer.groups.columns(z))
    top = reduce(torch.maximum, columns)
    gaps = [top - x for x in columns]
    steps = (x.view(k, ends, *top.shape[1:]) for x in layer.groups.columns(way.flatten(0, 1)))
    pairs = zip(steps, gaps, strict=True)
    rise = reduce(torch.maximum, (step - (FAR * gap).to(way)[:, None] for step, gap in pairs))

    size = torch.maximum(way.amax(1), -way.amin(1)).double() / FAR
    reach = reduce(torch.maximum, layer.groups.columns(size))
    slack = 2 * (reach + error.view(-1, *[1] * (reach.dim() - 1)))
    near = reduce(torch.add, ((gap <= slack).int() for gap in gaps))
    apart = reduce(torch.logical_or, ((gap <= slack) & (gap > 0) for gap in gaps))
    some = (near > 1) & (apart | (reach > 0))
    ball, group = some.flatten(1).nonzero(as_tuple=True)
    members = layer.members[group]
    begin = z[ball[:, None], members]
    values = begin + way[ball[:, None], :, members].movedim(2, 0).double() / FAR
    values = torch.cat([begin[None], values]).flatten(1)
    own = torch.arange(members.numel(), device=z.device).view(members.shape)
    few = replace(layer, members=own, shape=(own.numel(),), places=None)
    errors = error[ball].repeat_interleave(members.shape[1])
    return partial(_counts_of, few, values, errors, ball, k), rise


def _others(layer: Nonlinearity, z: Tensor, way: Tensor, error: Tensor) -> _Counts:
    """Compare the units of any layer, all of them."""
    k, ends = z.shape[0], way.shape[0] // z.shape[0]
    if isinstance(layer, SmoothScalar):
        none = torch.zeros((k, ends // 2), dtype=torch.int64, device=z.device)
        return _Counts(none, none, none, none[:, 0])
    values = z[:, None] + way.view(k, ends, *way.shape[1:]).double() / FAR
    values, slack = torch.cat([z[:, None], values], 1), error[:, None].expand(-1, prod(layer.shape))
    return _Counts(*(part.count_nonzero(-1) for part in _switched(layer, values, slack)))


def _switched(layer: Nonlinearity, z: Tensor, error: Tensor) -> _Counts:
    """Whether units are on other sides, of (k, 2 d + 1, *shape) values of which one is the centre.

    error: (k, n) of the values. The results are (k, d, m) and (k, m).
    """
    k, d = z.shape[0], z.shape[1] // 2
    tiny = torch.finfo(z.dtype).tiny  # what is zero is on both sides
    centre, ends = z[:, 0], z[:, 1:].flatten(0, 1)
    slack = error.repeat_interleave(2 * d, 0)
    if isinstance(layer, MaxNonlinearity):
        first, last = (x.flatten(0, 1) for x in (z[:, 1 : d + 1], z[:, d + 1 :]))
        own = error.repeat_interleave(d, 0)
        lower, apart = (layer.apart(first, last, e) for e in (own, tiny))
        doubt = ~layer.decided(ends, tiny, slack)
        mixed = layer.apart(centre.repeat_interleave(2 * d, 0), ends, tiny)
    else:  # ``apart`` and ``decided`` of a unit follow from the same pieces
        found = (layer.pieces(ends, e) for e in (slack, -slack, tiny, -tiny))
        sides = [x.view(k, 2, d, x.shape[1]) for x in found]
        pairs = sides[:2], sides[2:]
        lower, apart = ((x[:, 0] > y[:, 1]) | (x[:, 1] > y[:, 0]) for x, y in pairs)
        doubt = (sides[0] != sides[2]) | (sides[1] != sides[3])
        if isinstance(layer, PiecewiseScalar):
            mixed = layer.pieces(ends) != layer.pieces(centre).repeat_interleave(2 * d, 0)
        else:
            low, high = (layer.pieces(centre, e)[:, None, None] for e in (tiny, -tiny))
            mixed = (low > sides[3]) | (sides[2] > high)
    lower, apart, doubt, mixed = (
        x.view(k, count, d, x.shape[-1])
        for x, count in ((lower, 1), (apart, 1), (doubt, 2), (mixed, 2))
    )
    return _Counts(lower[:, 0], apart[:, 0], doubt.any(1), mixed.flatten(1, 2).any(1))


def _counts_of(layer: Nonlinearity, values: Tensor, error: Tensor, ball: Tensor, k: int) -> _Counts:
    """What switches in each of k balls, of units with values (2 d + 1, n) in some balls."""
    found = _switched(layer, values[None], error[None])

    def count(part: Tensor) -> Tensor:
        part = part[0].movedim(-1, 0).int()
        total = torch.zeros((k, *part.shape[1:]), dtype=part.dtype, device=ball.device)
        return total.index_add_(0, ball, part)

    return _Counts(*map(count, found))
