"""The state of a view: camera, colours, switches, and selected places.

Python writes its names with underscores, the browser in camel case.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np


def checked_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return some of the state in plain numbers, lists and texts; an error names a wrong value.

    >>> checked_state({"width": 2, "hidden_layers": (0,)})
    {'width': 2.0, 'hidden_layers': [0]}
    """
    if not isinstance(state, Mapping):
        raise TypeError(f"the state of a view is a dict, not {type(state).__name__}")
    unknown = [str(key) for key in state if key not in KEYS]
    if unknown:
        raise ValueError(f"the state of a view has no {unknown[0]!r}; it has {', '.join(KEYS)}")
    checked = {}
    for key, value in state.items():
        kind, check = _KINDS[key]
        try:
            checked[key] = check(value)
        except (TypeError, ValueError):
            shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:60]}..."
            raise ValueError(f"{key} is {kind}, not {shown}") from None
    return checked


def browser_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a checked state as the browser writes it.

    >>> browser_state({"edge_width": 2.0})
    {'edgeWidth': 2.0}
    """
    return {_BROWSER[key]: value for key, value in state.items()}


def state_of_browser(state: Any) -> dict[str, Any]:
    """Return the checked state of a view from a browser's report.

    >>> state_of_browser({"levelSet": True})
    {'level_set': True}
    """
    if not isinstance(state, Mapping):
        raise TypeError("the state of a view is an object")
    unknown = [str(key) for key in state if key not in _PYTHON]
    if unknown:
        raise ValueError(f"the state of a view has no {unknown[0][:60]!r}")
    return checked_state({_PYTHON[key]: value for key, value in state.items()})


def _number(value: Any, least: float = -math.inf) -> float:
    if not isinstance(value, Real) or isinstance(value, bool) or not math.isfinite(value):
        raise TypeError
    if value < least:
        raise ValueError
    return float(value)


def _count(value: Any) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 0:
        raise TypeError
    return int(value)


def _switch(value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise TypeError
    return bool(value)


def _text(value: Any, *known: str) -> str:
    if not isinstance(value, str) or (known and value not in known):
        raise TypeError
    return value


def _list(value: Any) -> list[Any]:
    value = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise TypeError
    return list(value)


def _pair(value: Any) -> list[float]:
    first, second = _list(value)
    return [_number(first), _number(second)]


def _place(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping) or {*value} != {"pane", "at"}:
        raise TypeError
    return {"pane": _count(value["pane"]), "at": _pair(value["at"])}


_YES_NO = "True or False", _switch
_AMOUNT = "a finite number of at least 0", lambda value: _number(value, 0)
_WHERE = 'None or a place {"pane": 0, "at": (u, v)}', _place

# The names of the state, with the kinds of their values, in words and as checks.
_KINDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "center": ("a pair of finite numbers", _pair),
    "width": _AMOUNT,
    "color": ("the name of a colouring", _text),
    "output": ("None or the number of an output", lambda k: None if k is None else _count(k)),
    "frame": ("a whole number of at least 0", _count),
    "edges": _YES_NO,
    "hidden_layers": ("a list of numbers of layers", lambda each: [_count(k) for k in _list(each)]),
    "edge_width": _AMOUNT,
    "boundary": _YES_NO,
    "band": _YES_NO,
    "level_set": _YES_NO,
    "level": ("a finite number", _number),
    "points": _YES_NO,
    "thumbnails": _YES_NO,
    "theme": ('"auto", "light" or "dark"', lambda word: _text(word, "auto", "light", "dark")),
    "selected": _WHERE,
    "compared": _WHERE,
}
KEYS = tuple(_KINDS)
_BROWSER = {key: key[0] + key.title().replace("_", "")[1:] for key in KEYS}
_PYTHON = {name: key for key, name in _BROWSER.items()}
