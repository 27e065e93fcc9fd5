"""Where to divide a face that would get too many regions: straight lines between its halves.

The lines of a layer's units are chords of the face, and the regions that they make are about as
many as their crossings. A sample of crossings therefore shows how many regions there will be, and
where they lie. Where many chords pass through one point, only lines through that point divide the
regions around it.
"""

from __future__ import annotations

from math import ceil, pi, sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from splinecam._util.tolerances import SAFETY
from splinecam.arrangement.functions import Functions

__all__ = ["MOST_PARTS", "CutLines", "RegionSample", "choose_lines", "sample_regions"]

_DRAWN = 1 << 14  # pairs of chords that are looked at
_SEED = 0
_TILT = 0.1932 * pi  # the lines are turned by this angle, so that they are like no network's lines
_EVENLY = 256  # points of a face of which nothing is known
_MARGIN = 2.0**-10  # how far a line stays away from the ends of a face, relative to its width
_GAP = 2.0**-24  # between which points a line may pass, relative to the width
_NEAR = 2.0**-16  # how close crossings are that count as one point, relative to the width
_MANY = 0.25  # the share of crossings in one point from which on that point is divided
_SNAP = 2.0**-40  # how close such a point is to a corner that it is taken for
MOST_PARTS = 1 << 10  # into which a face is divided
_ASIDE = 0.381966  # a share of a width at which hardly anything is


class CutLines(NamedTuple):
    """The points of a plane at which ``uv @ normal`` is ``level``: (L, 2) unit vectors and (L,)."""

    normal: Tensor
    level: Tensor

    @property
    def tangent(self) -> Tensor:
        """The directions of the lines, (L, 2)."""
        return torch.stack([-self.normal[:, 1], self.normal[:, 0]], 1)

    def values(self, uv: Tensor) -> Tensor:
        """How far points (V, 2) are in front of each line, (V, L)."""
        return uv @ self.normal.T - self.level


class RegionSample(NamedTuple):
    """About how many regions there will be, and points (N, 2) where they lie, with weights (N,).

    outline: (k, 2) the corners of the face. apex: a point (2,) through which many lines pass, if
    any, and angles: (M,) those of the lines.
    """

    outline: Tensor
    regions: float
    points: Tensor
    weight: Tensor
    apex: Tensor | None = None
    angles: Tensor | None = None


def sample_regions(uv: Tensor, functions: Functions | None) -> RegionSample:
    """A sample of the regions of a convex face with corners uv (k, 2), in order around it.

    functions: their values are given at the corners, in the same order; None if it is not known
    how many regions there will be.
    """
    if functions is None:
        random = torch.Generator().manual_seed(_SEED)
        share = torch.rand((_EVENLY, uv.shape[0]), generator=random).to(uv)
        points = (share / share.sum(1, keepdim=True)) @ uv
        return RegionSample(uv, torch.inf, points, torch.ones_like(points[:, 0]))
    start, end = _chords(uv, functions)
    lines = start.shape[0]
    if not lines:
        return RegionSample(uv, 1.0, uv, torch.ones_like(uv[:, 0]))
    random = torch.Generator().manual_seed(_SEED)
    first, second = torch.randint(lines, (2, _DRAWN), generator=random).to(uv.device)
    crossing = _crossings(start, end, first, second)
    crossings = crossing.shape[0] / _DRAWN * lines * (lines - 1) / 2
    share = torch.rand((_DRAWN, 1), generator=random).to(uv)
    along = torch.lerp(start[first], end[first], share)
    weight = uv.new_full((crossing.shape[0] + _DRAWN,), lines / _DRAWN)
    weight[: crossing.shape[0]] = crossings / max(1, crossing.shape[0])
    sample = RegionSample(uv, 1 + lines + crossings, torch.cat([crossing, along]), weight)
    return _with_apex(sample, crossing, crossings, end - start)


def _with_apex(
    sample: RegionSample, crossing: Tensor, crossings: float, chords: Tensor
) -> RegionSample:
    """The sample with the point at which many chords (M, 2) cross, if there is one."""
    if not crossing.shape[0]:
        return sample
    uv = sample.outline
    width = (uv.amax(0) - uv.amin(0)).amax()
    apex = crossing.median(0).values
    together = (crossing - apex).abs().amax(1) <= _NEAR * width
    share = float(together.double().mean())
    if share < _MANY:
        return sample
    off = (uv - apex).norm(dim=1)
    if bool(off.amin() <= _SNAP * width):
        apex = uv[off.argmin()]
    regions = sample.regions - share * crossings  # all of them are one vertex
    angles = torch.atan(chords[:, 1] / chords[:, 0])
    return sample._replace(regions=regions, apex=apex, angles=angles)


