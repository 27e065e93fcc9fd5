"""Libraries that do not come with the package, and are imported when they are needed."""

from __future__ import annotations

import logging
from functools import cache
from importlib import import_module
from typing import Any

from splinecam.errors import SplineCamError

__all__ = ["how_to_install", "missing", "optional", "pandas_if_installed"]

_log = logging.getLogger("splinecam")

# Packages whose modules have another name.
_PACKAGES = {"PIL": "pillow", "skimage": "scikit-image", "sklearn": "scikit-learn"}


def how_to_install(extra: str) -> str:
    """Return the commands that install an extra, from the package index and from a clone.

    >>> how_to_install("plot")
    "pip install 'splinecam[plot]', or in a clone: pip install -e '.[plot]' -c constraints.txt"
    """
    return (
        f"pip install 'splinecam[{extra}]', or in a clone: "
        f"pip install -e '.[{extra}]' -c constraints.txt"
    )


def missing(library: str, purpose: str, extra: str | None = None) -> SplineCamError:
    """Return the error that a library is not installed; the arguments are those of ``optional``."""
    verb = "are" if " and " in library else "is"
    command = f"pip install {library}" if extra is None else how_to_install(extra)
    return SplineCamError(f"{purpose} needs {library}, which {verb} not installed. Run: {command}")


def optional(module: str, purpose: str, extra: str | None = None) -> Any:
    """Import a module; if it is missing, an error says what to install.

    purpose: what needs the module, which begins the message. extra: the extra that brings it, if
    there is one.

    >>> optional("json", "Reading", "plot").dumps([1])
    '[1]'
    >>> optional("nowhere.things", "Dreaming", "dreams")
    Traceback (most recent call last):
    splinecam.errors.SplineCamError: Dreaming needs nowhere, which is not installed. Run: ...
    """
    try:
        return import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise missing(_PACKAGES.get(name, name), purpose, extra) from error


def pandas_if_installed() -> Any:
    """Return pandas, or None with one line in the log: tables are then plain dicts of columns."""
    try:
        return import_module("pandas")
    except ImportError:
        _say_that_tables_are_dicts()
        return None


@cache
def _say_that_tables_are_dicts() -> None:
    _log.warning(
        "Tables are dicts of columns, as pandas is not installed. For a DataFrame run: %s",
        how_to_install("table"),
    )
