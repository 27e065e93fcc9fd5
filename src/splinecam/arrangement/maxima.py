"""Cut a mesh where the winner of a maximum changes: max-pooling, maxout, ``amax``.

1. Candidates are faces whose corners have different winners in a group (``envelope``).
2. Where a group has more than two winners in a face, no single chord is enough: the face is cut in
   two by an auxiliary line between two winners, again and again, until each part has two winners of
   each group at most.
3. Then all borders are chords from end to end, and are inserted at once (``insert_selected``).
4. The auxiliary lines of step 2 go on where neither of their two functions wins: these parts are
   removed again (``dissolve``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from splinecam._util.arrays import (
    counts_of,
    following,
    offsets_of,
    owners_of,
    places_in,
    take,
    take_rows,
)
from splinecam._util.backend import backend_of
from splinecam._util.tolerances import SAFETY
from splinecam.arrangement import envelope, refine
from splinecam.arrangement.chords import Arrangement, FaceBoundaries, FaceChords, Zeros, find_chords
from splinecam.arrangement.crossings import (
    UNCLEAR,
    Ambiguities,
    EdgeCrossings,
    UnitDifferences,
    VertexValues,
    find_edge_crossings,
)
from splinecam.arrangement.dissolve import dissolve
from splinecam.arrangement.incremental import split_once
from splinecam.errors import LimitError
from splinecam.geometry.subdivision import InterpolatedVertices, Mesh
from splinecam.kernels.gpu import GpuKernel
from splinecam.kernels.kernel import SelectedChords


@dataclass(frozen=True)
class WantedChords:
    """Chords to insert, (N,)."""

    key: Tensor  # ascending, (face * n + one unit) * n + another one of n units
    unit: Tensor  # of the new edges
    layer: int  # their provenance
    values: VertexValues  # of all units
    error: Tensor  # (n,)
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
        given = self.key, self.unit, self.values.table, self.error, self.values.first
        new = self.values.ends, self.values.position_error
        return SelectedChords(*given, *new, self.layer, self.max_faces)


def insert_selected(mesh: Mesh, wanted: WantedChords) -> refine.Refinement:
    """Cut the faces of a mesh by selected chords."""
    if not wanted.key.shape[0]:
        return refine.unrefined(mesh, [])
    if wanted.gpu is not None:
        fast = wanted.gpu.insert_chords(mesh, wanted.for_gpu())
        if not isinstance(fast, str):
            return refine.Refinement(fast.mesh, refine.NewVertices(fast.on_edges, fast.inside), [])
    crossings, found, which, ambiguities = _find(mesh, wanted)
    if not which.shape[0]:
        return refine.unrefined(mesh, ambiguities)
    unit, limit = wanted.unit[which], wanted.max_faces
    made, _ = refine.insert_chords(mesh, crossings, found, unit, wanted.layer, max_faces=limit)
    return replace(made, ambiguities=ambiguities + made.ambiguities)


@dataclass(frozen=True)
class Halves:
    """Faces (N,) cut in two."""

    mesh: Mesh
    interpolated: InterpolatedVertices  # the new vertices, all on edges
    position_error: Tensor  # (W,) of their places there
    face: Tensor  # the left half keeps the number
    new_face: Tensor  # the right half
    ends: Tensor  # (N, 2) the end vertices of the chord
    which: Tensor  # (N,) the wanted chord
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
        ambiguities=ambiguities + refine.short_chords(lines),
    )


# -- finding the chords -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Corners:
    """The corners of the wanted chords' faces, (H,), one face after the other."""

    corner: Tensor  # its number in the mesh
    after: Tensor  # the next corner around the face
    half: Tensor
    vertex: Tensor
    column: Tensor  # the function of the chord, with its value, error and sign
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
    """Where the wanted chords cross edges, the chords, and the number of each, (N,)."""
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


_WAITING = envelope.UNDECIDED + 1  # one border, in a face where another group has several
_AUXILIARY = -2  # edge_unit of an edge of the k-th auxiliary line: _AUXILIARY - k
_FEW = 4  # times more units than are compared: then the others are left out
_ASIDE = 0.381966  # a point of a line that is not half-way between anything

CLOSE = "the members of a maximum are too close to tell the largest"


