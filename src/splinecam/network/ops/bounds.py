"""Rounding-error bounds: an affine operation is run on the moduli of its coefficients.

An operation that can be run, but whose coefficients are not known, is measured at random points.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from splinecam._util.tolerances import EPS
from splinecam.network.ops.registry import AffineRule

# Between these the sum of squares of errors is as precise as other numbers.
_LEAST_SQUARE, _LARGEST_SQUARE = 2.0**-900, 2.0**1000

_PROBES = 24
_SMALLEST = -8.0  # as a power of two: many functions have knots near zero, so some points lie there
_COLUMNS = 1024  # so many coefficients of an unknown operation are found at once
_STRIDE = 2.0**20  # measured over this many rounding errors: far above rounding, and still tiny


class Bound(NamedTuple):
    """Bounds on a live value and its rounding error, (R, *shape) each; R: segments, or 1."""

    magnitude: Tensor
    error: Tensor


def role_of(rule: AffineRule, name: str) -> str:
    """The role of an argument in an affine operation: add, multiply, offset or plain."""
    if name in rule.product or name in rule.factor:
        return "multiply"
    if name in rule.data:
        return "add"
    return "offset" if name in rule.offset else "plain"


def _map(value: Any, role: str, change: Callable[[Any, str], Any]) -> Any:
    """An argument with all numbers changed that are not plain."""
    if isinstance(value, Bound):
        return change(value, role)
    if isinstance(value, (list, tuple)):
        return [_map(item, role, change) for item in value]
    if role == "plain" or isinstance(value, bool) or not isinstance(value, (int, float, Tensor)):
        return value
    return change(value, role)


def _modulus(value: Any, role: str) -> Any:
    """An argument for the bound on magnitudes."""
    if isinstance(value, Bound):
        return value.magnitude
    return value.to(torch.float64).abs() if isinstance(value, Tensor) else abs(value)


def _error(value: Any, role: str, squared: bool) -> Any:
    """An argument for the bound on errors: constants that are added carry no error."""
    if isinstance(value, Bound):
        return value.error.square() if squared else value.error
    if role != "multiply":
        return torch.zeros_like(value, dtype=torch.float64) if isinstance(value, Tensor) else 0
    if isinstance(value, Tensor):
        value = value.to(torch.float64)
    return value * value if squared else abs(value)


def _has_factor(value: Any, role: str) -> bool:
    if role != "multiply":
        return False
    if isinstance(value, (list, tuple)) and not isinstance(value, Bound):
        return any(_has_factor(item, role) for item in value)
    return isinstance(value, Tensor)


Roles = tuple[tuple[str, ...], dict[str, str]]
"""The roles of the positional and of the named arguments of a call, see ``role_of``."""


class AffineCall(NamedTuple):
    """A call of an affine operation."""

    rule: AffineRule
    run: Callable[..., Any]
    args: list[Any]
    kwargs: dict[str, Any]
    roles: Roles

    def changed(self, change: Callable[[Any, str], Any]) -> Any:
        """The result with all arguments changed according to their roles, and without signs."""
        positional, named = self.roles
        new = [_map(a, role, change) for a, role in zip(self.args, positional, strict=True)]
        others = {key: _map(a, named[key], change) for key, a in self.kwargs.items()}
        return (self.rule.absolute or self.run)(*new, **others)

    def bound(self) -> Any:
        """The bounds of the result from the bounds of the arguments.

        With coefficients W and offsets b: magnitude ``|W| m + |b|``, error ``sqrt(W^2
        e^2)`` plus one rounding of that magnitude. Without coefficients the operation
        itself is run on both.
        """
        positional, named = self.roles
        squared = any(_has_factor(a, r) for a, r in zip(self.args, positional, strict=True))
        squared = squared or any(_has_factor(a, named[k]) for k, a in self.kwargs.items())
        magnitude = self.changed(_modulus)
        error = self.changed(partial(_error, squared=squared))
        total = partial(self.changed, partial(_error, squared=False))
        if isinstance(magnitude, Tensor):
            return self._rounded(magnitude, root_of_squares(error, total) if squared else error)
        if squared:
            error = [
                root_of_squares(e, partial(lambda k: total()[k], k)) for k, e in enumerate(error)
            ]
        return tuple(self._rounded(m, e) for m, e in zip(magnitude, error, strict=True))

    def _rounded(self, magnitude: Tensor, error: Tensor) -> Bound:
        magnitude, error = magnitude.clamp_min(0), error.clamp_min(0)
        exact = self.rule.exact or self.rule.reshapes
        return Bound(magnitude, error if exact else error + EPS * magnitude)

    def modulus(self) -> Any:
        """The result with the modulus of every coefficient, offset and argument."""
        found = self.changed(_modulus)
        if isinstance(found, Tensor):
            return found.clamp_min(0)
        return tuple(part.clamp_min(0) for part in found)

    def most_terms(self) -> int:
        """How many products are added up at most in one result, where activations are ones."""
        ones = self.changed(lambda x, _: (x != 0).double() if isinstance(x, Tensor) else 1)
        return int(ones.amax())


def root_of_squares(squares: Tensor, total: Callable[[], Tensor]) -> Tensor:
    """The roots of sums of squares of errors; where these overflow or vanish, the larger total."""
    normal = (squares > _LEAST_SQUARE) & (squares < _LARGEST_SQUARE)
    root = squares.clamp_min(0).sqrt()
    return root if bool(normal.all()) else torch.where(normal, root, total())


def measured_modulus(run: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """An operation at x >= 0, (B, ...), with the moduli of coefficients that are found by runs."""
    units = x[0].numel()
    offset = run(torch.zeros_like(x[:1]))
    found = offset.abs().expand(x.shape[0], *offset.shape[1:]).flatten(1).clone()
    flat = x.reshape(x.shape[0], units)
    for some in torch.split(torch.arange(units, device=x.device), _COLUMNS):
        single = x.new_zeros((len(some), units))
        single[torch.arange(len(some), device=x.device), some] = 1
        columns = run(single.view(-1, *x.shape[1:])) - offset
        found += flat[:, some] @ columns.flatten(1).abs()
    return found.view(-1, *offset.shape[1:])


def measured_bound(run: Callable[[Tensor], Tensor], bound: Bound) -> Bound:
    """The bounds of a result from the argument's bounds, (R, ...), measured at random points.

    Steps as large as the argument's errors e, with random signs, change a result with the
    coefficients W by ``sqrt(W^2 e^2)`` on average. Two equal steps differ by rounding alone.
    """
    generator = torch.Generator().manual_seed(0)
    shape = (_PROBES, 1, *bound.magnitude.shape[1:])
    x, signs = torch.randn((2, *shape), generator=generator, dtype=torch.float64).to(bound.error)
    x[0], x[1] = 1, -1  # where sums are largest
    power = torch.linspace(-_SMALLEST, _SMALLEST, _PROBES, dtype=torch.float64).clamp(max=0).to(x)
    scale = torch.exp2(power).view(-1, *[1] * (x.dim() - 1))
    x = scale * x.clamp(-1, 1) * bound.magnitude
    step = _STRIDE * signs.sign() * bound.error
    made = (run((x + k * step).flatten(0, 1)) for k in range(3))
    first, second, third = (value.view(_PROBES, -1, *value.shape[1:]) for value in made)
    magnitude = first.abs().amax(0)
    error = 2 * (second - first).abs().amax(0) / _STRIDE
    # Not the largest of them: a step may cross a border, where the slope changes.
    rounding = (first - 2 * second + third).abs().kthvalue(3 * _PROBES // 4, 0).values
    return Bound(magnitude, error + torch.maximum(rounding, EPS * magnitude))
