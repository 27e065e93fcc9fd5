"""Libraries that do not come with the package, and are imported when they are needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from splinecam.errors import SplineCamError

__all__ = ["optional"]


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
        library = module.partition(".")[0]
        wanted = library if extra is None else f"'splinecam[{extra}]'"
        raise SplineCamError(
            f"{purpose} needs {library}, which is not installed. Run: pip install {wanted}"
        ) from error
