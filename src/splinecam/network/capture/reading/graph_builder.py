"""A program in the making: values, constants, steps and layers, and what is wrong with a graph."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves

from splinecam.errors import CaptureError, OffendingOp, SplineCamError, UnsupportedOpError
from splinecam.network.capture.reading.probe import NotFiniteError
from splinecam.network.capture.reading.stages import refs
from splinecam.network.capture.tracing.diagnosis import first_line, quantised, user_line
from splinecam.network.capture.tracing.flat_graph import Batch, FlatGraph, arguments_of
from splinecam.network.capture.tracing.opaque_modules import opaque_module_of
from splinecam.network.nonlinearities import Nonlinearity
from splinecam.network.ops.affine import STATISTICS, TRAINING
from splinecam.network.ops.bounds import Roles
from splinecam.network.ops.nonlinear import JUMP, MASK, SPELLINGS
from splinecam.network.ops.registry import AffineRule, rule_of, target_name
from splinecam.network.program import Step
from splinecam.network.values import Operation, Ref, Rows, Size

_LISTED = 5  # tensors that an error names


@contextmanager
def explaining(model: nn.Module, graph: FlatGraph, used: set[fx.Node]) -> Iterator[None]:
    """Say what in the model an error comes from; used: the nodes that the output depends on."""
    try:
        yield
    except Exception as error:
        cause = None if isinstance(error, SplineCamError) else error
        raise _explained(error, model, graph, used) from cause


def _explained(
    error: Exception, model: nn.Module, graph: FlatGraph, used: set[fx.Node]
) -> SplineCamError:
    constants = [(name, tensor) for node, (name, tensor) in graph.constants.items() if node in used]
    wrong = {
        name: value.detach()
        for name, value in constants
        if is_floating(value) and not bool(value.isfinite().all())
    }
    undefined = any(bool(tensor.isnan().any()) for tensor in wrong.values())
    if undefined or (wrong and isinstance(error, NotFiniteError)):
        return CaptureError(_weights(wrong))
    if isinstance(error, UnsupportedOpError):
        return UnsupportedOpError([_in_mode(op, model) for op in error.ops])
    if isinstance(error, SplineCamError):
        return error
    return CaptureError(
        quantised(model) or f"the model's graph cannot be run in float64: {first_line(error)}"
    )


def _weights(wrong: dict[str, Tensor]) -> str:
    """Which tensors are not finite, how many of their entries, and the first of these."""
    lines = [f"  - {_entries(name, tensor)}" for name, tensor in list(wrong.items())[:_LISTED]]
    if len(wrong) > _LISTED:
        lines.append(f"  - and {len(wrong) - _LISTED} more tensors")
    advice = "Did its training diverge? Train or load finite weights"
    return "\n".join(["the model has weights that are not finite numbers:", *lines, advice])


def _entries(name: str, tensor: Tensor) -> str:
    bad = (~tensor.isfinite()).nonzero()
    value = float(tensor[tuple(bad[0])])
    if tensor.dim() == 0:
        return f"{name} is {value}"
    which = f"{value} at [{', '.join(map(str, bad[0].tolist()))}]"
    if len(bad) == 1:
        return f"1 of {tensor.numel():,} entries of {name}: {which}"
    return f"{len(bad):,} of {tensor.numel():,} entries of {name}, the first is {which}"


def _in_mode(op: OffendingOp, model: nn.Module) -> OffendingOp:
    """An operation with what to do about it, if it acts as in training."""
    layer = _submodule(model, op.name)
    tracked = isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.track_running_stats
    if op.reason not in (TRAINING, STATISTICS) and not tracked:
        return op
    random = op.reason == TRAINING
    acts = "is random" if random else "uses the statistics of the batch"
    if layer is None:
        owner = _submodule(model, op.name.rpartition(".")[0]) or model
        eager = "in training mode: call model.eval() first, and"
        when = eager if owner.training else "although the model is in eval mode:"
        given = "" if random else " and running statistics"
        reason = f"it {acts} {when} let forward pass training=self.training{given} to it"
    elif layer.training:
        kind = type(layer).__name__
        reason = f"{kind} is in training mode, where it {acts}: call model.eval() first"
    elif not random and not tracked:
        reason = (
            "it has no running statistics (track_running_stats=False) and uses those of the batch, "
            "also in eval mode: train it with running statistics"
        )
    else:
        return op
    return replace(op, reason=reason, settled=True)


def _submodule(model: nn.Module, name: str) -> nn.Module | None:
    try:
        return model.get_submodule(name) if name else None
    except AttributeError:
        return None


class UnevenRows(Exception):
    """A constant differs from one point of the batch to the next."""


class BatchConstants:
    """The constants of a graph that depend on the size of the batch, like ``zeros_like(x)``."""

    def __init__(self, batch: Batch, device: torch.device) -> None:
        self.batch = batch
        self.device = device
        self.steps: dict[str, Step] = {}
        self._examples: dict[str, Any] = {}

    def add(self, node: fx.Node, run: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record how to make a constant; the result stands for it in the arguments of steps."""
        self.steps[node.name] = Step(node.name, run, args, kwargs, (), None, ((), {}))
        self._examples[node.name] = node.meta["val"]
        found = result_refs(node)
        for i, ref in enumerate(found if isinstance(found, tuple) else ()):
            self.steps[ref.name] = part_of(ref, node, i, None)
            self._examples[ref.name] = node.meta["val"][i]
        return found

    def add_like(self, node: fx.Node, constant: Any) -> Any:
        """Record a constant in an activation's shape or type, like ``mask.expand_as(x)``."""
        value, rule = node.meta["val"], rule_of(node.target)
        if not isinstance(rule, AffineRule) or rule.identity:
            return self.add(node, torch.Tensor.to, (constant, value.dtype), {})
        run = torch.reshape if rule.reshapes else torch.Tensor.expand
        return self.add(node, run, (constant, self.batch.shape(value)), {})

    def value(self, name: str, batch: int) -> Any:
        """The constant for so many points."""
        step = self.steps[name]
        names = {ref.name for ref in refs((step.args, step.kwargs))}
        return step.call({name: self.value(name, batch) for name in names}, batch, self.device)

    def one_row(self, item: Any) -> Any:
        """The constant for one point; ``UnevenRows`` if the points of a batch differ."""
        if not (isinstance(item, Ref) and item.name in self.steps):
            return item
        rows = self.batch.rows(self._examples[item.name])
        if rows is None:
            raise UnevenRows
        first, second = rows.out(self.value(item.name, 2))
        if not torch.equal(first, second):
            raise UnevenRows
        return rows.back(first[None])


