"""One affine stage at all vertices of a mesh: at those that were there, and at those just made."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

import torch
from torch import Tensor

from splinecam.bending import Bags, Sums, cheapest, direct_cost
from splinecam.births import Births, Kinks
from splinecam.compiled import Loops, loops_for
from splinecam.cuts import KnotCut
from splinecam.ops import Bound
from splinecam.predicates import EPS, SAFETY
from splinecam.program import Program
from splinecam.signs import Signs, SignWriter
from splinecam.state import State, extended, room_for, rows_in_block
from splinecam.tiles import Tile

__all__ = ["Ready", "evaluate"]

# A stage's answer to single units is found only if it has no more numbers than this.
_COLUMNS = 1 << 24

# Units up to which all signs are found along with the values; in wider layers most never change.
_WIDE = 1 << 12


@dataclass
class Ready:
    """What the next cut looks at: the range of its units, (n,) each, and their signs, if known."""

    low: Tensor
    high: Tensor
    signs: Signs | None = None

    def select(self, tile: Tile) -> Ready:
        """The same for a tile of the mesh."""
        return Ready(self.low, self.high, self.signs and self.signs.select(tile.vertex_ids))


@dataclass
class _Sink:
    """Where the results of a stage go: values, and the range and signs of what is cut next.

    again: rows that nobody will read, of which the values of a block may take the place.
    """

    vertices: int
    source: str | None
    writer: SignWriter | None
    again: Tensor | None = None
    loops: Loops | None = None
    rows: dict[str, Tensor] = field(default_factory=dict)
    ready: Ready | None = None

    def room(self, start: int, count: int) -> dict[str, Tensor]:
        """Where the values of so many vertices from ``start`` on will be."""
        return {name: value[start : start + count] for name, value in self.rows.items()}

    def put(self, start: int, values: dict[str, Tensor]) -> None:
        """Take the values at the vertices from ``start`` on."""
        for name, value in values.items():
            if name not in self.rows:
                shape = (self.vertices, *value.shape[1:])
                room = extended(self.again, shape)
                self.rows[name] = room_for(shape, value.device) if room is None else room
                self.again = None
            place = self.rows[name][start : start + value.shape[0]]
            if value.data_ptr() != place.data_ptr():
                place.copy_(value)
            if name == self.source and value.device.type == "cpu":
                self._look(start, value.reshape(value.shape[0], -1))  # while it is in the cache

    def look_at_all(self, block: int) -> None:
        """Look at values that were not looked at when they came: few large blocks suit a GPU."""
        if self.source is None or self.ready is not None:
            return
        z = self.rows[self.source].view(self.vertices, -1)
        step = rows_in_block(block, [z])
        for start in range(0, self.vertices, step):
            self._look(start, z[start : start + step])

    def _look(self, start: int, z: Tensor) -> None:
        if self.writer is not None and self.loops is not None:
            self._note(*self.writer.look(start, z, self.loops))
            return
        # One pass over the numbers for both is faster on a GPU, and slower on a CPU.
        both = torch.aminmax(z, dim=0) if z.is_cuda else (z.amin(0), z.amax(0))
        self._note(*both)
        if self.writer is not None:
            self.writer.write(start, z)

    def _note(self, low: Tensor, high: Tensor) -> None:
        if self.ready is None:
            self.ready = Ready(low, high, None if self.writer is None else self.writer.signs)
        self.ready.low = torch.minimum(self.ready.low, low)
        self.ready.high = torch.maximum(self.ready.high, high)

    def fill(
        self, first: int, births: Births, bags: Bags, columns: dict[str, Tensor], loops: Loops
    ) -> None:
        """Values at the new vertices from ``first`` on, between vertices that have values."""
        for name, table in self.rows.items():
            table = table.view(self.vertices, -1)
            out = table[first : first + births.count]
            ends, kinks = (births.p, births.q, births.t), (bags.offsets, bags.unit, bags.weight)
            if name != self.source:
                loops.fill(table, ends, kinks, columns[name], out)
            elif self.writer is None:
                loops.fill(table, ends, kinks, columns[name], out)
                self._note(out.amin(0), out.amax(0))
            else:
                positive = self.writer.signs.positive[first : first + births.count]
                seen = loops.fill(
                    table, ends, kinks, columns[name], out, self.writer.tolerance, positive
                )
                self._note(*seen[:2])
                self.writer.seen(first, out, seen[2])


def evaluate(program: Program, index: int, state: State, block: int) -> Ready:
    """Evaluate one affine stage at all vertices, in blocks of about so many numbers."""
    stage = program.stages[index]
    live = {name: state.bounds[name] for name in stage.live_in}
    bounds = program.bounds(index, live)
    lines = _lines(program, index, state, bounds)
    if lines is not None:
        bounds = {  # lines between values that lie on lines themselves
            name: Bound(magnitude, error + 2 * EPS * magnitude)
            for name, (magnitude, error) in bounds.items()
        }
    cut, writer, vertices = stage.cut, None, state.mesh.num_vertices
    if isinstance(cut, KnotCut) and cut.at_zero and prod(cut.shape) <= _WIDE:
        writer = SignWriter(vertices, SAFETY * bounds[cut.source].error.reshape(-1))
    width = sum(bound.magnitude.numel() for bound in bounds.values())
    with loops_for(state.mesh.uv.device, vertices * width) as loops:
        dead = state.dead(stage.live_in)
        sink = _Sink(vertices, cut.source if cut else None, writer, dead, loops)
        if lines is not None:
            _along_lines(program, index, state, lines, sink, block)
        else:
            for start, values in state.blocks(stage.live_in, block):
                count = next(iter(values.values())).shape[0]
                sink.put(start, program.advance(index, values, sink.room(start, count)))
    sink.look_at_all(block)
    state.bounds, state.rows = bounds, sink.rows
    state.made = state.grown = state.pending = None
    return sink.ready or Ready(state.mesh.uv.new_zeros(0), state.mesh.uv.new_zeros(0))


@dataclass(frozen=True)
class _Lines:
    """New vertices on edges and on chords, whose values follow from those at the lines' ends.

    columns: what the stage makes of single units, (n, m) each; rest: the other new vertices.
    """

    new: list[tuple[Kinks, Births, str]]
    rest: Births
    columns: dict[str, Tensor]


def _lines(program: Program, index: int, state: State, bounds: dict[str, Bound]) -> _Lines | None:
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
    ways, cost = cheapest(new, width)
    product = n * width if program.product(index) is not None else 0
    if cost >= direct_cost(made.on_edges.count + woven, n + width, product):
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
            follow = _by_bags if way == "bag" else _by_sums
            follow(first, births, kinks, lines.columns, sink, block)
        first += births.count


def _by_sums(
    first: int,
    births: Births,
    kinks: Kinks,
    columns: dict[str, Tensor],
    sink: _Sink,
    _block: int,
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
    bags = Bags.of(kinks, births)
    if sink.loops is not None:
        sink.fill(first, births, bags, columns, sink.loops)
        return
    step = rows_in_block(block, list(sink.rows.values()))
    spare = {name: torch.empty_like(value[:step]) for name, value in sink.rows.items()}
    for rows, entries in bags.blocks(step):
        some = births.select(rows)
        room = sink.room(first + rows.start, some.count)
        for name, out in room.items():
            some.interpolate(sink.rows[name][:first], out, spare[name][: some.count])
            out.view(some.count, -1).sub_(bags.off(rows, entries, columns[name]))
        sink.put(first + rows.start, room)
