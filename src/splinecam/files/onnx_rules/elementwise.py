"""Operations on every entry: sums, maxima, activation functions, choices and smooth functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from splinecam.files.onnx_nodes import Node, Refused, Value
from splinecam.files.onnx_rules.registry import filled, rule, unfilled
from splinecam.network.layer_graph import Call, Input
from splinecam.network.ops.nonlinear import POWER, PRODUCT

_HUGE = 3.4e38  # older versions give the largest number of float32 for "no bound"
_THRESHOLD = 30.0  # torch's softplus is the identity beyond it, as it is in float64
_FINAL = "at the end, where it is left out; elsewhere with `smooth=`"
_SMOOTH = "with `smooth=`"

# Functions of one variable: torch's layers, and operations where torch has no layer.
_LAYERS: dict[str, Callable[[Node], nn.Module]] = {
    "Relu": lambda node: nn.ReLU(),
    "LeakyRelu": lambda node: nn.LeakyReLU(node.get("alpha", 0.01)),
    "Sigmoid": lambda node: nn.Sigmoid(),
    "Tanh": lambda node: nn.Tanh(),
    "Gelu": lambda node: nn.GELU(approximate=node.get("approximate", "none")),
    "Mish": lambda node: nn.Mish(),
    "Softplus": lambda node: nn.Softplus(threshold=_THRESHOLD),
    "Softsign": lambda node: nn.Softsign(),
    "HardSwish": lambda node: nn.Hardswish(),
    "Elu": lambda node: nn.ELU(node.get("alpha", 1.0)),
    "Celu": lambda node: nn.CELU(node.get("alpha", 1.0)),
}
_CALLS = {
    **{"Abs": "abs", "Neg": "neg", "Not": "logical_not", "Sign": "sign"},
    **{"Erf": "erf", "Exp": "exp", "Sin": "sin", "Cos": "cos"},
}
_MASKS = ("Not", "Sign")
_CHAINS = {"Sum": "add.Tensor", "Mean": "add.Tensor", "Max": "maximum", "Min": "minimum"}
_COMPARISONS = {"Greater": "gt", "Less": "lt", "GreaterOrEqual": "ge", "LessOrEqual": "le"}
_MIRRORED = {"gt": "lt", "lt": "gt", "ge": "le", "le": "ge"}
# The kinds of a factor with which a product may be a smooth function of one variable. Capturing the
# model finds out whether it is one.
_GATES = ("Sigmoid", "HardSigmoid", "Tanh", "Add", "Clip", "Mul", "Div")


@rule("Relu LeakyRelu")
@rule("Sigmoid Tanh", _FINAL)
@rule("Gelu Mish Softplus Softsign HardSwish Elu Celu", _SMOOTH)
def _layer(node: Node) -> Value:
    return node.applied(_LAYERS[node.kind](node))


@rule("Abs Neg")
@rule("Not", "of a comparison")
@rule("Sign", "times a value that is zero where the sign changes")
@rule("Erf Exp Sin Cos", _SMOOTH)
def _function(node: Node) -> Value:
    x = node.value()
    return Value(node.call(_CALLS[node.kind], x.tensor), x.shape, node.kind in _MASKS)


# -- operations of several arguments --------------------------------------------------------------


def elementwise(node: Node, operation: str, items: Sequence[Any], *, mask: bool = False) -> Value:
    """The result of an operation that broadcasts its arguments, values or constants."""
    try:
        shape = np.broadcast_shapes(*(tuple(item.shape) for item in items))
    except ValueError:
        shapes = " and ".join(str(tuple(item.shape)) for item in items)
        raise Refused(f"its inputs have the shapes {shapes}, which do not fit") from None
    node.bounded(shape)
    rank = len(shape)

    def is_aligned(item: Any) -> bool:
        merged = tuple(item.shape[:1]) == (1,)
        if isinstance(item, Tensor):
            return item.dim() < rank or item.dim() == 0 or merged
        return len(item.shape) == rank and (merged or rank == 0)

    aligned = all(map(is_aligned, items))
    tensors: list[Any] = []  # that broadcast as the values in the file do
    for item in items:
        if isinstance(item, Tensor):
            tensors.append(item.reshape(()) if item.numel() == 1 else item)
        else:
            tensors.append(item.tensor if aligned else node.extended(item, rank))
    return node.make(node.call(operation, *tensors), shape, mask=mask)


@rule("Sum Mean", "several inputs")
@rule("Max Min", "several inputs, constants among them")
def _chain(node: Node) -> Value | Tensor:
    """Apply an operation from the first argument to the last, first of all to the constants."""
    operation = _CHAINS[node.kind]
    items: list[Any] = sorted(node.inputs, key=lambda item: isinstance(item, Value))
    result: Value | Tensor = items[0]
    for item in items[1:]:
        if isinstance(result, Tensor) and isinstance(item, Tensor):
            result = Call(operation, Input(0), Input(1))(result, item)
        else:
            result = elementwise(node, operation, [result, item])
    if node.kind != "Mean":
        return result
    if isinstance(result, Tensor):
        return result / len(node.inputs)
    return elementwise(node, "div.Tensor", [result, node.number(len(node.inputs))])


def bias_of(constant: Tensor, shape: Sequence[int]) -> Tensor | None:
    """A constant as a bias of features, if it adds the same to all rows of a value's shape."""
    leading = constant.shape[:-1]
    if constant.dim() > len(shape) or any(size != 1 for size in leading):
        return None
    if constant.dim() and constant.shape[-1] not in (1, shape[-1]):
        return None
    return constant.reshape(-1).expand(shape[-1]).contiguous()


