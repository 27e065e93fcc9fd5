"""The command ``splinecam reproduce``: tables and figures of the paper.

They are a distribution of their own, ``splinecam-paper`` in the folder ``paper`` of the repository.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from splinecam._util.options import device_of
from splinecam._util.text import optional
from splinecam.cli.console import Console, claim
from splinecam.cli.pictures import prepare_pictures
from splinecam.errors import DataError, SplineCamError


def reproduce_command(options: Namespace) -> int:
    """Run the named experiments one after the other, or list all of them."""
    paper = optional("splinecam_paper.experiment", "splinecam reproduce")
    console = Console(options.quiet)
    if options.list:
        console.out(_listing(paper))
        return 0
    names = list(paper.NAMES) if options.names == ["all"] else options.names
    if not names:
        raise SplineCamError("Say which experiment: splinecam reproduce --list names them.")
    for name in names:
        paper.experiment_of(name)  # raises an error before the first one starts
    prepare_pictures()
    device_of(options.device)
    setup = paper.Setup(
        out=options.out,
        data=options.data,
        device=options.device,
        seed=options.seed,
        quick=options.quick,
        progress=not options.quiet,
    )
    claim([options.out / f"{name}.json" for name in names], force=True)
    for name in names:
        with console.timed(name), console.progress(), _hint(setup):
            paths = paper.reproduce(name, setup)[1]
        console.out(_result(name, paths, console.took(name)))
    return 0


@contextmanager
def _hint(setup: Any) -> Iterator[None]:
    """Add to an error about missing data that a quick run needs none."""
    try:
        yield
    except DataError as error:
        if not setup.quick and setup.data is None:
            error.add_note("Or say --quick: small data takes the place of what is missing.")
        raise


def _listing(paper: Any) -> str:
    """The experiments, with the places in the paper and the data that they need."""
    wide = max(map(len, paper.NAMES))
    lines = []
    for experiment in map(paper.experiment_of, paper.NAMES):
        needs = f"; data: {', '.join(experiment.data)}" if experiment.data else ""
        lines.append(f"{experiment.name:<{wide}}  {experiment.shows}")
        lines.append(f"{'':<{wide}}  {', '.join(experiment.places)}{needs}")
    return "\n".join(lines)


def _result(name: str, paths: list[Path], took: str) -> str:
    """The table of an experiment, and where its files are."""
    text = next(path for path in paths if path.name == f"{name}.md").read_text(encoding="utf-8")
    files = ", ".join(path.name for path in paths)
    return f"{text}\nWritten to {paths[0].parent} in {took}: {files}\n"
