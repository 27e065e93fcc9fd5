"""SplineCam: the exact linear regions of piecewise-linear networks on 2-D domains.

>>> import splinecam as sc
>>> from torch import nn
>>> net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
>>> part = sc.partition(net, sc.Domain.box(-1, 1), progress=False)
>>> len(part) >= 1
True
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from splinecam import nn, results
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
    from splinecam.files.formulas import input, output  # noqa: A004 - as one says it
    from splinecam.files.loading import load_model
    from splinecam.files.properties import Conjunction as Conjunction  # for splinecam.results
    from splinecam.files.properties import OutputCondition as OutputCondition
    from splinecam.files.properties import Property
    from splinecam.files.vnnlib import read_vnnlib
    from splinecam.geometry.domain import Domain
    from splinecam.jobs.answering import boundary, check, level_set
    from splinecam.jobs.difference import difference
    from splinecam.jobs.estimating import estimate
    from splinecam.jobs.flows import check_barrier, check_decrease
    from splinecam.jobs.local import local_complexity
    from splinecam.jobs.partitioning import along, partition
    from splinecam.jobs.surfacing import surface
    from splinecam.jobs.sweep import sweep
    from splinecam.network.ops.register import register_op
    from splinecam.network.ops.registry import op_table as op_table  # beside register_op
    from splinecam.partitions.captured import capture
    from splinecam.partitions.frozen import freeze
    from splinecam.partitions.partition import Partition, load
    from splinecam.partitions.request import Smooth
    from splinecam.questions.comparison import compare
    from splinecam.tiles.compute import atlas
    from splinecam.training import movie as movie  # beside watch
    from splinecam.training import watch
    from splinecam.training.grid import grid
    from splinecam.viewer.page import to_html
    from splinecam.viewer.viewer import view

__version__ = "0.1.0"

__all__ = [
    "CaptureError",
    "DataError",
    "Domain",
    "DomainError",
    "FileError",
    "LimitError",
    "Partition",
    "Property",
    "Smooth",
    "SplineCamError",
    "UnsupportedOpError",
    "ValidationError",
    "along",
    "atlas",
    "boundary",
    "capture",
    "check",
    "check_barrier",
    "check_decrease",
    "compare",
    "difference",
    "estimate",
    "freeze",
    "grid",
    "input",
    "level_set",
    "load",
    "load_model",
    "local_complexity",
    "nn",
    "output",
    "partition",
    "read_vnnlib",
    "register_op",
    "results",
    "surface",
    "sweep",
    "to_html",
    "view",
    "watch",
]

# The module of each name, which is imported when the name is first used: torch takes seconds, and
# the help of the command line need not wait for it.
_MODULES = {
    "errors": tuple(name for name in __all__ if name.endswith("Error")),
    "files.formulas": ("input", "output"),
    "files.loading": ("load_model",),
    "files.properties": ("Conjunction", "OutputCondition", "Property"),
    "files.vnnlib": ("read_vnnlib",),
    "geometry.domain": ("Domain",),
    "jobs.answering": ("boundary", "check", "level_set"),
    "jobs.difference": ("difference",),
    "jobs.estimating": ("estimate",),
    "jobs.flows": ("check_barrier", "check_decrease"),
    "jobs.local": ("local_complexity",),
    "jobs.partitioning": ("along", "partition"),
    "tiles.compute": ("atlas",),
    "partitions.request": ("Smooth",),
    "jobs.surfacing": ("surface",),
    "jobs.sweep": ("sweep",),
    "network.ops.registry": ("op_table",),
    "network.ops.register": ("register_op",),
    "partitions.captured": ("capture",),
    "partitions.frozen": ("freeze",),
    "partitions.partition": ("Partition", "load"),
    "questions.comparison": ("compare",),
    "training": ("movie", "watch"),
    "training.grid": ("grid",),
    "viewer.page": ("to_html",),
    "viewer.viewer": ("view",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}
# Modules of the code that was released with the paper; its ``plot`` is a module here, too.
_PAPER = ("compute", "graph", "models", "utils", "wrappers")


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> Any:
        """A public name, or a module of the package."""
        if name in _PAPER:
            return getattr(import_module(f"{__name__}.compat"), name)
        place = f"{__name__}.{_HOME.get(name, name)}"
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
