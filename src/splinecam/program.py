"""A captured network: affine stages, each but the last ended by a piecewise-linear cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, ClassVar

import torch
from torch import Tensor

from splinecam.ops import Affine, Bound, affine_bound
from splinecam.predicates import EPS

__all__ = ["Cut", "Program", "Ref", "Rows", "Size", "Stage", "Step"]


@dataclass(frozen=True)
class Ref:
    """A value of the running program, by name."""

    name: str


@dataclass(frozen=True)
class Size:
    """A number that depends on the size of the batch."""

    rule: Callable[[int], Any]

    def at(self, batch: int) -> Any:
        return self.rule(batch)


class _Device:
    """Stands for the device that the program runs on."""


DEVICE = _Device()


def resolve(value: Any, env: Mapping[str, Any], batch: int, device: torch.device) -> Any:
    """An argument as it is written in a step, with everything in it looked up."""
    kind = type(value)
    if kind is Ref:
        return env[value.name]
    if kind is Size:
        return value.at(batch)
    if kind is _Device:
        return device
    if kind in (list, tuple):
        return [resolve(item, env, batch, device) for item in value]
    return value


def map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same nested lists and dictionaries with every tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: map_tensors(item, change) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map_tensors(item, change) for item in value)
    return value


@dataclass(frozen=True)
class Step:
    """One call of the program; ``rule`` is None where the result does not depend on the input."""

    name: str
    run: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    arg_names: tuple[str, ...]
    rule: Affine | None
    roles: tuple[tuple[str, ...], dict[str, str]]
    frees: tuple[str, ...] = ()

    def call(self, env: Mapping[str, Any], batch: int, device: torch.device) -> Any:
        args = [resolve(item, env, batch, device) for item in self.args]
        kwargs = {key: resolve(item, env, batch, device) for key, item in self.kwargs.items()}
        return self.run(*args, **kwargs)

    def bound(self, env: Mapping[str, Any], device: torch.device) -> Any:
        args = [resolve(item, env, 1, device) for item in self.args]
        kwargs = {key: resolve(item, env, 1, device) for key, item in self.kwargs.items()}
        if self.rule is None:
            return self.run(*args, **kwargs)
        if self.rule.bound is None:
            return affine_bound(self.rule, self.run, args, kwargs, self.roles)
        call = dict(zip(self.arg_names, args, strict=False)) | kwargs
        call |= {key: _as_bound(call[key]) for key in self.rule.data if key in call}
        call["run"] = partial(self.run, *map(_magnitude, args), **kwargs)
        return _bounds_of(self.rule.bound(call))


def _magnitude(value: Any) -> Any:
    return value.magnitude if isinstance(value, Bound) else value


def _as_bound(value: Any) -> Any:
    if isinstance(value, Tensor):
        return Bound(value.abs(), torch.zeros_like(value))
    return value


def _bounds_of(value: Any) -> Any:
    if isinstance(value[0], Tensor):
        return Bound(*value)
    return tuple(_bounds_of(item) for item in value)


@dataclass(frozen=True)
class Rows:
    """Where a value keeps the batch: in dimension ``dim``, ``each`` entries per point."""

    dim: int = 0
    each: int = 1

    @property
    def plain(self) -> bool:
        return self.dim == 0 and self.each == 1

    def out(self, x: Tensor) -> Tensor:
        """Bring the batch to the front: ``(.., B * each, ..)`` becomes ``(B, .., each, ..)``."""
        if self.each != 1:
            x = torch.unflatten(x, self.dim, (-1, self.each))
        return x.movedim(self.dim, 0)

    def back(self, x: Tensor) -> Tensor:
        """Undo :meth:`out`."""
        x = x.movedim(0, self.dim)
        return x.flatten(self.dim, self.dim + 1) if self.each != 1 else x


@dataclass(frozen=True, eq=False)
class Cut:
    """A piecewise-linear function of one variable, applied to the n units of a live value.

    ``levels`` is ``(K, n)``: the knots of every unit, ascending. A unit with fewer knots than
    others has ``inf`` in the last places. ``slopes`` is ``(K + 1, n)``.
    """

    name: str
    target: str
    source: str
    result: str
    shape: tuple[int, ...]
    levels: Tensor
    slopes: Tensor
    run: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    rows: Rows = Rows()
    exact: bool = True
    VARIABLE: ClassVar[Ref] = Ref("z")

    def apply(self, z: Tensor) -> Tensor:
        """The function itself on ``(B, *shape)``."""
        env = {self.VARIABLE.name: z if self.rows.plain else self.rows.back(z)}
        args = [resolve(item, env, z.shape[0], z.device) for item in self.args]
        kwargs = {
            key: resolve(item, env, z.shape[0], z.device) for key, item in self.kwargs.items()
        }
        result: Tensor = self.run(*args, **kwargs)
        return result if self.rows.plain else self.rows.out(result)

    def pieces(self, z: Tensor, error: Tensor | float = 0.0) -> Tensor:
        """How many levels lie below each unit: int8 ``(B, n)`` for ``z`` of ``(B, *shape)``.

        A unit above a level by no more than its rounding ``error`` counts as at the level, so that
        one which is zero on a whole region is on one piece there.
        """
        flat = z.reshape(z.shape[0], self.levels.shape[1])
        count = torch.zeros(flat.shape, dtype=torch.int8, device=z.device)
        for level in self.levels:
            count += level + error < flat
        return count

    def bound(self, bound: Bound, low: Tensor, high: Tensor) -> Bound:
        """The result's bound, when each unit stays between ``low`` and ``high``, both ``(n,)``."""
        low, high = low.flatten(), high.flatten()
        ends = torch.stack([low, high, *self.levels.clamp(low, high)])
        magnitude = self.apply(ends.view(-1, *self.shape)).abs().amax(0, keepdim=True)
        error = bound.error * self._steepest(low, high).view(1, *self.shape)
        return Bound(magnitude, error if self.exact else error + EPS * magnitude)

    def _steepest(self, low: Tensor, high: Tensor) -> Tensor:
        """The largest slope of the pieces that each unit visits: a dead unit passes no error on."""
        outer = self.levels.new_full((1, low.shape[0]), torch.inf)
        begins, ends = torch.cat([-outer, self.levels]), torch.cat([self.levels, outer])
        visited = (begins <= high) & (ends >= low)
        return (self.slopes.abs() * visited).amax(0)

    def to(self, device: torch.device, move: Callable[[Tensor], Tensor]) -> Cut:
        return replace(
            self,
            levels=self.levels.to(device),
            slopes=self.slopes.to(device),
            args=map_tensors(self.args, move),
            kwargs=map_tensors(self.kwargs, move),
        )


