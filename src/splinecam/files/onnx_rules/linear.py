"""Products with constant matrices, convolutions and batch normalisation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from splinecam.files.onnx_nodes import Node, Refused, Value, named
from splinecam.files.onnx_rules.elementwise import added, bias_of
from splinecam.files.onnx_rules.registry import dense, filled, rule, unfilled
from splinecam.network.ops.nonlinear import PRODUCT

_TRAINING = "it is in training mode, where it uses the statistics of the batch"


def along_axis(node: Node, tensor: str, dim: int, matrix: Tensor) -> str:
    """A tensor whose dimension is multiplied with a matrix (outputs, inputs)."""
    last = len(node.shape_of(tensor))
    if dim != last:
        tensor = node.call("transpose.int", named(tensor), dim, last)
    tensor = node.emit(dense(matrix), tensor)
    return tensor if dim == last else node.call("transpose.int", named(tensor), dim, last)


@rule("Gemm", "one factor constant")
def _gemm(node: Node) -> Value:
    a, b = node.given(0), node.given(1)
    for item in (a, b):
        if len(item.shape) != 2:
            raise Refused("its factors must be matrices")
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    if isinstance(a, Tensor) and node.get("transA", 0):
        a = a.T
    if isinstance(b, Tensor) and node.get("transB", 0):
        b = b.T
    a = _transposed(node, a) if isinstance(a, Value) and node.get("transA", 0) else a
    b = _transposed(node, b) if isinstance(b, Value) and node.get("transB", 0) else b
    if isinstance(a, Tensor):
        a = alpha * a if alpha != 1 else a
    elif isinstance(b, Tensor):
        b = alpha * b if alpha != 1 else b
    else:
        raise Refused(PRODUCT)
    shift = node.input(2)
    if isinstance(shift, Tensor) and beta != 1:
        shift = beta * shift
    elif isinstance(shift, Value) and beta != 1:
        factor = torch.tensor(beta, dtype=node.writer.dtype)
        scaled = node.call("mul.Tensor", named(shift.tensor), factor)
        shift = Value(scaled, shift.shape)
    return _product(node, a, b, shift)


def _transposed(node: Node, value: Value) -> Value:
    tensor = node.call("transpose.int", named(node.extended(value)), 1, 2)
    return node.make(tensor, value.shape[::-1])


def _product(
    node: Node, a: Value | Tensor, b: Value | Tensor, shift: Value | Tensor | None
) -> Value:
    """The product of a value with a constant, plus what is added to it."""
    if isinstance(a, Value) and isinstance(b, Value):
        raise Refused(PRODUCT)
    if isinstance(a, Value) and isinstance(b, Tensor) and b.dim() == 2:
        return _features_times(node, a, b, shift)
    result = _matrix_product(node, a, b)
    return result if shift is None else added(node, [result, shift])


def _features_times(node: Node, a: Value, b: Tensor, shift: Value | Tensor | None) -> Value:
    if not a.shape or a.shape[-1] != b.shape[0]:
        raise Refused(f"its factors of shapes {a.shape} and {tuple(b.shape)} do not fit")
    shape = (*a.shape[:-1], b.shape[1])
    bias = bias_of(shift, shape) if isinstance(shift, Tensor) else None
    layer = dense(b.T, bias)
    tensor = node.emit(layer, node.extended(a) if len(a.shape) == 1 else a.tensor)
    result = node.make(tensor, shape)
    if shift is None and node.uses[:1] == [1]:
        node.writer.linear[result.tensor] = layer
    return result if shift is None or bias is not None else added(node, [result, shift])


def _matrix_product(node: Node, a: Value | Tensor, b: Value | Tensor) -> Value:
    """A product of any ranks, as that of numpy."""
    blank = [torch.empty(item.shape, device="meta") for item in (a, b)]
    try:
        shape = tuple(torch.matmul(*blank).shape)
    except RuntimeError:
        raise Refused(f"its factors of shapes {a.shape} and {b.shape} do not fit") from None
    if (
        isinstance(a, Tensor)
        and isinstance(b, Value)
        and a.dim() == 2
        and b.shape[1:] in ((), (1,))
    ):
        column = node.reshaped(b.tensor, b.shape[:1])
        return node.make(node.emit(dense(a), column), shape)
    vectors = [len(item.shape) == 1 for item in (a, b)]
    rank = max(2, len(a.shape), len(b.shape))
    operands: list[Any] = []
    for item, is_vector, first in ((a, vectors[0], True), (b, vectors[1], False)):
        inner = tuple(item.shape)
        if is_vector:
            inner = (1, *inner) if first else (*inner, 1)
        if isinstance(item, Tensor):
            operands.append(item.reshape(inner))
        else:
            wide = (*[1] * (rank - len(inner)), *inner)
            operands.append(named(node.reshaped(item.tensor, wide)))
    return node.make(node.call("matmul", *operands), shape)


@rule("MatMul", "one factor constant")
def _matmul(node: Node) -> Value:
    return _product(node, node.given(0), node.given(1), None)


@rule("BatchNormalization", "not in training mode")
def _batch_norm(node: Node) -> Value:
    if node.get("training_mode", 0) or any(node.uses[1:]):
        raise Refused(_TRAINING)
    x = node.value(0)
    words = ("scale", "bias", "mean", "variance")
    scale, bias, mean, var = (node.constant(i + 1, words[i]) for i in range(4))
    eps = node.get("epsilon", 1e-5)
    channels = x.shape[1] if len(x.shape) > 1 else 1
    if any(item.shape != (channels,) for item in (scale, bias, mean, var)):
        raise Refused(f"its statistics are not one for each of {channels} channels")
    kinds: dict[int, Any] = {
        2: nn.BatchNorm1d,
        3: nn.BatchNorm1d,
        4: nn.BatchNorm2d,
        5: nn.BatchNorm3d,
    }
    if x.shape[0] != 1 or len(x.shape) not in kinds:
        wide = (channels, *[1] * (len(x.shape) - 2))
        factor = scale / torch.sqrt(var + eps)
        tensor = node.call("mul.Tensor", named(node.extended(x)), factor.reshape(wide))
        shift = (bias - mean * factor).reshape(wide)
        return node.make(node.call("add.Tensor", named(tensor), shift), x.shape)
    layer = filled(unfilled(kinds[len(x.shape)], channels, eps=eps), scale, bias)
    layer.running_mean, layer.running_var = mean.clone(), var.clone()
    layer.num_batches_tracked = torch.tensor(0)
    return Value(node.emit(layer, x.tensor), x.shape)


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
    centered = node.call("sub.Tensor", named(x.tensor), shift)
    return node.make(node.call("mul.Tensor", named(centered), factor), x.shape)


def _scores(node: Node, outputs: int) -> Value:
    """The linear functions of a model, and the function that is applied to them."""
    x, count = _features(node)
    weight = _numbers(node, "coefficients", [0.0])
    bias = _numbers(node, "intercepts", [0.0] * outputs)
    if outputs < 1 or weight.numel() != outputs * count or len(bias) != outputs:
        raise Refused(f"its coefficients are not {outputs} for each of {count} features")
    function = node.get("post_transform", "NONE")
    tensor = node.emit(dense(weight.reshape(outputs, count), bias), x.tensor)
    if function != "NONE":
        if function not in _FUNCTIONS:
            raise Refused(f"its post_transform {function} is not supported: use NONE")
        tensor = node.emit(_FUNCTIONS[function](), tensor)
    return Value(tensor, (1, outputs))


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
