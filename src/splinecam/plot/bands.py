"""Numbers over the steps of a training: means with bands, and distributions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from splinecam.plot.arrays import Floats, to_numpy
from splinecam.plot.figures import flat_axes, new_figure, plain_spines, require_matplotlib, written
from splinecam.plot.palette import CLASSES, GREY, text_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["is_wide", "plot_bands", "plot_distributions", "style_chart"]

Band = Literal["mean", "points"]

_CONFIDENCE = 1.96  # standard errors
_MIDDLE = (10, 90)  # percentiles
_DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))  # differ in grey print
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

    x: the abscissae (steps,). values: numbers (steps, points) for each group, by its name; or an
    array for a single group. A missing number is nan. Single numbers (steps,) have no band.
    band: ``"mean"`` for a 95 % confidence interval of the mean (1.96 standard errors), or
    ``"points"`` for the middle 80 % of the points. log: whether the axis of values is logarithmic,
    by default where the means span more than a decade or so. xlabel, ylabel: names of the axes.

    The abscissa is logarithmic where the steps are spaced so.

    >>> import numpy as np
    >>> regions = {"train": np.random.rand(20, 25), "test": np.random.rand(20, 25)}
    >>> ax = plot_bands(range(20), regions, band="points", ylabel="regions")
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['train (25)', 'test (25)']
    """
    require_matplotlib()
    if band not in get_args(Band):
        raise ValueError(f'band is {band!r}; choose "mean" or "points"')
    at, groups = _checked(x, values)
    canvas = _new_axes() if ax is None else flat_axes(ax)
    means = []
    for k, (name, numbers) in enumerate(groups.items()):
        there = np.flatnonzero(np.isfinite(numbers).any(1))
        some, color = numbers[there], CLASSES[k % len(CLASSES)]
        means.append(np.nanmean(some, 1))
        if numbers.shape[1] > 1:
            low, high = _band(some, band)
            canvas.fill_between(at[there], low, high, color=color, alpha=0.18, linewidth=0)
        style: Any = {"linestyle": _DASHES[k % len(_DASHES)], "color": color, "linewidth": 1.8}
        canvas.plot(at[there], means[-1], label=_label(name, numbers), **style)
    if is_wide(np.concatenate(means)) if log is None else log:
        canvas.set_yscale("log")
    _finish(canvas, groups, xlabel, ylabel)
    style_chart(canvas, at)
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
    """Draw the distribution of numbers at each step of a training, as a column of its density.

    Columns stand side by side, as wide as the density at each height, all with the same largest
    width. A line shows the middle half of the numbers, and a point the median.

    x: what stands below the columns, (steps,). values: numbers (steps, points), or a mapping of
    such by the names of groups, which stand side by side; a missing number is nan. log: whether the
    axis of values is logarithmic, and densities are those of logarithms, by default where the
    numbers span more than a decade or so. xlabel, ylabel: names of the axes.

    >>> import numpy as np
    >>> ax = plot_distributions([1, 10, 100], np.random.rand(3, 25), ylabel="mean area")
    >>> [text.get_text() for text in ax.get_xticklabels()]
    ['1', '10', '100']
    """
    require_matplotlib()
    at, groups = _checked(x, values)
    canvas = _new_axes() if ax is None else flat_axes(ax)
    logarithmic = (
        is_wide(np.concatenate([v.ravel() for v in groups.values()])) if log is None else log
    )
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
    spread = min(values.std(), np.subtract(*np.percentile(values, [75, 25])) / 1.34) or values.std()
    if not high > low:
        reach = _NARROWEST * (abs(low) or 1.0)
        return np.array([low - reach, low, low + reach]), np.array([0.0, 1.0, 0.0])
    width = max(0.9 * spread * len(values) ** -0.2, _NARROWEST * (high - low))
    levels = np.linspace(low, high, _LEVELS)
    density = np.exp(-(((levels[:, None] - values) / width) ** 2) / 2).sum(1)
    return levels, density / density.max()


def _band(values: Floats, band: Band) -> tuple[Floats, Floats]:
    """The lower and the upper ends of the bands for values (steps, points)."""
    if band == "points":
        low, high = np.nanpercentile(values, _MIDDLE, axis=1)
        return low, high
    count = np.isfinite(values).sum(1)
    mean = np.nanmean(values, 1)
    squares = np.nansum((values - mean[:, None]) ** 2, 1)
    error = np.sqrt(squares / np.maximum(count - 1, 1) / count)
    return mean - _CONFIDENCE * error, mean + _CONFIDENCE * error


def _checked(x: Any, values: Any) -> tuple[Floats, dict[str, Floats]]:
    """The abscissae, and the numbers (steps, points) of each group; errors if they do not fit."""
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
    return at, groups


def _label(name: str, numbers: Floats) -> str:
    """The name of a group with the number of its points, for a legend."""
    last = numbers[np.isfinite(numbers).any(1)][-1]
    return written(f"{name} ({np.isfinite(last).sum()})" if numbers.shape[1] > 1 else name)


def _new_axes() -> Axes:
    return new_figure(figsize=_SIZE, layout="constrained").add_subplot()


def _finish(ax: Axes, groups: Mapping[str, Any], xlabel: str, ylabel: str) -> None:
    """Add the names of the axes, and a legend above them if the groups have names."""
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
    plain_spines(ax, GREY)


def is_wide(values: Floats) -> bool:
    """Whether numbers are positive and span more than a decade or so."""
    known = values[np.isfinite(values)]
    return len(known) > 1 and bool(known.min() > 0 and known.max() > _SPREAD * known.min())
