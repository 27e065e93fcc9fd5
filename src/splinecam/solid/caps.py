"""The sides of the box that close a surface: their borders, and triangles that fill them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from splinecam.solid.measures import Caps, cap_areas
from splinecam.solid.structure import Structure

_BETWEEN = (5**0.5 - 1) / 2

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def caps_of(
    structure: Structure,
    points: Tensor,
    corners: Tensor,
    sides: tuple[Tensor, Tensor],
    below: Callable[[Tensor], Tensor],
    slack: float,
) -> Caps:
    """The caps of a surface in a box.

    points: (V, 3) of the surface; corners: (K, 3) of the box; sides: normals (P, 3), outwards, and
    offsets (P,); below: whether the output is below the level at points (N, 3), (N,);
    slack: the distance up to which points lie on a side.
    """
    normals, every = sides[0], torch.cat([points, corners])
    off = (every @ normals.T - sides[1]).abs()
    border = structure.border
    start, end = structure.end[border], structure.vertex[border]  # a cap is on the other side
    on = torch.maximum(off[start], off[end]) <= slack
    # Of two sides that meet in an edge, the cap lies on the one that has its left inside the box.
    left = torch.linalg.cross(normals[None], (every[end] - every[start])[:, None])
    outwards = (left @ normals.T).masked_fill(~on[:, None], -torch.inf).amax(2)
    side = torch.where(on, outwards, torch.inf).argmin(1)
    own = torch.stack([side, start, end], 1)[on.any(1)]
    stretches = torch.cat([own[:0], *_box_edges(every, off <= slack, sides, slack)])
    # Somewhere between the ends: in the middle even outputs with a sign are often zero.
    middle = torch.lerp(every[stretches[:, 1]], every[stretches[:, 2]], _BETWEEN)
    # The output may vanish on the whole edge, so that its sign is that a little further inside.
    inwards = corners.mean(0) - middle
    middle += slack * torch.nn.functional.normalize(inwards, dim=1)
    size = torch.tensor([every.shape[0], 1])
    taken = torch.cat([own[:, 1:], own[:, 1:].flip(1)]) @ size
    kept = below(middle) & ~torch.isin(stretches[:, 1:] @ size, taken)
    side, start, end = torch.cat([own, stretches[kept]]).unbind(1)
    return Caps(side, start, end, normals, cap_areas(every, (side, start, end), normals))


def _box_edges(
    every: Tensor, on: Tensor, sides: tuple[Tensor, Tensor], slack: float
) -> list[Tensor]:
    """Stretches of the box's edges between neighbouring vertices: side, start and end, (N, 3)."""
    normals, found = sides[0], []
    for one, other in combinations(range(normals.shape[0]), 2):
        along = torch.linalg.cross(normals[one], normals[other])
        shared = (on[:, one] & on[:, other]).nonzero()[:, 0]
        if float(along.norm()) == 0 or shared.shape[0] < 2:
            continue
        s, order = torch.sort(every[shared] @ (along / along.norm()), stable=True)
        # The vertex of the surface comes first where it lies in a corner of the box.
        apart = torch.ones_like(s, dtype=torch.bool)
        apart[1:] = s.diff() > slack
        shared = shared[order][apart]
        a, b = shared[:-1], shared[1:]
        found += [torch.stack([torch.full_like(a, one), a, b], 1)]
        found += [torch.stack([torch.full_like(a, other), b, a], 1)]
    return found


def fill(caps: Caps, points: Tensor) -> tuple[Tensor, Tensor]:
    """Triangles (T, 3) that fill the caps, with their sides (T,); points: as numbered in caps."""
    found, sides = [np.empty((0, 3), np.int64)], []
    for side in torch.unique(caps.side).tolist():
        normal = caps.normals[side]
        first = torch.linalg.cross(normal, torch.eye(3, dtype=normal.dtype)[normal.abs().argmin()])
        axes = torch.stack([first, torch.linalg.cross(normal, first)], 1)
        chosen = caps.side == side
        start, end = caps.start[chosen].numpy(), caps.end[chosen].numpy()
        vertex, index = np.unique(np.concatenate([start, end]), return_inverse=True)
        uv = (points[torch.from_numpy(vertex)] @ axes).numpy()
        loops = _loops(index[: len(start)], index[len(start) :], uv)
        found.append(vertex[triangulate(uv, loops)])
        sides += [side] * len(found[-1])
    return torch.from_numpy(np.concatenate(found)), torch.tensor(sides, dtype=torch.long)


def _loops(start: Ints, end: Ints, uv: Floats) -> list[list[int]]:
    """Closed curves from directed segments; where several leave a vertex, the inside is kept."""
    leaving: dict[int, list[int]] = {}
    for k, vertex in enumerate(start.tolist()):
        leaving.setdefault(vertex, []).append(k)
    loops, used = [], np.zeros(len(start), bool)
    for k in range(len(start)):
        loop, current = [], k
        while not used[current]:
            used[current] = True
            loop.append(int(start[current]))
            ways = leaving.get(int(end[current]), [])
            free = [each for each in ways if each == k or not used[each]]  # the loop may close
            if not free:
                break
            current = min(free, key=lambda each: _turn(uv, start, end, current, each))
        if len(loop) > 2:
            loops.append(loop)
    return loops


