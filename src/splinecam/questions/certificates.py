"""Certificates: files from which anyone can check a partition in exact arithmetic, without us.

The network is written as numbers that follow from each other. Each region gives one of its points;
around it, integers tell the pattern and the exact cell. ``splinecam_check`` reads the file; what it
computes of patterns is used here, too, as what is written must pass it.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from hashlib import sha256
from itertools import chain, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

import splinecam_check as checker
from splinecam._util.files import replaced
from splinecam.errors import SplineCamError
from splinecam.files.properties import OutputCondition
from splinecam.network.nonlinearities import MaxNonlinearity, Nonlinearity, PiecewiseScalar
from splinecam.network.program import Program, Stage, Step
from splinecam.network.values import Ref
from splinecam.questions.partition_data import PartitionData
from splinecam_check import Point, Row, at, cross, lowest

_FAR = (2.0**200, 2.0**120)  # beside which offsets round away, so that weights come out exactly
_ROWS = 1 << 22  # coefficients that are computed at once
_DIGITS = 1 << 16  # bits of a fraction that is written out; others are written within bounds
_BITS = 128  # of these bounds


@dataclass(frozen=True)
class Certificate:
    """A certificate that was written.

    path: the file; regions: the number of its cells; left_out: plane coordinates (u, v) of places
    that float64 united, and which are not in it; holds: whether its property holds, None without.
    """

    path: str
    regions: int
    left_out: tuple[tuple[float, float], ...] = ()
    holds: bool | None = None


def certify(
    part: PartitionData, path: str | os.PathLike[str], *, exact: bool = False
) -> Certificate:
    """Write a certificate of the partition, which anyone can check in exact arithmetic.

    The file has the network in exact numbers, and the pattern and the sides of every region. It
    claims their number, the areas of the classes as exact fractions, and the largest outputs.
    ``python splinecam_check.py FILE`` proves it with Python alone. Where float64 has united what
    exact arithmetic separates, the certificate leaves out a tiny polygon, which ``left_out`` names.

    This computes in Python, about a millisecond for each region.

    path: the file. exact: find the regions that float64 has united, so that nothing is left out.

    >>> import splinecam as sc, splinecam_check, tempfile
    >>> part = sc.partition(torch.nn.ReLU(), sc.Domain.box(-1, 1), progress=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = part.certify(f"{folder}/relu.cert")
    ...     with open(written.path) as file:
    ...         splinecam_check.check(file)[1:3]
    ['regions 4 ', 'areas [[2.5, 2.5], [1.5, 1.5]] ']
    """
    part._require("a certificate")
    return write(part, path, None, exact=exact)


def write(
    part: PartitionData,
    path: str | os.PathLike[str],
    condition: OutputCondition | None,
    *,
    exact: bool,
) -> Certificate:
    """Write the certificate of a partition, or of a property with an unsafe condition."""
    if part.smoothing is not None:
        raise SplineCamError(
            "A certificate is about a piecewise-linear network, and smooth functions of this one "
            "were replaced. Give certify a partition that was made without smooth=."
        )
    if condition is not None and condition.factors is not None:
        raise SplineCamError(
            "A certificate is about a linear condition, and this one has products of variables."
        )
    with torch.no_grad():
        network = written_network(part, condition)
        cells = Cells(network)
        for uv in _ordered(part):
            cells.find(checker.point([_text(x) for x in uv]))
    border = cells.open_border()
    if border and exact:
        cells.explore()
        border = cells.open_border()
    loops = _loops(border) if border else []
    claims, holds = cells.claims(condition is not None)
    places = tuple((p[0][0] / p[0][2], p[0][1] / p[0][2]) for p in loops)
    lines = [json.dumps(line) + "\n" for line in network.lines]
    digest = sha256("".join([*lines, json.dumps(network.outputs)]).encode()).hexdigest()
    claimed = {"network": digest, "outputs": network.outputs, "claims": claims}
    lines.append(json.dumps(claimed) + "\n")
    for loop in loops:
        words = [[_hex(Fraction(x, p[2])) for x in p[:2]] for p in loop]
        lines.append(json.dumps({"except": words}) + "\n")
    with replaced(path) as file:
        file.writelines(line.encode() for line in lines)
        file.writelines(f"{json.dumps(line)}\n".encode() for line in cells.lines())
    return Certificate(os.fspath(path), len(cells.found), places, holds)


def _ordered(part: PartitionData) -> Iterator[tuple[float, float]]:
    """A point in each region, those of equal patterns in the first layers after each other."""
    pieces = [part.patterns()[name] for name in part.layers if name in part.patterns()]
    points = part._frame.to_plane(part.mesh.means()).tolist()
    if not pieces:
        return iter(points)
    table = torch.cat(pieces, 1).cpu().numpy()
    return iter([points[i] for i in np.lexsort(table.T[::-1])])


# -- the network as numbers ------------------------------------------------------------------------


@dataclass
class _Lines:
    """The lines of a file that say what the network is, and the numbers of its values."""

    lines: list[dict[str, Any]]
    network: checker.Network
    source: list[int]  # the line that made each number
    values: dict[str, tuple[tuple[int, ...], list[int]]]  # shapes of values, and their numbers
    outputs: list[int] = field(default_factory=list)
    unsafe: list[list[list[int]]] = field(default_factory=list)

    def add(self, line: dict[str, Any], count: int) -> list[int]:
        """The numbers that a line makes."""
        self.network.add(line)
        first = len(self.source)
        self.source += [len(self.lines)] * count
        self.lines.append(line)
        return list(range(first, first + count))

    def affine(self, rows: list[list[Any]]) -> list[int]:
        """The numbers of some rows, which may be numbers that are there."""
        same = [row[1] for row in rows if len(row) == 3 and row[0] == "0" and row[2] == "1"]
        if len(same) == len(rows) and len({self.source[i] for i in same}) == 1:
            return same
        return self.add({"affine": rows}, len(rows))


def _text(value: float) -> str:
    """A number as the file has it."""
    return _hex(Fraction(value))


def written_network(part: PartitionData, condition: OutputCondition | None) -> _Lines:
    """The network of a partition, and the rows of a condition on its outputs and inputs."""
    program, domain = part._network.to("cpu"), part.domain
    corners = [[_text(x) for x in point] for point in domain.corners.tolist()]
    rows = torch.cat([domain.basis, domain.origin[None]]).T.tolist()
    inputs = [[_text(x) for x in row] for row in rows]
    head = {"certificate": 1, "domain": corners, "inputs": inputs}
    count = len(inputs)
    entry = {program.input_name: (tuple(domain.input_shape), list(range(count)))}
    made = _Lines([head], checker.Network(corners, inputs), [0] * count, entry)
    for i, stage in enumerate(program.stages):
        _write_steps(made, program, i, stage)
        if stage.layer is not None:
            _write_layer(made, stage.layer)
    numbers = made.values[program.output_name][1]
    if len({made.source[i] for i in numbers}) > 1:
        numbers = made.add({"affine": [["0", i, "1"] for i in numbers]}, len(numbers))
    made.outputs = numbers
    for each in condition or ():
        table = each.A if each.C is None else torch.cat([each.A, each.C], 1)
        own = [*numbers, *range(table.shape[1] - len(numbers))]
        lines = [
            [_text(b), *(x for i, w in zip(own, row, strict=True) if w for x in (i, _text(-w)))]
            for row, b in zip(table.tolist(), each.b.tolist(), strict=True)
        ]
        found = made.add({"affine": lines}, len(lines))
        made.unsafe.append([[i, int(s)] for i, s in zip(found, each.strict.tolist(), strict=True)])
    made.network.outputs = numbers
    made.network.run_affine()
    return made


def _write_steps(made: _Lines, program: Program, i: int, stage: Stage) -> None:
    """The affine steps of a stage, one by one, so that no weights are multiplied in float64."""
    shapes, pending = program.row_shapes(i), []
    for step in stage.steps:
        pending.append(step)
        if step.rule is None or step.name not in shapes:
            continue
        made.values[step.name] = tuple(shapes[step.name]), made.affine(_rows(made, pending))
        pending = [each for each in pending if each is not step]


def _rows(made: _Lines, steps: list[Step]) -> list[list[Any]]:
    """What the last of some steps makes of the values before them, as rows of the file."""
    taken = {
        x.name
        for step in steps
        for x in tree_leaves((step.args, step.kwargs))
        if isinstance(x, Ref)
    }
    sources = [name for name in made.values if name in taken]
    offset = _run(made, steps, sources, None, 0.0, slice(0, 0))[-1]
    rows: list[list[Any]] = [[_text(b)] for b in offset.tolist()]
    for name in sources:
        numbers = made.values[name][1]
        size = max(1, _ROWS // max(1, len(offset)))
        for k in range(0, len(numbers), size):
            some = slice(k, min(k + size, len(numbers)))
            near, far = (_run(made, steps, sources, name, far, some) / far for far in _FAR)
            if not torch.equal(near, far):
                raise SplineCamError(
                    f"The weights of {steps[-1].name!r} could not be found exactly, as its numbers "
                    "differ too much in size, so that there is no certificate of this network."
                )
            for row, column in near.T.nonzero().tolist():
                rows[row] += [numbers[k + column], _text(float(near[column, row]))]
    return rows


def _run(
    made: _Lines, steps: list[Step], sources: list[str], one: str | None, far: float, some: slice
) -> Tensor:
    """What steps make of some units of a value, each times a number alone; and of nothing, last."""
    count = some.stop - some.start
    env: dict[str, Any] = {}
    for name in sources:
        shape, numbers = made.values[name]
        env[name] = torch.zeros((count + 1, *shape), dtype=torch.float64)
        if name == one:
            units = torch.arange(some.start, some.stop)
            env[name].view(count + 1, len(numbers))[torch.arange(count), units] = far
    for step in steps:
        env[step.name] = step.call(env, count + 1, torch.device("cpu"))
    result: Tensor = env[steps[-1].name].reshape(count + 1, -1)
    return result if one is None else result[:-1] - result[-1:]


def _write_layer(made: _Lines, layer: Nonlinearity) -> None:
    """A layer: one line for all units with the same function, or for all groups."""
    numbers = made.values[layer.source][1]
    shape = layer.apply(torch.zeros((1, *layer.shape), dtype=torch.float64)).shape[1:]
    if len({made.source[i] for i in numbers}) > 1:
        numbers = made.add({"affine": [["0", i, "1"] for i in numbers]}, len(numbers))
    if isinstance(layer, MaxNonlinearity) and layer.argument == layer.source:
        groups = [[numbers[i] for i in dict.fromkeys(group)] for group in layer.members.tolist()]
        smallest = {"smallest": True} if layer.smallest else {}
        made.values[layer.result] = tuple(shape), made.add({"max": groups, **smallest}, len(groups))
        return
    if (
        not isinstance(layer, PiecewiseScalar)
        or layer.period is not None
        or layer.argument != layer.source
        or bool(layer.levels.isinf().all(0).any())
    ):
        raise SplineCamError(
            f"The layer {layer.name!r} ({layer.target}) cannot be written in a certificate, which "
            "knows functions of one variable with knots, and maxima and minima of groups."
        )
    results = [0] * len(numbers)
    for text, units in _functions(layer).items():
        knots, slopes, first = json.loads(text)
        function = {"units": [numbers[i] for i in units], "function": [knots, slopes, first]}
        for unit, number in zip(units, made.add(function, len(units)), strict=True):
            results[unit] = number
    made.values[layer.result] = tuple(shape), results


def _functions(layer: PiecewiseScalar) -> dict[str, list[int]]:
    """The units of each function, by its knots, slopes and value at the first knot."""
    values = layer.apply(layer.levels[:1].reshape(1, *layer.shape)).reshape(-1).tolist()
    found: dict[str, list[int]] = defaultdict(list)
    levels, slopes = layer.levels.T.tolist(), layer.slopes.T.tolist()
    for unit, (knots, own, value) in enumerate(zip(levels, slopes, values, strict=True)):
        finite = [_text(x) for x in knots if abs(x) < float("inf")]
        line = finite, [_text(x) for x in own[: len(finite) + 1]], _text(value)
        found[json.dumps(line)].append(unit)
    return found


# -- cells -----------------------------------------------------------------------------------------


@dataclass
class Cells:
    """The exact cells that were found, by their patterns."""

    made: _Lines
    found: dict[tuple[tuple[int, ...], ...], tuple[list[list[int]], list[Point]]] = field(
        default_factory=dict
    )
    sides: list[Counter[Any]] = field(default_factory=list)  # of the classes, for their areas
    best: list[list[Fraction]] = field(default_factory=list)  # the largest outputs
    unsafe: dict[tuple[tuple[int, ...], ...], list[Point]] = field(default_factory=dict)
    _path: list[list[int]] = field(default_factory=list)  # the pattern that the network is on

    def find(self, p: Point, ways: tuple[Row, Row] = ((1, 0, 0), (0, 1, 0))) -> Any:
        """The pattern of the cell at a point; it is added if it is new.

        ways: of cells that meet at the point, the one that a small step along the first way and a
        much smaller one along the second lead to.
        """
        network = self.made.network

        def value(row: Row) -> tuple[int, int, int]:
            along = (row[0] * way[0] + row[1] * way[1] for way in ways)
            first, second = along
            return at(row, p), first, second

        for index, layer in enumerate(network.layers):
            pieces = self._pieces(layer, value)
            if index < len(self._path) and self._path[index] == pieces:
                continue
            network.follow(index, pieces)
            del self._path[index:]
            self._path.append(pieces)
        pattern = tuple(map(tuple, self._path))
        if pattern not in self.found:
            cell = self._cell()
            if cell[0]:
                self.found[pattern] = cell
                self._compare(pattern, cell[1])
        return pattern

    def _compare(self, pattern: tuple[tuple[int, ...], ...], corners: list[Point]) -> None:
        """Gather what will be claimed, while the network is on the pattern of a new cell."""
        network = self.made.network
        for rows in self.made.unsafe:
            met = checker.part(corners, [(network.maps[i], strict) for i, strict in rows])
            if met:
                self.unsafe.setdefault(pattern, met)
        if self.made.unsafe:
            return
        self.sides = self.sides or [Counter() for _ in range(max(2, len(network.outputs)))]
        self.best = self.best or [[] for _ in network.outputs]
        cell = len(self.found) - 1
        checker.compare(network, {"claim": "areas", "sides": self.sides}, corners, cell)
        for k, i in enumerate(network.outputs):
            row, power = network.maps[i], network.powers[i]
            values = (Fraction(at(row, p), p[2] << power) for p in corners)
            self.best[k] = [max(chain(self.best[k], values))]

    def _pieces(self, layer: dict[str, Any], value: Any) -> list[int]:
        """The piece of each unit of a layer."""
        network, found = self.made.network, []
        if "knots" not in layer:
            for group in layer["groups"]:
                rows = [[layer["sign"] * x for x in value(network.maps[i])] for i in group]
                found.append(max(range(len(rows)), key=lambda k: (rows[k], -k)))
            return found
        for (number,) in layer["groups"]:
            a, b, c = (x << layer["finer"] for x in network.maps[number])
            values = (value((a, b, c - knot)) > (0, 0, 0) for knot in layer["knots"])
            found.append(sum(values))
        return found

    def _cell(self) -> tuple[list[list[int]], list[Point]]:
        """The names of the sides of the present cell, and the corners at which they begin."""
        network = self.made.network
        corners, sides = network.corners, [[k] for k in range(len(network.corners))]
        lines = [network.asked[k,][0] for k in range(len(corners))]
        for key, (row, _) in network.asked.items():
            name = list(key)
            values = [at(row, p) for p in corners]
            if min(values) >= 0:
                continue
            if max(values) <= 0:
                return [], []
            kept: list[tuple[Point, list[int], Row]] = []
            for k, (s, t) in enumerate(checker.around(values)):
                if s > 0 or (s == 0 and t >= 0):
                    kept.append((corners[k], sides[k], lines[k]))
                elif s == 0:
                    kept.append((corners[k], name, row))
                if s < 0 < t:
                    kept.append((_meet(row, lines[k]), sides[k], lines[k]))
                elif t < 0 < s:
                    kept.append((_meet(lines[k], row), name, row))
            corners, sides, lines = ([each[i] for each in kept] for i in range(3))  # type: ignore
        return sides, corners

    def open_border(self) -> Counter[Any]:
        """The sides of cells that no other cells share, less the border of the domain."""
        border: Counter[Any] = Counter()
        checker.add_border(border, self.made.network.corners, -1)
        for _, corners in self.found.values():
            checker.add_border(border, corners, 1)
        return Counter({key: count for key, count in border.items() if count})

    def explore(self) -> None:
        """Add the cells across all sides that no other cell shares, and so on."""
        waiting = [side for cell in list(self.found.values()) for side in checker.around(cell[1])]
        ends = Counter((p, q) for p, q in waiting)
        waiting = [(p, q) for p, q in waiting if not ends[q, p] and not self._outer(p, q)]
        while waiting:
            p, q = waiting.pop()
            middle = lowest((p[0] * q[2] + q[0] * p[2], p[1] * q[2] + q[1] * p[2], 2 * p[2] * q[2]))
            along = q[0] * p[2] - p[0] * q[2], q[1] * p[2] - p[1] * q[2], 0
            known = len(self.found)
            pattern = self.find(middle, ((along[1], -along[0], 0), along))
            corners = self.found[pattern][1]
            shared = [p, q]
            for a, b in checker.around(corners):
                shared = checker.part(shared, [(cross(a, b), False)])
            first, *_, last = sorted(shared, key=lambda x: Fraction(at(along, x), x[2]))
            waiting += [(a, b) for a, b in ((p, first), (last, q)) if a != b]
            if len(self.found) > known:
                waiting += [s for s in checker.around(corners) if not self._outer(*s)]

    def _outer(self, p: Point, q: Point) -> bool:
        """Whether a side lies on the border of the domain."""
        return any(
            at(cross(a, b), p) == at(cross(a, b), q) == 0
            for a, b in checker.around(self.made.network.corners)
        )

    def claims(self, conditional: bool) -> tuple[list[dict[str, Any]], bool | None]:
        """What is claimed: of the partition, or of a property. Sorts the cells."""
        self.found = dict(sorted(self.found.items()))
        unsafe = self.made.unsafe
        for cell, pattern in enumerate(self.found if self.unsafe else ()):
            if pattern in self.unsafe:
                claim = {"claim": "fails", "cell": cell, "unsafe": unsafe}
                return [claim | {"point": _middle(self.unsafe[pattern])}], False
        if conditional:
            return [{"claim": "holds", "unsafe": unsafe}], True
        found = [_within(checker.area(each)) for each in self.sides]
        pairs = enumerate(self.best)
        largest = [{"claim": "largest", "output": k, "value": _hex(*x)} for k, x in pairs]
        regions = {"claim": "regions", "number": len(self.found)}
        return [regions, {"claim": "areas", "areas": found}, *largest], None

    def lines(self) -> Iterator[dict[str, Any]]:
        """The cells as lines of the file."""
        for pattern, (sides, _) in self.found.items():
            text = [
                "".join(words) if all(len(word) == 1 for word in words) else words
                for words in ([np.base_repr(piece, 36) for piece in pieces] for pieces in pattern)
            ]
            yield {"cell": text, "sides": sides}


def _middle(points: list[Point]) -> list[str]:
    """The mean of some points."""
    return [
        _hex(sum((Fraction(p[i], p[2]) for p in points), Fraction(0)) / len(points)) for i in (0, 1)
    ]


def _meet(p: Row, q: Row) -> Point:
    """The point on two lines."""
    return lowest(cross(p, q))


def _hex(value: Fraction) -> str:
    return f"{value.numerator:x}" + f"/{value.denominator:x}" * (value.denominator > 1)


def _within(value: Fraction) -> list[str]:
    """A fraction twice, or bounds of one that is long."""
    if value.denominator.bit_length() <= _DIGITS:
        return [_hex(value)] * 2
    low = (value.numerator << _BITS) // value.denominator
    return [_hex(Fraction(x, 1 << _BITS)) for x in (low, low + 1)]


def _loops(border: Counter[Any]) -> list[list[Point]]:
    """The closed polygons that a chain of sides lacks, as corners each."""
    lines: dict[Row, list[Point]] = defaultdict(list)
    for line, point in border:
        lines[line].append(point)
    after: dict[Point, list[Point]] = defaultdict(list)
    for line, points in lines.items():
        points.sort(key=lambda p: (Fraction(p[0], p[2]), Fraction(p[1], p[2])))
        count = 0
        for p, q in pairwise(points):
            count += border[line, p]
            begin, end = (p, q) if count > 0 else (q, p)
            after[begin] += [end] * abs(count)
    loops = []
    while after:
        path = [next(iter(after))]
        while path[-1] not in path[:-1]:
            here = path[-1]
            path.append(after[here].pop())
            if not after[here]:
                del after[here]
        loop = path[path.index(path[-1]) : -1]
        loops.append(loop)
        for begin, end in pairwise(path[: path.index(path[-1]) + 1]):
            after[begin].append(end)
    return loops
