"""Operations on every entry: sums, maxima, activation functions, choices and smooth functions."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import torch
from torch import Tensor, nn

from splinecam.files.onnx_file import bounded, broadcast
from splinecam.files.onnx_nodes import Node, Refused, Value, named, operands
from splinecam.files.onnx_rules.registry import filled, rule, unfilled
from splinecam.network.ops.nonlinear import POWER, PRODUCT

_HUGE = 3.4e38  # older versions give the largest number of float32 for "no bound"
_JUMP = "it is discontinuous"


def _aligned(node: Node, items: Sequence[Any]) -> tuple[list[Any], tuple[int, ...]]:
    """Tensors whose broadcasting is that of the values in the file, and the result's shape."""
    try:
        shape = broadcast(*(item.shape for item in items))
    except ValueError:
        shapes = " and ".join(str(tuple(item.shape)) for item in items)
        raise Refused(f"its inputs have the shapes {shapes}, which do not fit") from None
    bounded(shape, f"The result of {node.label} ({node.kind})")
    rank = len(shape)

    def is_aligned(item: Any) -> bool:
        merged = tuple(item.shape[:1]) == (1,)
        if isinstance(item, Tensor):
            return item.dim() < rank or item.dim() == 0 or merged
        return len(item.shape) == rank and (merged or rank == 0)

    aligned = all(map(is_aligned, items))
    found: list[Any] = []
    for item in items:
        if isinstance(item, Tensor):
            found.append(item.reshape(()) if item.numel() == 1 else item)
        else:
            found.append(item.tensor if aligned else node.extended(item, rank))
    return found, shape


def elementwise(node: Node, operation: str, items: Sequence[Any], *, mask: bool = False) -> Value:
    """The result of an operation that broadcasts its arguments, values or constants."""
    tensors, shape = _aligned(node, items)
    found = node.call(operation, *operands(items, tensors))
    return node.make(found, shape, mask=mask)


def _chained(node: Node, operation: str, items: Sequence[Any]) -> Value | Tensor:
    """The result of an operation that is applied from the first argument to the last."""
    result: Any = items[0]
    for item in items[1:]:
        if isinstance(result, Tensor) and isinstance(item, Tensor):
            packet, _, overload = operation.partition(".")
            run = getattr(getattr(torch.ops.aten, packet), overload or "default")
            result = run(result, item)
        else:
            result = elementwise(node, operation, [result, item])
    found: Value | Tensor = result
    return found


def added(node: Node, items: Sequence[Any]) -> Value:
    """The sum of two values, or of a value and a constant."""
    return elementwise(node, "add.Tensor", items)


def _all_inputs(node: Node) -> list[Any]:
    """All inputs, with the constants first, so that they are put together."""
    return sorted(node.inputs, key=lambda item: isinstance(item, Value))


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
    return added(node, items)


@rule("Sum", "several inputs")
def _sum(node: Node) -> Value | Tensor:
    return _chained(node, "add.Tensor", _all_inputs(node))


@rule("Mean", "several inputs")
def _mean(node: Node) -> Value | Tensor:
    total = _chained(node, "add.Tensor", _all_inputs(node))
    if isinstance(total, Tensor):
        return total / len(node.inputs)
    count = torch.tensor(float(len(node.inputs)), dtype=node.writer.dtype)
    return elementwise(node, "div.Tensor", [total, count])


@rule("Sub")
def _sub(node: Node) -> Value:
    return elementwise(node, "sub.Tensor", [node.given(0), node.given(1)])


# What may make a product a smooth function of one variable, which capturing a model finds out.
_GATES = ("Sigmoid", "HardSigmoid", "Tanh", "Add", "Clip", "Mul", "Div")


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
    divisor = node.given(1)
    if isinstance(divisor, Value) and _kind_of(node, divisor) == "Add":
        return elementwise(node, "div.Tensor", [node.value(0), divisor])  # perhaps a softsign
    return elementwise(node, "div.Tensor", [node.value(0), node.constant(1, "divisor")])


@rule("Max", "several inputs, constants among them")
def _max(node: Node) -> Value | Tensor:
    return _chained(node, "maximum", _all_inputs(node))


@rule("Min", "several inputs, constants among them")
def _min(node: Node) -> Value | Tensor:
    return _chained(node, "minimum", _all_inputs(node))


# -- functions of one variable --------------------------------------------------------------------


def _applied(node: Node, layer: nn.Module) -> Value:
    x = node.value()
    return Value(node.emit(layer, x.tensor), x.shape)


@rule("Relu")
def _relu(node: Node) -> Value:
    return _applied(node, nn.ReLU())


@rule("LeakyRelu")
def _leaky_relu(node: Node) -> Value:
    return _applied(node, nn.LeakyReLU(node.get("alpha", 0.01)))


@rule("HardSigmoid")
def _hard_sigmoid(node: Node) -> Value:
    alpha, beta = node.get("alpha", 0.2), node.get("beta", 0.5)
    x, dtype = node.value(), node.writer.dtype
    scaled = elementwise(node, "mul.Tensor", [x, torch.tensor(alpha, dtype=dtype)])
    shifted = elementwise(node, "add.Tensor", [scaled, torch.tensor(beta, dtype=dtype)])
    return Value(node.emit(nn.Hardtanh(0.0, 1.0), shifted.tensor), x.shape)


