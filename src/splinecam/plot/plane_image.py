"""Images that are computed when they are drawn, in the resolution of the picture.

Every pixel is the mean of a few points. Amounts of light are averaged, so that borders between
colours are smooth.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from matplotlib.transforms import Affine2D, Bbox, BboxBase, IdentityTransform

from splinecam.geometry.frame import Frame
from splinecam.plot.arrays import Floats, Pixels, Singles, to_numpy
from splinecam.plot.lines import clipped_context, image_scale, place_image, window_of
from splinecam.plot.raster import Grid

__all__ = ["PlaneImage", "light_bytes", "light_of"]

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
