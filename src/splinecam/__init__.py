"""SplineCam: the exact linear regions of piecewise-linear networks on 2-D domains.

>>> import splinecam as sc
>>> from torch import nn
>>> net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
>>> part = sc.partition(net, sc.Domain.box(-1, 1), progress=False)
>>> len(part.regions) >= 1
True
"""

from splinecam import nn
from splinecam.boundary import Boundary, LevelSet
from splinecam.classes import ClassRegions
from splinecam.domain import Domain
from splinecam.errors import (
    CaptureError,
    DomainError,
    FileError,
    LimitError,
    SplineCamError,
    UnsupportedOpError,
    ValidationError,
)
from splinecam.neurons import NeuronCurves
from splinecam.ops import op_table
from splinecam.ops.register import register_op, unregister_op
from splinecam.partition import Partition, Region, Unresolved, load, partition
from splinecam.stats import Stats, compare

__version__ = "0.1.0"

__all__ = [
    "Boundary",
    "CaptureError",
    "ClassRegions",
    "Domain",
    "DomainError",
    "FileError",
    "LevelSet",
    "LimitError",
    "NeuronCurves",
    "Partition",
    "Region",
    "SplineCamError",
    "Stats",
    "Unresolved",
    "UnsupportedOpError",
    "ValidationError",
    "compare",
    "load",
    "nn",
    "op_table",
    "partition",
    "register_op",
    "unregister_op",
]
