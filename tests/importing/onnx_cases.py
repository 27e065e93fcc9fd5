"""One small network for each ONNX operation that can be read, for opsets in which it changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from importing.onnx_files import DOUBLE, FLOAT, LEARNING, graph_model, node


@dataclass(frozen=True)
class Case:
    """A network; shape: of its input, where "n" stands for an open batch."""

    name: str
    nodes: Sequence[Any]
    shape: Sequence[Any]
    constants: dict[str, Any] = field(default_factory=dict)
    opset: int = 17
    outputs: Sequence[str] = ("y",)
    elem: int = FLOAT
    smooth: bool = False

    def model(self) -> Any:
        return graph_model(
            self.nodes,
            self.shape,
            constants=self.constants,
            opset=self.opset,
            outputs=self.outputs,
            elem=self.elem,
        )


CASES: list[Case] = []
_RNG = np.random.default_rng(0)


def f32(*shape: int) -> Any:
    """Random weights."""
    return _RNG.normal(size=shape).astype(np.float32)


def i64(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


def case(
    name: str,
    nodes: Any,
    shape: Sequence[Any] = ("n", 4),
    *,
    opsets: Sequence[int] = (17,),
    elem: int = FLOAT,
    smooth: bool = False,
    **constants: Any,
) -> None:
    """Add a network of one node or several, for several opsets."""
    nodes = nodes if isinstance(nodes, list) else [nodes]
    for opset in opsets:
        label = f"{name}-{opset}" if len(opsets) > 1 else name
        CASES.append(Case(label, nodes, shape, constants, opset, elem=elem, smooth=smooth))


# -- products -------------------------------------------------------------------------------------
case("gemm", node("Gemm", "x w b"), w=f32(4, 3), b=f32(3), opsets=(7, 9, 11, 13, 21))
case("gemm-scaled", node("Gemm", "x w b", transB=1, alpha=0.5, beta=2.0), w=f32(3, 4), b=f32(1, 3))
case("gemm-scalar-bias", node("Gemm", "x w b"), w=f32(4, 3), b=np.float32(2.0))
case("gemm-no-bias", node("Gemm", "x w"), w=f32(4, 3))
case("gemm-transposed-a", node("Gemm", "x w", transA=1), (4, 1), w=f32(4, 3))
case("gemm-rows", node("Gemm", "x w b"), (3, 4), w=f32(4, 3), b=f32(3, 3))
case("gemm-constant-a", node("Gemm", "w x b", alpha=0.5), (4, 1), w=f32(3, 4), b=f32(3, 1))
case("matmul", node("MatMul", "x w"), w=f32(4, 3), opsets=(7, 13))
case("matmul-bias", [node("MatMul", "x w", "m"), node("Add", "b m")], w=f32(4, 3), b=f32(3))
case("matmul-sequence", node("MatMul", "x w"), ("n", 2, 4), w=f32(4, 3))
case("matmul-left", node("MatMul", "w x"), ("n", 4, 2), w=f32(3, 4))
case("matmul-column", node("MatMul", "w x"), (4, 1), w=f32(3, 4))
case("matmul-vector", node("MatMul", "w x"), (4,), w=f32(3, 4))
case("matmul-vector-right", node("MatMul", "x w"), ("n", 4), w=f32(4))
case("matmul-batched", node("MatMul", "x w"), ("n", 2, 3, 4), w=f32(2, 4, 5))
_shared = [node("MatMul", "x w", "m"), node("Add", "m b", "a"), node("Add", "m a")]
case("matmul-shared", _shared, w=f32(4, 3), b=f32(3))
_aliased = [node("MatMul", "x w", "m"), node("Identity", "m", "i"), node("Add", "i b", "a")]
case(
    "matmul-aliased",
    [*_aliased, node("Mul", "a c", "d"), node("Sub", "d i")],
    w=f32(4, 3),
    b=f32(3),
    c=f32(3),
)
# -- convolutions ---------------------------------------------------------------------------------
case(
    "conv",
    node("Conv", "x w b", pads=[1, 1, 1, 1]),
    ("n", 2, 5, 4),
    w=f32(3, 2, 3, 3),
    b=f32(3),
    opsets=(7, 11, 22),
)
case(
    "conv-strided",
    node("Conv", "x w", strides=[2, 1], dilations=[1, 2]),
    ("n", 2, 7, 6),
    w=f32(3, 2, 3, 2),
)
case("conv-asymmetric", node("Conv", "x w", pads=[0, 1, 2, 0]), ("n", 2, 4, 4), w=f32(3, 2, 3, 3))
case("conv-groups", node("Conv", "x w", group=2), ("n", 4, 4, 4), w=f32(6, 2, 2, 2))
for _mode in ("SAME_UPPER", "SAME_LOWER", "VALID"):
    case(
        f"conv-{_mode}",
        node("Conv", "x w", auto_pad=_mode, strides=[2, 1]),
        ("n", 1, 5, 4),
        w=f32(2, 1, 2, 4),
    )
case("conv-1d", node("Conv", "x w b", pads=[1, 0]), ("n", 2, 6), w=f32(3, 2, 3), b=f32(3))
case("conv-3d", node("Conv", "x w"), ("n", 1, 3, 3, 4), w=f32(2, 1, 2, 2, 2))
_transposed = {"w": f32(2, 3, 3, 3), "b": f32(3)}
case(
    "deconv",
    node("ConvTranspose", "x w b", strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 0]),
    ("n", 2, 3, 4),
    opsets=(7, 11),
    **_transposed,
)
case(
    "deconv-asymmetric",
    node("ConvTranspose", "x w", strides=[2, 1], pads=[0, 1, 1, 0]),
    ("n", 2, 3, 4),
    w=f32(2, 3, 3, 3),
)
case(
    "deconv-shape",
    node("ConvTranspose", "x w", strides=[2, 2], output_shape=[6, 7]),
    ("n", 2, 3, 3),
    w=f32(2, 3, 3, 3),
)
case(
    "deconv-groups",
    node("ConvTranspose", "x w", group=2, dilations=[2, 1]),
    ("n", 4, 3, 3),
    w=f32(4, 2, 2, 2),
)
case("deconv-1d", node("ConvTranspose", "x w", strides=[2]), ("n", 2, 4), w=f32(2, 3, 3))
case(
    "deconv-same",
    node("ConvTranspose", "x w", strides=[2, 2], auto_pad="SAME_UPPER"),
    ("n", 2, 3, 3),
    w=f32(2, 3, 3, 3),
)
# -- normalisation --------------------------------------------------------------------------------
_statistics = {"s": f32(3), "b": f32(3), "m": f32(3), "v": abs(f32(3)) + 1}
for _shape in (("n", 3), ("n", 3, 4), ("n", 3, 2, 2), ("n", 3, 2, 2, 2), (2, 3, 2)):
    case(
        f"batchnorm-{len(_shape)}-{_shape[0]}",
        node("BatchNormalization", "x s b m v", epsilon=1e-3),
        _shape,
        **_statistics,
    )
case(
    "batchnorm",
    node("BatchNormalization", "x s b m v"),
    ("n", 3, 2, 2),
    opsets=(7, 9, 14, 15),
    **_statistics,
)
# -- functions of one variable --------------------------------------------------------------------
for _kind in ("Relu", "Abs", "Neg", "LeakyRelu", "HardSigmoid", "Identity"):
    case(_kind.lower(), node(_kind, "x"), opsets=(7, 13))
case("leakyrelu-slope", node("LeakyRelu", "x", alpha=0.3))
case("hardsigmoid-slope", node("HardSigmoid", "x", alpha=0.25, beta=0.4))
case("shrink", node("Shrink", "x", lambd=0.3, bias=0.3))
case("thresholdedrelu", node("ThresholdedRelu", "x", alpha=0.0))
case("clip-attributes", node("Clip", "x", min=-0.5, max=0.5), opsets=(7, 10))
case("clip-above", node("Clip", "x", max=0.5), opsets=(9,))
case(
    "clip", node("Clip", "x low high"), low=np.float32(-0.2), high=np.float32(0.7), opsets=(11, 13)
)
case("clip-below", node("Clip", "x low"), low=np.float32(0.0), opsets=(13,))
case("clip-6", node("Clip", "x low high"), low=np.float32(0), high=np.float32(6))
case("clip-high", node("Clip", "x - high"), high=np.float32(0.3))
case("prelu", node("PRelu", "x s"), ("n", 3, 2, 2), s=f32(3, 1, 1), opsets=(7, 9, 16))
case("prelu-one", node("PRelu", "x s"), s=f32(1))
case("prelu-features", node("PRelu", "x s"), s=f32(4))
case("prelu-entries", node("PRelu", "x s"), ("n", 2, 3), s=f32(2, 3))
# -- smooth functions of one variable --------------------------------------------------------------
_linear = [node("MatMul", "x w", "h")]
for _kind in ("Erf", "Exp", "Sin", "Cos", "Softplus", "Softsign", "Elu", "Celu", "Selu"):
    case(f"smooth-{_kind.lower()}", [*_linear, node(_kind, "h")], w=f32(4, 3), smooth=True)
for _kind in ("Sigmoid", "Tanh"):
    _nodes = [*_linear, node(_kind, "h", "s"), node("MatMul", "s v")]
    case(f"smooth-{_kind.lower()}", _nodes, w=f32(4, 3), v=f32(3, 2), smooth=True)
case("smooth-hardswish", [*_linear, node("HardSwish", "h")], w=f32(4, 3), smooth=True)
case("smooth-mish", [*_linear, node("Mish", "h")], w=f32(4, 3), opsets=(18,), smooth=True)
for _rate in (1.0, 1.5):
    _nodes = [*_linear, node("Swish", "h", alpha=_rate)]
    case(f"smooth-swish-{_rate}", _nodes, w=f32(4, 3), opsets=(24,), smooth=True)
for _way in ("none", "tanh"):
    _nodes = [*_linear, node("Gelu", "h", approximate=_way)]
    case(f"smooth-gelu-{_way}", _nodes, w=f32(4, 3), opsets=(20,), smooth=True)
case("smooth-elu-alpha", [*_linear, node("Elu", "h", alpha=0.5)], w=f32(4, 3), smooth=True)
case("smooth-celu-alpha", [*_linear, node("Celu", "h", alpha=0.5)], w=f32(4, 3), smooth=True)
case(
    "smooth-selu-own", [*_linear, node("Selu", "h", alpha=1.5, gamma=1.1)], w=f32(4, 3), smooth=True
)
case("smooth-pow", [*_linear, node("Pow", "h p")], w=f32(4, 3), p=np.float32(3), smooth=True)
case("smooth-mul", [*_linear, node("Mul", "h h")], w=f32(4, 3), smooth=True)
case(
    "smooth-silu",
    [*_linear, node("Sigmoid", "h", "s"), node("Mul", "h s")],
    w=f32(4, 3),
    smooth=True,
)
case(
    "smooth-softsign-written",
    [*_linear, node("Abs", "h", "a"), node("Add", "a o", "d"), node("Div", "h d")],
    w=f32(4, 3),
    o=np.float32(1),
    smooth=True,
)
case(
    "smooth-gelu-written",
    [
        *_linear,
        *(node("Div", "h root", "d"), node("Erf", "d", "e"), node("Add", "e o", "g")),
        *(node("Mul", "h g", "m"), node("Mul", "m half")),
    ],
    w=f32(4, 3),
    root=np.float32(2**0.5),
    o=np.float32(1),
    half=np.float32(0.5),
    smooth=True,
)
# -- sums and maxima ------------------------------------------------------------------------------
for _kind in ("Add", "Sub", "Mul", "Div"):
    case(f"{_kind.lower()}-constant", node(_kind, "x c"), c=f32(4) + 3, opsets=(7, 13, 14))
    case(f"{_kind.lower()}-wider", node(_kind, "x c"), (4,), c=f32(3, 1, 4) + 3)
case("sub-from", node("Sub", "c x"), c=f32(1, 4))
case("mul-first", node("Mul", "c x"), c=f32(1, 4))
_two = [node("MatMul", "x w", "a"), node("MatMul", "x v", "b")]
_matrices = {"w": f32(4, 3), "v": f32(4, 3)}
for _kind in ("Add", "Sub", "Max", "Min", "Sum", "Mean"):
    case(f"{_kind.lower()}-two", [*_two, node(_kind, "a b")], opsets=(8, 13), **_matrices)
for _kind in ("Max", "Min", "Sum", "Mean"):
    case(f"{_kind.lower()}-four", [*_two, node(_kind, "c a b c")], c=f32(3), **_matrices)
    case(f"{_kind.lower()}-one", node(_kind, "x"))
case(
    "broadcast-values",
    [node("Reshape", "x s", "a"), node("Reshape", "x t", "b"), node("Add", "a b")],
    (4,),
    s=i64(4, 1),
    t=i64(2, 2, 1, 1),
)
case("pow", node("Pow", "x one"), one=np.float32(1))
# -- masks ----------------------------------------------------------------------------------------
case(
    "where-mask",
    [node("Greater", "x zero", "g"), node("Mul", "x slope", "s"), node("Where", "g x s")],
    zero=np.float32(0),
    slope=np.float32(0.2),
)
case(
    "where-less",
    [node("Less", "zero x", "g"), node("Neg", "x", "s"), node("Where", "g x s")],
    zero=np.float32(0),
    opsets=(9, 13),
)
case(
    "where-not",
    [node("LessOrEqual", "x zero", "l"), node("Not", "l", "g"), node("Where", "g x zero")],
    zero=np.float32(0),
)
case("where-constant", node("Where", "c x d"), c=np.array([[True, False, True, False]]), d=f32(4))
case(
    "mask-times",
    [node("GreaterOrEqual", "x zero", "g"), node("Cast", "g", "c", to=FLOAT), node("Mul", "c x")],
    zero=np.float32(0),
)
case("sign", [node("Sign", "x", "s"), node("Mul", "s x")])
# -- pooling --------------------------------------------------------------------------------------
_image = ("n", 2, 6, 5)
case(
    "maxpool",
    node("MaxPool", "x", kernel_shape=[2, 2], strides=[2, 2]),
    _image,
    opsets=(7, 8, 10, 11, 12),
)
case(
    "maxpool-padded",
    node("MaxPool", "x", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 1]),
    _image,
)
case("maxpool-asymmetric", node("MaxPool", "x", kernel_shape=[3, 2], pads=[0, 1, 2, 0]), _image)
case(
    "maxpool-dilated",
    node("MaxPool", "x", kernel_shape=[2, 2], dilations=[2, 1], ceil_mode=1, strides=[2, 2]),
    _image,
)
case(
    "maxpool-ceil",
    node("MaxPool", "x", kernel_shape=[2, 2], ceil_mode=1, strides=[2, 2], pads=[0, 0, 1, 0]),
    _image,
)
case(
    "maxpool-same",
    node("MaxPool", "x", kernel_shape=[2, 3], auto_pad="SAME_LOWER", strides=[2, 2]),
    _image,
)
case("maxpool-1d", node("MaxPool", "x", kernel_shape=[2]), ("n", 2, 5))
case(
    "averagepool",
    node("AveragePool", "x", kernel_shape=[2, 2], strides=[2, 2]),
    _image,
    opsets=(7, 10, 11, 19),
)
for _include in (0, 1):
    case(
        f"averagepool-padded-{_include}",
        node(
            "AveragePool", "x", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=_include
        ),
        _image,
    )
    case(
        f"averagepool-asymmetric-{_include}",
        node(
            "AveragePool", "x", kernel_shape=[3, 2], pads=[0, 1, 2, 0], count_include_pad=_include
        ),
        _image,
    )
    case(
        f"averagepool-ceil-{_include}",
        node(
            "AveragePool",
            "x",
            kernel_shape=[2, 2],
            strides=[2, 2],
            ceil_mode=1,
            count_include_pad=_include,
        ),
        _image,
    )
case(
    "averagepool-dilated",
    node("AveragePool", "x", kernel_shape=[2, 2], dilations=[2, 1]),
    _image,
    opsets=(19,),
)
case(
    "averagepool-same",
    node("AveragePool", "x", kernel_shape=[2, 3], auto_pad="SAME_UPPER", strides=[2, 2]),
    _image,
)
for _kind in ("GlobalAveragePool", "GlobalMaxPool"):
    case(_kind.lower(), node(_kind, "x"), _image)
    case(f"{_kind.lower()}-1d", node(_kind, "x"), ("n", 2, 5))
# -- reductions -----------------------------------------------------------------------------------
for _kind in ("ReduceMax", "ReduceMin", "ReduceMean", "ReduceSum", "ReduceL1"):
    case(f"{_kind.lower()}", node(_kind, "x", axes=[-1], keepdims=0), ("n", 2, 3), opsets=(7, 11))
    case(f"{_kind.lower()}-keep", node(_kind, "x", axes=[1, 2]), ("n", 2, 3, 2), opsets=(11,))
    case(
        f"{_kind.lower()}-input",
        node(_kind, "x a", keepdims=0),
        ("n", 2, 3),
        a=i64(1),
        opsets=(18,),
    )
    case(f"{_kind.lower()}-all", node(_kind, "x", keepdims=0), (1, 2, 3), opsets=(11,))
    case(f"{_kind.lower()}-noop", node(_kind, "x", noop_with_empty_axes=1), opsets=(18,))
    case(f"{_kind.lower()}-first", node(_kind, "x a", keepdims=1), (2, 3), a=i64(0), opsets=(18,))
case("reducesum-13", node("ReduceSum", "x a"), ("n", 2, 3), a=i64(2), opsets=(13,))
# -- shapes ---------------------------------------------------------------------------------------
case("flatten", node("Flatten", "x"), ("n", 2, 3), opsets=(7, 9, 13))
case("flatten-axis", node("Flatten", "x", axis=2), ("n", 2, 3))
case("flatten-0", node("Flatten", "x", axis=0), (1, 2, 3))
case("flatten-negative", node("Flatten", "x", axis=-1), (2, 2, 3))
case("reshape", node("Reshape", "x s"), ("n", 2, 3), s=i64(-1, 6), opsets=(7, 13, 14))
case(
    "reshape-batch-1",
    [node("Reshape", "x s", "a"), node("MatMul", "a w")],
    (1, 2, 3),
    s=i64(1, -1),
    w=f32(6, 2),
)
case("reshape-zero", node("Reshape", "x s"), ("n", 2, 3), s=i64(0, 3, -1))
case("reshape-flat", node("Reshape", "x s"), (1, 2, 3), s=i64(-1))
case(
    "reshape-rows",
    [node("Reshape", "x s", "a"), node("MatMul", "a w", "b"), node("Reshape", "b t")],
    (1, 4, 3),
    s=i64(2, 6),
    t=i64(1, 4),
    w=f32(6, 2),
)
case("squeeze", node("Squeeze", "x", axes=[1]), ("n", 1, 3), opsets=(7, 11))
case("squeeze-input", node("Squeeze", "x a"), ("n", 1, 3), a=i64(-2), opsets=(13,))
case("squeeze-all", node("Squeeze", "x"), (1, 1, 3))
case("unsqueeze", node("Unsqueeze", "x", axes=[1, 3]), opsets=(7, 11))
case("unsqueeze-input", node("Unsqueeze", "x a"), a=i64(0, -1), shape=(4,), opsets=(13, 21))
case("transpose", node("Transpose", "x", perm=[0, 2, 1]), ("n", 2, 3))
case("transpose-reversed", node("Transpose", "x"), (1, 2, 3))
case("transpose-first", node("Transpose", "x", perm=[1, 2, 0]), (2, 3, 2))
case("expand", node("Expand", "x s"), ("n", 1, 3), s=i64(1, 2, 3), opsets=(8, 13))
case("tile", node("Tile", "x s"), ("n", 2, 3), s=i64(1, 2, 1), opsets=(7, 13))
case("dropout", node("Dropout", "x", ratio=0.5), opsets=(7, 10))
case("dropout-input", node("Dropout", "x r"), r=np.float32(0.5), opsets=(12, 13))
case("depthtospace", node("DepthToSpace", "x", blocksize=2), ("n", 8, 2, 3), opsets=(7, 13))
case("depthtospace-crd", node("DepthToSpace", "x", blocksize=2, mode="CRD"), ("n", 8, 2, 3))
case("spacetodepth", node("SpaceToDepth", "x", blocksize=2), ("n", 2, 4, 2))
case("slice-attributes", node("Slice", "x", starts=[1], ends=[3], axes=[1]), opsets=(7, 9))
case(
    "slice",
    node("Slice", "x a b c d"),
    ("n", 5, 6),
    a=i64(-4, 1),
    b=i64(2**62, 6),
    c=i64(1, 2),
    d=i64(1, 2),
    opsets=(10, 13),
)
case(
    "slice-back",
    node("Slice", "x a b c d"),
    ("n", 6),
    a=i64(-1),
    b=i64(-(2**62)),
    c=i64(1),
    d=i64(-2),
)
case("slice-rows", node("Slice", "x a b"), (4, 3), a=i64(1), b=i64(3))
case(
    "split",
    [
        node("Split", "x", "a b c", axis=1, split=[1, 2, 3]),
        node("Sum", "a r", "q"),
        node("Concat", "c q b", axis=1),
    ],
    ("n", 6),
    r=f32(1),
    opsets=(8, 11),
)
case(
    "split-equal",
    [node("Split", "x", "a b", axis=-1), node("Max", "a b")],
    ("n", 6),
    opsets=(7, 13),
)
case(
    "split-input",
    [node("Split", "x s", "a b", axis=1), node("Concat", "b a", axis=1)],
    ("n", 6),
    s=i64(2, 4),
    opsets=(13,),
)
case(
    "split-number",
    [node("Split", "x", "a b", axis=1, num_outputs=2), node("Concat", "b a", axis=1)],
    ("n", 5),
    opsets=(18,),
)
case(
    "gather",
    node("Gather", "x i", axis=1),
    ("n", 5),
    i=np.array([[0, -1], [2, 2]]),
    opsets=(7, 11, 13),
)
case("gather-scalar", node("Gather", "x i", axis=1), ("n", 5, 2), i=np.int64(-2))
case("gather-rows", node("Gather", "x i"), (3, 2), i=i64(2, 0))
case("gatherelements", node("GatherElements", "x i", axis=1), (1, 4), i=np.array([[3, 3, 0]]))
case("gathernd", node("GatherND", "x i"), (3, 4), i=np.array([[0, 1], [2, 3]]))
case("concat", [node("Relu", "x", "r"), node("Concat", "x r x", axis=1)], opsets=(7, 13))
case(
    "concat-constant",
    [node("Relu", "x", "r"), node("Concat", "c x d r c", axis=1)],
    (1, 4),
    c=f32(1, 2),
    d=f32(1, 1),
)
case("concat-rows", node("Concat", "x c", axis=0), (2, 4), c=f32(1, 4))
case("pad-attributes", node("Pad", "x", pads=[0, 1, 0, 2], value=0.5), opsets=(7, 10))
case(
    "pad",
    node("Pad", "x p v"),
    ("n", 2, 3),
    p=i64(0, 1, 0, 0, 0, -1),
    v=np.float32(0.5),
    opsets=(11, 13),
)
case("pad-axes", node("Pad", "x p - a"), ("n", 2, 3), p=i64(1, 2), a=i64(-1), opsets=(18,))
for _mode in ("reflect", "edge"):
    case(f"pad-{_mode}", node("Pad", "x p", mode=_mode), ("n", 3, 4), p=i64(0, 1, 2, 0, 0, 1))
case(
    "pad-wrap", node("Pad", "x p", mode="wrap"), ("n", 3, 4), p=i64(0, 1, 2, 0, 0, 1), opsets=(19,)
)
# -- resizing -------------------------------------------------------------------------------------
_scales, _plane = np.array([1, 1, 2, 1.5], np.float32), ("n", 2, 3, 4)
for _mode in ("nearest", "linear"):
    case(
        f"upsample-{_mode}",
        node("Upsample", "x", scales=[1.0, 1.0, 2.0, 3.0], mode=_mode),
        _plane,
        opsets=(7,),
    )
    case(
        f"upsample-{_mode}-input",
        node("Upsample", "x s", mode=_mode),
        _plane,
        s=np.array([1, 1, 2, 2], np.float32),
        opsets=(9,),
    )
    case(f"resize-{_mode}-old", node("Resize", "x s", mode=_mode), _plane, s=_scales, opsets=(10,))
    for _where in ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"):
        case(
            f"resize-{_mode}-{_where}",
            node("Resize", "x roi s", mode=_mode, coordinate_transformation_mode=_where),
            _plane,
            s=_scales,
            roi=np.zeros(0, np.float32),
            opsets=(11, 13, 18),
        )
    case(
        f"resize-{_mode}-sizes",
        node("Resize", "x - - s", mode=_mode),
        (1, 2, 3, 4),
        s=i64(1, 2, 5, 2),
        opsets=(13,),
    )
    case(
        f"resize-{_mode}-symmetric",
        node("Resize", "x - s", mode=_mode, coordinate_transformation_mode="half_pixel_symmetric"),
        _plane,
        s=_scales,
        opsets=(19,),
    )
case(
    "resize-axes",
    node("Resize", "x - - s", axes=[2, 3], mode="linear"),
    _plane,
    s=i64(6, 3),
    opsets=(18,),
)
for _near in ("floor", "ceil", "round_prefer_ceil"):
    case(
        f"resize-{_near}",
        node("Resize", "x - s", nearest_mode=_near, coordinate_transformation_mode="asymmetric"),
        _plane,
        s=_scales,
    )
case(
    "resize-smaller",
    node("Resize", "x - s", mode="linear"),
    ("n", 1, 6),
    s=np.array([1, 1, 0.6], np.float32),
)
# -- constants and chains of shapes ---------------------------------------------------------------
case("constant", [node("Constant", "", "c", value_floats=[1.0, 2.0, 3.0, 4.0]), node("Add", "x c")])
case("constant-float", [node("Constant", "", "c", value_float=0.5), node("Mul", "x c")])
case("constant-ints", [node("Constant", "", "s", value_ints=[-1, 2]), node("Reshape", "x s")])
case("constantofshape", [node("ConstantOfShape", "s", "c"), node("Max", "x c")], s=i64(1, 4))
_chain = [
    node("Shape", "x", "s"),
    node("Gather", "s zero", "n", axis=0),
    node("Unsqueeze", "n axes", "u"),
    node("Concat", "u minus", "t", axis=0),
    node("Cast", "t", "f", to=FLOAT),
    node("Cast", "f", "g", to=7),
    node("Reshape", "x g"),
]
case("shape-chain", _chain, ("n", 2, 3), zero=np.int64(0), axes=i64(0), minus=i64(-1))
_halved = [
    node("Shape", "x", "s"),
    node("Slice", "s one two", "n"),
    node("Div", "n half", "d"),
    node("Slice", "x zero d one"),
]
case("shape-slice", _halved, ("n", 6), one=i64(1), two=i64(2), half=i64(2), zero=i64(0))
case(
    "range",
    [node("Range", "a b c", "i"), node("Gather", "x i", axis=1)],
    ("n", 6),
    a=np.int64(4),
    b=np.int64(-1),
    c=np.int64(-2),
)
case(
    "folded-weights",
    [
        node("Transpose", "w", "v", perm=[1, 0]),
        node("Mul", "v c", "u"),
        node("Sqrt", "d", "e"),
        node("MatMul", "x u", "m"),
        node("Div", "m e"),
    ],
    w=f32(3, 4),
    c=np.float32(2),
    d=abs(f32(3)) + 1,
)
case(
    "folded-reshape",
    [node("Reshape", "w s", "v"), node("Concat", "v v", "u", axis=1), node("Gemm", "x u b")],
    w=f32(12),
    s=i64(4, 3),
    b=f32(6),
)
case(
    "castlike", [node("CastLike", "i x", "c"), node("Add", "x c")], i=i64(3, 4, 5, 6), opsets=(15,)
)
case(
    "dequantized",
    [node("DequantizeLinear", "q s z", "w", axis=0), node("MatMul", "x w")],
    q=_RNG.integers(-99, 99, (4, 3)).astype(np.int8),
    s=abs(f32(4)),
    z=np.array([1, 2, 0, 3], np.int8),
    opsets=(13,),
)
case("size", [node("Size", "x", "s"), node("Cast", "s", "c", to=FLOAT), node("Div", "x c")], (1, 4))
# -- types, batches and final functions -----------------------------------------------------------
case(
    "float64",
    [node("Gemm", "x w b", "g"), node("Relu", "g")],
    elem=DOUBLE,
    w=_RNG.normal(size=(4, 3)),
    b=_RNG.normal(size=3),
)
case("no-batch", [node("MatMul", "x w", "g"), node("Relu", "g")], (4,), w=f32(4, 3))
case("batch-1", [node("Gemm", "x w", "g"), node("Relu", "g")], (1, 4), w=f32(4, 3))
case("scalar-input", [node("Mul", "x w", "g"), node("Relu", "g")], (1,), w=f32(1))
case(
    "acasxu",
    [
        node("Sub", "x m", "a"),
        node("Div", "a s", "b"),
        node("Flatten", "b", "c"),
        node("MatMul", "c w", "d"),
        node("Add", "d e", "f"),
        node("Relu", "f"),
    ],
    (1, 1, 1, 5),
    m=f32(1, 1, 1, 5),
    s=f32(1, 1, 1, 5) + 3,
    w=f32(5, 4),
    e=f32(4),
)
case(
    "batch-3",
    [node("Reshape", "x s", "a"), node("Gemm", "a w", "g"), node("Relu", "g")],
    (3, 2, 2),
    w=f32(4, 3),
    s=i64(3, 4),
)
case(
    "batch-3-open",
    [node("Reshape", "x s", "a"), node("Gemm", "a w")],
    (3, 2, 2),
    w=f32(4, 3),
    s=i64(3, -1),
)
for _kind in ("Softmax", "LogSoftmax", "Sigmoid", "Tanh"):
    case(f"final-{_kind.lower()}", [node("Relu", "x", "r"), node(_kind, "r")], opsets=(7, 13))
case(
    "final-softmax-flat", [node("Relu", "x", "r"), node("Softmax", "r")], ("n", 2, 3), opsets=(11,)
)
case(
    "final-softmax-axis",
    [node("Relu", "x", "r"), node("Softmax", "r", axis=1)],
    ("n", 2, 3),
    opsets=(13,),
)
case(
    "residual",
    [
        node("Conv", "x w", "a", pads=[1, 1, 1, 1]),
        node("Relu", "a", "b"),
        node("Conv", "b v", "c", pads=[1, 1, 1, 1]),
        node("Add", "c x", "d"),
        node("Relu", "d", "e"),
        node("GlobalAveragePool", "e", "g"),
        node("Flatten", "g"),
    ],
    ("n", 2, 4, 4),
    w=f32(3, 2, 3, 3),
    v=f32(2, 3, 3, 3),
)
_OFFSETS, _SCALES = [0.5, -1.0, 2.0, 0.0], [2.0, 0.5, 1.0, -3.0]
case("scaler", node("Scaler", "x", domain=LEARNING, offset=_OFFSETS, scale=_SCALES))
case("scaler-one", node("Scaler", "x", domain=LEARNING, offset=[0.5], scale=[2.0]))
case(
    "linearregressor",
    node(
        "LinearRegressor",
        "x",
        domain=LEARNING,
        coefficients=f32(8).tolist(),
        intercepts=[1.0, -1.0],
        targets=2,
    ),
)
for _function in ("NONE", "LOGISTIC", "SOFTMAX"):
    _scores = node(
        "LinearClassifier",
        "x",
        "label s",
        domain=LEARNING,
        coefficients=f32(12).tolist(),
        intercepts=[1.0, -1.0, 0.0],
        classlabels_strings=["a", "b", "c"],
        post_transform=_function,
    )
    case(f"linearclassifier-{_function.lower()}", [_scores, node("Identity", "s")])
case("normalizer", [_scores, node("Normalizer", "s", domain=LEARNING, norm="L1")])
case(
    "probabilities-of-two",
    [node("Sigmoid", "x", "p"), node("Sub", "one p", "q"), node("Concat", "q p", axis=1)],
    ("n", 1),
    one=np.float32([1.0]),
)
