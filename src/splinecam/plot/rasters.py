"""Cells as images that are computed in the resolution of the picture when they are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from matplotlib.transforms import Affine2D, Bbox, BboxBase, IdentityTransform

from splinecam.geometry.domain import Frame
from splinecam.geometry.point_location import Locator
from splinecam.geometry.subdivision import Mesh
from splinecam.plot.lines import (
    Floats,
    Ints,
    Pixels,
    Singles,
    clipped_context,
    image_scale,
    place_image,
    to_numpy,
    window_of,
)
from splinecam.plot.palette import INK, background, ink_on

_BLOCK = 1 << 19  # crossings and points of the grid held at a time, which fit into a cache
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


_ROOMY, _CROWDED = 16, 2  # pixels per cell above which fewer points per pixel are enough


class PlaneImage(AxesImage):
    """An image of cells, which a subclass computes with ``pixels``, in plane coordinates.

    It is a ``ScalarMappable`` like any image, with a norm, a colour map and colour bars. low, high:
    (2,) the corners of what it shows, in the local coordinates of the frame.
    """

    def __init__(
        self, ax: Axes, frame: Frame, low: Floats, high: Floats, numbers: Any, **options: Any
    ) -> None:
        self._center, self._scale = to_numpy(frame.center), frame.scale
        low, high = (self._center + self._scale * end for end in (low, high))
        extent = (low[0], high[0], low[1], high[1])
        # "none" keeps other images from being united with this one in vector output.
        super().__init__(ax, extent=extent, interpolation="none", origin="lower", **options)
        self._A = np.ma.masked_invalid(numbers)
        self._last: tuple[Any, Any] = (None, None)
        self.set_clip_path(ax.patch)

    @property
    def ink(self) -> str | None:
        """The colour of lines on the cells; None if the cells are transparent."""
        raise NotImplementedError

    def pixels(self, view: BboxBase, width: int, height: int) -> Pixels:
        """A picture (height, width, 4), from below, of a box in plane coordinates."""
        raise NotImplementedError

    def draw(self, renderer: Any) -> None:
        """Draw the cells that are in view."""
        if not self.get_visible():
            return
        scale = image_scale(renderer)
        image, left, low, _ = self.make_image(renderer, scale)
        if image is not None:
            gc = clipped_context(self, renderer)
            place_image(renderer, gc, (left, low), image, scale)
            gc.restore()
            self.stale = False

    def make_image(
        self, renderer: Any, magnification: float = 1.0, unsampled: bool = False
    ) -> tuple[Any, float, float, Any]:
        """The pixels in view, (h, w, 4) from below, and where they begin."""
        whole = Bbox.from_extents(*np.array(self.get_extent())[[0, 2, 1, 3]])
        window = window_of(self)
        if window is not None:
            window = Bbox.intersection(whole.transformed(self.axes.transData), window)
        if window is None or not (window.width > 0 and window.height > 0):
            return None, 0.0, 0.0, IdentityTransform()
        left, low = (math.floor(magnification * v) for v in window.min)
        right, top = (math.ceil(magnification * v) for v in window.max)
        width, height = right - left, top - low
        inverse = Affine2D().scale(1 / magnification) + self.axes.transData.inverted()
        view = Bbox.from_extents(left, low, right, top).transformed(inverse)
        norm = self.norm
        limits = (norm.vmin, norm.vmax, norm)
        key = (*view.extents, width, height, self.get_alpha(), *limits, self.cmap)
        if self._last[0] != key:  # layouts draw twice, so that the last image is kept
            self._last = key, self.pixels(view, width, height)
        return self._last[1], left / magnification, low / magnification, IdentityTransform()

    def _points_per_pixel(self, view: BboxBase, pixels: int, cells: int) -> int:
        """The number of points per pixel and axis: more where cells are small.

        cells: their number in the whole image.
        """
        share = abs(view.width * view.height) / abs(
            np.prod(np.diff(np.array(self.get_extent()).reshape(2, 2)))
        )
        roomy = pixels / (cells * min(1.0, float(share)))
        return 2 if roomy > _ROOMY else 3 if roomy > _CROWDED else 4

    def _grid(self, view: BboxBase, columns: int, rows: int) -> Grid:
        """The points of a view in the mesh's coordinates, in the middle of their cells."""
        low = (np.array([view.xmin, view.ymin]) - self._center) / self._scale
        step = np.array([abs(view.width) / columns, abs(view.height) / rows]) / self._scale
        (left, bottom), (step_x, step_y) = low + step / 2, step
        return Grid(left, bottom, step_x, step_y, columns, rows)

    @staticmethod
    def _turned(image: Pixels, view: BboxBase) -> Pixels:
        """An image of a view, turned round if the axes run backwards."""
        flip = (view.x1 < view.x0, view.y1 < view.y0)
        return image[:: -1 if flip[1] else 1, :: -1 if flip[0] else 1]

    def get_size(self) -> tuple[int, int]:
        """Rows and columns; a picture of cells has none of its own."""
        return 1, 1


