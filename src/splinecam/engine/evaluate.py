"""One affine stage at all vertices of a mesh, as the plan of the stage says.

New vertices lie on edges and on chords. Along such a line the values of the next stage are straight
but for a breakpoint wherever a unit passes a knot of the layer:

    a(t) = lerp(a(0), a(1), t) - sum over breakpoints j of  s_j min(t, t_j) (1 - max(t, t_j)) c_j

Here s_j is the slope change, and c_j are the stage's results for unit j alone. The stage itself is
run at older vertices only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, pad

from splinecam._util.arrays import entries_of, offsets_of, owners_of, take
from splinecam._util.backend import backend_of
from splinecam._util.tolerances import EPS, SAFETY
from splinecam.arrangement.crossings import Signs, SignWriter, all_bits
from splinecam.engine.activations import LayerInput, Refined, State, empty_table, rows_in_block
from splinecam.engine.plan import DIRECT, Place, StagePlan, finds_signs, plan_stage
from splinecam.geometry.subdivision import Breakpoints, InterpolatedVertices
from splinecam.kernels.kernel import Dense, Kernel, LineRows, SignRange
from splinecam.network.ops.bounds import Bound
from splinecam.network.program import Program

_FIXED_BITS = 61  # of the integers in running sums, which may wrap around

_NUMBERS = 1 << 23  # that are summed at a time


@dataclass(frozen=True)
class LineTerms:
    """Values at new vertices as weighted sums of the rows of a table.

    The table has the values at all vertices, and behind them the results for single units.
    offsets: (N + 1,) the terms of each vertex; row, weight: (P,) of each term.
    """

    offsets: Tensor
    row: Tensor
    weight: Tensor

    @classmethod
    def of(
        cls, breakpoints: Breakpoints, interpolated: InterpolatedVertices, vertices: int
    ) -> LineTerms:
        """The two ends of each vertex's line, and all of its breakpoints.

        vertices: how many rows of the table come before the results for single units.
        """
        begin, end = (
            take(x, breakpoints.line) for x in (breakpoints.offsets[:-1], breakpoints.offsets[1:])
        )
        counts = end - begin
        offsets = offsets_of(counts)
        entry = entries_of(begin, end, offsets)
        owner = owners_of(counts, entry.shape[0])
        t, at = take(interpolated.t, owner), take(breakpoints.t, entry)
        weight = (
            torch.minimum(t, at)
            * (1 - torch.maximum(t, at))
            * take(breakpoints.slope_change, entry)
        )
        unit = take(breakpoints.unit, entry)
        index = torch.arange(entry.shape[0] + 2 * interpolated.count, device=unit.device)
        offsets += 2 * index[: offsets.shape[0]]
        places = [offsets[:-1], offsets[:-1] + 1, index[2 : 2 + entry.shape[0]] + 2 * owner]
        rows, weights = torch.empty_like(index), weight.new_empty(index.shape)
        for place, x in zip(places, (interpolated.p, interpolated.q, unit + vertices), strict=True):
            rows.scatter_(0, place, x)
        for place, x in zip(places, (1 - interpolated.t, interpolated.t, -weight), strict=True):
            weights.scatter_(0, place, x)
        return cls(offsets, rows, weights)

    def sums(self, table: Tensor, step: int) -> Iterator[tuple[slice, Tensor]]:
        """Yield the values (B, m) of ``step`` vertices at a time from a table (V + n, m)."""
        count = self.offsets.shape[0] - 1
        starts = [*range(0, count, step), count]
        terms = [0, self.row.shape[0]]
        if len(starts) > 2:
            terms = self.offsets[torch.tensor(starts, device=self.offsets.device)].tolist()
        for (start, first), (stop, last) in pairwise(zip(starts, terms, strict=True)):
            offsets = self.offsets[start:stop] - first if first else self.offsets[start:stop]
            weights = self.weight[first:last]
            found = embedding_bag(
                self.row[first:last], table, offsets, mode="sum", per_sample_weights=weights
            )
            yield slice(start, stop), found


def running_sums(
    breakpoints: Breakpoints, interpolated: InterpolatedVertices, columns: Tensor
) -> Tensor:
    """The sums over the breakpoints of each vertex's line: columns (n, m) -> (N, m).

    For lines with many breakpoints, and few columns. Before a vertex's place each breakpoint counts
    with t_j (1 - t), behind it with t (1 - t_j). The sums run on over all lines, as integers: these
    may wrap around, but their differences are exact.
    """
    step = max(1, _NUMBERS // max(1, breakpoints.count))
    parts = torch.split(columns, step, 1)
    return torch.cat([_running_sums(breakpoints, interpolated.t, part) for part in parts], 1)


def _running_sums(breakpoints: Breakpoints, t: Tensor, columns: Tensor) -> Tensor:
    part = take(columns, breakpoints.unit).T * breakpoints.slope_change
    # No line's sum can be larger than this.
    largest = part.abs().amax(1, keepdim=True) * breakpoints.offsets.diff().amax()
    scale = torch.ldexp(torch.ones_like(largest), _FIXED_BITS - torch.frexp(largest).exponent)
    part *= scale
    weighted = part * breakpoints.t
    place, line = breakpoints.place + 1, breakpoints.line
    before = _between(weighted, take(breakpoints.offsets, line), place)
    behind = _between(part.sub_(weighted), place, take(breakpoints.offsets[1:], line))
    return torch.lerp(before, behind, t).div_(scale).T


def _between(part: Tensor, begin: Tensor, end: Tensor) -> Tensor:
    """Sums of the entries begin .. end - 1, (m, K) and (N,) -> (m, N)."""
    running = pad(part.long(), (1, 0)).cumsum(1)
    return (running.index_select(1, end) - running.index_select(1, begin)).to(part.dtype)


def evaluate(
    program: Program, index: int, state: State, place: Place, block: int
) -> LayerInput | None:
    """Evaluate one affine stage at all vertices; return what the layer after it needs, if any.

    block: about how many numbers are computed at a time.
    """
    plan = plan_stage(place, program, index, state)
    if plan.dense is not None and place.kernel is not None:
        return _evaluate_dense(program, index, state, *plan.dense, place.kernel)
    stage = program.stages[index]
    bounds = program.bounds(index, {name: state.bounds[name] for name in stage.live_in})
    if plan.evaluators != DIRECT:  # the ends of a line may lie on lines themselves
        bounds = {
            name: Bound(magnitude, error + 2 * EPS * magnitude)
            for name, (magnitude, error) in bounds.items()
        }
    layer, vertices = stage.layer, state.mesh.num_vertices
    units = None
    if layer is not None:
        tolerance = SAFETY * bounds[layer.source].error.reshape(-1)
        writer = SignWriter(vertices, tolerance) if finds_signs(layer, vertices) else None
        units = _Units(layer.source, writer, place.kernel)
    results = _Results(vertices, units, state.reusable_rows(stage.live_in))
    if plan.evaluators == DIRECT:
        for start, values in state.blocks(stage.live_in, block):
            _advance(program, index, start, values, results)
    else:
        _along_lines(program, index, state, plan, results, place.kernel, block)
    state.set_values(results.rows, bounds)
    return None if units is None else units.layer_input(results, block)


def _evaluate_dense(
    program: Program, index: int, state: State, dense: Dense, name: str, kernel: Kernel
) -> LayerInput | None:
    """Evaluate a product with a constant matrix at all vertices in one call of the kernel."""
    stage, width = program.stages[index], dense.columns.shape[1]
    # Interpolated new vertices are read from the old rows, which must not be overwritten then.
    reusable = None if dense.methods == DIRECT else state.reusable_rows(stage.live_in)
    wanted = dense.wanted
    rows = state.mesh.num_vertices if wanted is None else int(wanted.amax()) + 1
    shape = (rows, width)
    table = empty_table(shape, dense.columns.device, grows=True, reusable=reusable)
    seen = kernel.dense(state.mesh, dense, table, signs=stage.layer is not None)
    state.set_values({name: table}, {name: Bound(seen.modulus, seen.error)})
    state.place = wanted
    if seen.signs is None:
        return None
    positive, negative = seen.signs.unbind()
    wanted = positive[:0] if seen.clear else all_bits(width, positive.device)  # else not needed
    signs = Signs(positive, negative, wanted, seen.clear)
    return LayerInput(seen.low[0], seen.high[0], signs, seen)


class _Units:
    """Finds the range and the signs of a layer's units, a block of vertices at a time.

    source: the name of the units' values.
    """

    def __init__(self, source: str, writer: SignWriter | None, kernel: Kernel | None) -> None:
        self.source, self._writer, self._kernel = source, writer, kernel
        self._ranges: list[tuple[Tensor, Tensor]] = []
        self.sign_range: SignRange | None = None
        if writer is not None and kernel is not None:
            self.sign_range = writer.sign_range()

    def see(self, table: Tensor, start: int, count: int) -> None:
        """Take in the rows from ``start`` on of a table (V, n)."""
        if self._kernel is not None and self.sign_range is not None:
            self._kernel.scan(table, start, start + count, self.sign_range)
            return
        z = table[start : start + count]
        one_pass = backend_of(z.device).asynchronous  # on a CPU it is slower than two
        self._ranges.append(torch.aminmax(z, dim=0) if one_pass else (z.amin(0), z.amax(0)))
        if self._writer is not None:
            self._writer.write(start, z)

    def layer_input(self, results: _Results, block: int) -> LayerInput:
        """What was found; values on a GPU are looked at now, in few large blocks."""
        if self._writer is not None and self.sign_range is not None:
            signs = replace(self._writer.signs, clear=not self.sign_range.zeros())
            return LayerInput(self.sign_range.low, self.sign_range.high, signs)
        if not self._ranges:
            rows = results.rows[self.source]
            step = rows_in_block(block, [rows])
            for start in range(0, results.vertices, step):
                count = min(step, results.vertices - start)
                self.see(rows.view(results.vertices, -1), start, count)
        low, high = (torch.stack(part) for part in zip(*self._ranges, strict=True))
        writer = self._writer
        return LayerInput(low.amin(0), high.amax(0), None if writer is None else writer.signs)


@dataclass
class _Results:
    """Tables with the results of a stage.

    units: is told of new values. reusable: rows whose memory the first table may take. columns:
    rows to be placed behind those of the vertices in each table.
    """

    vertices: int
    units: _Units | None
    reusable: Tensor | None
    columns: dict[str, Tensor] = field(default_factory=dict)
    rows: dict[str, Tensor] = field(default_factory=dict)

    def at(self, start: int, count: int) -> dict[str, Tensor]:
        """The places of the values at vertices from ``start`` on, in the tables there are."""
        return {name: value[start : start + count] for name, value in self.rows.items()}

    def put(self, start: int, values: dict[str, Tensor]) -> None:
        """Take values at the vertices from ``start`` on."""
        for name, value in values.items():
            if name not in self.rows:
                self._make(name, value)
            place = self.rows[name][start : start + value.shape[0]]
            if value.data_ptr() != place.data_ptr():
                place.copy_(value)
            if not backend_of(value.device).asynchronous:
                self.see(name, start, value.shape[0])  # while it is in the cache

    def see(self, name: str, start: int, count: int) -> None:
        """Pass values on to the units, if they are theirs."""
        if self.units is not None and name == self.units.source:
            self.units.see(self.rows[name].view(self.vertices, -1), start, count)

    def _make(self, name: str, like: Tensor) -> None:
        columns = self.columns.get(name)
        shape = (self.vertices + (0 if columns is None else columns.shape[0]), *like.shape[1:])
        table = empty_table(shape, like.device, grows=True, reusable=self.reusable)
        self.reusable = None
        if columns is not None:
            table[self.vertices :].view(columns.shape).copy_(columns)
        self.rows[name] = table[: self.vertices]

    def table(self, name: str) -> Tensor:
        """The rows of a value with its columns behind them, (V + n, m)."""
        n, m = self.columns[name].shape
        return self.rows[name].as_strided((self.vertices + n, m), (m, 1))


def _advance(
    program: Program, index: int, start: int, values: dict[str, Tensor], results: _Results
) -> None:
    """Run the stage on the values at the vertices from ``start`` on."""
    count = next(iter(values.values())).shape[0]
    results.put(start, program.advance(index, values, results.at(start, count)))


def _along_lines(
    program: Program,
    index: int,
    state: State,
    plan: StagePlan,
    results: _Results,
    kernel: Kernel | None,
    block: int,
) -> None:
    """Run the stage at old vertices only, and find the values at new ones between those."""
    if not isinstance(state.pending, Refined) or state.pending.refinement.breakpoints is None:
        raise ValueError("no breakpoints are known")
    refinement, live = state.pending.refinement, program.stages[index].live_in
    on_edges, on_chords = state.pending.refinement.breakpoints
    crossings = int(on_chords.line.shape[0])  # the vertices after these lie on no line
    columns = _columns(program, index, state)
    if ("terms", False) in zip(plan.evaluators, plan.compiled, strict=True):
        results.columns = columns
    # These are found from old values, of which the new ones may take the place later on.
    rest = refinement.inside.select(slice(crossings, None))
    step = rows_in_block(block, list(state.rows.values()))
    for start in range(0, rest.count, step):
        some = rest.select(slice(start, start + step))
        first = state.mesh.num_vertices - rest.count + start
        _advance(program, index, first, state.at(some, live), results)
    for start, values in state.blocks(live, block, old=True):
        _advance(program, index, start, values, results)
    first = state.num_known
    groups = (
        (on_edges, refinement.on_edges),
        (on_chords, refinement.inside.select(slice(crossings))),
    )
    for group, evaluator, compiled in zip(groups, plan.evaluators, plan.compiled, strict=True):
        lines, count = (first, *group), group[1].count
        if count and kernel is not None and compiled:
            _by_kernel(kernel, lines, columns, results, evaluator)
        elif count and evaluator == "sums":
            _by_sums(lines, columns, results)
        elif count:
            _by_terms(lines, results, block)
        first += count


def _columns(program: Program, index: int, state: State) -> dict[str, Tensor]:
    """The results of the stage for single units of the pending layer, (n, m) each."""
    if state.layer is None:
        raise ValueError("no layer is pending")
    result = state.layer.result
    live = {
        name: state.bounds[name].magnitude if name == result else state.rows[name][:1]
        for name in program.stages[index].live_in
    }
    return program.columns(index, result, live)


_Lines = tuple[int, Breakpoints, InterpolatedVertices]
"""The first of new vertices, the breakpoints of the lines that they lie on, and the vertices."""


def _by_kernel(
    kernel: Kernel, lines: _Lines, columns: dict[str, Tensor], results: _Results, evaluator: str
) -> None:
    """Find the values by terms or by running sums with the compiled kernel."""
    units, (first, breakpoints, vertices) = results.units, lines
    for name, rows in results.rows.items():
        given = LineRows(first, vertices, breakpoints, columns[name])
        mine = units is not None and units.source == name
        signs = units.sign_range if units is not None and mine else None
        table = rows.view(results.vertices, -1)
        kernel.fill(table, given, signs or SignRange.nothing(), evaluator)
        if signs is None:
            results.see(name, first, vertices.count)


def _by_sums(lines: _Lines, columns: dict[str, Tensor], results: _Results) -> None:
    """Find the values by running sums, with tensor operations."""
    first, breakpoints, vertices = lines
    values = results.at(first, vertices.count)
    for name, out in values.items():
        vertices.interpolate(results.rows[name][:first], out)
        off = running_sums(breakpoints, vertices, columns[name])
        out.view(vertices.count, -1).sub_(off)
    results.put(first, values)


def _by_terms(lines: _Lines, results: _Results, block: int) -> None:
    """Find the values by terms, with tensor operations."""
    begin, breakpoints, vertices = lines
    terms = LineTerms.of(breakpoints, vertices, results.vertices)
    step = rows_in_block(block, list(results.rows.values()))
    for name, rows in results.rows.items():
        for some, values in terms.sums(results.table(name), step):
            results.put(begin + some.start, {name: values.view(-1, *rows.shape[1:])})
