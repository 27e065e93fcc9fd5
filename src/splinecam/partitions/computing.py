"""Compute the outcome of a network over domains: exact, or within the bounds of ``smooth=``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

import torch

from splinecam.engine.plan import Plan
from splinecam.engine.run import Outcome, run
from splinecam.engine.step import Report
from splinecam.errors import LimitError, SplineCamError, option
from splinecam.geometry.domain import Domain
from splinecam.network.nonlinearities import SmoothScalar
from splinecam.network.program import Program
from splinecam.partitions.request import Smooth
from splinecam.questions.partition_data import Smoothing, SmoothLayer
from splinecam.smooth.smoothing import Note, Smoothed, smoothed


def is_smooth(program: Program) -> bool:
    """Whether a network has smooth functions."""
    return any(isinstance(layer, SmoothScalar) for layer in program.layers)


def compute(
    plan: Plan,
    domain: Domain,
    smooth: Smooth | None,
    *,
    max_regions: int | None,
    report: Report,
    note: Note = lambda what, share: None,
) -> Outcome:
    """The outcome of a domain; if the network has smooth functions, that of one near it.

    report: called after every layer; an exception that it raises ends the computation. note: called
    where the work on smooth functions begins something, and with the share of it that is done.
    """
    real, memory = plan.last.program, plan.last.memory
    if smooth is None or not is_smooth(real):
        return run(plan.first.program, domain, max_regions=max_regions, report=report, plan=plan)

    def partitioned(program: Program) -> Outcome:
        limit = None if smooth.refine is not None else max_regions
        try:
            at = Plan.of(program, memory=memory)
            return run(program, domain, max_regions=limit, report=report, plan=at)
        except LimitError as error:
            raise LimitError(
                f"{error} A larger {option('smooth', '')} makes fewer regions."
            ) from None

    found = smoothed(
        real,
        domain,
        smooth.allowed,
        partitioned,
        undecided=smooth.undecided_share,
        max_regions=max_regions,
        memory=memory,
        note=note,
    )
    return replace(found.outcome, smoothing=record_of(real, found))


@dataclass(frozen=True)
class SmoothWindow:
    """Runs networks with smooth functions over domains, as ``run_window`` does with others."""

    smooth: Smooth

    def __call__(
        self,
        plan: Plan,
        window: list[Domain],
        *,
        max_regions: int | None = None,
        report: Report = lambda name, regions, share: None,
        first: int = 0,
    ) -> Iterator[Outcome]:
        """Yield the outcome of each domain, in order, which is computed when it is asked for."""
        for number, domain in enumerate(window, first):
            # The contexts end before an outcome is yielded, or they would hold for the caller, too.
            with torch.inference_mode(False), torch.no_grad():
                try:
                    found = compute(
                        plan, domain, self.smooth, max_regions=max_regions, report=report
                    )
                except SplineCamError as error:
                    kind = LimitError if isinstance(error, LimitError) else SplineCamError
                    raise kind(f"domains[{number}]: {error}") from None
            yield found


def record_of(real: Program, found: Smoothed) -> Smoothing:
    """What was replaced, for readers."""
    layers = tuple(
        SmoothLayer(
            layer.name,
            layer.curve.name,
            prod(layer.shape),
            int(found.tables[layer.name].pieces.sum()),
        )
        for layer in real.layers
        if isinstance(layer, SmoothScalar)
    )
    return Smoothing(found.tolerance, found.bounds, layers, found.refined, found.tables)
