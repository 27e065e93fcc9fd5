"""One step of a network over a mesh: an affine stage at all vertices, or a layer that refines it.

A step takes a state and gives the next one, or says why there is no room for it. What to do then
is up to the callers: they divide the mesh, move to another device, or stop (``engine.run``,
``engine.batched``, ``engine.division``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf, prod

import torch
from torch import Tensor

from splinecam._util.arrays import as_rows
from splinecam._util.backend import backend_of, is_out_of_memory, release_memory
from splinecam._util.tolerances import EPS
from splinecam.arrangement.maxima import refine_maxima
from splinecam.arrangement.refine import Refinement, refine, refine_compiled
from splinecam.engine.activations import LayerInput, State
from splinecam.engine.artificial_cuts import CutLines, RegionSample, choose_lines, sample_face
from splinecam.engine.evaluate import evaluate
from splinecam.engine.open_part import OpenPart
from splinecam.engine.plan import (
    Place,
    Plan,
    crossing_units,
    cutting_kernel,
    to_device,
    vertices_after,
)
from splinecam.engine.tiling import MeshTile
from splinecam.errors import LimitError, option
from splinecam.kernels.kernel import LayerFunctions
from splinecam.network.nonlinearities import MaxNonlinearity, Nonlinearity, PiecewiseScalar
from splinecam.network.program import Program

# Memory per region, in bytes, measured: of a mesh with what is known of its new vertices, and of
# its refinement by the compiled kernel and by tensor operations, with temporaries.
_KNOWN_BYTES, _KERNEL_BYTES, _MESH_BYTES = 250, 360, 1000
_LEAST_MEMORY = 1000 * _MESH_BYTES  # bytes below which hardly any network fits

COARSE = 1 / 4  # the share of the memory that a mesh may have which is divided
_ONE_LAYER = 1.25  # how many times the memory a network of one layer may take
_LEFT = 1 / 4  # the share of the memory for a tile, however much the finished ones take

_CORNERS = 3  # new ones of a face at most, about
_CLEARLY = 0.8  # a sample of regions is no more precise than this
_NARROWEST = 2.0**-24  # the least width of a single face that is divided


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
        return Waiting(self.state.copy(), self.index, self.layer_input)

    def select(self, tile: MeshTile, numbers: int) -> Waiting:
        """The same for a tile; numbers: computed at a time, about."""
        given = self.layer_input and self.layer_input.select(tile)
        return Waiting(self.state.select(tile, numbers), self.index, given)

    def spread(self) -> Waiting:
        """The same with a row for each vertex, which is arbitrary where there was none."""
        place, given = self.state.place, self.layer_input
        if place is not None and given is not None and given.signs is not None:
            given = LayerInput(given.low, given.high, given.signs.select(place.clamp(min=0)))
        return replace(self, state=self.state.spread(), layer_input=given)

    def filled(self, numbers: int) -> Waiting:
        """The same with rows at all vertices."""
        return replace(self, state=self.state.filled(numbers))


class TooLarge(LimitError):
    """A mesh does not fit the memory; its tiles may."""


Report = Callable[[str, int, float], None]
"""Called after every layer with its name, the number of regions, and the share of the mesh.

