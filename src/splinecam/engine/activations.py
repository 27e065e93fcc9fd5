"""The mesh and the live activations of its vertices, between two stages of a running network.

A vertex that a cut makes is not evaluated when it is made: how it lies between older ones is all
that is kept, until the next stage needs its value there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.tolerances import EPS
from splinecam.arrangement.edge_crossings import Ambiguities
from splinecam.arrangement.refinement import Refinement
from splinecam.arrangement.signs import Signs
from splinecam.engine.tiling import Tile
from splinecam.geometry.interpolation import InterpolatedVertices
from splinecam.geometry.subdivision import Mesh
from splinecam.kernels import DenseResult, History
from splinecam.network.nonlinearities import Nonlinearity
from splinecam.network.ops import Bound

__all__ = ["LayerInput", "State", "extended", "room_for", "rows_in_block"]

_LARGE = 1 << 19  # numbers for which huge pages pay
_HUGE = 1 << 28  # numbers beyond which a system may refuse to promise more than is asked for
_GROWTH = 4  # rows for which there is room, per row

_FEWEST = 32  # vertices in a block, however wide the layer

# Products with wide matrices are faster for more rows: so many, unless they are larger than this.
_MATRIX_ROWS, _MATRIX = 256, 1 << 23


@dataclass(frozen=True)
class _Grown:
    """Vertices after the first ones, whose values are known, or lie between known ones.

    born: values at the vertices made on edges, and at the ends of all chords; shown: which of them
    are the next vertices; dropped: whether some are not; inside: how the remaining vertices lie
    between entries of ``born``.
    """

    born: dict[str, Tensor]
    shown: Tensor
    dropped: bool
    inside: InterpolatedVertices


@dataclass
class LayerInput:
    """What the next cut looks at: the range of its units, (n,) each, and their signs, if known.

    seen: what the compiled kernel found of them, if they are those of a dense layer.
    """

    low: Tensor
    high: Tensor
    signs: Signs | None = None
    seen: DenseResult | None = None

    def select(self, tile: Tile) -> LayerInput:
        """The same for a tile of the mesh."""
        return LayerInput(self.low, self.high, self.signs and self.signs.select(tile.vertex_ids))


@dataclass
class State:
    """Mesh and live activations between two stages.

    rows: values at the first vertices; made: how the others came about, and grown: their values, as
    soon as they are asked for; pending: the non-linearity still to be applied.
    """

    mesh: Mesh
    rows: dict[str, Tensor]
    bounds: dict[str, Bound]
    made: Refinement | None = None
    grown: _Grown | None = None
    pending: Nonlinearity | None = None
    ambiguities: list[tuple[str, Ambiguities]] = field(default_factory=list)

    @property
    def known(self) -> int:
        """How many vertices have rows."""
        return int(next(iter(self.rows.values())).shape[0])

    @property
    def history(self) -> History | None:
        """How the vertices after the first ones came about, if the compiled kernel made them."""
        return None if self.made is None else self.made.history

    def settled(self, rows: dict[str, Tensor], bounds: dict[str, Bound]) -> None:
        """Go on with the values of a stage at all vertices."""
        self.rows, self.bounds = rows, bounds
        self.made = self.grown = self.pending = None

    def adopt(self, made: Refinement, layer: Nonlinearity, layer_input: LayerInput) -> None:
        """Go on with the mesh that was refined along a cut."""
        self.mesh, self.made, self.pending = made.mesh, made, layer
        seen = layer_input.seen
        if seen is not None and made.history is not None and layer.rectifies:
            self.bounds = {
                layer.argument: Bound(seen.modulus, seen.later_error),
                layer.result: Bound(seen.positive_modulus, seen.positive_error),
            }
            return
        self.ambiguities += [(layer.name, ambiguity) for ambiguity in made.ambiguities]
        levels = 1 + len(made.early)
        for name in self.rows:
            magnitude, error = self.bounds[name]
            self.bounds[name] = Bound(magnitude, error + EPS * levels * magnitude)
        self.bounds[layer.result] = layer.bound(
            self.bounds[layer.argument], layer_input.low, layer_input.high
        )

    def blocks(
        self, live: tuple[str, ...], numbers: int
    ) -> Iterator[tuple[int, dict[str, Tensor]]]:
        """The live values, a block of vertices at a time: (first vertex, values)."""
        self.settle(numbers)
        needed = self._needed(live)
        step = rows_in_block(numbers, [self.rows[name] for name in needed])
        if self.grown is not None and self.mesh.num_vertices <= step:
            yield 0, self.activate(live, {name: self._everywhere(name) for name in needed})
            return
        yield from self.old_blocks(live, numbers)
        if self.grown is None:
            return
        grown, known, count = self.grown, self.known, int(self.grown.shown.shape[0])
        for start in range(0, count, step):
            rows = slice(start, min(start + step, count))
            chosen = grown.shown[rows] if grown.dropped else rows
            values = {name: grown.born[name][chosen] for name in needed}
            yield known + start, self.activate(live, values)
        for start in range(0, grown.inside.count, step):
            interpolated = grown.inside.select(slice(start, start + step))
            values = {name: interpolated.interpolate(grown.born[name]) for name in needed}
            yield known + count + start, self.activate(live, values)

    def _everywhere(self, name: str) -> Tensor:
        """One live value at all vertices."""
        if self.grown is None:
            return self.rows[name]
        born, shown = self.grown.born[name], self.grown.shown
        shown_rows = born[shown] if self.grown.dropped else born[: shown.shape[0]]
        return torch.cat([self.rows[name], shown_rows, self.grown.inside.interpolate(born)])

    def old_blocks(
        self, live: tuple[str, ...], numbers: int
    ) -> Iterator[tuple[int, dict[str, Tensor]]]:
        """The live values at the first vertices; a block's are overwritten by the next one's."""
        needed = self._needed(live)
        step = rows_in_block(numbers, [self.rows[name] for name in needed])
        layer = self.pending
        room = None
        if layer is not None and layer.result in live:
            argument = self.rows[layer.argument]
            room = argument.new_empty((min(step, self.known), *argument.shape[1:]))
        for start in range(0, self.known, step):
            values = {name: self.rows[name][start : start + step] for name in needed}
            yield start, self.activate(live, values, room)

    def dead(self, live: tuple[str, ...]) -> Tensor | None:
        """Rows that are of no use as soon as those of the pending result are known, if any."""
        layer = self.pending
        if layer is None or layer.argument in live or not layer.spares_argument:
            return None
        return self.rows[layer.argument]

    def _needed(self, live: tuple[str, ...]) -> set[str]:
        layer = self.pending
        return {layer.argument if layer and layer.result == name else name for name in live}

    def activate(
        self, live: tuple[str, ...], values: dict[str, Tensor], room: Tensor | None = None
    ) -> dict[str, Tensor]:
        """The live values of a block, with the pending non-linearity applied."""
        layer = self.pending
        if layer is not None and layer.result in live:
            argument = values[layer.argument]
            out = None if room is None else room[: argument.shape[0]]
            values[layer.result] = layer.apply(argument, out)
        return {name: values[name] for name in live}

    def at(self, interpolated: InterpolatedVertices, live: tuple[str, ...]) -> dict[str, Tensor]:
        """The live values at vertices that lie between vertices on edges, or older ones."""
        if self.made is None:
            raise ValueError("nothing was made since the last stage")
        on_edges, known = self.made.on_edges, self.known
        ends = []
        for vertex in (interpolated.p, interpolated.q):
            place, old = vertex - known, vertex < known
            group = place.clamp(min=0)
            p, q = (torch.where(old, vertex, x[group]) for x in (on_edges.p, on_edges.q))
            ends.append(InterpolatedVertices(p, q, torch.where(old, 0.0, on_edges.t[group])))
        values = {}
        for name in self._needed(live):
            a, b = (end.interpolate(self.rows[name]) for end in ends)
            values[name] = a.lerp_(b, interpolated.t.view(-1, *[1] * (a.dim() - 1)))
        return self.activate(live, values)

    def settle(self, numbers: int) -> None:
        """Find the values on edges now, so that those inside faces can be found when needed."""
        made, known = self.made, self.known
        if made is None:
            return
        levels = [*made.early, made.on_edges]
        count, inside = sum(level.count for level in levels), made.inside
        shown = torch.arange(count, device=made.mesh.uv.device)
        if made.kept is not None:
            kept, later = made.kept - known, count
            shown = kept[(kept >= 0) & (kept < later)]
            inside = inside.select(kept[kept >= later] - later)
        p, q = inside.p - known, inside.q - known
        # Most chords end on edges; a few end at older vertices, whose values are copied along.
        old = p[:0]
        if bool((p < 0).any() | (q < 0).any()):
            ends = torch.stack([p, q]).clamp(max=0)
            old, place = torch.unique(ends, return_inverse=True)
            old = old[old < 0] + known
            p, q = torch.where(ends < 0, count + place, torch.stack([p, q]))
        born = {name: _born(value, levels, old, numbers) for name, value in self.rows.items()}
        dropped = int(shown.shape[0]) < count
        self.grown, self.made = (
            _Grown(born, shown, dropped, InterpolatedVertices(p, q, inside.t)),
            None,
        )

    def select(self, tile: Tile, numbers: int) -> State:
        """The state of a tile of the mesh; it shares the values of what was born with the whole."""
        self.settle(numbers)
        ids, known, grown = tile.vertex_ids, self.known, self.grown  # ids ascend
        if grown is not None:
            later = known + grown.shown.shape[0]
            new, inner = ids[(ids >= known) & (ids < later)] - known, ids[ids >= later] - later
            grown = _Grown(grown.born, grown.shown[new], True, grown.inside.select(inner))
        return replace(
            self,
            mesh=tile.mesh,
            rows={name: value[ids[ids < known]] for name, value in self.rows.items()},
            bounds=dict(self.bounds),
            grown=grown,
            ambiguities=[],
        )


def _born(value: Tensor, levels: list[InterpolatedVertices], old: Tensor, numbers: int) -> Tensor:
    """Values at vertices made level by level, each between older ones, and at some old ones."""
    count = sum(level.count for level in levels)
    born = room_for((count + old.shape[0], *value.shape[1:]), value.device)
    step, first = rows_in_block(numbers, [value]), 0
    spare = value.new_empty((min(step, count), *value.shape[1:]))
    for level in levels:
        for start in range(0, level.count, step):
            interpolated = level.select(slice(start, start + step))
            rows = born[first + start : first + start + interpolated.count]
            if first:
                rows.copy_(_between(interpolated, value, born))
            else:
                interpolated.interpolate(value, rows, spare[: interpolated.count])
        first += level.count
    born[count:] = value[old]
    return born


def _between(interpolated: InterpolatedVertices, value: Tensor, born: Tensor) -> Tensor:
    """Values at new vertices from those of older ones, some of which are ``born`` as well."""
    known, ends = value.shape[0], []
    for vertex in (interpolated.p, interpolated.q):
        rows = value.index_select(0, vertex.clamp(max=known - 1))
        if backend_of(vertex.device).asynchronous:  # reading twice is faster than waiting
            late = (vertex >= known).view(-1, *[1] * (value.dim() - 1))
            others = born.index_select(0, (vertex - known).clamp_(min=0))
            ends.append(torch.where(late, others, rows))
            continue
        late = (vertex >= known).nonzero()[:, 0]
        rows[late] = born[vertex[late] - known]
        ends.append(rows)
    return ends[0].lerp_(ends[1], interpolated.t.view(-1, *[1] * (value.dim() - 1)))


def rows_in_block(numbers: int, values: list[Tensor]) -> int:
    """How many vertices make a block of about so many numbers of the widest of the values."""
    width = max(math.prod(value.shape[1:]) for value in values)
    width = max(width, 1)
    return max(_FEWEST, min(_MATRIX_ROWS, _MATRIX // width), numbers // width)


def room_for(shape: tuple[int, ...], device: torch.device, *, grows: bool = False) -> Tensor:
    """Room for float64 numbers, on a CPU, if it grows, with more behind it (see ``extended``).

    Memory costs nothing there until it is written to; numpy asks for huge pages, which are faster.
    """
    numbers = math.prod(shape)
    if backend_of(device).numpy_memory and numbers > _LARGE:
        more = _GROWTH if grows and numbers < _HUGE else 1
        return torch.from_numpy(np.empty(more * numbers))[:numbers].view(shape)
    return torch.empty(shape, dtype=torch.float64, device=device)


def extended(rows: Tensor | None, shape: tuple[int, ...]) -> Tensor | None:
    """The same memory with more rows, if there is enough of it."""
    if rows is None or rows.shape[1:] != shape[1:] or not rows.is_contiguous():
        return None
    if rows.storage_offset() or rows.untyped_storage().nbytes() < 8 * math.prod(shape):
        return None
    return rows.as_strided(shape, rows.stride())
