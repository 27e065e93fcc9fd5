"""From the graph of a model to a program of affine stages and piecewise-linear cuts."""

from __future__ import annotations

import operator
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx

from splinecam.errors import CaptureError, UnsupportedOpError
from splinecam.network.capture.composites import Emitter
from splinecam.network.capture.constants import (
    constant_call,
    copied,
    filled,
    has_size,
    is_like_another,
    part_of,
)
from splinecam.network.capture.custom_ops import add_taught, taught_of
from splinecam.network.capture.final import Final, tail_of
from splinecam.network.capture.flat import FlatGraph
from splinecam.network.capture.graph import (
    argument_names,
    arguments_of,
    defaults,
    needed_by,
)
from splinecam.network.capture.graph_builder import (
    GraphBuilder,
    count_masked,
    is_floating,
    mixes_points,
)
from splinecam.network.capture.masks import add_comparison, add_masked
from splinecam.network.capture.nonlinear import (
    EXACT,
    add_knots,
    add_maxima,
    add_pairs,
    add_sort,
    uses_places,
)
from splinecam.network.capture.probe import probe
from splinecam.network.capture.scattered import add_scattered
from splinecam.network.capture.staging import make_stages, refs
from splinecam.network.ops import (
    CREATORS,
    Affine,
    Comparison,
    Composite,
    Maximum,
    Piecewise,
    Rejected,
    Scatter,
    Sort,
    Terminal,
    role_of,
    rule_of,
    target_name,
)
from splinecam.network.ops.register import CustomOp
from splinecam.network.ops.rejected import CONSTANT_PLACES, MASK, PLACES, PRODUCT, RANDOM, UNKNOWN
from splinecam.network.program import Program, Step
from splinecam.network.values import DEVICE, Ref, resolve

__all__ = ["Reader"]


