"""The partitions of many domains by one network: in batches, by workers, or kept in a folder."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from math import prod
from operator import length_hint
from pathlib import Path as FilePath
from typing import Any, Literal, TypeVar, Unpack, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from splinecam._util.files import folder_of
from splinecam._util.options import device_of, kind_of, limit_of, memory_of
from splinecam._util.progress import progress_bar, tell
from splinecam.engine.along_segments import run_segments
from splinecam.engine.batched import run_window
from splinecam.engine.plan import Plan, first_device, is_light, to_device
from splinecam.engine.run import Outcome
from splinecam.errors import FileError, LimitError, SplineCamError
from splinecam.geometry.domain import Domain
from splinecam.geometry.paths import Path, SegmentBatch
from splinecam.jobs.partitioning import ALONG_PATHS
from splinecam.network.capture import capture, naming_option
from splinecam.network.capture.models import Output, check_output, dtype_of
from splinecam.network.program import Program
from splinecam.parallel import Engine, Job, Packed, engine_for, run_chunks
from splinecam.parallel.flat import FlatOutcomes, flat_outcomes, outcomes_of
from splinecam.partitions.captured import Captured, Model, Options, model_of
from splinecam.partitions.partition import Partition, require_module
from splinecam.partitions.partition_files import check_arrays, smoothing_read, smoothing_written
from splinecam.partitions.smoothed import (
    Accuracy,
    NearOutcome,
    NearWindow,
    is_smooth,
    near_partition,
)
from splinecam.questions.partition_data import Smoothing, Unresolved, names_of
from splinecam.questions.pieces import Pieces
from splinecam.questions.segment_partitions import SegmentPartitions
from splinecam.stores.manifest import domain_digest, function_name, model_facts
from splinecam.stores.result_store import ResultStore, Taken, fill
from splinecam.stores.untrusted import VALUES, Codec, decode, encode

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


Run = Callable[[Iterable[Domain]], Iterator[tuple[int, Any]]]
"""Yields the place and the result of each domain, as they are done."""

_BLOCK = 1024  # domains that are computed before the results of a stream are read


def stored_sweep(
    how: Sweep, run: Run, domains: Iterable[Domain], folder: FilePath, *, stream: bool
) -> Iterator[Any]:
    """Yield the results in order; those that the folder lacks are computed and written first.

    stream: take so many domains at a time that their results need not be in memory together.
    """
    coming = checked(domains)
    first = next(coming, None)
    if first is None:
        return
    about = {
        "kind": "sweep",
        "smooth": None if how.accuracy is None else how.accuracy.facts,
        **model_facts(how.model, first, how.output, smooth=how.accuracy is not None),
        "reduce": function_name(how.reduce),
    }
    coming, start = chain([first], coming), 0
    restored = _Restored.of(how, first)
    codec = VALUES if how.reduce is not None else restored.codec
    with ResultStore(folder, about, codec=codec) as store:
        while some := list(islice(coming, _BLOCK if stream else None)):
            digests = {start + k: domain_digest(domain) for k, domain in enumerate(some)}
            fill(store, digests, _computing(run, some, start))
            for domain, result in zip(some, store.read(digests), strict=True):
                yield result if how.reduce is not None else restored.partition(domain, result)
            start += len(some)


def _computing(
    run: Run, domains: Sequence[Domain], start: int
) -> Callable[[Iterator[int]], Iterator[tuple[int, Any]]]:
    """Computes some of the domains by their numbers, of which the first one has ``start``."""

    def compute(numbers: Iterator[int]) -> Iterator[tuple[int, Any]]:
        taken = Taken(numbers, domains, start)
        try:
            for place, result in run(taken):
                yield taken.numbers[place], result
        except SplineCamError as error:  # which may name the domain by its place
            named = re.match(r"domains\[(\d+)\]", str(error))
            if named is None:
                raise
            name = f"domains[{taken.numbers[int(named[1])]}]"
            kind = LimitError if isinstance(error, LimitError) else SplineCamError
            raise kind(name + str(error)[named.end() :]) from None

    return compute


@dataclass(frozen=True)
class _Restored:
    """Makes partitions from files of outcomes, whose places are on a device."""

    model: nn.Module
    program: Program
    how: Sweep
    names: tuple[str, ...] | None
    device: torch.device

    @classmethod
    def of(cls, how: Sweep, first: Domain) -> _Restored:
        device = device_of(how.device)
        program = how.captured(first, device)
        names = names_of(how.names, prod(program.output_shape))
        return cls(how.model, program, how, names, device)

    @property
    def codec(self) -> Codec:
        """How partitions are kept: their arrays one after the other, and unresolved places."""
        return Codec(_encode, self._decode, _bytes)

    def _decode(self, arrays: Mapping[str, NDArray[Any]]) -> list[Any]:
        flat, unresolved, *records = decode(arrays)
        columns = {name: _widened(array) for name, array in flat[0].items()}
        outcomes = outcomes_of(FlatOutcomes(columns, *flat[1:]), self.device)
        for k, written in records[0].items() if records else ():
            record = _smoothing(*written).to(self.device)
            outcomes[k] = NearOutcome(**vars(outcomes[k]), record=record)
        return [(outcome, unresolved.get(k, ())) for k, outcome in enumerate(outcomes)]

    def partition(self, domain: Domain, result: Any) -> Partition:
        """The partition of a domain; a ``FileError`` if its arrays do not fit together."""
        try:
            part = self._assembled(domain, *result)
            check_arrays(part)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise FileError(
                f"The store is damaged: {error}. Remove it, and compute its results again."
            ) from error
        return part

    def _assembled(self, domain: Domain, outcome: Outcome, unresolved: Iterable[Any]) -> Partition:
        part = near_partition(
            self.model,
            self.program,
            domain,
            outcome,
            output=self.how.output,
            names=self.names,
        )
        part.unresolved = tuple(Unresolved(tuple(place), *why) for place, *why in unresolved)
        return part


def _encode(parts: Sequence[Partition]) -> dict[str, NDArray[Any]]:
    """The arrays of a file of partitions; maps are left out, which follow from the others."""
    outcomes = [
        Outcome(part.mesh, part.values, part.value_error, part.layer_errors, []) for part in parts
    ]
    columns, *rest = flat_outcomes(outcomes)
    narrow = {name: _narrowed(column) for name, column in columns.items()}
    unresolved = {k: list(part.unresolved) for k, part in enumerate(parts) if part.unresolved}
    records = {k: smoothing_written(part) for k, part in enumerate(parts) if part.smoothing}
    return encode([(narrow, *rest), unresolved, *([records] if records else [])])


def _smoothing(about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Smoothing:
    """The record of replaced functions that ``smoothing_written`` has made."""
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    found = smoothing_read(about, arrays, tensors.__getitem__)
    if found is None:
        raise ValueError("there is no record of replaced functions")
    return found


def _bytes(part: Partition) -> int:
    return sum(array.nbytes for array in (part.values, *vars(part.mesh).values()))


def _narrowed(column: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers in 32 bits, if they fit."""
    small = column.dtype == np.int64 and np.abs(column).max(initial=0) < 1 << 31
    return column.astype(np.int32) if small else column


