"""Write modules of torch's layers to ONNX files, node by node, as other exporters would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from importing.onnx_files import DOUBLE, FLOAT, graph_model, helper, saved


class Exporter:
    """Collects the nodes and the weights of a module."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def add(self, kind: str, inputs: list[str], name: str, **attributes: Any) -> str:
        result = f"{name}_out"
        self.nodes.append(helper.make_node(kind, inputs, [result], name=name, **attributes))
        return result

    def weight(self, name: str, value: Any) -> str:
        self.constants[name] = value.detach().cpu().numpy()
        return name

    def module(self, m: Any, x: str, name: str) -> str:
        """The name of the result of a module."""
        kind = type(m).__name__
        if isinstance(m, nn.Sequential):
            for key, child in m.named_children():
                x = self.module(child, x, f"{name}/{key}")
            return x
        if isinstance(m, nn.Identity):
            return x
        method = getattr(self, f"_{kind.lower()}", None)
        assert method is not None, f"{kind} cannot be written"
        found: str = method(m, x, name)
        return found

    def _linear(self, m: nn.Linear, x: str, name: str) -> str:
        product = self.add("MatMul", [x, self.weight(f"{name}.w", m.weight.T)], f"{name}/MatMul")
        if m.bias is None:
            return product
        return self.add("Add", [self.weight(f"{name}.b", m.bias), product], f"{name}/Add")

    def _relu(self, m: nn.ReLU, x: str, name: str) -> str:
        return self.add("Relu", [x], f"{name}/Relu")

    def _leakyrelu(self, m: nn.LeakyReLU, x: str, name: str) -> str:
        return self.add("LeakyRelu", [x], f"{name}/LeakyRelu", alpha=m.negative_slope)

    def _unflatten(self, m: nn.Unflatten, x: str, name: str) -> str:
        self.constants[f"{name}.s"] = np.array([-1, *m.unflattened_size])
        return self.add("Reshape", [x, f"{name}.s"], f"{name}/Reshape")

    def _flatten(self, m: nn.Flatten, x: str, name: str) -> str:
        return self.add("Flatten", [x], f"{name}/Flatten")

    def _conv2d(self, m: nn.Conv2d, x: str, name: str) -> str:
        weights = [self.weight(f"{name}.w", m.weight)]
        weights += [self.weight(f"{name}.b", m.bias)] if m.bias is not None else []
        options = {"pads": [*m.padding] * 2, "strides": [*m.stride], "dilations": [*m.dilation]}
        return self.add("Conv", [x, *weights], f"{name}/Conv", group=m.groups, **options)

    def _batchnorm2d(self, m: nn.BatchNorm2d, x: str, name: str) -> str:
        parts = {"s": m.weight, "b": m.bias, "m": m.running_mean, "v": m.running_var}
        names = [self.weight(f"{name}.{key}", value) for key, value in parts.items()]
        return self.add("BatchNormalization", [x, *names], f"{name}/BatchNorm", epsilon=m.eps)

    def _maxpool2d(self, m: nn.MaxPool2d, x: str, name: str) -> str:
        pair = [m.kernel_size] * 2 if isinstance(m.kernel_size, int) else [*m.kernel_size]
        strides = [m.stride] * 2 if isinstance(m.stride, int) else [*m.stride]
        return self.add("MaxPool", [x], f"{name}/MaxPool", kernel_shape=pair, strides=strides)

    def _adaptiveavgpool2d(self, m: nn.AdaptiveAvgPool2d, x: str, name: str) -> str:
        return self.add("GlobalAveragePool", [x], f"{name}/GlobalAveragePool")

    def _residual(self, m: Any, x: str, name: str) -> str:
        parts = [self.module(part, x, f"{name}/{key}") for key, part in m.named_children()]
        return self.add("Add", parts, f"{name}/Add")

    def _affine(self, m: Any, x: str, name: str) -> str:
        scaled = self.add("Mul", [x, self.weight(f"{name}.scale", m.scale)], f"{name}/Mul")
        return self.add("Add", [scaled, self.weight(f"{name}.shift", m.shift)], f"{name}/Add")


def exported(model: nn.Module, input_shape: tuple[int, ...], folder: Path) -> Path:
    """Write a module, in float64 if its weights are."""
    exporter = Exporter()
    last = exporter.module(model, "x", "")
    double = any(array.dtype == np.float64 for array in exporter.constants.values())
    made = graph_model(
        exporter.nodes,
        ("batch", *input_shape),
        constants=exporter.constants,
        outputs=(last,),
        elem=DOUBLE if double else FLOAT,
    )
    return saved(made, folder)
