"""A grid of square cells over a domain, with the largest bound of any square of cells."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam._util.arrays import as_rows, take
from splinecam._util.tolerances import EPS
from splinecam.geometry.domain import Domain, Frame
from splinecam.smooth.layer_bounds import UPWARDS, Boxes, Followed, modulus

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
    def resolution(self) -> int:
        """How many cells there are along the longer side."""
        return max(self.counts)

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

    tables: (S rows columns, 3, n) for each of S sizes the largest of the cells of every square, by
    its first cell. Two bounds are those on the second derivative in any direction, downwards and
    upwards; they are infinite where there may be kinks. The last is that on the distance between
    the network and a smooth function. forms: (S rows columns, 8, n) for each size ``seconds``,
    ``variation``, ``spread`` and ``rounding``, as in ``Followed``.
    """

    grid: SmoothCells
    tables: Tensor
    forms: Tensor

    @classmethod
    def of(cls, grid: SmoothCells, found: Followed) -> CellBounds:
        """From what is known of the output on the cells."""
        rows, columns = grid.counts
        # What is known beside a kink is better known of each triangle.
        spread = torch.where(found.spread > 0, torch.inf, 0.0)
        parts = (
            (*(found.curvatures + spread), found.rounding),
            (*found.seconds, *found.variation, spread, found.rounding),
        )
        bounds, form = (
            each.new_zeros((rows * columns, *each.shape[1:]))
            .index_copy_(0, grid.kept, each)
            .view(rows, columns, *each.shape[1:])
            for each in (as_rows(torch.stack(part, 1), 2) for part in parts)
        )
        tables = [bounds]
        for k in range(math.ceil(math.log2(max(rows, columns)))):
            table = tables[-1]
            for axis in (0, 1):
                table = torch.maximum(table, _shifted(table, 1 << k, axis))
            tables.append(table)
        pair = _both(form, _shifted(form, 1, 0))
        forms = [form, _both(pair, _shifted(pair, 1, 1)), *map(_even, tables[2:])]
        return cls(grid, *(torch.stack(each).flatten(0, 2) for each in (tables, forms)))

    def largest(self, boxes: Tensor) -> Tensor:
        """The bounds on boxes (N, 4), lowest u and v and highest u and v: (N, 3, n)."""
        return self._look_up(self.tables, boxes)

    def forms_on(self, boxes: Tensor) -> Tensor:
        """``forms`` on boxes (N, 4), (N, 8, n)."""
        return self._look_up(self.forms, boxes)

    def _look_up(self, tables: Tensor, boxes: Tensor) -> Tensor:
        rows, columns = self.grid.counts
        # Cells that a box touches with its border count too.
        place = (boxes.view(-1, 2, 2) - self.grid.low).div_(self.grid.side)
        place += place.new_tensor([[-_OVERLAP], [_OVERLAP]])
        cell = place.floor_().clamp_(min=0).minimum(place.new_tensor([rows - 1, columns - 1]))
        span = (cell[:, 1] - cell[:, 0]).amax(1) + 1
        size = torch.log2(span).ceil_()
        i, j = cell[:, 0].unbind(1)
        return take(tables, ((size * rows + i) * columns + j).long())


def _shifted(table: Tensor, step: int, axis: int) -> Tensor:
    """A table by the cells some steps further on, and zero beyond the grid."""
    shifted, size = table.roll(-step, axis), table.shape[axis]
    shifted.narrow(axis, max(0, size - step), min(step, size)).zero_()
    return shifted


def _even(table: Tensor) -> Tensor:
    """``CellBounds.forms`` that are the same in all directions, from ``tables``."""
    down, up, branch = table.unbind(2)
    mean, half, none = (up - down) / 2, (up + down) / 2, torch.zeros_like(up)
    return torch.stack([mean, none, mean, half, none, half, none, branch], 2)


def _both(one: Tensor, other: Tensor) -> Tensor:
    """``CellBounds.forms`` of two squares together."""
    parts = (each[:, :, :6].movedim(2, 0) for each in (one, other))
    (h, b), (k, c) = ((part[:3], part[3:]) for part in parts)
    variation = (b + c) / 2 + modulus(torch.stack([b - c, h - k], 1) / 2).sum(1)
    spread = torch.where(one[:, :, 6] + other[:, :, 6] > 0, torch.inf, 0.0)
    rounding = torch.maximum(one[:, :, 7], other[:, :, 7])
    return torch.stack([*(h + k) / 2, *variation, spread, rounding], 2)


def scattered(domain: Domain, count: int, device: torch.device) -> Tensor:
    """Points of the plane that fill a domain evenly, (N, 2): its corners, and at most ``count``."""
    number = torch.arange(1, count + 1, dtype=torch.float64, device=device)[:, None]
    corners = domain.corners.to(number)
    low, high = corners.amin(0), corners.amax(0)
    uv = low + (high - low) * (number * number.new_tensor(_EVEN) % 1)
    ahead, off = corners.roll(-1, 0) - corners, uv[:, None] - corners
    inside = (ahead[:, 0] * off[..., 1] >= ahead[:, 1] * off[..., 0]).all(1)
    return torch.cat([corners, uv[inside]])
