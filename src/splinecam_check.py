"""Check a certificate that SplineCam wrote, in exact arithmetic: python splinecam_check.py FILE.

This file needs Python alone and imports nothing of SplineCam. Each cell of a certificate has the
piece of every unit, its pattern, and names the lines of its sides. What is computed from these:

1. the affine maps of all units, as integers over a power of two, since all weights are such;
2. the corners, where two sides meet, as integers (x, y, w) that mean (x / w, y / w);
3. that the corners are those of a convex polygon, and that each unit is on its piece at each corner
   (then it is on all of the cell, and the maps are those of the network there);
4. that all patterns differ, and that the sides of all cells add up to the border of the domain
   (then the cells cover each point of the domain exactly once, apart from borders);
5. the claims. docs/certificates.md describes the file, and proves that this is enough.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import pairwise
from math import gcd
from operator import mul
from typing import Any

Row = tuple[int, int, int]  # (a, b, c) is a u + b v + c, times a power of two
Point = tuple[int, int, int]  # (x, y, w) with w > 0 is (x / w, y / w), in lowest terms
Constraint = tuple[int, int, int, bool]  # a row that is not negative; whether it is not zero, too


class Wrong(Exception):
    """What is wrong with a certificate."""


def require(truth: bool, why: str) -> None:
    """Raise ``Wrong`` unless something is true."""
    if not truth:
        raise Wrong(why)


def binary(text: str) -> Fraction:
    """A number that is written as ``"3p-2"``, which means 3 / 4.

    >>> binary("3p-2"), binary("7")
    (Fraction(3, 4), Fraction(7, 1))
    """
    digits, _, power = text.partition("p")
    return Fraction(int(digits)) * Fraction(2) ** int(power or 0)


def fraction(text: str) -> Fraction:
    """A fraction of two hexadecimal integers, such as ``"-3/10"`` for -3 / 16."""
    above, below = text.split("/")
    return Fraction(int(above, 16), int(below, 16))


def point(words: list[str]) -> Point:
    """A point of three hexadecimal integers."""
    x, y, w = (int(word, 16) for word in words)
    require(w > 0, "a point is at infinity")
    return lowest((x, y, w))


def power_of(numbers: Iterable[Fraction]) -> int:
    """The least power of two, as an exponent, that makes all numbers whole."""
    return max((number.denominator.bit_length() - 1 for number in numbers), default=0)


def whole(number: Fraction, power: int) -> int:
    """A number times a power of two, which is an integer."""
    return int(number * Fraction(2) ** power)


def cross(p: Row, q: Row) -> Row:
    """The line through two points, or the point on two lines."""
    return p[1] * q[2] - p[2] * q[1], p[2] * q[0] - p[0] * q[2], p[0] * q[1] - p[1] * q[0]


def at(row: Row, p: Point) -> int:
    """A number with the sign of a function at a point."""
    return row[0] * p[0] + row[1] * p[1] + row[2] * p[2]


def minus(p: Row, q: Row) -> Row:
    """The first function less the second, of one power."""
    return p[0] - q[0], p[1] - q[1], p[2] - q[2]


def lowest(p: Row) -> Row:
    """The same point or line in lowest terms; the last number that is not zero is positive."""
    last = p[2] or p[1] or p[0]
    require(last != 0, "two sides of a cell are on one line, or two corners are one point")
    common = gcd(*p) if last > 0 else -gcd(*p)
    return p[0] // common, p[1] // common, p[2] // common


def around(items: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Each item with the one after it, around a cycle."""
    return pairwise([*items, items[0]])


def require_convex(corners: list[Point]) -> None:
    """Require that corners turn left everywhere, and turn around once in all."""
    require(len(corners) > 2, "a cell has fewer than three corners")
    require(all(p[2] > 0 for p in corners), "two sides that follow each other are parallel")
    upwards = []
    for (p, q), (_, r) in around(list(around(corners))):
        require(at(cross(p, q), r) > 0, "a cell is not convex")
        rise, run = q[1] * p[2] - p[1] * q[2], q[0] * p[2] - p[0] * q[2]
        upwards.append(rise > 0 or (rise == 0 and run > 0))
    turns = sum(after and not before for before, after in around(upwards))
    require(turns == 1, "the sides of a cell run around it more than once")


