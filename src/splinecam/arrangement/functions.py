"""The functions that a mesh is cut by: units less their levels, or less other units."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.csr import take
from splinecam._util.tolerances import EPS, SAFETY
from splinecam.arrangement.signs import Signs, SignWriter, set_bits

__all__ = ["Functions"]


@dataclass(frozen=True)
class Functions:
    """Columns ``z[:, unit] - level``, or ``z[:, unit] - z[:, other]``, to cut by.

    z: (V, n) values at the vertices; unit, level, other: (m,); error: (m,) rounding error;
    wanted: (m,) columns that may change sign, the others are only carried along; label: (m,) the
    unit that edges along a column's zero set name; slope_difference: (m,) that of the
    slopes of the result on both sides of a zero, if that is all that happens there;
    known_signs: of all columns, if they are known.
    """

    z: Tensor
    unit: Tensor
    level: Tensor
    error: Tensor
    wanted: Tensor
    label: Tensor
    other: Tensor | None = None
    slope_difference: Tensor | None = None
    known_signs: Signs | None = None

    @classmethod
    def crossing(
        cls,
        z: Tensor,
        levels: Tensor,
        error: Tensor,
        low: Tensor,
        high: Tensor,
        slope_differences: Tensor | None = None,
        signs: Signs | None = None,
    ) -> Functions:
        """Only the functions, of n units at K levels, that may change sign.

        levels, slope_differences: (K, n); error, low, high: (n,) rounding error and range of the
        units; signs: of all units, if they are known and all levels are zero.
        """
        differences = slope_differences
        if signs is not None:
            unit = torch.arange(z.shape[1], device=z.device)
            wanted = (low < -error) & (high > error)
            chosen = None if differences is None else differences[0]
            return cls(z, unit, levels[0], error, wanted, unit, None, chosen, signs)
        error = error + EPS * levels.abs()
        wanted = (low < levels - error) & (high > levels + error)
        # A whole layer is faster than a selection of more than an eighth of it.
        if levels.shape[0] == 1 and 8 * int(wanted.sum()) > wanted.shape[1]:
            unit = torch.arange(wanted.shape[1], device=z.device)
            chosen = None if differences is None else differences[0]
            return cls(z, unit, levels[0], error[0], wanted[0], unit, None, chosen)
        k, unit = wanted.nonzero(as_tuple=True)
        chosen = None if differences is None else differences[k, unit]
        level, error, wanted = levels[k, unit], error[k, unit], wanted[k, unit]
        return cls(z, unit, level, error, wanted, unit, None, chosen)

    @classmethod
    def differences(
        cls,
        z: Tensor,
        unit: Tensor,
        other: Tensor,
        label: Tensor,
        error: Tensor,
        low: Tensor,
        high: Tensor,
    ) -> Functions:
        """Only the differences of two units that may change sign: unit, other, label (m,)."""
        slack = error[unit] + error[other]
        wanted = (low[unit] < high[other] - slack) & (high[unit] > low[other] + slack)
        chosen = (wanted & (unit != other)).nonzero()[:, 0]
        unit, other, slack = unit[chosen], other[chosen], slack[chosen]
        zero, everything = torch.zeros_like(slack), torch.ones_like(slack, dtype=torch.bool)
        return cls(z, unit, zero, slack, everything, label[chosen], other)

    @property
    def m(self) -> int:
        return int(self.unit.shape[0])

    @property
    def whole(self) -> bool:
        """Whether the columns are known to be the units themselves."""
        return self.known_signs is not None

    def units(self, column: Tensor) -> Tensor:
        """The units of some columns, (N,)."""
        return column if self.whole else take(self.unit, column)

    def at(self, vertex: Tensor, column: Tensor) -> Tensor:
        """Values of single functions at single vertices, (N,)."""
        n, flat = self.z.shape[1], self.z.view(-1)
        if self.whole:
            return take(flat, torch.add(column, vertex, alpha=n))
        row = vertex * n
        value = take(flat, row + take(self.unit, column))
        if self.other is not None:
            return value - take(flat, row + take(self.other, column))
        return value - take(self.level, column)

    def signs(self) -> tuple[Signs, Tensor]:
        """Signs of all functions at all vertices.

        Also the vertices, (N,), at which some value is too large for rounding and too small to
        have a sign: there it is taken for zero.
        """
        signs = (self.known_signs or self._find()).only(self.wanted)
        if not signs.vanish:
            return signs, self.unit[:0]
        vertex, column = set_bits(signs.zero)
        unclear = self.at(vertex, column).abs() > take(self.error, column)
        return signs, torch.unique_consecutive(vertex[unclear])

    def _find(self) -> Signs:
        """Signs of all functions, a block of vertices at a time."""
        vertices, n = self.z.shape
        writer = SignWriter(vertices, SAFETY * self.error)
        everything = torch.equal(self.unit, torch.arange(n, device=self.unit.device))
        shifted = bool(self.level.any())
        step = max(1, backend_of(self.z.device).function_values // max(self.m, 1))
        for start in range(0, vertices, step):
            block = self.z[start : start + step]
            picked = block if everything else block[:, self.unit]
            if self.other is not None:
                picked = picked - block[:, self.other]
            writer.write(start, picked - self.level if shifted else picked)
        return writer.signs
