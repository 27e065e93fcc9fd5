"""Compute the partitions of domains by a network with smooth functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import torch
from torch import nn

from splinecam._util.options import device_of
from splinecam._util.progress import log, progress_bar, tell
from splinecam.engine.plan import Plan
from splinecam.engine.run import Outcome, run
from splinecam.engine.step import Report
from splinecam.errors import LimitError, SplineCamError
from splinecam.geometry.domain import Domain
from splinecam.network.capture import capture
from splinecam.network.capture.models import Output
from splinecam.network.nonlinearities import SmoothScalar
from splinecam.network.program import Program
from splinecam.partitions.partition import Partition, assemble
from splinecam.questions.partition_data import Smoothing, SmoothLayer, names_of
from splinecam.smooth.smoothing import Note, Smoothed, smoothed
from splinecam.smooth.tables import Tolerance, replaced, tolerance_of

REFINEMENT = "refinement"  # the last entry of a refined partition's layers


@dataclass(frozen=True)
class Accuracy:
    """How close a partition is to be to a network with smooth functions.

    undecided: the share of the domain on which the class may be uncertain; None if regions are not
    refined.
    """

    tolerance: Tolerance
    undecided: float | None

    @classmethod
    def of(
        cls, smooth: float | str | None = None, refine: str | None = None, undecided: float = 1e-3
    ) -> Accuracy | None:
        """From what callers give; None without ``smooth``."""
        if smooth is None:
            if refine is not None:
                raise TypeError("refine= needs smooth=, the error that outputs may have")
            return None
        if refine not in (None, "boundary"):
            raise ValueError(f'refine is {refine!r}: give "boundary", or leave it out')
        if refine is not None and not (isinstance(undecided, int | float) and 0 < undecided < 1):
            raise ValueError(
                f"undecided is {undecided!r}: give a share of the domain, such as 1e-3"
            )
        return cls(tolerance_of(smooth), None if refine is None else float(undecided))

    @classmethod
    def among(cls, options: Mapping[str, Any]) -> Accuracy | None:
        """From the options of a call, of which other ones are left alone."""
        own = ("smooth", "refine", "undecided")
        return cls.of(**{name: options[name] for name in own if name in options})

    @property
    def facts(self) -> dict[str, Any]:
        """What tells one accuracy from another in a file of JSON."""
        return asdict(self)


@dataclass(frozen=True)
class NearOutcome(Outcome):
    """The outcome of a network near one with smooth functions.

    record: what was replaced, and bounds on what this changes.
    """

    record: Smoothing


@dataclass(frozen=True)
class NearWindow:
    """Runs networks with smooth functions over domains, as ``run_window`` does with others."""

    accuracy: Accuracy

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
        real, memory = plan.last.program, plan.last.memory
        for number, domain in enumerate(window, first):
            # The contexts end before an outcome is yielded, or they would hold for the caller, too.
            with torch.inference_mode(False), torch.no_grad():
                try:
                    found = _near_outcome(real, domain, self.accuracy, memory, max_regions, report)
                except SplineCamError as error:
                    kind = LimitError if isinstance(error, LimitError) else SplineCamError
                    raise kind(f"domains[{number}]: {error}") from None
            yield found


def smooth_partition(
    model: nn.Module,
    domain: Domain,
    accuracy: Accuracy,
    *,
    output: Output,
    device: str | torch.device,
    memory: int | None,
    max_regions: int | None,
    names: Sequence[str] | None,
    progress: bool,
) -> Partition:
    """The partition of a domain whose maps are provably close to a network."""
    place = device_of(device)
    with torch.inference_mode(False), progress_bar(None, "layer", progress) as bar:
        bar.set_description_str("reading the model")
        real = capture(model, domain.input_shape, device=place, output=output, smooth=True)
        names = names_of(names, prod(real.output_shape))
        bar.reset(len(real.layers))
        with torch.no_grad():

            def report(name: str, regions: int, share: float) -> None:
                tell(bar, name, regions)
                bar.update(share)

            def note(what: str, share: float) -> None:
                if not share:  # this begins now, and the bar begins anew
                    log.info("%s", what)
                    bar.reset()
                    bar.set_description_str(what)
                bar.update(len(real.layers) * share)

            found = _near_outcome(real, domain, accuracy, memory, max_regions, report, note)
        return near_partition(model, real, domain, found, output=output, names=names)


def near_partition(
    model: nn.Module | None,
    program: Program,
    domain: Domain,
    outcome: Outcome,
    *,
    output: Output,
    names: Sequence[str] | None,
    dtype: torch.dtype = torch.float32,
) -> Partition:
    """The partition from the outcome of a network that may have smooth functions.

    program: the network as it was captured. dtype: as for ``assemble``.
    """
    record = outcome.record if isinstance(outcome, NearOutcome) else None
    part = assemble(
        model,
        program if record is None else replaced(program, record.tables),
        domain,
        outcome,
        output=output,
        names=names,
        dtype=dtype,
        smoothing=record,
    )
    if record is not None and record.refined:
        part.layers = (*part.layers, REFINEMENT)
        part.layer_errors[REFINEMENT] = part.value_error.new_zeros(1)
    return part


def is_smooth(program: Program) -> bool:
    """Whether a network has smooth functions."""
    return any(isinstance(layer, SmoothScalar) for layer in program.layers)


def _near_outcome(
    real: Program,
    domain: Domain,
    accuracy: Accuracy,
    memory: int | None,
    max_regions: int | None,
    report: Report,
    note: Note = lambda what, share: None,
) -> Outcome:
    """Run the network, or one near it if it has smooth functions."""
    if not is_smooth(real):
        plan = Plan.of(real, memory=memory)
        return run(real, domain, max_regions=max_regions, report=report, plan=plan)

    def partitioned(program: Program) -> Outcome:
        limit = None if accuracy.undecided is not None else max_regions
        plan = Plan.of(program, memory=memory)
        try:
            return run(program, domain, max_regions=limit, report=report, plan=plan)
        except LimitError as error:
            raise LimitError(f"{error} A larger smooth= makes fewer regions.") from None

    found = smoothed(
        real,
        domain,
        accuracy.tolerance,
        partitioned,
        undecided=accuracy.undecided,
        max_regions=max_regions,
        memory=memory,
        note=note,
    )
    return NearOutcome(**vars(found.outcome), record=record_of(real, found))


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
