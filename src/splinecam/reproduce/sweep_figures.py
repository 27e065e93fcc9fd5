"""Figures of statistics around samples: distributions per epoch, bands over epochs, densities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from splinecam.plot.arrays import Floats
from splinecam.plot.figures import new_figure, plain_spines
from splinecam.plot.palette import CLASSES, GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_bands", "draw_densities", "draw_ridges"]

Values = Mapping[str, Tensor]  # by group, (epochs, samples)

_NARROWEST = 0.03  # decades: the least bandwidth of a density
_SHARP = 0.7  # of the bandwidth of Scott, which hides two modes
_OVERLAP = 1.6  # the height of the highest ridge, in distances of two ridges
_MIDDLE = (0.1, 0.9)  # quantiles of a band
_WORDS = {"ARV": "average region volume (ARV)", "NR": "number of regions (NR)"}
_WORDS["ARE"] = "average region eccentricity (ARE)"


def draw_ridges(
    found: Mapping[str, Values], epochs: Sequence[int], name: str, groups: Sequence[str]
) -> Figure:
    """The density of a statistic after each epoch: a row per network, a column per group.

    found: by network; name: of the statistic.
    """
    figure, axes = _grid(len(found), len(groups), (3.6, 1.7))
    every = [values[group].numpy() for values in found.values() for group in groups]
    low, high = _log_range(every)
    at = np.linspace(low, high, 300)
    from matplotlib import colormaps

    colors = colormaps["viridis"](np.linspace(0.0, 0.9, len(epochs)))
    for row, (network, values) in zip(axes, found.items(), strict=True):
        for ax, group in zip(row, groups, strict=True):
            densities = [_density(np.log10(x), at) for x in values[group].numpy()]
            scale = _OVERLAP / max(density.max() for density in densities)
            for k in range(len(epochs)):
                base, top = float(-k), -k + scale * densities[k]
                ax.fill_between(10**at, base, top, color=colors[k], alpha=0.85, linewidth=0)
                ax.plot(10**at, top, color="white", linewidth=0.6)
            ax.set_xscale("log")
            ax.set_ylim(-len(epochs) + 0.8, _OVERLAP + 0.1)
            ax.set_yticks([-k for k in range(len(epochs))], [str(epoch) for epoch in epochs])
            ax.tick_params(axis="y", labelsize=6, length=0)
            ax.set_title(f"{network}, {group}", fontsize=9, loc="left")
    _label(axes, _WORDS[name], "epoch")
    return figure


def draw_bands(found: Mapping[str, Values], epochs: Sequence[int], name: str) -> Figure:
    """The mean of a statistic over epochs by group, with the middle 80 %: a panel per network."""
    figure, axes = _grid(1, len(found), (2.7, 2.9), share=True)
    for ax, (network, values) in zip(axes[0], found.items(), strict=True):
        for k, (group, x) in enumerate(values.items()):
            rows = x.numpy()
            low, high = np.quantile(rows, _MIDDLE, axis=1)
            ax.fill_between(epochs, low, high, color=CLASSES[k], alpha=0.15, linewidth=0)
            ax.plot(epochs, rows.mean(1), color=CLASSES[k], linewidth=1.5, label=group)
        ax.set_xscale("symlog", linthresh=1)
        ticks = [epoch for epoch in (0, 1, 10, 100) if epoch <= epochs[-1]]
        ax.set_xticks(ticks, [str(epoch) for epoch in ticks])
        ax.set_xlim(0, epochs[-1])
        ax.minorticks_off()
        ax.set_yscale("log")
        ax.set_title(network, fontsize=9, loc="left")
    _label(axes, "epoch", _WORDS[name])
    axes[0][-1].legend(frameon=False, fontsize=8)
    return figure


def draw_densities(found: Mapping[str, Mapping[str, Mapping[str, Tensor]]]) -> Figure:
    """Densities of statistics: a row per network, a column per statistic, a curve per training.

    found: by network, name of the statistic and training, (samples,).
    """
    names = list(next(iter(found.values())))
    figure, axes = _grid(len(found), len(names), (3.0, 2.1))
    for column, name in enumerate(names):
        pooled = [x.numpy() for values in found.values() for x in values[name].values()]
        at = np.linspace(*_log_range(pooled), 300)
        for row, (network, values) in zip(axes, found.items(), strict=True):
            ax = row[column]
            for k, (training, x) in enumerate(values[name].items()):
                density = _density(np.log10(x.numpy()), at)
                ax.fill_between(10**at, 0, density, color=CLASSES[k], alpha=0.3, linewidth=0)
                ax.plot(10**at, density, color=CLASSES[k], linewidth=1.3, label=training)
                middle = float(10 ** np.log10(x.numpy()).mean())
                ax.axvline(middle, color=CLASSES[k], linewidth=0.9, linestyle=(0, (4, 2)))
            ax.set_xscale("log")
            ax.set_ylim(bottom=0)
            ax.set_yticks([])
            ax.set_title(network, fontsize=9, loc="left")
            row[0].set_ylabel("density", fontsize=9)
        axes[-1][column].set_xlabel(_WORDS[name], fontsize=9)
    axes[0][-1].legend(frameon=False, fontsize=8)
    return figure


def _grid(
    down: int, across: int, panel: tuple[float, float], *, share: bool = False
) -> tuple[Figure, list[list[Axes]]]:
    """A figure with rows of axes, in the style of the others."""
    size = across * panel[0], max(down * panel[1], 2.0)
    figure = new_figure(figsize=size, layout="constrained")
    axes: Any = figure.subplots(
        down, across, squeeze=False, sharey=share, sharex=False if share else "col"
    )
    for ax in axes.flat:
        plain_spines(ax, GREY)
    return figure, axes.tolist()


def _label(axes: list[list[Axes]], x: str, y: str) -> None:
    for ax in axes[-1]:
        ax.set_xlabel(x, fontsize=9)
    for row in axes:
        row[0].set_ylabel(y, fontsize=9)


def _log_range(values: Sequence[Floats]) -> tuple[float, float]:
    """Where densities of the values are drawn, in decades."""
    logs = np.log10(np.concatenate([x.ravel() for x in values]))
    margin = 0.1 * (logs.max() - logs.min()) + 3 * _NARROWEST
    return float(logs.min() - margin), float(logs.max() + margin)


def _density(x: Floats, at: Floats) -> Floats:
    """The density of numbers (N,) at other numbers, by Gaussian kernels."""
    wide = max(float(x.std()) * len(x) ** -0.2 * _SHARP, _NARROWEST)
    kernels = np.exp(-0.5 * ((at[:, None] - x) / wide) ** 2)
    found: Floats = kernels.mean(1) / (wide * np.sqrt(2 * np.pi))
    return found
