"""Modules that say which layers they consist of, so that capturing one needs no ``torch.export``.

``Call`` is a layer of one ATen operation; ``LayerGraph`` connects such layers and torch's own.
Files of other frameworks are imported as these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Call", "Input", "LayerGraph", "Link", "Weight"]


@dataclass(frozen=True)
class Input:
    """Stands for an input of a call."""

    index: int = 0

    def __repr__(self) -> str:
        return f"input{self.index}" if self.index else "input"


@dataclass(frozen=True)
class Weight:
    """Stands for a constant tensor of a call: a buffer of this name."""

    name: str

    def __repr__(self) -> str:
        return self.name


@cache
def _operation(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _mapped(item: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(item, (list, tuple)):
        return [_mapped(part, change) for part in item]
    return change(item) if isinstance(item, (Input, Weight)) else item


class Call(nn.Module):
    """A layer that calls one ATen operation.

    operation: such as ``"add.Tensor"``. arguments: its positional arguments, in which ``Input``
    and ``Weight`` stand for tensors. weights: the constant tensors, which become buffers.

    >>> double = Call("mul.Tensor", Input(), Weight("factor"), factor=torch.tensor(2.0))
    >>> double
    Call(mul(input, factor), factor: ())
    >>> double(torch.ones(3)).tolist()
    [2.0, 2.0, 2.0]
    """

    def __init__(self, operation: str, *arguments: Any, **weights: Tensor) -> None:
        super().__init__()
        self.operation = operation
        self.arguments = arguments
        for name, tensor in weights.items():
            self.register_buffer(name, tensor)

    @property
    def target(self) -> Any:
        """The operation itself."""
        return _operation(self.operation)

    def bound(self, inputs: Sequence[Any], weight: Callable[[str], Any]) -> list[Any]:
        """The arguments with the given inputs, and with what ``weight`` returns for a name."""

        def change(item: Input | Weight) -> Any:
            return inputs[item.index] if isinstance(item, Input) else weight(item.name)

        return [_mapped(item, change) for item in self.arguments]

    def forward(self, *inputs: Tensor) -> Tensor:
        """The operation at these inputs."""
        result: Tensor = self.target(*self.bound(inputs, self.get_buffer))
        return result

    def extra_repr(self) -> str:
        name = self.operation.partition(".")[0]
        shapes = [f"{key}: {tuple(buffer.shape)}" for key, buffer in self.named_buffers()]
        return ", ".join([f"{name}({', '.join(map(repr, self.arguments))})", *shapes])


@dataclass(frozen=True)
class Link:
    """One layer of a graph: the submodule, the values that it takes, and the value that it makes.

    label: the name of the layer where it comes from, which may be no name of a submodule; kind:
    what it is called there. Errors and lists of layers say these.
    """

    module: str
    inputs: tuple[str, ...]
    result: str
    label: str
    kind: str


class LayerGraph(nn.Module):
    """Layers that are connected to each other, from one input to one output or several.

    layers: by the names of the submodules. links: how they are connected, in the order in which
    they are called; ``source`` is the name of the input among the values. outputs: the values that
    the graph returns, by name; one tensor if there is one, else a dict. input_shape: of one input,
    without the batch; an input that is flat, or of any other shape with as many numbers, is
    reshaped.

    >>> layers = {"fc": nn.Linear(2, 2), "act": nn.ReLU(), "sum": Call("add.Tensor", Input(0),
    ...     Input(1))}
    >>> links = [Link("fc", ("x",), "a", "fc", "Linear"), Link("act", ("a",), "b", "act", "ReLU"),
    ...     Link("sum", ("b", "x"), "y", "sum", "add")]
    >>> LayerGraph(layers, links, source="x", outputs={"y": "y"}, input_shape=(2,))
    LayerGraph(
      (fc): Linear(in_features=2, out_features=2, bias=True)
      (act): ReLU()
      (sum): Call(add(input, input1)) of act, x
    )
    """

    def __init__(
        self,
        layers: Mapping[str, nn.Module],
        links: Sequence[Link],
        *,
        source: str,
        outputs: Mapping[str, str],
        input_shape: tuple[int, ...],
    ) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.links = tuple(links)
        self.source = source
        self.outputs = dict(outputs)
        self.input_shape = tuple(input_shape)

    def forward(self, x: Tensor) -> Any:
        """The outputs at inputs (B, *input_shape): a tensor, or a dict of them by name."""
        if tuple(x.shape[1:]) != self.input_shape:
            x = x.reshape(x.shape[0], *self.reshaped(tuple(x.shape[1:])))
        values = {self.source: x}
        for link in self.links:
            layer = self._modules[link.module]
            assert layer is not None
            values[link.result] = layer(*(values[name] for name in link.inputs))
        return self.returned(values)

    def returned(self, values: Mapping[str, Any]) -> Any:
        """What the graph returns of all its values: one, or a dict of several."""
        found = {name: values[value] for name, value in self.outputs.items()}
        return found if len(found) > 1 else next(iter(found.values()))

    def reshaped(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape that inputs of a given shape are brought to; an error if they do not fit."""
        if prod(shape) != prod(self.input_shape):
            raise ValueError(
                f"the network takes inputs of shape {self.input_shape}, not {tuple(shape)}"
            )
        return self.input_shape

    def __repr__(self) -> str:
        lines, before = [], self.source
        made = {link.result: link.module for link in self.links}
        for link in self.links:
            line = f"  ({link.module}): " + repr(self._modules[link.module]).replace("\n", "\n  ")
            if link.inputs != (before,):
                line += f" of {', '.join(made.get(name, name) for name in link.inputs)}"
            lines.append(line)
            before = link.result
        head = f"{type(self).__name__}({self.extra_repr()}"
        return "\n".join([head, *lines, ")"])
