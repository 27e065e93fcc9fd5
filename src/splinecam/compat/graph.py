"""The regions of a network, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from splinecam.compat.utils import Maps
from splinecam.compat.wrappers import model_wrapper
from splinecam.partitions.partition import Partition


class Cycles(list[Tensor]):
    """Regions as open polygons (k, 2), and the partitions of which these are all regions."""

    def __init__(self, NN: model_wrapper, parts: Sequence[Partition]) -> None:
        super().__init__(polygon for part in parts for polygon in NN.polygons(part))
        self.NN, self.parts = NN, tuple(parts)


def to_next_layer_partition(
    cycles: Tensor | Sequence[Tensor],
    Abw: Tensor | None,
    current_layer: int,
    NN: model_wrapper,
    dtype: torch.dtype = torch.float64,
    device: str | torch.device | None = None,
) -> tuple[Cycles, Tensor]:
    """The regions after one more layer, and which of the given polygons each of them lies in, (F,).

    All polygons are divided along the units of the layer at which the network is not differentiable
    there, and of the layers before it. A layer without a non-linearity divides nothing.

    cycles: convex polygons (k, 2) of the plane, or one; the result for the layer before continues
    at once, as long as it is the same list. Abw: not needed, as the network itself is evaluated;
    the result of ``get_Abw`` learns how its regions are divided. current_layer: from 1, the index
    into ``NN.layers``. dtype, device: those of NN are used.
    """
    if isinstance(cycles, Cycles) and cycles.NN is NN and len(cycles) == _count(cycles.parts):
        before = list(cycles.parts)
        parts = [NN.partition(part.domain, current_layer) for part in before]
        inside = [old._locator(new.mesh.means()) for old, new in zip(before, parts, strict=True)]
        sizes = [len(part) for part in before]
    else:
        polygons = [cycles] if isinstance(cycles, Tensor) else list(cycles)
        parts = [NN.partition(polygon, current_layer) for polygon in polygons]
        inside = [torch.zeros(len(part), dtype=torch.int64, device=NN.device) for part in parts]
        sizes = [1] * len(parts)
    starts = [sum(sizes[:k]) for k in range(len(sizes))]
    out_idx = torch.cat([k + index for k, index in zip(starts, inside, strict=True)]).cpu()
    if isinstance(Abw, Maps):
        Abw.parents = out_idx
    return Cycles(NN, parts), out_idx


def to_next_layer_partition_batched(
    cycles: Tensor | Sequence[Tensor],
    Abw: Tensor | None,
    current_layer: int,
    NN: model_wrapper,
    **options: Any,
) -> tuple[Cycles, Tensor]:
    """The same as ``to_next_layer_partition``; sizes of batches and workers are not needed."""
    return to_next_layer_partition(cycles, Abw, current_layer, NN)


def _count(parts: Sequence[Partition]) -> int:
    return sum(len(part) for part in parts)
