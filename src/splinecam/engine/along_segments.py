"""Run a captured network along many segments at once: breakpoints, and outputs at them.

The points of all segments are the rows of one table, in order. Between neighbouring points of a
segment every value before a layer is affine. A layer adds the points at which it switches, whose
values are interpolated; the next affine stage is then run at all points. No mesh is made.

At first all segments share bounds on their rounding errors, which are larger than those of each. A
segment on which these matter, as a unit is about zero or two points are about one, leaves the table
and is run anew with rounding errors of its own. So it does not matter which segments come together.

A table that is too large is cut in two, which are carried to the end of the network one after the
other. New points are interpolated after the cut only, so that a wide layer needs little memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import prod

import torch
from torch import Tensor

from splinecam._util.arrays import as_rows, counts_of, offsets_of, owners_of, take
from splinecam._util.backend import backend_of
from splinecam._util.tolerances import EPS, SAFETY
from splinecam.arrangement.crossings import Signs, SignWriter
from splinecam.engine.activations import LayerInput, empty_table, require_no_overflow
from splinecam.engine.plan import dense_product, finds_signs, free_memory
from splinecam.engine.segment_crossings import CLOSE, UNCLEAR, Crossings, UnitValues, find_crossings
from splinecam.engine.switch_counts import LayerAlong, count_switches
from splinecam.errors import LimitError
from splinecam.kernels.kernel import Kernel, PointsAlong, kernel_for
from splinecam.network.nonlinearities import Nonlinearity
from splinecam.network.ops.bounds import Bound
from splinecam.network.program import Program

_TABLES = 12  # tables of live values that exist at a time, at most
_FEWEST = 32  # points of a part, however wide the layers


@dataclass(frozen=True)
class OpenPlaces:
    """Places that rounding leaves open: segments (N,), positions (N,), the layer, the reason."""

    segment: Tensor
    t: Tensor
    layer: str
    reason: str


@dataclass(frozen=True)
class Breaks:
    """The points of S segments, in order: both ends, and the breakpoints between them.

    offsets: (S + 1,) where the points of each segment begin; t: (P,) positions from 0 to 1; values:
    (P, n_out) outputs; error: (n_out,) a bound on their rounding errors along all segments;
    layer_errors: (n,) the same for the units of each layer, by its name. Those of each segment
    alone are found by ``errors_along``. shared: whether there are several segments. settled: (P,)
    whether the piece after a point is not divided, as a question is settled on it; None for none.
    switches: (S, L) how often units of each layer switch, if that was asked for; several units may
    switch at one point.
    """

    offsets: Tensor
    t: Tensor
    values: Tensor
    error: Tensor
    layer_errors: dict[str, Tensor]
    doubts: list[OpenPlaces]
    shared: bool = False
    settled: Tensor | None = None
    switches: Tensor | None = None


@dataclass(frozen=True)
class _State:
    """The points before a stage, and what their values follow from.

    segment, t: (P,) of the points; before: (P,) the row at or before each point, and s: (P,) the
    fraction of the way to the next row; rows: values by name; layer: to be applied to them, if any.
    bounds: of the values, in one row for all segments, or in one for each of ``own``. own: (R,) the
    segments in order, None if they share their bounds. joined: whether the first point is the last
    one of the part before.
    """

    index: int
    segment: Tensor
    t: Tensor
    before: Tensor
    s: Tensor
    rows: dict[str, Tensor]
    bounds: dict[str, Bound]
    layer: Nonlinearity | None = None
    own: Tensor | None = None
    joined: bool = False

    @property
    def count(self) -> int:
        return int(self.t.shape[0])

    @property
    def alike(self) -> bool:
        """Whether the same bounds hold at all points."""
        return self.own is None or self.own.shape[0] == 1

    @property
    def owner(self) -> Tensor | None:
        """The row of the bounds that holds at each point, (P,), None if there is one row."""
        if self.own is None or self.own.shape[0] == 1:
            return None
        return torch.searchsorted(self.own, self.segment)

    def live(self, names: tuple[str, ...], kernel: Kernel | None) -> dict[str, Tensor]:
        """The values at all points."""
        layer = self.layer
        if layer is None or layer.result not in names:
            return {name: self._at_points(name, kernel) for name in names}
        if layer.rectifies and layer.argument not in names:
            made = self._at_points(layer.argument, kernel, rectified=True)
            known = {layer.result: made}
        else:
            argument = self._at_points(layer.argument, kernel)
            known = {layer.argument: argument, layer.result: layer.apply(argument)}
        return {
            name: known[name] if name in known else self._at_points(name, kernel) for name in names
        }

    def _at_points(self, name: str, kernel: Kernel | None, *, rectified: bool = False) -> Tensor:
        """One value at all points, or its positive part."""
        rows = self.rows[name]
        if rows.shape[0] == self.count:  # no layer has added any since
            return rows.clamp(min=0) if rectified else rows
        if kernel is not None and rows.is_contiguous():
            return kernel.rows_between(rows, self.before, self.s, rectified=rectified)
        new = self.s.nonzero()[:, 0]
        values, p = take(rows, self.before), take(self.before, new)
        s = take(self.s, new).view(-1, *[1] * (rows.dim() - 1))
        values.index_copy_(0, new, take(rows, p).lerp_(take(rows, p + 1), s))
        return values.clamp_(min=0) if rectified else values

    def halves(self, *, whole: bool) -> tuple[_State, ...]:
        """Two parts that share a point if that lies inside a segment; whole: only between two."""
        middle = self.count // 2
        if whole:
            starts = (self.segment[1:] != self.segment[:-1]).nonzero()[:, 0] + 1
            if not starts.shape[0]:
                return (self,)
            middle = int(starts[(starts - middle).abs().argmin()])
        shared = bool(self.segment[middle - 1] == self.segment[middle])
        return self._part(0, middle + shared, self.joined), self._part(middle, self.count, shared)

    def _part(self, begin: int, end: int, joined: bool) -> _State:
        first, last = self.before[[begin, end - 1]].tolist()
        # The last point may lie between its row and the next one.
        rows = {name: value[first : last + 2] for name, value in self.rows.items()}
        own, bounds, owner = self.own, self.bounds, self.owner
        if own is not None and owner is not None:
            kept = slice(int(owner[begin]), int(owner[end - 1]) + 1)
            own = own[kept]
            bounds = {name: Bound(*(part[kept] for part in each)) for name, each in bounds.items()}
        return replace(
            self,
            segment=self.segment[begin:end],
            t=self.t[begin:end],
            before=self.before[begin:end] - first,
            s=self.s[begin:end],
            rows=rows,
            bounds=bounds,
            own=own,
            joined=joined,
        )

    def without(self, segments: Tensor, found: Crossings) -> tuple[_State, Crossings]:
        """The same without some segments; every row is that of a point."""
        kept = ~torch.isin(self.segment, segments)
        chosen = kept.nonzero()[:, 0]
        place, stays = kept.cumsum(0) - 1, take(kept, found.piece)
        state = replace(
            self,
            segment=take(self.segment, chosen),
            t=take(self.t, chosen),
            before=torch.arange(chosen.shape[0], device=chosen.device),
            s=take(self.s, chosen),
            rows={name: take(value, chosen) for name, value in self.rows.items()},
            joined=self.joined and bool(kept[0]),
        )
        return state, replace(found, piece=take(place, found.piece[stays]), s=found.s[stays])


_Values = tuple[dict[str, Tensor], dict[str, Bound], LayerInput | None]
"""The results of a stage at all points, with their bounds, and what the layer after it needs.

