"""Attributes under their earlier names."""

from __future__ import annotations

import warnings
from typing import Any

_END = "0.4"  # the version in which the earlier names go


def renamed(old: str, new: str) -> Any:
    """Return a property that warns and gives the attribute of the new name.

    >>> class Sample:
    ...     layers = 3
    ...     cuts = renamed("sample.cuts", "sample.layers")
    >>> Sample.cuts.__doc__
    'The earlier name of ``layers``; deprecated.'
    """
    name = new.rpartition(".")[2]

    def earlier(self: object) -> Any:
        warn_renamed(old, new)
        return getattr(self, name)

    return property(earlier, doc=f"The earlier name of ``{name}``; deprecated.")


def warn_renamed(old: str, new: str) -> None:
    """Warn the caller of the calling function that it uses an earlier name."""
    message = f"{old} is now {new}; the earlier name goes in version {_END}"
    warnings.warn(message, DeprecationWarning, stacklevel=3)
