"""The exact difference of two small networks: the cells of one are cut by those of the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from torch import nn

from splinecam.geometry.domain import Domain
from splinecam.testing.oracle.cells import ExactCell, exact_partition
from splinecam.testing.oracle.geometry import (
    Corner,
    Point,
    Row,
    area,
    corner,
    over_common,
    pairs,
    split,
    where_positive,
)

__all__ = ["ExactDifference", "exact_difference"]

Function = tuple[Fraction, Fraction, Fraction]  # (a, b, c) is a u + b v + c


@dataclass(frozen=True)
class ExactDifference:
    """Two networks with n outputs and k classes on a domain.

    cells: how many convex cells both have together. largest: of each output the largest modulus of
    the difference; norm_1, norm_inf: the largest norms of the difference of all outputs, and
    square_2 the square of the largest 2-norm. mean, bias, mean_square: of each output the mean of
    the difference's modulus, of the difference, and of its square. areas: k rows of k numbers, the
    area of each pair of classes.
    """

    cells: int
    largest: list[Fraction]
    norm_1: Fraction
    norm_inf: Fraction
    square_2: Fraction
    mean: list[Fraction]
    bias: list[Fraction]
    mean_square: list[Fraction]
    areas: list[list[Fraction]]


def exact_difference(a: nn.Module, b: nn.Module, domain: Domain) -> ExactDifference:
    """Return the difference of two small networks, see ``exact_partition``, in exact arithmetic."""
    first, second = (exact_partition(model, domain).cells for model in (a, b))
    common = [
        (part, _functions(x), _functions(y))
        for x in first
        for y in second
        if (part := _intersection(x, y))
    ]
    total = _sum(_area(part) for part, _, _ in common)
    outputs = range(len(first[0].bias))
    at_corners = [
        [abs(_value(_less(f[k], g[k]), _point(p))) for k in outputs]
        for part, f, g in common
        for p in part
    ]
    classes = range(max(2, len(outputs)))
    areas = [[Fraction(0) for _ in classes] for _ in classes]
    for part, f, g in common:
        for i, inner in _winners(part, f):
            for j, innermost in _winners(inner, g):
                areas[i][j] += _area(innermost)
    moments = [[_moments(part, _less(f[k], g[k])) for part, f, g in common] for k in outputs]
    means = [[_sum(column) / total for column in zip(*rows, strict=True)] for rows in moments]
    return ExactDifference(
        cells=len(common),
        largest=[max(values[k] for values in at_corners) for k in outputs],
        norm_1=max(_sum(values) for values in at_corners),
        norm_inf=max(map(max, at_corners)),
        square_2=max(_sum(x * x for x in values) for values in at_corners),
        mean=[row[0] for row in means],
        bias=[row[1] for row in means],
        mean_square=[row[2] for row in means],
        areas=areas,
    )


def _sum(values: Iterable[Fraction]) -> Fraction:
    return sum(values, Fraction(0))


def _functions(cell: ExactCell) -> list[Function]:
    return [(*weight, bias) for weight, bias in zip(cell.weight, cell.bias, strict=True)]


def _less(f: Function, g: Function) -> Function:
    return f[0] - g[0], f[1] - g[1], f[2] - g[2]


def _value(f: Function, p: Point) -> Fraction:
    return f[0] * p[0] + f[1] * p[1] + f[2]


def _row(f: Function) -> Row:
    """Return integers with the signs of a function."""
    (a, b, c), _ = over_common(f)
    return a, b, c


def _point(p: Corner) -> Point:
    return Fraction(p[0], p[2]), Fraction(p[1], p[2])


def _area(polygon: Sequence[Corner]) -> Fraction:
    return area([_point(p) for p in polygon])


def _intersection(x: ExactCell, y: ExactCell) -> list[Corner]:
    """Return the common part of two convex cells, empty if it has no area."""
    polygon = [corner(u, v) for u, v in x.vertices]
    for (u, v), (s, t) in pairs(y.vertices):
        line = _row((v - t, s - u, u * t - v * s))
        polygon = where_positive(polygon, line) if polygon else []
    return polygon


def _winners(polygon: list[Corner], f: list[Function]) -> list[tuple[int, list[Corner]]]:
    """Return the parts in which each function is the largest, of equal ones the first."""
    zero = Fraction(0)
    f = [(zero, zero, zero), *f] if len(f) == 1 else f
    found = []
    for i in range(len(f)):
        part = polygon
        for j in range(len(f)):
            row = _row(_less(f[i], f[j]))
            if j == i or (row == (0, 0, 0) and j > i):
                continue
            part = where_positive(part, row) if part else []
        if part:
            found.append((i, part))
    return found


def _moments(polygon: list[Corner], f: Function) -> tuple[Fraction, Fraction, Fraction]:
    """Return the integrals of the modulus, of the function, and of its square."""
    modulus, signed, square = Fraction(0), Fraction(0), Fraction(0)
    for part in split(polygon, _row(f)):
        points = [_point(p) for p in part]
        for q, r in pairwise(points[1:]):
            size = area([points[0], q, r])
            values = [_value(f, p) for p in (points[0], q, r)]
            whole = _sum(values)
            signed += size * whole / 3
            modulus += size * abs(whole) / 3
            square += size * (whole**2 + _sum(x * x for x in values)) / 12
    return modulus, signed, square
