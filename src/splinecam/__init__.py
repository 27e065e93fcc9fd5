"""SplineCam: the exact linear regions of piecewise-linear networks on 2-D domains.

>>> import splinecam as sc
>>> from torch import nn
>>> net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
>>> part = sc.partition(net, sc.Domain.box(-1, 1), progress=False)
>>> len(part.regions) >= 1
True
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from splinecam import nn
    from splinecam.errors import (
        CaptureError,
        DataError,
        DomainError,
        FileError,
        LimitError,
        SplineCamError,
        UnsupportedOpError,
        ValidationError,
    )
    from splinecam.files.loading import load_model
    from splinecam.files.properties import Conjunction, OutputCondition, Property, PropertyCase
    from splinecam.files.scikit_learn import from_sklearn
    from splinecam.files.vnnlib import read_vnnlib
    from splinecam.geometry.domain import Domain
    from splinecam.geometry.paths import Path, SegmentBatch
    from splinecam.jobs.difference import difference
    from splinecam.jobs.partitioning import partition
    from splinecam.jobs.sweep import sweep
    from splinecam.network.ops.register import register_op, unregister_op
    from splinecam.network.ops.registry import op_table
    from splinecam.partitions.captured import Captured, capture
    from splinecam.partitions.frozen import Frozen, Gap, freeze
    from splinecam.partitions.partition import Partition, load
    from splinecam.questions.boundary import Boundary, LevelSet
    from splinecam.questions.certainty import Band
    from splinecam.questions.class_regions import ClassRegions
    from splinecam.questions.comparison import Comparison, Counts, compare
    from splinecam.questions.difference import Difference, Disagreement
    from splinecam.questions.neurons import NeuronCurves
    from splinecam.questions.partition_data import Smoothing, SmoothLayer, Unresolved
    from splinecam.questions.paths import PathPartition
    from splinecam.questions.preimage import Preimage
    from splinecam.questions.property_check import PropertyCheck
    from splinecam.questions.regions import Region
    from splinecam.questions.segment_partitions import SegmentPartitions
    from splinecam.questions.stats import Stats
    from splinecam.questions.topology import Topology
    from splinecam.tiles.atlas import Atlas
    from splinecam.training import Movie, Run, Snapshot, Watch, movie, open_run, watch
    from splinecam.training.grid import Grid, grid, open_grid
    from splinecam.viewer.page import to_html
    from splinecam.viewer.viewer import Selection, Viewer, view

__version__ = "0.1.0"

__all__ = [
    "Atlas",
    "Band",
    "Boundary",
    "CaptureError",
    "Captured",
    "ClassRegions",
    "Comparison",
    "Conjunction",
    "Counts",
    "DataError",
    "Difference",
    "Disagreement",
    "Domain",
    "DomainError",
    "FileError",
    "Frozen",
    "Gap",
    "Grid",
    "LevelSet",
    "LimitError",
    "Movie",
    "NeuronCurves",
    "OutputCondition",
    "Partition",
    "Path",
    "PathPartition",
    "Preimage",
    "Property",
    "PropertyCase",
    "PropertyCheck",
    "Region",
    "Run",
    "SegmentBatch",
    "SegmentPartitions",
    "Selection",
    "SmoothLayer",
    "Smoothing",
    "Snapshot",
    "SplineCamError",
    "Stats",
    "Topology",
    "Unresolved",
    "UnsupportedOpError",
    "ValidationError",
    "Viewer",
    "Watch",
    "capture",
    "compare",
    "difference",
    "freeze",
    "from_sklearn",
    "grid",
    "load",
    "load_model",
    "movie",
    "nn",
    "op_table",
    "open_grid",
    "open_run",
    "partition",
    "read_vnnlib",
    "register_op",
    "sweep",
    "to_html",
    "unregister_op",
    "view",
    "watch",
]

# Where a name comes from. It is imported when it is first used: torch takes seconds, which the
# command line's help, and who interrupts it, need not wait for.
_MODULES = {
    "errors": tuple(name for name in __all__ if name.endswith("Error")),
    "files.loading": ("load_model",),
    "files.properties": (
        "Conjunction",
        "OutputCondition",
        "Property",
        "PropertyCase",
    ),
    "files.scikit_learn": ("from_sklearn",),
    "files.vnnlib": ("read_vnnlib",),
    "geometry.domain": ("Domain",),
    "geometry.paths": (
        "Path",
        "SegmentBatch",
    ),
    "jobs.difference": ("difference",),
    "jobs.partitioning": ("partition",),
    "jobs.sweep": ("sweep",),
    "network.ops.registry": ("op_table",),
    "network.ops.register": (
        "register_op",
        "unregister_op",
    ),
    "partitions.captured": (
        "Captured",
        "capture",
    ),
    "partitions.frozen": (
        "Frozen",
        "Gap",
        "freeze",
    ),
    "partitions.partition": (
        "Partition",
        "Region",
        "Unresolved",
        "load",
    ),
    "questions.boundary": (
        "Boundary",
        "LevelSet",
    ),
    "questions.certainty": ("Band",),
    "questions.class_regions": ("ClassRegions",),
    "questions.comparison": (
        "Comparison",
        "Counts",
        "compare",
    ),
    "questions.difference": (
        "Difference",
        "Disagreement",
    ),
    "questions.neurons": ("NeuronCurves",),
    "questions.partition_data": (
        "Smoothing",
        "SmoothLayer",
    ),
    "questions.paths": ("PathPartition",),
    "questions.preimage": ("Preimage",),
    "questions.property_check": ("PropertyCheck",),
    "questions.segment_partitions": ("SegmentPartitions",),
    "questions.stats": ("Stats",),
    "questions.topology": ("Topology",),
    "tiles.atlas": ("Atlas",),
    "training": (
        "Movie",
        "Run",
        "Snapshot",
        "Watch",
        "movie",
        "open_run",
        "watch",
    ),
    "training.grid": (
        "Grid",
        "grid",
        "open_grid",
    ),
    "viewer.page": ("to_html",),
    "viewer.viewer": (
        "Selection",
        "Viewer",
        "view",
    ),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}
# Modules of the code that was released with the paper; its ``plot`` is a module here, too.
_PAPER = ("compute", "graph", "models", "utils", "wrappers")


if not TYPE_CHECKING:  # which would take any name for one of ours

    def __getattr__(name: str) -> Any:
        """A public name, or a module of the package."""
        place = f"{__name__}.{f'compat.{name}' if name in _PAPER else _HOME.get(name, name)}"
        if not name.startswith("_"):
            try:
                module = import_module(place)
                return getattr(module, name) if name in _HOME else module
            except ModuleNotFoundError as error:
                if error.name != place:
                    raise
        from splinecam._util.text import no_attribute

        raise no_attribute(f"module {__name__!r}", name, __all__)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
