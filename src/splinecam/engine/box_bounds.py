"""Bounds on the outputs of a network over boxes of the plane, without dividing them.

On a box every value of the network is near an affine function, which is known by its values at
three points, and no farther from it than a radius. An affine stage maps the function, and the
radius by the moduli of its coefficients. A unit that stays on one piece does so exactly. Where a
unit passes a knot, its function is replaced by a line in the middle of the gap, and half of the
gap is its noise. In the radius of later layers all noise adds up. For the outputs it does so with
the signed slopes from each unit to each output, which are found backwards; that is far less.

In a deep chain the radius of the last layers is too large to say anything. There noise keeps its
sign on the way forwards, too: each unit with noise is an affine function of the square and of the
noise before it. This gives the bounds on quarters of the square without the chain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from splinecam._util.arrays import as_rows
from splinecam._util.backend import backend_of
from splinecam._util.tolerances import EPS, SAFETY
from splinecam.kernels.kernel import CompiledChain, Kernel, ReducedChains
from splinecam.network.nonlinearities import (
    ChoiceNonlinearity,
    MaxNonlinearity,
    Nonlinearity,
    PiecewiseScalar,
    SortNonlinearity,
)
from splinecam.network.ops.bounds import Bound
from splinecam.network.program import Program

SINGLE = SAFETY * 2.0**-23  # the rounding of single precision, with safety
UPWARDS = 1 + 2.0**-12  # sums of moduli are rounded by less
_DETAILS = "offset", "norm", "rounding"
# How many times too many regions one expects from units that pass a knot, in a chain, whose radius
# counts, and in other networks; how many regions of a chain take as long as a box. Elsewhere it
# takes as long as some forward passes, and some for each function. All were measured.
_CHAIN_EXCESS, _EXCESS = 8.0, 2.0
_CHAIN_EFFORT, _PASSES, _BACK = 12.5, 4.0, 3.0
# From how many products on the radius of a chain is many times too large, so that noise is carried
# with its sign; how many units may have noise, as a share of the widest layer; for how many others
# each of them counts; and the effort for a quarter of such a square. All were measured.
_DEEP, _NOISY, _CERTAIN, _QUARTER_EFFORT = 8, 1.0, 2.0, 2.0


class AffineRange(NamedTuple):
    """Functions on B boxes that are affine but for a radius.

    rows: (3, B, ...) the affine function at the centre of a box, and in the middle of its right
    and of its upper side; radius: (B, ...) how far the function is from it at most.
    """

    rows: Tensor
    radius: Tensor

    def reach(self) -> Tensor:
        """How far the value on a box may be from that at its centre, (B, ...)."""
        return self.sweep(self.rows).add_(self.radius)

    @staticmethod
    def sweep(rows: Tensor) -> Tensor:
        """How far affine functions on the boxes are from those at their centres at most."""
        middle, right, upper = rows
        wide: Tensor = (right - middle).abs_().add_((upper - middle).abs_())
        return wide


class CornerRange(AffineRange):
    """The same on B convex bodies: rows are at any point of each, and then at its k corners."""

    @staticmethod
    def sweep(rows: Tensor) -> Tensor:
        return (rows[1:] - rows[0]).abs_().amax(0)


class _Line(NamedTuple):
    """What a layer is replaced by on each box.

    apply: maps rows (3, B, ...) linearly, with slopes as far as ``radius`` has them; shift: what is
    added; noise: (B, ...) how far the layer is from that; radius: (B, ...) the radius of the
    result, with the noise.
    """

    apply: Callable[[Tensor], Tensor]
    shift: Tensor
    noise: Tensor
    radius: Tensor


class BoundedOutputs(NamedTuple):
    """What is known of a network on B boxes.

    rows: (3, B, n) affine functions near the outputs, at the points of ``AffineRange``; radius:
    (B, m) how far functions of the outputs are from the same functions of these; passed: (B,) how
    many units pass a knot.
    """

    rows: Tensor
    radius: Tensor
    passed: Tensor


@dataclass(frozen=True, eq=False)
class BoxBounds:
    """Bounds functions of the outputs of a network over boxes.

    functions: (m, n) of n outputs; None stands for the differences of each output to the one that
    is the largest at the centre of a box. kernel: computes chains, None for tensor operations.
    """

    program: Program
    functions: Tensor | None
    kernel: Kernel | None = None

    @staticmethod
    def fits(program: Program) -> bool:
        """Whether all layers of a network can be bounded."""
        kinds = PiecewiseScalar | MaxNonlinearity | SortNonlinearity | ChoiceNonlinearity
        return all(isinstance(layer, kinds) for layer in program.layers)

    @property
    def excess(self) -> float:
        """How many times as many regions as there are one expects from ``passed``, about."""
        return _EXCESS if self._chain is None else _CHAIN_EXCESS

    @property
    def effort(self) -> float:
        """How many regions take as long as a box, about."""
        if self._chain is not None:
            return _CHAIN_EFFORT
        count = prod(self.program.output_shape) if self.functions is None else len(self.functions)
        return _PASSES + _BACK * count

    def __call__(self, x: Tensor) -> BoundedOutputs:
        """Bounds over boxes; x: (3, B, *input_shape) the inputs at the three points of each."""
        width = max(*self.program.widths, prod(self.program.input_shape))
        step = max(1, backend_of(self.program.device).numbers // (4 * width))
        bounds = self._bounds if self._chain is None else self._chain
        rows, radius, passed = zip(*(bounds(some) for some in torch.split(x, step, 1)), strict=True)
        return BoundedOutputs(torch.cat(rows, 1), torch.cat(radius), torch.cat(passed))

    def on_squares(
        self, x: Tensor, parent: Tensor | None, place: Tensor
    ) -> tuple[BoundedOutputs, Tensor, ReducedChains | None]:
        """The same with the effort for a quarter of each, (B,), and what is kept for quarters.

        parent: (B,) what was kept of larger squares; place: (B, 2) of the centres in these.
        """
        effort = x.new_full((x.shape[1],), self.effort)
        if self._chain is None or self.kernel is None or len(self._chain.products) < _DEEP:
            return self(x), effort, None
        parent = torch.zeros(x.shape[1], dtype=torch.int64) if parent is None else parent
        found, kept = self._chain.reduced(x, parent, place, self.kernel)
        left, done = (found.passed < 0).nonzero()[:, 0], found.passed >= 0
        if len(left):
            rows, radius, passed = self(x[:, left])
            found.rows[:, left], found.radius[left] = rows, radius
            found.passed[left] = passed
        found.passed[done] *= _CERTAIN
        effort[done] = _QUARTER_EFFORT
        return found, effort, kept

    @cached_property
    def _chain(self) -> Chain | None:
        return Chain.of(self.program, self.functions, self.kernel)

    def _bounds(self, x: Tensor) -> BoundedOutputs:
        program = self.program
        live = {program.input_name: AffineRange(x, torch.zeros_like(x[0]))}
        size = x[0].abs() + live[program.input_name].reach()
        bounds = {program.input_name: Bound(size, EPS * size)}
        return self.through(0, self._advance(0, live), program.bounds(0, bounds))

    def through(
        self, first: int, live: dict[str, AffineRange], bounds: dict[str, Bound]
    ) -> BoundedOutputs:
        """Bounds from the ranges that the affine part of a stage gives.

        On bodies with corners nothing is counted, and ``passed`` is zero.
        """
        program, lines = self.program, []
        start = {name: value.rows[0] for name, value in live.items()}
        one = next(iter(live.values()))
        kind, passed = type(one), one.radius.new_zeros(one.radius.shape[0])
        for i, stage in enumerate(program.stages[first:], first):
            if i > first:
                live, bounds = self._advance(i, live), program.bounds(i, bounds)
            layer = stage.layer
            if layer is not None:
                rounding = SAFETY * bounds[layer.source].error
                line = _line(layer, live, rounding)
                source = live[layer.source]
                low, high = (as_rows(source.rows[0] + k * source.reach()) for k in (-1, 1))
                bounds[layer.result] = layer.bound(bounds[layer.argument], low, high)
                rows = line.apply(live[layer.argument].rows).add_(line.shift)
                live[layer.result] = kind(rows, line.radius)
                if kind is AffineRange:
                    passed += as_rows(_passing(layer, live, rounding)).sum(1)
                lines.append(line)
        output = live[program.output_name]
        rows, radius = as_rows(output.rows, 2), as_rows(output.radius)
        rounding = SAFETY * as_rows(bounds[program.output_name].error)
        best = rows[0].argmax(1) if self.functions is None else None
        radius = _of_functions(radius, self.functions, best)
        if lines:
            radius = torch.minimum(radius, self._backward(first, start, lines, best))
        return BoundedOutputs(rows, radius + _of_functions(rounding, self.functions, best), passed)

    def _advance(self, i: int, live: dict[str, AffineRange]) -> dict[str, AffineRange]:
        """The values after an affine stage."""
        program, names = self.program, self.program.stages[i].live_in
        one = live[names[0]]
        count, kind = one.radius.shape[0], type(one)
        made = program.advance(i, {name: live[name].rows.flatten(0, 1) for name in names})
        spread = program.moduli(i, {name: live[name].radius for name in names})
        return {
            name: kind(
                rows.view(-1, count, *rows.shape[1:]),
                (spread[name] - self._offsets[i][name]).clamp_(min=0),
            )
            for name, rows in made.items()
        }

    @cached_property
    def _offsets(self) -> list[dict[str, Tensor]]:
        """What the moduli of each stage make of nothing."""
        stages = range(len(self.program.stages))
        return [self.program.moduli(i, self.program.zeros(i, 1)) for i in stages]

    def _backward(
        self, first: int, start: dict[str, Tensor], lines: list[_Line], best: Tensor | None
    ) -> Tensor:
        """How far noise moves each function, (B, m); start: values after the first stage."""
        with torch.inference_mode(False), torch.enable_grad():
            noise = [torch.zeros_like(line.noise).requires_grad_() for line in lines]
            live = {name: value.clone() for name, value in start.items()}
            for k, stage in enumerate(self.program.stages[first:]):
                if k:
                    live = self.program.advance(first + k, live)
                if stage.layer is not None:
                    moved = lines[k].apply(live[stage.layer.argument].clone()[None])[0]
                    live[stage.layer.result] = moved + noise[k]
            outputs = as_rows(live[self.program.output_name])
            if best is not None:
                outputs = outputs - outputs.gather(1, best.clone()[:, None])
            elif self.functions is not None:
                # The cases of a formula repeat the same few functions.
                rows, place = torch.unique(self.functions, dim=0, return_inverse=True)
                outputs = outputs @ rows.T
            found = []
            for output in outputs.unbind(1):
                ways = torch.autograd.grad(
                    output.sum(), noise, retain_graph=True, allow_unused=True
                )
                parts = [
                    as_rows(way.abs() * line.noise).sum(1)
                    for way, line in zip(ways, lines, strict=True)
                    if way is not None
                ]
                found.append(sum(parts, torch.zeros_like(output)).detach())
        moved = torch.stack(found, 1)
        return moved if best is not None or self.functions is None else moved[:, place]


def _of_functions(radius: Tensor, functions: Tensor | None, best: Tensor | None) -> Tensor:
    """The radius (B, m) of functions of outputs with a radius (B, n)."""
    if functions is not None:
        return radius @ functions.abs().T
    if best is None:
        return radius
    return (radius + radius.gather(1, best[:, None])).scatter(1, best[:, None], 0.0)


class Product(NamedTuple):
    """A product with a matrix in single precision: its moduli, its offset, the norms of its rows.

    The modulus of the offset is rounding already.
    """

    weight: Tensor
    modulus: Tensor
    offset: Tensor
    norm: Tensor
    rounding: Tensor


@dataclass(frozen=True, eq=False)
class Chain:
    """The same for a chain of products with matrices and ReLUs, in single precision.

    last: the functions of the last layer, if they are not differences of outputs; exact: (n + 1,)
    in double precision, and an offset, if there is one function with a level.
    """

    products: list[Product]
    functions: Tensor | None
    last: Tensor | None
    kernel: Kernel | None
    exact: Tensor | None = None

    @classmethod
    def of(
        cls,
        program: Program,
        functions: Tensor | None,
        kernel: Kernel | None,
        level: float | None = None,
    ) -> Chain | None:
        """The chain that a network is, None if it is not one.

        level: is subtracted from the functions, which are then the outputs of the chain.
        """
        if not all(layer.rectifies and len(layer.shape) == 1 for layer in program.layers):
            return None
        products, exact = [], None
        for i, name in enumerate([program.input_name, *(x.result for x in program.layers)]):
            found = program.dense(i)
            if found is None or found[0] != name:
                return None
            weight, bias = found[1].args[1], (*found[1].args, None)[2]
            offset = weight.new_zeros(len(weight)) if bias is None else bias
            if functions is not None and level is not None and i == len(program.layers):
                weight, offset = functions @ weight, functions @ offset - level
                exact = torch.cat([weight[0], offset])
            norm, rounding = weight.norm(dim=1) * UPWARDS, SINGLE * offset.abs()
            parts = weight, weight.abs() * UPWARDS, offset, norm, rounding
            products.append(Product(*(part.float() for part in parts)))
        if not all(bool(x.modulus.sum(1).isfinite().all()) for x in products):
            return None
        last = None if functions is None else products[-1].weight
        if functions is not None and level is None:
            last = functions.float() @ products[-1].weight
        return cls(products, functions, last, kernel, exact)

    @cached_property
    def compiled(self) -> CompiledChain:
        """The chain as the kernel takes it."""
        details = [torch.cat([getattr(x, name) for x in self.products]) for name in _DETAILS]
        return CompiledChain([x.weight for x in self.products], details, self.last, SINGLE)

    def __call__(self, x: Tensor) -> BoundedOutputs:
        """The same as ``BoxBounds``."""
        ways = self._ways(x)
        if self.kernel is None:
            ways, *found = self._bounds(ways)
            return self._finished(x, ways, *found)
        inputs = ways.transpose(0, 1).contiguous()
        ways, *found = self.kernel.bound_boxes(self.compiled, inputs)
        return self._finished(x, ways.transpose(0, 1), *found)

    def reduced(
        self, x: Tensor, parent: Tensor, place: Tensor, kernel: Kernel
    ) -> tuple[BoundedOutputs, ReducedChains]:
        """Bounds on squares, of which those with a parent are its quarters, and what is kept.

        Where ``passed`` is negative, nothing was found. See ``Kernel.reduce_squares``.
        """
        inputs = self._ways(x).transpose(0, 1).contiguous()
        most = int(_NOISY * max(self.compiled.widths))
        given = self.compiled, inputs, parent, place, most
        (ways, *found), kept = kernel.reduce_squares(*given)
        return self._finished(x, ways.transpose(0, 1), *found), kept

    @staticmethod
    def _ways(x: Tensor) -> Tensor:
        """The inputs (3, B, d) at the centres of squares, and from there to the sides."""
        ways = as_rows(x, 2)
        return torch.cat([ways[:1], ways[1:] - ways[:1]]).float()

    def _finished(
        self, x: Tensor, ways: Tensor, rounding: Tensor, radius: Tensor, passed: Tensor
    ) -> BoundedOutputs:
        rows, radius = ways.to(x.dtype), radius.to(x.dtype).mul_(UPWARDS)
        rows[1:] += rows[:1]
        best = rows[0].argmax(1) if self.functions is None else None
        radius += _of_functions(rounding.to(x.dtype), self.functions, best)
        return BoundedOutputs(rows, radius, passed.to(x.dtype))

    def _bounds(self, ways: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The outputs, their rounding, the radius of functions, and how many units pass a knot."""
        radius, passed = torch.zeros_like(ways[0]), torch.zeros_like(ways[0, :, 0])
        off = SINGLE * ways[0].abs().amax(1, keepdim=True)
        reach = ways.abs().sum(0)
        slopes, noises = [], []
        for k, (weight, modulus, offset, norm, rounded) in enumerate(self.products):
            # A sum of products rounds by no more than the product of both norms.
            off = off + SINGLE * reach.norm(dim=1, keepdim=True)
            rounding = torch.addcmul(rounded, off, norm)
            ways, radius = ways @ weight.T, radius @ modulus.T
            ways[0] += offset
            if k == len(self.products) - 1:
                break
            reach = ways[1].abs().add_(ways[2].abs()).add_(radius).add_(rounding)
            below = (ways[0] - reach).clamp_(max=0)
            above = reach.add_(ways[0]).clamp_(min=0)
            slope = (above / (above - below)).nan_to_num_(nan=0.0)
            noise = below.mul_(slope).mul_(-0.5)
            ways *= slope
            ways[0] += noise
            radius.mul_(slope).add_(noise)
            passed += (noise > 0).sum(1)
            reach, off = above, (rounding * (above > 0)).amax(1, keepdim=True)
            slopes.append(slope)
            noises.append(noise)
        best = ways[0].argmax(1) if self.functions is None else None
        functions = None if self.functions is None else self.functions.float()
        moved = self._backward(slopes, noises, best)
        return ways, rounding, torch.minimum(_of_functions(radius, functions, best), moved), passed

    def _backward(self, slopes: list[Tensor], noises: list[Tensor], best: Tensor | None) -> Tensor:
        """How far noise moves each function, (B, m)."""
        last = self.products[-1].weight if self.last is None else self.last
        ways = last[None] if best is None else last - last[best][:, None]
        total = torch.zeros((), device=last.device)
        for k in range(len(slopes) - 1, -1, -1):
            total = total + (ways.abs() * noises[k][:, None]).sum(2)
            if k:
                ways = (ways * slopes[k][:, None]) @ self.products[k].weight
        return total


