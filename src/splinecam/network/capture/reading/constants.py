"""Values that do not depend on the input: computed once, or once per size of the batch."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from splinecam.network.capture.reading.stages import refs
from splinecam.network.capture.tracing.flat_graph import Batch
from splinecam.network.ops import Affine, rule_of, target_name
from splinecam.network.program import Step
from splinecam.network.values import Ref, Size

__all__ = [
    "BatchConstants",
    "UnevenRows",
    "constant_call",
    "filled",
    "has_size",
    "part_of",
    "result_refs",
]


class UnevenRows(Exception):
    """A constant differs from one point of the batch to the next."""


class BatchConstants:
    """The constants of a graph that depend on the size of the batch, like ``zeros_like(x)``."""

    def __init__(self, batch: Batch, device: torch.device) -> None:
        self.batch = batch
        self.device = device
        self.steps: dict[str, Step] = {}
        self._examples: dict[str, Any] = {}

    def add(
        self, node: fx.Node, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
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
        if not isinstance(rule, Affine) or rule.identity:
            dtype = torch.float64 if value.is_floating_point() else value.dtype
            return self.add(node, torch.Tensor.to, (constant, dtype), {})
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


def part_of(ref: Ref, node: fx.Node, i: int, rule: Affine | None) -> Step:
    """The step that takes one of the results of a node that has several."""
    roles: tuple[tuple[str, ...], dict[str, str]] = (("plain", "plain"), {})
    return Step(ref.name, operator.getitem, (Ref(node.name), i), {}, (), rule, roles)


def has_size(item: Any) -> bool:
    """Whether nested arguments hold a number that depends on the size of the batch."""
    if isinstance(item, dict):
        item = list(item.values())
    if isinstance(item, (list, tuple)):
        return any(has_size(part) for part in item)
    return isinstance(item, Size)


def filled(
    shape: list[int], value: float | Tensor, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """A tensor of one value."""
    return torch.as_tensor(value, dtype=dtype, device=device).expand(shape).clone()


def constant_call(target: Any, *args: Any, **kwargs: Any) -> Any:
    """A call without activations, its result in float64; what is left empty is zero."""
    value = target(*args, **kwargs)
    empty = target_name(target) in ("aten.empty", "aten.new_empty", "aten.empty_strided")
    return _in_float64(torch.zeros_like(value) if empty else value)


def _in_float64(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.to(torch.float64) if value.is_floating_point() else value
    if isinstance(value, (list, tuple)):
        return tuple(_in_float64(item) for item in value)
    return value
