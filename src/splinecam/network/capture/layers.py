"""What each of torch's own layers computes, as calls of ATen operations."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn

from splinecam.network.ops import target_name

__all__ = ["LAYERS", "Unusual", "Walk"]

aten = torch.ops.aten
_META = torch.device("meta")


class Unusual(Exception):
    """A module, or a shape, that only ``torch.export`` can follow."""


class Walk:
    """The graph of the layers so far. Values are tensors without data, of two points each."""

    def __init__(self, input_shape: tuple[int, ...]) -> None:
        self.graph = fx.Graph()
        self.nodes: list[fx.Node] = []
        self.constants: dict[fx.Node, tuple[str, Any]] = {}
        self.kinds: set[type] = set()  # classes that are as torch made them
        self._counts: dict[str, int] = {}
        self.x = self._node("input", "placeholder", "input", ())
        self.x.meta["val"] = torch.empty((2, *input_shape), device=_META)

    def enter(self, module: nn.Module, path: str) -> None:
        """Begin with the calls of the next layer."""
        self.module, self.path = module, path
        self.stack = {path: (path, f"{type(module).__module__}.{type(module).__name__}")}

    def call(self, target: Any, *args: Any, value: Any = None) -> fx.Node:
        """A call of an operation; without a value it is run on tensors without data."""
        if value is None:
            value = target(*fx.node.map_arg(args, self._shaped))
        name = target_name(target).rpartition(".")[2]
        node = self._node(name, "call_function", target, args)
        node.meta["val"] = value
        node.meta["nn_module_stack"] = self.stack
        return node

    def weight(self, name: str) -> fx.Node | None:
        """A parameter or a buffer of the layer."""
        module = self.module
        found = module._parameters if name in module._parameters else module._buffers
        if name not in found or name in vars(module):
            raise Unusual
        tensor = found[name]
        if tensor is None:
            return None
        node = self._node(name, "placeholder", name, ())
        self.constants[node] = (f"{self.path}.{name}" if self.path else name, tensor)
        return node

    def _node(self, name: str, op: str, target: Any, args: tuple[Any, ...]) -> fx.Node:
        count = self._counts[name] = self._counts.get(name, -1) + 1
        node = fx.Node(self.graph, f"{name}_{count}" if count else name, op, target, args, {})
        self.nodes.append(node)
        return node

    def _shaped(self, node: fx.Node) -> Tensor:
        """The value of a node, or of a weight its shape."""
        if node in self.constants:
            return torch.empty(self.constants[node][1].shape, device=_META)
        value: Tensor = node.meta["val"]
        return value


Layer = Callable[[Walk, Any, fx.Node], fx.Node]

LAYERS: dict[type[nn.Module], Layer] = {}
"""What a layer makes of a value. An error stands for a layer or a shape that is not usual."""


def _layer(*kinds: type[nn.Module]) -> Callable[[Layer], Layer]:
    def add(layer: Layer) -> Layer:
        LAYERS.update(dict.fromkeys(kinds, layer))
        return layer

    return add


def _require(usual: bool) -> None:
    if not usual:
        raise Unusual


def _shape(x: fx.Node) -> torch.Size:
    value: Tensor = x.meta["val"]
    return value.shape


def _spatial(x: fx.Node, kind: type) -> int:
    """How many dimensions a layer works on, beside the batch and the channels."""
    dims = next(int(c) for c in kind.__name__ if c in "123")
    _require(len(_shape(x)) == 2 + dims)
    return dims


def _listed(value: Any, dims: int) -> list[Any]:
    """One number for each dimension."""
    return list(value) if isinstance(value, (tuple, list)) else [value] * dims


# -- products --------------------------------------------------------------------------------------


@_layer(nn.Linear)
def _linear(walk: Walk, m: nn.Linear, x: fx.Node) -> fx.Node:
    outputs, inputs = m.weight.shape
    shape = _shape(x)
    _require(len(shape) > 1 and shape[-1] == inputs)
    value = torch.empty((*shape[:-1], outputs), device=_META)
    return walk.call(
        aten.linear.default, x, walk.weight("weight"), walk.weight("bias"), value=value
    )


@_layer(nn.Conv1d, nn.Conv2d, nn.Conv3d)
def _conv(walk: Walk, m: Any, x: fx.Node) -> fx.Node:
    packet = getattr(aten, f"conv{_spatial(x, type(m))}d")
    _require(_shape(x)[1] == m.in_channels)
    padding = m.padding if isinstance(m.padding, str) else list(m.padding)
    if m.padding_mode != "zeros":
        x = walk.call(aten.pad.default, x, list(m._reversed_padding_repeated_twice), m.padding_mode)
        padding = [0] * len(m.stride)
    target = packet.padding if isinstance(padding, str) else packet.default
    weights = walk.weight("weight"), walk.weight("bias")
    return walk.call(target, x, *weights, list(m.stride), padding, list(m.dilation), m.groups)


_TRANSPOSED = {
    nn.ConvTranspose1d: aten.conv_transpose1d.default,
    nn.ConvTranspose2d: aten.conv_transpose2d.input,
    nn.ConvTranspose3d: aten.conv_transpose3d.input,
}


@_layer(*_TRANSPOSED)
def _conv_transpose(walk: Walk, m: Any, x: fx.Node) -> fx.Node:
    _spatial(x, type(m))
    _require(_shape(x)[1] == m.in_channels and m.padding_mode == "zeros")
    weights = walk.weight("weight"), walk.weight("bias")
    sizes = list(m.stride), list(m.padding), list(m.output_padding), m.groups, list(m.dilation)
    return walk.call(_TRANSPOSED[type(m)], x, *weights, *sizes)


@_layer(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
def _batch_norm(walk: Walk, m: Any, x: fx.Node) -> fx.Node:
    value = x.meta["val"]
    m._check_input_dim(value)
    _require(not m.training and value.shape[1] == m.running_mean.shape[0])
    names = ("weight", "bias", "running_mean", "running_var")
    momentum = 0.0 if m.momentum is None else m.momentum
    rest = (False, momentum, m.eps, torch.backends.cudnn.enabled)
    return walk.call(aten.batch_norm.default, x, *map(walk.weight, names), *rest, value=value)


# -- pools -----------------------------------------------------------------------------------------


@_layer(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
def _max_pool(walk: Walk, m: Any, x: fx.Node) -> fx.Node:
    dims = _spatial(x, type(m))
    _require(not m.return_indices)
    sizes = [_listed(v, dims) for v in (m.kernel_size, m.stride, m.padding, m.dilation)]
    return walk.call(getattr(aten, f"max_pool{dims}d").default, x, *sizes, m.ceil_mode)


@_layer(nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
def _avg_pool(walk: Walk, m: Any, x: fx.Node) -> fx.Node:
    dims = _spatial(x, type(m))
    sizes = [_listed(v, dims) for v in (m.kernel_size, m.stride, m.padding)]
    divisor = () if dims == 1 else (m.divisor_override,)
    rest = (m.ceil_mode, m.count_include_pad, *divisor)
    return walk.call(getattr(aten, f"avg_pool{dims}d").default, x, *sizes, *rest)


def _output_size(m: Any, x: fx.Node, dims: int) -> list[int]:
    given = zip(_listed(m.output_size, dims), _shape(x)[2:], strict=True)
    return [before if size is None else size for size, before in given]


@_layer(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)
def _adaptive_avg_pool(walk: Walk, m: Any, x: fx.Node) -> fx.Node:
    dims = _spatial(x, type(m))
    target = getattr(aten, f"adaptive_avg_pool{dims}d").default
    return walk.call(target, x, _output_size(m, x, dims))


@_layer(nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d)
def _adaptive_max_pool(walk: Walk, m: Any, x: fx.Node) -> fx.Node:
    dims = _spatial(x, type(m))
    _require(not m.return_indices)
    target = getattr(aten, f"adaptive_max_pool{dims}d").default
    both = walk.call(target, x, _output_size(m, x, dims))
    return walk.call(operator.getitem, both, 0, value=both.meta["val"][0])


# -- functions of one variable, and final functions ------------------------------------------------


def _entrywise(kind: type[nn.Module], target: Any, *names: str) -> None:
    """A layer that changes every entry by itself; names: of its attributes that are arguments."""

    def layer(walk: Walk, m: Any, x: fx.Node) -> fx.Node:
        args = [getattr(m, name) for name in names]
        return walk.call(target, x, *args, value=x.meta["val"])

    LAYERS[kind] = layer


_entrywise(nn.ReLU, aten.relu.default)
_entrywise(nn.ReLU6, aten.hardtanh.default, "min_val", "max_val")
_entrywise(nn.Hardtanh, aten.hardtanh.default, "min_val", "max_val")
_entrywise(nn.LeakyReLU, aten.leaky_relu.default, "negative_slope")
_entrywise(nn.Hardsigmoid, aten.hardsigmoid.default)
_entrywise(nn.Softshrink, aten.softshrink.default, "lambd")
_entrywise(nn.Threshold, aten.threshold.default, "threshold", "value")
_entrywise(nn.Sigmoid, aten.sigmoid.default)
_entrywise(nn.Tanh, aten.tanh.default)
_entrywise(nn.LogSigmoid, aten.log_sigmoid.default)
_entrywise(nn.Softmax, aten.softmax.int, "dim")
_entrywise(nn.LogSoftmax, aten.log_softmax.int, "dim")


@_layer(nn.PReLU)
def _prelu(walk: Walk, m: nn.PReLU, x: fx.Node) -> fx.Node:
    shape = _shape(x)
    _require(m.weight.numel() == 1 or (len(shape) > 1 and m.weight.shape == shape[1:2]))
    return walk.call(aten.prelu.default, x, walk.weight("weight"), value=x.meta["val"])


@_layer(nn.RReLU)
def _rrelu(walk: Walk, m: nn.RReLU, x: fx.Node) -> fx.Node:
    _require(not m.training)
    return walk.call(aten.rrelu.default, x, m.lower, m.upper, value=x.meta["val"])


# -- shapes ----------------------------------------------------------------------------------------


@_layer(nn.Identity)
def _identity(walk: Walk, m: nn.Module, x: fx.Node) -> fx.Node:
    return x


@_layer(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
@_layer(nn.AlphaDropout, nn.FeatureAlphaDropout)
def _dropout(walk: Walk, m: nn.Module, x: fx.Node) -> fx.Node:
    _require(not m.training)
    return x


@_layer(nn.Flatten)
def _flatten(walk: Walk, m: nn.Flatten, x: fx.Node) -> fx.Node:
    dims = len(_shape(x))
    _require(m.start_dim % dims > 0 and m.start_dim % dims <= m.end_dim % dims)
    return walk.call(aten.flatten.using_ints, x, m.start_dim, m.end_dim)


@_layer(nn.Unflatten)
def _unflatten(walk: Walk, m: nn.Unflatten, x: fx.Node) -> fx.Node:
    _require(isinstance(m.dim, int) and int(m.dim) % len(_shape(x)) > 0)
    return walk.call(aten.unflatten.int, x, m.dim, list(m.unflattened_size))


_PADS: dict[type[nn.Module], str] = {
    getattr(nn, f"{name}Pad{dims}d"): mode
    for name, mode in {
        "Zero": "constant",
        "Constant": "constant",
        "Reflection": "reflect",
        "Replication": "replicate",
        "Circular": "circular",
    }.items()
    for dims in (1, 2, 3)
}


@_layer(*_PADS)
def _pad(walk: Walk, m: Any, x: fx.Node) -> fx.Node:
    _spatial(x, type(m))
    mode = _PADS[type(m)]
    value = (float(m.value),) if mode == "constant" else ()
    return walk.call(aten.pad.default, x, list(m.padding), mode, *value)


@_layer(nn.Upsample, nn.UpsamplingNearest2d, nn.UpsamplingBilinear2d)
def _upsample(walk: Walk, m: nn.Upsample, x: fx.Node) -> fx.Node:
    dims = len(_shape(x)) - 2
    _require(not m.recompute_scale_factor and (m.size is None) != (m.scale_factor is None))
    size = None if m.size is None else _listed(m.size, dims)
    scale = None if m.scale_factor is None else _listed(m.scale_factor, dims)
    if m.mode == "nearest":
        return walk.call(getattr(aten, f"upsample_nearest{dims}d").vec, x, size, scale)
    _require(m.mode == {1: "linear", 2: "bilinear", 3: "trilinear"}[dims])
    target = getattr(aten, f"upsample_{m.mode}{dims}d").vec
    return walk.call(target, x, size, bool(m.align_corners), scale)


@_layer(nn.PixelShuffle)
def _pixel_shuffle(walk: Walk, m: nn.PixelShuffle, x: fx.Node) -> fx.Node:
    _require(len(_shape(x)) == 4)
    return walk.call(aten.pixel_shuffle.default, x, m.upscale_factor)


@_layer(nn.PixelUnshuffle)
def _pixel_unshuffle(walk: Walk, m: nn.PixelUnshuffle, x: fx.Node) -> fx.Node:
    _require(len(_shape(x)) == 4)
    return walk.call(aten.pixel_unshuffle.default, x, m.downscale_factor)


@_layer(nn.ChannelShuffle)
def _channel_shuffle(walk: Walk, m: nn.ChannelShuffle, x: fx.Node) -> fx.Node:
    _require(len(_shape(x)) == 4)
    return walk.call(aten.channel_shuffle.default, x, m.groups)
