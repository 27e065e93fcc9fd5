"""The operations that a network may have: one rule each, affine, piecewise linear, or rejected."""

from __future__ import annotations

from splinecam.ops import affine, piecewise, rejected
from splinecam.ops.bounds import Bound, affine_bound, role_of
from splinecam.ops.registry import (
    Affine,
    Call,
    Knots,
    OpRow,
    Piecewise,
    Rejected,
    Rule,
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
    "Knots",
    "OpRow",
    "Piecewise",
    "Rejected",
    "Rule",
    "Terminal",
    "affine_bound",
    "op_table",
    "op_table_markdown",
    "piecewise",
    "registered_ops",
    "rejected",
    "role_of",
    "rule_of",
    "target_name",
]
