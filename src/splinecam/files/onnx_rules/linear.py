"""Products with constant matrices, convolutions and batch normalisation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from splinecam.files.onnx_nodes import Node, Refused, Value
from splinecam.files.onnx_rules.elementwise import bias_of, elementwise
from splinecam.files.onnx_rules.registry import dense, filled, rule, unfilled
from splinecam.network.ops.nonlinear import PRODUCT


def along_axis(node: Node, tensor: str, dim: int, matrix: Tensor) -> str:
    """A tensor, multiplied with a matrix (outputs, inputs) along one of its dimensions."""
    last = len(node.shape_of(tensor))
    if dim != last:
        tensor = node.call("transpose.int", tensor, dim, last)
    tensor = node.emit(dense(matrix), tensor)
    return tensor if dim == last else node.call("transpose.int", tensor, dim, last)


@rule("Gemm", "one factor constant")
def _gemm(node: Node) -> Value:
    a, b = (_factor(node, i, name) for i, name in enumerate(("transA", "transB")))
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    if isinstance(a, Tensor):
        a = alpha * a if alpha != 1 else a
    elif isinstance(b, Tensor):
        b = alpha * b if alpha != 1 else b
    shift = node.input(2)
    if isinstance(shift, Tensor) and beta != 1:
        shift = beta * shift
    elif isinstance(shift, Value) and beta != 1:
        shift = Value(node.call("mul.Tensor", shift.tensor, node.number(beta)), shift.shape)
    return _product(node, a, b, shift)


def _factor(node: Node, i: int, flag: str) -> Value | Tensor:
    """A matrix that is a factor, transposed if an attribute of the node says so."""
    item = node.given(i)
    if len(item.shape) != 2:
        raise Refused("its factors must be matrices")
    if not node.get(flag, 0):
        return item
    if isinstance(item, Tensor):
        return item.T
    return node.make(node.call("transpose.int", node.extended(item), 1, 2), item.shape[::-1])


def _product(
    node: Node, a: Value | Tensor, b: Value | Tensor, shift: Value | Tensor | None
) -> Value:
    """The product of a value with a constant, plus a shift."""
    if isinstance(a, Value) and isinstance(b, Value):
        raise Refused(PRODUCT)
    bias = None
    if isinstance(a, Value) and isinstance(b, Tensor) and b.dim() == 2:
        if not a.shape or a.shape[-1] != b.shape[0]:
            raise Refused(f"its factors of shapes {a.shape} and {tuple(b.shape)} do not fit")
        shape = (*a.shape[:-1], b.shape[1])
        bias = bias_of(shift, shape) if isinstance(shift, Tensor) else None
        layer = dense(b.T, bias)
        tensor = node.emit(layer, node.extended(a) if len(a.shape) == 1 else a.tensor)
        result = node.make(tensor, shape)
        if shift is None and node.uses[:1] == [1]:
            node.writer.linear[result.tensor] = layer
    else:
        result = _matrix_product(node, a, b)
    if shift is None or bias is not None:
        return result
    return elementwise(node, "add.Tensor", [result, shift])


def _matrix_product(node: Node, a: Value | Tensor, b: Value | Tensor) -> Value:
    """A product of factors of any ranks, as in numpy."""
    blank = [torch.empty(item.shape, device="meta") for item in (a, b)]
    try:
        shape = tuple(torch.matmul(*blank).shape)
    except RuntimeError:
        raise Refused(f"its factors of shapes {a.shape} and {b.shape} do not fit") from None
    is_column = isinstance(b, Value) and b.shape[1:] in ((), (1,))
    if isinstance(a, Tensor) and isinstance(b, Value) and a.dim() == 2 and is_column:
        return node.make(node.emit(dense(a), node.reshaped(b.tensor, b.shape[:1])), shape)
    rank = max(2, len(a.shape), len(b.shape))
    operands: list[Any] = []
    for item in (a, b):
        inner = tuple(item.shape)
        if len(inner) == 1:
            inner = (1, *inner) if item is a else (*inner, 1)
        if isinstance(item, Tensor):
            operands.append(item.reshape(inner))
        else:
            operands.append(node.reshaped(item.tensor, (*[1] * (rank - len(inner)), *inner)))
    return node.make(node.call("matmul", *operands), shape)


@rule("MatMul", "one factor constant")
def _matmul(node: Node) -> Value:
    return _product(node, node.given(0), node.given(1), None)


@rule("BatchNormalization", "not in training mode")
def _batch_norm(node: Node) -> Value:
    if node.get("training_mode", 0) or any(node.uses[1:]):
        raise Refused("it is in training mode, where it uses the statistics of the batch")
    x = node.value(0)
    words = ("scale", "bias", "mean", "variance")
    scale, bias, mean, var = (node.constant(i + 1, words[i]) for i in range(4))
    eps = node.get("epsilon", 1e-5)
    channels = x.shape[1] if len(x.shape) > 1 else 1
    if any(item.shape != (channels,) for item in (scale, bias, mean, var)):
        raise Refused(f"its statistics are not one for each of {channels} channels")
    norm1: Any = nn.BatchNorm1d
    kinds = {2: norm1, 3: norm1, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
    if x.shape[0] != 1 or len(x.shape) not in kinds:
        wide = (channels, *[1] * (len(x.shape) - 2))
        factor = scale / torch.sqrt(var + eps)
        tensor = node.call("mul.Tensor", node.extended(x), factor.reshape(wide))
        shift = (bias - mean * factor).reshape(wide)
        return node.make(node.call("add.Tensor", tensor, shift), x.shape)
    layer = filled(unfilled(kinds[len(x.shape)], channels, eps=eps), scale, bias)
    layer.running_mean, layer.running_var = mean.clone(), var.clone()
    layer.num_batches_tracked = torch.tensor(0)
    return node.applied(layer)


# -- ai.onnx.ml, which skl2onnx writes ------------------------------------------------------------

_SKLEARN = "of `ai.onnx.ml`, as skl2onnx writes it"
_FUNCTIONS: dict[str, Callable[[], nn.Module]] = {
    "LOGISTIC": nn.Sigmoid,
    "SOFTMAX": lambda: nn.Softmax(1),
}


def _features(node: Node) -> tuple[Value, int]:
    """The input, which is a row of features, and their number."""
    x = node.value()
    if len(x.shape) != 2 or x.shape[0] != 1:
        raise Refused(f"its input of shape {x.shape} is no row of features")
    return x, x.shape[1]


def _numbers(node: Node, name: str, default: list[float]) -> Tensor:
    return torch.tensor(node.get(name, default) or default, dtype=node.writer.dtype)


@rule("Scaler", _SKLEARN)
def _scaler(node: Node) -> Value:
    x, count = _features(node)
    shift, factor = _numbers(node, "offset", [0.0]), _numbers(node, "scale", [1.0])
    if any(len(each) not in (1, count) for each in (shift, factor)):
        raise Refused(f"it has not one offset and one scale for each of {count} features")
    centered = node.call("sub.Tensor", x.tensor, shift)
    return node.make(node.call("mul.Tensor", centered, factor), x.shape)


def _scores(node: Node, outputs: int) -> Value:
    """The scores of a linear model, after the function that it applies to them."""
    x, count = _features(node)
    weight = _numbers(node, "coefficients", [0.0])
    bias = _numbers(node, "intercepts", [0.0] * outputs)
    if outputs < 1 or weight.numel() != outputs * count or len(bias) != outputs:
        raise Refused(f"its coefficients are not {outputs} for each of {count} features")
    function = node.get("post_transform", "NONE")
    scores = Value(node.emit(dense(weight.reshape(outputs, count), bias), x.tensor), (1, outputs))
    if function == "NONE":
        return scores
    if function not in _FUNCTIONS:
        raise Refused(f"its post_transform {function} is not supported: use NONE")
    return node.applied(_FUNCTIONS[function](), scores)


@rule("LinearRegressor", _SKLEARN)
def _linear_regressor(node: Node) -> Value:
    return _scores(node, int(node.get("targets", 1)))


@rule("LinearClassifier", f"{_SKLEARN}; the scores, not the label")
def _linear_classifier(node: Node) -> list[Any]:
    classes = node.get("classlabels_strings") or node.get("classlabels_ints") or []
    rows = len(node.get("intercepts", [])) or len(classes)
    if rows != len(classes):
        raise Refused(f"it has {rows} scores for {len(classes)} classes")
    return [None, _scores(node, rows)]


@rule("Normalizer", f"{_SKLEARN}, after a softmax, whose sum is 1 already")
def _normalizer(node: Node) -> Value:
    x = node.value()
    last = node.writer.made().get(x.tensor)
    summed = last is not None and isinstance(node.writer.layers[last.module], nn.Softmax)
    if node.get("norm", "MAX") != "L1" or not summed:
        raise Refused(
            "it divides its input by a length, which is not piecewise linear: normalise the data "
            "before, and write the rest of the pipeline to the file"
        )
    return x
