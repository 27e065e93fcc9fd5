"""Values of single units at single vertices, old and new ones."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam._util.csr import take
from splinecam.geometry.interpolation import InterpolatedVertices

__all__ = ["UnitDifferences", "VertexValues"]


@dataclass
class VertexValues:
    """The values of n units at the vertices of a mesh that is being refined.

    table: (V + W, n) at the V vertices of the mesh as it was, and at W new ones, which lie between
    ``ends``, (W, 2), up to a position error, (W,), as a fraction of the line; first: V; late: how
    all vertices lie between older ones, level by level, if some have values that are computed only
    where they are asked for.
    """

    table: Tensor
    ends: Tensor
    position_error: Tensor
    first: int
    late: tuple[InterpolatedVertices, ...] = ()

    @classmethod
    def of(cls, z: Tensor) -> VertexValues:
        """The values z (V, n) at the vertices of a mesh."""
        none = torch.zeros((0, 2), dtype=torch.int64, device=z.device)
        return cls(z.contiguous(), none, z[:0, 0], z.shape[0])

    def grow(self, interpolated: InterpolatedVertices, position_error: Tensor) -> None:
        """Compute and keep the values at new vertices, (W,)."""
        self.table = torch.cat([self.table, interpolated.interpolate(self.table)])
        self.ends = torch.cat([self.ends, torch.stack([interpolated.p, interpolated.q], 1)])
        self.position_error = torch.cat([self.position_error, position_error])

    def add_late(self, *levels: InterpolatedVertices) -> None:
        """Note how all further vertices lie between older ones, level by level.

        An older vertex lies between itself and itself.
        """
        known = self.table.shape[0]
        total = known + sum(level.count for level in levels)
        index, zero = torch.arange(total, device=self.table.device), self.table.new_zeros(total)
        for level in levels:
            old, rest = index[:known], index[known + level.count :]
            p, q = (torch.cat([old, ends, rest]) for ends in (level.p, level.q))
            t = torch.cat([zero[:known], level.t, zero[known + level.count :]])
            self.late = (*self.late, InterpolatedVertices(p, q, t))
            known += level.count

    def at(self, vertex: Tensor, unit: Tensor) -> Tensor:
        """Values at the vertices (N,) of the units (N, R), (N, R)."""
        return self._at(vertex, unit, len(self.late))

    def _at(self, vertex: Tensor, unit: Tensor, level: int) -> Tensor:
        if not level:
            flat = torch.add(unit, vertex[:, None], alpha=self.table.shape[1])
            return take(self.table.view(-1), flat.view(-1)).view(unit.shape)
        interpolated = self.late[level - 1]
        p, q = (
            self._at(take(end, vertex), unit, level - 1) for end in (interpolated.p, interpolated.q)
        )
        return torch.lerp(p, q, take(interpolated.t, vertex)[:, None])


@dataclass(frozen=True)
class UnitDifferences:
    """Columns to cut by: the difference of two units each, (m,), with its rounding error."""

    values: VertexValues
    first: Tensor
    second: Tensor
    error: Tensor

    @property
    def m(self) -> int:
        return int(self.first.shape[0])

    def at(self, vertex: Tensor, column: Tensor) -> Tensor:
        """Values of single differences at single vertices, (N,)."""
        units = torch.stack([take(self.first, column), take(self.second, column)], 1)
        first, second = self.values.at(vertex, units).unbind(1)
        return first - second

    def position_error(self, vertex: Tensor, column: Tensor) -> Tensor:
        """How far a difference may be off because a vertex may be off its place, (N,)."""
        values, off = self.values, self.error.new_zeros(vertex.shape)
        place = vertex - values.first
        new = ((place >= 0) & (place < values.ends.shape[0])).nonzero()[:, 0]
        ends, column = values.ends[place[new]], column[new]
        change = self.at(ends[:, 0], column) - self.at(ends[:, 1], column)
        off[new] = change.abs() * values.position_error[place[new]]
        return off
