"""Distributions: histograms of regions, and numbers over the steps of a training."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np

from splinecam._util.tolerances import EPS
from splinecam.errors import SplineCamError
from splinecam.plot import figures
from splinecam.plot.arrays import Floats, to_numpy, weighted_quantiles
from splinecam.plot.figures import new_figure, require_matplotlib, written
from splinecam.plot.palette import CLASSES, GREY, INK, background, ink_on, rgb, text_color
from splinecam.questions.comparison import by_name
from splinecam.questions.local_complexity import LocalComplexity
from splinecam.questions.measures import table_columns
from splinecam.questions.partition_data import PartitionData

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DASHES = ("-", "--", "-.", ":")  # they differ in grey print, too
_MOST_WHOLE = 40  # whole numbers that get a bin each
_DECADES = 2.0  # a range of more than so many decades gets a logarithmic axis
_LIGHTER = 0.35  # of the way to white, on dark paper
_PANEL = 3.2, 2.5  # inches
_PATCHES = 2  # of one histogram: area and outline

# Labels of columns whose names say too little.
_LABELS = {
    "slope_spectral": "slope (spectral norm)",
    "slope_frobenius": "slope (Frobenius norm)",
    "slope_spectral_full": "slope in input space (spectral norm)",
    "slope_frobenius_full": "slope in input space (Frobenius norm)",
}


def plot_histograms(
    part: PartitionData | Mapping[str, PartitionData] | Sequence[PartitionData],
    *,
    columns: Sequence[str] = ("area", "eccentricity", "vertices", "slope_frobenius"),
    log: bool | None = None,
    by_area: bool = False,
    bins: int = 48,
    axes: Axes | Sequence[Axes] | None = None,
    label: str | None = None,
) -> Figure:
    """Draw histograms of columns of ``part.table()``, with the median.

    Several partitions, by name or in a list, are drawn over each other, in shares of their regions;
    so is one with a ``label``, which can be added to the ``axes`` of another.

    columns: names of columns. log: whether bins and axis are logarithmic, by default where the
    numbers span more than two decades; a note then counts the regions with a zero, up to rounding.
    by_area: count regions by their areas. bins: their number; whole numbers have a bin each. axes:
    where to draw, one per column, by default on a new figure. label: the name of one partition in
    the legend.

    >>> import torch, splinecam as sc
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 9), torch.nn.ReLU(), torch.nn.Linear(9, 1))
    >>> part = sc.partition(model, sc.Domain.box(-1, 1), progress=False)
    >>> figure = part.plot.histograms(columns=["area", "vertices"])
    >>> half = sc.partition(model, sc.Domain.box(0, 1), progress=False)
    >>> figure = sc.plot.plot_histograms({"whole": part, "quarter": half}, by_area=True)
    """
    require_matplotlib()
    several = by_name({label or "": part} if hasattr(part, "areas") else part)
    names = [columns] if isinstance(columns, str) else list(columns)
    if not several or not names:
        raise ValueError("give at least one partition and one column")
    across = len(names) if len(names) <= 3 else math.ceil(math.sqrt(len(names)))
    panels = figures.panel_axes(axes, len(names), across, _PANEL)
    tables = [_read(each, names) for each in several.values()]
    shares = by_area or any(several)
    areas = [to_numpy(each.areas).clip(min=0) for each in several.values()]
    weights = [each if by_area else np.ones_like(each) for each in areas]
    if shares:
        weights = [100 * each / each.sum() for each in weights]
    before = len(panels[0].patches) // _PATCHES
    for ax, column in zip(panels, names, strict=True):
        bars = _Bins.of(column, [rows[column] for rows in tables], log, bins)
        for k, (name, rows, weight) in enumerate(zip(several, tables, weights, strict=True)):
            _draw(ax, name, before + k, bars, rows[column], weight)
        _describe(ax, bars, by_area=by_area, shares=shares)
    return cast("Figure", figures.shown_once(panels[0].get_figure()))


def _read(part: PartitionData, names: list[str]) -> dict[str, Floats]:
    """The wanted columns of a partition's table, (F,) each."""
    if not hasattr(part, "areas"):
        raise TypeError(f"give partitions, not {type(part).__name__}")
    found = table_columns(part, full=any(name.endswith("_full") for name in names))
    missing = [name for name in names if name not in found]
    if missing:
        raise SplineCamError(
            f"no column {missing[0]!r} in the table of regions; there are: "
            f"{', '.join(found)}, slope_spectral_full, slope_frobenius_full."
        )
    return {name: np.asarray(found[name]) for name in names}


