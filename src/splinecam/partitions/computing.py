"""Compute the outcome of a network over domains: exact, or within the bounds of ``smooth=``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod
from typing import Any

import torch

from splinecam.engine.batched import run_window
from splinecam.engine.open_part import Question, may_pay
from splinecam.engine.plan import Plan
from splinecam.engine.run import Outcome, run
from splinecam.engine.step import Report, silent
from splinecam.errors import LimitError, SplineCamError, option
from splinecam.geometry.domain import Domain
from splinecam.network.nonlinearities import SmoothScalar
from splinecam.network.program import Program
from splinecam.partitions.request import Request, Smooth
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
    question: Question | None = None,
    is_ended: Callable[[], bool] | None = None,
) -> Outcome:
    """The outcome of a domain, with linear pieces in place of smooth functions.

    report: called after every layer; an exception that it raises ends the computation. note: called
    for every part of the work on smooth functions, with the share that is done. question: divide
    regions of an exact network only as long as it is open on them. is_ended: as ``run`` asks it.
    """
    real, memory = plan.last.program, plan.last.memory
    if smooth is None or not is_smooth(real):
        how: Any = {"max_regions": max_regions, "report": report, "is_ended": is_ended}
        return run(plan.first.program, domain, plan=plan, question=question, **how)

    def partitioned(program: Program) -> Outcome:
        limit = None if smooth.refine is not None else max_regions
        try:
            at = Plan.of(program, memory=memory)
            return run(program, domain, max_regions=limit, report=report, plan=at)
        except LimitError as error:
            hint = f"A larger {option('smooth', '')} makes fewer regions."
            raise LimitError(f"{error} {hint}") from None

    limits: Any = {"max_regions": max_regions, "memory": memory}
    how = {"undecided": smooth.undecided_share, "note": note}
    found = smoothed(real, domain, smooth.allowed, partitioned, **limits, **how)
    return replace(found.outcome, smoothing=record_of(real, found))


def run_one_by_one(
    request: Request,
    plan: Plan,
    window: list[Domain],
    *,
    max_regions: int | None = None,
    report: Report = silent,
    first: int = 0,
) -> Iterator[Outcome]:
    """Yield the outcome of each domain, in order, as ``run_window`` does without ``smooth=``.

    Each is computed when it is asked for. Neighbours of an exact network on which ``refine=``
    cannot pay are computed together.
    """
    program, together = plan.first.program, list[Domain]()
    how: Any = {"max_regions": max_regions, "report": report}
    with torch.inference_mode(False), torch.no_grad():
        alone = [is_smooth(program) or pays for pays in may_pay(plan.first, window)]
    for number, domain in enumerate(window, first):
        if not alone[number - first]:
            together.append(domain)
            continue
        yield from run_window(plan, together, first=number - len(together), **how)
        together.clear()
        # The contexts end before an outcome is yielded, or they would hold for the caller, too.
        with torch.inference_mode(False), torch.no_grad():
            try:
                wanted = request.wanted_for(program, domain)
                how["question"] = wanted and wanted.question(prod(program.output_shape))
                found = compute(plan, domain, request.smooth, **how)
            except SplineCamError as error:
                kind = LimitError if isinstance(error, LimitError) else SplineCamError
                raise kind(f"domains[{number}]: {error}") from None
        del how["question"]
        yield found
    yield from run_window(plan, together, first=first + len(window) - len(together), **how)


def record_of(real: Program, found: Smoothed) -> Smoothing:
    """The record of what was replaced, for callers."""
    layers = []
    for layer in real.layers:
        if isinstance(layer, SmoothScalar):
            pieces = int(found.tables[layer.name].pieces.sum())
            layers.append(SmoothLayer(layer.name, layer.curve.name, prod(layer.shape), pieces))
    return Smoothing(found.tolerance, found.bounds, tuple(layers), found.refined, found.tables)
