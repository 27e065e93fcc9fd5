"""Formulas of properties: linear terms, their comparisons, and the and/or of these.

A formula is kept as a conjunction of what always holds and of choices, each of which is a list of
cases, and cases are expanded against each other only inside of an ``or``. How many there may be is
bounded, as a short formula can have exponentially many.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import inf, prod
from typing import NamedTuple

__all__ = [
    "Bound",
    "Case",
    "Formula",
    "Row",
    "Term",
    "add",
    "compare",
    "conjunction",
    "disjunction",
    "multiply",
    "product",
]

# Variables are whole numbers: i for the input with the flat index i, ~i for the output.
# A term maps its variables to their factors, and None to its constant.
Term = dict[int | None, Fraction]

# A variable, a sign and a number that it is compared with. Files have millions of them.
Bound = tuple[int, str, float]

_CASES = 300_000  # that a formula may have
_PARTS = 5_000_000  # bounds and rows that its cases may have together
_DIGITS = 20_000  # bits of an exact number; those of float64 need 2,100


class Row(NamedTuple):
    """The constraint ``sum of factor * variable <= limit``, or ``<`` if it is strict."""

    factors: tuple[tuple[int, float], ...]
    limit: float
    strict: bool


@dataclass
class Case:
    """A conjunction: bounds of single inputs, and rows of linear constraints."""

    lower: dict[int, float] = field(default_factory=dict)
    upper: dict[int, float] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.lower) + len(self.upper) + len(self.rows)

    def tighten(self, other: Case) -> None:
        """Take over the constraints of another case, which keeps its own."""
        for variable, value in other.lower.items():
            self.lower[variable] = max(value, self.lower.get(variable, value))
        for variable, value in other.upper.items():
            self.upper[variable] = min(value, self.upper.get(variable, value))
        self.rows += other.rows

    @property
    def about_outputs(self) -> bool:
        """Whether it says nothing of inputs."""
        variables = (variable for row in self.rows for variable, _ in row.factors)
        return not self.lower and not self.upper and all(each < 0 for each in variables)


@dataclass
class Formula:
    """What always holds, and choices: of each of them one case holds. No case is false."""

    common: Case = field(default_factory=Case)
    choices: list[list[Case]] = field(default_factory=list)


# -- terms -----------------------------------------------------------------------------------------


def add(terms: Sequence[Term], signs: Sequence[int]) -> Term:
    """The sum of terms with signs; the first term is used up."""
    total = terms[0] if signs[0] > 0 else {key: -value for key, value in terms[0].items()}
    for term, sign in zip(terms[1:], signs[1:], strict=True):
        for key, value in term.items():
            total[key] = _checked(total.get(key, Fraction(0)) + sign * value)
    return total


def multiply(terms: Sequence[Term]) -> Term:
    """The product of terms, of which at most one may have variables."""
    factor, linear = Fraction(1), None
    for term in terms:
        if any(value and key is not None for key, value in term.items()):
            if linear is not None:
                raise ValueError("a product of two variables is not linear")
            linear = term
        else:
            factor = _checked(factor * term.get(None, Fraction(0)))
    if linear is None:
        return {None: factor}
    return {key: _checked(factor * value) for key, value in linear.items()}


def _checked(number: Fraction) -> Fraction:
    if max(number.numerator.bit_length(), number.denominator.bit_length()) > _DIGITS:
        raise ValueError("an exact number grows beyond all that float64 can hold")
    return number


# -- formulas --------------------------------------------------------------------------------------


def compare(sign: str, left: Term, right: Term) -> Formula:
    """The formula ``left sign right``."""
    if sign in ("=", "=="):
        return conjunction([compare("<=", dict(left), right), compare(">=", left, right)])
    if sign == "!=":
        return disjunction([compare("<", dict(left), right), compare(">", left, right)])
    total = add([left, right], (1, -1) if sign[0] == "<" else (-1, 1))
    limit = -total.pop(None, Fraction(0))
    factors = [(key, value) for key, value in total.items() if key is not None and value]
    strict = len(sign) == 1
    if not factors:
        holds = limit > 0 if strict else limit >= 0
        return Formula() if holds else Formula(choices=[[]])
    variable, factor = factors[0]
    if len(factors) == 1 and variable >= 0:
        # Divided without rounding: x <= limit / factor, or >= for a negative factor.
        return conjunction([(variable, "<=" if factor > 0 else ">=", float(limit / factor))])
    row = Row(tuple((key, float(value)) for key, value in factors), float(limit), strict)
    return Formula(Case(rows=[row]))


def conjunction(formulas: Iterable[Formula | Bound]) -> Formula:
    """The formula that holds where all of the given ones do."""
    found = Formula()
    lower, upper, rows = found.common.lower, found.common.upper, found.common.rows
    for each in formulas:
        if isinstance(each, Formula):
            found.common.tighten(each.common)
            found.choices += each.choices
            continue
        variable, sign, value = each
        is_upper = sign[0] == "<"
        if variable < 0:
            factor = 1.0 if is_upper else -1.0
            rows.append(Row(((variable, factor),), factor * value, len(sign) == 1))
        elif is_upper:
            if value < upper.get(variable, inf):
                upper[variable] = value
        elif value > lower.get(variable, -inf):
            lower[variable] = value
    return found


def disjunction(formulas: Iterable[Formula | Bound]) -> Formula:
    """The formula that holds where one of the given ones does."""
    cases: list[Case] = []
    for each in formulas:
        formula = each if isinstance(each, Formula) else conjunction([each])
        cases += product([[formula.common], *formula.choices])
    _require_few(len(cases), 0)
    if len(cases) == 1:
        return Formula(cases[0])
    return Formula(choices=[cases])


def product(choices: Sequence[Sequence[Case]]) -> list[Case]:
    """All ways to choose a case of each of several choices, as one case each."""
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
