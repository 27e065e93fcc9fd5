"""Two programs of one input, side by side: what they share, and one program of both.

The values of the programs get names that do not collide, and their layers names that say to which
network they belong: ``a.1``, ``b.1``. Leading stages that are the same in both, bit by bit, are
shared, and so are their layers: ``both.1``. Equal networks share everything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor

from splinecam.network.capture.reading.stages import make_stages
from splinecam.network.nonlinearities import Nonlinearity, Operation
from splinecam.network.ops import Affine
from splinecam.network.program import Program, Stage, Step
from splinecam.network.values import Ref, Rows, map_tensors

__all__ = ["Pair", "Shown", "pair_of", "same_operation"]

Shown = Literal["both", "a", "b", "difference"]
"""The output of the program of two networks: both, side by side, one, or the first less the other.
"""

_INPUT = "x"
_FLATTEN = Affine(reshapes=True)
_JOIN = Affine(exact=True)
_SUBTRACT = Affine(absolute=torch.add)


@dataclass(frozen=True)
class Pair:
    """Two programs of one input, in names that do not collide.

    shared: how many leading layers, with the stages before them, are the same in both; ``b`` has
    the names of ``a`` for their values. equal: whether all stages are the same.
    """

    a: Program
    b: Program
    shared: int
    equal: bool

    @cached_property
    def b_after_a(self) -> Program:
        """The program whose stages are those of ``a`` that have layers, and then those of ``b``.

        Its first stages number its layers. It is run from the stage ``len(a.layers)`` on, with the
        values that ``b`` has after the shared layers.
        """
        first = len(self.a.layers)
        stages = self.a.stages[:first] + self.b.stages[self.shared :]
        program = replace(self.b, stages=stages)
        vars(program)["_sizes"] = self.a._sizes[:first] + self.b._sizes[self.shared :]
        return program

    def joined(self, shown: Shown) -> Program:
        """One program of both networks, whose layers are those of ``b_after_a``."""
        own = self.b.stages[len(self.b.stages) if self.equal else self.shared :]
        body = [
            item
            for stage in (*self.a.stages, *own)
            for item in (*stage.steps, stage.layer)
            if item is not None
        ]
        size = prod(self.a.output_shape)
        ends = [Ref("a.flat"), Ref("b.flat")]
        for program, ref in zip((self.a, self.b), ends, strict=True):
            body.append(_step(ref.name, _flat, (Ref(program.output_name),), _FLATTEN))
        name = "outputs"
        if shown == "both":
            body.append(_step(name, _side_by_side, tuple(ends), _JOIN))
            size = 2 * size
        elif shown == "difference":
            body.append(_step(name, torch.sub, tuple(ends), _SUBTRACT))
        else:
            name = f"{shown}.flat"
        return replace(
            self.a,
            stages=make_stages(body, {}, defaultdict(Rows), name),
            output_name=name,
            output_shape=(size,),
            stripped=self.a.stripped if shown != "difference" else None,
            final=self._final(shown),
        )

    def _final(self, shown: Shown) -> Callable[[Tensor], Tensor] | None:
        """What the models do with the outputs at last, applied to those that are shown."""
        finals = {"both": (self.a, self.b), "a": (self.a,), "b": (self.b,)}.get(shown, ())

        def final(y: Tensor) -> Tensor:
            parts = y.chunk(len(finals), 1)
            made = [
                part if p.final is None else p.final(part.view(-1, *p.output_shape)).flatten(1)
                for p, part in zip(finals, parts, strict=True)
            ]
            return torch.cat(made, 1)

        return final if any(p.final is not None for p in finals) else None


def _step(name: str, run: Callable[..., Tensor], args: tuple[Ref, ...], rule: Affine) -> Step:
    return Step(name, run, args, {}, (), rule, (("add",) * len(args), {}))


def _flat(x: Tensor) -> Tensor:
    return x.flatten(1)


def _side_by_side(a: Tensor, b: Tensor) -> Tensor:
    return torch.cat([a, b], 1)


def pair_of(a: Program, b: Program) -> Pair:
    """Two programs of one input on one device as a pair."""
    names, count = {b.input_name: a.input_name}, 0
    for first, second in zip(a.stages, b.stages, strict=False):
        made = _correspondence(first, second, names)
        if made is None:
            break
        names, count = names | made, count + 1
    equal = count == len(a.stages) == len(b.stages)
    shared = min(count, len(a.layers), len(b.layers))
    if not equal:  # a stage may make a value again that an earlier one has made
        again = [step.name for stage in b.stages[shared:] for step in stage.steps]
        names = {name: known for name, known in names.items() if name not in again}

    def in_a(name: str) -> str:
        return _INPUT if name == a.input_name else f"a.{name}"

    def in_b(name: str) -> str:
        return in_a(names[name]) if name in names else f"b.{name}"

    common = ["both"] * shared
    return Pair(
        _renamed(a, in_a, common + ["a"] * (len(a.layers) - shared)),
        _renamed(b, in_b, common + ["b"] * (len(b.layers) - shared)),
        shared,
        equal,
    )


def _renamed(program: Program, rename: Callable[[str], str], owners: list[str]) -> Program:
    """A program with other names for its values, and with the owners of its layers in theirs."""

    def step(old: Step) -> Step:
        return replace(
            old,
            name=rename(old.name),
            args=_with_refs(old.args, rename),
            kwargs=_with_refs(old.kwargs, rename),
            frees=tuple(map(rename, old.frees)),
        )

    def layer(old: Nonlinearity, owner: str) -> Nonlinearity:
        source, argument, result = map(rename, (old.source, old.argument, old.result))
        name = f"{owner}.{old.name}"
        return replace(old, name=name, source=source, argument=argument, result=result)

    stages = tuple(
        Stage(
            tuple(map(rename, old.live_in)),
            tuple(map(rename, old.live_out)),
            None if old.layer is None or owner is None else layer(old.layer, owner),
            tuple(map(step, old.steps)),
        )
        for old, owner in zip(program.stages, [*owners, None], strict=True)
    )
    changed = program.with_constants(stages)
    output = rename(program.output_name)
    renamed = replace(changed, input_name=rename(program.input_name), output_name=output)
    vars(renamed)["_sizes"] = program._sizes
    return renamed


def _with_refs(item: Any, rename: Callable[[str], str]) -> Any:
    """Nested arguments with other names for values."""
    if isinstance(item, Ref):
        return Ref(rename(item.name))
    if type(item) in (list, tuple):
        return type(item)(_with_refs(part, rename) for part in item)
    if isinstance(item, dict):
        return {key: _with_refs(part, rename) for key, part in item.items()}
    return item


# -- equal stages ----------------------------------------------------------------------------------


def _correspondence(a: Stage, b: Stage, names: Mapping[str, str]) -> dict[str, str] | None:
    """The names in ``a`` of the values that two equal stages make, by their names in ``b``.

    None if the stages differ. names: the same for the values of earlier stages.
    """
    made: dict[str, str] = {}
    if len(a.steps) != len(b.steps) or type(a.layer) is not type(b.layer):
        return None
    for x, y in zip(a.steps, b.steps, strict=True):
        calls = [(s.run, s.args, s.kwargs, s.rule) for s in (x, y)]
        if not _same(calls[0], calls[1], {**names, **made}):
            return None
        made[y.name] = x.name
    if a.layer is not None and b.layer is not None:
        if not _same(_content(a.layer), _content(b.layer), {**names, **made}):
            return None
        made[b.layer.result] = a.layer.result
    return made


def _content(layer: Nonlinearity) -> dict[str, Any]:
    """What a layer computes, and from which values."""
    found = {field.name: getattr(layer, field.name) for field in fields(layer)}
    for name in ("name", "after", "result"):
        del found[name]
    return found | {name: Ref(found[name]) for name in ("source", "argument")}


def same_operation(x: Operation, y: Operation) -> bool:
    """Whether two operations are the same and have no tensors, which may belong to units."""
    found: list[Tensor] = []

    def see(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_tensors((x.args, x.kwargs), see)
    return not found and _same(x, y, {})


def _same(x: Any, y: Any, names: Mapping[str, str]) -> bool:
    """Whether nested arguments are the same; names: those of values in x by those in y."""
    if type(x) is not type(y):
        return False
    if isinstance(x, Ref):
        return names.get(y.name) == x.name
    if isinstance(x, Tensor):
        return x.dtype == y.dtype and torch.equal(x, y)
    if isinstance(x, (list, tuple)):
        return len(x) == len(y) and all(_same(i, j, names) for i, j in zip(x, y, strict=True))
    if isinstance(x, dict):
        return x.keys() == y.keys() and all(_same(x[key], y[key], names) for key in x)
    if isinstance(x, Operation):
        variable = {**names, Operation.VARIABLE.name: Operation.VARIABLE.name}
        return _same(vars(x), vars(y), variable)
    return bool(x == y)
