"""Checks for tests: of partitions, and an exact oracle in rational arithmetic."""

from splinecam.testing.assertions import assert_same_cells, assert_valid, polygons
from splinecam.testing.oracle.cells import ExactCell, ExactPartition, exact_partition
from splinecam.testing.oracle.steps import (
    Abs,
    Max,
    Maximum,
    Min,
    Minimum,
    Residual,
    SortedGroups,
    maxout,
)

__all__ = ["Abs", "ExactCell", "ExactPartition", "Max", "Maximum", "Min", "Minimum", "Residual"]
__all__ += ["SortedGroups", "assert_same_cells", "assert_valid", "exact_partition", "maxout"]
__all__ += ["polygons"]
