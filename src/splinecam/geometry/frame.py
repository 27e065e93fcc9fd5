"""The engine's coordinates: centred, and scaled by a power of two."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from splinecam.geometry.domain import Domain

__all__ = ["Frame"]


@dataclass(frozen=True)
class Frame:
    """Coordinates in which the domain is centred and spans about [-1, 1].

    plane = center + scale * local; the scale is a power of two, so that scaling does not round.
    """

    center: Tensor
    scale: float

    @classmethod
    def of(cls, domain: Domain) -> Frame:
        return cls(domain.center, 2.0 ** math.ceil(math.log2(domain.diameter / 2)))

    def to_plane(self, local: Tensor) -> Tensor:
        """Plane coordinates (N, 2) of local ones."""
        return self.center.to(local) + self.scale * local

    def to_local(self, plane: Tensor) -> Tensor:
        """Local coordinates (N, 2) of plane ones."""
        return (plane - self.center.to(plane)) / self.scale
