"""The partitions of many domains by one network: in batches, by workers, or kept in a folder."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from operator import length_hint
from pathlib import Path as FilePath
from typing import Any, Literal, TypeVar, Unpack, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from splinecam._util.files import folder_of
from splinecam._util.options import device_of, kind_of, limit_of
from splinecam._util.progress import progress_bar, tell
from splinecam.engine.batched import run_window
from splinecam.engine.plan import Plan, first_device, is_light, to_device
from splinecam.engine.run import Outcome
from splinecam.errors import FileError, LimitError, SplineCamError
from splinecam.geometry.domain import Domain
from splinecam.geometry.paths import Path, SegmentBatch
from splinecam.network.capture.models import Output, dtype_of
from splinecam.network.program import Program
from splinecam.parallel import Engine, Job, Packed, engine_for, run_chunks
from splinecam.parallel.flat import FlatOutcomes, flat_outcomes, outcomes_of
from splinecam.partitions.computing import is_smooth, run_one_by_one
from splinecam.partitions.partition import Partition, assemble
from splinecam.partitions.partition_files import check_arrays, smoothing_read, smoothing_written
from splinecam.partitions.refining import Refine, question_facts, wanted_of
from splinecam.partitions.request import Model, Options, Request
from splinecam.questions.partition_data import Unresolved
from splinecam.stores.manifest import domain_digest, function_name, model_facts
from splinecam.stores.result_store import ResultStore, Taken, fill
from splinecam.stores.untrusted import VALUES, Codec, decode, encode

_log = logging.getLogger("splinecam")

# Domains that are partitioned at a time: at first, and at most.
_FIRST, _MOST = 128, 1024

_SHARE = 1 / 4  # the part of the memory that the partitions of a window may fill
_TOGETHER = 128  # partitions that a function takes at once, if it takes several


@dataclass(frozen=True)
class Sweep:
    """What a sweep computes for each domain, here or by workers.

    reduce: a function of a partition, whose results are wanted instead of the partitions.
    """

    request: Request
    reduce: Callable[[Partition], Any] | None

    def here(self, domains: Iterable[Domain]) -> Iterator[Any]:
        """Yield the results in order; each is computed when it is asked for."""
        total = length_hint(domains) or None
        coming = checked(domains)
        first = next(coming, None)
        if first is None:
            return
        request = self.request
        begin = first_device(request.device, request.model, first.input_shape)
        program = request.captured(first.input_shape, begin)
        run = self._window(program)
        most = 1 if self._is_smooth(program) else _MOST
        plan = Plan.of(program, device_of(request.device), request.memory)
        finish = self.finish(program)
        coming, size, done = chain([first], coming), min(_FIRST, most), 0
        with progress_bar(total, "domain", request.progress) as bar:
            while window := list(islice(coming, size)):
                used: list[int] = []
                how: Any = {"max_regions": request.max_regions, "first": done}
                how["report"] = lambda name, regions, share: tell(bar, name, regions)
                outcomes = run(plan, window, **how)
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
        """Yield the number and the result of each domain, as workers finish them.

        chunk: domains of a task, by default as many as take about a second.
        """
        total = length_hint(domains) or None
        coming = checked(domains)
        first = next(coming, None)
        if first is None:
            return
        program = self.request.captured(first.input_shape, torch.device("cpu"))
        finish, job = self.finish(program), self._job(program)
        place = _place(self.request.device)
        there = program if place is None else program.to(place)
        waiting: dict[int, Domain] = {}

        def remembered() -> Iterator[Domain]:
            for number, domain in enumerate(chain([first], coming)):
                if self.reduce is None:
                    waiting[number] = domain
                yield domain

        with progress_bar(total, "domain", self.request.progress) as bar:
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

    def _window(self, program: Program) -> Callable[..., Iterator[Outcome]]:
        """The function that runs the network over some domains."""
        if self.request.refine is None and not self._is_smooth(program):
            return run_window
        return partial(run_one_by_one, replace(self.request, model=nn.Identity(), output=None))

    def _is_smooth(self, program: Program) -> bool:
        """Whether smooth functions of the network are replaced."""
        return self.request.smooth is not None and is_smooth(program)

    def finish(self, program: Program) -> _Finish:
        """What makes the results of the outcomes of domains."""
        asked, model = self.request, self.request.model
        about = asked.output, asked.names_for(program), asked.refine
        return _Finish(model, dtype_of(model), *about, self.reduce)

    def _job(self, program: Program) -> Packed:
        """What workers need: the program, and the model if partitions are finished there."""
        shape, window = program.input_shape, self._window(program)
        finish: Any = _sent if self._is_smooth(program) else None
        lost = finish
        if self.reduce is not None:
            finish = self.finish(program)
            lost = replace(finish, model=None)
        asked = self.request
        light = is_light(asked.model, shape)
        rest = (asked.output, shape, asked.device, light, asked.memory, asked.max_regions)
        how = asked.smooth is not None, window
        return Packed.first_of(
            lambda: Job(program, None, *rest, finish, *how),
            lambda: Job(None, asked.model, *rest, finish, *how),
            lambda: Job(program, None, *rest, lost, *how),
        )


@dataclass(frozen=True)
class _Finish:
    """Makes partitions of the outcomes of domains, or what ``reduce`` gives for partitions.

    model: None where it could not be sent. refine: what regions were divided for. reduce: a
    function of a partition. If it has a method ``many``, this method takes several partitions at
    once, and returns the results of all.
    """

    model: nn.Module | None
    dtype: torch.dtype
    output: Output
    names: tuple[str, ...] | None
    refine: Refine
    reduce: Callable[[Partition], Any] | None

    def __call__(
        self, domains: Iterable[Domain], outcomes: Iterable[Outcome], plan: Plan
    ) -> Iterator[Any]:
        """Yield the results for outcomes of domains on the last device of a plan."""
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
        about: Any = {"output": self.output, "names": self.names, "dtype": self.dtype}
        if outcome.settled is not None:
            n = int(outcome.output.shape[1])
            about["wanted"] = wanted_of(self.refine, domain, n, self.names, program.stripped)
        return assemble(self.model, program, domain, outcome, **about)


def _sent(domains: Iterable[Domain], outcomes: Iterable[Outcome], plan: Plan) -> Iterator[Outcome]:
    """The outcomes on the CPU, as they are sent: they have more than flat arrays hold."""
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
    """The device of results in this process; None for the CPU, where workers leave them."""
    try:
        place = device_of(device)
    except SplineCamError:  # only the workers have such a device
        return None
    return None if place.type == "cpu" else place


def checked(domains: Iterable[Any]) -> Iterator[Domain]:
    """Yield the domains; raise an error unless all have the input shape of the first one."""
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
    """Yield outcomes, and note the memory that each of their partitions takes."""
    for outcome in outcomes:
        used.append(outcome.output.nbytes + outcome.mesh.nbytes)
        yield outcome


RunDomains = Callable[[Iterable[Domain]], Iterator[tuple[int, Any]]]
"""Yields the place and the result of each domain, as they are done."""

_BLOCK = 1024  # domains that are computed before the results of a stream are read


def stored_sweep(
    how: Sweep, run: RunDomains, domains: Iterable[Domain], folder: FilePath, *, stream: bool
) -> Iterator[Any]:
    """Yield the results in order, after computing and writing what the folder lacks.

    stream: take a limited number of domains at a time, whose results fit in memory.
    """
    coming, request = checked(domains), how.request
    first = next(coming, None)
    if first is None:
        return
    program = request.captured(first.input_shape, device_of(request.device))
    about = {
        "kind": "sweep",
        "smooth": None if request.smooth is None else request.smooth.facts,
        "refine": question_facts(request.refine, request.wanted_for(program, first)),
        **model_facts(request.model, first, request.output, smooth=request.smooth is not None),
        "reduce": function_name(how.reduce),
    }
    coming, start = chain([first], coming), 0
    finish, codec = how.finish(program), VALUES
    if how.reduce is None:
        codec = Codec(_encode, partial(_decode, program.device), _bytes)
    with ResultStore(folder, about, codec=codec) as store:
        while some := list(islice(coming, _BLOCK if stream else None)):
            digests = {start + k: domain_digest(domain) for k, domain in enumerate(some)}
            fill(store, digests, _computing(run, some, start))
            for domain, result in zip(some, store.read(digests), strict=True):
                yield (
                    result if how.reduce is not None else _restored(finish, program, domain, result)
                )
            start += len(some)


def _computing(
    run: RunDomains, domains: Sequence[Domain], start: int
) -> Callable[[Iterator[int]], Iterator[tuple[int, Any]]]:
    """A function that computes domains by their numbers; the first one has the number ``start``."""

    def compute(numbers: Iterator[int]) -> Iterator[tuple[int, Any]]:
        taken = Taken(numbers, domains, start)
        try:
            for place, result in run(taken):
                yield taken.numbers[place], result
        except SplineCamError as error:  # it may name the domain by its place
            named = re.match(r"domains\[(\d+)\]", str(error))
            if named is None:
                raise
            name = f"domains[{taken.numbers[int(named[1])]}]"
            kind = LimitError if isinstance(error, LimitError) else SplineCamError
            raise kind(name + str(error)[named.end() :]) from None

    return compute


def _restored(finish: _Finish, program: Program, domain: Domain, result: Any) -> Partition:
    """The partition of a domain from a file; a ``FileError`` if its arrays do not fit together."""
    try:
        outcome, unresolved = result
        part = finish.partition(domain, outcome, program)
        part.unresolved = tuple(Unresolved(tuple(place), *why) for place, *why in unresolved)
        check_arrays(part)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise FileError(
            f"The store is damaged: {error}. Remove it, and compute its results again."
        ) from error
    return part


def _decode(device: torch.device, arrays: Mapping[str, NDArray[Any]]) -> list[Any]:
    """The outcomes in a file of partitions, on a device, each with its unresolved places."""
    flat, unresolved, *records = decode(arrays)
    columns = {
        name: array.astype(np.int64) if array.dtype == np.int32 else array
        for name, array in flat[0].items()
    }
    outcomes = outcomes_of(FlatOutcomes(columns, *flat[1:]), device)
    for k, (about, tensors) in records[0].items() if records else ():
        numbers = {name: tensor.numpy() for name, tensor in tensors.items()}
        record = smoothing_read(about, numbers, tensors.__getitem__)
        if record is None:
            raise ValueError("there is no record of replaced functions")
        outcomes[k] = replace(outcomes[k], smoothing=record.to(device))
    return [(outcome, unresolved.get(k, ())) for k, outcome in enumerate(outcomes)]


def _encode(parts: Sequence[Partition]) -> dict[str, NDArray[Any]]:
    """The arrays of a file of partitions, without maps, which follow from the others."""
    outcomes = [
        Outcome(
            *(part.mesh, part._outputs, part._value_error, part._layer_errors, []),
            settled=part._settled,
        )
        for part in parts
    ]
    columns, *rest = flat_outcomes(outcomes)
    narrow = {name: _narrowed(column) for name, column in columns.items()}
    unresolved = {k: list(part.unresolved) for k, part in enumerate(parts) if part.unresolved}
    records = {k: smoothing_written(part) for k, part in enumerate(parts) if part.smoothing}
    return encode([(narrow, *rest), unresolved, *([records] if records else [])])


def _bytes(part: Partition) -> int:
    return part._outputs.nbytes + part.mesh.nbytes


def _narrowed(column: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers in 32 bits, if they fit."""
    small = column.dtype == np.int64 and np.abs(column).max(initial=0) < 1 << 31
    return column.astype(np.int32) if small else column


