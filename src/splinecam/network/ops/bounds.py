"""Rounding-error bounds: every affine operation once more, on the moduli of its coefficients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from splinecam._util.tolerances import EPS
from splinecam.network.ops.registry import Affine

__all__ = ["Bound", "affine_bound", "role_of"]


class Bound(NamedTuple):
    """What is known of a live value over the whole domain, per unit; both ``(1, *shape)``."""

    magnitude: Tensor
    error: Tensor


def role_of(rule: Affine, name: str) -> str:
    """What an argument does in an affine operation: add, multiply, offset, or nothing of these."""
    if name in rule.product or name in rule.factor:
        return "multiply"
    if name in rule.data:
        return "add"
    return "offset" if name in rule.offset else "plain"


def _map(value: Any, role: str, change: Callable[[Any, str], Any]) -> Any:
    if isinstance(value, (list, tuple)) and not isinstance(value, Bound):
        return [_map(item, role, change) for item in value]
    return change(value, role)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _modulus(value: Any, role: str) -> Any:
    """An argument for the bound on magnitudes."""
    if isinstance(value, Bound):
        return value.magnitude
    if role == "plain" or not (isinstance(value, Tensor) or _number(value)):
        return value
    return value.to(torch.float64).abs() if isinstance(value, Tensor) else abs(value)


def _spread(value: Any, role: str, squared: bool) -> Any:
    """An argument for the bound on errors: constants that are added carry no error."""
    if isinstance(value, Bound):
        return value.error.square() if squared else value.error
    if role == "plain" or not (isinstance(value, Tensor) or _number(value)):
        return value
    if role != "multiply":
        return torch.zeros_like(value, dtype=torch.float64) if isinstance(value, Tensor) else 0
    if isinstance(value, Tensor):
        value = value.to(torch.float64)
    return value * value if squared else abs(value)


def _has_factor(value: Any, role: str) -> bool:
    if role != "multiply":
        return False
    if isinstance(value, (list, tuple)) and not isinstance(value, Bound):
        return any(_has_factor(item, role) for item in value)
    return isinstance(value, Tensor)


def affine_bound(
    rule: Affine,
    run: Callable[..., Any],
    args: list[Any],
    kwargs: dict[str, Any],
    roles: tuple[tuple[str, ...], dict[str, str]],
) -> Any:
    """The bounds of an affine operation's result from those of its arguments.

    With coefficients W and offsets b: magnitude ``|W| m + |b|``, error ``sqrt(W^2 e^2)`` plus one
    rounding of that magnitude. Without coefficients the operation itself is run on both.
    """
    positional, named = roles
    squared = any(_has_factor(a, r) for a, r in zip(args, positional, strict=True))
    squared = squared or any(_has_factor(a, named[k]) for k, a in kwargs.items())
    run = rule.absolute or run

    def on(change: Callable[[Any, str], Any]) -> Any:
        new = [_map(a, role, change) for a, role in zip(args, positional, strict=True)]
        return run(*new, **{key: _map(a, named[key], change) for key, a in kwargs.items()})

    magnitude = on(_modulus)
    error = on(lambda value, role: _spread(value, role, squared))
    if isinstance(magnitude, Tensor):
        return _bound(rule, magnitude, error, squared)
    return tuple(_bound(rule, m, e, squared) for m, e in zip(magnitude, error, strict=True))


def _bound(rule: Affine, magnitude: Tensor, error: Tensor, squared: bool) -> Bound:
    magnitude = magnitude.clamp_min(0)
    error = error.clamp_min(0)
    if squared:
        error = error.sqrt()
    return Bound(magnitude, error if rule.exact or rule.reshapes else error + EPS * magnitude)