def clip(corners: list[Point], row: Row) -> list[Point]:
    """The corners of the part of a convex polygon, segment or point where a row is not negative."""
    values = [at(row, p) for p in corners]
    if min(values, default=0) >= 0:
        return corners
    kept = []
    for (p, s), (q, t) in around(list(zip(corners, values, strict=True))):
        if s >= 0:
            kept.append(p)
        if s < 0 < t or t < 0 < s:
            x, y, w = (abs(t) * i + abs(s) * j for i, j in zip(p, q, strict=True))
            kept.append(lowest((x, y, w)))
    return kept


def add_border(chain: Counter[Any], corners: list[Point], sign: int) -> None:
    """Add the sides of a polygon to a chain: on each line, the ends less the beginnings."""
    for p, q in around(corners):
        line = lowest(cross(p, q))
        for point, step in ((q, sign), (p, -sign)):
            chain[line, point] += step
            if not chain[line, point]:
                del chain[line, point]


def total(terms: list[tuple[int, int]]) -> Fraction:
    """The sum of fractions; neighbours are added first, as denominators become long."""
    while len(terms) > 1:
        terms = [
            (a[0] * b[1] + b[0] * a[1], a[1] * b[1])
            for a, b in zip(terms[::2], [*terms[1::2], (0, 1)][: len(terms[::2])], strict=True)
        ]
    return Fraction(*terms[0]) if terms else Fraction(0)