def result_refs(node: fx.Node) -> Any:
    """What stands for a node in arguments: a Ref, or a tuple of them for several results."""
    value = node.meta["val"]
    if isinstance(value, Tensor):
        return Ref(node.name)
    return tuple(Ref(f"{node.name}.{i}") for i in range(len(value)))


def part_of(ref: Ref, node: fx.Node, i: int, rule: AffineRule | None) -> Step:
    """The step that takes one of the results of a node that has several."""
    roles: Roles = (("plain", "plain"), {})
    return Step(ref.name, operator.getitem, (Ref(node.name), i), {}, (), rule, roles)


def has_size(item: Any) -> bool:
    """Whether nested arguments hold a number that depends on the size of the batch."""
    return any(isinstance(part, Size) for part in tree_leaves(item))


def fill_of(node: fx.Node) -> Any:
    """The value of all entries of a constant, such as ``zeros_like(x)``."""
    arguments, ones = arguments_of(node), "ones" in target_name(node.target)
    return arguments.get("fill_value", arguments.get("value", 1 if ones else 0))


def filled(shape: list[int], value: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor of one value."""
    return torch.as_tensor(value, dtype=dtype, device=device).expand(shape).clone()


def constant_call(target: Any, *args: Any, **kwargs: Any) -> Any:
    """A call without activations, its result in float64; what is left empty is zero."""
    value = target(*args, **kwargs)
    empty = target_name(target) in ("aten.empty", "aten.new_empty", "aten.empty_strided")
    return in_float64(torch.zeros_like(value) if empty else value)


def in_float64(value: Any) -> Any:
    """Nested results with floating-point tensors in float64."""
    if isinstance(value, Tensor):
        return value.to(torch.float64) if value.is_floating_point() else value
    if isinstance(value, (list, tuple)):
        return tuple(in_float64(item) for item in value)
    return value


EXACT = AffineRule(exact=True)
_OWN = (  # modules of one operation
    "torch.nn.modules.",
    "splinecam.network.layer_graph.Call",
    "splinecam.network.frozen_graph.LayerScope",
)


@dataclass(frozen=True)
class NodeCall:
    """The call of a node, its arguments as a step has them; ``named``: all of them by name."""

    node: fx.Node
    rule: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    named: dict[str, Any]


@dataclass(frozen=True)
class Mask:
    """True where ``first`` exceeds ``second``; signed: 1 there and -1 elsewhere, as ``sign(x)``."""

    first: Any
    second: Any
    signed: bool = False


class GraphBuilder:
    """A program in the making."""

    def __init__(self, x: fx.Node, batch: Batch, device: torch.device) -> None:
        self.device = device
        self.batch = batch
        self.smooth = False  # whether smooth functions become layers, which are replaced later
        self.constants = BatchConstants(batch, device)
        self.values: dict[fx.Node, Any] = {x: Ref(x.name)}  # a Ref, a Size, or a constant
        self.rows: dict[str, Rows] = {}  # the layout of values that depend on the input
        self.body: list[Step | Nonlinearity] = []
        self.offending: list[OffendingOp] = []
        self.masks: dict[str, Mask] = {}
        self.choices: dict[str, tuple[Any, Any]] = {}  # the two values of each choice
        self.invalid: set[str] = set()  # values that are no real numbers, of rejected operations
        self._examples: dict[str, Any] = {}
        self._origin: dict[str, fx.Node] = {}
        self._names: dict[str, int] = {}
        self.add_value(x.name, x, x.meta["val"])

    def add_value(self, name: str, node: fx.Node, example: Any) -> None:
        """Add a value that a node makes, or that is made on the way to it, in a shape."""
        rows = self.batch.rows(example) if isinstance(example, Tensor) else None
        self.rows[name] = rows or Rows()
        self._examples[name] = example
        self._origin[name] = node

    def add_results(self, node: fx.Node) -> None:
        """Add the results of a node."""
        self.values[node] = result_refs(node)
        self._origin[node.name] = node
        value = node.meta["val"]
        values = [value] if isinstance(value, Tensor) else value
        for ref, part in zip(refs(self.values[node]), values, strict=True):
            self.add_value(ref.name, node, part)
            if not is_floating(part):
                self.invalid.add(ref.name)

    def add_mask(self, node: fx.Node, mask: Mask) -> None:
        """Add a node whose result is a mask, which is allowed until it is used."""
        self.add_results(node)
        self.invalid.discard(node.name)
        self.masks[node.name] = mask

    def add_constant(self, node: fx.Node, value: Any) -> None:
        """Add a constant that depends on the size of the batch."""
        self._origin[node.name] = node
        self.values[node] = value

    def is_active(self, item: Any) -> bool:
        """Whether nested arguments depend on the input."""
        return any(ref.name in self.rows for ref in refs(item))

    def mask_of(self, item: Any) -> Mask | None:
        """The mask that an argument stands for."""
        return self.masks.get(item.name) if isinstance(item, Ref) else None

    def shape_of(self, ref: Ref, batch: int) -> list[int]:
        """The shape of a value for so many points."""
        return self.batch.shape_at(self._examples[ref.name], batch)

    def unit_shape(self, ref: Ref, batch: int = 1) -> torch.Size:
        """The shape of a value for so many points, with the batch in front."""
        one = torch.empty(self.shape_of(ref, batch), device="meta")
        return self.rows[ref.name].out(one).shape

    def add_step(
        self,
        name: str,
        run: Any,
        args: tuple[Any, ...],
        *,
        plain: int = 0,
        rule: AffineRule = EXACT,
    ) -> Ref:
        """Add an affine step; the last ``plain`` arguments are neither added nor multiplied."""
        roles = ("add",) * (len(args) - plain) + ("plain",) * plain
        self.body.append(Step(name, run, args, {}, (), rule, (roles, {})))
        return Ref(name)

    def add_negated(self, name: str, node: fx.Node, value: Ref) -> Ref:
        """Add a value with the other sign."""
        self.add_value(name, node, self._examples[value.name])
        rule = AffineRule(exact=True, absolute=torch.Tensor.clone)
        return self.add_step(name, torch.neg, (value,), rule=rule)

    def add_layer(
        self, kind: type[Nonlinearity], node: fx.Node, call: Operation, source: str, **given: Any
    ) -> None:
        """Add a non-linearity of a node; given: fields that node and source do not determine."""
        fields: dict[str, Any] = {"argument": source, "target": target_name(node.target)} | given
        if "shape" not in given:
            fields["shape"] = tuple(self.unit_shape(Ref(source))[1:])
        if "result" not in given:
            fields["result"] = next(refs(self.values[node])).name
        name, module = name_of(node)
        count = self._names[name] = self._names.get(name, 0) + 1
        if count > 1:
            name = f"{name}#{count}" if module else f"{name}_{count - 1}"
        self.body.append(kind(name=name, operation=call, source=source, **fields))

    def expand(self, node: fx.Node, ref: Ref) -> Ref:
        """A value in the shape of a node's result, which a constant may have widened."""
        if self.shape_of(ref, 3) == self.batch.shape_at(node.meta["val"], 3):
            return ref
        name = f"{ref.name}.wide.{node.name}"
        self.add_value(name, node, node.meta["val"])
        shape = self.batch.shape(node.meta["val"])
        return self.add_step(name, torch.Tensor.expand, (ref, shape), plain=1)

    def finished(self) -> list[Step | Nonlinearity]:
        """The steps and layers in order; each layer knows what it comes after."""
        return [
            replace(item, after=name_of(self._origin[item.source])[0])
            if isinstance(item, Nonlinearity)
            else item
            for item in self.body
        ]

    def describe(self, name: str, reason: str) -> OffendingOp:
        """What an error says of the node that made a value."""
        node = self._origin[name.removesuffix(".rows")]
        node = node.meta.get("stands_for", node)
        opaque, target = opaque_module_of(node), target_name(node.target)
        target = SPELLINGS.get(target, target) if opaque is None else opaque.kind
        target = node.meta.get("kind", target)
        frames = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
        return OffendingOp(name_of(node)[0], target, user_line(frames), reason)

    def reject(self, node: fx.Node, reason: str | None) -> None:
        """Record an offending node and go on as if it were allowed, to find the others too."""
        self.add_results(node)
        if reason is not None:
            self.offending.append(self.describe(node.name, reason))

    def reject_mask(self, name: str) -> None:
        """Record that a mask is used for more than a choice; once is enough."""
        reason = JUMP if self.masks.pop(name).signed else MASK
        self.invalid.add(name)
        self.offending.append(self.describe(name, reason))


def is_floating(value: Any) -> bool:
    """Whether a value of a graph is a tensor of real numbers."""
    return isinstance(value, Tensor) and value.is_floating_point()


def name_of(node: fx.Node) -> tuple[str, bool]:
    """A node's readable name, and whether it is the name of one of torch's own modules."""
    node = node.meta.get("stands_for", node)
    path, own = module_of(node)
    opaque = opaque_module_of(node)
    if opaque is not None:
        return path or opaque.kind, True
    op = target_name(node.target).rpartition(".")[2].strip("_")
    op = op.removesuffix("_with_indices")  # functionalisation calls every pool so
    return (path, True) if own else (f"{path}.{op}" if path else op, False)


def module_of(node: fx.Node) -> tuple[str, bool]:
    """The path of the module that makes a call, and whether it is one of torch's own layers."""
    path, kind = "", ""
    for key, (where, what) in (node.meta.get("nn_module_stack") or {}).items():
        if not str(key).startswith("_empty"):
            path, kind = where, what
            if not isinstance(kind, str):
                kind = f"{kind.__module__}.{kind.__qualname__}"
    path = re.sub(r"@\d+", "", path) if "@" in path else path
    return path, path != "" and kind.startswith(_OWN) and ".container." not in kind
