"""Where the results of a cut bend on the edges that it divided, and on the chords it drew."""

from __future__ import annotations

import torch
from torch import Tensor

from splinecam._util.csr import offsets_of, owners_of, take
from splinecam.arrangement.chords import ChordCrossings, Lines
from splinecam.arrangement.functions import Functions
from splinecam.arrangement.refinement import EdgeCrossings, Refinement
from splinecam.geometry.interpolation import Breakpoints

__all__ = ["FEWEST", "bent", "find_kinks"]

# New vertices for which kinks are looked for; evaluating a few is as fast, and rounds less.
FEWEST = 1 << 13


def bent(functions: Functions, count: int) -> bool:
    """Whether kinks are worth looking for, if there are so many new vertices."""
    return functions.jump is not None and count >= FEWEST


def find_kinks(
    functions: Functions, cuts: EdgeCrossings, made: Refinement, column: Tensor, known: int
) -> tuple[Breakpoints, Breakpoints] | None:
    """Those on the divided edges and on the chords, if there are many, and in general position.

    column: (L,) of each line that was drawn; known: how many vertices there were.
    """
    enough = bent(functions, made.on_edges.count + made.inside.count)
    if not enough or made.lines is None or made.woven is None:
        return None
    on_chords = _chord_kinks(functions, cuts, made.lines, made.woven, column, known)
    return _edge_kinks(functions, cuts), on_chords


def _edge_kinks(functions: Functions, cuts: EdgeCrossings) -> Breakpoints:
    """Of the edges, of which some are divided."""
    if cuts.distinct:
        offsets, first = cuts.first, torch.arange(cuts.edge.shape[0], device=cuts.edge.device)
    else:
        offsets = offsets_of(torch.bincount(cuts.edge, minlength=cuts.extra.shape[0]))
        first = offsets_of(torch.bincount(cuts.group))[:-1]
    unit, slope_change = _bends(functions, cuts.column, cuts.change)
    return Breakpoints(offsets, cuts.at, unit, slope_change, cuts.group_edge, first)


def _chord_kinks(
    functions: Functions,
    cuts: EdgeCrossings,
    lines: Lines,
    woven: ChordCrossings,
    column: Tensor,
    known: int,
) -> Breakpoints:
    """Of the woven chords; column: (L,) of each line; known: how many vertices there were."""
    counts = woven.offsets[1:] - woven.offsets[:-1]
    line = take(woven.line, owners_of(counts, woven.s.shape[0]))
    crossing = take(column, woven.other)
    # The farther end of the chord tells best how steep the other function is along it.
    end = torch.where(woven.s > 0.5, take(lines.start, line), take(lines.end, line))
    value = _on_edges(functions, cuts, end - known, crossing)
    old = (end < known).nonzero()[:, 0]  # most chords end on an edge
    if old.shape[0]:
        value[old] = functions.at(take(end, old), take(crossing, old))
    change = value.abs() / torch.maximum(woven.s, 1 - woven.s)
    unit, slope_change = _bends(functions, crossing, change)
    return Breakpoints(woven.offsets, woven.s, unit, slope_change, woven.chord, woven.place)


def _on_edges(functions: Functions, cuts: EdgeCrossings, group: Tensor, column: Tensor) -> Tensor:
    """Values of functions at new vertices on edges, (N,); anything where the group is negative."""
    if not cuts.t.shape[0]:
        return cuts.t.new_zeros(group.shape)
    group = group.clamp_(min=0)
    a, b = (functions.at(take(x, group), column) for x in (cuts.a, cuts.b))
    return a.lerp_(b, take(cuts.t, group))


def _bends(functions: Functions, column: Tensor, change: Tensor) -> tuple[Tensor, Tensor]:
    """The units of columns (K,), and what their changes along a line do to the results."""
    if functions.jump is None:
        raise ValueError("these functions do not say what happens where they vanish")
    return functions.units(column), take(functions.jump, column) * change
