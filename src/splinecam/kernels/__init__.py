"""The compiled library and its thin Python face: arrays in, arrays out; it knows no networks.

The library is plain C (``refine.c``, ``rows.c``, ``pool.c``), built when the package is installed.
Where it is missing everything works by tensor operations, only slower. For GPUs there are the steps
of ``refine.cu``, ``envelope.cu`` and ``dissolve.cu``, which are compiled when first needed.
"""

from splinecam.kernels.gpu import Contest, GpuKernel, Layer, Strokes, gpu_kernel_for
from splinecam.kernels.kernel import Cutting, Dense, Kernel, Seen, available, kernel_for
from splinecam.kernels.refined import History
from splinecam.kernels.rows import LineRows, Sight

__all__ = [
    "Contest",
    "Cutting",
    "Dense",
    "GpuKernel",
    "History",
    "Kernel",
    "Layer",
    "LineRows",
    "Seen",
    "Sight",
    "Strokes",
    "available",
    "gpu_kernel_for",
    "kernel_for",
]
