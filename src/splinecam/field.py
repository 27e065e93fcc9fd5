"""Values of single units at single vertices, however the vertices were made."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam.cutting import Births
from splinecam.ragged import take

__all__ = ["Field", "Pairs"]


@dataclass
class Field:
    """The n units that a cut looks at.

    base: (V, n) at the vertices of the mesh as it was; added: (W, n) at those made since; late:
    how those after them lie between older ones: they are found only where they are asked for.
    """

    base: Tensor
    added: Tensor
    late: tuple[Births, ...] = ()

    def grow(self, births: Births) -> None:
        """Keep the values at new vertices."""
        born = torch.lerp(self._rows(births.p), self._rows(births.q), births.t[:, None])
        self.added = torch.cat([self.added, born])

    def _rows(self, vertex: Tensor) -> Tensor:
        known = self.base.shape[0]
        rows = take(self.base, vertex.clamp(max=known - 1))
        new = (vertex >= known).nonzero()[:, 0]
        rows[new] = self.added[vertex[new] - known]
        return rows

    def at(self, vertex: Tensor, unit: Tensor) -> Tensor:
        """Values at the vertices (N,) of the units (N, R), (N, R)."""
        n = self.base.shape[1]
        if not (self.added.shape[0] or self.late):
            flat = vertex[:, None] * n + unit
            return take(self.base.view(-1), flat.view(-1)).view(unit.shape)
        value = self.base.new_empty(unit.shape)
        first = 0
        for table in (self.base, self.added):
            last = first + table.shape[0]
            here = ((vertex >= first) & (vertex < last)).nonzero()[:, 0]
            flat = (vertex[here, None] - first) * n + unit[here]
            value[here] = take(table.view(-1), flat.view(-1)).view(flat.shape)
            first = last
        for births in self.late:
            last = first + births.t.shape[0]
            here = ((vertex >= first) & (vertex < last)).nonzero()[:, 0]
            if here.shape[0]:
                born = births.select(vertex[here] - first)
                p, q = self.at(born.p, unit[here]), self.at(born.q, unit[here])
                value[here] = torch.lerp(p, q, born.t[:, None])
            first = last
        return value


@dataclass(frozen=True)
class Pairs:
    """Columns to cut by: the difference of two units each, (m,), with its rounding error."""

    field: Field
    first: Tensor
    second: Tensor
    error: Tensor

    @property
    def m(self) -> int:
        return int(self.first.shape[0])

    def at(self, vertex: Tensor, column: Tensor) -> Tensor:
        """Values of single differences at single vertices, (N,)."""
        units = torch.stack([take(self.first, column), take(self.second, column)], 1)
        first, second = self.field.at(vertex, units).unbind(1)
        return first - second
