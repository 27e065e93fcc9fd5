r"""Facets and lines in space, drawn on matplotlib's axes as an image.

Every polygon covers a span of pixels in each row, from its left to its right chain of sides:

           /\            row 3:  one span
          /  \---        row 2:  ...
          \      \
           -------       row 0

Each pixel of a span is a fragment, with the depth of the polygon's plane there. The fragments of a
pixel are blended from front to back: the nearest one, then the nearest one behind it, and so on
until nothing shines through. FlatPolygons may therefore intersect, overlap in a circle and be
translucent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.transforms import Affine2D
from mpl_toolkits.mplot3d import proj3d

from splinecam.plot.arrays import Floats, Ints, Pixels, Singles
from splinecam.plot.artists import draw_image, image_scale
from splinecam.plot.rasters import blocks, counted, first_at

_BLOCK = 1 << 22  # fragments held at a time
_BITS = 31  # of the number of a polygon; as many are left for its depth
_CLEAR = 0.004  # the share of light below which nothing shines through
_NONE = np.int64(1) << 62  # the key of no fragment
_FLAT = 1e-12  # share of a plane's normal below which the plane is seen from its edge


@dataclass(frozen=True)
class FlatPolygons:
    """Convex polygons of I times k corners on the page, in pixels."""

    xy: Floats  # (I, k, 2) the corners, the last one repeated
    planes: Floats  # (I, p, 3) the depths a x + b y + c of p planes, of which the nearest counts
    low: Floats  # (I, 3) a plane that bounds the depth
    high: Floats  # (I, 3)
    color: Floats  # (I, 4)

    @classmethod
    def in_space(cls, corners: Floats, color: Floats) -> FlatPolygons:
        """Flat polygons from corners (I, k, 3), whose third coordinate is the depth."""
        depth, low, high = corners[:, :, 2], *np.zeros((2, len(corners), 3))
        low[:, 2], high[:, 2] = depth.min(1), depth.max(1)
        return cls(corners[:, :, :2], planes_of(corners)[:, None], low, high, color)

    def depth(self, item: Ints, column: Ints, row: Ints) -> Floats:
        """The depths of some polygons in the middle of pixels (N,), (N,)."""
        x, y = np.asarray(column + 0.5, np.float64), np.asarray(row + 0.5, np.float64)
        found = _at(self.planes[:, 0].take(item, 0), x, y)
        for k in range(1, self.planes.shape[1]):
            np.minimum(found, _at(self.planes[:, k].take(item, 0), x, y), out=found)
        return np.clip(found, _at(self.low.take(item, 0), x, y), _at(self.high.take(item, 0), x, y))


def planes_of(corners: Floats) -> Floats:
    """The planes z = a x + b y + c of polygons (I, k, 3), (I, 3), level if seen from the edge."""
    middle = corners.mean(1)
    off = corners - middle[:, None]
    normal = np.cross(off, np.roll(off, -1, 1)).sum(1)
    steep = np.abs(normal[:, 2]) <= _FLAT * np.abs(normal).max(1)
    slope = np.where(steep[:, None], 0, -normal[:, :2] / np.where(steep, 1, normal[:, 2])[:, None])
    return np.concatenate([slope, middle[:, 2:] - (slope * middle[:, :2]).sum(1)[:, None]], 1)


def _at(plane: Floats, x: Floats, y: Floats) -> Floats:
    return np.asarray(plane[:, 0] * x + plane[:, 1] * y + plane[:, 2])


def _spans(xy: Floats, wide: int, high: int) -> Ints:
    """The pixels in polygons (I, k, 2) as spans (4, S): polygon, row, first column, columns."""
    following = np.roll(xy, -1, 1)
    up = following[:, :, 1] > xy[:, :, 1]
    # Sides begin at their lower end: neighbouring polygons agree about them.
    low, top = np.where(up[:, :, None], xy, following), np.where(up[:, :, None], following, xy)
    start, stop = first_at(low[:, :, 1], 0.5, 1.0, high), first_at(top[:, :, 1], 0.5, 1.0, high)
    least, most = start.min(1), stop.max(1)
    begin = np.cumsum(most - least) - (most - least)
    ends = np.zeros((2, int((most - least).sum())))
    item, side = np.nonzero(stop > start)
    size = (stop - start)[item, side]
    which, row = np.repeat(np.arange(len(item)), size), counted(start[item, side], size)
    item, side = item[which], side[which]
    (x, y), (x1, y1) = low[item, side].T, top[item, side].T
    x = x + np.clip((row + 0.5 - y) / (y1 - y), 0, 1) * (x1 - x)
    ends[up[item, side].astype(np.int64), begin[item] + row - least[item]] = x
    columns = np.sort(first_at(ends, 0.5, 1.0, wide), 0)
    item, row = np.repeat(np.arange(len(xy)), most - least), counted(least, most - least)
    spans = np.stack([item, row, columns[0], columns[1] - columns[0]])
    return spans[:, spans[3] > 0]


def _fragments(
    groups: list[FlatPolygons], wide: int, high: int
) -> Iterator[tuple[int, int, Ints, Ints]]:
    """Bands of rows: first, last, and the place and the key (depth, polygon) of each fragment."""
    spans, ends, begin = [], [], 0
    for group in groups:
        item, row, column, count = own = _spans(group.xy, wide, high)
        # Depths are found at both ends of a span, and interpolated between them.
        depths = (group.depth(item, at, row) for at in (column, column + count - 1))
        ends.append(np.stack([*depths]))
        spans.append(own + np.array([[begin], [0], [0], [0]]))
        begin += len(group.xy)
    item, row, column, count = np.concatenate(spans, 1)
    near, far = np.concatenate(ends, 1)
    both = np.concatenate([near, far])
    least, most = both.min(initial=0), both.max(initial=0)
    scale = ((1 << _BITS) - 1) / ((most - least) or 1.0)
    start, step = (near - least) * scale, (far - near) * scale / np.maximum(count - 1, 1)
    order = np.argsort(row, kind="stable")
    starts = np.searchsorted(row[order], np.arange(high + 1))
    for first, last in blocks(np.bincount(row, count, minlength=high), _BLOCK):
        some = order[starts[first] : starts[last]]
        size = count[some]
        along = counted(np.zeros_like(size), size)
        depth = np.repeat(start[some], size) + along * np.repeat(step[some], size)
        place = along + np.repeat((row[some] - first) * wide + column[some], size)
        yield first, last, place, (depth.astype(np.int64) << _BITS) | np.repeat(item[some], size)


def nearest(groups: list[FlatPolygons], side: int) -> Ints:
    """The polygon that is seen at each pixel, (side, side), counted through all groups, or -1."""
    found = np.full((side, side), -1)
    for first, last, place, key in _fragments(groups, side, side):
        front = np.full((last - first) * side, _NONE)
        np.minimum.at(front, place, key)
        item = np.where(front == _NONE, -1, front & ((1 << _BITS) - 1))
        found[first:last] = item.reshape(-1, side)
    return found


def render(groups: list[FlatPolygons], wide: int, high: int) -> Singles:
    """The image of polygons, (high, wide, 4): colours times their opacity, and the opacity."""
    image = np.zeros((high, wide, 4), np.float32)
    color = np.concatenate([group.color for group in groups]).astype(np.float32)
    color[:, :3] *= color[:, 3:]
    for first, last, place, key in _fragments(groups, wide, high):
        pixels = image[first:last].reshape(-1, 4)
        there = np.arange(len(pixels))  # the pixels at which there are fragments left
        while len(place):
            front = np.full(len(there), _NONE)
            np.minimum.at(front, place, key)
            hit = np.flatnonzero(front != _NONE)
            ink = color.take(front[hit] & ((1 << _BITS) - 1), 0)
            before = pixels.take(there[hit], 0)
            seen = before + (1 - before[:, 3:]) * ink
            pixels[there[hit]] = seen
            clear = np.zeros(len(there), bool)
            clear[hit] = seen[:, 3] < 1 - _CLEAR
            left = np.flatnonzero(clear.take(place) & (key > front.take(place)))
            place, key = (np.cumsum(clear) - 1).take(place[left]), key[left]
            there = there[clear]
    return image


_MOST = 1 << 24  # samples of an image; there are 3 x 3 per pixel if these are fewer, else 2 x 2
_REACH = 2.0  # widths by which a line comes nearer, to be seen on slanted facets
_ABOVE = 0.15  # pixels by which lines are above facets, once more for each rank
_JOIN = 0.3  # share of its width by which a line goes beyond its ends
_THINNEST, _FULL = 2.0, 0.9  # samples of a ribbon; the share of a colour that counts as all of it
_WIDE, _FINEST = 380.0, 0.4  # narrower scenes (in points) have thinner lines, down to a share


@dataclass(frozen=True)
class Strokes:
    """Straight lines on facets."""

    ends: Floats  # (L, 2, 3) in space
    facets: Ints  # (L, 2) on which each line lies
    color: Floats  # (L, 4)
    width: Floats  # (L,) in points
    rank: Ints  # (L,) lines of a higher rank are above others

    @classmethod
    def of(cls, ends: Floats, facets: Ints, color: Any, width: Any, rank: int) -> Strokes:
        """Lines of one rank; a single colour or width holds for all of them."""
        count = len(ends)
        colors, widths = np.broadcast_to(color, (count, 4)), np.broadcast_to(width, (count,))
        return cls(ends, facets, colors, widths, np.full(count, rank))

    @staticmethod
    def joined(parts: list[Strokes]) -> Strokes:
        """All lines in one."""
        columns = zip(*(vars(each).values() for each in parts), strict=True)
        return Strokes(*map(np.concatenate, columns))


class Scene(PolyCollection):
    """Convex facets and lines on them, as an image that shows the nearest at each pixel.

    points: (P, 3); corners: (F, k) the points of each facet, the last one repeated; face: (F, 4)
    their colours.
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
        if not self.get_visible():
            return
        scale = image_scale(renderer)
        corner, image = self._image(scale, renderer.points_to_pixels(1.0) * scale)
        if image.size:
            high, wide = image.shape[:2]
            draw_image(self, renderer, corner / scale, image, (wide / scale, high / scale))

    def _image(self, scale: float, point: float) -> tuple[Floats, Pixels]:
        """The lower left corner of the image, and its pixels from below, means of samples."""
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
        groups = [FlatPolygons.in_space(corners[self.corners], self.face)]
        if self.strokes is not None:
            ends = (place(self.strokes.ends) - shift) * stretch
            groups.append(_ribbons(self.strokes, ends, corners, groups[0].planes, fine * point))
        wide, tall = (fine * (high - low)).astype(int)
        return low, averaged(render(groups, wide, tall), fine)


