"""What surrounds a picture: scale bars, ticks, borders, and colour bars and legends beside it.

All places are computed when the figure is drawn, and stay right after zooming and resizing. Not
every figure has a layout engine of matplotlib, and neither these nor ``make_axes_locatable`` keep
several bars and legends apart on axes with a fixed aspect.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.collections import PathCollection
from matplotlib.colorbar import Colorbar
from matplotlib.colors import LogNorm
from matplotlib.font_manager import FontProperties
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.offsetbox import AnchoredOffsetbox, DrawingArea, TextArea, VPacker
from matplotlib.patches import Patch, Polygon, Rectangle
from matplotlib.path import Path
from matplotlib.patheffects import Normal, Stroke, withStroke
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from matplotlib.transforms import Bbox, IdentityTransform

from splinecam.geometry.domain import Domain
from splinecam.plot.arrays import to_numpy
from splinecam.plot.artists import figure_of, ink_over
from splinecam.plot.figures import is_input_plane, sliced_features, written
from splinecam.plot.palette import INK, PAPER, background, ink_on, text_color, tick_colors

_FREE = 4.0  # points left free at the edge of a figure
_KEPT = 0.4  # the share of their slot that axes keep in any case


@dataclass(eq=False)
class SidePlace:
    """A place beside or below axes, after the places with a lower rank."""

    parent: Axes
    below: bool
    gap: float  # points of free space before it
    thickness: float = 0.0  # points across a colour bar
    rank: int = 0

    def __post_init__(self) -> None:
        self.rank = max((item.place.rank for item in _beside(self.parent)), default=0) + 1

    def start(self) -> float:
        """The left end of the place, or below the axes its upper end, in pixels."""
        earlier = [item for item in _beside(self.parent) if item.place.rank < self.rank]
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


class SideLegend(Legend):
    """A legend in its place. curves: whether it explains curves rather than regions."""

    def __init__(self, place: SidePlace, *args: Any, curves: bool = False, **style: Any) -> None:
        self.place, self.curves = place, curves
        super().__init__(place.parent, *args, loc="upper left", borderaxespad=0.0, **style)

    def get_bbox_to_anchor(self) -> Any:
        """The upper left corner of the legend."""
        box, start = self.place.parent.bbox, self.place.start()
        x, y = (box.x0, start) if self.place.below else (start, box.y1)
        return Bbox.from_bounds(x, y, 0, 0)


@dataclass(eq=False)
class ShrinkToFit:
    """Makes room for what is beside axes, in figures without a layout engine."""

    axes: Axes

    def __call__(self, ax: Any, renderer: Any) -> Any:
        """The part of the axes' slot that is left for the axes themselves."""
        room, whole = ax.get_position(original=True), _slot(ax)
        if ax.figure.get_layout_engine() is not None:
            # Layout engines make room for what reaches beyond the slot. Each of their rounds then
            # finds the same amount, however much of the slot is free in the first.
            ax.apply_aspect(room)
            free = whole.width - ax.bbox.width
            if ax.get_anchor() == "C" and free < 2 * overhang(ax)[1]:
                whole = Bbox.from_extents(whole.x0 + free, whole.y0, whole.x1, whole.y1)
            return _in_figure(ax, whole)
        for _ in range(2):  # a smaller colour bar has other ticks
            ax.apply_aspect(room)
            left, right, below = _missing(ax, whole)
            across = min(1.0, (1 - _KEPT) * whole.width / max(left + right, 1.0))
            below = min(below, (1 - _KEPT) * whole.height)
            x0, x1 = whole.x0 + across * left, whole.x1 - across * right
            room = _in_figure(ax, Bbox.from_extents(x0, whole.y0 + below, x1, whole.y1))
        return room

    def get_subplotspec(self) -> Any:
        """The axes' place in a grid, for ``tight_layout``."""
        return self.axes.get_subplotspec()


def _missing(ax: Axes, slot: Bbox) -> tuple[float, float, float]:
    """The pixels missing around the axes: left, right and below."""
    page, pad = ax.figure.bbox, _FREE * _point(ax)
    others = [_slot(other) for other in figure_of(ax).axes]
    edge = max((other.x1 for other in others if other.x1 <= slot.x0), default=page.x0)
    free = [slot.x0 - edge, page.x1 - slot.x1, slot.y0 - page.y0]
    if any(other.bounds != slot.bounds for other in others):
        free[1:] = pad, pad + _ticks(ax, True)
    both = zip(overhang(ax), free, strict=True)
    left, right, below = (max(0.0, out - max(0.0, margin - pad)) for out, margin in both)
    return left, right, below


