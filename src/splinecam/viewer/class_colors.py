"""What the browser needs to colour classes: the lead at which a class has half of its colour."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from splinecam.analysis.partition_data import PartitionData
from splinecam.plot.arrays import to_numpy, weighted_quantiles
from splinecam.plot.cell_image import CellColors
from splinecam.plot.colors import Coloring, ColorOptions, class_legend, color_regions

__all__ = ["class_coloring"]

_CUT = 20_000  # regions up to which they are cut along the decision boundary for this


def class_coloring(part: PartitionData, options: ColorOptions, *, most: int = _CUT) -> Coloring:
    """Colours by class: their legend, and their scale up to the typical lead.

    Few regions are cut into cells of one class each, as for pictures. Of many regions those on the
    boundary, where leads are small, hardly change the median lead, and are left as they are. With
    limits there is nothing to find but the classes that occur. most: how many regions are few.
    """
    if options.limits is None and len(part) <= most:
        return color_regions(part, "class", options)
    values = part.values
    if options.limits is not None:
        winner = _winners(values, options.level)
        weight, typical = torch.ones_like(winner, dtype=torch.float64), options.limits[1]
    else:
        mesh, weight = part.mesh, part.areas
        values = mesh.sums(values[mesh.corner_vertices()]) / mesh.counts()[:, None]
        winner = _winners(values, options.level)
        lead = _leads(values, options.level)
        typical = float(weighted_quantiles(to_numpy(lead), [0.5], to_numpy(weight))[0])
    label, legend = class_legend(part, to_numpy(winner), to_numpy(weight), options)
    scale = (0.0, typical) if typical > 0 else None
    return Coloring(
        part.mesh, CellColors(colors=np.zeros((0, 4))), label, legend=legend, scale=scale
    )


def _winners(values: Tensor, level: float) -> Tensor:
    """The class of each row of outputs (N, n), (N,)."""
    return (values[:, 0] > level).long() if values.shape[1] == 1 else values.argmax(1)


def _leads(values: Tensor, level: float) -> Tensor:
    """The lead of the largest output over the second in each row (N, n), (N,)."""
    if values.shape[1] == 1:
        return (values[:, 0] - level).abs()
    first, second = torch.topk(values, 2, 1).values.unbind(1)
    return first - second