class Network:
    """The network of a certificate, with the maps of all numbers on the cell that is looked at."""

    def __init__(self, corners: list[list[str]], inputs: list[list[str]]) -> None:
        points = [(binary(u), binary(v)) for u, v in corners]
        power = power_of(x for point in points for x in point)
        self.corners = [lowest((whole(u, power), whole(v, power), 1 << power)) for u, v in points]
        require_convex(self.corners)
        self.sides: list[Row] = [cross(p, q) for p, q in around(self.corners)]
        rows = [[binary(text) for text in row] for row in inputs]
        power = power_of(x for row in rows for x in row)
        self.powers = [power] * len(rows)  # of each number: its map is integers / 2 ** power
        columns = zip(*([whole(x, power) for x in row] for row in rows), strict=True)
        self.maps: list[list[int]] = [list(column) for column in columns]
        self.layers: list[dict[str, Any]] = []
        self.affine: list[list[Any]] = [[]]  # the affine operations after each layer
        self.outputs: list[int] = []
        self.constraints: list[Constraint] = []
        self.marks: list[tuple[int, int]] = []  # the numbers and constraints before each layer

    def add(self, line: dict[str, Any]) -> None:
        """Read an operation, which adds numbers to those before."""
        if "affine" in line:
            self.affine[-1].append(self._read_affine(line["affine"]))
            return
        units = line["units"] if "units" in line else [i for group in line["max"] for i in group]
        powers = {self.powers[i] for i in units}
        require(len(powers) == 1 and min(units) >= 0, "a layer takes numbers of different powers")
        layer = {"units": units, "power": powers.pop()}
        if "max" in line:
            layer |= {"groups": line["max"], "sign": -1 if line.get("smallest") else 1}
            self.powers += [layer["power"]] * len(line["max"])
        else:
            self._read_function(layer, *line["function"])
        self.layers.append(layer)
        self.affine.append([])

    def _read_affine(self, rows: list[list[Any]]) -> list[Any]:
        """Each row as the numbers it takes, and as integers their weights and the offset."""
        known, read, power = len(self.powers), [], 0
        for offset, *terms in rows:
            sources, weights = tuple(terms[::2]), [binary(w) for w in terms[1::2]]
            require(all(0 <= i < known for i in sources), "a row takes a number that is not known")
            powers = [power_of([w]) + self.powers[i] for i, w in zip(sources, weights, strict=True)]
            power = max([power, power_of([binary(offset)]), *powers])
            read.append((sources, weights, binary(offset)))
        self.powers += [power] * len(rows)
        return [
            (i, [whole(w, power - self.powers[j]) for j, w in zip(i, ws, strict=True)], whole(b, power))
            for i, ws, b in read
        ]  # fmt: skip

    def _read_function(self, layer: dict[str, Any], *function: Any) -> None:
        """A function of one variable: its knots, its slopes between them, its value at the first."""
        knots, slopes = ([binary(text) for text in part] for part in function[:2])
        require(len(slopes) == len(knots) + 1 and knots == sorted(knots), "a function has no sense")
        offsets, power = [binary(function[2]) - slopes[0] * knots[0]], layer["power"]
        for knot, (before, after) in zip(knots, pairwise(slopes), strict=True):
            offsets.append(offsets[-1] + (before - after) * knot)
        result = max(power + power_of(slopes), power_of(offsets))
        # Units below are compared with knots, so that both are whole at the power of the units.
        extra = max(0, power_of(knots) - power)
        layer |= {"extra": extra, "knots": [whole(knot, power + extra) for knot in knots]}
        layer["pieces"] = [
            (whole(s, result - power), whole(b, result)) for s, b in zip(slopes, offsets, strict=True)
        ]
        self.powers += [result] * len(layer["units"])

    def row(self, number: int) -> Row:
        """The map of a number."""
        return self.maps[0][number], self.maps[1][number], self.maps[2][number]

    def line(self, side: list[int], pattern: list[list[int]]) -> Row:
        """The line of a side ``[k]`` of the domain, or of ``[layer, unit, other]``.

        There the unit is on the knot with the number ``other``, or equals that of its group.
        """
        require(all(i >= 0 for i in side), "a side is named by a number below zero")
        if len(side) == 1:
            return self.sides[side[0]]
        index, unit, other = side
        layer = self.layers[index]
        if "groups" in layer:
            group = layer["groups"][unit]
            return minus(self.row(group[pattern[index][unit]]), self.row(group[other]))
        a, b, c = (x << layer["extra"] for x in self.row(layer["units"][unit]))
        return a, b, c - layer["knots"][other]

    def begin(self) -> None:
        """Compute the numbers before the first layer."""
        self._follow_affine(0)

    def back(self, index: int) -> None:
        """Forget what depends on the patterns of the layers from one on."""
        numbers, constraints = self.marks[index]
        for column in self.maps:
            del column[numbers:]
        del self.constraints[constraints:], self.marks[index:]

    def follow(self, index: int, pattern: list[int]) -> None:
        """Add the maps after a layer of which each unit is on a piece, and what that requires."""
        layer = self.layers[index]
        self.marks.append((len(self.maps[0]), len(self.constraints)))
        groups = layer.get("groups", layer["units"])
        require(len(pattern) == len(groups) and min(pattern, default=0) >= 0, "a pattern is no one")
        for place, unit in zip(pattern, groups, strict=True):
            row = self._largest(layer, unit, place) if "groups" in layer else (
                self._piece(layer, self.row(unit), place)
            )  # fmt: skip
            for column, value in zip(self.maps, row, strict=True):
                column.append(value)
        self._follow_affine(index + 1)

    def _largest(self, layer: dict[str, Any], group: list[int], place: int) -> Row:
        """The largest of a group, the first of those that are equal on all of a cell."""
        winner, sign = self.row(group[place]), layer["sign"]
        for other, number in enumerate(group):
            if number != group[place] or other < place:
                a, b, c = minus(winner, self.row(number))
                self.constraints.append((sign * a, sign * b, sign * c, other < place))
        return winner

    def _piece(self, layer: dict[str, Any], row: Row, piece: int) -> Row:
        """A function of one variable on a piece, the first of two on a knot of all of a cell."""
        a, b, c = row
        knots, (slope, offset), extra = layer["knots"], layer["pieces"][piece], layer["extra"]
        if piece > 0:
            lower = knots[piece - 1]
            self.constraints.append((a << extra, b << extra, (c << extra) - lower, True))
        if piece < len(knots):
            upper = knots[piece]
            self.constraints.append((-a << extra, -b << extra, upper - (c << extra), False))
        return slope * a, slope * b, slope * c + offset

    def _follow_affine(self, index: int) -> None:
        """Run the affine operations after a layer."""
        for rows in self.affine[index]:
            before, picked = None, self.maps
            for sources, weights, offset in rows:
                if sources != before:
                    before, picked = sources, [[col[i] for i in sources] for col in self.maps]
                a, b, c = (sum(map(mul, weights, column)) for column in picked)
                for column, value in zip(self.maps, (a, b, c + offset), strict=True):
                    column.append(value)


