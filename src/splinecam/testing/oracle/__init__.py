"""A slow, obviously correct partition in exact rational arithmetic: the oracle of the tests.

Floats are dyadic rationals, so a network with float weights has an exact partition. It is found
here polygon by polygon, unit by unit, with Python integers and exact signs; no code is shared
with the fast path.
"""

from __future__ import annotations

from splinecam.testing.oracle.cells import (
    ExactCell,
    ExactPartition,
    ExactPiece,
    exact_partition,
    exact_pieces,
)
from splinecam.testing.oracle.steps import (
    Abs,
    GroupSort,
    Max,
    Maximum,
    Maxout,
    Min,
    Minimum,
    Residual,
)

__all__ = [
    "Abs",
    "ExactCell",
    "ExactPartition",
    "ExactPiece",
    "GroupSort",
    "Max",
    "Maximum",
    "Maxout",
    "Min",
    "Minimum",
    "Residual",
    "exact_partition",
    "exact_pieces",
]
