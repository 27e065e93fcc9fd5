"""Facets and lines in space, drawn on matplotlib's axes as an image of what is nearest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.transforms import Affine2D
from mpl_toolkits.mplot3d import proj3d

from splinecam.plot.arrays import Floats, Ints, Pixels, Singles
from splinecam.plot.depth_buffer import Polygons, render
from splinecam.plot.lines import image_scale, place_image

_MOST = 1 << 24  # samples of an image; there are 3 x 3 per pixel if these are fewer, else 2 x 2
_REACH = 2.0  # widths by which a line may be nearer than it is, to be seen on slanted facets
_ABOVE = 0.15  # pixels by which lines are above facets, once more for each rank
_JOIN = 0.3  # of the width of a line, by which its ends go beyond its points
_THINNEST, _FULL = 2.0, 0.9  # samples of a ribbon; the share of a colour that counts as all of it
_WIDE, _FINEST = 380.0, 0.4  # narrower scenes (in points) have thinner lines, down to a share


@dataclass(frozen=True)
class Strokes:
    """Straight lines on facets.

    ends: (L, 2, 3) in space; facets: (L, 2) those on which each line lies; color: (L, 4); width:
    (L,) in points; rank: (L,) lines of a higher rank are above others.
    """

    ends: Floats
    facets: Ints
    color: Floats
    width: Floats
    rank: Ints

    @classmethod
    def of(cls, ends: Floats, facets: Ints, color: Any, width: Any, rank: int) -> Strokes:
        """Lines of one rank; a single colour or width holds for all of them."""
        count = len(ends)
        colors, widths = np.broadcast_to(color, (count, 4)), np.broadcast_to(width, (count,))
        return cls(ends, facets, colors, widths, np.full(count, rank))

    def on_facets(self, first: int) -> Strokes:
        """The same lines on facets whose numbers begin later."""
        return replace(self, facets=self.facets + first)

    @staticmethod
    def joined(parts: list[Strokes]) -> Strokes:
        """All lines in one."""
        names = ("ends", "facets", "color", "width", "rank")
        return Strokes(*(np.concatenate([getattr(each, name) for each in parts]) for name in names))


class Scene(PolyCollection):
    """Convex facets and lines on them, of which the nearest is seen at each pixel.

    points: (P, 3); corners: (F, k) the points of each facet, the last one repeated; face: (F, 4)
    their colours. They are drawn as an image in the resolution of the picture.
    """

    axes: Any

    def __init__(
        self, points: Floats, corners: Ints, face: Floats, strokes: Strokes | None
    ) -> None:
        super().__init__([], clip_on=False)
        self.points, self.corners, self.face, self.strokes = points, corners, face, strokes
        self.set_in_layout(False)  # the axes' box holds it

    def do_3d_projection(self) -> float:
        """Return the least depth."""
        return float(self._projected(self.points)[:, 2].min(initial=np.inf))

    def _projected(self, points: Floats) -> Floats:
        """Points (..., 3) on the page, and their depths."""
        x, y, depth = proj3d.proj_transform(*points.reshape(-1, 3).T, self.axes.M)
        return np.stack([x, y, depth], 1).reshape(points.shape)

    def draw(self, renderer: Any) -> None:
        """Draw the image."""
        if not self.get_visible():
            return
        scale = image_scale(renderer)
        corner, image = self._image(scale, renderer.points_to_pixels(1.0) * scale)
        gc = renderer.new_gc()
        if image.size:
            place_image(renderer, gc, corner / scale, image, scale)
        gc.restore()
        self.stale = False

    def _image(self, scale: float, point: float) -> tuple[Floats, Pixels]:
        """The lower left corner of what is seen, and its pixels from below.

        scale: pixels per unit of the renderer; point: pixels per point. Every pixel is the mean of
        several samples.
        """
        page = self.get_transform() + Affine2D().scale(scale)
        figure: Any = self.get_figure(root=True)
        most = np.ceil(scale * np.asarray(figure.bbox.size))
        fine = 3 if 9 * most.prod() <= _MOST else 2

        def place(points: Floats) -> Floats:
            at = self._projected(points)
            at[..., :2] = page.transform(at[..., :2].reshape(-1, 2)).reshape(*at.shape[:-1], 2)
            return at

        at = place(self.points)
        low = np.clip(np.floor(at[:, :2].min(0) - 2 * point), 0, most)
        high = np.clip(np.ceil(at[:, :2].max(0) + 2 * point), low, most)
        shift, stretch = np.append(low, 0), np.array([fine, fine, 1])
        corners = (at - shift) * stretch
        groups = [Polygons.in_space(corners[self.corners], self.face)]
        if self.strokes is not None:
            ends = (place(self.strokes.ends) - shift) * stretch
            groups.append(_ribbons(self.strokes, ends, corners, groups[0].planes, fine * point))
        wide, tall = (fine * (high - low)).astype(int)
        return low, _averaged(render(groups, wide, tall), fine)


def _ribbons(
    strokes: Strokes, ends: Floats, corners: Floats, planes: Floats, point: float
) -> Polygons:
    """Lines at the depth of the nearer one of their facets, slightly above it.

    ends: (L, 2, 3) on the page; corners: (P, 3) of facets; planes: (F, 1, 3) of facets; point:
    samples per point.
    """
    extent = np.ptp(corners, axis=0)
    width = strokes.width * float(np.clip(extent[0] / (_WIDE * point), _FINEST, 1)) * point
    along = ends[:, 1, :2] - ends[:, 0, :2]
    size = np.hypot(along[:, 0], along[:, 1])
    along /= np.where(size > 0, size, 1)[:, None]
    # A line looks dotted unless it is a whole number of samples thick; it is paler instead.
    major = np.where(size > 0, np.abs(along).max(1), 1)
    whole = np.maximum(np.round(width / major), _THINNEST) * major
    share = np.minimum(width / whole, 1)
    ink = strokes.color.copy()
    ink[:, 3] *= np.where(share > _FULL, 1, share)
    unit = extent[2] / max(extent[:2].max(), 1)
    above = np.zeros((len(ends), 3))
    above[:, 2] = unit * _ABOVE * (1 + strokes.rank)
    own = _along(ends) - above
    low = own.copy()
    low[:, 2] -= _REACH * unit * whole
    beside = planes[strokes.facets, 0] - above[:, None]
    # Overlaps of translucent lines would show.
    join = np.where(strokes.color[:, 3] == 1, _JOIN * width, 0.0)
    across = np.stack([-along[:, 1], along[:, 0]], 1) * (whole / 2)[:, None]
    beyond = along * join[:, None]
    p, q = ends[:, 0, :2] - beyond, ends[:, 1, :2] + beyond
    rectangles = np.stack([p + across, p - across, q - across, q + across], 1)
    return Polygons(rectangles, beside, low, own, ink)


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
