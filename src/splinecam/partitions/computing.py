"""Compute the outcome of a network over domains: exact, or within the bounds of ``smooth=``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

import torch

from splinecam.engine.batched import run_window
from splinecam.engine.open_part import Question, may_pay, open_part
from splinecam.engine.plan import Plan
from splinecam.engine.run import Outcome, finish, outcome_of, run, start
from splinecam.engine.step import Computation, Report, silent
from splinecam.errors import LimitError, SplineCamError, option
from splinecam.geometry.domain import Domain
from splinecam.network.nonlinearities import SmoothScalar
from splinecam.network.program import Program
from splinecam.partitions.refining import Refine, wanted_of
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
    question: Question | None = None,
) -> Outcome:
    """The outcome of a domain, with linear pieces in place of smooth functions.

    report: called after every layer; an exception that it raises ends the computation. note: called
    for every part of the work on smooth functions, with the share that is done. question: divide
    regions of an exact network only as long as it is open on them.
    """
    real, memory = plan.last.program, plan.last.memory
    if smooth is None or not is_smooth(real):
        how: Any = {"max_regions": max_regions, "report": report, "question": question}
        return run(plan.first.program, domain, plan=plan, **how)

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


def run_smooth_window(
    smooth: Smooth | None,
    plan: Plan,
    window: list[Domain],
    *,
    max_regions: int | None = None,
    report: Report = silent,
    first: int = 0,
) -> Iterator[Outcome]:
    """Yield the outcome of each domain, in order, as ``run_window`` does for exact networks.

    Each is computed when it is asked for.
    """
    for number, domain in enumerate(window, first):
        # The contexts end before an outcome is yielded, or they would hold for the caller, too.
        with torch.inference_mode(False), torch.no_grad():
            try:
                found = compute(plan, domain, smooth, max_regions=max_regions, report=report)
            except SplineCamError as error:
                kind = LimitError if isinstance(error, LimitError) else SplineCamError
                raise kind(f"domains[{number}]: {error}") from None
        yield found


def run_refined_window(
    refine: Refine,
    names: tuple[str, ...] | None,
    plan: Plan,
    window: list[Domain],
    *,
    max_regions: int | None = None,
    report: Report = silent,
    first: int = 0,
) -> Iterator[Outcome]:
    """The same for an exact network whose regions are divided as far as ``refine`` needs it.

    Neighbouring domains for which it does not pay are computed together. names: of the classes.
    """
    program, whole = plan.first.program, list[Domain]()
    outputs = prod(program.output_shape)
    how: Any = {"max_regions": max_regions, "report": report}
    with torch.inference_mode(False), torch.no_grad():
        pays = may_pay(plan.first, window)
    for number, domain in enumerate(window, first):
        with torch.inference_mode(False), torch.no_grad():
            wanted = wanted_of(refine, domain, outputs, names, program.stripped)
            question = wanted.question(outputs)
            part = None
            if question is not None and pays[number - first]:
                part = open_part(plan.first, domain, question, report)
        if part is None:
            whole.append(domain)
            continue
        yield from run_window(plan, whole, first=number - len(whole), **how)
        whole.clear()
        with torch.inference_mode():
            work = Computation(plan, max_regions, report, open_part=part)
            try:
                found = outcome_of(work, finish(work, start(plan, domain)))
            except LimitError as error:
                raise LimitError(f"domains[{number}]: {error}") from None
        yield found.kept()
    yield from run_window(plan, whole, first=first + len(window) - len(whole), **how)


def record_of(real: Program, found: Smoothed) -> Smoothing:
    """The record of what was replaced, for callers."""
    layers = []
    for layer in real.layers:
        if isinstance(layer, SmoothScalar):
            pieces = int(found.tables[layer.name].pieces.sum())
            layers.append(SmoothLayer(layer.name, layer.curve.name, prod(layer.shape), pieces))
    return Smoothing(found.tolerance, found.bounds, tuple(layers), found.refined, found.tables)