@dataclass(frozen=True)
class _Bins:
    """The bins of a column, between edges (B + 1,); numbers up to ``floor`` are in no bin."""

    column: str
    edges: Floats
    floor: float
    log: bool
    whole: bool

    @classmethod
    def of(cls, column: str, data: list[Floats], log: bool | None, bins: int) -> _Bins:
        """Bins for all the numbers in ``data``."""
        values = np.concatenate(data)
        whole = values.dtype.kind in "iu"
        values = values[np.isfinite(values)].astype(np.float64)
        if operator.index(bins) < 1:
            raise ValueError(f"bins must be at least 1, not {bins}")
        floor = EPS * values.max(initial=0.0) if column.startswith("slope") else 0.0
        positive = values[values > floor]
        if log and (values < 0).any():
            raise ValueError(f"{column!r} has negative numbers, for which log=True is no scale")
        if log is None:
            log = not whole and len(positive) > 0 and not (values < 0).any()
            log = log and bool(positive.max() > 10**_DECADES * positive.min())
        if log and len(positive):
            low, high = positive.min(), positive.max()
            ends = (low, high) if high > low else (low / 2, 2 * low)
            edges = np.geomspace(*ends, (bins if high > low else 1) + 1)
            edges[[0, -1]] = min(edges[0], low), max(edges[-1], high)  # in spite of rounding
            return cls(column, edges, floor, True, whole)
        low, high = (values.min(), values.max()) if len(values) else (0.0, 0.0)
        if whole:  # a bin for each number, or for a few
            step = math.ceil((high - low + 1) / _MOST_WHOLE)
            edges = np.arange(low - 0.5, high + step, step)
        else:
            margin = 0.0 if high > low else 0.5 * abs(low) or 0.5
            edges = np.linspace(low - margin, high + margin, bins + 1)
        return cls(column, edges, -math.inf, False, whole)

    def count(self, values: Floats, weight: Floats) -> tuple[Floats, float]:
        """The weight in each bin, (B,), and outside of all bins."""
        inside = np.isfinite(values) & (values > self.floor)
        heights = np.histogram(values[inside], self.edges, weights=weight[inside])[0]
        return heights, float(weight[~inside].sum())


def _median(values: Floats, weight: Floats) -> float:
    """The number below which half of the weight lies."""
    equal = weight.min() == weight.max()
    return float(weighted_quantiles(values, [0.5], None if equal else weight)[0])


def _draw(ax: Axes, name: str, k: int, bars: _Bins, values: Floats, weight: Floats) -> None:
    """Draw the bars and the median of one partition, and a note of numbers without a bar."""
    lighter = 0.0 if ink_on(background(ax)) == INK else _LIGHTER
    color: Any = 1 - (1 - lighter) * (1 - rgb(CLASSES[k % len(CLASSES)]))
    dash = _DASHES[k % len(_DASHES)]
    heights, aside = bars.count(values, weight)
    middle, ordered = _median(values, weight), bars.column != "class"
    ax.stairs(heights, bars.edges, fill=True, color=color, alpha=0.12 if name else 0.35)
    label = written(f"{name}: {middle:.3g}" if ordered else name) if name else None
    ax.stairs(heights, bars.edges, color=color, linewidth=1.3, linestyle=dash, label=label)
    if ordered and middle > bars.floor:
        ax.axvline(middle, color=color, linewidth=0.9, linestyle=(0, (4, 2)), alpha=0.9)
    if ordered and not name:
        ax.set_title(f"median {middle:.3g}", loc="right", fontsize=8, color=text_color(ax.figure))
    if aside:
        amount = f"{aside:.2g} %" if name else f"{aside:,.0f}"
        note, height = f"at 0: {amount}", 0.93 - 0.09 * len(ax.texts)
        ax.text(0.03, height, written(note), transform=ax.transAxes, fontsize=7, color=color)


