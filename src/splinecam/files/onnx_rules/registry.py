"""The registry: one rule per ONNX operation, folding of constants, and reasons against the rest."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from torch import Tensor, nn

from splinecam.files.onnx_nodes import Node, Value
from splinecam.network.ops import nonlinear

Result = Value | Tensor
Function = Callable[[Node], Result | list[Result]]
Fold = Callable[[Node, list[Any]], Tensor]


RULES: dict[str, Function] = {}
"""Operations on values that depend on the input; constants go through the same layers."""

_NOTES: dict[str, str] = {}  # what to know about the rules, for the table

FOLDS: dict[str, Fold] = {}
"""Operations on constants alone, which are computed while the file is read."""

LEARNING = frozenset({"Scaler", "LinearClassifier", "LinearRegressor", "Normalizer"})
"""The operations of ``ai.onnx.ml`` among them, which files of scikit-learn use."""


def onnx_table_markdown() -> str:
    """The operations that can be read, as a Markdown table with a row for each note."""
    rows: dict[str, list[str]] = {}
    for name, notes in _NOTES.items():
        rows.setdefault(notes, []).append(f"`{name}`")
    rows["of constants, while the file is read"] = [f"`{x}`" for x in FOLDS if x not in RULES]
    lines = sorted(f"| {', '.join(sorted(names))} | {notes} |" for notes, names in rows.items())
    return "\n".join(["| operations | notes |", "|---|---|", *lines])


def rule(names: str, notes: str = "") -> Callable[[Function], Function]:
    """Register a rule for operations, whose names have blanks between them."""

    def add(function: Function) -> Function:
        RULES.update(dict.fromkeys(names.split(), function))
        _NOTES.update(dict.fromkeys(names.split(), notes))
        return function

    return add


def fold(names: str) -> Callable[[Fold], Fold]:
    """Register how operations on constants are computed."""

    def add(function: Fold) -> Fold:
        FOLDS.update(dict.fromkeys(names.split(), function))
        return function

    return add


Layer = TypeVar("Layer", bound=nn.Module)


@cache
def _quiet(kind: Any) -> Any:
    """A class whose layers do not draw random numbers for their weights."""
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


_REASONS = {
    "control flow (a graph within the graph) is not supported: write the network without it": (
        "If Loop Scan SequenceMap"
    ),
    nonlinear.SMOOTH: "Log Sqrt Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Reciprocal RNN LSTM "
    "GRU CumProd ReduceProd Det",
    nonlinear.QUADRATIC: "ReduceSumSquare",
    nonlinear.SOFT: "ReduceLogSumExp ReduceLogSum",
    nonlinear.LENGTH: "ReduceL2 LpPool GlobalLpPool LpNormalization",
    "it divides by a statistic of the activations: not piecewise linear": (
        "InstanceNormalization LayerNormalization GroupNormalization RMSNormalization LRN "
        "MeanVarianceNormalization"
    ),
    "attention multiplies activations with each other: not piecewise linear": (
        "Attention RotaryEmbedding"
    ),
    nonlinear.JUMP: "Floor Ceil Round Mod BitShift",
    nonlinear.ROUNDED: "QuantizeLinear DynamicQuantizeLinear DequantizeLinear QLinearConv "
    "QLinearMatMul ConvInteger MatMulInteger",
    nonlinear.MASK: "Equal And Or Xor IsNaN IsInf",
    nonlinear.WINNER: "ArgMax ArgMin Hardmax",
    nonlinear.INDICES: "TopK NonZero Unique NonMaxSuppression",
    nonlinear.RANDOM: "RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli "
    "Multinomial",
}
REJECTED = {name: reason for reason, names in _REASONS.items() for name in names.split()}
"""Operations that a piecewise-linear network cannot have, each with its reason."""
