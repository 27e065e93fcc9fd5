"""New vertices as points of lines between older ones, and where functions vanish on those lines."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Breakpoints", "InterpolatedVertices"]


@dataclass(frozen=True)
class InterpolatedVertices:
    """New vertices as points between two older ones: ``lerp(x[p], x[q], t)``, all (N,)."""

    p: Tensor
    q: Tensor
    t: Tensor

    @property
    def count(self) -> int:
        return int(self.t.shape[0])

    def select(self, chosen: Tensor | slice) -> InterpolatedVertices:
        """Some of the new vertices."""
        return InterpolatedVertices(self.p[chosen], self.q[chosen], self.t[chosen])

    def interpolate(
        self, x: Tensor, out: Tensor | None = None, spare: Tensor | None = None
    ) -> Tensor:
        """Values at the new vertices from the values x of the older ones.

        out: where to put them; spare: as much room again, to save the time of finding it.
        """
        t = self.t.view(-1, *[1] * (x.dim() - 1))
        p = torch.index_select(x, 0, self.p, out=out)
        q = torch.index_select(x, 0, self.q, out=spare)
        return p.lerp_(q, t)


@dataclass(frozen=True)
class Breakpoints:
    """Where the results of units bend on the lines that new vertices lie on.

    offsets: (L + 1,) the kinks of each line. Per kink, (K,), in order along each line: its fraction
    t of the line, the unit, and bend, by how much the slope of its result changes there, per whole
    line. Per new vertex, (N,): its line, and place, one of the kinks where it is.
    """

    offsets: Tensor
    t: Tensor
    unit: Tensor
    slope_change: Tensor
    line: Tensor
    place: Tensor

    @classmethod
    def none(cls, interpolated: InterpolatedVertices) -> Breakpoints:
        """Straight lines to new vertices."""
        line = torch.zeros_like(interpolated.p)
        return cls(line.new_zeros(2), interpolated.t[:0], line[:0], interpolated.t[:0], line, line)

    @property
    def count(self) -> int:
        return int(self.t.shape[0])

    def per_vertex(self) -> Tensor:
        """How many kinks the line of each new vertex has, (N,)."""
        begin, end = self.offsets[:-1], self.offsets[1:]
        return end.index_select(0, self.line) - begin.index_select(0, self.line)