def _describe(ax: Axes, bars: _Bins, *, by_area: bool, shares: bool) -> None:
    """Set the scale, the labels and the legend of a panel."""
    from matplotlib.ticker import MaxNLocator

    if bars.log:
        ax.set_xscale("log")
    elif bars.whole:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    counted = "area" if by_area else "regions"
    ax.set_xlabel(_LABELS.get(bars.column, bars.column.replace("_", " ")), fontsize=9)
    ax.set_ylabel(written(f"{counted} (%)" if shares else counted), fontsize=9)
    figures.plain_spines(ax, GREY)
    named = len(ax.get_legend_handles_labels()[0])
    ax.margins(x=0.02, y=0.05 + 0.06 * named)  # the legend needs room
    ax.autoscale()
    ax.set_ylim(bottom=0)
    if named:
        title = "median" if bars.column != "class" else None
        legend = ax.legend(title=title, title_fontsize=7, fontsize=7, alignment="left")
        legend.get_frame().set(edgecolor="none", alpha=0.85)


Band = Literal["mean", "points"]

_CONFIDENCE = 1.96  # standard errors
_MIDDLE = (10, 90)  # percentiles
_LINE_STYLES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))
_SIZE = (5.6, 3.2)  # inches
_UNEVEN = 8.0  # the largest gap between steps, by the median one, for a logarithmic axis
_SPREAD = 20.0  # the largest number, by the least, for a logarithmic axis
_SLOT, _LEVELS, _NARROWEST = 0.84, 200, 0.02  # of distributions: width, outline, least bandwidth


def plot_bands(
    x: Any,
    values: Any,
    *,
    ax: Axes | None = None,
    band: Literal["mean", "points"] = "mean",
    log: bool | None = None,
    xlabel: str = "epoch",
    ylabel: str = "",
) -> Axes:
    """Draw the means of groups of points over the steps of a training, each with a band.

    x: the abscissae (steps,), on a logarithmic axis if they are spaced so. values: numbers (steps,
    points) for each group, by its name, or an array for a single group. A missing number is nan.
    Single numbers (steps,) have no band. band: ``"mean"`` for a 95 % confidence interval of the
    mean (1.96 standard errors), or ``"points"`` for the middle 80 % of the points. log: whether the
    axis of values is logarithmic, by default where the means span more than a decade or so. xlabel,
    ylabel: names of the axes.

    >>> import numpy as np
    >>> regions = {"train": np.random.rand(20, 25), "test": np.random.rand(20, 25)}
    >>> ax = plot_bands(range(20), regions, band="points", ylabel="regions")
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['train (25)', 'test (25)']
    """
    require_matplotlib()
    if band not in get_args(Band):
        raise ValueError(f'band is {band!r}; choose "mean" or "points"')
    canvas, at, groups = _checked(ax, x, values)
    means = []
    for k, (name, numbers) in enumerate(groups.items()):
        there = np.flatnonzero(np.isfinite(numbers).any(1))
        some, color = numbers[there], CLASSES[k % len(CLASSES)]
        means.append(np.nanmean(some, 1))
        if numbers.shape[1] > 1:
            low, high = _band(some, band)
            canvas.fill_between(at[there], low, high, color=color, alpha=0.18, linewidth=0)
        dash, label = _LINE_STYLES[k % len(_LINE_STYLES)], _label(name, numbers)
        canvas.plot(at[there], means[-1], linestyle=dash, color=color, linewidth=1.8, label=label)
    if is_wide(np.concatenate(means)) if log is None else log:
        canvas.set_yscale("log")
    _finish(canvas, groups, xlabel, ylabel)
    style_chart(canvas, at)
    return canvas