def _widened(column: NDArray[Any]) -> NDArray[Any]:
    return column.astype(np.int64) if column.dtype == np.int32 else column


T = TypeVar("T")

_SEGMENTS = 1 << 16  # segments at a time, in a stream


class _DomainOptions(Options, total=False):
    """What a sweep of domains takes."""

    n_jobs: int | None
    chunk: int | None
    store: str | os.PathLike[str] | None
    smooth: float | str | None
    refine: Literal["boundary"] | None
    undecided: float


@overload
def sweep(
    model: Model,
    domains: SegmentBatch,
    *,
    stream: Literal[False] = False,
    **options: Unpack[Options],
) -> SegmentPartitions: ...
@overload
def sweep(
    model: Model, domains: SegmentBatch, *, stream: Literal[True], **options: Unpack[Options]
) -> Iterator[SegmentPartitions]: ...
@overload
def sweep(
    model: Model,
    domains: Iterable[Domain],
    *,
    stream: Literal[False] = False,
    reduce: None = None,
    **options: Unpack[_DomainOptions],
) -> list[Partition]: ...
@overload
def sweep(
    model: Model,
    domains: Iterable[Domain],
    *,
    stream: Literal[False] = False,
    reduce: Callable[[Partition], T],
    **options: Unpack[_DomainOptions],
) -> list[T]: ...
@overload
def sweep(
    model: Model,
    domains: Iterable[Domain],
    *,
    stream: Literal[True],
    reduce: None = None,
    order: Literal[True] = True,
    **options: Unpack[_DomainOptions],
) -> Iterator[Partition]: ...
@overload
def sweep(
    model: Model,
    domains: Iterable[Domain],
    *,
    stream: Literal[True],
    reduce: Callable[[Partition], T],
    order: Literal[True] = True,
    **options: Unpack[_DomainOptions],
) -> Iterator[T]: ...
@overload
def sweep(
    model: Model,
    domains: Iterable[Domain],
    *,
    stream: Literal[True],
    reduce: Callable[[Partition], Any] | None = None,
    order: Literal[False],
    **options: Unpack[_DomainOptions],
) -> Iterator[tuple[int, Any]]: ...
# The options of a computation and of its workers, each of which a caller may leave out.
def sweep(  # noqa: PLR0913
    model: nn.Module | Captured | str | os.PathLike[str],
    domains: Iterable[Domain] | SegmentBatch,
    *,
    stream: bool = False,
    output: Output = None,
    device: str | torch.device = "auto",
    memory: float | str | None = None,
    max_regions: float | None = None,
    names: Sequence[str] | None = None,
    progress: bool = True,
    reduce: Callable[[Partition], Any] | None = None,
    n_jobs: int | None = None,
    order: bool = True,
    chunk: int | None = None,
    store: str | os.PathLike[str] | None = None,
    smooth: float | str | None = None,
    refine: Literal["boundary"] | None = None,
    undecided: float = 1e-3,
) -> Any:
    """The partitions of many domains by one network, in order: what ``partition`` gives for each.

    The model is captured once and run over batches of domains, so that many small domains cost
    little more than one large one. With ``n_jobs``, the domains are spread over processes, or over
    the cluster that ``joblib.parallel_config`` names.

    Many segments, ``Domain.segments(a, b)``, give one ``SegmentPartitions`` with flat arrays
    instead of a list. A million of them are a single call.

    model: as for ``partition``. domains: an iterable of domains of one input shape, or a batch of
    segments. stream: return an iterator instead of a list, for partitions that do not all fit in
    memory; it takes a few hundred domains at a time, and of segments some ten thousand. output:
    which of several outputs of the model, as for ``partition``. memory: bytes to stay within,
    apart from the partitions themselves; each worker stays within as many. max_regions: a
    ``LimitError`` beyond this many in one domain, with its number, or beyond this many pieces of
    all segments. names: of the classes, as for ``partition``. reduce: a function of a partition
    that is called where the partition is computed; its results are returned instead of the
    partitions, so that only these travel. n_jobs: how many processes compute, as in scikit-learn:
    None or 1 for this one, -1 for one per core; None also for what ``joblib.parallel_config``
    says. order: whether a stream is in the order of the domains; without it, a stream yields
    pairs of a domain's number and its result as they are done. chunk: how many domains a process
    gets at a time, by default as many as take about a second. store: a folder in which every
    result is kept as soon as it is computed. The same call computes only what is missing there,
    whatever has interrupted the last one; several processes can work on one store. smooth, refine,
    undecided: the accuracy for networks with smooth functions such as GELU, as for ``partition``;
    their domains are computed one after the other.

    >>> model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> domains = [Domain.around(torch.randn(5), side=2.0, seed=i) for i in range(20)]
    >>> parts = sweep(model, domains)
    >>> all(part.validate().ok for part in parts)
    True
    >>> largest = max(sweep(model, domains, reduce=len))
    """
    network, output, device = model_of(model, output, device)
    require_module(network)
    check_output(output)
    if not order and not stream:
        raise ValueError("order=False is for a stream: add stream=True")
    if isinstance(domains, SegmentBatch):
        given = any(option is not None for option in (reduce, chunk, store, smooth, refine))
        if given or n_jobs not in (None, 1) or not order:
            raise TypeError(
                "reduce, n_jobs, order, chunk, store, smooth and refine are for domains, not for "
                "segments"
            )
        limits = memory_of(memory), limit_of("max_regions", max_regions)
        most = _SEGMENTS if stream else len(domains)
        made = _sweep_segments(network, domains, output, device, *limits, names, progress, most)
        return made if stream else next(made)
    if isinstance(domains, Path):
        raise TypeError("a single path is for sc.partition; sc.sweep takes Domain.segments(a, b)")
    if isinstance(domains, Domain) or not isinstance(domains, Iterable):
        raise TypeError(
            f"domains must be a list or another iterable of domains, not {kind_of(domains)}"
        )
    if reduce is not None and not callable(reduce):
        raise TypeError(f"reduce must be a function of a partition, not {kind_of(reduce)}")
    engine = engine_for(n_jobs)
    if engine is None or engine.local:
        device_of(device)
    how = Sweep(
        model=network,
        output=output,
        device=device,
        memory=memory_of(memory),
        max_regions=limit_of("max_regions", max_regions),
        names=names,
        reduce=reduce,
        progress=progress,
        accuracy=Accuracy.of(smooth, refine, undecided),
    )
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


