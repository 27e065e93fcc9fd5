"""The difference of two networks with smooth functions, within the bounds of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from splinecam._smooth_partitioning import record_of
from splinecam._util.tolerances import SAFETY, UV_ERROR
from splinecam.analysis.smoothing import Smoothing
from splinecam.geometry.domain import Domain
from splinecam.geometry.point_location import Locator, signed_distances
from splinecam.geometry.subdivision import Mesh
from splinecam.network.capture.pairs import Shown
from splinecam.network.program import Program
from splinecam.network.smooth_scalar import SmoothScalar
from splinecam.smooth.smoothing import Run, Smoothed, smoothed
from splinecam.smooth.tolerance import Tolerance

__all__ = ["Nearby", "nearby", "shown_record"]


@dataclass(frozen=True)
class Nearby:
    """A piecewise-linear network that stands for another.

    program: the network with tables; real: the network itself; found: its own partition with
    bounds, None if the network has no smooth functions.
    """

    program: Program
    real: Program
    found: Smoothed | None

    def on(self, mesh: Mesh) -> Smoothing:
        """The record with bounds on the regions of a finer mesh.

        A region has the bounds of the one that it lies in. Where rounding leaves open which one
        that is, it has the largest of all.
        """
        if self.found is None:
            outputs = int(torch.Size(self.real.output_shape).numel())
            none = mesh.uv.new_zeros((mesh.num_faces, outputs))
            return Smoothing(none.new_zeros(outputs), none)
        record, own = record_of(self.real, self.found), self.found.outcome.mesh
        middle = mesh.means()
        face = Locator(own)(middle)
        known = (face >= 0).nonzero()[:, 0]
        deep = signed_distances(own, middle[known], face[known]) > SAFETY * UV_ERROR
        bounds = record.bound.expand(mesh.num_faces, -1).clone()
        bounds[known[deep]] = record.region_bounds[face[known[deep]]]
        return replace(record, region_bounds=bounds)


def nearby(program: Program, domain: Domain, tolerance: Tolerance | None, run: Run) -> Nearby:
    """The network that stands for another on a domain; the same if it has no smooth functions."""
    if tolerance is None or not any(isinstance(layer, SmoothScalar) for layer in program.layers):
        return Nearby(program, program, None)
    found = smoothed(program, domain, tolerance, run)
    return Nearby(found.program, program, found)


def shown_record(records: Sequence[Smoothing], shown: Shown, *, equal: bool) -> Smoothing:
    """The record of the outputs that are shown, of those of both networks.

    equal: whether both networks are the same, so that their difference is zero for certain.
    """
    a, b = records
    layers = tuple(
        replace(layer, name=f"{name}.{layer.name}")
        for name, record in zip("ab", records, strict=True)
        for layer in record.layers
        if shown in (name, "both", "difference")
    )
    if shown in ("a", "b"):
        own = a if shown == "a" else b
        return Smoothing(own.tolerance, own.region_bounds, layers)
    if shown == "both":
        tolerance = torch.cat([a.tolerance, b.tolerance])
        return Smoothing(tolerance, torch.cat([a.region_bounds, b.region_bounds], 1), layers)
    bounds: Tensor = a.region_bounds + b.region_bounds
    return Smoothing(a.tolerance + b.tolerance, bounds * 0.0 if equal else bounds, layers)
