"""Axes in space that fill their place on a figure, and what stands beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import to_rgba
from matplotlib.transforms import Bbox
from mpl_toolkits.mplot3d import Axes3D, proj3d

from splinecam.plot.arrays import Floats
from splinecam.plot.colors import Coloring
from splinecam.plot.decorations import add_colorbar, add_legend
from splinecam.plot.figures import new_figure, written
from splinecam.plot.palette import text_color, tick_colors
from splinecam.plot.scene import Scene

_SMALL, _TINY, _WIDE = 8.0, 5.5, 260.0  # sizes of numbers, the first on axes of so many points
_GREY, _FAINT = "#9aa1aa", 0.16  # of axes, and the opacity of the grid
_NUMBERS, _LABELS = 1.75, 4.0  # distances from the axes, in sizes of letters
# Inches: of a figure, of a colour bar beside it, around it, between titles.
_WIDTH, _HIGHEST, _BESIDE, _MARGIN, _GAP = 6.0, 6.5, 0.9, 0.1, 0.08
_FLAT = 0.02  # of the largest extent, around what has none in some direction
_ROUNDS, _EXACT = 6, 0.5  # of fitting, until nothing is off by so many pixels


def place_axes(ax: Axes3D | None, beside: bool) -> tuple[Axes3D, AxesFit]:
    """New axes, or the given ones, which fill their place except for some room beside them."""
    if ax is not None:
        before = ax.get_axes_locator()
        before = before.before if isinstance(before, AxesFit) else before
        fit = AxesFit(ax, before=before, beside=_BESIDE * beside)
    else:
        figure = new_figure(figsize=(_WIDTH + _BESIDE * beside, _WIDTH), layout="none")
        ax = figure.add_subplot(projection="3d")
        fit = AxesFit(ax, own=True, beside=_BESIDE * beside)
        fit.fill_figure()
    ax.set_axes_locator(fit)
    return ax, fit


@dataclass(frozen=True, eq=False)
class AxesFit:
    """Places axes whenever they are drawn, such that their box and labels fill a cell.

    own: whether the figure has no other axes, so that titles need room; before: the locator that
    the axes had before; beside: inches of the cell that are kept free at its right.
    """

    ax: Axes3D
    own: bool = False
    before: Any = None
    beside: float = 0.0

    def __call__(self, _: Any, renderer: Any) -> Bbox:
        """Fit the view to the cell; the square of the axes, in shares of the figure."""
        ax = self.ax
        if ax.button_pressed is None:  # axes keep their size while they are turned
            ax.apply_aspect(ax.get_position())  # in case the figure was resized
            cell = self.cell(renderer)
            for _ in range(_ROUNDS):  # not exact, as letters keep their size
                if self._fill(cell, self.content(renderer)):
                    break
        place: Bbox = ax.bbox.transformed(ax.figure.transSubfigure.inverted())
        return place

    def get_subplotspec(self) -> Any:
        """The axes' place in a grid, for layout engines."""
        return self.ax.get_subplotspec()

    def fill_figure(self, high: float = _WIDTH) -> None:
        """Make the figure so many inches high, and its margins the cell's borders."""
        figure = self.ax.figure
        figure.set_size_inches(_WIDTH + self.beside, high)
        x, y = _MARGIN / figure.get_figwidth(), _MARGIN / high
        self.ax.set_position((x, y, 1 - 2 * x, 1 - 2 * y))

    def cell(self, renderer: Any) -> Bbox:
        """The box that the axes have to fill, in pixels."""
        ax, figure = self.ax, self.ax.figure
        share = ax.get_position(original=True)
        share = self.before(ax, renderer) if self.before is not None else share
        left, low, right, top = share.transformed(figure.transSubfigure).extents
        if self.own:
            top -= self._heads(renderer, top)
        elif self.before is None and figure.get_layout_engine() is None:
            gap = _gutter(ax) * figure.bbox.width / 2
            left, right = left - gap, right + gap
        return Bbox.from_extents(left, low, right - self.beside * figure.dpi, top)

    def content(self, renderer: Any = None) -> Bbox:
        """The current box of the axes and their labels, in pixels."""
        ax = self.ax
        ax.M = ax.get_proj()
        limits = ax.get_xlim(), ax.get_ylim(), ax.get_zlim()
        if getattr(ax, "_axis3don", True):
            points = np.stack(np.meshgrid(*limits), -1).reshape(-1, 3)
            boxes = [axis.get_tightbbox(renderer) for axis in (ax.xaxis, ax.yaxis, ax.zaxis)]
        else:  # without axes the surfaces alone
            scenes = [each for each in ax.collections if isinstance(each, Scene)]
            points, boxes = np.concatenate([each.points for each in scenes]), []
        x, y, _ = proj3d.proj_transform(*points.T, ax.M)
        box = Bbox.null()
        box.update_from_data_xy(ax.transData.transform(np.stack([x, y], 1)))
        return Bbox.union([box, *(each for each in boxes if each is not None)])

    def _fill(self, cell: Bbox, content: Bbox) -> bool:
        """Move the content into the cell by changing the view; whether it was there already.

        The square of the axes goes to the content's top, where matplotlib puts a title.
        """
        ax, view, frame = self.ax, self.ax.viewLim, self.ax.bbox
        scale = min(cell.width / content.width, cell.height / content.height)
        middle, old = (np.add(box.min, box.max) / 2 for box in (cell, content))
        side, top = min(cell.size), middle[1] + scale * content.height / 2
        corner = np.array([middle[0] - side / 2, top - side])
        extent = view.size * side / (scale * np.asarray(frame.size))
        moved = middle + scale * (frame.min - old)  # where the view's corner is to be
        low = view.min - (moved - corner) * extent / side
        off = np.abs([*(middle - old), (scale - 1) * max(content.size), *(frame.min - corner)])
        view.set_points(np.stack([low, low + extent]))
        square = Bbox(np.stack([corner, corner + side]))
        ax.apply_aspect(square.transformed(ax.figure.transSubfigure.inverted()))
        return bool(off.max() < _EXACT)

    def _heads(self, renderer: Any, top: float) -> float:
        """The height of the titles of the axes and of the figure, in pixels."""
        ax, figure, gap = self.ax, self.ax.figure, _GAP * self.ax.figure.dpi
        titles = (ax.title, *(getattr(ax, f"_{side}_title") for side in ("left", "right")))
        shown = [title.get_window_extent(renderer).height for title in titles if title.get_text()]
        high = max(shown) + gap if shown else 0.0
        above = [text for text in figure.texts if text.get_text() == figure.get_suptitle() != ""]
        lows = [text.get_window_extent(renderer).y0 for text in above]
        return float(high + max([0.0, *(top - low + gap for low in lows)]))


