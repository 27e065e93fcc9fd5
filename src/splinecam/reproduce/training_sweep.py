"""Networks of several sizes, and the regions around samples after chosen epochs of training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor, nn

from splinecam.reproduce.experiment import Setup
from splinecam.reproduce.fitting import Augment, Training, accuracy, fit
from splinecam.reproduce.neighbourhoods import Measured, Squares, by_epoch


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
