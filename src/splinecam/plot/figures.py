"""Figures and axes to draw on, and the layout of colour bars and legends beside them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.legend import Legend
from matplotlib.transforms import Bbox

from splinecam._util.text import harmless, latex_text, optional
from splinecam.geometry.domain import Domain
from splinecam.plot.lines import figure_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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


# What many fonts, among them cmr10, lack: mathtext and LaTeX draw it by fonts of their own.
_MATH = re.compile(r"‖A‖|x([₀-₉]+)|(?:(\d)×)?10([⁻⁰¹²³⁴-⁹]+)|[≤<>|]")
_SIGNS = {"‖A‖": r"\|A\|", "≤": r"\leq"}
_DIGITS = str.maketrans("₀₁₂₃₄₅₆₇₈₉⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789-0123456789")


def written(text: str) -> str:
    r"""Text for matplotlib that looks the same in any font, and with LaTeX (``text.usetex``).

    Signs and indices become formulas, and what LaTeX would interpret is escaped. Text with a
    formula of the user's own stays as it is, if matplotlib can read it.

    >>> written("slope ‖A‖"), written("x₁₂"), written("2×10⁻⁶"), written("a_1")
    ('slope $\\|A\\|$', '$x_{12}$', '$2\\times10^{-6}$', 'a_1')
    """
    import matplotlib

    text = harmless(text)
    if text.count("$") > 1 and _has_formula(text):
        return text
    latex, done, parts = matplotlib.rcParams["text.usetex"], 0, []
    for found in _MATH.finditer(text):
        index, factor, power = found.groups()
        formula = _SIGNS.get(found[0], found[0])
        if index:
            formula = f"x_{{{index.translate(_DIGITS)}}}"
        elif power:
            start = rf"{factor}\times" if factor else ""
            formula = f"{start}10^{{{power.translate(_DIGITS)}}}"
        parts += [text[done : found.start()], f"${formula}$"]
        done = found.end()
    parts.append(text[done:])
    parts[::2] = [latex_text(x) if latex else x.replace("$", r"\$") for x in parts[::2]]
    return "".join(parts)


def _has_formula(text: str) -> bool:
    """Whether a text with dollars is one that matplotlib can draw."""
    from matplotlib.mathtext import MathTextParser

    try:
        MathTextParser("path").parse(text)
    except ValueError:
        return False
    return True


def require_matplotlib() -> None:
    """Raise an error that says what to install when matplotlib is missing."""
    optional("matplotlib", "Plotting", "plot")


def new_figure(**options: Any) -> Figure:
    """A figure of pyplot, with the options of ``pyplot.figure``, that a notebook shows once."""
    import matplotlib.pyplot as plt

    figure: Figure = shown_once(plt.figure(**options))
    return figure


def shown_once(figure: Any) -> Any:
    """The same figure, which a notebook that shows it as a value does not show again.

    >>> import matplotlib.pyplot as plt
    >>> figure = shown_once(plt.figure())
    >>> plt.close(figure)
    """
    from matplotlib.figure import Figure

    if isinstance(figure, Figure):  # parts of figures do not show themselves
        display: Any = figure
        display._ipython_display_ = partial(_display, figure)
    return figure


def _display(figure: Figure) -> None:
    """Close a figure that is about to be shown, so that pyplot does not show it after the cell.

    The error makes IPython show the figure in the formats that the user has chosen.
    """
    import matplotlib
    import matplotlib.pyplot as plt

    if "inline" in matplotlib.get_backend().lower():
        plt.close(figure)
    raise NotImplementedError


def new_axes(domain: Domain | None = None, *, width: float = 6.0) -> Axes:
    """Axes on a new figure, so many inches wide and as high as the domain requires.

    The layout makes room for labels, colour bars and legends, so that none is cut off.
    """
    require_matplotlib()
    aspect = 1.0
    if domain is not None:
        extent = domain.corners.amax(0) - domain.corners.amin(0)
        aspect = float(extent[1] / extent[0])
    height = min(max(aspect * width, width / 4), 2 * width)
    return new_figure(figsize=(width, height), layout="compressed").add_subplot()


def flat_axes(ax: Any) -> Axes:
    """The given axes, if they are two-dimensional; otherwise a ``TypeError`` is raised."""
    require_matplotlib()
    from matplotlib.axes import Axes

    if isinstance(ax, Axes) and ax.name == "rectilinear":
        return ax
    what = f"{ax.name} axes" if isinstance(ax, Axes) else type(ax).__name__
    several = isinstance(ax, np.ndarray | list)
    hint = "; of several axes give one, such as axes[0]" if several else ""
    raise TypeError(f"ax must be plain 2-D axes, as plt.subplots() gives them, not {what}{hint}")


def axes_in_space(ax: Any) -> None:
    """Raise a ``TypeError`` for axes that are not in space; None stands for new ones."""
    if ax is not None and not hasattr(ax, "view_init"):
        raise TypeError(
            'ax must be axes in space: plt.figure().add_subplot(projection="3d"), not '
            f"{type(ax).__name__}"
        )


def given_axes(axes: Any, count: int) -> list[Axes]:
    """The given axes as a list; an error unless there is one for each of ``count`` panels."""
    given: list[Axes] = list(np.atleast_1d(np.asarray(axes, dtype=object)).ravel())
    if len(given) != count:
        raise ValueError(f"{len(given)} axes were given, but {count} panels are drawn")
    return given


def plain_spines(ax: Axes, color: str) -> None:
    """Draw the left and the lower axis only, in one colour, below what is drawn on the axes."""
    ax.tick_params(labelsize=8, color=color, which="both")
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(color)


def is_input_plane(domain: Domain) -> bool:
    """Whether the coordinates in the plane are the inputs themselves."""
    return domain.dim == 2 and not domain.origin.any() and bool(domain.basis.diagonal().eq(1).all())


def sliced_features(domain: Domain) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The indices of the two features that are the coordinates in the plane, or None."""
    if not bool((domain.basis == 1).any(1).all()):
        return None
    axes = domain.basis.argmax(1)
    if bool(domain.origin[axes].any()) or int(domain.basis.count_nonzero()) != 2:
        return None
    first, second = (np.unravel_index(axis, domain.input_shape) for axis in axes.tolist())
    return tuple(map(int, first)), tuple(map(int, second))