def light_of(rgba: Floats) -> Singles:
    """Colours (n, 4) as amounts of light, which can be averaged: squared, and times alpha."""
    alpha = rgba[:, 3:]
    return np.concatenate([rgba[:, :3] ** 2 * alpha, alpha], 1).astype(np.float32)


def light_bytes(light: Singles) -> Pixels:
    """Amounts of light (h, w, 4) as bytes of a picture."""
    found = np.sqrt(light)
    partial = light[:, :, 3] < 1  # few of the pixels: those at the border of the domain
    some = light[partial]
    solid = np.maximum(some[:, 3:], np.finfo(np.float32).tiny)
    found[partial] = np.concatenate([np.sqrt(some[:, :3] / solid), some[:, 3:]], 1)
    found *= 255
    found += 0.5
    return found.astype(np.uint8)


_TABLE = 1024  # entries of the table that a colour map is sampled into


@dataclass(frozen=True)
class CellColors:
    """What cells are coloured by: numbers for a colour map, or colours.

    numbers: (F,) one per cell, or, with slopes (F, 2) in the mesh's coordinates, the number at
    their origin. colors: (F, 4).
    """

    numbers: Floats | None = None
    slopes: Floats | None = None
    colors: Floats | None = None

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
        self, cells: Cells, grid: Grid, fine: int, scale: PlaneImage
    ) -> Iterator[tuple[int, int, Singles]]:
        """The light of pixels, of ``fine`` times ``fine`` points of a grid each, in bands.

        Yields the first and the last row of pixels of a band, and their light, (rows, columns, 4).
        scale: gives numbers their colours.
        """
        colors = self._lights(scale) if self.slopes is None else None
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

    def _lights(self, scale: PlaneImage) -> Singles:
        """The light of each cell, (F + 1, 4), and last nothing, for points outside."""
        rgba, alpha = self.colors, scale.get_alpha()
        if rgba is None:
            assert self.numbers is not None
            rgba = np.asarray(scale.to_rgba(np.ma.masked_invalid(self.numbers)))
        rgba = rgba * [1, 1, 1, 1 if alpha is None else alpha]
        return np.concatenate([light_of(rgba), np.zeros((1, 4), np.float32)])

    def _shaded(self, owner: Ints, x: Floats, y: Floats, scale: PlaneImage) -> Singles:
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
    """The light of pixels (h, w, 4), given the cells of their points, (h, w) each.

    colors: (F + 1, 4) the light of each cell. Most pixels lie in one cell; their light is found by
    cell.
    """

    def mean(cells: list[Ints]) -> Singles:
        total: Any = 0.0
        for some in cells:
            total = total + np.take(colors, some, 0)
        return np.asarray(total / len(cells))

    mixed = np.any([some != points[0] for some in points[1:]], 0)
    light: Singles = np.take(mean([np.arange(len(colors))] * len(points)), points[0], 0)
    light[mixed] = mean([some[mixed] for some in points])
    return light


