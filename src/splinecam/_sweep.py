"""The partitions of many domains by one network, computed in batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from math import prod
from typing import Any, Literal, overload

import torch
from torch import nn

from splinecam._captured import Captured, model_of
from splinecam._partition import Partition, assemble, require_module
from splinecam._util.options import device_of, kind_of, limit_of, memory_of
from splinecam._util.progress import progress_bar, tell
from splinecam.analysis.class_names import names_of
from splinecam.analysis.pieces import Pieces
from splinecam.analysis.segment_partitions import SegmentPartitions
from splinecam.engine.along_segments import run_segments
from splinecam.engine.batched import run_batch
from splinecam.engine.plan import Plan, first_device
from splinecam.engine.run import Outcome
from splinecam.errors import LimitError
from splinecam.geometry.domain import Domain
from splinecam.geometry.paths import Path, SegmentBatch
from splinecam.network.capture import capture
from splinecam.network.capture.isolation import dtype_of
from splinecam.network.capture.outputs import Output, check_output

__all__ = ["sweep"]

# Domains in a window, which is partitioned at a time: at first, and at most.
_FIRST, _MOST = 128, 1024

_SEGMENTS = 1 << 16  # segments at a time, in a stream

_SHARE = 1 / 4  # the part of the memory that the partitions of a window may fill

# The domains of a batch share their rounding errors: none may be so much larger than another.
_ALIKE = 4.0


@overload
def sweep(
    model: nn.Module | Captured | str | os.PathLike[str],
    domains: SegmentBatch,
    *,
    stream: Literal[False] = False,
    output: Output = None,
    device: str | torch.device = "auto",
    memory: float | str | None = None,
    max_regions: float | None = None,
    names: Sequence[str] | None = None,
    progress: bool = True,
) -> SegmentPartitions: ...
@overload
def sweep(
    model: nn.Module | Captured | str | os.PathLike[str],
    domains: SegmentBatch,
    *,
    stream: Literal[True],
    output: Output = None,
    device: str | torch.device = "auto",
    memory: float | str | None = None,
    max_regions: float | None = None,
    names: Sequence[str] | None = None,
    progress: bool = True,
) -> Iterator[SegmentPartitions]: ...
@overload
def sweep(
    model: nn.Module | Captured | str | os.PathLike[str],
    domains: Iterable[Domain],
    *,
    stream: Literal[False] = False,
    output: Output = None,
    device: str | torch.device = "auto",
    memory: float | str | None = None,
    max_regions: float | None = None,
    names: Sequence[str] | None = None,
    progress: bool = True,
) -> list[Partition]: ...
@overload
def sweep(
    model: nn.Module | Captured | str | os.PathLike[str],
    domains: Iterable[Domain],
    *,
    stream: Literal[True],
    output: Output = None,
    device: str | torch.device = "auto",
    memory: float | str | None = None,
    max_regions: float | None = None,
    names: Sequence[str] | None = None,
    progress: bool = True,
) -> Iterator[Partition]: ...
def sweep(
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
) -> list[Partition] | Iterator[Partition] | SegmentPartitions | Iterator[SegmentPartitions]:
    """The partitions of many domains by one network, in order: what ``partition`` gives for each.

    The model is captured once and run over batches of domains, so that many small domains cost
    little more than one large one.

    Many segments, ``Domain.segments(a, b)``, give one ``SegmentPartitions`` with flat arrays
    instead of a list. A million of them are a single call.

    model: as for ``partition``. domains: an iterable of domains of one input shape, or a batch of
    segments. stream: return an iterator instead of a list, for partitions that do not all fit in
    memory; it takes a few hundred domains at a time, and of segments some ten thousand. output:
    which of several outputs of the model, as for ``partition``. memory: bytes to stay within,
    apart from the partitions themselves. max_regions: a ``LimitError`` beyond this many in one
    domain, with its number, or beyond this many pieces of all segments. names: of the classes, as
    for ``partition``.

    >>> model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> domains = [Domain.around(torch.randn(5), side=2.0, seed=i) for i in range(20)]
    >>> parts = sweep(model, domains)
    >>> all(part.validate().ok for part in parts)
    True
    >>> largest = max(len(part) for part in sweep(model, domains, stream=True))
    """
    network, output, device = model_of(model, output, device)
    require_module(network)
    if isinstance(domains, SegmentBatch):
        check_output(output)
        limits = memory_of(memory), limit_of("max_regions", max_regions)
        chunk = _SEGMENTS if stream else len(domains)
        made = _sweep_segments(network, domains, output, device, *limits, names, progress, chunk)
        return made if stream else next(made)
    if isinstance(domains, Path):
        raise TypeError("a single path is for sc.partition; sc.sweep takes Domain.segments(a, b)")
    if isinstance(domains, Domain) or not isinstance(domains, Iterable):
        raise TypeError(
            f"domains must be a list or another iterable of domains, not {kind_of(domains)}"
        )
    check_output(output)
    device_of(device)
    limits = memory_of(memory), limit_of("max_regions", max_regions)
    found = _sweep(network, domains, output, device, *limits, names, progress)
    return found if stream else list(found)


def _sweep(
    model: nn.Module,
    domains: Iterable[Domain],
    output: Output,
    device: str | torch.device,
    memory: int | None,
    max_regions: int | None,
    names: Sequence[str] | None,
    progress: bool,
) -> Iterator[Partition]:
    """Yield the partitions, which are computed as they are asked for."""
    total = len(domains) if isinstance(domains, Sequence) else None
    coming = _checked(domains)
    first = next(coming, None)
    if first is None:
        return
    begin = first_device(device, model, first.input_shape)
    with torch.inference_mode(False):
        program = capture(model, first.input_shape, device=begin, output=output)
    called = names_of(names, prod(program.output_shape))
    plan = Plan.of(program, device_of(device), memory)
    coming, size, done = chain([first], coming), _FIRST, 0
    with progress_bar(total, "domain", progress) as bar:
        run_group = partial(
            run_batch,
            program,
            max_regions=max_regions,
            report=lambda name, regions, share: tell(bar, name, regions),
            plan=plan,
        )
        while window := list(islice(coming, size)):
            used = 0
            for index, outcome in _in_order(window, run_group, done):
                part = assemble(
                    model, plan.last.program, window[index], outcome, output=output, names=called
                )
                used += _bytes(part)
                bar.update()
                yield part
            done += len(window)
            # The next window has as many domains as fit, if they are like these.
            fits = int(_SHARE * plan.last.memory * len(window) / used)
            size = max(1, min(fits, 4 * size, _MOST))


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
    with torch.inference_mode(False):
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


def _checked(domains: Iterable[Any]) -> Iterator[Domain]:
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


def _in_order(
    window: list[Domain], run_group: Callable[..., Iterator[Outcome]], first: int
) -> Iterator[tuple[int, Outcome]]:
    """Yield the outcome of each domain of a window, with its place.

    run_group: yields those of domains of similar size; first: the number of the first domain.
    """
    found: dict[int, Outcome] = {}
    due = 0
    for group in _groups(window):
        outcomes = run_group([window[place] for place in group])
        for place in group:
            # The contexts end before an outcome is yielded, or they would hold for the caller, too.
            with torch.inference_mode(False), torch.no_grad():
                try:
                    found[place] = next(outcomes)
                except LimitError as error:
                    raise LimitError(f"domains[{first + place}]: {error}") from None
            while due in found:
                yield due, found.pop(due)
                due += 1


def _groups(window: list[Domain]) -> list[list[int]]:
    """The places of domains of similar size around inputs of similar size, in ascending groups."""
    inputs = [float(domain.embed(domain.corners).abs().amax(0).mean()) for domain in window]
    sides = [domain.diameter for domain in window]
    groups = [
        sorted(group)
        for nearby in _alike(range(len(window)), inputs)
        for group in _alike(nearby, sides)
    ]
    return sorted(groups)


def _alike(places: Iterable[int], sizes: list[float]) -> list[list[int]]:
    """The places in groups of similar sizes."""
    groups: list[list[int]] = []
    for place in sorted(places, key=lambda place: sizes[place]):
        if not groups or sizes[place] > _ALIKE * sizes[groups[-1][0]]:
            groups.append([])
        groups[-1].append(place)
    return groups


def _bytes(part: Partition) -> int:
    """The memory that a partition takes."""
    return sum(array.nbytes for array in (part.values, *vars(part.mesh).values()))
