"""Register modules and operators of the user: affine ones, and those with given borders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from splinecam.network.ops.registry import target_name

T = TypeVar("T")
Cuts = Callable[..., Tensor] | None
Curvature = float | Callable[..., Any] | None


@dataclass(frozen=True)
class Table:
    """Functions of one variable: slopes (K + 1, C) before, between and after knots (K,)."""

    knots: Tensor
    slopes: Tensor
    period: float | None = None


@dataclass(frozen=True)
class CustomOp:
    """The rule of a registered target, which ``remove`` takes back, or the end of ``with``.

    The target is affine without any of the fields. cuts: affine functions whose zeros are the
    borders; table: from a module to its functions of one variable; curvature: a bound on the second
    derivative of a smooth function.
    """

    cuts: Cuts = None
    table: Callable[[Any], Table] | None = None
    curvature: Curvature = None

    def __call__(self, target: T) -> T:
        """Register the rule of a class or an operator, which is returned, as a decorator does."""
        table, key = _place(target)
        table[key] = self
        return target

    def remove(self) -> None:
        """Forget the rule; nothing happens if it is forgotten, or replaced, already."""
        tables: tuple[dict[Any, CustomOp], ...] = (_CLASSES, _OPERATORS)
        for table in tables:
            for key in [key for key, rule in table.items() if rule is self]:
                del table[key]

    def __enter__(self) -> CustomOp:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


_CLASSES: dict[type, CustomOp] = {}
_OPERATORS: dict[str, CustomOp] = {}


def register_op(
    target: Any = None, *, affine: bool = False, cuts: Cuts = None, curvature: Curvature = None
) -> CustomOp:
    """Tell ``partition`` how to treat a class of modules, or a custom operator.

    target: a subclass of ``nn.Module`` whose ``forward`` takes one tensor (B, ...), or an operator
    of one activation (``torch.ops.mylib.foo``, or ``"mylib::foo"``). Without it, the result is a
    decorator.
    affine: the output is an affine function of the input. cuts: otherwise, functions of the input
    whose zeros are the borders of the pieces: ``cuts(module, x)`` or, for an operator, ``cuts`` of
    the operator's own arguments; from (B, ...) to (B, m), affine in x. curvature: for a smooth
    function of one variable, applied to every entry, a bound on its second derivative: a number, or
    a function ``curvature(module, low, high)`` of tensors with the ends of intervals; for an
    operator, ``curvature(low, high)`` and then the operator's other arguments. Slopes come from
    autograd. Such a function is replaced by ``partition(..., smooth=1e-3)``.

    The result takes the registration back by ``.remove()``, or at the end of a ``with`` block. What
    is registered is tried out when a model is captured. A later registration of the same target
    replaces this one.

    >>> import splinecam as sc
    >>> class Fold(nn.Module):
    ...     def forward(self, x):
    ...         return torch.where(x > 1, 2 - x, x)
    >>> with sc.register_op(Fold, cuts=lambda module, x: x - 1):
    ...     len(sc.partition(Fold(), sc.Domain.box(0, 2), progress=False))
    4
    """
    if [affine, cuts is not None, curvature is not None].count(True) != 1:
        raise ValueError(
            "give either affine=True, or cuts= with the functions of the borders, or curvature= "
            "with a bound on the second derivative"
        )
    if cuts is not None and not callable(cuts):
        raise TypeError(f"cuts must be a function, not {type(cuts).__name__}")
    if curvature is not None:
        _check_curvature(curvature)
    rule = CustomOp(cuts, curvature=curvature)
    if target is not None:
        rule(target)
    return rule


def _check_curvature(curvature: Any) -> None:
    if callable(curvature):
        return
    if isinstance(curvature, bool) or not isinstance(curvature, (int, float)):
        kind = type(curvature).__name__
        raise TypeError(f"curvature must be a number or a function of intervals, not {kind}")
    if not 0 <= curvature < inf:
        raise ValueError(
            f"curvature must be a finite bound on the second derivative, not {curvature}: a "
            "function without one, such as sqrt at 0 or a step, cannot be replaced by pieces"
        )


def register_table(kind: type[Any], table: Callable[[Any], Table]) -> None:
    """Register modules that apply a function of one variable, or several, to every entry."""
    _CLASSES[kind] = CustomOp(table=table)


def registrations() -> tuple[Any, ...]:
    """All rules that are registered, to compare with those at another time."""
    return (*_CLASSES.items(), *_OPERATORS.items())


def rule_of_class(module: nn.Module) -> CustomOp | None:
    """The rule of a module's class, or of the class that its ``forward`` is inherited from."""
    kind = type(module)
    for base in kind.__mro__:
        if base in _CLASSES and kind.forward is base.forward:  # type: ignore[attr-defined]
            return _CLASSES[base]
    return None


def rule_of_operator(target: object) -> CustomOp | None:
    """The rule of an operator, or of one of its overloads."""
    if not _OPERATORS:
        return None
    full = target_name(target, overload=True)
    return _OPERATORS.get(full) or _OPERATORS.get(target_name(target))


def _place(target: Any) -> tuple[dict[Any, CustomOp], Any]:
    """The table that a target belongs to, and its key there."""
    if isinstance(target, type) and issubclass(target, nn.Module):
        if target is nn.Module:
            raise TypeError("every module is an nn.Module: register a class of your own")
        return _CLASSES, target
    if isinstance(target, nn.Module):
        kind = type(target).__name__
        raise TypeError(f"register the class {kind}, not one of its objects")
    target = getattr(target, "_opoverload", target)  # what torch.library.custom_op returns
    if isinstance(target, str):
        return _OPERATORS, _known(target)
    if isinstance(target, torch._ops.OpOverload):
        return _OPERATORS, target_name(target, overload=True)
    if isinstance(target, torch._ops.OpOverloadPacket):
        return _OPERATORS, str(target)
    raise TypeError(
        f"{target!r} cannot be registered: give a subclass of nn.Module, an operator such as "
        'torch.ops.mylib.foo, or its name "mylib::foo"'
    )


def _known(name: str) -> str:
    """The key of an operator given by its name."""
    space, found, rest = name.partition("::")
    first, _, second = rest.partition(".")
    packet = getattr(getattr(torch.ops, space, None), first, None) if found else None
    if packet is None or (second and not hasattr(packet, second)):
        raise ValueError(f'there is no operator {name!r}: define it first, and write "mylib::foo"')
    return name.replace("::", ".")