class CellImage(PlaneImage):
    """The cells of a mesh, drawn in the frame's plane coordinates."""

    def __init__(
        self, ax: Axes, mesh: Mesh, frame: Frame, fill: CellColors, **options: Any
    ) -> None:
        self.cells = Cells.of(mesh)
        self.fill = fill
        uv = to_numpy(mesh.uv)
        numbers = fill.numbers if fill.numbers is not None else np.zeros(0)
        super().__init__(ax, frame, uv.min(0), uv.max(0), numbers, **options)

    @property
    def ink(self) -> str | None:
        """The colour of lines on the cells; None if the cells are transparent."""
        return self.fill.ink

    # -- drawing ------------------------------------------------------------------------------

    def pixels(self, view: BboxBase, width: int, height: int) -> Pixels:
        """A picture (height, width, 4), from below, of a box in plane coordinates."""
        fine = self._points_per_pixel(view, width * height, self.cells.count)
        grid = self._grid(view, fine * width, fine * height)
        image = np.empty((height, width, 4), np.uint8)
        for first, last, light in self.fill.light(self.cells, grid, fine, self):
            image[first:last] = light_bytes(light)
        return self._turned(image, view)

    def cell_at(self, u: float, v: float) -> int:
        """The cell at plane coordinates, -1 outside."""
        x, y = (np.array([u, v]) - self._center) / self._scale
        _, _, owner = next(self.cells.bands(Grid(x, y, 1.0, 1.0, 1, 1)))
        return int(owner[0, 0])

    def get_cursor_data(self, event: Any) -> float | None:
        """The number that the cell under the cursor is coloured by, if any."""
        cell = self.cell_at(event.xdata, event.ydata)
        if cell < 0 or self.fill.numbers is None:
            return None
        number = float(self.fill.numbers[cell])
        if self.fill.slopes is not None:
            place = (np.array([event.xdata, event.ydata]) - self._center) / self._scale
            number += float(self.fill.slopes[cell] @ place)
        return number


def ink_over(ax: Axes) -> str:
    """The colour of lines that are seen on axes: on their cells, or on paper if they have none."""
    inks = [image.ink for image in ax.images if isinstance(image, PlaneImage)]
    return next((ink for ink in reversed(inks) if ink is not None), ink_on(background(ax)))


# The cells of each tile in a rectangle (u0, v0, u1, v1) of local coordinates, and their colours.
Tiles = Callable[[tuple[float, float, float, float]], Iterator[tuple[Mesh, CellColors]]]


class TiledImage(PlaneImage):
    """The cells of many meshes that cover the domain together, drawn one mesh after the other.

    box: (4,) the smallest and the largest local coordinates of all; tiles: gives the meshes in a
    rectangle; count: the number of all cells; ink: the colour of lines on them.
    """

    def __init__(
        self,
        ax: Axes,
        frame: Frame,
        box: Floats,
        tiles: Tiles,
        *,
        count: int,
        ink: str | None,
        **options: Any,
    ) -> None:
        super().__init__(ax, frame, box[:2], box[2:], np.zeros(0), **options)
        self._tiles, self._count, self._ink = tiles, count, ink

    @property
    def ink(self) -> str | None:
        """The colour of lines on the cells; None if the cells are transparent."""
        return self._ink

    def pixels(self, view: BboxBase, width: int, height: int) -> Pixels:
        """A picture (height, width, 4), from below, of a box in plane coordinates."""
        fine = self._points_per_pixel(view, width * height, self._count)
        grid = self._grid(view, fine * width, fine * height)
        total = np.zeros((height, width, 4), np.float32)
        right, top = grid.x()[-1] + grid.step / 2, grid.y(0, grid.rows)[-1] + grid.rise / 2
        shown = grid.left - grid.step / 2, grid.low - grid.rise / 2, right, top
        for mesh, fill in self._tiles(shown):
            part, column, row = _part_of(grid, fine, mesh)
            if part.columns > 0 and part.rows > 0:
                cells, wide = Cells.of(mesh, part), part.columns // fine
                for first, last, light in fill.light(cells, part, fine, self):
                    total[row + first : row + last, column : column + wide] += light
        # Rounding may give a point on a seam to both of its tiles.
        total /= np.maximum(total[:, :, 3:], 1)
        return self._turned(light_bytes(total), view)

    def get_cursor_data(self, event: Any) -> None:
        """Nothing: the cell under the cursor is not in memory."""


def _part_of(grid: Grid, fine: int, mesh: Mesh) -> tuple[Grid, int, int]:
    """The part of a grid around a mesh, in whole pixels, and its first column and row of pixels."""
    low, high = mesh.uv.amin(0).tolist(), mesh.uv.amax(0).tolist()
    starts, counts = [], []
    for axis, (start, step, count) in enumerate(
        ((grid.left, grid.step, grid.columns), (grid.low, grid.rise, grid.rows))
    ):
        first, last = ((end - start) / (fine * step) for end in (low[axis], high[axis]))
        begin = int(np.clip(np.floor(first), 0, count // fine))
        end = int(np.clip(np.ceil(last) + 1, 0, count // fine))
        starts.append(begin)
        counts.append(end - begin)
    (column, row), (columns, rows) = starts, counts
    left, bottom = grid.left + fine * column * grid.step, grid.low + fine * row * grid.rise
    part = Grid(left, bottom, grid.step, grid.rise, fine * columns, fine * rows)
    return part, column, row
