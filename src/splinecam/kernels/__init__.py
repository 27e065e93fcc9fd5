"""The compiled library and its thin Python face: arrays in, arrays out; it knows no networks.

The library is plain C, built when the package is installed; ``library.py`` loads it, and says how
it is switched off. For GPUs there are the steps of the ``.cu`` files, which are compiled when first
needed. Without either everything works by tensor operations, only slower.
"""

from splinecam.kernels.gpu import GpuKernel, gpu_kernel_for
from splinecam.kernels.kernel import (
    Candidates,
    Dense,
    DenseResult,
    Kernel,
    LayerFunctions,
    LineRows,
    PointsAlong,
    SelectedChords,
    SignRange,
    available,
    kernel_for,
)
from splinecam.kernels.refined import History

__all__ = [
    "Candidates",
    "Dense",
    "DenseResult",
    "GpuKernel",
    "History",
    "Kernel",
    "LayerFunctions",
    "LineRows",
    "PointsAlong",
    "SelectedChords",
    "SignRange",
    "available",
    "gpu_kernel_for",
    "kernel_for",
]
