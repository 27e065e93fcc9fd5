"""Values of single units at single vertices, however the vertices were made."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam._util.csr import take
from splinecam.geometry.interpolation import Births

__all__ = ["Field", "Pairs"]


@dataclass
class Field:
    """The n units that a cut looks at.

    table: (V + W, n) at the V vertices of the mesh as it was, and at W made since, which lie
    between ``ends``, (W, 2), somewhere in an interval of ``blur`` around the right place, (W,);
    first: V; late: how all vertices lie between older ones, level by level, if there are some whose
    values are found only where they are asked for.
    """

    table: Tensor
    ends: Tensor
    blur: Tensor
    first: int
    late: tuple[Births, ...] = ()

    @classmethod
    def of(cls, z: Tensor) -> Field:
        """The units z (V, n) at the vertices of a mesh."""
        none = torch.zeros((0, 2), dtype=torch.int64, device=z.device)
        return cls(z.contiguous(), none, z[:0, 0], z.shape[0])

    def grow(self, births: Births, blur: Tensor) -> None:
        """Keep the values at new vertices, (W,)."""
        self.table = torch.cat([self.table, births.interpolate(self.table)])
        self.ends = torch.cat([self.ends, torch.stack([births.p, births.q], 1)])
        self.blur = torch.cat([self.blur, blur])

    def add_late(self, *levels: Births) -> None:
        """Say how all vertices that come after lie between older ones, level by level.

        An older vertex lies between itself and itself.
        """
        known = self.table.shape[0]
        total = known + sum(level.count for level in levels)
        index, zero = torch.arange(total, device=self.table.device), self.table.new_zeros(total)
        for level in levels:
            old, rest = index[:known], index[known + level.count :]
            p, q = (torch.cat([old, ends, rest]) for ends in (level.p, level.q))
            t = torch.cat([zero[:known], level.t, zero[known + level.count :]])
            self.late = (*self.late, Births(p, q, t))
            known += level.count

    def at(self, vertex: Tensor, unit: Tensor) -> Tensor:
        """Values at the vertices (N,) of the units (N, R), (N, R)."""
        return self._at(vertex, unit, len(self.late))

    def _at(self, vertex: Tensor, unit: Tensor, level: int) -> Tensor:
        if not level:
            flat = torch.add(unit, vertex[:, None], alpha=self.table.shape[1])
            return take(self.table.view(-1), flat.view(-1)).view(unit.shape)
        births = self.late[level - 1]
        p, q = (self._at(take(end, vertex), unit, level - 1) for end in (births.p, births.q))
        return torch.lerp(p, q, take(births.t, vertex)[:, None])


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
        blur = self.error.new_zeros(vertex.shape)
        if not vertex.shape[0]:
            return blur
        place = vertex - self.field.first
        moved = ((place >= 0) & (place < self.field.ends.shape[0])).nonzero()[:, 0]
        ends, column = self.field.ends[place[moved]], column[moved]
        change = self.at(ends[:, 0], column) - self.at(ends[:, 1], column)
        blur[moved] = change.abs() * self.field.blur[place[moved]]
        return blur
