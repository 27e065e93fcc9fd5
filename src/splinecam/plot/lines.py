"""Segments on a picture, as lines or as an image, and images in the resolution of the picture."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.collections import LineCollection
from matplotlib.path import Path
from matplotlib.transforms import Affine2D, Bbox

from splinecam.plot.arrays import Floats, Ints, Pixels

# matplotlib's renderer of images limits the segments of a path, and how often they cross the image.
_CHUNK, _CROSSINGS = 10_000, 300
_MANY = 50_000  # segments that vector output holds as lines; more become an image
_DPI = 300  # of images in vector output, at least
_HAIRLINE = 0.2  # width in points that no viewer of vector output makes wider
_FAINT = 0.01  # width in pixels below which lines are not seen, and not drawn


def image_scale(renderer: Any) -> float:
    """Pixels per unit of the renderer in images that are drawn with it."""
    scale = float(renderer.get_image_magnification())
    return max(scale, _DPI / 72) if renderer.option_scale_image() else scale


def place_image(renderer: Any, gc: Any, corner: Any, image: Pixels, scale: float) -> None:
    """Draw an image, which has so many pixels per unit of the renderer, from its lower corner."""
    if renderer.option_scale_image():  # vector output
        size = Affine2D().scale(image.shape[1] / scale, image.shape[0] / scale)
        renderer.draw_image(gc, *corner, image, size)
    else:
        renderer.draw_image(gc, *corner, image)


def figure_of(artist: Any) -> Any:
    """The figure that an artist is on, also if it is on a part of the figure."""
    return artist.figure.canvas.figure


def window_of(artist: Any) -> Any:
    """The part of the figure in which an artist is seen, a ``Bbox``, or None."""
    return Bbox.intersection(artist.axes.bbox, figure_of(artist).bbox)


def clipped_context(artist: Any, renderer: Any) -> Any:
    """A graphics context with the clipping of the artist."""
    gc = renderer.new_gc()
    artist._set_gc_clip(gc)
    return gc


def line_width(  # in this order for ``functools.partial``, as figures are pickled
    spacing: float, share: float, most: float, least: float, rim: float, points_per_unit: float
) -> float:
    """The width of lines in points, at a scale of the picture, that leaves room between them.

    It is a share of the lines' spacing, which is in plane units, between two widths. rim: is added.
    """
    return max(least, min(most, share * spacing * points_per_unit)) + rim


class Lines(LineCollection):
    """Segments (S, 2, 2) as compound paths, of one colour, or of one per group.

    groups: how many segments there are in each group, one after the other; colours and ``array``
    then have an entry per group. width_at: the width at a scale of the picture, see ``line_width``.
    """

    axes: Any

    def __init__(
        self,
        segments: Floats,
        *,
        groups: list[int] | None = None,
        width_at: Callable[[float], float] | None = None,
        **style: Any,
    ) -> None:
        self._ends = np.asarray(segments, np.float64).reshape(-1, 2, 2)
        self._groups = [len(self._ends)] if groups is None else groups
        self.width_at = width_at
        self._last: tuple[Any, Any] = (None, None)
        style = {"capstyle": "round", "snap": False, **style}
        self._starts = _chunks(self._ends, np.cumsum(self._groups))
        group = np.searchsorted(np.cumsum(self._groups), self._starts[:-1], side="right")
        for name in {"array", "colors"} & style.keys():  # every path has its group's
            if np.ndim(style[name]) and groups is not None:
                style[name] = np.asarray(style[name])[group]
        super().__init__([], **style)
        self.set_in_layout(False)  # to measure so many takes long, and they are in the axes

    def set_segments(self, segments: Any) -> None:
        """Make the paths; the segments were given when the lines were made."""
        self._paths = [_compound(self._ends[i:j]) for i, j in pairwise(self._starts)]
        self.stale = True

    def get_segments(self) -> list[Floats]:
        """The segments, (2, 2) each."""
        return list(self._ends)

    def draw(self, renderer: Any) -> None:
        """Draw as lines, or in vector output, where there are many, as an image."""
        if not self.get_visible() or not len(self._ends):
            return
        if self.width_at is not None:
            pixels = self.axes.bbox.width / abs(self.axes.viewLim.width)
            width = self.width_at(72 / figure_of(self).dpi * pixels)
            if width != self._width():
                self.set_linewidth(width)
        if renderer.points_to_pixels(self._width()) < _FAINT:
            return
        if not renderer.option_scale_image():
            super().draw(renderer)
            return
        if len(self._ends) <= _MANY:
            self._draw_hairlines(renderer)
            return
        self.update_scalarmappable()
        box = window_of(self)
        if box is None:
            return
        scale = image_scale(renderer)
        key = (*box.extents, *self.axes.viewLim.extents, scale, self._width())
        if self._last[0] != key:  # layouts draw twice
            self._last = key, self._image(box, scale)
        outer = clipped_context(self, renderer)
        place = Affine2D().scale(box.width, box.height)
        renderer.draw_image(outer, box.x0, box.y0, self._last[1], place)
        outer.restore()
        self.stale = False

    def _width(self) -> float:
        return float(np.max(self.get_linewidth()))

    def _draw_hairlines(self, renderer: Any) -> None:
        """Draw very thin lines, which viewers of vector output widen, as wider and paler ones."""
        width, alpha = self._width(), self.get_alpha()
        if width < _HAIRLINE:
            self.set_linewidth(_HAIRLINE)
            self.set_alpha((1.0 if alpha is None else float(alpha)) * width / _HAIRLINE)
        super().draw(renderer)
        if width < _HAIRLINE:
            self.set_linewidth(width)
            self.set_alpha(alpha)

    def _image(self, box: Bbox, scale: float) -> Pixels:
        """The lines in a box of the figure, with so many pixels per point, from below."""
        size = (max(1, round(scale * box.width)), max(1, round(scale * box.height)))
        agg: Any = RendererAgg(*size, 72 * scale)  # type: ignore[no-untyped-call]
        fit = Affine2D().translate(-box.x0, -box.y0)
        fit.scale(size[0] / box.width, size[1] / box.height)
        colors: Any = self.get_edgecolor()
        for k, path in enumerate(self._paths):
            gc = agg.new_gc()
            gc.set_foreground(colors[k % len(colors)], isRGBA=True)
            gc.set_linewidth(self._width())
            gc.set_capstyle(self.get_capstyle() or "round")
            gc.set_snap(False)
            agg.draw_path(gc, path, self.get_transform() + fit)
        return np.asarray(agg.buffer_rgba())[::-1]


def _chunks(segments: Floats, ends: Ints) -> list[int]:
    """Where paths of segments (S, 2, 2) begin, and S; none goes beyond the end of a group."""
    if not len(segments):
        return [0]
    extent = max(np.ptp(axis) for axis in segments.reshape(-1, 2).T) or 1.0
    crossed = np.cumsum(np.abs(segments[:, 1] - segments[:, 0]).sum(1) / extent)
    starts = {0, len(segments), *ends.tolist(), *range(0, len(segments), _CHUNK)}
    full = np.arange(1, crossed[-1] // _CROSSINGS + 1) * _CROSSINGS
    return sorted(starts.union(np.searchsorted(crossed, full).tolist()))


def _compound(segments: Floats) -> Path:
    """One path that moves to the start and draws to the end of each segment, (S, 2, 2)."""
    codes = np.tile(np.array([Path.MOVETO, Path.LINETO], Path.code_type), len(segments))
    return Path(segments.reshape(-1, 2), codes)
