"""Requests of the viewer: what they may hold, and what an answer is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from splinecam.errors import SplineCamError

__all__ = ["Answer", "Request", "RequestError", "box_of", "integer", "number", "text"]

Request = Mapping[str, Any]


class Answer(NamedTuple):
    """The header of a message and its arrays."""

    message: dict[str, Any]
    arrays: dict[str, Any] = {}  # noqa: RUF012 - never changed


class RequestError(SplineCamError):
    """A request that cannot be answered, and why."""


def integer(request: Request, name: str, count: int, *, what: str = "") -> int:
    """A whole number from 0 to below a count; an error that names what is counted."""
    value = request.get(name)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise RequestError(f"{name} must be a whole number, not {_shown(value)}.")
    if not 0 <= value < count:
        there = f"there are {count:,} {what or name + 's'}, numbered from 0"
        raise RequestError(f"There is no {name} {_shown(value)}: {there}.")
    return value


def number(value: Any, name: str) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RequestError(f"{name} must be a number, not {_shown(value)}.")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise RequestError(f"{name} must be a finite number, not {_shown(value)}.")
    return found


def text(request: Request, name: str) -> str:
    """A text."""
    value = request.get(name)
    if not isinstance(value, str):
        raise RequestError(f"{name} must be a text, not {_shown(value)}.")
    return value


def box_of(request: Request, name: str) -> tuple[float, float, float, float]:
    """A rectangle: u0, v0, u1, v1, the lower corner first."""
    value = request.get(name)
    if not isinstance(value, list | tuple) or len(value) != 4:
        raise RequestError(f"{name} must be four numbers: u0, v0, u1, v1; not {_shown(value)}.")
    u0, v0, u1, v1 = (number(each, name) for each in value)
    if not (u0 < u1 and v0 < v1):
        raise RequestError(f"{name} must be u0 < u1 and v0 < v1, not {_shown(value)}.")
    return u0, v0, u1, v1


def _shown(value: Any) -> str:
    """A value in a message, shortened."""
    shown = str(value) if isinstance(value, int | float) else repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
