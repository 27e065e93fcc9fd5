"""Check that the faces of a mesh are convex and cover a disc once, without gaps."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam._util.arrays import lengths, owners_of, take, take_rows
from splinecam._util.backend import backend_of
from splinecam._util.graphs import long_cycles
from splinecam._util.tolerances import AREA_PRECISION, SAFETY, UV_ERROR
from splinecam.geometry.subdivision import Mesh


@dataclass(frozen=True)
class Check:
    """The result of one check: the worst violation, and the largest that is allowed."""

    name: str
    worst: float
    limit: float

    @property
    def ok(self) -> bool:
        return self.worst <= self.limit

    def __str__(self) -> str:
        state, sign = ("ok  ", "<=") if self.ok else ("FAIL", ">")
        return f"{state} {self.name}: {self.worst:.3g} {sign} {self.limit:.3g}"


def check_field(mesh: Mesh, name: str, value: Tensor, units: Sequence[int]) -> None:
    """Raise a ``ValueError`` unless an array of a mesh has its shape, and entries in their range.

    After all arrays have passed, no index is out of bounds. The message continues the name of the
    array. value: the array ``name``; the others come from the mesh. units: how many each layer has.
    """
    V, E, F, layers = mesh.num_vertices, mesh.num_edges, mesh.num_faces, len(units)
    shapes: dict[str, tuple[int, ...]] = {"uv": (V, 2), "edges": (E, 2), "offsets": (F + 1,)}
    shapes |= {"vertex_layer": (V,), "corners": (value.numel(),)}
    shape = shapes.get(name, (E,))
    if tuple(value.shape) != shape:
        raise ValueError(f"has the shape {tuple(value.shape)}, not {shape}")
    low, high = value.aminmax() if value.numel() else (0, 0)
    if name == "uv":
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ValueError("has entries that are not finite")
        return
    ends = {"edges": (0, V), "corners": (0, 2 * E), "offsets": (0, sys.maxsize)}
    first, end = ends.get(name, (-1, max(units, default=0) if name == "edge_unit" else layers))
    if value.numel() and not first <= low <= high < end:
        raise ValueError("has an index out of range")
    if name == "offsets":
        total = int(mesh.corners.shape[0])
        if int(value[0]) or int(value[-1]) != total or not bool((value.diff() >= 3).all()):
            raise ValueError("does not divide the corners into polygons")
    if name == "edge_unit":
        of_layer = torch.tensor([*units, 0], device=value.device)  # the border has layer -1
        if not bool((value < of_layer[mesh.edge_layer]).all()):
            raise ValueError("has a unit that its layer lacks")
        if not torch.equal(value < 0, mesh.edge_layer < 0):
            raise ValueError("has no unit for an edge inside, or one for the border")


def check_mesh(mesh: Mesh, area: float, trusted: Tensor | None = None) -> list[Check]:
    """Check the twins, cycles, border, Euler's formula, convexity and areas of a mesh.

    trusted: (F,) the faces whose shape is checked, by default all. All checks but the last two are
    exact.

    Together the checks prove that the mesh is one disc. Each side of an edge has one face, so that
    the faces form surfaces. A surface without a border has as much negative area as positive, and
    no face has negative area. All other surfaces share the single cycle of the border, so that
    there is one surface, and by Euler's formula it has no holes and no handles.
    """
    checks, border = _check_topology(mesh, mesh.edge_layer < 0)
    if border is None:
        return checks
    euler = abs(mesh.num_vertices - mesh.num_edges + mesh.num_faces - 1)
    checks = [*checks[:3], check_border(border), *checks[3:], Check("|V - E + F - 1|", euler, 0)]
    if not all(check.ok for check in checks):
        return checks
    everything = torch.ones(mesh.num_faces, dtype=torch.bool, device=mesh.uv.device)
    total, shapes = _shapes(mesh, everything if trusted is None else trusted)
    return [*checks, check_area(total, area), *shapes]


def check_tile(
    mesh: Mesh, seam: Tensor, trusted: Tensor
) -> tuple[list[Check], float, Tensor | None]:
    """The checks of the twins, cycles, convexity and areas of a part of a disc.

    The other results are needed to check the whole: the area of all faces, and the ends (B, 2) of
    the edges on the border of the disc, which is None if a check of integers failed.

    seam: (E,) the edges beyond which other parts begin. trusted: (F,) the faces whose shape is
    checked.
    """
    checks, border = _check_topology(mesh, seam | (mesh.edge_layer < 0))
    if border is None or not all(check.ok for check in checks):
        return checks, 0.0, None
    area, shapes = _shapes(mesh, trusted)
    return checks + shapes, area, border


def check_border(border: Tensor) -> Check:
    """Check that edges (B, 2), from vertex to vertex, are one cycle."""
    start, order = torch.sort(border[:, 0])
    end = take(border[:, 1], order)
    again = _count(start[1:] == start[:-1])
    if not start.shape[0] or not torch.equal(start, torch.sort(end).values):
        off = max(1, start.shape[0])
    elif again:
        off = again
    else:
        offsets, _ = long_cycles(torch.searchsorted(start, end))
        off = int(start.shape[0] - offsets.diff().max())
    return Check("edges of the border beside its cycle", off, 0)


def check_area(total: float, area: float) -> Check:
    """Check the sum of all areas against that of the domain."""
    return Check("relative error of the total area", abs(total / area - 1), AREA_PRECISION)


def _check_topology(mesh: Mesh, open_edges: Tensor) -> tuple[list[Check], Tensor | None]:
    """The checks of integers, and the ends (B, 2) of the edges on the border of the disc.

    They have their faces on the left, and are None if indices are out of range. open_edges: (E,)
    the edges that have a face on one side only.
    """
    wrong = _count(mesh.counts() < 3)
    wrong += abs(int(mesh.offsets[0])) + abs(int(mesh.offsets[-1]) - mesh.corners.shape[0])
    for index, end in ((mesh.corners, 2 * mesh.num_edges), (mesh.edges, mesh.num_vertices)):
        low, high = index.aminmax() if index.numel() else (0, -1)
        wrong += int(low < 0) + int(high >= end)
    checks = [Check("indices out of range", wrong, 0)]
    if wrong:
        return checks, None
    ends = mesh.edges.view(-1)
    used = torch.zeros(2 * mesh.num_edges, dtype=torch.bool, device=ends.device)
    left, right = used.index_fill_(0, mesh.corners, True).view(-1, 2).unbind(1)
    twice = mesh.corners.shape[0] - _count(used)
    twins = twice + _count(torch.where(open_edges, left == right, ~(left & right)))
    breaks = _count(take(ends, mesh.corners ^ 1) != _ahead(mesh.offsets, mesh.corner_vertices()))
    unused = torch.ones(mesh.num_vertices, dtype=torch.bool, device=ends.device)
    unused.index_fill_(0, ends, False)
    checks += [
        Check("half-edges not used once by one face on each side", twins, 0),
        Check("breaks in the cycles of half-edges", breaks, 0),
        Check("vertices without an edge", _count(unused), 0),
        Check("edges from a vertex to itself", _count(ends[0::2] == ends[1::2]), 0),
    ]
    edge = (mesh.edge_layer < 0).nonzero()[:, 0]
    half = 2 * edge + take(right, edge)
    return checks, torch.stack([take(ends, half), take(ends, half ^ 1)], 1)


def _shapes(mesh: Mesh, trusted: Tensor) -> tuple[float, list[Check]]:
    """The total area, and checks of the shapes of the trusted faces."""
    shapes, offsets, start = [], mesh.offsets, mesh.corner_vertices()
    uv = mesh.uv.T.contiguous()
    step = backend_of(uv.device).faces
    for first in range(0, mesh.num_faces, step):
        rows = offsets[first : first + step + 1]
        corners = start[int(rows[0]) : int(rows[-1])]
        x, y = (take(axis, corners) for axis in uv)
        shapes.append(_shape(x, y, rows - rows[0], trusted[first : first + step]))
    total, negative, depth, wound, points = torch.tensor(shapes, dtype=torch.float64).unbind(1)
    return float(total.sum()), [
        Check("negative area of a region", float(negative.max()), SAFETY * UV_ERROR),
        Check("depth of a reflex corner", float(depth.max()), SAFETY * SAFETY * UV_ERROR),
        Check("regions that wind more than once", float(wound.sum()), 0),
        Check("zero-length edges", float(points.sum()), 0),
    ]


def _shape(x: Tensor, y: Tensor, offsets: Tensor, trusted: Tensor) -> list[float]:
    """The total area of faces with corners (x, y), (H,) each, and violations of the trusted ones.

    These are the largest negative area, the depth of the deepest reflex corner, the number of faces
    that wind more than once, and the number of sides without length.
    """
    dx, dy = _ahead(offsets, x) - x, _ahead(offsets, y) - y
    ex, ey = _ahead(offsets, dx), _ahead(offsets, dy)
    turn = dx * ey - dy * ex
    owner = owners_of(offsets.diff(), x.shape[0])
    # This rounds in proportion to the length of the sides, so that small areas are precise.
    areas = x.new_zeros(trusted.shape).index_add_(0, owner, x * dy - y * dx) / 2
    everything = bool(trusted.all())

    def of_trusted(mask: Tensor) -> Tensor:
        corner = mask.nonzero()[:, 0]
        return corner if everything else corner[take(trusted, take(owner, corner))]

    reflex = of_trusted(turn < 0)
    side, following = (torch.stack([a[reflex], b[reflex]], 1) for a, b in ((dx, dy), (ex, ey)))
    # The depth of a reflex corner is the height of the triangle over the longer side.
    depth = -turn[reflex] / torch.maximum(lengths(side), lengths(following))
    # If all corners turn left, sides turn upwards once in each round.
    upper = (dy > 0) | ((dy == 0) & (dx > 0))
    upwards = take(owner, (_ahead(offsets, upper) > upper).nonzero()[:, 0])
    odd = torch.bincount(upwards, minlength=trusted.shape[0]) != 1
    odd[take(owner, reflex)] = True
    entries, counts = take_rows(offsets, (odd & trusted).nonzero()[:, 0])
    angle = torch.atan2(turn[entries], (dx * ex + dy * ey)[entries])
    angles = angle.new_zeros(counts.shape).index_add_(0, owners_of(counts), angle)
    return [
        float(areas.sum()),
        float((-areas).clamp(min=0).mul(trusted).max()),
        float(depth.max()) if depth.shape[0] else 0.0,
        _count((angles / (2 * torch.pi) - 1).abs() > 0.5),
        of_trusted((dx == 0) & (dy == 0)).shape[0],
    ]


def _ahead(offsets: Tensor, x: Tensor) -> Tensor:
    """The value of x (H,) at the corner that follows each corner around its face, (H,)."""
    return x.roll(-1).index_copy_(0, offsets[1:] - 1, take(x, offsets[:-1]))


def _count(mask: Tensor) -> int:
    return int(torch.count_nonzero(mask))
