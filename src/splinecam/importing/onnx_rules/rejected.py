"""The operations that are not imported, each with the reason."""

from __future__ import annotations

from splinecam.importing.onnx_rules.registry import reject
from splinecam.network.ops.rejected import (
    INDICES,
    JUMP,
    LENGTH,
    MASK,
    QUADRATIC,
    RANDOM,
    ROUNDED,
    SMOOTH,
    SOFT,
    WINNER,
)

__all__: list[str] = []

_NORM = "it divides by a statistic of the activations: not piecewise linear"
_ATTENTION = "attention multiplies activations with each other: not piecewise linear"
_BRANCHES = "control flow (a graph within the graph) is not supported: write the network without it"

reject("If Loop Scan SequenceMap", _BRANCHES)
reject(
    "Log Sqrt Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Reciprocal RNN LSTM GRU CumProd "
    "ReduceProd Det",
    SMOOTH,
)
reject("ReduceSumSquare", QUADRATIC)
reject("ReduceLogSumExp ReduceLogSum", SOFT)
reject("ReduceL2 LpPool GlobalLpPool LpNormalization", LENGTH)
reject(
    "InstanceNormalization LayerNormalization GroupNormalization RMSNormalization LRN "
    "MeanVarianceNormalization",
    _NORM,
)
reject("Attention RotaryEmbedding", _ATTENTION)
reject("Floor Ceil Round Mod BitShift", JUMP)
reject(
    "QuantizeLinear DynamicQuantizeLinear DequantizeLinear QLinearConv QLinearMatMul ConvInteger "
    "MatMulInteger",
    ROUNDED,
)
reject("Equal And Or Xor IsNaN IsInf", MASK)
reject("ArgMax ArgMin Hardmax", WINNER)
reject("TopK NonZero Unique NonMaxSuppression", INDICES)
reject(
    "RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli Multinomial", RANDOM
)
