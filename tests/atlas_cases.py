"""Networks whose atlases have many tiles, for the tests of atlases."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn

import splinecam as sc
from splinecam.tiles.computation import Sizes

DOMAIN = sc.Domain.box(-3, 3)
SMALL = Sizes(regions=150, enough=60)  # which give many tiles


class Both(NamedTuple):
    """An atlas, and the partition of the same network in memory."""

    atlas: sc.results.Atlas
    whole: sc.Partition


def network(seed: int = 0, first: nn.Module | None = None) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(2, 20), first or nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 3)
    )


class Ring(nn.Module):
    """A network whose decision changes on a closed curve through many tiles."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.noise = nn.Sequential(nn.Linear(2, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU())
        self.head = nn.Linear(24, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 - x.abs().sum(-1, keepdim=True) + 0.02 * self.head(self.noise(x))


class Lattice(nn.Module):
    """Two outputs that are equal on an area, on a lattice of lines that the seams run along."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = torch.arange(-14, 15, dtype=x.dtype) / 5
        bent = torch.relu(x[:, :, None] - steps).sum(-1)
        rest = torch.relu(bent.sum(1, keepdim=True) - 8)
        return torch.cat([rest, torch.relu(rest - 3), 0 * rest], 1)
