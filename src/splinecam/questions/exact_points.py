"""Places that rounding leaves open, decided in exact arithmetic.

The limits of several constraints may meet in a point at which rounding cannot tell them apart. The
exact cells around it, of the network with its weights as they are, settle that no point satisfies
a conjunction: linear rows cut an exact polygon, possibly down to a point, and a polynomial lies
between the least and the largest of its coefficients on it (its blossom at all choices of corners).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement, pairwise, permutations, product
from math import lcm, prod

from torch import Tensor

import splinecam_check as checker
from splinecam.errors import SplineCamError
from splinecam.files.properties import OutputCondition
from splinecam.geometry.convex import ConvexPolygons
from splinecam.questions.certificates import Cells, written_network
from splinecam.questions.partition_data import PartitionData
from splinecam_check import Point

_MOST = 64  # polygons that are tried
_DEGREE = 3  # of polynomials, whose coefficients are many on polygons with many corners
_MARGIN = 2.0**-40  # around a polygon, in sizes of the domain
_NEAR = 2.0**-20  # sizes of the domain in which polygons are around one point
_STEPS = 2, 5  # in which cells are looked for along the sides of a window, one after the other

Affine = tuple[Fraction, Fraction, Fraction]  # a u + b v + c


@dataclass(frozen=True)
class _Row:
    """The demand that a polynomial is at least zero, or larger: a sum of products with factors."""

    terms: tuple[tuple[Fraction, tuple[Affine, ...]], ...]
    strict: bool

    @property
    def degree(self) -> int:
        return max((len(factors) for _, factors in self.terms), default=0)

    def blossom(self, points: Sequence[Affine]) -> Fraction:
        """The symmetric function that is affine in each point, and the polynomial at equal ones."""
        orders = list(permutations(points))
        total = Fraction(0)
        for size, factors in self.terms:
            values = (prod(map(_value, factors, order), start=Fraction(1)) for order in orders)
            total += size * sum(values, Fraction(0)) / len(orders)
        return total

    def met(self, point: Affine) -> bool:
        """Whether the demand is met at a point."""
        found = self.blossom([point] * max(1, self.degree))
        return found > 0 if self.strict else found >= 0


def _value(row: Affine, point: Affine) -> Fraction:
    return row[0] * point[0] + row[1] * point[1] + row[2] * point[2]


def holds_nowhere(part: PartitionData, condition: OutputCondition, cells: ConvexPolygons) -> bool:
    """Whether exact arithmetic shows that a condition holds nowhere on some polygons and near them.

    If not, nothing is known.
    """
    degree = 1 if condition.factors is None else condition.factors.shape[1]
    if len(cells) > _MOST or degree > _DEGREE or condition.about_slopes:
        return False
    if part.smoothing is not None or part._program is None:
        return False
    try:
        network = written_network(part, None)
    except SplineCamError:  # of operations that certificates do not have
        return False
    found, domain = Cells(network), [*network.network.corners]
    corners, bounds = part._frame.to_plane(cells.uv).cpu(), cells.offsets.tolist()
    pieces = [corners[first:last] for first, last in pairwise(bounds)]
    if float((corners.amax(0) - corners.amin(0)).max()) <= _NEAR * part._frame.scale:
        pieces = [corners]  # around one point
    windows = (_window(piece, part) for piece in pieces)
    return all(_nowhere_in(found, domain, condition, window) for window in windows)


def _window(corners: Tensor, part: PartitionData) -> list[tuple[Fraction, Fraction]]:
    """A rectangle around corners, by coordinates."""
    margin = max(_MARGIN * part._frame.scale, float((corners.amax(0) - corners.amin(0)).max()))
    sides = zip(corners.amin(0).tolist(), corners.amax(0).tolist(), strict=True)
    return [(Fraction(low - margin), Fraction(high + margin)) for low, high in sides]


def _nowhere_in(
    cells: Cells,
    domain: list[Point],
    condition: OutputCondition,
    window: list[tuple[Fraction, Fraction]],
) -> bool:
    """Whether a condition holds nowhere in the part of the domain in a window."""
    (a, b), (c, d) = window
    one, zero = Fraction(1), Fraction(0)
    sides = [(one, zero, -a), (-one, zero, b), (zero, one, -c), (zero, -one, d)]
    whole = checker.part(domain, [(_whole(side), 0) for side in sides])
    seen, covered, size = set(), Fraction(0), _area(whole)
    for p in _grid(window):
        if covered == size:
            return True
        if not _within(whole, p):
            continue
        pattern = cells.find(p)
        if pattern in seen or pattern not in cells.found:
            continue
        seen.add(pattern)
        own = cells.found[pattern][1]
        common = checker.part(whole, [(checker.cross(p, q), 0) for p, q in checker.around(own)])
        covered += _area(common)
        if not all(_empty(common, rows) for rows in _rows(cells, condition)):
            return False
    return covered == size


def _grid(window: list[tuple[Fraction, Fraction]]) -> Iterator[Point]:
    """Points all over a window, few at first."""
    for steps in _STEPS:
        parts = [Fraction(k, steps) for k in range(steps + 1)]
        lines = [[low + (high - low) * part for part in parts] for low, high in window]
        for u, v in product(*lines):
            sizes = (u, v, Fraction(1))
            yield checker.lowest(tuple(int(x * u.denominator * v.denominator) for x in sizes))


def _within(polygon: list[Point], p: Point) -> bool:
    return all(checker.at(checker.cross(q, r), p) >= 0 for q, r in checker.around(polygon))


def _area(polygon: list[Point]) -> Fraction:
    points = [(Fraction(p[0], p[2]), Fraction(p[1], p[2])) for p in polygon]
    turned = (p[0] * q[1] - p[1] * q[0] for p, q in checker.around(points))
    return sum(turned, Fraction(0)) / 2


def _whole(row: Affine) -> tuple[int, ...]:
    """A row times a number that makes it whole."""
    size = lcm(*(x.denominator for x in row))
    return tuple(int(x * size) for x in row)


def _rows(cells: Cells, condition: OutputCondition) -> Iterator[list[_Row]]:
    """The rows of each conjunction on the cell that was found last."""
    network = cells.made.network
    maps: list[Affine] = [
        (Fraction(a, 1 << power), Fraction(b, 1 << power), Fraction(c, 1 << power))
        for (a, b, c), power in zip(network.maps, network.powers, strict=True)
    ]
    outputs = [maps[i] for i in network.outputs]
    n, one = len(outputs), (Fraction(0), Fraction(0), Fraction(1))
    for A, b, strict, C, Q, factors in condition:
        D = 0 if C is None else C.shape[1]
        known = [*maps[:D], one, *outputs[::-1]]
        rows = []
        for k in range(len(b)):
            linear = zip(A[k].tolist(), outputs, strict=True)
            inputs = [] if C is None else zip(C[k].tolist(), maps[:D], strict=True)
            terms = [(Fraction(b[k].item()), (one,))]
            terms += [(-Fraction(x), (row,)) for x, row in (*linear, *inputs) if x]
            if Q is not None and factors is not None:
                sizes = zip(Q[k].tolist(), factors.tolist(), strict=True)
                terms += [
                    (-Fraction(x), tuple(known[i] for i in each if i != D))
                    for x, each in sizes
                    if x
                ]
            rows.append(_Row(tuple(terms), bool(strict[k])))
        assert len(known) == D + 1 + n
        yield rows


def _empty(polygon: list[Point], rows: Sequence[_Row]) -> bool:
    """Whether rows are seen to be met nowhere together on a convex polygon; False if it is open."""
    flat = [row for row in rows if row.degree <= 1]
    cuts = []
    for row in flat:
        parts = [[size * x for x in factors[0]] for size, factors in row.terms]
        total = [sum(column, Fraction(0)) for column in zip(*parts, strict=True)]
        cuts.append((_whole((total[0], total[1], total[2])), int(row.strict)))
    corners = checker.part(polygon, cuts)
    points = [
        (Fraction(p[0], p[2]), Fraction(p[1], p[2]), Fraction(1)) for p in dict.fromkeys(corners)
    ]
    if not points:
        return True
    for row in rows:
        if row.degree <= 1:
            continue
        choices = combinations_with_replacement(range(len(points)), row.degree)
        found = {each: row.blossom([points[k] for k in each]) for each in choices}
        highest = max(found.values())
        if highest < 0 or (highest == 0 and row.strict):
            return True
        zeros = [each for each, value in found.items() if value == 0]
        if highest == 0 and all(len({*each}) == 1 for each in zeros):
            # Only these corners are left, which other rows may exclude.
            return all(not all(row.met(points[each[0]]) for row in rows) for each in zeros)
    return False
