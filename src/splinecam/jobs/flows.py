"""The verbs for networks along a flow: check_barrier and check_decrease."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from splinecam.errors import DomainError
from splinecam.files.formulas import Formula, Polynomial, factors_of, output
from splinecam.geometry.domain import Domain
from splinecam.jobs.answering import check
from splinecam.jobs.partitioning import partition
from splinecam.network.capture.capturing import Both
from splinecam.partitions.request import Model, Options, require_domain
from splinecam.questions.flow import BarrierCheck, flow_across
from splinecam.questions.preimage import PropertyCheck

Field = tuple[Polynomial | float, ...] | nn.Module

_TOLERANCES = ("1%", "0.1%", "0.01%")  # of polynomial steps, until they decide


class _Polynomials(nn.Module):
    """Polynomials in the inputs as a network of functions of one variable."""

    def __init__(self, polynomials: Sequence[Polynomial | float], inputs: int) -> None:
        super().__init__()
        self._terms = [(Polynomial({}) + each)._term for each in polynomials]
        self._factors = {key: Counter(factors_of(key)) for term in self._terms for key in term}
        used = set[int]().union(*self._factors.values())
        if len(polynomials) != inputs or not used.issubset(range(inputs)):
            each = f"a polynomial in the inputs for each of them, which are {inputs}"
            raise ValueError(f"a step has {each}; here is {polynomials!r:.60}")

    def forward(self, x: Tensor) -> Tensor:
        state, known = x.flatten(1), {}
        for key, powers in self._factors.items():
            factors = [state[:, i] ** n if n > 1 else state[:, i] for i, n in powers.items()]
            known[key] = reduce(_product, factors) if factors else torch.ones_like(state[:, 0])
        rows = [[float(c) * known[key] for key, c in term.items()] for term in self._terms]
        return torch.stack([sum(row, 0 * state[:, 0]) for row in rows], 1).view_as(x)


def _product(a: Tensor, b: Tensor) -> Tensor:
    return ((a + b) ** 2 - (a - b) ** 2) / 4


def _module(model: Any, name: str) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise TypeError(f"give {name} as a module, such as that of sc.load_model(path)")
    return model


def _require_condition(found: Any, name: str) -> None:
    if not isinstance(found, Formula | None):
        raise TypeError(f"{name}= is a condition such as sc.input(0) ** 2 > 1, not {found!r:.60}")


def _components(field: Any, name: str) -> Sequence[Polynomial | float]:
    if not isinstance(field, tuple) or not all(
        isinstance(each, Polynomial | float | int) for each in field
    ):
        raise TypeError(
            f"a {name} is a network, or a tuple of polynomials such as (y, -x) with "
            f"x, y = sc.input(0), sc.input(1); here it is {field!r:.60}"
        )
    return field


def _velocity(field: Any, first: int) -> Sequence[Any]:
    """The components of a field; first: the first output of a network that is one."""
    if isinstance(field, nn.Module):
        return output(first), output(first + 1)
    found = _components(field, "field")
    if len(found) != 2:
        raise ValueError(f"a field has two components, and here are {len(found)}")
    return found


def check_barrier(
    model: Model,
    domain: Domain,
    field: Field | list[Field],
    *,
    safe: Formula | None = None,
    unsafe: Formula | None = None,
    **options: Unpack[Options],
) -> BarrierCheck:
    """Whether the set on which a network is at least zero is safe, and no flow leaves it.

    The flow is judged on the curves on which the network is zero: it must not fall there along the
    field, on either side of a kink. Isolated zeros are not judged.

    model, options: as for ``partition``, of a network with two inputs and one output. domain: of
    the inputs. field: the velocity, as two polynomials in ``sc.input(0)`` and ``sc.input(1)``, or a
    piecewise-linear network; or a list of fields, of which one may be chosen at each point. For a
    control on which a field depends linearly, these are the fields at the corners of its bounds.
    safe, unsafe: conditions on inputs of which the set is to have all, and none.

    >>> import splinecam as sc
    >>> model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> x, y = sc.input(0), sc.input(1)
    >>> found = sc.check_barrier(model, Domain.box(-1, 1), (y, -x), unsafe=x + y**2 < 0)
    >>> found.status in ("holds", "violated", "unresolved")
    True
    """
    for name, condition in (("safe", safe), ("unsafe", unsafe)):
        _require_condition(condition, name)
    fields = field if isinstance(field, list) else [field]
    if not fields:
        raise ValueError("the list of fields is empty: give those of which one may be chosen")
    whole, count, derivatives = model, 1, []
    for each in fields:
        derivatives.append(output(0).along(_velocity(each, count)))
        if isinstance(each, nn.Module):
            whole, count = Both(_module(whole, "the network"), each), count + 2
    only: Options = {**options, "refine": {"level": 0.0, "output": 0}}
    part = partition(whole, domain, **only)
    if part._n_out != count:
        fault = "a barrier has one output, and a network that is a field has two"
        raise DomainError(f"{fault}: expected {count} in all, and here are {part._n_out}.")
    flow = flow_across(part, derivatives)
    kept = None if safe is None else check(model, domain, safe & (output(0) < 0), **options)
    out = None if unsafe is None else check(model, domain, unsafe & (output(0) >= 0), **options)
    return BarrierCheck(flow, kept, out)


def check_decrease(
    model: Model,
    domain: Domain,
    step: Field,
    *,
    where: Formula | None = None,
    by: float = 0.0,
    **options: Unpack[Options],
) -> PropertyCheck:
    """Whether a network decreases in a step of a system: V(step(x)) <= V(x) - by.

    The result is that of ``sc.check``: where it does not hold is unsafe. Its partition is that of
    the outputs V(x) and V(step(x)). Polynomials are replaced by piecewise-linear functions, closer
    and closer until the verdict is certain; with ``smooth=``, just so close.

    model, domain, options: as for ``partition``, of a network V with one output. step: the next
    state, a piecewise-linear network such as the closed loop with a controller; or a tuple of
    polynomials in the inputs, one for each of them. where: a condition on inputs, such as that they
    are far enough from the equilibrium. by: how much it is to decrease.

    >>> import splinecam as sc
    >>> V = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> step = nn.Linear(2, 2)
    >>> found = sc.check_decrease(V, Domain.box(-1, 1), step, where=sc.input(0) ** 2 >= 0.1)
    >>> found.status in ("holds", "violated", "unresolved")
    True
    """
    _require_condition(where, "where")
    V = _module(model, "V")
    tolerances: tuple[Any, ...] = (options.get("smooth"),)
    if isinstance(step, tuple):
        require_domain(domain)
        step = _Polynomials(_components(step, "step"), prod(domain.input_shape))
        tolerances = _TOLERANCES if tolerances == (None,) else tolerances
    both = Both(V, nn.Sequential(_module(step, "the step"), V))
    rises = output(1) > output(0) - by
    for tolerance in tolerances:
        only: Options = {**options, "smooth": tolerance}
        found = check(both, domain, rises if where is None else where & rises, **only)
        if (count := found.preimage.partition._n_out // 2) != 1:
            raise DomainError(f"V has one output, and this network has {count}.")
        if found.status != "unresolved":
            break
    return found
