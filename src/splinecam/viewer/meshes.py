"""The mesh of a partition as a message; the browser cuts it along the decision boundary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from splinecam._util.tolerances import SAFETY
from splinecam.analysis.class_regions import class_regions
from splinecam.analysis.partition_data import PartitionData
from splinecam.plot.arrays import to_numpy
from splinecam.plot.colors import output_name
from splinecam.plot.regions import default_color
from splinecam.viewer.answers import Answer
from splinecam.viewer.bounds import region_bounds

__all__ = ["MAX_CLASSES", "Sizes", "has_classes", "mesh_answer", "outputs_of"]

MAX_CLASSES = 32_000  # the time to find the winner of every point grows with the outputs
_BLOCK = 1 << 22  # numbers in a block


@dataclass(frozen=True)
class Sizes:
    """How much a mesh may hold.

    outputs: whose values are sent; values: of all of them together, unless more can win; points,
    precise: the coordinates and the values that are sent in double precision; cut: vertices up to
    which regions are cut to find all winners, if not all outputs are sent.
    """

    outputs: int = 1000
    values: int = 16_000_000
    points: int = 8_000_000
    precise: int = 8_000_000
    cut: int = 100_000


def has_classes(part: PartitionData, level: float | None = None) -> bool:
    """Whether outputs mean classes: as in pictures, or because names or a level are given.

    Of very many outputs the winners are not found.
    """
    if part.values.shape[1] > MAX_CLASSES:
        return False
    return default_color(part) == "class" or part.names is not None or level is not None


def mesh_answer(
    part: PartitionData, about: dict[str, Any], level: float | None, sizes: Sizes
) -> Answer:
    """The mesh of a partition; about: its id, pane, frame and window."""
    mesh, outputs, values = part.mesh, outputs_of(part, level, sizes), part.values
    if len(outputs) < values.shape[1]:
        values = values[:, torch.tensor(outputs, device=values.device)]
    header = {
        "kind": "mesh",
        **about,
        "center": part.frame.center.tolist(),
        "scale": part.frame.scale,
        "regionCount": len(part),
        "outputs": outputs,
        "outputNames": [output_name(part, k) for k in outputs],
        "errors": (SAFETY * part.value_error[outputs]).tolist(),
        "ranges": torch.stack([values.amin(0), values.amax(0)], 1).tolist(),
        "unresolved": len(part.unresolved),
    }
    few = to_numpy(mesh.counts()).max(initial=0) < 256
    arrays = {
        "points": _real(mesh.uv, sizes.points),
        "edges": _as(mesh.edges, np.uint32),
        "corners": _as(mesh.corners, np.uint32),
        "counts": _as(mesh.counts(), np.uint8 if few else np.uint16),
        "edgeLayer": _as(mesh.edge_layer, np.int16),
        "edgeUnit": _as(mesh.edge_unit, np.int32),
        "values": _real(values, sizes.precise),
    }
    bounds = region_bounds(part, outputs)
    return Answer(header | bounds.message, arrays | bounds.arrays)


def _as(values: Tensor, dtype: Any) -> Any:
    return to_numpy(values).astype(dtype)


def _real(values: Tensor, precise: int) -> Any:
    return _as(values, np.float64 if values.numel() <= precise else np.float32)


def outputs_of(part: PartitionData, level: float | None, sizes: Sizes) -> list[int]:
    """The outputs whose values are sent, ascending: all, or those that win or come closest.

    All that win somewhere are among them, so that the browser finds the classes.
    """
    n, vertices = int(part.values.shape[1]), part.mesh.num_vertices
    most = max(2, min(sizes.outputs, sizes.values // max(1, vertices)))  # one has no rival
    if n <= most:
        return list(range(n))
    exact = vertices <= sizes.cut  # of very many vertices, whatever wins wins at some of them
    classes = has_classes(part, level)

    def find() -> list[int]:
        lead = _leads(part.values)
        if classes:
            winners = torch.unique(class_regions(part).cell_class) if exact else lead == 0
            lead[winners] = torch.inf
        count = max(most, int(lead.isinf().sum()))
        return sorted(torch.topk(lead, count).indices.tolist())

    return part._remembered("outputs of a viewer", (most, exact, classes), find)


def _leads(values: Tensor) -> Tensor:
    """How close each output comes to the largest one at any vertex: 0, or the negative gap."""
    lead = values.new_full(values.shape[1:], -torch.inf)
    for block in torch.split(values, max(1, _BLOCK // values.shape[1])):
        gap = block - block.amax(1, keepdim=True)
        lead = torch.maximum(lead, gap.amax(0))
    return lead
