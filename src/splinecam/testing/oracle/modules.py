"""Small modules with which networks for the oracle are put together in an ``nn.Sequential``."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["Abs", "GroupSort", "Max", "Maximum", "Maxout", "Min", "Minimum", "Residual"]


class Abs(nn.Module):
    """``torch.abs`` as a module."""

    def forward(self, x: Tensor) -> Tensor:
        return x.abs()


class Residual(nn.Module):
    """``x + body(x)``: the skip connection that the oracle knows."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)  # type: ignore[no-any-return]


class Max(nn.Module):
    """The largest value along a dimension, the batch being dimension 0."""

    def __init__(self, dim: int = 1, *, keepdim: bool = False) -> None:
        super().__init__()
        self.dim, self.keepdim = dim, keepdim

    def forward(self, x: Tensor) -> Tensor:
        return x.amax(self.dim, keepdim=self.keepdim)


class Min(Max):
    """The smallest value along a dimension."""

    def forward(self, x: Tensor) -> Tensor:
        return x.amin(self.dim, keepdim=self.keepdim)


class Maximum(nn.Module):
    """The larger of the first and the second half of the features, one by one."""

    def forward(self, x: Tensor) -> Tensor:
        first, second = x.chunk(2, 1)
        return torch.maximum(first, second)


class Minimum(nn.Module):
    """The smaller of the first and the second half of the features, one by one."""

    def forward(self, x: Tensor) -> Tensor:
        first, second = x.chunk(2, 1)
        return torch.minimum(first, second)


class Maxout(nn.Sequential):
    """Each unit is the largest of several affine functions."""

    def __init__(self, inputs: int, units: int, pieces: int) -> None:
        linear = nn.Linear(inputs, units * pieces)
        super().__init__(linear, nn.Unflatten(1, (units, pieces)), Max(2))


class GroupSort(nn.Module):
    """The features in groups of a size, each group in ascending order."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        groups = torch.unflatten(x, 1, (x.shape[1] // self.size, self.size))
        return groups.sort(-1).values.flatten(1)