def overhang(ax: Axes) -> tuple[float, float, float]:
    """The pixels by which ticks, bars and legends exceed axes at the left, right and below."""
    items = _beside(ax)
    right = _end(ax, items, False) - ax.bbox.x1
    return _ticks(ax, False), right, ax.bbox.y0 - _end(ax, items, True)


def _slot(ax: Axes) -> Any:
    """The place of axes in their figure, in pixels, before anything changes it."""
    return ax.get_position(original=True).transformed(ax.figure.transSubfigure)


def picture_size(ax: Axes) -> tuple[float, float]:
    """Width and height of axes without anything beside them, in points."""
    slot = _slot(ax)
    wide, high, aspect = slot.width / _point(ax), slot.height / _point(ax), ax.get_aspect()
    if aspect == "auto":
        return wide, high
    steep = abs(float(aspect) * ax.viewLim.height / ax.viewLim.width)
    return min(wide, high / steep), min(high, wide * steep)


def _beside(ax: Axes) -> list[Any]:
    """The visible colour bars and legends beside axes."""
    bars = [each for each in ax.child_axes if hasattr(each, "place")]
    legends = [each for each in ax.artists if isinstance(each, SideLegend)]
    return [each for each in (*bars, *legends) if each.get_visible()]


def _end(ax: Axes, items: list[Any], below: bool) -> float:
    """The end of the items beside or below axes, in pixels."""
    end = float(ax.bbox.y0) - _ticks(ax, True) if below else float(ax.bbox.x1)
    for item in items:
        if item.place.below == below:
            measure = item.get_window_extent if isinstance(item, Legend) else item.get_tightbbox
            box = measure(_ruler(figure_of(ax).dpi))
            end = min(end, float(box.y0)) if below else max(end, float(box.x1))
    return end


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


_LARGEST, _SMALLEST = 8.0, 5.5  # sizes of letters, in points
_PER_LETTER = 24.0  # longer side of a picture by size of letters
_FULL, _LEAST = 240.0, 0.45  # longer side below which things get smaller, and the least scale
PLAIN = (1e-3, 1e5)  # numbers between these are not written as powers of ten
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def letters(span: float) -> float:
    """The size of letters for a picture, given its longer side, both in points."""
    return min(max(span / _PER_LETTER, _SMALLEST), _LARGEST)


def scale_of(span: float) -> float:
    """The scale of points and bars on a picture, at most 1, given its longer side in points."""
    return min(max(span / _FULL, _LEAST), 1.0)


