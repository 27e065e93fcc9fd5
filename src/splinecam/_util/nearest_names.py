"""Suggestions for names that are not there."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["did_you_mean", "no_attribute"]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question about the nearest of the known names, with a blank before it, or nothing.

    >>> did_you_mean("--slcie", ["--slice", "--side"]), did_you_mean("x", ["--slice"])
    (' Did you mean --slice?', '')
    """
    by_lower = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.7)
    return f" Did you mean {by_lower[near[0]]}?" if near else ""


def no_attribute(place: str, name: str, known: Iterable[str]) -> AttributeError:
    """Return the error that a place has no such attribute, which asks about the nearest one.

    >>> no_attribute("stats", "nr", ["NR"])
    AttributeError("stats has no attribute 'nr'. Did you mean NR?")
    """
    message = f"{place} has no attribute {name!r}.{did_you_mean(name, known)}"
    # Without an object, Python does not ask a second time; notebooks do not ask at all.
    return AttributeError(message.rstrip("."), name=name, obj=None)
