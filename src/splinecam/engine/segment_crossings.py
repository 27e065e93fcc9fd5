"""Where a layer switches along segments: the zeros of its functions between neighbouring points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from splinecam._util.arrays import sort_rows, take
from splinecam._util.backend import backend_of
from splinecam._util.tolerances import EPS, SAFETY, UV_ERROR, cluster, touching
from splinecam.arrangement.crossings import Functions
from splinecam.arrangement.envelope import winner_changes
from splinecam.network.nonlinearities import MaxNonlinearity, Nonlinearity, PiecewiseScalar

UNCLEAR = "a unit switches too close to a breakpoint to tell its side"
CLOSE = "breakpoints too close to tell apart"


@dataclass(frozen=True)
class UnitValues:
    """The values of a layer's n units at P points along segments, in order.

    z: (P, n); error: (R, n) their rounding errors; owner: (P,) the row of ``error`` that holds at
    each point, None if there is one row; low, high: (n,) their range; t: (P,) the positions of the
    points on their segments; inside: (P - 1,) whether a point and the next one are on the same
    segment, so that a piece lies between them.
    """

    z: Tensor
    error: Tensor
    owner: Tensor | None
    low: Tensor
    high: Tensor
    t: Tensor
    inside: Tensor

    def errors(self, points: slice, unit: Tensor | slice = slice(None)) -> Tensor:
        """The errors of units at points, (P', m), or (1, m) if they are the same at all points."""
        return (self.error if self.owner is None else take(self.error, self.owner[points]))[:, unit]


@dataclass(frozen=True)
class Crossings:
    """New points on pieces, (N,) each, in order.

    piece: the number of the point before; s: the fraction of the piece. unclear: (M,) the numbers
    of points at which the side of a unit is too close to call; close: (M,) new points that stand
    for several that rounding can hardly tell apart. inexact: (M,) the numbers of points, of which
    some may come twice, on whose segments smaller rounding errors might change the result.
    """

    piece: Tensor
    s: Tensor
    unclear: Tensor
    close: Tensor
    inexact: Tensor


def find_crossings(layer: Nonlinearity, units: UnitValues) -> Crossings:
    """All points at which a layer switches between neighbouring points."""
    if isinstance(layer, PiecewiseScalar) and layer.at_zero:
        return united(units.t, zeros_between(units.z, units.errors(slice(None)), units.inside))
    # Which functions may vanish somewhere does not depend on rounding errors here.
    none = torch.zeros_like(units.low)
    functions = layer.functions(units.z, none, units.low, units.high)
    if functions is not None:
        return united(units.t, _zeros_of(functions, units))
    if not isinstance(layer, MaxNonlinearity):
        raise TypeError(f"{type(layer).__name__} does not say where it switches")
    return united(units.t, _winner_changes(layer, units))


class Zeros(NamedTuple):
    """Pieces, fractions and their errors, (N,) each; unclear, inexact: see ``Crossings``."""

    piece: Tensor
    s: Tensor
    error: Tensor
    unclear: Tensor
    inexact: Tensor

    @classmethod
    def joined(cls, parts: list[Zeros]) -> Zeros:
        """The zeros of consecutive blocks, which share a point."""
        piece, s, error, unclear, inexact = (torch.cat(part) for part in zip(*parts, strict=True))
        return cls(piece, s, error, torch.unique_consecutive(unclear), inexact)

    def after(self, points: int) -> Zeros:
        """The same for points that come after so many others."""
        return Zeros(
            self.piece + points, self.s, self.error, self.unclear + points, self.inexact + points
        )


def zeros_between(f: Tensor, error: Tensor, inside: Tensor) -> Zeros:
    """The zeros of functions f (P, m), with rounding errors (P, m) or (1, m), between points."""
    tolerance = SAFETY * error
    positive = f > tolerance
    negative = f < -tolerance
    unclear = inexact = inside.nonzero()[:0, 0]
    known = positive | negative
    if bool(known.all()):
        crossed = positive[1:] ^ positive[:-1]
    else:
        crossed = (positive[:-1] & negative[1:]) | (negative[:-1] & positive[1:])
        inexact = (~known.all(1)).nonzero()[:, 0]
        size, least = f.abs()[inexact], error if error.shape[0] == 1 else error[inexact]
        unclear = inexact[((size > least) & (size <= SAFETY * least)).any(1)]
    crossed &= inside[:, None]
    piece, column = crossed.nonzero(as_tuple=True)
    flat, place = f.reshape(-1), piece * f.shape[1] + column
    value = take(flat, place)
    change = value - take(flat, place + f.shape[1])
    own = take(error.reshape(-1), column if error.shape[0] == 1 else place)
    return Zeros(piece, value / change, own / change.abs(), unclear, inexact)


def _zeros_of(functions: Functions, units: UnitValues) -> Zeros:
    """The same for the functions of a layer, a block of points at a time."""
    points, parts = functions.z.shape[0], []
    chosen = functions.wanted.nonzero()[:, 0]
    unit, level = take(functions.unit, chosen), take(functions.level, chosen)
    other = None if functions.other is None else take(functions.other, chosen)
    step = max(2, backend_of(functions.z.device).function_values // max(1, functions.m))
    for start in range(0, max(1, points - 1), step):
        some = slice(start, start + step + 1)
        z, error = functions.z[some], units.errors(some, unit)
        if other is None:
            f, error = z[:, unit] - level, error + EPS * level.abs()
        else:
            f, error = z[:, unit] - z[:, other], error + units.errors(some, other)
        parts.append(zeros_between(f, error, units.inside[start : start + step]).after(start))
    return Zeros.joined(parts)


def _winner_changes(layer: MaxNonlinearity, units: UnitValues) -> Zeros:
    """Where the winners of groups change."""
    z = -units.z if layer.smallest else units.z
    members = layer.members
    none = torch.zeros(members.shape[0], dtype=z.dtype, device=z.device)
    points, width = z.shape
    step = max(2, backend_of(z.device).function_values // max(1, width))
    found = []
    for start in range(0, max(1, points - 1), step):
        some = z[start : start + step + 1]
        winner = layer.groups.winners(some, none)
        other = (winner[1:] != winner[:-1]) & units.inside[start : start + step, None]
        piece, group = other.nonzero(as_tuple=True)
        columns = members[group]
        first, last = some[piece[:, None], columns], some[piece[:, None] + 1, columns]
        row = torch.zeros_like(piece) if units.owner is None else units.owner[piece + start]
        changes = winner_changes(first, last, units.error[row[:, None], columns])
        parts = changes.s, changes.error, piece[:0], piece[changes.inexact]
        found.append(Zeros(piece[changes.row], *parts).after(start))
    return Zeros.joined(found)


def united(t: Tensor, zeros: Zeros) -> Crossings:
    """Sort the crossings, unite those that rounding cannot tell apart, and drop those at ends.

    t: (P,) the positions of all points on their segments.
    """
    piece, s, error, unclear, inexact = zeros
    none = piece[:0]
    if not piece.shape[0]:
        return Crossings(piece, s, unclear, none, inexact)
    order, piece, s = sort_rows(piece, s, t.shape[0])
    again = (piece[1:] == piece[:-1]) & (s.diff() <= UV_ERROR)
    if bool(again.any()):  # one pair of units in overlapping windows, or a unit and its negative
        kept = torch.cat([again[:1] | True, ~again]).nonzero()[:, 0]
        order, piece, s = take(order, kept), take(piece, kept), take(s, kept)
    length = take(t, piece + 1) - take(t, piece)
    error = take(error, order) + UV_ERROR / length
    at_end = torch.minimum(s, 1 - s) <= torch.clamp(SAFETY * error, max=0.5)
    touch = touching(piece, s, error)
    near, ended = torch.stack([touch.any(), at_end.any()]).tolist()  # one transfer from a GPU
    close = none
    if near or ended:
        inexact = torch.cat([inexact, piece[at_end], piece[1:][touch]])
    if ended:
        doubtful = at_end & (torch.minimum(s, 1 - s) > error)
        beside = piece + (s > 0.5)
        unclear = torch.unique(torch.cat([unclear, beside[doubtful]]))
        kept = (~at_end).nonzero()[:, 0]
        piece, s, error = take(piece, kept), take(s, kept), take(error, kept)
    if near:
        group, best, doubtful = cluster(piece, s, error)
        close = torch.unique(group[doubtful])
        piece, s = take(piece, best), take(s, best)
    return Crossings(piece, s, unclear, close, inexact)
