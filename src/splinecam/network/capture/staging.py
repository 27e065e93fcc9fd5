"""Cut the straight line of steps into stages: what runs where, and what stays alive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from splinecam.network.nonlinearities import Nonlinearity
from splinecam.network.ops import Affine
from splinecam.network.program import Stage, Step
from splinecam.network.values import Ref, Rows

__all__ = ["make_stages", "refs"]

_MOVE = Affine(exact=True)
_NAMES = ("source", "argument", "result")


def refs(item: Any) -> Iterator[Ref]:
    """Every Ref in nested lists, tuples and dictionaries."""
    found: list[Ref] = []
    _collect(item, found)
    return iter(found)


def _collect(item: Any, found: list[Ref]) -> None:
    if type(item) is Ref:
        found.append(item)
    elif isinstance(item, (list, tuple)):
        for part in item:
            _collect(part, found)
    elif isinstance(item, dict):
        for part in item.values():
            _collect(part, found)


def make_stages(
    body: list[Step | Nonlinearity],
    sized: dict[str, Step],
    rows: dict[str, Rows],
    output_name: str,
) -> tuple[Stage, ...]:
    """Stages of a program from its steps and cuts in order.

    ``sized`` are the constants that depend on the size of the batch: each stage that needs one
    makes it again. ``rows`` says where each value keeps the batch: a value that crosses the border
    of a stage does so under its border name, with the batch in front.
    """
    parts, layers = _split(body)
    parts = [_with_constants(part, sized) for part in parts]
    stages: list[Stage] = []
    live: dict[str, None] = {output_name: None}
    for part, layer in zip(reversed(parts), [None, *reversed(layers)], strict=True):
        if layer is not None:
            names: dict[str, Any] = {key: _border(getattr(layer, key), rows) for key in _NAMES}
            if any(getattr(layer, key) != name for key, name in names.items()):
                layer = replace(layer, **names)
            live.pop(layer.result, None)
            live |= {layer.source: None, layer.argument: None}
        stage = _stage(part, tuple(live), layer, rows)
        stages.append(stage)
        live = dict.fromkeys(stage.live_in)
    return tuple(reversed(stages))


def _border(name: str, rows: dict[str, Rows]) -> str:
    return name if rows[name].plain else f"{name}.rows"


def _split(body: list[Step | Nonlinearity]) -> tuple[list[list[Step]], list[Nonlinearity]]:
    parts: list[list[Step]] = [[]]
    layers: list[Nonlinearity] = []
    for item in body:
        if isinstance(item, Nonlinearity):
            layers.append(item)
            parts.append([])
        else:
            parts[-1].append(item)
    return parts, layers


def _with_constants(part: list[Step], sized: dict[str, Step]) -> list[Step]:
    """The steps with the constants that they need made before them."""
    made: dict[str, Step] = {}

    def make(step: Step) -> None:
        for ref in refs((step.args, step.kwargs)):
            if ref.name in sized and ref.name not in made:
                make(sized[ref.name])
                made[ref.name] = sized[ref.name]

    for step in part:
        make(step)
    return [*made.values(), *part]


def _stage(
    part: list[Step], live_out: tuple[str, ...], layer: Nonlinearity | None, rows: dict[str, Rows]
) -> Stage:
    """One stage: bring odd values into their own layout first, and out of it last."""
    made = {step.name for step in part}
    read = dict.fromkeys(r.name for step in part for r in refs((step.args, step.kwargs)))
    outside = [name for name in read if name not in made]
    before = [_move(name, _border(name, rows), name, rows) for name in outside]
    after = [_move(_border(name, rows), name, name, rows) for name in made if name in rows]
    steps = [step for step in before if step is not None] + part
    steps += [step for step in after if step is not None and step.name in live_out]
    born = {step.name for step in steps}
    live_in = dict.fromkeys(_border(name, rows) for name in outside)
    live_in |= dict.fromkeys(name for name in live_out if name not in born)
    return Stage(tuple(live_in), live_out, layer, _with_frees(steps, live_out))


def _move(result: str, source: str, name: str, rows: dict[str, Rows]) -> Step | None:
    """A step between a value's own layout and its border layout, where they differ."""
    if result == source:
        return None
    run = rows[name].back if result == name else rows[name].out
    return Step(result, run, (Ref(source),), {}, ("self",), _MOVE, (("add",), {}))


def _with_frees(steps: list[Step], live_out: tuple[str, ...]) -> tuple[Step, ...]:
    """Let every value go after its last use."""
    kept = set(live_out)
    done: list[Step] = []
    for step in reversed(steps):
        names = dict.fromkeys([step.name, *(r.name for r in refs((step.args, step.kwargs)))])
        done.append(replace(step, frees=tuple(name for name in names if name not in kept)))
        kept |= set(names)
    return tuple(reversed(done))
