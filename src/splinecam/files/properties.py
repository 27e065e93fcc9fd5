"""Properties of networks: boxes of inputs, and conditions on outputs that must not occur there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from splinecam._util.options import as_float64
from splinecam.errors import DomainError

_BLOCK = 1 << 22  # values of constraints that are computed at once


class Conjunction(NamedTuple):
    """The outputs y with ``A y <= b`` in all rows, or ``A y + C x <= b`` if C is there.

    A: ``(m, n_out)``; b: ``(m,)``; strict: ``(m,)``, whether a row means ``<``; C: ``(m, n_in)``,
    or None if inputs do not matter. All are float64, apart from ``strict``.

    Of polynomials, rows are ``A y + C x + Q p <= b`` with the products p of variables: Q: ``(m,
    P)``; factors: ``(P, degree)``, i for input i, ``-1 - k`` for output k, n_in for 1, and ``n_in +
    1 + k n_in + i`` for the slope of output k by input i. They are None if everything is linear,
    and C is there if they are.
    """

    A: Tensor
    b: Tensor
    strict: Tensor
    C: Tensor | None = None
    Q: Tensor | None = None
    factors: Tensor | None = None


@dataclass(frozen=True, eq=False, repr=False)
class OutputCondition:
    """A disjunction of conjunctions of linear or polynomial constraints on outputs and inputs.

    It is a sequence of its conjunctions. Called with outputs, it tells which of them satisfy it.

    A, b, strict, C, Q: the rows of all conjunctions below each other, as in ``Conjunction``, and
    factors as there. start: ``(k + 1,)``, the rows of conjunction j are ``start[j]`` to
    ``start[j + 1]``.

    >>> import torch
    >>> first_is_least = OutputCondition.of([([[1.0, -1.0, 0.0], [1.0, 0.0, -1.0]], [0.0, 0.0])])
    >>> first_is_least(torch.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 2.0]]))
    tensor([ True, False])
    """

    A: Tensor
    b: Tensor
    strict: Tensor
    C: Tensor | None
    start: Tensor
    Q: Tensor | None = None
    factors: Tensor | None = None

    @classmethod
    def of(cls, conjunctions: Sequence[tuple[Any, Any]]) -> OutputCondition:
        """The condition that one of several ``A y <= b`` holds.

        conjunctions: each as a pair ``(A, b)``.
        """
        pairs = [(as_float64(A, "A"), as_float64(b, "b")) for A, b in conjunctions]
        b = torch.cat([b for _, b in pairs])
        start = torch.tensor([0, *(len(b) for _, b in pairs)]).cumsum(0)
        strict = torch.zeros(len(b), dtype=torch.bool)
        return cls(torch.cat([A for A, _ in pairs]), b, strict, None, start)

    @property
    def about_inputs_alone(self) -> bool:
        """Whether no output occurs."""
        products = self.factors is not None and bool((self.factors < 0).any())
        return not products and not bool(self.A.ne(0).any())

    @property
    def about_slopes(self) -> bool:
        """Whether slopes of outputs occur."""
        if self.factors is None or self.C is None:
            return False
        return bool((self.factors > self.C.shape[1]).any())

    def __len__(self) -> int:
        return len(self.start) - 1

    def __getitem__(self, index: int) -> Conjunction:
        first, last = self.start[range(len(self))[index] :][:2].tolist()
        rows = slice(first, last)
        C, Q = (None if each is None else each[rows] for each in (self.C, self.Q))
        return Conjunction(self.A[rows], self.b[rows], self.strict[rows], C, Q, self.factors)

    def __iter__(self) -> Iterator[Conjunction]:
        return (self[index] for index in range(len(self)))

    def __call__(self, outputs: Any, inputs: Any = None, slopes: Any = None) -> Tensor:
        """Whether outputs satisfy the condition, ``(N,)``.

        outputs: ``(N, *output_shape)``;
        inputs: ``(N, *input_shape)``, for a condition on inputs, too;
        slopes: ``(N, n_out, n_in)``, for a condition on derivatives.
        """
        y = _batch(outputs, self.A.shape[1], "outputs")
        x = None
        if self.C is not None:
            if inputs is None:
                raise DomainError("The condition is about inputs, too: give them as inputs=.")
            x = _batch(inputs, self.C.shape[1], "inputs").to(y.device)
            if len(x) != len(y):
                raise DomainError(f"There are {len(y)} outputs, but {len(x)} inputs.")
        if self.about_slopes:
            if slopes is None:
                raise DomainError("The condition is about derivatives, too: give them as slopes=.")
            slopes = as_float64(slopes, "slopes").flatten(1).to(y.device)
        rows = max(1, _BLOCK // max(1, len(self.b)))
        blocks = [slice(k, k + rows) for k in range(0, len(y), rows)]
        found = [
            self._holds(y[k], *(None if each is None else each[k] for each in (x, slopes)))
            for k in blocks
        ]
        return torch.cat(found) if found else torch.zeros(0, dtype=torch.bool)

    def products(self, x: Tensor, y: Tensor, slopes: Tensor | None = None) -> Tensor:
        """The variables of each product, of inputs (N, n_in) and outputs (N, n_out), (N, P, d)."""
        given = [] if slopes is None else [slopes]
        known = torch.cat([x, torch.ones_like(x[:, :1]), *given, y.flip(1)], 1)
        factors = torch.zeros(0, 0).long() if self.factors is None else self.factors
        return known[:, factors.to(y.device)]

    def _holds(self, y: Tensor, x: Tensor | None, slopes: Tensor | None = None) -> Tensor:
        value = y @ self.A.T.to(y.device)
        if x is not None and self.C is not None:
            value += x @ self.C.T.to(y.device)
            if self.Q is not None:
                value += self.products(x, y, slopes).prod(2) @ self.Q.T.to(y.device)
        b, strict = self.b.to(y.device), self.strict.to(y.device)
        broken = torch.where(strict, value >= b, value > b) | value.isnan()
        member = torch.repeat_interleave(torch.arange(len(self)), self.start.diff()).to(y.device)
        count = y.new_zeros(len(y), len(self)).index_add_(1, member, broken.to(y.dtype))
        return (count == 0).any(1)

    def __repr__(self) -> str:
        kind = "linear" if self.factors is None else "polynomial"
        rows = _counted(len(self.b), f"{kind} constraint")
        about = "outputs" if self.C is None else "outputs and inputs"
        return f"OutputCondition({_counted(len(self), 'conjunction')} of {rows} on {about})"


@dataclass(frozen=True, eq=False)
class PropertyCase:
    """One box of inputs, and the condition that their outputs must not satisfy.

    lo, hi: of the input shape; bounds may be infinite.
    """

    lo: Tensor
    hi: Tensor
    condition: OutputCondition

    @property
    def box(self) -> tuple[Tensor, Tensor]:
        """``(lo, hi)``, as ``Domain.slice`` takes it."""
        return self.lo, self.hi


@dataclass(frozen=True, eq=False, repr=False)
class Property:
    """The question of whether an input of a box has an output that satisfies a condition.

    The condition describes what is unsafe: an input that satisfies it is a counterexample, and the
    property holds if there is none. Boxes are closed, also where a file says ``<``.

    cases: the boxes, each with its condition. input_shape, output_shape: the shapes in the file,
    flat in version 1. version: of the syntax. source: the name of the file. networks: the names in
    version 2; the outputs of several networks follow each other.
    """

    cases: tuple[PropertyCase, ...]
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    version: str
    source: str
    networks: tuple[str, ...] = ()

    @property
    def boxes(self) -> tuple[tuple[Tensor, Tensor], ...]:
        """``(lo, hi)`` of every case."""
        return tuple(case.box for case in self.cases)

    @property
    def box(self) -> tuple[Tensor, Tensor]:
        """``(lo, hi)`` of the only box; several of them are an error."""
        if len(self.cases) != 1:
            raise DomainError(
                f"{self.source} has {len(self.cases):,} boxes of inputs: choose one of .boxes, or "
                "one of .cases with its condition."
            )
        return self.cases[0].box

    @cached_property
    def condition(self) -> OutputCondition:
        """The condition that all boxes have in common; different ones are an error."""
        first = self.cases[0].condition if self.cases else None
        if first is None or any(case.condition is not first for case in self.cases):
            raise DomainError(
                f"The {len(self.cases):,} boxes of {self.source} have no condition in common: "
                "the conditions are in .cases."
            )
        return first

    def violated(self, inputs: Any, outputs: Any) -> Tensor:
        """Whether inputs with these outputs are counterexamples, ``(N,)``.

        inputs: ``(N, *input_shape)``; outputs: ``(N, *output_shape)``, the model's for them.
        """
        x = _batch(inputs, prod(self.input_shape), "inputs")
        y = _batch(outputs, prod(self.output_shape), "outputs")
        found = torch.zeros(len(x), dtype=torch.bool)
        for case in self.cases:
            lo, hi = case.lo.reshape(-1), case.hi.reshape(-1)
            inside = ((x >= lo) & (x <= hi)).all(1)
            if bool(inside.any()):
                found[inside] |= case.condition(y[inside], x[inside])
        return found

    def __repr__(self) -> str:
        conditions = {id(case.condition): case.condition for case in self.cases}
        about = repr(next(iter(conditions.values()))) if len(conditions) == 1 else ""
        text = about.removeprefix("OutputCondition(").removesuffix(")")
        shapes = f"inputs {self.input_shape}, outputs {self.output_shape}"
        if len(self.networks) > 1:
            shapes += f" of networks {', '.join(self.networks)}"
        unsafe = f"unsafe: {text}" if text else f"{len(conditions):,} conditions"
        return f"Property({self.source}: {shapes}, {_counted(len(self.cases), 'box')}, {unsafe})"


def _batch(values: Any, size: int, name: str) -> Tensor:
    """Inputs or outputs as float64 numbers ``(N, size)``."""
    found = as_float64(values, name)
    if found.ndim < 2 or prod(found.shape[1:]) != size:
        shape = tuple(found.shape)
        raise DomainError(
            f"{name} has shape {shape}; give a batch (N, *shape) of {size:,} numbers."
        )
    return found.flatten(1)


def _counted(count: int, noun: str) -> str:
    ending = "" if count == 1 else "es" if noun.endswith("x") else "s"
    return f"{count:,} {noun}{ending}"
