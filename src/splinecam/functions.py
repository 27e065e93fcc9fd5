"""The functions a cut divides the mesh by: the units of a layer, each less one of its levels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam.predicates import EPS, SAFETY
from splinecam.ragged import take
from splinecam.signs import Signs

__all__ = ["Functions"]

# Signs are computed for this many numbers at a time, so that they stay in the cache.
_CHUNK = 1 << 18


@dataclass(frozen=True)
class Functions:
    """Columns ``z[:, unit] - level`` to cut by.

    z: (V, n) values at the vertices; unit: (m,); level: (m,); error: (m,) rounding error;
    wanted: (m,) columns that may change sign, the others are only carried along.
    """

    z: Tensor
    unit: Tensor
    level: Tensor
    error: Tensor
    wanted: Tensor

    @classmethod
    def crossing(
        cls, z: Tensor, levels: Tensor, error: Tensor, low: Tensor, high: Tensor
    ) -> Functions:
        """Only the functions that may change sign: levels (K, n); error, low, high (n,)."""
        error = error + EPS * levels.abs()
        wanted = (low < levels - error) & (high > levels + error)
        # Looking at a whole layer is faster than picking more than an eighth of it.
        chosen = wanted
        if levels.shape[0] == 1 and 8 * int(wanted.sum()) > wanted.shape[1]:
            chosen = torch.ones_like(wanted)
        k, unit = chosen.nonzero(as_tuple=True)
        return cls(z, unit, levels[k, unit], error[k, unit], wanted[k, unit])

    @property
    def m(self) -> int:
        return int(self.unit.shape[0])

    def at(self, vertex: Tensor, column: Tensor) -> Tensor:
        """Values of single functions at single vertices, (N,)."""
        flat = take(self.z.view(-1), vertex * self.z.shape[1] + take(self.unit, column))
        return flat - take(self.level, column)

    def signs(self) -> tuple[Signs, Tensor]:
        """Signs of all functions at all vertices, a block of vertices at a time.

        Also the vertices, (N,), at which some value is too large for rounding and too small to
        have a sign: there it is taken for zero.
        """
        vertices, n = self.z.shape
        signs = Signs.empty(vertices, self.wanted)
        doubtful = [signs.positive.new_zeros(0)]
        everything = torch.equal(self.unit, torch.arange(n, device=self.unit.device))
        shifted = bool(self.level.any())
        step = max(1, _CHUNK // max(self.m, 1))
        for start in range(0, vertices, step):
            block = self.z[start : start + step]
            block = block if everything else block[:, self.unit]
            block = block - self.level if shifted else block
            if signs.store(start, block, SAFETY * self.error):
                size = block.abs()
                unclear = (size > self.error) & (size <= SAFETY * self.error) & self.wanted
                unclear = unclear.any(1)
                doubtful.append(unclear.nonzero()[:, 0] + start)
        return signs, torch.cat(doubtful)
