"""Histograms of the sizes, shapes and slopes of regions, of one partition or several."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from splinecam._util.tolerances import EPS
from splinecam.analysis.comparison import by_name
from splinecam.analysis.measures import table_columns
from splinecam.analysis.partition_data import PartitionData
from splinecam.errors import SplineCamError
from splinecam.plot.arrays import Floats, to_numpy, weighted_quantiles
from splinecam.plot.figures import (
    given_axes,
    new_figure,
    plain_spines,
    require_matplotlib,
    shown_once,
    written,
)
from splinecam.plot.palette import CLASSES, GREY, INK, background, ink_on, rgb, text_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_histograms"]

_DASHES = ("-", "--", "-.", ":")  # which differ in grey print, too
_MOST_WHOLE = 40  # whole numbers that get a bin each
_DECADES = 2.0  # a range of more than so many decades gets a logarithmic axis
_LIGHTER = 0.35  # of the way to white, on dark paper
_PANEL = 3.2, 2.5  # inches
_PATCHES = 2  # that a histogram is drawn with: area and outline

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
    """Draw a histogram of each of some columns of ``part.table()``, with the median.

    Several partitions, by name or in a list, are drawn over each other, in shares of their regions;
    so is one with a ``label``, which can be added to the ``axes`` of another.

    columns: names of columns. log: whether bins and axis are logarithmic, by default where the
    numbers span more than two decades; regions with a zero, up to rounding, are then counted in a
    note. by_area: regions count by their areas. bins: how many; whole numbers have a bin each.
    axes: where to draw, one per column, by default on a new figure. label: what one partition is
    called in the legend.

    >>> import torch, splinecam as sc
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 9), torch.nn.ReLU(), torch.nn.Linear(9, 1))
    >>> part = sc.partition(model, sc.Domain.box(-1, 1), progress=False)
    >>> figure = part.plot_histograms(columns=["area", "vertices"])
    >>> half = sc.partition(model, sc.Domain.box(0, 1), progress=False)
    >>> figure = sc.plot.plot_histograms({"whole": part, "quarter": half}, by_area=True)
    """
    require_matplotlib()
    several = by_name({label or "": part} if hasattr(part, "areas") else part)
    names = [columns] if isinstance(columns, str) else list(columns)
    if not several or not names:
        raise ValueError("give at least one partition and one column")
    panels = _panels(axes, len(names))
    tables = [_read(each, names) for each in several.values()]
    shares = by_area or any(several)
    weights = [_weights(each, by_area=by_area, shares=shares) for each in several.values()]
    before = len(panels[0].patches) // _PATCHES
    for ax, column in zip(panels, names, strict=True):
        bars = _Bins.of(column, [rows[column] for rows in tables], log, bins)
        for k, (name, rows, weight) in enumerate(zip(several, tables, weights, strict=True)):
            _draw(ax, name, before + k, bars, rows[column], weight)
        _describe(ax, bars, by_area=by_area, shares=shares)
    return cast("Figure", shown_once(panels[0].get_figure()))


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


def _weights(part: PartitionData, *, by_area: bool, shares: bool) -> Floats:
    """The weight of each region, (F,): 1, its area, or its share in percent."""
    areas: Floats = to_numpy(part.areas).clip(min=0)
    weight = areas if by_area else np.ones_like(areas)
    return 100 * weight / weight.sum() if shares else weight


@dataclass(frozen=True)
class _Bins:
    """edges: (B + 1,) of the bins of a column; numbers not above ``floor`` are in none of them."""

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
            return cls(column, _log_edges(positive, bins), floor, True, whole)
        low, high = (values.min(), values.max()) if len(values) else (0.0, 0.0)
        if whole:  # a bin for each number, or for a few
            step = math.ceil((high - low + 1) / _MOST_WHOLE)
            edges = np.arange(low - 0.5, high + step, step)
        else:
            margin = 0.0 if high > low else 0.5 * abs(low) or 0.5
            edges = np.linspace(low - margin, high + margin, bins + 1)
        return cls(column, edges, -math.inf, False, whole)

    def count(self, values: Floats, weight: Floats) -> tuple[Floats, float]:
        """The weight in each bin, (B,), and outside of all."""
        inside = np.isfinite(values) & (values > self.floor)
        heights = np.histogram(values[inside], self.edges, weights=weight[inside])[0]
        return heights, float(weight[~inside].sum())


def _log_edges(values: Floats, bins: int) -> Floats:
    low, high = values.min(), values.max()
    edges = np.geomspace(low, high, bins + 1) if high > low else np.array([low / 2, 2 * low])
    edges[[0, -1]] = min(edges[0], low), max(edges[-1], high)  # in spite of rounding
    return edges


def _median(values: Floats, weight: Floats) -> float:
    """The number below which half of the weight lies."""
    if weight.min() == weight.max():
        return float(np.median(values))
    return float(weighted_quantiles(values, [0.5], weight)[0])


def _panels(axes: Axes | Sequence[Axes] | None, count: int) -> list[Axes]:
    """The given axes, or those of a new figure."""
    if axes is not None:
        return given_axes(axes, count)
    across = count if count <= 3 else math.ceil(math.sqrt(count))
    down = math.ceil(count / across)
    size = across * _PANEL[0], down * _PANEL[1]
    figure = new_figure(figsize=size, layout="constrained")
    return [figure.add_subplot(down, across, k + 1) for k in range(count)]


def _draw(ax: Axes, name: str, k: int, bars: _Bins, values: Floats, weight: Floats) -> None:
    """Draw the bars and the median of one partition, and a note of what has no bar."""
    lighter = 0.0 if ink_on(background(ax)) == INK else _LIGHTER
    color: Any = 1 - (1 - lighter) * (1 - rgb(CLASSES[k % len(CLASSES)]))
    dash = _DASHES[k % len(_DASHES)]
    heights, aside = bars.count(values, weight)
    middle, ordered = _median(values, weight), bars.column != "class"
    ax.stairs(heights, bars.edges, fill=True, color=color, alpha=0.12 if name else 0.35)
    text = (f"{name}: {middle:.3g}" if ordered else name) if name else None
    ax.stairs(
        heights,
        bars.edges,
        color=color,
        linewidth=1.3,
        linestyle=dash,
        label=text and written(text),
    )
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
    plain_spines(ax, GREY)
    named = len(ax.get_legend_handles_labels()[0])
    ax.margins(x=0.02, y=0.05 + 0.06 * named)  # the legend needs room
    ax.autoscale()
    ax.set_ylim(bottom=0)
    if named:
        title = "median" if bars.column != "class" else None
        legend = ax.legend(title=title, title_fontsize=7, fontsize=7, alignment="left")
        legend.get_frame().set(edgecolor="none", alpha=0.85)
