"""Figures of statistics around samples: distributions per epoch, bands over epochs, densities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from splinecam.plot.arrays import Floats
from splinecam.plot.figures import new_figure, plain_spines
from splinecam.plot.histograms import plot_bands, plot_distributions
from splinecam.plot.palette import CLASSES, GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Values = Mapping[str, Tensor]  # by group, (epochs, samples)

_NARROWEST = 0.03  # decades: the least bandwidth of a density
_WORDS = {"ARV": "average region volume (ARV)", "NR": "number of regions (NR)"}
_WORDS["ARE"] = "average region eccentricity (ARE)"


def draw_distributions(
    found: Mapping[str, Values], epochs: Sequence[int], name: str, groups: Sequence[str]
) -> Figure:
    """The distributions of a statistic after each epoch: a row per network, a column per group.

    found: by network; name: of the statistic.
    """
    figure, axes = _grid(len(found), len(groups), (4.2, 2.0), sharex=True, sharey=True)
    for row, (network, values) in zip(axes, found.items(), strict=True):
        for ax, group in zip(row, groups, strict=True):
            plot_distributions(epochs, values[group].numpy(), ax=ax, log=True, xlabel="")
            ax.set_title(f"{network}, {group} ({values[group].shape[1]})", fontsize=9, loc="left")
        row[0].set_ylabel(name, fontsize=9)
    for ax in axes[-1]:
        ax.set_xlabel("epoch", fontsize=9)
    return figure


def draw_bands(found: Mapping[str, Values], epochs: Sequence[int], name: str) -> Figure:
    """The mean of a statistic over epochs by group, with the middle 80 %: a panel per network."""
    figure, axes = _grid(1, len(found), (2.5, 3.2), sharey=True)
    for ax, (network, values) in zip(axes[0], found.items(), strict=True):
        numbers = {group: x.numpy() for group, x in values.items()}
        plot_bands(epochs, numbers, ax=ax, band="points", log=True)
        _remove_legend(ax)
        ax.set_title(network, fontsize=9, loc="left")
    axes[0][0].set_ylabel(_WORDS[name], fontsize=9)
    _one_legend(figure, axes[0][0])
    return figure


def draw_densities(found: Mapping[str, Mapping[str, Mapping[str, Tensor]]]) -> Figure:
    """Densities of statistics: a row per network, a column per statistic, a curve per training.

    A dashed line is the geometric mean. found: by network, name of the statistic and training,
    (samples,).
    """
    names = list(next(iter(found.values())))
    figure, axes = _grid(len(found), len(names), (3.0, 2.1), sharex="col")
    for column, name in enumerate(names):
        pooled = [np.log10(x.numpy()) for values in found.values() for x in values[name].values()]
        at = _range(np.concatenate(pooled))
        for row, (network, values) in zip(axes, found.items(), strict=True):
            ax = row[column]
            for color, (training, x) in zip(CLASSES, values[name].items(), strict=False):
                logs = np.log10(x.numpy())
                density = _density(logs, at)
                ax.fill_between(10**at, 0, density, color=color, alpha=0.3, linewidth=0)
                ax.plot(10**at, density, color=color, linewidth=1.3, label=training)
                ax.axvline(10 ** logs.mean(), color=color, linewidth=0.9, linestyle=(0, (4, 2)))
            ax.set_xscale("log")
            ax.set_ylim(bottom=0)
            ax.set_yticks([])
            ax.set_title(network, fontsize=9, loc="left")
            row[0].set_ylabel("density", fontsize=9)
        axes[-1][column].set_xlabel(_WORDS[name], fontsize=9)
    _one_legend(figure, axes[0][0])
    return figure


def _grid(
    down: int, across: int, panel: tuple[float, float], **share: Any
) -> tuple[Figure, list[list[Axes]]]:
    """A figure with rows of axes."""
    size = across * panel[0], down * panel[1] + 0.3
    figure = new_figure(figsize=size, layout="constrained")
    axes: Any = figure.subplots(down, across, squeeze=False, **share)
    for ax in axes.flat:
        plain_spines(ax, GREY)
    return figure, axes.tolist()


def _remove_legend(ax: Axes) -> None:
    legend = ax.get_legend()
    if legend is not None:
        legend.remove()


def _one_legend(figure: Figure, ax: Axes) -> None:
    """Add the legend of one of the panels below all of them."""
    curves, names = ax.get_legend_handles_labels()
    place: Any = {"loc": "outside lower center", "ncols": len(names)}
    figure.legend(curves, names, frameon=False, fontsize=9, **place)


def _range(logs: Floats) -> Floats:
    """Where a density is drawn."""
    margin = 0.1 * (logs.max() - logs.min()) + 3 * _NARROWEST
    return np.linspace(logs.min() - margin, logs.max() + margin, 300)


def _density(x: Floats, at: Floats) -> Floats:
    """The density of numbers (N,) at other numbers, by Gaussian kernels of Scott's bandwidth."""
    wide = max(float(x.std()) * len(x) ** -0.2, _NARROWEST)
    kernels = np.exp(-0.5 * ((at[:, None] - x) / wide) ** 2)
    found: Floats = kernels.mean(1) / (wide * np.sqrt(2 * np.pi))
    return found
