"""The layout of colour bars and legends beside or below axes, one after the other.

All places are computed when the figure is drawn, so that they are right after zooming and resizing.
matplotlib's layout engines and ``make_axes_locatable`` cannot do this: the former do not exist in
every figure, and neither keeps several bars and legends apart on axes with a fixed aspect.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.legend import Legend
from matplotlib.transforms import Bbox

from splinecam.plot.lines import figure_of

__all__ = ["ColorbarAxes", "ShrinkToFit", "SideLegend", "SidePlace", "overhang", "picture_size"]

_PAD = 4.0  # points left free at the edge of a figure
_LEAST = 0.4  # of its slot that axes keep, whatever is beside them


@dataclass(eq=False)
class SidePlace:
    """A place beside or below axes, after the places with a lower rank.

    gap: points of free space before it; thickness: of a colour bar, in points.
    """

    parent: Axes
    below: bool
    gap: float
    thickness: float = 0.0
    rank: int = 0

    def __post_init__(self) -> None:
        self.rank = max((item.place.rank for item in _items(self.parent)), default=0) + 1

    def start(self) -> float:
        """The left end of the place, or below the axes its upper end, in pixels."""
        earlier = [item for item in _items(self.parent) if item.place.rank < self.rank]
        gap = self.gap * _point(self.parent)
        end = _end(self.parent, earlier, self.below)
        return end - gap if self.below else end + gap

    def __call__(self, ax: Any, renderer: Any) -> Any:
        """The box of a colour bar, for ``set_axes_locator``."""
        box, start, across = self.parent.bbox, self.start(), self.thickness * _point(self.parent)
        place = Bbox.from_extents(start, box.y0, start + across, box.y1)
        if self.below:
            place = Bbox.from_extents(box.x0, start - across, box.x1, start)
        return _in_figure(self.parent, place)

    def anchor(self) -> Bbox:
        """The upper left corner of a legend."""
        box, start = self.parent.bbox, self.start()
        x, y = (box.x0, start) if self.below else (start, box.y1)
        return Bbox.from_bounds(x, y, 0, 0)


class ColorbarAxes(Axes):
    """The axes of a colour bar in its place."""

    place: SidePlace


class SideLegend(Legend):
    """A legend in its place. curves: whether it explains curves rather than regions."""

    def __init__(self, place: SidePlace, *args: Any, curves: bool = False, **style: Any) -> None:
        self.place, self.curves = place, curves
        super().__init__(place.parent, *args, loc="upper left", borderaxespad=0.0, **style)

    def get_bbox_to_anchor(self) -> Any:
        """The upper left corner of the legend."""
        return self.place.anchor()


@dataclass(eq=False)
class ShrinkToFit:
    """Makes axes smaller by what is beside them, in figures without a layout engine."""

    axes: Axes

    def __call__(self, ax: Any, renderer: Any) -> Any:
        """The part of the axes' slot that is left for the axes themselves."""
        slot = ax.get_position(original=True)
        whole = slot.transformed(ax.figure.transSubfigure)
        if ax.figure.get_layout_engine() is not None:
            return _in_figure(ax, _moved(ax, slot, whole))
        room = slot
        for _ in range(2):  # a smaller colour bar has other ticks
            ax.apply_aspect(room)
            left, right, below = _missing(ax, whole)
            across = min(1.0, (1 - _LEAST) * whole.width / max(left + right, 1.0))
            below = min(below, (1 - _LEAST) * whole.height)
            x0, x1 = whole.x0 + across * left, whole.x1 - across * right
            room = _in_figure(ax, Bbox.from_extents(x0, whole.y0 + below, x1, whole.y1))
        return room

    def get_subplotspec(self) -> Any:
        """The axes' place in a grid, for ``tight_layout``."""
        return self.axes.get_subplotspec()


