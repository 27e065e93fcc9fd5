"""The compiled library and its thin Python face: arrays in, arrays out; it knows no networks.

The library is plain C (``refine.c``, ``rows.c``, ``pool.c``), built when the package is installed.
Where it is missing everything works by tensor operations, only slower. For GPUs there are the steps
of ``refine.cu``, ``envelope.cu`` and ``dissolve.cu``, which are compiled when first needed.
"""

from splinecam.kernels.gpu import Candidates, GpuKernel, Layer, SelectedChords, gpu_kernel_for
from splinecam.kernels.kernel import Cutting, Dense, DenseResult, Kernel, available, kernel_for
from splinecam.kernels.refined import History
from splinecam.kernels.rows import LineRows, SignRange

__all__ = [
    "Candidates",
    "Cutting",
    "Dense",
    "DenseResult",
    "GpuKernel",
    "History",
    "Kernel",
    "Layer",
    "LineRows",
    "SelectedChords",
    "SignRange",
    "available",
    "gpu_kernel_for",
    "kernel_for",
]
