"""Two networks of one input as one: chains of dense layers are stacked, others are joined.

A layer of the stacked chain has all units of the first network, and the other units of the second.
Two units are the same if they multiply the same units before them with the same weights and have
the same bias, whatever their order. Networks with permuted units thus have the same outputs, bit by
bit.

The values of the programs get names that do not collide, and layers say to which network they
belong: ``a.1``, ``b.1``. Leading stages that are the same in both, bit by bit, are shared with
their layers: ``both.1``. Equal networks share everything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Any, Literal, cast

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from splinecam.network.capture.reading.stages import make_stages
from splinecam.network.nonlinearities import Nonlinearity, PiecewiseScalar
from splinecam.network.ops.bounds import role_of
from splinecam.network.ops.registry import AffineRule, rule_of
from splinecam.network.program import Program, Stage, Step
from splinecam.network.values import Operation, Ref, Rows

_LINEAR = torch.ops.aten.linear.default
_RULE = cast(AffineRule, rule_of(_LINEAR))
_ARGUMENTS = ("input", "weight", "bias")
_ROLES = tuple(role_of(_RULE, name) for name in _ARGUMENTS)
_FLATTEN = AffineRule(reshapes=True)

_Dense = tuple[Tensor, Tensor, PiecewiseScalar | None]
"""A dense stage: weight (m, n), bias (m,), and the layer after it."""

Units = list[tuple[Tensor, Tensor]]
"""For each layer of a stacked chain, and last for its outputs, the places of the units of both
networks among the stacked ones, (n,) each.
"""


def chains_of(pair: Pair) -> tuple[list[_Dense], list[_Dense]] | None:
    """Two networks as chains of dense layers with equal functions between them, or None."""
    first, second = (_chain(program) for program in (pair.a, pair.b))
    if first is None or second is None or len(first) != len(second):
        return None
    if not all(_alike(a, b) for (_, _, a), (_, _, b) in zip(first, second, strict=True)):
        return None
    return first, second


def stacked(program: Program, chains: tuple[list[_Dense], list[_Dense]]) -> tuple[Program, Units]:
    """Two chains as one program, and the places of their units; program: the first network's."""
    every = torch.arange(prod(program.input_shape), device=program.device)
    places, size, stages, units = (every, every), every.shape[0], [], []
    source = program.input_name
    for number, (a, b) in enumerate(zip(*chains, strict=True)):
        weight, bias, places = _stack(a, b, places, size)
        size = weight.shape[0]
        units.append(places)
        args = (Ref(source), weight, bias)
        stages.append(_stage(f"stacked.{number}", args, a, b, places))
        layer = stages[-1].layer
        source = "" if layer is None else layer.result
    if len(program.input_shape) > 1:
        (step,) = stages[0].steps
        name = program.input_name
        flat = Step("flat", _flat, (Ref(name),), {}, ("self",), _FLATTEN, (("add",), {}), (name,))
        linear = replace(step, args=(Ref("flat"), *step.args[1:]), frees=("flat",))
        stages[0] = replace(stages[0], steps=(flat, linear))
    name = stages[-1].live_out[0]
    program = replace(program, stages=tuple(stages), output_name=name, output_shape=(size,))
    return replace(program, final=None, stripped=None), units


def _chain(program: Program) -> list[_Dense] | None:
    """The stages of a chain of dense layers, if the program is one."""
    found: list[_Dense] = []
    source, size = program.input_name, prod(program.input_shape)
    for number, stage in enumerate(program.stages):
        dense, layer = program.dense(number), stage.layer
        if dense is None or dense[0] != source:
            return None
        step = dense[1]
        weight, *bias = step.args[1:]
        given = [*bias, None][0]
        if weight.dim() != 2 or weight.shape[1] != size or step.kwargs:
            return None
        if layer is not None:
            if not isinstance(layer, PiecewiseScalar) or layer.shape != (weight.shape[0],):
                return None
            if not layer.source == layer.argument == step.name:
                return None
            source = layer.result
        size = weight.shape[0]
        offset = weight.new_zeros(size) if given is None else given
        found.append((weight, offset, layer))
    return found


def _alike(a: PiecewiseScalar | None, b: PiecewiseScalar | None) -> bool:
    """Whether two layers apply the same function to every unit."""
    if a is None or b is None:
        return a is b
    plain = a.period is None and b.period is None and a.levels.shape[0] == b.levels.shape[0]
    arguments = tree_leaves((a.operation.args, a.operation.kwargs))
    # A tensor among the arguments may belong to the units.
    plain = plain and not any(isinstance(item, Tensor) for item in arguments)
    return plain and _same(a.operation, b.operation, {})


