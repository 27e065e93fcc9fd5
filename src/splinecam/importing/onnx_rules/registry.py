"""The registry: one rule per ONNX operation, folding of constants, and reasons against the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from splinecam.importing.onnx_nodes import Node, Value

__all__ = [
    "FOLDS",
    "LEARNING",
    "REJECTED",
    "RULES",
    "Rule",
    "fold",
    "onnx_table_markdown",
    "reject",
    "rule",
]

Result = Value | Tensor
Function = Callable[[Node], Result | list[Result]]
Fold = Callable[[Node, list[Any]], Tensor | list[Tensor]]


@dataclass(frozen=True)
class Rule:
    """How an operation is imported; notes: what to know about it, for the table."""

    function: Function
    notes: str = ""


RULES: dict[str, Rule] = {}
"""Operations on values that depend on the input; constants go through the same layers."""

FOLDS: dict[str, Fold] = {}
"""Operations on constants alone, which are computed while the file is read."""

LEARNING = frozenset({"Scaler", "LinearClassifier", "LinearRegressor", "Normalizer"})
"""Those of the operations above that belong to ``ai.onnx.ml``, as scikit-learn's files use them."""

REJECTED: dict[str, str] = {}
"""Operations that a piecewise-linear network cannot have, each with its reason."""


def onnx_table_markdown() -> str:
    """The operations that can be read, as a Markdown table: a row for those of one note."""
    rows: dict[str, list[str]] = {}
    for name, found in RULES.items():
        rows.setdefault(found.notes, []).append(f"`{name}`")
    rows["of constants, while the file is read"] = [f"`{x}`" for x in FOLDS if x not in RULES]
    lines = sorted(f"| {', '.join(sorted(names))} | {notes} |" for notes, names in rows.items())
    return "\n".join(["| operations | notes |", "|---|---|", *lines])


def rule(names: str, notes: str = "") -> Callable[[Function], Function]:
    """Register a rule for operations, whose names are separated by blanks."""

    def add(function: Function) -> Function:
        RULES.update(dict.fromkeys(names.split(), Rule(function, notes)))
        return function

    return add


def fold(names: str) -> Callable[[Fold], Fold]:
    """Register how operations on constants are computed."""

    def add(function: Fold) -> Fold:
        FOLDS.update(dict.fromkeys(names.split(), function))
        return function

    return add


def reject(names: str, reason: str) -> None:
    """Register a reason against operations."""
    REJECTED.update(dict.fromkeys(names.split(), reason))