def refine_maxima(
    mesh: Mesh,
    z: Tensor,
    groups: envelope.Groups,
    error: Tensor,
    low: Tensor,
    high: Tensor,
    layer: int,
    *,
    max_faces: int | None = None,
    gpu: GpuKernel | None = None,
) -> refine.Refinement:
    """Cut every face where the largest unit of a group changes.

    z: (V, n) values of the units, with rounding error and range (n,); layer: the provenance of the
    new edges and vertices; gpu: the kernel of a GPU.
    """
    candidates = envelope.find_candidates(mesh, z, groups, error, low, high)
    if not candidates.face.shape[0]:
        return refine.unrefined(mesh, [])
    few, used = candidates.renumbered(z.shape[1])
    if used.shape[0] * _FEW < z.shape[1]:  # the others need not be known at new vertices
        z, error, candidates = z[:, used], error[used], few
    classifier = envelope.EnvelopeClassifier(VertexValues.of(z), error, gpu)
    work = _MaximaRefinement(mesh, classifier, layer, candidates, groups.count, max_faces)
    while work.step():
        pass
    return work.finish()


_Auxiliary = tuple[Tensor, envelope.CandidateFaces]
"""Auxiliary lines, and the candidates that may have a border along them, (N,) each."""


def _joined(parts: list[_Auxiliary]) -> list[_Auxiliary]:
    """The same in one part, if they are not many: then fewer operations are faster."""
    candidates, line = [some for _, some in parts], torch.cat([line for line, _ in parts])
    widest = max(some.units.shape[1] for some in candidates)
    if widest * line.shape[0] > backend_of(line.device).envelope_members:
        return parts
    units = [some.units for some in candidates]  # a member may be there more than once
    units = [torch.cat([x, x[:, :1].expand(-1, widest - x.shape[1])], 1) for x in units]
    face, group = (torch.cat(x) for x in zip(*((c.face, c.group) for c in candidates), strict=True))
    return [(line, envelope.CandidateFaces(face, group, torch.cat(units)))]


