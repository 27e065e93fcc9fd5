"""One affine stage at all vertices of a mesh: at those that were there, and at those just made."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.tolerances import EPS, SAFETY
from splinecam.arrangement.signs import SignWriter
from splinecam.engine import line_values as bending
from splinecam.engine.activations import LayerInput, State, extended, room_for, rows_in_block
from splinecam.engine.dense_layers import WIDE, evaluate_dense
from splinecam.engine.line_values import Bags, Sums
from splinecam.geometry.interpolation import Breakpoints, InterpolatedVertices
from splinecam.kernels import Kernel, LineRows, SignRange
from splinecam.network.nonlinearities import PiecewiseScalar
from splinecam.network.ops import Bound
from splinecam.network.program import Program

__all__ = ["evaluate"]

# A stage's answer to single units is found only if it has no more numbers than this.
_COLUMNS = 1 << 24


@dataclass
class _Sink:
    """Where the results of a stage go: values, and the range and signs of what is cut next.

    again: rows that nobody will read, of which the values of a block may take the place; sight:
    what the loops see of the source; behind: what stands behind the rows in a table.
    """

    vertices: int
    source: str | None
    writer: SignWriter | None
    again: Tensor | None = None
    kernel: Kernel | None = None
    sign_range: SignRange | None = None
    behind: dict[str, Tensor] = field(default_factory=dict)
    rows: dict[str, Tensor] = field(default_factory=dict)
    layer_input: LayerInput | None = None

    def __post_init__(self) -> None:
        if self.kernel is not None and self.writer is not None:
            self.sign_range = self.writer.sign_range()

    def room(self, start: int, count: int) -> dict[str, Tensor]:
        """Where the values of so many vertices from ``start`` on will be."""
        return {name: value[start : start + count] for name, value in self.rows.items()}

    def prepare(self, name: str, shape: tuple[int, ...], device: torch.device) -> Tensor:
        """Where the values of all vertices will be, of that shape each."""
        if name in self.rows:
            return self.rows[name]
        more = self.behind.get(name)
        count = self.vertices + (0 if more is None else more.shape[0])
        room = extended(self.again, (count, *shape))
        table = room_for((count, *shape), device, grows=True) if room is None else room
        self.again = None
        if more is not None:
            table[self.vertices :].view(more.shape).copy_(more)
        self.rows[name] = table[: self.vertices]
        return self.rows[name]

    def table(self, name: str) -> Tensor:
        """The rows of a value, and what stands behind them, (V + n, m)."""
        rows, more = self.rows[name], self.behind[name]
        shape = (self.vertices + more.shape[0], more.shape[1])
        return rows.as_strided(shape, (shape[1], 1))

    def put(self, start: int, values: dict[str, Tensor]) -> None:
        """Take the values at the vertices from ``start`` on."""
        for name, value in values.items():
            rows = self.prepare(name, value.shape[1:], value.device)
            place = rows[start : start + value.shape[0]]
            if value.data_ptr() != place.data_ptr():
                place.copy_(value)
            if name == self.source and not backend_of(value.device).asynchronous:
                self.look(start, value.shape[0])  # while it is in the cache

    def look_at_all(self, block: int) -> None:
        """Look at values that were not looked at when they came: few large blocks suit a GPU."""
        if self.source is None or self.layer_input is not None or self.sign_range is not None:
            return
        step = rows_in_block(block, [self.rows[self.source]])
        for start in range(0, self.vertices, step):
            self.look(start, min(step, self.vertices - start))

    def look(self, start: int, count: int) -> None:
        """See the range and the signs of so many vertices of the source."""
        if self.source is None:
            return
        table = self.rows[self.source].view(self.vertices, -1)
        if self.kernel is not None and self.sign_range is not None:
            self.kernel.scan(table, start, start + count, self.sign_range)
            return
        z = table[start : start + count]
        # One pass over the numbers for both is faster on a GPU, and slower on a CPU.
        low, high = (
            torch.aminmax(z, dim=0) if backend_of(z.device).asynchronous else (z.amin(0), z.amax(0))
        )
        if self.layer_input is None:
            self.layer_input = LayerInput(
                low, high, None if self.writer is None else self.writer.signs
            )
        self.layer_input.low = torch.minimum(self.layer_input.low, low)
        self.layer_input.high = torch.maximum(self.layer_input.high, high)
        if self.writer is not None:
            self.writer.write(start, z)

    def sight_of(self, name: str) -> SignRange:
        """What the loops may see of one of the values."""
        return self.sign_range if self.sign_range and name == self.source else SignRange.nothing()

    def seen(self) -> LayerInput:
        """All that was seen of the source."""
        if self.sign_range is not None and self.writer is not None:
            signs = replace(self.writer.signs, clear=not self.sign_range.zeros())
            return LayerInput(*self.sign_range.range(), signs)
        nothing = next(iter(self.rows.values())).new_zeros(0)
        return self.layer_input or LayerInput(nothing, nothing)


def evaluate(
    program: Program, index: int, state: State, block: int, kernel: Kernel | None = None
) -> LayerInput:
    """Evaluate one affine stage at all vertices, in blocks of about so many numbers.

    kernel: the compiled loops, where they may be used.
    """
    layer_input = None if kernel is None else evaluate_dense(program, index, state, kernel)
    if layer_input is not None:
        return layer_input
    stage, vertices, writer = program.stages[index], state.mesh.num_vertices, None
    bounds = program.bounds(index, {name: state.bounds[name] for name in stage.live_in})
    lines = _lines(program, index, state, bounds, kernel)
    if lines is not None:
        bounds = {  # lines between values that lie on lines themselves
            name: Bound(magnitude, error + 2 * EPS * magnitude)
            for name, (magnitude, error) in bounds.items()
        }
    layer = stage.layer
    if isinstance(layer, PiecewiseScalar) and layer.at_zero and prod(layer.shape) <= WIDE:
        writer = SignWriter(vertices, SAFETY * bounds[layer.source].error.reshape(-1))
    dead = state.dead(stage.live_in)
    sink = _Sink(vertices, layer.source if layer else None, writer, dead, kernel)
    if lines is not None:
        _along_lines(program, index, state, lines, sink, block)
    else:
        for start, values in state.blocks(stage.live_in, block):
            count = next(iter(values.values())).shape[0]
            sink.put(start, program.advance(index, values, sink.room(start, count)))
    sink.look_at_all(block)
    state.settled(sink.rows, bounds)
    return sink.seen()


@dataclass(frozen=True)
class _Lines:
    """New vertices on edges and on chords, whose values follow from those at the lines' ends.

    columns: what the stage makes of single units, (n, m) each; rest: the other new vertices.
    """

    new: list[tuple[Breakpoints, InterpolatedVertices, str]]
    rest: InterpolatedVertices
    columns: dict[str, Tensor]


def _lines(
    program: Program, index: int, state: State, bounds: dict[str, Bound], kernel: Kernel | None
) -> _Lines | None:
    """The lines of the new vertices, if it pays to follow them."""
    made, layer = state.made, state.pending
    if made is None or made.breakpoints is None or made.kept is not None or layer is None:
        return None
    if not program.mixes(index):  # where a unit is zero, its result stays exactly that
        return None
    size = state.bounds[layer.result].magnitude
    n, width = size.numel(), sum(bound.magnitude.numel() for bound in bounds.values())
    if n != prod(layer.shape) or n * max(n, width) > _COLUMNS:
        return None
    woven = int(made.breakpoints[1].line.shape[0])
    placed, rest = (made.inside.select(part) for part in (slice(woven), slice(woven, None)))
    new = list(zip(made.breakpoints, (made.on_edges, placed), strict=True))
    if kernel is None or made.history is None:
        costs, terms = (
            bending.TENSORS,
            [breakpoints.per_vertex().sum() for breakpoints in made.breakpoints],
        )
        counts = [
            (interpolated.count, breakpoints.count, term)
            for (breakpoints, interpolated), term in zip(
                new, torch.stack(terms).tolist(), strict=True
            )
        ]
    else:
        costs, counts = bending.LOOPS, made.history.counts
    ways = costs.ways(counts, width, n + width, program.products[index])
    if ways is None:
        return None
    live = {
        name: size if name == layer.result else state.rows[name][:1]
        for name in program.stages[index].live_in
    }
    columns = program.columns(index, layer.result, live)
    return _Lines([(*some, way) for some, way in zip(new, ways, strict=True)], rest, columns)


def _along_lines(
    program: Program, index: int, state: State, lines: _Lines, sink: _Sink, block: int
) -> None:
    """Run the stage at old vertices only, and find the values at new ones between those."""
    live = program.stages[index].live_in
    step = rows_in_block(block, list(state.rows.values()))
    rest = lines.rest
    product = program.product(index)
    if backend_of(state.mesh.uv.device).asynchronous:
        sink.behind = lines.columns
    if product is not None:
        sink.prepare(product.name, product.args[1].shape[:1], state.mesh.uv.device)
    # These look at the old values, of which the new ones may take the place later on.
    for start in range(0, rest.count, step):
        interpolated = rest.select(slice(start, start + step))
        first = state.mesh.num_vertices - rest.count + start
        room = sink.room(first, interpolated.count)
        sink.put(first, program.advance(index, state.at(interpolated, live), room))
    for start, values in state.old_blocks(live, block):
        count = next(iter(values.values())).shape[0]
        sink.put(start, program.advance(index, values, sink.room(start, count)))
    first = state.known
    for breakpoints, interpolated, way in lines.new:
        if interpolated.count:
            if sink.kernel is not None and (way == "terms" or state.history is not None):
                _by_loops(first, interpolated, breakpoints, lines.columns, sink, way)
            elif way == "sums":
                _by_sums(first, interpolated, breakpoints, lines.columns, sink)
            else:
                _by_bags(first, interpolated, breakpoints, lines.columns, sink, block)
        first += interpolated.count


def _by_loops(
    first: int,
    interpolated: InterpolatedVertices,
    breakpoints: Breakpoints,
    columns: dict[str, Tensor],
    sink: _Sink,
    way: str,
) -> None:
    """Values at the new vertices from ``first`` on by compiled loops."""
    if sink.kernel is None:
        raise ValueError("there are no compiled loops")
    for name, rows in sink.rows.items():
        table = rows.view(sink.vertices, -1)
        along = LineRows(first, interpolated, breakpoints, columns[name])
        sink.kernel.fill(table, along, sink.sight_of(name), way)
        if sink.sign_range is None and name == sink.source:
            sink.look(first, interpolated.count)


def _by_sums(
    first: int,
    interpolated: InterpolatedVertices,
    breakpoints: Breakpoints,
    columns: dict[str, Tensor],
    sink: _Sink,
) -> None:
    """Values at the new vertices from ``first`` on, between vertices that have values."""
    room = sink.room(first, interpolated.count)
    for name, out in room.items():
        interpolated.interpolate(sink.rows[name][:first], out)
        out.view(interpolated.count, -1).sub_(Sums(breakpoints, interpolated).off(columns[name]))
    sink.put(first, room)


def _by_bags(
    first: int,
    interpolated: InterpolatedVertices,
    breakpoints: Breakpoints,
    columns: dict[str, Tensor],
    sink: _Sink,
    block: int,
) -> None:
    """The same, a block at a time."""
    joined = bool(sink.behind)  # one sum of everything reads less than half as much
    bags = Bags.of(breakpoints, interpolated, sink.vertices if joined else None)
    step = rows_in_block(block, list(sink.rows.values()))
    spare = {} if joined else {name: torch.empty_like(x[:step]) for name, x in sink.rows.items()}
    for rows, entries in bags.blocks(step):
        some = interpolated.select(rows)
        room = sink.room(first + rows.start, some.count)
        for name, out in room.items():
            if joined:
                out.view(some.count, -1).copy_(bags.sums(rows, entries, sink.table(name)))
                continue
            some.interpolate(sink.rows[name][:first], out, spare[name][: some.count])
            out.view(some.count, -1).sub_(bags.sums(rows, entries, columns[name]))
        sink.put(first + rows.start, room)
