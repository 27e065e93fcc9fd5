"""Cells and surfaces of small networks in three dimensions, in rational arithmetic: slow, obvious.

A cell is a list of polygons, counter-clockwise seen from outside; a function is four coefficients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import pairwise

import torch
from torch import Tensor, nn

from splinecam.geometry.solids import Solid
from splinecam.testing.oracle.steps import Abs

Point = tuple[Fraction, Fraction, Fraction]
Row = tuple[Fraction, ...]  # (a, b, c, d): a x + b y + c z + d
Polygon = list[Point]


@dataclass(frozen=True)
class ExactSolid:
    """A cell, and the rows of the activations on it."""

    faces: list[Polygon]
    rows: list[Row]

    @property
    def points(self) -> list[Point]:
        return sorted({p for face in self.faces for p in face})

    @property
    def center(self) -> Point:
        points = self.points
        return tuple(sum(p[k] for p in points) / len(points) for k in range(3))

    @property
    def volume(self) -> Fraction:
        total = Fraction(0)
        for face in self.faces:
            for p, q in pairwise(face[1:]):
                total += dot(face[0], cross(p, q))
        return total / 6


class Maxout(nn.Module):
    """The largest of each group of units (B, groups * size)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], -1, self.size).amax(2)


def cross(p: Point, q: Point) -> Point:
    return p[1] * q[2] - p[2] * q[1], p[2] * q[0] - p[0] * q[2], p[0] * q[1] - p[1] * q[0]


def dot(p: Point, q: Point) -> Fraction:
    return p[0] * q[0] + p[1] * q[1] + p[2] * q[2]


def at(row: Row, p: Point) -> Fraction:
    return row[0] * p[0] + row[1] * p[1] + row[2] * p[2] + row[3]


def minus(a: Row, b: Row) -> Row:
    return tuple(x - y for x, y in zip(a, b, strict=True))


def clip(faces: list[Polygon], row: Row) -> tuple[list[Polygon], Polygon]:
    """The part of a cell where a function is not negative, and its face there.

    The function has both signs in the cell.
    """
    kept, ends = [], {}
    for face in faces:
        made: Polygon = []
        values = [at(row, p) for p in face]
        if max(values) <= 0:
            continue
        for k, (p, s) in enumerate(zip(face, values, strict=True)):
            q, t = face[(k + 1) % len(face)], values[(k + 1) % len(face)]
            if s >= 0:
                made.append(p)
            if s * t < 0:
                made.append(tuple((x * t - y * s) / (t - s) for x, y in zip(p, q, strict=True)))
        sides = zip(made, [*made[1:], made[0]], strict=True)
        ends |= {q: p for p, q in sides if at(row, p) == 0 and at(row, q) == 0}
        kept.append(made)
    first = next(iter(ends))
    cap = [first]
    while ends[cap[-1]] != first:
        cap.append(ends[cap[-1]])
    return [*kept, cap], cap


def both_signs(faces: list[Polygon], row: Row) -> bool:
    values = [at(row, p) for face in faces for p in face]
    return min(values) < 0 < max(values)


def parts(faces: list[Polygon], row: Row) -> list[list[Polygon]]:
    """Both sides of a plane, or the cell itself."""
    if not both_signs(faces, row):
        return [faces]
    return [clip(faces, r)[0] for r in (row, tuple(-x for x in row))]


def cells(model: nn.Sequential, solid: Solid) -> list[ExactSolid]:
    """The linear regions of a network, whose map may be the same in neighbours."""
    corners = [tuple(map(Fraction, p)) for p in solid.corners.tolist()]
    basis = [list(map(Fraction, b)) for b in solid.basis.tolist()]
    origin = list(map(Fraction, solid.origin.tolist()))
    rows = [(*(b[i] for b in basis), c) for i, c in enumerate(origin)]
    start = ExactSolid([[corners[i] for i in side] for side in solid.sides], rows)
    return list(reduce(_through, model, [start]))


def _through(found: Sequence[ExactSolid], module: nn.Module) -> list[ExactSolid]:
    return [part for cell in found for part in _stage(cell, module)]


def _stage(cell: ExactSolid, module: nn.Module) -> Iterator[ExactSolid]:
    if isinstance(module, nn.Linear):
        yield ExactSolid(cell.faces, _linear(cell.rows, module))
    elif isinstance(module, Maxout):
        yield from _maxima(cell, module.size)
    else:
        knots, slopes = _pieces(module)
        pieces = [cell.faces]
        for row in cell.rows:
            for knot in knots:
                pieces = [part for p in pieces for part in parts(p, (*row[:3], row[3] - knot))]
        for faces in pieces:
            center = ExactSolid(faces, []).center
            yield ExactSolid(
                faces, [_piece(row, at(row, center), knots, slopes) for row in cell.rows]
            )


