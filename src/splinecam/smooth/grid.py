"""A grid of square cells over a domain, with the largest bound of any square of cells."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam._util.tolerances import EPS
from splinecam.geometry.domain import Domain, Frame
from splinecam.smooth.layer_bounds import UPWARDS, Boxes, Followed

_EVEN = (0.7548776662466927, 0.5698402909980532)  # steps that fill a square evenly, on no grid

_OVERLAP = 2.0**-20  # of a cell, by which bounds hold beyond its sides, so that rounding is covered


@dataclass(frozen=True)
class SmoothCells:
    """Squares of a grid that covers a domain, in the coordinates of its frame.

    low: (2,) the grid's first corner; side: of a cell; counts: cells along u and v; kept: (C,) the
    numbers, u first, of the cells that the domain touches; inner: (C,) whether their centres lie in
    it.
    """

    low: Tensor
    side: float
    counts: tuple[int, int]
    kept: Tensor
    inner: Tensor

    @property
    def boxes(self) -> Boxes:
        """The cells that the domain touches, a little larger."""
        i, j = self.kept // self.counts[1], self.kept % self.counts[1]
        center = self.low + self.side * (torch.stack([i, j], 1).to(self.low) + 0.5)
        return Boxes(center, torch.full_like(center, self.side * (0.5 + _OVERLAP)))

    @classmethod
    def of(cls, domain: Domain, resolution: int, device: torch.device) -> SmoothCells:
        """The cells of a grid with so many cells along the longer side of the domain's box."""
        corners = Frame.of(domain).to_local(domain.corners).to(device)
        low, high = corners.amin(0), corners.amax(0)
        side = float((high - low).amax()) / resolution
        counts = [max(1, math.ceil(float(width) / side - 1e-9)) for width in high - low]
        rows, columns = counts
        number = torch.arange(rows * columns, device=device)
        place = torch.stack([number // columns, number % columns], 1).to(low)
        centers = low + side * (place + 0.5)
        ahead = corners.roll(-1, 0) - corners
        off = centers[:, None] - corners
        left = ahead[:, 0] * off[..., 1] - ahead[:, 1] * off[..., 0]
        reach = side / 2 * ahead.abs().sum(1) * UPWARDS + EPS
        kept = (left >= -reach).all(1)
        return cls(low, side, (rows, columns), number[kept], (left >= 0).all(1)[kept])


@dataclass(frozen=True)
class CellBounds:
    """Bounds on the network's outputs on squares of cells, for squares of 1, 2, 4, ... cells.

    tables: (rows, columns, 3, n) for each size the largest of the cells of every square, by its
    first cell. Two bounds are those on the second derivative in any direction, downwards and
    upwards. The last is that on the distance between the network and a smooth function.
    """

    grid: SmoothCells
    tables: list[Tensor]

    @classmethod
    def of(cls, grid: SmoothCells, found: Followed) -> CellBounds:
        """From what is known of the output on the cells."""
        rows, columns = grid.counts
        each = torch.stack([*found.curvatures, found.branch], 1).flatten(2)
        bounds = each.new_zeros((rows * columns, *each.shape[1:]))
        bounds[grid.kept] = each
        tables = [bounds.view(rows, columns, *each.shape[1:])]
        for k in range(math.ceil(math.log2(max(rows, columns)))):
            table, step = tables[-1], 1 << k
            for axis in (0, 1):
                shifted, size = table.roll(-step, axis), table.shape[axis]
                shifted.narrow(axis, max(0, size - step), min(step, size)).zero_()
                table = torch.maximum(table, shifted)
            tables.append(table)
        return cls(grid, tables)

    @property
    def branch(self) -> Tensor:
        """(n,) the largest distance between the network and a smooth function."""
        return self.tables[0][:, :, 2].amax((0, 1))

    def largest(self, boxes: Tensor) -> Tensor:
        """The bounds on boxes (N, 4), lowest u and v and highest u and v: (N, 3, n)."""
        end = torch.tensor(self.grid.counts, device=boxes.device) - 1
        # Cells that a box touches with its border count too.
        first = torch.floor((boxes[:, :2] - self.grid.low) / self.grid.side - _OVERLAP)
        last = torch.floor((boxes[:, 2:] - self.grid.low) / self.grid.side + _OVERLAP)
        first = torch.minimum(first.long().clamp(min=0), end)
        last = torch.minimum(last.long().clamp(min=0), end)
        span = (last - first).amax(1) + 1
        size = torch.ceil(torch.log2(span.to(boxes))).long()
        found = boxes.new_empty((len(boxes), *self.tables[0].shape[2:]))
        for k in torch.unique(size).tolist():
            some = (size == k).nonzero()[:, 0]
            i, j = first[some].unbind(1)
            found[some] = self.tables[k][i, j]
        return found


def scattered(domain: Domain, count: int, device: torch.device) -> Tensor:
    """Points of the plane that fill a domain evenly, (N, 2): its corners, and at most ``count``."""
    number = torch.arange(1, count + 1, dtype=torch.float64, device=device)[:, None]
    corners = domain.corners.to(number)
    low, high = corners.amin(0), corners.amax(0)
    uv = low + (high - low) * (number * number.new_tensor(_EVEN) % 1)
    ahead, off = corners.roll(-1, 0) - corners, uv[:, None] - corners
    inside = (ahead[:, 0] * off[..., 1] >= ahead[:, 1] * off[..., 0]).all(1)
    return torch.cat([corners, uv[inside]])
