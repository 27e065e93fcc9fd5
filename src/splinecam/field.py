"""Values of single units at single vertices, however the vertices were made."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam.births import Births
from splinecam.ragged import take

__all__ = ["Field", "Pairs"]


@dataclass
class Field:
    """The n units that a cut looks at.

    base: (V, n) at the vertices of the mesh as it was; added: (W, n) at those made since, which lie
    between ``ends``, (W, 2), somewhere in an interval of ``blur`` around the right place, (W,);
    late: how those after them lie between older ones: found only where they are asked for.
    """

    base: Tensor
    added: Tensor
    ends: Tensor
    blur: Tensor
    late: tuple[Births, ...] = ()

    @classmethod
    def of(cls, z: Tensor) -> Field:
        """The units z (V, n) at the vertices of a mesh."""
        none = torch.zeros((0, 2), dtype=torch.int64, device=z.device)
        return cls(z, z[:0], none, z[:0, 0])

    def grow(self, births: Births, blur: Tensor) -> None:
        """Keep the values at new vertices, (W,)."""
        born = torch.lerp(self._rows(births.p), self._rows(births.q), births.t[:, None])
        self.added = torch.cat([self.added, born])
        self.ends = torch.cat([self.ends, torch.stack([births.p, births.q], 1)])
        self.blur = torch.cat([self.blur, blur])

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

    def blur(self, vertex: Tensor, column: Tensor) -> Tensor:
        """How far a difference may be off because a vertex may be off its place, (N,)."""
        place = vertex - self.field.base.shape[0]
        blur = self.error.new_zeros(vertex.shape)
        moved = ((place >= 0) & (place < self.field.ends.shape[0])).nonzero()[:, 0]
        ends, column = self.field.ends[place[moved]], column[moved]
        change = self.at(ends[:, 0], column) - self.at(ends[:, 1], column)
        blur[moved] = change.abs() * self.field.blur[place[moved]]
        return blur
