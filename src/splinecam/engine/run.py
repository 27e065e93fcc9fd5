"""Run a captured network over a mesh: affine stages on all vertices, cuts that refine the mesh.

The state between two stages is the mesh and the live activations of its vertices.

When the activations of a stage would not fit the memory budget, the mesh is cut in two tiles, which
are carried through the rest of the network one after the other and glued together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.tolerances import EPS
from splinecam.arrangement.edge_crossings import Ambiguities
from splinecam.arrangement.maxima import refine_maxima
from splinecam.arrangement.refine import ClearLayer, refine, refine_compiled
from splinecam.arrangement.refinement import Refinement
from splinecam.engine.activations import LayerInput, State, room_for
from splinecam.engine.evaluate import evaluate
from splinecam.engine.plan import Place, Plan, crossing_units, free_memory, moved, vertices_after
from splinecam.engine.tiling import Tile, cut_in_two, glue
from splinecam.errors import LimitError
from splinecam.geometry.domain import Domain
from splinecam.geometry.frame import Frame
from splinecam.geometry.subdivision import Mesh, kept, polygon_mesh
from splinecam.network.nonlinearities import MaxNonlinearity, Nonlinearity, PiecewiseScalar
from splinecam.network.ops import Bound
from splinecam.network.program import Program

__all__ = [
    "Outcome",
    "Report",
    "Run",
    "TooLarge",
    "first_state",
    "free_memory",
    "output_of",
    "run",
]

# Working memory of the refinement per region, measured: mesh, new mesh and temporaries.
_MESH_BYTES = 1000
_LEAST_MEMORY = 1000 * _MESH_BYTES  # bytes below which hardly any network fits


@dataclass(frozen=True)
class Outcome:
    """What a run gives: the final mesh in local coordinates and the network's output on it.

    output: (V, n_out) at the vertices; error: (n_out,) its rounding error; layer_errors: that of
    the units of each layer, (n,); ambiguities: places that rounding could not settle, with the
    layer's name.
    """

    mesh: Mesh
    output: Tensor
    error: Tensor
    layer_errors: dict[str, Tensor]
    ambiguities: list[tuple[str, Ambiguities]]

    def kept(self) -> Outcome:
        """The same in tensors of their own, which may take part in everything again.

        A run is made in inference mode, in which tensor operations cost a fifth less each.
        """
        return Outcome(
            self.mesh.kept(),
            kept(self.output),
            kept(self.error),
            {name: kept(error) for name, error in self.layer_errors.items()},
            [
                (name, Ambiguities(ambiguity.uv.clone(), ambiguity.reason))
                for name, ambiguity in self.ambiguities
            ],
        )


class TooLarge(LimitError):
    """The refinement of one mesh does not fit the memory; that of its tiles may."""


Report = Callable[[str, int, float], None]
"""Hears of every cut: its name, the regions so far, and the share of the work it stands for."""


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

    compiled: use the compiled kernel, where it is there. plan: where to compute instead of on the
    program's device, with which memory and kernel.
    """
    plan = plan or Plan.of(program, memory=memory, compiled=compiled)
    corners, x = Frame.of(domain).to_local(domain.corners), domain.embed(domain.corners)
    with torch.inference_mode():
        state = first_state(plan.first.program, polygon_mesh(corners), x)
        outcome = _run(plan, state, max_regions, report)
    return outcome.kept()


def _run(plan: Plan, state: State, max_regions: int | None, report: Report) -> Outcome:
    computation = Run(plan, max_regions, report)
    try:
        state = computation.finish(state, 0)
    except TooLarge as reason:
        raise LimitError(str(reason)) from None
    return computation.outcome(state)


def first_state(program: Program, mesh: Mesh, x: Tensor) -> State:
    """What a run begins with: polygons, and the inputs at their corners."""
    x = x.to(program.device)
    magnitude = x.abs().amax(0, keepdim=True)
    bound = Bound(magnitude, EPS * magnitude)
    return State(mesh.to(program.device), {program.input_name: x}, {program.input_name: bound})


