"""The result of a refinement: the refined mesh, and how its new vertices lie between older ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from splinecam._util.arrays import counts_of, offsets_of, owners_of, take
from splinecam.arrangement.chords import ChordCrossings, Lines
from splinecam.arrangement.crossings import Ambiguities, EdgeCrossings, Functions
from splinecam.geometry.subdivision import Breakpoints, InterpolatedVertices, Mesh
from splinecam.kernels.refined import History

# New vertices from which breakpoints are found; to evaluate fewer is as fast, and rounds less.
FEWEST = 1 << 13


def edge_breakpoints(functions: Functions, crossings: EdgeCrossings) -> Breakpoints:
    """The breakpoints of all edges, of which some are divided."""
    if crossings.distinct:
        offsets, place = crossings.first, crossings.point
    else:
        offsets = offsets_of(counts_of(crossings.edge, crossings.counts.shape[0]))
        place = offsets_of(torch.bincount(crossings.point))[:-1]
    unit, change = _slope_changes(functions, crossings.column, crossings.change)
    return Breakpoints(offsets, crossings.t, unit, change, crossings.points.edge, place)


def chord_breakpoints(
    functions: Functions,
    crossings: EdgeCrossings,
    lines: Lines,
    on_chords: ChordCrossings,
    column: Tensor,
    known: int,
) -> Breakpoints:
    """The breakpoints of chords in general position.

    column: (L,) of each line; known: how many vertices there were before.
    """
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
    """Values of functions at new vertices on edges, (N,); anything where the point is negative."""
    points = crossings.points
    if not points.count:
        return points.t.new_zeros(point.shape)
    point = point.clamp_(min=0)
    a, b = (functions.at(take(x, point), column) for x in (points.a, points.b))
    return a.lerp_(b, take(points.t, point))


def _slope_changes(functions: Functions, column: Tensor, change: Tensor) -> tuple[Tensor, Tensor]:
    """The units of columns (K,), and the changes of the results' slopes per whole line.

    change: (K,) by how much the functions change along the line.
    """
    if functions.slope_difference is None:
        raise ValueError("these functions do not say what happens where they vanish")
    return functions.units(column), take(functions.slope_difference, column) * change


@dataclass(frozen=True)
class NewVertices:
    """The vertices that a refinement adds: first those on edges, then those inside faces.

    breakpoints: of the divided edges and of the chords, if they are known.
    """

    on_edges: InterpolatedVertices
    inside: InterpolatedVertices
    breakpoints: tuple[Breakpoints, Breakpoints] | None = None


@dataclass(frozen=True)
class Refinement:
    """A refined mesh, whichever cutter made it.

    added: its new vertices; those of the compiled kernel stay in its memory until they are asked
    for. early: vertices made before those, level by level. kept: (V,) which of all these vertices
    the mesh still has; by default all.
    """

    mesh: Mesh
    added: NewVertices | History
    ambiguities: list[Ambiguities]
    early: tuple[InterpolatedVertices, ...] = ()
    kept: Tensor | None = None

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