@rule("Shrink", "where bias equals lambd")
def _shrink(node: Node) -> Value:
    lambd = node.get("lambd", 0.5)
    if node.get("bias", 0.0) != lambd:
        raise Refused(f"{_JUMP} unless its bias equals lambd")
    return _applied(node, nn.Softshrink(lambd))


@rule("ThresholdedRelu", "where alpha is 0")
def _thresholded_relu(node: Node) -> Value:
    if node.get("alpha", 1.0) != 0:
        raise Refused(f"{_JUMP} unless its alpha is 0")
    return _applied(node, nn.ReLU())


@rule("Abs")
def _abs(node: Node) -> Value:
    return Value(node.call("abs", named(node.value().tensor)), node.value().shape)


@rule("Neg")
def _neg(node: Node) -> Value:
    return Value(node.call("neg", named(node.value().tensor)), node.value().shape)


@rule("PRelu", "constant slopes, one for all, for each channel or for each entry")
def _prelu(node: Node) -> Value:
    x, slope = node.value(), node.constant(1, "slope")
    rank = len(x.shape)
    wide = (*[1] * (rank - slope.dim()), *slope.shape)
    if slope.dim() > rank or any(a not in (1, b) for a, b in zip(wide, x.shape, strict=True)):
        raise Refused(f"its slopes of shape {tuple(slope.shape)} do not fit the shape {x.shape}")
    channels = [size if i == 1 else 1 for i, size in enumerate(wide)]
    if slope.numel() == 1 or (x.shape[0] == 1 and list(wide) == channels):
        return _applied(node, _prelu_layer(slope))
    whole = slope.reshape(wide).expand(x.shape)
    flat = node.reshaped(x.tensor, (whole.numel(),))
    return node.make(node.emit(_prelu_layer(whole), flat), x.shape)


def _prelu_layer(slope: Tensor) -> nn.PReLU:
    return filled(unfilled(nn.PReLU, slope.numel()), slope.reshape(-1), None)


@rule("Clip", "bounds that are constants or values")
def _clip(node: Node) -> Value:
    x = node.value()
    old = node.opset < 11
    bounds: list[Any] = (
        [node.get("min"), node.get("max")] if old else [node.input(1), node.input(2)]
    )
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
        return _applied(node, nn.ReLU())
    if low is not None and high is not None and -inf < low < high < inf:
        return _applied(node, nn.ReLU6() if (low, high) == (0, 6) else nn.Hardtanh(low, high))
    return Value(node.call("clamp", named(x.tensor), low, high), x.shape)


# -- final functions ------------------------------------------------------------------------------


_FINAL = "at the end, where it is left out; elsewhere with `smooth=`"


@rule("Sigmoid", _FINAL)
def _sigmoid(node: Node) -> Value:
    return _applied(node, nn.Sigmoid())


@rule("Tanh", _FINAL)
def _tanh(node: Node) -> Value:
    return _applied(node, nn.Tanh())


@rule("Softmax LogSoftmax", "at the end, where it is left out")
def _softmax(node: Node) -> Value:
    x, kinds = node.value(), {"Softmax": nn.Softmax, "LogSoftmax": nn.LogSoftmax}
    rank = len(x.shape)
    axis = node.axis(node.get("axis", -1 if node.opset >= 13 else 1), rank)
    if node.opset < 13 and axis < rank - 1:  # it took all axes from this one on for one
        rows = tuple(x.shape[:axis])
        flat = (*rows, torch.Size(x.shape[axis:]).numel())
        tensor = node.reshaped(x.tensor, flat)
        return node.make(node.emit(kinds[node.kind](dim=-1), tensor), x.shape)
    tensor, (dim,) = node.dims(x, [axis])
    return node.make(node.emit(kinds[node.kind](dim=dim), tensor), x.shape)


# -- masks ----------------------------------------------------------------------------------------

_COMPARISONS = {"Greater": "gt", "Less": "lt", "GreaterOrEqual": "ge", "LessOrEqual": "le"}


@rule(" ".join(_COMPARISONS), "to choose between values that agree where they are chosen")
def _comparison(node: Node) -> Value:
    items = [node.given(0), node.given(1)]
    word = _COMPARISONS[node.kind]
    if isinstance(items[0], Tensor):  # ATen has the value first
        items, word = items[::-1], {"gt": "lt", "lt": "gt", "ge": "le", "le": "ge"}[word]
    return elementwise(node, f"{word}.Tensor", items, mask=True)


@rule("Not", "of a comparison")
def _not(node: Node) -> Value:
    x = node.value()
    return Value(node.call("logical_not", named(x.tensor)), x.shape, mask=True)


@rule("Sign", "times a value that is zero where the sign changes")
def _sign(node: Node) -> Value:
    x = node.value()
    return Value(node.call("sign", named(x.tensor)), x.shape, mask=True)


@rule("Where", "constant condition, or a comparison on whose border the two values agree")
def _where(node: Node) -> Value:
    items = [node.given(0), node.given(1), node.given(2)]
    if isinstance(items[0], Tensor):
        items[0] = items[0].to(torch.bool)
    return elementwise(node, "where.self", items)


__all__: list[str] = []

_NOTE = "with `smooth=`"
_THRESHOLD = 30.0  # beyond which torch's softplus is the identity, as it is in float64
_CALLS = {"Erf": "erf", "Exp": "exp", "Sin": "sin", "Cos": "cos"}


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