@dataclass(frozen=True)
class Stage:
    """An affine part of the network and the cut that ends it (None for the last).

    ``live_out`` is what later stages need, and the cut's source; of the last stage, the output.
    """

    live_in: tuple[str, ...]
    live_out: tuple[str, ...]
    cut: Cut | None
    steps: tuple[Step, ...] = ()


class Program:
    """A network in float64, ready to be run stage by stage on any number of points.

    >>> from torch import nn
    >>> from splinecam.capture import capture
    >>> program = capture(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)), (2,))
    >>> program(torch.zeros(5, 2)).shape
    torch.Size([5, 1])
    """

    def __init__(
        self,
        *,
        input_shape: tuple[int, ...],
        output_shape: tuple[int, ...],
        input_name: str,
        output_name: str,
        stages: tuple[Stage, ...],
        stripped: str | None,
        final: Callable[[Tensor], Tensor] | None,
        device: torch.device,
    ) -> None:
        self.input_shape = input_shape
        self.output_shape = output_shape
        self.input_name = input_name
        self.output_name = output_name
        self.stages = stages
        self.stripped = stripped
        self.final = final  # what was stripped: the model's output is final(self(x))
        self.device = device

    def __repr__(self) -> str:
        cuts = len(self.stages) - 1
        units = sum(prod(stage.cut.shape) for stage in self.stages if stage.cut)
        return f"Program({self.input_shape} -> {self.output_shape}, {cuts} cuts, {units} units)"

    def to(self, device: torch.device | str) -> Program:
        """The same program with its constants on another device."""
        device = torch.device(device)
        moved: dict[int, Tensor] = {}

        def move(constant: Tensor) -> Tensor:
            return moved.setdefault(id(constant), constant.to(device))

        stages = tuple(
            replace(
                stage,
                cut=stage.cut and stage.cut.to(device, move),
                steps=tuple(
                    replace(
                        step,
                        args=map_tensors(step.args, move),
                        kwargs=map_tensors(step.kwargs, move),
                    )
                    for step in stage.steps
                ),
            )
            for stage in self.stages
        )
        fields = dict(vars(self), stages=stages, device=device)
        return Program(**fields)

    def advance(self, i: int, live: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run the affine steps of stage i on a batch; results may be views of what is given.

        Every value of ``live`` and of the result is ``(B, ...)``.
        """
        stage = self.stages[i]
        env: dict[str, Any] = {name: live[name] for name in stage.live_in}
        batch = next(iter(env.values())).shape[0]
        for step in stage.steps:
            env[step.name] = step.call(env, batch, self.device)
            for name in step.frees:
                del env[name]
        return {name: env[name] for name in stage.live_out}

    def bounds(self, i: int, live: Mapping[str, Bound]) -> dict[str, Bound]:
        """Bounds on the magnitudes and the rounding errors of stage i's results."""
        stage = self.stages[i]
        env: dict[str, Any] = {name: live[name] for name in stage.live_in}
        for step in stage.steps:
            env[step.name] = step.bound(env, self.device)
            for name in step.frees:
                del env[name]
        return {name: env[name] for name in stage.live_out}

    def _run(self, x: Tensor, seen: Callable[[Cut, Tensor], None] | None = None) -> Tensor:
        live = {self.input_name: x.to(device=self.device, dtype=torch.float64)}
        for i, stage in enumerate(self.stages):
            live = self.advance(i, live)
            if stage.cut is not None:
                z = live[stage.cut.source]
                if seen is not None:
                    seen(stage.cut, z)
                live[stage.cut.result] = stage.cut.apply(z)
        return live[self.output_name]

    def __call__(self, x: Tensor) -> Tensor:
        """The network on ``(B, *input_shape)`` in float64: ``(B, *output_shape)``."""
        return self._run(x)

    def patterns(self, x: Tensor, errors: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        """Which piece every unit of every cut is in: cut name -> int8 ``(B, n)``.

        ``errors``: cut name -> rounding error ``(n,)``, see :meth:`Cut.pieces`.
        """
        found: dict[str, Tensor] = {}
        error = errors or {}

        def note(cut: Cut, z: Tensor) -> None:
            found[cut.name] = cut.pieces(z, error.get(cut.name, 0.0))

        self._run(x, note)
        return found