def round_number(most: float) -> float:
    """The largest 1, 2 or 5 times a power of ten that is not above a number.

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
        points = FontProperties(size=1.0)  # paddings are in points
        super().__init__("lower left", pad=0.0, child=DrawingArea(0, 0), prop=points, frameon=False)
        self.set(zorder=6, in_layout=False)

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
        """Fit the bar to the view and move it to a free corner; return its box in pixels."""
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

        def cost(loc: int) -> tuple[float, int]:
            self.loc = loc
            here = self.get_window_extent(renderer).padded(margin)
            shared = [Bbox.intersection(here, box) for box in boxes]
            covered = sum(box.width * box.height for box in shared if box is not None)
            return covered, int(here.count_contains(points)) if len(points) else 0

        corners = [self.codes[f"{y} {x}"] for y in ("lower", "upper") for x in ("left", "right")]
        obstructed = len(boxes) + len(points) > 0
        self.loc = min(corners, key=cost) if obstructed else corners[0]
        found: Bbox = self.get_window_extent(renderer)
        return found


AxesStyle = Literal["scale", "ticks", "off"]

_MARGIN = 0.006  # of the picture's extent, left free for the border line
_BAR, _THINNEST, _THICKEST = 0.035, 5.0, 12.0  # of a picture's side, and in points, across a bar
_ROWS = 4  # of a legend below a picture; longer ones are beside it
_FLAT = 2.5  # width by height above which legends are below a picture
_PADDING = 0.083  # inches that layouts leave free, at both ends together
BORDER_WIDTH = 0.9
_PARTIAL_WIDTH = 0.6  # of the frame around a part of the domain
_SIDES = ("left", "right", "top", "bottom")


def picture_scale(ax: Axes) -> float:
    """The scale of points and bars on axes."""
    return scale_of(max(picture_size(ax)))


def set_frame(ax: Axes, domain: Domain, style: AxesStyle = "scale") -> None:
    """Set limits around a domain and equal scales; add a scale bar, ticks, or neither."""
    if style not in get_args(AxesStyle):
        choices = ", ".join(map(repr, get_args(AxesStyle)))
        raise ValueError(f"axes is {style!r}; choose one of {choices}")
    corners = to_numpy(domain.corners)
    low, high = corners.min(0), corners.max(0)
    pad = _MARGIN * float((high - low).max())
    ax.set_xlim(low[0] - pad, high[0] + pad)
    ax.set_ylim(low[1] - pad, high[1] + pad)
    ax.set_aspect("equal")
    ax.grid(False)
    ax.patch.set_visible(False)
    ax.spines[list(_SIDES)].set_visible(False)
    (ax.set_axis_off if style == "off" else ax.set_axis_on)()
    before = [child for child in ax.get_children() if isinstance(child, ScaleBar)]
    for bar in before:
        bar.remove()
    if style == "scale":  # without ticks, but with the labels that the user may set
        none: Any = dict.fromkeys([*_SIDES, *(f"label{side}" for side in _SIDES)], False)
        ax.tick_params(which="both", **none)
        ax.add_artist(ScaleBar())
    if style == "ticks":
        if before:
            ax.tick_params(left=True, bottom=True, labelleft=True, labelbottom=True)
        _set_ticks(ax, domain)


def _set_ticks(ax: Axes, domain: Domain) -> None:
    size, (wide, high) = _letters(ax), picture_size(ax)
    for axis in (ax.xaxis, ax.yaxis):
        _color_ticks(ax, axis)
        axis.set_tick_params(labelsize=size, width=0.6, length=3)
        axis.get_offset_text().set_fontsize(size)
    ax.locator_params(axis="x", nbins=max(1, min(5, int(wide / size / 4))))
    ax.locator_params(axis="y", nbins=max(1, min(5, int(high / size / 2.5))))
    ax.ticklabel_format(useOffset=True, scilimits=(-3, 4))
    color = text_color(ax.figure, "axes.labelcolor")
    first, second = axis_names(domain)
    ax.set_xlabel(written(first), fontsize=size + 1, color=color)
    ax.set_ylabel(written(second), fontsize=size + 1, color=color)


def axis_names(domain: Domain) -> tuple[str, str]:
    """The names of the plane's coordinates, which may be inputs."""
    if is_input_plane(domain):
        return "x₁", "x₂"
    features = sliced_features(domain)
    if features is None:
        return "u", "v"
    first, second = (", ".join(map(str, index)) for index in features)
    return f"x[{first}]", f"x[{second}]"


def _color_ticks(ax: Axes, axis: Any) -> None:
    """Give the ticks of an axis and their numbers the colours of matplotlib's settings."""
    mark, label = tick_colors(ax.figure, axis.axis_name)
    axis.set_tick_params(which="both", color=mark, labelcolor=label)
    axis.get_offset_text().set_color(label)


class DomainBorder(Polygon):
    """The outline of a domain, and the frame of a view that shows only a part of the domain."""

    axes: Any

    def draw(self, renderer: Any) -> None:
        """Draw the outline, and the frame if the view cuts the outline off."""
        super().draw(renderer)
        view, box = self.axes.viewLim, self.axes.bbox
        low, high = self.get_xy().min(0), self.get_xy().max(0)
        if self.get_visible() and ((low < view.min) | (high > view.max)).any():
            frame = Rectangle(box.min, box.width, box.height, fill=False, linewidth=_PARTIAL_WIDTH)
            color = self.get_edgecolor()
            frame.set(edgecolor=color, transform=IdentityTransform(), figure=self.figure)
            frame.draw(renderer)


def draw_border(ax: Axes, domain: Domain) -> None:
    """Draw the outline of the domain."""
    ink, width = ink_on(background(ax)), BORDER_WIDTH * picture_scale(ax)
    style: Any = {"edgecolor": ink, "linewidth": width, "joinstyle": "miter", "zorder": 3.5}
    ax.add_artist(DomainBorder(to_numpy(domain.corners), closed=True, fill=False, **style))


def clip_to(artist: Artist, ax: Axes, domain: Domain) -> None:
    """Cut off what sticks out of the domain, such as the round ends of wide lines."""
    corners = to_numpy(domain.corners)
    outline = Path(np.concatenate([corners, corners[:1]]), closed=True)
    artist.set_clip_path(outline, ax.transData)  # beside the axes' own box


def _letters(ax: Axes) -> float:
    """The size of letters on the axes, in points."""
    return letters(max(picture_size(ax)))


def is_flat(domain: Domain) -> bool:
    """Whether colour bars and legends fit better below the picture than beside it."""
    return _height_by_width(domain) * _FLAT < 1


