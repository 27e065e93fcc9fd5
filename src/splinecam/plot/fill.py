"""The cells as an image that is computed when it is drawn, in the resolution of the picture.

Every pixel is the mean of a few points, each with the colour of the cell in which it lies: no seams
between cells, smooth borders, and correct averages of cells that are smaller than a pixel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.image import AxesImage
from matplotlib.transforms import Affine2D, Bbox, BboxBase, IdentityTransform

from splinecam.plot.lines import clipped_context, vector_scale, window_of
from splinecam.plot.palette import INK, background, ink_on
from splinecam.plot.raster import Cells, Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from splinecam.geometry.frame import Frame
    from splinecam.geometry.subdivision import Mesh
    from splinecam.plot.raster import Floats, Whole

    Singles = NDArray[np.float32]

__all__ = ["CellImage", "Shade", "ink_over"]

_SHADES = 1024  # colours of a colour map that are told apart
_ROOMY, _CROWDED = 16, 2  # pixels per cell beyond which fewer points per pixel do


@dataclass(frozen=True)
class Shade:
    """What cells are coloured by: numbers for a colour map, or colours.

    numbers: (F,) of each cell; slopes: (F, 2) by how much they change per unit of the mesh's
    coordinates, where ``numbers`` are those at the coordinates' origin; colors: (F, 4).
    """

    numbers: Floats | None = None
    slopes: Floats | None = None
    colors: Floats | None = None


class CellImage(AxesImage):
    """The cells of a mesh, drawn in the frame's plane coordinates.

    A ``ScalarMappable`` like any image: norm, colour map and limits can be changed, and colour bars
    be made of it.
    """

    def __init__(self, ax: Axes, mesh: Mesh, frame: Frame, shade: Shade, **options: Any) -> None:
        self.cells = Cells.of(mesh)
        self.shade = shade
        self._center, self._scale = frame.center.cpu().numpy(), frame.scale
        uv = mesh.uv.cpu().numpy()
        low, high = (self._center + self._scale * end for end in (uv.min(0), uv.max(0)))
        extent = (low[0], high[0], low[1], high[1])
        # "none" keeps other images from being united with this one in vector output.
        super().__init__(ax, extent=extent, interpolation="none", origin="lower", **options)
        numbers = shade.numbers if shade.numbers is not None else np.zeros(0)
        self._A = np.ma.masked_invalid(numbers)
        self._last: tuple[Any, Any] = (None, None)
        self.set_clip_path(ax.patch)

    @property
    def ink(self) -> str | None:
        """What lines on the cells are drawn with; None if nothing is seen of the cells."""
        colors = self.shade.colors
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
        vector = renderer.option_scale_image()
        scale = vector_scale(renderer) if vector else renderer.get_image_magnification()
        image, left, low, _ = self.make_image(renderer, scale)
        if image is None:
            return
        gc = clipped_context(self, renderer)
        if vector:  # which can place an image of any resolution
            place = Affine2D().scale(image.shape[1] / scale, image.shape[0] / scale)
            renderer.draw_image(gc, left, low, image, place)
        else:
            renderer.draw_image(gc, left, low, image)
        gc.restore()
        self.stale = False

    def make_image(
        self, renderer: Any, magnification: float = 1.0, unsampled: bool = False
    ) -> tuple[Any, float, float, Any]:
        """The pixels in view, (h, w, 4) from below, and where they begin."""
        nothing = (None, 0.0, 0.0, IdentityTransform())
        whole = Bbox.from_extents(*np.array(self.get_extent())[[0, 2, 1, 3]])
        window = window_of(self)
        if window is None:
            return nothing
        box = Bbox.intersection(whole.transformed(self.axes.transData), window)
        if box is None or not (box.width > 0 and box.height > 0):
            return nothing
        left, low = (math.floor(magnification * v) for v in box.min)
        width, height = (
            math.ceil(magnification * v) - start
            for v, start in zip(box.max, (left, low), strict=True)
        )
        pixels = Bbox.from_bounds(left, low, width, height)
        inverse = Affine2D().scale(1 / magnification) + self.axes.transData.inverted()
        view = pixels.transformed(inverse)
        image = self._remembered(view, width, height)
        return image, left / magnification, low / magnification, IdentityTransform()

    def _remembered(self, view: BboxBase, width: int, height: int) -> NDArray[np.uint8]:
        """The picture of a view; layouts draw twice, so that the last one is kept."""
        norm = self.norm
        key = (
            *view.extents,
            width,
            height,
            self.get_alpha(),
            norm.vmin,
            norm.vmax,
            norm,
            self.cmap,
        )
        if self._last[0] != key:
            self._last = key, self.pixels(view, width, height)
        image: NDArray[np.uint8] = self._last[1]
        return image

    def pixels(self, view: BboxBase, width: int, height: int) -> NDArray[np.uint8]:
        """A picture (height, width, 4), from below, of a box in plane coordinates."""
        fine = self._points_per_pixel(view, width * height)
        grid = self._grid(view, fine * width, fine * height)
        flip = (view.x1 < view.x0, view.y1 < view.y0)  # axes may run backwards
        image = np.empty((height, width, 4), np.uint8)
        colors = self._colors() if self.shade.slopes is None else None
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
        """How many points per pixel and axis show the cells well."""
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
        if self.shade.colors is not None:
            rgba = self.shade.colors
        else:
            rgba = np.asarray(self.to_rgba(self._A))
        alpha = self.get_alpha()
        rgba = rgba * [1, 1, 1, 1 if alpha is None else alpha]
        return np.concatenate([_light(rgba), np.zeros((1, 4), np.float32)])

    def _shaded(self, owner: Whole, x: Floats, y: Floats) -> Singles:
        """The light at points with abscissae x and ordinates y, by their cells' affine maps."""
        assert self.shade.numbers is not None
        assert self.shade.slopes is not None
        slopes = self.shade.slopes[owner]
        numbers = self.shade.numbers[owner]
        numbers += slopes[:, :, 0] * x + slopes[:, :, 1] * y[:, None]
        table = _light(np.asarray(self.cmap(np.linspace(0, 1, _SHADES))))
        place = np.asarray(np.ma.filled(self.norm(numbers), 0.0))
        found: Singles = table[np.clip(place * _SHADES, 0, _SHADES - 1).astype(np.int64)]
        found[owner < 0] = 0
        return found

    # -- what an image is asked for -------------------------------------------------------------

    def cell_at(self, u: float, v: float) -> int:
        """The cell at plane coordinates, -1 outside."""
        x, y = (np.array([u, v]) - self._center) / self._scale
        _, _, owner = next(self.cells.bands(Grid(x, y, 1.0, 1.0, 1, 1)))
        return int(owner[0, 0])

    def get_cursor_data(self, event: Any) -> float | None:
        """The number that the cell under the cursor is coloured by, if any."""
        cell = self.cell_at(event.xdata, event.ydata)
        if cell < 0 or self.shade.numbers is None:
            return None
        number = float(self.shade.numbers[cell])
        if self.shade.slopes is not None:
            place = (np.array([event.xdata, event.ydata]) - self._center) / self._scale
            number += float(self.shade.slopes[cell] @ place)
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


def _bytes(light: Singles) -> NDArray[np.uint8]:
    """Amounts of light (h, w, 4) as bytes of a picture."""
    alpha = light[:, :, 3:]
    solid = np.maximum(alpha, np.finfo(np.float32).tiny)
    rgb = np.sqrt(light[:, :, :3] / solid)
    return np.asarray(255 * np.concatenate([rgb, alpha], 2) + 0.5, np.uint8)