def _passing(layer: Nonlinearity, live: dict[str, AffineRange], rounding: Tensor) -> Tensor:
    """Which units pass a knot; the radius is left out, as where it is large it would let all."""
    flat = {
        name: AffineRange(live[name].rows, torch.zeros_like(live[name].radius))
        for name in dict.fromkeys([layer.argument, layer.source])
    }
    return _line(layer, flat, 0 * rounding).noise > 0


def _line(layer: Nonlinearity, live: dict[str, AffineRange], rounding: Tensor) -> _Line:
    """What replaces a layer; rounding: (1, *shape) of the units of its source."""
    given = live[layer.argument]
    if isinstance(layer, PiecewiseScalar):
        return _scalar_line(layer, given, rounding)
    if isinstance(layer, MaxNonlinearity):
        return _maximum_line(layer, given, rounding)
    if isinstance(layer, SortNonlinearity):
        return _sorted_line(layer, given, rounding)
    return _choice_line(given, rounding)


def _scalar_line(layer: PiecewiseScalar, given: AffineRange, rounding: Tensor) -> _Line:
    reach = given.reach().add_(rounding)
    low, high = given.rows[0] - reach, given.rows[0] + reach
    if layer.rectifies:
        above, below = high.clamp_(min=0), low.clamp_(max=0)
        slope = above / (above - below)
        slope.nan_to_num_(nan=0.0)
        noise = (slope * below).mul_(-0.5)
        return _Line(slope.mul, noise, noise, torch.addcmul(noise, slope, given.radius))
    slope, shift, noise = _chord(layer, low, high)
    return _Line(slope.mul, shift, noise, slope.abs() * given.radius + noise)


