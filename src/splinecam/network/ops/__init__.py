"""The operations that a network may have: one rule each, affine, piecewise linear, or rejected."""

from __future__ import annotations

from splinecam.network.ops import affine, composite, maxima, piecewise, rejected
from splinecam.network.ops.bounds import Bound, affine_bound, measured_bound, role_of
from splinecam.network.ops.registry import (
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
    "Sort",
    "Terminal",
    "affine_bound",
    "composite",
    "maxima",
    "measured_bound",
    "op_table",
    "op_table_markdown",
    "piecewise",
    "registered_ops",
    "rejected",
    "role_of",
    "rule_of",
    "target_name",
]
