"""Checks for tests: of partitions, and an exact oracle in rational arithmetic."""

from splinecam.testing.assertions import assert_same_cells, assert_valid, polygons
from splinecam.testing.oracle import (
    Abs,
    ExactCell,
    ExactPartition,
    GroupSort,
    Max,
    Maximum,
    Maxout,
    Min,
    Minimum,
    Residual,
    exact_partition,
)

__all__ = [
    "Abs",
    "ExactCell",
    "ExactPartition",
    "GroupSort",
    "Max",
    "Maximum",
    "Maxout",
    "Min",
    "Minimum",
    "Residual",
    "assert_same_cells",
    "assert_valid",
    "exact_partition",
    "polygons",
]
