"""The ONNX operations that can be imported: one rule each, in files by theme."""

from __future__ import annotations

from splinecam.files.onnx_rules import (
    constants,
    elementwise,
    linear,
    shaping,
)
from splinecam.files.onnx_rules import (
    constants as reducing,
)
from splinecam.files.onnx_rules import (
    elementwise as smooth,
)
from splinecam.files.onnx_rules import (
    registry as rejected,
)
from splinecam.files.onnx_rules import (
    shaping as resizing,
)
from splinecam.files.onnx_rules import (
    windows as convolution,
)
from splinecam.files.onnx_rules import (
    windows as pooling,
)
from splinecam.files.onnx_rules.registry import (
    FOLDS,
    LEARNING,
    REJECTED,
    RULES,
    onnx_table_markdown,
)

__all__ = ["FOLDS", "LEARNING", "REJECTED", "RULES", "onnx_table_markdown"]
