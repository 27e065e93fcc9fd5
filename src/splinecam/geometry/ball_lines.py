"""Segments in balls around points: diameters in random directions, or uniformly random chords."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp as power_of_e
from math import lgamma, pi, sqrt

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class BallLines:
    """As many segments in the ball around each of N points, by the numbers of the points.

    centers: (N, D) in float64; radius: (N,); count: segments of each ball; seeds: (N,) the seed of
    each ball. ways: (count, D) given directions of diameters, by default random orthonormal ones.
    chords: take chords in place of diameters, as isotropic uniformly random lines cut them out.
    """

    centers: Tensor
    radius: Tensor
    count: int
    seeds: Tensor
    ways: Tensor | None = None
    chords: bool = False

    @classmethod
    def random(
        cls, centers: Tensor, radius: Tensor, ways: int | Tensor, seed: int, *, chords: bool
    ) -> BallLines:
        """Segments from one seed; ways: how many, or the directions of diameters."""
        generator = torch.Generator().manual_seed(seed)
        seeds = torch.randint(1 << 62, (centers.shape[0],), generator=generator)
        if isinstance(ways, int):
            return cls(centers, radius, ways, seeds, None, chords)
        unit = ways / torch.linalg.vector_norm(ways, dim=1, keepdim=True)
        return cls(centers, radius, unit.shape[0], seeds, unit, chords)

    def __len__(self) -> int:
        return int(self.centers.shape[0])

    def to(self, device: torch.device) -> BallLines:
        """The same on another device; random numbers are drawn on the CPU."""
        ways = None if self.ways is None else self.ways.to(device)
        moved = self.centers.to(device), self.radius.to(device)
        return BallLines(*moved, self.count, self.seeds, ways, self.chords)

    def ends(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Both ends of the segments around some points (k,): (k, count, D) each."""
        center, radius = self.centers[index, None], self.radius[index, None, None]
        if self.ways is not None:
            return center - radius * self.ways, center + radius * self.ways
        D = center.shape[2]
        drawn = [self._draw(int(seed), D) for seed in self.seeds[index].tolist()]
        way = torch.cat([_orthonormal(x) for x in torch.split(torch.stack(drawn), D, dim=1)], 1)
        if not self.chords or D == 1:
            return center - radius * way, center + radius * way
        # A random line meets the disc through the centre across it in a uniformly random point.
        extra = torch.stack([self._draw(int(seed) + 1, D + 1) for seed in self.seeds[index]])
        share = (0.5 * (1 + torch.erf(extra[..., :1] / sqrt(2)))) ** (1 / (D - 1))
        aside = extra[..., 1:] - (extra[..., 1:] * way).sum(2, keepdim=True) * way
        aside *= share / torch.linalg.vector_norm(aside, dim=2, keepdim=True)
        middle, half = center + radius * aside, radius * (1 - share**2).sqrt()
        return middle - half * way, middle + half * way

    def _draw(self, seed: int, size: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        # Twice as fast as in float64, and any direction will do.
        drawn = torch.randn(self.count, size, dtype=torch.float32, generator=generator)
        return drawn.to(self.centers)

    def lengths(self) -> Tensor:
        """The mean length of the segments around each point, (N,), over all lines that meet it."""
        D = self.centers.shape[1]
        if not self.chords or D == 1:
            return 2 * self.radius
        # The volume of the ball by that of its shadow across the line.
        return self.radius * sqrt(pi) * power_of_e(lgamma((D + 1) / 2) - lgamma(D / 2 + 1))


def _orthonormal(rows: Tensor) -> Tensor:
    """Orthonormal rows (k, d, D) that span the same as given ones, d <= D."""
    factor = torch.linalg.cholesky(rows @ rows.mT)
    made: Tensor = torch.linalg.solve_triangular(factor, rows, upper=False)
    return made


def area_by_crossings(dim: int) -> float:
    """The area of surfaces per volume if isotropic lines cross them once per unit length.

    Crofton's formula: a surface across a line is met more often than one along it, in the mean of
    all directions by ``E|cos| = Gamma(n/2) / (sqrt(pi) Gamma((n+1)/2))`` times its area in n
    dimensions. This is the inverse of that mean.

    >>> round(area_by_crossings(2) / pi, 12), round(area_by_crossings(3), 12)
    (0.5, 2.0)
    """
    return sqrt(pi) * power_of_e(lgamma((dim + 1) / 2) - lgamma(dim / 2))
