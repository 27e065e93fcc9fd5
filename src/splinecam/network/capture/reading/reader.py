"""From the graph of a model to a program of affine stages and piecewise-linear layers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx

from splinecam.errors import CaptureError, UnsupportedOpError, option
from splinecam.network.capture.models import widened
from splinecam.network.capture.reading import graph_builder as building
from splinecam.network.capture.reading import scalar_functions as scalars
from splinecam.network.capture.reading import unit_groups as groups
from splinecam.network.capture.reading.custom_ops import add_custom, custom_op_of
from splinecam.network.capture.reading.final import Final, tail_of
from splinecam.network.capture.reading.graph_builder import GraphBuilder, NodeCall
from splinecam.network.capture.reading.masks import add_comparison, add_masked
from splinecam.network.capture.reading.probe import probe
from splinecam.network.capture.reading.stages import make_stages, refs
from splinecam.network.capture.tracing import flat_graph as flat
from splinecam.network.capture.tracing.flat_graph import SYMBOLIC, FlatGraph
from splinecam.network.curves.curve import Curve
from splinecam.network.ops import nonlinear as rejected
from splinecam.network.ops import registry as ops
from splinecam.network.ops.affine import CREATORS
from splinecam.network.ops.bounds import role_of
from splinecam.network.ops.register import CustomOp
from splinecam.network.ops.registry import target_name
from splinecam.network.program import Program, Step
from splinecam.network.values import Ref, resolve


class Reader:
    """Reads the graph once, in order: computes constants, turns nodes into steps and layers."""

    def __init__(self, graph: FlatGraph, device: torch.device, *, smooth: bool = False) -> None:
        self.graph = graph
        self.smooth = smooth
        self.device = device
        self.output = graph.output
        self.needed = graph.needed()
        self.builder = GraphBuilder(graph.x, graph.batch, device)
        self.builder.smooth = smooth
        active = flat.active_nodes(graph)
        self.tail = tail_of(graph, self.needed, active)
        apart = () if self.tail is None else self.tail.nodes
        found = scalars.smooth_patterns(graph, self.needed, active, apart)
        self.patterns, self.reads_weights = found
        self.emitted: list[fx.Node] = []

    def read(self, input_shape: tuple[int, ...]) -> Program:
        """The program of the graph, which is checked by running it on random points."""
        try:
            program = self._read(input_shape)
            probe(program, self.builder.rows, self.builder.describe)
            return program
        finally:
            for node in reversed(self.emitted):  # the graph may be read again
                node.graph.erase_node(node)

    def _read(self, input_shape: tuple[int, ...]) -> Program:
        builder, output = self.builder, self.output
        for node, (_, value) in self.graph.constants.items():
            tensor = isinstance(value, Tensor)
            builder.values[node] = widened(value, self.device) if tensor else value
        for node in self.graph.nodes:
            if node.op == "get_attr":
                builder.values[node] = None  # the graph of a branch: its caller is rejected
            if node.op == "call_function" and node in self.needed:
                self._node(node)
        result, final = self._result()
        steps, constants = builder.finished(), builder.constants.steps
        return Program(
            input_shape=input_shape,
            output_shape=tuple(builder.batch.shape_at(output.meta["val"], 1)[1:]),
            input_name=self.graph.x.name,
            output_name=result.name,
            stages=make_stages(steps, constants, builder.rows, result.name),
            stripped=None if self.tail is None else self.tail.label,
            final=final,
            device=self.device,
        )

    def _result(self) -> tuple[Ref, Final | None]:
        """What is left of the output, if nothing is wrong with it, and what was left out."""
        builder, result = self.builder, self.builder.values[self.output]
        if isinstance(result, Ref) and result.name in builder.masks:
            builder.reject_mask(result.name)
        if builder.offending:
            raise UnsupportedOpError(builder.offending)
        if not (isinstance(result, Ref) and result.name in builder.rows):
            raise CaptureError(
                "the model's output does not depend on its input: there is nothing to partition"
            )
        if not builder.rows[result.name].plain:
            raise CaptureError(
                "the first dimension of the model's output is not the batch: return a tensor "
                "(batch, ...) with one row for each point"
            )
        return (result, None) if self.tail is None else self.tail.finish(builder, self.output)

    def _node(self, node: fx.Node) -> None:
        builder = self.builder
        value: Any = node.meta.get("val")
        if type(value) in SYMBOLIC:
            builder.values[node] = builder.batch.number(node, builder.values)
            return
        if isinstance(value, (int, float, bool)):
            builder.values[node] = value
            return
        if node in self.patterns:
            self._pattern(*self.patterns[node], node)
            return
        args = tuple(self._argument(item) for item in node.args)
        kwargs = {key: self._argument(item) for key, item in node.kwargs.items()}
        if self.tail is not None and node in self.tail.nodes:
            if self.tail.read(builder, node, args, kwargs):
                return
        elif node.target is operator.getitem and isinstance(args[0], tuple):
            builder.values[node] = args[0][args[1]]
            return
        rule = ops.rule_of(node.target)
        takes_shape = isinstance(rule, ops.AffineRule) and rule.shape_only != ()
        if not builder.is_active((args, kwargs)):
            self._constant(node, args, kwargs)
        elif target_name(node.target) in CREATORS:  # such as zeros_like(x)
            fill = self._argument(building.fill_of(node))
            filled = (builder.batch.shape(value), fill, value.dtype, self.device)
            made = builder.constants.add(node, building.filled, filled, {})
            builder.add_constant(node, made)
        elif takes_shape and not builder.is_active(args[0]):
            builder.add_constant(node, builder.constants.add_like(node, args[0]))
        else:
            self._active(node, args, kwargs)

    def _argument(self, item: Any) -> Any:
        """An argument of a node as it is written in a step."""
        if isinstance(item, fx.Node):
            if item not in self.builder.values:
                raise CaptureError(
                    f"the graph holds a value that cannot be read: {item.name}. Please report this"
                )
            return self.builder.values[item]
        if isinstance(item, (int, torch.SymInt)):
            return self.builder.batch.size(item)
        if isinstance(item, (list, tuple)):
            parts = [self._argument(part) for part in item]
            return parts if isinstance(item, list) else tuple(parts)
        return item

    def _constant(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Compute a node that does not depend on the input now, or once the batch is known."""
        if _is_random(node.target):
            arguments = flat.arguments_of(node)
            if not (arguments.get("train") is False or arguments.get("training") is False):
                self.builder.reject(node, rejected.RANDOM)
                return
        run = partial(building.constant_call, node.target)
        if any(True for _ in refs((args, kwargs))) or building.has_size((args, kwargs)):
            self.builder.add_constant(node, self.builder.constants.add(node, run, args, kwargs))
            return
        args, kwargs = resolve((args, kwargs), {}, 1, self.device)
        self.builder.values[node] = run(*args, **kwargs)

    def _active(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        builder, rule = self.builder, custom_op_of(node) or ops.rule_of(node.target)
        named = flat.named_arguments(node, args, kwargs)
        call = NodeCall(node, rule, args, kwargs, named)
        builder.batch.count_masked(node.meta["val"], named.get("indices"))
        unread = rule.shape_only if isinstance(rule, ops.AffineRule) else ()
        read = [ref.name for key, item in named.items() if key not in unread for ref in refs(item)]
        masks = [name for name in dict.fromkeys(read) if name in builder.masks]
        invalid = any(name in builder.invalid for name in read)
        if isinstance(rule, ops.ComparisonRule):
            reason = rejected.MASK if invalid else add_comparison(builder, call)
        elif masks and not invalid:
            reason = add_masked(builder, call, masks)
        else:
            reason = self._reason(call) or self._add(call)
        if reason is not None:
            builder.reject(node, None if invalid else reason)

    def _add(self, call: NodeCall) -> str | None:
        """Add a node to the program; the result is the reason why it cannot be added, or None."""
        rule, builder = call.rule, self.builder
        if isinstance(rule, ops.AffineRule):
            self._add_affine(call, rule)
            return None
        if isinstance(rule, ops.CompositeRule):
            return self._add_composite(call.node, rule)
        if type(rule) in _ADD:
            return _ADD[type(rule)](builder, call)
        active = [name for name, item in call.named.items() if builder.is_active(item)]
        alone = len(active) == 1 and active[0] in rule.source
        return (scalars.add_function if alone else scalars.add_pairs)(builder, call)

    def _pattern(self, curve: Curve, x: fx.Node, node: fx.Node) -> None:
        """Add a smooth function that the model writes as several operations, or reject it."""
        builder, source = self.builder, self._argument(x)
        quadratic = curve.name in ("square", "hardswish")
        why = rejected.QUADRATIC if quadratic else rejected.SMOOTH
        reason: str | None = f"{why} ({curve.name}): {option(ops.OPTION)}"
        if source.name in builder.masks:
            builder.reject_mask(source.name)
        if self.smooth:
            reason = scalars.add_curve(builder, node, curve, source)
        if reason is not None:
            builder.reject(node, None if source.name in builder.invalid else reason)

    def _add_composite(self, node: fx.Node, rule: ops.CompositeRule) -> str | None:
        """Add a node that is written out as several others."""
        for weight in self.graph.constants.keys() & node.all_input_nodes:
            weight.meta.setdefault("val", self.builder.values[weight].to("meta"))
        emit = ops.Emitter(node)
        result = rule.write(emit, flat.arguments_of(node))
        if isinstance(result, str):
            return result
        builder = self.builder
        self.needed.update(emit.nodes)
        self.emitted += emit.nodes
        before = len(builder.offending)
        for new in emit.nodes:
            self._node(new)
        del builder.offending[before + 1 :]  # they are one operation of the model
        builder.values[node] = self._argument(result)
        if isinstance(result, fx.Node):
            builder.batch.equate(node.meta["val"], result.meta["val"])
        return None

    def _add_affine(self, call: NodeCall, rule: ops.AffineRule) -> None:
        node, args, kwargs, builder = call.node, call.args, call.kwargs, self.builder
        names, _ = flat.parameters_of(node.target)
        if rule.identity:
            builder.values[node] = args[0]
            return
        run: Any = rule.run or node.target
        if rule.reshapes or rule.shape_only:
            shape = builder.batch.shape(node.meta["val"])
            run = torch.reshape if rule.reshapes else torch.Tensor.expand
            args, kwargs, names = (args[0], shape), {}, (names[0], "size")
        roles = (
            tuple(role_of(rule, name) for name in names[: len(args)]),
            {key: role_of(rule, key) for key in kwargs},
        )
        builder.add_results(node)
        builder.body.append(Step(node.name, run, args, kwargs, names, rule, roles))
        if isinstance(builder.values[node], tuple):
            used = {user.args[1] for user in node.users if user.users}
            for i, ref in enumerate(builder.values[node]):
                if i in used:
                    builder.body.append(building.part_of(ref, node, i, building.EXACT))

    def _reason(self, call: NodeCall) -> str | None:
        """Why this call cannot be part of a piecewise-linear network, or None."""
        node, rule, named = call.node, call.rule, call.named
        if rule is None:
            if not isinstance(node.target, torch._ops.OpOverload):
                return "control flow that depends on the input is not supported"
            return rejected.RANDOM if _is_random(node.target) else rejected.UNKNOWN
        if isinstance(rule, ops.SmoothRule) or (isinstance(rule, ops.TerminalRule) and rule.curve):
            return None if self.smooth else f"{rule.reason}: {option(ops.OPTION)}"
        if isinstance(rule, (ops.RejectedRule, ops.TerminalRule)):
            places = rule.reason == rejected.PLACES
            constant = places and not self.builder.is_active(named["indices"])
            return rejected.CONSTANT_PLACES if constant else rule.reason
        if isinstance(rule, ops.AffineRule):
            return self._against_affine(call, rule)
        if isinstance(rule, ops.CompositeRule):
            return self._depends({name: named[name] for name in rule.constants})
        if isinstance(rule, (ops.MaximumRule, ops.SortRule)):
            return groups.uses_places(node, self.needed)
        if isinstance(rule, ops.ScatterRule):
            return self._depends(named, ("self", rule.source))
        if isinstance(rule, ops.PiecewiseRule):
            return self._depends(named, (*rule.source, *(name for name, _ in rule.pairs)))
        return None

    def _depends(
        self, named: dict[str, Any], allowed: tuple[str, ...] = (), divisors: tuple[str, ...] = ()
    ) -> str | None:
        """The reason against arguments that must not depend on the input, and do."""
        for name, item in named.items():
            if self.builder.is_active(item) and name not in allowed:
                if name in divisors:
                    return "it divides by an activation"
                return f"its {name} depends on the input"
        return None

    def _against_affine(self, call: NodeCall, rule: ops.AffineRule) -> str | None:
        node, named, rows = call.node, call.named, self.builder.rows
        allowed = (*rule.data, *rule.product, *rule.shape_only)
        reason = self._depends(named, allowed, rule.factor)
        if reason is not None:
            return reason
        found = [ref for name in rule.product for ref in refs(named.get(name))]
        if sum(ref.name in rows for ref in found) > 1:
            return rejected.PRODUCT
        if rule.identity and not node.meta["val"].is_floating_point():
            return "a conversion to whole numbers is discontinuous"
        reason = rule.check(named) if rule.check else None
        return reason or self._mixes_points(call)

    def _mixes_points(self, call: NodeCall) -> str | None:
        """The reason against an affine node that mixes the points of the batch, by its shapes."""
        node, builder = call.node, self.builder
        first = next(n for n in node.all_input_nodes if builder.is_active(builder.values[n]))
        value = first.meta["val"]
        value = value[0] if isinstance(value, (list, tuple)) else value
        rows = builder.batch.rows(value)
        for name in call.rule.dims:
            dims = call.named.get(name)
            dims = [dims] if isinstance(dims, int) else dims or []
            if rows is not None and rows.dim in [dim % value.dim() for dim in dims]:
                return rejected.MIXES
        results = node.meta["val"]
        for result in results if isinstance(results, (list, tuple)) else [results]:
            empty = result is None or any(type(n) is int and n == 0 for n in result.shape)
            if not empty and builder.batch.rows(result) is None:
                return rejected.MIXES
        return None


def _is_random(target: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())


_ADD: dict[type, Callable[[GraphBuilder, NodeCall], str | None]] = {
    CustomOp: add_custom,
    ops.SmoothRule: scalars.add_smooth,
    ops.TerminalRule: scalars.add_smooth,
    ops.ScatterRule: groups.add_scattered,
    ops.MaximumRule: groups.add_maxima,
    ops.SortRule: groups.add_sort,
}
"""How nodes are added, by their rules; the result is the reason against it, or None."""
