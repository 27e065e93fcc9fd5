"""The verbs for one network and one domain or path: partition, along."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import prod
from typing import Any, Literal, Unpack, overload

import torch

from splinecam._util.options import device_of, kind_of
from splinecam._util.progress import log, progress_bar, tell
from splinecam.engine.along_segments import run_segments
from splinecam.engine.open_stretches import run_open_segments
from splinecam.engine.plan import Plan, first_device, free_memory, is_light, to_device
from splinecam.engine.step import Report
from splinecam.geometry.domain import Domain
from splinecam.geometry.paths import Path, SegmentBatch
from splinecam.geometry.solids import Solid
from splinecam.jobs.estimating import Show, advising, announcing
from splinecam.network.capture import naming_option
from splinecam.network.capture.models import Output, dtype_of
from splinecam.network.program import Program
from splinecam.parallel import Job, engine_for, run_domain
from splinecam.partitions.captured import Captured
from splinecam.partitions.computing import compute
from splinecam.partitions.partition import Partition, assemble
from splinecam.partitions.refining import Refine, wanted_along
from splinecam.partitions.request import (
    FewOptions,
    Model,
    Options,
    Request,
    Smooth,
    require_domain,
)
from splinecam.questions.paths import PathPartition, SegmentPartitions
from splinecam.questions.pieces import Pieces
from splinecam.smooth.smoothing import Note
from splinecam.solid.partition import SolidPartition, solid_partition

_ALONG_PATHS = "smooth= replaces it on domains, but not along paths"  # an error says so
_IN_SPACE = "smooth= replaces it on domains of two dimensions, but not in three"
_SEGMENTS = 1 << 16  # segments at a time, in a stream


class _Options(Options, total=False):
    n_jobs: int | None


@overload
def partition(model: Model, domain: Domain, **options: Unpack[_Options]) -> Partition: ...
@overload
def partition(model: Model, domain: Solid, **options: Unpack[_Options]) -> SolidPartition: ...
def partition(
    model: Model,
    domain: Domain | Solid,
    *,
    output: Output = None,
    refine: Refine = None,
    smooth: Smooth | float | str | None = None,
    memory: float | str | None = None,
    max_regions: float | None = None,
    progress: bool = True,
    n_jobs: int | None = None,
    **options: Unpack[FewOptions],
) -> Partition | SolidPartition:
    """The exact partition of a domain into the linear regions of a piecewise-linear network.

    A body of three dimensions, such as ``Domain.cube(-1, 1)``, gives a ``SolidPartition``, with
    the options output, memory, max_regions and progress.

    model: any ``nn.Module`` of continuous piecewise-linear operations, in eval mode; it is not
    changed. A network from ``capture`` stands for its model as it is now, and the path of an ONNX
    file or an exported program for the module that ``load_model`` makes of it. output: which of
    several outputs of the model, as an index into a tuple, a key of a dict, the name of a field, or
    a function of the model's result.
    refine: what is to be known, if not everything. Then only regions are divided on which the
    answer is not certain, and the answer is that of the whole partition, for a part of its time.
    ``"boundary"`` stands for the decision boundary and the classes; a pair of classes for the
    boundary between them; ``{"kind": "argmin"}`` for the smallest output, with the kinds of
    ``part.decision_boundary``; ``{"level": [0.5, 1.0], "output": 2}`` for levels of one output; a
    property from ``read_vnnlib`` or an ``OutputCondition`` for where it holds. ``part.complete``
    says which regions are linear regions; what needs all of them raises an error.
    memory: the number of bytes to stay within, the result included, also as text such as ``"4GB"``;
    by default most of the device's free memory. ``sc.atlas`` keeps larger partitions on disk.
    max_regions: raise a ``LimitError`` beyond this many regions. progress: show a progress bar in
    interactive use; elsewhere the logger ``splinecam`` reports each step at level INFO.
    smooth: the error that outputs may have, absolute or, as text such as ``"1%"``, relative to the
    range of each. With it, smooth functions of one variable (GELU, SiLU, tanh, ...) are replaced by
    piecewise-linear ones, and ``part.region_bounds`` bounds the distance of the model from each
    map. ``sc.Smooth`` has further options, such as to refine only at the decision boundary.
    n_jobs: how many processes compute, as for ``sweep``: the first layers are computed once, then
    parts of the domain by the processes, or by the cluster that ``joblib.parallel_config`` names.
    This pays on several machines and for wide networks; else the threads of one process are faster.
    options: device, names and partial. ``device`` is where the result is computed and stored, by
    default a GPU if there is one; then layers that are faster on the CPU, because they are small,
    are computed there, and the log says where the computation moves to the GPU. ``names`` are those
    of the classes, in the order of the outputs, or two names for a single output; pictures and
    tables use them, and ``part.names`` changes them. With ``refine`` and ``partial=True``, Ctrl-C
    and ``max_regions`` return what is settled so far, and ``part.undecided`` says what is left.

    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> part = partition(model, Domain.box(-1, 1), progress=False)
    >>> part.validate().ok
    True
    """
    given: dict[str, Any] = {"output": output, "memory": memory, "max_regions": max_regions}
    given |= {"progress": progress, "smooth": smooth, "refine": refine, **options}
    request = Request.of("partition", model, given)
    if isinstance(domain, Solid):
        return _partition_of_body(request, domain, n_jobs)
    require_domain(domain)
    if n_jobs not in (None, 1) and (smooth is not None or request.partial):
        what = "smooth=" if smooth is not None else "partial="
        raise TypeError(f"{what} works in one process: leave out n_jobs=")
    engine = engine_for(n_jobs)
    with torch.inference_mode(False):
        last, shape = device_of(request.device), domain.input_shape
        if engine is not None:
            first = torch.device("cpu")
        elif request.smooth is not None:
            first = last
        else:
            first = first_device(request.device, request.model, shape)
        with reporting(request, shape, first) as (program, report, note, show), torch.no_grad():
            names, wanted = request.names_for(program), request.wanted_for(program, domain)
            question = None if wanted is None else wanted.question(prod(program.output_shape))
            if engine is None:
                plan = Plan.of(program, last, request.memory)
                told = announcing(report, show, plan, domain) if wanted is None else report
                limits: Any = {"max_regions": request.max_regions, "report": told, "note": note}
                advice = advising(plan, domain, request.max_regions)
                with advice, _interruptible(request.partial) as is_ended:
                    limits |= {"question": question, "is_ended": is_ended}
                    outcome = compute(plan, domain, request.smooth, **limits)
                program = plan.last.program
            else:
                rest = request.output, shape, request.device, is_light(request.model, shape)
                limited = *rest, request.memory, request.max_regions
                jobs = [Job(program, None, *limited), Job(None, request.model, *limited)]
                outcome = run_domain(engine, jobs, program, domain, report, question)
                outcome, program = to_device(outcome, last), program.to(last)
        how: Any = {"output": request.output, "names": names, "wanted": wanted}
        return assemble(request.model, program, domain, outcome, **how)


def _partition_of_body(request: Request, body: Solid, n_jobs: int | None) -> SolidPartition:
    """The partition of a body of three dimensions."""
    here = request.device == "auto" or device_of(request.device).type == "cpu"
    given: dict[str, Any] = {"refine": request.refine, "smooth": request.smooth}
    given |= {"names": request.names, "n_jobs": None if n_jobs == 1 else n_jobs}
    given |= {"device": None if here else request.device}
    for name, value in given.items():
        if value is not None:
            raise TypeError(
                f"{name}= is for domains of two dimensions: leave it out for a body of three"
            )
    with naming_option(_IN_SPACE):
        program = request.captured(body.input_shape, torch.device("cpu"))
    how = body.input_shape, request.output, "cpu", False, program
    network = Captured(request.model, *how)
    limits: Any = {"memory": request.memory, "max_regions": request.max_regions}
    if request.memory is None:
        limits["memory"] = free_memory(torch.device("cpu"))
    with torch.inference_mode(False), torch.no_grad():
        return solid_partition(network, body, progress=request.progress, **limits)


@contextmanager
def _interruptible(wanted: bool) -> Iterator[Callable[[], bool] | None]:
    """Yield what says whether Ctrl-C was pressed, if wanted; the second one acts as always."""
    ended = threading.Event()
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield ended.is_set if wanted else None
        return
    before = signal.getsignal(signal.SIGINT)

    def end(*_: object) -> None:
        signal.signal(signal.SIGINT, before)
        log.info("ended: the step that has begun is the last one")
        ended.set()

    signal.signal(signal.SIGINT, end)
    try:
        yield ended.is_set
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def reporting(
    request: Request, input_shape: tuple[int, ...], device: torch.device
) -> Iterator[tuple[Program, Report, Note, Show | None]]:
    """Capture the model and show a progress bar; yield the program, and what reports progress.

    The last result shows what is expected; it is None if nobody listens.
    """
    with progress_bar(None, "layer", request.progress) as bar:
        bar.set_description_str("reading the model")
        program = request.captured(input_shape, device)
        bar.reset(len(program.layers))

        def note(what: str, share: float) -> None:
            if not share:  # this begins now, and the bar begins anew
                log.info("%s", what)
                bar.reset()
                bar.set_description_str(what)
            bar.update(len(program.layers) * share)

        def show(text: str) -> None:
            log.info("expected: %s", text, extra={"once": True})
            bar.set_postfix_str(text)

        listens = not bar.disable or log.isEnabledFor(logging.INFO)
        yield program, partial(tell, bar), note, show if listens else None


@overload
def along(model: Model, path: Path, **options: Unpack[Options]) -> PathPartition: ...
@overload
def along(
    model: Model, path: SegmentBatch, *, stream: Literal[False] = False, **options: Unpack[Options]
) -> SegmentPartitions: ...
@overload
def along(
    model: Model, path: SegmentBatch, *, stream: Literal[True], **options: Unpack[Options]
) -> Iterator[SegmentPartitions]: ...
def along(
    model: Model, path: Path | SegmentBatch, *, stream: bool = False, **options: Unpack[Options]
) -> PathPartition | SegmentPartitions | Iterator[SegmentPartitions]:
    """The exact pieces of a network along a path, such as ``Domain.segment(a, b)``.

    Many segments, ``Domain.segments(a, b)``, give one ``SegmentPartitions`` with flat arrays. A
    million of them are a single call.

    model, options: as for ``partition``, without ``smooth``; ``max_regions`` limits the pieces of
    all segments together. With ``refine="boundary"``, or a level of a single output, only stretches
    are divided on which the class is not certain; then ``decisions`` and ``first_change`` are those
    of all pieces, and what needs all pieces raises an error. stream: for many segments, whether to
    return an iterator over some ten thousand of them at a time, for results that do not fit in
    memory.

    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> path = along(model, Domain.segment([-1.0, 0.0], [1.0, 0.0]))
    >>> path.validate().ok
    True
    """
    request = Request.of("along", model, options)
    if not isinstance(path, Path | SegmentBatch):
        raise TypeError(
            "path must be a path, such as splinecam.Domain.segment(a, b), or many segments, not "
            f"{kind_of(path)}"
        )
    if request.smooth is not None:
        raise TypeError("smooth= is for a domain; along a path only exact networks are divided")
    if isinstance(path, SegmentBatch):
        made = _along_segments(request, path, _SEGMENTS if stream else len(path))
        return made if stream else next(made)
    with progress_bar(len(path.points) - 1, "segment", request.progress) as bar:
        place = first_device(request.device, request.model, path.input_shape)
        with naming_option(_ALONG_PATHS):
            program = request.captured(path.input_shape, place)
        starts, ends = path.points[:-1], path.points[1:]
        pieces = _pieces(request, program, starts, ends, bar.update)
        return PathPartition(path, pieces, request.names)


def _along_segments(
    request: Request, segments: SegmentBatch, chunk: int
) -> Iterator[SegmentPartitions]:
    """Yield the partitions of ``chunk`` segments at a time."""
    with naming_option(_ALONG_PATHS):
        program = request.captured(segments.input_shape, device_of(request.device))
    with progress_bar(len(segments), "segment", request.progress) as bar:
        for start in range(0, len(segments), chunk):
            some, rows = segments, slice(start, start + chunk)
            if chunk < len(segments):
                starts, ends = segments.starts[rows], segments.ends[rows]
                some = SegmentBatch(starts, ends, segments.input_shape)
            pieces = _pieces(request, program, some.starts, some.ends, bar.update)
            yield SegmentPartitions(some, pieces, request.names)


def _pieces(
    request: Request,
    program: Program,
    starts: torch.Tensor,
    ends: torch.Tensor,
    report: Callable[[int], object],
) -> Pieces:
    """The pieces of a network along segments."""
    with torch.inference_mode(False), torch.no_grad():
        a, b = starts.to(program.device), ends.to(program.device)
        limits: Any = {"memory": request.memory, "max_points": request.max_regions}
        wanted, n = wanted_along(request.refine, program), prod(program.output_shape)
        question = None if wanted is None else wanted.question(n)
        if question is None:
            breaks = run_segments(program, a, b, report=report, **limits)
        else:
            breaks = run_open_segments(program, a, b, question, report=report, **limits)
        wanted = None if breaks.settled is None else wanted
        model, given = request.model, (program, request.output)
        return Pieces(a, b, breaks, model, *given, dtype_of(model), wanted)
