"""Where a plane cuts a surface: straight segments, one for each face that it meets."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam._util.arrays import lengths
from splinecam._util.graphs import chains
from splinecam.geometry.convex import cross
from splinecam.geometry.domain import Domain
from splinecam.solid.structure import Structure


@dataclass(frozen=True, eq=False, repr=False)
class Section:
    """Where a surface meets a plane: S segments, with the larger output on the left of each.

    plane: the polygon that was cut out; ends: (S, 2, 2) in its plane coordinates; faces: (S,) of
    the surface; nodes: (S, 2) numbers of the ends, equal where segments meet.
    """

    plane: Domain
    ends: Tensor
    faces: Tensor
    nodes: Tensor

    def __len__(self) -> int:
        return int(self.faces.shape[0])

    @property
    def length(self) -> float:
        """The length of all segments."""
        return float(lengths(self.ends[:, 1] - self.ends[:, 0]).sum())

    @property
    def polylines(self) -> list[Tensor]:
        """The segments joined to lines of points (k, 2); a closed one ends as it began."""
        found = chains(self.nodes, torch.zeros_like(self.faces))
        along = self.ends[found.members]
        along = torch.where(found.backward[:, None, None], along.flip(1), along)
        rows = zip(found.offsets[:-1].tolist(), found.offsets[1:].tolist(), strict=True)
        return [torch.cat([along[a:b, 0], along[b - 1 : b, 1]]) for a, b in rows]

    def __repr__(self) -> str:
        return f"Section({len(self):,} segments, length {self.length:.4g})"


def cut(structure: Structure, uv: Tensor, height: Tensor, rising: Tensor, plane: Domain) -> Section:
    """The section of a surface by a plane, within its polygon.

    uv: (V, 2) the vertices in plane coordinates; height: (V,) their distances above the plane;
    rising: (F, 2) the direction in the plane in which the output grows on each face.
    """
    above = height >= 0  # a vertex in the plane counts as above it, for all faces around it
    met = (above[structure.vertex] != above[structure.end]).nonzero()[:, 0]
    low = torch.minimum(structure.vertex[met], structure.end[met])
    high = torch.maximum(structure.vertex[met], structure.end[met])
    share = height[low] / (height[low] - height[high])
    point = torch.lerp(uv[low], uv[high], share[:, None])
    face, edge = structure.face[met], structure.edge[met]
    along = torch.stack([rising[face, 1], -rising[face, 0]], 1)
    order = torch.sort((point * along).sum(1), stable=True).indices
    order = order[torch.sort(face[order], stable=True).indices].view(-1, 2)
    ends, kept = _clipped(point[order], plane.corners.to(uv))
    nodes = edge[order]
    moved = (ends != point[order]).any(2)
    nodes[moved] = structure.first.shape[0] + torch.arange(int(moved.sum()))
    return Section(plane, ends[kept], face[order[:, 0]][kept], nodes[kept])


def _clipped(ends: Tensor, corners: Tensor) -> tuple[Tensor, Tensor]:
    """The parts of segments (S, 2, 2) in a convex polygon, and whether there is one, (S,)."""
    side = corners.roll(-1, 0) - corners
    depth = cross(side, ends[:, :, None] - corners)  # (S, 2, k), at least 0 inside
    first, last = depth.unbind(1)
    gap = torch.where(first == last, 1, first - last)
    share = first / gap
    enters = torch.where(first < 0, share, 0.0).amax(1)
    leaves = torch.where(last < 0, share, 1.0).amin(1)
    kept = (enters < leaves) & ~((first < 0) & (last < 0)).any(1)
    t = torch.stack([enters, leaves], 1)[..., None]
    inside = torch.lerp(ends[:, :1], ends[:, 1:], t)
    return torch.where((t == 0) | (t == 1), ends, inside), kept