def _gutter(ax: Axes3D) -> float:
    """Room between the columns of a grid, or beside a single one, as a share of the figure."""
    place = ax.get_subplotspec()
    if place is None:
        return 0.0
    _, _, left, right = place.get_gridspec().get_grid_positions(ax.figure)
    gap = left[1] - right[0] if len(left) > 1 else min(left[0], 1 - right[0])
    return max(0.0, float(gap))


def label_axes(
    fit: AxesFit, names: Sequence[str], limits: Floats, height: float | None = None
) -> None:
    """Set the limits (3, 2), names and ticks of axes, and fit a new figure to them.

    height: of the box over a plane of width 1; by default all axes have the same scale.
    """
    ax, extent = fit.ax, np.diff(limits)
    if height is None:
        flat = extent < _FLAT * (extent.max() or 1.0)
        limits = limits + flat * np.array([[-1, 1]]) * _FLAT * (extent.max() or 1.0)
        wide, deep, high = np.diff(limits)[:, 0]
    else:
        limits = limits + np.array([[0, 0], [0, 0], [-0.5, 0.5]]) * (extent[2] == 0)
        wide, deep, high = 1.0, float(extent[1, 0] / extent[0, 0]), height
    ax.set(**dict(zip(("xlim", "ylim", "zlim"), limits.tolist(), strict=True)))
    ax.set_box_aspect((wide, deep, high), zoom=1.0)
    wide = 72 * min(fit.cell(None).size) / ax.figure.dpi
    size = float(np.clip(_SMALL * wide / _WIDE, _TINY, _SMALL))
    colors = [tick_colors(ax.figure, axis)[1] for axis in "xyx"]
    ink = text_color(ax.figure, "axes.labelcolor")
    ax.patch.set_visible(False)  # a square that labels overhang, before what is below the axes
    for axis, label, color in zip((ax.xaxis, ax.yaxis, ax.zaxis), names, colors, strict=True):
        axis.set_label_text(written(label), fontsize=size + 1, color=ink)
        axis.set_tick_params(labelsize=size, labelcolor=color, color=_GREY)
        axis.get_offset_text().set(size=size, color=color)
        axis.get_major_locator().set_params(nbins=5 if size == _SMALL else 4)
        axis.set_pane_color((1.0, 1.0, 1.0, 0.0))
        axis.line.set(color=_GREY, linewidth=0.1 * size)
        axis._axinfo["grid"].update(color=to_rgba(ink, _FAINT), linewidth=0.06 * size)
    _pad_labels(fit, size)
    if fit.own:
        _fit_height(fit)