@rule("Add", "becomes the bias of a product with a constant before it")
def _add(node: Node) -> Value:
    items = [node.given(0), node.given(1)]
    for value, constant in (items, items[::-1]):
        if isinstance(value, Value) and isinstance(constant, Tensor):
            layer = node.writer.linear.get(value.tensor)
            bias = None if layer is None else bias_of(constant, value.shape)
            if layer is not None and bias is not None:
                layer.bias = nn.Parameter(bias)
                return value
    return elementwise(node, "add.Tensor", items)


@rule("Sub")
def _sub(node: Node) -> Value:
    return elementwise(node, "sub.Tensor", [node.given(0), node.given(1)])


@rule(
    "Mul", "one factor constant, or a mask that keeps it continuous; with `smooth=` x times a gate"
)
def _mul(node: Node) -> Value:
    items = [node.given(0), node.given(1)]
    factors = [item for item in items if isinstance(item, Value) and not item.mask]
    different = len(factors) == 2 and factors[0].tensor != factors[1].tensor
    if different and not any(_kind_of(node, item) in _GATES for item in factors):
        raise Refused(PRODUCT)
    return elementwise(node, "mul.Tensor", items)


def _kind_of(node: Node, value: Value) -> str:
    """The kind of the node that made a value."""
    return next((link.kind for link in node.writer.links if link.result == value.tensor), "")


@rule("Div", "constant divisor, or 1 + |x| for a divided x with `smooth=`")
def _div(node: Node) -> Value:
    x, divisor = node.value(0), node.given(1)
    if not (isinstance(divisor, Value) and _kind_of(node, divisor) == "Add"):  # else a softsign?
        divisor = node.constant(1, "divisor")
    return elementwise(node, "div.Tensor", [x, divisor])


@rule(" ".join(_COMPARISONS), "to choose between values that agree where they are chosen")
def _comparison(node: Node) -> Value:
    items, word = [node.given(0), node.given(1)], _COMPARISONS[node.kind]
    if isinstance(items[0], Tensor):  # ATen has the value first
        items, word = items[::-1], _MIRRORED[word]
    return elementwise(node, f"{word}.Tensor", items, mask=True)


@rule("Where", "constant condition, or a comparison on whose border the two values agree")
def _where(node: Node) -> Value:
    items = [node.given(0), node.given(1), node.given(2)]
    if isinstance(items[0], Tensor):
        items[0] = items[0].to(torch.bool)
    return elementwise(node, "where.self", items)


# -- functions with parameters --------------------------------------------------------------------


@rule("HardSigmoid")
def _hard_sigmoid(node: Node) -> Value:
    alpha, beta = node.number(node.get("alpha", 0.2)), node.number(node.get("beta", 0.5))
    scaled = elementwise(node, "mul.Tensor", [node.value(), alpha])
    return node.applied(nn.Hardtanh(0.0, 1.0), elementwise(node, "add.Tensor", [scaled, beta]))


@rule("Shrink", "where bias equals lambd")
def _shrink(node: Node) -> Value:
    lambd = node.get("lambd", 0.5)
    if node.get("bias", 0.0) != lambd:
        raise Refused("it is discontinuous unless its bias equals lambd")
    return node.applied(nn.Softshrink(lambd))


