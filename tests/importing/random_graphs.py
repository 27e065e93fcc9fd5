"""Random ONNX graphs of the operations that can be read, in any of the versions that can be read.

Shapes are found by onnx itself; a node whose shape it does not find, or that gets empty or large,
is not kept.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from random import Random
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper, shape_inference
from onnxruntime.capi import onnxruntime_pybind11_state as RuntimeErrors

NEWEST = onnx.defs.onnx_opset_version()
_MOST = 600  # numbers in a value


class RandomGraph:
    """A graph that grows by nodes; ``values`` are (name, shape) of what may be used further."""

    def __init__(self, seed: int, opset: int | None = None) -> None:
        self.random = Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.opset = opset or self.random.randint(7, NEWEST)
        self.type = np.dtype(self.random.choice([np.float32, np.float32, np.float64]))
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        shapes = [(1, 5), (1, 2, 6, 6), (1, 3, 5, 7), (1, 2, 8), (6,), (1, 1, 1, 4)]
        self.shape = self.random.choice(shapes)
        self.values: list[tuple[str, tuple[int, ...]]] = [("x", self.shape)]

    # -- making nodes

    def constant(self, array: Any) -> str:
        """An initialiser, or the result of a node; floats get the type of the graph."""
        array = np.asarray(array)
        array = array.astype(self.type) if array.dtype.kind == "f" else array.astype(np.int64)
        name = f"c{len(self.constants) + len(self.nodes)}"
        if self.random.random() < 0.2:
            tensor = numpy_helper.from_array(array)
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            self.constants.append(numpy_helper.from_array(array, name))
        return name

    def normal(self, *shape: int) -> Any:
        return self.numbers.normal(size=shape)

    def node(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Add a node and return the name of its first output."""
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        made = helper.make_node(kind, list(inputs), names, name=f"n{len(self.nodes)}", **attributes)
        self.nodes.append(made)
        return names[0]

    def axes(self, kind: str, x: str, axes: list[int], since: int, **others: Any) -> str:
        """Add a node with axes, which are an input since some version and an attribute before."""
        if self.opset >= since:
            return self.node(kind, x, self.constant(np.array(axes)), **others)
        return self.node(kind, x, axes=axes, **others)

    def model(self, outputs: list[str]) -> Any:
        code = helper.np_dtype_to_tensor_dtype(self.type)
        graph = helper.make_graph(
            self.nodes,
            "random",
            [helper.make_tensor_value_info("x", code, self.shape)],
            [helper.make_tensor_value_info(name, code, None) for name in outputs],
            self.constants,
        )
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def grow(self, count: int, *, final: bool = True) -> Any:
        """Add nodes, and return the model; final: a softmax or the like may be the last one."""
        for _ in range(count):
            self._try(self.random.choice(_RULES))
        name, shape = self.values[-1]
        if final and self.random.random() < 0.2 and len(shape) > 1:
            kind = self.random.choice(["Softmax", "LogSoftmax", "Sigmoid", "Tanh"])
            more = {"axis": len(shape) - 1} if "Softmax" in kind else {}
            name = self.node(kind, name, **more)
        if name == "x":
            name = self.node("Relu", name)
        return self.model([name])

    def _try(self, rule: Callable[[RandomGraph, str, tuple[int, ...]], str | None]) -> None:
        """Add what a rule makes of a value, if onnx finds that it has a shape of usual size."""
        kept = len(self.nodes), len(self.constants)
        at = self.random.choice([-1, -1, self.random.randrange(len(self.values))])
        made = rule(self, *self.values[at])
        shape = None if made is None else self._shape_of(made)
        if made is None or shape is None or not _usual(shape):
            del self.nodes[kept[0] :], self.constants[kept[1] :]
            return
        self.values.append((made, shape))

    def _shape_of(self, name: str) -> tuple[int, ...] | None:
        try:
            known = shape_inference.infer_shapes(self.model([name]), strict_mode=True)
        except Exception:
            return None
        dims = known.graph.output[0].type.tensor_type.shape.dim
        has = known.graph.output[0].type.tensor_type.HasField("shape")
        if not has or not all(dim.HasField("dim_value") for dim in dims):
            return None
        return tuple(dim.dim_value for dim in dims)