def _chords(uv: Tensor, functions: Functions) -> tuple[Tensor, Tensor]:
    """Both ends of the lines along which functions vanish in a face, (m, 2) each."""
    column = functions.wanted.nonzero()[:, 0]
    unit = functions.unit[column]
    value = functions.z[:, unit]
    if functions.other is None:
        value = value - functions.level[column]
    else:
        value = value - functions.z[:, functions.other[column]]
    after = value.roll(-1, 0)
    changes = (value > 0) != (after > 0)
    zero = SAFETY * functions.error[column]
    crosses = (value.amax(0) > zero) & (value.amin(0) < -zero) & (changes.sum(0) == 2)
    crosses = crosses.nonzero()[:, 0]
    value, after, changes = value[:, crosses], after[:, crosses], changes[:, crosses].to(torch.int8)
    sides = changes.argmax(0), uv.shape[0] - 1 - changes.flip(0).argmax(0)
    ends = []
    for side in sides:
        a, b = (x.gather(0, side[None])[0] for x in (value, after))
        ends.append(torch.lerp(uv[side], uv.roll(-1, 0)[side], (a / (a - b))[:, None]))
    return ends[0], ends[1]


def _crossings(start: Tensor, end: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """The points (N, 2) at which some pairs of chords cross."""
    d, e, off = (end - start)[first], (end - start)[second], start[second] - start[first]
    turn = _cross(d, e)
    s, t = _cross(off, e) / turn, _cross(off, d) / turn
    inside = (s >= 0) & (s <= 1) & (t >= 0) & (t <= 1)  # chords may begin at the same corner
    return (start[first] + s[:, None] * d)[inside]


def _cross(a: Tensor, b: Tensor) -> Tensor:
    return a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]


def choose_lines(sample: RegionSample, parts: int) -> CutLines:
    """Lines that divide a face into about so many parts, with as many regions each.

    There is at least one line. They have two directions, or pass through one point.
    """
    parts = min(parts, MOST_PARTS)
    if sample.apex is not None and sample.angles is not None:
        ends = sample.angles.new_tensor([-pi / 2, pi / 2])
        angle = _levels(ends, sample.angles, torch.ones_like(sample.angles), parts + 1)
        normal = torch.stack([-torch.sin(angle), torch.cos(angle)], 1)
        return CutLines(normal, normal @ sample.apex)
    points, weight = sample.points, sample.weight
    weight = weight / weight.sum()
    centred = points - weight @ points
    _, vectors = torch.linalg.eigh((centred * weight[:, None]).T @ centred)
    long = vectors[:, 1] * torch.where(vectors[0, 1] < 0, -1.0, 1.0)
    cos, sin = torch.cos(long.new_tensor(_TILT)), torch.sin(long.new_tensor(_TILT))
    first = torch.stack([cos * long[0] - sin * long[1], sin * long[0] + cos * long[1]])
    axes = torch.stack([first, torch.stack([-first[1], first[0]])])
    spread = ((centred @ axes.T).square() * weight[:, None]).sum(0).sqrt().tolist()
    across = round(sqrt(parts * spread[0] / spread[1])) if spread[1] > 0 else parts
    across = max(1, min(parts, across))
    normals, levels = [], []
    for axis, count in zip(axes, (across, ceil(parts / across)), strict=True):
        level = _levels(sample.outline @ axis, points @ axis, weight, count)
        normals.append(axis.expand(level.shape[0], 2))
        levels.append(level)
    return CutLines(torch.cat(normals), torch.cat(levels))


def _levels(ends: Tensor, points: Tensor, weight: Tensor, count: int) -> Tensor:
    """Levels between ``count`` equal shares of weighted points, inside of the interval of ends.

    They pass between points that are apart: not through a point at which many lines meet.
    """
    if count < 2:
        return ends[:0]
    low, high = ends.amin(), ends.amax()
    margin, gap = _MARGIN * (high - low), _GAP * (high - low)
    points, order = torch.sort(points)
    middle = (points[1:] + points[:-1]) / 2
    free = ((points.diff() > gap) & (middle > low + margin) & (middle < high - margin)).nonzero()
    if not free.shape[0]:
        return (low + (high - low) * _ASIDE)[None]
    share = torch.cumsum(weight[order], 0)
    share = (share / share[-1])[free[:, 0]]
    wanted = torch.arange(1, count, device=share.device, dtype=share.dtype) / count
    after = torch.searchsorted(share, wanted).clamp(max=share.shape[0] - 1)
    before = (after - 1).clamp(min=0)
    nearest = torch.where(wanted - share[before] < share[after] - wanted, before, after)
    return middle[free[torch.unique(nearest), 0]]
