"""The density of regions around given inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from splinecam._util.bvh import BoxTree
from splinecam._util.csr import owners_of, take, take_rows
from splinecam.analysis.partition_data import PartitionData
from splinecam.geometry.distances import closest

if TYPE_CHECKING:
    from splinecam.geometry.subdivision import Mesh

__all__ = ["Density", "density"]

_BLOCK = 1 << 15  # disks in a block


@dataclass(frozen=True, eq=False, repr=False)
class Density:
    """The regions that meet the closed disks around N inputs.

    count: (N,) the number of regions; area: (N,) of the part of the disk inside the domain; radius:
    of the disks, in plane coordinates.
    """

    count: Tensor
    area: Tensor
    radius: float

    @property
    def density(self) -> Tensor:
        """Regions per area, nan where the disk misses the domain, (N,)."""
        return self.count / self.area

    def __len__(self) -> int:
        return int(self.count.shape[0])

    def __repr__(self) -> str:
        spread = f"{self.count.min()} to {self.count.max()} regions" if len(self) else "no regions"
        return f"Density({len(self):,} inputs, {spread} within {self.radius:.4g})"


def density(part: PartitionData, x: Any, radius: float) -> Density:
    """The number of regions that meet the disk around each input, and the area of the disk.

    x: a batch (N, ...), a flat batch, or one input; inputs off the plane are projected onto it.
    radius: of the disks, in plane coordinates.

    >>> import splinecam as sc
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.ReLU())
    >>> _ = net[0].weight.data.copy_(torch.tensor([[1.0, 0.0]])), net[0].bias.data.zero_()
    >>> part = sc.partition(net, sc.Domain.box(-1, 1), progress=False)
    >>> part.density([[0.25, 0.0], [0.75, 0.0]], radius=0.5).count
    tensor([2, 1])
    """
    if not isinstance(radius, Real) or isinstance(radius, bool):
        raise TypeError(f"radius must be a number, not {radius!r}")
    if not (math.isfinite(radius) and radius > 0):
        raise ValueError(f"radius must be a positive finite number, not {radius}")
    mesh, frame = part.mesh, part.frame
    points = frame.to_local(part.domain.project(x)[0].to(mesh.uv))
    corners = frame.to_local(part.domain.corners.to(points))
    local = float(radius) / frame.scale
    tree = BoxTree(*mesh.boxes().split(2, 1))
    count, area = torch.zeros_like(points[:, 0], dtype=torch.int64), torch.zeros_like(points[:, 0])
    for block in torch.split(tree.sorted(points), _BLOCK):
        centre = points[block]
        count[block] = _met(mesh, tree, centre, part._locator(centre), local)
        area[block] = _disk_in_polygon(centre, local, corners)
    area = torch.where(count > 0, area * frame.scale**2, 0.0)
    return Density(count, area, float(radius))


def _met(mesh: Mesh, tree: BoxTree, centre: Tensor, home: Tensor, radius: float) -> Tensor:
    """Number of faces that meet each disk, whose centre lies in the face ``home``, (N,)."""
    count = torch.zeros_like(home)
    reach = torch.full_like(centre[:, 0], radius * radius)
    for point, face in tree.walk(centre, reach, inside=count):
        entries, sides = take_rows(mesh.offsets, face)
        pair = owners_of(sides)
        ends = mesh.uv[mesh.edges[take(mesh.corners, entries) >> 1]]
        near = closest(centre[point[pair]], ends)[1] <= radius * radius
        meets = face == take(home, point)
        meets[pair[near]] = True
        count.index_add_(0, point, meets.long())
    return count


def _disk_in_polygon(centre: Tensor, radius: float, corners: Tensor) -> Tensor:
    r"""Area of the part of each disk that lies in a convex polygon, (N,).

    Each side p-q contributes, with a sign, the part of its triangle to the centre c in the disk:

        p--a=====b--q     a sector along p-a, the triangle a-b-c, and a sector along b-q
         \  \   /  /
          '--. c .'
    """
    doubled = torch.zeros_like(centre[:, 0])
    inside = torch.ones_like(doubled, dtype=torch.bool)
    for start, end in zip(corners, corners.roll(-1, 0), strict=True):
        p, q = start - centre, end - centre
        a, b = _in_disk(p, q, radius)
        doubled += radius * radius * (_angle(p, a) + _angle(b, q)) + _cross(a, b)
        inside &= p.square().sum(1) <= radius * radius
    # Centres far away cancel digits; a polygon inside the disk counts as a whole.
    fan = corners[1:] - corners[0]
    full = _cross(fan[:-1], fan[1:]).sum()
    most = torch.clamp(full, max=2 * math.pi * radius * radius)
    return torch.where(inside, full, doubled.clamp(min=0).minimum(most)) / 2


def _in_disk(p: Tensor, q: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """The part of the sides p-q (N, 2) within the radius of 0, or the point nearest to 0."""
    d = q - p
    length = d.square().sum(1).sqrt()
    height = _cross(p, d) / length
    half = ((radius - height) * (radius + height)).clamp(min=0).sqrt() / length
    middle = -(p * d).sum(1) / length.square()
    first, last = (middle - half).clamp(0, 1), (middle + half).clamp(0, 1)
    return torch.lerp(p, q, first[:, None]), torch.lerp(p, q, last[:, None])


def _cross(p: Tensor, q: Tensor) -> Tensor:
    return p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0]


def _angle(p: Tensor, q: Tensor) -> Tensor:
    """Angle from p to q as seen from 0, (N,)."""
    return torch.atan2(_cross(p, q), (p * q).sum(1))
