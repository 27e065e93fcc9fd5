"""Cut a mesh along the zero sets of many functions that are affine on every face.

1. Signs are decided once per vertex, so that all faces around it agree (``crossings``).
2. Where a function changes sign along an edge there is a new vertex, which both faces beside the
   edge share (``crossings``).
3. Around a convex face a function falls once from + to - and rises once from - to +. Its chord runs
   between these two places, which are corners by now (``chords``).
4. Each face is cut by its chords on its own: by ``general_position``, or, where something is too
   close to something else, by ``incremental``.

There are two cutters. The compiled kernel cuts on a CPU, and tensor operations cut elsewhere, on a
GPU with the help of compiled steps. Both give the same cells in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import pad

from splinecam._util.arrays import (
    bits_of,
    counts_of,
    entries_of,
    offsets_of,
    owners_of,
    places_in,
    rows_with_bits,
    take,
)
from splinecam._util.backend import backend_of
from splinecam._util.tolerances import UV_ERROR
from splinecam.arrangement.chords import (
    Arrangement,
    ChordCrossings,
    ChordLines,
    FaceChords,
    Zeros,
    find_chords,
)
from splinecam.arrangement.crossings import (
    UNCLEAR,
    Ambiguities,
    EdgeCrossings,
    Functions,
    Signs,
    find_edge_crossings,
)
from splinecam.arrangement.general_position import insert_at_once
from splinecam.arrangement.incremental import insert_incrementally
from splinecam.errors import LimitError
from splinecam.geometry.subdivision import Breakpoints, InterpolatedVertices, Mesh
from splinecam.kernels.gpu import GpuKernel
from splinecam.kernels.kernel import History, Kernel, LayerFunctions

# New vertices from which breakpoints are found; to evaluate fewer is as fast, and rounds less.
FEWEST = 1 << 13


def _edge_breakpoints(functions: Functions, crossings: EdgeCrossings) -> Breakpoints:
    """The breakpoints of all edges, divided or not."""
    if crossings.distinct:
        offsets, place = crossings.first, crossings.point
    else:
        offsets = offsets_of(counts_of(crossings.edge, crossings.counts.shape[0]))
        place = offsets_of(torch.bincount(crossings.point))[:-1]
    unit, change = _slope_changes(functions, crossings.column, crossings.change)
    return Breakpoints(offsets, crossings.t, unit, change, crossings.points.edge, place)


def _chord_breakpoints(
    functions: Functions,
    crossings: EdgeCrossings,
    lines: ChordLines,
    on_chords: ChordCrossings,
    column: Tensor,
    known: int,
) -> Breakpoints:
    """The breakpoints of chords in general position; known: the number of old vertices."""
    counts = on_chords.offsets[1:] - on_chords.offsets[:-1]
    line = take(on_chords.line, owners_of(counts, on_chords.s.shape[0]))
    crossing = take(column, on_chords.other)
    # The farther end of the chord tells best how steep the other function is along it.
    end = torch.where(on_chords.s > 0.5, take(lines.start, line), take(lines.end, line))
    value = _on_edges(functions, crossings, end - known, crossing)
    old = (end < known).nonzero()[:, 0]  # most chords end on an edge
    if old.shape[0]:
        value[old] = functions.at(take(end, old), take(crossing, old))
    change = value.abs() / torch.maximum(on_chords.s, 1 - on_chords.s)
    unit, change = _slope_changes(functions, crossing, change)
    s, chord, place = on_chords.s, on_chords.chord, on_chords.place
    return Breakpoints(on_chords.offsets, s, unit, change, chord, place)


def _on_edges(
    functions: Functions, crossings: EdgeCrossings, point: Tensor, column: Tensor
) -> Tensor:
    """Values of functions at new vertices on edges, (N,); anything for negative points."""
    points = crossings.points
    if not points.count:
        return points.t.new_zeros(point.shape)
    point = point.clamp_(min=0)
    a, b = (functions.at(take(x, point), column) for x in (points.a, points.b))
    return a.lerp_(b, take(points.t, point))


def _slope_changes(functions: Functions, column: Tensor, change: Tensor) -> tuple[Tensor, Tensor]:
    """The units of columns (K,), and by how much the slopes of their results change."""
    if functions.slope_difference is None:
        raise ValueError("these functions do not say what happens where they vanish")
    return functions.units(column), take(functions.slope_difference, column) * change


@dataclass(frozen=True)
class NewVertices:
    """The vertices that a refinement adds: first those on edges, then those inside faces."""

    on_edges: InterpolatedVertices
    inside: InterpolatedVertices
    breakpoints: tuple[Breakpoints, Breakpoints] | None = None  # of edges and chords


@dataclass(frozen=True)
class Refinement:
    """A refined mesh, whichever cutter made it."""

    mesh: Mesh
    added: NewVertices | History  # a history stays in the compiled kernel's memory until used
    ambiguities: list[Ambiguities]
    early: tuple[InterpolatedVertices, ...] = ()  # vertices made before, level by level
    kept: Tensor | None = None  # (V,) the vertices that the mesh still has, by default all

    @property
    def history(self) -> History | None:
        """The new vertices in the memory of the compiled kernel, if that made them."""
        return self.added if isinstance(self.added, History) else None

    @cached_property
    def new(self) -> NewVertices:
        added = self.added
        return NewVertices(*added.tensors()) if isinstance(added, History) else added

    @property
    def on_edges(self) -> InterpolatedVertices:
        return self.new.on_edges

    @property
    def inside(self) -> InterpolatedVertices:
        return self.new.inside

    @property
    def breakpoints(self) -> tuple[Breakpoints, Breakpoints] | None:
        return self.new.breakpoints

    def carry(self, values: Tensor) -> Tensor:
        """Values at all vertices of the refined mesh, from those at the older ones."""
        for interpolated in (*self.early, self.on_edges, self.inside):
            if interpolated.count:
                values = torch.cat([values, interpolated.interpolate(values)])
        return values if self.kept is None else values[self.kept]


def unrefined(mesh: Mesh, ambiguities: list[Ambiguities]) -> Refinement:
    """The refinement that leaves a mesh as it is."""
    none = mesh.edges[:0, 0]
    no_vertices = InterpolatedVertices(none, none, mesh.uv[:0, 0])
    return Refinement(mesh, NewVertices(no_vertices, no_vertices), ambiguities)


def insert_chords(
    mesh: Mesh,
    crossings: EdgeCrossings,
    chords: FaceChords,
    unit: Tensor,
    layer: int,
    *,
    max_faces: int | None = None,
) -> tuple[Refinement, ChordCrossings | None]:
    """Divide faces by chords; also the crossings of chords in general position."""
    boundaries, lines = chords.boundaries, chords.lines
    if max_faces is not None:
        max_faces -= mesh.num_faces - chords.faces.shape[0]
        # Each chord makes one more face at least, but for equal ones.
        lo, hi, most = chords.intervals.lo, chords.intervals.hi, max_faces - boundaries.count
        if lo.shape[0] > most and len(torch.unique(lo * len(boundaries.half) + hi)) > most:
            raise LimitError("too many regions")
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


def short_chords(lines: ChordLines) -> list[Ambiguities]:
    """Chords whose two ends have the same coordinates, up to rounding."""
    short = (lines.length <= UV_ERROR).nonzero()[:, 0]
    if not short.shape[0]:
        return []
    return [Ambiguities(lines.a[short], "a border too short for its coordinates")]


def _assembled(
    mesh: Mesh,
    crossings: EdgeCrossings,
    chords: FaceChords,
    made: Arrangement,
    unit: Tensor,
    layer: int,
) -> Mesh:
    """The refined mesh: untouched faces first, then the pieces of the others."""
    counts, corners = _without_chords(mesh, chords.faces, chords.old_corners)
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


def _without_chords(mesh: Mesh, faces: Tensor, corners: int | None) -> tuple[Tensor, Tensor]:
    """Sizes and corners of all faces but some, (K,) ascending, with so many corners if known."""
    left, counts = mesh.num_faces - faces.shape[0], mesh.counts()
    if backend_of(faces.device).asynchronous and corners is not None:
        stays = torch.ones_like(counts, dtype=torch.bool).index_fill_(0, faces, False)
        total = mesh.corners.shape[0]
        entries = places_in(take(stays, owners_of(counts, total)), total - corners)
        return take(counts, places_in(stays, left)), take(mesh.corners, entries)
    # The runs of faces between the given ones.
    begin, end = pad(faces + 1, (1, 0)), pad(faces, (0, 1), value=mesh.num_faces)
    kept = entries_of(begin, end, offsets_of(end - begin), left)
    begin, end = take(mesh.offsets, begin), take(mesh.offsets, end)
    entries = entries_of(begin, end, offsets_of(end - begin))
    return take(counts, kept), take(mesh.corners, entries)


def _join(parts: list[Tensor], like: Tensor) -> Tensor:
    if len(parts) == 1:
        return parts[0]
    return torch.cat(parts) if parts else like[:0]


def refine_compiled(kernel: Kernel, mesh: Mesh, units: LayerFunctions) -> Refinement | None:
    """Cut faces along zero sets by the compiled kernel; None: something is too close."""
    made = kernel.refine(mesh, units)
    return _without(made, mesh) if isinstance(made, str) else Refinement(*made, [])


def refine(
    mesh: Mesh,
    functions: Functions,
    layer: int,
    *,
    max_faces: int | None = None,
    gpu: GpuKernel | None = None,
) -> Refinement:
    """Cut every face along the zero sets of the functions by tensor operations.

    layer: the provenance of the new edges and vertices. gpu: the kernel of a GPU, which cuts where
    nothing is too close to anything else.
    """
    if not functions.m:
        return unrefined(mesh, [])
    made = None if gpu is None else _refine_on_gpu(gpu, mesh, functions, layer, max_faces)
    if made is not None:
        return made
    signs, unclear = functions.signs()
    crossings = find_edge_crossings(mesh, functions, *sign_changes(mesh.edges, signs))
    zeros = zero_corners(mesh, functions, signs)
    ambiguities = [*crossings.ambiguities]
    if unclear.shape[0]:
        ambiguities.append(Ambiguities(mesh.uv[unclear], UNCLEAR))
    if not crossings.edge.shape[0] and zeros is None:
        return unrefined(mesh, ambiguities)
    chords = find_chords(mesh, crossings, zeros, functions.m)
    unit = chords.column if functions.whole else take(functions.label, chords.column)
    made, on_chords = insert_chords(mesh, crossings, chords, unit, layer, max_faces=max_faces)
    new = made.new
    enough = new.on_edges.count + new.inside.count >= FEWEST
    if on_chords is not None and enough and functions.slope_difference is not None:
        on_lines = chords.lines, on_chords, chords.column, mesh.num_vertices
        found = (
            _edge_breakpoints(functions, crossings),
            _chord_breakpoints(functions, crossings, *on_lines),
        )
        new = replace(new, breakpoints=found)
    return Refinement(made.mesh, new, ambiguities + chords.ambiguities + made.ambiguities)


def _refine_on_gpu(
    gpu: GpuKernel, mesh: Mesh, functions: Functions, layer: int, max_faces: int | None
) -> Refinement | None:
    """Cut by the steps for a GPU; None where something is too close to something else."""
    signs, slope_difference = functions.known_signs, functions.slope_difference
    if signs is None:
        return None
    cutting = LayerFunctions(
        z=functions.z,
        positive=signs.positive,
        negative=signs.negative,
        error=functions.error,
        slope_difference=slope_difference,
        wanted=functions.wanted,
        layer=layer,
        max_faces=max_faces,
        breakpoints_from=None if slope_difference is None else FEWEST,
    )
    made = gpu.refine(mesh, cutting)
    if isinstance(made, str):
        return _without(made, mesh)
    return Refinement(made.mesh, NewVertices(made.on_edges, made.inside, made.breakpoints), [])


def _without(reason: str, mesh: Mesh) -> Refinement | None:
    """What a compiled kernel's reason for no refinement means; None: others have to do it."""
    if reason == "too many faces":
        raise LimitError(reason)
    return unrefined(mesh, []) if reason == "unchanged" else None


