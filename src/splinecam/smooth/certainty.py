"""Where the class of a network is certain, though its outputs are known within bounds only.

With one output, the class is that of the side of a level. With several, it is the largest output:
output c is certainly larger than output k where their difference exceeds the sum of their bounds.
"""

from __future__ import annotations

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.csr import take
from splinecam.geometry.subdivision import Mesh

__all__ = ["band_shares", "slacks", "slacks_of_faces", "undecided_areas"]


def slacks_of_faces(mesh: Mesh, values: Tensor, bounds: Tensor, level: float) -> Tensor:
    """By how much the class of each face is certain, (F,); not positive where it is not.

    values: (V, n) at the vertices; bounds: (F, n).
    """
    found = bounds.new_empty(mesh.num_faces)
    step = backend_of(values.device).numbers // max(1, values.shape[1])
    for face, vertex in mesh.by_size(step):
        corners = take(values, vertex.reshape(-1)).view(*vertex.shape, values.shape[1])
        found[face] = slacks(corners, take(bounds, face), level)
    return found


def undecided_areas(
    mesh: Mesh, sizes: Tensor, values: Tensor, bounds: Tensor, level: float
) -> Tensor:
    """Upper bounds on the area of each face, of size (F,), where the class is uncertain, (F,).

    They are those of ``band_shares`` for triangles, and the whole area of other uncertain faces.
    """
    uncertain = slacks_of_faces(mesh, values, bounds, level) <= 0
    found = torch.where(uncertain, sizes, 0.0)
    face = (uncertain & (mesh.counts() == 3)).nonzero()[:, 0]
    entry = take(mesh.offsets, face)[:, None] + torch.arange(3, device=face.device)
    corners = take(values, mesh.corner_vertices()[entry].view(-1)).view(
        *entry.shape, values.shape[1]
    )
    found[face] *= band_shares(corners, bounds[face], level)
    return found


def slacks(values: Tensor, bounds: Tensor, level: float) -> Tensor:
    """By how much the class is certain on faces with values (N, k, n) at their corners, (N,)."""
    if values.shape[2] == 1:
        above = values[:, :, 0] - level
        return torch.maximum(above.amin(1), -above.amax(1)) - bounds[:, 0]
    # If one output is the largest on the whole face, it is the largest at the first corner.
    best = values[:, 0].argmax(1, keepdim=True)
    lead = values.gather(2, best[:, None].expand(-1, values.shape[1], 1)) - values
    lead = lead.amin(1) - bounds - bounds.gather(1, best)
    return lead.scatter(1, best, torch.inf).amin(1)


def band_shares(values: Tensor, bounds: Tensor, level: float) -> Tensor:
    """Upper bounds on the part of triangles where the class is uncertain, from 0 to 1, (N,).

    values: (N, 3, n) at the corners; bounds: (N, n). They are attained where only two classes are
    possible, and are 1 where four are.
    """
    if values.shape[2] == 1:
        return _strip(values[:, :, 0] - level, bounds[:, 0])
    best = values.mean(1).argmax(1, keepdim=True)
    lead = values.gather(2, best[:, None].expand(-1, 3, 1)) - values
    behind = lead.amin(1) - bounds - bounds.gather(1, best)  # if positive, nowhere the largest
    behind.scatter_(1, best, -torch.inf)
    count = min(4, behind.shape[1])
    rivals = behind.topk(count, dim=1, largest=False)
    possible = rivals.values <= 0
    part = torch.zeros_like(bounds[:, 0])
    z = values.gather(2, rivals.indices[:, None].expand(-1, 3, count))
    b = bounds.gather(1, rivals.indices)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        if j < count:
            strip = _strip(z[:, :, i] - z[:, :, j], b[:, i] + b[:, j])
            part += torch.where(possible[:, i] & possible[:, j], strip, 0.0)
    if count > 3:
        part = torch.where(possible[:, 3], 1.0, part)
    return part.clamp(max=1.0)


def _strip(values: Tensor, width: Tensor) -> Tensor:
    """The part of triangles where a linear function, (N, 3) at the corners, is within a width."""
    ordered = values.sort(1).values
    return (_below(ordered, width) - _below(ordered, -width)).clamp(0, 1)


def _below(ordered: Tensor, level: Tensor) -> Tensor:
    """The part of triangles on which a linear function is at most a level, (N,).

    ordered: (N, 3) ascending, its values at the corners.
    """
    low, middle, high = ordered.unbind(1)
    # Each of the two corners is cut off by the level along the sides that meet there.
    rising = _cut(level - low, middle - low) * _cut(level - low, high - low)
    falling = 1 - _cut(high - level, high - middle) * _cut(high - level, high - low)
    part = torch.where(level < middle, rising, falling)
    return torch.where(level < low, 0.0, torch.where(level >= high, 1.0, part))


def _cut(length: Tensor, side: Tensor) -> Tensor:
    """How much of a side is cut off, from 0 to 1."""
    return torch.where(side > 0, length / torch.where(side > 0, side, 1.0), 1.0).clamp(0, 1)
