"""The mesh and the activations of its vertices, between two stages of a running network.

The vertices that a layer adds to the mesh have no values at first. Only their positions between
older vertices are stored, until the next stage needs the values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.tolerances import EPS, LARGEST_ERROR
from splinecam.arrangement.crossings import Ambiguities, Signs
from splinecam.arrangement.refine import Refinement
from splinecam.engine.tiling import MeshTile, join_tiles
from splinecam.errors import CaptureError
from splinecam.geometry.subdivision import InterpolatedVertices, Mesh
from splinecam.kernels.kernel import DenseResult, History
from splinecam.network.nonlinearities import Nonlinearity
from splinecam.network.ops.bounds import Bound
from splinecam.network.program import Program

_LARGE = 1 << 19  # numbers for which huge pages pay
_HUGE = 1 << 28  # numbers beyond which a system may refuse to promise more than is asked for
_GROWTH = 4  # how many times the rows of a table may grow in place

_FEWEST = 32  # vertices in a block, however wide the layer

# Products with wide matrices are faster for more rows: so many, unless they fill so many blocks.
_MATRIX_ROWS, _MATRIX_BLOCKS = 256, 64


def require_no_overflow(layer_errors: dict[str, Tensor], output: Tensor) -> None:
    """Raise an error that names the first layer whose values are too large for float64.

    layer_errors, output: the rounding errors of all layers, in order, and of the output.
    """
    errors = [x.to(output.device) for x in (*layer_errors.values(), output)]
    if float(torch.cat(errors).amax()) <= LARGEST_ERROR:  # which is false for no number
        return
    over = [not bool((x <= LARGEST_ERROR).all()) for x in errors]
    place = [*map(repr, layer_errors), "the output"][over.index(True)]
    raise CaptureError(
        f"Values at {place} overflow: float64 ends at 1.8e308. Choose a domain of smaller inputs, "
        "or scale the weights before that layer."
    )


Block = tuple[int, dict[str, Tensor]]
"""The number of the first vertex of a block, and values at its vertices by name."""


@dataclass
class LayerInput:
    """The range of a layer's units over the mesh, (n,) each, and their signs, if they are known.

    dense: what the compiled kernel reports, if it has evaluated the units.
    """

    low: Tensor
    high: Tensor
    signs: Signs | None = None
    dense: DenseResult | None = None

    def select(self, tile: MeshTile) -> LayerInput:
        """The same for a tile of the mesh."""
        return LayerInput(self.low, self.high, self.signs and self.signs.select(tile.vertex_ids))


@dataclass(frozen=True)
class Refined:
    """A layer has refined the mesh and is to be applied; new vertices have no values."""

    layer: Nonlinearity
    refinement: Refinement


@dataclass(frozen=True)
class Interpolated:
    """A layer has refined the mesh and is to be applied; its argument is known on all edges.

    values: at the new vertices on edges, and at the older vertices where chords end. shown: (S,)
    the entries that are the mesh's first new vertices, None for the first ``count``. inside: how
    the remaining vertices lie between entries.
    """

    layer: Nonlinearity
    values: dict[str, Tensor]
    count: int
    shown: Tensor | None
    inside: InterpolatedVertices

    def blocks(self, names: set[str], step: int) -> Iterator[Block]:
        """Yield values at ``step`` new vertices at a time."""
        for start in range(0, self.count, step):
            rows = slice(start, min(start + step, self.count))
            chosen = rows if self.shown is None else self.shown[rows]
            yield start, {name: self.values[name][chosen] for name in names}
        for start in range(0, self.inside.count, step):
            some = self.inside.select(slice(start, start + step))
            values = {name: some.interpolate(self.values[name]) for name in names}
            yield self.count + start, values

    def select(self, new: Tensor) -> Interpolated:
        """The same for some of the new vertices, numbered from zero, ascending."""
        on_edges = new[new < self.count]
        shown = on_edges if self.shown is None else self.shown[on_edges]
        inside = self.inside.select(new[new >= self.count] - self.count)
        return replace(self, count=int(shown.shape[0]), shown=shown, inside=inside)


@dataclass
class State:
    """The mesh and the live activations between two stages.

    rows: values at the first vertices. pending: the layer that has refined the mesh since, and
    what is known of the vertices that it added; None where ``rows`` are values at all vertices.
    lent: the rows are also those of another state, and are not overwritten. settled: (F,) the faces
    that are not to be divided any more, None for none. place: (V',) the row of each vertex that has
    one; None where rows are those of the first vertices. undecided: (F,) the settled faces on which
    the question is open all the same, as the computation was ended; None for none.
    """

    mesh: Mesh
    rows: dict[str, Tensor]
    bounds: dict[str, Bound]
    pending: Refined | Interpolated | None = None
    ambiguities: list[tuple[str, Ambiguities]] = field(default_factory=list)
    lent: bool = False
    settled: Tensor | None = None
    place: Tensor | None = None
    undecided: Tensor | None = None

    @property
    def num_known(self) -> int:
        """How many vertices the last stage has seen."""
        if self.place is not None:
            return int(self.place.shape[0])
        return int(next(iter(self.rows.values())).shape[0])

    @property
    def num_new(self) -> tuple[int, int]:
        """How many vertices without rows lie inside faces, and how many on edges."""
        if isinstance(self.pending, Interpolated):
            return self.pending.inside.count, self.pending.count
        inside, history = 0, self.history
        if self.pending is not None:
            made = self.pending.refinement
            inside = made.inside.count if history is None else history.crossings
        new = self.mesh.num_vertices - self.num_known
        return inside, max(0, new - inside)

    @property
    def layer(self) -> Nonlinearity | None:
        """The layer that is to be applied."""
        return None if self.pending is None else self.pending.layer

    @property
    def history(self) -> History | None:
        """How new vertices came about, if the compiled kernel has made them."""
        return self.pending.refinement.history if isinstance(self.pending, Refined) else None

    def set_values(self, rows: dict[str, Tensor], bounds: dict[str, Bound]) -> None:
        """Continue with the values of a stage at all vertices."""
        self.rows, self.bounds, self.pending, self.lent, self.place = (
            rows,
            bounds,
            None,
            False,
            None,
        )

    def copy(self) -> State:
        """A state that is carried on while this one stays as it is."""
        lists = dict(self.bounds), self.pending, [*self.ambiguities]
        return State(self.mesh, self.rows, *lists, lent=True)

    def refine(self, made: Refinement, layer: Nonlinearity, layer_input: LayerInput) -> None:
        """Continue with the mesh that a layer has refined."""
        self.mesh, self.pending = made.mesh, Refined(layer, made)
        dense = layer_input.dense
        if dense is not None and made.history is not None and layer.rectifies:
            self.bounds = {
                layer.argument: Bound(dense.modulus, dense.later_error),
                layer.result: Bound(dense.positive_modulus, dense.positive_error),
            }
            return
        self.ambiguities += [(layer.name, ambiguity) for ambiguity in made.ambiguities]
        levels = 1 + len(made.early)
        for name in self.rows:
            magnitude, error = self.bounds[name]
            self.bounds[name] = Bound(magnitude, error + EPS * levels * magnitude)
        argument = self.bounds[layer.argument]
        self.bounds[layer.result] = layer.bound(argument, layer_input.low, layer_input.high)

    def blocks(self, live: tuple[str, ...], numbers: int, *, old: bool = False) -> Iterator[Block]:
        """Yield the live values at blocks of vertices; each block overwrites the one before.

        numbers: about how many a block has. old: leave out the vertices without rows.
        """
        layer, known = self.layer, self.num_known
        needed = self._needed(live)
        step = rows_in_block(numbers, [self.rows[name] for name in needed])
        parts: Iterable[Block] = (
            (start, {name: self.rows[name][start : start + step] for name in needed})
            for start in range(0, known, step)
        )
        if self.pending is not None and not old:
            new = self._interpolate(numbers).blocks(needed, step)
            parts = chain(parts, ((known + start, values) for start, values in new))
            if self.mesh.num_vertices <= step:
                alls = [values for _, values in parts]
                parts = [(0, {name: torch.cat([part[name] for part in alls]) for name in needed})]
        out = None
        if layer is not None and layer.result in live:
            argument = self.rows[layer.argument]
            count = known if old else self.mesh.num_vertices
            out = argument.new_empty((min(step, count), *argument.shape[1:]))
        for start, values in parts:
            yield start, self._activate(live, values, out)

    def new_arguments(self, names: tuple[str, ...], numbers: int) -> Iterator[Block]:
        """Yield blocks of rows at the vertices without any, before the pending layer is applied."""
        step = rows_in_block(numbers, [self.rows[name] for name in names])
        return self._interpolate(numbers).blocks(set(names), step)

    def at(self, interpolated: InterpolatedVertices, live: tuple[str, ...]) -> dict[str, Tensor]:
        """The live values at vertices that lie between new vertices on edges, or older ones."""
        if not isinstance(self.pending, Refined):
            raise ValueError("the mesh has not been refined since the last stage")
        on_edges, known = self.pending.refinement.on_edges, self.num_known
        ends = []
        for vertex in (interpolated.p, interpolated.q):
            place, old = (vertex - known).clamp(min=0), vertex < known
            p, q = (torch.where(old, vertex, x[place]) for x in (on_edges.p, on_edges.q))
            ends.append(InterpolatedVertices(p, q, torch.where(old, 0.0, on_edges.t[place])))
        values = {}
        for name in self._needed(live):
            a, b = (end.interpolate(self.rows[name]) for end in ends)
            values[name] = a.lerp_(b, _like(interpolated.t, a))
        return self._activate(live, values)

    def _needed(self, live: tuple[str, ...]) -> set[str]:
        """The names of the rows from which the live values follow."""
        layer = self.layer
        return {layer.argument if layer and layer.result == name else name for name in live}

    def _activate(
        self, live: tuple[str, ...], values: dict[str, Tensor], out: Tensor | None = None
    ) -> dict[str, Tensor]:
        """The live values of a block, with the pending layer applied."""
        layer = self.layer
        if layer is not None and layer.result in live:
            argument = values[layer.argument]
            values[layer.result] = layer.apply(
                argument, None if out is None else out[: argument.shape[0]]
            )
        return {name: values[name] for name in live}

    def reusable_rows(self, live: tuple[str, ...]) -> Tensor | None:
        """Rows that are of no use as soon as the pending layer is applied to them, if any."""
        layer = self.layer
        if layer is None or layer.argument in live or not layer.rectifies or self.lent:
            return None
        return self.rows[layer.argument]

    def _interpolate(self, numbers: int) -> Interpolated:
        """Find the values on edges, so that those inside faces can be found when needed."""
        if not isinstance(self.pending, Refined):
            if self.pending is None:
                raise ValueError("the mesh has not been refined since the last stage")
            return self.pending
        made, known = self.pending.refinement, self.num_known
        levels = [*made.early, made.on_edges]
        count, inside, shown = sum(level.count for level in levels), made.inside, None
        if made.kept is not None:
            kept = made.kept - known
            shown = kept[(kept >= 0) & (kept < count)]
            inside = inside.select(kept[kept >= count] - count)
        p, q = inside.p - known, inside.q - known
        # Most chords end on edges; a few end at older vertices, whose values are copied along.
        old = p[:0]
        if bool((p < 0).any() | (q < 0).any()):
            ends = torch.stack([p, q]).clamp(max=0)
            old, place = torch.unique(ends, return_inverse=True)
            old = old[old < 0] + known
            p, q = torch.where(ends < 0, count + place, torch.stack([p, q]))
        values = {name: _values_of(levels, rows, old, numbers) for name, rows in self.rows.items()}
        count = count if shown is None else int(shown.shape[0])
        inside = InterpolatedVertices(p, q, inside.t)
        self.pending = Interpolated(self.pending.layer, values, count, shown, inside)
        return self.pending

    def select(self, tile: MeshTile, numbers: int) -> State:
        """The state of a tile of the mesh, which shares the values on edges with the whole."""
        ids, known = tile.vertex_ids, self.num_known  # ids ascend
        pending = None
        if self.pending is not None:
            pending = self._interpolate(numbers).select(ids[ids >= known] - known)
        rows = {name: value[ids[ids < known]] for name, value in self.rows.items()}
        return State(tile.mesh, rows, dict(self.bounds), pending)

    def spread(self) -> State:
        """The same state with a row for each vertex, which is arbitrary where there was none."""
        if self.place is None:
            return self
        rows = {name: value[self.place.clamp(min=0)] for name, value in self.rows.items()}
        return replace(self, rows=rows, place=None, lent=False)

    def interpolated(self, numbers: int) -> State:
        """The same state, in which new vertices lie between values that are known."""
        if self.pending is None:
            return self
        return replace(self, pending=self._interpolate(numbers))

    def filled(self, numbers: int) -> State:
        """The same state with rows at all vertices; its layer stays pending.

        numbers: about how many numbers are computed at a time.
        """
        if self.pending is None:
            return self
        known, rows = self.num_known, {}
        for name, value in self.rows.items():
            rows[name] = value.new_empty((self.mesh.num_vertices, *value.shape[1:]))
            rows[name][:known] = value
        for start, values in self.new_arguments(tuple(rows), numbers):
            for name, value in values.items():
                rows[name][known + start : known + start + value.shape[0]] = value
        return replace(self, rows=rows, pending=nothing_new(self.pending.layer, rows), lent=False)


def nothing_new(layer: Nonlinearity, rows: Mapping[str, Tensor]) -> Interpolated:
    """A pending layer that has added no vertices."""
    none = {name: value[:0] for name, value in rows.items()}
    some = next(iter(rows.values()))
    index = torch.zeros(0, dtype=torch.int64, device=some.device)
    between = InterpolatedVertices(index, index, torch.zeros(0, dtype=some.dtype).to(some.device))
    return Interpolated(layer, none, 0, None, between)


def first_state(program: Program, mesh: Mesh, x: Tensor) -> State:
    """The state before the first stage: polygons, and the inputs at their corners."""
    x = x.to(program.device)
    magnitude = x.abs().amax(0, keepdim=True)
    bound = Bound(magnitude, EPS * magnitude)
    return State(mesh.to(program.device), {program.input_name: x}, {program.input_name: bound})


def join_states(mesh: Mesh, tiles: Sequence[MeshTile], ends: list[State]) -> State:
    """The state of a whole mesh at the end of the network, from those of its tiles.

    ``ends`` is emptied: what a tile holds is free as soon as it is copied, so that hardly more
    memory is needed than for the result.
    """
    rows_of, bounds, ambiguities = [], dict(ends[0].bounds), []
    for end in ends:
        rows_of.append(end.rows)
        ambiguities += end.ambiguities
        bounds = {
            name: Bound(*map(torch.maximum, bound, end.bounds[name]))
            for name, bound in bounds.items()
        }
    settled, undecided, mixed = None, None, False
    if any(end.settled is not None for end in ends):
        faces = [_marked(end, end.settled) for end in ends]
        settled, mixed = torch.cat(faces), not all(bool(each.all()) for each in faces[:-1])
    if any(end.undecided is not None for end in ends):
        undecided = torch.cat([_marked(end, end.undecided) for end in ends])
    # Outputs at the other vertices of settled faces are not the network's.
    true = [_vertices_of_complete(end) for end in ends] if mixed else []
    del end
    refined = [MeshTile(each.mesh, tile.vertex_ids) for each, tile in zip(ends, tiles, strict=True)]
    ends.clear()
    mesh, places = join_tiles(mesh, refined, alike=settled is None)
    rows = {}
    for name in [*rows_of[0]]:
        values = [each.pop(name) for each in reversed(rows_of)]
        rows[name] = empty_table((mesh.num_vertices, *values[0].shape[1:]), values[0].device)
        if not mixed:
            for place in places:
                rows[name][place] = values.pop()
            continue
        fixed = torch.zeros(mesh.num_vertices, dtype=torch.bool, device=mesh.uv.device)
        for place, sure in zip(places, true, strict=True):
            value, mine = values.pop(), sure | ~fixed[place]
            rows[name][place[mine]] = value[mine]
            fixed[place[sure]] = True
    end = State(mesh, rows, bounds, ambiguities=ambiguities, settled=settled)
    end.undecided = undecided
    return end


def _marked(end: State, marks: Tensor | None) -> Tensor:
    """Which faces are marked, (F,): none without marks."""
    if marks is not None:
        return marks
    return torch.zeros(end.mesh.num_faces, dtype=torch.bool, device=end.mesh.uv.device)


def _vertices_of_complete(end: State) -> Tensor:
    """Whether each vertex is one of a face that is not settled, (V,)."""
    mesh = end.mesh
    found = torch.zeros(mesh.num_vertices, dtype=torch.bool, device=mesh.uv.device)
    found[mesh.corner_vertices()[~_marked(end, end.settled)[mesh.owners()]]] = True
    return found


def _values_of(
    levels: list[InterpolatedVertices], rows: Tensor, old: Tensor, numbers: int
) -> Tensor:
    """Values at vertices made level by level, each between older ones, and at some old ones."""
    count = sum(level.count for level in levels)
    made = empty_table((count + old.shape[0], *rows.shape[1:]), rows.device)
    step, first = rows_in_block(numbers, [rows]), 0
    spare = rows.new_empty((min(step, count), *rows.shape[1:]))
    for level in levels:
        for start in range(0, level.count, step):
            some = level.select(slice(start, start + step))
            out = made[first + start : first + start + some.count]
            if first:
                a, b = (_either(rows, made, vertex) for vertex in (some.p, some.q))
                out.copy_(a.lerp_(b, _like(some.t, a)))
            else:
                some.interpolate(rows, out, spare[: some.count])
        first += level.count
    made[count:] = rows[old]
    return made


def _either(rows: Tensor, made: Tensor, vertex: Tensor) -> Tensor:
    """Values at vertices (N,), of which the first ones have rows and the others are new."""
    known = rows.shape[0]
    values = rows.index_select(0, vertex.clamp(max=known - 1))
    if backend_of(vertex.device).asynchronous:  # reading twice is faster than waiting
        new = made.index_select(0, (vertex - known).clamp_(min=0))
        return torch.where(_like(vertex < known, rows), values, new)
    late = (vertex >= known).nonzero()[:, 0]
    values[late] = made[vertex[late] - known]
    return values


def _like(x: Tensor, values: Tensor) -> Tensor:
    """Numbers (N,) in a shape that broadcasts with values (N, ...)."""
    return x.view(-1, *[1] * (values.dim() - 1))


def rows_in_block(numbers: int, values: list[Tensor]) -> int:
    """How many vertices make a block of about so many numbers of the widest of the values."""
    width = max(1, *(math.prod(value.shape[1:]) for value in values))
    return max(_FEWEST, min(_MATRIX_ROWS, _MATRIX_BLOCKS * numbers // width), numbers // width)


def empty_table(
    shape: tuple[int, ...],
    device: torch.device,
    *,
    grows: bool = False,
    reusable: Tensor | None = None,
) -> Tensor:
    """An uninitialised float64 table, in the memory of ``reusable`` rows if that is large enough.

    grows: reserve memory for more rows. On a CPU that costs nothing until it is written to, and
    large tables come from numpy, which asks for huge pages.
    """
    numbers = math.prod(shape)
    if (
        reusable is not None
        and reusable.shape[1:] == shape[1:]
        and reusable.is_contiguous()
        and not reusable.storage_offset()
        and reusable.untyped_storage().nbytes() >= 8 * numbers
    ):
        return reusable.as_strided(shape, reusable.stride())
    if backend_of(device).numpy_memory and numbers > _LARGE:
        more = _GROWTH if grows and numbers < _HUGE else 1
        return torch.from_numpy(np.empty(more * numbers))[:numbers].view(shape)
    return torch.empty(shape, dtype=torch.float64, device=device)
