"""The mesh of a partition as a message; the browser cuts it along the decision boundary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from splinecam._util.tolerances import SAFETY
from splinecam.analysis.partition_data import PartitionData
from splinecam.geometry.subdivision import Mesh
from splinecam.plot.arrays import to_numpy
from splinecam.plot.colors import output_name
from splinecam.plot.regions import default_color
from splinecam.viewer.answers import Answer

__all__ = ["MAX_CLASSES", "Sizes", "has_classes", "mesh_answer", "sent_outputs"]

MAX_CLASSES = 32_000  # the time to find the winner of every point grows with the outputs

_BLOCK = 1 << 22  # numbers in a block


@dataclass(frozen=True)
class Sizes:
    """How much a mesh may hold: outputs, values of them, and both in double precision.

    doubles: vertices whose places are sent in double precision; exact: values that are.
    """

    outputs: int = 1000
    values: int = 4_000_000
    doubles: int = 4_000_000
    exact: int = 1_000_000


def has_classes(part: PartitionData, level: float | None = None) -> bool:
    """Whether outputs mean classes: as in pictures, or because names or a level are given.

    Of very many outputs the winners are not found.
    """
    if part.values.shape[1] > MAX_CLASSES:
        return False
    return default_color(part) == "class" or part.names is not None or level is not None


def sent_outputs(part: PartitionData, sizes: Sizes) -> list[int]:
    """The outputs whose values are sent: all, or those that win somewhere or come closest."""
    most = min(sizes.outputs, sizes.values // max(1, part.mesh.num_vertices))
    return _outputs(part.values, max(1, most))


def mesh_answer(part: PartitionData, about: dict[str, Any], sizes: Sizes) -> Answer:
    """The mesh of a partition; about: its id, pane, frame and window."""
    mesh, values = part.mesh, part.values
    outputs = sent_outputs(part, sizes)
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
    precision = np.float64 if mesh.num_vertices <= sizes.doubles else np.float32
    # Deep in a window the values differ by less than single precision can tell.
    exact = np.float64 if values.numel() <= sizes.exact else np.float32
    arrays = {
        "points": _as(mesh.uv, precision),
        "edges": _as(mesh.edges, np.uint32),
        "corners": _as(mesh.corners, np.uint32),
        "counts": _counts(mesh),
        "edgeLayer": _as(part.edge_layer, np.int16),
        "edgeUnit": _as(part.edge_unit, np.int32),
        "values": _as(values, exact),
    }
    return Answer(header, arrays)


def _as(values: Tensor, dtype: Any) -> Any:
    return to_numpy(values).astype(dtype)


def _counts(mesh: Mesh) -> Any:
    counts = to_numpy(mesh.counts())
    return counts.astype(np.uint8 if counts.max(initial=0) < 256 else np.uint16)


def _outputs(values: Tensor, most: int) -> list[int]:
    """The outputs (at most so many) that win somewhere, or come closest to it, ascending."""
    n = int(values.shape[1])
    if n <= most:
        return list(range(n))
    lead = values.new_full((n,), -torch.inf)
    for block in torch.split(values, max(1, _BLOCK // n)):
        gap = block - block.amax(1, keepdim=True)
        lead = torch.maximum(lead, gap.amax(0))
    return sorted(torch.topk(lead, most).indices.tolist())
