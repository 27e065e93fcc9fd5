"""The registry: one rule per ATen operation, and the table of them for the documentation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from torch import Tensor, fx

from splinecam.network.curves.curve import Curve

Call = Mapping[str, Any]
"""The arguments of an operation by their names in its ATen schema."""

Knots = tuple[tuple[Any, ...], tuple[Any, ...]]
"""Where the slope of a function of one variable changes: K levels, and the K + 1 slopes.

Every entry is a number or a tensor that broadcasts against the operation's result.
"""


@dataclass(frozen=True)
class AffineRule:
    """An operation that is affine in its activations; the fields name arguments by their role."""

    data: tuple[str, ...] = ("self", "input", "tensors")  # may be activations, which are added
    product: tuple[str, ...] = ()  # multiplied with each other: at most one may be an activation
    factor: tuple[str, ...] = ()  # constants that multiply
    offset: tuple[str, ...] = ()  # constants that are added
    shape_only: tuple[str, ...] = ()  # read for its shape alone
    dims: tuple[str, ...] = ()  # names of dimension arguments that must not be the batch
    exact: bool = False  # moves values about without arithmetic: no rounding
    identity: bool = False  # the result is the first argument itself
    reshapes: bool = False  # the result is the first argument in the result's shape
    run: Callable[..., Any] | None = None  # called in place of the operation itself
    absolute: Callable[..., Any] | None = None  # the operation with every coefficient's modulus
    bound: Callable[..., tuple[Tensor, Tensor]] | None = None  # (magnitude, error) by hand
    measured: bool = False  # the coefficients are not known: the operation must be run
    check: Callable[[Call], str | None] | None = None  # the reason against this call, if any
    notes: str = ""


@dataclass(frozen=True)
class PiecewiseRule:
    """A continuous piecewise-linear function of one variable, applied to every unit."""

    knots: Knots | Callable[[Call], Knots | str]  # or the reason against a call
    source: tuple[str, ...] = ("self",)  # the arguments that may be the variable
    exact: bool = True  # passes values on or replaces them by constants: no rounding
    run: Callable[..., Tensor] | None = None  # called in place of the operation itself
    pairs: tuple[tuple[str, bool], ...] = ()  # compared with ``self``; True: keep the smaller
    notes: str = ""


@dataclass(frozen=True)
class MaximumRule:
    """The largest, or the smallest, unit of each group; a second result are discontinuous places.

    ``members(call, index, shape)`` returns the units of each group, ``(*shape, R)``, or the
    reason against the call. ``index`` holds the number of each unit, in the shape of the
    variable. A group may name a unit more than once.
    """

    members: Callable[[Call, Tensor, list[int]], Tensor | str]
    smallest: bool = False
    notes: str = ""


@dataclass(frozen=True)
class SortRule:
    """Groups of units in order; ``members(call, index)`` returns these, ``(..., R)``."""

    members: Callable[[Call, Tensor], Tensor]
    notes: str = ""


@dataclass(frozen=True)
class ScatterRule:
    """Values of ``source`` that are added, averaged or compared at constant places."""

    source: str
    whole: bool  # whether the index has one entry for each slice of the source, not for each value
    notes: str = "constant indices; sum, mean, amax, amin"


class Emitter:
    """Adds calls to a graph in front of a composite node that they stand for."""

    def __init__(self, node: fx.Node) -> None:
        self.node = node
        self.nodes: list[fx.Node] = []  # the nodes that were added, in order

    def __call__(self, target: Any, *args: Any) -> fx.Node:
        """The result of one more call."""
        with self.node.graph.inserting_before(self.node):
            new = self.node.graph.call_function(target, args)
        meta = self.node.meta
        new.meta = {key: meta[key] for key in ("nn_module_stack", "stack_trace") if key in meta}
        # What this call stands for may itself stand for another.
        new.meta["stands_for"] = meta.get("stands_for", self.node)
        new.meta["val"] = target(*fx.node.map_arg(args, lambda node: node.meta["val"]))
        self.nodes.append(new)
        return new

    def shape(self, value: fx.Node) -> list[Any]:
        """The shape of a value; a size of the batch is no ``int``, or a multiple of MANY_POINTS."""
        return list(value.meta["val"].shape)


@dataclass(frozen=True)
class CompositeRule:
    """An operation that is written out as others."""

    write: Callable[[Emitter, Call], Any]  # adds their calls; returns the results, or a reason
    constants: tuple[str, ...] = ()  # arguments that must not depend on the input
    notes: str = ""


@dataclass(frozen=True)
class ComparisonRule:
    """A mask, which may choose between two values that agree where it changes."""

    above: tuple[str, str] | None  # larger and smaller where it is true; None for the complement
    signed: bool = False  # the sign of an argument, times a value that is zero where it changes
    notes: str = "to choose between values that agree where they are chosen"


@dataclass(frozen=True)
class RejectedRule:
    """An operation that cannot be in a piecewise-linear network, and why."""

    reason: str
    notes: str = ""


OPTION = "smooth=1e-3 replaces it"
"""What an error says of a smooth operation, which ``partition`` and others can replace."""


@dataclass(frozen=True)
class SmoothRule:
    """A smooth function of one variable, applied to every unit, which is replaced by pieces."""

    curve: Curve | Callable[[Call], Curve | str]  # or why its derivatives have no bounds
    reason: str = "it is not piecewise linear"  # against it without ``smooth=``
    notes: str = ""


@dataclass(frozen=True)
class TerminalRule:
    """An operation that is stripped at the end; elsewhere it is rejected, or a smooth ``curve``."""

    label: str
    elementwise: bool
    curve: Curve | None = None
    reason: str = (
        "it is not piecewise linear (allowed only as the last operation, and not over the batch)"
    )
    notes: str = "stripped when it makes the output"


_OfUnits = PiecewiseRule | MaximumRule | SortRule | ScatterRule | ComparisonRule | SmoothRule
Rule = AffineRule | CompositeRule | _OfUnits | TerminalRule | RejectedRule

RULES: dict[str, Rule] = {}
"""Every registered operation and its rule, by name."""


def register(names: str, rule: Rule) -> None:
    """Give every operation in ``names`` (separated by blanks, without ``aten.``) this rule."""
    for name in names.split():
        key = f"aten.{name}"
        if key in RULES:
            raise ValueError(f"{key} has a rule already")
        RULES[key] = rule


def affine(names: str, **fields: Any) -> None:
    """Register affine operations by the fields of :class:`AffineRule`."""
    register(names, AffineRule(**fields))


@cache
def target_name(target: object, *, overload: bool = False) -> str:
    """The readable name of a graph node's target: ``aten.relu``, or ``aten.max.dim`` in full."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        return str(getattr(target, "__name__", target))
    name = str(schema.name).replace("::", ".")
    return f"{name}.{schema.overload_name or 'default'}" if overload else name


