"""Run a captured network over a mesh, step by step, in tiles where it is too large.

When a mesh and its activations would not fit the memory, the run goes back to the last layer after
which they were small. The faces of that mesh are divided among tiles, which are carried through the
rest of the network one after the other and joined at the end. A single face that is too large is
divided by artificial lines, which are removed at the end.

To cancel a run, let its ``report`` raise an exception, for example after it has looked whether
anybody still waits for the result. It is called after every layer of every tile; the exception
passes through ``run`` unchanged, and nothing is left behind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, inf, prod
from typing import Any

import torch
from torch import Tensor

from splinecam._util.backend import release_memory
from splinecam.arrangement.crossings import Ambiguities
from splinecam.engine.activations import State, first_state, join_states, require_no_overflow
from splinecam.engine.artificial_cuts import (
    ARTIFICIAL,
    DividedFace,
    divide_face,
    divide_faces,
    sample_face,
)
from splinecam.engine.evaluate import evaluate
from splinecam.engine.open_part import Question, open_part
from splinecam.engine.plan import Plan, to_device
from splinecam.engine.step import COARSE, Computation, Report, TooLarge, Waiting, silent
from splinecam.engine.tiling import MeshTile, sorted_faces, tile_of
from splinecam.errors import LimitError, option
from splinecam.geometry.domain import Domain, Frame
from splinecam.geometry.subdivision import Mesh, kept, polygon_mesh
from splinecam.network.nonlinearities import PiecewiseScalar
from splinecam.network.ops.bounds import Bound
from splinecam.network.program import Program

# The share of the memory that tiles are to fill. As long as nothing is known of them, a tile is one
# of so many.
_FILLED, _PROBES = 0.7, 16
_LARGEST = 1 / 10  # the share of the memory for the result of a tile
_LEAVES = 6  # how often faces are halved to find those that lie together
_FEWER = 0.6  # the share of faces at most that are carried on without the others
_GRID, _COARSE = 6, 4096  # how often the domain is halved if fewer faces are left undivided
_PARTS = 4  # of a single face that is too large, where nothing is known of its regions


@dataclass(frozen=True)
class Outcome:
    """The result of a run: the final mesh in local coordinates and the network's output on it.

    output: (V, n_out) at the vertices; error: (n_out,) its rounding error; layer_errors: (n,) that
    of the units of each layer; ambiguities: places that rounding leaves open, each with the name of
    the layer; smoothing: what was replaced in a network with smooth functions, which the engine
    itself does not know; settled: (F,) the faces on which a question was settled before all layers
    had divided them, None without a question; undecided: (F,) those of them on which it is open, as
    the run was ended, None for none.
    """

    mesh: Mesh
    output: Tensor
    error: Tensor
    layer_errors: dict[str, Tensor]
    ambiguities: list[tuple[str, Ambiguities]]
    smoothing: Any = None
    settled: Tensor | None = None
    undecided: Tensor | None = None

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
            None if self.settled is None else self.settled.clone(),
            None if self.undecided is None else self.undecided.clone(),
        )


def run(
    program: Program,
    domain: Domain,
    *,
    memory: int | None = None,
    max_regions: int | None = None,
    report: Report = silent,
    compiled: bool = True,
    plan: Plan | None = None,
    question: Question | None = None,
    is_ended: Callable[[], bool] | None = None,
) -> Outcome:
    """Partition the domain by the program's network within ``memory`` bytes.

    report: is told of every layer, and may raise an exception to cancel the run. compiled: use the
    compiled kernel if it is installed. plan: where to compute instead of on the program's device,
    with which memory and kernel. question: divide faces only as long as it is open on them.
    is_ended: is asked before each step whether to return what is settled so far. If it is given,
    that is returned beyond max_regions, too.
    """
    plan = plan or Plan.of(program, memory=memory, compiled=compiled)
    part = None
    if question is not None:
        with torch.no_grad():
            part = open_part(plan.first, domain, question, report, is_ended)
    with torch.inference_mode():
        work = Computation(plan, max_regions, report, open_part=part, is_ended=is_ended)
        found = outcome_of(work, finish(work, start(plan, domain)))
    return found.kept()


def start(plan: Plan, domain: Domain) -> Waiting:
    """The domain before the first stage, at the plan's first place."""
    mesh = polygon_mesh(Frame.of(domain).to_local(domain.corners))
    return Waiting(first_state(plan.first.program, mesh, domain.embed(domain.corners)), 0)