def _height_by_width(domain: Domain) -> float:
    width, height = (domain.corners.amax(0) - domain.corners.amin(0)).tolist()
    return float(height / width)


def make_room(ax: Axes) -> None:
    """Let axes make room for what is beside them in figures without a layout engine."""
    if ax.get_axes_locator() is None:
        ax.set_axes_locator(ShrinkToFit(ax))


def add_colorbar(
    ax: Axes, mappable: Any, label: str, *, extend: str = "neither", below: bool = False
) -> Colorbar:
    """Add a slim colour bar beside or below the axes, after earlier bars and legends."""
    size, (wide, high) = _letters(ax), picture_size(ax)
    place = SidePlace(ax, below, size, min(max(_BAR * max(wide, high), _THINNEST), _THICKEST))
    beside: Any = ax.inset_axes((1.0, 0.0, 1.0, 1.0))
    beside.place = place  # marks it as a colour bar
    beside.set_axes_locator(place)
    style: Any = {"extendfrac": 0.025, "orientation": "horizontal" if below else "vertical"}
    bar = ax.figure.colorbar(mappable, cax=beside, extend=extend, **style)
    bar.set_label(written(label), size=size + 0.5, color=text_color(ax.figure, "axes.labelcolor"))
    axis = beside.xaxis if below else beside.yaxis
    _color_ticks(ax, axis)
    beside.grid(False, which="both")
    beside.tick_params(which="both", labelsize=size, width=0.5)
    beside.tick_params(which="major", length=3)
    beside.tick_params(which="minor", length=1.5)
    axis.get_offset_text().set_fontsize(size)
    if isinstance(mappable.norm, LogNorm):
        _log_ticks(axis, mappable.norm, (wide / 4 if below else high / 2) / size)
    bar.outline.set_linewidth(0.5)
    bar.outline.set_edgecolor(text_color(ax.figure, "axes.edgecolor"))
    return bar


def _log_ticks(axis: Any, norm: LogNorm, most: float) -> None:
    """Set ticks at powers of ten, and at 2 and 5 times these if at most ``most`` ticks result."""
    low, high = float(norm.vmin or 1), float(norm.vmax or 1)
    decades = math.log10(high / low)
    if decades > 0.8:
        few = decades <= 2.5 and 3 * decades <= most
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
    else:
        axis.set_major_locator(MaxNLocator(min(9, max(2, int(most))), steps=[1, 2, 5, 10]))
    axis.set_minor_formatter(NullFormatter())
    if PLAIN[0] <= low < high <= PLAIN[1]:
        axis.set_major_formatter("{x:g}")


def add_legend(
    ax: Axes,
    entries: Sequence[tuple[str, Any]],
    title: str = "",
    *,
    below: bool = False,
    curves: bool = False,
) -> SideLegend:
    """Add names with their colours, or artists, beside the axes, or below if they are few."""
    ink = text_color(ax.figure)

    def handle(color: Any) -> Artist:
        if isinstance(color, Artist):
            return color
        if curves:
            return Line2D([], [], color=color, linewidth=1.8)
        return Patch(facecolor=color, edgecolor=ink, linewidth=0.4)

    handles = [handle(color) for _, color in entries]
    names = [written(name) for name, _ in entries]
    size, (wide, high) = _letters(ax), picture_size(ax)
    longest = max(map(len, names), default=0)
    columns = max(1, min(len(names), int(wide / (size * (3 + 0.6 * longest)))))
    below = below and len(names) <= _ROWS * columns
    if not below:
        columns = 1 + (len(names) - 1) // max(4, int(high / (1.6 * size)) - bool(title))
    space: Any = {"handleheight": 1.0, "borderpad": 0.0, "columnspacing": 1.2, "ncols": columns}
    style: Any = {"fontsize": size, "title_fontsize": size, "labelcolor": ink, "frameon": False}
    style |= {"handlelength": 1.4 if curves else 1.0, "alignment": "left"} | space
    heading = written(title) or None
    place = SidePlace(ax, below, size)
    legend = SideLegend(place, handles, names, curves=curves, title=heading, **style)
    legend.get_title().set_color(ink)
    ax.add_artist(legend)
    legend.set_clip_on(False)
    return legend


def fit_figure(ax: Axes, domain: Domain) -> None:
    """Make a new figure as high as the picture with its bars and legends."""
    figure = figure_of(ax)
    left, right, below = (size / figure.dpi for size in overhang(ax))
    width = figure.get_figwidth()
    height = (width - left - right - _PADDING) * _height_by_width(domain) + below + _PADDING
    figure.set_figheight(min(max(height, width / 10), 2 * width))
