"""Check a certificate that SplineCam wrote, in exact arithmetic: python splinecam_check.py FILE."""
# It needs Python alone. docs/certificates.md describes certificates, and has the proof.

import fileinput
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from hashlib import sha256
from itertools import chain, compress, pairwise
from math import gcd
from operator import mul, sub
from typing import Any

Row = tuple[int, ...]  # (a, b, c) is a u + b v + c, times a power of two
Point = tuple[int, ...]  # (x, y, w) with w > 0 is (x / w, y / w), in lowest terms
FORMS = (  # the keys of the first line, of lines of the network, and of cells
    ("certificate domain inputs",),
    ("affine", "units function", "max", "max smallest", "network outputs claims"),
    ("cell sides", "except"),
)


def require(truth: bool, why: str) -> None:
    """Raise an error unless something is true; errors of Python mean a line of another form."""
    if not truth:
        raise ValueError(why)


def number(text: str) -> Fraction:
    """A fraction of two hexadecimal integers, such as "-3/10" for -3 / 16, or of one."""
    above, _, below = text.partition("/")
    return Fraction(int(above, 16), int(below or "1", 16))


def power_of(*numbers: Fraction) -> int:
    """The power of two, as an exponent, that makes all numbers whole."""
    require(all(x.denominator.bit_count() == 1 for x in numbers), "a number is not binary")
    return max((x.denominator.bit_length() - 1 for x in numbers), default=0)


def cross(p: Row, q: Row) -> Row:
    """The line through two points, or the point on two lines."""
    return p[1] * q[2] - p[2] * q[1], p[2] * q[0] - p[0] * q[2], p[0] * q[1] - p[1] * q[0]


def at(row: Row, p: Point) -> int:
    """A number with the sign of a function at a point."""
    return row[0] * p[0] + row[1] * p[1] + row[2] * p[2]


def lowest(p: Row) -> Row:
    """The same point or line in lowest terms; its last number that is not zero is positive."""
    last = p[2] or p[1] or p[0]
    require(last != 0, "two sides of a cell are on one line, or two corners are one point")
    common = gcd(*p) if last > 0 else -gcd(*p)
    return p[0] // common, p[1] // common, p[2] // common


def point(words: list[str]) -> Point:
    """The point with two coordinates."""
    u, v = map(number, words)
    return lowest(tuple(int(x * u.denominator * v.denominator) for x in (u, v, 1)))


