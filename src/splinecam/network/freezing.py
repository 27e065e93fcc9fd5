"""A network with its attention patterns and denominators held at their values at one input.

Normalisations, attention and gated units are first written out as products and quotients. The
functions that do so take ``emit``, which adds a call to the graph and returns its result, and the
arguments of the operation. They return what stands for the results of the operation, or None for a
call that stays as it is.

Only products and quotients of activations stand between a network and functions of one variable.
A divisor is always held. All factors of a product but one are held: first factors from a softmax,
then from a reciprocal or an inverse root. Other factors are gates: first from a sigmoid, then from
other functions. What leads to held values alone, as queries and keys do, leaves the network. The
rest is written as the calls of a ``FrozenGraph``.
"""

from __future__ import annotations

import operator
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves

from splinecam.errors import CaptureError, UnsupportedOpError
from splinecam.network.capture.models import EXCLUSIVE, Output, one_output, widened
from splinecam.network.capture.reading import graph_builder as building
from splinecam.network.capture.reading.stages import with_frees
from splinecam.network.capture.tracing import flat_graph as flat
from splinecam.network.capture.tracing.diagnosis import refuse
from splinecam.network.capture.tracing.export import export_graph
from splinecam.network.capture.tracing.flat_graph import SYMBOLIC, FlatGraph
from splinecam.network.capture.tracing.opaque_modules import opaque_module_of, opaque_modules
from splinecam.network.frozen_graph import FrozenGraph, FrozenStep, repeated
from splinecam.network.ops import registry as ops
from splinecam.network.ops.affine import CREATORS, STATISTICS, TRAINING
from splinecam.network.ops.nonlinear import MIXES
from splinecam.network.ops.registry import AffineRule, Call, Emitter, rule_of, target_name
from splinecam.network.values import MANY_POINTS, Ref, Size, resolve, size_of

_ATEN = torch.ops.aten

Write = Callable[[Emitter, Call], Any]


def expand(graph: FlatGraph) -> FlatGraph:
    """The graph with every such operation written out; its nodes are changed in place."""
    output = graph.output
    for node in list(graph.nodes):
        write = _WRITTEN_OUT.get(target_name(node.target)) if node.op == "call_function" else None
        results = write(Emitter(node), flat.arguments_of(node)) if write else None
        if results is None:
            continue
        if isinstance(results, tuple):
            for user in list(node.users):
                if user.target is operator.getitem:
                    user.replace_all_uses_with(results[user.args[1]])  # type: ignore[index]
                    output = results[user.args[1]] if user is output else output  # type: ignore[index]
        else:
            node.replace_all_uses_with(results)
            output = results if node is output else output
    nodes = list(output.graph.nodes)
    return FlatGraph(nodes, graph.x, output, graph.constants, graph.batch)


def _normalised(emit: Emitter, x: Any, dims: list[int], eps: float, *, centred: bool = True) -> Any:
    """A value divided by its standard deviation over dimensions: the result, mean and divisor."""
    mean = emit(_ATEN.mean.dim, x, dims, True) if centred else None
    x = emit(_ATEN.sub.Tensor, x, mean) if centred else x
    square = emit(_ATEN.mean.dim, emit(_ATEN.mul.Tensor, x, x), dims, True)
    scale = emit(_ATEN.rsqrt.default, emit(_ATEN.add.Scalar, square, eps))
    return emit(_ATEN.mul.Tensor, x, scale), mean, scale


def _scaled(emit: Emitter, x: Any, weight: Any, bias: Any, shape: list[int] | None = None) -> Any:
    """A value times a weight plus a bias, which are given a shape first."""
    for target, constant in ((_ATEN.mul.Tensor, weight), (_ATEN.add.Tensor, bias)):
        if constant is not None:
            shaped = constant if shape is None else emit(_ATEN.reshape.default, constant, shape)
            x = emit(target, x, shaped)
    return x


def _layer_norm(emit: Emitter, call: Call) -> Any:
    dims = list(range(-len(call["normalized_shape"]), 0))
    x, mean, scale = _normalised(emit, call["input"], dims, call["eps"])
    return _scaled(emit, x, call["weight"], call["bias"]), mean, scale


