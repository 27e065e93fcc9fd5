"""Where units switch along short segments: exact ends, and what bends between them in float32.

Along a short segment the values of a network hardly differ from those on the straight line between
its ends. The ends are run in float64. The differences from the line, called bends here, are many
times smaller, so that float32 is precise enough for them, and a pass costs half or a third. Most
units are so far from their border at both ends that no bend moves them across; only the values of
the others are looked at in float64.

Every value has a bound on its rounding error. A segment on which rounding matters is left to
``along_segments``, which runs all of it in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from splinecam._util.arrays import blocks_of, counts_of, offsets_of, owners_of
from splinecam._util.backend import backend_of, single_precision
from splinecam._util.tolerances import EPS, SAFETY
from splinecam.engine.along_segments import require_few
from splinecam.engine.segment_crossings import (
    Crossings,
    UnitValues,
    find_crossings,
    united,
    zeros_between,
)
from splinecam.engine.switch_counts import LayerAlong, count_switches
from splinecam.network.nonlinearities import Nonlinearity, PiecewiseScalar
from splinecam.network.ops.bounds import Bound
from splinecam.network.program import FAR, Program

_TABLES = 8  # tables of bends that exist at a time, at most
_COARSE = torch.float32
_RATIO = torch.finfo(_COARSE).eps / EPS  # errors of bends are kept divided by it


class ShortSegments(NamedTuple):
    """Breakpoints inside S segments, and how often units switch.

    segment, t: (P,) of each breakpoint, in order; switches: (S, L) by layer; left: (S,) segments
    on which rounding matters, of which the other numbers may be wrong.
    """

    segment: Tensor
    t: Tensor
    switches: Tensor
    left: Tensor


def along_short_segments(
    program: Program,
    first: Tensor,
    last: Tensor,
    expected: Tensor,
    *,
    memory: int,
    max_points: int | None,
) -> ShortSegments:
    """The breakpoints inside the segments from ``first`` to ``last``: (S, ...) inputs.

    Segments with too many breakpoints are left, and all of them if the network is but a chain of
    products with matrices, which are fast in float64. expected: (S,) about how many breakpoints
    they have; memory: bytes to stay within; max_points: a ``LimitError`` beyond so many.
    """
    device, S = program.device, first.shape[0]
    numbers = min(backend_of(device).bend_numbers, memory // (_COARSE.itemsize * _TABLES))
    most = max(1, numbers // max(1, prod(program.input_shape), *program.widths))
    switches = torch.zeros((S, len(program.layers)), dtype=torch.int64)
    none = torch.zeros(0, dtype=torch.float64)
    left = torch.ones(S, dtype=torch.bool)
    found = [(none.long(), none)]
    dense = all(program.dense(i) is not None for i in range(len(program.stages)))
    chosen = torch.zeros(0).long() if dense else (expected <= most).nonzero()[:, 0]
    coarse = program.to(device, _COARSE) if len(chosen) else program
    with torch.inference_mode(), single_precision():
        for batch in _batches(chosen, expected, most):
            ends = torch.cat([first[batch], last[batch]]).to(device, torch.float64)
            made = ShortSegments(*(part.cpu() for part in _run(program, coarse, ends, 4 * most)))
            switches[batch], left[batch] = made.switches, made.left
            found.append((batch[made.segment], made.t))
            require_few(sum(len(t) for _, t in found), max_points, "along some segments")
    segment, t = (torch.cat(part).clone() for part in zip(*found, strict=True))
    return ShortSegments(segment, t, switches.clone(), left.clone())


def _batches(chosen: Tensor, expected: Tensor, most: int) -> Iterator[Tensor]:
    """Yield some segments in batches of so many points, both ends of each among them."""
    counts = (expected[chosen] + 2).long()
    for begin, end in blocks_of(counts, most):
        yield chosen[begin:end]


@dataclass(frozen=True)
class _Points:
    """The points inside S segments, as they came, and together with the ends in order.

    segment, t: (P,) as they came, which is the order of all tables of bends. begin, count: (S,)
    the places of the points of a segment, both ends among them; row, position: (G,) the row of
    the point at each place, -1 for an end, and its t.
    """

    segment: Tensor
    t: Tensor
    begin: Tensor
    count: Tensor
    row: Tensor
    position: Tensor

    @classmethod
    def of(cls, segment: Tensor, t: Tensor, segments: int) -> _Points:
        inner = counts_of(segment, segments)
        offsets = offsets_of(inner)
        begin = offsets[:-1] + 2 * torch.arange(segments, device=t.device)
        order = torch.argsort(t)
        order = order[torch.argsort(segment[order], stable=True)]
        own = segment[order]
        place = begin[own] + 1 + torch.arange(len(t), device=t.device) - offsets[own]
        row = torch.full((len(t) + 2 * segments,), -1, device=t.device)
        row[place] = order
        position = torch.zeros(row.shape[0], dtype=t.dtype, device=t.device)
        position[begin + inner + 1] = 1
        position[place] = t[order]
        return cls(segment, t, begin, inner + 2, row, position)

    @property
    def owner(self) -> Tensor:
        """The segment of each place, (G,)."""
        return owners_of(self.count, self.row.shape[0])


@dataclass(frozen=True)
class _Chains:
    """Some units, each at all points of one segment: K units, Q places of them together.

    segment, unit: (K,); own: (Q,) the number of the unit; place: (Q,) of its point, see
    ``_Points``; value: (Q,) of the unit there.
    """

    segment: Tensor
    unit: Tensor
    own: Tensor
    place: Tensor
    value: Tensor

    @classmethod
    def of(
        cls, segment: Tensor, unit: Tensor, points: _Points, ends: Tensor, *bends: Tensor
    ) -> _Chains:
        """ends: (2 S, n) the values at both ends; bends: (P, n), in one table or in several."""
        counts = points.count[segment]
        begin = points.begin[segment] - offsets_of(counts)[:-1]
        own = owners_of(counts)
        place = begin[own] + torch.arange(own.shape[0], device=own.device)
        made = cls(segment, unit, own, place, place.double())
        value = made.straight(points, ends)
        inner, row = made.inside(points)
        column, above = unit[own[inner]], 0
        for bend in bends:
            here = ((row >= above) & (row < above + len(bend))).nonzero()[:, 0]
            value[inner[here]] += bend[row[here] - above, column[here]].double() / FAR
            above += len(bend)
        return replace(made, value=value)

    def largest(self) -> Tensor:
        """The largest moduli of the units along the segments, (K,)."""
        none = self.value.new_zeros(self.unit.shape)
        return none.scatter_reduce(0, self.own, self.value.abs(), "amax")

    def straight(self, points: _Points, ends: Tensor) -> Tensor:
        """Values on the lines between the ends, (Q,)."""
        S = points.count.shape[0]
        first, last = ends[self.segment, self.unit], ends[self.segment + S, self.unit]
        return torch.lerp(first[self.own], last[self.own], points.position[self.place])

    def inside(self, points: _Points) -> tuple[Tensor, Tensor]:
        """Which of the Q are no ends, and the rows of their points."""
        row = points.row[self.place]
        inner = (row >= 0).nonzero()[:, 0]
        return inner, row[inner]


def _run(program: Program, coarse: Program, x: Tensor, most: int) -> ShortSegments:
    """Run a batch of segments; x: (2 S, ...) the first ends, then the last ones; most: points."""
    S, device = x.shape[0] // 2, x.device
    x = x.view(-1, *program.input_shape)
    none = torch.zeros(0, dtype=torch.float64, device=device)
    points = _Points.of(none.long(), none, S)
    size = x.abs().amax(0, keepdim=True)
    size = torch.cat([size, torch.zeros_like(size)])  # of the ends, and of the bends
    work = _Work(
        {program.input_name: x},
        {program.input_name: x[:0].to(_COARSE)},
        {program.input_name: Bound(size, EPS * size)},
        points,
        torch.zeros(S, dtype=torch.bool, device=device),
    )
    switches = torch.zeros((S, len(program.layers)), dtype=torch.int64, device=device)
    for i, layer in enumerate(program.layers):
        work.advance(program, coarse, i)
        wanted = program.stages[i + 1].live_in
        if isinstance(layer, PiecewiseScalar) and layer.at_zero:
            switches[:, i] = work.switch_at_zero(layer, wanted)
        else:
            switches[:, i] = work.switch(layer, wanted)
        if len(work.points.t) > most:
            work.left[:] = True
        if bool(work.left.all()):
            break
    points = work.points
    kept = points.row[points.row >= 0]
    return ShortSegments(points.segment[kept], points.t[kept], switches, work.left)


@dataclass
class _Work:
    """The values before a layer: of the ends, (2 S, ...), and FAR times the bends, (P, ...).

    bounds: of both, in two rows; the errors of bends are divided by ``_RATIO``. left: (S,) see
    ``ShortSegments``.
    """

    ends: dict[str, Tensor]
    bends: dict[str, Tensor]
    bounds: dict[str, Bound]
    points: _Points
    left: Tensor

    def advance(self, program: Program, coarse: Program, i: int) -> None:
        """Run an affine stage. Beside FAR times the bends, its offsets round away."""
        names = program.stages[i].live_in
        self.ends = program.advance(i, {name: self.ends[name] for name in names})
        if len(self.points.t):
            self.bends = coarse.advance(i, {name: self.bends[name] for name in names})
        else:
            self.bends = {name: z[:0].to(_COARSE) for name, z in self.ends.items()}
        self.bounds = program.bounds(i, {name: self.bounds[name] for name in names})

    def error(self, name: str, z: Tensor) -> tuple[Tensor, Tensor]:
        """The errors (n,) of the units of a value: at the ends, and of FAR times their bends."""
        ends, bends = self.bounds[name].error.flatten(1).expand(2, -1)
        return ends + 2 * EPS * z.abs().amax(0), _RATIO * bends

    def switch_at_zero(self, layer: PiecewiseScalar, wanted: tuple[str, ...]) -> Tensor:
        """Apply a layer whose units have their border at zero; count its switches, (S,)."""
        z, bend = self.ends[layer.source].flatten(1), self.bends[layer.source].flatten(1)
        points, S = self.points, self.left.shape[0]
        end_error, bend_error = self.error(layer.source, z)
        error = end_error + bend_error / FAR
        size, top = _largest(bend, points.segment, S)
        reach = torch.minimum(top[:, None], size) / FAR + SAFETY * error
        first, last = z[:S], z[S:]
        apart = (first > 0) != (last > 0)
        near = apart | (torch.minimum(first.abs(), last.abs()) <= reach)
        near &= (first != 0) | (last != 0) | (size > 0)
        segment, unit = near.nonzero(as_tuple=True)
        chains = _Chains.of(segment, unit, points, z, bend)
        alive = chains.largest() > 0  # what is zero all along switches nowhere
        if not bool(alive.all()):
            segment, unit = segment[alive], unit[alive]
            chains = _Chains.of(segment, unit, points, z, bend)
        own, place = chains.own, chains.place
        zeros = zeros_between(chains.value[:, None], error[unit[own], None], own[1:] == own[:-1])
        counts = counts_of(segment[own[zeros.piece]], S)
        zeros = zeros._replace(
            piece=place[zeros.piece], unclear=place[zeros.unclear], inexact=place[zeros.inexact]
        )
        between = self.divide(united(points.position, zeros), wanted)

        slopes = layer.slopes.to(z)
        side = torch.where(first > 0, slopes[1], slopes[0])
        argument = self.bends[layer.argument].flatten(1)[: len(bend)]
        tables = argument, between(argument)
        made = _multiplied(tables, side.to(_COARSE), self.points.segment)
        chains = _Chains.of(segment, unit, self.points, z, *tables)

        def applied(x: Tensor, unit: Tensor) -> Tensor:
            return x * torch.where(x > 0, slopes[1, unit], slopes[0, unit])

        inner, row = chains.inside(self.points)
        ends = applied(z, torch.arange(z.shape[1], device=z.device))
        curved = applied(chains.value, unit[chains.own]) - chains.straight(self.points, ends)
        curved, column = FAR * curved[inner], unit[chains.own[inner]]
        made[row, column] = curved.to(_COARSE)

        steep, steepest = side.abs().amax(0), slopes.abs().amax(0)
        magnitude = (steep * size).scatter_reduce(0, column, curved.abs(), "amax")
        steep = steep.index_put((unit,), steepest[unit])
        error = steep * bend_error / _RATIO + EPS * magnitude
        error[unit] += 2 * FAR / _RATIO * (steepest * end_error)[unit]
        self.apply(layer, made, Bound(magnitude, error), wanted)
        return counts

    def switch(self, layer: Nonlinearity, wanted: tuple[str, ...]) -> Tensor:
        """The same for any layer, by the values of all its units in float64."""
        z = self.ends[layer.source].flatten(1)
        end_error, bend_error = self.error(layer.source, z)
        error = (end_error + bend_error / FAR)[None]
        points, S = self.points, self.left.shape[0]
        owner = points.owner
        along = self.along(layer.source).flatten(1)
        inside = owner[1:] == owner[:-1]
        low, high = along.amin(0), along.amax(0)
        units = UnitValues(along, error, None, low, high, points.position, inside)
        found = find_crossings(layer, units)
        before = torch.arange(along.shape[0], device=z.device)
        before = torch.cat([before, found.piece])
        s = torch.cat([torch.zeros_like(points.position), found.s])
        order = torch.argsort(before + s, stable=True)
        rest = LayerAlong(layer, along, owner, error, None, before[order], s[order])
        segment, count = count_switches(rest)
        counts = torch.zeros(S, dtype=torch.int64, device=z.device).index_add_(0, segment, count)
        self.divide(found, (*wanted, layer.argument))

        made = layer.apply(self.along(layer.argument))
        inner = (self.points.row >= 0).nonzero()[:, 0]
        result = layer.apply(self.ends[layer.argument])
        straight = self.lines(result)
        bend = result.new_empty((len(self.points.t), *result.shape[1:]))
        bend[self.points.row[inner]] = FAR * (made - straight)[inner]
        magnitude = bend.abs().amax(0) if len(bend) else 0 * result[0]
        known = self.bounds[layer.argument]
        both = known.error[:1] + _RATIO / FAR * known.error[1:]
        error = layer.bound(Bound(known.magnitude[:1], both), low, high).error[0]
        error = 2 * FAR / _RATIO * (error + EPS * made.abs().amax(0)) + EPS * magnitude
        self.apply(layer, bend.to(_COARSE), Bound(magnitude, error), wanted)
        return counts

    def lines(self, ends: Tensor) -> Tensor:
        """Values (G, ...) at all places on the lines between the ends (2 S, ...)."""
        S, owner = self.left.shape[0], self.points.owner
        s = self.points.position.view(-1, *[1] * (ends.dim() - 1))
        return torch.lerp(ends[:S][owner], ends[S:][owner], s)

    def along(self, name: str) -> Tensor:
        """A value at all places, (G, ...)."""
        made = self.lines(self.ends[name])
        inner = (self.points.row >= 0).nonzero()[:, 0]
        made[inner] += self.bends[name][self.points.row[inner]].double() / FAR
        return made

    def divide(self, found: Crossings, names: tuple[str, ...]) -> Callable[[Tensor], Tensor]:
        """Add new points. At these the values with some names are interpolated.

        Returns a function that interpolates others: from (P, ...) to as many rows as are new.
        """
        points, owner = self.points, self.points.owner
        self.left[owner[found.inexact]] = True
        sides = []
        for place, share in ((found.piece, 1 - found.s), (found.piece + 1, found.s)):
            row = points.row[place]
            sides.append((row.clamp(min=0), (share * (row >= 0)).to(_COARSE)))

        def between(old: Tensor) -> Tensor:
            new = old.new_zeros((len(found.s), *old.shape[1:]))
            for row, weight in sides if len(old) else ():
                new.addcmul_(old[row], weight.view(-1, *[1] * (old.dim() - 1)))
            return new

        for name in set(names) & set(self.bends):
            self.bends[name] = torch.cat([self.bends[name], between(self.bends[name])])
            size, error = self.bounds[name]
            self.bounds[name] = Bound(size, error + EPS * size)
        position = points.position
        t = torch.lerp(position[found.piece], position[found.piece + 1], found.s)
        segment = torch.cat([points.segment, owner[found.piece]])
        self.points = _Points.of(segment, torch.cat([points.t, t]), self.left.shape[0])
        return between

    def apply(
        self, layer: Nonlinearity, bend: Tensor, bound: Bound, wanted: tuple[str, ...]
    ) -> None:
        """Add the results of a layer, of which the bends and their bounds are known."""
        z = self.ends[layer.argument]
        known = self.bounds[layer.argument]
        slack = (known.magnitude[1:] / FAR).flatten(1)
        low, high = z.flatten(1).amin(0) - slack, z.flatten(1).amax(0) + slack
        ends = layer.bound(Bound(*(part[:1] for part in known)), low, high)
        made = layer.apply(z)
        shape = made.shape[1:]
        self.ends = {**self.ends, layer.result: made}
        self.bends = {**self.bends, layer.result: bend.view(-1, *shape)}
        rows = [
            torch.cat([a.view(1, *shape), b.view(1, *shape)])
            for a, b in zip(ends, bound, strict=True)
        ]
        self.bounds = {**self.bounds, layer.result: Bound(*rows)}


def _largest(bend: Tensor, segment: Tensor, S: int) -> tuple[Tensor, Tensor]:
    """The largest moduli of bends (P, n) of each unit, (n,), and along each segment, (S,)."""
    size, top = torch.zeros(bend.shape[1]).to(bend), torch.zeros(S).to(bend)
    for rows, part in _blocks(bend):
        part = part.abs()
        torch.maximum(size, part.amax(0), out=size)
        top.scatter_reduce_(0, segment[rows], part.amax(1), "amax")
    return size.double(), top.double()


def _multiplied(tables: tuple[Tensor, ...], factor: Tensor, segment: Tensor) -> Tensor:
    """The rows (P, n) of several tables, times the factors (S, n) of their segments."""
    made = tables[0].new_empty((len(segment), factor.shape[1]))
    begin = 0
    for table in tables:
        for rows, part in _blocks(table):
            place = slice(rows.start + begin, rows.stop + begin)
            torch.mul(part, factor[segment[place]], out=made[place])
        begin += len(table)
    return made


def _blocks(x: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield blocks of the rows of (P, n)."""
    step = max(1, backend_of(x.device).function_values // max(1, x.shape[1]))
    for start in range(0, x.shape[0], step):
        rows = slice(start, min(start + step, x.shape[0]))
        yield rows, x[rows]
