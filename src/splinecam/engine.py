"""Run a captured network over a mesh: affine stages on all vertices, cuts that refine the mesh.

The state between two stages is the mesh and the live activations of its vertices. A vertex made
inside a face is not evaluated when it is made: its activations are interpolated, passed through
the non-linearity and the next affine stage a block at a time, while they are in the cache.

When the activations of a stage would not fit the memory budget, the mesh is cut in two tiles, which
are carried through the rest of the network one after the other and glued together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from splinecam.births import Births
from splinecam.cuts import Cut, MaxCut
from splinecam.cutting import Doubts, Refinement
from splinecam.domain import Domain
from splinecam.errors import LimitError
from splinecam.maxima import refine_maxima
from splinecam.mesh import Mesh, polygon_mesh
from splinecam.ops import Bound
from splinecam.predicates import EPS
from splinecam.program import Program
from splinecam.refine import refine
from splinecam.tiles import Tile, cut_in_two, glue

__all__ = ["Frame", "Outcome", "run"]

# Numbers of one block of activations: small enough for the cache of a CPU core, and large enough to
# fill a GPU.
_BLOCK = {"cpu": 1 << 17, "cuda": 1 << 26}

_UNKNOWN_MEMORY = 8 << 30  # bytes to assume where the system does not tell

_LARGE = 1 << 19  # numbers for which huge pages pay

_FEWEST = 32  # vertices in a block, however wide the layer

# Working memory of the refinement per region, measured: mesh, new mesh and temporaries.
_MESH_BYTES = 1000


@dataclass(frozen=True)
class Frame:
    """The engine's own coordinates, in which the domain is centred and spans about [-1, 1].

    plane = center + scale * local; the scale is a power of two, so scaling never rounds.
    """

    center: Tensor
    scale: float

    @classmethod
    def of(cls, domain: Domain) -> Frame:
        return cls(domain.center, 2.0 ** math.ceil(math.log2(domain.diameter / 2)))

    def to_plane(self, local: Tensor) -> Tensor:
        """Plane coordinates (N, 2) of local ones."""
        return self.center.to(local) + self.scale * local

    def to_local(self, plane: Tensor) -> Tensor:
        """Local coordinates (N, 2) of plane ones."""
        return (plane - self.center.to(plane)) / self.scale


@dataclass(frozen=True)
class Outcome:
    """What a run gives: the final mesh in local coordinates and the network's output on it.

    output: (V, n_out) at the vertices; error: (n_out,) its rounding error; cut_errors: that of the
    units of each cut, (n,); doubts: places that rounding could not settle, with the cut's name.
    """

    mesh: Mesh
    output: Tensor
    error: Tensor
    cut_errors: dict[str, Tensor]
    doubts: list[tuple[str, Doubts]]


@dataclass
class _State:
    """Mesh and live activations between two stages.

    rows: values at the first vertices; born: values at the vertices made on edges, and at the ends
    of all chords; shown: which of ``born`` are the next vertices; dropped: whether some are not;
    inside: how the remaining vertices lie between entries of ``born``; pending: the
    non-linearity still to be applied.
    """

    mesh: Mesh
    rows: dict[str, Tensor]
    bounds: dict[str, Bound]
    born: dict[str, Tensor] = field(default_factory=dict)
    shown: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    dropped: bool = False
    inside: Births | None = None
    pending: Cut | None = None
    doubts: list[tuple[str, Doubts]] = field(default_factory=list)

    def blocks(
        self, live: tuple[str, ...], numbers: int
    ) -> Iterator[tuple[int, dict[str, Tensor]]]:
        """The live values, a block of vertices at a time: (first vertex, values)."""
        cut = self.pending
        needed = {cut.argument if cut and cut.result == name else name for name in live}
        width = max(math.prod(self.rows[name].shape[1:]) for name in needed)
        step = max(_FEWEST, numbers // max(width, 1))
        known = self._known()
        for start in range(0, known, step):
            values = {name: self.rows[name][start : start + step] for name in needed}
            yield start, self._activate(live, values)
        if self.inside is None:
            return
        count = self.shown.shape[0]
        for start in range(0, count, step):
            rows = slice(start, min(start + step, count))
            chosen = self.shown[rows] if self.dropped else rows
            values = {name: self.born[name][chosen] for name in needed}
            yield known + start, self._activate(live, values)
        for start in range(0, self.inside.t.shape[0], step):
            births = self.inside.select(slice(start, start + step))
            values = {name: births.interpolate(self.born[name]) for name in needed}
            yield known + count + start, self._activate(live, values)

    def _known(self) -> int:
        return int(next(iter(self.rows.values())).shape[0])

    def select(self, tile: Tile) -> _State:
        """The state of a tile of the mesh; it shares the values of what was born with the whole."""
        ids, known = tile.vertex_ids, self._known()  # ids ascend
        later = known + self.shown.shape[0]
        new, inner = ids[(ids >= known) & (ids < later)] - known, ids[ids >= later] - later
        return replace(
            self,
            mesh=tile.mesh,
            rows={name: value[ids[ids < known]] for name, value in self.rows.items()},
            bounds=dict(self.bounds),
            shown=self.shown[new],
            dropped=True,
            inside=self.inside and self.inside.select(inner),
            doubts=[],
        )

    def grow(self, made: Refinement, step: int) -> None:
        """Adopt the refined mesh: values on edges now, values inside faces when needed."""
        known, levels = self._known(), [*made.early, made.on_edges]
        count = sum(level.t.shape[0] for level in levels)
        self.mesh, inside = made.mesh, made.inside
        self.shown = torch.arange(count, device=made.mesh.uv.device)
        if made.kept is not None:
            kept, later = made.kept - known, count
            self.shown = kept[(kept >= 0) & (kept < later)]
            inside = inside.select(kept[kept >= later] - later)
        self.dropped = self.shown.shape[0] < count
        p, q = inside.p - known, inside.q - known
        # Most chords end on edges; a few end at older vertices, whose values are copied along.
        old = p[:0]
        if bool((p < 0).any() | (q < 0).any()):
            ends = torch.stack([p, q]).clamp(max=0)
            old, place = torch.unique(ends, return_inverse=True)
            old = old[old < 0] + known
            p, q = torch.where(ends < 0, count + place, torch.stack([p, q]))
        self.inside = Births(p, q, inside.t)
        for name, value in self.rows.items():
            born = _empty((count + old.shape[0], *value.shape[1:]), value.device)
            first = 0
            for level in levels:
                for start in range(0, level.t.shape[0], step):
                    chosen = level.select(slice(start, start + step))
                    rows = slice(first + start, first + start + chosen.t.shape[0])
                    born[rows] = (
                        _between(chosen, value, born) if first else chosen.interpolate(value)
                    )
                first += level.t.shape[0]
            born[count:] = value[old]
            self.born[name] = born
            bound = self.bounds[name]
            rounding = EPS * len(levels) * bound.magnitude
            self.bounds[name] = Bound(bound.magnitude, bound.error + rounding)

    def _activate(self, live: tuple[str, ...], values: dict[str, Tensor]) -> dict[str, Tensor]:
        cut = self.pending
        if cut is not None and cut.result in live:
            values[cut.result] = cut.apply(values[cut.argument])
        return {name: values[name] for name in live}


def _between(births: Births, value: Tensor, born: Tensor | None) -> Tensor:
    """Values at new vertices from those of older ones, some of which may be ``born`` as well."""
    if born is None:
        return births.interpolate(value)
    known, ends = value.shape[0], []
    for vertex in (births.p, births.q):
        rows = value.index_select(0, vertex.clamp(max=known - 1))
        late = (vertex >= known).nonzero()[:, 0]
        rows[late] = born[vertex[late] - known]
        ends.append(rows)
    return ends[0].lerp_(ends[1], births.t.view(-1, *[1] * (value.dim() - 1)))


class _TooLarge(LimitError):
    """The refinement of one mesh does not fit the memory; that of its tiles may."""


_Range = tuple[Tensor, Tensor]

Report = Callable[[str, int, float], None]
"""Hears of every cut: its name, the regions so far, and the share of the work it stands for."""


def run(
    program: Program,
    domain: Domain,
    *,
    memory: int | None = None,
    max_regions: int | None = None,
    report: Report = lambda name, regions, share: None,
) -> Outcome:
    """Partition the domain by the program's network within ``memory`` bytes."""
    frame = Frame.of(domain)
    corners = frame.to_local(domain.corners).to(program.device)
    x = domain.embed(domain.corners).to(program.device)
    magnitude = x.abs().amax(0, keepdim=True)
    state = _State(
        polygon_mesh(corners),
        {program.input_name: x},
        {program.input_name: Bound(magnitude, EPS * magnitude)},
    )
    budget = free_memory(program.device) if memory is None else memory
    computation = _Run(program, _widths(program, x[:1]), budget, max_regions, report)
    try:
        state = computation.finish(state, 0)
    except _TooLarge as reason:
        raise LimitError(str(reason)) from None
    name = program.output_name
    output = state.rows[name].reshape(state.mesh.num_vertices, -1)
    error = state.bounds[name].error.reshape(-1)
    return Outcome(state.mesh, output, error, computation.cut_errors, state.doubts)