The layer's input has signs if the layer switches where units change their sign, and if they are
known.
"""

Report = Callable[[int], object]
"""Is called with the number of segments that are finished, since the last call."""


@dataclass
class _SegmentWork:
    """One computation: what stays the same while parts are carried through the stages."""

    program: Program
    numbers: int
    memory: int
    max_points: int | None
    kernel: Kernel | None
    layer_errors: dict[str, Tensor] = field(default_factory=dict)
    doubts: list[OpenPlaces] = field(default_factory=list)
    left: list[Tensor] = field(default_factory=list)
    points: int = 0
    switches: Tensor | None = None  # (S, L)

    def finish(self, state: _State) -> list[tuple[_State, Tensor, Tensor]]:
        """Carry points to the end: the parts with their outputs, and the errors of the outputs.

        Segments that need rounding errors of their own are added to ``left``; some of their points
        may be among the results.
        """
        waiting, done = [state], []
        while waiting:
            part = waiting.pop()
            while part.index < len(self.program.stages) and part.count:
                parts: tuple[_State, ...] = (part,)
                if part.count > 2 and self._too_large(part):
                    parts = part.halves(whole=self.switches is not None)
                waiting += parts[1:]
                part = self._advance(part) if len(parts) == 1 else parts[0]
            if part.count:
                name = self.program.output_name
                output = part.rows[name].reshape(part.count, -1)
                done.append((part, output, as_rows(part.bounds[name].error).amax(0)))
        return done

    def _too_large(self, state: _State) -> bool:
        before = sum(prod(value.shape[1:]) for value in state.rows.values())
        width = max(before, self.program.widths[state.index])
        numbers = state.count * width
        if numbers > self.memory // (8 * _TABLES):
            return True
        return numbers > self.numbers and state.count > 2 * _FEWEST

    def _advance(self, state: _State) -> _State:
        """Run one stage, and find where the layer after it switches."""
        i, layer = state.index, self.program.stages[state.index].layer
        rows, bounds, given = self._by_kernel(state) or self._by_steps(state)
        each = torch.arange(state.count, device=state.t.device)
        none = torch.zeros_like(state.t)
        known = replace(
            state, index=i + 1, before=each, s=none, rows=rows, bounds=bounds, layer=layer
        )
        if layer is None or given is None:
            return known
        low, high, signs = given.low, given.high, given.signs
        error, bounds = _after_layer(layer, bounds, low, high)
        known = replace(known, bounds=bounds)
        most, noted = error.amax(0), self.layer_errors.get(layer.name)
        self.layer_errors[layer.name] = most if noted is None else torch.maximum(noted, most)
        z = rows[layer.source].reshape(state.count, -1)
        points = None
        if self.kernel is not None and signs is not None and signs.clear:
            place = state.segment.contiguous(), state.t.contiguous()
            points = self.kernel.points_along(z, signs.positive, error.contiguous(), *place)
        if points is not None:
            after = replace(known, **points._asdict())
        else:
            inside = state.segment[1:] == state.segment[:-1]
            ends = (low.amin(0), high.amax(0)) if low.dim() > 1 else (low, high)
            units = UnitValues(z, error, state.owner, *ends, state.t, inside)
            found = find_crossings(layer, units)
            if state.own is not None:
                self._note(layer.name, state, found)
            elif found.inexact.shape[0]:
                known, found = self._leave(known, found)
            after = _with_points(known, found)
        self._count(layer.name, after.count - known.count)
        if self.switches is not None and known.count:
            rest = known.segment, error, known.owner, after.before, after.s
            z = known.rows[layer.source].reshape(known.count, -1)
            segment, count = count_switches(LayerAlong(layer, z, *rest))
            self.switches[:, i].index_add_(0, segment, count)
        return after

    def _leave(self, state: _State, found: Crossings) -> tuple[_State, Crossings]:
        """Take the segments out on which smaller rounding errors might change the result."""
        segments = torch.unique(take(state.segment, found.inexact))
        self.left.append(segments)
        rest, found = state.without(segments, found)
        # Their points, but for the ends, will be counted again.
        self.points -= max(0, state.count - rest.count - 2 * int(segments.shape[0]))
        return rest, found

    def _by_steps(self, state: _State) -> _Values:
        """The values of a stage, by the steps of the program."""
        program, stage = self.program, self.program.stages[state.index]
        rows = program.advance(state.index, state.live(stage.live_in, self.kernel))
        bounds = program.bounds(state.index, {x: state.bounds[x] for x in stage.live_in})
        layer = stage.layer
        if layer is None:
            return rows, bounds, None
        z = rows[layer.source].reshape(state.count, -1)
        if not state.alike:
            return rows, bounds, LayerInput(*_ranges(z, state))
        if self.kernel is None or not finds_signs(layer) or not z.is_contiguous():
            return rows, bounds, LayerInput(z.amin(0), z.amax(0))
        writer = SignWriter(state.count, SAFETY * bounds[layer.source].error.reshape(-1))
        seen = writer.sign_range()
        self.kernel.scan(z, 0, state.count, seen)
        signs = replace(writer.signs, clear=not seen.zeros())
        return rows, bounds, LayerInput(seen.low, seen.high, signs)

    def _by_kernel(self, state: _State) -> _Values | None:
        """The same for a product with a constant matrix, in one call, if the kernel can do it."""
        stage = self.program.stages[state.index]
        if self.kernel is None or (stage.layer and not finds_signs(stage.layer)) or not state.alike:
            return None
        product = dense_product(self.program, state.index, state.layer, state.rows, state.bounds)
        if product is None:
            return None
        dense, name = product
        table = empty_table((state.count, dense.columns.shape[1]), dense.columns.device)
        place = PointsAlong(state.segment, state.t, state.before.contiguous(), state.s.contiguous())
        seen = self.kernel.dense_along(place, dense, table, signs=stage.layer is not None)
        rows, bounds = {name: table}, {name: Bound(seen.modulus, seen.error)}
        if seen.signs is None:
            return rows, bounds, None
        positive, negative = seen.signs.unbind()
        signs = Signs(positive, negative, positive[:0], seen.clear)
        return rows, bounds, LayerInput(seen.low[0], seen.high[0], signs)

    def _note(self, name: str, state: _State, found: Crossings) -> None:
        """Keep what a layer leaves open."""
        if found.unclear.shape[0]:
            at = found.unclear
            self.doubts.append(OpenPlaces(state.segment[at], state.t[at], name, UNCLEAR))
        if found.close.shape[0]:
            piece, s = found.piece[found.close], found.s[found.close]
            t = torch.lerp(state.t[piece], state.t[piece + 1], s)
            self.doubts.append(OpenPlaces(state.segment[piece], t, name, CLOSE))

    def _count(self, name: str, new: int) -> None:
        """Count new points, and raise an error if there are too many."""
        self.points += new
        require_few(self.points, self.max_points, f"at layer {name!r} already")


def require_few(points: int, most: int | None, where: str) -> None:
    """Raise an error if there are too many breakpoints."""
    if most is not None and points > most:
        raise LimitError(
            f"There are more than {most:,} breakpoints {where}. "
            "Raise max_regions, or choose shorter or fewer segments."
        )


def _ranges(z: Tensor, state: _State) -> tuple[Tensor, Tensor]:
    """The least and the largest of values z (P, n) along each segment, (R, n) each."""
    owner, own = state.owner, state.own
    if owner is None or own is None:
        return z.amin(0), z.amax(0)
    counts = counts_of(owner, own.shape[0])
    low, high = (
        torch.segment_reduce(z, kind, lengths=counts, axis=0, unsafe=True)
        for kind in ("min", "max")
    )
    return low, high


def _after_layer(
    layer: Nonlinearity, bounds: dict[str, Bound], low: Tensor, high: Tensor
) -> tuple[Tensor, dict[str, Bound]]:
    """The errors (R, n) of a layer's units, and the bounds of the values after the layer.

    low, high: the range of the units, (R, n) or (n,) each.
    """
    error = as_rows(bounds[layer.source].error)
    if not finds_signs(layer):  # the difference from a level or from another unit is rounded
        error = error + EPS * torch.maximum(low.abs(), high.abs())
    bounds = {name: Bound(m, e + EPS * m) for name, (m, e) in bounds.items()}
    bounds[layer.result] = layer.bound(bounds[layer.argument], low, high)
    return error, bounds


def _with_points(state: _State, found: Crossings) -> _State:
    """The state with new points between its rows."""
    old, new = state.count, int(found.piece.shape[0])
    if not new:
        return state
    counts = counts_of(found.piece, old)
    place_old = state.before + offsets_of(counts)[:-1]
    place_new = found.piece + torch.arange(1, new + 1, device=found.piece.device)
    t = torch.lerp(take(state.t, found.piece), take(state.t, found.piece + 1), found.s)

    def merged(at_old: Tensor, at_new: Tensor) -> Tensor:
        both = at_old.new_empty(old + new)
        both[place_old], both[place_new] = at_old, at_new
        return both

    return replace(
        state,
        segment=merged(state.segment, take(state.segment, found.piece)),
        t=merged(state.t, t),
        before=merged(state.before, found.piece),
        s=merged(state.s, found.s),
    )


def run_segments(
    program: Program,
    first: Tensor,
    last: Tensor,
    *,
    memory: int | None = None,
    max_points: int | None = None,
    report: Report = lambda count: None,
    compiled: bool = True,
    switches: bool = False,
) -> Breaks:
    """The breakpoints of a network along the segments from ``first`` to ``last``: (S, ...) inputs.

    memory: bytes to stay within, apart from the result. max_points: a ``LimitError`` beyond so many
    breakpoints. report: is called with the number of segments that are done. compiled: use the
    compiled kernel if it is installed. switches: count the switches of units by layer, too; then
    no segment is cut into parts.
    """
    device = program.device
    memory = free_memory(device) if memory is None else memory
    numbers = backend_of(device).segment_numbers
    kernel = kernel_for(device) if compiled else None
    run = _SegmentWork(program, numbers, memory, max_points, kernel)
    if switches:
        run.switches = torch.zeros((first.shape[0], len(program.layers)), dtype=torch.int64)
        run.switches = run.switches.to(device)
    step = max(1, numbers // (2 * max(1, *program.widths[:1], prod(program.input_shape))))
    parts, again = [], []
    with torch.inference_mode():
        for start in range(0, first.shape[0], step):
            a, b = first[start : start + step].to(device), last[start : start + step].to(device)
            segment = torch.arange(start, start + a.shape[0], device=device)
            parts += run.finish(_first_state(program, a, b, segment, own=len(first) == 1))
            if run.left:
                left = torch.unique(torch.cat(run.left))
                run.left.clear()
                if run.switches is not None:
                    run.switches[left] = 0
                a, b = take(a, left - start), take(b, left - start)
                again += run.finish(_first_state(program, a, b, left, own=True))
            report(segment.shape[0])
    return _joined(parts, again, first.shape[0], run)


def _first_state(program: Program, a: Tensor, b: Tensor, segment: Tensor, *, own: bool) -> _State:
    """The ends of segments, as they are before the first stage.

    own: whether each has bounds of its own.
    """
    count, device = a.shape[0], program.device
    ends = torch.stack([a, b], 1).to(torch.float64)
    magnitude = ends.abs().amax(1 if own else (0, 1), keepdim=not own)
    magnitude = magnitude.view(-1, *program.input_shape)
    t = torch.tensor([0.0, 1.0], dtype=torch.float64, device=device).repeat(count)
    return _State(
        index=0,
        segment=segment.repeat_interleave(2),
        t=t,
        before=torch.arange(2 * count, device=device),
        s=torch.zeros_like(t),
        rows={program.input_name: ends.view(2 * count, *program.input_shape)},
        bounds={program.input_name: Bound(magnitude, EPS * magnitude)},
        own=segment if own else None,
    )


_Part = tuple[_State, Tensor, Tensor]


def _joined(parts: list[_Part], again: list[_Part], segments: int, run: _SegmentWork) -> Breaks:
    """The points of all parts, in ordinary tensors, as these are made outside of inference mode.

    again: parts of segments whose points in other parts do not count.
    """
    skipped = [(int(state.joined), state, values) for state, values, _ in [*parts, *again]]
    owner = torch.cat([state.segment[k:] for k, state, _ in skipped])
    t = torch.cat([state.t[k:] for k, state, _ in skipped])
    values = torch.cat([values[k:] for k, _, values in skipped])
    if again:
        left = torch.cat([state.segment for state, _, _ in again])
        kept = ~torch.isin(owner, left)
        kept[-sum(state.count - k for k, state, _ in skipped[len(parts) :]) :] = True
        order = kept.nonzero()[:, 0]
        order = take(order, torch.sort(take(owner, order), stable=True).indices)
        owner, t, values = (take(x, order) for x in (owner, t, values))
    error = torch.stack([error for _, _, error in [*parts, *again]]).amax(0)
    require_no_overflow(run.layer_errors, error)
    offsets = offsets_of(counts_of(owner, segments))
    errors = {name: error.clone() for name, error in run.layer_errors.items()}
    doubts = [
        replace(doubt, segment=doubt.segment.clone(), t=doubt.t.clone()) for doubt in run.doubts
    ]
    made = Breaks(offsets, t, values, error, errors, doubts, shared=segments > 1)
    return made if run.switches is None else replace(made, switches=run.switches.clone())


def errors_along(
    program: Program, a: Tensor, b: Tensor, offsets: Tensor, t: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """The rounding errors along each of S segments: of the outputs (S, n_out), and of all layers.

    a, b: (S, D) the ends; offsets, t: the points of all segments, as in ``Breaks``. The second
    result has the errors (S, n) of the units of each layer, by its name.
    """
    count = a.shape[0]
    each = torch.arange(count, device=t.device)
    state = _first_state(program, a, b, each, own=True)
    segment = owners_of(offsets.diff(), t.shape[0])
    x = torch.lerp(take(a, segment), take(b, segment), t[:, None])
    live = {program.input_name: x.view(-1, *program.input_shape)}
    state = replace(state, segment=segment, t=t)
    bounds, errors = state.bounds, {}
    with torch.inference_mode(False), torch.no_grad():
        for i, stage in enumerate(program.stages):
            live = program.advance(i, {name: live[name] for name in stage.live_in})
            bounds = program.bounds(i, {name: bounds[name] for name in stage.live_in})
            layer = stage.layer
            if layer is not None:
                z = live[layer.source].reshape(t.shape[0], -1)
                error, bounds = _after_layer(layer, bounds, *_ranges(z, state))
                errors[layer.name] = error.expand(count, -1)
                live = {**live, layer.result: layer.apply(live[layer.argument])}
    return as_rows(bounds[program.output_name].error).expand(count, -1), errors