def outcome_of(work: Computation, end: State) -> Outcome:
    """The outcome of a state at the end of the network, where the plan wants it."""
    name = work.program.output_name
    output = end.rows[name].reshape(end.mesh.num_vertices, -1)
    error = end.bounds[name].error.reshape(-1)
    require_no_overflow(work.layer_errors, error)
    settled = end.settled
    if settled is None and work.open_part is not None:
        settled = torch.zeros(end.mesh.num_faces, dtype=torch.bool, device=output.device)
    marks = {"settled": settled, "undecided": end.undecided}
    found = Outcome(end.mesh, output, error, work.layer_errors, end.ambiguities, **marks)
    if work.plan.make_second is None:
        return found
    if not work.at_second:
        work.plan.log_device()
    return to_device(found, work.plan.second.device)


def finish(
    work: Computation, start: Waiting, share: float = 1.0, *, all_open: bool = True
) -> State:
    """Carry a state to the end of the network, in tiles if it is too large.

    share: the part of the whole mesh that it is, as it is reported. all_open: whether the question,
    if there is one, is known to be open on all its faces.
    """
    sizes: dict[int, tuple[int, int]] = {}  # the faces and the bytes of the mesh before each stage
    open_: Tensor | None = None

    def see(at: Waiting) -> bool:
        nonlocal open_
        if at.index not in sizes:
            sizes[at.index] = at.faces, 0 if work.is_tiny(at.state) else work.size(at.state)
            if at.index > start.index or not all_open:
                open_ = _open_faces(work, at)
            if open_ is not None and bool(open_.any()) and _stays(work, at):
                at.state.settled, open_ = ~open_, None
        return open_ is not None

    at, reason = work.carry(start.copy(), share, wait=see)
    if open_ is not None:
        return _open_only(work, at, open_, share)
    if reason is None:
        return _with_values(work, at.state)
    if at.state.settled is not None and isinstance(reason, TooLarge):
        return _open_only(work, at, ~at.state.settled, share)
    if not isinstance(reason, TooLarge):
        return _given_up(work, at, reason)
    small = at.faces == 1 or work.size(at.state) <= COARSE * work.room
    found = at if small else None
    del at  # what is too large is not to be held
    release_memory()
    return _in_tiles(work, _divisible(work, start, found, reason, sizes), share)


def _given_up(work: Computation, at: Waiting, reason: LimitError) -> State:
    """The end of a state that is not carried on, if that is wanted: all its faces stay whole."""
    if work.is_ended is None:
        raise reason
    work.is_ended = lambda: True  # other tiles are not carried on, either
    mesh, part, settled = at.state.mesh, work.open_part, at.state.settled
    name, shape = work.program.output_name, work.program.output_shape
    if part is not None and at.faces < _COARSE:  # squares know more than such faces can say
        mesh, settled = divide_faces(State(mesh, {}, {}), part.grid(_GRID)).mesh, None
        new, last = mesh.edge_layer == ARTIFICIAL, len(work.program.layers)  # after all layers
        mesh = replace(
            mesh,
            edge_layer=mesh.edge_layer.masked_fill(new, last),
            edge_unit=mesh.edge_unit.masked_fill(new, 0),
            vertex_layer=mesh.vertex_layer.masked_fill(mesh.vertex_layer == ARTIFICIAL, last),
        )
    undecided = torch.ones(mesh.num_faces, dtype=torch.bool, device=mesh.uv.device)
    values = mesh.uv.new_zeros((mesh.num_vertices, *shape))
    if part is not None:
        values = part.values(mesh.uv).nan_to_num_().view(values.shape)  # nan where undecided
        undecided = part.faces(mesh, work.place.kernel, settled)
    none, marks = torch.zeros_like(values[:1]), (torch.ones_like(undecided), undecided)
    end = State(mesh, {name: values}, {name: Bound(none, none)}, ambiguities=at.state.ambiguities)
    end.settled, end.undecided = marks
    return end


