"""Steps of the oracle, made from modules: each divides an exact cell and maps its activations."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from splinecam.errors import CaptureError

Point = tuple[Fraction, Fraction]
Corner = tuple[int, int, int]  # (X, Y, W) with W > 0 is the point (X / W, Y / W)
Row = tuple[int, int, int]  # (a, b, c) is the affine function a u + b v + c


@dataclass(frozen=True)
class Cell:
    """A convex polygon without collinear corners, and the activations ``rows / den`` on it."""

    corners: list[Corner]
    rows: list[Row]
    den: int
    pattern: tuple[int, ...]


def at(row: Row, corner: Corner) -> int:
    """Return an integer with the sign of the function at the corner."""
    return row[0] * corner[0] + row[1] * corner[1] + row[2] * corner[2]


def difference(first: Row, second: Row) -> Row:
    """Return the first function minus the second."""
    return first[0] - second[0], first[1] - second[1], first[2] - second[2]


def split(polygon: list[Corner], line: Row) -> list[list[Corner]]:
    """Return both sides of a line; the polygon itself if the line misses or only touches it."""
    signs = [at(line, corner) for corner in polygon]
    if not min(signs) < 0 < max(signs):
        return [polygon]
    return [_clip(polygon, signs), _clip(polygon, [-s for s in signs])]


def where_positive(polygon: list[Corner], row: Row) -> list[Corner]:
    """Return the part on the positive side of a line; empty if only border lies there."""
    signs = [at(row, corner) for corner in polygon]
    if max(signs) <= 0:
        return []
    return polygon if min(signs) >= 0 else _clip(polygon, signs)


def _clip(polygon: list[Corner], signs: list[int]) -> list[Corner]:
    """Return the part of a convex polygon where the function is not negative."""
    kept = []
    for (p, q), (s, t) in zip(pairs(polygon), pairs(signs), strict=True):
        if s >= 0:
            kept.append(p)
        if s < 0 < t or t < 0 < s:
            crossing = [abs(t) * x + abs(s) * y for x, y in zip(p, q, strict=True)]
            common = math.gcd(*crossing)
            x, y, w = (value // common for value in crossing)
            kept.append((x, y, w))
    return kept


def corner(u: Fraction, v: Fraction) -> Corner:
    """Return a point in integers."""
    (x, y), w = over_common([u, v])
    return x, y, w


def point(p: Corner) -> Point:
    """Return a corner in fractions."""
    return Fraction(p[0], p[2]), Fraction(p[1], p[2])


def center(vertices: Sequence[Point]) -> Point:
    """Return the mean of the vertices, a point of the open polygon."""
    u, v = (sum((p[k] for p in vertices), Fraction(0)) / len(vertices) for k in (0, 1))
    return u, v


def area(polygon: Sequence[Point]) -> Fraction:
    """Return the area of a counter-clockwise polygon."""
    return sum((p[0] * q[1] - p[1] * q[0] for p, q in pairs(polygon)), Fraction(0)) / 2


def pairs(items: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return each item with its successor around a cycle."""
    return list(zip(items, [*items[1:], items[0]], strict=True))


def by(size: int, items: Sequence[Any]) -> list[Sequence[Any]]:
    """Return the items in groups of a size."""
    return [items[i : i + size] for i in range(0, len(items), size)]


def fractions(tensor: Tensor) -> list[Fraction]:
    """Return the numbers of a tensor exactly."""
    return [Fraction(value) for value in tensor.detach().double().flatten().tolist()]


