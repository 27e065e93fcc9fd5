"""Exact decision boundaries, level sets and class areas, from the cells of the exact partition.

Every cell is divided by the functions into parts on which no sign and no winner changes. The
sides of all parts are divided at each other's ends, so that each piece has one part on its left and
one on its right. Exact values decide whether a piece belongs to the curve.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise

from splinecam.testing.oracle.cells import ExactCell, ExactPartition
from splinecam.testing.oracle.geometry import (
    Corner,
    Point,
    Row,
    area,
    at,
    by,
    corner,
    difference,
    over_common,
    pairs,
    split,
)
from splinecam.testing.oracle.steps import maxima

__all__ = [
    "ExactClasses",
    "ExactSegment",
    "exact_boundary",
    "exact_classes",
    "exact_level_set",
]

OUTSIDE = -1
Pair = tuple[int, int]


@dataclass(frozen=True)
class ExactSegment:
    """A piece of a curve: ``label`` is the pair of classes, or the level's number twice.

    ``sides`` is the class left and right of it, -1 outside; for a level set the sign of the output
    less the level, 0 outside.
    """

    start: Point
    end: Point
    label: Pair
    sides: Pair

    @property
    def length(self) -> float:
        return math.hypot(self.end[0] - self.start[0], self.end[1] - self.start[1])

    def __repr__(self) -> str:
        (a, b), (c, d) = ((float(p[0]), float(p[1])) for p in (self.start, self.end))
        ends = f"({a:.17g}, {b:.17g}) to ({c:.17g}, {d:.17g})"
        return f"ExactSegment({ends}, label {self.label}, sides {self.sides})"


@dataclass(frozen=True)
class ExactClasses:
    """The area of each class, of equal ones the first, and the area on which classes are equal."""

    areas: tuple[Fraction, ...]
    tied: Fraction


@dataclass(frozen=True)
class _Part:
    """A convex part of a cell and functions on it, over one denominator that is left out."""

    corners: list[Corner]
    rows: list[Row]


def exact_boundary(
    exact: ExactPartition, *, kind: str = "argmax", level: float = 0.0
) -> list[ExactSegment]:
    """Return where the largest outputs tie, the smallest (argmin), or any two (pairwise)."""
    outputs = len(exact.cells[0].bias)
    if kind == "pairwise" and outputs > 1:
        names = list(combinations(range(outputs), 2))
        return _zero_sets([_differences(cell, names) for cell in exact.cells], names, levels=False)
    parts = _decided(exact, kind, level)
    best = [_winners(part) for part in parts]
    found = []
    for p, q, left, right in _borders([part.corners for part in parts]):
        inside = left if left != OUTSIDE else right
        equal = _largest(parts[inside].rows, (p, q))
        sets = [set(equal) if side == OUTSIDE else best[side] for side in (left, right)]
        if len(equal) > 1 and not sets[0] == sets[1] == set(equal):
            sides = tuple(OUTSIDE if i == OUTSIDE else min(best[i]) for i in (left, right))
            found.append((p, q, _tie(equal, sets, sides), (sides[0], sides[1])))
    return [_decision(*piece) for piece in found]


def exact_level_set(
    exact: ExactPartition, levels: Sequence[float], *, output: int = 0
) -> list[ExactSegment]:
    """Return where an output has one of the levels, which are numbered in ascending order."""
    wanted = sorted({Fraction(level) for level in levels})
    cells = []
    for cell in exact.cells:
        (a, b), c = cell.weight[output], cell.bias[output]
        cells.append(_Part(_corners(cell), _integers([(a, b, c - level) for level in wanted])))
    names = [(k, k) for k in range(len(wanted))]
    return _zero_sets(cells, names, levels=True)


def exact_classes(
    exact: ExactPartition, *, kind: str = "argmax", level: float = 0.0
) -> ExactClasses:
    """Return the area of each class; with one output, class 1 is above the level, 0 the rest."""
    areas = [Fraction(0)] * max(2, len(exact.cells[0].bias))
    tied = Fraction(0)
    for part in _decided(exact, kind, level):
        best = _winners(part)
        size = area([_point(p) for p in part.corners])
        areas[min(best)] += size
        tied += size * (len(best) > 1)
    return ExactClasses(tuple(areas), tied)


# ------------------------------------------------------------------------------ parts of cells


def _rows(cell: ExactCell) -> list[Row]:
    """Return the outputs of a cell as integers over one denominator, which is left out."""
    return _integers([(a, b, c) for (a, b), c in zip(cell.weight, cell.bias, strict=True)])


def _integers(rows: Sequence[tuple[Fraction, Fraction, Fraction]]) -> list[Row]:
    values, _ = over_common([value for row in rows for value in row])
    return [(a, b, c) for a, b, c in by(3, values)]


def _corners(cell: ExactCell) -> list[Corner]:
    return [corner(u, v) for u, v in cell.vertices]


def _differences(cell: ExactCell, names: Sequence[Pair]) -> _Part:
    """Return the cell with the differences of the outputs of all pairs, higher less lower."""
    rows = _rows(cell)
    return _Part(_corners(cell), [difference(rows[j], rows[i]) for i, j in names])


def _decided(exact: ExactPartition, kind: str, level: float) -> list[_Part]:
    """Divide the cells into the parts on which one set of outputs is the largest."""
    parts = []
    for cell in exact.cells:
        rows = _rows(cell)
        if len(rows) == 1:
            rows = [(0, 0, 0), *_integers([(*cell.weight[0], cell.bias[0] - Fraction(level))])]
        if kind == "argmin":
            rows = [(-a, -b, -c) for a, b, c in rows]
        parts += [_Part(part, rows) for _, part in maxima(_corners(cell), rows)]
    return parts


def _winners(part: _Part) -> set[int]:
    """Return the outputs that are the largest on all of a part."""
    return set(_largest(part.rows, part.corners))


def _largest(rows: Sequence[Row], points: Sequence[Corner]) -> list[int]:
    """Return the outputs that are the largest at all of the points."""
    values = [[at(row, p) for row in rows] for p in points]
    return [i for i in range(len(rows)) if all(value[i] == max(value) for value in values)]


def _tie(equal: Sequence[int], sets: Sequence[set[int]], sides: Sequence[int]) -> Pair:
    """Return the two classes of a border; within one class, it and the first other that ties."""
    inside = {side for side in sides if side != OUTSIDE}
    if len(inside) == 2:
        return min(inside), max(inside)
    own = inside.pop()
    rival = next(i for i in equal if i != own and not (i in sets[0] and i in sets[1]))
    return min(own, rival), max(own, rival)


def _zero_sets(
    cells: Sequence[_Part], names: Sequence[Pair], *, levels: bool
) -> list[ExactSegment]:
    """Return where the named functions, the rows of the cells, vanish; of areas the outline.

    Where several vanish, the first counts. The sides are the signs of the function for levels,
    and else the larger of the two classes.
    """
    parts = []
    for cell in cells:
        polygons = [cell.corners]
        for row in cell.rows:
            polygons = [half for polygon in polygons for half in split(polygon, row)]
        parts += [_Part(polygon, cell.rows) for polygon in polygons]
    found = []
    for p, q, left, right in _borders([part.corners for part in parts]):
        rows = parts[left if left != OUTSIDE else right].rows
        for k, name in enumerate(names):
            signs = _sign(parts, left, k), _sign(parts, right, k)
            if at(rows[k], p) == 0 == at(rows[k], q) and any(signs):
                larger = [
                    OUTSIDE if side == OUTSIDE else name[sign > 0]
                    for side, sign in zip((left, right), signs, strict=True)
                ]
                sides = signs if levels else (larger[0], larger[1])
                turned = signs[0] < signs[1]
                ends = (q, p) if turned else (p, q)
                found.append((*ends, name, sides[::-1] if turned else sides))
                break
    return [ExactSegment(_point(p), _point(q), name, sides) for p, q, name, sides in found]


def _sign(parts: Sequence[_Part], index: int, k: int) -> int:
    """Return the sign of a function on a part that it does not cross; 0 outside."""
    if index == OUTSIDE:
        return 0
    values = [at(parts[index].rows[k], p) for p in parts[index].corners]
    return (max(values) > 0) - (min(values) < 0)


# ------------------------------------------------------------------------------ sides on lines


def _borders(polygons: Sequence[list[Corner]]) -> Iterator[tuple[Corner, Corner, int, int]]:
    """Divide all sides at each other's ends; yield start, end, left polygon and right polygon."""
    lines: dict[Row, list[tuple[Corner, Corner, int, bool]]] = defaultdict(list)
    for index, polygon in enumerate(polygons):
        for p, q in pairs(polygon):
            line, forward = _line(p, q)
            lines[line].append((*((p, q) if forward else (q, p)), index, forward))
    for line, sides in lines.items():
        point = {_position(line, p): p for side in sides for p in side[:2]}
        stops = sorted(point)
        place = {stop: k for k, stop in enumerate(stops)}
        beside = [[OUTSIDE, OUTSIDE] for _ in stops]
        for p, q, index, forward in sides:
            for k in range(place[_position(line, p)], place[_position(line, q)]):
                if beside[k][not forward] != OUTSIDE:
                    raise AssertionError("two exact cells overlap")
                beside[k][not forward] = index
        for (s, t), (left, right) in zip(pairwise(stops), beside, strict=False):
            if (left, right) != (OUTSIDE, OUTSIDE):
                yield point[s], point[t], left, right


def _line(p: Corner, q: Corner) -> tuple[Row, bool]:
    """Return the line through two points in a unique form, and whether p comes first on it."""
    a = p[1] * q[2] - p[2] * q[1]
    b = p[2] * q[0] - p[0] * q[2]
    c = p[0] * q[1] - p[1] * q[0]
    common = math.gcd(a, b, c)
    forward = (a, b) > (0, 0)
    common = common if forward else -common
    return (a // common, b // common, c // common), forward


def _position(line: Row, p: Corner) -> Fraction:
    """Return the position of a point along its line."""
    return Fraction(line[1] * p[0] - line[0] * p[1], p[2])


def _point(p: Corner) -> Point:
    return Fraction(p[0], p[2]), Fraction(p[1], p[2])


def _decision(p: Corner, q: Corner, label: Pair, sides: Pair) -> ExactSegment:
    """Return a segment with the higher class on its left if both sides are inside."""
    turned = OUTSIDE not in sides and sides[0] < sides[1]
    ends = (q, p) if turned else (p, q)
    return ExactSegment(_point(ends[0]), _point(ends[1]), label, sides[::-1] if turned else sides)