def _turn(uv: Floats, start: Ints, end: Ints, one: int, other: int) -> float:
    """The angle, clockwise, from the way back along one segment to another that follows it."""
    back, way = uv[start[one]] - uv[end[one]], uv[end[other]] - uv[start[other]]
    turn = np.arctan2(back[1], back[0]) - np.arctan2(way[1], way[0])
    return float(turn % (2 * np.pi)) or 2 * np.pi


def _area(uv: Floats) -> float:
    """The area of a polygon (k, 2), below 0 if it is clockwise."""
    x, y = (uv - uv[0]).T
    return float(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2


def _cross(a: Floats, b: Floats, c: Floats) -> Floats:
    """Twice the area of triangles (N, 2) each."""
    return np.asarray(
        (b[..., 0] - a[..., 0]) * (c[..., 1] - a[..., 1])
        - (b[..., 1] - a[..., 1]) * (c[..., 0] - a[..., 0])
    )


def triangulate(uv: Floats, loops: list[list[int]]) -> Ints:
    """Triangles (T, 3) that fill polygons with holes, by cutting off ears.

    uv: (N, 2); loops: the vertices of outlines, counter-clockwise, and of holes, clockwise.

    >>> square = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1]])
    >>> triangulate(square, [[0, 1, 2, 3]]).tolist()
    [[3, 0, 1], [3, 1, 2]]
    """
    area = [_area(uv[loop]) for loop in loops]
    outer = sorted((k for k, a in enumerate(area) if a > 0), key=area.__getitem__)
    holes: dict[int, list[list[int]]] = {k: [] for k in outer}
    for k, hole in enumerate(loops):
        if area[k] < 0:
            around = [j for j in outer if _inside(uv[hole], uv[loops[j]])]
            if around:
                holes[around[0]].append(hole)
    found = [np.empty((0, 3), np.int64)]
    for k in outer:
        ring = loops[k]
        for hole in sorted(holes[k], key=lambda each: -uv[each, 0].max()):
            ring = _joined(uv, ring, hole, loops)
        found.append(_ears(uv, np.array(ring)))
    return np.concatenate(found)


def _inside(points: Floats, ring: Floats) -> bool:
    """Whether most of the points lie inside a ring."""
    a, b = ring, np.roll(ring, -1, 0)
    x, y = points[:, None, 0], points[:, None, 1]
    met = (a[:, 1] > y) != (b[:, 1] > y)
    rise = np.where(b[:, 1] == a[:, 1], 1, b[:, 1] - a[:, 1])
    right = x < a[:, 0] + (y - a[:, 1]) * (b[:, 0] - a[:, 0]) / rise
    return bool(((met & right).sum(1) % 2).mean() > 0.5)


def _joined(uv: Floats, ring: list[int], hole: list[int], loops: list[list[int]]) -> list[int]:
    """A ring that goes to a hole, around it and back, along a bridge that crosses nothing."""
    begin = int(np.argmax(uv[hole, 0]))
    hole = hole[begin:] + hole[:begin]
    p, at = uv[hole[0]], uv[ring]
    walls = [(loop, loop[1:] + loop[:1]) for loop in [*loops, ring]]
    a = uv[np.concatenate([one for one, _ in walls])]
    b = uv[np.concatenate([other for _, other in walls])]
    before, after = np.roll(at, 1, 0), np.roll(at, -1, 0)
    convex = _cross(before, at, after) >= 0
    left, right = _cross(at, after, p) > 0, _cross(before, at, p) > 0
    opens = np.where(convex, left & right, left | right)  # whether it leads into the polygon
    order = np.argsort(((at - p) ** 2).sum(1) + np.where(opens, 0, np.inf), kind="stable")
    for k in order.tolist():
        q = at[k]
        split = _cross(a, b, p[None]) * _cross(a, b, q[None]) < 0
        split &= _cross(p, q, a) * _cross(p, q, b) < 0
        if not split.any():
            break
    else:
        k = int(order[0])
    return [*ring[: k + 1], *hole, hole[0], *ring[k:]]


def _ears(uv: Floats, ring: Ints) -> Ints:
    """Triangles that fill a polygon without holes, which may touch itself."""
    n, found = len(ring), []
    at, before, after = uv[ring], np.arange(-1, len(ring) - 1) % n, np.arange(1, n + 1) % n
    turn, left = _cross(at[before], at, at[after]), np.ones(n, bool)
    k, tries = 0, 0
    while n > 3:
        i, j = before[k], after[k]
        ear = turn[k] > 0
        if ear:  # no corner that is not convex lies in the triangle, or on its border
            some = np.flatnonzero(left & (turn <= 0))
            some = some[~np.isin(ring[some], ring[[i, k, j]])]
            q = at[some]
            sides = [_cross(at[c], at[d], q) >= 0 for c, d in ((i, k), (k, j), (j, i))]
            ear = not np.logical_and.reduce(sides).any()
        if not ear and tries <= n:
            k, tries = j, tries + 1
            continue
        if not ear:  # rounding left no ear: the sharpest corner goes
            k = int(np.argmax(np.where(left, turn, -np.inf)))
            i, j = before[k], after[k]
        found.append((i, k, j))
        left[k], after[i], before[j] = False, j, i
        for c in (i, j):
            turn[c] = _cross(at[before[c]], at[c], at[after[c]])
        k, n, tries = j, n - 1, 0
    k = int(np.flatnonzero(left)[0])
    found.append((before[k], k, after[k]))
    return np.asarray(ring[np.array(found)])