def output_of(program: Program, state: State) -> tuple[Tensor, Tensor]:
    """The network's output at the vertices, (V, n_out), and its rounding error, (n_out,)."""
    name = program.output_name
    output = state.rows[name].reshape(state.mesh.num_vertices, -1)
    return output, state.bounds[name].error.reshape(-1)


@dataclass
class Run:
    """One computation: what stays the same while states are carried through the stages.

    at_second: whether it has gone on to the plan's second place.
    """

    plan: Plan
    max_regions: int | None
    report: Report
    at_second: bool = False
    finished: int = 0  # regions of tiles that are done
    layer_errors: dict[str, Tensor] = field(default_factory=dict)

    @property
    def place(self) -> Place:
        return self.plan.second if self.at_second else self.plan.first

    @property
    def may_move(self) -> bool:
        """Whether there is a second place to go on at."""
        return not self.at_second and self.plan.make_second is not None

    @property
    def program(self) -> Program:
        return self.place.program

    @property
    def memory(self) -> int:
        return self.place.memory

    def outcome(self, state: State) -> Outcome:
        """What was found, where the plan wants the result."""
        output, error = output_of(self.program, state)
        found = Outcome(state.mesh, output, error, self.layer_errors, state.ambiguities)
        if self.plan.make_second is None:
            return found
        if not self.at_second:
            self.plan.tell()
        return moved(found, self.plan.second.device)

    def finish(
        self, state: State, index: int, share: float = 1.0, layer_input: LayerInput | None = None
    ) -> State:
        """Carry a state from a stage to the end of the network.

        ready: the range of what is cut next, if that stage's affine part is done already.
        """
        for i in range(index, len(self.program.stages)):
            divisible = state.mesh.num_faces > 1
            if layer_input is None:
                state, _ = self._choose_place(state, i, None)
                if divisible and self._bytes(state, i) > self.memory:
                    return self._in_tiles(state, i, share, None)
                layer_input = evaluate(self.program, i, state, self.block, self.place.kernel)
            state, layer_input = self._choose_place(state, i, layer_input)
            cut = self.program.stages[i].layer
            if cut is not None and layer_input is not None:
                try:
                    self._cut(state, cut, i, layer_input)
                except TooLarge:
                    if divisible or self.may_move:
                        return self._in_tiles(state, i, share, layer_input)
                    raise
                self.report(cut.name, self.finished + state.mesh.num_faces, share)
            layer_input = None
        return state

    def _choose_place(
        self, state: State, index: int, layer_input: LayerInput | None
    ) -> tuple[State, LayerInput | None]:
        """Take a state to the plan's second place if the work that is next is worth it.

        ready: None before a stage, and before its cut what is cut.
        """
        if not self.may_move:
            return state, layer_input
        cut, widths = self.program.stages[index].layer, self.program.widths
        vertices, width = float(state.mesh.num_vertices), widths[index]
        if cut is not None and layer_input is not None:
            lines = crossing_units(cut, layer_input.low, layer_input.high)
            vertices, width = vertices_after(state.mesh, lines), widths[index + 1]
        if not self.plan.worth_moving(vertices, width):
            return state, layer_input
        return self._at_second(state, index, layer_input)

    def _at_second(
        self, state: State, index: int, layer_input: LayerInput | None
    ) -> tuple[State, LayerInput | None]:
        self.at_second = True
        device, stages = self.place.device, self.program.stages
        self.plan.tell(f"stage {index + 1} of {len(stages)}")
        pending = None if state.pending is None else stages[index - 1].layer
        state, layer_input = moved((state, layer_input), device)
        return replace(state, pending=pending), layer_input

    @property
    def block(self) -> int:
        """Numbers of one block of activations: a small part of the budget at most."""
        return min(backend_of(self.program.device).activations, max(1, self.memory >> 8))

    def _bytes(self, state: State, index: int) -> int:
        """Memory of one stage: activations before and after it, their signs, and the mesh.

        A cut makes new vertices, with about as many activations again.
        """
        before = sum(value.numel() for value in state.rows.values())
        after = state.mesh.num_vertices * self.program.widths[index]
        return 2 * 8 * (before + after) + after // 2 + _MESH_BYTES * state.mesh.num_faces

    def _in_tiles(
        self, state: State, index: int, share: float, layer_input: LayerInput | None
    ) -> State:
        if self.may_move:  # there may be more room
            state, layer_input = self._at_second(state, index, layer_input)
            return self.finish(state, index, share, layer_input)
        tiles, ends, done = cut_in_two(state.mesh), [], self.finished
        for tile in tiles:
            part = state.select(tile, self.block)
            ends.append(
                self.finish(part, index, share / 2, layer_input and layer_input.select(tile))
            )
            self.finished += ends[-1].mesh.num_faces
        self.finished = done
        refined = [Tile(end.mesh, tile.vertex_ids) for end, tile in zip(ends, tiles, strict=True)]
        mesh, places = glue(state.mesh, refined)
        rows = {}
        for name, value in ends[0].rows.items():
            rows[name] = room_for((mesh.num_vertices, *value.shape[1:]), value.device)
            for end, place in zip(ends, places, strict=True):
                rows[name][place] = end.rows[name]
        bounds = {}
        for name, (magnitude, error) in ends[0].bounds.items():
            other = ends[1].bounds[name]
            bounds[name] = Bound(
                torch.maximum(magnitude, other.magnitude), torch.maximum(error, other.error)
            )
        ambiguities = state.ambiguities + ends[0].ambiguities + ends[1].ambiguities
        return State(mesh, rows, bounds, ambiguities=ambiguities)

    def _cut(self, state: State, cut: Nonlinearity, index: int, layer_input: LayerInput) -> None:
        """Refine the mesh along the knots of a non-linearity; its evaluation stays pending."""
        z = state.rows[cut.source].reshape(state.mesh.num_vertices, -1)
        error = state.bounds[cut.source].error.reshape(-1)
        if layer_input.signs is None:
            error = error + EPS * torch.maximum(layer_input.low.abs(), layer_input.high.abs())
        refinement = partial(self._refinement, cut, state.mesh, z, error, layer_input, index)
        state.adopt(self._refine(state.mesh, cut.name, refinement), cut, layer_input)
        known = self.layer_errors.get(cut.name)
        if known is not None:  # perhaps on another device
            error = torch.maximum(known.to(error.device), error)
        self.layer_errors[cut.name] = error

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
            raise TooLarge(
                f"The partition exceeds memory={self.memory:,} bytes {where}. "
                f"{_more_memory(self.memory)}"
            ) from None

    def _refinement(
        self,
        cut: Nonlinearity,
        mesh: Mesh,
        z: Tensor,
        error: Tensor,
        layer_input: LayerInput,
        index: int,
        *,
        max_faces: int,
    ) -> Refinement:
        """Cut along straight lines, or along the borders between winners."""
        low, high, signs, place = layer_input.low, layer_input.high, layer_input.signs, self.place
        if place.kernel is not None and isinstance(cut, PiecewiseScalar) and signs and signs.clear:
            layer = ClearLayer(z, signs.positive, error, cut.jump)
            made = refine_compiled(place.kernel, mesh, layer, index, max_faces=max_faces)
            if made is not None:
                return made
        functions = cut.functions(z, error, low, high, signs)
        if functions is not None:
            return refine(mesh, functions, index, max_faces=max_faces, gpu=place.gpu)
        if not isinstance(cut, MaxNonlinearity):
            raise TypeError(f"{type(cut).__name__} does not say what to cut by")
        if cut.smallest:
            z, low, high = -z, -high, -low
        cutting = z, cut.groups, error, low, high, index
        return refine_maxima(mesh, *cutting, max_faces=max_faces, gpu=place.gpu)


def _more_memory(memory: int) -> str:
    """What to do about an amount of memory that is too small."""
    if memory < _LEAST_MEMORY:
        return (
            f"Less than {_LEAST_MEMORY:,} bytes is hardly ever enough: raise memory, or leave it "
            "out to use what is free."
        )
    fits = memory // _MESH_BYTES
    return (
        f"What is cut at once must stay below {fits:,} regions: raise memory, or choose a smaller "
        "domain."
    )
