"""Checks of a surface: its structure by itself, and its faces against the model.

Crossings are compared along segments in a few random directions. Seen along one of them, the faces
are triangles in a plane and the segments are points, so that a tree of boxes finds which meet. A
segment is on the same side of an edge for both of its triangles: it slips through nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from splinecam._util.arrays import as_rows, owners_of
from splinecam._util.bvh import BoxTree
from splinecam._util.tolerances import (
    EPS,
    JACOBIAN_PRECISION,
    SAFETY,
    UNRESOLVED_REACH,
    VALUE_PRECISION,
)
from splinecam.engine.along_segments import run_segments
from splinecam.geometry.checks import Check
from splinecam.network.capture.models import dtype_of
from splinecam.partitions.captured import Captured, capture
from splinecam.questions.partition_data import counted
from splinecam.questions.validate import Forward, Report, accepted, compared
from splinecam.solid import measures
from splinecam.solid.geometry import SurfaceGeometry
from splinecam.solid.outputs import chosen_output

_DIRECTIONS = 8  # of segments
_BLOCK = 1 << 12  # points at which the model runs at a time
_BELOW = 2.0**-30  # how far, of the extent
_UPRIGHT = 0.5  # cosine between the normal of a polygon and the gradient, of wide faces


class SurfaceReport(Report):
    """All checks of a surface, and how many of its faces were compared with the model."""

    @property
    def faces(self) -> int:
        """The number of faces."""
        return self.regions

    def _extent(self) -> str:
        excused = f", {counted(self.excused, 'narrow face')} excused" if self.excused else ""
        return f"{self.sampled:,} of {self.faces:,} faces compared with the model{excused}"


@dataclass(frozen=True)
class _Faces:
    """Faces that are compared with the model.

    centres: (N, 3) in the box; below: (N, 3) a little below them, and near: (N, 3) no farther than
    rounding demands. A face that is a border of two regions has the map of the one below.
    """

    index: Tensor
    centres: Tensor
    below: Tensor
    near: Tensor


def validate(
    surface: SurfaceGeometry, model: Any, *, samples: int, segments: int, seed: int
) -> SurfaceReport:
    """The report of ``Surface.validate``."""
    if samples < 1 or segments < 0:
        raise ValueError(
            f"samples must be at least 1 and segments at least 0, not {samples}, {segments}"
        )
    generator = torch.Generator().manual_seed(seed)
    shape = tuple(surface.box.to_input(surface.box.corners[:1]).shape[1:])
    given = surface.network if model is None else model
    network = given if isinstance(given, Captured) else capture(given, shape)
    faces, excused = _compared_faces(surface, samples, generator)
    checks = _structure_checks(surface, faces)
    with torch.inference_mode(False):
        checks += _model_checks(surface, network, faces, samples, generator)
        checks.append(_pattern_check(surface, network, faces))
        if segments:
            checks += _crossing_checks(surface, network, segments, generator)
    report = SurfaceReport(tuple(checks), len(surface), int(faces.index.shape[0]), excused)
    return accepted(report, surface)


def _compared_faces(
    surface: SurfaceGeometry, samples: int, generator: torch.Generator
) -> tuple[_Faces, int]:
    """Random faces that are no caps, and how many are left out as too narrow."""
    structure, points = surface.structure, surface.vertices
    sides = (points[structure.end] - points[structure.vertex]).norm(dim=1)
    around = measures.sums(sides, structure.face, len(surface))
    width = UNRESOLVED_REACH * surface._extent + 2 * surface._rounding
    wide = 2 * surface.areas > width * around
    own = surface.face_region >= 0
    left = (wide & own).nonzero()[:, 0]
    chosen = left[torch.randperm(left.shape[0], generator=generator)[:samples]].sort().values
    centres = surface._centres[chosen]
    far = torch.full_like(surface.areas, _BELOW * surface._extent)
    down = [
        centres - (step[:, None] * surface.normals)[chosen]
        for step in (far, torch.minimum(_moved(surface), far))
    ]
    return _Faces(chosen, centres, *down), int((own & ~wide).sum())


def _moved(surface: SurfaceGeometry) -> Tensor:
    """How far rounding of vertices and of the output may move each face, (F,)."""
    slope = surface.gradients.norm(dim=1)
    return surface._rounding + torch.where(slope > 0, _known(surface) / slope, torch.inf)


def _known(surface: SurfaceGeometry) -> float:
    """Up to which modulus the surface took outputs for zero."""
    return SAFETY * float(surface.data.report.get("rounding", 0.0))


def _structure_checks(surface: SurfaceGeometry, faces: _Faces) -> list[Check]:
    """Checks that the surface is closed inside the box, and oriented by its gradients."""
    border = surface.structure.border
    off = (surface.vertices @ surface._sides[0].T - surface._sides[1]).abs()
    ends = surface.open_edges
    reach = torch.maximum(off[ends[:, 0]], off[ends[:, 1]]).amin(1) if len(border) else off[:0, 0]
    lost = int((reach > surface._slack).sum())
    crosses = measures.crosses(surface.vertices, surface.structure)[faces.index]
    cosine = (crosses * surface.normals[faces.index]).sum(1) / crosses.norm(dim=1)
    return [
        Check("open edges inside of the box", lost, 0),
        Check("faces that do not face their gradient", int((cosine < _UPRIGHT).sum()), 0),
    ]


def _model_checks(
    surface: SurfaceGeometry,
    network: Captured,
    faces: _Faces,
    samples: int,
    generator: torch.Generator,
) -> list[Check]:
    """Checks of outputs at vertices and centres, and of gradients, against the real model."""
    corners = surface.box.corners.cpu()
    scale = float((surface.values(corners) - surface.level).abs().max())
    slope = surface.gradients[faces.index]
    steepest = float(slope.abs().max()) if slope.numel() else 0.0
    every = float(surface.gradients.abs().max()) if len(surface) else 0.0
    scale = max(scale, steepest * surface._extent, abs(surface.level) * EPS / VALUE_PRECISION)
    order = torch.randperm(surface.vertices.shape[0], generator=generator)[:samples]
    sites = {"vertices": surface.vertices[order], "centres of faces": faces.centres}

    def values(forward: Forward, dtype: torch.dtype) -> list[Check]:
        limit = (VALUE_PRECISION * scale + _known(surface)) * torch.finfo(dtype).eps / EPS
        limit += surface._rounding * every  # vertices are those of narrow faces, too
        return [
            Check(f"output against the level at {name}", _worst(surface, forward, uvw), limit)
            for name, uvw in sites.items()
        ]

    def slopes(forward: Forward) -> list[Check]:
        off = torch.full_like(slope[:, 0], torch.inf)
        for points in (faces.centres, faces.near, faces.below):
            some = torch.split(points, _BLOCK) if len(points) else ()
            made = [_gradients(surface, forward, uvw) for uvw in some]
            here = (torch.cat([slope[:0], *made]) - slope).abs().amax(1)
            off = torch.minimum(off, here.nan_to_num(nan=torch.inf))
        worst = float(off.max()) if len(off) else 0.0
        return [Check("gradients against autograd", worst, JACOBIAN_PRECISION * steepest)]

    options = network.model, network.output, dtype_of(network.model)
    return compared(surface, options, surface.vertices.device, values, slopes)[0]


def _gradients(surface: SurfaceGeometry, forward: Forward, uvw: Tensor) -> Tensor:
    """The gradients of the output at points (N, 3), by autograd."""
    with torch.enable_grad():
        uvw = uvw.clone().requires_grad_()
        found = chosen_output(forward(surface.box.to_input(uvw)), surface.output).sum()
        (made,) = torch.autograd.grad(found, uvw, materialize_grads=True)
    return made


def _worst(surface: SurfaceGeometry, forward: Forward, uvw: Tensor) -> float:
    """The largest distance of the output from the level at points (N, 3)."""
    worst = 0.0
    for some in torch.split(uvw, _BLOCK) if len(uvw) else ():
        with torch.no_grad():
            y = chosen_output(forward(surface.box.to_input(some)), surface.output)
        worst = max(worst, float((y - surface.level).abs().max().nan_to_num(nan=torch.inf)))
    return worst


def _pattern_check(surface: SurfaceGeometry, network: Captured, faces: _Faces) -> Check:
    """A check that no two faces have the same pieces of all units, at, below and above a centre.

    A face that is a border of two regions belongs to both.
    """
    rows, sites = [], (faces.centres, faces.below, 2 * faces.centres - faces.below)
    layers = bool(network.program.layers) and len(faces.index) > 0
    with torch.no_grad():
        for some in zip(*(torch.split(x, _BLOCK) for x in sites), strict=True) if layers else ():
            walks = [network.program.walk(surface.box.to_input(x)) for x in some]
            found = [layer.pieces(z).to(torch.int32) for walk in walks for layer, z in walk]
            rows.append(torch.cat(found, 1))
    same = 0
    if rows and rows[0].shape[1]:
        patterns = torch.cat(rows)
        same = patterns.shape[0] - torch.unique(patterns, dim=0).shape[0]
    elif len(faces.index):
        same = len(faces.index) - 1
    return Check("faces in the region of another face", same, 0)


def _crossing_checks(
    surface: SurfaceGeometry, network: Captured, count: int, generator: torch.Generator
) -> list[Check]:
    """Checks that the surface is met where the output crosses the level along segments."""
    missing, extra, off, met = 0, 0, 0.0, 0
    for some in torch.arange(count).tensor_split(min(count, _DIRECTIONS)):
        axes = torch.linalg.qr(torch.randn((3, 3), generator=generator, dtype=torch.float64))[0]
        ends = _ends(surface, _inside(surface, len(some), generator), axes[:, 2])
        real = _changes(surface, network, ends)
        ours = _hits(surface, ends, axes)
        both = (
            torch.bincount(real[0], minlength=len(some)),
            torch.bincount(ours[0], minlength=len(some)),
        )
        more = both[1] - both[0]
        missing, extra = (
            missing - int(more.clamp(max=0).sum()),
            extra + int(more.clamp(min=0).sum()),
        )
        alike = more == 0
        place, cosine, moved = (x[alike[ours[0]]] for x in ours[1:])
        apart = ((real[1][alike[real[0]]] - place) * cosine).abs() - moved
        met += apart.numel()
        off = max(off, float(apart.max()) if apart.numel() else 0.0)
    limit = VALUE_PRECISION * surface._extent + surface._rounding
    return [
        Check("crossings of the level that the surface lacks", missing, 0),
        Check("crossings of the surface without a crossing of the level", extra, 0),
        Check(f"distance of {met:,} crossings of the level from the surface", off, limit),
    ]


def _inside(surface: SurfaceGeometry, count: int, generator: torch.Generator) -> Tensor:
    """Random points of the box, (count, 3): means of its corners with random weights."""
    corners = surface._corners
    share = torch.rand((count, corners.shape[0]), generator=generator, dtype=torch.float64)
    share = -share.clamp(min=EPS).log()
    return (share / share.sum(1, keepdim=True)) @ corners


def _ends(surface: SurfaceGeometry, points: Tensor, along: Tensor) -> Tensor:
    """Where the lines through points (N, 3) in one direction enter and leave the box, (N, 2, 3)."""
    normals, offsets = surface._sides
    pace, room = normals @ along, offsets - points @ normals.T
    t = room / torch.where(pace == 0, 1, pace)
    last = torch.where(pace > 0, t, torch.inf).amin(1)
    first = torch.where(pace < 0, t, -torch.inf).amax(1)
    return points[:, None] + torch.stack([first, last], 1)[..., None] * along


def _changes(surface: SurfaceGeometry, network: Captured, ends: Tensor) -> tuple[Tensor, Tensor]:
    """The segment and the distance from its start of each change of sign of the output."""
    program = network.program
    inputs = [surface.box.to_input(side) for side in ends.unbind(1)]
    breaks = run_segments(program, *(x.to(program.device, torch.float64) for x in inputs))
    y = chosen_output(as_rows(breaks.values).cpu(), surface.output) - surface.level
    t, segment = breaks.t.cpu(), owners_of(breaks.offsets.cpu().diff())
    size = float(y.abs().amax()) if y.numel() else 0.0
    # The surface takes outputs for zero that its bound of rounding does not tell from zero.
    known = _known(surface)
    known = known if size <= known else min(known, VALUE_PRECISION * size)
    y = torch.where(y.abs() <= max(SAFETY * EPS * (size + abs(surface.level)), known), 0.0, y)
    # Where it vanishes at a side of the box it has not changed its sign in the box.
    outer = torch.ones_like(y, dtype=torch.bool)
    outer[1:-1] = (segment[1:-1] != segment[:-2]) | (segment[1:-1] != segment[2:])
    touches = outer & (y == 0)
    here = (segment[1:] == segment[:-1]) & ((y[1:] >= 0) != (y[:-1] >= 0))
    a = (here & ~touches[1:] & ~touches[:-1]).nonzero()[:, 0]
    place = torch.lerp(t[a], t[a + 1], y[a] / (y[a] - y[a + 1]))
    # Where it only touches the level from below, at one place, it is below on both sides.
    touch = (segment[a[1:]] == segment[a[:-1]]) & (y[a[1:]] == 0) & (y[a[:-1] + 1] == 0)
    touch &= place.diff() <= SAFETY * EPS
    once = torch.ones_like(a, dtype=torch.bool)
    once[1:] &= ~touch
    once[:-1] &= ~touch
    a, place = a[once], place[once]
    return segment[a], place * (ends[:, 1] - ends[:, 0]).norm(dim=1)[segment[a]]


def _hits(surface: SurfaceGeometry, ends: Tensor, axes: Tensor) -> tuple[Tensor, ...]:
    """Crossings with triangles, in order.

    The segment, how far from its start, the cosine, and how far rounding may move the face.
    """
    face = surface._triangles[1]
    own = surface.face_region[face] >= 0
    triangles, moved = surface.triangles()[own], _moved(surface)[face[own]]
    at, start = surface.vertices @ axes, ends[:, 0] @ axes
    corners = at[triangles]
    tree = BoxTree(corners[..., :2].amin(1), corners[..., :2].amax(1))
    segment, place = [start.new_zeros(0, dtype=torch.long)], [start.new_zeros(0)]
    cosine, reached = [start.new_zeros(0)], [start.new_zeros(0)]
    reach = torch.zeros_like(start[:, 0])
    for point, item in tree.walk(start[:, :2].contiguous(), reach):
        vertex, p = triangles[item], start[point]
        low = torch.minimum(vertex, vertex.roll(-1, 1))
        high = torch.maximum(vertex, vertex.roll(-1, 1))
        a, b = at[low][..., :2] - p[:, None, :2], at[high][..., :2] - p[:, None, :2]
        left = (a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0] >= 0) ^ (low != vertex)
        hit = (left == left[:, :1]).all(1)
        a, b, c = corners[item[hit]].unbind(1)
        normal = torch.linalg.cross(b - a, c - a)
        slope = torch.where(normal[:, 2] == 0, 1, normal[:, 2])
        depth = ((a - p[hit]) * normal).sum(1) / slope
        # Only what lies between the ends; the directions leave the box at its sides.
        size = (ends[:, 1] - ends[:, 0]).norm(dim=1)[point[hit]]
        kept = (depth >= 0) & (depth <= size)
        segment.append(point[hit][kept])
        place.append(depth[kept])
        cosine.append(torch.nn.functional.normalize(normal[kept], dim=1)[:, 2].abs())
        reached.append(moved[item[hit][kept]])
    segments, places = torch.cat(segment), torch.cat(place)
    order = torch.sort(places, stable=True).indices
    order = order[torch.sort(segments[order], stable=True).indices]
    return segments[order], places[order], torch.cat(cosine)[order], torch.cat(reached)[order]
