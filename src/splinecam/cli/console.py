"""What a command writes: results to stdout, messages to stderr, files to a folder."""

from __future__ import annotations

import logging
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from splinecam.errors import FileError

__all__ = ["Console", "claim", "plain"]

_PAUSE = 5.0  # seconds between two lines of progress


@dataclass
class Console:
    """Where a command writes, and how long its steps took."""

    quiet: bool = False
    seconds: dict[str, float] = field(default_factory=dict)

    def out(self, text: str = "") -> None:
        """A result."""
        if not self.quiet:
            sys.stdout.write(text + "\n")

    def note(self, label: str, text: str) -> None:
        """A message about what was done, under a short label."""
        if not self.quiet:
            sys.stderr.write(f"{label:<10} {text}".rstrip() + "\n")
            sys.stderr.flush()

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Note how long a step takes."""
        start = perf_counter()
        yield
        self.seconds[step] = perf_counter() - start

    def took(self, step: str) -> str:
        """How long a step took, in words."""
        return f"{self.seconds[step]:.2f} s"

    @contextmanager
    def progress(self) -> Iterator[None]:
        """Where no bar can be shown, tell from time to time how far a partition is."""
        logger, handler = logging.getLogger("splinecam"), _Lines(self)
        level = logger.level
        if self.quiet or sys.stderr.isatty():
            yield
            return
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)


class _Lines(logging.Handler):
    """Lines of progress, none in the first seconds and then no more than one in a while."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.INFO)
        self._console = console
        self._start = self._last = perf_counter()

    def emit(self, record: logging.LogRecord) -> None:
        now = perf_counter()
        if now - self._last >= _PAUSE:
            self._last = now
            self._console.note("", f"{record.getMessage()}, {now - self._start:.0f} s")


def claim(paths: Sequence[Path], *, force: bool) -> None:
    """An error if the files, all in one folder, cannot be written or may not be overwritten."""
    taken = [path for path in paths if path.exists()]
    if taken and not force:
        others = f" (and {len(taken) - 1} more)" if len(taken) > 1 else ""
        raise FileError(
            f"{taken[0]} exists already{others}. Say --force to overwrite it, or choose another "
            "place."
        )
    folder = paths[0].parent
    there = next(place for place in (folder, *folder.resolve().parents) if place.exists())
    if not there.is_dir():
        raise FileError(f"{folder} cannot be a folder: {there} is a file.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise FileError(f"Nothing can be written to {there}: permission denied.")


def plain(value: Any) -> Any:
    """A value as JSON knows it: mappings, lists, and numbers that are finite or null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
