"""Run a captured network over a mesh: affine stages at all vertices, layers that refine the mesh.

When a mesh and its activations would not fit the memory, the run goes back to the last layer after
which they were small. The faces of that mesh are divided among tiles, which are carried through the
rest of the network one after the other and joined at the end. A single face that is too large is
divided by artificial lines, which are removed at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from math import ceil, inf
from typing import Any, NoReturn

import torch
from torch import Tensor

from splinecam._util.backend import backend_of, release_memory
from splinecam._util.tolerances import EPS
from splinecam.arrangement.crossings import Ambiguities
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
from splinecam.engine.artificial_cuts import (
    CutLines,
    DividedFace,
    RegionSample,
    choose_lines,
    divide_face,
    sample_face,
)
from splinecam.engine.evaluate import evaluate
from splinecam.engine.plan import (
    Place,
    Plan,
    crossing_units,
    cutting_kernel,
    to_device,
    vertices_after,
)
from splinecam.engine.tiling import Tile, sorted_faces, tile_of
from splinecam.errors import LimitError, option
from splinecam.geometry.domain import Domain, Frame
from splinecam.geometry.subdivision import Mesh, kept, polygon_mesh
from splinecam.network.nonlinearities import MaxNonlinearity, Nonlinearity, PiecewiseScalar
from splinecam.network.program import Program

# Memory per region, in bytes, measured: of a mesh with what is known of its new vertices, and of
# its refinement by the compiled kernel and by tensor operations, with temporaries.
_KNOWN_BYTES, _KERNEL_BYTES, _MESH_BYTES = 250, 360, 1000
_LEAST_MEMORY = 1000 * _MESH_BYTES  # bytes below which hardly any network fits

# The share of the memory that a mesh may have which is divided, and that its tiles are to fill. As
# long as nothing is known of them, a tile is one of so many.
_COARSE, _FILLED, _PROBES = 1 / 4, 0.7, 16
_ONE_LAYER = 1.25  # how many times the memory a network of one layer may take
_LARGEST = 1 / 10  # the share of the memory for the result of a tile
_LEAVES = 6  # how often faces are halved to find those that lie together
_LEFT = 1 / 4  # the share of the memory for a tile, however much the finished ones take

# Of a single face that is too large: how many parts it gets where nothing is known of its regions,
# and the least width of a face that is divided.
_PARTS = 4
_CLEARLY = 0.8  # a sample of regions is no more precise than this
_NARROWEST = 2.0**-24


@dataclass(frozen=True)
class Outcome:
    """The result of a run: the final mesh in local coordinates and the network's output on it.

    output: (V, n_out) at the vertices; error: (n_out,) its rounding error; layer_errors: (n,) that
    of the units of each layer; ambiguities: places that rounding leaves open, each with the name of
    the layer; smoothing: what was replaced in a network with smooth functions, which the engine
    itself does not know.
    """

    mesh: Mesh
    output: Tensor
    error: Tensor
    layer_errors: dict[str, Tensor]
    ambiguities: list[tuple[str, Ambiguities]]
    smoothing: Any = None

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
            self.smoothing,
        )


@dataclass(frozen=True)
class Waiting:
    """A state before a stage, or before its layer; then ``layer_input`` is given."""

    state: State
    index: int
    layer_input: LayerInput | None = None

    @property
    def faces(self) -> int:
        return self.state.mesh.num_faces

    def copy(self) -> Waiting:
        """The same to be carried on, while this one stays as it is."""
        return replace(self, state=self.state.copy())

    def select(self, tile: Tile, numbers: int) -> Waiting:
        """The same for a tile, with rows at all vertices; numbers: computed at a time, about."""
        state = self.state.select(tile, numbers).settled(numbers)
        return Waiting(state, self.index, self.layer_input and self.layer_input.select(tile))


class TooLarge(LimitError):
    """A mesh does not fit the memory; its tiles may. at: where it was found."""

    at: Waiting | None = None


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
    done. choose_lines: says where a single face is divided, see ``engine.cut_lines``. held, kept:
    bytes of meshes that are being divided, and of finished tiles. worst: the bytes of what is
    carried on, at the worst moment. need: those per face of a tile that began at a stage. told:
    which share of a stage was reported.
    """

    plan: Plan
    max_regions: int | None
    report: Report
    at_second: bool = False
    finished: int = 0
    layer_errors: dict[str, Tensor] = field(default_factory=dict)
    choose_lines: Callable[[RegionSample, int], CutLines] = choose_lines
    held: int = 0
    kept: int = 0
    worst: int = 0
    need: dict[int, float] = field(default_factory=dict)
    told: dict[int, float] = field(default_factory=dict)

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
    def room(self) -> int:
        """Bytes that are left for what is carried on."""
        # One layer can be divided by artificial lines only, and to remove them takes more memory.
        memory = int(_ONE_LAYER * self.memory) if len(self.program.stages) == 2 else self.memory
        return max(memory - self.held - self.kept, int(_LEFT * self.memory))

    @property
    def block(self) -> int:
        """Numbers of one block of activations: a small part of the memory at most."""
        return min(backend_of(self.program.device).activations, max(1, self.memory >> 15))

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
        """Carry a state from a stage to the end of the network, in tiles if it is too large.

        layer_input: given if the affine part of that stage is done already.
        """
        start = Waiting(state, index, layer_input)
        sizes: dict[int, tuple[int, int]] = {}
        found = self._attempt(start.copy(), share, sizes)
        if isinstance(found, State):
            return found
        release_memory()
        return self._in_tiles(self._divisible(start, found, sizes), share)

    def _attempt(
        self, start: Waiting, share: float, sizes: dict[int, tuple[int, int]]
    ) -> State | TooLarge:
        """The state at the end of the network, or why it cannot be had in one piece.

        sizes: gets the faces and the bytes of the mesh before each stage.
        """
        try:
            return self._carry(start, share, sizes)
        except TooLarge as reason:
            at = reason.at
            reason.__traceback__ = reason.__context__ = None  # their frames hold all activations
            if at is not None and at.faces > 1 and self._size(at.state) > _COARSE * self.room:
                reason.at = None
            return reason

    def _carry(
        self,
        start: Waiting,
        share: float,
        sizes: dict[int, tuple[int, int]] | None = None,
        stop: int | None = None,
    ) -> State:
        """Carry a state to the end of the network, or to a stage, in one piece."""
        state, layer_input = start.state, start.layer_input
        for i in range(start.index, len(self.program.stages) if stop is None else stop):
            if sizes is not None:
                sizes[i] = state.mesh.num_faces, self._size(state)
            if layer_input is None:
                state, _ = self._choose_place(state, i, None)
                used = self._bytes(state, i)
                if self._exceeds(state, i, used) and self.may_move:  # there may be more memory
                    state, _ = self._move(state, i, None)
                    used = self._bytes(state, i)
                if self._exceeds(state, i, used):
                    reason = self._too_large(self.program.stages[i].layer, state.mesh.num_faces)
                    self._give_up(Waiting(state, i), reason)
                self.worst = max(self.worst, used)
                layer_input = evaluate(self.program, i, state, self.place, self.block)
            state, layer_input = self._choose_place(state, i, layer_input)
            layer = self.program.stages[i].layer
            if layer is not None and layer_input is not None:
                state = self._cut(state, i, layer_input)
                if self.held:  # what was freed in pieces is not used again for larger tables
                    release_memory()
                self._tell(layer, i, state.mesh.num_faces, share)
            layer_input = None
        return state

    def _cut(self, state: State, index: int, layer_input: LayerInput) -> State:
        """Refine the mesh by the layer of a stage, at the second place if there is no room."""
        while True:
            layer = self.program.layers[index]
            try:
                self._refine(state, layer, index, layer_input)
                return state
            except TooLarge as reason:
                if not self.may_move:
                    self._give_up(Waiting(state, index, layer_input), reason)
            moved, waiting = self._move(state, index, layer_input)
            if waiting is not None:
                state, layer_input = moved, waiting

    def _give_up(self, at: Waiting, reason: TooLarge) -> NoReturn:
        """Stop where a mesh is too large."""
        reason.at = at
        raise reason

    def _tell(self, layer: Nonlinearity, index: int, faces: int, share: float) -> None:
        """Report a layer; what was told of it before it was given up is not told again."""
        before = self.told.get(index, 0.0)
        self.told[index] = min(1.0, before + share)
        self.report(layer.name, self.finished + faces, self.told[index] - before)

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

    # -- memory -------------------------------------------------------------------------------

    def _size(self, state: State, *, dense: bool = False) -> int:
        """The bytes of a state, with the values on edges of which others at new vertices are made.

        dense: without these, which the compiled kernel does not need for a product.
        """
        numbers = sum(value.numel() for value in state.rows.values())
        if state.pending is not None:
            inside, on_edges = state.num_new
            more = 0 if dense else numbers * on_edges // max(1, state.num_known)
            numbers += more + 3 * inside
        return 8 * numbers + _KNOWN_BYTES * state.mesh.num_faces

    def _bytes(self, state: State, index: int, *, after: bool = False) -> int:
        """Memory of a state before a stage or after it: activations, signs, and the mesh."""
        numbers = state.mesh.num_vertices * self.program.widths[index]
        if after:
            return self._size(state) + numbers // 4
        place = self.place
        dense = place.kernel is not None and place.program.dense(index) is not None
        return self._size(state, dense=dense) + 8 * numbers + numbers // 4

    def _exceeds(self, state: State, index: int, used: int) -> bool:
        """Whether a mesh is to be divided; used: the bytes of the stage itself."""
        faces = state.mesh.num_faces
        return faces > 1 and max(used, faces * self.need.get(index, 0.0)) > self.room

    def _per_region(self, index: int, *, compiled: bool) -> int:
        """Bytes for each region that the layer of a stage makes, in the next stage."""
        width = self.program.widths[index + 1]
        return (_KERNEL_BYTES if compiled else _MESH_BYTES) + 8 * width + width // 4

    def _fits(self, used: int, index: int, layer_input: LayerInput) -> int:
        """How many regions the layer of a stage may make; used: the bytes of the state."""
        each, room = self._per_region(index, compiled=self._compiled(index, layer_input)), self.room
        # If it is divided after the layer, only the mesh needs to fit.
        return max(0, (room - used) // each, int(_COARSE * room - used) // _KNOWN_BYTES)

    def _compiled(self, index: int, layer_input: LayerInput) -> bool:
        """Whether the compiled kernel will refine the mesh."""
        layer = self.program.stages[index].layer
        kernel = cutting_kernel(self.place, layer_input.signs)
        return kernel is not None and isinstance(layer, PiecewiseScalar)

    def _divisible(
        self, start: Waiting, reason: TooLarge, sizes: dict[int, tuple[int, int]]
    ) -> Waiting:
        """What is to be divided: the last mesh that is small, of many faces if possible."""
        if reason.at is not None and (reason.at.faces > 1 or self._divides_face(reason.at.state)):
            return reason.at
        small = [k for k, (n, size) in sizes.items() if n > 1 and size <= _COARSE * self.room]
        if small:
            return self._again(start, max(small))
        single = [k for k, (n, _) in sizes.items() if n == 1]
        if single:
            at = self._again(start, max(single))
            if at.layer_input is None:
                given = evaluate(self.program, at.index, at.state, self.place, self.block)
                at = replace(at, layer_input=given)
            if at.layer_input is not None and self._divides_face(at.state):
                return at
        many = [k for k, (n, _) in sizes.items() if n > 1]
        if not many:
            raise reason
        return self._again(start, min(many))

    def _again(self, start: Waiting, index: int) -> Waiting:
        """The state before a stage, which is computed again from a start."""
        if index == start.index:
            return start.copy()
        return Waiting(self._carry(start.copy(), 0.0, stop=index), index)

    # -- tiles --------------------------------------------------------------------------------

    def _in_tiles(self, at: Waiting, share: float) -> State:
        """Carry a state that is too large to the end of the network in tiles."""
        whole = at.state
        joined = self._in_parts(at, share) if at.faces == 1 else self._joined(at, share)
        joined.ambiguities[:0] = whole.ambiguities
        return joined

    def _joined(self, at: Waiting, share: float, face: DividedFace | None = None) -> State:
        """Carry the tiles of a state to the end of the network, and join them.

        face: given if the faces are parts of one. A region beside an artificial edge does not
        count as finished then, as the next tile may have another part of it.
        """
        mesh, held, kept = at.state.mesh, self.held, self.kept
        order = sorted_faces(mesh, _LEAVES)
        self.held += self._size(at.state)
        tiles: list[Tile] = []
        ends: list[State] = []
        done, first, size = self.finished, 0, max(1, at.faces // _PROBES)
        while first < at.faces:
            if at.index in self.need:
                size = int(_FILLED * self.room / self.need[at.index])
            if first:  # while tiles are joined, one of them is there several times
                size = min(size, int(_LARGEST * self.memory * first / (self.kept - kept)))
            size = max(1, size)
            tile = tile_of(mesh, order[first : first + size], rim=True)
            end = self._tile(at.select(tile, self.block), share / at.faces)
            release_memory()
            if end is None:
                size = max(1, size // 2)
                continue
            first += tile.mesh.num_faces
            tiles.append(tile)
            ends.append(end)
            self.kept += _bytes_of(end)
            self.finished += end.mesh.num_faces
            if face is not None:
                self.finished = max(done, self.finished - face.artificial_pieces(end.mesh))
            del end, tile  # the last ones are not to be held while all are joined
            if self.kept > self.memory:
                raise self._result_too_large()
        self.finished, self.held, self.kept = done, held, kept
        at.state.rows, at.state.pending = {}, None  # only its mesh is needed now
        return join_states(mesh, tiles, ends)

    def _tile(self, tile: Waiting, share: float) -> State | None:
        """The end of a tile; None if it has more than one face and is too large.

        share: of each face.
        """
        faces, self.worst = tile.faces, 0
        if faces == 1:
            return self.finish(tile.state, tile.index, share, tile.layer_input)
        found = self._attempt(tile, faces * share, {})
        if isinstance(found, TooLarge):
            self.need[tile.index] = max(self.need.get(tile.index, 0.0), 2 * self.room / faces)
            return None
        self.need[tile.index] = self.worst / faces
        return found

    def _divides_face(self, state: State) -> bool:
        """Whether a state's single face may be divided by artificial lines."""
        width = float((state.mesh.uv.amax(0) - state.mesh.uv.amin(0)).amax())
        return width > _NARROWEST and self.memory >= _LEAST_MEMORY

    def _in_parts(self, at: Waiting, share: float) -> State:
        """Carry a state of a single face that is too large to the end of the network in parts."""
        state, index, layer_input = at.state, at.index, at.layer_input
        layer = self.program.layers[index]
        if layer_input is None:
            raise ValueError("the units of the layer are not known")
        sample = sample_face(state, layer, layer_input)
        parts = _PARTS
        if sample.regions < inf:
            each = self._per_region(index, compiled=self._compiled(index, layer_input))
            parts = ceil(sample.regions * each / (_FILLED * self.room))
        lines = self.choose_lines(sample, max(2, parts))
        face = divide_face(state, index, layer.source, layer_input, lines)
        if face.state.mesh.num_faces == 1:  # the lines are as close to the border as rounding
            raise self._too_large(layer, 1)
        joined = self._joined(Waiting(face.state, index, face.layer_input), share, face)
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
        used = self._bytes(state, index, after=True)
        fits = self._fits(used, index, layer_input)
        most = fits if self.max_regions is None else min(fits, self.max_regions - self.finished)
        try:
            if most == fits and self._hopeless(state, layer, layer_input, fits):
                raise LimitError("too many regions")
            made = self._refinement(state, index, error, layer_input, most)
        except LimitError:
            excess = self._too_many if most < fits else self._too_large
            raise excess(layer, state.mesh.num_faces) from None
        each = _KERNEL_BYTES if made.history is not None else _MESH_BYTES
        self.worst = max(self.worst, used + each * made.mesh.num_faces)
        state.refine(made, layer, layer_input)
        known = self.layer_errors.get(layer.name)
        if known is not None:  # perhaps on another device
            error = torch.maximum(known.to(error.device), error)
        self.layer_errors[layer.name] = error

    def _hopeless(
        self, state: State, layer: Nonlinearity, layer_input: LayerInput, fits: int
    ) -> bool:
        """Whether the regions of a single face that can be divided will clearly be too many."""
        lines = crossing_units(layer, layer_input.low, layer_input.high)
        if state.mesh.num_faces > 1 or lines * lines < 2 * fits or not self._divides_face(state):
            return False
        return fits < _CLEARLY * sample_face(state, layer, layer_input).regions < inf

    def _too_many(self, layer: Nonlinearity, faces: int) -> LimitError:
        """The error of more regions than wanted; faces: how many there were before the layer."""
        return LimitError(
            f"The partition exceeds {option('max_regions', f'{self.max_regions:,}')} "
            f"{self._where(layer, faces)}. Raise {option('max_regions')}, or choose a "
            "smaller domain."
        )

    def _too_large(self, layer: Nonlinearity | None, faces: int) -> TooLarge:
        """The error of more regions than fit; faces: how many there were before the layer."""
        return TooLarge(
            f"The partition exceeds {option('memory', f'{self.memory:,}')} bytes "
            f"{self._where(layer, faces)}. {_more_memory(self.memory)}"
        )

    def _result_too_large(self) -> LimitError:
        """The error of a result that alone is larger than the memory."""
        return LimitError(
            f"The regions alone exceed {option('memory', f'{self.memory:,}')} bytes: "
            f"{self.finished:,} are done, "
            "and more are to come. Raise memory, or give sc.partition a folder, store=, in which "
            "the regions stay on disk."
        )

    def _where(self, layer: Nonlinearity | None, faces: int) -> str:
        before = self.finished + faces
        noun = "region" if before == 1 else "regions"
        step = "at the output" if layer is None else f"while cutting at {layer.name!r}"
        return f"{step}; before that it had {before:,} {noun}"

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


def _bytes_of(end: State) -> int:
    """The bytes of a state at the end of the network."""
    arrays = [getattr(end.mesh, each.name) for each in fields(Mesh)]
    return sum(array.nbytes for array in (*arrays, *end.rows.values()))


def _more_memory(memory: int) -> str:
    """What to do about an amount of memory that is too small."""
    if memory < _LEAST_MEMORY:
        least = f"Less than {_LEAST_MEMORY:,} bytes is hardly ever enough"
        return f"{least}: raise {option('memory')}, or leave it out to use what is free."
    most = f"{faces_within(memory):,} regions"
    raised = f"raise {option('memory')}, or choose a smaller domain"
    return f"What is cut at once must stay below {most}: {raised}."
