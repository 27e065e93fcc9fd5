"""The result of a grid: numbers of each domain for each checkpoint, as tables and a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from splinecam._util.optional import pandas_if_installed
from splinecam._util.text_table import TextTable
from splinecam.grids.checkpoints import Label
from splinecam.plot.bands import plot_bands
from splinecam.plot.figures import given_axes, new_figure, written

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Grid", "Rows"]

Rows = Sequence[Mapping[str, float]]

_WORDS = {
    "NR": "regions (NR)",
    "ARV": "mean area (ARV)",
    "ANV": "mean vertices (ANV)",
    "ARE": "mean eccentricity (ARE)",
    "density": "regions per area",
}
_WIDE, _HIGH, _ACROSS = 3.6, 2.5, 2  # of a panel, in inches; panels side by side


@dataclass(frozen=True, eq=False, repr=False)
class Grid:
    """Numbers of D domains for each of C checkpoints; made by ``sc.grid`` and ``sc.open_grid``.

    checkpoints: their labels, in order, (C,); groups: the number of domains of each group, in
    order; numbers: by name, (C, D) each, in which the domains are group after group, and nan where
    there is no number; folder: the store, if there is one.
    """

    checkpoints: tuple[Label, ...]
    groups: Mapping[str, int]
    numbers: Mapping[str, NDArray[Any]]
    folder: Path | None = None

    @classmethod
    def of(
        cls, rows: Mapping[Label, Rows], groups: Mapping[str, int], folder: Path | None = None
    ) -> Grid:
        """From the numbers of each domain for each checkpoint."""
        every = [row for some in rows.values() for row in some]
        shape = len(rows), sum(groups.values())
        numbers = {
            name: np.array([row.get(name, np.nan) for row in every]).reshape(shape)
            for name in dict.fromkeys(name for row in every for name in row)
        }
        return cls(tuple(rows), groups, numbers, folder)

    @property
    def statistics(self) -> tuple[str, ...]:
        """The names of the numbers."""
        return tuple(self.numbers)

    def values(self, statistic: str, group: str | None = None) -> NDArray[Any]:
        """One of the numbers for each checkpoint and each domain, or those of a group, (C, D)."""
        found = self.numbers[self._known(statistic)]
        if group is None:
            return found
        if group not in self.groups:
            raise ValueError(f"there is no group {group!r}; there are {', '.join(self.groups)}")
        return found[:, self._slices()[group]]

    def table(self) -> Any:
        """One row per checkpoint and domain: a pandas DataFrame, or without pandas a dict of lists.

        Columns: ``checkpoint``, ``group``, ``domain`` (the number within its group), and the
        statistics.
        """
        count, names = len(self.checkpoints), list(self.groups)
        sizes = [self.groups[name] for name in names]
        columns: dict[str, Any] = {
            "checkpoint": [label for label in self.checkpoints for _ in range(sum(sizes))],
            "group": np.repeat(names, sizes).tolist() * count,
            "domain": [k for size in sizes for k in range(size)] * count,
        }
        return _frame(columns | {k: v.reshape(-1) for k, v in self.numbers.items()})

    def summary(self) -> Any:
        """The mean and the standard deviation of every statistic, by checkpoint and group.

        A pandas DataFrame, or without pandas a dict of lists, with the columns ``checkpoint``,
        ``group``, ``domains`` (how many), and ``NR_mean``, ``NR_std``, ... The standard deviation
        is that of a sample, with D - 1 in the denominator; it is nan for a single domain.
        """
        places = [(label, group) for label in self.checkpoints for group in self.groups]
        columns: dict[str, Any] = {
            "checkpoint": [label for label, _ in places],
            "group": [group for _, group in places],
            "domains": [self.groups[group] for _, group in places],
        }
        for name in self.numbers:
            means, deviations = zip(*self._moments(name), strict=True)
            columns[f"{name}_mean"], columns[f"{name}_std"] = list(means), list(deviations)
        return _frame(columns)

    def to_markdown(self, statistics: Sequence[str] | None = None) -> str:
        """The table of papers in Markdown: mean and standard deviation by checkpoint and group.

        statistics: those that get a column, by default all.
        """
        return self._text(statistics).markdown()

    def to_latex(self, statistics: Sequence[str] | None = None) -> str:
        """The same as ``to_markdown`` as a ``tabular``, with the rules of the package booktabs.

        statistics: those that get a column, by default all.
        """
        return self._text(statistics).latex().replace("±", r"$\pm$")

    def plot(
        self,
        statistics: str | Sequence[str] | None = None,
        *,
        band: Literal["mean", "points"] = "mean",
        log: bool | None = None,
        xlabel: str = "epoch",
        axes: Sequence[Axes] | None = None,
    ) -> Figure:
        """Draw statistics over the checkpoints: the mean of each group of domains with a band.

        statistics: those that get a panel each, by default all. band: ``"mean"`` for a 95 %
        confidence interval of the mean, or ``"points"`` for the middle 80 % of the domains. log:
        whether the axes of values are logarithmic, by default where the means span more than a
        decade or so. xlabel: what the checkpoints are. axes: one for each panel, instead of a new
        figure.
        """
        wanted = [statistics] if isinstance(statistics, str) else list(statistics or self.numbers)
        if not wanted or not self.checkpoints:
            raise ValueError("there is nothing to draw: the grid is empty")
        numeric = all(isinstance(label, int | float) for label in self.checkpoints)
        at = self.checkpoints if numeric else range(len(self.checkpoints))
        panels = _panels(len(wanted)) if axes is None else given_axes(axes, len(wanted))
        options: Any = {"band": band, "log": log, "xlabel": xlabel}
        for ax, name in zip(panels, wanted, strict=True):
            words = _WORDS.get(name, written(name.replace("_", " ")))
            groups = {group: self.values(name, group) for group in self.groups}
            shown = groups if list(groups) != [""] else groups[""]
            plot_bands(np.array(at, np.float64), shown, ax=ax, ylabel=words, **options)
            if not numeric:
                ax.set_xticks(list(at), [written(str(label)) for label in self.checkpoints])
        figure: Any = panels[0].get_figure()
        return figure  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        count, domains = len(self.checkpoints), sum(self.groups.values())
        groups = "" if list(self.groups) == [""] else f" in {len(self.groups)} groups"
        kept = f", in {self.folder}" if self.folder else ""
        size = f"{count} checkpoint{'s' * (count != 1)} x {domains} domain{'s' * (domains != 1)}"
        return f"Grid({size}{groups}: {', '.join(self.numbers)}{kept})"

    def _repr_html_(self) -> str:
        return self._text(None).html()

    def _known(self, statistic: str) -> str:
        if statistic not in self.numbers:
            known = ", ".join(self.numbers)
            raise ValueError(f"the grid has no statistic {statistic!r}; there are {known}")
        return statistic

    def _slices(self) -> dict[str, slice]:
        """The places of each group among the domains."""
        ends = np.cumsum(list(self.groups.values())).tolist()
        sizes = self.groups.items()
        return {name: slice(end - n, end) for (name, n), end in zip(sizes, ends, strict=True)}

    def _moments(self, name: str) -> Iterator[tuple[float, float]]:
        """The mean and the standard deviation, checkpoint by checkpoint and group by group."""
        for row in self.numbers[name]:
            for places in self._slices().values():
                some = row[places]
                known = some[~np.isnan(some)].astype(np.float64)
                mean = float(known.mean()) if len(known) else np.nan
                yield mean, float(known.std(ddof=1)) if len(known) > 1 else np.nan

    def _text(self, statistics: Sequence[str] | None) -> TextTable:
        names = [statistics] if isinstance(statistics, str) else list(statistics or self.numbers)
        columns = [list(self._moments(self._known(name))) for name in names]
        labels = [
            f"{label} {group}".rstrip() for label in self.checkpoints for group in self.groups
        ]
        rows = [
            (label, [_plus_minus(*column[k]) for column in columns])
            for k, label in enumerate(labels)
        ]
        return TextTable("", tuple(names), rows)


def _plus_minus(mean: float, deviation: float) -> str:
    """A mean with its standard deviation, as text.

    >>> _plus_minus(12.345, 0.678), _plus_minus(43.9, 210.5)
    ('12.35 ± 0.68', '43.9 ± 210')
    """
    spread = f"{deviation:.2g}"
    if 100 <= deviation < 1e6:
        spread = f"{float(spread):.0f}"
    return f"{mean:.4g}" + ("" if np.isnan(deviation) else f" ± {spread}")


def _panels(count: int) -> list[Axes]:
    """The axes of a new figure, two side by side."""
    across = min(count, _ACROSS)
    down = -(-count // across)
    figure = new_figure(figsize=(_WIDE * across, _HIGH * down), layout="constrained")
    return [figure.add_subplot(down, across, k + 1) for k in range(count)]


def _frame(columns: Mapping[str, Any]) -> Any:
    """A pandas DataFrame, or without pandas a dict of lists."""
    pandas = pandas_if_installed()
    if pandas is None:
        return {name: list(column) for name, column in columns.items()}
    return pandas.DataFrame(columns)
