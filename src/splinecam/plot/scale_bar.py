"""A scale bar of a round length, at any zoom, in a free corner."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.collections import PathCollection
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.offsetbox import AnchoredOffsetbox, DrawingArea, TextArea, VPacker
from matplotlib.patheffects import Normal, Stroke, withStroke
from matplotlib.transforms import Bbox

from splinecam.plot.cell_image import ink_over
from splinecam.plot.figures import written
from splinecam.plot.lines import figure_of
from splinecam.plot.palette import INK, PAPER, background

__all__ = ["PLAIN", "ScaleBar", "letters", "round_number", "scale_of", "short_number"]

_LARGEST, _SMALLEST = 8.0, 5.5  # sizes of letters, in points
_PER_LETTER = 24.0  # longer side of a picture by size of letters
_FULL, _LEAST = 240.0, 0.45  # longer side below which things get smaller, and down to what
PLAIN = (1e-3, 1e5)  # numbers between these are not written as powers of ten
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def letters(span: float) -> float:
    """The size of letters for a picture, given its longer side, both in points."""
    return min(max(span / _PER_LETTER, _SMALLEST), _LARGEST)


def scale_of(span: float) -> float:
    """The scale of points and bars on a picture, given its longer side in points; at most 1."""
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


class ScaleBar(AnchoredOffsetbox):
    """A line of a round length in plane units, in the lower left corner if that is free."""

    axes: Any
    share = 0.22  # of the view's width, at most

    def __init__(self) -> None:
        super().__init__(
            "lower left",
            pad=0.0,
            child=DrawingArea(0, 0),
            prop=FontProperties(size=1.0),  # so that paddings are in points
            frameon=False,
        )
        self.set_zorder(6)
        self.set_in_layout(False)

    @property
    def length(self) -> float:
        """The length of the bar in the current view, in plane units."""
        return round_number(self.share * abs(self.axes.viewLim.width))

    def draw(self, renderer: Any) -> None:
        """Draw the line and the length above it, for the current view."""
        if self.get_visible():
            self.place(renderer)
            super().draw(renderer)

    def place(self, renderer: Any) -> Bbox:
        """Fit the bar to the view, move it to the corner with the least in it; its box in pixels.

        A halo separates the line and the letters from what is below them.
        """
        box, points = self.axes.bbox, 72 / figure_of(self).dpi
        span = points * float(max(box.size))
        scale, ink = scale_of(span), ink_over(self.axes)
        halo: Any = {"foreground": PAPER if ink == INK else background(self.axes), "alpha": 0.9}
        width = points * self.length * box.width / abs(self.axes.viewLim.width)
        line = Line2D([0, width], [0, 0], color=ink, linewidth=1.6 * scale, solid_capstyle="butt")
        glow = Stroke(linewidth=4.0 * scale, capstyle="round", **halo)
        line.set_path_effects([glow, Normal()])
        area = DrawingArea(width, 0)
        area.add_artist(line)
        effects = [withStroke(linewidth=2.4 * scale, **halo)]
        style = {"size": letters(span), "color": ink, "path_effects": effects}
        text = TextArea(written(short_number(self.length)), textprops=style)
        packed = VPacker(children=[text, area], align="center", pad=0, sep=2.5 * scale)
        self.set_child(packed)
        packed.set_figure(self.figure)
        self.borderpad = 9 * scale
        return self._free_corner(renderer)

    def _free_corner(self, renderer: Any) -> Bbox:
        """Move to the corner where the bar covers the least of images, legends and points."""
        ax, margin = self.axes, 3 * renderer.points_to_pixels(1.0)
        images = [image for image in ax.images if image.get_zorder() > 1]
        legend = [ax.get_legend()] if ax.get_legend() else []
        boxes = [item.get_window_extent(renderer) for item in (*images, *ax.child_axes, *legend)]
        scattered = [c for c in ax.collections if isinstance(c, PathCollection)]
        dots = [ax.transData.transform(np.asarray(c.get_offsets())) for c in scattered]
        points = np.concatenate([np.zeros((0, 2)), *dots])
        if not boxes and not len(points):  # nothing is in the way
            self.loc = self.codes["lower left"]
            return Bbox(self.get_window_extent(renderer))

        def cost(loc: int) -> tuple[float, int]:
            self.loc = loc
            here = self.get_window_extent(renderer).padded(margin)
            shared = [Bbox.intersection(here, box) for box in boxes]
            covered = sum(box.width * box.height for box in shared if box is not None)
            return covered, int(here.count_contains(points)) if len(points) else 0

        corners = [self.codes[f"{y} {x}"] for y in ("lower", "upper") for x in ("left", "right")]
        self.loc = min(corners, key=cost)
        found: Bbox = self.get_window_extent(renderer)
        return found
