"""A slow, obviously correct partition in exact rational arithmetic: the oracle of the tests.

Floats are dyadic rationals, so a network with float weights has an exact partition. It is found
here polygon by polygon, unit by unit, with Python integers and exact signs; no code is shared
with the fast path.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from splinecam.domain import Domain
from splinecam.errors import CaptureError

__all__ = ["Abs", "ExactCell", "ExactPartition", "Residual", "exact_partition"]

Point = tuple[Fraction, Fraction]
Corner = tuple[int, int, int]  # (X, Y, W) with W > 0 is the point (X / W, Y / W)
Row = tuple[int, int, int]  # (a, b, c) is the affine function a u + b v + c
Bound = tuple[np.ndarray, np.ndarray]  # per unit: of |value| over the domain, of |slope|


class Abs(nn.Module):
    """``torch.abs`` as a module, so that it can stand in an ``nn.Sequential``."""

    def forward(self, x: Tensor) -> Tensor:
        return x.abs()


class Residual(nn.Module):
    """``x + body(x)``: the skip connection that the oracle knows."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)  # type: ignore[no-any-return]


# ------------------------------------------------------------------------------- the result


@dataclass(frozen=True)
class ExactCell:
    """A convex cell, counter-clockwise, and the exact map ``weight @ uv + bias`` on it.

    ``pattern`` holds the piece of every unit, layer after layer, counted from the left; a unit that
    sits on a knot in the whole cell is in the piece right of that knot.
    """

    vertices: tuple[Point, ...]
    pattern: tuple[int, ...]
    weight: tuple[Point, ...]
    bias: tuple[Fraction, ...]

    @cached_property
    def area(self) -> Fraction:
        return _area(self.vertices)

    @cached_property
    def center(self) -> Point:
        """The mean of the vertices: a point of the open cell."""
        count = len(self.vertices)
        u, v = (sum((p[k] for p in self.vertices), Fraction(0)) / count for k in (0, 1))
        return u, v

    @property
    def width(self) -> float:
        """Twice the area over the perimeter: the inradius, up to a factor of two."""
        sides = _pairs(self.vertices)
        perimeter = sum(math.hypot(q[0] - p[0], q[1] - p[1]) for p, q in sides)
        return 2 * float(self.area) / perimeter

    def value(self, uv: Point) -> list[Fraction]:
        """The network's output at a point of the cell."""
        pairs = zip(self.weight, self.bias, strict=True)
        return [a * uv[0] + b * uv[1] + c for (a, b), c in pairs]

    def __repr__(self) -> str:
        u, v = map(float, self.center)
        size = f"area {float(self.area):.4g}, width {self.width:.4g}"
        return f"ExactCell({len(self.vertices)} corners around ({u:.17g}, {v:.17g}), {size})"


@dataclass(frozen=True)
class ExactPartition:
    """Every cell of a network on a domain, exactly.

    ``magnitude`` and ``slope``, both (n_out,), bound the terms that are summed up to an output and
    to its slope: rounding errors are relative to them.
    """

    domain: Domain
    cells: tuple[ExactCell, ...]
    magnitude: np.ndarray
    slope: np.ndarray

    @property
    def area(self) -> Fraction:
        return sum((cell.area for cell in self.cells), Fraction(0))

    def __len__(self) -> int:
        return len(self.cells)

    def __repr__(self) -> str:
        return f"ExactPartition({len(self)} cells, area {float(self.area):.6g}, {self.domain!r})"


def exact_partition(model: nn.Module, domain: Domain) -> ExactPartition:
    """Partition of ``domain`` by a small network, in exact arithmetic.

    The network is an ``nn.Sequential`` (or :class:`Residual`, nested as you like) of linear and
    convolution layers and piecewise-linear activations.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> cells = exact_partition(model, Domain.box(-1, 1)).cells
    """
    origin, basis = _fractions(domain.origin), _fractions(domain.basis)
    corners = _fractions(domain.corners)
    dim = len(origin)
    coefficients, den = _over_common([*basis, *origin])
    rows = [(coefficients[j], coefficients[dim + j], coefficients[2 * dim + j]) for j in range(dim)]
    start = _Cell([_corner(u, v) for u, v in _by(2, corners)], rows, den, ())
    step, _ = _compile(model, tuple(domain.input_shape))
    cells = tuple(_finished(cell) for cell in step.apply(start))
    reach = np.abs(domain.corners.numpy()).max(0) @ np.abs(domain.basis.numpy())
    slope = np.abs(domain.basis.numpy()).max(0)
    magnitude, slope = step.bound((np.abs(domain.origin.numpy()) + reach, slope))
    return ExactPartition(domain, cells, magnitude, slope)


# ------------------------------------------------------------------------- exact geometry


@dataclass(frozen=True)
class _Cell:
    """A convex polygon without collinear corners, and the activations ``rows / den`` on it."""

    corners: list[Corner]
    rows: list[Row]
    den: int
    pattern: tuple[int, ...]


