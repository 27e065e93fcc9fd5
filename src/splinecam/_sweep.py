"""The partitions of many domains by one network, computed in batches, here or by workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, TypeVar, Unpack, overload

import torch
from torch import nn

from splinecam._captured import Captured, model_of
from splinecam._options import Model, Options
from splinecam._partition import Partition, require_module
from splinecam._partitioning import ALONG_PATHS
from splinecam._smooth_partitioning import Accuracy
from splinecam._stored import stored_sweep
from splinecam._sweeping import Sweep, in_order
from splinecam._util.files import folder_of
from splinecam._util.options import device_of, kind_of, limit_of, memory_of
from splinecam._util.progress import progress_bar
from splinecam.analysis.pieces import Pieces
from splinecam.analysis.segment_partitions import SegmentPartitions
from splinecam.engine.along_segments import run_segments
from splinecam.geometry.domain import Domain
from splinecam.geometry.paths import Path, SegmentBatch
from splinecam.network.capture import capture, naming_option
from splinecam.network.capture.isolation import dtype_of
from splinecam.network.capture.outputs import Output, check_output
from splinecam.parallel import engine_for

__all__ = ["sweep"]

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
