"""The ONNX operations that can be imported: one rule each, in files by theme."""

from __future__ import annotations

from splinecam.files.onnx_rules import (  # noqa: F401  (they register their rules)
    constants,
    elementwise,
    linear,
    shaping,
    windows,
)
from splinecam.files.onnx_rules.registry import (
    FOLDS,
    LEARNING,
    REJECTED,
    RULES,
    onnx_table_markdown,
)

__all__ = ["FOLDS", "LEARNING", "REJECTED", "RULES", "onnx_table_markdown"]
