"""Squares of one area in random planes around samples, and the statistics of their regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from splinecam.geometry.domain import Domain
from splinecam.jobs.sweep import sweep
from splinecam.partitions.partition import Partition
from splinecam.questions.measures import shapes

Measured = dict[str, dict[str, Tensor]]


@dataclass(frozen=True)
class Squares:
    """Squares around the samples of several groups, such as training and test samples.

    groups: the squares of each group, by name; area: of one square.
    """

    groups: Mapping[str, Sequence[Domain]]
    area: float

    @classmethod
    def around(cls, samples: Mapping[str, Tensor], area: float, *, seed: int = 0) -> Squares:
        """A square around each sample (N, ...) of each group, in a random plane of its own.

        >>> squares = Squares.around({"train": torch.rand(3, 1, 4, 4)}, 0.25)
        >>> [round(square.area, 6) for square in squares.groups["train"]]
        [0.25, 0.25, 0.25]
        """
        groups, first = {}, 10_000 * seed
        for name, x in samples.items():
            groups[name] = [
                Domain.around(point, side=area**0.5, seed=first + k) for k, point in enumerate(x)
            ]
            first += len(x)
        return cls(groups, area)

    def resized(self, area: float) -> Squares:
        """Squares of another area around the same samples in the same planes."""
        factor = (area / self.area) ** 0.5
        groups = {
            name: [replace(square, corners=factor * square.corners) for square in group]
            for name, group in self.groups.items()
        }
        return Squares(groups, area)

    def measure(self, model: nn.Module, *, device: str = "auto") -> Measured:
        """The statistics of the squares, by group and name of the statistic, (N,) each."""
        every = [square for group in self.groups.values() for square in group]
        found = sweep(model, every, stream=True, device=device, progress=False)
        rows = torch.tensor(
            [list(statistics(part).values()) for part in found], dtype=torch.float64
        )
        measured, start = {}, 0
        for name, group in self.groups.items():
            columns = rows[start : start + len(group)].unbind(1)
            measured[name] = dict(zip(STATISTICS, columns, strict=True))
            start += len(group)
        return measured


STATISTICS = ("NR", "ARV", "ARE", "std")


def statistics(part: Partition) -> dict[str, float]:
    """The number of regions, the averages of area and eccentricity, and the areas' deviation."""
    numbers = torch.stack(
        [part.areas.mean(), shapes(part.mesh).eccentricity.mean(), part.areas.std(correction=0)]
    )
    return dict(zip(STATISTICS, (float(len(part)), *numbers.tolist()), strict=True))


def by_epoch(records: Mapping[int, Measured], name: str) -> dict[str, Tensor]:
    """One statistic by group, (epochs, N), from what was measured after each epoch.

    >>> records = {0: {"train": {"NR": torch.ones(3)}}, 5: {"train": {"NR": torch.ones(3)}}}
    >>> by_epoch(records, "NR")["train"].shape
    torch.Size([2, 3])
    """
    rows = list(records.values())
    return {group: torch.stack([row[group][name] for row in rows]) for group in rows[0]}


def chosen(x: Tensor, count: int, *, seed: int = 0) -> Tensor:
    """Some of the samples (N, ...), at random and none twice."""
    generator = torch.Generator().manual_seed(seed)
    return x[torch.randperm(len(x), generator=generator)[:count]]


def uniform(like: Tensor, count: int, *, seed: int = 0) -> Tensor:
    """Random inputs between the least and the largest value of each channel (N, C, ...) of others.

    >>> uniform(torch.rand(9, 3, 4, 4), 5).shape
    torch.Size([5, 3, 4, 4])
    """
    generator = torch.Generator().manual_seed(seed)
    over = [0, *range(2, like.ndim)]
    low, high = like.amin(over, keepdim=True), like.amax(over, keepdim=True)
    return low + (high - low) * torch.rand(count, *like.shape[1:], generator=generator)
