"""The exact preimage of linear constraints under a small network, in rational arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from torch import nn

from splinecam.geometry.domain import Domain
from splinecam.testing.oracle.cells import exact_partition
from splinecam.testing.oracle.geometry import Corner, Point, area, corner, over_common, split

__all__ = ["exact_preimage_area"]

Constraint = tuple[Sequence[float], float, bool]  # coefficients, limit, whether it is strict


def exact_preimage_area(
    model: nn.Module, domain: Domain, condition: Sequence[Sequence[Constraint]]
) -> Fraction:
    """Return the area on which all constraints of one of several conjunctions hold.

    model: a small network, see ``exact_partition``. A constraint bounds a sum of outputs with the
    given coefficients.
    """
    total = Fraction(0)
    for cell in exact_partition(model, domain).cells:
        functions = list(zip(cell.weight, cell.bias, strict=True))
        rows = [
            [(_combined(functions, *each[:2]), each[2]) for each in conjunction]
            for conjunction in condition
        ]
        parts = [[corner(u, v) for u, v in cell.vertices]]
        for f, _ in (each for conjunction in rows for each in conjunction):
            if f[0] or f[1]:
                (a, b, c), _ = over_common(f)
                parts = [piece for part in parts for piece in split(part, (a, b, c))]
        for part in parts:
            points = [_point(p) for p in part]
            middle = _middle(points)
            values = [[(_value(f, middle), strict) for f, strict in group] for group in rows]
            if any(all(v < 0 or (v == 0 and not s) for v, s in group) for group in values):
                total += area(points)
    return total


def _combined(
    functions: Sequence[tuple[Sequence[Fraction], Fraction]], weights: Sequence[float], limit: float
) -> tuple[Fraction, Fraction, Fraction]:
    """Return a sum of affine functions, less a limit, as its coefficients."""
    found = [Fraction(0), Fraction(0), -Fraction(limit)]
    for (slope, offset), weight in zip(functions, weights, strict=True):
        for k, value in enumerate((*slope, offset)):
            found[k] += Fraction(weight) * value
    return found[0], found[1], found[2]


def _value(f: tuple[Fraction, Fraction, Fraction], p: Point) -> Fraction:
    return f[0] * p[0] + f[1] * p[1] + f[2]


def _point(p: Corner) -> Point:
    return Fraction(p[0], p[2]), Fraction(p[1], p[2])


def _middle(points: Sequence[Point]) -> Point:
    u, v = (sum(axis, Fraction(0)) / len(points) for axis in zip(*points, strict=True))
    return u, v
