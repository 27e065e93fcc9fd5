"""The layers of a captured network: where they cut, and what they compute.

PiecewiseScalar     functions of one variable: borders where a unit passes a knot
MaxNonlinearity     maxima (or minima) over groups of units: borders where the winner changes
SortNonlinearity    sorting groups of units: borders where two units of a group change their order
CustomNonlinearity  registered by the user: borders where given functions vanish
ChoiceNonlinearity  one of two values: borders where the function that chooses changes sign
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property, reduce
from math import prod
from typing import Any, NoReturn

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.tolerances import EPS, SINGLE_EPS
from splinecam.arrangement.crossings import Functions, Signs
from splinecam.arrangement.envelope import Groups
from splinecam.network.curves.curve import Curve
from splinecam.network.ops.bounds import Bound, measured_bound
from splinecam.network.values import Operation

_RELU = torch.ops.aten.relu.default
_SMALL_WINDOW = 9  # units of a group up to which taking their columns is faster than pooling


@dataclass(frozen=True, eq=False, kw_only=True)
class Nonlinearity(ABC):
    """A layer: a piecewise-linear operation between two affine stages."""

    name: str
    target: str
    source: str  # the live value, (B, *shape), whose n units determine the borders
    argument: str  # the live value that the operation takes
    result: str
    shape: tuple[int, ...]
    operation: Operation
    after: str = ""  # what made the source

    def apply(self, argument: Tensor, out: Tensor | None = None) -> Tensor:
        """The operation itself on a batch of its argument; the result may be put in ``out``."""
        return self.operation(argument)

    @property
    def rectifies(self) -> bool:
        """Whether the operation is the positive part (ReLU)."""
        return False

    @abstractmethod
    def functions(
        self, z: Tensor, error: Tensor, low: Tensor, high: Tensor, signs: Signs | None = None
    ) -> Functions | None:
        """The functions whose zero sets are the borders; None if these are not straight lines.

        z: (V, n) at the vertices; error, low, high: (n,) its error and range; signs: if
        they are known.
        """

    @abstractmethod
    def pieces(self, z: Tensor, error: Tensor | float = 0.0) -> Tensor:
        """The number of the piece on which each unit is at z (B, *shape): integers (B, units).

        A unit beyond a border by no more than its rounding ``error``, (n,) or (B, n),
        counts as on the border. A unit that lies on it in a whole region is thus on one
        piece there.
        """

    def apart(self, first: Tensor, second: Tensor, error: Tensor | float) -> Tensor:
        """Whether each unit is surely on different pieces at two points of (B, *shape) each."""
        low, high = ([self.pieces(z, e) for z in (first, second)] for e in (error, -error))
        return (low[0] > high[1]) | (low[1] > high[0])

    def decided(self, z: Tensor, near: Tensor | float, far: Tensor | float) -> Tensor:
        """Whether each unit is within ``near`` of a border or beyond ``far``, not between, (n,)."""
        above = self.pieces(z, near) == self.pieces(z, far)
        return above & (self.pieces(z, -near) == self.pieces(z, -far))

    @abstractmethod
    def bound(self, bound: Bound, low: Tensor, high: Tensor) -> Bound:
        """The bound of the result from that of the argument; low, high: the source's range."""

    def to(self, device: torch.device, move: Callable[[Tensor], Tensor]) -> Nonlinearity:
        """The same on another device; ``move`` moves the operation's constants."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        moved: dict[str, Any] = {
            name: value.to(device) for name, value in own.items() if torch.is_tensor(value)
        }
        return replace(self, operation=self.operation.moved(move), **moved)

    def _flat(self, z: Tensor) -> Tensor:
        return z.reshape(z.shape[0], prod(self.shape))


@dataclass(frozen=True, eq=False, kw_only=True)
class PiecewiseScalar(Nonlinearity):
    """A piecewise-linear function of one variable, applied to the n units of a live value."""

    levels: Tensor  # (K, n) the knots of every unit, ascending; the last may be ``inf``
    slopes: Tensor  # (K + 1, n) before, between and after the knots
    exact: bool = True  # whether nothing is rounded
    period: float | None = None  # with which the knots repeat

    def apply(self, argument: Tensor, out: Tensor | None = None) -> Tensor:
        if out is not None and self.operation.run is _RELU:
            return torch.clamp(argument, min=0, out=out)  # fresh memory would cost more than this
        return self.operation(argument)

    @property
    def rectifies(self) -> bool:
        return self.operation.run is _RELU

    @property
    def rounding(self) -> float:
        """The error of a result in units of EPS, relative to the result."""
        return 0.0 if self.exact else 4.0

    @property
    def noise(self) -> float:
        """The same, relative to the argument, beside ``rounding``."""
        return self.rounding

    @cached_property
    def slope_differences(self) -> Tensor:
        """By how much the slope changes at each knot, (K, n)."""
        return self.slopes.diff(dim=0)

    @cached_property
    def at_zero(self) -> bool:
        """Whether every unit has its one knot at zero."""
        if self.rectifies:
            return True
        return self.levels.shape[0] == 1 and self.period is None and not bool(self.levels.any())

    def functions(
        self, z: Tensor, error: Tensor, low: Tensor, high: Tensor, signs: Signs | None = None
    ) -> Functions:
        levels = self.levels_between(low, high)
        turns = levels.shape[0] // max(1, self.levels.shape[0])
        differences = self.slope_differences
        differences = differences.repeat(turns, 1) if turns > 1 else differences
        return Functions.crossing(z, levels, error, low, high, differences, signs)

    def levels_between(self, low: Tensor, high: Tensor) -> Tensor:
        """At least all knots of each unit between its lowest and its highest value, (K', n)."""
        if self.period is None:
            return self.levels
        first, last = (self._turn(z, self.period) for z in (low - self.period, high + self.period))
        count = int((last - first).max()) + 1
        turns = first + torch.arange(count, device=low.device, dtype=low.dtype)[:, None]
        shifted = self.period * turns[:, None] + self.levels
        return shifted.reshape(-1, self.levels.shape[1])

    def _turn(self, z: Tensor, period: float) -> Tensor:
        """How many periods each unit is past its first knot, (..., n)."""
        return torch.floor((z - self.levels[0]) / period)

    def pieces(self, z: Tensor, error: Tensor | float = 0.0) -> Tensor:
        flat = self._flat(z) - error
        if self.period is None:
            few = self.levels.shape[0] <= torch.iinfo(torch.int8).max
            kind = torch.int8 if few else torch.int32
            count = torch.zeros(flat.shape, dtype=kind, device=z.device)
        else:
            turn = self._turn(flat, self.period)
            count = (turn * self.levels.shape[0]).long()
            flat = flat - self.period * turn
        for level in self.levels:
            count += level < flat
        return count

    def bound(self, bound: Bound, low: Tensor, high: Tensor) -> Bound:
        """Only pieces that a unit reaches count: a unit that is never positive has no error."""
        if self.rectifies:
            high = high.view(-1, *self.shape)
            return Bound(high.clamp(min=0), bound.error * (high >= 0))
        low, high = low.view(-1, prod(self.shape)), high.view(-1, prod(self.shape))
        levels = self.levels_between(low.amin(0), high.amax(0))[:, None].clamp(low, high)
        ends = torch.cat([low[None], high[None], levels])
        magnitude = self.apply(ends.view(-1, *self.shape)).abs()
        magnitude = magnitude.view(-1, low.shape[0], *magnitude.shape[1:]).amax(0)
        error = bound.error * self._steepest(low, high).view(-1, *self.shape)
        error = error.reshape(*error.shape, *[1] * (magnitude.dim() - error.dim()))
        error = error.expand(magnitude.shape)
        return Bound(magnitude, error if self.exact else error + EPS * magnitude)

    def _steepest(self, low: Tensor, high: Tensor) -> Tensor:
        """The largest slope of the pieces that each unit reaches, (R, n) or (n,)."""
        if self.period is not None:
            return self.slopes.abs().amax(0)
        outer = self.levels.new_full((1, self.levels.shape[1]), torch.inf)
        begins, ends = torch.cat([-outer, self.levels]), torch.cat([self.levels, outer])
        reached = (begins[:, None] <= high) & (ends[:, None] >= low)
        return (self.slopes.abs()[:, None] * reached).amax(0)


@dataclass(frozen=True, eq=False, kw_only=True)
class MaxNonlinearity(Nonlinearity):
    """The largest of each group of units, or the smallest."""

    members: Tensor  # (G, R) the units of each group of the flat result; one may be there twice
    smallest: bool = False
    places: Operation | None = None  # identifies each group's winner faster than a comparison

    def apply(self, argument: Tensor, out: Tensor | None = None) -> Tensor:
        """The operation, or the same by columns where that is slow."""
        if not backend_of(argument.device).slow_windows or self.members.shape[1] > _SMALL_WINDOW:
            return self.operation(argument)
        pick = torch.minimum if self.smallest else torch.maximum
        return reduce(pick, self.groups.columns(self._flat(argument))).contiguous()

    @cached_property
    def groups(self) -> Groups:
        """The groups in the shape of the result."""
        example = self.members.new_zeros((1, *self.shape), dtype=torch.float64)
        shape = tuple(self.operation(example).shape[1:])
        places = self.places
        if places is None or self.members.shape[1] <= _SMALL_WINDOW:
            return Groups(self.members, shape)
        return Groups(
            self.members, shape, lambda z: places(z.view(-1, *self.shape)).to(torch.int32)
        )

    def functions(
        self, z: Tensor, error: Tensor, low: Tensor, high: Tensor, signs: Signs | None = None
    ) -> Functions | None:
        if self.members.shape[1] > 2:
            return None
        first, second = self.members[:, 0], self.members[:, -1]
        group = torch.arange(first.shape[0], device=first.device)
        return Functions.differences(z, first, second, group, error, low, high)

    def winners(self, z: Tensor, error: Tensor | float = 0.0) -> Tensor:
        """Which units of each group may be its winner at z (B, *shape): (B, G, R)."""
        flat, members = self._flat(z), self.members.view(-1)
        values = flat.index_select(1, members).view(len(flat), *self.members.shape)
        slack = error[..., self.members] if isinstance(error, Tensor) else error
        values = -values if self.smallest else values
        return values + slack >= (values - slack).amax(2, keepdim=True)

    def pieces(self, z: Tensor, error: Tensor | float = 0.0) -> Tensor:
        """The winner of each group, the first of several: (B, G)."""
        place = self.winners(z, error).to(torch.int8).argmax(2)
        return self.members.expand(z.shape[0], -1, -1).gather(2, place[..., None])[..., 0].int()

    def apart(self, first: Tensor, second: Tensor, error: Tensor | float) -> Tensor:
        return ~(self.winners(first, error) & self.winners(second, error)).any(2)

    def decided(self, z: Tensor, near: Tensor | float, far: Tensor | float) -> Tensor:
        return (self.winners(z, near) == self.winners(z, far)).all(2)

    def bound(self, bound: Bound, low: Tensor, high: Tensor) -> Bound:
        """The result is monotone in every unit; only the errors of units that can win count."""
        magnitude, own = _end_moduli(self, low, high), bound.error.flatten(1)
        low, high = (-high, -low) if self.smallest else (low, high)
        least = (low - own)[:, self.members].amax(2, keepdim=True)
        can_win = (high + own)[:, self.members] >= least
        error = (own[:, self.members] * can_win).amax(2)
        return Bound(magnitude, error.view(magnitude.shape))


def _end_moduli(layer: Nonlinearity, low: Tensor, high: Tensor) -> Tensor:
    """The largest moduli (R, ...) of a monotone operation between the ends (R, n) of its units."""
    ends = layer.apply(torch.stack([low, high]).view(-1, *layer.shape)).abs()
    return ends.view(2, -1, *ends.shape[1:]).amax(0)


@dataclass(frozen=True, eq=False, kw_only=True)
class SortNonlinearity(Nonlinearity):
    """Each group of units in order, at the places of its units; members: (G, R) these units."""

    members: Tensor

    @property
    def pairs(self) -> tuple[Tensor, Tensor]:
        """Every two units of a group, (P,) each."""
        size = self.members.shape[1]
        i, j = torch.triu_indices(size, size, 1, device=self.members.device)
        return self.members[:, i].flatten(), self.members[:, j].flatten()

    def functions(
        self, z: Tensor, error: Tensor, low: Tensor, high: Tensor, signs: Signs | None = None
    ) -> Functions:
        first, second = self.pairs
        return Functions.differences(z, first, second, first, error, low, high)

    def pieces(self, z: Tensor, error: Tensor | float = 0.0) -> Tensor:
        """For every two units of a group whether the first is the larger: (B, P)."""
        flat, (first, second) = self._flat(z), self.pairs
        slack = error[..., first] + error[..., second] if torch.is_tensor(error) else 2 * error
        return (flat[:, first] - flat[:, second] > slack).to(torch.int8)

    def bound(self, bound: Bound, low: Tensor, high: Tensor) -> Bound:
        magnitude, error = _end_moduli(self, low, high), bound.error.flatten(1).clone()
        error[:, self.members] = error[:, self.members].amax(2, keepdim=True)
        return Bound(magnitude, error.view(magnitude.shape))


@dataclass(frozen=True, eq=False, kw_only=True)
class CustomNonlinearity(Nonlinearity):
    """An operation that is affine on every region between the zeros of the source's units."""

    def functions(
        self, z: Tensor, error: Tensor, low: Tensor, high: Tensor, signs: Signs | None = None
    ) -> Functions:
        return Functions.crossing(z, torch.zeros_like(error)[None], error, low, high)

    def pieces(self, z: Tensor, error: Tensor | float = 0.0) -> Tensor:
        """Whether each function is positive: (B, n)."""
        return (self._flat(z) > error).to(torch.int8)

    def bound(self, bound: Bound, low: Tensor, high: Tensor) -> Bound:
        """The bound is measured: nothing is known of the operation but that it can be run."""
        return measured_bound(self.apply, bound)


def choose(parts: Tensor) -> Tensor:
    """Of parts (B, 3, ...), the second where the first is positive, else the third: (B, ...)."""
    by, true, false = parts.unbind(1)
    return torch.where(by > 0, true, false)


@dataclass(frozen=True, eq=False, kw_only=True)
class ChoiceNonlinearity(CustomNonlinearity):
    """One of two values, by the sign of the source; the argument is that of ``choose``."""

    steepness: Tensor  # (n,) how much the two values differ at most, per unit of the source

    def bound(self, bound: Bound, low: Tensor, high: Tensor) -> Bound:
        """Only a value that is chosen somewhere counts; rounding may make the choice wrong."""
        rows = bound.error.shape[0]
        (_, *magnitude), (by, *error) = (part.reshape(rows, 3, -1).unbind(1) for part in bound)
        visited = torch.stack([high.view(-1, by.shape[1]) >= -by, low.view(-1, by.shape[1]) <= by])
        largest = (torch.stack(magnitude) * visited).amax(0)
        off = (torch.stack(error) * visited).amax(0) + self.steepness * by * visited.all(0)
        return Bound(largest.view(-1, *self.shape), off.view(-1, *self.shape))


def apply_curve(z: Tensor, curve: Curve) -> Tensor:
    """A smooth function, entry by entry, with its own slope for a derivative."""
    result: Tensor = _Applied.apply(z, curve)  # type: ignore[no-untyped-call]
    return result


class _Applied(torch.autograd.Function):
    """Differentiating the formula of a value may give NaN where the slope is a number."""

    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor, curve: Curve) -> Tensor:
        return curve.value(z)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        z, ctx.curve = inputs
        ctx.save_for_backward(z)
        ctx.save_for_forward(z)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (z,) = ctx.saved_tensors
        return gradient * ctx.curve.slope(z), None

    @staticmethod
    def jvp(ctx: Any, along: Tensor, *rest: Any) -> Tensor:
        (z,) = ctx.saved_tensors
        curve: Curve = ctx.curve
        return along * curve.slope(z)


