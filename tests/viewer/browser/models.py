"""Small networks that the tests look at."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

import splinecam as sc


def classifier(width: int = 24, classes: int = 4, seed: int = 0) -> nn.Sequential:
    """A classifier of points of the plane, untrained but with a boundary in the middle."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
    model.append(nn.Linear(width, classes))
    with torch.no_grad():
        for layer in (model[0], model[2], model[4]):
            layer.weight *= 1.5
        values = model(2 * torch.rand(512, 2) - 1)
        model[4].bias -= values.mean(0)
        model[4].weight /= values.std()
        model[4].bias /= values.std()
    return model.double()


def square(model: nn.Module) -> sc.Partition:
    """The partition of the square from -1 to 1."""
    return sc.partition(model, sc.Domain.box(-1, 1), progress=False)


class Folding(nn.Module):
    """Folds the plane about a point again and again: cells of every size meet there."""

    def __init__(self, folds: int, center: tuple[float, float]) -> None:
        super().__init__()
        self.folds = folds
        self.register_buffer("center", torch.tensor(center, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """How often a point is folded until it is far from the centre, as a zigzag."""
        distance = (x - self.center).abs().sum(-1, keepdim=True)
        total = torch.zeros_like(distance)
        for k in range(self.folds):
            total = total + (-1) ** k * torch.relu(distance - 0.25**k) * 2.0**k
        return torch.cat([total, 0.01 * distance], -1)


def spirals(count: int) -> tuple[Tensor, Tensor]:
    """Points (count, 2) of two spirals, and which of them each belongs to."""
    label = torch.arange(count) % 2
    radius = 0.1 + 0.8 * torch.rand(count).sqrt()
    angle = 3 * math.pi * radius + math.pi * label
    return radius[:, None] * torch.stack([angle.cos(), angle.sin()], 1), label
