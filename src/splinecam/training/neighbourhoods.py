"""The number of regions around chosen points, such as training, test and random inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from splinecam._sweep import sweep
from splinecam._util.options import kind_of
from splinecam._util.points import as_float64
from splinecam.geometry.domain import Domain

__all__ = ["Neighbourhoods"]

_MOST = 100  # points of a group
_SHARE = 1 / 20  # of the domain's diameter: the default radius


@dataclass(frozen=True)
class Neighbourhoods:
    """Squares of one size around the points of several groups.

    groups: the squares around the points of each group, by name; side: of the squares.
    """

    groups: Mapping[str, Sequence[Domain]]
    side: float

    @classmethod
    def of(
        cls, domain: Domain, points: Mapping[str, Any] | None, radius: float | None
    ) -> Neighbourhoods | None:
        """The squares around given points, or None without points.

        points: by name, inputs (N, ...), of which at most 100 are taken, evenly spaced; or a number
        of random points. These are uniform in the domain for inputs of two numbers, otherwise
        between the least and the largest values of each entry of the given inputs.
        """
        if points is None:
            if radius is not None:
                raise ValueError("radius belongs to points: give points= as well")
            return None
        if not isinstance(points, Mapping) or not points:
            raise TypeError(
                "points must be inputs by name, such as {'train': x_train, 'test': x_test, "
                f"'random': 100}}, not {kind_of(points)}"
            )
        radius = domain.diameter * _SHARE if radius is None else float(radius)
        if not (math.isfinite(radius) and radius > 0):
            raise ValueError(f"radius must be a positive finite number, not {radius}")
        given = {
            str(name): _inputs(domain, f"points[{name!r}]", x)
            for name, x in points.items()
            if not isinstance(x, int | np.integer)
        }
        generator = torch.Generator().manual_seed(0)
        groups, seed = {}, 0
        for key, x in points.items():
            name = str(key)
            chosen = given[name] if name in given else _random(domain, given, int(x), generator)
            groups[name] = [
                Domain.around(point, side=2 * radius, seed=seed + k)
                for k, point in enumerate(chosen)
            ]
            seed += len(chosen)
        return cls(groups, 2 * radius)

    def count(self, model: nn.Module, **options: Any) -> dict[str, tuple[int, ...]]:
        """For each group, the number of regions in the square around each of its points."""
        every = [domain for group in self.groups.values() for domain in group]
        found = iter(sweep(model, every, reduce=len, **options))
        return {name: tuple(next(found) for _ in group) for name, group in self.groups.items()}


def _inputs(domain: Domain, name: str, x: Any) -> Tensor:
    """At most 100 of the inputs x as (n, *input_shape) in float64 on the CPU."""
    points = as_float64(x, name).cpu()
    shape = tuple(points.shape)
    if shape[1:] not in (domain.input_shape, (domain.dim,)) or not shape[0]:
        raise ValueError(
            f"{name} has shape {shape}; give inputs (N, {', '.join(map(str, domain.input_shape))}) "
            "or a number of random ones"
        )
    chosen = torch.linspace(0, shape[0] - 1, min(shape[0], _MOST)).round().long()
    return points[chosen].reshape(-1, *domain.input_shape)


def _random(
    domain: Domain, given: Mapping[str, Tensor], count: int, generator: torch.Generator
) -> Tensor:
    """Random inputs (count, *input_shape)."""
    if count < 1:
        raise ValueError(f"give at least 1 random point, not {count}")
    if domain.dim == 2 or not given:
        return domain.embed(_uniform(domain.corners.cpu(), count, generator))
    known = torch.cat(list(given.values()))
    low, high = known.amin(0), known.amax(0)
    share = torch.rand(count, *domain.input_shape, dtype=torch.float64, generator=generator)
    return low + share * (high - low)


def _uniform(corners: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Points (count, 2) uniform in a convex polygon, by the triangles from its first corner."""
    p, q = corners[1:-1] - corners[0], corners[2:] - corners[0]
    area = p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0]
    triangle = torch.multinomial(area, count, replacement=True, generator=generator)
    a, b = torch.rand(2, count, 1, dtype=torch.float64, generator=generator)
    a, b = torch.where(a + b > 1, 1 - a, a), torch.where(a + b > 1, 1 - b, b)
    return corners[0] + a * p[triangle] + b * q[triangle]
