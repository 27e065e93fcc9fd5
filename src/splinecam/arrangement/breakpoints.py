"""Where the slope of a layer's result changes, on the divided edges and on the inserted chords."""

from __future__ import annotations

import torch
from torch import Tensor

from splinecam._util.csr import counts_of, offsets_of, owners_of, take
from splinecam.arrangement.chords import ChordCrossings, Lines
from splinecam.arrangement.edge_crossings import EdgeCrossings
from splinecam.arrangement.functions import Functions
from splinecam.geometry.interpolation import Breakpoints

__all__ = ["FEWEST", "chord_breakpoints", "edge_breakpoints"]

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
