"""The steps of a network: each divides one exact cell and maps its activations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from typing import Protocol

import numpy as np
from torch import Tensor

from splinecam.testing.oracle.geometry import (
    Cell,
    Corner,
    Row,
    at,
    by,
    center,
    difference,
    fractions,
    over_common,
    split,
    where_positive,
)

__all__ = [
    "Activation",
    "Affine",
    "Chain",
    "Largest",
    "Skip",
    "Sorted",
    "Spline",
    "Step",
    "maxima",
]

Bound = tuple[np.ndarray, np.ndarray]  # per unit: of |value| over the domain, of |slope|
Groups = Sequence[Sequence[int]]  # the units of every group


class Step(Protocol):
    """A layer: ``apply`` divides and maps a cell; ``bound`` bounds values and slopes."""

    def apply(self, cell: Cell) -> list[Cell]: ...

    def bound(self, bound: Bound) -> Bound: ...


class Affine:
    """``weight @ z + bias`` with ``weight`` (n_out, n_in) and ``bias`` (n_out,)."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        size = weight.numel()
        values, self.den = over_common(fractions(weight) + fractions(bias))
        self.weight, self.bias = by(weight.shape[1], values[:size]), values[size:]
        self.size = weight.abs().numpy(), bias.abs().numpy()

    def apply(self, cell: Cell) -> list[Cell]:
        rows = []
        for weights, bias in zip(self.weight, self.bias, strict=True):
            terms = [(w, row) for w, row in zip(weights, cell.rows, strict=True) if w]
            a, b, c = (sum(w * row[k] for w, row in terms) for k in range(3))
            rows.append((a, b, c + bias * cell.den))
        return [replace(cell, rows=rows, den=cell.den * self.den)]

    def bound(self, bound: Bound) -> Bound:
        weight, bias = self.size
        return weight @ bound[0] + bias, weight @ bound[1]


@dataclass(frozen=True)
class Spline:
    """A function of one variable: ``slope x + intercept`` on each piece between the knots."""

    knots: tuple[Fraction, ...]
    pieces: tuple[tuple[Fraction, Fraction], ...]


class Activation:
    """One spline for each unit."""

    def __init__(self, splines: Sequence[Spline]) -> None:
        self.splines = splines

    def apply(self, cell: Cell) -> list[Cell]:
        lines = [
            [(k.denominator * a, k.denominator * b, k.denominator * c - k.numerator * cell.den)
             for k in spline.knots]
            for (a, b, c), spline in zip(cell.rows, self.splines, strict=True)
        ]  # fmt: skip
        parts = _divided(cell.corners, [line for unit in lines for line in unit])
        return [self._mapped(cell, part, lines) for part in parts]

    def _mapped(self, cell: Cell, part: list[Corner], lines: list[list[Row]]) -> Cell:
        """Return a part that no line crosses, with the activations after the splines."""
        pieces = [
            sum(all(at(line, corner) >= 0 for corner in part) for line in unit) for unit in lines
        ]
        chosen = [spline.pieces[i] for spline, i in zip(self.splines, pieces, strict=True)]
        values, den = over_common([value for piece in chosen for value in piece])
        rows = [
            (slope * a, slope * b, slope * c + intercept * cell.den)
            for (a, b, c), (slope, intercept) in zip(cell.rows, by(2, values), strict=True)
        ]
        return Cell(part, rows, cell.den * den, cell.pattern + tuple(pieces))

    def bound(self, bound: Bound) -> Bound:
        slope, intercept = (
            np.array([max(float(abs(p[k])) for p in s.pieces) for s in self.splines])
            for k in (0, 1)
        )
        return slope * bound[0] + intercept, slope * bound[1]


def _divided(polygon: list[Corner], lines: Sequence[Row]) -> list[list[Corner]]:
    """Return the parts of a polygon between lines."""
    parts = [polygon]
    for line in lines:
        parts = [half for part in parts for half in split(part, line)]
    return parts