@rule("ThresholdedRelu", "where alpha is 0")
def _thresholded_relu(node: Node) -> Value:
    if node.get("alpha", 1.0) != 0:
        raise Refused("it is discontinuous unless its alpha is 0")
    return node.applied(nn.ReLU())


@rule("PRelu", "constant slopes, one for all, for each channel or for each entry")
def _prelu(node: Node) -> Value:
    x, slope = node.value(), node.constant(1, "slope")
    rank = len(x.shape)
    wide = (*[1] * (rank - slope.dim()), *slope.shape)
    if slope.dim() > rank or any(a not in (1, b) for a, b in zip(wide, x.shape, strict=True)):
        raise Refused(f"its slopes of shape {tuple(slope.shape)} do not fit the shape {x.shape}")
    channels = [size if i == 1 else 1 for i, size in enumerate(wide)]
    if slope.numel() == 1 or (x.shape[0] == 1 and list(wide) == channels):
        return node.applied(_prelu_layer(slope))
    whole = slope.reshape(wide).expand(x.shape)
    flat = node.reshaped(x.tensor, (whole.numel(),))
    return node.make(node.emit(_prelu_layer(whole), flat), x.shape)


def _prelu_layer(slope: Tensor) -> nn.PReLU:
    return filled(unfilled(nn.PReLU, slope.numel()), slope.reshape(-1), None)


@rule("Clip", "bounds that are constants or values")
def _clip(node: Node) -> Value:
    x = node.value()
    bounds: list[Any] = [node.input(1), node.input(2)]
    if node.opset < 11:
        bounds = [node.get("min"), node.get("max")]
    if any(isinstance(bound, Value) for bound in bounds):
        for bound, operation in zip(bounds, ("maximum", "minimum"), strict=True):
            x = x if bound is None else elementwise(node, operation, [x, bound])
        return x
    low, high = (None if bound is None else float(bound) for bound in bounds)
    low = None if low is None or low <= -_HUGE else low
    high = None if high is None or high >= _HUGE else high
    if low is None and high is None:
        return x
    if low == 0 and high is None:
        return node.applied(nn.ReLU())
    if low is not None and high is not None and -inf < low < high < inf:
        return node.applied(nn.ReLU6() if (low, high) == (0, 6) else nn.Hardtanh(low, high))
    return Value(node.call("clamp", x.tensor, low, high), x.shape)


@rule("Softmax LogSoftmax", "at the end, where it is left out")
def _softmax(node: Node) -> Value:
    x, kinds = node.value(), {"Softmax": nn.Softmax, "LogSoftmax": nn.LogSoftmax}
    rank = len(x.shape)
    axis = node.axis(node.get("axis", -1 if node.opset >= 13 else 1), rank)
    if node.opset < 13 and axis < rank - 1:  # it took all axes from this one on for one
        tensor, dim = node.reshaped(x.tensor, (*x.shape[:axis], prod(x.shape[axis:]))), -1
    else:
        tensor, (dim,) = node.dims(x, [axis])
    return node.make(node.emit(kinds[node.kind](dim=dim), tensor), x.shape)


@rule("Swish", _SMOOTH)
def _swish(node: Node) -> Value:
    rate = node.get("alpha", 1.0)
    if rate == 1:
        return node.applied(nn.SiLU())
    if rate == 0:
        raise Refused("its alpha is 0: half of its input, which is written with Mul")
    factor = node.number(rate)
    scaled = elementwise(node, "mul.Tensor", [node.value(), factor])
    return elementwise(node, "div.Tensor", [node.applied(nn.SiLU(), scaled), factor])


@rule("Selu", _SMOOTH)
def _selu(node: Node) -> Value:
    alpha = node.get("alpha", 1.67326319217681884765625)
    gamma = node.get("gamma", 1.05070102214813232421875)
    return Value(node.call("elu", node.value().tensor, alpha, gamma), node.value().shape)


@rule("Pow", "exponent 1, or with `smooth=` a larger whole number")
def _pow(node: Node) -> Value:
    exponents, x = node.constant(1, "exponent"), node.value(0)
    first = float(exponents.flatten()[0]) if exponents.numel() else 0.0
    same = bool((exponents == first).all()) and first == int(first)
    if not same or first < 1:
        raise Refused(POWER)
    return x if first == 1 else Value(node.call("pow.Tensor_Scalar", x.tensor, int(first)), x.shape)
