"""The operations that a network may have: affine, piecewise linear, smooth, or rejected."""

from __future__ import annotations

from splinecam.network.ops import affine, composite, nonlinear  # noqa: F401  (they register)
from splinecam.network.ops.bounds import Bound, affine_bound, measured_bound, role_of
from splinecam.network.ops.registry import (
    OPTION,
    Affine,
    Call,
    Comparison,
    Composite,
    Knots,
    Maximum,
    OpRow,
    Piecewise,
    Rejected,
    Rule,
    Scatter,
    Smooth,
    Sort,
    Terminal,
    op_table,
    op_table_markdown,
    registered_ops,
    rule_of,
    target_name,
)

CREATORS = affine.CREATORS
TRAINING = affine.TRAINING

__all__ = [
    "CREATORS",
    "OPTION",
    "TRAINING",
    "Affine",
    "Bound",
    "Call",
    "Comparison",
    "Composite",
    "Knots",
    "Maximum",
    "OpRow",
    "Piecewise",
    "Rejected",
    "Rule",
    "Scatter",
    "Smooth",
    "Sort",
    "Terminal",
    "affine_bound",
    "composite",
    "measured_bound",
    "op_table",
    "op_table_markdown",
    "registered_ops",
    "role_of",
    "rule_of",
    "target_name",
]