@dataclass(frozen=True)
class Largest:
    """The largest unit of each group, or the smallest."""

    groups: Groups
    smallest: bool = False

    def apply(self, cell: Cell) -> list[Cell]:
        parts: list[tuple[list[Corner], tuple[int, ...]]] = [(cell.corners, ())]
        for group in self.groups:
            rows = [self._oriented(cell.rows[unit]) for unit in group]
            parts = [
                (part, (*winners, winner))
                for polygon, winners in parts
                for winner, part in maxima(polygon, rows)
            ]
        return [self._chosen(cell, part, winners) for part, winners in parts]

    def _oriented(self, row: Row) -> Row:
        return (-row[0], -row[1], -row[2]) if self.smallest else row

    def _chosen(self, cell: Cell, part: list[Corner], winners: tuple[int, ...]) -> Cell:
        places = zip(self.groups, winners, strict=True)
        rows = [cell.rows[group[winner]] for group, winner in places]
        return Cell(part, rows, cell.den, cell.pattern + winners)

    def bound(self, bound: Bound) -> Bound:
        value, slope = (np.array([b[list(group)].max() for group in self.groups]) for b in bound)
        return value, slope


def maxima(polygon: list[Corner], rows: Sequence[Row]) -> Iterator[tuple[int, list[Corner]]]:
    """Yield each function and where it is the largest; of equal functions the first one counts."""
    for place, row in enumerate(rows):
        if row in rows[:place]:
            continue
        part = polygon
        for other in rows:
            if part and other != row:
                part = where_positive(part, difference(row, other))
        if part:
            yield place, part


@dataclass(frozen=True)
class Sorted:
    """The units of each group in ascending order, in the places where the group's units are."""

    groups: Groups

    def apply(self, cell: Cell) -> list[Cell]:
        order = [difference(cell.rows[i], cell.rows[j]) for i, j in self._pairs()]
        return [self._ordered(cell, part) for part in _divided(cell.corners, order)]

    def _pairs(self) -> list[tuple[int, int]]:
        return [pair for group in self.groups for pair in combinations(group, 2)]

    def _ordered(self, cell: Cell, part: list[Corner]) -> Cell:
        """Return a part with the units sorted: their order is the same in all of its points."""
        u, v = center([(Fraction(x, w), Fraction(y, w)) for x, y, w in part])
        value = [a * u + b * v + c for a, b, c in cell.rows]
        rows = list(cell.rows)
        for group in self.groups:
            ascending = sorted(group, key=value.__getitem__)
            for place, unit in zip(sorted(group), ascending, strict=True):
                rows[place] = cell.rows[unit]
        above = tuple(int(value[i] > value[j]) for i, j in self._pairs())
        return Cell(part, rows, cell.den, cell.pattern + above)

    def bound(self, bound: Bound) -> Bound:
        value, slope = (b.copy() for b in bound)
        for group in map(list, self.groups):
            value[group], slope[group] = value[group].max(), slope[group].max()
        return value, slope


@dataclass(frozen=True)
class Chain:
    """One step after the other."""

    steps: tuple[Step, ...]

    def apply(self, cell: Cell) -> list[Cell]:
        cells = [cell]
        for step in self.steps:
            cells = [after for before in cells for after in step.apply(before)]
        return cells

    def bound(self, bound: Bound) -> Bound:
        for step in self.steps:
            bound = step.bound(bound)
        return bound


@dataclass(frozen=True)
class Skip:
    """A step whose input is added to its output."""

    body: Step

    def apply(self, cell: Cell) -> list[Cell]:
        return [self._added(cell, after) for after in self.body.apply(cell)]

    def _added(self, before: Cell, after: Cell) -> Cell:
        rows = []
        for x, y in zip(before.rows, after.rows, strict=True):
            a, b, c = (p * after.den + q * before.den for p, q in zip(x, y, strict=True))
            rows.append((a, b, c))
        return replace(after, rows=rows, den=before.den * after.den)

    def bound(self, bound: Bound) -> Bound:
        after = self.body.bound(bound)
        return bound[0] + after[0], bound[1] + after[1]
