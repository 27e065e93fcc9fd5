"""The classes of results, for type hints and ``isinstance``; verbs and methods make them."""

from splinecam.files.properties import Conjunction, OutputCondition, PropertyCase
from splinecam.geometry.paths import Path, SegmentBatch
from splinecam.jobs.estimating import Estimate
from splinecam.partitions.captured import Captured
from splinecam.partitions.frozen import Frozen, Gap
from splinecam.questions.boundary import Boundary, LevelSet
from splinecam.questions.certainty import Band
from splinecam.questions.class_regions import ClassRegions
from splinecam.questions.comparison import Comparison, Counts
from splinecam.questions.difference import Difference, Disagreement
from splinecam.questions.flow import BarrierCheck, FlowCheck
from splinecam.questions.local_complexity import Interval, LocalComplexity
from splinecam.questions.neurons import NeuronCurves
from splinecam.questions.partition_data import Region, Smoothing, SmoothLayer, Unresolved
from splinecam.questions.paths import PathPartition, SegmentPartitions
from splinecam.questions.preimage import Preimage, PropertyCheck
from splinecam.questions.stats import Stats
from splinecam.questions.topology import Topology
from splinecam.solid.partition import SolidPartition
from splinecam.solid.sections import Section
from splinecam.solid.surface import Surface, SurfacePoints
from splinecam.tiles.atlas import Atlas
from splinecam.training import Movie, Run, Snapshot, Watch
from splinecam.training.grid import Grid
from splinecam.viewer.viewer import Selection, Viewer

__all__ = [
    "Atlas",
    "Band",
    "BarrierCheck",
    "Boundary",
    "Captured",
    "ClassRegions",
    "Comparison",
    "Conjunction",
    "Counts",
    "Difference",
    "Disagreement",
    "Estimate",
    "FlowCheck",
    "Frozen",
    "Gap",
    "Grid",
    "Interval",
    "LevelSet",
    "LocalComplexity",
    "Movie",
    "NeuronCurves",
    "OutputCondition",
    "Path",
    "PathPartition",
    "Preimage",
    "PropertyCase",
    "PropertyCheck",
    "Region",
    "Run",
    "Section",
    "SegmentBatch",
    "SegmentPartitions",
    "Selection",
    "SmoothLayer",
    "Smoothing",
    "Snapshot",
    "SolidPartition",
    "Stats",
    "Surface",
    "SurfacePoints",
    "Topology",
    "Unresolved",
    "Viewer",
    "Watch",
]