def _sweep_segments(
    model: nn.Module,
    segments: SegmentBatch,
    output: Output,
    device: str | torch.device,
    memory: int | None,
    max_regions: int | None,
    names: Sequence[str] | None,
    progress: bool,
    chunk: int,
) -> Iterator[SegmentPartitions]:
    """Yield the partitions of ``chunk`` segments at a time."""
    with torch.inference_mode(False), naming_option(ALONG_PATHS):
        place = device_of(device)
        program = capture(model, segments.input_shape, device=place, output=output)
    dtype = dtype_of(model)
    with progress_bar(len(segments), "segment", progress) as bar:
        for start in range(0, len(segments), chunk):
            some = segments
            if chunk < len(segments):
                rows = slice(start, start + chunk)
                starts, ends = segments.starts[rows], segments.ends[rows]
                some = SegmentBatch(starts, ends, segments.input_shape)
            # The context ends before a result is yielded, or it would hold for the caller, too.
            with torch.inference_mode(False), torch.no_grad():
                a, b = some.starts.to(program.device), some.ends.to(program.device)
                breaks = run_segments(
                    program, a, b, memory=memory, max_points=max_regions, report=bar.update
                )
                pieces = Pieces(a, b, breaks, model, program, output, dtype)
                made = SegmentPartitions(some, pieces, names)
            yield made
