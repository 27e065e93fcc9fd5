"""The graph of a chain, a tree or a graph of known layers, without ``torch.export``.

The result is the graph that ``torch.export`` would give, call by call. Only torch's own layers in
``nn.Sequential`` or ``LayerGraph``, in the state in which torch made them, and frozen models are
followed. Hooks, replaced methods, parametrisations, modes of torch and whatever else may change
what a module computes lead to ``torch.export``.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.module import _has_any_global_hook

from splinecam.network.capture.models import Output, Wrapper, any_mode, selected
from splinecam.network.capture.tracing.flat_graph import FlatGraph, ManyPoints
from splinecam.network.capture.tracing.opaque_modules import opaque_call
from splinecam.network.frozen_graph import FrozenGraph, Scope
from splinecam.network.layer_graph import ENTRYWISE_LAYERS, Call, LayerGraph, call_result
from splinecam.network.ops.register import rule_of_class
from splinecam.network.ops.registry import target_name
from splinecam.network.values import MANY_POINTS, Ref

aten = torch.ops.aten

_META = torch.device("meta")
_TORCH = f"{Path(torch.__file__).parent}{os.sep}"
_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_CALLED = (
    *("__call__", "_wrapped_call_impl", "_call_impl", "__getattr__", "__iter__", "forward"),
    "_conv_forward",
)
_OWN = (Call.forward, LayerGraph.forward, FrozenGraph.forward, Scope.forward, Wrapper.forward)
_MISSING = object()


def walk(model: nn.Module, input_shape: tuple[int, ...], output: Output = None) -> FlatGraph | None:
    """The graph of a chain, a tree or a graph of known layers; None for any other model."""
    if _has_any_global_hook() or any_mode():  # type: ignore[no-untyped-call]
        return None
    recorder = _GraphRecorder(input_shape)
    try:
        result = _follow(recorder, model, "", recorder.x)
        if isinstance(result, dict):
            chosen = selected({name: node.meta["val"] for name, node in result.items()}, output)
            result = next(node for node in result.values() if node.meta["val"] is chosen)
        elif output is not None:
            return None
    except Exception:  # torch.export finds out what is wrong, and where
        return None
    weights = recorder.constants.items()
    tensors = [tensor for node, (_, tensor) in weights if node not in recorder.converted]
    if len(recorder.nodes) == 1 or not _uniform(tensors):
        return None
    return FlatGraph(recorder.nodes, recorder.x, result, recorder.constants, ManyPoints())


def _uniform(tensors: list[Tensor]) -> bool:
    """Whether all weights are tensors of one floating-point type, or of indices, on one device."""
    first = next((tensor for tensor in tensors if tensor.is_floating_point()), None)
    if first is None:
        return True
    types = {first.dtype, torch.long, torch.bool}
    return first.dtype in _FLOATS and all(
        type(tensor) in (Tensor, nn.Parameter)
        and tensor.dtype in types
        and tensor.device == first.device
        and tensor.layout is torch.strided
        and not tensor.is_meta
        for tensor in tensors
    )


def _follow(recorder: _GraphRecorder, module: nn.Module, path: str, x: fx.Node) -> Any:
    """The result of a module for a value; a dict of results if a graph has several."""
    recorder.enter(module, path)
    layer = LAYERS.get(type(module))
    if layer is not None:
        return layer(recorder, module, x)
    if isinstance(module, (LayerGraph, FrozenGraph)):
        follow: Any = _follow_graph if isinstance(module, LayerGraph) else _follow_frozen
        return follow(recorder, module, path, x)
    _require(isinstance(module, Wrapper) or type(module).forward is nn.Sequential.forward)
    children = {"inner": module.inner} if isinstance(module, Wrapper) else module._modules
    for name, child in children.items():
        x = _follow(recorder, child, _joined(path, name), x)  # type: ignore[arg-type]
    return x


def _follow_graph(recorder: _GraphRecorder, graph: LayerGraph, path: str, x: fx.Node) -> Any:
    """The outputs of a graph of layers for a value: one, or a dict of several."""
    shape = tuple(_shape(x)[1:])
    if shape != graph.input_shape:
        x = recorder.call(aten.reshape.default, x, [-1, *graph.reshaped(shape)])
    values = {graph.source: x}
    for link in graph.links:
        layer: Any = graph._modules[link.module]
        recorder.label = (_joined(path, link.label), link.kind)
        recorder.inputs = [values[name] for name in link.inputs]
        where = _joined(path, link.module)
        values[link.result] = _follow(recorder, layer, where, recorder.inputs[0])
        recorder.label = None
    return graph.returned(values)


def _follow_frozen(recorder: _GraphRecorder, graph: FrozenGraph, path: str, x: fx.Node) -> Any:
    """The output of a frozen model for a value."""
    _require(tuple(_shape(x)[1:]) == graph._input_shape)
    values: dict[str, Any] = {graph._source: x}
    for key, (where, name) in graph._places.items():
        recorder.enter(graph.get_submodule(where), _joined(path, where))
        values[key] = recorder.weight(name)
        recorder.converted.add(values[key])

    def resolved(call: Any) -> Any:
        return fx.node.map_aggregate(call, lambda x: values[x.name] if isinstance(x, Ref) else x)

    for step in graph._steps:
        module, where = graph.get_submodule(step.scope), _joined(path, step.scope)
        recorder.enter(module, where, registered=step.run is None)
        args, kwargs = resolved((step.args, step.kwargs))
        target, number = opaque_call(module) if step.run is None else (step.target, [])
        made = _blank(step.made)
        values[step.name] = recorder.call(target, *args, *number, made=made, **kwargs)
    return values[graph._result]


def _blank(made: Any) -> Any:
    """Tensors without data for the results of a step."""
    if isinstance(made, list):
        return [_blank(part) for part in made]
    return torch.empty(made[0], dtype=made[1], device=_META)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path and name else path or name


def _unchanged(kind: type) -> bool:
    """Whether torch has written all methods that a call goes through."""
    functions: Any = [getattr(kind, name, None) for name in _CALLED]
    return all(f is None or f.__code__.co_filename.startswith(_TORCH) for f in functions)


class _GraphRecorder:
    """The graph of the layers so far. Values are tensors of ``MANY_POINTS`` points without data."""

    def __init__(self, input_shape: tuple[int, ...]) -> None:
        self.graph = fx.Graph()
        self.nodes: list[fx.Node] = []
        self.constants: dict[fx.Node, tuple[str, Any]] = {}
        self.converted: set[fx.Node] = set()  # weights that a model converts to the input's type
        self.class_attributes: dict[type, set[str]] = {}
        self.label: tuple[str, str] | None = None  # what a graph calls the layer, and its kind
        self.inputs: list[fx.Node] = []  # of the next call in a graph
        self._counts: dict[str, int] = {}
        self.x = self._node("input", "placeholder", "input", (), {})
        self.x.meta["val"] = torch.empty((MANY_POINTS, *input_shape), device=_META)

    def enter(self, module: nn.Module, path: str, *, registered: bool = False) -> None:
        """Begin with the calls of the next module, which must be as its class was written."""
        kind, state = type(module), vars(module)
        names = set() if registered else self.class_attributes.get(kind)
        if names is None:
            _require((kind.forward in _OWN or _unchanged(kind)) and rule_of_class(module) is None)
            names = self.class_attributes[kind] = set().union(*map(vars, kind.__mro__))
        _require(names.isdisjoint(state) and not any(state[hooks] for hooks in _HOOKS))
        self.module, self.path = module, path
        shown = self.label[0] if self.label else path
        self.stack = {path: (shown, f"{kind.__module__}.{kind.__name__}")}

    def call(self, target: Any, /, *args: Any, made: Any = None, **kwargs: Any) -> fx.Node:
        """Add a call; made: its result without data, which is computed if it is not given."""
        if made is None:
            made = target(*fx.node.map_arg(args, self.example))
        name = target_name(target).rpartition(".")[2]
        node = self._node(name, "call_function", target, args, kwargs)
        node.meta["val"] = made
        node.meta["nn_module_stack"] = self.stack
        if self.label:
            node.meta["kind"] = self.label[1]
        return node

    def apply(self, target: Any, x: fx.Node, *, made: Any = None, **given: Any) -> fx.Node:
        """Add a call whose arguments are the attributes of the layer that have their names."""
        args: list[Any] = [x]
        for name, is_tensor, is_list in _parameters(target):
            if is_tensor:
                args.append(self.weight(name))
                continue
            item = given[name] if name in given else getattr(self.module, name, _MISSING)
            if item is _MISSING:
                break
            args.append(_listed(item, x) if is_list else item)
        return self.call(target, *args, made=made)

    def weight(self, name: str) -> fx.Node | None:
        """A parameter or a buffer of the layer."""
        module = self.module
        found = module._parameters if name in module._parameters else module._buffers
        _require(name in found and name not in vars(module))
        tensor = found[name]
        if tensor is None:
            return None
        node = self._node(name, "placeholder", name, (), {})
        self.constants[node] = (_joined(self.path, name), tensor)
        return node

    def _node(self, name: str, op: str, target: Any, args: Any, kwargs: Any) -> fx.Node:
        count = self._counts[name] = self._counts.get(name, -1) + 1
        # The graph gives no such names to the calls that are added to it later.
        node = fx.Node(self.graph, f"{name}:{count}", op, target, args, kwargs)
        self.nodes.append(node)
        return node

    def example(self, node: fx.Node) -> Tensor:
        """A tensor without data in the shape of a value."""
        if node in self.constants:
            return torch.empty(self.constants[node][1].shape, device=_META)
        value: Tensor = node.meta["val"]
        return value


@cache
def _parameters(target: Any) -> tuple[tuple[str, bool, bool], ...]:
    """The arguments of an operation after the first: names, and whether tensors or lists."""
    kinds = [(argument.name, str(argument.type)) for argument in target._schema.arguments[1:]]
    return tuple((name, "Tensor" in kind, "List" in kind) for name, kind in kinds)


def _require(usual: bool) -> None:
    """Raise an error for a module, or a shape, that only ``torch.export`` can follow."""
    if not usual:
        raise NotImplementedError


def _shape(x: fx.Node) -> torch.Size:
    value: Tensor = x.meta["val"]
    return value.shape


def _listed(value: Any, x: fx.Node) -> Any:
    """One number for each dimension of x beside the batch and the channels, or None."""
    if isinstance(value, (tuple, list)):
        return list(value)
    return None if value is None else [value] * (len(_shape(x)) - 2)


Layer = Callable[[_GraphRecorder, Any, fx.Node], fx.Node]
SpatialLayer = Callable[[_GraphRecorder, Any, fx.Node, int], fx.Node]

LAYERS: dict[type[nn.Module], Layer] = {}
"""The result of a layer for a value. An error means a layer or a shape that is not usual."""

_IMAGES: dict[type[nn.Module], Any] = {
    nn.PixelShuffle: aten.pixel_shuffle.default,
    nn.PixelUnshuffle: aten.pixel_unshuffle.default,
    nn.ChannelShuffle: aten.channel_shuffle.default,
}
_POOLS = {"MaxPool": "max_pool", "AvgPool": "avg_pool"}
_ADAPTIVE_POOLS = {"AdaptiveMaxPool": "adaptive_max_pool", "AdaptiveAvgPool": "adaptive_avg_pool"}
_PADS = {"ZeroPad": "constant", "ConstantPad": "constant", "ReflectionPad": "reflect"}
_PADS |= {"ReplicationPad": "replicate", "CircularPad": "circular"}


def _layer(*kinds: type[nn.Module]) -> Callable[[Layer], Layer]:
    def add(layer: Layer) -> Layer:
        LAYERS.update(dict.fromkeys(kinds, layer))
        return layer

    return add


def _spatial(*names: str) -> Callable[[SpatialLayer], SpatialLayer]:
    """Register layers of 1, 2 and 3 dimensions; the function is given their number."""

    def add(layer: SpatialLayer) -> SpatialLayer:
        def checked(recorder: _GraphRecorder, m: Any, x: fx.Node, dims: int) -> fx.Node:
            _require(len(_shape(x)) == 2 + dims and not getattr(m, "return_indices", False))
            return layer(recorder, m, x, dims)

        for name in names:
            for dims in (1, 2, 3):
                LAYERS[getattr(nn, f"{name}{dims}d")] = partial(checked, dims=dims)
        return layer

    return add


@_layer(nn.Linear)
def _linear(recorder: _GraphRecorder, m: nn.Linear, x: fx.Node) -> fx.Node:
    outputs, inputs = m.weight.shape
    shape = _shape(x)
    _require(len(shape) > 1 and shape[-1] == inputs)
    value = torch.empty((*shape[:-1], outputs), device=_META)
    return recorder.apply(aten.linear.default, x, made=value)


@_layer(Call)
def _call(recorder: _GraphRecorder, m: Call, x: fx.Node) -> fx.Node:
    arguments = m.bound(recorder.inputs, recorder.weight)
    blank = fx.node.map_arg(tuple(arguments), recorder.example)
    return recorder.call(m.target, *arguments, made=call_result(m.operation, m.target, blank))


@_spatial("Conv")
def _conv(recorder: _GraphRecorder, m: Any, x: fx.Node, dims: int) -> fx.Node:
    _require(_shape(x)[1] == m.in_channels)
    padding = m.padding
    if m.padding_mode != "zeros":
        sides = list(m._reversed_padding_repeated_twice)
        x, padding = recorder.call(aten.pad.default, x, sides, m.padding_mode), 0
    packet = getattr(aten, f"conv{dims}d")
    target = packet.padding if isinstance(padding, str) else packet.default
    return recorder.apply(target, x, padding=padding)


@_spatial("ConvTranspose")
def _conv_transpose(recorder: _GraphRecorder, m: Any, x: fx.Node, dims: int) -> fx.Node:
    _require(_shape(x)[1] == m.in_channels and m.padding_mode == "zeros")
    packet = getattr(aten, f"conv_transpose{dims}d")
    return recorder.apply(packet.default if dims == 1 else packet.input, x)


@_layer(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
def _batch_norm(recorder: _GraphRecorder, m: Any, x: fx.Node) -> fx.Node:
    value, momentum = x.meta["val"], 0.0 if m.momentum is None else m.momentum
    m._check_input_dim(value)
    _require(not m.training and value.shape[1] == m.running_mean.shape[0])
    given = {"momentum": momentum, "cudnn_enabled": torch.backends.cudnn.enabled}
    return recorder.apply(aten.batch_norm.default, x, made=value, **given)


@_spatial(*_POOLS)
def _pool(recorder: _GraphRecorder, m: Any, x: fx.Node, dims: int) -> fx.Node:
    name = _POOLS[type(m).__name__[:-2]]
    return recorder.apply(getattr(aten, f"{name}{dims}d").default, x)


@_spatial(*_ADAPTIVE_POOLS)
def _adaptive_pool(recorder: _GraphRecorder, m: Any, x: fx.Node, dims: int) -> fx.Node:
    name = _ADAPTIVE_POOLS[type(m).__name__[:-2]]
    sizes = zip(_listed(m.output_size, x), _shape(x)[2:], strict=True)
    new_sizes = [old if size is None else size for size, old in sizes]
    result = recorder.call(getattr(aten, f"{name}{dims}d").default, x, new_sizes)
    if name == "adaptive_avg_pool":
        return result
    return recorder.call(operator.getitem, result, 0, made=result.meta["val"][0])


@_spatial(*_PADS)
def _pad(recorder: _GraphRecorder, m: Any, x: fx.Node, dims: int) -> fx.Node:
    mode = _PADS[type(m).__name__[:-2]]
    value = (float(m.value),) if mode == "constant" else ()
    return recorder.call(aten.pad.default, x, list(m.padding), mode, *value)


@_layer(*ENTRYWISE_LAYERS)
def _entrywise(recorder: _GraphRecorder, m: nn.Module, x: fx.Node) -> fx.Node:
    if isinstance(m, nn.PReLU):
        _require(m.weight.numel() == 1 or m.weight.shape == _shape(x)[1:2])
    _require(not (isinstance(m, nn.RReLU) and m.training))
    return recorder.apply(ENTRYWISE_LAYERS[type(m)], x, made=x.meta["val"])


@_layer(nn.Softsign)
def _softsign(recorder: _GraphRecorder, m: nn.Softsign, x: fx.Node) -> fx.Node:
    size = recorder.call(aten.abs.default, x, made=x.meta["val"])
    divisor = recorder.call(aten.add.Tensor, size, 1, made=x.meta["val"])
    return recorder.call(aten.div.Tensor, x, divisor, made=x.meta["val"])


@_layer(*_IMAGES)
def _image(recorder: _GraphRecorder, m: nn.Module, x: fx.Node) -> fx.Node:
    _require(len(_shape(x)) == 4)
    return recorder.apply(_IMAGES[type(m)], x)


@_layer(nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
@_layer(nn.AlphaDropout, nn.FeatureAlphaDropout)
def _identity(recorder: _GraphRecorder, m: nn.Module, x: fx.Node) -> fx.Node:
    _require(isinstance(m, nn.Identity) or not m.training)
    return x


@_layer(nn.Flatten)
def _flatten(recorder: _GraphRecorder, m: nn.Flatten, x: fx.Node) -> fx.Node:
    dims = len(_shape(x))
    _require(m.start_dim % dims > 0 and m.start_dim % dims <= m.end_dim % dims)
    return recorder.apply(aten.flatten.using_ints, x)


@_layer(nn.Unflatten)
def _unflatten(recorder: _GraphRecorder, m: nn.Unflatten, x: fx.Node) -> fx.Node:
    _require(isinstance(m.dim, int) and int(m.dim) % len(_shape(x)) > 0)
    return recorder.apply(aten.unflatten.int, x, sizes=m.unflattened_size)


@_layer(nn.Upsample, nn.UpsamplingNearest2d, nn.UpsamplingBilinear2d)
def _upsample(recorder: _GraphRecorder, m: nn.Upsample, x: fx.Node) -> fx.Node:
    dims = len(_shape(x)) - 2
    _require(not m.recompute_scale_factor and (m.size is None) != (m.scale_factor is None))
    _require(m.mode in ("nearest", {1: "linear", 2: "bilinear", 3: "trilinear"}[dims]))
    target = getattr(aten, f"upsample_{m.mode}{dims}d").vec
    sizes = {"output_size": m.size, "scale_factors": m.scale_factor}
    return recorder.apply(target, x, align_corners=bool(m.align_corners), **sizes)
