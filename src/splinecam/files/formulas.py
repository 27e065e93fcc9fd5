"""Formulas about inputs and outputs: comparisons of polynomials, joined by "and" and "or".

A formula is a conjunction of what always holds and of choices. A choice is a list of cases, and
cases are expanded against each other only inside of an "or". Their number is bounded, since a
short formula can have exponentially many.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import isfinite, prod
from numbers import Rational
from typing import Any, NamedTuple

import torch

from splinecam.errors import SplineCamError
from splinecam.files.properties import OutputCondition

# Variables are whole numbers: i for the input with the flat index i, ~i for the output, and beyond
# these the slopes of outputs by inputs. A product of several is the tuple of them, in ascending
# order.
Variable = int | tuple[int, ...]

# A term maps its variables and products to their factors, and None to its constant.
Term = dict[Variable | None, Fraction]

# A variable, a sign, and the number on the other side. Files have millions of them.
Bound = tuple[int, str, float]

_CASES = 300_000  # that a formula may have
_PARTS = 5_000_000  # bounds and rows that its cases may have together
_DIGITS = 20_000  # bits of an exact number; a float64 needs 2,100
_DEGREE = 12  # of a product of variables
_TERMS = 10_000  # of a product before equal ones are added
_ENTRIES = 1 << 27  # of a condition's matrix
_SLOPES = 1 << 32  # numbers of inputs are below; (k + 1) _SLOPES + i is a slope of output k


class Row(NamedTuple):
    """The constraint ``sum of factor * variable <= limit``, or ``<`` if it is strict."""

    factors: tuple[tuple[Variable, float], ...]
    limit: float
    strict: bool

    @property
    def variables(self) -> set[int]:
        """The variables that occur, also in products."""
        return {each for key, _ in self.factors for each in factors_of(key)}


def factors_of(key: Variable | None) -> tuple[int, ...]:
    """The variables of which something is the product."""
    return () if key is None else key if isinstance(key, tuple) else (key,)


@dataclass
class Case:
    """A conjunction: bounds of single inputs, and rows of other constraints."""

    lower: dict[int, float] = field(default_factory=dict)
    upper: dict[int, float] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.lower) + len(self.upper) + len(self.rows)

    def tighten(self, other: Case) -> None:
        """Take over the constraints of another case, which keeps its own."""
        for mine, more, tighter in ((self.lower, other.lower, max), (self.upper, other.upper, min)):
            known = {each: tighter(more[each], mine[each]) for each in more.keys() & mine.keys()}
            mine.update(more)
            mine.update(known)
        self.rows += other.rows

    @property
    def about_outputs(self) -> bool:
        """Whether it says nothing of inputs."""
        variables = (each for row in self.rows for each in row.variables)
        return not self.lower and not self.upper and all(each < 0 for each in variables)

    @property
    def relates_inputs(self) -> bool:
        """Whether a row is about inputs, alone or with outputs."""
        return any(each >= 0 for row in self.rows for each in row.variables)

    @property
    def unboxed(self) -> Case:
        """The same with rows in place of bounds."""
        above = [Row(((k, 1.0),), limit, False) for k, limit in self.upper.items()]
        below = [Row(((k, -1.0),), -limit, False) for k, limit in self.lower.items()]
        return Case(rows=[*above, *below, *self.rows])


@dataclass
class Formula:
    """A statement about the inputs and outputs of a network, such as ``sc.output(0) <= 3``.

    ``a & b`` holds where both do, and ``a | b`` where one does; Python needs parentheses around
    comparisons there.
    """

    # What always holds, and choices, each of which has one case that holds.
    common: Case = field(default_factory=Case)
    choices: list[list[Case]] = field(default_factory=list)

    def __and__(self, other: Formula) -> Formula:
        return conjunction([self, other]) if isinstance(other, Formula) else NotImplemented

    def __or__(self, other: Formula) -> Formula:
        return disjunction([self, other]) if isinstance(other, Formula) else NotImplemented

    def __bool__(self) -> bool:
        raise TypeError("a condition is neither true nor false: join conditions by & and |")

    def condition(self, inputs: int, outputs: int) -> OutputCondition:
        """The same for a network with numbers of inputs and outputs."""
        cases = product([[self.common], *self.choices]) or [Case(rows=[Row((), -1.0, False)])]
        for each in {name for case in cases for row in case.rows for name in row.variables}:
            output, number = divmod(each, _SLOPES) if each >= 0 else (-each, -1)
            for kind, k, size in (("input", number, inputs), ("output", output - 1, outputs)):
                if k >= size:
                    raise SplineCamError(
                        f"The condition is about {kind} {k}; the network has {size}."
                    )
        try:
            return condition_of_rows([case.rows for case in cases], inputs, outputs)
        except ValueError as error:
            raise SplineCamError(f"The condition cannot be used: {error}.") from error


def add(terms: Sequence[Term], signs: Sequence[int]) -> Term:
    """The sum of terms with signs, which may change the first term."""
    total = terms[0] if signs[0] > 0 else {key: -value for key, value in terms[0].items()}
    for term, sign in zip(terms[1:], signs[1:], strict=True):
        for key, value in term.items():
            total[key] = _checked(total.get(key, Fraction(0)) + sign * value)
    return total


def multiply(terms: Sequence[Term]) -> Term:
    """The product of terms; a ``ValueError`` if it has a high degree or many terms."""
    total: Term = {None: Fraction(1)}
    for term in terms:
        found: Term = {}
        if len(total) * len(term) > _TERMS:
            raise ValueError(f"a product has more than {_TERMS:,} terms when it is written out")
        for one, factor in total.items():
            for other, value in term.items():
                joint = tuple(sorted(factors_of(one) + factors_of(other)))
                if len(joint) > _DEGREE and factor and value:
                    raise ValueError(
                        f"a product of {len(joint)} variables is not read: at most {_DEGREE} are"
                    )
                key = joint if len(joint) > 1 else joint[0] if joint else None
                found[key] = _checked(found.get(key, Fraction(0)) + factor * value)
        total = found
    return total


def _checked(number: Fraction) -> Fraction:
    if max(number.numerator.bit_length(), number.denominator.bit_length()) > _DIGITS:
        raise ValueError("an exact number grows far beyond the range of float64")
    return number


def compare(sign: str, left: Term, right: Term, *, bounds: bool = True) -> Formula:
    """The formula ``left sign right``; with bounds, a limit of a single input is a closed bound."""
    if sign in ("=", "=="):
        both = ("<=", ">=")
        return conjunction([compare(each, dict(left), right, bounds=bounds) for each in both])
    if sign == "!=":
        return disjunction([compare(each, dict(left), right, bounds=bounds) for each in "<>"])
    total = add([left, right], (1, -1) if sign[0] == "<" else (-1, 1))
    limit = -total.pop(None, Fraction(0))
    factors = [(key, value) for key, value in total.items() if key is not None and value]
    strict = len(sign) == 1
    if not factors:
        holds = limit > 0 if strict else limit >= 0
        return Formula() if holds else Formula(choices=[[]])
    variable, factor = factors[0]
    if bounds and len(factors) == 1 and isinstance(variable, int) and variable >= 0:
        # Divided without rounding: x <= limit / factor, or >= for a negative factor.
        return conjunction([(variable, "<=" if factor > 0 else ">=", float(limit / factor))])
    row = Row(tuple((key, float(value)) for key, value in factors), float(limit), strict)
    return Formula(Case(rows=[row]))


def conjunction(formulas: Iterable[Formula | Bound]) -> Formula:
    """The formula that holds where all of the given ones hold."""
    found = Formula()
    lower, upper, rows = found.common.lower, found.common.upper, found.common.rows
    for each in formulas:
        if isinstance(each, Formula):
            found.common.tighten(each.common)
            found.choices += each.choices
            continue
        variable, sign, value = each
        if variable < 0:
            factor = 1.0 if sign[0] == "<" else -1.0
            rows.append(Row(((variable, factor),), factor * value, len(sign) == 1))
        elif sign[0] == "<":
            if variable not in upper or value < upper[variable]:
                upper[variable] = value
        elif variable not in lower or value > lower[variable]:
            lower[variable] = value
    return found


def disjunction(formulas: Iterable[Formula | Bound]) -> Formula:
    """The formula that holds where one of the given ones holds."""
    cases: list[Case] = []
    for each in formulas:
        formula = each if isinstance(each, Formula) else conjunction([each])
        cases += product([[formula.common], *formula.choices])
    _require_few(len(cases), 0)
    if len(cases) == 1:
        return Formula(cases[0])
    return Formula(choices=[cases])


def product(choices: Sequence[Sequence[Case]]) -> list[Case]:
    """All ways to choose a case of every choice, each as one case."""
    several = [list(cases) for cases in choices if len(cases) != 1 or len(cases[0])]
    _require_few(prod(map(len, several)), 0)
    found = several[0] if several else [Case()]
    for cases in several[1:]:
        parts = len(found) * sum(map(len, cases)) + len(cases) * sum(map(len, found))
        _require_few(len(found), parts)
        found = [_both(one, other) for one in found for other in cases]
    return found


def _both(one: Case, other: Case) -> Case:
    case = Case(dict(one.lower), dict(one.upper), list(one.rows))
    case.tighten(other)
    return case


def _require_few(cases: int, parts: int) -> None:
    if cases > _CASES or parts > _PARTS:
        raise ValueError(
            f"its ands and ors have more than {_CASES:,} cases or {_PARTS:,} comparisons when they "
            "are written out: split the property into several files"
        )


def condition_of_rows(
    conjunctions: Sequence[Sequence[Row]], inputs: int, outputs: int
) -> OutputCondition:
    """The condition that one of several lists of rows holds; a ``ValueError`` if it is large."""
    rows = [row for each in conjunctions for row in each]
    # A slope counts as a product of one variable.
    products = sorted(
        {factors_of(key) for row in rows for key, _ in row.factors if not _plain(key)}
    )
    about_inputs = bool(products) or any(each >= 0 for row in rows for each in row.variables)
    width = outputs + inputs * about_inputs
    if len(rows) * (width + len(products)) > _ENTRIES:
        raise ValueError(
            f"a condition of {len(rows):,} constraints on {width:,} variables is too much"
        )
    A = torch.zeros(len(rows), outputs, dtype=torch.float64)
    C = torch.zeros(len(rows), inputs, dtype=torch.float64) if about_inputs else None
    Q = torch.zeros(len(rows), len(products), dtype=torch.float64) if products else None
    column = {key: k for k, key in enumerate(products)}
    for k, row in enumerate(rows):
        for variable, factor in row.factors:
            if Q is not None and not _plain(variable):
                Q[k, column[factors_of(variable)]] = factor
            for name in factors_of(variable) if _plain(variable) else ():
                if name >= 0 and C is not None:
                    C[k, name] = factor
                else:
                    A[k, ~name] = factor
    b = torch.tensor([row.limit for row in rows], dtype=torch.float64)
    strict = torch.tensor([row.strict for row in rows], dtype=torch.bool)
    start = torch.tensor([0, *map(len, conjunctions)]).cumsum(0)
    factors = None
    if products:
        degree = max(map(len, products))
        places = [[_place(name, inputs) for name in key] for key in products]
        factors = torch.tensor([[*each, *[inputs] * (degree - len(each))] for each in places])
    return OutputCondition(A, b, strict, C, start, Q, factors)


def _plain(key: Variable) -> bool:
    """Whether something is a single input or output."""
    return isinstance(key, int) and key < _SLOPES


def _place(name: int, inputs: int) -> int:
    """Where a variable is in the list of inputs, 1, the slopes of all outputs, and outputs."""
    if name < _SLOPES:
        return name
    output, number = divmod(name, _SLOPES)
    return inputs + 1 + (output - 1) * inputs + number


class Polynomial:
    """A polynomial in the inputs and outputs of a network, made by ``input`` and ``output``.

    It can be added, subtracted, multiplied and compared; numbers are taken exactly.
    """

    def __init__(self, term: Term) -> None:
        self._term = term

    def _with(self, other: Any) -> list[Term] | None:
        """The terms of this and of another polynomial or number; None of anything else."""
        if isinstance(other, Polynomial):
            return [dict(self._term), other._term]
        if isinstance(other, (float, Rational)):
            if not isfinite(other):
                raise ValueError(f"a condition has finite numbers, and {other!r} is none")
            return [dict(self._term), {None: Fraction(other)}]
        return None

    def __add__(self, other: Any) -> Polynomial:
        terms = self._with(other)
        return NotImplemented if terms is None else Polynomial(add(terms, [1, 1]))

    def __sub__(self, other: Any) -> Polynomial:
        terms = self._with(other)
        return NotImplemented if terms is None else Polynomial(add(terms, [1, -1]))

    def __mul__(self, other: Any) -> Polynomial:
        terms = self._with(other)
        return NotImplemented if terms is None else Polynomial(multiply(terms))

    def __truediv__(self, other: Any) -> Polynomial:
        if not isinstance(other, (float, Rational)):
            return NotImplemented
        return self * (1 / Fraction(other))

    def __pow__(self, power: int) -> Polynomial:
        if not isinstance(power, int) or power < 0:
            raise ValueError(f"a power is a whole number of at least 0, not {power!r}")
        return Polynomial(multiply([self._term] * power))

    def __neg__(self) -> Polynomial:
        return Polynomial(add([self._term], [-1]))

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: Any) -> Polynomial:
        return (-self).__add__(other)

    def along(self, field: Sequence[Any]) -> Polynomial:
        """The derivative of an output along a field, which is a polynomial for each input.

        On a border between regions, the slopes of each region count on its own side.

        field: as many polynomials or numbers as there are inputs.

        >>> import splinecam as sc
        >>> part = sc.partition(torch.nn.ReLU(), sc.Domain.box(-1, 1), progress=False)
        >>> speed = output(0).along([input(1), -input(0)])  # of output 0 on a circle
        >>> round(part.check(speed > 0).share, 6)
        0.25
        """
        names = [*self._term]
        if (
            len(names) != 1
            or not isinstance(names[0], int)
            or names[0] >= 0
            or self._term != {names[0]: 1}
        ):
            raise ValueError("derivatives are those of an output: sc.output(0).along(field)")
        slopes = (Polynomial({-names[0] * _SLOPES + i: Fraction(1)}) for i in range(len(field)))
        nothing = Polynomial({})
        return sum((slope * each for slope, each in zip(slopes, field, strict=True)), nothing)

    def _compared(self, sign: str, other: Any) -> Formula:
        terms = self._with(other)
        return NotImplemented if terms is None else compare(sign, *terms, bounds=False)

    def __le__(self, other: Any) -> Formula:
        return self._compared("<=", other)

    def __lt__(self, other: Any) -> Formula:
        return self._compared("<", other)

    def __ge__(self, other: Any) -> Formula:
        return self._compared(">=", other)

    def __gt__(self, other: Any) -> Formula:
        return self._compared(">", other)

    def __eq__(self, other: Any) -> Formula:  # type: ignore[override]
        return self._compared("==", other)

    def __ne__(self, other: Any) -> Formula:  # type: ignore[override]
        return self._compared("!=", other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        names = ["*".join(map(_name, factors_of(key))) for key in self._term]
        sizes = [f"{float(value):g}" for value in self._term.values()]
        parts = [
            f"{size}*{name}" if name else size for size, name in zip(sizes, names, strict=True)
        ]
        return " + ".join(parts) or "0"


def _name(variable: int) -> str:
    if variable < 0:
        return f"output({~variable})"
    output, number = divmod(variable, _SLOPES)
    return f"d output({output - 1})/d input({number})" if output else f"input({number})"


def input(index: int) -> Polynomial:  # noqa: A001 - as one says it: sc.input(0)
    """An input of a network, for conditions.

    index: the number of the input, from 0, of the flat input.

    >>> input(0) ** 2 + 2 * input(1)
    1*input(0)*input(0) + 2*input(1)
    """
    return Polynomial({_index(index): Fraction(1)})


def output(index: int) -> Polynomial:
    """An output of a network, for conditions such as ``output(0) * input(1) <= 3``.

    index: the number of the output, from 0.

    >>> import splinecam as sc
    >>> part = sc.partition(torch.nn.ReLU(), sc.Domain.box(-1, 1), progress=False)
    >>> round(part.check((output(0) ** 2 >= 0.25) & (input(1) <= 0)).area, 6)
    0.5
    """
    return Polynomial({~_index(index): Fraction(1)})


def _index(index: int) -> int:
    if isinstance(index, bool) or not isinstance(index, int) or index < 0:
        raise ValueError(f"inputs and outputs are counted from 0, and {index!r} is none of them")
    return index
