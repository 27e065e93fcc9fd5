"""The pieces of a network along a segment in exact arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from torch import Tensor, nn

from splinecam.testing.oracle.geometry import Cell, corner, fractions, over_common
from splinecam.testing.oracle.layers import layer_step

__all__ = ["ExactPiece", "exact_pieces"]


@dataclass(frozen=True)
class ExactPiece:
    """An interval of a segment on which every unit keeps one piece: ``slope * t + intercept``.

    begin, end: its positions on the segment, from 0 to 1; pattern: the piece of every unit.
    """

    begin: Fraction
    end: Fraction
    pattern: tuple[int, ...]
    slope: tuple[Fraction, ...]
    intercept: tuple[Fraction, ...]


def exact_pieces(model: nn.Module, a: Tensor, b: Tensor) -> list[ExactPiece]:
    """Return the pieces of a small network on the segment from input a to input b, in order.

    The segment is the first axis of a unit square whose second axis changes nothing, so that the
    exact cells of that square are strips. The networks are those of ``exact_partition``.

    >>> import torch
    >>> relu = nn.Sequential(nn.ReLU())
    >>> [piece.end for piece in exact_pieces(relu, torch.tensor([-1.0]), torch.tensor([2.0]))]
    [Fraction(1, 3), Fraction(1, 1)]
    """
    first, last = fractions(a), fractions(b)
    numbers, den = over_common([*(q - p for p, q in zip(first, last, strict=True)), *first])
    rows = [(numbers[k], 0, numbers[len(first) + k]) for k in range(len(first))]
    zero, one = Fraction(0), Fraction(1)
    square = [corner(zero, zero), corner(one, zero), corner(one, one), corner(zero, one)]
    step, _ = layer_step(model, tuple(a.shape))
    pieces = []
    for cell in step.apply(Cell(square, rows, den, ())):
        u = [Fraction(x, w) for x, _, w in cell.corners]
        slope = tuple(Fraction(row[0], cell.den) for row in cell.rows)
        intercept = tuple(Fraction(row[2], cell.den) for row in cell.rows)
        pieces.append(ExactPiece(min(u), max(u), cell.pattern, slope, intercept))
    return sorted(pieces, key=lambda piece: piece.begin)
