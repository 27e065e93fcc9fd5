"""ONNX files as large as those of verification benchmarks, written with ``onnx.helper``.

``Writer`` adds nodes to a graph, with names as exporters give them. ``from_chain`` writes a chain
of linear layers and ReLUs of torch, and both can be measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from torch import nn

OPSET = 17


class Writer:
    """A graph that grows by a node at a time, with one input and one output."""

    def __init__(self, input_shape: Sequence[int | str], seed: int = 0) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.random = np.random.default_rng(seed)
        self.source = helper.make_tensor_value_info("input", TensorProto.FLOAT, list(input_shape))

    def weight(self, array: Any) -> str:
        """Add an initialiser in float32, and return its name."""
        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
        return name

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node, and return the name of its result."""
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [f"{name}_out"], name, **attributes))
        return f"{name}_out"

    def dense(self, x: str, weight: Any, bias: Any) -> str:
        """Add a linear layer with a weight (outputs, inputs), as a product and a sum."""
        product = self.node("MatMul", x, self.weight(np.asarray(weight).T))
        return self.node("Add", product, self.weight(bias))

    def convolution(self, x: str, inputs: int, outputs: int, size: int, stride: int = 1) -> str:
        """Add a random convolution without bias, followed by a batch normalisation."""
        scale = (2 / (inputs * size * size)) ** 0.5
        kernel = self.random.normal(0, scale, (outputs, inputs, size, size))
        pads = [size // 2] * 4
        x = self.node("Conv", x, self.weight(kernel), pads=pads, strides=[stride, stride])
        mean, shift = self.random.normal(0, 0.1, (2, outputs))
        gain, variance = self.random.uniform(0.5, 1.5, (2, outputs))
        names = [self.weight(values) for values in (gain, shift, mean, variance)]
        return self.node("BatchNormalization", x, *names, epsilon=1e-5)

    def save(self, path: Path, result: str) -> Path:
        """Write the file, with the result of a node as the output."""
        output = helper.make_tensor_value_info(result, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "network", [self.source], [output], self.weights)
        opsets = [helper.make_opsetid("", OPSET)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
        return path


def from_chain(path: Path, model: nn.Sequential) -> Path:
    """Write a chain of linear layers and ReLUs, for any number of inputs at once."""
    first = next(layer for layer in model if isinstance(layer, nn.Linear))
    writer = Writer(["batch", first.in_features])
    x = "input"
    for layer in model:
        if isinstance(layer, nn.Linear):
            x = writer.dense(x, layer.weight.detach().numpy(), layer.bias.detach().numpy())
        else:
            assert isinstance(layer, nn.ReLU)
            x = writer.node("Relu", x)
    return writer.save(path, x)


def residual_network(path: Path, model: nn.Module) -> Path:
    """Write a ``Residual``: its first layer, its blocks and its last layer."""
    parts: Any = model
    writer = Writer(["batch", parts.first.in_features])

    def dense(x: str, layer: nn.Linear) -> str:
        return writer.dense(x, layer.weight.detach().numpy(), layer.bias.detach().numpy())

    x = writer.node("Relu", dense("input", parts.first))
    for inner, outer in parts.blocks:
        branch = dense(writer.node("Relu", dense(x, inner)), outer)
        x = writer.node("Relu", writer.node("Add", branch, x))
    return writer.save(path, dense(x, parts.last))


def acas_sized(path: Path) -> Path:
    """Write a random network of the size of ACAS Xu: 5 inputs, 6 layers of 50 units, 5 outputs.

    The files of the benchmark have inputs (1, 1, 1, 5), and subtract a mean from them.
    """
    writer = Writer([1, 1, 1, 5])
    x = writer.node("Flatten", writer.node("Sub", "input", writer.weight(np.zeros(5))), axis=1)
    widths = [5, *[50] * 6, 5]
    for k, (a, b) in enumerate(pairwise(widths)):
        x = writer.node("Relu", x) if k else x
        weight, bias = writer.random.normal(0, a**-0.5, (b, a)), writer.random.normal(0, 0.1, b)
        x = writer.dense(x, weight, bias)
    return writer.save(path, x)


def resnet18_sized(path: Path) -> Path:
    """Write a random network with the layers of ResNet-18: 11.7 million weights."""
    writer = Writer(["batch", 3, 224, 224])
    x = writer.node("Relu", writer.convolution("input", 3, 64, 7, stride=2))
    x = writer.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    width = 64
    for stage, outputs in enumerate([64, 128, 256, 512]):
        for block in range(2):
            stride = 2 if stage and not block else 1
            branch = writer.node("Relu", writer.convolution(x, width, outputs, 3, stride))
            branch = writer.convolution(branch, outputs, outputs, 3)
            if stride > 1:
                x = writer.convolution(x, width, outputs, 1, stride)
            x, width = writer.node("Relu", writer.node("Add", branch, x)), outputs
    x = writer.node("Flatten", writer.node("GlobalAveragePool", x), axis=1)
    weight, bias = writer.random.normal(0, 0.05, (1000, width)), np.zeros(1000)
    gemm = writer.node("Gemm", x, writer.weight(weight), writer.weight(bias), transB=1)
    return writer.save(path, gemm)