@dataclass(frozen=True, eq=False, kw_only=True)
class SmoothScalar(Nonlinearity):
    """A smooth function, applied to n units; single: in single precision, without derivatives."""

    curve: Curve
    single: bool = False

    def apply(self, argument: Tensor, out: Tensor | None = None) -> Tensor:
        if self.single:
            return self.curve.value(argument.float()).to(argument)
        return apply_curve(argument, self.curve)

    @property
    def eps(self) -> float:
        """The unit of the errors of results."""
        return SINGLE_EPS if self.single else EPS

    @property
    def rounding(self) -> float:
        """The error of a result in units of ``eps``, relative to the result."""
        return 0.0 if self.single else self.curve.rounding

    @property
    def noise(self) -> float:
        """The error of a result in units of ``eps``, relative to the argument, beside that."""
        return (self.curve.single_noise or 0.0) if self.single else self.curve.noise

    def functions(self, *given: Any) -> NoReturn:
        raise TypeError(
            f"{self.name} ({self.target}) is smooth and has no linear pieces: it is replaced by "
            "pieces with smooth=1e-3"
        )

    def pieces(self, *given: Any) -> NoReturn:
        self.functions()

    def bound(self, bound: Bound, low: Tensor, high: Tensor) -> Bound:
        low, high = (end.view(1, *self.shape) for end in (low, high))
        magnitude = self.curve.value_bound(low, high)
        error = self.curve.slope_bound(low, high) * bound.error
        noise = self.noise * torch.maximum(low.abs(), high.abs())
        return Bound(magnitude, error + self.eps * (self.rounding * magnitude + noise))

    def to(self, device: torch.device, move: Callable[[Tensor], Tensor]) -> Nonlinearity:
        curve = self.curve.to(device)
        operation = Operation(apply_curve, (Operation.VARIABLE, curve), {})
        return replace(self, curve=curve, operation=operation)
