"""A captured program without its weights, to be filled with those that the model has now."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, fx

from splinecam.network.capture.constants import copied
from splinecam.network.capture.flat import FlatGraph
from splinecam.network.capture.graph_builder import GraphBuilder
from splinecam.network.ops import Affine, Maximum, Piecewise, Sort, Terminal, rule_of
from splinecam.network.program import Program, Stage, Step

__all__ = ["Template", "template_of"]

_MOST = 1 << 26  # bytes that a template may hold, most of them in the tables of maxima
_RULES = (Affine, Piecewise, Maximum, Sort, Terminal)


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
        weights = {name: copied(tensors[name], self.program.device) for name in self.names}
        return _changed(
            self.program, lambda item: weights[item.name] if type(item) is _Slot else item
        )


def template_of(
    graph: FlatGraph, needed: set[fx.Node], draft: GraphBuilder, program: Program
) -> Template | None:
    """A program as a template; None if more than arguments of its steps depends on weights."""
    if draft.masks or draft.choices or draft.sized.steps or draft.batch.known or _large(program):
        return None
    steps = {step.name: step for stage in program.stages for step in stage.steps}
    slots: dict[int, _Slot] = {}
    for node in needed:
        if node in graph.constants:
            slots[id(draft.values[node])] = _Slot(graph.constants[node][0])
        elif node.op == "call_function":
            known = isinstance(rule_of(node.target), _RULES) or node.target is operator.getitem
            weights = [source for source in node.all_input_nodes if source in graph.constants]
            if not known or not all(_takes(steps, node, draft.values[w]) for w in weights):
                return None
    names = tuple(dict.fromkeys(slot.name for slot in slots.values()))
    return Template(_changed(program, lambda item: slots.get(id(item), item)), names)


def _takes(steps: dict[str, Step], node: fx.Node, weight: Any) -> bool:
    """Whether a call has become a step that has the weight itself for an argument."""
    step = steps.get(node.name)
    if step is None or not isinstance(weight, Tensor):
        return False
    return any(item is weight for item in (*step.args, *step.kwargs.values()))


def _changed(program: Program, change: Callable[[Any], Any]) -> Program:
    """A copy of a program with all arguments of its steps changed."""

    def step(item: Step) -> Step:
        args = tuple(map(change, item.args))
        kwargs = {key: change(value) for key, value in item.kwargs.items()}
        return replace(item, args=args, kwargs=kwargs)

    def stage(item: Stage) -> Stage:
        return replace(item, steps=tuple(map(step, item.steps))) if item.steps else item

    made = copy(program)
    made.stages = tuple(map(stage, program.stages))
    return made


def _large(program: Program) -> bool:
    tensors = [value for layer in program.layers for value in vars(layer).values()]
    return sum(value.nbytes for value in tensors if isinstance(value, Tensor)) > _MOST
