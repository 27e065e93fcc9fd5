"""Find the region of many points: a grid that is fine where the vertices are dense.

Most points lie to the left of the lines through all sides of their face, which is quick to see. The
few others are found by distances from the sides themselves: a side about as short as rounding has
no direction, and the line through it may pass a point of the face on the wrong side.
"""

from __future__ import annotations

import torch
from torch import Tensor

from splinecam._util.csr import lengths, offsets_of, owners_of, places_of, take, take_rows
from splinecam._util.tolerances import SAFETY, UV_ERROR
from splinecam.geometry.distances import closest, crossings
from splinecam.geometry.subdivision import Mesh

__all__ = ["Locator", "signed_distances"]

_MOST_LINES = 2048  # grid lines per axis
_CROWD = 8  # faces per face that the grid may list, before it gets coarser
_CHUNK = 1 << 21  # corners looked at in one go
_SURE = SAFETY * UV_ERROR  # distance that rounding cannot explain


class Locator:
    """Lists, for each cell of a grid, the faces whose bounding box meets the cell.

    Grid lines run through quantiles of the vertices' coordinates, so a cell holds few faces even
    when the regions crowd in one corner of the domain.
    """

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.boxes = _boxes(mesh)
        low, high = self.boxes[:, :2], self.boxes[:, 2:]
        lines = min(_MOST_LINES, max(1, int(mesh.num_faces**0.5)))
        while True:
            self.lines = _quantiles(mesh.uv, lines)
            first, last = self._cells(low), self._cells(high)
            total = int((last - first + 1).prod(1).sum())
            if lines == 1 or total <= _CROWD * (mesh.num_faces + _CROWD):
                break
            lines //= 2
        self.columns = self.lines[1].shape[0] + 1
        owner, cell = self._rectangles(first, last)
        cell, order = torch.sort(cell.int())
        self.faces = take(owner, order)
        cells = (self.lines[0].shape[0] + 1) * self.columns
        self.offsets = offsets_of(torch.bincount(cell, minlength=cells))

    def __call__(self, uv: Tensor) -> Tensor:
        """Face of each point (N, 2) in the mesh's coordinates, -1 outside the mesh.

        The polygon of the face contains the point, or the point is off it by rounding.
        """
        corners = self.mesh.corners.shape[0] / self.mesh.num_faces
        crowd = self.faces.shape[0] / max(1, self.offsets.shape[0] - 1)
        step = max(1, int(_CHUNK / (corners * (1 + crowd))))
        found = [self._locate(part) for part in torch.split(uv, step)]
        return torch.cat(found) if found else self.faces[:0]

    def _locate(self, uv: Tensor) -> Tensor:
        point, face = self._candidates(uv, 0.0)
        # Left of all sides beyond rounding, and hence inside, also where sides are short.
        found = self._deepest(uv.shape[0], point, face, self._depth(uv, point, face), _SURE)
        # What is left lies on a side, outside, or where a short side has a wrong direction.
        low, high = self.boxes[:, :2].amin(0) - _SURE, self.boxes[:, 2:].amax(0) + _SURE
        rest = ((found < 0) & (uv >= low).all(1) & (uv <= high).all(1)).nonzero()[:, 0]
        if rest.shape[0]:
            uv = take(uv, rest)
            point, face = self._candidates(uv, _SURE)
            depth = signed_distances(self.mesh, take(uv, point), face)
            found[rest] = self._deepest(uv.shape[0], point, face, depth, -_SURE)
        return found

    # -- the grid -----------------------------------------------------------------------------

    def _cells(self, uv: Tensor) -> Tensor:
        """Row and column of the cell of each point, (N, 2)."""
        return torch.stack(
            [
                torch.searchsorted(line, uv[:, axis].contiguous())
                for axis, line in enumerate(self.lines)
            ],
            1,
        )

    def _rectangles(self, first: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        """The cells from ``first`` to ``last``, (N, 2) each: which of the N it is, and the cell."""
        span = last - first + 1
        count = span.prod(1)
        owner = owners_of(count)
        place = places_of(count, owner, offsets_of(count))
        across = take(span[:, 1], owner)
        row = take(first[:, 0], owner) + place // across
        return owner, row * self.columns + take(first[:, 1], owner) + place % across

    def _candidates(self, uv: Tensor, slack: float) -> tuple[Tensor, Tensor]:
        """Pairs (point, face) of points (N, 2) and faces whose box is within the slack of them."""
        if slack:
            point, cell = self._rectangles(self._cells(uv - slack), self._cells(uv + slack))
        else:
            at = self._cells(uv)
            point, cell = None, at[:, 0] * self.columns + at[:, 1]
        entries, count = take_rows(self.offsets, cell)
        owner, face = owners_of(count, entries.shape[0]), take(self.faces, entries)
        owner = owner if point is None else take(point, owner)
        box, at = take(self.boxes, face), take(uv, owner)
        near = ((box[:, :2] <= at + slack) & (box[:, 2:] >= at - slack)).all(1).nonzero()[:, 0]
        return take(owner, near), take(face, near)

    # -- the faces of candidates --------------------------------------------------------------

    def _deepest(
        self, points: int, point: Tensor, face: Tensor, depth: Tensor, least: float
    ) -> Tensor:
        """Of each point the face in which it lies deepest, -1 if less deep than that, (points,).

        Of equals the one with the lowest number.
        """
        best = depth.new_full((points,), -torch.inf).scatter_reduce_(0, point, depth, "amax")
        deep = ((depth == take(best, point)) & (depth >= least)).nonzero()[:, 0]
        nowhere = self.mesh.num_faces
        found = face.new_full((points,), nowhere)
        found.scatter_reduce_(0, take(point, deep), take(face, deep), "amin")
        return torch.where(found == nowhere, -1, found)

    def _depth(self, uv: Tensor, point: Tensor, face: Tensor) -> Tensor:
        """How far points are to the left of the lines through the sides of their faces, (N,)."""
        mesh = self.mesh
        entries, count = take_rows(mesh.offsets, face)
        pair = owners_of(count, entries.shape[0])
        half, ends = take(mesh.corners, entries), mesh.edges.view(-1)
        p = take(mesh.uv, take(ends, half))
        side = take(mesh.uv, take(ends, half ^ 1)) - p
        gap = take(take(uv, point), pair) - p
        cross = side[:, 0] * gap[:, 1] - side[:, 1] * gap[:, 0]
        depth = cross.new_full(face.shape, torch.inf)
        return depth.scatter_reduce_(0, pair, cross / lengths(side), "amin")


def signed_distances(mesh: Mesh, uv: Tensor, face: Tensor) -> Tensor:
    """Distance of each point (N, 2) from the outline of its face (N,), negative outside it, (N,).

    >>> from splinecam.geometry.subdivision import polygon_mesh
    >>> square = polygon_mesh(torch.tensor([[0.0, 0.0], [4.0, 0.0], [4.0, 4.0], [0.0, 4.0]]))
    >>> points = torch.tensor([[1.0, 2.0], [7.0, 8.0]])
    >>> signed_distances(square, points, torch.tensor([0, 0]))
    tensor([ 1., -5.])
    """
    entries, count = take_rows(mesh.offsets, face)
    pair = owners_of(count, entries.shape[0])
    half, at = take(mesh.corners, entries), take(uv, pair)
    ends = take(mesh.uv, take(mesh.edges, half >> 1).view(-1)).view(-1, 2, 2)
    square = at.new_full(face.shape, torch.inf)
    square.scatter_reduce_(0, pair, closest(at, ends)[1], "amin")
    # A face runs along an edge backwards where its half-edge is odd.
    turns = crossings(at, ends) * (1 - 2 * (half & 1))
    windings = torch.zeros_like(face).index_add_(0, pair, turns)
    return torch.where(windings > 0, 1.0, -1.0) * square.sqrt()


def _boxes(mesh: Mesh) -> Tensor:
    """Lowest and highest coordinates of each face, (F, 4)."""
    vertex, owner = mesh.corner_vertices(), mesh.owners()
    axes = [take(axis.contiguous(), vertex) for axis in mesh.uv.unbind(1)]
    box = mesh.uv.new_empty(mesh.num_faces)
    return torch.stack(
        [
            box.scatter_reduce(0, owner, axis, kind, include_self=False)
            for kind in ("amin", "amax")
            for axis in axes
        ],
        1,
    )


def _quantiles(uv: Tensor, lines: int) -> list[Tensor]:
    """Inner grid lines of both axes at equal ranks of the vertices."""
    out = []
    for axis in range(2):
        value = torch.sort(uv[:, axis]).values
        rank = torch.arange(1, lines, device=uv.device) * value.shape[0] // lines
        out.append(torch.unique(value[rank]))
    return out
