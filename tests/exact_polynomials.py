"""Extremes of quadratic polynomials in inputs and outputs, in fractions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import torch

from splinecam.files.formulas import Polynomial
from splinecam.testing.oracle.cells import ExactCell, ExactPartition

Point = tuple[Fraction, Fraction]


def least(q: Callable[[Point], Fraction], corners: Sequence[Point]) -> Fraction:
    """The least value of a quadratic function on a convex polygon."""
    found = [q(p) for p in corners]
    for p, r in zip(corners, [*corners[1:], corners[0]], strict=True):
        middle = ((p[0] + r[0]) / 2, (p[1] + r[1]) / 2)
        begin, half, end = q(p), q(middle), q(r)
        bend, slope = 2 * (begin - 2 * half + end), 4 * half - 3 * begin - end
        if bend and 0 < (t := -slope / (2 * bend)) < 1:
            found.append(q((p[0] + t * (r[0] - p[0]), p[1] + t * (r[1] - p[1]))))
    (o, one) = (Fraction(0), Fraction(1))
    c, e, n, w, s = (q(p) for p in ((o, o), (one, o), (o, one), (-one, o), (o, -one)))
    a, d, b = (e + w) / 2 - c, (n + s) / 2 - c, q((one, one)) - e - n + c
    g, h, det = (e - w) / 2, (n - s) / 2, 4 * a * d - b * b
    if a > 0 and det > 0:  # the minimum of the plane
        p = ((b * h - 2 * d * g) / det, (b * g - 2 * a * h) / det)
        sides = zip(corners, [*corners[1:], corners[0]], strict=True)
        if all((r[0] - l[0]) * (p[1] - l[1]) >= (r[1] - l[1]) * (p[0] - l[0]) for l, r in sides):  # noqa: E741
            found.append(q(p))
    return min(found)


def on_cell(cell: ExactCell, term: Polynomial) -> Callable[[Point], Fraction]:
    """A polynomial as a function of plane coordinates, which are the inputs."""

    def value(p: Point) -> Fraction:
        y = [w[0] * p[0] + w[1] * p[1] + b for w, b in zip(cell.weight, cell.bias, strict=True)]
        known, total = [*p, *y[::-1]], Fraction(0)
        for key, factor in term._term.items():
            names = () if key is None else key if isinstance(key, tuple) else (key,)
            total += factor * math.prod((known[name] for name in names), start=Fraction(1))
        return total

    return value


def exact_minimum(exact: ExactPartition, term: Polynomial) -> Fraction:
    """The least value of a polynomial in the inputs and outputs of a network."""
    return min(least(on_cell(cell, term), cell.vertices) for cell in exact.cells)


def random_term(variables: Sequence[Polynomial], generator: torch.Generator) -> Polynomial:
    """A quadratic polynomial with small whole coefficients: definite, indefinite or flat."""

    def number() -> int:
        return int(torch.randint(-3, 4, (1,), generator=generator))

    total = Polynomial({None: Fraction(number())})
    for k, one in enumerate(variables):
        total = total + number() * one
        for other in variables[k:]:
            total = total + number() * one * other
    return total