class Reader:
    """Reads the graph once, in order: folds constants, sorts nodes into steps and cuts."""

    def __init__(self, graph: FlatGraph, device: torch.device) -> None:
        self.graph = graph
        self.device = device
        self.output = graph.output
        self.needed = needed_by(graph.output)
        self.draft = GraphBuilder(graph.x, graph.batch, device)
        self.tail = tail_of(graph, self.needed)
        self.emitted: list[fx.Node] = []

    def read(self, input_shape: tuple[int, ...]) -> Program:
        """The program of the graph, which is run on random points to see that it is right."""
        try:
            program = self._read(input_shape)
            probe(program, self.draft.rows, self.draft.describe)
            return program
        finally:
            for node in reversed(self.emitted):  # the graph may be read again
                node.graph.erase_node(node)

    def _read(self, input_shape: tuple[int, ...]) -> Program:
        draft, output = self.draft, self.output
        for node, (_, value) in self.graph.constants.items():
            draft.values[node] = copied(value, self.device) if isinstance(value, Tensor) else value
        for node in self.graph.nodes:
            if node.op == "get_attr":
                draft.values[node] = None  # the graph of a branch: its caller is rejected
            if node.op == "call_function" and node in self.needed:
                self._node(node)
        result, final = self._result()
        return Program(
            input_shape=input_shape,
            output_shape=tuple(draft.batch.shape_at(output.meta["val"], 1)[1:]),
            input_name=self.graph.x.name,
            output_name=result.name,
            stages=make_stages(draft.finished(), draft.sized.steps, draft.rows, result.name),
            stripped=None if self.tail is None else self.tail.label,
            final=final,
            device=self.device,
        )

    def _result(self) -> tuple[Ref, Final | None]:
        """What is left of the output, if nothing speaks against it, and what was left out."""
        result = self.draft.values[self.output]
        if isinstance(result, Ref) and result.name in self.draft.masks:
            self.draft.reject_mask(result.name)
        if self.draft.offending:
            raise UnsupportedOpError(self.draft.offending)
        if not (isinstance(result, Ref) and result.name in self.draft.rows):
            raise CaptureError(
                "the model's output does not depend on its input: there is nothing to partition"
            )
        if not self.draft.rows[result.name].plain:
            raise CaptureError(
                "the first dimension of the model's output is not the batch: return a tensor "
                "(batch, ...) with one row for each point"
            )
        return (result, None) if self.tail is None else self.tail.finish(self.draft, self.output)

    # --- one node

    def _node(self, node: fx.Node) -> None:
        value = node.meta.get("val")
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            self.draft.values[node] = self._number(node, value)
            return
        if isinstance(value, (int, float, bool)):
            self.draft.values[node] = value
            return
        args = tuple(self._template(item) for item in node.args)
        kwargs = {key: self._template(item) for key, item in node.kwargs.items()}
        if self.tail is not None and node in self.tail.nodes:
            if self.tail.read(self.draft, node, args, kwargs):
                return
        elif node.target is operator.getitem and isinstance(args[0], tuple):
            self.draft.values[node] = args[0][args[1]]
            return
        if any(ref.name in self.draft.rows for ref in refs((args, kwargs))):
            if target_name(node.target) in CREATORS:
                self._created(node)
            elif is_like_another(node) and not self.draft.is_active(args[0]):
                self.draft.note_constant(node.name, node)
                self.draft.values[node] = self.draft.sized.add_like(node, args[0])
            else:
                self._active(node, args, kwargs)
        else:
            self._folded(node, args, kwargs)

    def _number(self, node: fx.Node, value: Any) -> Any:
        """A number that depends on the batch or, like ``weight.max().item()``, on constants."""
        source: Any = node.args[0] if node.args else None
        tensor = self.draft.values.get(source)
        if self.draft.batch.unknown(value) and isinstance(tensor, Tensor) and tensor.numel() == 1:
            self.draft.batch.know(value.node.expr, tensor.item())
        return self.draft.batch.size(value)

    def _template(self, item: Any) -> Any:
        if isinstance(item, fx.Node):
            if item not in self.draft.values:
                raise CaptureError(
                    f"the graph holds a value that cannot be read: {item.name}. Please report this"
                )
            return self.draft.values[item]
        if isinstance(item, torch.SymInt):
            return self.draft.batch.size(item)
        if isinstance(item, torch.device):
            return DEVICE
        if isinstance(item, torch.dtype):
            return torch.float64 if item.is_floating_point else item
        if isinstance(item, (list, tuple)):
            parts = [self._template(part) for part in item]
            return parts if isinstance(item, list) else tuple(parts)
        return item

    # --- constants

    def _folded(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A node that does not depend on the input: computed now, or once the batch is known."""
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            arguments = arguments_of(node)
            if not (arguments.get("train") is False or arguments.get("training") is False):
                self.draft.reject(node, RANDOM)
                return
        run = partial(constant_call, node.target)
        if any(True for _ in refs((args, kwargs))) or has_size((args, kwargs)):
            self.draft.note_constant(node.name, node)
            self.draft.values[node] = self.draft.sized.add(node, run, args, kwargs)
            return
        args = resolve(args, {}, 1, self.device)
        kwargs = {key: resolve(item, {}, 1, self.device) for key, item in kwargs.items()}
        self.draft.values[node] = run(*args, **kwargs)

    def _created(self, node: fx.Node) -> None:
        """``zeros_like(x)`` and its kind: a constant in the shape of an activation."""
        arguments, value = arguments_of(node), node.meta["val"]
        name = target_name(node.target)
        fill = arguments.get("fill_value", arguments.get("value", 1 if "ones" in name else 0))
        dtype = torch.float64 if value.is_floating_point() else value.dtype
        args = (self.draft.batch.shape(value), self._template(fill), dtype, DEVICE)
        self.draft.note_constant(node.name, node)
        self.draft.values[node] = self.draft.sized.add(node, filled, args, {})

    # --- activations

    def _active(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        rule, names = taught_of(node) or rule_of(node.target), argument_names(node)
        call = defaults(node) | dict(zip(names, args, strict=False)) | kwargs
        if "indices" in call:
            count_masked(self.draft, node, call["indices"])
        unread = rule.shape_only if isinstance(rule, Affine) else ()
        read = [ref.name for key, item in call.items() if key not in unread for ref in refs(item)]
        masks = [name for name in dict.fromkeys(read) if name in self.draft.masks]
        invalid = any(name in self.draft.invalid for name in read)
        if isinstance(rule, Comparison):
            reason = MASK if invalid else add_comparison(self.draft, node, rule, call)
        elif masks and not invalid:
            reason = add_masked(self.draft, node, rule, call, masks)
        else:
            reason = self._reason(node, rule, call)
            if reason is None and isinstance(rule, Affine):
                self._affine(node, rule, args, kwargs, names)
            elif reason is None:
                reason = self._cut(node, rule, args, kwargs, call)
        if reason is not None:
            self.draft.reject(node, None if invalid else reason)

    def _cut(
        self,
        node: fx.Node,
        rule: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        call: dict[str, Any],
    ) -> str | None:
        """A node that is not affine; the answer is the reason against it, or None."""
        if isinstance(rule, CustomOp):
            return add_taught(self.draft, node, rule, args, kwargs)
        if isinstance(rule, Composite):
            return self._written_out(node, rule)
        if isinstance(rule, Scatter):
            return add_scattered(self.draft, node, rule, call)
        if isinstance(rule, Maximum):
            return add_maxima(self.draft, node, rule, args, kwargs, call)
        if isinstance(rule, Sort):
            return add_sort(self.draft, node, rule, args, kwargs, call)
        active = [name for name, item in call.items() if self.draft.is_active(item)]
        if len(active) > 1 or active[0] not in rule.source:
            return add_pairs(self.draft, node, rule, call)
        return add_knots(self.draft, node, rule, args, kwargs, call)

    def _written_out(self, node: fx.Node, rule: Composite) -> str | None:
        """A node that stands for several others; the answer is the reason against it, or None."""
        emit = Emitter(node)
        result = rule.write(emit, arguments_of(node))
        if isinstance(result, str):
            return result
        self.needed.update(emit.nodes)
        self.emitted += emit.nodes
        before = len(self.draft.offending)
        for new in emit.nodes:
            self._node(new)
        del self.draft.offending[before + 1 :]  # they are one operation of the model
        self.draft.values[node] = self._template(result)
        if isinstance(result, fx.Node):
            self.draft.batch.learn(node.meta["val"], result.meta["val"])
        return None

    def _reason(self, node: fx.Node, rule: Any, call: dict[str, Any]) -> str | None:
        """Why this call cannot be part of a piecewise-linear network, or None."""
        if rule is None:
            if not isinstance(node.target, torch._ops.OpOverload):
                return "control flow that depends on the input is not supported"
            random = torch.Tag.nondeterministic_seeded in node.target.tags
            return RANDOM if random else UNKNOWN
        if isinstance(rule, (Rejected, Terminal)):
            constant = rule.reason == PLACES and not self.draft.is_active(call["indices"])
            return CONSTANT_PLACES if constant else rule.reason
        if isinstance(rule, CustomOp):
            return None
        if isinstance(rule, Composite):
            return self._depends({name: call[name] for name in rule.constants}, (), ())
        if isinstance(rule, (Maximum, Sort)):
            return uses_places(node, self.needed)
        if isinstance(rule, Scatter):
            return self._depends(call, ("self", rule.source), ())
        if isinstance(rule, Piecewise):
            known = (*rule.source, *(name for name, _ in rule.pairs))
            return self._depends(call, known, ())
        return self._against_affine(node, rule, call)

    def _depends(
        self, call: dict[str, Any], known: tuple[str, ...], factor: tuple[str, ...]
    ) -> str | None:
        """The reason against arguments that must not depend on the input, and do."""
        for name, item in call.items():
            if self.draft.is_active(item) and name not in known:
                if name in factor:
                    return "it divides by an activation"
                return f"its {name} depends on the input"
        return None

    def _against_affine(self, node: fx.Node, rule: Affine, call: dict[str, Any]) -> str | None:
        known = (*rule.data, *rule.product, *rule.shape_only)
        reason = self._depends(call, known, rule.factor)
        if reason is not None:
            return reason
        factors = [
            r for name in rule.product for r in refs(call.get(name)) if r.name in self.draft.rows
        ]
        if len(factors) > 1:
            return PRODUCT
        if rule.identity and not is_floating(node.meta["val"]):
            return "a conversion to whole numbers is discontinuous"
        reason = rule.check(call) if rule.check else None
        return reason or mixes_points(self.draft, node, rule, call)

    def _affine(
        self,
        node: fx.Node,
        rule: Affine,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        names: tuple[str, ...],
    ) -> None:
        if rule.identity:
            self.draft.values[node] = args[0]
            return
        run: Any = rule.run or node.target
        if rule.reshapes or rule.shape_only:
            shape = self.draft.batch.shape(node.meta["val"])
            run = torch.reshape if rule.reshapes else torch.Tensor.expand
            args, kwargs, names = (args[0], shape), {}, (names[0], "size")
        roles = (
            tuple(role_of(rule, name) for name in names[: len(args)]),
            {key: role_of(rule, key) for key in kwargs},
        )
        self.draft.note(node)
        self.draft.body.append(Step(node.name, run, args, kwargs, names, rule, roles))
        if isinstance(self.draft.values[node], tuple):
            used = {user.args[1] for user in node.users if user.users}
            for i, ref in enumerate(self.draft.values[node]):
                if i in used:
                    self.draft.body.append(part_of(ref, node, i, EXACT))
