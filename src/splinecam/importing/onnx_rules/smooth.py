"""Smooth functions of one variable, which ``partition(..., smooth=...)`` replaces by pieces."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from splinecam.importing.onnx_nodes import Node, Refused, Value, named
from splinecam.importing.onnx_rules.elementwise import elementwise
from splinecam.importing.onnx_rules.registry import rule
from splinecam.network.ops.rejected import POWER

__all__: list[str] = []

_NOTE = "with `smooth=`"
_THRESHOLD = 30.0  # beyond which torch's softplus is the identity, as it is in float64
_CALLS = {"Erf": "erf", "Exp": "exp", "Sin": "sin", "Cos": "cos"}


def _applied(node: Node, layer: nn.Module) -> Value:
    x = node.value()
    return Value(node.emit(layer, x.tensor), x.shape)


def _called(node: Node, operation: str, *arguments: Any) -> Value:
    x = node.value()
    return Value(node.call(operation, named(x.tensor), *arguments), x.shape)


@rule("Gelu", _NOTE)
def _gelu(node: Node) -> Value:
    return _applied(node, nn.GELU(approximate=node.get("approximate", "none")))


@rule("Mish", _NOTE)
def _mish(node: Node) -> Value:
    return _applied(node, nn.Mish())


@rule("Softplus", _NOTE)
def _softplus(node: Node) -> Value:
    return _applied(node, nn.Softplus(threshold=_THRESHOLD))


@rule("Softsign", _NOTE)
def _softsign(node: Node) -> Value:
    return _applied(node, nn.Softsign())


@rule("HardSwish", _NOTE)
def _hardswish(node: Node) -> Value:
    return _applied(node, nn.Hardswish())


@rule("Swish", _NOTE)
def _swish(node: Node) -> Value:
    rate = node.get("alpha", 1.0)
    if rate == 1:
        return _applied(node, nn.SiLU())
    if rate == 0:
        raise Refused("its alpha is 0: half of its input, which is written with Mul")
    factor = torch.tensor(rate, dtype=node.writer.dtype)
    scaled = elementwise(node, "mul.Tensor", [node.value(), factor])
    made = Value(node.emit(nn.SiLU(), scaled.tensor), scaled.shape)
    return elementwise(node, "div.Tensor", [made, factor])


@rule("Elu", _NOTE)
def _elu(node: Node) -> Value:
    return _applied(node, nn.ELU(node.get("alpha", 1.0)))


@rule("Celu", _NOTE)
def _celu(node: Node) -> Value:
    return _applied(node, nn.CELU(node.get("alpha", 1.0)))


@rule("Selu", _NOTE)
def _selu(node: Node) -> Value:
    alpha = node.get("alpha", 1.67326319217681884765625)
    return _called(node, "elu", alpha, node.get("gamma", 1.05070102214813232421875))


@rule(" ".join(_CALLS), _NOTE)
def _function(node: Node) -> Value:
    return _called(node, _CALLS[node.kind])


@rule("Pow", "exponent 1, or with `smooth=` a larger whole number")
def _pow(node: Node) -> Value:
    exponents = node.constant(1, "exponent")
    first = float(exponents.flatten()[0]) if exponents.numel() else 0.0
    same = bool((exponents == first).all()) and first == int(first)
    if not same or first < 1:
        raise Refused(POWER)
    return node.value(0) if first == 1 else _called(node, "pow.Tensor_Scalar", int(first))
