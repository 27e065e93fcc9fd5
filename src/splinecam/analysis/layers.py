"""The layers of a partition: which one is meant, and how many regions there are after each."""

from __future__ import annotations

import operator

import torch
from torch import Tensor

from splinecam._util.connectivity import components
from splinecam.analysis.partition_data import PartitionData
from splinecam.errors import SplineCamError

__all__ = ["last_layers", "layer_count", "layer_index", "layer_names", "regions_by_layer"]


def regions_by_layer(part: PartitionData) -> list[int]:
    """The number of regions after each of ``part.layers``.

    >>> import torch, splinecam as sc
    >>> model = torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU(), torch.nn.Hardtanh(-9, 1))
    >>> sc.partition(model, sc.Domain.box(-2, 2), progress=False).regions_by_layer()
    [4, 9]
    """
    # The regions that a layer divided are united again, from the last layer to the second.
    counts, beside = [len(part)], part.edge_faces
    region = torch.arange(len(part), device=beside.device)
    for layer in reversed(range(1, len(part.layers))):
        a, b = region[beside[part.edge_layer == layer]].unbind(1)
        united = components(counts[-1], a, b)
        region = united[region]
        counts.append(int(united.max()) + 1)
    return counts[::-1][: len(part.layers)]


def last_layers(part: PartitionData) -> Tensor:
    """Index into ``part.layers`` of the last layer that bounds each region, (F,).

    It is -1 for a region that is bounded by the domain's border only.
    """
    mesh = part.mesh
    layer = mesh.edge_layer[mesh.corners >> 1]
    return torch.full_like(mesh.offsets[1:], -1).scatter_reduce(0, mesh.owners(), layer, "amax")


def layer_index(part: PartitionData, layer: str | int) -> int:
    """The index into ``part.layers`` of a layer that is given by index, name or module."""
    names = part.layers
    if not isinstance(layer, str):
        try:
            index = operator.index(layer)
        except TypeError:
            raise TypeError(
                f"layer must be the name or the number of one layer, not {layer!r}: "
                f"{layer_names(part)}"
            ) from None
        if not -len(names) <= index < len(names):
            raise IndexError(f"layer {index} of {len(names)} layers: {layer_names(part)}")
        return index % len(names)
    if layer in names:
        return names.index(layer)
    found = [k for k, name in enumerate(names) if name.startswith(f"{layer}.")]
    # A ReLU that is called as a function may be named by the module before it.
    found = found or [
        index for index, each in enumerate(part.program.layers) if each.after == layer
    ]
    if len(found) != 1:
        what = f"{len(found)} layers are" if found else "no layer is"
        raise SplineCamError(
            f"{what} called {layer!r}; give one of {layer_names(part)}, or the module right before"
            " it"
        )
    return found[0]


def layer_count(part: PartitionData, layer: str | int) -> int:
    """How many layers there are up to and including a named one; a number stands for itself."""
    if isinstance(layer, str):
        return layer_index(part, layer) + 1
    try:
        count = operator.index(layer)
    except TypeError:
        raise TypeError(
            f"layer must be the name of a layer or a number of layers, not {layer!r}"
        ) from None
    if not 0 <= count <= len(part.layers):
        raise IndexError(
            f"{count} layers: give a number from 0 to {len(part.layers)}, or a name: "
            f"{layer_names(part)}"
        )
    return count


def layer_names(part: PartitionData) -> str:
    """The names of all layers, as text for a message."""
    return ", ".join(map(repr, part.layers)) or "none, as the network is affine"