It may raise an exception of the caller to cancel the computation.
"""


def silent(name: str, regions: int, share: float) -> None:
    """Report nothing."""


@dataclass
class Computation:
    """What stays the same while states are carried through the stages of a network.

    batch: the mesh has many domains, which are better computed in portions than with all memory.
    at_second: whether it has moved to the plan's second place; finished: regions of tiles that are
    done. held, kept: bytes of meshes that are being divided, and of finished tiles. worst: the
    bytes of what is carried on, at the worst moment. measured: tiny states count for it, too. need:
    those per face of a tile that began at a stage. told: which share of a stage was reported.
    choose_lines: says where a single face is divided. open_part: where a question is open; other
    faces need not be divided. is_ended: asked before each step whether to give up what is left;
    None if nothing is to be given up, even beyond max_regions.
    """

    plan: Plan
    max_regions: int | None = None
    report: Report = silent
    batch: bool = False
    at_second: bool = False
    finished: int = 0
    layer_errors: dict[str, Tensor] = field(default_factory=dict)
    held: int = 0
    kept: int = 0
    worst: int = 0
    measured: bool = False
    need: dict[int, float] = field(default_factory=dict)
    told: dict[int, float] = field(default_factory=dict)
    choose_lines: Callable[[RegionSample, int], CutLines] = choose_lines
    open_part: OpenPart | None = None
    is_ended: Callable[[], bool] | None = None

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
        """Bytes to stay within."""
        memory = self.place.memory
        return min(memory, backend_of(self.place.device).batch_bytes) if self.batch else memory

    @property
    def room(self) -> int:
        """Bytes that are left for what is carried on."""
        # One layer can be divided by artificial lines only, and to remove them takes more memory.
        memory = self.memory
        whole = int(_ONE_LAYER * memory) if len(self.program.stages) == 2 else memory
        return max(whole - self.held - self.kept, int(_LEFT * memory))

    @property
    def block(self) -> int:
        """Numbers of one block of activations: a small part of the memory at most."""
        return min(backend_of(self.program.device).activations, max(1, self.memory >> 15))

    # -- steps --------------------------------------------------------------------------------

    def carry(
        self,
        at: Waiting,
        share: float = 1.0,
        *,
        stop: int | None = None,
        wait: Callable[[Waiting], bool] = lambda at: False,
    ) -> tuple[Waiting, LimitError | None]:
        """Carry a state to a stage, by default the end: where it is then, and what ended it early.

        share: the part of the whole mesh, as it is reported. wait: is asked before each step; the
        state is not carried on where it says so.
        """
        end = len(self.program.stages) if stop is None else stop
        while at.index < end:
            at = self._placed(at) if self.may_move else at
            if wait(at):
                break
            if stop is None and self.is_ended is not None and self.is_ended():
                return at, self.ended(at)
            found = self._stepped(at)
            if isinstance(found, TooLarge) and self.may_move:  # there may be more memory
                at = self._moved(at)
                continue
            if isinstance(found, LimitError):
                return at, found
            if at.layer_input is not None:
                if self.held:  # what was freed in pieces is not used again for larger tables
                    release_memory()
                self._tell(at.index, found.faces, share)
            at = found
        return at, None

    def _stepped(self, at: Waiting) -> Waiting | LimitError:
        """The state after a step; an error that says what to do if there is no memory for it."""
        try:
            return self.step(at)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            where = self._where(self.program.stages[at.index].layer, at.faces)
            raise LimitError(
                f"The partition found no memory left {where}. Say how much it may take, less than "
                f"is free, as in {option('memory', '2GB')}: then parts are computed that fit."
            ) from error

    def step(self, at: Waiting) -> Waiting | LimitError:
        """The state after a stage was evaluated, or after its layer has refined the mesh.

        What is given is changed in place, unless there is no room: then it stays as it is, and the
        error is returned.
        """
        if at.layer_input is not None:
            return self._refined(at, at.layer_input)
        state, index, place = at.state, at.index, self.place
        if not self.is_tiny(state):
            used = self._bytes(state, index)
            if at.faces > 1 and max(used, at.faces * self.need.get(index, 0.0)) > self.room:
                return self.too_large(place.program.stages[index].layer, at.faces)
            self.worst = max(self.worst, used)
        given = evaluate(place.program, index, state, place, self.block)
        return Waiting(state, index + (given is None), given)

    def _tell(self, index: int, faces: int, share: float) -> None:
        """Report a layer; what was told of it before it was given up is not told again."""
        before = self.told.get(index, 0.0)
        self.told[index] = min(1.0, before + share)
        name = self.program.layers[index].name
        self.report(name, self.finished + faces, self.told[index] - before)

    def _placed(self, at: Waiting) -> Waiting:
        """The same at the plan's second place if the work that is next is worth it."""
        mesh, given, widths = at.state.mesh, at.layer_input, self.program.widths
        vertices, width = float(mesh.num_vertices), widths[at.index]
        if given is not None:
            lines = crossing_units(self.program.layers[at.index], given.low, given.high)
            vertices, width = vertices_after(mesh, lines), widths[at.index + 1]
        return self._moved(at) if self.plan.worth_moving(vertices, width) else at

    def _moved(self, at: Waiting) -> Waiting:
        """The same at the plan's second place."""
        self.at_second = True
        stages = self.program.stages
        self.plan.log_device(f"stage {at.index + 1} of {len(stages)}")
        at, self.open_part = to_device((at, self.open_part), self.place.device)
        layer = stages[at.index - 1].layer
        if at.state.pending is not None and layer is not None:
            at.state.pending = replace(at.state.pending, layer=layer)
        return at

    def _refined(self, at: Waiting, given: LayerInput) -> Waiting | LimitError:
        """The state after its mesh is refined along the borders of a layer's pieces.

        The layer stays pending.
        """
        state, index, layer = at.state, at.index, self.program.layers[at.index]
        error = state.bounds[layer.source].error.reshape(-1)
        if given.signs is None:
            error = error + EPS * torch.maximum(given.low.abs(), given.high.abs())
        used = self._bytes(state, index, after=True)
        fits = self._fits(used, index, given)
        most = fits if self.max_regions is None else min(fits, self.max_regions - self.finished)
        if most == fits and self._hopeless(state, layer, given, fits):
            return self.too_large(layer, at.faces)
        try:
            made = self._refinement(state, index, error, given, most)
        except LimitError:
            whole = most < fits and state.settled is None
            return (self.too_many if whole else self.too_large)(layer, at.faces)
        each = _KERNEL_BYTES if made.history is not None else _MESH_BYTES
        self.worst = max(self.worst, used + each * made.mesh.num_faces)
        state.refine(made, layer, given)
        known = self.layer_errors.get(layer.name)
        if known is not None:  # perhaps on another device
            error = torch.maximum(known.to(error.device), error)
        self.layer_errors[layer.name] = error
        return Waiting(state, index + 1)

    def _refinement(
        self, state: State, index: int, error: Tensor, layer_input: LayerInput, max_faces: int
    ) -> Refinement:
        """The mesh, cut along straight lines or along the borders between winners."""
        layer, mesh, place = self.program.layers[index], state.mesh, self.place
        z = as_rows(state.rows[layer.source])
        low, high, signs = layer_input.low, layer_input.high, layer_input.signs
        kernel = cutting_kernel(place, signs)
        if kernel is not None and signs is not None and isinstance(layer, PiecewiseScalar):
            difference = None if layer.rectifies else layer.slope_differences[0]
            settled = None if state.settled is None else state.settled.clone()
            units = LayerFunctions(z, signs.positive, error, difference, index, max_faces)
            made = refine_compiled(kernel, mesh, units._replace(place=state.place, settled=settled))
            if made is not None and settled is not None and made.mesh is not mesh:
                new = made.mesh.num_faces - mesh.num_faces
                state.settled = torch.cat([settled, settled.new_zeros(new)])
            if made is not None:
                return made
        if state.settled is not None:
            raise LimitError("only faces that are all open can be cut by tensor operations")
        functions = layer.functions(z, error, low, high, signs)
        if functions is not None:
            return refine(mesh, functions, index, max_faces=max_faces, gpu=place.gpu)
        if not isinstance(layer, MaxNonlinearity):
            raise TypeError(f"{type(layer).__name__} does not say what to cut by")
        if layer.smallest:
            z, low, high = -z, -high, -low
        given = z, layer.groups, error, low, high, index
        return refine_maxima(mesh, *given, max_faces=max_faces, gpu=place.gpu)

    # -- memory -------------------------------------------------------------------------------

    def is_tiny(self, state: State) -> bool:
        """Whether a state clearly fits before a stage, and its size is not asked for."""
        if self.measured:
            return False
        width = max(prod(self.program.input_shape), *self.program.widths)
        each = 8 * (2 * width + 3) + width + 2 * _KNOWN_BYTES  # of a vertex, with two faces at most
        return state.mesh.num_vertices * each <= COARSE * self.memory

    def size(self, state: State, *, dense: bool = False) -> int:
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
        vertices = state.mesh.num_vertices
        if state.settled is not None:  # only corners of the other faces have values
            vertices = min(vertices, _CORNERS * int((~state.settled).sum()))
        numbers = vertices * self.program.widths[index]
        if after:
            return self.size(state) + numbers // 4
        place = self.place
        dense = place.kernel is not None and place.program.dense(index) is not None
        return self.size(state, dense=dense) + 8 * numbers + numbers // 4

    def per_region(self, index: int, layer_input: LayerInput) -> int:
        """Bytes for each region that the layer of a stage makes, in the next stage."""
        place, program = self.place, self.program
        kernel, width = cutting_kernel(place, layer_input.signs), program.widths[index + 1]
        compiled = kernel is not None and isinstance(program.layers[index], PiecewiseScalar)
        return (_KERNEL_BYTES if compiled else _MESH_BYTES) + 8 * width + width // 4

    def _fits(self, used: int, index: int, layer_input: LayerInput) -> int:
        """How many regions the layer of a stage may make; used: the bytes of the state."""
        each, room = self.per_region(index, layer_input), self.room
        # If it is divided after the layer, only the mesh needs to fit.
        return max(0, (room - used) // each, int(COARSE * room - used) // _KNOWN_BYTES)

    def _hopeless(
        self, state: State, layer: Nonlinearity, layer_input: LayerInput, fits: int
    ) -> bool:
        """Whether the regions of a single face that can be divided will clearly be too many."""
        low, high = layer_input.low, layer_input.high
        if state.mesh.num_faces > 1 or low.numel() ** 2 < 2 * fits:  # however many units cross it
            return False
        if crossing_units(layer, low, high) ** 2 < 2 * fits or not self.divides_face(state):
            return False
        return fits < _CLEARLY * sample_face(state, layer, layer_input).regions < inf

    def divides_face(self, state: State) -> bool:
        """Whether a state's single face may be divided by artificial lines."""
        width = float((state.mesh.uv.amax(0) - state.mesh.uv.amin(0)).amax())
        return width > _NARROWEST and self.memory >= _LEAST_MEMORY

    # -- errors -------------------------------------------------------------------------------

    def ended(self, at: Waiting) -> LimitError:
        """The error of a state that is not carried on, as somebody has ended the computation."""
        where = self._where(self.program.stages[at.index].layer, at.faces)
        return LimitError(f"The computation was ended {where}.")

    def too_many(self, layer: Nonlinearity, faces: int) -> LimitError:
        """The error of more regions than wanted; faces: how many there were before the layer."""
        return LimitError(
            f"The partition exceeds {option('max_regions', f'{self.max_regions:,}')} "
            f"{self._where(layer, faces)}. Raise {option('max_regions')}, or choose a "
            "smaller domain."
        )

    def too_large(self, layer: Nonlinearity | None, faces: int) -> TooLarge:
        """The error of more regions than fit; faces: how many there were before the layer."""
        return TooLarge(
            f"The partition exceeds {option('memory', f'{self.memory:,}')} bytes "
            f"{self._where(layer, faces)}. {_more_memory(self.memory)}"
        )

    def _where(self, layer: Nonlinearity | None, faces: int) -> str:
        before = self.finished + faces
        noun = "region" if before == 1 else "regions"
        step = "at the output" if layer is None else f"while cutting at {layer.name!r}"
        return f"{step}; before that it had {before:,} {noun}"


def faces_within(memory: int) -> int:
    """How many regions a refinement may have that stays within so many bytes."""
    return memory // _MESH_BYTES


def _more_memory(memory: int) -> str:
    """What to do about an amount of memory that is too small."""
    if memory < _LEAST_MEMORY:
        least = f"Less than {_LEAST_MEMORY:,} bytes is hardly ever enough"
        return f"{least}: raise {option('memory')}, or leave it out to use what is free."
    most = f"{faces_within(memory):,} regions"
    raised = f"raise {option('memory')}, or choose a smaller domain"
    return f"What is cut at once must stay below {most}: {raised}."