@dataclass
class _MaximaRefinement:
    """The mesh so far, and the candidates that are still open in its faces."""

    mesh: Mesh
    classifier: envelope.EnvelopeClassifier
    layer: int
    open: envelope.CandidateFaces
    no_group: int  # above every group's number
    max_faces: int | None
    early: list[InterpolatedVertices] = field(default_factory=list)
    chords: list[Tensor] = field(default_factory=list)  # face, two units and group of borders
    auxiliary: list[_Auxiliary] = field(default_factory=list)
    lines: int = 0  # auxiliary ones
    ambiguities: list[Ambiguities] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.old = self.mesh.num_vertices

    def step(self) -> bool:
        """Cut faces with more than two winners in two; False when there are none left."""
        if not self.open.face.shape[0]:
            return False
        status = self.classifier.classify(self.mesh, self.open)
        kind, face, faces = status.kind, self.open.face, self.mesh.num_faces
        busy = torch.zeros(faces + 1, dtype=torch.bool, device=face.device)
        busy.index_fill_(0, torch.where(kind == envelope.SEVERAL, face, faces), True)
        kind = torch.where((kind == envelope.CHORD) & take(busy, face), _WAITING, kind)
        # One transfer from a GPU.
        sizes = torch.cat([counts_of(kind, _WAITING + 1), busy[:-1].sum()[None]]).tolist()
        order = kind.argsort(stable=True)
        _, chord, several, undecided, waiting = torch.split(order, sizes[:-1])
        self._report(face[undecided])
        row = face[chord, None], status.pair[chord], self.open.group[chord, None]
        self.chords.append(torch.cat(row, 1))
        if not several.shape[0]:
            return False
        chosen = torch.cat([several, waiting]).sort().values
        self.open = self.open.select(chosen)
        self.open = self.open.without(self.classifier.dominated(self.mesh, self.open))
        several = places_in(kind[chosen] == envelope.SEVERAL, several.shape[0])
        best = self._longest(several, status.side[chosen], sizes[-1])
        self._halve(best, status.pair[chosen[best]])
        return True

    def _report(self, face: Tensor) -> None:
        """Report faces (N,) in which rounding leaves the winner undecided."""
        if face.shape[0]:
            self.ambiguities.append(Ambiguities(self.mesh.means()[torch.unique(face)], CLOSE))

    def _longest(self, several: Tensor, side: Tensor, count: int) -> Tensor:
        """For each of ``count`` faces the candidate with several winners on the longest side."""
        order = several[side[several].argsort(stable=True)]
        rank = torch.arange(order.shape[0], device=order.device)
        last = order.new_full((self.mesh.num_faces,), -1)
        last.scatter_reduce_(0, self.open.face[order], rank, "amax")
        return order[last[places_in(last >= 0, count)]]

    def _halve(self, best: Tensor, pair: Tensor) -> None:
        """Cut the faces of these candidates by the lines of the pairs (N, 2) of units."""
        count = best.shape[0]
        if self.max_faces is not None and self.mesh.num_faces + count > self.max_faces:
            raise LimitError("too many regions")
        marks = _AUXILIARY - self.lines - torch.arange(count, device=best.device)
        halves = halve(self.mesh, self._wanted(self._keys(self.open.face[best], pair), marks))
        self.classifier.values.grow(halves.interpolated, halves.position_error)
        self.early.append(halves.interpolated)
        self.ambiguities += halves.ambiguities
        self.mesh = halves.mesh
        self._hand_down(halves, pair[halves.which], count)
        self.lines += count

    def _keys(self, face: Tensor, pair: Tensor) -> Tensor:
        """Keys of the borders between pairs (N, 2) of units in faces (N,): see ``WantedChords``."""
        n, (first, second) = self.classifier.error.shape[0], pair.unbind(1)
        low, high = torch.minimum(first, second), torch.maximum(first, second)
        return (face * n + low) * n + high

    def _wanted(self, key: Tensor, unit: Tensor) -> WantedChords:
        c = self.classifier
        return WantedChords(key, unit, self.layer, c.values, c.error, c.gpu, self.max_faces)

    def _hand_down(self, halves: Halves, pair: Tensor, count: int) -> None:
        """Hand open candidates to both halves; note which may have a border on the line."""
        number = halves.face.new_full((self.mesh.num_faces,), -1)
        number[halves.face] = torch.arange(halves.face.shape[0], device=number.device)
        which, left = number[self.open.face], self.open
        if pair.shape[0] < count:  # lines that vanished in rounding
            self._report(left.face[which < 0])
            cut = (which >= 0).nonzero()[:, 0]
            left, which = left.select(cut), which[cut]
        chosen = self._along(left, which, halves.ends, pair).nonzero()[:, 0]
        line = self.lines + halves.which[which]
        self.auxiliary.append((line[chosen], left.select(chosen)))
        self.open = envelope.CandidateFaces.join(left, replace(left, face=halves.new_face[which]))

    def _along(
        self, candidates: envelope.CandidateFaces, cut: Tensor, ends: Tensor, pair: Tensor
    ) -> Tensor:
        """Which candidates may have a border along the line that cuts their face, (N,)."""
        # It is between the line's pair (L, 2), or two units that are equal at both of its ends.
        classifier, units = self.classifier, candidates.units
        if classifier.gpu is not None:
            given = classifier.for_gpu(self.mesh, candidates), cut, ends, pair, _ASIDE
            return classifier.gpu.tied_along_lines(*given)
        first, second = ((units == unit[:, None]).any(1) for unit in pair[cut].unbind(1))
        (a, tolerance), (b, _) = (classifier.at(vertex, units) for vertex in ends[cut].unbind(1))
        order = torch.lerp(a, b, _ASIDE).argsort(1)
        slack = tolerance.gather(1, order)
        slack = slack[:, 1:] + slack[:, :-1]
        tied = torch.ones_like(slack, dtype=torch.bool)
        for values in (a, b):
            tied &= values.gather(1, order).diff(dim=1).abs() <= slack
        return (first & second) | tied.any(1)

    def finish(self) -> refine.Refinement:
        """Insert the chords, then remove auxiliary lines where they are no borders."""
        face, first, second, group = torch.cat(self.chords).unbind(1)
        keys = self._keys(face, torch.stack([first, second], 1))
        key, row = torch.unique(keys, return_inverse=True)
        unit = key.new_full(key.shape, self.no_group).scatter_reduce_(0, row, group, "amin")
        made = insert_selected(self.mesh, self._wanted(key, unit))
        ambiguities = self.ambiguities + made.ambiguities
        made = replace(made, ambiguities=ambiguities, early=tuple(self.early))
        return self._without_needless(made) if self.lines else made

    def _without_needless(self, made: refine.Refinement) -> refine.Refinement:
        """The refinement without the parts of auxiliary lines that separate no winners."""
        mesh, classifier = made.mesh, self.classifier
        classifier.values.add_late(made.on_edges, made.inside)
        edge = (mesh.edge_unit <= _AUXILIARY).nonzero()[:, 0]
        edge = edge[mesh.edge_unit[edge].argsort(descending=True)]
        offsets = offsets_of(counts_of(_AUXILIARY - mesh.edge_unit[edge], self.lines))
        beside = mesh.halfedge_face().view(-1, 2)
        unit = edge.new_full(edge.shape, self.no_group)
        for line, candidates in _joined(self.auxiliary):
            rows, counts = take_rows(offsets, line)
            which = owners_of(counts, rows.shape[0])
            units = candidates.units[which]
            faces = beside[edge[rows]].T.reshape(-1)  # those to the left, then those to the right
            left, right = classifier.winner(mesh, faces, units.repeat(2, 1)).view(2, -1)
            border = left != right
            group = candidates.group[which]
            unit.scatter_reduce_(0, rows[border], group[border], "amin")
        mesh.edge_unit[edge] = unit
        mesh, kept = dissolve(mesh, edge[unit == self.no_group], self.old, classifier.gpu)
        return replace(made, mesh=mesh, kept=kept)