def _ribbons(
    strokes: Strokes, ends: Floats, corners: Floats, planes: Floats, point: float
) -> FlatPolygons:
    """Lines slightly above the nearer one of their facets, as polygons.

    ends: (L, 2, 3) on the page; corners: (P, 3), planes: (F, 1, 3) of facets; point: samples per
    point.
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
    depth = extent[2] / max(extent[:2].max(), 1)
    above = np.zeros((len(ends), 3))
    above[:, 2] = depth * _ABOVE * (1 + strokes.rank)
    own = _along(ends) - above
    low = own.copy()
    low[:, 2] -= _REACH * depth * whole
    beside = planes[strokes.facets, 0] - above[:, None]
    # Overlaps of translucent lines would show.
    join = np.where(strokes.color[:, 3] == 1, _JOIN * width, 0.0)
    across = np.stack([-along[:, 1], along[:, 0]], 1) * (whole / 2)[:, None]
    beyond = along * join[:, None]
    p, q = ends[:, 0, :2] - beyond, ends[:, 1, :2] + beyond
    rectangles = np.stack([p + across, p - across, q - across, q + across], 1)
    return FlatPolygons(rectangles, beside, low, own, ink)


def _along(ends: Floats) -> Floats:
    """The planes (N, 3) through lines (N, 2, 3) that are level across them."""
    a, b = ends[:, 0], ends[:, 1]
    way = b - a
    size = (way[:, :2] ** 2).sum(1)
    slope = way[:, :2] * (way[:, 2] / np.where(size > 0, size, 1))[:, None]
    return np.concatenate([slope, (a[:, 2] - (slope * a[:, :2]).sum(1))[:, None]], 1)


def averaged(samples: Singles, fine: int) -> Pixels:
    """The means of fine x fine samples, as colours with their opacity."""
    every = (samples[i::fine, j::fine] for i in range(fine) for j in range(fine))
    mean = np.asarray(sum(every) / fine**2)
    share = mean[:, :, 3:]
    rgb = mean[:, :, :3] / np.where(share > 0, share, 1)
    return np.asarray(255 * np.concatenate([rgb, share], 2) + 0.5, np.uint8)
