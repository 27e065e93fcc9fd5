"""Axes in space that fill their place on a figure, and what stands beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import rcParams
from matplotlib.cm import ScalarMappable
from matplotlib.colors import to_rgba
from matplotlib.transforms import Bbox
from mpl_toolkits.mplot3d import proj3d

from splinecam.plot.decorations import add_colorbar, add_legend
from splinecam.plot.figures import new_figure
from splinecam.plot.palette import text_color
from splinecam.plot.scene import Scene

if TYPE_CHECKING:
    from mpl_toolkits.mplot3d import Axes3D

    from splinecam.plot.colors import Coloring

__all__ = ["Fit", "explain_colors", "fit_height", "label_axes", "place_axes"]

_SMALL, _TINY, _WIDE = 8.0, 5.5, 260.0  # sizes of numbers, the first on axes of so many points
_GREY, _FAINT = "#9aa1aa", 0.16  # of axes, and how much ink the grid has
_NUMBERS, _LABELS = 1.75, 4.0  # how far from the axes, in sizes of letters
# Inches: of a figure, of a colour bar beside it, around it, between titles.
_WIDTH, _HIGHEST, _BESIDE, _MARGIN, _GAP = 6.0, 6.5, 0.9, 0.1, 0.08
_ROUNDS, _EXACT = 6, 0.5  # of fitting, until nothing is off by so many pixels


def place_axes(ax: Axes3D | None, beside: bool) -> tuple[Axes3D, Fit]:
    """New axes, or those given, which will fill their place but for some room beside them."""
    if ax is not None:
        before = ax.get_axes_locator()
        before = before.before if isinstance(before, Fit) else before
        fit = Fit(ax, before=before, beside=_BESIDE * beside)
    else:
        figure = new_figure(figsize=(_WIDTH + _BESIDE * beside, _WIDTH), layout="none")
        ax = figure.add_subplot(projection="3d")
        fit = Fit(ax, own=True, beside=_BESIDE * beside)
        fit.fill_figure()
    ax.set_axes_locator(fit)
    return ax, fit


# -- their place ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Fit:
    """Finds the place of axes whenever they are drawn, such that box and labels fill their cell.

    own: whether the figure is theirs, so that titles need room; before: what placed them before;
    beside: inches of the cell that are kept free at its right.
    """

    ax: Axes3D
    own: bool = False
    before: Any = None
    beside: float = 0.0

    def __call__(self, _: Any, renderer: Any) -> Bbox:
        """The square of the axes, in shares of the figure; their view is fitted to the cell."""
        ax = self.ax
        if ax.button_pressed is None:  # what is turned by hand keeps its size
            ax.apply_aspect(ax.get_position())  # figures of another shape leave no square
            cell = self.cell(renderer)
            for _ in range(_ROUNDS):  # letters keep their size, so that the first is not exact
                if self._fill(cell, self.content(renderer)):
                    break
        place: Bbox = ax.bbox.transformed(ax.figure.transSubfigure.inverted())
        return place

    def get_subplotspec(self) -> Any:
        """The place in a grid, for which layouts ask whoever finds that of axes."""
        return self.ax.get_subplotspec()

    def fill_figure(self, high: float = _WIDTH) -> None:
        """Make the figure so many inches high, and its margins the cell's borders."""
        figure = self.ax.figure
        figure.set_size_inches(_WIDTH + self.beside, high)
        x, y = _MARGIN / figure.get_figwidth(), _MARGIN / high
        self.ax.set_position((x, y, 1 - 2 * x, 1 - 2 * y))

    def cell(self, renderer: Any) -> Bbox:
        """What the axes are to fill, in pixels."""
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
        """What is to fill the cell, as it lies now, in pixels: the box and its labels."""
        ax = self.ax
        ax.M = ax.get_proj()
        limits = ax.get_xlim(), ax.get_ylim(), ax.get_zlim()
        if getattr(ax, "_axis3don", True):
            points = np.stack(np.meshgrid(*limits), -1).reshape(-1, 3)
            boxes = [axis.get_tightbbox(renderer) for axis in (ax.xaxis, ax.yaxis, ax.zaxis)]
        else:  # without axes the surfaces alone
            scenes = [each for each in ax.collections if isinstance(each, Scene)]
            points, boxes = np.concatenate([each.items.points for each in scenes]), []
        x, y, _ = proj3d.proj_transform(*points.T, ax.M)
        box = Bbox.null()
        box.update_from_data_xy(ax.transData.transform(np.stack([x, y], 1)))
        return Bbox.union([box, *(each for each in boxes if each is not None)])

    def _fill(self, cell: Bbox, content: Bbox) -> bool:
        """Change the view such that the content moves into the cell; whether it was there.

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
        """The height of titles, in pixels, those of the figure from the top of a cell."""
        ax, figure, gap = self.ax, self.ax.figure, _GAP * self.ax.figure.dpi
        titles = (ax.title, *(getattr(ax, f"_{side}_title") for side in ("left", "right")))
        shown = [title.get_window_extent(renderer).height for title in titles if title.get_text()]
        high = max(shown) + gap if shown else 0.0
        above = [text for text in figure.texts if text.get_text() == figure.get_suptitle() != ""]
        lows = [text.get_window_extent(renderer).y0 for text in above]
        return float(high + max([0.0, *(top - low + gap for low in lows)]))


def _gutter(ax: Axes3D) -> float:
    """Room between columns of a grid, or beside a single one, as a share of the figure."""
    place = ax.get_subplotspec()
    if place is None:
        return 0.0
    _, _, left, right = place.get_gridspec().get_grid_positions(ax.figure)
    gap = left[1] - right[0] if len(left) > 1 else min(left[0], 1 - right[0])
    return max(0.0, float(gap))


# -- their looks ---------------------------------------------------------------------------------


def label_axes(fit: Fit, limits: Any, height: float, names: tuple[str, str, str]) -> None:
    """Limits (3, 2) of the axes, their names, and the height for a plane of width 1."""
    ax = fit.ax
    (left, right), (low, top), (least, most) = limits
    if least == most:
        least, most = least - 0.5, most + 0.5
    ax.set(xlim=(left, right), ylim=(low, top), zlim=(least, most))
    ax.set_box_aspect((1.0, (top - low) / (right - left), height), zoom=1.0)
    wide = 72 * min(fit.cell(None).size) / ax.figure.dpi
    size = float(np.clip(_SMALL * wide / _WIDE, _TINY, _SMALL))
    colors = [_number_color(ax, kind) for kind in ("xtick", "ytick", "xtick")]
    ink = text_color(ax.figure, "axes.labelcolor")
    ax.patch.set_visible(False)  # a square that labels overhang, before what is below the axes
    for axis, name, color in zip((ax.xaxis, ax.yaxis, ax.zaxis), names, colors, strict=True):
        axis.set_label_text(name, fontsize=size + 1, color=ink)
        axis.set_tick_params(labelsize=size, labelcolor=color, color=_GREY)
        axis.get_offset_text().set(size=size, color=color)
        axis.get_major_locator().set_params(nbins=5 if size == _SMALL else 4)
        axis.set_pane_color((1.0, 1.0, 1.0, 0.0))
        axis.line.set(color=_GREY, linewidth=0.1 * size)
        axis._axinfo["grid"].update(color=to_rgba(ink, _FAINT), linewidth=0.06 * size)
    _pad_labels(fit, size)


def _number_color(ax: Axes3D, kind: str) -> Any:
    settings: Any = rcParams
    own = settings[f"{kind}.labelcolor"] != "inherit"
    return text_color(ax.figure, f"{kind}.labelcolor" if own else f"{kind}.color")


def _pad_labels(fit: Fit, size: float) -> None:
    """Keep labels at a distance that suits letters of a size, beside the numbers."""
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


def fit_height(fit: Fit) -> None:
    """Make a figure as high as its content is when it is as wide as the figure.

    A box that is much higher than wide gets narrower.
    """
    figure = fit.ax.figure
    for _ in range(3):
        fit(fit.ax, None)
        wide, high = fit.content().size / figure.dpi
        scale = (_WIDTH - 2 * _MARGIN) / wide
        fit.fill_figure(min(scale * high + 2 * _MARGIN, _HIGHEST))


def explain_colors(fit: Fit, made: Coloring) -> None:
    """A colour bar or a legend beside the axes, in the room that is kept for it."""
    figure = fit.ax.figure
    beside = figure.add_axes((0, 0, 1, 1), zorder=fit.ax.get_zorder() - 1)  # below, for the mouse
    beside.set_axes_locator(_Middle(fit))
    beside.apply_aspect(beside.get_axes_locator()(beside, None))
    beside.set_axis_off()
    if made.norm is not None:
        add_colorbar(beside, ScalarMappable(made.norm, made.cmap), made.label, extend=made.extend)
    if made.legend:
        add_legend(beside, made.legend, made.label)


@dataclass(frozen=True, eq=False)
class _Middle:
    """Finds the place of axes behind others: the middle of their cell."""

    fit: Fit

    def __call__(self, _: Any, renderer: Any) -> Bbox:
        cell = self.fit.cell(renderer)
        low, high = cell.y0 + 0.15 * cell.height, cell.y1 - 0.15 * cell.height
        box = Bbox.from_extents(cell.x0, low, cell.x1, high)
        return box.transformed(self.fit.ax.figure.transSubfigure.inverted())

    def get_subplotspec(self) -> Any:
        return self.fit.get_subplotspec()