def plot_local_complexity(found: LocalComplexity, *, ax: Axes | None = None) -> Axes:
    """Draw by layer how often units switch along a segment, with 99 % intervals.

    Dots are the estimates, and ticks what the ends alone prove.

    found: from ``sc.local_complexity``; ``found.plot()`` calls this. ax: where to draw.

    >>> import torch, splinecam as sc
    >>> net = torch.nn.Sequential(torch.nn.Linear(5, 9), torch.nn.ReLU(), torch.nn.Linear(9, 1))
    >>> found = sc.local_complexity(net, torch.randn(20, 5), 0.3, progress=False)
    >>> found.plot().get_ylabel()
    'switches along a diameter'
    """
    canvas = figures.new_axes() if ax is None else figures.flat_axes(ax)
    means = np.array([found.mean(k) for k in range(len(found.layers))]).reshape(-1, 3)
    least = to_numpy(found.lower.double().mean((0, 1)))
    value, low, high = means.T
    high = np.where(np.isfinite(high), high, value)
    at = np.arange(len(value))
    reach = np.stack([value - low, high - value])
    style: dict[str, Any] = {"capsize": 3, "color": CLASSES[0], "label": "estimate, 99 %"}
    canvas.errorbar(at, value, yerr=reach, fmt="o", markersize=4, **style)
    canvas.plot(at, least, "_", color=CLASSES[1], markersize=12, label="proved by the ends")
    canvas.set_xticks(at, [written(name) for name in found.layers], rotation=45, ha="right")
    canvas.set_ylim(bottom=0)
    canvas.set_ylabel(f"switches along a {'chord' if found.lines.chords else 'diameter'}")
    canvas.legend(frameon=False, fontsize=8)
    figures.plain_spines(canvas, GREY)
    return canvas


def plot_distributions(
    x: Any,
    values: Any,
    *,
    ax: Axes | None = None,
    log: bool | None = None,
    xlabel: str = "epoch",
    ylabel: str = "",
) -> Axes:
    """Draw the density of numbers at each step of a training, as a column.

    A column is as wide as the density at each height; all have the same largest width. A line shows
    the middle half of the numbers, and a point the median.

    x: the numbers (steps,) below the columns. values: numbers (steps, points), or a mapping of such
    arrays by the names of groups, whose columns stand side by side; a missing number is nan. log:
    whether the axis of values is logarithmic, with densities of logarithms, by default where the
    numbers span more than a decade or so. xlabel, ylabel: names of the axes.

    >>> import numpy as np
    >>> ax = plot_distributions([1, 10, 100], np.random.rand(3, 25), ylabel="mean area")
    >>> [text.get_text() for text in ax.get_xticklabels()]
    ['1', '10', '100']
    """
    require_matplotlib()
    canvas, at, groups = _checked(ax, x, values)
    every = np.concatenate([numbers.ravel() for numbers in groups.values()])
    logarithmic = is_wide(every) if log is None else log
    wide = _SLOT / len(groups)
    for k, (name, numbers) in enumerate(groups.items()):
        color, label = CLASSES[k % len(CLASSES)], _label(name, numbers)
        for step, row in enumerate(numbers):
            known = row[np.isfinite(row) & ((row > 0) | (not logarithmic))]
            if len(known):
                middle = step + (k - (len(groups) - 1) / 2) * wide
                _draw_column(canvas, known, middle, 0.46 * wide, color, label, logarithmic)
                label = "_"
    if logarithmic:
        canvas.set_yscale("log")
    canvas.set_xticks(range(len(at)), [f"{each:,g}" for each in at])
    canvas.set_xlim(-0.6, len(at) - 0.4)
    _finish(canvas, groups, xlabel, ylabel)
    _draw_grid(canvas)
    return canvas


def _draw_column(
    ax: Axes, numbers: Floats, middle: float, half: float, color: str, label: str, log: bool
) -> None:
    """Draw the density of numbers (N,) around an abscissa, with quartiles and median."""
    scaled = np.log10(numbers) if log else numbers
    levels, density = _density(scaled)
    height = 10**levels if log else levels
    reach = half * density
    style: Any = {"facecolor": color, "alpha": 0.45, "edgecolor": color, "linewidth": 0.8}
    ax.fill_betweenx(height, middle - reach, middle + reach, label=label, **style)
    low, median, high = np.percentile(numbers, [25, 50, 75])
    ink = text_color(ax.figure)
    ax.vlines(middle, low, high, color=ink, linewidth=1.6)
    point: Any = {"markerfacecolor": "white", "markeredgecolor": ink, "markeredgewidth": 0.8}
    ax.plot([middle], [median], marker="o", markersize=3.2, linestyle="none", **point)


