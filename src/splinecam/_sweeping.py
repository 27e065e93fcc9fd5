"""How a sweep is computed: in this process, or by the workers of an engine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from math import prod
from operator import length_hint
from typing import Any

import torch
from torch import nn

from splinecam._partition import Partition
from splinecam._smooth_partitioning import Accuracy, NearWindow, is_smooth, near_partition
from splinecam._util.options import device_of, kind_of
from splinecam._util.progress import progress_bar, tell
from splinecam.analysis.class_names import names_of
from splinecam.engine.first_device import first_device, is_light
from splinecam.engine.plan import Plan, to_device
from splinecam.engine.run import Outcome
from splinecam.engine.windows import run_window
from splinecam.errors import SplineCamError
from splinecam.geometry.domain import Domain
from splinecam.network.capture import capture
from splinecam.network.capture.isolation import dtype_of
from splinecam.network.capture.outputs import Output
from splinecam.network.program import Program
from splinecam.parallel import Engine, Job, Packed, run_chunks

__all__ = ["Sweep", "checked", "in_order"]

_log = logging.getLogger("splinecam")

# Domains in a window, which is partitioned at a time: at first, and at most.
_FIRST, _MOST = 128, 1024

_SHARE = 1 / 4  # the part of the memory that the partitions of a window may fill
_TOGETHER = 128  # partitions that a function takes at once, if it takes several


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A sweep: the model, and the options of ``sc.sweep`` that do not say where it is computed.

    accuracy: of a model that may have smooth functions; None for an exact one.
    """

    model: nn.Module
    output: Output
    device: str | torch.device
    memory: int | None
    max_regions: int | None
    names: Sequence[str] | None
    reduce: Callable[[Partition], Any] | None
    progress: bool
    accuracy: Accuracy | None = None

    def here(self, domains: Iterable[Domain]) -> Iterator[Any]:
        """Yield the results in order, which are computed as they are asked for."""
        total = length_hint(domains) or None
        coming = checked(domains)
        first = next(coming, None)
        if first is None:
            return
        begin = first_device(self.device, self.model, first.input_shape)
        program = self.captured(first, begin)
        run = self._window(program)
        most = _MOST if run is run_window else 1
        plan = Plan.of(program, device_of(self.device), self.memory)
        finish = self._finish(program)
        coming, size, done = chain([first], coming), min(_FIRST, most), 0
        with progress_bar(total, "domain", self.progress) as bar:
            while window := list(islice(coming, size)):
                used: list[int] = []
                outcomes = run(
                    plan,
                    window,
                    max_regions=self.max_regions,
                    report=lambda name, regions, share: tell(bar, name, regions),
                    first=done,
                )
                for made in finish(window, _measured(outcomes, used), plan):
                    bar.update()
                    yield made
                done += len(window)
                # The next window has as many domains as fit, if they are like these.
                fits = int(_SHARE * plan.last.memory * len(window) / sum(used))
                size = max(1, min(fits, 4 * size, most))

    def by(
        self, engine: Engine, domains: Iterable[Domain], chunk: int | None = None
    ) -> Iterator[tuple[int, Any]]:
        """Yield the number and the result of each domain, as the workers of an engine are done.

        chunk: domains of a task, by default as many as take about a second.
        """
        total = length_hint(domains) or None
        coming = checked(domains)
        first = next(coming, None)
        if first is None:
            return
        program = self.captured(first, torch.device("cpu"))
        finish, job = self._finish(program), self._job(program)
        place = _place(self.device)
        there = program if place is None else program.to(place)
        waiting: dict[int, Domain] = {}

        def remembered() -> Iterator[Domain]:
            for number, domain in enumerate(chain([first], coming)):
                if self.reduce is None:
                    waiting[number] = domain
                yield domain

        with progress_bar(total, "domain", self.progress) as bar:
            done = run_chunks(engine, job, remembered(), total=total, chunk=chunk, device=place)
            for members, results in done:
                _log.info("domains %s to %s are done", members[0], members[-1])
                for number, result in zip(members, results, strict=True):
                    bar.update()
                    if self.reduce is not None:
                        yield number, result
                    else:
                        found = to_device(result, there.device) if job.value.finish else result
                        yield number, finish.partition(waiting.pop(number), found, there)

    def captured(self, domain: Domain, device: torch.device) -> Program:
        """The network for inputs as those of a domain, on a device."""
        smooth = self.accuracy is not None
        with torch.inference_mode(False):
            return capture(
                self.model, domain.input_shape, device=device, output=self.output, smooth=smooth
            )

    def _window(self, program: Program) -> Callable[..., Iterator[Outcome]]:
        """What runs the network over some domains."""
        if self.accuracy is None or not is_smooth(program):
            return run_window
        return NearWindow(self.accuracy)

    def _finish(self, program: Program) -> _Finish:
        names = names_of(self.names, prod(program.output_shape))
        return _Finish(self.model, dtype_of(self.model), self.output, names, self.reduce)

    def _job(self, program: Program) -> Packed:
        """What workers need: the program, and the model if partitions are finished there."""
        shape, window = program.input_shape, self._window(program)
        finish: Any = None if window is run_window else _sent
        lost = finish
        if self.reduce is not None:
            finish = self._finish(program)
            lost = replace(finish, model=None)
        light = is_light(self.model, shape)
        rest = (self.output, shape, self.device, light, self.memory, self.max_regions)
        how = self.accuracy is not None, window
        return Packed.first_of(
            lambda: Job(program, None, *rest, finish, *how),
            lambda: Job(None, self.model, *rest, finish, *how),
            lambda: Job(program, None, *rest, lost, *how),
        )


