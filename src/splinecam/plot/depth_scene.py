"""Surfaces in space that may fold over, intersect each other and be translucent."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.transforms import Affine2D

from splinecam.plot.arrays import Floats, Ints, Pixels, Singles
from splinecam.plot.depth_buffer import Polygons, render
from splinecam.plot.scene import Items, Neighbours, Scene, ribbons

__all__ = ["DepthScene"]

_MOST = 1 << 24  # samples of an image; there are 3 x 3 per pixel if these are fewer, else 2 x 2
_REACH = 4.0  # pixels by which a line may be nearer than it is, to be seen on slanted cells
_ABOVE = 0.15  # pixels by which lines are above cells, once more for each rank
_JOIN = 0.3  # of the width of a line, by which its ends go beyond its points


class DepthScene(Scene):
    """Items, of which the nearest is seen at each pixel; always drawn as an image.

    The first items are the cells, in the order of their numbers; lines lie on two cells each.
    """

    def __init__(self, items: Items, **style: Any) -> None:
        none = np.zeros(0, np.int64)
        pairs = Neighbours(none, none, np.zeros((0, 2)), np.zeros((0, 2)), 0)
        super().__init__(items, pairs, **style)

    def do_3d_projection(self) -> float:
        """Return the least depth."""
        axes: Any = self.axes
        self._projection = np.asarray(axes.M)
        return float(self.items.projected(self._projection)[1].min(initial=np.inf))

    def draw(self, renderer: Any) -> None:
        """Draw the image."""
        if self.get_visible():
            self._draw_image(renderer)

    def _image(self, page: Any, wide: int, high: int, point: float) -> Pixels:
        """The items, (high, wide, 4) from below, every pixel the mean of several samples."""
        fine = 3 if 9 * wide * high <= _MOST else 2
        uv, depth = self.items.projected(self._projection)
        corners = np.concatenate([(page + Affine2D().scale(fine)).transform(uv), depth[:, None]], 1)
        box = np.concatenate([corners[:, :2].min(0), corners[:, :2].max(0)]) / fine
        left, low, right, top = np.clip(
            [*(box[:2] - 2 * point), *(box[2:] + 2 * point + 1)], 0, [wide, high, wide, high]
        ).astype(int)
        image = np.zeros((high, wide, 4), np.uint8)
        if right > left and top > low:
            corners[:, :2] -= fine * np.array([left, low])
            groups = self._polygons(corners, fine * point)
            size = (fine * (right - left), fine * (top - low))
            samples = render(groups, *size)
            image[low:top, left:right] = _averaged(samples, fine)
        return image

    def _polygons(self, corners: Floats, point: float) -> list[Polygons]:
        """The cells, and the lines as ribbons, from points (P, 3) on the page."""
        items = self.items
        filled = items.face[:, 3] > 0
        count = int(filled.sum())
        cells = Polygons.in_space(corners[items.corners[:count]], items.face[:count])
        line = np.arange(count, len(items.corners))
        if not len(line):
            return [cells]
        return [cells, self._ribbons(corners, line, cells, point)]

    def _ribbons(self, corners: Floats, line: Ints, cells: Polygons, point: float) -> Polygons:
        """Lines at the depth of the nearer one of their cells, slightly above it."""
        items = self.items
        ends = corners[items.corners[line, :2]]
        fine = self._fineness(corners[:, :2], point)
        width = items.width[line] * fine * point
        ink = items.line[line].copy()
        ink[:, 3] *= np.minimum(width, 1)  # what is thinner than a sample is paler instead
        join = np.where(items.line[line, 3] == 1, _JOIN * width, 0.0)
        xy = ribbons(ends[:, :, :2], np.maximum(width, 1), join)
        own = _along(ends)
        unit = np.ptp(corners[:, 2]) / max(np.ptp(corners[:, :2], axis=0).max(), 1)
        above = unit * _ABOVE * (1 + items.rank[line])
        planes = cells.planes[items.cells[line], 0]
        low, high, planes = own.copy(), own.copy(), planes.copy()
        low[:, 2] -= _REACH * unit + above
        high[:, 2] -= above
        planes[:, :, 2] -= above[:, None]
        return Polygons(xy, planes, low, high, ink)


def _along(ends: Floats) -> Floats:
    """The planes (N, 3) through lines (N, 2, 3) that are level across them."""
    a, b = ends[:, 0], ends[:, 1]
    way = b - a
    size = (way[:, :2] ** 2).sum(1)
    slope = way[:, :2] * (way[:, 2] / np.where(size > 0, size, 1))[:, None]
    return np.concatenate([slope, (a[:, 2] - (slope * a[:, :2]).sum(1))[:, None]], 1)


def _averaged(samples: Singles, fine: int) -> Pixels:
    """The means of fine x fine samples, as colours with their opacity."""
    every = (samples[i::fine, j::fine] for i in range(fine) for j in range(fine))
    mean = np.asarray(sum(every) / fine**2)
    share = mean[:, :, 3:]
    rgb = mean[:, :, :3] / np.where(share > 0, share, 1)
    return np.asarray(255 * np.concatenate([rgb, share], 2) + 0.5, np.uint8)