def free_memory(device: torch.device) -> int:
    """Bytes a partition may take by default: most of what the device has free."""
    if device.type == "cuda":
        return int(0.75 * torch.cuda.mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        fields = dict(line.split(":") for line in lines)
        return int(0.75 * 1024 * int(fields["MemAvailable"].split()[0]))
    except (OSError, KeyError, ValueError):
        return _UNKNOWN_MEMORY  # not every system tells


def _widths(program: Program, x: Tensor) -> list[int]:
    """Numbers per vertex that are alive after each stage."""
    live, widths = {program.input_name: x}, []
    for index, stage in enumerate(program.stages):
        live = program.advance(index, live)
        widths.append(sum(value.numel() for value in live.values()))
        if stage.cut is not None:
            live[stage.cut.result] = stage.cut.apply(live[stage.cut.argument])
    return widths


@dataclass
class _Run:
    """One computation: what stays the same while states are carried through the stages."""

    program: Program
    widths: list[int]
    memory: int
    max_regions: int | None
    report: Report
    finished: int = 0  # regions of tiles that are done
    cut_errors: dict[str, Tensor] = field(default_factory=dict)

    def finish(
        self, state: _State, index: int, share: float = 1.0, ready: _Range | None = None
    ) -> _State:
        """Carry a state from a stage to the end of the network.

        ready: the range of what is cut next, if that stage's affine part is done already.
        """
        stages = self.program.stages
        for i in range(index, len(stages)):
            divisible = state.mesh.num_faces > 1
            if ready is None:
                if divisible and self._bytes(state, i) > self.memory:
                    return self._in_tiles(state, i, share, None)
                ready = _advance(self.program, i, state, self._block())
            cut = stages[i].cut
            if cut is not None:
                try:
                    self._cut(state, cut, i, ready)
                except _TooLarge:
                    if divisible:
                        return self._in_tiles(state, i, share, ready)
                    raise
                self.report(cut.name, self.finished + state.mesh.num_faces, share)
            ready = None
        return state

    def _block(self) -> int:
        """Numbers of one block of activations: a small part of the budget at most."""
        return min(_BLOCK[self.program.device.type], max(1, self.memory >> 8))

    def _bytes(self, state: _State, index: int) -> int:
        """Memory of one stage: activations before and after it, their signs, and the mesh.

        A cut makes new vertices, with about as many activations again.
        """
        before = sum(value.numel() for value in state.rows.values())
        after = state.mesh.num_vertices * self.widths[index]
        return 2 * 8 * (before + after) + after // 2 + _MESH_BYTES * state.mesh.num_faces

    def _in_tiles(self, state: _State, index: int, share: float, ready: _Range | None) -> _State:
        tiles, ends, done = cut_in_two(state.mesh), [], self.finished
        for tile in tiles:
            ends.append(self.finish(state.select(tile), index, share / 2, ready))
            self.finished += ends[-1].mesh.num_faces
        self.finished = done
        refined = [Tile(end.mesh, tile.vertex_ids) for end, tile in zip(ends, tiles, strict=True)]
        mesh, places = glue(state.mesh, refined)
        rows = {}
        for name, value in ends[0].rows.items():
            rows[name] = _empty((mesh.num_vertices, *value.shape[1:]), value.device)
            for end, place in zip(ends, places, strict=True):
                rows[name][place] = end.rows[name]
        bounds = {}
        for name, (magnitude, error) in ends[0].bounds.items():
            other = ends[1].bounds[name]
            bounds[name] = Bound(
                torch.maximum(magnitude, other.magnitude), torch.maximum(error, other.error)
            )
        doubts = state.doubts + ends[0].doubts + ends[1].doubts
        return _State(mesh, rows, bounds, doubts=doubts)

    def _cut(self, state: _State, cut: Cut, index: int, ready: _Range) -> None:
        """Refine the mesh along the knots of a non-linearity; its evaluation stays pending."""
        low, high = ready
        z = state.rows[cut.source].reshape(state.mesh.num_vertices, -1)
        bound = state.bounds[cut.source]
        error = bound.error.reshape(-1) + EPS * torch.maximum(low.abs(), high.abs())
        made = self._refine(state.mesh, cut.name, _refinement(cut, state, z, error, ready, index))
        state.grow(made, max(_FEWEST, self._block() // max(1, z.shape[1])))
        state.pending = cut
        state.doubts += [(cut.name, doubt) for doubt in made.doubts]
        state.bounds[cut.result] = cut.bound(state.bounds[cut.argument], low, high)
        known = self.cut_errors.get(cut.name)
        self.cut_errors[cut.name] = error if known is None else torch.maximum(known, error)

    def _refine(self, mesh: Mesh, name: str, refinement: Callable[..., Refinement]) -> Refinement:
        fits = self.memory // _MESH_BYTES
        most = fits if self.max_regions is None else min(fits, self.max_regions - self.finished)
        try:
            return refinement(max_faces=most)
        except LimitError:
            before = self.finished + mesh.num_faces
            noun = "region" if before == 1 else "regions"
            where = f"while cutting at {name!r}; before that it had {before:,} {noun}"
            if most < fits:
                raise LimitError(
                    f"The partition exceeds max_regions={self.max_regions:,} {where}. "
                    "Raise max_regions, or choose a smaller domain."
                ) from None
            raise _TooLarge(
                f"The partition exceeds memory={self.memory:,} bytes {where}. What is cut at once "
                f"must stay below {fits:,} regions: raise memory, or choose a smaller domain."
            ) from None


def _refinement(
    cut: Cut, state: _State, z: Tensor, error: Tensor, ready: _Range, index: int
) -> Callable[..., Refinement]:
    """How to cut: along straight lines, or along the borders between winners."""
    low, high = ready
    functions = cut.functions(z, error, low, high)
    if functions is not None:
        return partial(refine, state.mesh, functions, index)
    if not isinstance(cut, MaxCut):
        raise TypeError(f"{type(cut).__name__} does not say what to cut by")
    if cut.smallest:
        z, low, high = -z, -high, -low
    return partial(refine_maxima, state.mesh, z, cut.groups, error, low, high, index)


def _advance(program: Program, index: int, state: _State, block: int) -> _Range:
    """Evaluate one affine stage at all vertices; returns the range (n,) of what is cut next."""
    stage = program.stages[index]
    vertices = state.mesh.num_vertices
    rows: dict[str, Tensor] = {}
    low = high = state.mesh.uv.new_zeros(0)
    for start, live in state.blocks(stage.live_in, block):
        for name, value in program.advance(index, live).items():
            if name not in rows:
                rows[name] = _empty((vertices, *value.shape[1:]), value.device)
            rows[name][start : start + value.shape[0]] = value
            if stage.cut is not None and name == stage.cut.source:
                flat = value.reshape(value.shape[0], -1)
                least, most = flat.amin(0), flat.amax(0)
                low = torch.minimum(low, least) if start else least
                high = torch.maximum(high, most) if start else most
    state.bounds = program.bounds(index, {name: state.bounds[name] for name in stage.live_in})
    state.rows, state.born, state.shown, state.inside = rows, {}, state.shown[:0], None
    state.pending = None
    return low, high


def _empty(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Room for float64 numbers; numpy asks for huge pages, so that much of it is filled faster."""
    if device.type == "cpu" and math.prod(shape) > _LARGE:
        return torch.from_numpy(np.empty(shape))
    return torch.empty(shape, dtype=torch.float64, device=device)
