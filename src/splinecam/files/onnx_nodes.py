"""The nodes of an ONNX graph as rules see them, and the layers that rules make of them.

A network in a file is read as a function of one point: a batch dimension has size 1, whatever the
file says, so that all shapes are known. The layers compute this function for N points at once. A
value of the shape (1, ...) in the file is a tensor (N, ...). Any other value (...) is a tensor
(N, ...) with one more dimension. So nothing can mix the points.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from splinecam.files.onnx_file import bounded
from splinecam.network.layer_graph import Call, Input, LayerGraph, Link, Weight, blank_result

_POINTS = 2  # of the tensors without data, which tell shapes
_TAKEN = frozenset({*dir(LayerGraph), "links", "source", "outputs", "input_shape", "file", "opset"})
_TAKEN |= {"class_names", "left_out"}


class Refused(Exception):
    """A node that cannot be imported; the message is the reason."""


@dataclass(frozen=True)
class Value:
    """A value that depends on the input."""

    tensor: str  # its name among the tensors of the writer
    shape: tuple[int, ...]  # in the file, for one point
    mask: bool = False  # whether it may only choose between other values, as a comparison or a sign


def layout(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of the tensor of a value, less the number of points in front.

    >>> layout((1, 3, 8, 8)), layout((5,)), layout((4, 5))
    ((3, 8, 8), (5,), (4, 5))
    """
    return tuple(shape[1:]) if shape and shape[0] == 1 else tuple(shape)


