"""Points in the plane: the face of each of many, and their distances from segments.

A segment about as short as rounding has no known direction, so the line through it is useless.
Where that matters, distances are measured to the segments themselves, and a polygon contains a
point if its winding number around the point is not zero.

A point is in a face if it lies farther than ``_SURE`` to the left of the lines through all sides. A
point on an edge or at a vertex belongs to the face in which it lies deepest, and of equally deep
faces, as on an edge, to the one with the lowest number. A point outside all faces belongs to the
nearest one if rounding explains the distance, and else to none (-1).
"""

from __future__ import annotations

import torch
from torch import Tensor

from splinecam._util.arrays import lengths, offsets_of, owners_of, places_of, take, take_rows
from splinecam._util.tolerances import SAFETY, UV_ERROR
from splinecam.geometry.subdivision import Mesh


def closest(points: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    """The fraction t of segments (N, 2, 2) closest to points (N, 2), and the squared distance."""
    (ax, ay), (bx, by) = (gap.unbind(1) for gap in (ends - points[:, None]).unbind(1))
    dx, dy = (ends[:, 1] - ends[:, 0]).unbind(1)
    full, along = dx * dx + dy * dy, -(ax * dx + ay * dy)
    t = (along / torch.where(full > 0, full, 1.0)).clamp(0, 1)
    # Differences from the nearer end lose fewer digits.
    late = t > 0.5
    ux, uy = torch.where(late, bx, ax), torch.where(late, by, ay)
    cross = ux * dy - uy * dx
    beyond = (along <= 0) | (along >= full)
    return t, torch.where(beyond, ux * ux + uy * uy, cross * cross / full)


def crossings(points: Tensor, ends: Tensor) -> Tensor:
    """Whether segments (N, 2, 2) cross the rays from points (N, 2) to the right, (N,).

    Returns 1 for a segment that crosses upwards, -1 downwards, and 0 for none. The sum around a
    polygon is its winding number around the point. The reversed segment gives the opposite number,
    whatever the rounding, so that exactly one of several polygons without gaps and overlaps winds
    around a point between them. That polygon contains the point up to rounding.

    >>> square = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> sides = torch.stack([square, square.roll(-1, 0)], 1)
    >>> int(crossings(torch.tensor([[0.5, 0.5]]).expand(4, 2), sides).sum())
    1
    """
    (ax, ay), (bx, by) = (end.unbind(1) for end in ends.unbind(1))
    x, y = points.unbind(1)
    above, below = by > y, ay > y
    # Both directions compute from the lower end, so that they round alike.
    px, py = torch.where(above, ax, bx), torch.where(above, ay, by)
    dx, dy = torch.where(above, bx, ax) - px, torch.where(above, by, ay) - py
    left = (x - px) * dy < (y - py) * dx
    return (above.long() - below.long()) * left


_MAX_LINES = 2048  # grid lines per axis
_MAX_LISTED = 8  # entries of the grid per face; with more the grid gets coarser
_BLOCK = 1 << 21  # corners in a block
_SURE = SAFETY * UV_ERROR  # the largest distance that rounding may explain


class Locator:
    """A grid that lists for each cell the faces whose bounding boxes meet the cell."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.boxes = mesh.boxes()
        low, high = self.boxes[:, :2], self.boxes[:, 2:]
        lines = min(_MAX_LINES, max(1, int(mesh.num_faces**0.5)))
        while True:
            # Lines are quantiles of the vertices' coordinates, so that a cell has few faces even if
            # most regions lie in one corner of the domain.
            rank = torch.arange(1, lines, device=mesh.uv.device) * mesh.num_vertices // lines
            self.lines = [torch.unique(torch.sort(axis).values[rank]) for axis in mesh.uv.T]
            first, last = self._cells(low), self._cells(high)
            total = int((last - first + 1).prod(1).sum())
            if lines == 1 or total <= _MAX_LISTED * (mesh.num_faces + _MAX_LISTED):
                break
            lines //= 2
        self.columns = self.lines[1].shape[0] + 1
        owner, cell = self._rectangles(first, last)
        cell, order = torch.sort(cell.int())
        self.faces = take(owner, order)
        cells = (self.lines[0].shape[0] + 1) * self.columns
        self.offsets = offsets_of(torch.bincount(cell, minlength=cells))

    def __call__(self, uv: Tensor) -> Tensor:
        """The face of each point (N, 2) in the mesh's coordinates, -1 outside the mesh, (N,)."""
        corners = self.mesh.corners.shape[0] / self.mesh.num_faces
        listed = self.faces.shape[0] / max(1, self.offsets.shape[0] - 1)
        step = max(1, int(_BLOCK / (corners * (1 + listed))))
        found = [self._locate(part) for part in torch.split(uv, step)]
        return torch.cat(found) if found else self.faces[:0]

    def _locate(self, uv: Tensor) -> Tensor:
        point, face = self._candidates(uv, 0.0)
        # Points that are surely to the left of all sides are inside, even where sides are short.
        found = self._deepest(uv.shape[0], point, face, self._depth(uv, point, face), _SURE)
        # The others lie on a side, outside, or where a short side has a wrong direction.
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
        """The row and the column of the cell of each point, (N, 2)."""
        axes = zip(self.lines, uv.T.contiguous(), strict=True)
        return torch.stack([torch.searchsorted(line, axis) for line, axis in axes], 1)

    def _rectangles(self, first: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        """The rectangle of each cell, and the cell, of N rectangles from first to last (N, 2)."""
        span = last - first + 1
        count = span.prod(1)
        owner = owners_of(count)
        place = places_of(count, owner, offsets_of(count))
        across = take(span[:, 1], owner)
        row = take(first[:, 0], owner) + place // across
        return owner, row * self.columns + take(first[:, 1], owner) + place % across

    def _candidates(self, uv: Tensor, slack: float) -> tuple[Tensor, Tensor]:
        """Pairs of points (N, 2) and faces whose bounding boxes are within the slack of them."""
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

    # -- distances ----------------------------------------------------------------------------

    def _deepest(
        self, points: int, point: Tensor, face: Tensor, depth: Tensor, least: float
    ) -> Tensor:
        """The face, of equal ones the lowest, in which each point lies at least so deep, or -1."""
        best = depth.new_full((points,), -torch.inf).scatter_reduce_(0, point, depth, "amax")
        deep = ((depth == take(best, point)) & (depth >= least)).nonzero()[:, 0]
        outside = self.mesh.num_faces
        found = face.new_full((points,), outside)
        found.scatter_reduce_(0, take(point, deep), take(face, deep), "amin")
        return torch.where(found == outside, -1, found)

    def _depth(self, uv: Tensor, point: Tensor, face: Tensor) -> Tensor:
        """How far points lie to the left of the lines through all sides of their faces, (N,)."""
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
    """The distance of each point (N, 2) from the boundary of a face (N,), negative outside, (N,).

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
    # The boundary of a face runs along an edge backwards where its half-edge is odd.
    turns = crossings(at, ends) * (1 - 2 * (half & 1))
    windings = torch.zeros_like(face).index_add_(0, pair, turns)
    return torch.where(windings > 0, 1.0, -1.0) * square.sqrt()