def _pieces(module: nn.Module) -> tuple[list[Fraction], list[Fraction]]:
    """The knots of a function that is zero at its first knot, and its slopes."""
    one, zero = Fraction(1), Fraction(0)
    if isinstance(module, nn.LeakyReLU):
        return [zero], [Fraction(module.negative_slope), one]
    if isinstance(module, nn.ReLU6):
        return [zero, Fraction(6)], [zero, one, zero]
    if isinstance(module, Abs):
        return [zero], [-one, one]
    assert isinstance(module, nn.ReLU)
    return [zero], [zero, one]


def _piece(row: Row, value: Fraction, knots: list[Fraction], slopes: list[Fraction]) -> Row:
    place = sum(value > knot for knot in knots)
    offset = sum((slopes[k] - slopes[k + 1]) * knots[k] for k in range(place))
    return (*(slopes[place] * x for x in row[:3]), slopes[place] * row[3] + offset)


def _maxima(cell: ExactSolid, size: int) -> Iterator[ExactSolid]:
    groups = [list(dict.fromkeys(cell.rows[i : i + size])) for i in range(0, len(cell.rows), size)]
    pieces: list[tuple[list[Polygon], list[Row]]] = [(cell.faces, [])]
    for group in groups:
        made = []
        for faces, rows in pieces:
            for winner in group:
                part = faces
                for other in group:
                    lead = minus(winner, other)
                    if max(at(lead, p) for face in part for p in face) <= 0 and other != winner:
                        break
                    part = clip(part, lead)[0] if both_signs(part, lead) else part
                else:
                    made.append((part, [*rows, winner]))
        pieces = made
    for faces, rows in pieces:
        yield ExactSolid(faces, rows)


def _linear(rows: list[Row], module: nn.Linear) -> list[Row]:
    found = []
    bias = torch.zeros(module.out_features) if module.bias is None else module.bias
    for weights, offset in zip(module.weight.tolist(), bias.tolist(), strict=True):
        terms = [Fraction(w) for w in weights]
        sums = [
            sum((w * r[k] for w, r in zip(terms, rows, strict=True)), Fraction(0)) for k in range(4)
        ]
        found.append((*sums[:3], sums[3] + Fraction(offset)))
    return found


def size_of(polygon: Polygon) -> float:
    """The area of a polygon in a plane."""
    whole = (Fraction(0),) * 3
    for p, q in zip(polygon, [*polygon[1:], polygon[0]], strict=True):
        whole = tuple(x + y for x, y in zip(whole, cross(p, q), strict=True))
    scale = max(map(abs, whole))
    return float(scale) / 2 * sum(float(x / scale) ** 2 for x in whole) ** 0.5 if scale else 0.0


def areas(found: Sequence[ExactSolid], output: int = 0) -> list[float]:
    """The areas of the faces on which an output changes its sign inside of cells, ascending."""
    return sorted(
        size_of(clip(cell.faces, cell.rows[output])[1])
        for cell in found
        if both_signs(cell.faces, cell.rows[output])
    )


def area_between(found: Sequence[ExactSolid], output: int = 0, *, rounding: float = 0.0) -> float:
    """The area of sides of cells between which an output is negative on one side only.

    rounding: what is taken for zero.
    """
    total = 0.0
    for cell in found:
        row = cell.rows[output]
        values = [at(row, p) for p in cell.points]
        if max(values) > rounding or min(values) >= -rounding:
            continue
        for face in cell.faces:
            if any(abs(at(row, p)) > rounding for p in face):
                continue
            for other in found:
                if all(at(other.rows[output], p) >= -rounding for p in other.points):
                    total += _shared(face, other)
    return total


def _shared(face: Polygon, cell: ExactSolid) -> float:
    """The area of a polygon in a cell."""
    for side in cell.faces:
        a, b, c = side[:3]
        normal = cross(minus(b, a), minus(c, a))
        row = (*(-x for x in normal), dot(normal, a))
        made: Polygon = []
        for p, q in zip(face, [*face[1:], face[0]], strict=True):
            s, t = at(row, p), at(row, q)
            if s >= 0:
                made.append(p)
            if s * t < 0:
                made.append(tuple((x * t - y * s) / (t - s) for x, y in zip(p, q, strict=True)))
        if len(made) < 3:
            return 0.0
        face = made
    return size_of(face)