class Claims:
    """What a certificate says of the network, compared with every cell."""

    def __init__(self, network: Network, claims: list[dict[str, Any]]) -> None:
        self.network, self.claims, self.cells = network, claims, 0
        self.met = [False] * len(claims)
        self.edges: list[Counter[Any]] = [Counter() for _ in range(max(2, len(network.outputs)))]

    def visit(self, corners: list[Point]) -> None:
        """Compare all claims with the next cell, on which the network has its present maps."""
        for k, claim in enumerate(self.claims):
            if claim["claim"] == "largest":
                self._largest(k, corners, claim["output"], fraction(claim["value"]))
            elif claim["claim"] == "areas":
                self._areas(corners)
            elif claim["claim"] == "holds":
                unsafe = any(self.meets(corners, rows) for rows in claim["unsafe"])
                require(not unsafe, f"a property fails in cell {self.cells}")
            elif claim["claim"] == "fails" and claim["cell"] == self.cells:
                place = [point(claim["point"])]
                for p, q in around(corners):
                    place = clip(place, cross(p, q))
                self.met[k] = any(self.meets(place, rows) for rows in claim["unsafe"])
        self.cells += 1

    def _largest(self, k: int, corners: list[Point], output: int, value: Fraction) -> None:
        number = self.network.outputs[output]
        row, power = self.network.row(number), self.network.powers[number]
        for p in corners:
            off = at(row, p) * value.denominator - (value.numerator * p[2] << power)
            require(off <= 0, f"output {output} is larger in cell {self.cells}")
            self.met[k] |= off == 0

    def part(self, corners: list[Point], rows: list[list[int]]) -> list[Point]:
        """The corners of the part of a polygon where some numbers are not positive."""
        for number, _ in rows:
            corners = clip(corners, minus((0, 0, 0), self.network.row(number)))
        return corners

    def meets(self, corners: list[Point], rows: list[list[int]]) -> bool:
        """Whether numbers are <= 0, those with a 1 beside them < 0, at one point of a polygon."""
        part, row = self.part(corners, rows), self.network.row
        return bool(part) and all(not s or min(at(row(i), p) for p in part) < 0 for i, s in rows)

    def _areas(self, corners: list[Point]) -> None:
        """Add the sides of the part of each class, without those that cancel each other."""
        rows = [self.network.row(number) for number in self.network.outputs]
        rows = rows if len(rows) > 1 else [(0, 0, 0), *rows]
        for k, edges in enumerate(self.edges):
            part = corners
            for j, other in enumerate(rows):
                difference = minus(rows[k], other)
                part = clip(part, difference)
                if j < k and part and max(at(difference, p) for p in part) <= 0:
                    part = []
            for p, q in around(part) if len(part) > 2 else ():
                if edges[q, p] > 0:
                    edges[q, p] -= 1
                else:
                    edges[p, q] += 1

    def area(self, k: int) -> Fraction:
        """The area of a class."""
        return total([
            (count * (p[0] * q[1] - p[1] * q[0]), 2 * p[2] * q[2])
            for (p, q), count in self.edges[k].items()
            if count
        ])  # fmt: skip

    def proved(self) -> list[str]:
        """What is proved, in words; raises ``Wrong`` if a claim is not true."""
        words = []
        for claim, met in zip(self.claims, self.met, strict=True):
            kind = claim["claim"]
            if kind == "regions":
                require(claim["number"] == self.cells, f"there are {self.cells} regions")
                words.append(f"{self.cells} regions")
            elif kind == "areas":
                for k, (low, high) in enumerate(claim["areas"]):
                    area = self.area(k)
                    require(fraction(low) <= area <= fraction(high), f"class {k} has another area")
                    words.append(f"class {k} has the area {float(area):.17g}, exactly as claimed")
                require(len(claim["areas"]) == len(self.edges), "classes are left out")
            else:
                require(met or kind == "holds", f"the claim {kind!r} is not met in any cell")
                words.append(f"the property {kind}" if kind in ("holds", "fails") else (
                    f"the largest output {claim['output']} is {float(fraction(claim['value'])):.17g}"
                ))  # fmt: skip
        return words


