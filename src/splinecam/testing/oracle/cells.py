"""The exact partition of a network, and its cells, in Python integers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from torch import Tensor, nn

from splinecam.geometry.domain import Domain
from splinecam.testing.oracle import steps
from splinecam.testing.oracle.steps import Cell, Point, corner, fractions, over_common, point


@dataclass(frozen=True)
class ExactCell:
    """A convex cell, counter-clockwise, and the exact map ``weight @ uv + bias`` on it.

    ``pattern`` has the piece of every unit, layer after layer, counted from the left. A unit on a
    knot in the whole cell is in the piece right of that knot. A maximum has the winner's place in
    its group, the first of equal ones. A sorted group has an entry for every two units: whether the
    first is the larger.
    """

    vertices: tuple[Point, ...]
    pattern: tuple[int, ...]
    weight: tuple[Point, ...]
    bias: tuple[Fraction, ...]

    @cached_property
    def area(self) -> Fraction:
        return steps.area(self.vertices)

    @cached_property
    def center(self) -> Point:
        """The mean of the vertices: a point of the open cell."""
        return steps.center(self.vertices)

    @property
    def width(self) -> float:
        """Twice the area over the perimeter: the inradius, up to a factor of two."""
        sides = steps.pairs(self.vertices)
        perimeter = sum(math.hypot(q[0] - p[0], q[1] - p[1]) for p, q in sides)
        return 2 * float(self.area) / perimeter

    def value(self, uv: Point) -> list[Fraction]:
        """Return the output of the network at a point of the cell."""
        both = zip(self.weight, self.bias, strict=True)
        return [a * uv[0] + b * uv[1] + c for (a, b), c in both]

    def __repr__(self) -> str:
        u, v = map(float, self.center)
        size = f"area {float(self.area):.4g}, width {self.width:.4g}"
        return f"ExactCell({len(self.vertices)} corners around ({u:.17g}, {v:.17g}), {size})"


@dataclass(frozen=True)
class ExactPartition:
    """Every cell of a network on a domain, exactly.

    ``magnitude`` and ``slope``, both (n_out,), bound the terms in the sums of outputs and of their
    slopes. Rounding errors are relative to them.
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
    """Return the partition of ``domain`` by a small network, in exact arithmetic.

    The network is an ``nn.Sequential`` (or :class:`Residual`, nested as you like) of linear and
    convolution layers, piecewise-linear activations, max-pooling, and the modules of
    :mod:`splinecam.testing`.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> cells = exact_partition(model, Domain.box(-1, 1)).cells
    """
    origin, basis = fractions(domain.origin), fractions(domain.basis)
    corners = fractions(domain.corners)
    dim = len(origin)
    coefficients, den = over_common([*basis, *origin])
    rows = [(coefficients[j], coefficients[dim + j], coefficients[2 * dim + j]) for j in range(dim)]
    start = Cell([corner(u, v) for u, v in steps.by(2, corners)], rows, den, ())
    step, _ = steps.layer_step(model, tuple(domain.input_shape))
    cells = []
    for cell in step.apply(start):
        vertices = tuple(map(point, cell.corners))
        weight = tuple((Fraction(a, cell.den), Fraction(b, cell.den)) for a, b, _ in cell.rows)
        bias = tuple(Fraction(c, cell.den) for _, _, c in cell.rows)
        cells.append(ExactCell(vertices, cell.pattern, weight, bias))
    reach = np.abs(domain.corners.numpy()).max(0) @ np.abs(domain.basis.numpy())
    slope = np.abs(domain.basis.numpy()).max(0)
    magnitude, slope = step.bound((np.abs(domain.origin.numpy()) + reach, slope))
    return ExactPartition(domain, tuple(cells), magnitude, slope)


@dataclass(frozen=True)
class ExactPiece:
    """An interval of a segment on which every unit is in one piece: ``slope * t + intercept``."""

    begin: Fraction  # from 0 to 1
    end: Fraction  # from 0 to 1
    pattern: tuple[int, ...]  # the piece of every unit
    slope: tuple[Fraction, ...]
    intercept: tuple[Fraction, ...]


def exact_pieces(model: nn.Module, a: Tensor, b: Tensor) -> list[ExactPiece]:
    """Return the pieces of a small network on the segment from input a to input b, in order.

    The segment is the first axis of a unit square. Nothing changes along its second axis, and the
    exact cells of the square are strips. Networks are the same as for ``exact_partition``.

    >>> import torch
    >>> relu = nn.Sequential(nn.ReLU())
    >>> [piece.end for piece in exact_pieces(relu, torch.tensor([-1.0]), torch.tensor([2.0]))]
    [Fraction(1, 3), Fraction(1, 1)]
    """
    first, last = fractions(a), fractions(b)
    numbers, den = over_common([*(q - p for p, q in zip(first, last, strict=True)), *first])
    rows = [(numbers[k], 0, numbers[len(first) + k]) for k in range(len(first))]
    zero, one = Fraction(0), Fraction(1)
    square = [corner(zero, zero), corner(one, zero), corner(one, one), corner(zero, one)]
    step, _ = steps.layer_step(model, tuple(a.shape))
    pieces = []
    for cell in step.apply(Cell(square, rows, den, ())):
        u = [Fraction(x, w) for x, _, w in cell.corners]
        slope = tuple(Fraction(row[0], cell.den) for row in cell.rows)
        intercept = tuple(Fraction(row[2], cell.den) for row in cell.rows)
        pieces.append(ExactPiece(min(u), max(u), cell.pattern, slope, intercept))
    return sorted(pieces, key=lambda piece: piece.begin)
