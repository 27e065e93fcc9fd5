"""The ONNX operations that can be imported: one rule each, in files by theme."""

from __future__ import annotations

# These modules register their rules.
from splinecam.files.onnx_rules import constants, elementwise, linear, shaping, windows  # noqa: F401
from splinecam.files.onnx_rules.registry import (
    FOLDS,
    LEARNING,
    REJECTED,
    RULES,
    onnx_table_markdown,
)

__all__ = ["FOLDS", "LEARNING", "REJECTED", "RULES", "onnx_table_markdown"]