def _open_faces(work: Computation, at: Waiting) -> Tensor | None:
    """The faces (F,) on which the question is open; None if it pays to carry on with all."""
    last = len(work.program.stages) - 1
    if work.open_part is None or at.layer_input is not None or not 0 < at.index < last:
        return None
    open_ = work.open_part.faces(at.state.mesh, work.place.kernel, at.state.settled)
    few = at.state.settled is not None or int(open_.sum()) < _FEWER * at.faces
    return open_ if few else None


def _stays(work: Computation, at: Waiting) -> bool:
    """Whether settled faces may stay in the mesh: the compiled kernel leaves them as they are."""
    place, left = work.place, range(at.index, len(work.program.stages))
    layers = place.program.layers[at.index :]
    return (
        place.kernel is not None
        and not work.may_move
        and all(place.program.dense(i) is not None for i in left)
        and all(isinstance(layer, PiecewiseScalar) for layer in layers)
    )


def _with_values(work: Computation, end: State) -> State:
    """The end of the network, with outputs at the corners of settled faces, too."""
    part, kernel, name = work.open_part, work.place.kernel, work.program.output_name
    if end.settled is not None and part is not None and kernel is not None:
        row, _ = kernel.open_corners(end.mesh, end.settled)
        closed, rows = (row < 0).nonzero()[:, 0], end.spread().rows[name]
        part.fill(kernel, rows.view(len(rows), -1), closed, end.mesh.uv)
        end.rows, end.place = {name: rows}, None
    return end


def _open_only(work: Computation, at: Waiting, open_: Tensor, share: float) -> State:
    """Carry the faces on which the question is open to the end; the others stay whole."""
    whole, part = at.state, work.open_part
    assert part is not None
    tiles = [tile_of(whole.mesh, f.nonzero()[:, 0], rim=True) for f in (~open_, open_)]
    values = part.values(tiles[0].mesh.uv).view(-1, *work.program.output_shape)
    name, count = work.program.output_name, tiles[0].mesh.num_faces
    none = torch.zeros_like(values[:1])
    settled = torch.ones(count, dtype=torch.bool, device=values.device)
    ends = [State(tiles[0].mesh, {name: values}, {name: Bound(none, none)}, settled=settled)]
    if tiles[1].mesh.num_faces:
        work.finished += count
        ends.append(
            finish(work, at.spread().select(tiles[1], work.block).filled(work.block), share)
        )
        work.finished -= count
    joined = join_states(whole.mesh, tiles[: len(ends)], ends)
    joined.ambiguities[:0] = whole.ambiguities
    return joined


def _divisible(
    work: Computation,
    start: Waiting,
    at: Waiting | None,
    reason: TooLarge,
    sizes: dict[int, tuple[int, int]],
) -> Waiting:
    """What is to be divided: the last mesh that is small, of many faces if possible.

    at: where a state was too large, if that can be divided.
    """
    if at is not None and (at.faces > 1 or work.divides_face(at.state)):
        return at
    small = [k for k, (n, size) in sizes.items() if n > 1 and size <= COARSE * work.room]
    if small:
        return _again(work, start, max(small))
    single = [k for k, (n, _) in sizes.items() if n == 1]
    if single:
        at = _again(work, start, max(single))
        if at.layer_input is None:
            given = evaluate(work.program, at.index, at.state, work.place, work.block)
            at = replace(at, layer_input=given)
        if at.layer_input is not None and work.divides_face(at.state):
            return at
    many = [k for k, (n, _) in sizes.items() if n > 1]
    if not many:
        raise LimitError(str(reason))
    return _again(work, start, min(many))


def _again(work: Computation, start: Waiting, index: int) -> Waiting:
    """The state before a stage, which is computed again from a start."""
    at, reason = work.carry(start.copy(), 0.0, stop=index)
    if reason is not None:
        raise LimitError(str(reason))
    return at


# -- tiles ------------------------------------------------------------------------------------


def _in_tiles(work: Computation, at: Waiting, share: float) -> State:
    """Carry a state that is too large to the end of the network in tiles."""
    whole = at.state
    joined = _in_parts(work, at, share) if at.faces == 1 else _joined(work, at, share)
    joined.ambiguities[:0] = whole.ambiguities
    return joined


