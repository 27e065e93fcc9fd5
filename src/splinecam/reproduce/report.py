"""The files of an experiment: its figures, its numbers as JSON, and its table."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from splinecam import __version__
from splinecam._util.files import replaced, writing
from splinecam._util.text import TextTable, number_text
from splinecam.reproduce.experiment import Experiment, Report, Row, Setup

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
