"""The common refinement of the partitions of two networks.

There are three ways. Networks that have no units in common are run one after the other, and their
partitions are laid over each other. Two chains of dense layers that have some in common, or whose
partitions touch, are stacked into one chain, which is run like any network. Of other networks the
first one divides the domain, and the second one starts with the mesh of the first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod

import torch
from torch import Tensor

from splinecam._util.csr import take
from splinecam.engine.one_over_another import run_over
from splinecam.engine.overlaying import lines_coincide, overlay_outcomes
from splinecam.engine.plan import Plan, overlaying_kernel
from splinecam.engine.run import Outcome, Report, faces_within, run
from splinecam.errors import LimitError
from splinecam.geometry.domain import Domain
from splinecam.network.capture.pairs import Pair
from splinecam.network.capture.stacking import Chains, Stacked
from splinecam.network.program import Program

__all__ = ["Together", "run_both"]


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
                f"The partition of both networks exceeds max_regions={self.max_regions:,}; that of "
                f"the first has {first.mesh.num_faces:,} regions, and that of the second "
                f"{second.mesh.num_faces:,}. Raise max_regions, or choose a smaller domain."
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
