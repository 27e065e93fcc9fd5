"""Two chains of dense layers as one chain, in which units that both have are computed once.

A layer of the stacked chain has the units of the first network, and those of the second that differ
from all of them. Two units are the same if they multiply the same units before them with the same
weights and have the same bias, whatever their order in their layers. Networks with permuted units
thus have the same stacked outputs, bit by bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import cast

import torch
from torch import Tensor

from splinecam.network.capture.pairs import Pair, same_operation
from splinecam.network.nonlinearities import PiecewiseScalar
from splinecam.network.ops import Affine, role_of, rule_of
from splinecam.network.program import Program, Stage, Step
from splinecam.network.values import Ref

__all__ = ["Chains", "Stacked"]

_LINEAR = torch.ops.aten.linear.default
_RULE = cast(Affine, rule_of(_LINEAR))
_ARGUMENTS = ("input", "weight", "bias")
_ROLES = tuple(role_of(_RULE, name) for name in _ARGUMENTS)
_FLATTEN = Affine(reshapes=True)


@dataclass(frozen=True)
class Stacked:
    """The program of two chains together.

    units: for each layer, and last for the outputs, the places of the units of both networks among
    the stacked ones, (n,) each.
    """

    program: Program
    units: list[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class _Dense:
    """A dense stage: weight (m, n), bias (m,), and the layer after it."""

    weight: Tensor
    bias: Tensor
    layer: PiecewiseScalar | None


@dataclass(frozen=True)
class Chains:
    """Two chains of dense layers with the same functions of one variable between them."""

    pair: Pair
    first: list[_Dense]
    second: list[_Dense]

    @classmethod
    def of(cls, pair: Pair) -> Chains | None:
        """The chains of two networks.

        None if they are no such chains, or have different numbers of layers or other functions.
        """
        first, second = (_chain(program) for program in (pair.a, pair.b))
        if first is None or second is None or len(first) != len(second):
            return None
        if not all(_alike(a.layer, b.layer) for a, b in zip(first, second, strict=True)):
            return None
        return cls(pair, first, second)

    def stacked(self) -> Stacked:
        """Both chains as one."""
        program = self.pair.a
        every = torch.arange(prod(program.input_shape), device=program.device)
        places, size, stages, units = (every, every), every.shape[0], [], []
        source = program.input_name
        for number, (a, b) in enumerate(zip(self.first, self.second, strict=True)):
            weight, bias, places = _stack(a, b, places, size)
            size = weight.shape[0]
            units.append(places)
            stages.append(_stage(number, source, a, b, weight, bias, places))
            layer = stages[-1].layer
            source = "" if layer is None else layer.result
        if len(program.input_shape) > 1:
            stages[0] = _flattened(stages[0], program.input_name)
        name = stages[-1].live_out[0]
        program = replace(program, stages=tuple(stages), output_name=name, output_shape=(size,))
        return Stacked(replace(program, final=None, stripped=None), units)


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
        found.append(_Dense(weight, offset, layer))
    return found


def _alike(a: PiecewiseScalar | None, b: PiecewiseScalar | None) -> bool:
    """Whether two layers apply the same function to every unit."""
    if a is None or b is None:
        return a is b
    plain = a.period is None and b.period is None and a.levels.shape[0] == b.levels.shape[0]
    return plain and same_operation(a.operation, b.operation)


def _stack(
    a: _Dense, b: _Dense, places: tuple[Tensor, Tensor], size: int
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """The stacked weight and bias, and the places of both networks' units among the rows.

    places, size: of the units before, among so many stacked ones.
    """
    rows = []
    for dense, before in ((a, places[0]), (b, places[1])):
        wide = dense.weight.new_zeros((dense.weight.shape[0], size + 1))
        wide.index_add_(1, before, dense.weight)
        wide[:, size] = dense.bias
        rows.append(wide)
    everything = torch.cat(rows) + 0.0  # which makes zeros equal
    first, m = _first_equal_rows(everything), a.weight.shape[0]
    number = torch.arange(everything.shape[0], device=first.device)
    # All units of the first network stay, so that they keep their numbers.
    kept = (number < m) | (first == number)
    place = torch.where(number < m, number, (torch.cumsum(kept.long(), 0) - 1)[first])
    table = everything[kept]
    weight, bias = table[:, :size].contiguous(), table[:, size].contiguous()
    return weight, bias, (place[:m], place[m:])


def _first_equal_rows(rows: Tensor) -> Tensor:
    """The first row that is the same as each row of a table (N, n) without negative zeros, (N,).

    Rows are compared with those of the same random sum of their bits, and sorted only if others
    have it, too.
    """
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
    number: int,
    source: str,
    a: _Dense,
    b: _Dense,
    weight: Tensor,
    bias: Tensor,
    places: tuple[Tensor, Tensor],
) -> Stage:
    """A stage of the stacked chain."""
    name = f"stacked.{number}"
    args = (Ref(source), weight, bias)
    step = Step(name, _LINEAR, args, {}, _ARGUMENTS, _RULE, (_ROLES, {}), (source,))
    layer = a.layer
    if layer is not None and b.layer is not None:
        levels, slopes = (
            _columns(x, y, places, weight.shape[0])
            for x, y in ((layer.levels, b.layer.levels), (layer.slopes, b.layer.slopes))
        )
        layer = replace(
            layer,
            name=layer.name if layer.name == b.layer.name else f"{layer.name}, {b.layer.name}",
            source=name,
            argument=name,
            result=f"{name}.result",
            shape=(weight.shape[0],),
            levels=levels,
            slopes=slopes,
        )
    return Stage((source,), (name,), layer, (step,))


def _columns(x: Tensor, y: Tensor, places: tuple[Tensor, Tensor], size: int) -> Tensor:
    """Numbers (K, n) of both networks' units in the order of the stacked ones."""
    out = x.new_empty((x.shape[0], size))
    out[:, places[1]] = y
    out[:, places[0]] = x
    return out


def _flattened(stage: Stage, name: str) -> Stage:
    """The first stage with an input of several dimensions."""
    (step,) = stage.steps
    flat = Step("flat", _flat, (Ref(name),), {}, ("self",), _FLATTEN, (("add",), {}), (name,))
    linear = replace(step, args=(Ref("flat"), *step.args[1:]), frees=("flat",))
    return replace(stage, steps=(flat, linear))


def _flat(x: Tensor) -> Tensor:
    return x.flatten(1)
