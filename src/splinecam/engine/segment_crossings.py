"""Where a layer switches along segments: the zeros of its functions between neighbouring points."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.csr import sort_rows, take
from splinecam._util.tolerances import SAFETY, UV_ERROR, cluster, touching
from splinecam.arrangement.functions import Functions
from splinecam.arrangement.line_envelope import winner_changes
from splinecam.network.nonlinearities import MaxNonlinearity, Nonlinearity, PiecewiseScalar

__all__ = ["Crossings", "UnitValues", "find_crossings"]

UNCLEAR = "a unit switches too close to a breakpoint to tell its side"
CLOSE = "breakpoints too close to tell apart"


@dataclass(frozen=True)
class UnitValues:
    """The values of a layer's n units at P points along segments, in order.

    z: (P, n); error: (n,) their rounding errors; low, high: (n,) their range; t: (P,) the positions
    of the points on their segments; inside: (P - 1,) whether a point and the next one are on the
    same segment, so that a piece lies between them.
    """

    z: Tensor
    error: Tensor
    low: Tensor
    high: Tensor
    t: Tensor
    inside: Tensor


@dataclass(frozen=True)
class Crossings:
    """New points on pieces, (N,) each, in order.

    piece: the number of the point before; s: the fraction of the piece. unclear: (M,) the numbers
    of points at which the side of a unit is too close to call; close: (M,) new points that stand
    for several that rounding can hardly tell apart.
    """

    piece: Tensor
    s: Tensor
    unclear: Tensor
    close: Tensor


def find_crossings(layer: Nonlinearity, units: UnitValues) -> Crossings:
    """All points at which a layer switches between neighbouring points."""
    if isinstance(layer, PiecewiseScalar) and layer.at_zero:
        piece, s, error, unclear = _zeros(units.z, units.error, units.inside)
        return _united(units, piece, s, error, unclear)
    functions = layer.functions(units.z, units.error, units.low, units.high)
    if functions is not None:
        piece, s, error, unclear = _zeros_of(functions, units.inside)
    elif isinstance(layer, MaxNonlinearity):
        piece, s, error = _winner_changes(layer, units)
        unclear = piece[:0]
    else:
        raise TypeError(f"{type(layer).__name__} does not say where it switches")
    return _united(units, piece, s, error, unclear)


Zeros = tuple[Tensor, Tensor, Tensor, Tensor]
"""Pieces, fractions, their errors, (N,) each, and the points whose signs are unclear, (M,)."""


def _zeros(f: Tensor, error: Tensor, inside: Tensor) -> Zeros:
    """The zeros of functions f (P, m) with rounding errors (m,) between neighbouring points."""
    tolerance = SAFETY * error
    positive = f > tolerance
    negative = f < -tolerance
    unclear = inside.nonzero()[:0, 0]
    if bool((positive | negative).all()):
        crossed = positive[1:] ^ positive[:-1]
    else:
        crossed = (positive[:-1] & negative[1:]) | (negative[:-1] & positive[1:])
        size = f.abs()
        doubtful = ((size > error) & (size <= tolerance)).any(1)
        unclear = doubtful.nonzero()[:, 0]
    crossed &= inside[:, None]
    piece, column = crossed.nonzero(as_tuple=True)
    flat, place = f.reshape(-1), piece * f.shape[1] + column
    value = take(flat, place)
    change = value - take(flat, place + f.shape[1])
    return piece, value / change, take(error, column) / change.abs(), unclear


def _zeros_of(functions: Functions, inside: Tensor) -> Zeros:
    """The same for the functions of a layer, a block of points at a time.

    Neighbouring blocks share a point.
    """
    points, parts = functions.z.shape[0], []
    step = max(2, backend_of(functions.z.device).function_values // max(1, functions.m))
    for start in range(0, max(1, points - 1), step):
        z = functions.z[start : start + step + 1]
        f = z[:, functions.unit]
        f = f - (functions.level if functions.other is None else z[:, functions.other])
        error = functions.error
        if not bool(functions.wanted.all()):
            f, error = f[:, functions.wanted], error[functions.wanted]
        piece, s, shift, unclear = _zeros(f, error, inside[start : start + step])
        parts.append((piece + start, s, shift, unclear + start))
    piece, s, shift, unclear = (torch.cat(part) for part in zip(*parts, strict=True))
    return piece, s, shift, torch.unique_consecutive(unclear)


def _winner_changes(layer: MaxNonlinearity, units: UnitValues) -> tuple[Tensor, Tensor, Tensor]:
    """Where the winners of groups change: pieces, fractions, and their errors."""
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
        changes = winner_changes(first, last, units.error[columns])
        found.append((piece[changes.row] + start, changes.s, changes.error))
    piece, s, error = (torch.cat(part) for part in zip(*found, strict=True))
    return piece, s, error


def _united(
    units: UnitValues, piece: Tensor, s: Tensor, error: Tensor, unclear: Tensor
) -> Crossings:
    """Sort the crossings, unite those that rounding cannot tell apart, and drop those at ends."""
    none = piece[:0]
    if not piece.shape[0]:
        return Crossings(piece, s, unclear, none)
    order, piece, s = sort_rows(piece, s, units.z.shape[0])
    length = take(units.t, piece + 1) - take(units.t, piece)
    error = take(error, order) + UV_ERROR / length
    at_end = torch.minimum(s, 1 - s) <= torch.clamp(SAFETY * error, max=0.5)
    touch = touching(piece, s, error)
    near, ended = torch.stack([touch.any(), at_end.any()]).tolist()  # one transfer from a GPU
    close = none
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
    return Crossings(piece, s, unclear, close)
