"""Points, segments and polygons in rational arithmetic: slow, obvious and without rounding."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise

import torch
from torch import Tensor, nn

Point = tuple[Fraction, Fraction]
Ring = Sequence[Point]


def exact(points: Tensor) -> list[Point]:
    """Points (N, 2) as they are, to the last bit."""
    return [(Fraction(u), Fraction(v)) for u, v in points.tolist()]


def square_from_segment(p: Point, a: Point, b: Point) -> Fraction:
    """Squared distance of a point from a segment."""
    dx, dy = b[0] - a[0], b[1] - a[1]
    full = dx * dx + dy * dy
    along = (p[0] - a[0]) * dx + (p[1] - a[1]) * dy
    t = min(max(along / full, Fraction(0)), Fraction(1)) if full else Fraction(0)
    gap = (p[0] - a[0] - t * dx, p[1] - a[1] - t * dy)
    return gap[0] * gap[0] + gap[1] * gap[1]


def winding(p: Point, rings: Iterable[Ring]) -> int:
    """How often rings run around a point; each point has its right and lower side, say."""
    total = 0
    for ring in rings:
        for a, b in pairwise((*ring, ring[0])):
            if (a[1] > p[1]) != (b[1] > p[1]):
                side = (b[0] - a[0]) * (p[1] - a[1]) - (b[1] - a[1]) * (p[0] - a[0])
                total += (b[1] > p[1] and side > 0) - (a[1] > p[1] and side < 0)
    return total


def distance(p: Point, ring: Ring) -> float:
    """Distance of a point from the border of a polygon, negative inside."""
    square = min(square_from_segment(p, a, b) for a, b in pairwise((*ring, ring[0])))
    return root(square) * (-1 if winding(p, [ring]) else 1)


def root(square: Fraction) -> float:
    """The square root, also of what is too small for a float."""
    return math.sqrt(square * 2**400) / 2.0**200 if square else 0.0


def outputs(model: nn.Sequential, p: Point) -> list[Fraction]:
    """What a network of linear layers and ReLU says of a point."""
    values = list(p)
    for module in model:
        if isinstance(module, nn.ReLU):
            values = [max(value, Fraction(0)) for value in values]
            continue
        assert isinstance(module, nn.Linear)
        bias = module.bias if module.bias is not None else torch.zeros(module.out_features)
        values = [
            sum((Fraction(w) * x for w, x in zip(row, values, strict=True)), Fraction(b))
            for row, b in zip(module.weight.tolist(), bias.tolist(), strict=True)
        ]
    return values
