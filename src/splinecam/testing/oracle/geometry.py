"""Exact convex polygons and affine functions on them, in Python integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from torch import Tensor

__all__ = [
    "Cell",
    "Corner",
    "Point",
    "Row",
    "area",
    "at",
    "by",
    "center",
    "corner",
    "difference",
    "fractions",
    "over_common",
    "pairs",
    "split",
    "where_positive",
]

Point = tuple[Fraction, Fraction]
Corner = tuple[int, int, int]  # (X, Y, W) with W > 0 is the point (X / W, Y / W)
Row = tuple[int, int, int]  # (a, b, c) is the affine function a u + b v + c


@dataclass(frozen=True)
class Cell:
    """A convex polygon without collinear corners, and the activations ``rows / den`` on it."""

    corners: list[Corner]
    rows: list[Row]
    den: int
    pattern: tuple[int, ...]


def at(row: Row, corner: Corner) -> int:
    """Return an integer with the sign of the function at the corner."""
    return row[0] * corner[0] + row[1] * corner[1] + row[2] * corner[2]


def difference(first: Row, second: Row) -> Row:
    """Return the function that is positive where the first one is the larger."""
    return first[0] - second[0], first[1] - second[1], first[2] - second[2]


def split(polygon: list[Corner], line: Row) -> list[list[Corner]]:
    """Return both sides of a line; the polygon itself if the line misses or only touches it."""
    signs = [at(line, corner) for corner in polygon]
    if not min(signs) < 0 < max(signs):
        return [polygon]
    return [_clip(polygon, signs), _clip(polygon, [-s for s in signs])]


def where_positive(polygon: list[Corner], row: Row) -> list[Corner]:
    """Return the part on the positive side of a line; empty if only border lies there."""
    signs = [at(row, corner) for corner in polygon]
    if max(signs) <= 0:
        return []
    return polygon if min(signs) >= 0 else _clip(polygon, signs)


def _clip(polygon: list[Corner], signs: list[int]) -> list[Corner]:
    """Return the part of a convex polygon where the function is not negative."""
    kept = []
    for (p, q), (s, t) in zip(pairs(polygon), pairs(signs), strict=True):
        if s >= 0:
            kept.append(p)
        if s < 0 < t or t < 0 < s:
            kept.append(_reduced([abs(t) * x + abs(s) * y for x, y in zip(p, q, strict=True)]))
    return kept


def _reduced(corner: Sequence[int]) -> Corner:
    common = math.gcd(*corner)
    x, y, w = (value // common for value in corner)
    return x, y, w


def corner(u: Fraction, v: Fraction) -> Corner:
    """Return a point in integers."""
    (x, y), w = over_common([u, v])
    return x, y, w


def center(vertices: Sequence[Point]) -> Point:
    """Return the mean of the vertices, which is a point of the open polygon."""
    u, v = (sum((p[k] for p in vertices), Fraction(0)) / len(vertices) for k in (0, 1))
    return u, v


def area(polygon: Sequence[Point]) -> Fraction:
    """Return the area of a counter-clockwise polygon."""
    return sum((p[0] * q[1] - p[1] * q[0] for p, q in pairs(polygon)), Fraction(0)) / 2


def pairs(items: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return each item with its successor around a cycle."""
    return list(zip(items, [*items[1:], items[0]], strict=True))


def by(size: int, items: Sequence[Any]) -> list[Sequence[Any]]:
    """Return the items in groups of a size."""
    return [items[i : i + size] for i in range(0, len(items), size)]


def fractions(tensor: Tensor) -> list[Fraction]:
    """Return the numbers of a tensor exactly."""
    return [Fraction(value) for value in tensor.detach().double().flatten().tolist()]


def over_common(values: Sequence[Fraction]) -> tuple[list[int], int]:
    """Return the values as integers over one denominator."""
    den = math.lcm(1, *(value.denominator for value in values))
    return [value.numerator * (den // value.denominator) for value in values], den
