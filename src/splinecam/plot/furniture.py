"""What surrounds a picture: its frame, scale bar, axis labels, colour bar and legend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from matplotlib.artist import Artist
from matplotlib.colors import LogNorm
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Patch, Polygon
from matplotlib.path import Path
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from matplotlib.transforms import IdentityTransform, ScaledTranslation

from splinecam.plot.lines import figure_of
from splinecam.plot.palette import INK, PAPER

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colorbar import Colorbar

    from splinecam.domain import Domain

__all__ = [
    "AxesStyle",
    "ScaleBar",
    "add_colorbar",
    "add_legend",
    "clip_to",
    "draw_border",
    "fit_figure",
    "set_frame",
]

AxesStyle = Literal["scale", "ticks", "off"]

_SMALL, _TINY = 8.0, 6.5  # sizes of letters, in points; tiny on axes narrower than _NARROW
_NARROW = 180.0
_MARGIN = 0.006  # of the picture's extent, left free for the border line
_GAP = 0.02  # between a picture and what stands beside it, of the picture's width
BORDER_WIDTH = 0.9
_TICKS = 0.42  # room in inches for the numbers and the label of an axis
_PLAIN = (1e-3, 1e5)  # numbers between these are not written as powers of ten
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def set_frame(ax: Axes, domain: Domain, style: AxesStyle = "scale") -> None:
    """Limits around a domain, equal scales, and a scale bar, ticks with labels, or neither."""
    if style not in get_args(AxesStyle):
        choices = ", ".join(map(repr, get_args(AxesStyle)))
        raise ValueError(f"axes is {style!r}; choose one of {choices}")
    corners = domain.corners.cpu().numpy()
    low, high = corners.min(0), corners.max(0)
    pad = _MARGIN * float((high - low).max())
    ax.set_xlim(low[0] - pad, high[0] + pad)
    ax.set_ylim(low[1] - pad, high[1] + pad)
    ax.set_aspect("equal")
    if style != "ticks":
        ax.set_axis_off()
    if style == "scale":
        ax.add_artist(ScaleBar())
    if style == "ticks":
        _set_ticks(ax, domain)


def _set_ticks(ax: Axes, domain: Domain) -> None:
    ax.set_axis_on()
    ax.spines[["top", "right", "left", "bottom"]].set_visible(False)
    ax.patch.set_visible(False)
    ax.tick_params(labelsize=_letters(ax), color=INK, labelcolor=INK, width=0.6, length=3)
    ax.locator_params(nbins=5)
    ax.ticklabel_format(useOffset=True, scilimits=(-3, 4))
    for axis in (ax.xaxis, ax.yaxis):
        axis.get_offset_text().set_fontsize(_letters(ax))
    same = domain.dim == 2 and bool((domain.basis.diagonal() == 1).all())
    same = same and not bool(domain.origin.any())
    ax.set_xlabel("x₁" if same else "u", fontsize=_letters(ax) + 1, color=INK)
    ax.set_ylabel("x₂" if same else "v", fontsize=_letters(ax) + 1, color=INK)


def draw_border(ax: Axes, domain: Domain, *, zorder: float = 3.5) -> Polygon:
    """The outline of the domain."""
    outline = Polygon(
        domain.corners.cpu().numpy(),
        closed=True,
        fill=False,
        edgecolor=INK,
        linewidth=BORDER_WIDTH,
        joinstyle="miter",
        zorder=zorder,
    )
    ax.add_artist(outline)
    return outline


def clip_to(artist: Artist, ax: Axes, domain: Domain) -> None:
    """Cut off what sticks out of the domain, such as the round ends of wide lines."""
    corners = domain.corners.cpu().numpy()
    outline = Path(np.concatenate([corners, corners[:1]]), closed=True)
    artist.set_clip_path(outline, ax.transData)  # beside the axes' own box


def _letters(ax: Axes) -> float:
    """The size of letters that suits the axes, in points."""
    width = 72 * ax.bbox.width / figure_of(ax).dpi
    return _TINY if width < _NARROW else _SMALL


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
    if _PLAIN[0] <= value < _PLAIN[1]:
        return f"{value:g}"
    digits, power = f"{value:.0e}".split("e")
    return f"{digits}×10{str(int(power)).translate(_RAISED)}".removeprefix("1×")


class ScaleBar(Artist):
    """A line of a round length in plane units, in the lower left corner, at any zoom."""

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
        """Draw a box, the line in it, and the length above the line."""
        if not self.get_visible():
            return
        box, point = self.axes.bbox, renderer.points_to_pixels(1.0)
        wide = self.length * box.width / abs(self.axes.viewLim.width)
        left, low = box.x0 + 10 * point, box.y0 + 10 * point
        here: Any = {"transform": IdentityTransform()}
        text = Text(
            left + wide / 2,
            low + 3.0 * point,
            short_number(self.length),
            size=_letters(self.axes),
            color=INK,
            ha="center",
            va="bottom",
            **here,
        )
        line = Line2D([left, left + wide], [low, low], color=INK, linewidth=1.6, **here)
        line.set_solid_capstyle("butt")
        self._adopt(text)
        size = text.get_window_extent(renderer)
        x0, x1 = min(left, size.x0), max(left + wide, size.x1)
        back = FancyBboxPatch(
            (x0, low),
            x1 - x0,
            size.y1 - low,
            boxstyle=f"round,pad={3.5 * point},rounding_size={2 * point}",
            facecolor=PAPER,
            alpha=0.82,
            linewidth=0,
            mutation_aspect=1,
            **here,
        )
        for piece in (back, line, text):
            self._adopt(piece)
            piece.draw(renderer)
        self.stale = False

    def _adopt(self, piece: Artist) -> None:
        if piece.figure is None:
            piece.set_figure(self.figure)
            piece.axes = self.axes


def add_colorbar(ax: Axes, mappable: Any, label: str, *, extend: str = "neither") -> Colorbar:
    """A slim colour bar beside the axes, which keep their place in a grid."""
    beside = ax.inset_axes((1 + _GAP, 0.0, 0.035, 1.0))
    figure = ax.figure
    bar = figure.colorbar(mappable, cax=beside, extend=extend, extendfrac=0.025)
    size = _letters(ax)
    bar.set_label(label, size=size + 0.5, color=INK)
    beside.tick_params(which="both", labelsize=size, width=0.5, color=INK, labelcolor=INK)
    beside.tick_params(which="major", length=3)
    beside.tick_params(which="minor", length=1.5)
    beside.yaxis.get_offset_text().set_fontsize(size)
    if isinstance(mappable.norm, LogNorm):
        _log_ticks(bar, mappable.norm)
    bar.outline.set_linewidth(0.5)
    bar.outline.set_edgecolor(INK)
    return bar


def _log_ticks(bar: Colorbar, norm: LogNorm) -> None:
    """Powers of ten, with 2 and 5 times them where there are few; plain numbers where short."""
    low, high = float(norm.vmin or 1), float(norm.vmax or 1)
    decades = math.log10(high / low)
    subs: Sequence[float] = (1,) if decades > 2.5 else (1, 2, 5) if decades > 0.8 else range(1, 10)
    bar.ax.yaxis.set_major_locator(LogLocator(subs=subs))
    bar.ax.yaxis.set_minor_formatter(NullFormatter())
    if _PLAIN[0] <= low < high <= _PLAIN[1]:
        bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def add_legend(
    ax: Axes, entries: Sequence[tuple[str, Any]], title: str = "", *, below: bool = False
) -> Legend:
    """Names with their colours beside or below the axes; ``ax.legend()`` remains free."""
    handles = [
        Patch(facecolor=color, edgecolor=INK, linewidth=0.4, label=name) for name, color in entries
    ]
    size = _letters(ax)
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1 + _GAP, 1.0)}
    columns = 1 + (len(handles) - 1) // 24
    if below:
        down = -_TICKS if ax.axison else 0
        lower = ScaledTranslation(0, down, figure_of(ax).dpi_scale_trans)
        place["bbox_to_anchor"] = (0.0, -_GAP)
        place["bbox_transform"] = ax.transAxes + lower
        columns = max(1, min(len(handles), 6))
    legend = Legend(
        ax,
        handles,
        [name for name, _ in entries],
        title=title or None,
        ncols=columns,
        fontsize=size,
        title_fontsize=size,
        labelcolor=INK,
        alignment="left",
        frameon=False,
        handlelength=1.0,
        handleheight=1.0,
        borderaxespad=0.0,
        borderpad=0.0,
        columnspacing=1.2,
        **place,
    )
    ax.add_artist(legend)
    legend.set_clip_on(False)
    return legend


def fit_figure(ax: Axes, domain: Domain) -> None:
    """Make a new figure as high as the picture and what is beside it ask for."""
    figure = figure_of(ax)
    corners = domain.corners.cpu().numpy()
    extent = np.ptp(corners, axis=0)
    right, below, left = 0.0, 0.0, 0.0
    if ax.child_axes:
        right = 0.85
    for legend in ax.findobj(Legend):
        size = legend.get_window_extent()
        beside = legend.get_bbox_to_anchor().x0 >= ax.bbox.x1
        right += size.width / figure.dpi + 0.12 if beside else 0.0
        below += 0.0 if beside else size.height / figure.dpi + 0.12
    if ax.axison:
        left, below = 0.6, below + _TICKS
    width = figure.get_figwidth()
    height = (width - left - right) * float(extent[1] / extent[0]) + below
    figure.set_figheight(min(max(height, width / 5), 2 * width))