def over_common(values: Sequence[Fraction]) -> tuple[list[int], int]:
    """Return the values as integers over one denominator."""
    den = math.lcm(1, *(value.denominator for value in values))
    return [value.numerator * (den // value.denominator) for value in values], den


class Abs(nn.Module):
    """``torch.abs`` as a module."""

    def forward(self, x: Tensor) -> Tensor:
        return x.abs()


class Residual(nn.Module):
    """``x + body(x)``: the skip connection that the oracle knows."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)  # type: ignore[no-any-return]


class Max(nn.Module):
    """The largest value along a dimension, the batch being dimension 0."""

    def __init__(self, dim: int = 1, *, keepdim: bool = False) -> None:
        super().__init__()
        self.dim, self.keepdim = dim, keepdim

    def forward(self, x: Tensor) -> Tensor:
        return x.amax(self.dim, keepdim=self.keepdim)


class Min(Max):
    """The smallest value along a dimension."""

    def forward(self, x: Tensor) -> Tensor:
        return x.amin(self.dim, keepdim=self.keepdim)


class Maximum(nn.Module):
    """The larger of the first and the second half of the features, one by one."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.maximum(*x.chunk(2, 1))


class Minimum(nn.Module):
    """The smaller of the first and the second half of the features, one by one."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.minimum(*x.chunk(2, 1))


def maxout(inputs: int, units: int, pieces: int) -> nn.Sequential:
    """A module in which each of some units is the largest of as many affine functions of inputs.

    inputs, units, pieces: how many inputs, units, and functions of a unit there are.
    """
    linear = nn.Linear(inputs, units * pieces)
    return nn.Sequential(linear, nn.Unflatten(1, (units, pieces)), Max(2))


class SortedGroups(nn.Module):
    """The features in groups of a size, each group in ascending order."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        groups = torch.unflatten(x, 1, (x.shape[1] // self.size, self.size))
        return groups.sort(-1).values.flatten(1)


MAX_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
ADAPTIVE_POOLS = (nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d)


def windows(module: nn.Module, shape: tuple[int, ...], sign: int = 1) -> list[list[int]]:
    """Return the units of which each output is the largest, or with the sign -1 the smallest."""
    size = math.prod(shape)
    # The largest of some units is 1 if one of them is 1 and all others are 0.
    one_each = torch.eye(size).reshape(size, *shape)
    inside = sign * module(sign * one_each).reshape(size, -1) > 0
    groups = [window.nonzero()[:, 0].tolist() for window in inside.T]
    if not all(groups):
        raise CaptureError(f"the exact oracle found a window of {module} in the padding")
    return groups


Bound = tuple[np.ndarray, np.ndarray]  # per unit: of |value| over the domain, of |slope|
Groups = Sequence[Sequence[int]]  # the units of every group


class LayerStep(Protocol):
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
        parts = divided(cell.corners, [line for unit in lines for line in unit])
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


def divided(polygon: list[Corner], lines: Sequence[Row]) -> list[list[Corner]]:
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
            sign = -1 if self.smallest else 1
            rows = [(sign * a, sign * b, sign * c) for a, b, c in (cell.rows[k] for k in group)]
            parts = [
                (part, (*winners, winner))
                for polygon, winners in parts
                for winner, part in maxima(polygon, rows)
            ]
        found = []
        for part, winners in parts:
            places = zip(self.groups, winners, strict=True)
            chosen = [cell.rows[group[winner]] for group, winner in places]
            found.append(Cell(part, chosen, cell.den, cell.pattern + winners))
        return found

    def bound(self, bound: Bound) -> Bound:
        value, slope = (np.array([b[list(group)].max() for group in self.groups]) for b in bound)
        return value, slope


def maxima(polygon: list[Corner], rows: Sequence[Row]) -> Iterator[tuple[int, list[Corner]]]:
    """Yield each function with the part where it is the largest; the first of equal ones counts."""
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
    """The units of each group in ascending order, in the places of the group."""

    groups: Groups

    def apply(self, cell: Cell) -> list[Cell]:
        order = [difference(cell.rows[i], cell.rows[j]) for i, j in self._pairs()]
        return [self._ordered(cell, part) for part in divided(cell.corners, order)]

    def _pairs(self) -> list[tuple[int, int]]:
        return [pair for group in self.groups for pair in combinations(group, 2)]

    def _ordered(self, cell: Cell, part: list[Corner]) -> Cell:
        """Return a part with the units sorted: their order is the same in all of its points."""
        u, v = center([point(p) for p in part])
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

    steps: tuple[LayerStep, ...]

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

    body: LayerStep

    def apply(self, cell: Cell) -> list[Cell]:
        found = []
        for after in self.body.apply(cell):
            rows = []
            for x, y in zip(cell.rows, after.rows, strict=True):
                a, b, c = (p * after.den + q * cell.den for p, q in zip(x, y, strict=True))
                rows.append((a, b, c))
            found.append(replace(after, rows=rows, den=cell.den * after.den))
        return found

    def bound(self, bound: Bound) -> Bound:
        after = self.body.bound(bound)
        return bound[0] + after[0], bound[1] + after[1]


_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_RESHAPES = (nn.Identity, nn.Flatten, nn.Unflatten, nn.Dropout)
_GROUPED = (*MAX_POOLS, *ADAPTIVE_POOLS, Max, Maximum, Minimum)

Shape = tuple[int, ...]


def layer_step(module: nn.Module, shape: Shape) -> tuple[LayerStep, Shape]:
    """Return the step of a module for inputs of a shape, and the shape of its outputs."""
    if isinstance(module, nn.Sequential):
        steps = []
        for child in module:
            step, shape = layer_step(child, shape)
            steps.append(step)
        return Chain(tuple(steps)), shape
    if isinstance(module, Residual):
        return Skip(layer_step(module.body, shape)[0]), shape
    if isinstance(module, (nn.Linear, *_CONVOLUTIONS, *_TRANSPOSED)):
        return _affine(module, shape)
    if isinstance(module, _RESHAPES):
        return Chain(()), _shape_after(module, shape)
    if isinstance(module, SortedGroups):
        return Sorted(by(module.size, range(math.prod(shape)))), shape
    if isinstance(module, _GROUPED):
        smallest = isinstance(module, Min | Minimum)
        groups = windows(module, shape, -1 if smallest else 1)
        return Largest(groups, smallest), _shape_after(module, shape)
    return Activation(_splines(module, shape)), shape


def _shape_after(module: nn.Module, shape: Shape) -> Shape:
    return tuple(module(torch.zeros(1, *shape)).shape[1:])


def _affine(module: nn.Module, shape: Shape) -> tuple[Affine, Shape]:
    """Return the dense matrix of a layer: its columns are the values at the unit vectors."""
    if getattr(module, "padding_mode", "zeros") != "zeros":
        raise CaptureError(f"the exact oracle only knows zero padding, not {module}")
    # Weights are placed in the matrix and never added to each other, so float64 is exact.
    copied = copy.deepcopy(module).double()
    size = math.prod(shape)
    with torch.no_grad():
        bias = copied(torch.zeros(1, *shape, dtype=torch.float64))
        copied.register_parameter("bias", None)
        columns = copied(torch.eye(size, dtype=torch.float64).reshape(size, *shape))
    return Affine(columns.reshape(size, -1).T.contiguous(), bias.flatten()), bias.shape[1:]


def _splines(module: nn.Module, shape: Shape) -> list[Spline]:
    """Return the splines of an activation, one for each unit."""
    if isinstance(module, nn.PReLU):
        slopes = fractions(module.weight)
        channel = math.prod(shape) if len(slopes) == 1 else math.prod(shape[1:])
        return [spline for a in slopes for spline in [_spline([0], [(a, 0), (1, 0)])] * channel]
    return [_shared_spline(module)] * math.prod(shape)


def _shared_spline(module: nn.Module) -> Spline:
    """Return the spline that all units of an activation have."""
    match module:
        case nn.ReLU():
            return _spline([0], [(0, 0), (1, 0)])
        case nn.LeakyReLU(negative_slope=slope):
            return _spline([0], [(slope, 0), (1, 0)])
        case Abs():
            return _spline([0], [(-1, 0), (1, 0)])
        case nn.Hardtanh(min_val=low, max_val=high):  # also ReLU6
            return _spline([low, high], [(0, low), (1, 0), (0, high)])
        case nn.Softshrink(lambd=knot):
            return _spline([-knot, knot], [(1, knot), (0, 0), (1, -knot)])
        case nn.Hardsigmoid():
            return _spline([-3, 3], [(0, 0), (Fraction(1, 6), Fraction(1, 2)), (0, 1)])
    raise CaptureError(
        f"the exact oracle does not know {type(module).__name__}; use linear layers, "
        "convolutions, max-pooling and piecewise-linear activations of one variable"
    )


def _spline(knots: Iterable[Any], pieces: Iterable[tuple[Any, Any]]) -> Spline:
    return Spline(
        tuple(Fraction(knot) for knot in knots),
        tuple((Fraction(slope), Fraction(intercept)) for slope, intercept in pieces),
    )
