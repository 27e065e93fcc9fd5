"""Lists of polygons, closed or open, measured all at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from splinecam._util.arrays import following, lengths, offsets_of, owners_of


class Polygons(NamedTuple):
    """The vertices (H, 2) of polygons, one after the other, and the number of each, (F,).

    >>> triangle = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> Polygons.of([triangle, torch.cat([triangle, triangle[:1]])]).areas().tolist()
    [0.5, 0.5]
    """

    vertices: Tensor
    counts: Tensor

    @classmethod
    def of(cls, polygons: Tensor | Sequence[Tensor]) -> Polygons:
        """One polygon (k, 2), or several; a vertex that closes a polygon counts once."""
        each = [polygons] if isinstance(polygons, Tensor) else list(polygons)
        vertices = torch.cat(each).double()
        counts = torch.tensor([len(polygon) for polygon in each], device=vertices.device)
        offsets = offsets_of(counts)
        first, last = offsets[:-1], offsets[1:] - 1
        closed = (vertices[first] == vertices[last]).all(1) & (counts > 1)
        kept = torch.ones(len(vertices), dtype=torch.bool, device=vertices.device)
        kept[last[closed]] = False
        return cls(vertices[kept], counts - closed.long())

    def means(self) -> Tensor:
        """The mean of the vertices of each polygon, (F, 2)."""
        return self._sums(self.vertices) / self.counts[:, None]

    def areas(self) -> Tensor:
        """The area of each polygon, (F,)."""
        after = following(offsets_of(self.counts), len(self.vertices))
        # Relative to the middle of its polygon, a vertex loses no digits.
        x, y = (self.vertices - self.means()[self._owner]).unbind(1)
        return self._sums(x * y[after] - y * x[after]).abs() / 2

    def eccentricities(self, eps: float = 0.0) -> Tensor:
        """The largest distance of two vertices over the smallest, plus eps, of each, (F,)."""
        found = self.vertices.new_empty(len(self.counts))
        start = offsets_of(self.counts)[:-1]
        for k in torch.unique(self.counts).tolist():
            chosen = (self.counts == k).nonzero()[:, 0]
            corner = self.vertices[start[chosen, None] + torch.arange(k, device=start.device)]
            i, j = torch.triu_indices(k, k, 1, device=start.device)
            distance = lengths(corner[:, i] - corner[:, j])
            found[chosen] = distance.amax(1) / (distance.amin(1) + eps)
        return found

    @property
    def _owner(self) -> Tensor:
        return owners_of(self.counts, len(self.vertices))

    def _sums(self, values: Tensor) -> Tensor:
        zeros = values.new_zeros((len(self.counts), *values.shape[1:]))
        return zeros.index_add_(0, self._owner, values)
