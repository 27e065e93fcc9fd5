"""How far a network may be from a plane inside of a polygon, with and without kinks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam.geometry.domain import Domain
from splinecam.geometry.frame import Frame
from splinecam.network.program import Program
from splinecam.smooth.followed import Boxes
from splinecam.smooth.following import follow
from splinecam.smooth.grid import CellBounds

__all__ = ["KinkedInside", "SmoothInside"]


@dataclass(frozen=True)
class SmoothInside:
    """Networks of smooth layers alone, whose bounds are known on the cells of a grid."""

    bounds: CellBounds

    def __call__(self, corners: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds (N, n) in polygons with corners (N, k, 2), see ``Inside``."""
        boxes = torch.cat([corners.amin(1), corners.amax(1)], 1)
        square = (boxes[:, 2:] - boxes[:, :2]).square().sum(1, keepdim=True) / 8
        curvature, branch = self.bounds.largest(boxes).unbind(1)
        return curvature * square, branch


@dataclass(frozen=True)
class KinkedInside:
    """Networks with kinks, whose pieces count where the replaced network has its own.

    Where the real network passes a kink is a curve, and the replaced one has a straight edge close
    to it. How close they are is measured at the corners of each polygon. rounding: by the names of
    layers, (n,) how far the units of the replaced network may be beyond their borders.
    """

    real: Program
    replaced: Program
    domain: Domain
    rounding: Mapping[str, Tensor]

    def __call__(self, corners: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds (N, n) in polygons with corners (N, k, 2), see ``Inside``."""
        widest = max([self.domain.dim, *self.real.widths])
        step = max(1, 4 * backend_of(self.real.device).activations // (widest * corners.shape[1]))
        bounds = [self._bounds(some) for some in torch.split(corners, step)]
        bend, branch = zip(*bounds, strict=True)
        return torch.cat(bend), torch.cat(branch)

    def _bounds(self, corners: Tensor) -> tuple[Tensor, Tensor]:
        low, high = corners.amin(1), corners.amax(1)
        boxes = Boxes((low + high) / 2, (high - low) / 2)
        found = follow(self.real, self.domain, boxes, dict(self._apart(corners)))
        square = boxes.half.square().sum(1, keepdim=True) / 2
        return found.curvature.flatten(1) * square, found.branch.flatten(1)

    def _apart(self, corners: Tensor) -> Iterator[tuple[str, Tensor]]:
        """How far the arguments of each layer are apart at the corners at most, (N, *shape)."""
        x = self.domain.embed(Frame.of(self.domain).to_plane(corners.flatten(0, 1)))
        both = zip(self.real.walk(x), self.replaced.walk(x), strict=True)
        for (layer, first), (_, second) in both:
            off = (first - second).abs().view(*corners.shape[:2], *first.shape[1:])
            yield layer.name, off.amax(1) + self.rounding[layer.name].view(first.shape[1:])
