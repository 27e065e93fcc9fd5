"""The compiled library and its thin Python face: arrays in, arrays out; it knows no networks.

The library is plain C (``refine.c``, ``rows.c``, ``pool.c``), built when the package is installed.
Where it is missing everything works by tensor operations, only slower.
"""

from splinecam.kernels.kernel import Cutting, Dense, Kernel, Seen, available, kernel_for
from splinecam.kernels.refined import History
from splinecam.kernels.rows import LineRows, Sight

__all__ = [
    "Cutting",
    "Dense",
    "History",
    "Kernel",
    "LineRows",
    "Seen",
    "Sight",
    "available",
    "kernel_for",
]
