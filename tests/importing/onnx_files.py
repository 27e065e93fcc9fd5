"""ONNX files for tests, written by onnx itself, and what onnxruntime computes for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

LEARNING = "ai.onnx.ml"
FLOAT, DOUBLE, INT64 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64


def graph_model(
    nodes: Sequence[Any],
    shape: Sequence[Any],
    *,
    opset: int = 17,
    constants: dict[str, Any] | None = None,
    outputs: Sequence[str] = ("y",),
    elem: int = FLOAT,
    **others: Any,
) -> Any:
    """A model whose input is ``x`` and whose constants are initialisers."""
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info("x", elem, list(shape))],
        [helper.make_tensor_value_info(name, elem, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", opset)]
    if any(each.domain == LEARNING for each in nodes):
        imports.append(helper.make_opsetid(LEARNING, 1))
    return helper.make_model(graph, opset_imports=imports, ir_version=8, **others)


def saved(model: Any, folder: Path, name: str = "net.onnx") -> Path:
    path = folder / name
    path.write_bytes(model.SerializeToString())
    return path


def reference(path: Path, *inputs: Any) -> list[Any]:
    """The first output that onnxruntime computes for each of the inputs, not optimised."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return [session.run(None, {name: x})[0] for x in inputs]


def node(kind: str, inputs: str, outputs: str = "y", **attributes: Any) -> Any:
    """A node; names are separated by blanks, and ``-`` stands for none."""
    names = ["" if name == "-" else name for name in inputs.split()]
    made = outputs.split()
    return helper.make_node(kind, names, made, name=f"/{made[0]}/{kind}", **attributes)


def dense_file(folder: Path, *, shape: Sequence[Any] = ("batch", 2)) -> Path:
    """A network of two layers with products and sums as most exporters write them."""
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.normal(size=(2, 8)).astype(np.float32),
        "b1": rng.normal(size=8).astype(np.float32),
        "w2": rng.normal(size=(3, 8)).astype(np.float32),
        "b2": rng.normal(size=3).astype(np.float32),
    }
    nodes = [
        helper.make_node("Flatten", ["x"], ["f"], name="/Flatten"),
        helper.make_node("MatMul", ["f", "w1"], ["m"], name="/fc1/MatMul"),
        helper.make_node("Add", ["m", "b1"], ["a"], name="/fc1/Add"),
        helper.make_node("Relu", ["a"], ["r"], name="/act/Relu"),
        helper.make_node("Gemm", ["r", "w2", "b2"], ["y"], name="/fc2/Gemm", transB=1),
    ]
    return saved(graph_model(nodes, shape, opset=13, constants=weights), folder)


__all__ = [
    "DOUBLE",
    "FLOAT",
    "INT64",
    "LEARNING",
    "dense_file",
    "graph_model",
    "helper",
    "node",
    "onnx",
    "reference",
    "saved",
]
