"""Experiments by name, and how one is run from its settings to its files."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

from splinecam.errors import SplineCamError
from splinecam.plot.figures import require_matplotlib
from splinecam.reproduce.experiment import Experiment, Report, Setup
from splinecam.reproduce.report import write_report

NAMES = (  # in the order of the paper's kinds of results; a module each
    *("scaling", "table1", "boundary", "mnist-sweep", "cifar-sweep", "augmentation", "vgg"),
    *("cats", "inr", "inpaint", "sdf2d", "sdf3d", "surface", "movie"),
)


def experiment_of(name: str) -> Experiment[Any]:
    """The experiment of a name, such as ``"table1"``."""
    if name not in NAMES:
        raise SplineCamError(f"There is no experiment {name!r}: choose {', '.join(NAMES)}.")
    module = import_module(f"splinecam.reproduce.{name.replace('-', '_')}")
    found: Experiment[Any] = module.EXPERIMENT
    return found


def reproduce(name: str, setup: Setup, settings: Any = None) -> tuple[Report, list[Path]]:
    """Run an experiment and write its files; returns its report and their paths.

    settings: others than ``experiment.full``, or ``experiment.quick`` with ``setup.quick``.
    """
    require_matplotlib()
    experiment = experiment_of(name)
    if settings is None:
        settings = experiment.quick if setup.quick else experiment.full
    start = perf_counter()
    report = experiment.run(setup, settings)
    paths = write_report(experiment, report, setup, settings, perf_counter() - start)
    return report, paths