def rule_of(target: object) -> Rule | None:
    """The rule of a graph node's target; one overload may differ from the others."""
    return RULES.get(target_name(target, overload=True)) or RULES.get(target_name(target))


@dataclass(frozen=True)
class OpRow:
    """One row of the table of operations."""

    op: str
    kind: str
    notes: str


def op_table() -> tuple[OpRow, ...]:
    """Every operation that SplineCam knows: its name, its kind, and what to know about it."""
    rows = []
    for name, rule in RULES.items():
        notes = rule.reason if isinstance(rule, RejectedRule) else rule.notes
        rows.append(OpRow(name, type(rule).__name__.removesuffix("Rule").lower(), notes))
    order = list(TITLES)
    return tuple(sorted(rows, key=lambda row: (order.index(row.kind), row.op)))


TITLES = {
    "affine": "Affine",
    "piecewise": "Piecewise linear, of one variable",
    "maximum": "Maxima and minima of groups",
    "sort": "Sorting",
    "scatter": "Reductions at constant places",
    "composite": "Written out as other operations",
    "comparison": "Masks",
    "smooth": "Smooth, of one variable: replaced by linear pieces with `smooth=`",
    "terminal": "Stripped at the end",
    "rejected": "Rejected",
}


def op_table_markdown() -> str:
    """The table of operations as a Markdown page: one section per kind, one row per operation."""
    lines = [
        "# Supported operations",
        "",
        "Generated from the registry by `make docs`. A model is exported to a graph of ATen",
        "operations; each has one rule. Whatever is not in this table is rejected as unknown,",
        "unless it is [registered](register.md).",
        "",
    ]
    for kind, title in TITLES.items():
        lines += [f"## {title}", "", "| operation | notes |", "|---|---|"]
        lines += [f"| `{row.op}` | {row.notes} |" for row in op_table() if row.kind == kind]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"
