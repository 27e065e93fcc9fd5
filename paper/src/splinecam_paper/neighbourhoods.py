"""Squares in random planes around samples: the statistics of their regions while networks train."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from splinecam import Domain, Partition, sweep
from splinecam.plot.arrays import Floats
from splinecam.plot.figures import new_figure, plain_spines
from splinecam.plot.histograms import plot_bands, plot_distributions
from splinecam.plot.palette import CLASSES, GREY
from splinecam.questions.measures import shapes
from splinecam_paper.experiment import Setup
from splinecam_paper.training import Augment, Training, accuracy, fit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# -- squares around samples -----------------------------------------------------------------------


Measured = dict[str, dict[str, Tensor]]


@dataclass(frozen=True)
class Squares:
    """Squares around the samples of several groups, such as training and test samples.

    groups: the squares of each group, by name; area: of one square.
    """

    groups: Mapping[str, Sequence[Domain]]
    area: float

    @classmethod
    def around(cls, samples: Mapping[str, Tensor], area: float, *, seed: int = 0) -> Squares:
        """A square around each sample (N, ...) of each group, in a random plane of its own.

        >>> squares = Squares.around({"train": torch.rand(3, 1, 4, 4)}, 0.25)
        >>> [round(square.area, 6) for square in squares.groups["train"]]
        [0.25, 0.25, 0.25]
        """
        groups, first = {}, 10_000 * seed
        for name, x in samples.items():
            groups[name] = [
                Domain.around(point, side=area**0.5, seed=first + k) for k, point in enumerate(x)
            ]
            first += len(x)
        return cls(groups, area)

    def resized(self, area: float) -> Squares:
        """Squares of another area around the same samples in the same planes."""
        factor = (area / self.area) ** 0.5
        groups = {
            name: [replace(square, corners=factor * square.corners) for square in group]
            for name, group in self.groups.items()
        }
        return Squares(groups, area)

    def measure(self, model: nn.Module, *, device: str = "auto") -> Measured:
        """The statistics of the squares, by group and name of the statistic, (N,) each."""
        every = [square for group in self.groups.values() for square in group]
        found = sweep(model, every, stream=True, device=device, progress=False)
        rows = torch.tensor(
            [list(statistics(part).values()) for part in found], dtype=torch.float64
        )
        measured, start = {}, 0
        for name, group in self.groups.items():
            columns = rows[start : start + len(group)].unbind(1)
            measured[name] = dict(zip(STATISTICS, columns, strict=True))
            start += len(group)
        return measured


STATISTICS = ("NR", "ARV", "ARE", "std")


def statistics(part: Partition) -> dict[str, float]:
    """The number of regions, the averages of area and eccentricity, and the areas' deviation."""
    numbers = torch.stack(
        [part.areas.mean(), shapes(part.mesh).eccentricity.mean(), part.areas.std(correction=0)]
    )
    return dict(zip(STATISTICS, (float(len(part)), *numbers.tolist()), strict=True))


def by_epoch(records: Mapping[int, Measured], name: str) -> dict[str, Tensor]:
    """One statistic by group, (epochs, N), from what was measured after each epoch.

    >>> records = {0: {"train": {"NR": torch.ones(3)}}, 5: {"train": {"NR": torch.ones(3)}}}
    >>> by_epoch(records, "NR")["train"].shape
    torch.Size([2, 3])
    """
    rows = list(records.values())
    return {group: torch.stack([row[group][name] for row in rows]) for group in rows[0]}


def chosen(x: Tensor, count: int, *, seed: int = 0) -> Tensor:
    """Some of the samples (N, ...), at random and none twice."""
    generator = torch.Generator().manual_seed(seed)
    return x[torch.randperm(len(x), generator=generator)[:count]]


def uniform(like: Tensor, count: int, *, seed: int = 0) -> Tensor:
    """Random inputs between the least and the largest value of each channel (N, C, ...) of others.

    >>> uniform(torch.rand(9, 3, 4, 4), 5).shape
    torch.Size([5, 3, 4, 4])
    """
    generator = torch.Generator().manual_seed(seed)
    over = [0, *range(2, like.ndim)]
    low, high = like.amin(over, keepdim=True), like.amax(over, keepdim=True)
    return low + (high - low) * torch.rand(count, *like.shape[1:], generator=generator)


# -- networks of several sizes --------------------------------------------------------------------


class Build(Protocol):
    """Makes a network from a seed."""

    def __call__(self, *, seed: int) -> nn.Module: ...


@dataclass(frozen=True)
class Plan:
    """What is the same for all networks of a sweep.

    data, test: inputs and labels. training: of each network. squares: in which the regions are
    counted. epochs: after which they are counted; 0 is before the training. augment: changes the
    batches. seeds: how many networks of each size.
    """

    data: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    training: Training
    squares: Squares
    epochs: Sequence[int]
    seeds: int
    augment: Augment | None = None


@dataclass(frozen=True)
class Runs:
    """The trained networks of one size, and what was measured while they were trained.

    models, accuracies, records: of each seed; epochs: after which it was measured.
    """

    models: Sequence[nn.Module]
    accuracies: Sequence[float]
    records: Sequence[Mapping[int, Measured]]
    epochs: Sequence[int]

    def over(self, name: str) -> dict[str, Tensor]:
        """A statistic by group, (epochs, squares of all seeds)."""
        each = [by_epoch(record, name) for record in self.records]
        return {group: torch.cat([found[group] for found in each], 1) for group in each[0]}

    def each(self, name: str, group: str) -> Tensor:
        """A statistic of one group, (seeds, epochs, squares)."""
        return torch.stack([by_epoch(record, name)[group] for record in self.records])

    def numbers(self) -> dict[str, object]:
        """Everything that was measured, for JSON."""
        return {"accuracy": self.accuracies, "by seed and epoch": self.records}


def train_and_measure(build: Build, plan: Plan, *, setup: Setup, name: str) -> Runs:
    """Train a network for each seed, and measure its squares after the epochs of the plan.

    name: of the checkpoints.
    """
    models, records = [], []
    for seed in range(setup.seed, setup.seed + plan.seeds):
        model = build(seed=seed)
        found = fit(
            model,
            plan.data,
            plan.training,
            setup=replace(setup, seed=seed),
            name=f"{name}-{seed}",
            augment=plan.augment,
            record=lambda _, trained: plan.squares.measure(trained, device=setup.device),
            record_after=plan.epochs,
        )
        models.append(model)
        records.append({epoch: found[epoch] for epoch in plan.epochs})
    accuracies = [accuracy(model, *plan.test) for model in models]
    return Runs(models, accuracies, records, plan.epochs)


def plus_minus(values: Tensor | Sequence[float]) -> str:
    """The mean and the standard deviation as text, or the number if there is one only.

    >>> plus_minus([1.0, 3.0]), plus_minus([2.5])
    ('2 ± 1', '2.5')
    """
    numbers = torch.as_tensor(values, dtype=torch.float64)
    mean = f"{float(numbers.mean()):.3g}"
    return f"{mean} ± {float(numbers.std(correction=0)):.2g}" if len(numbers) > 1 else mean


def why_of(seeds: int, *, stand_in: bool) -> str:
    """Why numbers of a sweep may differ from the curves in the paper."""
    networks = f"{seeds} networks of each size" if seeds > 1 else "one network of each size"
    why = f"the paper shows curves without numbers, and names no area; {networks}"
    return f"no, other data; {why}" if stand_in else why


# -- figures --------------------------------------------------------------------------------------


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