class Writer:
    """The layers so far, and tensors without data in the shapes of their results."""

    def __init__(self, source: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        bounded(shape, "The input")
        self.dtype = dtype
        self.layers: dict[str, nn.Module] = {}
        self.links: list[Link] = []
        self.numbers: dict[str, int] = {}  # the last number that was added to each name
        self.linear: dict[str, nn.Linear] = {}  # products of one use, which may take a bias still
        inner = shape if len(shape) == 1 else layout(shape)
        self.tensors = {source: torch.empty((_POINTS, *inner), dtype=dtype, device="meta")}

    def add(self, module: nn.Module, inputs: Sequence[str], label: str, kind: str) -> str:
        """Add a layer and return the name of its result."""
        module.eval()
        inner = self._name(label, kind)
        name = f"{inner}:"  # unlike any name of a submodule
        self.tensors[name] = blank_result(module, [self.tensors[key] for key in inputs])
        bounded(tuple(self.tensors[name].shape[1:]), f"The result of {label} ({kind})")
        self.layers[inner] = module
        self.links.append(Link(inner, tuple(inputs), name, label, kind))
        return name

    def made(self) -> dict[str, Link]:
        """The link that makes each tensor."""
        return {link.result: link for link in self.links}

    def prune(self, wanted: set[str]) -> None:
        """Remove layers that no wanted tensor depends on."""
        kept = []
        for link in reversed(self.links):
            if link.result in wanted:
                kept.append(link)
                wanted = wanted | set(link.inputs)
            else:
                del self.layers[link.module]
        self.links = kept[::-1]

    def _name(self, label: str, kind: str) -> str:
        """A name for a submodule that resembles the one in the file."""
        name = re.sub(r"\W+", "_", label, flags=re.ASCII).strip("_") or kind
        name = f"{kind}_{name}" if name[0].isdigit() else name
        if name not in self.layers and name not in _TAKEN:
            return name
        while True:  # it goes on from the last number, as thousands of layers may share a name
            self.numbers[name] = self.numbers.get(name, 1) + 1
            numbered = f"{name}_{self.numbers[name]}"
            if numbered not in self.layers:
                return numbered


class Eager(Writer):
    """Runs layers on constants at once."""

    def __init__(self, constant: Tensor) -> None:
        self.dtype = constant.dtype
        self.linear, self.layers, self.links = {}, {}, []
        self.tensors = {"": constant.reshape(1, *layout(constant.shape))}

    def add(self, module: nn.Module, inputs: Sequence[str], label: str, kind: str) -> str:
        """Run a layer and return the name of its result."""
        found = [self.tensors[key] for key in inputs]
        shape = blank_result(module, [tensor.to("meta") for tensor in found]).shape
        bounded(tuple(shape), f"The result of {label} ({kind})")
        name = str(len(self.tensors))
        with torch.no_grad():
            self.tensors[name] = module.eval()(*found)
        return name


@dataclass
class Node:
    """One node of the graph."""

    kind: str  # the type of the operation
    label: str  # its name
    attributes: dict[str, Any]
    inputs: list[Value | Tensor | None]  # None where one is left out
    uses: list[int]  # how often each of its outputs is used
    opset: int
    writer: Writer
    batch: int | None = None  # the fixed size of the batch in the file, if it has one
    final: bool = False  # whether only followers of a final function come after

    # -- what is given

    def input(self, i: int) -> Value | Tensor | None:
        """An input, or None if it is left out."""
        return self.inputs[i] if i < len(self.inputs) else None

    def given(self, i: int = 0) -> Value | Tensor:
        """An input that must be there."""
        item = self.input(i)
        if item is None:
            raise Refused(f"its input {i} is missing")
        return item

    def value(self, i: int = 0) -> Value:
        """An input that depends on the input of the network."""
        item = self.given(i)
        if isinstance(item, Tensor):
            raise Refused(f"its input {i} is a constant, and another one is not")
        return item

    def constant(self, i: int, what: str) -> Tensor:
        """A constant input; what: how an error calls it."""
        item = self.given(i)
        if isinstance(item, Value):
            raise Refused(f"its {what} depends on the input of the network")
        return item

    def optional(self, i: int, what: str) -> Tensor | None:
        """A constant input that may be left out."""
        return None if self.input(i) is None else self.constant(i, what)

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute."""
        return self.attributes.get(name, default)

    def integers(self, i: int, name: str) -> list[int] | None:
        """Whole numbers, which older versions give as an attribute, newer ones as an input."""
        if name in self.attributes:
            found = self.attributes[name]
            return [int(x) for x in found] if isinstance(found, list) else [int(found)]
        given = self.optional(i, name)
        return None if given is None else [int(x) for x in given.flatten().tolist()]

    # -- what is made

    def emit(self, module: nn.Module, *tensors: str) -> str:
        """Add a layer for tensors, and return the name of its result."""
        return self.writer.add(module, tensors, self.label, self.kind)

    def applied(self, layer: nn.Module, value: Value | None = None) -> Value:
        """The result of a layer that keeps the shape of a value, by default of the first input."""
        x = self.value() if value is None else value
        return Value(self.emit(layer, x.tensor), x.shape)

    def number(self, number: float) -> Tensor:
        """A constant in the type of the network."""
        return torch.tensor(float(number), dtype=self.writer.dtype)

    def call(self, operation: str, *arguments: Any) -> str:
        """Add a call of an ATen operation; tensors are given by name, constants as tensors."""
        inputs: list[str] = []
        weights: dict[str, Tensor] = {}

        def changed(item: Any) -> Any:
            if isinstance(item, list):
                return [changed(part) for part in item]
            if isinstance(item, Tensor):
                name = f"constant{len(weights) or ''}"
                weights[name] = item
                return Weight(name)
            if isinstance(item, str):
                inputs.append(item)
                return Input(len(inputs) - 1)
            return item

        changed_arguments = [changed(item) for item in arguments]
        return self.emit(Call(operation, *changed_arguments, **weights), *inputs)

    def bounded(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of a result, or an error if it would be gigantic."""
        return bounded(tuple(shape), f"The result of {self.label} ({self.kind})")

    def shape_of(self, tensor: str) -> tuple[int, ...]:
        """The shape of a tensor, less the number of points in front."""
        return tuple(self.writer.tensors[tensor].shape[1:])

    def reshaped(self, tensor: str, shape: Sequence[int]) -> str:
        """A tensor in another shape, (N, *shape)."""
        if self.shape_of(tensor) == tuple(shape):
            return tensor
        if len(shape) == 1 and self.shape_of(tensor):
            return self.emit(nn.Flatten(), tensor)
        return self.call("reshape", tensor, [-1, *shape])

    def extended(self, value: Value, rank: int | None = None) -> str:
        """The tensor (N, *shape) of a value, with ones in front up to a rank."""
        shape = (*[1] * ((rank or 0) - len(value.shape)), *value.shape)
        return self.reshaped(value.tensor, shape)

    def make(self, tensor: str, shape: Sequence[int], *, mask: bool = False) -> Value:
        """A value of this shape in the file, from a tensor with as many numbers."""
        return Value(self.reshaped(tensor, layout(shape)), tuple(shape), mask)

    def axis(self, axis: int, rank: int) -> int:
        """An axis that may be counted from the end."""
        if not -rank <= axis < rank:
            raise Refused(f"its axis {axis} is not one of {rank}")
        return axis % rank

    def dims(self, value: Value, axes: Sequence[int]) -> tuple[str, list[int]]:
        """The tensor of a value, and the dimensions of this tensor for axes of the value."""
        merged = layout(value.shape) != value.shape
        if merged and 0 not in axes:
            return value.tensor, list(axes)
        return self.extended(value), [axis + 1 for axis in axes]
