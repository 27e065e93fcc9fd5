"""The part of an atlas in a window, as one partition in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from splinecam._partition import Partition
from splinecam._util.csr import owners_of, take, take_rows
from splinecam.atlas.atlas_data import AtlasData
from splinecam.atlas.extracting import extract
from splinecam.errors import DomainError
from splinecam.geometry.frame import Frame
from splinecam.geometry.subdivision import Mesh

__all__ = ["Box", "checked_box", "local_box", "meeting", "middle_window", "tiles_in", "window"]

Box = tuple[float, float, float, float]


def window(atlas: AtlasData, box: Sequence[float]) -> Partition:
    """The regions that meet a rectangle, as one partition in memory.

    Its ``domain`` is that of the atlas, of which its regions cover the rectangle. On the outline of
    these regions, ``edge_faces`` has -1 on the other side. Tiles beside the rectangle are not read.

    box: the rectangle (u0, v0, u1, v1) in plane coordinates.
    """
    local = local_box(atlas.frame, checked_box(box))
    found = extract(atlas, lambda tile: meeting(tile.mesh, local), tiles_in(atlas, local))
    if not len(found.part):
        raise DomainError(f"The window {list(box)} is outside of the domain.")
    return found.part


def checked_box(box: Sequence[float]) -> Box:
    """A rectangle as four numbers; an error if it is none."""
    try:
        u0, v0, u1, v1 = map(float, box)
    except (TypeError, ValueError):
        raise TypeError(f"a window has four numbers, u0, v0, u1 and v1, not {box!r}") from None
    if not (all(map(math.isfinite, (u0, v0, u1, v1))) and u0 < u1 and v0 < v1):
        raise ValueError(f"the window {[u0, v0, u1, v1]} is empty, or not finite")
    return u0, v0, u1, v1


def local_box(frame: Frame, box: Box) -> Box:
    """A rectangle of the plane in local coordinates."""
    u0, v0, u1, v1 = frame.to_local(torch.tensor(box, dtype=torch.float64).view(2, 2)).flatten()
    return float(u0), float(v0), float(u1), float(v1)


def tiles_in(atlas: AtlasData, local: Box) -> list[int]:
    """The numbers of the tiles whose boxes meet a local rectangle, ascending."""
    u0, v0, u1, v1 = local
    left, low, right, high = atlas.boxes.unbind(1)
    near = (left <= u1) & (right >= u0) & (low <= v1) & (high >= v0)
    found: list[int] = near.nonzero()[:, 0].tolist()
    return found


def meeting(mesh: Mesh, box: Box) -> Tensor:
    """The faces that meet a rectangle (u0, v0, u1, v1) in the mesh's coordinates, ascending."""
    u0, v0, u1, v1 = box
    left, low, right, high = mesh.boxes().unbind(1)
    near = (left <= u1) & (right >= u0) & (low <= v1) & (high >= v0)
    faces = near.nonzero()[:, 0]
    if bool(((left >= u0) & (right <= u1) & (low >= v0) & (high <= v1)).all()):
        return faces
    entries, counts = take_rows(mesh.offsets, faces)
    half, ends = take(mesh.corners, entries), mesh.edges.view(-1)
    p = take(mesh.uv, take(ends, half))
    side = take(mesh.uv, take(ends, half ^ 1)) - p
    # The corner of the rectangle that is farthest to the left of a side's line.
    first, last = p.new_tensor([u0, v0]), p.new_tensor([u1, v1])
    x = torch.where(side[:, 1] > 0, first[0], last[0]) - p[:, 0]
    y = torch.where(side[:, 0] > 0, last[1], first[1]) - p[:, 1]
    apart = side[:, 0] * y - side[:, 1] * x < 0
    owner = owners_of(counts, entries.shape[0])
    number = torch.zeros_like(faces).index_add_(0, owner, apart.long())
    return faces[number == 0]


def middle_window(atlas: AtlasData, regions: int) -> Box:
    """The largest window around the middle of the domain that at most so many regions meet.

    Its shape is that of the box around the domain. It has at least one region.
    """
    corners = atlas.frame.to_local(atlas.domain.corners)
    low, high = corners.amin(0), corners.amax(0)
    center, half = (low + high) / 2, (high - low) / 2
    boxes = atlas.boxes
    nearest = _reach(boxes, center, half)
    smallest = torch.empty(0, dtype=torch.float64, device=atlas.device)
    for number in torch.argsort(nearest).tolist():
        if smallest.shape[0] > regions and float(nearest[number]) > float(smallest[-1]):
            break
        reach = _reach(atlas.tile(number).mesh.boxes(), center, half)
        smallest = torch.sort(torch.cat([smallest, reach])).values[: regions + 1]
    share = 1.0
    if smallest.shape[0] > regions:  # the window ends before the first region that is too many
        share = min(1.0, math.nextafter(float(smallest[-1]), 0.0))
    share = max(share, 2.0**-40)
    low, high = (atlas.frame.to_plane(center + sign * share * half) for sign in (-1, 1))
    return float(low[0]), float(low[1]), float(high[0]), float(high[1])


def _reach(boxes: Tensor, center: Tensor, half: Tensor) -> Tensor:
    """How much of the way from the middle to the border a window goes to meet boxes (N, 4)."""
    low, high = boxes[:, :2] - center.to(boxes), center.to(boxes) - boxes[:, 2:]
    return (torch.maximum(low, high).clamp(min=0) / half.to(boxes)).amax(1)
