"""Insert chords into a mesh: divide the edges that they end on, then the faces."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from splinecam._util.backend import backend_of
from splinecam._util.csr import entries_of, offsets_of, owners_of, places_in, take
from splinecam._util.tolerances import UV_ERROR
from splinecam.arrangement.chords import Arrangement, ChordCrossings, Lines
from splinecam.arrangement.edge_crossings import Ambiguities, EdgeCrossings
from splinecam.arrangement.find_chords import FaceChords
from splinecam.arrangement.general_position import insert_at_once
from splinecam.arrangement.incremental import insert_incrementally
from splinecam.arrangement.refinement import NewVertices, Refinement
from splinecam.errors import LimitError
from splinecam.geometry.interpolation import InterpolatedVertices
from splinecam.geometry.subdivision import Mesh

__all__ = ["insert_chords", "short_chords"]


def insert_chords(
    mesh: Mesh,
    crossings: EdgeCrossings,
    chords: FaceChords,
    unit: Tensor,
    layer: int,
    *,
    max_faces: int | None = None,
) -> tuple[Refinement, ChordCrossings | None]:
    """Divide faces by chords; layer: their provenance, and unit: (L,) that of each line.

    Returns the refinement, and the crossings of the chords that are in general position.
    """
    boundaries, lines = chords.boundaries, chords.lines
    if max_faces is not None:
        max_faces -= mesh.num_faces - chords.faces.shape[0]
        _check_limit(chords, max_faces)
    edge = crossings.points.edge
    made = Arrangement([mesh.uv, crossings.points.uv], [mesh.edges, mesh.pieces(edge)])
    mesh.shorten(made.edges, edge)
    left = insert_at_once(
        boundaries, chords.intervals, lines, made, distinct=chords.distinct, max_faces=max_faces
    )
    if left.shape[0]:
        if max_faces is not None:
            max_faces -= sum(part.count for part in made.faces)
        some = boundaries.select(left)
        rest = chords.intervals.restrict(boundaries, left).chords(some).sorted_by(unit)
        insert_incrementally(some, rest, lines, made, max_faces=max_faces)
    line = _join(made.vertex_line, lines.start)
    inside = InterpolatedVertices(
        take(lines.start, line), take(lines.end, line), _join(made.vertex_s, lines.error)
    )
    close = [Ambiguities(uv, "crossings too close to tell apart") for uv in made.ambiguities]
    refinement = Refinement(
        _assembled(mesh, crossings, chords, made, unit, layer),
        NewVertices(crossings.points.interpolated(), inside),
        short_chords(lines) + close,
    )
    return refinement, made.crossings


def short_chords(lines: Lines) -> list[Ambiguities]:
    """Chords whose two ends have the same coordinates, up to rounding."""
    short = (lines.length <= UV_ERROR).nonzero()[:, 0]
    if not short.shape[0]:
        return []
    return [Ambiguities(lines.a[short], "a border too short for its coordinates")]


def _check_limit(chords: FaceChords, max_faces: int) -> None:
    """Raise an error if the chords make too many faces: each one at least, but for equal ones."""
    intervals, boundaries = chords.intervals, chords.boundaries
    if intervals.lo.shape[0] + boundaries.count <= max_faces:
        return
    different = torch.unique(intervals.lo * boundaries.half.shape[0] + intervals.hi)
    if different.shape[0] + boundaries.count > max_faces:
        raise LimitError("too many regions")


def _assembled(
    mesh: Mesh,
    crossings: EdgeCrossings,
    chords: FaceChords,
    made: Arrangement,
    unit: Tensor,
    layer: int,
) -> Mesh:
    """The refined mesh: untouched faces first, then the pieces of the others."""
    counts, corners = _without(mesh, chords.faces, chords.old_corners)
    edge, line = crossings.points.edge, _join(made.edge_line, chords.lines.start)
    edge_layers = [mesh.edge_layer, take(mesh.edge_layer, edge), line.new_full(line.shape, layer)]
    edge_units = [mesh.edge_unit, take(mesh.edge_unit, edge), take(unit, line)]
    new_layer = line.new_full((made.num_vertices - mesh.num_vertices,), layer)
    return Mesh(
        uv=made.uv,
        edges=made.edges,
        offsets=offsets_of(torch.cat([counts, *[part.sizes() for part in made.faces]])),
        corners=torch.cat([corners, *[part.half for part in made.faces]]),
        edge_layer=torch.cat(edge_layers),
        edge_unit=torch.cat(edge_units),
        vertex_layer=torch.cat([mesh.vertex_layer, new_layer]),
    )


def _without(mesh: Mesh, faces: Tensor, corners: int | None) -> tuple[Tensor, Tensor]:
    """Sizes and corners of all faces but some, (K,) ascending.

    corners: how many corners those faces have, if that is known.
    """
    left, counts = mesh.num_faces - faces.shape[0], mesh.counts()
    if backend_of(faces.device).asynchronous and corners is not None:
        stays = torch.ones_like(counts, dtype=torch.bool).index_fill_(0, faces, False)
        total = mesh.corners.shape[0]
        entries = places_in(take(stays, owners_of(counts, total)), total - corners)
        return take(counts, places_in(stays, left)), take(mesh.corners, entries)
    # The runs of faces between those that are left out.
    begin, end = pad(faces + 1, (1, 0)), pad(faces, (0, 1), value=mesh.num_faces)
    kept = entries_of(begin, end, offsets_of(end - begin), left)
    begin, end = take(mesh.offsets, begin), take(mesh.offsets, end)
    entries = entries_of(begin, end, offsets_of(end - begin))
    return take(counts, kept), take(mesh.corners, entries)


def _join(parts: list[Tensor], like: Tensor) -> Tensor:
    if len(parts) == 1:
        return parts[0]
    return torch.cat(parts) if parts else like[:0]
