"""What an experiment is: its settings, how it runs, and what it reports."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Generic, TypeVar

import torch
from tqdm import tqdm

from splinecam._util.options import device_of
from splinecam._util.progress import progress_bar

Settings = TypeVar("Settings")

_log = logging.getLogger("splinecam")


@dataclass(frozen=True)
class Setup:
    """Where and how an experiment runs.

    out: the folder for its results and checkpoints. data: the folder with data sets, or None for
    the usual places. device: where networks are trained and partitioned, ``"auto"`` for a GPU if
    there is one. seed: of the first network. quick: whether data sets that are missing are replaced
    by small ones that come with other packages. progress: whether to show bars.
    """

    out: Path
    data: Path | None = None
    device: str = "auto"
    seed: int = 0
    quick: bool = False
    progress: bool = True

    @property
    def trained_on(self) -> torch.device:
        """The device on which networks are trained."""
        return device_of(self.device)

    def bar(self, total: int, unit: str) -> tqdm[Any]:
        """A progress bar over parts of the experiment, which is shown in interactive use only."""
        return progress_bar(total, f" {unit}", self.progress)

    def tell(self, text: str) -> None:
        """Report what has been done, in the log."""
        _log.info(text)


@dataclass(frozen=True)
class Row:
    """One line of the table: what the paper says beside what was measured.

    what: the quantity. paper: its value in the paper, as printed, or None if the paper has none.
    ours: the measured value. comparable: "yes", or why the two numbers may differ. seed, area,
    seconds: of the network, of the domain, and of the computation, as far as there are any.
    """

    what: str
    paper: float | str | None
    ours: float | str
    comparable: str
    seed: int | None = None
    area: float | None = None
    seconds: float | None = None


@dataclass
class Report:
    """The results of an experiment.

    rows: of the table. figures: matplotlib's figures by name; one with the name of the experiment
    is its figure in the paper. numbers: everything that was measured, for JSON. notes: sentences
    that belong under the table, such as the source of the data. files: others that it wrote.
    """

    rows: list[Row] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    numbers: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)


@dataclass(frozen=True)
class Experiment(Generic[Settings]):
    """A table or figure of the paper, and how it is made.

    name: as the command line has it. shows: what it shows, in a sentence. places: the figures and
    tables of the paper. full, quick: its settings, at the size of the paper and for two minutes on
    two cores; tiny: for a test. run: makes the report. data: the names of its data sets.
    """

    name: str
    shows: str
    places: Sequence[str]
    full: Settings
    quick: Settings
    tiny: Settings
    run: Callable[[Setup, Settings], Report]
    data: Sequence[str] = ()


@dataclass
class Stopwatch:
    """Measures steps of an experiment in seconds of wall time.

    >>> watch = Stopwatch()
    >>> with watch("sum"):
    ...     total = sum(range(10))
    >>> list(watch.seconds)
    ['sum']
    """

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, step: str) -> Iterator[None]:
        """Add the time of a block to its step; a GPU finishes its work first."""
        _synchronize()
        start = perf_counter()
        yield
        _synchronize()
        self.seconds[step] = self.seconds.get(step, 0.0) + perf_counter() - start

    @property
    def last(self) -> float:
        """The seconds of the step that began last."""
        return next(reversed(self.seconds.values()))


def _synchronize() -> None:
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()


def summary(values: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    """The mean and the standard deviation of several runs, by the name of the quantity.

    >>> summary({"NR": [1.0, 3.0]})
    {'NR': {'mean': 2.0, 'std': 1.0}}
    """
    found = {}
    for name, row in values.items():
        numbers = torch.tensor(row, dtype=torch.float64)
        found[name] = {"mean": float(numbers.mean()), "std": float(numbers.std(correction=0))}
    return found