def _chord(layer: PiecewiseScalar, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The line in the middle between a function and its chord: slope, offset, half of the gap.

    low, high: (B, *shape) the interval of each unit.
    """
    shape, ends = low.shape, (as_rows(low), as_rows(high))
    levels = layer.levels_between(ends[0].amin(0), ends[1].amax(0))[:, None].clamp(*ends)
    points = torch.cat([ends[0][None], ends[1][None], levels])
    values = layer.apply(points.view(-1, *shape[1:])).view(points.shape)
    width = ends[1] - ends[0]
    slope = torch.where(width > 0, (values[1] - values[0]) / torch.where(width > 0, width, 1.0), 0)
    off = values - slope * points
    most, least = off.amax(0), off.amin(0)
    noise = (most - least) / 2
    # On one piece, what is left are differences of rounded numbers.
    size = values.abs().amax(0) + (slope * points).abs().amax(0)
    noise = torch.where(noise <= SAFETY * EPS * size, 0.0, noise)
    return slope.view(shape), ((most + least) / 2).view(shape), noise.view(shape)


def _maximum_line(layer: MaxNonlinearity, given: AffineRange, rounding: Tensor) -> _Line:
    """The unit that wins at the centre, and by how much others may be ahead of it."""
    sign, count, shape = -1.0 if layer.smallest else 1.0, len(given.radius), layer.groups.shape
    members = layer.members
    radius = (given.radius + rounding).flatten(1)[:, members]  # (B, G, R)
    rows = sign * given.rows.flatten(2)[:, :, members]
    place = rows[0].argmax(2, keepdim=True)
    lead = rows - rows.gather(3, place.expand(rows.shape[0], -1, -1, 1))
    mine = radius.gather(2, place)
    ahead = lead[0] + given.sweep(lead) + radius + mine
    unit = members.expand(count, -1, -1)
    winner = unit.gather(2, place)
    noise = ahead.masked_fill_(unit == winner, 0.0).clamp_(min=0).amax(2).div_(2)
    noise = noise.view(count, *shape)

    def pick(rows: Tensor) -> Tensor:
        flat = rows.flatten(2)
        found = flat.gather(2, winner[..., 0].expand(flat.shape[0], -1, -1))
        return found.view(-1, count, *shape)

    return _Line(pick, sign * noise, noise, mine[..., 0].view(count, *shape) + noise)


def _sorted_line(layer: SortNonlinearity, given: AffineRange, rounding: Tensor) -> _Line:
    """Groups in the order of their centres where that is certain, else places with their ranges."""
    own = as_rows(given.radius + rounding)
    first, second = layer.pairs
    flat = as_rows(given.rows, 2)
    gap = flat[:, :, first] - flat[:, :, second]
    wide = given.sweep(gap) + own[:, first] + own[:, second]
    passes = torch.zeros_like(own).scatter_add_(
        1, first.expand(len(own), -1), (wide >= gap[0].abs()).to(own.dtype)
    )
    largest = own.clone()
    passes[:, layer.members] = passes[:, layer.members].amax(2, keepdim=True)
    largest[:, layer.members] = own[:, layer.members].amax(2, keepdim=True)
    open_ = (passes > 0).view(given.radius.shape)
    reach = given.reach().add_(rounding)
    low, high = (layer.apply(given.rows[0] + k * reach) for k in (-1, 1))
    noise = torch.where(open_, (high - low) / 2, 0.0)

    def order(rows: Tensor) -> Tensor:
        return torch.where(open_, 0.0, torch.stack([layer.apply(row) for row in rows]))

    shift = torch.where(open_, (high + low) / 2, 0.0)
    return _Line(order, shift, noise, torch.where(open_, noise, largest.view(noise.shape)))


def _choice_line(given: AffineRange, rounding: Tensor) -> _Line:
    """The chosen value where the choice is certain, else the middle of both."""
    kind = type(given)
    by, true, false = (kind(given.rows[:, :, k], given.radius[:, k]) for k in range(3))
    reach = by.reach().add_(rounding.view(1, *by.radius.shape[1:]))
    above, below = by.rows[0] > reach, by.rows[0] <= -reach
    share = above.to(reach.dtype) + 0.5 * (~above & ~below)
    gap = kind(true.rows - false.rows, true.radius + false.radius)
    noise = torch.where(above | below, 0.0, (gap.rows[0].abs() + gap.reach()) / 2)
    both = torch.maximum(true.radius, false.radius)
    radius = torch.where(above, true.radius, torch.where(below, false.radius, both)) + noise

    def pick(rows: Tensor) -> Tensor:
        return rows[:, :, 1] * share + rows[:, :, 2] * (1 - share)

    return _Line(pick, torch.zeros_like(noise), noise, radius)