# -- signs at the ends of edges ---------------------------------------------------------------


def sign_changes(edges: Tensor, signs: Signs) -> tuple[Tensor, Tensor]:
    """Edges and columns where the ends have opposite signs, ordered by edge, then column."""

    def changes(rows: slice) -> Tensor:
        a, b = (end.contiguous() for end in edges[rows].unbind(1))
        words = take(signs.positive, a).bitwise_xor_(take(signs.positive, b))
        if signs.vanish:  # a function that is zero at one end changes in one of both only
            words &= take(signs.negative, a).bitwise_xor_(take(signs.negative, b))
        return words

    return in_blocks(changes, edges.shape[0], signs)


def in_blocks(words: Callable[[slice], Tensor], count: int, signs: Signs) -> tuple[Tensor, Tensor]:
    """Row and column of every set bit of ``words``, which gives the words of a block of rows."""
    backend, width = backend_of(signs.positive.device), signs.positive.shape[1]
    step = max(1, backend.sign_words // max(width, 1))
    if backend.asynchronous and count <= step:
        return bits_of(words(slice(count)))
    some_rows, some_words = [], []
    for start in range(0, count, step):
        block = words(slice(start, start + step))
        rows = rows_with_bits(block)
        some_rows.append(rows + start)
        some_words.append(take(block, rows))
    row, column = bits_of(torch.cat(some_words))
    return take(torch.cat(some_rows), row), column


def zero_corners(mesh: Mesh, functions: Functions, signs: Signs) -> Zeros | None:
    """Where functions pass through zero, at the first corner of each run of zeros, if anywhere."""
    if not signs.vanish:
        return None
    zero = signs.zero
    vertex, after = mesh.corner_vertices(), mesh.next_corner()
    previous = vertex[mesh.previous_corner()]
    found = []
    for leaving, entering in ((signs.positive, -1), (signs.negative, 1)):

        def begins(rows: slice, words: Tensor = leaving) -> Tensor:
            return take(zero, vertex[rows]) & take(words, previous[rows])

        corner, column = in_blocks(begins, vertex.shape[0], signs)
        ahead, sign = corner, torch.zeros_like(corner)
        while bool((sign == 0).any()):
            ahead = torch.where(sign == 0, after[ahead], ahead)
            sign = signs.at(vertex[ahead], column)
        through = (sign == entering).nonzero()[:, 0]
        corner, column = corner[through], column[through]
        p, v = previous[corner], vertex[corner]
        shift = functions.error[column] / functions.at(p, column).abs()
        position_error = shift[:, None] * (mesh.uv[p] - mesh.uv[v])
        falling = torch.full_like(corner, entering < 0, dtype=torch.bool)
        found.append(Zeros(corner, column, falling, position_error))
    zeros = Zeros.join(*found)
    return zeros if zeros.corner.shape[0] else None
