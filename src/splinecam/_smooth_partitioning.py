"""Compute the partition of a domain by a network with smooth functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import nn

from splinecam._partition import Partition, assemble
from splinecam._util.options import device_of
from splinecam._util.progress import progress_bar, tell
from splinecam.analysis.class_names import names_of
from splinecam.analysis.smoothing import Smoothing, SmoothLayer
from splinecam.engine.plan import Plan
from splinecam.engine.run import Outcome, run
from splinecam.errors import LimitError
from splinecam.geometry.domain import Domain
from splinecam.network.capture import capture
from splinecam.network.capture.outputs import Output
from splinecam.network.program import Program
from splinecam.network.smooth_scalar import SmoothScalar
from splinecam.smooth.smoothing import Smoothed, smoothed
from splinecam.smooth.tolerance import Tolerance, tolerance_of

__all__ = ["Accuracy", "record_of", "smooth_partition"]

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
    def of(cls, smooth: float | str, refine: str | None, undecided: float) -> Accuracy:
        """From what callers give."""
        if refine not in (None, "boundary"):
            raise ValueError(f'refine is {refine!r}: give "boundary", or leave it out')
        if refine is not None and not (isinstance(undecided, int | float) and 0 < undecided < 1):
            raise ValueError(
                f"undecided is {undecided!r}: give a share of the domain, such as 1e-3"
            )
        return cls(tolerance_of(smooth), None if refine is None else float(undecided))


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
    last = device_of(device)
    with torch.inference_mode(False):
        real = capture(model, domain.input_shape, device=last, output=output, smooth=True)
        names = names_of(names, prod(real.output_shape))
        with progress_bar(len(real.layers), "layer", progress) as bar, torch.no_grad():

            def report(name: str, regions: int, share: float) -> None:
                tell(bar, name, regions)
                bar.update(share)

            def partitioned(program: Program) -> Outcome:
                limit = None if accuracy.undecided is not None else max_regions
                plan = Plan.of(program, last, memory)
                try:
                    return run(program, domain, max_regions=limit, report=report, plan=plan)
                except LimitError as error:
                    raise LimitError(f"{error} A larger smooth= makes fewer regions.") from None

            if not any(isinstance(layer, SmoothScalar) for layer in real.layers):
                outcome = partitioned(real)
                return assemble(model, real, domain, outcome, output=output, names=names)
            found = smoothed(
                real,
                domain,
                accuracy.tolerance,
                partitioned,
                undecided=accuracy.undecided,
                max_regions=max_regions,
                memory=memory,
            )
        part = assemble(
            model,
            found.program,
            domain,
            found.outcome,
            output=output,
            names=names,
            smoothing=record_of(real, found),
        )
    if found.refined:
        part.layers = (*part.layers, REFINEMENT)
        part.layer_errors[REFINEMENT] = part.value_error.new_zeros(1)
    return part


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