def _joined(work: Computation, at: Waiting, share: float, face: DividedFace | None = None) -> State:
    """Carry the tiles of a state to the end of the network, and join them.

    face: given if the faces are parts of one. A region beside an artificial edge does not
    count as finished then, as the next tile may have another part of it.
    """
    mesh, held, kept = at.state.mesh, work.held, work.kept
    order = sorted_faces(mesh, _LEAVES)
    work.held += work.size(at.state)
    tiles: list[MeshTile] = []
    ends: list[State] = []
    done, first, size = work.finished, 0, max(1, at.faces // _PROBES)
    numbers = sum(prod(rows.shape[1:]) for rows in at.state.rows.values())
    filled = 8 * numbers * mesh.num_vertices / at.faces  # bytes, as a tile has rows everywhere
    while first < at.faces:
        if at.index in work.need:
            size = int(_FILLED * work.room / work.need[at.index])
        if first:  # while tiles are joined, one of them is there several times
            size = min(size, int(_LARGEST * work.memory * first / (work.kept - kept)))
        size = max(1, min(size, int(_FILLED * work.room / filled)))
        tile = tile_of(mesh, order[first : first + size], rim=True)
        end = _tile(work, at.select(tile, work.block).filled(work.block), share / at.faces)
        release_memory()
        if end is None:
            size = max(1, size // 2)
            continue
        first += tile.mesh.num_faces
        tiles.append(tile)
        ends.append(end)
        work.kept += end.mesh.nbytes + sum(rows.nbytes for rows in end.rows.values())
        work.finished += end.mesh.num_faces
        if face is not None:
            work.finished = max(done, work.finished - face.artificial_pieces(end.mesh))
        del end, tile  # the last ones are not to be held while all are joined
        if work.kept > work.memory:
            raise LimitError(
                f"The regions alone exceed {option('memory', f'{work.memory:,}')} bytes: "
                f"{work.finished:,} are done, and more are to come. Raise {option('memory')}, or "
                "let sc.atlas keep the regions on disk."
            )
    work.finished, work.held, work.kept = done, held, kept
    at.state.rows, at.state.pending = {}, None  # only its mesh is needed now
    return join_states(mesh, tiles, ends)


def _tile(work: Computation, tile: Waiting, share: float) -> State | None:
    """The end of a tile; None if it has more than one face and is too large.

    share: of each face.
    """
    faces, work.worst, work.measured = tile.faces, 0, True
    if faces == 1:
        return finish(work, tile, share)
    at, reason = work.carry(tile, faces * share)
    if isinstance(reason, TooLarge):
        work.need[tile.index] = max(work.need.get(tile.index, 0.0), 2 * work.room / faces)
        return None
    if reason is not None:
        return _given_up(work, at, reason)
    work.need[tile.index] = work.worst / faces
    return at.state


def _in_parts(work: Computation, at: Waiting, share: float) -> State:
    """Carry a state of a single face that is too large to the end of the network in parts."""
    state, index, layer_input = at.state, at.index, at.layer_input
    layer = work.program.layers[index]
    if layer_input is None:
        raise ValueError("the units of the layer are not known")
    sample = sample_face(state, layer, layer_input)
    parts = _PARTS
    if sample.regions < inf:
        each = work.per_region(index, layer_input)
        parts = ceil(sample.regions * each / (_FILLED * work.room))
    lines = work.choose_lines(sample, max(2, parts))
    face = divide_face(state, index, layer.source, layer_input, lines)
    if face.state.mesh.num_faces == 1:  # the lines are as close to the border as rounding
        raise LimitError(str(work.too_large(layer, 1)))
    # Parts are united again across the lines, which settled and complete faces cannot be.
    question, work.open_part = work.open_part, None
    joined = _joined(work, Waiting(face.state, index, face.layer_input), share, face)
    work.open_part = question
    if joined.undecided is not None:  # parts that are not all complete cannot be united
        return _given_up(work, at, work.ended(at))
    found = face.rejoined(joined, work.program, work.layer_errors, work.block)
    if work.max_regions is not None and work.finished + found.mesh.num_faces > work.max_regions:
        return _given_up(work, at, work.too_many(layer, 1))
    return found
