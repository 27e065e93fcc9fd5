"""A scale bar of a round length, at any zoom, in a free corner."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.collections import PathCollection
from matplotlib.lines import Line2D
from matplotlib.patheffects import Stroke, withStroke
from matplotlib.text import Text
from matplotlib.transforms import Bbox, IdentityTransform

from splinecam.plot.fill import ink_over
from splinecam.plot.lines import figure_of
from splinecam.plot.palette import INK, PAPER, background

__all__ = ["PLAIN", "ScaleBar", "letters", "round_number", "scale_of", "short_number"]

_LARGEST, _SMALLEST = 8.0, 5.5  # sizes of letters, in points
_PER_LETTER = 24.0  # longer side of a picture by size of letters
_FULL, _LEAST = 240.0, 0.45  # longer side below which things get smaller, and down to what
PLAIN = (1e-3, 1e5)  # numbers between these are not written as powers of ten
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def letters(span: float) -> float:
    """The size of letters that suits a picture with a longer side, both in points."""
    return min(max(span / _PER_LETTER, _SMALLEST), _LARGEST)


def scale_of(span: float) -> float:
    """How large points and scale bars are on a picture with a longer side in points, at most 1."""
    return min(max(span / _FULL, _LEAST), 1.0)


def round_number(most: float) -> float:
    """The largest of 1, 2 and 5 times a power of ten that is not above a number.

    >>> round_number(0.3), round_number(7e6)
    (0.2, 5000000.0)
    """
    power = math.floor(math.log10(most))
    digit = max(d for d in (1, 2, 5) if d * 10.0**power <= most)
    return float(f"{digit}e{power}")


def short_number(value: float) -> str:
    """A positive number as it is, or with a power of ten where that is shorter.

    >>> short_number(0.5), short_number(2e-6), short_number(1e6)
    ('0.5', '2×10⁻⁶', '10⁶')
    """
    if PLAIN[0] <= value < PLAIN[1]:
        return f"{value:g}"
    digits, power = f"{value:.0e}".split("e")
    return f"{digits}×10{str(int(power)).translate(_RAISED)}".removeprefix("1×")


class ScaleBar(Artist):
    """A line of a round length in plane units, in the lower left corner unless that is taken."""

    axes: Any
    share = 0.22  # of the view's width, at most

    def __init__(self) -> None:
        super().__init__()
        self.set_zorder(6)
        self.set_in_layout(False)

    @property
    def length(self) -> float:
        """The length that the bar has now, in plane units."""
        return round_number(self.share * abs(self.axes.viewLim.width))

    def draw(self, renderer: Any) -> None:
        """Draw the line, and the length above it, with a halo that keeps them apart from lines."""
        if not self.get_visible():
            return
        point, box = renderer.points_to_pixels(1.0), self.place(renderer)
        scale = self._scale()
        here: Any = {"transform": IdentityTransform()}
        middle, halo = (box.x0 + box.x1) / 2, 2.4 * scale
        ink = ink_over(self.axes)
        paper = PAPER if ink == INK else background(self.axes)
        wide = self.length * self.axes.bbox.width / abs(self.axes.viewLim.width)
        ends = [middle - wide / 2, middle + wide / 2]
        text = self._text()
        text.set(x=middle, y=box.y0 + 2.6 * scale * point, color=ink, **here)
        text.set_path_effects([withStroke(linewidth=halo, foreground=paper, alpha=0.9)])
        line = Line2D(ends, [box.y0] * 2, color=ink, linewidth=1.6 * scale, **here)
        line.set_solid_capstyle("butt")
        glow = Stroke(linewidth=1.6 * scale + halo, foreground=paper, alpha=0.9, capstyle="round")
        back = Line2D(ends, [box.y0] * 2, path_effects=[glow], **here)
        for piece in (back, line, text):
            self._adopt(piece).draw(renderer)
        self.stale = False

    def place(self, renderer: Any) -> Bbox:
        """The box of the bar in pixels, in the corner with the least in it."""
        point = renderer.points_to_pixels(1.0)
        box, scale = self.axes.bbox, self._scale()
        wide = self.length * box.width / abs(self.axes.viewLim.width)
        size = self._adopt(self._text()).get_window_extent(renderer)
        width, height = max(wide, size.width), size.height + 2.6 * scale * point
        margin = 9 * scale * point
        lefts = (box.x0 + margin, box.x1 - margin - width)
        lows = (box.y0 + margin, box.y1 - margin - height)
        corners = [Bbox.from_bounds(x, y, width, height) for y in lows for x in lefts]
        obstacles, points = self._obstacles(renderer)
        return min(corners, key=lambda corner: _cost(corner.padded(3 * point), obstacles, points))

    def _obstacles(self, renderer: Any) -> tuple[list[Bbox], Any]:
        """Boxes of pictures, legends and axes on the axes, and points (N, 2), all in pixels."""
        ax = self.axes
        pictures = [image for image in ax.images if image.get_zorder() > 1]
        inner = [pictures, ax.child_axes, [ax.get_legend()] if ax.get_legend() else []]
        boxes = [item.get_window_extent(renderer) for some in inner for item in some]
        scattered = [c for c in ax.collections if isinstance(c, PathCollection)]
        dots = [ax.transData.transform(np.asarray(c.get_offsets())) for c in scattered]
        return boxes, np.concatenate([np.zeros((0, 2)), *dots])

    def _scale(self) -> float:
        return scale_of(self._span())

    def _span(self) -> float:
        return float(72 * max(self.axes.bbox.size) / figure_of(self).dpi)

    def _text(self) -> Text:
        size = letters(self._span())
        name = short_number(self.length)
        return Text(0, 0, name, size=size, ha="center", va="bottom")

    def _adopt(self, piece: Any) -> Any:
        piece.set_figure(self.figure)
        piece.axes = self.axes
        return piece


def _cost(corner: Bbox, obstacles: list[Bbox], points: Any) -> tuple[float, int]:
    """How much of a box is taken by others, and by how many points."""
    shared = [Bbox.intersection(corner, other) for other in obstacles]
    covered = sum(box.width * box.height for box in shared if box is not None)
    return covered, int(corner.count_contains(points)) if len(points) else 0
