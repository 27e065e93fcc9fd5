"""Faces refined where the class is uncertain, until little of the domain is left undecided.

Faces whose class is certain keep their maps. Others are divided into triangles, whose maps have the
values of the network itself at their corners. So their error is that of linear interpolation,
which falls with the square of their size, or with their size where the network has a kink.

With one output, the class is that of the side of a level. With several, it is the largest output:
output c is certainly larger than output k where their difference exceeds the sum of their bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from splinecam._util.arrays import take
from splinecam._util.backend import backend_of
from splinecam._util.tolerances import THINNEST
from splinecam.engine.plan import free_memory
from splinecam.engine.step import faces_within
from splinecam.errors import LimitError, option
from splinecam.geometry.subdivision import Mesh
from splinecam.smooth.layer_bounds import UPWARDS
from splinecam.smooth.refinement import Triangulation, bisected, closed, stitched, triangulated
from splinecam.smooth.region_bounds import Inside


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

    Triangles count by ``band_shares``, and other uncertain faces as a whole.
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


Real = Callable[[Tensor], Tensor]
"""The outputs (N, n) of a network at local coordinates (N, 2)."""

_Judged = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]

_MARGIN = 1.25  # faces stay if the network at their corners is certain by so many bounds
_WASTE = 0.05  # the part of a bound below which curvature is not what keeps a triangle undecided
_PROGRESS = 0.9  # the part of the undecided area that divided triangles may keep
_PATIENCE = 2  # rounds without progress after which the rest is left undecided
_OUTPUTS = 16  # outputs whose values and bounds take as much memory as the mesh


class Bounded(NamedTuple):
    """A mesh with values (V, n) at its vertices, and how far a network is from them.

    bounds: (F, n) on each face; undecided: the share of the domain where the class is uncertain, at
    most.
    """

    mesh: Mesh
    values: Tensor
    bounds: Tensor
    undecided: float = 1.0


@dataclass(frozen=True)
class Goal:
    """When a mesh is fine enough.

    tolerance: (n,) the largest bounds of undecided faces; share: the largest undecided part of the
    domain; level: of one output, at which the class changes; max_regions: an error beyond so many;
    memory: bytes to stay within, by default what is free.
    """

    tolerance: Tensor
    share: float
    level: float = 0.0
    max_regions: int | None = None
    memory: int | None = None


@dataclass(frozen=True)
class _Task:
    """The network, bounds and goal of a refinement.

    whole: the area of the domain; area: how much of it all triangles may leave undecided.
    """

    real: Real
    inside: Inside
    goal: Goal
    whole: float
    area: float


@dataclass(frozen=True)
class _BoundTriangles:
    """Triangles with values and the network's outputs, (V, n) each, and what follows from both.

    curved: (T, n) the part of the bounds that falls as triangles become smaller; branch: (T, n) how
    far the network is from a smooth function; bounds: (T, n) from both; undecided: (T,) whether the
    class is uncertain somewhere; areas: (T,); band: (T,) the area where the class is uncertain.
    """

    shape: Triangulation
    values: Tensor
    truth: Tensor
    curved: Tensor
    branch: Tensor
    bounds: Tensor
    undecided: Tensor
    areas: Tensor
    band: Tensor


def refined(found: Bounded, real: Real, inside: Inside, goal: Goal, layer: int) -> Bounded:
    """Refine the faces whose class is uncertain, until the goal is reached or cannot be.

    inside: bounds the network in triangles; layer: the number that new edges and vertices get as
    their layer.
    """
    truth = real(found.mesh.uv)
    sizes = found.mesh.areas_and_centroids()[0]
    whole = float(sizes.sum())
    areas = undecided_areas(found.mesh, sizes, found.values, found.bounds, goal.level)
    chosen = _uncertain(found, areas > 0, truth, goal) & ~_too_thin(found.mesh, sizes)
    made = None
    while bool((chosen & (areas > 0)).any()):
        area = goal.share * whole - float(areas[~chosen].sum())
        task = _Task(real, inside, goal, whole, area)
        begun = _begun(found, chosen, truth, task, made)
        made = _divided(begun, task, len(chosen) - int(chosen.sum()))
        known = len(made.shape.vertex_ids)
        values = torch.cat([found.values, made.values[known:]])
        values[made.shape.vertex_ids] = made.values[:known]
        bounds = torch.cat([found.bounds[~chosen], made.bounds])
        found = Bounded(stitched(found.mesh, made.shape, layer), values, bounds)
        truth = torch.cat([truth, made.truth[known:]])
        areas, sizes = (
            torch.cat([old[~chosen], new]) for old, new in ((areas, made.band), (sizes, made.areas))
        )
        chosen = _holding(found, made, task) & ~_too_thin(found.mesh, sizes)
        chosen[-len(made.areas) :] = bool(chosen.any())
    return found._replace(undecided=float(areas.sum()) / whole)


def _uncertain(found: Bounded, undecided: Tensor, truth: Tensor, goal: Goal) -> Tensor:
    """The faces (F,) that are undecided, or that would keep triangles beside them undecided.

    Their values are further from the network, (V, n), than that is from a change of the class.
    """
    slack = slacks_of_faces(found.mesh, truth, _MARGIN * found.bounds, goal.level)
    return undecided | (slack <= 0)


def _too_thin(mesh: Mesh, sizes: Tensor) -> Tensor:
    """The faces, of these areas (F,), that are too thin to divide them in spite of rounding."""
    box = mesh.boxes()
    return sizes <= THINNEST * (box[:, 2:] - box[:, :2]).amax(1)


def _begun(
    found: Bounded, chosen: Tensor, outputs: Tensor, task: _Task, earlier: _BoundTriangles | None
) -> _BoundTriangles:
    """Triangles in place of the chosen faces, (F,), with the network's values where they may be.

    outputs: (V, n) of the network at the vertices; earlier: the triangles that the last of these
    faces are, if they are known.
    """
    mesh, shape = found.mesh, triangulated(found.mesh, chosen)
    held = torch.zeros(mesh.num_vertices, dtype=torch.bool, device=chosen.device)
    held[mesh.corner_vertices()[~chosen[mesh.owners()]]] = True
    truth = torch.cat([outputs[shape.vertex_ids], task.real(shape.uv[len(shape.vertex_ids) :])])
    fixed = held[shape.vertex_ids].nonzero()[:, 0]
    values = truth.index_copy(0, fixed, found.values[shape.vertex_ids[fixed]])
    every = torch.arange(shape.sides.shape[0], device=chosen.device)
    return _BoundTriangles(
        shape, values, truth, *_judged(shape, values, truth, every, task, earlier)
    )


def _judged(
    shape: Triangulation,
    values: Tensor,
    truth: Tensor,
    triangles: Tensor,
    task: _Task,
    earlier: _BoundTriangles | None = None,
) -> _Judged:
    """What is known of some triangles, (N,): the last six fields of ``_BoundTriangles``.

    earlier: what the last of them were, also with other values.
    """
    step = max(1, backend_of(values.device).numbers // (8 * values.shape[1]))
    new = len(triangles) - (0 if earlier is None else len(earlier.areas))
    inside = []
    for some in torch.split(triangles[:new], step):
        bend, apart = task.inside(take(shape.uv, shape.corners(some).view(-1)).view(-1, 3, 2))
        inside.append((bend.amax(0), apart))
    if earlier is not None:
        inside.append((earlier.curved, earlier.branch))
    curved, branch = map(torch.cat, zip(*inside, strict=True))
    split = (torch.split(each, step) for each in (triangles, curved, 2 * branch))
    blocks = [
        _judged_block(shape, values, truth, some, bent, noise, task.goal.level)
        for some, bent, noise in zip(*split, strict=True)
    ]
    bounds, undecided, areas, band = map(torch.cat, zip(*blocks, strict=True))
    return curved, branch, bounds, undecided, areas, band


def _judged_block(
    shape: Triangulation,
    values: Tensor,
    truth: Tensor,
    triangles: Tensor,
    curved: Tensor,
    noise: Tensor,
    level: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    corners = shape.corners(triangles)
    flat = corners.view(-1)
    uv = take(shape.uv, flat).view(-1, 3, 2)
    side = uv[:, 1:] - uv[:, :1]
    areas = (side[:, 0, 0] * side[:, 1, 1] - side[:, 0, 1] * side[:, 1, 0]).abs() / 2
    z, true = (take(each, flat).view(*corners.shape, each.shape[1]) for each in (values, truth))
    bounds = ((true - z).abs().amax(1) + curved + noise) * UPWARDS
    undecided = ~(slacks(z, bounds, level) > 0)  # also where bounds are no numbers
    some = undecided.nonzero()[:, 0]
    band = torch.zeros_like(areas)
    band[some] = areas[some] * band_shares(z[some], bounds[some], level)
    return bounds, undecided, areas, band


def _divided(made: _BoundTriangles, task: _Task, others: int) -> _BoundTriangles:
    """Divide triangles until the goal is reached, or until that does not help.

    others: the number of the mesh's other faces.
    """
    waiting = 0
    while True:
        _require_room(made, task, others)
        squares = made.shape.squared_lengths()
        place = made.shape.longest(squares)
        marked, needed = _marked(made, task, squares, place)
        if not bool(marked.any()) or (waiting >= _PATIENCE and not needed):
            return made
        longest = made.shape.sides.gather(1, place[:, None])[:, 0] >> 1
        marked = closed(made.shape, marked, longest)
        made, before, after = _bisected(made, marked, place, task)
        waiting = waiting + 1 if after > _PROGRESS * before else 0


def _require_room(made: _BoundTriangles, task: _Task, others: int) -> None:
    """Raise an error if there are more regions than allowed, or than fit in the memory."""
    goal, count = task.goal, others + made.shape.sides.shape[0]
    memory = free_memory(made.values.device) if goal.memory is None else goal.memory
    if goal.max_regions is not None and count > goal.max_regions:
        limit = option("max_regions", f"{goal.max_regions:,}")
    elif count > faces_within(memory) // (1 + made.values.shape[1] // _OUTPUTS):
        limit = option("memory", f"{memory:,} bytes")
    else:
        return
    raise LimitError(
        f"Refinement along the boundary exceeds {limit}: with {count:,} regions the class is still "
        f"uncertain on {float(made.band.sum()) / task.whole:.3g} of the domain. Raise this limit, "
        "smooth or undecided, or choose a smaller domain."
    )


def _marked(
    made: _BoundTriangles, task: _Task, squares: Tensor, place: Tensor
) -> tuple[Tensor, bool]:
    """The edges (E,) that undecided triangles are to be divided at, before others follow.

    The second result says whether bounds are too large, and not only the undecided area.
    """
    edge = made.shape.sides >> 1
    length = take(squares, edge.view(-1)).view(edge.shape)
    longest = length.gather(1, place[:, None])
    helps = made.undecided & (made.curved > _WASTE * made.bounds).any(1)
    helps &= made.areas.square() > (THINNEST * THINNEST / 4) * longest[:, 0]
    # How many times smaller triangles are to be: bounds fall with the square of their size.
    smaller = (made.bounds / task.goal.tolerance).amax(1).sqrt()
    needed = bool((helps & (smaller > 1)).any())
    if 0 < task.area < float(made.band.sum()):
        # The fewest triangles reach an area if all have the same part of it.
        fair = task.area / int(made.undecided.sum())
        smaller = torch.maximum(smaller, (made.band / fair).pow(1 / 3))
    sides = torch.where(smaller[:, None] < 2, length == longest, 4 * length >= longest)
    marked = torch.zeros_like(made.shape.held)
    marked[edge[sides & (helps & (smaller > 1))[:, None]]] = True
    return marked, needed


def _bisected(
    made: _BoundTriangles, marked: Tensor, place: Tensor, task: _Task
) -> tuple[_BoundTriangles, float, float]:
    """Divide marked edges (E,), and the undecided area of divided triangles before and after."""
    split = marked.nonzero()[:, 0]
    shape, source = bisected(made.shape, marked, place)
    first = len(made.shape.uv)
    ends = made.shape.edges[split]
    new = task.real(shape.uv[first:])
    between = (take(made.values, ends[:, 0]) + take(made.values, ends[:, 1])) / 2
    values = torch.cat([made.values, torch.where(made.shape.held[split, None], between, new)])
    truth = torch.cat([made.truth, new])
    kept = made.shape.sides.shape[0] - int(marked[made.shape.sides >> 1].any(1).sum())
    divided = torch.arange(kept, shape.sides.shape[0], device=split.device)
    judged = _judged(shape, values, truth, divided, task)
    old = source[:kept]
    rows = (made.curved, made.branch, made.bounds, made.undecided, made.areas, made.band)
    joined = [torch.cat([take(row, old), part]) for row, part in zip(rows, judged, strict=True)]
    result = _BoundTriangles(shape, values, truth, *joined)
    before = float(made.band.sum() - made.band[old].sum())
    return result, before, float(judged[-1].sum())


def _holding(found: Bounded, made: _BoundTriangles, task: _Task) -> Tensor:
    """The other faces, (F,), that keep triangles undecided by the values that they hold.

    found: the mesh with the triangles, which are its last faces.
    """
    mesh, count = found.mesh, made.shape.sides.shape[0]
    corners = made.shape.corners()
    errors = (made.truth - made.values).abs()[corners]
    stuck = made.undecided & (errors.amax(1) > made.curved).any(1)
    if float(made.band.sum()) <= task.area:
        stuck &= (made.bounds > task.goal.tolerance).any(1)
    vertex = mesh.corner_vertices()
    held = torch.zeros(mesh.num_vertices, dtype=torch.bool, device=vertex.device)
    held[vertex[-3 * count :].view(-1, 3)[stuck[:, None] & (errors > 0).any(2)]] = True
    chosen = mesh.sums(held[vertex].long()) > 0
    chosen[-count:] = False
    return chosen