def _usual(shape: tuple[int, ...]) -> bool:
    return 0 < len(shape) < 6 and min(shape) > 0 and prod(shape) <= _MOST


def reference(model: Any, x: Any) -> Any:
    """What onnxruntime computes; None if it has no code for a type or a version."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        return session.run(None, {"x": x})[0]
    except (RuntimeErrors.NotImplemented, RuntimeErrors.Fail, RuntimeErrors.InvalidArgument):
        return None


# -- rules: what may be added to a value ------------------------------------------------------

Rule = Callable[[RandomGraph, str, tuple[int, ...]], str | None]
_RULES: list[Rule] = []


def _rule(rule: Rule) -> Rule:
    _RULES.append(rule)
    return rule


@_rule
def _plain(g: RandomGraph, x: str, shape: tuple[int, ...]) -> str | None:
    kinds = ["Relu", "Relu", "Abs", "Neg", "Identity", "LeakyRelu", "HardSigmoid", "Dropout"]
    kind = g.random.choice(kinds)
    if kind == "LeakyRelu" and g.random.random() < 0.5:
        return g.node(kind, x, alpha=g.random.uniform(0, 1))
    if kind == "HardSigmoid" and g.random.random() < 0.5:
        return g.node(kind, x, alpha=g.random.uniform(0.1, 1), beta=g.random.uniform(0, 1))
    return g.node(kind, x)


@_rule
def _clip(g: RandomGraph, x: str, shape: tuple[int, ...]) -> str | None:
    low, high = g.random.choice([(-0.5, 0.7), (None, 0.3), (-0.2, None), (0.0, 6.0)])
    if g.opset < 11:
        return g.node(
            "Clip", x, **{k: v for k, v in (("min", low), ("max", high)) if v is not None}
        )
    names = ["" if v is None else g.constant(np.array(v)) for v in (low, high)]
    return g.node("Clip", x, *names)


def _broadcastable(g: RandomGraph, shape: tuple[int, ...]) -> Any:
    kept = shape[g.random.randrange(len(shape) + 1) :]
    return g.normal(*(n if g.random.random() < 0.7 else 1 for n in kept))


@_rule
def _with_constant(g: RandomGraph, x: str, shape: tuple[int, ...]) -> str | None:
    kind = g.random.choice(["Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu", "Sum", "Mean"])
    if kind in ("Max", "Min", "Sum", "Mean") and g.opset < 8:
        return None
    array = _broadcastable(g, shape)
    if kind in ("Div", "PRelu"):
        array = np.abs(array) + 0.5
    pair = [x, g.constant(array)]
    if kind not in ("Div", "PRelu") and g.random.random() < 0.4:
        pair.reverse()
    return g.node(kind, *pair)


@_rule
def _of_two(g: RandomGraph, x: str, shape: tuple[int, ...]) -> str | None:
    fits = [name for name, other in g.values if len(other) == len(shape)]
    other = g.random.choice(fits)
    kind = g.random.choice(["Add", "Sub", "Max", "Min", "Sum"])
    return None if kind in ("Max", "Min", "Sum") and g.opset < 8 else g.node(kind, x, other)


@_rule
def _dense(g: RandomGraph, x: str, shape: tuple[int, ...]) -> str | None:
    if len(shape) == 2 and g.random.random() < 0.5:
        turned, outputs = g.random.randrange(2), g.random.randint(1, 6)
        weight = g.normal(outputs, shape[1]) if turned else g.normal(shape[1], outputs)
        names = [g.constant(weight)]
        if g.opset < 11 or g.random.random() < 0.7:
            names.append(g.constant(g.normal(outputs) if g.random.random() < 0.7 else g.normal(1)))
        alpha, beta = g.random.choice([(1.0, 1.0), (0.5, 2.0)])
        return g.node("Gemm", x, *names, transB=turned, alpha=alpha, beta=beta)
    return g.node("MatMul", x, g.constant(g.normal(shape[-1], g.random.randint(1, 6))))


@_rule
def _product_from_left(g: RandomGraph, x: str, shape: tuple[int, ...]) -> str | None:
    if len(shape) < 2:
        return None
    return g.node("MatMul", g.constant(g.normal(g.random.randint(1, 3), shape[-2])), x)


def _windows(g: RandomGraph, space: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if g.random.random() < 0.5:
        found["strides"] = [g.random.randint(1, 2) for _ in range(space)]
    mode = g.random.random()
    if mode < 0.4:
        found["pads"] = [g.random.randint(0, 1) for _ in range(2 * space)]
    elif mode < 0.6:
        found["auto_pad"] = g.random.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
    return found


@_rule
def _convolution(g: RandomGraph, x: str, shape: tuple[int, ...]) -> str | None:
    if len(shape) not in (3, 4) or shape[0] != 1:
        return None
    space, channels = len(shape) - 2, shape[1]
    kernel = [g.random.randint(1, 3) for _ in range(space)]
    group = channels if g.random.random() < 0.3 else 1
    more = _windows(g, space)
    if g.random.random() < 0.3 and "auto_pad" not in more:
        more["dilations"] = [g.random.randint(1, 2) for _ in range(space)]
    transposed = g.random.random() < 0.3
    outputs = g.random.randint(1, 3)
    if transposed:
        weight = g.normal(channels, outputs, *kernel)
        more.pop("auto_pad", None)
    else:
        weight = g.normal(outputs * group, channels // group, *kernel)
    names = [g.constant(weight)]
    if g.random.random() < 0.5:
        names.append(g.constant(g.normal(outputs * group)))
    return g.node("ConvTranspose" if transposed else "Conv", x, *names, group=group, **more)


@_rule
def _pool(g: RandomGraph, x: str, shape: tuple[int, ...]) -> str | None:
    if len(shape) not in (3, 4) or shape[0] != 1:
        return None
    space = len(shape) - 2
    if g.random.random() < 0.2:
        return g.node(g.random.choice(["GlobalAveragePool", "GlobalMaxPool"]), x)
    kind = g.random.choice(["MaxPool", "AveragePool"])
    more = _windows(g, space) | {"kernel_shape": [g.random.randint(2, 3) for _ in range(space)]}
    if kind == "AveragePool" and g.random.random() < 0.3:
        more["count_include_pad"] = 1
    if g.random.random() < 0.2 and g.opset >= 10 and kind == "MaxPool" and "auto_pad" not in more:
        more["ceil_mode"] = 1
    return g.node(kind, x, **more)


@_rule
def _normalisation(g: RandomGraph, x: str, shape: tuple[int, ...]) -> str | None:
    if len(shape) < 2 or shape[0] != 1:
        return None
    scale, shift, mean = g.normal(3, shape[1])
    names = [g.constant(v) for v in (scale, shift, mean, np.abs(g.normal(shape[1])) + 0.1)]
    return g.node("BatchNormalization", x, *names, epsilon=1e-4)


@_rule
def _reduction(g: RandomGraph, x: str, shape: tuple[int, ...]) -> str | None:
    kind = g.random.choice(["ReduceMax", "ReduceMin", "ReduceMean", "ReduceSum"])
    axes = g.random.sample(range(len(shape)), g.random.randint(1, len(shape)))
    axes = [
        axis - len(shape) if g.opset >= 11 and g.random.random() < 0.5 else axis for axis in axes
    ]
    since = 13 if kind == "ReduceSum" else 18
    return g.axes(kind, x, axes, since, keepdims=g.random.randrange(2))


@_rule
def _reshaping(g: RandomGraph, x: str, shape: tuple[int, ...]) -> str | None:
    kind = g.random.choice(["Flatten", "Reshape", "Transpose", "Squeeze", "Unsqueeze"])
    if kind == "Flatten":
        return g.node(kind, x, axis=g.random.randint(0, len(shape)))
    if kind == "Transpose":
        order = g.random.sample(range(len(shape)), len(shape))
        return g.node(kind, x, perm=order) if g.random.random() < 0.8 else g.node(kind, x)
    if kind == "Squeeze":
        ones = [i for i, n in enumerate(shape) if n == 1]
        return g.axes(kind, x, ones[:1], 13) if ones else None
    if kind == "Unsqueeze":
        return g.axes(kind, x, [g.random.randint(0, len(shape))], 13)
    target = g.random.choice([(0, -1), (-1,), (1, -1), (-1, shape[-1]), (1, 1, -1), shape[::-1]])
    return g.node(kind, x, g.constant(np.array(target)))


@_rule
def _choosing(g: RandomGraph, x: str, shape: tuple[int, ...]) -> str | None:
    axis = g.random.randrange(len(shape))
    size = shape[axis]
    kind = g.random.choice(["Slice", "Gather", "Concat", "Split", "Pad"])
    if kind == "Gather":
        places = [g.random.randrange(size) for _ in range(g.random.randint(1, 3))]
        return g.node(kind, x, g.constant(np.array(places)), axis=axis)
    if kind == "Concat":
        fits = [n for n, s in g.values if len(s) == len(shape)]
        return g.node(kind, x, g.random.choice(fits), axis=axis)
    if kind == "Split":
        if size < 2 or g.opset >= 18:
            return None
        sizes = [1, size - 1]
        if g.opset >= 13:
            return g.node(kind, x, g.constant(np.array(sizes)), outputs=2, axis=axis)
        return g.node(kind, x, outputs=2, axis=axis, split=sizes)
    if kind == "Slice":
        start, end = sorted((g.random.randint(-size, size), g.random.choice([size, 1000, -1])))
        if g.opset < 10:
            return g.node(kind, x, axes=[axis], starts=[start], ends=[end])
        steps = g.random.choice([1, 1, 2, -1])
        if steps < 0:
            start, end = end, start - size - 1
        return g.node(kind, x, *(g.constant(np.array([n])) for n in (start, end, axis, steps)))
    pads = [g.random.randint(0, 1) for _ in range(2 * len(shape))]
    mode = g.random.choice(["constant", "edge", "constant"])
    if g.opset < 11:
        return g.node(kind, x, pads=pads, mode=mode)
    return g.node(kind, x, g.constant(np.array(pads)), mode=mode)


@_rule
def _leaky_by_choice(g: RandomGraph, x: str, shape: tuple[int, ...]) -> str | None:
    if g.opset < 9:
        return None
    zero = g.constant(np.array(0.0))
    above = g.node(g.random.choice(["Greater", "Less"]), x, zero)
    return g.node("Where", above, x, g.node("Mul", x, g.constant(np.array(0.25))))


@_rule
def _resizing(g: RandomGraph, x: str, shape: tuple[int, ...]) -> str | None:
    if len(shape) != 4 or shape[0] != 1:
        return None
    scales = np.array(
        [1.0, 1.0, *g.random.choice([(2.0, 2.0), (1.5, 2.0), (2.0, 1.0)])], np.float32
    )
    mode = g.random.choice(["nearest", "linear"])
    name = f"s{len(g.constants) + len(g.nodes)}"
    g.constants.append(numpy_helper.from_array(scales, name))
    if g.opset < 9:
        del g.constants[-1]
        return g.node("Upsample", x, scales=scales.tolist(), mode=mode)
    if g.opset == 9:
        return g.node("Upsample", x, name, mode=mode)
    if g.opset == 10:
        return g.node("Resize", x, name, mode=mode)
    places = g.random.choice(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
    empty = f"r{len(g.nodes)}"
    g.constants.append(numpy_helper.from_array(np.zeros(0, np.float32), empty))
    rounding = g.random.choice(["round_prefer_floor", "floor", "ceil"])
    more = {"nearest_mode": rounding} if mode == "nearest" else {}
    return g.node(
        "Resize", x, empty, name, mode=mode, coordinate_transformation_mode=places, **more
    )


@_rule
def _by_its_shape(g: RandomGraph, x: str, shape: tuple[int, ...]) -> str | None:
    """Flatten by a shape that the graph computes, as exporters write it."""
    first = g.node("Gather", g.node("Shape", x), g.constant(np.array([0])), axis=0)
    target = g.node("Concat", first, g.constant(np.array([-1])), axis=0)
    return g.node("Reshape", x, target)
