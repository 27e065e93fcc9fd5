"""What is promised of a model with smooth functions, as messages: bounds of regions, and the band.

A partition with ``smooth=`` is that of a network near the model. Meshes carry how near it is on
each region; the band, in which the decision of the model is not certain, is asked for by itself,
since with a single output it depends on the level.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from splinecam.analysis.partition_data import PartitionData
from splinecam.analysis.undecided import class_band
from splinecam.plot.arrays import to_numpy
from splinecam.viewer.answers import Answer, number

__all__ = ["band_answer", "region_bounds"]


def region_bounds(part: PartitionData, outputs: list[int]) -> Answer:
    """What is added to the mesh of a partition: nothing if the partition is exact.

    outputs: whose values are sent. The bounds of the regions are rounded up to single precision.
    """
    if part.smoothing is None:
        return Answer({})
    bounds = to_numpy(part.region_bounds)[:, outputs]
    single = bounds.astype(np.float32)
    above = np.nextafter(single, np.float32(np.inf))
    return Answer(
        {"within": part.smoothing.within},
        {"regionBounds": np.where(single < bounds, above, single)},
    )


def band_answer(part: PartitionData, about: dict[str, Any], level: Any) -> Answer:
    """The polygons on which no class is certain, in the local coordinates of the partition.

    about: the mesh that was asked for. level: the number that decides the class of a single output.
    """
    band = class_band(part, smallest=False, level=number(level, "level"))
    header = {
        "kind": "band",
        **about,
        "center": part.frame.center.tolist(),
        "scale": part.frame.scale,
        "share": band.share,
    }
    arrays = {
        "points": to_numpy(part.frame.to_local(band.vertices)),
        "counts": to_numpy(band.offsets.diff()).astype(np.uint16),
    }
    return Answer(header, arrays)