def _pad_labels(fit: AxesFit, size: float) -> None:
    """Set the distance of numbers and labels from the axes for letters of a size."""
    ax = fit.ax
    fit(ax, None)
    # Distances are shares of the box, which matplotlib takes for half as wide as the axes.
    box = np.stack(np.meshgrid([0, 1], [0, 1], [0, 1]), -1).reshape(-1, 3)
    ends = np.array([ax.get_xlim(), ax.get_ylim(), ax.get_zlim()])
    x, y, _ = proj3d.proj_transform(*(ends[:, 0] + box * np.ptp(ends, axis=1)).T, ax.M)
    stretch = 2 * max(np.ptp(x), np.ptp(y)) / (np.sqrt(2) * ax.viewLim.width)
    for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
        axis.set_tick_params(pad=_NUMBERS * size / stretch - 8)
        axis.labelpad = _LABELS * size / stretch - 21
    fit(ax, None)
    numbers = [label.get_window_extent() for label in ax.zaxis.get_ticklabels()]
    wide = max((box.width for box in numbers), default=0) * 72 / ax.figure.dpi
    ax.zaxis.labelpad += max(0.0, wide - 2.5 * size) / stretch


def _fit_height(fit: AxesFit) -> None:
    """Make a figure as high as its content is at the full width, up to a limit."""
    figure = fit.ax.figure
    for _ in range(3):
        fit(fit.ax, None)
        wide, high = fit.content().size / figure.dpi
        scale = (_WIDTH - 2 * _MARGIN) / wide
        fit.fill_figure(min(scale * high + 2 * _MARGIN, _HIGHEST))


def explain_colors(fit: AxesFit, coloring: Coloring) -> None:
    """Add a colour bar or a legend in the room that is kept free beside the axes."""
    figure = fit.ax.figure
    beside = figure.add_axes((0, 0, 1, 1), zorder=fit.ax.get_zorder() - 1)  # below, for the mouse
    beside.set_axes_locator(_Middle(fit))
    beside.apply_aspect(beside.get_axes_locator()(beside, None))
    beside.set_axis_off()
    if coloring.norm is not None:
        mappable = ScalarMappable(coloring.norm, coloring.cmap)
        add_colorbar(beside, mappable, coloring.label, extend=coloring.extend)
    if coloring.legend:
        add_legend(beside, coloring.legend, coloring.label)


@dataclass(frozen=True, eq=False)
class _Middle:
    """Places axes in the middle of the cell of other axes."""

    fit: AxesFit

    def __call__(self, _: Any, renderer: Any) -> Bbox:
        cell = self.fit.cell(renderer)
        low, high = cell.y0 + 0.15 * cell.height, cell.y1 - 0.15 * cell.height
        box = Bbox.from_extents(cell.x0, low, cell.x1, high)
        return box.transformed(self.fit.ax.figure.transSubfigure.inverted())

    def get_subplotspec(self) -> Any:
        return self.fit.get_subplotspec()