@dataclass(frozen=True)
class _Finish:
    """What is made of the outcomes of domains: partitions, or what ``reduce`` gives for those.

    model: None where it could not be sent. reduce: a function of a partition. If it has a method
    ``many``, that is given several partitions at once, and returns the results of all.
    """

    model: nn.Module | None
    dtype: torch.dtype
    output: Output
    names: tuple[str, ...] | None
    reduce: Callable[[Partition], Any] | None

    def __call__(
        self, domains: Iterable[Domain], outcomes: Iterable[Outcome], plan: Plan
    ) -> Iterator[Any]:
        """Yield the results of the outcomes of domains, which are on the last place of a plan."""
        pairs = zip(domains, outcomes, strict=True)
        parts = (self.partition(*pair, plan.last.program) for pair in pairs)
        many = getattr(self.reduce, "many", None)
        if self.reduce is None:
            yield from parts
        elif many is None:
            yield from map(self.reduce, parts)
        else:
            while some := list(islice(parts, _TOGETHER)):
                yield from many(some)

    def partition(self, domain: Domain, outcome: Outcome, program: Program) -> Partition:
        """The partition of a domain."""
        return near_partition(
            self.model,
            program,
            domain,
            outcome,
            output=self.output,
            names=self.names,
            dtype=self.dtype,
        )


def _sent(domains: Iterable[Domain], outcomes: Iterable[Outcome], plan: Plan) -> Iterator[Outcome]:
    """The outcomes as they are sent to another process, which have more than flat arrays hold."""
    return (to_device(outcome, torch.device("cpu")) for outcome in outcomes)


def in_order(found: Iterable[tuple[int, Any]]) -> Iterator[Any]:
    """The results in the order of their numbers."""
    early: dict[int, Any] = {}
    due = 0
    for number, result in found:
        early[number] = result
        while due in early:
            yield early.pop(due)
            due += 1


def _place(device: str | torch.device) -> torch.device | None:
    """Where results are to be in this process; None for the CPU, where workers leave them."""
    try:
        place = device_of(device)
    except SplineCamError:  # only the workers have such a device
        return None
    return None if place.type == "cpu" else place


def checked(domains: Iterable[Any]) -> Iterator[Domain]:
    """Yield the domains, which must all have the input shape of the first one."""
    shape = None
    for index, domain in enumerate(domains):
        if not isinstance(domain, Domain):
            raise TypeError(f"domains[{index}] must be a splinecam.Domain, not {kind_of(domain)}")
        shape = shape or domain.input_shape
        if domain.input_shape != shape:
            raise ValueError(
                f"domains[{index}] has input shape {domain.input_shape}, the first one {shape}. "
                "Sweep over the domains of each shape on their own."
            )
        yield domain


def _measured(outcomes: Iterable[Outcome], used: list[int]) -> Iterator[Outcome]:
    """Yield outcomes, and note the memory that the partition of each takes."""
    for outcome in outcomes:
        arrays = (outcome.output, *vars(outcome.mesh).values())
        used.append(sum(array.nbytes for array in arrays))
        yield outcome
