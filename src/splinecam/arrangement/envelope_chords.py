"""Selected chords in selected faces: the difference of two units vanishes on each of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from splinecam._util.arrays import following, offsets_of, owners_of, take, take_rows
from splinecam._util.tolerances import SAFETY
from splinecam.arrangement.chords import Arrangement, FaceBoundaries, FaceChords, Zeros, find_chords
from splinecam.arrangement.crossings import (
    UNCLEAR,
    Ambiguities,
    EdgeCrossings,
    UnitDifferences,
    VertexValues,
    find_edge_crossings,
)
from splinecam.arrangement.incremental import split_once
from splinecam.arrangement.refine import insert_chords, short_chords
from splinecam.arrangement.refinement import NewVertices, Refinement, unrefined
from splinecam.geometry.subdivision import InterpolatedVertices, Mesh
from splinecam.kernels.gpu import GpuKernel
from splinecam.kernels.kernel import SelectedChords


@dataclass(frozen=True)
class WantedChords:
    """Chords to insert, (N,), ascending: key, (face * n + one unit) * n + another one of n units.

    unit: (N,) the unit of their edges; layer: their provenance; values, error: of all units, with
    rounding (n,); gpu: compiled steps for a GPU, which insert where nothing is close.
    """

    key: Tensor
    unit: Tensor
    layer: int
    values: VertexValues
    error: Tensor
    gpu: GpuKernel | None = None
    max_faces: int | None = None

    @property
    def face(self) -> Tensor:
        return self.key // self.error.shape[0] ** 2

    def columns(self) -> tuple[UnitDifferences, Tensor]:
        """The differences of two units that occur, and the one of each chord, (N,)."""
        n, error = self.error.shape[0], self.error
        code, column = torch.unique(self.key % n**2, return_inverse=True)
        first, second = code // n, code % n
        return UnitDifferences(self.values, first, second, error[first] + error[second]), column

    def for_gpu(self) -> SelectedChords:
        """The chords as the steps for a GPU take them."""
        return SelectedChords(
            key=self.key,
            unit=self.unit,
            table=self.values.table,
            error=self.error,
            first_new=self.values.first,
            parents=self.values.ends,
            position_error=self.values.position_error,
            layer=self.layer,
            max_faces=self.max_faces,
        )


def insert_selected(mesh: Mesh, wanted: WantedChords) -> Refinement:
    """Cut the faces of a mesh by selected chords."""
    if not wanted.key.shape[0]:
        return unrefined(mesh, [])
    if wanted.gpu is not None:
        fast = wanted.gpu.insert_chords(mesh, wanted.for_gpu())
        if not isinstance(fast, str):
            return Refinement(fast.mesh, NewVertices(fast.on_edges, fast.inside), [])
    crossings, found, which, ambiguities = _find(mesh, wanted)
    if not which.shape[0]:
        return unrefined(mesh, ambiguities)
    unit, limit = wanted.unit[which], wanted.max_faces
    made, _ = insert_chords(mesh, crossings, found, unit, wanted.layer, max_faces=limit)
    return replace(made, ambiguities=ambiguities + made.ambiguities)


@dataclass(frozen=True)
class Halves:
    """Faces (N,) cut in two: the left half keeps the number, the right one is new, (N,).

    ends: (N, 2) the end vertices of the chord; which: (N,) the wanted chord of each. interpolated:
    the new vertices, all on edges, and position_error: (W,) of their places there.
    """

    mesh: Mesh
    interpolated: InterpolatedVertices
    position_error: Tensor
    face: Tensor
    new_face: Tensor
    ends: Tensor
    which: Tensor
    ambiguities: list[Ambiguities]


def halve(mesh: Mesh, wanted: WantedChords) -> Halves:
    """Cut faces in two, by one chord each."""
    if wanted.gpu is not None:
        fast = wanted.gpu.halve(mesh, wanted.for_gpu())
        if not isinstance(fast, str):
            index = torch.arange(wanted.key.shape[0], device=wanted.key.device)
            made = fast.mesh, fast.on_edges, fast.position_error
            return Halves(*made, wanted.face, mesh.num_faces + index, fast.ends, index, [])
    crossings, found, which, ambiguities = _find(mesh, wanted)
    touched, lines = found.boundaries, found.lines
    split = crossings.divide(mesh, wanted.layer)
    chords = found.intervals.chords(touched)
    out = Arrangement([split.uv], [split.edges])
    halves = split_once(touched.select(chords.face), chords, lines, out)
    # Each face is as it was, or has divided edges, or is a left half; right halves come last.
    parts = [FaceBoundaries(mesh.offsets, mesh.corners), touched, halves]
    pool = FaceBoundaries(
        offsets_of(torch.cat([part.sizes() for part in parts])),
        torch.cat([part.half for part in parts]),
    )
    face = take(found.faces, chords.face)
    index = torch.arange(face.shape[0], device=face.device)
    row = torch.arange(mesh.num_faces + touched.count, device=face.device)
    row, new = row[: mesh.num_faces], row[mesh.num_faces :]
    left = mesh.num_faces + touched.count + 2 * index
    row = row.scatter(0, found.faces, new).scatter_(0, face, left)
    chosen = pool.select(torch.cat([row, left + 1]))
    refined = Mesh(
        uv=out.uv,
        edges=out.edges,
        offsets=chosen.offsets,
        corners=chosen.half,
        edge_layer=torch.cat([split.edge_layer, torch.full_like(index, wanted.layer)]),
        edge_unit=torch.cat([split.edge_unit, wanted.unit[which]]),
        vertex_layer=split.vertex_layer,
    )
    points = crossings.points
    return Halves(
        refined,
        points.interpolated(),
        points.error,
        face=face,
        new_face=mesh.num_faces + index,
        ends=torch.stack([lines.start, lines.end], 1),
        which=which,
        ambiguities=ambiguities + short_chords(lines),
    )


# -- finding the chords -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Corners:
    """The corners of the wanted chords' faces, (H,), one face after the other.

    corner: its number in the mesh; after: the corner after it around the face; half, vertex: its
    half-edge and vertex; column: the function of the chord, with its value, error and sign.
    """

    corner: Tensor
    after: Tensor
    half: Tensor
    vertex: Tensor
    column: Tensor
    value: Tensor
    error: Tensor
    sign: Tensor

    @classmethod
    def of(cls, mesh: Mesh, functions: UnitDifferences, face: Tensor, column: Tensor) -> _Corners:
        corner, counts = take_rows(mesh.offsets, face)
        half = take(mesh.corners, corner)
        vertex = take(mesh.edges.view(-1), half)
        column = take(column, owners_of(counts, corner.shape[0]))
        value, error = functions.at(vertex, column), take(functions.error, column)
        sign = (value > SAFETY * error).long() - (value < -SAFETY * error).long()
        after = following(offsets_of(counts), corner.shape[0])
        return cls(corner, after, half, vertex, column, value, error, sign)

    def changes(self, m: int) -> tuple[Tensor, Tensor]:
        """Edges and columns where the ends have opposite signs, ordered by edge, then column."""
        change = (self.sign * take(self.sign, self.after) < 0).nonzero()[:, 0]
        key = (take(self.half, change) >> 1) * m + take(self.column, change)
        key = torch.unique(key)
        return key // m, key % m

    def zeros(self, uv: Tensor) -> Zeros | None:
        """Where functions pass through zero; the first corner of a run of zeros stands for all."""
        sign, after = self.sign, self.after
        before = ((sign != 0) & (take(sign, after) == 0)).nonzero()[:, 0]
        zero = take(after, before)
        ahead = take(after, zero)
        while bool((take(sign, ahead) == 0).any()):
            ahead = torch.where(take(sign, ahead) == 0, take(after, ahead), ahead)
        beyond = take(sign, ahead)
        through = (beyond != take(sign, before)).nonzero()[:, 0]
        if not through.shape[0]:
            return None
        zero, before, beyond = (take(x, through) for x in (zero, before, beyond))
        shift = take(self.error, zero) / take(self.value, before).abs()
        side = take(uv, take(self.vertex, before)) - take(uv, take(self.vertex, zero))
        corner, column = take(self.corner, zero), take(self.column, zero)
        return Zeros(corner, column, beyond < 0, shift[:, None] * side)

    def unclear(self, functions: UnitDifferences) -> Tensor:
        """Vertices at which a value has no sign, but is larger than rounding explains, (N,)."""
        size = self.value.abs()
        found = ((self.sign == 0) & (size > self.error)).nonzero()[:, 0]
        if found.shape[0]:
            off = functions.position_error(self.vertex[found], self.column[found])
            found = found[size[found] > self.error[found] + off]
        vertices: Tensor = torch.unique(self.vertex[found])
        return vertices


def _find(
    mesh: Mesh, wanted: WantedChords
) -> tuple[EdgeCrossings, FaceChords, Tensor, list[Ambiguities]]:
    """Find the wanted chords, of which some may vanish in rounding.

    Returns where they cross edges, the chords, and the wanted one of each, (N,).
    """
    functions, column = wanted.columns()
    key = wanted.face * functions.m + column
    corners = _Corners.of(mesh, functions, wanted.face, column)
    crossings = find_edge_crossings(mesh, functions, *corners.changes(functions.m))
    chords = find_chords(mesh, crossings, corners.zeros(mesh.uv), functions.m, key)
    ambiguities = crossings.ambiguities + chords.ambiguities
    unclear = corners.unclear(functions)
    if unclear.shape[0]:
        ambiguities.append(Ambiguities(mesh.uv[unclear], UNCLEAR))
    found = take(chords.faces, chords.chord_faces()) * functions.m + chords.column
    return crossings, chords, torch.searchsorted(key, found), ambiguities
