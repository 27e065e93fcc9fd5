"""Divide the steps of a program into stages: what runs where, and what stays alive."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from splinecam.network.nonlinearities import Nonlinearity
from splinecam.network.ops.registry import AffineRule
from splinecam.network.program import Program, Stage, Step
from splinecam.network.values import Ref, Rows

_MOVE = AffineRule(exact=True)


def refs(item: Any) -> Iterator[Ref]:
    """Every Ref in nested lists, tuples and dictionaries."""
    if type(item) is Ref:
        yield item
    elif isinstance(item, (list, tuple, dict)):
        for part in item.values() if isinstance(item, dict) else item:
            yield from refs(part)


def _names_read(step: Any) -> list[str]:
    return [ref.name for ref in refs((step.args, step.kwargs))]


def make_stages(
    body: list[Step | Nonlinearity], constants: dict[str, Step], rows: dict[str, Rows], output: str
) -> tuple[Stage, ...]:
    """The stages of a program from its steps and layers in order.

    constants: depend on the size of the batch, and are made again in each stage. A value passes
    from stage to stage under the name of its border layout, which has the batch in front.
    """
    parts: list[list[Step]] = [[]]
    layers: list[Nonlinearity | None] = []
    for item in body:
        if isinstance(item, Nonlinearity):
            layers.append(item)
            parts.append([])
        else:
            parts[-1].append(item)
    stages: list[Stage] = []
    live: dict[str, None] = {output: None}
    for part, layer in zip(reversed(parts), reversed([*layers, None]), strict=True):
        if layer is not None:
            names = (_border_name(n, rows) for n in (layer.source, layer.argument, layer.result))
            source, argument, result = names
            if (source, argument, result) != (layer.source, layer.argument, layer.result):
                layer = replace(layer, source=source, argument=argument, result=result)
            live.pop(result, None)
            live |= {source: None, argument: None}
        stage = _stage(_with_constants(part, constants), tuple(live), layer, rows)
        stages.append(stage)
        live = dict.fromkeys(stage.live_in)
    return tuple(reversed(stages))


def _border_name(name: str, rows: dict[str, Rows]) -> str:
    return name if rows[name].plain else f"{name}.rows"


def _with_constants(part: list[Step], constants: dict[str, Step]) -> list[Step]:
    """The steps with the constants that they need made before them."""
    needed: dict[str, Step] = {}

    def add(step: Step) -> None:
        for name in _names_read(step):
            if name in constants and name not in needed:
                add(constants[name])
                needed[name] = constants[name]

    for step in part:
        add(step)
    return [*needed.values(), *part]


def _stage(
    part: list[Step], live_out: tuple[str, ...], layer: Nonlinearity | None, rows: dict[str, Rows]
) -> Stage:
    """One stage; values with another layout are moved into it first, and out of it last."""
    results = dict.fromkeys(step.name for step in part)
    read = dict.fromkeys(name for step in part for name in _names_read(step))
    outside = [name for name in read if name not in results]
    before = [_move(name, _border_name(name, rows), name, rows) for name in outside]
    after = [_move(_border_name(n, rows), n, n, rows) for n in results if n in rows]
    steps = [step for step in before if step is not None] + part
    steps += [step for step in after if step is not None and step.name in live_out]
    own = {step.name for step in steps}
    live_in = dict.fromkeys(_border_name(name, rows) for name in outside)
    live_in |= dict.fromkeys(name for name in live_out if name not in own)
    return Stage(tuple(live_in), live_out, layer, with_frees(steps, live_out))


def _move(result: str, source: str, name: str, rows: dict[str, Rows]) -> Step | None:
    """A step between a value's own layout and its border layout, where they differ."""
    if result == source:
        return None
    run = rows[name].back if result == name else rows[name].out
    return Step(result, run, (Ref(source),), {}, ("self",), _MOVE, (("add",), {}))


def with_frees(steps: list[Any], kept: tuple[str, ...]) -> tuple[Any, ...]:
    """Steps that free each value after its last use, except for the kept ones."""
    used, freeing = set(kept), []
    for step in reversed(steps):
        names = dict.fromkeys([step.name, *_names_read(step)])
        freeing.append(replace(step, frees=tuple(name for name in names if name not in used)))
        used |= set(names)
    return tuple(reversed(freeing))


def first_layers(program: Program, count: int) -> Program:
    """The program up to so many layers, with the output of the last of them, or with the input."""
    body = [item for stage in program.stages[:count] for item in stage.body]
    name = program.layers[count - 1].result if count else program.input_name
    stages = make_stages(body, {}, defaultdict(Rows), name)
    part = replace(program, stages=stages, output_name=name, stripped=None, final=None)
    x = torch.zeros((1, *program.input_shape), dtype=torch.float64, device=program.device)
    with torch.no_grad():
        return replace(part, output_shape=tuple(part(x).shape[1:]))
