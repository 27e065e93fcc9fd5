"""Cells as images that are computed in the resolution of the picture when they are drawn.

Every pixel is the mean of a few points, each with the colour of the cell in which it lies. Amounts
of light are averaged: there are no seams between cells, borders are smooth, and cells smaller than
a pixel are averaged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from matplotlib.transforms import Affine2D, Bbox, BboxBase, IdentityTransform

from splinecam.geometry.domain import Frame
from splinecam.geometry.subdivision import Mesh
from splinecam.plot.arrays import Floats, Pixels, to_numpy
from splinecam.plot.lines import clipped_context, image_scale, place_image, window_of
from splinecam.plot.palette import background, ink_on
from splinecam.plot.rasters import CellColors, Cells, Grid, light_bytes

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
