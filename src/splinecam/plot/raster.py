r"""The cell that each point of a grid lies in, found row by row.

A row of the grid crosses a chain of cells, from the outside to the outside:

        outside | A | B \ C | outside

Each edge that the row crosses adds the number of the cell on its right and subtracts that on its
left. The running sum along the row is therefore the number of the cell, in whatever order edges
that are close together come. Nothing is sorted, and rounding moves a border only by rounding.

Where a cell is thinner than rounding, a point of the grid may lie on the wrong sides of both of its
edges, and the sum may be the number of any cell. The upper half of the same sum, of random marks of
the cells, does not fit such a number; these few points are located one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from splinecam.geometry.point_location import Locator
from splinecam.geometry.subdivision import Mesh
from splinecam.plot.arrays import Floats, Ints, to_numpy

__all__ = ["Cells", "Grid"]

_BLOCK = 1 << 21  # crossings and points of the grid held at a time
_HALF = 32  # bits of a cell's number; its mark is above them, and sums of both wrap exactly


@dataclass(frozen=True)
class Grid:
    """Points (left + i * step, low + j * rise) of ``columns`` times ``rows``, steps positive."""

    left: float
    low: float
    step: float
    rise: float
    columns: int
    rows: int

    def x(self) -> Floats:
        """Abscissae of the columns."""
        return np.asarray(self.left + self.step * np.arange(self.columns), np.float64)

    def y(self, first: int, last: int) -> Floats:
        """Ordinates of some rows."""
        return np.asarray(self.low + self.rise * np.arange(first, last), np.float64)


@dataclass(frozen=True)
class Cells:
    """The E edges of a subdivision that rows of a grid may cross.

    x, y: (E,) the lower end; top: (E,) ordinate of the upper end; run, climb: (E,) vector from the
    lower to the upper end. key: (F + 1,) of the outside and of the F cells: 0, 1, 2, ..., with a
    random mark in the upper half of the bits; change: (E,) key of the cell on the right minus that
    of the cell on the left.
    """

    mesh: Mesh
    x: Floats
    y: Floats
    top: Floats
    run: Floats
    climb: Floats
    key: Ints
    change: Ints

    @classmethod
    def of(cls, mesh: Mesh, grid: Grid | None = None) -> Cells:
        """The edges of a mesh without horizontal ones; with a grid, those that cross its rows."""
        uv, ends = to_numpy(mesh.uv), to_numpy(mesh.edges)
        beside = to_numpy(mesh.halfedge_face().view(-1, 2))
        if grid is not None:
            row = _first_at(uv[:, 1], grid.low, grid.rise, grid.rows)[ends]
            met = row[:, 0] != row[:, 1]
            ends, beside = ends[met], beside[met]
        a, b = uv[ends].transpose(1, 0, 2)
        left, right = beside.T
        up, steep = b[:, 1] > a[:, 1], b[:, 1] != a[:, 1]
        low, high = np.where(up[:, None], a, b)[steep], np.where(up[:, None], b, a)[steep]
        left, right = np.where(up, left, right)[steep], np.where(up, right, left)[steep]
        mark = np.random.default_rng(0).integers(1, 1 << 31, mesh.num_faces + 1)
        key = (mark << _HALF) + np.arange(mesh.num_faces + 1)
        key[0] = 0
        (x, y), (_, top) = np.ascontiguousarray(low.T), np.ascontiguousarray(high.T)
        run, climb = np.ascontiguousarray((high - low).T)
        return cls(mesh, x, y, top, run, climb, key, key[right + 1] - key[left + 1])

    @property
    def count(self) -> int:
        """Number of cells."""
        return self.mesh.num_faces

    @cached_property
    def _locator(self) -> Locator:
        return Locator(self.mesh)

    def bands(self, grid: Grid, together: int = 1) -> Iterator[tuple[int, int, Ints]]:
        """The cells of a grid's points in bands of rows: first row, last row, (last - first, n).

        The outside is -1. A band has a multiple of ``together`` rows.
        """
        bottom = _first_at(self.y, grid.low, grid.rise, grid.rows)
        top = _first_at(self.top, grid.low, grid.rise, grid.rows)
        met = np.flatnonzero(top > bottom)
        bottom, top = bottom[met], top[met]
        ends = np.bincount(bottom, minlength=grid.rows + 1) - np.bincount(
            top, minlength=grid.rows + 1
        )
        load = np.cumsum(ends[: grid.rows]) + grid.columns
        for first, last in _blocks(load, together):
            here = np.flatnonzero((bottom < last) & (top > first))
            start, stop = np.maximum(bottom[here], first), np.minimum(top[here], last)
            yield first, last, self._owners(grid, first, last, met[here], start, stop - start)

    def _owners(
        self, grid: Grid, first: int, last: int, edge: Ints, start: Ints, count: Ints
    ) -> Ints:
        """The cells in rows from first to last, given the edges that cross ``count`` rows each."""
        total = int(count.sum())
        before = np.cumsum(count) - count
        row = np.arange(total) + np.repeat(start - before, count)
        edge = np.repeat(edge, count)
        t = (grid.low + grid.rise * row - self.y[edge]) / self.climb[edge]
        # Edges that are nearly level would run off by rounding.
        x = self.x[edge] + self.run[edge] * np.clip(t, 0, 1, out=t)
        column = _first_at(x, grid.left, grid.step, grid.columns)
        wide = grid.columns + 1
        place = (row - first) * wide + column
        sums = np.zeros((last - first) * wide, np.int64)
        np.add.at(sums, place, self.change[edge])
        sums = np.cumsum(sums.reshape(-1, wide)[:, :-1], 1)
        # Where rounding exchanges two crossings, a sum may be the key of no cell.
        owner = sums & ((1 << _HALF) - 1)
        row, column = np.nonzero(np.take(self.key, owner, mode="clip") != sums)
        owner -= 1
        if len(row):
            points = np.stack([grid.x()[column], grid.y(first, last)[row]], 1)
            found = self._locator(torch.from_numpy(points).to(self.mesh.uv))
            owner[row, column] = to_numpy(found)
        return owner


def _first_at(value: Floats, start: float, step: float, count: int) -> Ints:
    """Index of the first of ``start + i * step`` that is at or beyond each value, 0 to count."""
    return np.ceil(np.clip((value - start) / step, 0, count)).astype(np.int64)


def _blocks(load: Ints, together: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows, in multiples of ``together``, of a bounded load each."""
    total = np.concatenate([[0], np.cumsum(load)])
    first, rows = 0, len(load)
    while first < rows:
        last = int(np.searchsorted(total, total[first] + _BLOCK, side="right")) - 1
        last = max(first + together, first + (last - first) // together * together)
        last = min(last, rows)
        yield first, last
        first = last
