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

import numpy as np

from splinecam.plot.arrays import Floats, Ints, Singles

_BLOCK = 1 << 22  # fragments held at a time
_BITS = 31  # of the number of a polygon; as many are left for its depth
_CLEAR = 0.004  # what shines through less than this is not seen
_NONE = np.int64(1) << 62  # the key of no fragment
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
    """The pixels of an image whose centres lie in polygons (I, k, 2), as spans (4, S).

    A span has a polygon, a row, a first column and a number of columns.
    """
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
    item, row = np.repeat(np.arange(len(xy)), most - least), _counted(least, most - least)
    spans = np.stack([item, row, columns[0], columns[1] - columns[0]])
    return spans[:, spans[3] > 0]


def _bands(row: Ints, count: Ints, high: int) -> Iterator[tuple[int, int, Ints]]:
    """Bands of rows in which spans have a bounded number of pixels: first, last, spans."""
    order = np.argsort(row, kind="stable")
    total = np.concatenate([[0], np.cumsum(np.bincount(row, count, minlength=high))])
    starts = np.searchsorted(row[order], np.arange(high + 1))
    first = 0
    while first < high:
        last = int(np.searchsorted(total, total[first] + _BLOCK, side="right")) - 1
        last = min(max(last, first + 1), high)
        yield first, last, order[starts[first] : starts[last]]
        first = last


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
    least, most = (
        min(near.min(initial=0), far.min(initial=0)),
        max(near.max(initial=0), far.max(initial=0)),
    )
    scale = ((1 << _BITS) - 1) / ((most - least) or 1.0)
    start, step = (near - least) * scale, (far - near) * scale / np.maximum(count - 1, 1)
    for first, last, some in _bands(row, count, high):
        size = count[some]
        along = _counted(np.zeros_like(size), size)
        depth = np.repeat(start[some], size) + along * np.repeat(step[some], size)
        place = along + np.repeat((row[some] - first) * wide + column[some], size)
        yield first, last, place, (depth.astype(np.int64) << _BITS) | np.repeat(item[some], size)


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
