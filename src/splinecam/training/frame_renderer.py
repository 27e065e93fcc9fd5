"""The frames of a movie, all drawn with the same colours, legend and axes."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

from splinecam.plot.arrays import Pixels
from splinecam.plot.colors import Coloring, ColorOptions, beyond, color_regions
from splinecam.plot.decorations import SideLegend, fit_figure
from splinecam.plot.figures import written
from splinecam.plot.palette import text_color
from splinecam.plot.regions import default_color, plot
from splinecam.questions.partition_data import PartitionData

_TITLE = 0.34  # inches above the picture
_MARGIN = 0.05  # inches around it
_LETTERS = 10.0  # points
_COLOR_OPTIONS = ("output", "cmap", "limits", "level", "seed", "names")


@dataclass(frozen=True)
class FrameRenderer:
    """Draws frames that have colours, legend and axes in common."""

    first: PartitionData  # the partition of the first frame
    color: Any
    plot: Mapping[str, Any]  # options of ``part.plot`` for all frames
    size: tuple[float, float]  # of a frame in inches
    dpi: float  # pixels per inch

    @classmethod
    def of(
        cls, parts: Iterable[PartitionData], plot: Mapping[str, Any], *, width: float, dpi: float
    ) -> FrameRenderer:
        """Return a renderer for comparable pictures of partitions."""
        color, colorings, first = plot.get("color"), [], None
        options = ColorOptions(**{name: plot[name] for name in _COLOR_OPTIONS if name in plot})
        for k, part in enumerate(parts):
            first = part if first is None else first
            if first.domain != part.domain:
                raise ValueError(
                    f"parts[{k}] has another domain than parts[0]; make a movie of one domain"
                )
            color = default_color(part) if color is None else color
            found = color_regions(part, color(part) if callable(color) else color, options)
            colorings.append(_scale_of(found))
        assert first is not None
        shared = {**plot, **_shared_options(color, plot, colorings)}
        renderer = cls(first, color, shared, (width, width), dpi)
        figure, ax = renderer._blank()
        renderer._plot(first, ax)
        fit_figure(ax, first.domain)
        return replace(renderer, size=(width, figure.get_figheight() + _TITLE + _MARGIN))

    @property
    def pixels(self) -> tuple[int, int]:
        """Width and height of a frame in pixels; even numbers, as video needs them."""
        wide, high = (2 * max(1, round(inches * self.dpi / 2)) for inches in self.size)
        return wide, high

    @cached_property
    def draw(self) -> Callable[[PartitionData, str], Pixels]:
        """The function that returns the frame (h, w, 3) of a partition with a title."""
        figure, ax = self._blank()
        self._plot(self.first, ax)
        for artist in _content(ax):
            artist.set_visible(isinstance(artist, SideLegend))
        canvas: Any = FigureCanvasAgg(figure)
        canvas.draw()  # once for all frames; this finds the place of the picture beside its legend
        background = np.asarray(canvas.buffer_rgba()).copy()
        size = figure.get_figwidth(), figure.get_figheight()
        bare = Figure(figsize=size, dpi=self.dpi, frameon=False)
        place = bare.add_axes(ax.get_position().bounds)
        place.set_axes_locator(lambda ax, renderer: ax.get_position(original=True))
        ink = text_color(bare)
        top = 1 - 0.5 * (_TITLE + _MARGIN) / bare.get_figheight()
        left = _MARGIN / bare.get_figwidth()  # at the left, changing numbers do not move the title
        style: Any = {"ha": "left", "va": "center", "fontsize": _LETTERS, "color": ink}
        words = bare.text(left, top, "", **style)
        axes = "off" if self.plot.get("axes") == "ticks" else self.plot.get("axes", "scale")
        over: Any = FigureCanvasAgg(bare)

        def draw(part: PartitionData, title: str) -> Pixels:
            for artist in _content(place):
                artist.remove()
            self._plot(part, place, legend=False, colorbar=False, axes=axes)
            place.set_axis_off()  # the background shows ticks
            words.set_text(written(title))
            renderer = over.get_renderer()
            pixels = np.asarray(renderer.buffer_rgba())
            pixels[:] = background
            bare.draw(renderer)
            return np.stack([pixels[:, :, k] for k in range(3)], 2)  # faster than a copy of all

        return draw

    def _blank(self) -> tuple[Figure, Axes]:
        wide, high = (pixels / self.dpi for pixels in self.pixels)
        figure = Figure(figsize=(wide, high), dpi=self.dpi)
        x, y = _MARGIN / wide, _MARGIN / high
        return figure, figure.add_axes((x, y, 1 - 2 * x, 1 - 2 * y - _TITLE / high))

    def _plot(self, part: PartitionData, ax: Axes, **instead: Any) -> None:
        color = self.color(part) if callable(self.color) else self.color
        plot(part, ax=ax, **{**self.plot, "color": color, **instead})


def _content(ax: Axes) -> list[Any]:
    """Return what has been drawn in axes, and the legends beside them."""
    return [*ax.images, *ax.collections, *ax.patches, *ax.lines, *ax.texts, *ax.artists]


Limits = tuple[float, float]
_Scale = tuple[Limits | None, Limits | None, float | None, list[str]]


def _scale_of(coloring: Coloring) -> _Scale:
    """Return limits, extremes, the level between two colours of outputs, and names of classes."""
    norm, names = coloring.norm, [name for name, _ in coloring.legend]
    level = float(norm.vcenter) if isinstance(norm, TwoSlopeNorm) else None
    return coloring.limits, None if norm is None else coloring.extremes, level, names


def _shared_options(color: Any, plot: Mapping[str, Any], scales: list[_Scale]) -> dict[str, Any]:
    """Return options of ``part.plot`` for all frames: limits, ends of the colour bar, legend."""
    found: dict[str, Any] = {}
    limits = plot.get("limits") or _shared_limits(color, scales)
    if limits is not None:
        found["limits"] = limits
    extremes = [ends for _, ends, _, _ in scales if ends is not None]
    if extremes and limits is not None and plot.get("colorbar", True) is True:
        lows, highs = zip(*extremes, strict=True)
        found["colorbar"] = beyond((min(lows), max(highs)), limits)
    if isinstance(color, str) and plot.get("legend", True) is True:
        names = list(dict.fromkeys(name for *_, own in scales for name in own))
        # The legend of numbers of vertices follows from the limits.
        found["legend"] = {"class": names, "layer": "all"}.get(color, True)
    return found


def _shared_limits(color: Any, scales: list[_Scale]) -> tuple[float, float] | None:
    """Return the widest limits; for classes, the median of the typical leads."""
    limits = [each for each, *_ in scales if each is not None]
    if not limits:
        return None
    lows, highs = zip(*limits, strict=True)
    if isinstance(color, str) and color == "class":
        return 0.0, statistics.median(highs)
    low, high = min(lows), max(highs)
    level = next((each for *_, each, _ in reversed(scales) if each is not None), None)
    if level is not None:
        reach = max(abs(low - level), abs(high - level))
        return level - reach, level + reach
    return low, high
