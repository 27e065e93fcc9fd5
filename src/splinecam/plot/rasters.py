r"""Which cell lies at each point of a grid, and the colours of cells as light.

A row of the grid crosses a chain of cells, from the outside to the outside:

        outside | A | B \ C | outside

Each edge that the row crosses adds the number of the cell on its right, and subtracts the number of
the cell on its left. The running sum along the row is therefore the number of the cell, whatever
the order of close edges is. Nothing is sorted, and borders move by rounding only.

Where a cell is thinner than rounding, a point of the grid may lie on the wrong sides of both of its
edges, and the sum may be the number of any cell. The upper half of the sum has random marks of the
cells, which do not fit such a number; these few points are located one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from splinecam.geometry.point_location import Locator
from splinecam.geometry.subdivision import Mesh
from splinecam.plot.arrays import Floats, Ints, Pixels, Singles, to_numpy
from splinecam.plot.palette import INK, ink_on

_BLOCK = 1 << 19  # crossings and points of the grid at a time; they fit into a cache
_HALF = 32  # bits of a cell's number; its mark is above them, and sums of both wrap exactly


@dataclass(frozen=True)
class PointGrid:
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
    """The E edges of a subdivision that rows of a grid may cross."""

    mesh: Mesh
    x: Floats  # (E,) of the lower end
    y: Floats  # (E,) of the lower end
    top: Floats  # (E,) the ordinate of the upper end
    run: Floats  # (E,) from the lower to the upper end
    climb: Floats  # (E,) from the lower to the upper end
    key: Ints  # (F + 1,) numbers of the outside and the cells, with random marks in the upper half
    change: Ints  # (E,) the key on the right minus the key on the left

    @classmethod
    def of(cls, mesh: Mesh, grid: PointGrid | None = None) -> Cells:
        """The edges of a mesh except horizontal ones; with a grid, only edges across its rows."""
        uv, ends = to_numpy(mesh.uv), to_numpy(mesh.edges)
        beside = to_numpy(mesh.halfedge_face().view(-1, 2))
        if grid is not None:
            row = first_at(uv[:, 1], grid.low, grid.rise, grid.rows)[ends]
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

    @cached_property
    def _locator(self) -> Locator:
        return Locator(self.mesh)

    def bands(self, grid: PointGrid, together: int = 1) -> Iterator[tuple[int, int, Ints]]:
        """Yield first row, last row and cells (last - first, n), -1 outside, of bands of rows."""
        bottom = first_at(self.y, grid.low, grid.rise, grid.rows)
        top = first_at(self.top, grid.low, grid.rise, grid.rows)
        met = np.flatnonzero(top > bottom)
        bottom, top = bottom[met], top[met]
        begun, ended = (np.bincount(each, minlength=grid.rows + 1) for each in (bottom, top))
        load = np.cumsum((begun - ended)[: grid.rows]) + grid.columns
        for first, last in blocks(load, _BLOCK, together):
            here = np.flatnonzero((bottom < last) & (top > first))
            start, stop = np.maximum(bottom[here], first), np.minimum(top[here], last)
            yield first, last, self._owners(grid, first, last, met[here], start, stop - start)

    def _owners(
        self, grid: PointGrid, first: int, last: int, edge: Ints, start: Ints, count: Ints
    ) -> Ints:
        """The cells in rows from first to last, given the edges that cross ``count`` rows each."""
        row, edge = counted(start, count), np.repeat(edge, count)
        t = (grid.low + grid.rise * row - self.y[edge]) / self.climb[edge]
        # Edges that are nearly level would run off by rounding.
        x = self.x[edge] + self.run[edge] * np.clip(t, 0, 1, out=t)
        column = first_at(x, grid.left, grid.step, grid.columns)
        wide = grid.columns + 1
        changes = np.zeros((last - first) * wide, np.int64)
        np.add.at(changes, (row - first) * wide + column, self.change[edge])
        # Keys change in few places, and the changes of a row add up to 0.
        place = np.flatnonzero(changes != 0)
        key = np.concatenate([[0], np.cumsum(changes[place])])
        length = np.diff(place, prepend=0, append=len(changes))
        owner = (key & ((1 << _HALF) - 1)) - 1
        # Where rounding exchanges two crossings, a sum may be the key of no cell.
        bad = np.take(self.key, owner + 1, mode="clip") != key
        owner = np.repeat(owner, length).reshape(-1, wide)[:, :-1]
        if bad.any():
            row, column = np.nonzero(np.repeat(bad, length).reshape(-1, wide)[:, :-1])
            points = np.stack([grid.x()[column], grid.y(first, last)[row]], 1)
            found = self._locator(torch.from_numpy(points).to(self.mesh.uv))
            owner[row, column] = to_numpy(found)
        return owner


def first_at(value: Floats, start: float, step: float, count: int) -> Ints:
    """Index of the first of ``start + i * step`` that is at or beyond each value, 0 to count."""
    return np.ceil(np.clip((value - start) / step, 0, count)).astype(np.int64)


def counted(start: Ints, count: Ints) -> Ints:
    """Ranges of ``count`` whole numbers from each start, one after the other."""
    before = np.cumsum(count) - count
    return np.asarray(np.arange(int(count.sum())) + np.repeat(start - before, count))


def blocks(load: Any, most: int, together: int = 1) -> Iterator[tuple[int, int]]:
    """Ranges of rows, in multiples of ``together``, with a load of at most ``most`` each."""
    total = np.concatenate([[0], np.cumsum(load)])
    first, rows = 0, len(load)
    while first < rows:
        last = int(np.searchsorted(total, total[first] + most, side="right")) - 1
        last = max(first + together, first + (last - first) // together * together)
        last = min(last, rows)
        yield first, last
        first = last


def light_of(rgba: Floats) -> Singles:
    """Colours (n, 4) as amounts of light, which can be averaged: squared, and times alpha."""
    alpha = rgba[:, 3:]
    return np.concatenate([rgba[:, :3] ** 2 * alpha, alpha], 1).astype(np.float32)


def light_bytes(light: Singles) -> Pixels:
    """Amounts of light (h, w, 4) as bytes of a picture."""
    found = np.sqrt(light)
    partial = light[:, :, 3] < 1  # the few pixels at the border of the domain
    some = light[partial]
    solid = np.maximum(some[:, 3:], np.finfo(np.float32).tiny)
    found[partial] = np.concatenate([np.sqrt(some[:, :3] / solid), some[:, 3:]], 1)
    found *= 255
    found += 0.5
    return found.astype(np.uint8)


_TABLE = 1024  # entries of the table that a colour map is sampled into


@dataclass(frozen=True)
class CellColors:
    """The colours of cells, or numbers for a colour map."""

    numbers: Floats | None = None  # (F,), with slopes those at the origin of the mesh's coordinates
    slopes: Floats | None = None  # (F, 2)
    colors: Floats | None = None  # (F, 4)

    @property
    def ink(self) -> str | None:
        """The colour of lines on the cells; None if the cells are transparent."""
        if self.colors is None:
            return INK
        alpha = self.colors[:, 3:]
        if alpha.mean() < 0.5:
            return None
        return ink_on((self.colors[:, :3] * alpha).sum(0) / alpha.sum())

    def light(
        self, cells: Cells, grid: PointGrid, fine: int, scale: Any
    ) -> Iterator[tuple[int, int, Singles]]:
        """The light of pixels with ``fine`` times ``fine`` points each, in bands of rows.

        Yields the first and the last row of a band, and its light (rows, columns, 4). scale: the
        image of matplotlib that gives numbers their colours.
        """
        colors = None
        if self.slopes is None:  # the light of each cell, and last nothing, for points outside
            rgba, alpha = self.colors, scale.get_alpha()
            if rgba is None:
                assert self.numbers is not None
                rgba = np.asarray(scale.to_rgba(np.ma.masked_invalid(self.numbers)))
            rgba = rgba * [1, 1, 1, 1 if alpha is None else alpha]
            colors = np.concatenate([light_of(rgba), np.zeros((1, 4), np.float32)])
        for first, last, owner in cells.bands(grid, fine):
            if colors is not None:
                points = [owner[i::fine, j::fine] for i in range(fine) for j in range(fine)]
                yield first // fine, last // fine, _mean_light(colors, points)
                continue
            total: Any = 0.0
            for i in range(fine):
                for j in range(fine):
                    x, y = grid.x()[j::fine], grid.y(first, last)[i::fine]
                    total = total + self._shaded(owner[i::fine, j::fine], x, y, scale)
            yield first // fine, last // fine, total / fine**2

    def _shaded(self, owner: Ints, x: Floats, y: Floats, scale: Any) -> Singles:
        """The light at points with abscissae x and ordinates y, by their cells' affine maps."""
        assert self.numbers is not None
        assert self.slopes is not None
        slopes = self.slopes[owner]
        numbers = self.numbers[owner]
        numbers += slopes[:, :, 0] * x + slopes[:, :, 1] * y[:, None]
        table = light_of(np.asarray(scale.cmap(np.linspace(0, 1, _TABLE))))
        place = np.asarray(np.ma.filled(scale.norm(numbers), 0.0))
        found: Singles = table[np.clip(place * _TABLE, 0, _TABLE - 1).astype(np.int64)]
        found[owner < 0] = 0
        return found


def _mean_light(colors: Singles, points: list[Ints]) -> Singles:
    """The light of pixels (h, w, 4), from the light (F + 1, 4) and the cells (h, w) of points."""

    def mean(cells: list[Ints]) -> Singles:
        total: Any = 0.0
        for some in cells:
            total = total + np.take(colors, some, 0)
        return np.asarray(total / len(cells))

    # Most pixels lie in one cell; their light is found by cell.
    mixed = np.any([some != points[0] for some in points[1:]], 0)
    light: Singles = np.take(mean([np.arange(len(colors))] * len(points)), points[0], 0)
    light[mixed] = mean([some[mixed] for some in points])
    return light
