"""Networks as layers that are connected to each other, and the shapes of what layers return.

Tensors without data (on the device ``meta``) tell the shape of any result. But for many simple
operations torch then imports its compiler, which takes seconds; for these, shapes are computed
here. Where inputs do not fit a layer, torch is asked, and says so.

``Call`` is a layer of one ATen operation; ``LayerGraph`` connects such layers and torch's own.
Files of other frameworks are imported as these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_META = torch.device("meta")
_MASKS = ("gt.Tensor", "lt.Tensor", "ge.Tensor", "le.Tensor", "logical_not")
_ENTRYWISE = frozenset(
    {"add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "maximum", "minimum", "where.self"}
    | {"abs", "neg", "sign", "clamp", "erf", "exp", "sin", "cos", "elu", "pow.Tensor_Scalar"}
    | {*_MASKS}
)
_REDUCTIONS = ("amax", "amin", "mean.dim", "sum.dim_IntList")
_NAMED_ALIKE = (
    *(nn.ReLU, nn.Hardtanh, nn.RReLU, nn.Hardsigmoid, nn.Softshrink, nn.Threshold, nn.Sigmoid),
    *(nn.Tanh, nn.PReLU, nn.GELU, nn.SiLU, nn.Mish, nn.Softplus, nn.ELU, nn.SELU, nn.CELU),
    nn.Hardswish,
)
ENTRYWISE_LAYERS: dict[type[nn.Module], Any] = {
    **{kind: getattr(torch.ops.aten, kind.__name__.lower()).default for kind in _NAMED_ALIKE},
    nn.ReLU6: torch.ops.aten.hardtanh.default,
    nn.LeakyReLU: torch.ops.aten.leaky_relu.default,
    nn.LogSigmoid: torch.ops.aten.log_sigmoid.default,
    nn.Softmax: torch.ops.aten.softmax.int,
    nn.LogSoftmax: torch.ops.aten.log_softmax.int,
}
"""The operation of each layer; its arguments are the attributes of the layer with their names."""

_SAME = (*ENTRYWISE_LAYERS, nn.Softsign, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_ADAPTIVE = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)


def call_result(operation: str, target: Any, arguments: Sequence[Any]) -> Tensor:
    """What an operation makes of tensors without data.

    >>> blank = torch.empty(2, 3, device="meta")
    >>> call_result("add.Tensor", torch.ops.aten.add.Tensor, [blank, blank[:1]]).shape
    torch.Size([2, 3])
    """
    tensors = [item for item in arguments if isinstance(item, Tensor)]
    if operation in _ENTRYWISE:
        shape = np.broadcast_shapes(*(tuple(tensor.shape) for tensor in tensors))
        floating = [tensor.dtype for tensor in tensors if tensor.dtype != torch.bool]
        dtype = torch.bool if operation in _MASKS or not floating else floating[0]
        return torch.empty(shape, dtype=dtype, device=_META)
    if operation in _REDUCTIONS and not arguments[2]:
        x, dims, _ = arguments
        gone = {dim % x.dim() for dim in dims}
        left = [size for i, size in enumerate(x.shape) if i not in gone]
        return torch.empty(left, dtype=x.dtype, device=_META)
    if operation == "cat" and _fit_together(*arguments):
        parts, dim = arguments
        sizes = list(parts[0].shape)
        sizes[dim] = sum(part.shape[dim] for part in parts)
        return torch.empty(sizes, dtype=parts[0].dtype, device=_META)
    result: Tensor = target(*arguments)
    return result


def blank_result(layer: nn.Module, inputs: Sequence[Tensor]) -> Tensor:
    """What a layer makes of tensors without data, whatever device its weights are on.

    >>> blank_result(nn.Linear(3, 5), [torch.empty(2, 3, device="meta")]).shape
    torch.Size([2, 5])
    """
    x = inputs[0]
    if isinstance(layer, Call):
        blank = {
            name: torch.empty(buffer.shape, dtype=buffer.dtype, device=_META)
            for name, buffer in layer.named_buffers()
        }
        arguments = layer.bound(inputs, blank.__getitem__)
        return call_result(layer.operation, layer.target, arguments)
    if isinstance(layer, _SAME) and _channels(layer) in (None, *x.shape[1:2]):
        return x
    if isinstance(layer, nn.Linear) and x.shape[-1] == layer.in_features:
        return torch.empty((*x.shape[:-1], layer.out_features), dtype=x.dtype, device=_META)
    if isinstance(layer, _ADAPTIVE) and layer.output_size == 1:
        shape = (*x.shape[:2], *[1] * (x.dim() - 2))
        return torch.empty(shape, dtype=x.dtype, device=_META)
    windowed = _windowed(layer, tuple(x.shape))
    if windowed is not None and min(windowed) > 0:
        return torch.empty(windowed, dtype=x.dtype, device=_META)
    held = dict(layer.named_parameters()) | dict(layer.named_buffers())
    state = {name: torch.empty_like(tensor, device=_META) for name, tensor in held.items()}
    with torch.no_grad():
        result: Tensor = torch.func.functional_call(layer, state, tuple(inputs))
    return result


def _channels(layer: nn.Module) -> int | None:
    """How many channels the inputs of a layer must have; None if any number will do."""
    if isinstance(layer, nn.PReLU):
        return layer.num_parameters if layer.num_parameters > 1 else None
    count = getattr(layer, "num_features", None)
    return None if count is None else int(count)


def _fit_together(parts: Sequence[Tensor], dim: int) -> bool:
    """Whether tensors have the same sizes but for the dimension along which they are joined."""
    rank = parts[0].dim()
    others = {tuple(size for i, size in enumerate(part.shape) if i != dim % rank) for part in parts}
    return len(others) == 1


_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)


def _windowed(layer: nn.Module, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape of what a convolution or a pooling returns; None if torch must say it."""
    if isinstance(layer, (*_CONVOLUTIONS, *_TRANSPOSED)):
        if shape[1] != layer.in_channels or isinstance(layer.padding, str):
            return None
        sizes = [_size_of(layer, i, size) for i, size in enumerate(shape[2:])]
        return (shape[0], layer.out_channels, *sizes)
    if isinstance(layer, _POOLS):
        space = range(len(shape) - 2)
        wide = any(2 * _along(layer, "padding", i) > _along(layer, "kernel_size", i) for i in space)
        if layer.ceil_mode or wide:
            return None
        return (*shape[:2], *(_size_of(layer, i, shape[2 + i]) for i in space))
    return None


