"""The cells as an image that is computed when it is drawn, in the resolution of the picture.

Every pixel is the mean of a few points, each with the colour of the cell in which it lies. There
are no seams between cells, borders are smooth, and cells smaller than a pixel are averaged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from matplotlib.transforms import Affine2D, Bbox, BboxBase, IdentityTransform

from splinecam.geometry.frame import Frame
from splinecam.geometry.subdivision import Mesh
from splinecam.plot.arrays import Floats, Ints, Pixels, Singles, to_numpy
from splinecam.plot.lines import clipped_context, image_scale, place_image, window_of
from splinecam.plot.palette import INK, background, ink_on
from splinecam.plot.raster import Cells, Grid

__all__ = ["CellColors", "CellImage", "ink_over"]

_TABLE = 1024  # entries of the table that a colour map is sampled into
_ROOMY, _CROWDED = 16, 2  # pixels per cell above which fewer points per pixel are enough


@dataclass(frozen=True)
class CellColors:
    """What cells are coloured by: numbers for a colour map, or colours.

    numbers: (F,) one per cell, or, with slopes (F, 2) in the mesh's coordinates, the number at
    their origin. colors: (F, 4).
    """

    numbers: Floats | None = None
    slopes: Floats | None = None
    colors: Floats | None = None


class CellImage(AxesImage):
    """The cells of a mesh, drawn in the frame's plane coordinates.

    It is a ``ScalarMappable`` like any image, with a norm, a colour map and colour bars.
    """

    def __init__(
        self, ax: Axes, mesh: Mesh, frame: Frame, fill: CellColors, **options: Any
    ) -> None:
        self.cells = Cells.of(mesh)
        self.fill = fill
        self._center, self._scale = to_numpy(frame.center), frame.scale
        uv = to_numpy(mesh.uv)
        low, high = (self._center + self._scale * end for end in (uv.min(0), uv.max(0)))
        extent = (low[0], high[0], low[1], high[1])
        # "none" keeps other images from being united with this one in vector output.
        super().__init__(ax, extent=extent, interpolation="none", origin="lower", **options)
        numbers = fill.numbers if fill.numbers is not None else np.zeros(0)
        self._A = np.ma.masked_invalid(numbers)
        self._last: tuple[Any, Any] = (None, None)
        self.set_clip_path(ax.patch)

    @property
    def ink(self) -> str | None:
        """The colour of lines on the cells; None if the cells are transparent."""
        colors = self.fill.colors
        if colors is None:
            return INK
        alpha = colors[:, 3:]
        if alpha.mean() < 0.5:
            return None
        return ink_on((colors[:, :3] * alpha).sum(0) / alpha.sum())

    # -- drawing ------------------------------------------------------------------------------

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

    def pixels(self, view: BboxBase, width: int, height: int) -> Pixels:
        """A picture (height, width, 4), from below, of a box in plane coordinates."""
        fine = self._points_per_pixel(view, width * height)
        grid = self._grid(view, fine * width, fine * height)
        flip = (view.x1 < view.x0, view.y1 < view.y0)  # axes may run backwards
        image = np.empty((height, width, 4), np.uint8)
        colors = self._colors() if self.fill.slopes is None else None
        for first, last, owner in self.cells.bands(grid, fine):
            total: Any = 0.0
            for i in range(fine):
                for j in range(fine):
                    some = owner[i::fine, j::fine]
                    if colors is not None:
                        total = total + np.take(colors, some, 0)
                    else:
                        x, y = grid.x()[j::fine], grid.y(first, last)[i::fine]
                        total = total + self._shaded(some, x, y)
            image[first // fine : last // fine] = _bytes(total / fine**2)
        return image[:: -1 if flip[1] else 1, :: -1 if flip[0] else 1]

    def _points_per_pixel(self, view: BboxBase, pixels: int) -> int:
        """The number of points per pixel and axis: more where cells are small."""
        share = abs(view.width * view.height) / abs(
            np.prod(np.diff(np.array(self.get_extent()).reshape(2, 2)))
        )
        roomy = pixels / (self.cells.count * min(1.0, float(share)))
        return 2 if roomy > _ROOMY else 3 if roomy > _CROWDED else 4

    def _grid(self, view: BboxBase, columns: int, rows: int) -> Grid:
        """The points of a view in the mesh's coordinates, in the middle of their cells."""
        low = (np.array([view.xmin, view.ymin]) - self._center) / self._scale
        step = np.array([abs(view.width) / columns, abs(view.height) / rows]) / self._scale
        (left, bottom), (step_x, step_y) = low + step / 2, step
        return Grid(left, bottom, step_x, step_y, columns, rows)

    def _colors(self) -> Singles:
        """The light of each cell, (F + 1, 4), and last nothing, for points outside."""
        colors, alpha = self.fill.colors, self.get_alpha()
        rgba = colors if colors is not None else np.asarray(self.to_rgba(self._A))
        rgba = rgba * [1, 1, 1, 1 if alpha is None else alpha]
        return np.concatenate([_light(rgba), np.zeros((1, 4), np.float32)])

    def _shaded(self, owner: Ints, x: Floats, y: Floats) -> Singles:
        """The light at points with abscissae x and ordinates y, by their cells' affine maps."""
        assert self.fill.numbers is not None
        assert self.fill.slopes is not None
        slopes = self.fill.slopes[owner]
        numbers = self.fill.numbers[owner]
        numbers += slopes[:, :, 0] * x + slopes[:, :, 1] * y[:, None]
        table = _light(np.asarray(self.cmap(np.linspace(0, 1, _TABLE))))
        place = np.asarray(np.ma.filled(self.norm(numbers), 0.0))
        found: Singles = table[np.clip(place * _TABLE, 0, _TABLE - 1).astype(np.int64)]
        found[owner < 0] = 0
        return found

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

    def get_size(self) -> tuple[int, int]:
        """Rows and columns; a picture of cells has none of its own."""
        return 1, 1


def ink_over(ax: Axes) -> str:
    """The colour of lines that are seen on axes: on their cells, or on paper if they have none."""
    inks = [image.ink for image in ax.images if isinstance(image, CellImage)]
    return next((ink for ink in reversed(inks) if ink is not None), ink_on(background(ax)))


def _light(rgba: Floats) -> Singles:
    """Colours (n, 4) as amounts of light, which can be averaged: squared, and times alpha."""
    alpha = rgba[:, 3:]
    return np.concatenate([rgba[:, :3] ** 2 * alpha, alpha], 1).astype(np.float32)


def _bytes(light: Singles) -> Pixels:
    """Amounts of light (h, w, 4) as bytes of a picture."""
    alpha = light[:, :, 3:]
    solid = np.maximum(alpha, np.finfo(np.float32).tiny)
    rgb = np.sqrt(light[:, :, :3] / solid)
    return np.asarray(255 * np.concatenate([rgb, alpha], 2) + 0.5, np.uint8)
