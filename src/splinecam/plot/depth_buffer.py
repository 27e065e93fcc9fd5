r"""Convex polygons in space as an image, in which what is nearer hides what is behind it.

Every polygon covers a span of pixels in each row, from its left to its right chain of sides:

           /\            row 3:  one span
          /  \---        row 2:  ...
          \      \
           -------       row 0

Each pixel of a span is a fragment, with the depth of the polygon's plane there. The fragments of a
pixel are blended from front to back: the nearest one, then the nearest one behind it, and so on
until nothing shines through. Polygons may therefore intersect, overlap in a circle and be
translucent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.transforms import Affine2D

from splinecam.plot.lines import Floats, Ints, Pixels, Singles
from splinecam.plot.scene import Items, Neighbours, Scene, ribbons

_BLOCK = 1 << 22  # fragments held at a time
_BITS = 31  # of the number of a polygon; as many are left for its depth
_CLEAR = 0.004  # what shines through less than this is not seen
_FLAT = 1e-12  # of a plane's direction, below which it is seen from its edge


@dataclass(frozen=True)
class Polygons:
    """Convex polygons of I times k corners on the page, in pixels.

    xy: (I, k, 2) the corners, the last one repeated; planes: (I, p, 3) the depth a x + b y + c of p
    planes, of which the nearest counts; low, high: (I, 3) planes between which the depth is. color:
    (I, 4).
    """

    xy: Floats
    planes: Floats
    low: Floats
    high: Floats
    color: Floats

    @classmethod
    def in_space(cls, corners: Floats, color: Floats) -> Polygons:
        """Flat polygons from corners (I, k, 3), whose third coordinate is the depth."""
        depth = corners[:, :, 2]
        low, high = (_level(end) for end in (depth.min(1), depth.max(1)))
        return cls(corners[:, :, :2], planes_of(corners)[:, None], low, high, color)

    def depth(self, item: Ints, column: Ints, row: Ints) -> Floats:
        """The depths of some polygons in the middle of pixels (N,), (N,)."""
        x, y = np.asarray(column + 0.5, np.float64), np.asarray(row + 0.5, np.float64)
        found = _at(self.planes[item, 0], x, y)
        for k in range(1, self.planes.shape[1]):
            np.minimum(found, _at(self.planes[item, k], x, y), out=found)
        return np.clip(found, _at(self.low[item], x, y), _at(self.high[item], x, y))


def planes_of(corners: Floats) -> Floats:
    """The planes z = a x + b y + c of polygons (I, k, 3), (I, 3), level if seen from the edge."""
    middle = corners.mean(1)
    off = corners - middle[:, None]
    normal = np.cross(off, np.roll(off, -1, 1)).sum(1)
    steep = np.abs(normal[:, 2]) <= _FLAT * np.abs(normal).max(1)
    slope = np.where(steep[:, None], 0, -normal[:, :2] / np.where(steep, 1, normal[:, 2])[:, None])
    return np.concatenate([slope, middle[:, 2:] - (slope * middle[:, :2]).sum(1)[:, None]], 1)


def _level(depth: Floats) -> Floats:
    """Planes of a constant depth (I,), (I, 3)."""
    return np.stack([np.zeros_like(depth), np.zeros_like(depth), depth], 1)


def _at(plane: Floats, x: Floats, y: Floats) -> Floats:
    return np.asarray(plane[:, 0] * x + plane[:, 1] * y + plane[:, 2])


@dataclass(frozen=True)
class _Spans:
    """The spans of polygons: item, row, first column and number of columns, (S,) each."""

    item: Ints
    row: Ints
    first: Ints
    count: Ints

    @classmethod
    def of(cls, xy: Floats, wide: int, high: int) -> _Spans:
        """The pixels of an image whose centres lie in polygons (I, k, 2)."""
        following = np.roll(xy, -1, 1)
        up = following[:, :, 1] > xy[:, :, 1]
        # Sides begin at their lower end, so that polygons beside each other agree about them.
        low, top = np.where(up[:, :, None], xy, following), np.where(up[:, :, None], following, xy)
        start, stop = _first_at(low[:, :, 1], high), _first_at(top[:, :, 1], high)
        least, most = start.min(1), stop.max(1)
        begin = np.cumsum(most - least) - (most - least)
        ends = np.zeros((2, int((most - least).sum())))
        item, side = np.nonzero(stop > start)
        size = (stop - start)[item, side]
        which, row = np.repeat(np.arange(len(item)), size), _counted(start[item, side], size)
        item, side = item[which], side[which]
        (x, y), (x1, y1) = low[item, side].T, top[item, side].T
        x = x + np.clip((row + 0.5 - y) / (y1 - y), 0, 1) * (x1 - x)
        ends[up[item, side].astype(np.int64), begin[item] + row - least[item]] = x
        columns = np.sort(_first_at(ends, wide), 0)
        count = columns[1] - columns[0]
        item = np.repeat(np.arange(len(xy)), most - least)
        some = np.flatnonzero(count)
        row = _counted(least, most - least)
        return cls(item[some], row[some], columns[0][some], count[some])

    def bands(self, high: int) -> Iterator[tuple[int, int, _Spans]]:
        """The spans in bands of rows with a bounded number of pixels each: first, last, spans."""
        order = np.argsort(self.row, kind="stable")
        total = np.concatenate([[0], np.cumsum(np.bincount(self.row, self.count, minlength=high))])
        starts = np.searchsorted(self.row[order], np.arange(high + 1))
        first = 0
        while first < high:
            last = int(np.searchsorted(total, total[first] + _BLOCK, side="right")) - 1
            last = min(max(last, first + 1), high)
            some = order[starts[first] : starts[last]]
            parts = (self.item[some], self.row[some], self.first[some], self.count[some])
            yield first, last, _Spans(*parts)
            first = last

    def pixels(self) -> tuple[Ints, Ints, Ints]:
        """The item, the column and the row of each pixel."""
        column = _counted(self.first, self.count)
        return np.repeat(self.item, self.count), column, np.repeat(self.row, self.count)


def _counted(start: Ints, count: Ints) -> Ints:
    """Ranges of ``count`` whole numbers from each start, one after the other."""
    before = np.cumsum(count) - count
    return np.asarray(np.arange(int(count.sum())) + np.repeat(start - before, count))


def _first_at(value: Floats, count: int) -> Ints:
    """The first pixel whose centre is at or beyond each value, 0 to count."""
    return np.ceil(np.clip(value - 0.5, 0, count)).astype(np.int64)


def _fragments(
    groups: list[Polygons], wide: int, high: int
) -> Iterator[tuple[int, int, Ints, Ints]]:
    """Bands of rows: first, last, and the place and the key of each fragment.

    A key is the depth, in whole numbers, followed by the number of the polygon.
    """
    spans = [_Spans.of(group.xy, wide, high) for group in groups]
    start = np.cumsum([0, *(len(group.xy) for group in groups)])
    every = _Spans(
        *(
            np.concatenate([getattr(each, name) for each in spans])
            for name in ("item", "row", "first", "count")
        )
    )
    kind = np.repeat(np.arange(len(groups)), [len(each.item) for each in spans])
    near, far = _depth_range(groups)
    every = _Spans(every.item + start[kind], every.row, every.first, every.count)
    for first, last, band in every.bands(high):
        item, column, row = band.pixels()
        depth = np.empty(len(item))
        for group, begin, end in zip(groups, start[:-1], start[1:], strict=True):
            own = np.flatnonzero((item >= begin) & (item < end))
            depth[own] = group.depth(item[own] - begin, column[own], row[own])
        whole = np.clip((depth - near) / ((far - near) or 1.0), 0, 1) * ((1 << _BITS) - 1)
        yield first, last, (row - first) * wide + column, (whole.astype(np.int64) << _BITS) | item


def _depth_range(groups: list[Polygons]) -> tuple[float, float]:
    """The least and the largest depth of corners."""
    ends: list[float] = []
    for group in groups:
        x, y = group.xy.transpose(2, 0, 1)
        for plane in (group.low, group.high):
            depth = plane[:, :1] * x + plane[:, 1:2] * y + plane[:, 2:]
            ends += [float(depth.min(initial=0)), float(depth.max(initial=0))]
    return min(ends), max(ends)


_NONE = np.int64(1) << 62


def nearest(groups: list[Polygons], side: int) -> Ints:
    """The polygon that is seen at each pixel, (side, side), counted through all groups, or -1."""
    found = np.full((side, side), -1)
    for first, last, place, key in _fragments(groups, side, side):
        front = np.full((last - first) * side, _NONE)
        np.minimum.at(front, place, key)
        item = np.where(front == _NONE, -1, front & ((1 << _BITS) - 1))
        found[first:last] = item.reshape(-1, side)
    return found


def render(groups: list[Polygons], wide: int, high: int) -> Singles:
    """The image of polygons, (high, wide, 4): colours times their opacity, and the opacity."""
    image = np.zeros((high, wide, 4), np.float32)
    color = np.concatenate([group.color for group in groups]).astype(np.float32)
    for first, last, place, key in _fragments(groups, wide, high):
        seen = image[first:last].reshape(-1, 4)
        while len(place):
            front = np.full(len(seen), _NONE)
            np.minimum.at(front, place, key)
            hit = np.flatnonzero(front != _NONE)
            ink = color[front[hit] & ((1 << _BITS) - 1)]
            share = (1 - seen[hit, 3]) * ink[:, 3]
            seen[hit, :3] += share[:, None] * ink[:, :3]
            seen[hit, 3] += share
            left = (key > front[place]) & (seen[place, 3] < 1 - _CLEAR)
            place, key = place[left], key[left]
    return image


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
