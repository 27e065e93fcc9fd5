"""Exact boundaries, preimages and differences, from the cells of the exact partition.

Functions divide every cell into parts on which no sign and no winner changes. The sides of all
parts are divided at each other's ends. Each piece then has one part on its left and one on its
right, and exact values decide whether the piece belongs to the curve.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise

from torch import nn

from splinecam.geometry.domain import Domain
from splinecam.testing.oracle import steps
from splinecam.testing.oracle.cells import ExactCell, ExactPartition, exact_partition
from splinecam.testing.oracle.steps import Corner, Point, Row, at, corner, divided, maxima, point

Function = tuple[Fraction, Fraction, Fraction]  # (a, b, c) is a u + b v + c
OUTSIDE = -1
Pair = tuple[int, int]


@dataclass(frozen=True)
class ExactSegment:
    """A piece of a curve."""

    start: Point
    end: Point
    label: Pair  # the pair of classes, or the number of the level twice
    sides: Pair  # classes at the left and right, -1 outside; of level sets the signs, 0 outside

    @property
    def length(self) -> float:
        return math.hypot(self.end[0] - self.start[0], self.end[1] - self.start[1])

    def __repr__(self) -> str:
        (a, b), (c, d) = ((float(p[0]), float(p[1])) for p in (self.start, self.end))
        ends = f"({a:.17g}, {b:.17g}) to ({c:.17g}, {d:.17g})"
        return f"ExactSegment({ends}, label {self.label}, sides {self.sides})"


@dataclass(frozen=True)
class ExactClasses:
    """The area of each class, and the area of ties; the first of equal classes counts."""

    areas: tuple[Fraction, ...]
    tied: Fraction


@dataclass(frozen=True)
class _Part:
    """A convex part of a cell, and functions on it over one denominator, which is left out."""

    corners: list[Corner]
    rows: list[Row]


def exact_boundary(
    exact: ExactPartition, *, kind: str = "argmax", level: float = 0.0
) -> list[ExactSegment]:
    """Return where the largest outputs tie, or the smallest (argmin), or any two (pairwise)."""
    outputs = len(exact.cells[0].bias)
    if kind == "pairwise" and outputs > 1:
        names = list(combinations(range(outputs), 2))
        cells = []
        for cell in exact.cells:
            rows = _integers(_functions(cell))
            higher = [steps.difference(rows[j], rows[i]) for i, j in names]
            cells.append(_Part(_corners(cell), higher))
        return _zero_sets(cells, names, levels=False)
    parts = _decided(exact, kind, level)
    best = [_winners(part) for part in parts]
    found = []
    for p, q, left, right in _borders([part.corners for part in parts]):
        inside = left if left != OUTSIDE else right
        equal = _largest(parts[inside].rows, (p, q))
        sets = [set(equal) if side == OUTSIDE else best[side] for side in (left, right)]
        if len(equal) > 1 and not sets[0] == sets[1] == set(equal):
            first, second = (OUTSIDE if i == OUTSIDE else min(best[i]) for i in (left, right))
            sides = first, second
            turned = OUTSIDE not in sides and first < second  # the higher class is on the left
            found.append(_segment(p, q, _tie(equal, sets, sides), sides, turned))
    return found


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
        best, size = _winners(part), _area(part.corners)
        areas[min(best)] += size
        tied += size * (len(best) > 1)
    return ExactClasses(tuple(areas), tied)


def _functions(cell: ExactCell) -> list[Function]:
    return [(*weight, bias) for weight, bias in zip(cell.weight, cell.bias, strict=True)]


def _integers(functions: Sequence[Function]) -> list[Row]:
    """Return functions as integers over one denominator, which is left out."""
    values, _ = steps.over_common([value for function in functions for value in function])
    return [(a, b, c) for a, b, c in steps.by(3, values)]


def _corners(cell: ExactCell) -> list[Corner]:
    return [corner(u, v) for u, v in cell.vertices]


def _area(polygon: Sequence[Corner]) -> Fraction:
    return steps.area([point(p) for p in polygon])


def _scores(functions: list[Function], level: float = 0.0) -> list[Row]:
    """Return the functions whose largest one wins; a single output competes with the level."""
    if len(functions) > 1:
        return _integers(functions)
    ((a, b, c),) = functions
    return [(0, 0, 0), *_integers([(a, b, c - Fraction(level))])]


def _decided(exact: ExactPartition, kind: str, level: float) -> list[_Part]:
    """Return the parts of cells on which one set of outputs is the largest."""
    parts = []
    for cell in exact.cells:
        rows = _scores(_functions(cell), level)
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
    """Return the classes on both sides; within one class, that class and the first rival."""
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
    and otherwise the larger of the two classes.
    """
    parts = [_Part(part, cell.rows) for cell in cells for part in divided(cell.corners, cell.rows)]
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
                found.append(_segment(p, q, name, sides, signs[0] < signs[1]))
                break
    return found


