"""How values of a running program are named, sized and laid out; calls with one variable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only


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


def size_of(each: int, more: int = 0) -> Size:
    """``each`` times the size of the batch, which may be a symbol, plus ``more``."""
    return Size(partial(_multiple, each, more))


def _multiple(each: int, more: int, batch: Any) -> Any:
    return each * batch + more if more else each * batch


MANY_POINTS = 2_147_483_629
"""The batch of tensors without data that tell shapes: a prime number, larger than any other size.

Its multiples are the sizes that depend on the batch.
"""

Env = Mapping[str, Any]
"""The values of a running program by their names."""


def resolve(
    value: Any, env: Env, batch: Any, device: torch.device, dtype: torch.dtype = torch.float64
) -> Any:
    """An argument as it is written in a step, with everything in it looked up."""
    kind = type(value)
    if kind is Ref:
        return env[value.name]
    if kind is Size:
        return value.at(batch)
    if kind in (list, tuple):
        return [resolve(item, env, batch, device, dtype) for item in value]
    if kind is dict:
        return {key: resolve(item, env, batch, device, dtype) for key, item in value.items()}
    if kind is torch.device:  # any one stands for the device on which the program runs
        return device
    if kind is torch.dtype:  # and a floating-point type for the type in which it runs
        return dtype if value.is_floating_point else value
    return value


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
        if self.plain:
            return x
        if self.each != 1:
            x = torch.unflatten(x, self.dim, (-1, self.each))
        return x.movedim(self.dim, 0)

    def back(self, x: Tensor) -> Tensor:
        """Undo :meth:`out`."""
        if self.plain:
            return x
        x = x.movedim(0, self.dim)
        return x.flatten(self.dim, self.dim + 1) if self.each != 1 else x


_PLAIN = Rows()


@dataclass(frozen=True)
class Operation:
    """A call of one variable, with the batch in front; part: which of several results is meant."""

    run: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    rows: Rows = _PLAIN
    result_rows: Rows = _PLAIN
    part: int | None = None
    VARIABLE: ClassVar[Ref] = Ref("z")

    def __call__(self, z: Tensor) -> Tensor:
        env = {self.VARIABLE.name: z if self.rows.plain else self.rows.back(z)}
        args, kwargs = resolve((self.args, self.kwargs), env, z.shape[0], z.device, z.dtype)
        made = self.run(*args, **kwargs)
        result: Tensor = made if self.part is None else made[self.part]
        return result if self.result_rows.plain else self.result_rows.out(result)

    def moved(self, move: Callable[[Tensor], Tensor]) -> Operation:
        """The same with ``move`` applied to its constants."""
        args, kwargs = tree_map_only(Tensor, move, (self.args, self.kwargs))
        return replace(self, args=args, kwargs=kwargs)