def _at(row: Row, corner: Corner) -> int:
    """The sign of this integer is the sign of the function at the corner."""
    return row[0] * corner[0] + row[1] * corner[1] + row[2] * corner[2]


def _split(polygon: list[Corner], line: Row) -> list[list[Corner]]:
    """Both sides of a line; the polygon itself if the line misses or only touches it."""
    signs = [_at(line, corner) for corner in polygon]
    if not min(signs) < 0 < max(signs):
        return [polygon]
    return [_clip(polygon, signs), _clip(polygon, [-s for s in signs])]


def _clip(polygon: list[Corner], signs: list[int]) -> list[Corner]:
    """The part of a convex polygon where the function is not negative."""
    kept = []
    for (p, q), (s, t) in zip(_pairs(polygon), _pairs(signs), strict=True):
        if s >= 0:
            kept.append(p)
        if s < 0 < t or t < 0 < s:
            kept.append(_reduced([abs(t) * x + abs(s) * y for x, y in zip(p, q, strict=True)]))
    return kept


def _reduced(corner: Sequence[int]) -> Corner:
    common = math.gcd(*corner)
    x, y, w = (value // common for value in corner)
    return x, y, w


def _corner(u: Fraction, v: Fraction) -> Corner:
    (x, y), w = _over_common([u, v])
    return x, y, w


def _area(polygon: Sequence[Point]) -> Fraction:
    return sum((p[0] * q[1] - p[1] * q[0] for p, q in _pairs(polygon)), Fraction(0)) / 2


def _pairs(items: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Each item with its successor, around a cycle."""
    return list(zip(items, [*items[1:], items[0]], strict=True))


def _by(size: int, items: Sequence[Any]) -> list[Sequence[Any]]:
    return [items[i : i + size] for i in range(0, len(items), size)]


def _fractions(tensor: Tensor) -> list[Fraction]:
    return [Fraction(value) for value in tensor.detach().double().flatten().tolist()]


def _over_common(values: Sequence[Fraction]) -> tuple[list[int], int]:
    """The values as integers over one denominator."""
    den = math.lcm(1, *(value.denominator for value in values))
    return [value.numerator * (den // value.denominator) for value in values], den


def _finished(cell: _Cell) -> ExactCell:
    vertices = tuple((Fraction(x, w), Fraction(y, w)) for x, y, w in cell.corners)
    weight = tuple((Fraction(a, cell.den), Fraction(b, cell.den)) for a, b, _ in cell.rows)
    bias = tuple(Fraction(c, cell.den) for _, _, c in cell.rows)
    return ExactCell(vertices, cell.pattern, weight, bias)


# ------------------------------------------------------------------------------- the layers


class _Step(Protocol):
    """A layer: what it makes of one cell, and how large its outputs can become."""

    def apply(self, cell: _Cell) -> list[_Cell]: ...

    def bound(self, bound: Bound) -> Bound: ...


class _Affine:
    """``weight @ z + bias`` with ``weight`` (n_out, n_in) and ``bias`` (n_out,)."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        size = weight.numel()
        values, self.den = _over_common(_fractions(weight) + _fractions(bias))
        self.weight, self.bias = _by(weight.shape[1], values[:size]), values[size:]
        self.size = weight.abs().numpy(), bias.abs().numpy()

    def apply(self, cell: _Cell) -> list[_Cell]:
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
class _Spline:
    """A function of one variable: ``slope x + intercept`` on each piece between the knots."""

    knots: tuple[Fraction, ...]
    pieces: tuple[tuple[Fraction, Fraction], ...]


class _Activation:
    """One spline for each unit."""

    def __init__(self, splines: Sequence[_Spline]) -> None:
        self.splines = splines

    def apply(self, cell: _Cell) -> list[_Cell]:
        lines = [
            [(k.denominator * a, k.denominator * b, k.denominator * c - k.numerator * cell.den)
             for k in spline.knots]
            for (a, b, c), spline in zip(cell.rows, self.splines, strict=True)
        ]  # fmt: skip
        parts = [cell.corners]
        for line in (line for unit in lines for line in unit):
            parts = [half for part in parts for half in _split(part, line)]
        return [self._mapped(cell, part, lines) for part in parts]

    def _mapped(self, cell: _Cell, part: list[Corner], lines: list[list[Row]]) -> _Cell:
        """The cell's part, no longer cut by any line, with the activations after the splines."""
        pieces = [
            sum(all(_at(line, corner) >= 0 for corner in part) for line in unit) for unit in lines
        ]
        chosen = [spline.pieces[i] for spline, i in zip(self.splines, pieces, strict=True)]
        values, den = _over_common([value for piece in chosen for value in piece])
        rows = [
            (slope * a, slope * b, slope * c + intercept * cell.den)
            for (a, b, c), (slope, intercept) in zip(cell.rows, _by(2, values), strict=True)
        ]
        return _Cell(part, rows, cell.den * den, cell.pattern + tuple(pieces))

    def bound(self, bound: Bound) -> Bound:
        slope, intercept = (
            np.array([max(float(abs(p[k])) for p in s.pieces) for s in self.splines])
            for k in (0, 1)
        )
        return slope * bound[0] + intercept, slope * bound[1]


@dataclass(frozen=True)
class _Chain:
    steps: tuple[_Step, ...]

    def apply(self, cell: _Cell) -> list[_Cell]:
        cells = [cell]
        for step in self.steps:
            cells = [after for before in cells for after in step.apply(before)]
        return cells

    def bound(self, bound: Bound) -> Bound:
        for step in self.steps:
            bound = step.bound(bound)
        return bound


@dataclass(frozen=True)
class _Skip:
    body: _Step

    def apply(self, cell: _Cell) -> list[_Cell]:
        return [self._added(cell, after) for after in self.body.apply(cell)]

    def _added(self, before: _Cell, after: _Cell) -> _Cell:
        rows = []
        for x, y in zip(before.rows, after.rows, strict=True):
            a, b, c = (p * after.den + q * before.den for p, q in zip(x, y, strict=True))
            rows.append((a, b, c))
        return replace(after, rows=rows, den=before.den * after.den)

    def bound(self, bound: Bound) -> Bound:
        after = self.body.bound(bound)
        return bound[0] + after[0], bound[1] + after[1]


_CONVOLUTIONS = (
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)
_RESHAPES = (nn.Identity, nn.Flatten, nn.Unflatten, nn.Dropout)


def _compile(module: nn.Module, shape: tuple[int, ...]) -> tuple[_Step, tuple[int, ...]]:
    """The step of a module for inputs of a shape, and the shape of its outputs."""
    if isinstance(module, nn.Sequential):
        steps = []
        for child in module:
            step, shape = _compile(child, shape)
            steps.append(step)
        return _Chain(tuple(steps)), shape
    if isinstance(module, Residual):
        return _Skip(_compile(module.body, shape)[0]), shape
    if isinstance(module, (nn.Linear, *_CONVOLUTIONS)):
        return _affine(module, shape)
    if isinstance(module, _RESHAPES):
        return _Chain(()), tuple(module(torch.zeros(1, *shape)).shape[1:])
    return _Activation(_splines(module, shape)), shape


def _affine(module: nn.Module, shape: tuple[int, ...]) -> tuple[_Affine, tuple[int, ...]]:
    """The dense matrix of a layer: its columns are its values at the unit vectors.

    Weights are only placed there, not added to each other, so float64 is exact.
    """
    if getattr(module, "padding_mode", "zeros") != "zeros":
        raise CaptureError(f"the exact oracle only knows zero padding, not {module}")
    copied = copy.deepcopy(module).double()
    size = math.prod(shape)
    with torch.no_grad():
        bias = copied(torch.zeros(1, *shape, dtype=torch.float64))
        copied.register_parameter("bias", None)
        columns = copied(torch.eye(size, dtype=torch.float64).reshape(size, *shape))
    return _Affine(columns.reshape(size, -1).T.contiguous(), bias.flatten()), bias.shape[1:]


def _splines(module: nn.Module, shape: tuple[int, ...]) -> list[_Spline]:
    """The activation as one spline for each unit of a layer."""
    if isinstance(module, nn.PReLU):
        slopes = _fractions(module.weight)
        channel = math.prod(shape) if len(slopes) == 1 else math.prod(shape[1:])
        return [spline for a in slopes for spline in [_spline([0], [(a, 0), (1, 0)])] * channel]
    if isinstance(module, nn.ReLU):
        spline = _spline([0], [(0, 0), (1, 0)])
    elif isinstance(module, nn.LeakyReLU):
        spline = _spline([0], [(module.negative_slope, 0), (1, 0)])
    elif isinstance(module, Abs):
        spline = _spline([0], [(-1, 0), (1, 0)])
    elif isinstance(module, nn.Hardtanh):  # also ReLU6
        lo, hi = module.min_val, module.max_val
        spline = _spline([lo, hi], [(0, lo), (1, 0), (0, hi)])
    elif isinstance(module, nn.Softshrink):
        knot = module.lambd
        spline = _spline([-knot, knot], [(1, knot), (0, 0), (1, -knot)])
    elif isinstance(module, nn.Hardsigmoid):
        slope, half = Fraction(1, 6), Fraction(1, 2)
        spline = _spline([-3, 3], [(0, 0), (slope, half), (0, 1)])
    else:
        raise CaptureError(
            f"the exact oracle does not know {type(module).__name__}; "
            "use linear layers, convolutions and piecewise-linear activations of one variable"
        )
    return [spline] * math.prod(shape)


def _spline(knots: Iterable[Any], pieces: Iterable[tuple[Any, Any]]) -> _Spline:
    return _Spline(
        tuple(Fraction(knot) for knot in knots),
        tuple((Fraction(slope), Fraction(intercept)) for slope, intercept in pieces),
    )
