"""The stretches of segments on which a question about the outputs is open, found coarse to fine.

A stretch is bounded as a box without width. Stretches on which the question is open are halved as
long as many units pass a knot there. Only what is open then is divided into pieces; each of the
others becomes one piece, at whose ends the outputs are known.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import Tensor

from splinecam._util.arrays import as_rows, counts_of, offsets_of, owners_of, take
from splinecam._util.backend import backend_of
from splinecam.engine.along_segments import Breaks, Report, run_segments
from splinecam.engine.box_bounds import BoxBounds
from splinecam.engine.open_part import Question
from splinecam.kernels.kernel import kernel_for
from splinecam.network.program import Program

COST = 2.0, 1.5  # points that take as long as to bound a stretch, and each function on it
_FIRST, _LAST = 3, 40  # how often a segment is halved, at least and at most
_DENSE = 4.0  # times as many breakpoints as on average that a stretch may have
_LITTLE = 0.05  # the share of segments that is to be settled
_FUTILE = 0.15  # the share of the work that bounds may take beyond what they save

Stretches = tuple[Tensor, Tensor, Tensor]
"""The segment of each stretch, and the positions at which it begins and ends, (K,) each."""


def run_open_segments(
    program: Program,
    first: Tensor,
    last: Tensor,
    question: Question,
    *,
    report: Report = lambda count: None,
    **limits: Any,
) -> Breaks:
    """The points of segments as ``run_segments`` finds them, but none where a question is settled.

    Positions agree up to rounding. report, limits: the options of ``run_segments``.
    """
    if not BoxBounds.fits(program):
        return run_segments(program, first, last, report=report, **limits)
    rows = None if question.rows is None else question.rows.to(first)
    bounds = BoxBounds(program, rows, kernel_for(program.device))
    a, b = as_rows(first), as_rows(last)
    widest = max(1, a.shape[1], *program.widths)
    step = max(1, backend_of(program.device).numbers // (2**_FIRST * widest))
    found = []
    for start in range(0, len(a), step):
        some = slice(start, start + step)
        segment, low, high = _open_stretches(bounds, a[some], b[some], question)
        found.append((segment + start, low, high))
    segment, low, high = (torch.cat(column) for column in zip(*found, strict=True))
    if float((high - low).sum()) > (1 - _LITTLE) * len(a):
        return run_segments(program, first, last, report=report, **limits)
    if not len(segment):  # rounding errors are known of points
        segment, low, high = segment.new_zeros(1), low.new_zeros(1), low.new_full((1,), 2.0**-20)
    ends = (_at(a, b, segment, t).view(-1, *first.shape[1:]) for t in (low, high))
    made = run_segments(program, *ends, **limits)
    report(len(a))
    return _completed(program, (a, b), (segment, low, high), made)


def _at(a: Tensor, b: Tensor, segment: Tensor, t: Tensor) -> Tensor:
    """The inputs (N, D) at positions of segments."""
    return torch.lerp(take(a, segment), take(b, segment), t[:, None])


def _open_stretches(bounds: BoxBounds, a: Tensor, b: Tensor, question: Question) -> Stretches:
    """The longest open stretches of the segments from a to b, (S, D) each, in order."""
    each = torch.arange(len(a), device=a.device)
    segment, place = each.repeat_interleave(2**_FIRST), torch.arange(2**_FIRST).repeat(len(a))
    place, side = place.to(each), torch.arange(2, device=a.device)
    functions = prod(bounds.program.output_shape) if question.rows is None else len(question.rows)
    cost, expected = COST[0] + COST[1] * functions, _switches(bounds.program, a, b)
    if cost * len(place) > _FUTILE * expected:
        return each, torch.zeros_like(a[:, 0]), torch.ones_like(a[:, 0])
    open_parts: list[Stretches] = []
    count, settled = 0, 0.0
    for level in range(_FIRST, _LAST + 1):
        half = 0.5 ** (level + 1)
        centre = _at(a, b, segment, (2 * place + 1).to(a) * half)
        x = torch.stack([centre, centre + half * take(b - a, segment), centre])
        rows, radius, passed = bounds(x.view(*x.shape[:2], *bounds.program.input_shape))
        points = torch.stack([2 * rows[0] - rows[1], rows[0], rows[1]], 1)
        values = question.functions(points)
        slack = [question.slack(values[:, k : k + 2], radius) for k in (0, 1)]
        open_ = ~(torch.stack(slack, 1) > 0)
        count, settled = count + len(place), settled + float((~open_).sum()) * half
        # Units that are equal pass a knot on however short a stretch.
        breaks = passed.clamp(max=_DENSE * expected / len(a) * 0.5**level)
        fine = (breaks * open_.sum(1) > 4 * cost)[:, None] & open_
        most = (_FUTILE + settled / len(a)) * expected
        if cost * (count + int(fine.sum())) > most or level == _LAST:
            fine = torch.zeros_like(open_)
        halves, owner = 2 * place[:, None] + side, segment[:, None].expand(-1, 2)
        left = open_ & ~fine
        begin = halves[left].to(a) * half
        open_parts.append((owner[left], begin, begin + half))
        place, segment = halves[fine], owner[fine]
        if not len(place):
            break
    return _merged(*(torch.cat(column) for column in zip(*open_parts, strict=True)))


def _switches(program: Program, a: Tensor, b: Tensor) -> int:
    """How often units switch between a few points of segments, about."""
    t = torch.linspace(0, 1, 2**_FIRST + 1, dtype=a.dtype, device=a.device)
    x = torch.lerp(a[:, None], b[:, None], t[:, None]).view(-1, *program.input_shape)
    count = 0
    for layer, z in program.walk(x):
        state = layer.pieces(z).view(len(a), len(t), -1)
        count += int((state[:, 1:] != state[:, :-1]).sum())
    return count


def _merged(segment: Tensor, low: Tensor, high: Tensor) -> Stretches:
    """Stretches in order; those that meet become one."""
    order = torch.argsort(low)
    order = order[torch.sort(segment[order], stable=True).indices]
    segment, low, high = segment[order], low[order], high[order]
    apart = (segment[1:] != segment[:-1]) | (low[1:] != high[:-1])
    edge = torch.ones_like(low[:1], dtype=torch.bool)
    begins, ends = torch.cat([edge, apart]), torch.cat([apart, edge])
    return segment[begins], low[begins], high[ends]


def _completed(
    program: Program, ends: tuple[Tensor, Tensor], stretches: Stretches, made: Breaks
) -> Breaks:
    """The points of whole segments; made: those of their open stretches."""
    (a, b), (segment, low, high) = ends, stretches
    owner = owners_of(made.offsets.diff(), len(made.t))
    settled = torch.zeros_like(owner, dtype=torch.bool)
    settled[made.offsets[1:] - 1] = high < 1  # the piece after the last point of a stretch
    every = torch.arange(len(a), device=a.device)
    first = every[~torch.isin(every, segment[low == 0])]
    last = every[~torch.isin(every, segment[high == 1])]
    x = torch.cat([a[first], b[last]]).view(-1, *program.input_shape)
    step = max(1, backend_of(program.device).numbers // max(1, *program.widths))
    outputs = [as_rows(program(some)) for some in torch.split(x, step) if len(some)]
    t = torch.cat([torch.lerp(low[owner], high[owner], made.t), 0.0 * first, 0.0 * last + 1])
    number = torch.cat([segment[owner], first, last])
    settled = torch.cat([settled, torch.ones_like(first).bool(), torch.zeros_like(last).bool()])
    order = torch.sort(t, stable=True).indices
    order = order[torch.sort(number[order], stable=True).indices]
    doubts = [
        replace(
            doubt,
            segment=segment[doubt.segment],
            t=torch.lerp(low[doubt.segment], high[doubt.segment], doubt.t),
        )
        for doubt in made.doubts
    ]
    return replace(
        made,
        offsets=offsets_of(counts_of(number, len(a))),
        t=t[order],
        values=torch.cat([made.values, *outputs])[order],
        doubts=doubts,
        shared=len(a) > 1,
        settled=settled[order],
    )
