"""Captures of a model, cached for as long as the model lives, and filled with its present weights.

A model that is captured again has the same graph, unless its fingerprint has changed; only its
weights differ. Nothing in the cache holds the model, or is copied or pickled with it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, fx, nn
from torch.utils.weak import WeakIdKeyDictionary

from splinecam.network.capture.isolation import widened
from splinecam.network.capture.reading.graph_builder import GraphBuilder
from splinecam.network.capture.tracing.flat_graph import FlatGraph
from splinecam.network.ops import Affine, Maximum, Piecewise, Smooth, Sort, Terminal, rule_of
from splinecam.network.program import Program, Stage, Step

__all__ = ["CachedCapture", "Template", "clear", "lookup", "store", "template_of"]

_MOST_CAPTURES = 4  # of one model: input shapes, devices and outputs
_MOST_BYTES = 1 << 26  # that a template may hold, most of them in the tables of maxima
_RULES = (Affine, Piecewise, Maximum, Sort, Smooth, Terminal)


@dataclass(frozen=True)
class CachedCapture:
    """A capture of a model.

    fingerprint: of what the graph depends on. content: the program without its weights or, where
    more depends on them, the graph to be read again. opaque: the numbers of registered modules.
    smooth: whether smooth functions are layers.
    """

    fingerprint: list[Any]
    content: Template | FlatGraph
    opaque: tuple[int, ...] = ()
    smooth: bool = False


_MODELS: Any = WeakIdKeyDictionary()  # model -> key -> CachedCapture, under the lock EXCLUSIVE


def lookup(model: nn.Module, key: Any) -> CachedCapture | None:
    """The capture that was stored under a key, if any."""
    found: CachedCapture | None = _MODELS.get(model, {}).get(key)
    return found


def store(model: nn.Module, key: Any, capture: CachedCapture) -> None:
    """Store a capture under a key; of several the latest ones remain."""
    captures = _MODELS.setdefault(model, {})
    captures.pop(key, None)
    captures[key] = capture
    while len(captures) > _MOST_CAPTURES:
        del captures[next(iter(captures))]


def clear(model: nn.Module) -> None:
    """Remove all captures of a model."""
    _MODELS.pop(model, None)


# -- templates -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Slot:
    """The place of a weight in the arguments of a step."""

    name: str


@dataclass(frozen=True)
class Template:
    """A program with a slot in place of each weight; names: of the weights in the model."""

    program: Program
    names: tuple[str, ...]

    def filled(self, tensors: Mapping[str, Tensor]) -> Program:
        """The program with these weights, by their names."""
        weights = {name: widened(tensors[name], self.program.device) for name in self.names}
        return _with_arguments(
            self.program, lambda item: weights[item.name] if type(item) is _Slot else item
        )


def template_of(
    graph: FlatGraph, needed: set[fx.Node], builder: GraphBuilder, program: Program
) -> Template | None:
    """A program as a template; None if more than arguments of its steps depends on weights."""
    depends = builder.masks or builder.choices or builder.constants.steps or builder.batch.known
    tensors = [value for layer in program.layers for value in vars(layer).values()]
    size = sum(value.nbytes for value in tensors if isinstance(value, Tensor))
    if depends or size > _MOST_BYTES:
        return None
    steps = {step.name: step for stage in program.stages for step in stage.steps}
    slots: dict[int, _Slot] = {}
    for node in needed:
        if node in graph.constants:
            slots[id(builder.values[node])] = _Slot(graph.constants[node][0])
        elif node.op == "call_function":
            known = isinstance(rule_of(node.target), _RULES) or node.target is operator.getitem
            weights = [source for source in node.all_input_nodes if source in graph.constants]
            if not known or not all(_takes(steps, node, builder.values[w]) for w in weights):
                return None
    names = tuple(dict.fromkeys(slot.name for slot in slots.values()))
    return Template(_with_arguments(program, lambda item: slots.get(id(item), item)), names)


def _takes(steps: dict[str, Step], node: fx.Node, weight: Any) -> bool:
    """Whether a call has become a step that has the weight itself for an argument."""
    step = steps.get(node.name)
    if step is None or not isinstance(weight, Tensor):
        return False
    return any(item is weight for item in (*step.args, *step.kwargs.values()))


def _with_arguments(program: Program, change: Callable[[Any], Any]) -> Program:
    """A copy of a program with all arguments of its steps changed."""

    def step(item: Step) -> Step:
        args = tuple(map(change, item.args))
        kwargs = {key: change(value) for key, value in item.kwargs.items()}
        return replace(item, args=args, kwargs=kwargs)

    def stage(item: Stage) -> Stage:
        return replace(item, steps=tuple(map(step, item.steps))) if item.steps else item

    return program.with_constants(tuple(map(stage, program.stages)))
