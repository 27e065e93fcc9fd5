"""One affine stage at all vertices of a mesh: at those that were there, and at those just made."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod

import torch
from torch import Tensor

from splinecam._util.tolerances import EPS, SAFETY
from splinecam.arrangement.signs import SignWriter
from splinecam.engine import line_values as bending
from splinecam.engine.activations import Ready, State, extended, room_for, rows_in_block
from splinecam.engine.dense_layers import WIDE, evaluate_dense
from splinecam.engine.line_values import Bags, Sums
from splinecam.geometry.interpolation import Births, Kinks
from splinecam.kernels import Kernel, LineRows, Sight
from splinecam.network.nonlinearities import KnotCut
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
    sight: Sight | None = None
    behind: dict[str, Tensor] = field(default_factory=dict)
    rows: dict[str, Tensor] = field(default_factory=dict)
    ready: Ready | None = None

    def __post_init__(self) -> None:
        if self.kernel is not None and self.writer is not None:
            self.sight = self.writer.sight()

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
            if name == self.source and value.device.type == "cpu":
                self.look(start, value.shape[0])  # while it is in the cache

    def look_at_all(self, block: int) -> None:
        """Look at values that were not looked at when they came: few large blocks suit a GPU."""
        if self.source is None or self.ready is not None or self.sight is not None:
            return
        step = rows_in_block(block, [self.rows[self.source]])
        for start in range(0, self.vertices, step):
            self.look(start, min(step, self.vertices - start))

    def look(self, start: int, count: int) -> None:
        """See the range and the signs of so many vertices of the source."""
        if self.source is None:
            return
        table = self.rows[self.source].view(self.vertices, -1)
        if self.kernel is not None and self.sight is not None:
            self.kernel.see(table, start, start + count, self.sight)
            return
        z = table[start : start + count]
        # One pass over the numbers for both is faster on a GPU, and slower on a CPU.
        low, high = torch.aminmax(z, dim=0) if z.is_cuda else (z.amin(0), z.amax(0))
        if self.ready is None:
            self.ready = Ready(low, high, None if self.writer is None else self.writer.signs)
        self.ready.low = torch.minimum(self.ready.low, low)
        self.ready.high = torch.maximum(self.ready.high, high)
        if self.writer is not None:
            self.writer.write(start, z)

    def sight_of(self, name: str) -> Sight:
        """What the loops may see of one of the values."""
        return self.sight if self.sight and name == self.source else Sight.nothing()

    def seen(self) -> Ready:
        """All that was seen of the source."""
        if self.sight is not None and self.writer is not None:
            signs = replace(self.writer.signs, clear=not self.sight.zeros())
            return Ready(*self.sight.range(), signs)
        nothing = next(iter(self.rows.values())).new_zeros(0)
        return self.ready or Ready(nothing, nothing)


def evaluate(
    program: Program, index: int, state: State, block: int, kernel: Kernel | None = None
) -> Ready:
    """Evaluate one affine stage at all vertices, in blocks of about so many numbers.

    kernel: the compiled loops, where they may be used.
    """
    ready = None if kernel is None else evaluate_dense(program, index, state, kernel)
    if ready is not None:
        return ready
    stage, vertices, writer = program.stages[index], state.mesh.num_vertices, None
    bounds = program.bounds(index, {name: state.bounds[name] for name in stage.live_in})
    lines = _lines(program, index, state, bounds, kernel)
    if lines is not None:
        bounds = {  # lines between values that lie on lines themselves
            name: Bound(magnitude, error + 2 * EPS * magnitude)
            for name, (magnitude, error) in bounds.items()
        }
    cut = stage.cut
    if isinstance(cut, KnotCut) and cut.at_zero and prod(cut.shape) <= WIDE:
        writer = SignWriter(vertices, SAFETY * bounds[cut.source].error.reshape(-1))
    dead = state.dead(stage.live_in)
    sink = _Sink(vertices, cut.source if cut else None, writer, dead, kernel)
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

    new: list[tuple[Kinks, Births, str]]
    rest: Births
    columns: dict[str, Tensor]


def _lines(
    program: Program, index: int, state: State, bounds: dict[str, Bound], kernel: Kernel | None
) -> _Lines | None:
    """The lines of the new vertices, if it pays to follow them."""
    made, cut = state.made, state.pending
    if made is None or made.kinks is None or made.kept is not None or cut is None:
        return None
    if not program.mixes(index):  # where a unit is zero, its result stays exactly that
        return None
    size = state.bounds[cut.result].magnitude
    n, width = size.numel(), sum(bound.magnitude.numel() for bound in bounds.values())
    if n != prod(cut.shape) or n * max(n, width) > _COLUMNS:
        return None
    woven = int(made.kinks[1].line.shape[0])
    placed, rest = (made.inside.select(part) for part in (slice(woven), slice(woven, None)))
    new = list(zip(made.kinks, (made.on_edges, placed), strict=True))
    if kernel is None or made.history is None:
        costs, terms = bending.TENSORS, [kinks.per_vertex().sum() for kinks in made.kinks]
        counts = [
            (births.count, kinks.count, term)
            for (kinks, births), term in zip(new, torch.stack(terms).tolist(), strict=True)
        ]
    else:
        costs, counts = bending.LOOPS, made.history.counts
    ways = costs.ways(counts, width, n + width, program.products[index])
    if ways is None:
        return None
    live = {
        name: size if name == cut.result else state.rows[name][:1]
        for name in program.stages[index].live_in
    }
    columns = program.columns(index, cut.result, live)
    return _Lines([(*some, way) for some, way in zip(new, ways, strict=True)], rest, columns)


def _along_lines(
    program: Program, index: int, state: State, lines: _Lines, sink: _Sink, block: int
) -> None:
    """Run the stage at old vertices only, and find the values at new ones between those."""
    live = program.stages[index].live_in
    step = rows_in_block(block, list(state.rows.values()))
    rest = lines.rest
    product = program.product(index)
    if state.mesh.uv.is_cuda:
        sink.behind = lines.columns
    if product is not None:
        sink.prepare(product.name, product.args[1].shape[:1], state.mesh.uv.device)
    # These look at the old values, of which the new ones may take the place later on.
    for start in range(0, rest.count, step):
        births = rest.select(slice(start, start + step))
        first = state.mesh.num_vertices - rest.count + start
        room = sink.room(first, births.count)
        sink.put(first, program.advance(index, state.at(births, live), room))
    for start, values in state.old_blocks(live, block):
        count = next(iter(values.values())).shape[0]
        sink.put(start, program.advance(index, values, sink.room(start, count)))
    first = state.known
    for kinks, births, way in lines.new:
        if births.count:
            if sink.kernel is not None and (way == "terms" or state.history is not None):
                _by_loops(first, births, kinks, lines.columns, sink, way)
            elif way == "sums":
                _by_sums(first, births, kinks, lines.columns, sink)
            else:
                _by_bags(first, births, kinks, lines.columns, sink, block)
        first += births.count


def _by_loops(
    first: int, births: Births, kinks: Kinks, columns: dict[str, Tensor], sink: _Sink, way: str
) -> None:
    """Values at the new vertices from ``first`` on by compiled loops."""
    if sink.kernel is None:
        raise ValueError("there are no compiled loops")
    for name, rows in sink.rows.items():
        table = rows.view(sink.vertices, -1)
        along = LineRows(first, births, kinks, columns[name])
        sink.kernel.fill(table, along, sink.sight_of(name), way)
        if sink.sight is None and name == sink.source:
            sink.look(first, births.count)


def _by_sums(
    first: int,
    births: Births,
    kinks: Kinks,
    columns: dict[str, Tensor],
    sink: _Sink,
) -> None:
    """Values at the new vertices from ``first`` on, between vertices that have values."""
    room = sink.room(first, births.count)
    for name, out in room.items():
        births.interpolate(sink.rows[name][:first], out)
        out.view(births.count, -1).sub_(Sums(kinks, births).off(columns[name]))
    sink.put(first, room)


def _by_bags(
    first: int, births: Births, kinks: Kinks, columns: dict[str, Tensor], sink: _Sink, block: int
) -> None:
    """The same, a block at a time."""
    joined = bool(sink.behind)  # one sum of everything reads less than half as much
    bags = Bags.of(kinks, births, sink.vertices if joined else None)
    step = rows_in_block(block, list(sink.rows.values()))
    spare = {} if joined else {name: torch.empty_like(x[:step]) for name, x in sink.rows.items()}
    for rows, entries in bags.blocks(step):
        some = births.select(rows)
        room = sink.room(first + rows.start, some.count)
        for name, out in room.items():
            if joined:
                out.view(some.count, -1).copy_(bags.sums(rows, entries, sink.table(name)))
                continue
            some.interpolate(sink.rows[name][:first], out, spare[name][: some.count])
            out.view(some.count, -1).sub_(bags.sums(rows, entries, columns[name]))
        sink.put(first + rows.start, room)
