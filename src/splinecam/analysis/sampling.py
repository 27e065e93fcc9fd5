"""Random points: uniform by length on segments, uniform by area on regions."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch
from torch import Tensor

from splinecam._util.csr import offsets_of, owners_of, places_of, take, take_rows
from splinecam.analysis.partition_data import PartitionData
from splinecam.analysis.segments import Segments
from splinecam.errors import SplineCamError
from splinecam.geometry.subdivision import Mesh

__all__ = [
    "NO_AREA",
    "choose",
    "points_inside",
    "sample_count",
    "sample_regions",
    "sample_segments",
    "uniform",
]

NO_AREA = (
    "There is nothing to sample from: the chosen regions have no area. Choose others, "
    "or leave regions out to sample the domain."
)


def sample_segments(
    curves: Segments, n: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Random points on the segments, uniform by length: coordinates (n, 2) and segments (n,)."""
    n = sample_count(n)
    chance = uniform((n, 2), generator, curves.points.device)
    if n and not curves.length > 0:
        raise SplineCamError(
            "There is nothing to sample from: the curves have no segments of positive length. "
            "Check their length before, or choose a larger domain or another level."
        )
    segment = choose(curves.lengths, chance[:, 0])
    ends = take(curves.ends, segment)
    return torch.lerp(ends[:, 0], ends[:, 1], chance[:, 1:]), segment


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
    return part.inputs(part.frame.to_plane(local), dtype=dtype, device=device)


def sample_count(n: int) -> int:
    """The number of samples, which must be a whole number."""
    try:
        count = operator.index(n)
    except TypeError:
        raise TypeError(f"n must be a whole number of samples, not {n!r}") from None
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
    area = (a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]).clamp(min=0)
    triangle = _choose_in_rows(area, place, offsets_of(counts), row, chance[:, 0])
    s, t = chance[:, 1:2], chance[:, 2:3]
    s, t = torch.where(s + t > 1, 1 - s, s), torch.where(s + t > 1, 1 - t, t)
    return take(apex, triangle) + s * take(a, triangle) + t * take(b, triangle)


def _choose_in_rows(
    weight: Tensor, place: Tensor, offsets: Tensor, row: Tensor, chance: Tensor
) -> Tensor:
    """An entry of the given row for each chance, with probabilities in proportion to the weights.

    weight: (T,) of each entry; place: (T,) its place in its row; offsets: (R + 1,) where the rows
    begin; row: (N,).
    """
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
