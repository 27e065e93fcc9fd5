"""Compute the partition of a domain or a path: here, by workers, or as an atlas on disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Literal, Unpack, overload

import torch
from torch import nn

from splinecam._util.options import device_of, kind_of, limit_of, memory_of
from splinecam._util.progress import progress_bar, tell
from splinecam.engine.along_segments import run_segments
from splinecam.engine.plan import Plan, first_device, is_light, to_device
from splinecam.engine.run import run
from splinecam.geometry.domain import Domain
from splinecam.geometry.paths import Path, SegmentBatch
from splinecam.network.capture import capture, naming_option
from splinecam.network.capture.models import Output, check_output, dtype_of
from splinecam.parallel import Job, engine_for, run_domain
from splinecam.partitions.captured import Captured, Model, Options, model_of
from splinecam.partitions.partition import Partition, assemble, require_module
from splinecam.partitions.smoothed import Accuracy, smooth_partition
from splinecam.questions.partition_data import names_of
from splinecam.questions.paths import PathPartition
from splinecam.questions.pieces import Pieces

if TYPE_CHECKING:
    from splinecam.tiles.atlas import Atlas

ALONG_PATHS = "smooth= replaces it on domains, but not along paths"  # an error says so


@overload
def partition(
    model: Model,
    domain: Domain,
    *,
    n_jobs: int | None = None,
    store: None = None,
    smooth: float | str | None = None,
    refine: Literal["boundary"] | None = None,
    undecided: float = 1e-3,
    **options: Unpack[Options],
) -> Partition: ...
@overload
def partition(
    model: Model,
    domain: Domain,
    *,
    n_jobs: int | None = None,
    store: str | os.PathLike[str],
    **options: Unpack[Options],
) -> Atlas: ...
@overload
def partition(model: Model, domain: Path, **options: Unpack[Options]) -> PathPartition: ...
def partition(  # noqa: PLR0913
    model: nn.Module | Captured | str | os.PathLike[str],
    domain: Domain | Path,
    *,
    output: Output = None,
    device: str | torch.device = "auto",
    memory: float | str | None = None,
    max_regions: float | None = None,
    names: Sequence[str] | None = None,
    progress: bool = True,
    n_jobs: int | None = None,
    store: str | os.PathLike[str] | None = None,
    smooth: float | str | None = None,
    refine: Literal["boundary"] | None = None,
    undecided: float = 1e-3,
) -> Partition | PathPartition | Atlas:
    """The exact partition of a domain into the linear regions of a piecewise-linear network.

    A path, such as ``Domain.segment(a, b)``, is divided into pieces: the result is a
    ``PathPartition``.

    model: any ``nn.Module`` of continuous piecewise-linear operations, in eval mode; it is not
    changed. A network from ``capture`` stands for its model as it is now, and the path of an ONNX
    file or an exported program for what ``load_model`` makes of it. output: which of several
    outputs of the model, as an index into a tuple, a key of a dict, the name of a field, or a
    function of the model's result. device: where the result is computed and stored, by default a
    GPU if there is one; by default, layers that are small enough to be faster on the CPU are
    computed there, and the log says where the computation moves to the GPU.
    memory: the number of bytes to stay within, the result included, also as text such as ``"4GB"``;
    by default most of the device's free memory. max_regions: raise a ``LimitError`` beyond this
    many regions. names: the names of the classes, in the order of the outputs, or two names for a
    single output; pictures and tables use them, and ``part.names`` changes them. progress: show a
    progress bar in interactive use; elsewhere the logger ``splinecam`` reports each step at level
    INFO. n_jobs: how many processes compute, as for ``sweep``: the first layers are computed once,
    then parts of the domain by the processes, or by the cluster that ``joblib.parallel_config``
    names; it pays on several machines and for wide networks, elsewhere the threads of one process
    are faster. store: a folder in which the partition stays on disk as an ``Atlas``, which may be
    larger than the memory; the same call after an interruption computes only what is missing.
    ``n_jobs`` processes compute its tiles.
    smooth: the error that outputs may have, absolute or, as text such as ``"1%"``, relative to the
    range of each. With it, smooth functions of one variable (GELU, SiLU, tanh, ...) are replaced by
    piecewise-linear ones, and ``part.region_bounds`` says how far the model is from each map at
    most. refine: with ``"boundary"``, regions are only refined where their class would be
    uncertain; elsewhere errors may be larger. undecided: the share of the domain on which the class
    may still be uncertain then.

    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> part = partition(model, Domain.box(-1, 1), progress=False)
    >>> part.validate().ok
    True
    """
    network, output, device = model_of(model, output, device)
    require_module(network)
    if isinstance(domain, SegmentBatch):
        raise TypeError("a batch of segments is for sc.sweep; sc.partition takes a single one")
    if not isinstance(domain, Domain | Path):
        raise TypeError(f"domain must be a splinecam.Domain, not {kind_of(domain)}")
    check_output(output)
    memory, max_regions = memory_of(memory), limit_of("max_regions", max_regions)
    accuracy = Accuracy.of(smooth, refine, undecided)
    if accuracy is not None:
        if not isinstance(domain, Domain):
            raise TypeError("smooth= is for a domain; along a path only exact networks are divided")
        if n_jobs not in (None, 1) or store is not None:
            extra = "n_jobs=" if store is None else "store="
            raise TypeError(f"smooth= works in memory and in one process: leave out {extra}")
        return smooth_partition(
            network,
            domain,
            accuracy,
            output=output,
            device=device,
            memory=memory,
            max_regions=max_regions,
            names=names,
            progress=progress,
        )
    if n_jobs not in (None, 1) and isinstance(domain, Path):
        raise TypeError("n_jobs is for partitions of a domain: leave it out for that of a path")
    if store is not None:
        if isinstance(domain, Path):
            raise TypeError("store= is for a partition of a domain; that of a path fits in memory")
        from splinecam.tiles.spreading import compute_atlas

        return compute_atlas(
            network,
            domain,
            store,
            output=output,
            device=device,
            memory=memory,
            max_regions=max_regions,
            names=names,
            progress=progress,
            n_jobs=n_jobs,
        )
    if isinstance(domain, Path):
        with progress_bar(len(domain.points) - 1, "segment", progress) as bar:
            limits = memory, max_regions
            return _along(network, domain, output, device, *limits, names, bar.update)
    engine = engine_for(n_jobs)
    with torch.inference_mode(False):
        first = first_device(device, network, domain.input_shape) if engine is None else "cpu"
        program = capture(network, domain.input_shape, device=first, output=output)
        names = names_of(names, prod(program.output_shape))
        with progress_bar(len(program.layers), "layer", progress) as bar, torch.no_grad():

            def report(name: str, regions: int, share: float) -> None:
                tell(bar, name, regions)
                bar.update(share)

            if engine is None:
                plan = Plan.of(program, device_of(device), memory)
                outcome = run(program, domain, max_regions=max_regions, report=report, plan=plan)
                program = plan.last.program
            else:
                shape = domain.input_shape
                rest = output, shape, device, is_light(network, shape), memory, max_regions
                jobs = [Job(program, None, *rest), Job(None, network, *rest)]
                outcome = run_domain(engine, jobs, program, domain, report)
                last = device_of(device)
                outcome, program = to_device(outcome, last), program.to(last)
        return assemble(network, program, domain, outcome, output=output, names=names)


def _along(
    model: nn.Module,
    path: Path,
    output: Output,
    device: str | torch.device,
    memory: int | None,
    max_regions: int | None,
    names: Sequence[str] | None,
    report: Callable[[int], object],
) -> PathPartition:
    """The partition of a path."""
    with torch.inference_mode(False), torch.no_grad():
        place = first_device(device, model, path.input_shape)
        with naming_option(ALONG_PATHS):
            program = capture(model, path.input_shape, device=place, output=output)
        points = path.points.to(program.device)
        breaks = run_segments(
            program,
            points[:-1],
            points[1:],
            memory=memory,
            max_points=max_regions,
            report=report,
        )
        dtype = dtype_of(model)
        pieces = Pieces(points[:-1], points[1:], breaks, model, program, output, dtype)
        return PathPartition(path, pieces, names)
