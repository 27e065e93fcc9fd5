"""What an experiment is, how it is run by its name, and the files that it writes."""

from __future__ import annotations

import json
import logging
import math
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, is_dataclass
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from tqdm import tqdm

from splinecam import SplineCamError, __version__
from splinecam._util.files import replaced, writing
from splinecam._util.options import device_of
from splinecam._util.progress import progress_bar
from splinecam._util.text import TextTable, number_text
from splinecam.plot.figures import require_matplotlib

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


# -- the files: figures, numbers as JSON, and a table ---------------------------------------------


_DPI = 200
_SHORT = 20  # characters of a reason that fits into the table


def write_report(
    experiment: Experiment[Any], report: Report, setup: Setup, settings: Any, seconds: float
) -> list[Path]:
    """Write ``NAME.png``, ``NAME.pdf``, ``NAME.json`` and ``NAME.md``; returns their paths."""
    import matplotlib.pyplot as plt

    paths = []
    with writing(setup.out):
        setup.out.mkdir(parents=True, exist_ok=True)
    for name, figure in report.figures.items():
        for kind in ("png", "pdf"):
            paths.append(setup.out / f"{name}.{kind}")
            with replaced(paths[-1]) as file:
                figure.savefig(file, format=kind, dpi=_DPI)
        plt.close(figure)
    content = {
        "experiment": experiment.name,
        "shows": experiment.shows,
        "paper": list(experiment.places),
        "splinecam": __version__,
        "quick": setup.quick,
        "seed": setup.seed,
        "machine": machine(setup),
        "seconds": seconds,
        "settings": settings,
        "rows": report.rows,
        "numbers": report.numbers,
        "notes": report.notes,
    }
    texts = {"json": json.dumps(_plain(content), indent=1), "md": table(content).markdown()}
    texts["md"] += f"\n\n{foot(content)}"
    for kind, text in texts.items():
        paths.append(setup.out / f"{experiment.name}.{kind}")
        with replaced(paths[-1]) as file:
            file.write(f"{text}\n".encode())
    return [*paths, *report.files]


def table(content: Mapping[str, Any]) -> TextTable:
    """The table of an experiment, from what its JSON file contains.

    A long reason in the column "comparable?" is a number there, and a sentence under the table.
    """
    rows, marks = _rows(content), _marks(content)
    head = ("paper", "ours", "comparable?", "seed", "area", "seconds")
    cells = [
        [
            _text(row.paper),
            _text(row.ours),
            marks.get(row.comparable, row.comparable),
            _text(row.seed),
            _text(row.area),
            "" if row.seconds is None else f"{row.seconds:.3g}",
        ]
        for row in rows
    ]
    return TextTable("", head, [(row.what, line) for row, line in zip(rows, cells, strict=True)])


def foot(content: Mapping[str, Any]) -> str:
    """The sentences under the table."""
    size = "a quick run" if content["quick"] else "a full run"
    run = f"{content['experiment']}: {size} with seed {content['seed']}, in all "
    run += f"{content['seconds']:.0f} s on {content['machine']}, SplineCam {content['splinecam']}."
    # Two blanks at the end of a line keep the next one apart in Markdown.
    reasons = "  \n".join(f"{mark} {_sentence(k)}" for k, mark in _marks(content).items())
    return "\n\n".join(filter(None, [reasons, run, *content["notes"]]))


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:].rstrip('.')}."


def _rows(content: Mapping[str, Any]) -> list[Row]:
    return [Row(**row) if isinstance(row, Mapping) else row for row in content["rows"]]


def _marks(content: Mapping[str, Any]) -> dict[str, str]:
    """The numbers that stand for long reasons why values differ."""
    reasons = dict.fromkeys(row.comparable for row in _rows(content))
    long = [reason for reason in reasons if len(reason) > _SHORT]
    return {reason: f"({number})" for number, reason in enumerate(long, 1)}


def machine(setup: Setup) -> str:
    """The processor, or the GPU, and the version of PyTorch."""
    device = setup.trained_on
    cores = f"{os.cpu_count()} cores ({platform.machine()})"
    if device.type == "cuda":
        cores = f"{torch.cuda.get_device_name(device)} and {cores}"
    return f"{cores}, PyTorch {torch.__version__.split('+')[0]}"


def _text(value: float | str | None) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else number_text(value)


def _plain(value: Any) -> Any:
    """A value that JSON has: mappings, lists, text, and numbers that are finite or null."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, torch.Tensor | np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, bool | int | float | str | None) else str(value)


# -- experiments by name --------------------------------------------------------------------------


NAMES = (  # in the order of the paper's kinds of results; a module each
    *("scaling", "table1", "boundary", "mnist-sweep", "cifar-sweep", "augmentation", "vgg"),
    *("cats", "inr", "inpaint", "sdf2d", "sdf3d", "surface", "movie"),
)


def experiment_of(name: str) -> Experiment[Any]:
    """The experiment of a name, such as ``"table1"``."""
    if name not in NAMES:
        raise SplineCamError(f"There is no experiment {name!r}: choose {', '.join(NAMES)}.")
    module = import_module(f"splinecam_paper.{name.replace('-', '_')}")
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
