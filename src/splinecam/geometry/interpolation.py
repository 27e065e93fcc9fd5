"""New vertices on lines between older ones, and the breakpoints of functions on these lines."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Breakpoints", "InterpolatedVertices"]


@dataclass(frozen=True)
class InterpolatedVertices:
    """New vertices between two older ones each: ``lerp(x[p], x[q], t)``, all (N,)."""

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
        """The values at the new vertices from the values x at the older ones.

        out, spare: memory for the result, and as much for intermediate values.
        """
        t = self.t.view(-1, *[1] * (x.dim() - 1))
        p = torch.index_select(x, 0, self.p, out=out)
        q = torch.index_select(x, 0, self.q, out=spare)
        return p.lerp_(q, t)


@dataclass(frozen=True)
class Breakpoints:
    """Where the slopes of units' results change on the lines that new vertices lie on.

    offsets: (L + 1,) the breakpoints of each line. Per breakpoint, (K,), in order along each line:
    its fraction t of the line, the unit, and slope_change, the change of the slope of the unit's
    result there, per length of the line. Per new vertex, (N,): its line, and place, one of the
    breakpoints at its position.
    """

    offsets: Tensor
    t: Tensor
    unit: Tensor
    slope_change: Tensor
    line: Tensor
    place: Tensor

    @classmethod
    def none(cls, interpolated: InterpolatedVertices) -> Breakpoints:
        """No breakpoints: all lines are straight."""
        line = torch.zeros_like(interpolated.p)
        return cls(line.new_zeros(2), interpolated.t[:0], line[:0], interpolated.t[:0], line, line)

    @property
    def count(self) -> int:
        return int(self.t.shape[0])

    def per_vertex(self) -> Tensor:
        """The number of breakpoints on the line of each new vertex, (N,)."""
        begin, end = self.offsets[:-1], self.offsets[1:]
        return end.index_select(0, self.line) - begin.index_select(0, self.line)
