"""How the number of regions grows from layer to layer."""

from __future__ import annotations

import torch

from splinecam._util.connectivity import components
from splinecam.analysis.partition_data import PartitionData

__all__ = ["regions_by_layer"]


def regions_by_layer(part: PartitionData) -> list[int]:
    """How many regions there are after each of ``part.layers``.

    >>> import torch, splinecam as sc
    >>> model = torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU(), torch.nn.Hardtanh(-9, 1))
    >>> sc.partition(model, sc.Domain.box(-2, 2), progress=False).regions_by_layer()
    [4, 9]
    """
    # What later layers divided is put together again, from the last layer to the first.
    counts, beside = [len(part)], part.edge_faces
    region = torch.arange(len(part), device=beside.device)
    for op in reversed(range(1, len(part.layers))):
        a, b = region[beside[part.edge_layer == op]].unbind(1)
        joined = components(counts[-1], a, b)
        region = joined[region]
        counts.append(int(joined.max()) + 1)
    return counts[::-1][: len(part.layers)]
