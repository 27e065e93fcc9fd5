"""The main statistics of many partitions at once: their meshes are united, and measured together.

A partition around a sample has some hundred regions, for which starting tensor operations takes
nearly all of the time. Together, a hundred partitions take hardly more time than one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from splinecam._util.csr import lengths, owners_of
from splinecam.analysis.boundary import decision_boundary
from splinecam.analysis.measures import shapes
from splinecam.analysis.partition_data import PartitionData
from splinecam.analysis.undecided import class_band
from splinecam.geometry.domain import Domain
from splinecam.geometry.subdivision import Mesh

__all__ = ["BATCHED", "BOUNDS", "batch_stats"]

BATCHED = (
    "NR",
    "ARV",
    "ANV",
    "ARE",
    "density",
    "boundary_length",
    "total_edge_length",
)
"""The statistics that are computed together; ``density`` is the number of regions per area."""

BOUNDS = ("bound", "undecided_area")
"""How far any output of the model may be from the maps, and the area on which no class is certain.

Both are zero for an exact partition.
"""

_BLOCK = 1 << 22  # outputs at vertices in a block
_ALIKE = 4.0  # rounding errors that are shared: none may be so much larger than another


def batch_stats(
    parts: Sequence[PartitionData], names: Sequence[str] = BATCHED
) -> dict[str, list[float]]:
    """Some statistics of each partition, as ``part.stats()`` gives them, and the density.

    names: those of ``BATCHED`` and ``BOUNDS`` that are wanted.

    >>> import splinecam as sc
    >>> relu = torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU())
    >>> parts = sc.sweep(relu, [sc.Domain.box(-1, 1), sc.Domain.box(-1, 3)], progress=False)
    >>> batch_stats(parts, ("NR", "ARV", "density"))
    {'NR': [4, 4], 'ARV': [1.0, 4.0], 'density': [1.0, 0.25]}
    """
    found: dict[str, list[float]] = {name: [0.0] * len(parts) for name in names}
    with torch.no_grad():
        for places in _blocks(parts):
            some = [parts[place] for place in places]
            for name, numbers in _measured(some, names).items():
                for place, number in zip(places, numbers, strict=True):
                    found[name][place] = number
    return found


def _blocks(parts: Sequence[PartitionData]) -> list[list[int]]:
    """The places of partitions with similar rounding errors, which are measured together."""
    if not parts:
        return []
    errors = torch.stack([part.value_error.amax() for part in parts]).tolist()
    blocks: list[list[int]] = []
    size, least = 0, 0.0
    for place in sorted(range(len(parts)), key=lambda place: errors[place]):
        numbers = parts[place].values.numel()
        if not blocks or size + numbers > _BLOCK or errors[place] > _ALIKE * least:
            blocks.append([])
            size, least = 0, errors[place]
        blocks[-1].append(place)
        size += numbers
    return blocks


def _measured(parts: Sequence[PartitionData], names: Sequence[str]) -> dict[str, list[float]]:
    """The statistics of partitions that fit a block."""
    meshes = [part.mesh for part in parts]
    mesh, device = _united(meshes), meshes[0].uv.device
    counts = torch.tensor([each.num_faces for each in meshes], device=device)
    scale = mesh.uv.new_tensor([part.frame.scale for part in parts])
    face = owners_of(counts, mesh.num_faces)

    def sums(values: Tensor, owner: Tensor) -> Tensor:
        return values.new_zeros(len(parts)).index_add_(0, owner, values)

    found: dict[str, Tensor] = {"NR": counts}
    if "ARV" in names:
        found["ARV"] = sums(mesh.areas_and_centroids()[0], face) * scale.square() / counts
    if "ANV" in names:
        found["ANV"] = sums(mesh.counts(), face) / counts.to(scale)
    if "ARE" in names:
        found["ARE"] = sums(shapes(mesh).eccentricity, face) / counts
    if "density" in names:
        found["density"] = counts / scale.new_tensor([part.domain.area for part in parts])
    if "total_edge_length" in names:
        edges = torch.tensor([each.num_edges for each in meshes], device=device)
        a, b = mesh.uv[mesh.edges].unbind(1)
        owner = owners_of(edges, mesh.num_edges)
        found["total_edge_length"] = sums(lengths(b - a), owner) * scale
    if "boundary_length" in names:
        curves = decision_boundary(_together(parts, mesh))
        a, b = curves.points[curves.segments].unbind(1)
        owner = face[curves.regions.amax(1)]
        found["boundary_length"] = sums(lengths(b - a), owner) * scale
    if "bound" in names:
        found["bound"] = torch.stack([part.bound.amax() for part in parts])
    if "undecided_area" in names:
        bands = (class_band(part, smallest=False, level=0.0) for part in parts)
        found["undecided_area"] = scale.new_tensor([band.area for band in bands])
    return {name: found[name].tolist() for name in names}


def _united(meshes: Sequence[Mesh]) -> Mesh:
    """One mesh of several that do not touch, whatever their coordinates are."""
    vertex = edge = corner = 0
    edges, corners, offsets = [], [], [meshes[0].offsets[:1]]
    for mesh in meshes:
        edges.append(mesh.edges + vertex)
        corners.append(mesh.corners + 2 * edge)
        offsets.append(mesh.offsets[1:] + corner)
        vertex += mesh.num_vertices
        edge += mesh.num_edges
        corner += mesh.corners.shape[0]
    return Mesh(
        uv=torch.cat([mesh.uv for mesh in meshes]),
        edges=torch.cat(edges),
        offsets=torch.cat(offsets),
        corners=torch.cat(corners),
        edge_layer=torch.cat([mesh.edge_layer for mesh in meshes]),
        edge_unit=torch.cat([mesh.edge_unit for mesh in meshes]),
        vertex_layer=torch.cat([mesh.vertex_layer for mesh in meshes]),
    )


def _together(parts: Sequence[PartitionData], mesh: Mesh) -> PartitionData:
    """The united mesh with the outputs of all; its plane coordinates are the local ones."""
    first = parts[0]
    corners = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    plane = Domain(torch.zeros(2), torch.eye(2), corners, (2,))
    return PartitionData(
        domain=plane,
        mesh=mesh,
        values=torch.cat([part.values for part in parts]),
        value_error=torch.stack([part.value_error for part in parts]).amax(0),
        layer_errors={},
        unresolved=(),
        layers=first.layers,
        stripped=first.stripped,
        dtype=first.dtype,
    )