def _moved(ax: Axes, slot: Any, whole: Any) -> Any:
    """The slot of axes, or its right end if they leave too little of it free.

    Layout engines make room for what reaches beyond the slot. That amount is then the same in each
    of their rounds, however much of the slot is free in the first.
    """
    ax.apply_aspect(slot)
    free, right = whole.width - ax.bbox.width, overhang(ax)[1]
    if ax.get_anchor() != "C" or free >= 2 * right:
        return whole
    return Bbox.from_extents(whole.x0 + free, whole.y0, whole.x1, whole.y1)


def _missing(ax: Axes, slot: Bbox) -> tuple[float, float, float]:
    """The pixels missing at the left, at the right and below for what surrounds the axes.

    If the figure has no other axes, the margins around the slot are used first.
    """
    left, right, below = overhang(ax)
    page, pad = ax.figure.bbox, _PAD * _point(ax)
    others = [
        other.get_position(original=True).transformed(other.figure.transSubfigure)
        for other in figure_of(ax).axes
    ]
    edge = max((other.x1 for other in others if other.x1 <= slot.x0), default=page.x0)
    free = [slot.x0 - edge, page.x1 - slot.x1, slot.y0 - page.y0]
    if any(other.bounds != slot.bounds for other in others):
        free[1:] = pad, pad + _ticks(ax, True)
    left, right, below = (
        max(0.0, out - max(0.0, margin - pad))
        for out, margin in zip((left, right, below), free, strict=True)
    )
    return left, right, below


def overhang(ax: Axes) -> tuple[float, float, float]:
    """The pixels by which ticks, bars and legends exceed axes at the left, right and below."""
    items = _items(ax)
    right = _end(ax, items, False) - ax.bbox.x1
    return _ticks(ax, False), right, ax.bbox.y0 - _end(ax, items, True)


def picture_size(ax: Axes) -> tuple[float, float]:
    """Width and height of axes without anything beside them, in points."""
    slot = ax.get_position(original=True).transformed(ax.figure.transSubfigure)
    wide, high, aspect = slot.width / _point(ax), slot.height / _point(ax), ax.get_aspect()
    if aspect == "auto":
        return wide, high
    steep = abs(float(aspect) * ax.viewLim.height / ax.viewLim.width)
    return min(wide, high / steep), min(high, wide * steep)


def _items(ax: Axes) -> list[Any]:
    """The visible colour bars and legends beside axes."""
    items = [*ax.child_axes, *ax.artists]
    return [i for i in items if isinstance(i, ColorbarAxes | SideLegend) and i.get_visible()]


def _end(ax: Axes, items: list[Any], below: bool) -> float:
    """The end of what is beside or below axes, in pixels."""
    end = float(ax.bbox.y0) - _ticks(ax, True) if below else float(ax.bbox.x1)
    boxes = [_extent(item) for item in items if item.place.below == below]
    if below:
        return min([end, *(float(box.y0) for box in boxes)])
    return max([end, *(float(box.x1) for box in boxes)])


def _extent(item: ColorbarAxes | SideLegend) -> Any:
    ruler = _ruler(figure_of(item.place.parent).dpi)
    return item.get_window_extent(ruler) if isinstance(item, Legend) else item.get_tightbbox(ruler)


def _ticks(ax: Axes, below: bool) -> float:
    """The pixels by which the ticks and the label of an axis exceed the axes."""
    axis: Any = ax.xaxis if below else ax.yaxis
    box = axis.get_tightbbox(_ruler(figure_of(ax).dpi)) if ax.axison else None
    if box is None:
        return 0.0
    return max(0.0, float(ax.bbox.y0 - box.y0 if below else ax.bbox.x0 - box.x0))


@lru_cache(maxsize=8)
def _ruler(dpi: float) -> Any:
    """A renderer that measures letters in the same way for all kinds of files."""
    return RendererAgg(1, 1, dpi)  # type: ignore[no-untyped-call]


def _point(ax: Axes) -> float:
    return float(figure_of(ax).dpi) / 72


def _in_figure(ax: Axes, box: Bbox) -> Any:
    """A box in pixels as shares of the axes' figure."""
    return box.transformed(ax.figure.transSubfigure.inverted())