def _size_of(layer: nn.Module, axis: int, size: int) -> int:
    """The size of the result along an axis of space."""
    stride, pad = _along(layer, "stride", axis), _along(layer, "padding", axis)
    reach = _along(layer, "dilation", axis) * (_along(layer, "kernel_size", axis) - 1)
    if isinstance(layer, _TRANSPOSED):
        return (size - 1) * stride - 2 * pad + reach + _along(layer, "output_padding", axis) + 1
    return (size + 2 * pad - reach - 1) // stride + 1


def _along(layer: nn.Module, name: str, axis: int) -> int:
    """A number that a layer has for each axis, or for all of them; means have no dilation."""
    given: Any = getattr(layer, name, 1)
    return int(given if isinstance(given, int) else given[axis])


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
def operation(name: str) -> Any:
    """An operation of torch by its name, such as ``aten.add.Tensor`` or ``aten.relu``."""
    space, packet, overload = (*name.split("."), "default")[:3]
    return getattr(getattr(getattr(torch.ops, space), packet), overload)


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
        return operation(f"aten.{self.operation}")

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
    """One layer of a graph: the submodule, the values that it takes, and the one that it makes."""

    module: str
    inputs: tuple[str, ...]
    result: str
    label: str  # what the layer is called in its file, for errors and lists of layers
    kind: str  # the same of its operation


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
        return "\n".join([f"{type(self).__name__}({self.extra_repr()}", *lines, ")"])
