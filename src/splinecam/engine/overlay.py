"""The common refinement of the partitions of two networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod

import torch
from torch import Tensor

from splinecam._util.arrays import take
from splinecam._util.backend import backend_of
from splinecam._util.tolerances import EPS, OVERLAY_SLACK, SAFETY
from splinecam.arrangement.zero_sets import parents_of
from splinecam.engine.activations import State, empty_table, first_state, join_states, rows_in_block
from splinecam.engine.affine_maps import fit_maps
from splinecam.engine.plan import Plan, overlaying_kernel
from splinecam.engine.run import Outcome, Report, Run, TooLarge, faces_within, run
from splinecam.engine.tiling import cut_in_two
from splinecam.errors import LimitError, option
from splinecam.geometry.domain import Domain, Frame
from splinecam.geometry.subdivision import Mesh
from splinecam.kernels import Kernel
from splinecam.network.capture.pairs import Chains, Pair, Stacked
from splinecam.network.ops import Bound
from splinecam.network.program import Program

# A value inside a face follows from those at three of its corners. The first lies farthest from the
# middle, the second farthest from the first, and the third farthest from the line through both, so
# that the errors of all add up to no more than this many times the largest one.
_FITTED = 7

# Lines are compared by this many parts of the values at corners, mixed into one number.
_DIGITS, _MIXER = 2.0**30, 0x2545F4914F6CDD1D


def fitted_error(found: Outcome) -> Tensor:
    """The rounding error (n,) of outputs that follow from those at the corners of a face."""
    largest = torch.maximum(found.output.amax(0), -found.output.amin(0))
    return _FITTED * found.error + SAFETY * EPS * largest


def lines_coincide(programs: Sequence[Program], domain: Domain) -> bool:
    """Whether the first layers of two programs have units that vanish on the same line.

    Their partitions then have no overlay. Lines are told by the functions' values at the corners
    of the domain, divided by the largest one. This may overlook some.
    """
    known = []
    for program in programs:
        stage, x = program.stages[0], domain.embed(domain.corners).to(program.device)
        if stage.layer is None:
            return False
        z = program.advance(0, {program.input_name: x})[stage.layer.source].flatten(1)
        z = z[:, (z.amin(0) < 0) & (z.amax(0) > 0)]
        size, place = z.abs().max(0)
        digits = (z / (size * z.gather(0, place[None])[0].sign()) * _DIGITS).round().long()
        factors = torch.arange(1, z.shape[0] + 1, device=z.device) * _MIXER
        known.append((digits * factors[:, None]).sum(0))
    return bool(torch.isin(known[0], known[1]).any())


def overlay_outcomes(
    first: Outcome, second: Outcome, kernel: Kernel, layers: int, max_faces: int
) -> Outcome | str:
    """The common refinement of two outcomes, with the outputs of both side by side.

    layers: those of the first network, after which the second one's are numbered. Returns why there
    is none where edges of both touch ("degenerate"), or where there are "too many faces".
    """
    corners = int((first.mesh.vertex_layer < 0).sum())
    given = first.mesh, second.mesh, corners, OVERLAY_SLACK
    made = kernel.overlay(*given, layers=layers, max_faces=max_faces)
    if isinstance(made, str):
        return made
    shape = (made.mesh.num_vertices, 2 * first.output.shape[1])
    output = empty_table(shape, first.output.device)
    kernel.overlay_values(made, first.output.contiguous(), second.output.contiguous(), output)
    return Outcome(
        made.mesh.kept(),
        output,
        torch.cat([fitted_error(first), fitted_error(second)]),
        first.layer_errors | second.layer_errors,
        first.ambiguities + second.ambiguities,
    )


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


@dataclass(frozen=True)
class Together:
    """The outcome for two networks, whose outputs are side by side, (V, 2 n).

    same: (n,) whether each output of both networks is known to be the same function.
    """

    outcome: Outcome
    same: Tensor


def run_both(
    pair: Pair,
    domain: Domain,
    plan: Callable[[Program], Plan],
    *,
    max_regions: int | None = None,
    report: Report = lambda name, regions, share: None,
    overlaid: bool = True,
) -> Together:
    """Partition the domain by both networks together.

    plan: where to run a program; overlaid: lay two partitions over each other where that can be
    done.
    """
    return _Computation(pair, domain, plan, max_regions, report).result(overlaid=overlaid)


@dataclass(frozen=True)
class _Computation:
    """The arguments of :func:`run_both`."""

    pair: Pair
    domain: Domain
    plan: Callable[[Program], Plan]
    max_regions: int | None
    report: Report

    def result(self, *, overlaid: bool) -> Together:
        """The outcome, in the fastest of the ways that are possible."""
        pair, chains = self.pair, Chains.of(self.pair)
        overlaid = overlaid and overlaying_kernel(self.plan(pair.a)) is not None
        if overlaid:  # edges of units that both networks have lie on each other
            overlaid = not pair.shared and not lines_coincide((pair.a, pair.b), self.domain)
        if chains is not None and not overlaid:
            return self._run_stacked(chains.stacked())
        first = self._run(pair.a)
        if pair.equal:
            return Together(_repeated(first), torch.ones_like(first.error, dtype=torch.bool))
        found, later = None, self
        if overlaid:
            found, later = self._overlay(first), self._again
        if found is None and chains is not None:
            return later._run_stacked(chains.stacked())
        if found is None:
            given = self.plan(pair.b_after_a), self.max_regions, later.report
            found = run_over(first, pair, self.domain, *given)
        return Together(found, torch.zeros_like(first.error, dtype=torch.bool))

    @property
    def _again(self) -> _Computation:
        """The same for a second attempt, in which no share of the work is reported anew."""
        return replace(self, report=lambda name, regions, share: self.report(name, regions, 0.0))

    def _run(self, program: Program) -> Outcome:
        return run(
            program,
            self.domain,
            max_regions=self.max_regions,
            report=self.report,
            plan=self.plan(program),
        )

    def _run_stacked(self, stack: Stacked) -> Together:
        """Run both networks as one."""
        return _separated(self._run(stack.program), stack, self.pair)

    def _overlay(self, first: Outcome) -> Outcome | None:
        """Run the second network and lay its partition over that of the first, if that can be."""
        second, plan = self._run(self.pair.b), self.plan(self.pair.a)
        kernel, fits = overlaying_kernel(plan), faces_within(plan.first.memory)
        if kernel is None:
            return None
        most = fits if self.max_regions is None else min(fits, self.max_regions)
        found = overlay_outcomes(first, second, kernel, len(self.pair.a.layers), most)
        if found == "too many faces" and most < fits:
            raise LimitError(
                "The partition of both networks exceeds "
                f"{option('max_regions', f'{self.max_regions:,}')}; that of the first "
                f"has {first.mesh.num_faces:,} regions, and that of the second "
                f"{second.mesh.num_faces:,}. Raise {option('max_regions')}, or choose a "
                "smaller domain."
            )
        return None if isinstance(found, str) else found


def _repeated(found: Outcome) -> Outcome:
    """The outcome of two equal networks."""
    both = torch.cat([found.output, found.output], 1)
    return replace(found, output=both, error=torch.cat([found.error, found.error]))


def _separated(found: Outcome, stack: Stacked, pair: Pair) -> Together:
    """The outcome of stacked networks in terms of the units of each."""
    device, mesh, shared = found.mesh.uv.device, found.mesh, pair.shared
    units = [(a.to(device), b.to(device)) for a, b in stack.units]
    sizes = [prod(layer.shape) for layer in stack.program.layers]
    layers, numbers, errors = [], [], {}
    for i, ((a, b), size) in enumerate(zip(units, sizes, strict=False)):
        layer, number = (torch.full((size,), -1, device=device) for _ in range(2))
        # Units that both have count as those of the first.
        for places, index in ((b, len(pair.a.layers) + i - shared), (a, i)):
            layer[places] = index
            number[places] = torch.arange(places.shape[0], device=device)
        layers.append(layer)
        numbers.append(number)
        error = found.layer_errors[stack.program.layers[i].name].to(device)
        errors[pair.a.layers[i].name] = error[a]
        if i >= shared:
            errors[pair.b.layers[i].name] = error[b]
    edge_layer, edge_unit = mesh.edge_layer, mesh.edge_unit
    if layers:
        first = torch.tensor([0, *accumulate(sizes)], device=device)
        inner = edge_layer >= 0
        place = (first[edge_layer.clamp(min=0)] + edge_unit).clamp(min=0)
        edge_layer = torch.where(inner, torch.cat(layers)[place], edge_layer)
        edge_unit = torch.where(inner, torch.cat(numbers)[place], edge_unit)
    made = torch.full_like(mesh.vertex_layer, -1)
    for index in range(len(pair.a.layers) + len(pair.b.layers) - shared):
        # A vertex is made by the last layer that draws an edge to it.
        edge = (edge_layer == index).nonzero()[:, 0]
        made.index_fill_(0, take(mesh.edges, edge).view(-1), index)
    a, b = units[-1]
    columns = torch.cat([a, b])
    apart = found.output.shape[1] == columns.shape[0]  # no output is common to both
    outcome = replace(
        found,
        mesh=replace(mesh, edge_layer=edge_layer, edge_unit=edge_unit, vertex_layer=made),
        output=found.output if apart else found.output[:, columns],
        error=found.error[columns],
        layer_errors=errors,
    )
    return Together(outcome, a == b)