def check(lines: Iterable[str]) -> list[str]:
    """What a certificate proves, in words; ``Wrong`` says what is wrong with it."""
    try:
        return _check(map(json.loads, lines))
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise Wrong(f"it cannot be read: {type(error).__name__}: {error}") from error


def _check(lines: Iterator[dict[str, Any]]) -> list[str]:
    head = next(lines, {})
    require(head.get("certificate") == 1, "it is no certificate of version 1")
    network = Network(head["domain"], head["inputs"])
    chain: Counter[Any] = Counter()
    add_border(chain, network.corners, -1)
    claims, last, words = None, [[-1]], []
    for line in lines:
        if claims is not None and "cell" in line:
            last = _visit(network, claims, chain, line, last)
        elif claims is not None and "except" in line:
            corners = [point(words) for words in line["except"]]
            add_border(chain, corners, 1)
            (u, *_, right), (v, *_, top) = (sorted(Fraction(p[i], p[2]) for p in corners) for i in (0, 1))
            words.append(f"except in {float(u):.17g} to {float(right):.17g}, {float(v):.17g} to {float(top):.17g}")
        elif claims is None and "outputs" in line:
            network.outputs = line["outputs"]
            same = len({network.powers[i] for i in network.outputs}) == 1
            require(same and min(network.outputs) >= 0, "outputs are of different powers")
            claims = Claims(network, line["claims"])
            network.begin()
        else:
            require(claims is None, "a line is out of place")
            network.add(line)
    require(claims is not None and claims.cells > 0, "it ends early")
    assert claims is not None
    partial = all(claim["claim"] == "fails" for claim in claims.claims)
    require(partial or not chain, "the cells do not cover the domain exactly once")
    return claims.proved() + words


def _visit(
    network: Network, claims: Claims, chain: Counter[Any], line: dict[str, Any], last: list[list[int]]
) -> list[list[int]]:
    """Check a cell; return its pattern, of which each layer has the pieces of its units."""
    cell = line["cell"]
    pattern = [[int(x, 36) for x in part] if isinstance(part, str) else part for part in cell]
    require(pattern > last or not pattern, "the cells are not in the order of their patterns")
    require(len(pattern) == len(network.layers), "a pattern has not all layers")
    require(pattern != last, "a cell is there twice")
    first = next(i for i, (new, old) in enumerate(zip(pattern, last)) if new != old) if pattern else 0
    if first < len(network.marks):
        network.back(first)
    for index in range(first, len(pattern)):
        network.follow(index, pattern[index])
    lines = [network.line(side, pattern) for side in line["sides"]]
    corners = [lowest(cross(before, after)) for before, after in around(lines)]
    try:
        require_convex(corners)
        for row in network.sides:
            require(min(at(row, p) for p in corners) >= 0, "a corner is not in the domain")
        for a, b, c, proper in network.constraints:
            values = [a * x + b * y + c * w for x, y, w in corners]
            require(min(values) >= 0, "a unit is not on its piece at a corner")
            require(not proper or max(values) > 0, "a unit is on a border of its piece everywhere")
    except Wrong as wrong:
        raise Wrong(f"{wrong}, in cell {claims.cells}") from wrong
    add_border(chain, corners, 1)
    claims.visit(corners)
    return pattern


def main(arguments: list[str]) -> int:
    """Check a file and print what it proves; 0 if nothing is wrong."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(f"usage: python splinecam_check.py FILE\n\n{__doc__}", file=sys.stderr)
        return 2
    try:
        with open(arguments[0], encoding="utf-8") as file:
            print("\n".join(f"proved: {words}" for words in check(file)))
    except (Wrong, OSError) as error:
        print(f"not proved: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
