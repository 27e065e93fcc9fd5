"""Random points of regions, and the density of regions around given inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from splinecam._util.arrays import offsets_of, owners_of, places_of, take, take_rows
from splinecam._util.bvh import BoxTree
from splinecam.errors import SplineCamError
from splinecam.geometry.convex import cross
from splinecam.geometry.point_location import closest
from splinecam.geometry.subdivision import Mesh
from splinecam.questions.partition_data import PartitionData, whole_number

NO_AREA = (
    "There is nothing to sample from: the chosen regions have no area. Choose others, "
    "or leave regions out to sample the domain."
)


def sample_regions(
    part: PartitionData,
    n: int,
    *,
    regions: Tensor | Sequence[int] | int | None = None,
    per_region: bool = False,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: str | torch.device | None = None,
) -> Tensor:
    """Random inputs, uniform by area over the domain or over the chosen regions, (n, ...).

    Rounding to single precision may move a point out of a tiny region.

    n: the number of inputs. regions: numbers of regions, or a mask (F,), by default all.
    per_region: draw n inputs from each region, region after region. generator: the source of
    randomness, by default torch's own. dtype, device: by default the model's floating-point type,
    and the device of the domain.

    >>> import splinecam as sc
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU()).double()
    >>> part = sc.partition(net, sc.Domain.box(-1, 1), progress=False)
    >>> x = part.sample(3, regions=[0, 1], per_region=True)
    >>> part.locate(x)
    tensor([0, 0, 0, 1, 1, 1])
    """
    n, where = sample_count(n), part.mesh.uv.device
    chosen = torch.arange(len(part), device=where) if regions is None else part._indices(regions)
    total = n * chosen.shape[0] if per_region else n
    chance = uniform((total, 4), generator, where)
    if per_region:
        face = chosen.repeat_interleave(n)
    else:
        weight = take(part.areas, chosen).clamp(min=0)
        if n and not float(weight.sum()) > 0:
            raise SplineCamError(NO_AREA)
        face = take(chosen, choose(weight, chance[:, 3]))
    local = points_inside(part.mesh, face, chance[:, :3])
    return part._inputs(part._frame.to_plane(local), dtype=dtype, device=device)


def sample_count(n: int) -> int:
    """The number of samples, which must be a whole number."""
    count = whole_number(n, "n must be a whole number of samples")
    if count < 0:
        raise ValueError(f"n must be at least 0, not {count}")
    return count


def uniform(
    shape: tuple[int, ...], generator: torch.Generator | None, device: torch.device
) -> Tensor:
    """Uniform numbers in [0, 1), drawn on the generator's device, by default the CPU."""
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(
            f"generator must be a torch.Generator, not {generator!r}: to fix the seed, give "
            "torch.Generator().manual_seed(0)"
        )
    where = torch.device("cpu") if generator is None else generator.device
    return torch.rand(shape, generator=generator, dtype=torch.float64, device=where).to(device)


def choose(weight: Tensor, chance: Tensor) -> Tensor:
    """An entry for each chance in [0, 1), with probabilities in proportion to the weights (S,)."""
    if not chance.shape[0]:
        return torch.empty_like(chance, dtype=torch.int64)
    # A parallel sum may decrease by a rounding error where the weights are tiny.
    total = torch.cumsum(weight, 0).cummax(0).values
    # The level stays below the last total, so that an entry without weight is never chosen.
    below = torch.nextafter(total[-1], torch.zeros_like(total[-1]))
    level = torch.minimum((chance * total[-1]).contiguous(), below)
    return torch.searchsorted(total, level, right=True)


def points_inside(mesh: Mesh, face: Tensor, chance: Tensor) -> Tensor:
    """A point of each face (N,), uniform by area, for three chances each (N, 3)."""
    face, row = torch.unique(face, return_inverse=True)
    entries, counts = take_rows(mesh.offsets, face)
    corner = mesh.uv[take(mesh.edges.view(-1), take(mesh.corners, entries))]
    # The fan of a face with k corners has the triangles (first, i, i + 1), i = 1, ..., k - 2.
    counts, offsets = counts - 2, offsets_of(counts)
    owner = owners_of(counts)
    place = places_of(counts, owner, offsets_of(counts))
    first = take(offsets, owner)
    apex = take(corner, first)
    a, b = (take(corner, first + place + step) - apex for step in (1, 2))
    area = cross(a, b).clamp(min=0)
    triangle = _choose_in_rows(area, place, offsets_of(counts), row, chance[:, 0])
    s, t = chance[:, 1:2], chance[:, 2:3]
    s, t = torch.where(s + t > 1, 1 - s, s), torch.where(s + t > 1, 1 - t, t)
    return take(apex, triangle) + s * take(a, triangle) + t * take(b, triangle)


def _choose_in_rows(
    weight: Tensor, place: Tensor, offsets: Tensor, row: Tensor, chance: Tensor
) -> Tensor:
    """An entry of each given row (N,) for its chance, with probabilities by weight (T,)."""
    total = weight.clone()
    longest = int(place.max()) + 1 if place.shape[0] else 0
    step = 1
    while step < longest:  # sums over 2, 4, 8, ... entries of one row
        total = torch.where(place >= step, total + total.roll(step), total)
        step *= 2
    low, high = take(offsets, row), take(offsets, row + 1) - 1
    level = chance * take(total, high)
    while step := step // 2:  # bisect for the first entry above the level
        middle = (low + step - 1).minimum(high)
        low = torch.where(take(total, middle) > level, low, (middle + 1).minimum(high))
    return low


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
    part._require("the density of regions")
    if not isinstance(radius, Real) or isinstance(radius, bool):
        raise TypeError(f"radius must be a number, not {radius!r}")
    if not (math.isfinite(radius) and radius > 0):
        raise ValueError(f"radius must be a positive finite number, not {radius}")
    mesh, frame = part.mesh, part._frame
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
    """Area of the part of each disk that lies in a convex polygon, (N,).

    If the side p-q is in the disk from a to b, it contributes, with a sign, the triangle of a, b
    and the centre, and the sectors along p-a and b-q.
    """
    doubled = torch.zeros_like(centre[:, 0])
    inside = torch.ones_like(doubled, dtype=torch.bool)
    for start, end in zip(corners, corners.roll(-1, 0), strict=True):
        p, q = start - centre, end - centre
        a, b = _in_disk(p, q, radius)
        sectors = (torch.atan2(cross(x, y), (x * y).sum(1)) for x, y in ((p, a), (b, q)))
        doubled += radius * radius * sum(sectors) + cross(a, b)
        inside &= p.square().sum(1) <= radius * radius
    # Centres far away cancel digits; a polygon inside the disk counts as a whole.
    fan = corners[1:] - corners[0]
    full = cross(fan[:-1], fan[1:]).sum()
    most = torch.clamp(full, max=2 * math.pi * radius * radius)
    return torch.where(inside, full, doubled.clamp(min=0).minimum(most)) / 2


def _in_disk(p: Tensor, q: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """The part of the sides p-q (N, 2) within the radius of 0, or the point nearest to 0."""
    d = q - p
    length = d.square().sum(1).sqrt()
    height = cross(p, d) / length
    half = ((radius - height) * (radius + height)).clamp(min=0).sqrt() / length
    middle = -(p * d).sum(1) / length.square()
    first, last = (middle - half).clamp(0, 1), (middle + half).clamp(0, 1)
    return torch.lerp(p, q, first[:, None]), torch.lerp(p, q, last[:, None])
