"""One network run over the partition of another one.

The second network starts with the mesh of the first one instead of the undivided domain, so that
both keep all that makes a run fast. It begins after the layers that both networks share, whose
edges the mesh has already. The outputs of the first network are affine on each of its own faces,
from which they follow at the vertices that the second network adds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.csr import take
from splinecam._util.tolerances import EPS
from splinecam.arrangement.overlay import parents_of
from splinecam.engine.activations import State, empty_table, rows_in_block
from splinecam.engine.affine_maps import fit_maps
from splinecam.engine.overlaying import fitted_error
from splinecam.engine.plan import Plan
from splinecam.engine.run import Outcome, Report, Run, TooLarge, first_state, join_states
from splinecam.engine.tiling import cut_in_two
from splinecam.errors import LimitError
from splinecam.geometry.domain import Domain
from splinecam.geometry.frame import Frame
from splinecam.geometry.subdivision import Mesh
from splinecam.network.capture.pairs import Pair
from splinecam.network.ops import Bound
from splinecam.network.program import Program

__all__ = ["run_over"]

_BYTES = 2 * 8  # of a number per vertex, before and after the first stage


def run_over(
    first: Outcome, pair: Pair, domain: Domain, plan: Plan, max_regions: int | None, report: Report
) -> Outcome:
    """Run the second network over the partition of the first; the outputs are side by side.

    plan: of ``pair.b_after_a``.
    """
    edges = torch.arange(first.mesh.num_edges, device=first.mesh.uv.device)
    # Pieces of an edge inherit its provenance, so the number of the edge travels with them.
    marked = replace(first.mesh, edge_layer=torch.full_like(edges, -1), edge_unit=edges)
    with torch.inference_mode():
        second = _Continued(pair, domain, Run(plan, max_regions, report)).outcome(marked).kept()
    mesh = second.mesh
    source = torch.where(mesh.edge_layer < 0, mesh.edge_unit, -1)
    output, error = _first_outputs(first, mesh, source)
    old = source.clamp(min=0)
    return replace(
        second,
        mesh=replace(
            mesh,
            edge_layer=torch.where(source < 0, mesh.edge_layer, take(first.mesh.edge_layer, old)),
            edge_unit=torch.where(source < 0, mesh.edge_unit, take(first.mesh.edge_unit, old)),
        ),
        output=torch.cat([output, second.output], 1),
        error=torch.cat([error, second.error]),
        layer_errors=first.layer_errors | second.layer_errors,
        ambiguities=first.ambiguities + second.ambiguities,
    )


@dataclass(frozen=True)
class _Continued:
    """A run of the second network over a mesh of the first."""

    pair: Pair
    domain: Domain
    run: Run

    @property
    def first(self) -> int:
        """The stage with which the run begins."""
        return len(self.pair.a.layers)

    def outcome(self, mesh: Mesh) -> Outcome:
        """The refined mesh, and the outputs of the second network on it."""
        try:
            return self.run.result(self._finish(mesh, 1.0))
        except TooLarge as reason:
            raise LimitError(str(reason)) from None

    def _finish(self, mesh: Mesh, share: float) -> State:
        """Carry a mesh to the end of the second network, in tiles if its values are too many."""
        run, shared = self.run, self.pair.shared
        before = self.pair.b.widths[shared - 1] if shared else self.domain.dim
        width = before + run.program.widths[self.first]
        if mesh.num_faces > 1 and _BYTES * width * mesh.num_vertices > run.memory:
            if run.may_move:  # there may be more memory
                run.at_second = True
                return self._finish(mesh, share)
            tiles, ends, done = cut_in_two(mesh), [], run.finished
            for tile in tiles:
                ends.append(self._finish(tile.mesh, share / 2))
                run.finished += ends[-1].mesh.num_faces
            run.finished = done
            return join_states(mesh, tiles, ends)
        return run.finish(self._state(mesh), self.first, share)

    def _state(self, mesh: Mesh) -> State:
        """The mesh, and the values that the second network has there after the shared layers."""
        program, frame = self.run.program, Frame.of(self.domain)
        uv = frame.to_plane(mesh.uv).to(self.domain.origin.device)
        if not self.pair.shared:
            return first_state(program, mesh, self.domain.embed(uv))
        names = program.stages[self.first].live_in
        rows, ranges = {}, _Ranges(program, self.pair.shared)
        step = rows_in_block(self.run.block, [uv.new_empty((1, max(program.widths)))])
        for start in range(0, mesh.num_vertices, step):
            x = self.domain.embed(uv[start : start + step]).to(program.device)
            live = ranges.run(x)
            for name in names:
                if name not in rows:
                    shape = (mesh.num_vertices, *live[name].shape[1:])
                    rows[name] = empty_table(shape, program.device)
                rows[name][start : start + step] = live[name]
        return State(mesh.to(program.device), rows, ranges.bounds(names))


class _Ranges:
    """Runs the first layers of a program at points, and finds the ranges of all that they take.

    low, high: of the sources of the layers, (1, ...) each, over all points so far.
    """

    def __init__(self, program: Program, layers: int) -> None:
        self.program = program
        self.stages = program.stages[:layers]
        self.magnitude: Tensor | None = None
        self.low: list[Tensor] = []
        self.high: list[Tensor] = []

    def run(self, x: Tensor) -> dict[str, Tensor]:
        """The live values after the layers at inputs (B, ...)."""
        live, seen = {self.program.input_name: x}, []
        for i, stage in enumerate(self.stages):
            live = self.program.advance(i, live)
            if stage.layer is not None:
                seen.append(live[stage.layer.source])
                live = {**live, stage.layer.result: stage.layer.apply(live[stage.layer.argument])}
        low, high = [z.amin(0) for z in seen], [z.amax(0) for z in seen]
        magnitude = x.abs().amax(0, keepdim=True)
        if self.magnitude is not None:
            magnitude = torch.maximum(magnitude, self.magnitude)
            low = list(map(torch.minimum, low, self.low))
            high = list(map(torch.maximum, high, self.high))
        self.magnitude, self.low, self.high = magnitude, low, high
        return live

    def bounds(self, names: tuple[str, ...]) -> dict[str, Bound]:
        """Bounds of some of the live values after the layers."""
        if self.magnitude is None:
            raise ValueError("no points were run")
        bounds = {self.program.input_name: Bound(self.magnitude, EPS * self.magnitude)}
        for i, stage in enumerate(self.stages):
            bounds = self.program.bounds(i, bounds)
            layer = stage.layer
            if layer is not None:
                low, high = self.low[i].reshape(-1), self.high[i].reshape(-1)
                bounds[layer.result] = layer.bound(bounds[layer.argument], low, high)
        return {name: bounds[name] for name in names}


def _first_outputs(first: Outcome, mesh: Mesh, source: Tensor) -> tuple[Tensor, Tensor]:
    """The outputs (V, n) of the first network at the vertices of a refined mesh, and their errors.

    source: (E,) the edge of the first mesh of which each edge is a piece, -1 for new ones.
    """
    old, known = first.mesh, first.mesh.num_vertices
    output = empty_table((mesh.num_vertices, first.output.shape[1]), first.output.device)
    output[:known] = first.output
    fit = fit_maps(old, first.output)
    face = parents_of(old, mesh, source)
    around = torch.empty_like(mesh.vertex_layer)
    around[mesh.corner_vertices()] = take(face, mesh.owners())
    rows = max(1, backend_of(output.device).numbers // (4 * output.shape[1]))
    for start in range(known, mesh.num_vertices, rows):
        some = slice(start, min(start + rows, mesh.num_vertices))
        mine = around[some]
        u, v = (mesh.uv[some] - take(fit.anchor, mine)).unbind(1)
        slope = take(fit.weight, mine)
        rise = slope[:, :, 0] * u[:, None] + slope[:, :, 1] * v[:, None]
        output[some] = take(fit.value, mine) + rise
    return output, fitted_error(first)
