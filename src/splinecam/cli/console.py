"""Output of the commands: results, messages, files, and scripts with which shells complete."""

from __future__ import annotations

import json
import logging
import math
import sys
import tempfile
from argparse import Action, ArgumentParser, _SubParsersAction
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from splinecam._util.files import reason_of, replaced, writing
from splinecam._util.text import harmless, optional
from splinecam.errors import FileError

_PAUSE = 5.0  # seconds between two lines of progress


@dataclass
class Console:
    """Writes results and messages, and measures how long each step takes."""

    quiet: bool = False
    seconds: dict[str, float] = field(default_factory=dict)

    def out(self, text: str = "") -> None:
        """Print a result."""
        if not self.quiet:
            with printing():
                sys.stdout.write(harmless(text) + "\n")

    def note(self, label: str, text: str) -> None:
        """Write a message about what was done, after a short label."""
        if not self.quiet:
            complain(f"{label:<10} {text}".rstrip() + "\n")

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Measure how long a step takes."""
        start = perf_counter()
        yield
        self.seconds[step] = perf_counter() - start

    def took(self, step: str) -> str:
        """Return how long a step took, as text."""
        return f"{self.seconds[step]:.2f} s"

    @contextmanager
    def progress(self) -> Iterator[None]:
        """Report the progress of a partition from time to time if no bar can be shown."""
        logger, handler = logging.getLogger("splinecam"), _ProgressLines(self)
        level = logger.level
        if self.quiet or sys.stderr is None or sys.stderr.isatty():
            yield
            return
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)


class _ProgressLines(logging.Handler):
    """Writes lines of progress, at most one every few seconds, and what comes once."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.INFO)
        self._console = console
        self._start = self._last = perf_counter()

    def emit(self, record: logging.LogRecord) -> None:
        now = perf_counter()
        if getattr(record, "once", False) or now - self._last >= _PAUSE:
            self._last = now
            self._console.note("", f"{record.getMessage()}, {now - self._start:.0f} s")


@contextmanager
def printing() -> Iterator[None]:
    """Turn errors of the system in printing results into a ``FileError``."""
    if sys.stdout is None:
        raise FileError("The results cannot be printed: standard output is closed.")
    try:
        yield
    except (BrokenPipeError, FileError):
        raise
    except OSError as error:
        if error.filename is not None:  # it is about a file
            raise
        reason = f"The results cannot be printed to standard output: {reason_of(error)}."
        raise FileError(reason) from error


def complain(text: str) -> None:
    """Write a message to stderr, if it is open."""
    with suppress(OSError):
        if sys.stderr is not None:
            sys.stderr.write(harmless(text))
            sys.stderr.flush()


def write_text(path: Path, text: str) -> None:
    """Write a file, which appears when it is complete."""
    with replaced(path) as file:
        file.write(text.encode())


def make_folder(folder: Path) -> None:
    """Make a folder, if it is not there."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)


def inside(thing: object) -> str:
    """Return the inside of the parentheses of a repr: ``3 regions`` of ``Partition(3 regions)``."""
    return repr(thing).partition("(")[2].removesuffix(")")


def claim(paths: Sequence[Path], *, force: bool) -> None:
    """Raise an error if files of one folder cannot be written, or must not be overwritten."""
    taken = [path for path in paths if path.exists()]
    if taken and not force:
        others = f" (and {len(taken) - 1} more)" if len(taken) > 1 else ""
        instead = "Say --force to overwrite it, or choose another place."
        raise FileError(f"{taken[0]} exists already{others}. {instead}")
    folders = [path for path in taken if path.is_dir()]
    if folders:
        raise FileError(f"{folders[0]} cannot be written: it is a folder.")
    folder = paths[0].parent
    there = next(place for place in (folder, *folder.resolve().parents) if place.exists())
    if not there.is_dir():
        raise FileError(f"{folder} cannot be a folder: {there} is a file.")
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise FileError(f"Nothing can be written to {folder}: {reason_of(error)}.") from error


def json_text(content: Any) -> str:
    """Return mappings, lists, texts and numbers as JSON, with null for nan and infinity."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(key): plain(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(item) for item in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(plain(content), indent=2, allow_nan=False)


SHELLS = ("bash", "zsh", "fish")
DEVICES = ("auto", "cpu", "cuda")


def add_options(parser: ArgumentParser) -> None:
    """Add the options of ``splinecam completion``."""
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"{', '.join(SHELLS)}")


def print_script(parser: ArgumentParser, shell: str) -> int:
    """Print the script with which a shell completes the commands and options of a parser."""
    shtab = optional("shtab", "Shell completion", "completion")
    for action in _actions(parser):
        completed = _completed(action, shtab)
        if completed is not None:
            action.complete = completed  # type: ignore[attr-defined]
        elif action.dest == "device":
            action.choices = DEVICES
    sys.stdout.write(str(shtab.complete(parser, shell)).rstrip("\n") + "\n")
    sys.stdout.flush()
    return 0


def _actions(parser: ArgumentParser) -> Iterator[Action]:
    """Yield all arguments of a parser and of its commands."""
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
        else:
            yield action


def _completed(action: Action, shtab: Any) -> Any:
    """Return how an argument is completed: by folders, by files, or not (None)."""
    if action.metavar == "DIR":
        return shtab.DIRECTORY
    if action.metavar == "SAVED.npz":
        return shtab.glob("*.npz")
    if action.dest == "model":
        return shtab.glob("*.py", "*.pt2")
    return shtab.FILE if action.type is Path or action.dest == "subjects" else None
