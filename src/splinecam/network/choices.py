"""A choice between two values that agree where the choice changes, as a cut."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam.network.nonlinearities import CustomNonlinearity
from splinecam.network.ops import Bound

__all__ = ["ChoiceNonlinearity", "choose"]


def choose(sides: Tensor) -> Tensor:
    """Of sides (B, 3, ...), the second where the first is positive, else the third: (B, ...)."""
    by, true, false = sides.unbind(1)
    return torch.where(by > 0, true, false)


@dataclass(frozen=True, eq=False, kw_only=True)
class ChoiceNonlinearity(CustomNonlinearity):
    """One of two values, by the sign of the source's units; the argument holds all three.

    argument: (B, 3, *shape), the source, the value where it is positive, and the other value.
    steepness: (n,), by how much the two values differ at most, per unit of the source.
    """

    steepness: Tensor

    def bound(self, bound: Bound, low: Tensor, high: Tensor) -> Bound:
        """Only a side that is chosen somewhere counts; the choice itself may be off by rounding."""
        (_, *magnitude), (by, *error) = (part.reshape(3, -1) for part in bound)
        visited = torch.stack([high.flatten() >= -by, low.flatten() <= by])
        largest = (torch.stack(magnitude) * visited).amax(0)
        off = (torch.stack(error) * visited).amax(0) + self.steepness * by * visited.all(0)
        return Bound(largest.view(1, *self.shape), off.view(1, *self.shape))