def _density(values: Floats) -> tuple[Floats, Floats]:
    """Levels between the extremes of values (N,), and a smooth density there, at most 1."""
    low, high = values.min(), values.max()
    if not high > low:
        reach = _NARROWEST * (abs(low) or 1.0)
        return np.array([low - reach, low, low + reach]), np.array([0.0, 1.0, 0.0])
    spread = min(values.std(), np.subtract(*np.percentile(values, [75, 25])) / 1.34) or values.std()
    width = max(0.9 * spread * len(values) ** -0.2, _NARROWEST * (high - low))
    levels = np.linspace(low, high, _LEVELS)
    density = np.exp(-(((levels[:, None] - values) / width) ** 2) / 2).sum(1)
    return levels, density / density.max()


def _band(values: Floats, band: Band) -> Any:
    """The lower and the upper ends of the bands for values (steps, points)."""
    if band == "points":
        return np.nanpercentile(values, _MIDDLE, axis=1)
    count = np.isfinite(values).sum(1)
    mean = np.nanmean(values, 1)
    squares = np.nansum((values - mean[:, None]) ** 2, 1)
    error = np.sqrt(squares / np.maximum(count - 1, 1) / count)
    return mean - _CONFIDENCE * error, mean + _CONFIDENCE * error


def _checked(ax: Any, x: Any, values: Any) -> tuple[Axes, Floats, dict[str, Floats]]:
    """The axes, the abscissae, and the numbers (steps, points) of each group, if they fit."""
    at = np.asarray(to_numpy(x) if not isinstance(x, range) else list(x), np.float64)
    given = values if isinstance(values, Mapping) else {"": values}
    if not given or not len(at):
        raise ValueError("there is nothing to draw: no values were given")
    groups: dict[str, Floats] = {}
    for name, numbers in given.items():
        array = np.asarray(to_numpy(numbers), np.float64)
        array = array[:, None] if array.ndim == 1 else array
        if at.ndim != 1 or array.ndim != 2 or len(array) != len(at):
            which = f" of {name!r}" if name else ""
            raise ValueError(
                f"the values{which} have the shape {np.shape(numbers)}, and x has {at.shape}: give "
                "(steps, points) and (steps,)"
            )
        if not np.isfinite(array).any():
            raise ValueError(f"there is nothing to draw: the values of {name!r} have no number")
        groups[str(name)] = array
    if ax is None:
        ax = new_figure(figsize=_SIZE, layout="constrained").add_subplot()
    return figures.flat_axes(ax), at, groups


def _label(name: str, numbers: Floats) -> str:
    """The name of a group with the number of its points, for a legend."""
    last = numbers[np.isfinite(numbers).any(1)][-1]
    return written(f"{name} ({np.isfinite(last).sum()})" if numbers.shape[1] > 1 else name)


def _finish(ax: Axes, groups: Mapping[str, Any], xlabel: str, ylabel: str) -> None:
    """Name the axes, and add a legend above them if the groups have names."""
    ax.set_xlabel(written(xlabel), fontsize=9)
    ax.set_ylabel(written(ylabel), fontsize=9)
    if any(groups):
        space: Any = {"borderpad": 0.2, "handlelength": 2.4, "columnspacing": 1.4}
        look: Any = {"frameon": False, "fontsize": 8.5, "labelcolor": text_color(ax.figure)}
        ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=len(groups), **space, **look)


def style_chart(ax: Axes, at: Floats) -> None:
    """Set the scale of the abscissa for steps (N,), the limits, the grid and the spines."""
    known = np.unique(at[np.isfinite(at)])
    gaps = np.diff(known)
    if len(gaps) >= 4 and gaps.max() >= _UNEVEN * np.median(gaps) and known[0] >= 0:
        if known[0] > 0:
            ax.set_xscale("log")
        else:
            ax.set_xscale("symlog", linthresh=known[known > 0][0], linscale=0.3)
        ax.xaxis.set_major_formatter("{x:,g}")
    ax.margins(x=0.015)
    if ax.get_yscale() == "linear":
        ax.set_ylim(bottom=0)
    _draw_grid(ax)


def _draw_grid(ax: Axes) -> None:
    ax.grid(axis="y", color=GREY, alpha=0.18, linewidth=0.6)
    figures.plain_spines(ax, GREY)


def is_wide(values: Floats) -> bool:
    """Whether numbers are positive and span more than a decade or so."""
    known = values[np.isfinite(values)]
    return len(known) > 1 and bool(known.min() > 0 and known.max() > _SPREAD * known.min())