T = TypeVar("T")


@overload
def sweep(
    model: Model,
    domains: Iterable[Domain],
    *,
    stream: Literal[False] = False,
    reduce: None = None,
    n_jobs: int | None = None,
    chunk: int | None = None,
    store: str | os.PathLike[str] | None = None,
    **options: Unpack[Options],
) -> list[Partition]: ...
@overload
def sweep(
    model: Model,
    domains: Iterable[Domain],
    *,
    stream: Literal[False] = False,
    reduce: Callable[[Partition], T],
    n_jobs: int | None = None,
    chunk: int | None = None,
    store: str | os.PathLike[str] | None = None,
    **options: Unpack[Options],
) -> list[T]: ...
@overload
def sweep(
    model: Model,
    domains: Iterable[Domain],
    *,
    stream: Literal[True],
    reduce: Callable[[Partition], Any] | None = None,
    order: bool = True,
    n_jobs: int | None = None,
    chunk: int | None = None,
    store: str | os.PathLike[str] | None = None,
    **options: Unpack[Options],
) -> Iterator[Any]: ...
def sweep(
    model: Model,
    domains: Iterable[Domain],
    *,
    stream: bool = False,
    reduce: Callable[[Partition], Any] | None = None,
    order: bool = True,
    n_jobs: int | None = None,
    chunk: int | None = None,
    store: str | os.PathLike[str] | None = None,
    **options: Unpack[Options],
) -> Any:
    """The partitions of many domains by one network, in order: what ``partition`` gives for each.

    The model is captured once and run over batches of domains, so that many small domains cost
    little more than one large one. With ``n_jobs``, the domains are spread over processes, or over
    the cluster that ``joblib.parallel_config`` names.

    model, options: as for ``partition``; ``memory`` does not count the partitions themselves, and
    holds for each worker; ``max_regions`` holds for each domain, and the error names the domain.
    Networks with smooth functions are computed one domain after the other, and so are domains on
    which ``refine`` pays.
    domains: an iterable of domains of one input shape. stream: return an iterator instead of a
    list, for partitions that do not all fit in memory; it takes a few hundred domains at a time.
    reduce: a function of a partition that is called where the partition is computed; its results
    are returned instead of the partitions, so that only these travel. order: whether a stream is in
    the order of the domains; without it, a stream yields pairs of a domain's number and its result
    as they are done. n_jobs: how many processes compute, as in scikit-learn: None or 1 for this
    one, -1 for one per core; None also for what ``joblib.parallel_config`` says. chunk: how many
    domains a process gets at a time, by default as many as take about a second. store: a folder in
    which every result is kept as soon as it is computed. The same call, made again after any
    interruption, computes only what is missing there; several processes can work on one store.

    >>> model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> domains = [Domain.around(torch.randn(5), side=2.0, seed=i) for i in range(20)]
    >>> parts = sweep(model, domains)
    >>> all(part.validate().ok for part in parts)
    True
    >>> largest = max(sweep(model, domains, reduce=len))
    """
    request = Request.of("sweep", model, options)
    if not order and not stream:
        raise ValueError("order=False is for a stream: add stream=True")
    if isinstance(domains, Path | SegmentBatch):
        raise TypeError("paths and segments are for sc.along; sc.sweep takes domains")
    if isinstance(domains, Domain) or not isinstance(domains, Iterable):
        raise TypeError(
            f"domains must be a list or another iterable of domains, not {kind_of(domains)}"
        )
    if reduce is not None and not callable(reduce):
        raise TypeError(f"reduce must be a function of a partition, not {kind_of(reduce)}")
    engine = engine_for(n_jobs)
    if engine is None or engine.local:
        device_of(request.device)
    how = Sweep(request, reduce)
    size = limit_of("chunk", chunk)

    def run(some: Iterable[Domain]) -> Iterator[tuple[int, Any]]:
        return enumerate(how.here(some)) if engine is None else how.by(engine, some, size)

    if store is None:
        found = run(domains)
    else:
        found = enumerate(stored_sweep(how, run, domains, folder_of(store), stream=stream))
    if not order:
        return found
    ordered = in_order(found)
    return ordered if stream else list(ordered)