def _segment(p: Corner, q: Corner, label: Pair, sides: Pair, turned: bool) -> ExactSegment:
    """Return the segment from p to q, or in the other direction if it is turned."""
    ends = (q, p) if turned else (p, q)
    return ExactSegment(point(ends[0]), point(ends[1]), label, sides[::-1] if turned else sides)


def _sign(parts: Sequence[_Part], index: int, k: int) -> int:
    """Return the sign of a function on a part that it does not cross; 0 outside."""
    if index == OUTSIDE:
        return 0
    values = [at(parts[index].rows[k], p) for p in parts[index].corners]
    return (max(values) > 0) - (min(values) < 0)


def _borders(polygons: Sequence[list[Corner]]) -> Iterator[tuple[Corner, Corner, int, int]]:
    """Divide all sides at each other's ends; yield start, end, left polygon and right polygon."""
    lines: dict[Row, list[tuple[Corner, Corner, int, bool]]] = defaultdict(list)
    for index, polygon in enumerate(polygons):
        for p, q in steps.pairs(polygon):
            line, forward = _line(p, q)
            lines[line].append((*((p, q) if forward else (q, p)), index, forward))
    for line, sides in lines.items():
        stop_at = {_position(line, p): p for side in sides for p in side[:2]}
        stops = sorted(stop_at)
        place = {stop: k for k, stop in enumerate(stops)}
        beside = [[OUTSIDE, OUTSIDE] for _ in stops]
        for p, q, index, forward in sides:
            for k in range(place[_position(line, p)], place[_position(line, q)]):
                if beside[k][not forward] != OUTSIDE:
                    raise AssertionError("two exact cells overlap")
                beside[k][not forward] = index
        for (s, t), (left, right) in zip(pairwise(stops), beside, strict=False):
            if (left, right) != (OUTSIDE, OUTSIDE):
                yield stop_at[s], stop_at[t], left, right


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
        functions = _functions(cell)
        rows = [
            [(_combined(functions, weights, limit), strict) for weights, limit, strict in group]
            for group in condition
        ]
        lines = _integers([f for group in rows for f, _ in group])
        for part in divided(_corners(cell), lines):
            middle = steps.center([point(p) for p in part])
            values = [[(_value(f, middle), strict) for f, strict in group] for group in rows]
            if any(all(v < 0 or (v == 0 and not s) for v, s in group) for group in values):
                total += _area(part)
    return total


def _combined(functions: Sequence[Function], weights: Sequence[float], limit: float) -> Function:
    """Return a weighted sum of functions minus a limit."""
    both = [(Fraction(w), f) for w, f in zip(weights, functions, strict=True)]
    a, b, c = (_sum(weight * f[k] for weight, f in both) for k in range(3))
    return a, b, c - Fraction(limit)


@dataclass(frozen=True)
class ExactDifference:
    """How two networks with n outputs and k classes differ on a domain."""

    cells: int  # the number of convex cells that both have in common
    largest: list[Fraction]  # the largest modulus of the difference, for each output
    norm_1: Fraction  # the largest norm of the difference of all outputs
    norm_inf: Fraction
    square_2: Fraction  # the square of the largest 2-norm
    mean: list[Fraction]  # of the modulus, for each output
    bias: list[Fraction]  # the mean difference, for each output
    mean_square: list[Fraction]  # for each output
    areas: list[list[Fraction]]  # k rows of k numbers, the area of each pair of classes


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
        [abs(_value(_less(f[k], g[k]), point(p))) for k in outputs]
        for part, f, g in common
        for p in part
    ]
    classes = range(max(2, len(outputs)))
    areas = [[Fraction(0) for _ in classes] for _ in classes]
    for part, f, g in common:
        for i, inner in maxima(part, _scores(f)):
            for j, innermost in maxima(inner, _scores(g)):
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


def _less(f: Function, g: Function) -> Function:
    return f[0] - g[0], f[1] - g[1], f[2] - g[2]


def _value(f: Function, p: Point) -> Fraction:
    return f[0] * p[0] + f[1] * p[1] + f[2]


def _intersection(x: ExactCell, y: ExactCell) -> list[Corner]:
    """Return the common part of two convex cells, empty if it has no area."""
    polygon = _corners(x)
    sides = [(v - t, s - u, u * t - v * s) for (u, v), (s, t) in steps.pairs(y.vertices)]
    for line in _integers(sides):
        polygon = steps.where_positive(polygon, line) if polygon else []
    return polygon


def _moments(polygon: list[Corner], f: Function) -> tuple[Fraction, Fraction, Fraction]:
    """Return the integrals of the modulus, of the function, and of its square."""
    modulus, signed, square = Fraction(0), Fraction(0), Fraction(0)
    for part in divided(polygon, _integers([f])):
        points = [point(p) for p in part]
        for q, r in pairwise(points[1:]):
            size = steps.area([points[0], q, r])
            values = [_value(f, p) for p in (points[0], q, r)]
            whole = _sum(values)
            signed += size * whole / 3
            modulus += size * abs(whole) / 3
            square += size * (whole**2 + _sum(x * x for x in values)) / 12
    return modulus, signed, square