def _stack(
    a: _Dense, b: _Dense, places: tuple[Tensor, Tensor], size: int
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """The stacked weight and bias, and the places of both networks' units among their rows."""
    rows = []
    for (weight, bias, _), before in ((a, places[0]), (b, places[1])):
        wide = weight.new_zeros((weight.shape[0], size + 1))
        wide.index_add_(1, before, weight)
        wide[:, size] = bias
        rows.append(wide)
    everything = torch.cat(rows) + 0.0  # which makes zeros equal
    first, m = _first_equal_rows(everything), a[0].shape[0]
    number = torch.arange(everything.shape[0], device=first.device)
    # All units of the first network stay, so that they keep their numbers.
    kept = (number < m) | (first == number)
    place = torch.where(number < m, number, (torch.cumsum(kept.long(), 0) - 1)[first])
    table = everything[kept]
    weight, bias = table[:, :size].contiguous(), table[:, size].contiguous()
    return weight, bias, (place[:m], place[m:])


def _first_equal_rows(rows: Tensor) -> Tensor:
    """The first row of a table (N, n) without negative zeros that is the same as each row, (N,)."""
    bits = rows.view(torch.int64)
    generator = torch.Generator().manual_seed(0)
    factors = torch.randint(-(2**62), 2**62, (rows.shape[1],), generator=generator) | 1
    _, kind = torch.unique((bits * factors.to(rows.device)).sum(1), return_inverse=True)
    first = _first_of_kind(kind)
    if not bits.equal(bits[first]):
        first = _first_of_kind(torch.unique(rows, dim=0, return_inverse=True)[1])
    return first


def _first_of_kind(kind: Tensor) -> Tensor:
    """The first place with the same number as each place, (N,)."""
    number = torch.arange(kind.shape[0], device=kind.device)
    least = torch.full_like(number, kind.shape[0]).scatter_reduce_(0, kind, number, "amin")
    return least[kind]


def _stage(
    name: str, args: tuple[Ref, Tensor, Tensor], a: _Dense, b: _Dense, places: tuple[Tensor, Tensor]
) -> Stage:
    """A stage of the stacked chain; name: of its result; args: of its dense step."""
    (source, weight, _), layer, other = args, a[2], b[2]
    frees = (source.name,)
    step = Step(name, _LINEAR, args, {}, _ARGUMENTS, _RULE, (_ROLES, {}), frees)
    if layer is not None and other is not None:
        levels, slopes = (
            _columns(x, y, places, weight.shape[0])
            for x, y in ((layer.levels, other.levels), (layer.slopes, other.slopes))
        )
        both = layer.name if layer.name == other.name else f"{layer.name}, {other.name}"
        names: Any = {"name": both, "source": name, "argument": name, "result": f"{name}.result"}
        layer = replace(layer, shape=(weight.shape[0],), levels=levels, slopes=slopes, **names)
    return Stage(frees, (name,), layer, (step,))


def _columns(x: Tensor, y: Tensor, places: tuple[Tensor, Tensor], size: int) -> Tensor:
    """Numbers (K, n) of both networks' units in the order of the stacked ones."""
    out = x.new_empty((x.shape[0], size))
    out[:, places[1]] = y
    out[:, places[0]] = x
    return out


def _flat(x: Tensor) -> Tensor:
    return x.flatten(1)


Shown = Literal["both", "a", "b", "difference"]
"""The output of the program of two networks: both, side by side, one, or the first less the other.
"""

_INPUT = "x"
_JOIN = AffineRule(exact=True)
_SUBTRACT = AffineRule(absolute=torch.add)


@dataclass(frozen=True)
class Pair:
    """Two programs of one input, in names that do not collide."""

    a: Program
    b: Program
    shared: int  # how many leading layers are the same in both, by the names of ``a``
    equal: bool  # whether all stages are the same

    def joined(self, shown: Shown) -> Program:
        """One program of both networks: the layers of ``a``, then the other layers of ``b``."""
        own = self.b.stages[len(self.b.stages) if self.equal else self.shared :]
        body = [item for stage in (*self.a.stages, *own) for item in stage.body]
        sizes = [prod(program.output_shape) for program in (self.a, self.b)]
        size = sizes[shown == "b"]
        ends = [Ref("a.flat"), Ref("b.flat")]
        for program, ref in zip((self.a, self.b), ends, strict=True):
            body.append(_step(ref.name, _flat, (Ref(program.output_name),), _FLATTEN))
        name = "outputs"
        if shown == "both":
            body.append(_step(name, _side_by_side, tuple(ends), _JOIN))
            size = sum(sizes)
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
        """What the models do with their outputs at last, applied to the outputs that are shown."""
        finals = {"both": (self.a, self.b), "a": (self.a,), "b": (self.b,)}.get(shown, ())

        def final(y: Tensor) -> Tensor:
            parts = torch.split(y, [prod(p.output_shape) for p in finals], 1)
            made = [
                part if p.final is None else p.final(part.view(-1, *p.output_shape)).flatten(1)
                for p, part in zip(finals, parts, strict=True)
            ]
            return torch.cat(made, 1)

        return final if any(p.final is not None for p in finals) else None


def _step(name: str, run: Callable[..., Tensor], args: tuple[Ref, ...], rule: AffineRule) -> Step:
    return Step(name, run, args, {}, (), rule, (("add",) * len(args), {}))


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

    whole_a = _renamed(a, in_a, ["both"] * shared + ["a"] * (len(a.layers) - shared))
    whole_b = _renamed(b, in_b, ["both"] * shared + ["b"] * (len(b.layers) - shared))
    return Pair(whole_a, whole_b, shared, equal)


def _renamed(program: Program, rename: Callable[[str], str], owners: list[str]) -> Program:
    """A program with other names for its values, and with the owners of its layers in theirs."""

    def step(old: Step) -> Step:
        call = old.args, old.kwargs
        args, kwargs = tree_map_only(Ref, lambda ref: Ref(rename(ref.name)), call)
        frees = tuple(map(rename, old.frees))
        return replace(old, name=rename(old.name), args=args, kwargs=kwargs, frees=frees)

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
    names = {"input_name": rename(program.input_name), "output_name": rename(program.output_name)}
    return program.with_constants(stages, **names)


def _correspondence(a: Stage, b: Stage, names: Mapping[str, str]) -> dict[str, str] | None:
    """For two equal stages, the names in ``a`` by the names in ``b``; else None."""
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


def _same(x: Any, y: Any, names: Mapping[str, str]) -> bool:
    """Whether nested arguments are the same; names: from the values in y to the values in x."""
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
