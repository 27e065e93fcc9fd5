"""Torch's layers with given weights, made without drawing random ones first."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from torch import Tensor, nn

__all__ = ["dense", "filled", "unfilled"]

Layer = TypeVar("Layer", bound=nn.Module)


@cache
def _quiet(kind: Any) -> Any:
    """A class whose layers do not initialise their weights, which would use random numbers."""
    return type(kind.__name__, (kind,), {"reset_parameters": lambda self: None})


def unfilled(kind: type[Layer], *arguments: Any, **options: Any) -> Layer:
    """A layer whose weights have no data yet."""
    plain: Any = kind
    layer: Layer = _quiet(plain)(*arguments, **options, device="meta")
    layer.__class__ = plain
    return layer


def filled(layer: Layer, weight: Tensor, bias: Tensor | None) -> Layer:
    """The same layer with these weights."""
    layer.weight = nn.Parameter(weight.contiguous())
    if bias is not None:
        layer.bias = nn.Parameter(bias.contiguous())
    return layer


def dense(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """A linear layer with this weight, (outputs, inputs)."""
    outputs, inputs = weight.shape
    return filled(unfilled(nn.Linear, inputs, outputs, bias is not None), weight, bias)