def _rms_norm(emit: Emitter, call: Call) -> Any:
    dims = list(range(-len(call["normalized_shape"]), 0))
    eps = call["eps"]
    if eps is None:
        eps = torch.finfo(call["input"].meta["val"].dtype).eps
    x, _, scale = _normalised(emit, call["input"], dims, eps, centred=False)
    return _scaled(emit, x, call["weight"], None), scale


def _grouped(emit: Emitter, call: Call, groups: int) -> Any:
    shape = emit.shape(call["input"])
    x = emit(_ATEN.unflatten.int, call["input"], 1, [groups, shape[1] // groups])
    x, mean, scale = _normalised(emit, x, list(range(2, len(shape) + 1)), call["eps"])
    x = emit(_ATEN.flatten.using_ints, x, 1, 2)
    per_channel = [shape[1], *([1] * (len(shape) - 2))]
    return _scaled(emit, x, call["weight"], call["bias"], per_channel), mean, scale


def _instance_norm(emit: Emitter, call: Call) -> Any:
    if not call["use_input_stats"] or call["running_mean"] is not None:
        return None
    return _grouped(emit, call, emit.shape(call["input"])[1])[0]


def _attention(emit: Emitter, call: Call) -> Any:
    """Softmax of the scaled products of queries and keys, times the values."""
    q, k, v = call["query"], call["key"], call["value"]
    if call.get("enable_gqa"):
        each = emit.shape(q)[-3] // emit.shape(k)[-3]
        k, v = (emit(_ATEN.repeat_interleave.self_int, x, each, -3) for x in (k, v))
    scale = call.get("scale")
    scale = emit.shape(q)[-1] ** -0.5 if scale is None else scale
    keys = emit(_ATEN.transpose.int, k, -2, -1)
    scores = emit(_ATEN.matmul.default, emit(_ATEN.mul.Tensor, q, scale), keys)
    if call.get("is_causal"):
        later = emit(_ATEN.triu.default, emit(_ATEN.full_like.default, scores, -torch.inf), 1)
        scores = emit(_ATEN.add.Tensor, scores, later)
    mask = call.get("attn_mask")
    if mask is not None and mask.meta["val"].dtype == torch.bool:
        hidden = emit(_ATEN.logical_not.default, mask)
        scores = emit(_ATEN.masked_fill.Scalar, scores, hidden, -torch.inf)
    elif mask is not None:
        scores = emit(_ATEN.add.Tensor, scores, mask)
    weights = emit(_ATEN._safe_softmax.default, scores, -1)
    if call.get("dropout_p"):  # in training mode, which is refused
        weights = emit(_ATEN.dropout.default, weights, call["dropout_p"], True)
    return emit(_ATEN.matmul.default, weights, v)


def _glu(emit: Emitter, call: Call) -> Any:
    x, dim = call["self"], call["dim"]
    half = emit.shape(x)[dim] // 2
    value = emit(_ATEN.slice.Tensor, x, dim, 0, half)
    gate = emit(_ATEN.slice.Tensor, x, dim, half, 2 * half)
    return emit(_ATEN.mul.Tensor, value, emit(_ATEN.sigmoid.default, gate))


_WRITTEN_OUT: dict[str, Write] = {
    "aten.layer_norm": lambda emit, call: _layer_norm(emit, call)[0],
    "aten.native_layer_norm": _layer_norm,
    "aten.rms_norm": lambda emit, call: _rms_norm(emit, call)[0],
    "aten._fused_rms_norm": _rms_norm,
    "aten.group_norm": lambda emit, call: _grouped(emit, call, call["num_groups"])[0],
    "aten.native_group_norm": lambda emit, call: _grouped(emit, call, call["group"]),
    "aten.instance_norm": _instance_norm,
    "aten.scaled_dot_product_attention": _attention,
    "aten._scaled_dot_product_flash_attention_for_cpu": lambda *given: (_attention(*given),),
    "aten._scaled_dot_product_attention_math": lambda *given: (_attention(*given),),
    "aten.glu": _glu,
}


POINTS = 2  # a batch of one may be taken for something else, as in squeeze()


def anchor_values(graph: FlatGraph, at: Tensor) -> dict[fx.Node, Any]:
    """The values of all nodes for a batch of ``POINTS`` points that all are the anchor."""
    values: dict[fx.Node, Any] = {graph.x: at[None].expand(POINTS, *at.shape).double()}
    for node, (_, value) in graph.constants.items():
        values[node] = widened(value) if isinstance(value, Tensor) else value
    needed = graph.needed()
    with torch.no_grad():
        for node in graph.nodes:
            if node.op == "call_function" and node in needed:
                values[node] = _computed(graph, values, node, at.device)
    return values


def _computed(
    graph: FlatGraph, values: dict[fx.Node, Any], node: fx.Node, device: torch.device
) -> Any:
    """The value of a node, from the values of the nodes before it."""
    value: Any = node.meta.get("val")
    if type(value) in SYMBOLIC:
        return resolve(graph.batch.number(node, values), {}, POINTS, device)

    def argument(item: Any) -> Any:
        if isinstance(item, fx.Node):
            if item not in values:
                raise CaptureError(
                    f"the graph holds a value that cannot be read: {item.name}. Please report this"
                )
            return values[item]
        return resolve(graph.batch.size(item), {}, POINTS, device)

    call: Any = fx.node.map_aggregate((node.args, node.kwargs), argument)
    args, kwargs = call
    graph.batch.count_masked(value, args[1] if len(args) > 1 else None)
    target, rule = node.target, rule_of(node.target)
    if isinstance(rule, ops.AffineRule) and rule.reshapes:  # a view may not fit what lies elsewhere
        return args[0].reshape(graph.batch.shape_at(value, POINTS))
    assert callable(target)
    return building.in_float64(target(*args, **kwargs))


Kind = Literal["attention pattern", "denominator", "gate"]
_Label = Kind | Literal["function", "mask"] | None

_ORDER: tuple[_Label, ...] = ("attention pattern", "denominator", "gate", "function", None)
_PATTERNS = frozenset({"aten.softmax", "aten._softmax", "aten._safe_softmax"})
_INVERSES = frozenset({"aten.rsqrt", "aten.reciprocal"})
_POWERS = frozenset({"aten.pow", "aten.float_power"})
_ENTRYWISE = frozenset(
    f"aten.{name}" for name in ("add", "sub", "rsub", "mul", "div", "neg", "clone", "pow", "square")
)
_SIGNS = frozenset({"aten.sign", "aten.heaviside"})
_SQUASHES = frozenset(f"aten.{name}" for name in ("sigmoid", "hardsigmoid", "tanh", "hardtanh"))


@dataclass
class HeldValues:
    """What is held, its kind and the node that it is named after; and what is still computed."""

    uses: dict[fx.Node, set[fx.Node]] = field(default_factory=dict)  # what a node reads
    kinds: dict[fx.Node, Kind] = field(default_factory=dict)  # what each is
    origins: dict[fx.Node, fx.Node] = field(default_factory=dict)  # as the softmax of a pattern
    live: set[fx.Node] = field(default_factory=set)  # what the output depends on
    refused: list[fx.Node] = field(default_factory=list)  # products without a factor to be held


def choose_held(graph: FlatGraph, active: set[fx.Node], gates: bool) -> HeldValues:
    """The values of a graph that are held; gates: hold also a factor of other products."""
    origins = _Origins(active)
    for node in graph.nodes:
        if node in active:
            origins.add(node)
    held, waiting = HeldValues(), [graph.output]
    while waiting:
        node = waiting.pop()
        if node in held.live:
            continue
        held.live.add(node)
        if node in active and node is not graph.x:
            _hold(held, node, origins, gates)
        unread = held.uses.get(node, set()) | flat.shape_arguments(node)
        waiting += [source for source in node.all_input_nodes if source not in unread]
    place = {node: i for i, node in enumerate(graph.nodes)}
    held.kinds = {node: held.kinds[node] for node in sorted(held.kinds, key=place.__getitem__)}
    held.refused.sort(key=place.__getitem__)
    return held


def _hold(held: HeldValues, node: fx.Node, origins: _Origins, gates: bool) -> None:
    """Choose the arguments of a node that are held."""
    rule = rule_of(node.target)
    if not isinstance(rule, ops.AffineRule):
        return
    chosen: dict[fx.Node, Kind] = {}
    for divisor in origins.among(node, rule.factor):
        chosen[divisor] = "denominator"
    factors = list(dict.fromkeys(origins.among(node, rule.product)))
    masked = any(origins.labels[factor] == "mask" for factor in factors)
    entrywise = target_name(node.target) in _ENTRYWISE
    # A product as x * f(x) is a function of one variable.
    alone = entrywise and len({origins.sources[factor] for factor in factors}) == 1
    if len(factors) > 1 and not masked and not alone:
        factors.sort(key=lambda factor: _ORDER.index(origins.labels[factor]))
        for factor in factors[:-1]:
            label = origins.labels[factor]
            if label in ("attention pattern", "denominator"):
                chosen[factor] = label
            elif gates:
                chosen[factor] = "gate"
            else:
                held.refused.append(node)
                return
    if chosen:
        held.uses[node] = set(chosen)
        for value, kind in chosen.items():
            held.kinds.setdefault(value, kind)
            held.origins[value] = origins.named[value]


class _Origins:
    """What the values of a graph come from."""

    def __init__(self, active: set[fx.Node]) -> None:
        self.active = active
        self.labels: dict[fx.Node, _Label] = {}  # what a value is, as a factor of a product
        self.named: dict[fx.Node, fx.Node] = {}  # the node that makes it so
        self.sources: dict[fx.Node, fx.Node] = {}  # what it depends on entry by entry

    def among(self, node: fx.Node, names: tuple[str, ...]) -> list[fx.Node]:
        """The activations in some of a node's arguments, which are given by name."""
        named = flat.arguments_of(node) if names else {}
        found = [part for name in names for part in flat.nodes_in(named.get(name))]
        return [part for part in found if part in self.active]

    def add(self, node: fx.Node) -> None:
        """Record one more node, after the nodes that it reads."""
        inputs = [n for n in node.all_input_nodes if n in self.active]
        inputs = [n for n in inputs if n not in flat.shape_arguments(node)]
        label = self.labels[node] = self._label(node, inputs)
        keeps = inputs and label is not None and self.labels[inputs[0]] == label
        moves = isinstance(rule_of(node.target), ops.AffineRule) or label != "function"
        self.named[node] = self.named[inputs[0]] if keeps and moves else node
        self.sources[node] = self._source(node, inputs)

    def _label(self, node: fx.Node, inputs: list[fx.Node]) -> _Label:
        name, rule = target_name(node.target), rule_of(node.target)
        if not inputs:
            return None
        value = node.meta.get("val")
        masks = isinstance(value, Tensor) and not value.is_floating_point()
        if masks or isinstance(rule, ops.ComparisonRule) or name in _SIGNS:
            return "mask"
        if name in _PATTERNS:
            return "attention pattern"
        exponent = node.args[1] if name in _POWERS else None
        if name in _INVERSES or (isinstance(exponent, (int, float)) and exponent < 0):
            return "denominator"
        if not isinstance(rule, ops.AffineRule) and node.target is not operator.getitem:
            before = self.labels[inputs[0]]
            if before in ("attention pattern", "denominator"):
                return before
            return "gate" if name in _SQUASHES else "function"
        if isinstance(rule, ops.AffineRule):
            divisors = self.among(node, rule.factor)
            if divisors and _is_sum_of(divisors[0], inputs[0]):
                return "attention pattern"
            inputs = [n for n in inputs if n not in divisors] or inputs
            if len(self.among(node, rule.product)) > 1:
                return None
        labels = {self.labels[n] for n in inputs}
        return labels.pop() if len(labels) == 1 else None

    def _source(self, node: fx.Node, inputs: list[fx.Node]) -> fx.Node:
        """The value on which a node depends entry by entry, or the node itself."""
        sources = {self.sources[n] for n in inputs}
        rule = rule_of(node.target)
        function = isinstance(rule, (ops.PiecewiseRule, ops.RejectedRule)) or (
            isinstance(rule, ops.TerminalRule) and rule.elementwise
        )
        conversion = isinstance(rule, ops.AffineRule) and rule.identity
        entrywise = function or conversion or target_name(node.target) in _ENTRYWISE
        if len(sources) != 1 or not entrywise or isinstance(rule, (ops.MaximumRule, ops.SortRule)):
            return node
        (source,) = sources
        return source if _shape(source) == _shape(node) else node


def _is_sum_of(divisor: fx.Node, value: fx.Node) -> bool:
    """Whether a divisor is the sum of a value over some dimension, up to its shape and a guard."""
    while divisor is not value:
        name = target_name(divisor.target)
        if name == "aten.sum":
            return value in divisor.all_input_nodes
        follows = name in ("aten.add", "aten.clamp", "aten.clamp_min", "aten.expand_as")
        rule = rule_of(divisor.target)
        follows = follows or (isinstance(rule, ops.AffineRule) and (rule.exact or rule.reshapes))
        if not follows or not divisor.all_input_nodes:
            return False
        divisor = divisor.all_input_nodes[0]
    return False


def _shape(node: fx.Node) -> list[str] | None:
    value = node.meta.get("val")
    return [str(size) for size in value.shape] if isinstance(value, Tensor) else None


GATES = (
    "it multiplies activations with each other, and neither is an attention pattern or a "
    "denominator: freeze(..., gates=True) holds one of them"
)
_HELD = "_held"  # the module that has the held values
_BROADCASTING = frozenset(f"aten.{name}" for name in ("mul", "div", "addcmul", "addcdiv", "einsum"))
_MATRICES = frozenset({"aten.matmul", "aten.bmm"})


@dataclass(frozen=True)
class Held:
    """A value that is held: where it is in the model, what it is, and its shape for one input."""

    name: str
    kind: Kind
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.kind} {self.shape}"


def freeze_graph(
    model: nn.Module, at: Tensor, *, gates: bool = False, output: Output = None
) -> tuple[FrozenGraph, tuple[Held, ...]]:
    """The network of a model with its patterns and denominators held, and what is held.

    at: one input, without a batch; gates: whether one factor of other products is held, too.
    """
    refuse(model)
    with EXCLUSIVE, torch.no_grad(), opaque_modules(model), one_output(model, output):
        graph, _ = export_graph(model, tuple(at.shape))
        graph = expand(graph)
        with building.explaining(model, graph, graph.needed()):
            return _Maker(graph, at, gates).made()


class _Maker:
    """Writes the steps of a frozen graph."""

    def __init__(self, graph: FlatGraph, at: Tensor, gates: bool) -> None:
        self.graph = graph
        self.active = flat.active_nodes(graph)
        if graph.output not in self.active:
            raise CaptureError("the model's output does not depend on its input")
        self.held = choose_held(graph, self.active, gates)
        _check(graph, self.active, self.held)
        self.anchor, self.device = anchor_values(graph, at), at.device
        self.sized = self._sized_nodes()
        layers = frozenset(path for path, layer in map(building.module_of, self.held.live) if layer)
        self.module = FrozenGraph(tuple(at.shape), graph.x.name, layers)
        self.places: dict[str, tuple[str, str]] = {}
        self.steps: list[FrozenStep] = []

    def made(self) -> tuple[FrozenGraph, tuple[Held, ...]]:
        """The module, and what is held."""
        for node in self.graph.nodes:
            live = node in self.held.live and node.op == "call_function"
            if live and (node in self.active or node in self.sized):
                self._add(node)
        result: Any = self._value(self.graph.output)
        steps = with_frees(self.steps, (result.name, *self.places))  # weights are not freed
        self.module.finish(steps, self.places, result.name)
        held = [
            Held(building.name_of(self.held.origins[node])[0], kind, tuple(self._row(node).shape))
            for node, kind in self.held.kinds.items()
        ]
        return self.module, tuple(held)

    def _add(self, node: fx.Node) -> None:
        """Add the steps of a node."""
        rule, opaque, value = rule_of(node.target), opaque_module_of(node), node.meta["val"]
        args: tuple[Any, ...]
        if opaque is not None:  # the frozen graph shares a registered module with the model
            parent, _, last = building.module_of(node)[0].rpartition(".")
            self.module.scope(parent).add_module(last, opaque.original)
            self._step(node, None, (self._value(node.args[0]),))
        elif target_name(node.target) in CREATORS:
            fill = self._value(building.fill_of(node))
            args = (self.graph.batch.shape(value), fill, value.dtype, self.device)
            self._step(node, building.filled, args)
        elif isinstance(rule, AffineRule) and (rule.reshapes or rule.shape_only):
            args = (self._value(node.args[0]), self.graph.batch.shape(value))
            self._step(node, _ATEN.reshape.default if rule.reshapes else _ATEN.expand.default, args)
        elif node in self.held.uses:
            self._add_held(node)
        else:
            self._add_call(node, {})

    def _add_call(self, node: fx.Node, stand_ins: Mapping[fx.Node, Any]) -> None:
        """Add the call of a node as it is; stand_ins: what is written for held values."""
        args = tuple(self._value(item, stand_ins) for item in node.args)
        named = {key: self._value(item, stand_ins) for key, item in node.kwargs.items()}
        self._step(node, node.target, args, named)

    def _add_held(self, node: fx.Node) -> None:
        """Add a step that reads held values."""
        held, name = self.held.uses[node], target_name(node.target)
        if name in _MATRICES and self._add_weighted(node, held):
            return
        stand_ins: dict[fx.Node, Any] = {}
        for value in held:
            rows: Any = self.graph.batch.rows(value.meta["val"])
            row = self._row(value)
            if name in _BROADCASTING and rows.each == 1:
                stand_ins[value] = self._constant(f"{value.name}.one", row.unsqueeze(rows.dim))
                continue
            args = (self._constant(value.name, row), rows.dim, rows.each, size_of(1))
            where, made = f"{value.name}.for.{node.name}", self._made(value.meta["val"])
            stand_ins[value] = self._step(node, repeated, args, name=where, made=made)
        self._add_call(node, stand_ins)

    def _add_weighted(self, node: fx.Node, held: set[fx.Node]) -> bool:
        """Add a product of matrices, if one factor is the same matrices for every point."""
        (value,) = held
        first = node.args[0] is value
        other: Any = node.args[1 if first else 0]
        batch, shapes = self.graph.batch, [n.meta["val"].shape for n in (value, other)]
        rows = [batch.rows(n.meta["val"]) for n in (value, other)]
        inner = [[str(size) for size in shape[1:-2]] for shape in shapes]
        if rows[0] is None or rows[0].dim != 0 or rows[0] != rows[1] or inner[0] != inner[1]:
            return False
        if len(shapes[0]) != len(shapes[1]) or len(shapes[0]) < 3:
            return False
        row, each, x = self._row(value), rows[0].each, self._value(other)
        letters = string.ascii_lowercase[: row.dim() - 2]
        names = ("xy", "yz") if first else ("yz", "xy")
        equation = f"{letters}{names[0]},Z{letters}{names[1]}->Z{letters}xz"
        pattern = self._constant(value.name, row)
        if each == 1:
            self._step(node, _ATEN.einsum.default, (equation, [pattern, x]))
            return True
        # The rows of each point get a dimension of their own.
        sizes = (self._made(n.meta["val"]) for n in (other, node))
        before, after = (((MANY_POINTS, each, *shape[1:]), dtype) for shape, dtype in sizes)
        given = {"name": f"{node.name}.factor", "made": before}
        x = self._step(node, _ATEN.unflatten.int, (x, 0, [-1, each]), **given)
        given = {"name": f"{node.name}.product", "made": after}
        x = self._step(node, _ATEN.einsum.default, (equation, [pattern, x]), **given)
        self._step(node, _ATEN.flatten.using_ints, (x, 0, 1))
        return True

    def _step(
        self, node: fx.Node, run: Any, args: tuple[Any, ...], kwargs: Any = (), **given: Any
    ) -> Ref:
        """Add a step of a node; given: its name and what it makes, if they are not the node's."""
        path, _ = building.module_of(node)
        self.module.scope(path)
        run = str(run) if isinstance(run, torch._ops.OpOverload) else run
        fields = {"name": node.name, "scope": path} | given
        fields["made"] = given.get("made") or self._made(node.meta["val"])
        self.steps.append(FrozenStep(run=run, args=args, kwargs=dict(kwargs), **fields))
        return Ref(fields["name"])

    def _made(self, value: Any) -> Any:
        """The shapes and types of values of the graph."""
        if isinstance(value, (list, tuple)):
            return [self._made(part) for part in value]
        return tuple(self.graph.batch.shape_at(value, MANY_POINTS)), value.dtype

    def _value(self, item: Any, stand_ins: Mapping[fx.Node, Any] = MappingProxyType({})) -> Any:
        """An argument as it is written in a step; stand_ins: what is written for held values."""
        if isinstance(item, fx.Node):
            return stand_ins[item] if item in stand_ins else self._of_node(item)
        if type(item) in SYMBOLIC:
            return self.graph.batch.size(item)
        if isinstance(item, (list, tuple)):
            return [self._value(part, stand_ins) for part in item]
        return item

    def _of_node(self, node: fx.Node) -> Any:
        if type(node.meta.get("val")) in SYMBOLIC:
            return self.graph.batch.size(node.meta["val"])
        if node in self.active or node in self.sized:
            return Ref(node.name)
        name, weight = self.graph.constants.get(node, ("", None))
        if isinstance(weight, Tensor):
            return self._tensor(node.name, name, weight)
        value = self.anchor[node]
        return self._constant(node.name, value) if isinstance(value, Tensor) else value

    def _tensor(self, key: str, name: str, tensor: Tensor) -> Ref:
        """A parameter or buffer of the frozen graph; key: what it is called in steps."""
        path, _, last = name.rpartition(".")
        owner = self.module.scope(path)
        kind = isinstance(tensor, nn.Parameter)
        (owner.register_parameter if kind else owner.register_buffer)(last, tensor)  # type: ignore[arg-type]
        self.places[key] = (path, last)
        return Ref(key)

    def _constant(self, name: str, value: Tensor) -> Ref:
        """A value that is computed once, in float64."""
        last = name.replace(".", "_")
        return self._tensor(f"{_HELD}.{name}", f"{_HELD}.{last}", value.detach().clone())

    def _row(self, node: fx.Node) -> Tensor:
        """The held value of one point, without its batch."""
        rows = self.graph.batch.rows(node.meta["val"])
        assert rows is not None  # it was checked
        row: Tensor = rows.out(self.anchor[node])[0]
        return row

    def _sized_nodes(self) -> set[fx.Node]:
        """Constants that depend on the size of the batch."""
        found: set[fx.Node] = set()
        for node in self.graph.nodes:
            value = node.meta.get("val")
            known = node in self.active or not isinstance(value, (Tensor, list, tuple))
            if node.op != "call_function" or known:
                continue
            shaped = target_name(node.target) in CREATORS or bool(flat.shape_arguments(node))
            shape = getattr(value, "shape", ()) if shaped else ()
            reads = (*tree_leaves((node.args, node.kwargs)), *shape)
            if not found.isdisjoint(node.all_input_nodes) or any(map(self._is_sized, reads)):
                found.add(node)
        return found

    def _is_sized(self, item: Any) -> bool:
        number = item.meta.get("val") if isinstance(item, fx.Node) else item
        return type(number) in SYMBOLIC and isinstance(self.graph.batch.size(number), Size)


def _check(graph: FlatGraph, active: set[fx.Node], held: HeldValues) -> None:
    """Raise an ``UnsupportedOpError`` for what cannot be held, and for what is random."""
    builder = building.GraphBuilder(graph.x, graph.batch, torch.device("cpu"))
    for node in (node for node in graph.nodes if node in active and node is not graph.x):
        rule = rule_of(node.target)
        if isinstance(rule, AffineRule) and rule.check is not None:
            reason = rule.check(flat.arguments_of(node))
            if reason in (TRAINING, STATISTICS):
                builder.reject(node, reason)
        if node in held.refused:
            builder.reject(node, GATES)
        if node in held.kinds and graph.batch.rows(node.meta["val"]) is None:
            builder.reject(node, MIXES)
    if builder.offending:
        settled = [replace(op, settled=op.reason == GATES) for op in builder.offending]
        raise UnsupportedOpError(settled)
