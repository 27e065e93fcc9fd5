"""Find the region of many points: a grid that is fine where the vertices are dense."""

from __future__ import annotations

import torch
from torch import Tensor

from splinecam.mesh import Mesh
from splinecam.predicates import SAFETY, UV_ERROR
from splinecam.ragged import offsets_of, owners_of, places_of, take_rows

__all__ = ["Locator"]

_MOST_LINES = 2048  # grid lines per axis
_CROWD = 8  # faces per face that the grid may list, before it gets coarser
_CHUNK = 1 << 21  # corners looked at in one go


class Locator:
    """Lists, for each cell of a grid, the faces whose bounding box meets the cell.

    Grid lines run through quantiles of the vertices' coordinates, so a cell holds few faces even
    when the regions crowd in one corner of the domain.
    """

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        points = mesh.uv[mesh.corner_vertices()]
        owner = mesh.owners()[:, None].expand(-1, 2)
        box = points.new_empty((mesh.num_faces, 2))
        low = box.scatter_reduce(0, owner, points, "amin", include_self=False)
        high = box.scatter_reduce(0, owner, points, "amax", include_self=False)
        lines = min(_MOST_LINES, max(1, int(mesh.num_faces**0.5)))
        while True:
            self.lines = _quantiles(mesh.uv, lines)
            first, last = self._cells(low), self._cells(high)
            span = last - first + 1
            count = span.prod(1)
            if lines == 1 or int(count.sum()) <= _CROWD * (mesh.num_faces + _CROWD):
                break
            lines //= 2
        self.columns = self.lines[1].shape[0] + 1
        owner = owners_of(count)
        place = places_of(count, owner, offsets_of(count))
        row = first[owner, 0] + place // span[owner, 1]
        cell = row * self.columns + first[owner, 1] + place % span[owner, 1]
        cell, order = torch.sort(cell)
        self.faces = owner[order]
        cells = (self.lines[0].shape[0] + 1) * self.columns
        self.offsets = offsets_of(torch.bincount(cell, minlength=cells))

    def __call__(self, uv: Tensor) -> Tensor:
        """Face of each point (N, 2) in the mesh's coordinates, -1 outside the mesh."""
        corners = self.mesh.corners.shape[0] / self.mesh.num_faces
        crowd = self.faces.shape[0] / max(1, self.offsets.shape[0] - 1)
        step = max(1, int(_CHUNK / (corners * (1 + crowd))))
        found = [self._locate(part) for part in torch.split(uv, step)]
        return torch.cat(found) if found else self.faces[:0]

    def _cells(self, uv: Tensor) -> Tensor:
        return torch.stack(
            [
                torch.searchsorted(line, uv[:, axis].contiguous())
                for axis, line in enumerate(self.lines)
            ],
            1,
        )

    def _locate(self, uv: Tensor) -> Tensor:
        at = self._cells(uv)
        entries, count = take_rows(self.offsets, at[:, 0] * self.columns + at[:, 1])
        point, face = owners_of(count), self.faces[entries]
        depth = self._depth(uv[point], face)
        # The face in which the point lies deepest wins; of equals the one with the lowest number.
        best = depth.new_full((uv.shape[0],), -torch.inf)
        best.scatter_reduce_(0, point, depth, "amax")
        inside = (depth == best[point]) & (depth >= -SAFETY * UV_ERROR)
        nowhere = self.mesh.num_faces
        found = face.new_full((uv.shape[0],), nowhere)
        found.scatter_reduce_(0, point[inside], face[inside], "amin")
        return torch.where(found == nowhere, -1, found)

    def _depth(self, uv: Tensor, face: Tensor) -> Tensor:
        """Signed distance of each point to the nearest side of its face, (N,)."""
        mesh = self.mesh
        entries, count = take_rows(mesh.offsets, face)
        pair = owners_of(count)
        half = mesh.corners[entries]
        ends = mesh.edges.view(-1)
        p = mesh.uv[ends[half]]
        side = mesh.uv[ends[half ^ 1]] - p
        gap = uv[pair] - p
        cross = side[:, 0] * gap[:, 1] - side[:, 1] * gap[:, 0]
        distance = cross / side.norm(dim=1)
        depth: Tensor = distance.new_full((face.shape[0],), torch.inf)
        depth.scatter_reduce_(0, pair, distance, "amin")
        return depth


def _quantiles(uv: Tensor, lines: int) -> list[Tensor]:
    """Inner grid lines of both axes at equal ranks of the vertices."""
    out = []
    for axis in range(2):
        value = torch.sort(uv[:, axis]).values
        rank = torch.arange(1, lines, device=uv.device) * value.shape[0] // lines
        out.append(torch.unique(value[rank]))
    return out
