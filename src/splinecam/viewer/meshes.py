"""The mesh of a partition as a message: its regions, cut along the decision boundary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from splinecam._util.csr import take
from splinecam.analysis.class_regions import class_regions
from splinecam.analysis.partition_data import PartitionData
from splinecam.analysis.winners import Winners
from splinecam.geometry.subdivision import Mesh
from splinecam.plot.arrays import to_numpy
from splinecam.plot.colors import output_name
from splinecam.plot.regions import default_color
from splinecam.viewer.answers import Answer

__all__ = ["MAX_CLASSES", "Cells", "Sizes", "has_classes", "mesh_answer"]

MAX_CLASSES = 32_000  # the time to find the winner of every point grows with the outputs

_BLOCK = 1 << 22  # numbers in a block
_NEW = -2  # the layer of edges that only the decision boundary draws


@dataclass(frozen=True)
class Sizes:
    """How much a mesh may hold: outputs, values of them, and vertices in double precision."""

    outputs: int = 1000
    values: int = 4_000_000
    doubles: int = 4_000_000


@dataclass(frozen=True)
class Cells:
    """The cells that are drawn: regions, or parts of them in which one class wins.

    mesh: C cells; values: (V, n) the outputs at its vertices; winners: the classes of the cells,
    or None if the cells are the regions.
    """

    mesh: Mesh
    values: Tensor
    winners: Winners | None

    @classmethod
    def of(cls, part: PartitionData, level: float | None = None) -> Cells:
        """The cells of a partition; level: that above which a single output is class 1."""
        if not has_classes(part, level):
            return cls(part.mesh, part.values, None)
        winners = class_regions(part, level=level or 0.0).winners
        values = winners.overlay.z
        if part.values.shape[1] == 1:  # it was compared with 0
            values = values[:, 1:] + (level or 0.0)
        return cls(winners.overlay.mesh, values, winners)

    @property
    def source(self) -> Tensor | None:
        """The partition's edge of which each edge is a part, -1 for others, (E,)."""
        return None if self.winners is None else self.winners.overlay.source

    @property
    def unresolved(self) -> int:
        """The number of places at which float64 could not settle the class."""
        ambiguities = [] if self.winners is None else self.winners.overlay.ambiguities
        return sum(len(found.uv) for found in ambiguities)

    def boundary(self) -> Tensor:
        """The edges at which classes meet, (B,)."""
        return self.mesh.corners[:0] if self.winners is None else self.winners.borders().edge

    def outputs(self, sizes: Sizes) -> list[int]:
        """The outputs whose values are sent: all, or those that win somewhere or come closest."""
        most = min(sizes.outputs, sizes.values // max(1, self.mesh.num_vertices))
        return _outputs(self.values, max(1, most))

    def edge_numbers(self, numbers: Tensor, new: int) -> Tensor:
        """Numbers (E,) of the partition's edges for those of the cells; new: of other edges."""
        source = self.source
        if source is None:
            return numbers
        return torch.where(source >= 0, take(numbers, source.clamp(min=0)), new)


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
    cells = Cells.of(part, level)
    mesh = cells.mesh
    outputs = cells.outputs(sizes)
    values = cells.values
    if len(outputs) < values.shape[1]:
        values = values[:, torch.tensor(outputs, device=values.device)]
    ranges = torch.stack([values.amin(0), values.amax(0)], 1).tolist()
    header = {
        "kind": "mesh",
        **about,
        "center": part.frame.center.tolist(),
        "scale": part.frame.scale,
        "regionCount": len(part),
        "outputs": outputs,
        "outputNames": [output_name(part, k) for k in outputs],
        "errors": part.value_error[outputs].tolist(),
        "ranges": ranges,
        "unresolved": len(part.unresolved) + cells.unresolved,
    }
    precision = np.float64 if mesh.num_vertices <= sizes.doubles else np.float32
    arrays = {
        "points": _as(mesh.uv, precision),
        "edges": _as(mesh.edges, np.uint32),
        "corners": _as(mesh.corners, np.uint32),
        "counts": _counts(mesh),
        "edgeLayer": _as(cells.edge_numbers(part.edge_layer, _NEW), np.int16),
        "edgeUnit": _as(cells.edge_numbers(part.edge_unit, -1), np.int32),
        "boundary": _as(cells.boundary(), np.uint32),
        "values": _as(values, np.float32),
    }
    if cells.winners is not None:
        arrays["region"] = _as(cells.winners.overlay.face, np.uint32)
        arrays["regionCorners"] = _counts(part.mesh)
        arrays["cellClass"] = _as(cells.winners.winner, np.uint16)
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
