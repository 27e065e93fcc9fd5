"""Run a captured network over a mesh: affine stages at all vertices, layers that refine the mesh.

When the activations of a stage would not fit the memory, the mesh is divided into two tiles, which
are carried through the rest of the network one after the other and joined again. A single face that
is too large is divided by artificial lines, which are removed at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.tolerances import EPS
from splinecam.arrangement.edge_crossings import Ambiguities
from splinecam.arrangement.maxima import refine_maxima
from splinecam.arrangement.refine import ClearLayer, refine, refine_compiled
from splinecam.arrangement.refinement import Refinement
from splinecam.engine.activations import (
    LayerInput,
    State,
    first_state,
    join_states,
    require_no_overflow,
)
from splinecam.engine.artificial_cuts import DividedFace, divide_face, sample_face
from splinecam.engine.cut_lines import CutLines, RegionSample, choose_lines
from splinecam.engine.evaluate import evaluate
from splinecam.engine.plan import (
    Place,
    Plan,
    crossing_units,
    cutting_kernel,
    to_device,
    vertices_after,
)
from splinecam.engine.tiling import Tile, cut_in_two
from splinecam.errors import LimitError
from splinecam.geometry.domain import Domain
from splinecam.geometry.frame import Frame
from splinecam.geometry.subdivision import Mesh, kept, polygon_mesh
from splinecam.network.nonlinearities import MaxNonlinearity, Nonlinearity, PiecewiseScalar
from splinecam.network.program import Program

__all__ = [
    "Outcome",
    "Report",
    "Run",
    "TooLarge",
    "faces_within",
    "first_state",
    "join_states",
    "run",
]

# Memory of the refinement per region, measured: mesh, new mesh and temporaries.
_MESH_BYTES = 1000
_LEAST_MEMORY = 1000 * _MESH_BYTES  # bytes below which hardly any network fits

# Of a face that is too large: the share of the memory that its parts are to fill, how many parts it
# gets where nothing is known of its regions, and the least width of a face that is divided.
_FILLED = 0.5
_PARTS = 4
_CLEARLY = 0.8  # a sample of regions is no more precise than this
_NARROWEST = 2.0**-24


@dataclass(frozen=True)
class Outcome:
    """The result of a run: the final mesh in local coordinates and the network's output on it.

    output: (V, n_out) at the vertices; error: (n_out,) its rounding error; layer_errors: (n,) that
    of the units of each layer; ambiguities: places that rounding leaves open, each with the name of
    the layer.
    """

    mesh: Mesh
    output: Tensor
    error: Tensor
    layer_errors: dict[str, Tensor]
    ambiguities: list[tuple[str, Ambiguities]]

    def kept(self) -> Outcome:
        """The same in tensors that autograd may use.

        A run is made in inference mode, in which each tensor operation costs a fifth less.
        """
        return Outcome(
            self.mesh.kept(),
            kept(self.output),
            kept(self.error),
            {name: kept(error) for name, error in self.layer_errors.items()},
            [(name, replace(each, uv=each.uv.clone())) for name, each in self.ambiguities],
        )


class TooLarge(LimitError):
    """The refinement of one mesh does not fit the memory; that of its tiles may."""


Report = Callable[[str, int, float], None]
"""Called after every layer with its name, the number of regions, and the share of the mesh."""


def run(
    program: Program,
    domain: Domain,
    *,
    memory: int | None = None,
    max_regions: int | None = None,
    report: Report = lambda name, regions, share: None,
    compiled: bool = True,
    plan: Plan | None = None,
) -> Outcome:
    """Partition the domain by the program's network within ``memory`` bytes.

    compiled: use the compiled kernel if it is installed. plan: where to compute instead of on the
    program's device, with which memory and kernel.
    """
    plan = plan or Plan.of(program, memory=memory, compiled=compiled)
    corners, x = Frame.of(domain).to_local(domain.corners), domain.embed(domain.corners)
    with torch.inference_mode():
        computation = Run(plan, max_regions, report)
        state = first_state(plan.first.program, polygon_mesh(corners), x)
        return computation.outcome(state, 0).kept()


def faces_within(memory: int) -> int:
    """How many regions a refinement may have that stays within so many bytes."""
    return memory // _MESH_BYTES


@dataclass
class Run:
    """One computation: what stays the same while states are carried through the stages.

    at_second: whether it has moved to the plan's second place; finished: regions of tiles that are
    done. choose_lines: says where a single face is divided, see ``engine.cut_lines``.
    """

    plan: Plan
    max_regions: int | None
    report: Report
    at_second: bool = False
    finished: int = 0
    layer_errors: dict[str, Tensor] = field(default_factory=dict)
    choose_lines: Callable[[RegionSample, int], CutLines] = choose_lines

    @property
    def place(self) -> Place:
        return self.plan.second if self.at_second else self.plan.first

    @property
    def may_move(self) -> bool:
        """Whether there is a second place to continue at."""
        return not self.at_second and self.plan.make_second is not None

    @property
    def program(self) -> Program:
        return self.place.program

    @property
    def memory(self) -> int:
        return self.place.memory

    @property
    def block(self) -> int:
        """Numbers of one block of activations: a small part of the memory at most."""
        return min(backend_of(self.program.device).activations, max(1, self.memory >> 8))

    def outcome(self, state: State, index: int, layer_input: LayerInput | None = None) -> Outcome:
        """Carry a state from a stage to the end; the result is where the plan wants it."""
        try:
            return self.result(self.finish(state, index, layer_input=layer_input))
        except TooLarge as reason:
            raise LimitError(str(reason)) from None

    def result(self, state: State) -> Outcome:
        """The outcome of a state at the end of the network, where the plan wants it."""
        name = self.program.output_name
        output = state.rows[name].reshape(state.mesh.num_vertices, -1)
        error = state.bounds[name].error.reshape(-1)
        require_no_overflow(self.layer_errors, error)
        found = Outcome(state.mesh, output, error, self.layer_errors, state.ambiguities)
        if self.plan.make_second is None:
            return found
        if not self.at_second:
            self.plan.log_device()
        return to_device(found, self.plan.second.device)

    def finish(
        self, state: State, index: int, share: float = 1.0, layer_input: LayerInput | None = None
    ) -> State:
        """Carry a state from a stage to the end of the network.

        layer_input: given if the affine part of that stage is done already.
        """
        for i in range(index, len(self.program.stages)):
            divisible = state.mesh.num_faces > 1
            if layer_input is None:
                state, _ = self._choose_place(state, i, None)
                if divisible and self._bytes(state, i) > self.memory:
                    return self._in_tiles(state, i, share, None)
                layer_input = evaluate(self.program, i, state, self.place, self.block)
            state, layer_input = self._choose_place(state, i, layer_input)
            layer = self.program.stages[i].layer
            if layer is not None and layer_input is not None:
                try:
                    self._refine(state, layer, i, layer_input)
                except TooLarge:
                    if divisible or self.may_move or self._divides_face(state):
                        return self._in_tiles(state, i, share, layer_input)
                    raise
                self.report(layer.name, self.finished + state.mesh.num_faces, share)
            layer_input = None
        return state

    def _choose_place(
        self, state: State, index: int, layer_input: LayerInput | None
    ) -> tuple[State, LayerInput | None]:
        """Move a state to the plan's second place if the work that is next is worth it.

        layer_input: None before a stage; given before its layer.
        """
        if not self.may_move:
            return state, layer_input
        layer, widths = self.program.stages[index].layer, self.program.widths
        vertices, width = float(state.mesh.num_vertices), widths[index]
        if layer is not None and layer_input is not None:
            lines = crossing_units(layer, layer_input.low, layer_input.high)
            vertices, width = vertices_after(state.mesh, lines), widths[index + 1]
        if not self.plan.worth_moving(vertices, width):
            return state, layer_input
        return self._move(state, index, layer_input)

    def _move(
        self, state: State, index: int, layer_input: LayerInput | None
    ) -> tuple[State, LayerInput | None]:
        """Move a state to the plan's second place."""
        self.at_second = True
        stages = self.program.stages
        self.plan.log_device(f"stage {index + 1} of {len(stages)}")
        state, layer_input = to_device((state, layer_input), self.place.device)
        layer = stages[index - 1].layer
        if state.pending is not None and layer is not None:
            state.pending = replace(state.pending, layer=layer)
        return state, layer_input

    def _bytes(self, state: State, index: int) -> int:
        """Memory of one stage: activations before and after it, their signs, and the mesh.

        A layer makes new vertices, with about as many activations again.
        """
        before = sum(value.numel() for value in state.rows.values())
        after = state.mesh.num_vertices * self.program.widths[index]
        return 2 * 8 * (before + after) + after // 2 + _MESH_BYTES * state.mesh.num_faces

    def _in_tiles(
        self, state: State, index: int, share: float, layer_input: LayerInput | None
    ) -> State:
        """Carry a state that is too large to the end of the network in two tiles."""
        if self.may_move:  # there may be more memory
            state, layer_input = self._move(state, index, layer_input)
            return self.finish(state, index, share, layer_input)
        if state.mesh.num_faces == 1 and layer_input is not None:
            joined = self._in_parts(state, index, share, layer_input)
        else:
            joined = self._joined(state, index, share, layer_input, cut_in_two(state.mesh))
        joined.ambiguities[:0] = state.ambiguities
        return joined

    def _joined(
        self,
        state: State,
        index: int,
        share: float,
        layer_input: LayerInput | None,
        tiles: Sequence[Tile],
        face: DividedFace | None = None,
    ) -> State:
        """Carry the tiles of a state to the end of the network, and join them.

        face: given if the tiles are parts of one face. A region beside an artificial edge does not
        count as finished then, as the next tile may have another part of it.
        """
        ends, done = [], self.finished
        for tile in tiles:
            part, mine = state.select(tile, self.block), layer_input and layer_input.select(tile)
            end = self.finish(part, index, share / len(tiles), mine)
            ends.append(end)
            self.finished += end.mesh.num_faces
            if face is not None:
                self.finished = max(done, self.finished - face.artificial_pieces(end.mesh))
        self.finished = done
        return join_states(state.mesh, tiles, ends)

    def _divides_face(self, state: State) -> bool:
        """Whether a state's single face may be divided by artificial lines."""
        width = float((state.mesh.uv.amax(0) - state.mesh.uv.amin(0)).amax())
        return width > _NARROWEST and self.memory >= _LEAST_MEMORY

    def _in_parts(self, state: State, index: int, share: float, layer_input: LayerInput) -> State:
        """Carry a state of a single face that is too large to the end of the network in parts."""
        layer, fits = self.program.layers[index], self.memory // _MESH_BYTES
        sample = sample_face(state, layer, layer_input)
        parts = _PARTS if sample.regions == inf else ceil(sample.regions / (_FILLED * fits))
        lines = self.choose_lines(sample, max(2, parts))
        face = divide_face(state, index, layer.source, layer_input, lines)
        tiles = face.tiles()
        if len(tiles) == 1:  # the lines are as close to the border as rounding
            raise self._too_large(layer, 1)
        joined = self._joined(face.state, index, share, face.layer_input, tiles, face)
        found = face.rejoined(joined, self.program, self.layer_errors, self.block)
        if self.max_regions is not None and self.finished + found.mesh.num_faces > self.max_regions:
            raise self._too_many(layer, 1)
        return found

    def _refine(
        self, state: State, layer: Nonlinearity, index: int, layer_input: LayerInput
    ) -> None:
        """Refine the mesh along the borders of a layer's pieces; the layer stays pending."""
        error = state.bounds[layer.source].error.reshape(-1)
        if layer_input.signs is None:
            error = error + EPS * torch.maximum(layer_input.low.abs(), layer_input.high.abs())
        fits = faces_within(self.memory)
        most = fits if self.max_regions is None else min(fits, self.max_regions - self.finished)
        try:
            if most == fits and self._hopeless(state, layer, layer_input):
                raise LimitError("too many regions")
            made = self._refinement(state, index, error, layer_input, most)
        except LimitError:
            excess = self._too_many if most < fits else self._too_large
            raise excess(layer, state.mesh.num_faces) from None
        state.refine(made, layer, layer_input)
        known = self.layer_errors.get(layer.name)
        if known is not None:  # perhaps on another device
            error = torch.maximum(known.to(error.device), error)
        self.layer_errors[layer.name] = error

    def _hopeless(self, state: State, layer: Nonlinearity, layer_input: LayerInput) -> bool:
        """Whether the regions of a single face that can be divided will clearly be too many."""
        fits = self.memory // _MESH_BYTES
        lines = crossing_units(layer, layer_input.low, layer_input.high)
        if state.mesh.num_faces > 1 or lines * lines < 2 * fits or not self._divides_face(state):
            return False
        return fits < _CLEARLY * sample_face(state, layer, layer_input).regions < inf

    def _too_many(self, layer: Nonlinearity, faces: int) -> LimitError:
        """The error of more regions than wanted; faces: how many there were before the layer."""
        return LimitError(
            f"The partition exceeds max_regions={self.max_regions:,} {self._where(layer, faces)}. "
            "Raise max_regions, or choose a smaller domain."
        )

    def _too_large(self, layer: Nonlinearity, faces: int) -> TooLarge:
        """The error of more regions than fit; faces: how many there were before the layer."""
        return TooLarge(
            f"The partition exceeds memory={self.memory:,} bytes {self._where(layer, faces)}. "
            f"{_more_memory(self.memory)}"
        )

    def _where(self, layer: Nonlinearity, faces: int) -> str:
        before = self.finished + faces
        noun = "region" if before == 1 else "regions"
        return f"while cutting at {layer.name!r}; before that it had {before:,} {noun}"

    def _refinement(
        self, state: State, index: int, error: Tensor, layer_input: LayerInput, max_faces: int
    ) -> Refinement:
        """The mesh, cut along straight lines or along the borders between winners."""
        layer, mesh, place = self.program.stages[index].layer, state.mesh, self.place
        if layer is None:
            raise ValueError(f"stage {index} has no layer")
        z = state.rows[layer.source].reshape(mesh.num_vertices, -1)
        low, high, signs = layer_input.low, layer_input.high, layer_input.signs
        kernel = cutting_kernel(place, signs)
        if kernel is not None and signs is not None and isinstance(layer, PiecewiseScalar):
            difference = None if layer.rectifies else layer.slope_differences[0]
            clear = ClearLayer(z, signs.positive, error, difference)
            made = refine_compiled(kernel, mesh, clear, index, max_faces=max_faces)
            if made is not None:
                return made
        functions = layer.functions(z, error, low, high, signs)
        if functions is not None:
            return refine(mesh, functions, index, max_faces=max_faces, gpu=place.gpu)
        if not isinstance(layer, MaxNonlinearity):
            raise TypeError(f"{type(layer).__name__} does not say what to cut by")
        if layer.smallest:
            z, low, high = -z, -high, -low
        given = z, layer.groups, error, low, high, index
        return refine_maxima(mesh, *given, max_faces=max_faces, gpu=place.gpu)


def _more_memory(memory: int) -> str:
    """What to do about an amount of memory that is too small."""
    if memory < _LEAST_MEMORY:
        least = f"Less than {_LEAST_MEMORY:,} bytes is hardly ever enough"
        return f"{least}: raise memory, or leave it out to use what is free."
    most = f"{faces_within(memory):,} regions"
    return f"What is cut at once must stay below {most}: raise memory, or choose a smaller domain."
