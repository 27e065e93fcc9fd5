"""The names of classes."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["class_number", "few", "names_of"]

_MOST = 8  # names in a message


def names_of(names: Iterable[Any] | None, outputs: int) -> tuple[str, ...] | None:
    """The names of the classes, in the order of the outputs, after checks; two for one output.

    >>> names_of(["cat", "dog"], outputs=1)
    ('cat', 'dog')
    """
    if names is None:
        return None
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise TypeError(f"names must be a list of names, one for each class, not {names!r}")
    given, classes = tuple(map(str, names)), max(outputs, 2)
    if len(given) != classes:
        why = ": the class at or below the level, and that above it" if outputs == 1 else ""
        raise ValueError(f"names has {len(given)} entries, but there are {classes} classes{why}")
    again = next((name for k, name in enumerate(given) if name in given[:k]), None)
    if again is not None:
        raise ValueError(f"names has {again!r} twice: each class needs a name of its own")
    return given


def few(names: Sequence[str]) -> str:
    """The first names, as text for a message.

    >>> few(["cat", "dog"]), few("abcdefghij")
    ("'cat', 'dog'", "'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', ...")
    """
    return ", ".join(map(repr, names[:_MOST])) + ", ..." * (len(names) > _MOST)


def class_number(which: Any, names: tuple[str, ...] | None, classes: int) -> int:
    """The number of a class that is given by number or name.

    >>> class_number("dog", ("cat", "dog"), 2), class_number(-1, None, 10)
    (1, 9)
    """
    if isinstance(which, str):
        if names is not None and which in names:
            return names.index(which)
        known = (
            f"the names are {few(names)}" if names else "the partition has no names: set part.names"
        )
        raise ValueError(f"there is no class {which!r}; {known}")
    try:
        number = operator.index(which)
    except TypeError:
        raise TypeError(f"a class is given by its number or its name, not by {which!r}") from None
    if not -classes <= number < classes:
        raise IndexError(f"class {number} of {classes} classes, numbered from 0")
    return number % classes