def around(items: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Each item with the one after it, around a cycle."""
    return pairwise([*(some := list(items)), *some[:1]])


def require_convex(corners: list[Point]) -> None:
    """Require that a polygon's corners turn left everywhere, and around once in all."""
    require(len(corners) > 2 and all(p[2] > 0 for p in corners), "a cell has too few corners")
    sides = [cross(p, q) for p, q in around(corners)]
    left = all(at(side, p) > 0 for side, p in zip(sides, corners[2:] + corners[:2]))
    upwards = around((-a, b) > (0, 0) for a, b, _ in sides)
    require(left and sum(b and not a for a, b in upwards) == 1, "a cell is not convex")


def part(corners: list[Point], rows: list[tuple[Row, Any]]) -> list[Point]:
    """The part of a convex polygon, segment or point where rows are >= 0, those with a 1 > 0."""
    for row, _ in rows:
        values, kept = [at(row, p) for p in corners], []
        for (p, s), (q, t) in around(zip(corners, values, strict=True)):
            if s >= 0:
                kept.append(p)
            if s < 0 < t or t < 0 < s:
                kept.append(lowest(tuple(abs(t) * i + abs(s) * j for i, j in zip(p, q))))
        corners = kept
    return corners * all(not s or any(at(row, p) > 0 for p in corners) for row, s in rows)


def add_border(border: Counter[Any], corners: list[Point], sign: int) -> None:
    """Add a polygon's sides to a chain: for each line, where they end, less where they begin."""
    for p, q in around(corners):
        line = lowest(cross(p, q))
        border[line, q] += sign
        border[line, p] -= sign


def area(sides: Counter[tuple[Point, Point]]) -> Fraction:
    """The area of what sides run around; neighbours are added first, as denominators get long."""
    terms = [(n * (p[0] * q[1] - p[1] * q[0]), 2 * p[2] * q[2]) for (p, q), n in sides.items() if n]
    while len(terms) > 1:
        pairs = zip(terms[::2], [*terms[1::2], (0, 1)], strict=False)
        terms = [(a * d + c * b, b * d) for (a, b), (c, d) in pairs]
    return Fraction(*terms[0]) if terms else Fraction(0)


class Network:
    """The network of a certificate, with the maps of all its numbers on one cell at a time."""

    def __init__(self, corners: list[list[str]], inputs: list[list[str]]) -> None:
        self.corners = [point(words) for words in corners]
        require_convex(self.corners)
        # What is not negative on the cell, by name, and whether it may not be zero on all of it.
        sides = enumerate(cross(p, q) for p, q in around(self.corners))
        self.asked: dict[Any, tuple[Row, Any]] = {(k,): (row, 0) for k, row in sides}
        rows = [(number(a), number(b), number(c)) for a, b, c in inputs]
        power = power_of(*chain(*rows))
        self.powers = [power] * len(rows)  # of each number: its map is integers / 2 ** power
        self.maps: list[Row] = [tuple(int(x * 2**power) for x in row) for row in rows]
        self.layers, self.affine, self.outputs = list[Any](), [list[Any]()], list[int]()
        self.marks: list[tuple[int, int]] = []  # how many maps and demands preceded each layer

    def add(self, line: dict[str, Any]) -> None:
        """Read an operation, which adds numbers to those before."""
        if "affine" in line:
            rows = [(row[1::2], list(map(number, row[::2]))) for row in line["affine"]]
            terms = [term for i, w in rows for term in zip(i, w[1:], strict=True)]
            powers = [self.powers[i] + power_of(w) for i, w in terms]
            power = max(power_of(*(w[0] for _, w in rows)), *powers, 0)
            for i, (offset, *weights) in rows:
                scaled = [int(w * 2 ** (power - self.powers[j])) for j, w in zip(i, weights)]
                self.affine[-1].append((i, scaled, int(offset * 2**power)))
            self.powers += [power] * len(rows)
            return
        groups = line["max"] if "max" in line else [[unit] for unit in line["units"]]
        (power,) = {self.powers[i] for i in chain(*groups)}
        layer = {"groups": groups, "sign": {True: -1, False: 1}[line.get("smallest", False)]}
        if "max" not in line:  # a function by its knots, slopes, and value at the first knot
            *lists, first = line["function"]
            knots, slopes = (list(map(number, some)) for some in lists)
            require(knots == sorted(knots) and len(slopes) == len(knots) + 1, "a function is none")
            offsets = [number(first) - slopes[0] * knots[0]]
            for knot, (before, after) in zip(knots, pairwise(slopes)):
                offsets.append(offsets[-1] + (before - after) * knot)
            finer = max(0, power_of(*knots) - power)  # by so much are units compared with knots
            layer |= {"finer": finer, "knots": [int(x * 2 ** (power + finer)) for x in knots]}
            old, power = power, max(power + power_of(*slopes), power_of(*offsets))
            pairs = zip(slopes, offsets)
            layer["pieces"] = [(int(s * 2 ** (power - old)), int(b * 2**power)) for s, b in pairs]
        self.powers += [power] * len(groups)
        self.layers.append(layer)
        self.affine.append([])

    def run_affine(self) -> None:
        """Add the maps of the rows after the present layer."""
        before, used, columns = None, list[bool](), []
        for i, weights, offset in self.affine[len(self.marks)]:
            if i != before:
                before, used = i, [any(self.maps[j]) for j in i]  # many maps are zero
                columns = list(zip(*map(self.maps.__getitem__, compress(i, used)))) or [()] * 3
            a, b, c = (sum(map(mul, compress(weights, used), column)) for column in columns)
            self.maps.append((a, b, c + offset))

    def follow(self, index: int, pieces: list[int]) -> None:
        """Add the maps after a layer, whose units are on these pieces, and what they ask."""
        if index < len(self.marks):  # forget all that depends on other pieces of it
            while len(self.asked) > self.marks[index][1]:
                self.asked.popitem()
            del self.maps[self.marks[index][0] :], self.marks[index:]
        self.marks.append((len(self.maps), len(self.asked)))
        units = enumerate(zip(pieces, self.layers[index]["groups"], strict=True))
        self.maps += [self._ask(self.layers[index], (index, i), *unit) for i, unit in units]
        self.run_affine()

    def _ask(self, layer: Any, unit: tuple[int, int], piece: int, group: list[int]) -> Row:
        """A unit's result; of pieces that are the same on all of a cell, the first counts."""
        row = self.maps[group[0 if "knots" in layer else piece]]
        if "knots" not in layer:  # the largest or the smallest of a group
            for k, i in enumerate(group):
                if k != piece and (i != group[piece] or k < piece):
                    a, b, c = (layer["sign"] * x for x in map(sub, row, self.maps[i]))
                    self.asked[*unit, k] = (a, b, c), k < piece
            return row
        slope, offset = layer["pieces"][piece]
        a, b, c = (x << layer["finer"] for x in row)
        for k, knot in [*enumerate(layer["knots"])][max(piece - 1, 0) : piece + 1]:
            self.asked[*unit, k] = (((a, b, c - knot), 1), ((-a, -b, knot - c), 0))[k >= piece]
        return slope * row[0], slope * row[1], slope * row[2] + offset


def compare(network: Network, claim: dict[str, Any], corners: list[Point], cell: int) -> None:
    """Compare a claim with a cell."""
    kind, maps, place = claim["claim"], network.maps, corners
    if kind == "largest":
        i, value = network.outputs[claim["output"]], number(claim["value"])
        above = max(at(maps[i], p) - value * (p[2] << network.powers[i]) for p in corners)
        require(above <= 0, f"an output is larger in cell {cell}")
        claim["met"] |= above == 0
    elif kind == "holds" or (kind == "fails" and claim["cell"] == cell):
        if kind == "fails":
            place = part([point(claim["point"])], [(cross(p, q), 0) for p, q in around(corners)])
        # Unsafe are numbers of one list that are all >= 0, those with a 1 beside them > 0.
        unsafe = ([(maps[i], strict == 1) for i, strict in rows] for rows in claim["unsafe"])
        claim["met"] = any(part(place, rows) for rows in unsafe) == (kind == "fails")
        require(claim["met"], f"the property does not do what is claimed in cell {cell}")
    elif kind == "areas":  # class k has the first largest output; of one, class 1 is above zero
        rows = [(0, 0, 0)] * (len(network.outputs) == 1) + [maps[i] for i in network.outputs]
        for k, sides in enumerate(claim["sides"]):
            margins = [(tuple(map(sub, rows[k], row)), j < k) for j, row in enumerate(rows)]
            for p, q in around(part(corners, margins)):
                sides[(q, p) if sides[q, p] > 0 else (p, q)] += -1 if sides[q, p] > 0 else 1


def judge(claim: dict[str, Any], cells: int) -> str:
    """What a claim says, which was compared with all cells."""
    kind, met, words = claim["claim"], claim["met"], json.dumps(claim.get("unsafe"))
    if kind == "regions":
        met, words = claim["number"] == cells, f"{cells} "
    elif kind == "areas":
        limits = [[number(low), number(high)] for low, high in claim["areas"]]
        met = all(a <= area(x) <= b for x, (a, b) in zip(claim["sides"], limits, strict=True))
        words = f"{[[float(x) for x in some] for some in limits]} "
    elif kind == "largest":
        words = f"{claim['output']} {float(number(claim['value']))}"
    elif kind == "fails":
        words += f" at {tuple(float(number(x)) for x in claim['point'])}"
    require(met, f"the claim {kind!r} is not true in {cells} cells")
    return f"{kind} {words}"


def check(lines: Iterable[str]) -> list[str]:
    """What a certificate proves, in words; an error says what is wrong with it."""
    claims, left, stage, digest = list[dict[str, Any]](), list[str](), 0, sha256()
    border, last, cells = Counter[Any](), [[-1]], 0
    for text in lines:
        line = json.loads(text)
        require(json.dumps(line) == text.rstrip("\n"), "a line is not written as json.dumps does")
        require(" ".join(line) in FORMS[stage], f"a line has other keys than {FORMS[stage]}")
        require(text.count("-") == text.count('"-'), "an index is negative")
        if stage == 0:
            require(line["certificate"] == 1, "it is not of version 1")
            network, stage = Network(line["domain"], line["inputs"]), 1
            add_border(border, network.corners, -1)
        elif "claims" in line:
            digest.update(json.dumps(line["outputs"]).encode())
            require(line["network"] == digest.hexdigest(), "the network has another digest")
            network.run_affine()
            network.outputs, stage = line["outputs"], 2
            (_,) = {network.powers[i] for i in network.outputs}
            for claim in line["claims"]:
                sides = [Counter[Any]() for _ in range(max(2, len(network.outputs)))]
                claims.append(claim | {"met": claim["claim"] == "holds", "sides": sides})
        elif stage == 1:
            network.add(line)
        elif "except" in line:
            corners = [point(place) for place in line["except"]]
            add_border(border, corners, 1)
            size, places = area(Counter(around(corners))), [(x / w, y / w) for x, y, w in corners]
            left.append(f"except an area of {float(size)} in {places}")
        else:
            corners, last = check_cell(network, line, last, cells)
            add_border(border, corners, 1)
            for claim in claims:
                compare(network, claim, corners, cells)
            cells += 1
        digest.update(text.encode() if stage < 2 else b"")
    kinds = {claim["claim"] for claim in claims}
    require(len(kinds) > 0, "nothing is claimed")
    require(not left or "holds" not in kinds, "a property has to hold everywhere")
    require(kinds == {"fails"} or not any(border.values()), "the domain is not covered once")
    return [f"network {digest.hexdigest()}", *(judge(claim, cells) for claim in claims), *left]


def check_cell(network: Network, line: Any, last: list[Any], cell: int) -> tuple[Any, list[Any]]:
    """The corners and the pattern of the next cell, which are checked."""
    pattern = [[int(x, 36) for x in some] for some in line["cell"]]
    after = cell == 0 or pattern > last
    require(after and min(chain(*pattern), default=0) >= 0, f"cell {cell} is not in order")
    same = next(i for i, (a, b) in enumerate([*zip(pattern, last), (0, 1)]) if a != b)
    for index in range(same, len(pattern)):
        network.follow(index, pattern[index])
    require(len(network.marks) == len(network.layers), f"cell {cell} lacks layers")
    rows = [network.asked[tuple(side)][0] for side in line["sides"]]
    require_convex(corners := [lowest(cross(p, q)) for p, q in around(rows)])
    for row, strict in network.asked.values():
        values = [at(row, p) for p in corners]
        require(min(values) >= 0, f"a unit is not on its piece at a corner of cell {cell}")
        require(not strict or max(values) > 0, f"a unit is on a border everywhere in cell {cell}")
    return corners, pattern


if __name__ == "__main__":
    file = fileinput.input(encoding="utf-8")  # noqa: SIM115 (the process ends with it)
    try:
        print("proved", "\nproved ".join(check(file)))
    except Exception as error:
        raise SystemExit(f"refused at line {file.lineno()}: {error!r}") from None
