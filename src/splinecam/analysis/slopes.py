"""How steep the network is on each region: norms of its derivative."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam.analysis.partition_data import PartitionData

__all__ = ["Slopes", "slopes", "slopes_in_input_space"]


@dataclass(frozen=True)
class Slopes:
    """Norms of each region's derivative, (F,): its largest singular value, and Frobenius's."""

    spectral: Tensor
    frobenius: Tensor


def slopes(part: PartitionData) -> Slopes:
    """Norms of the derivative within the plane, (n_out, 2) on each region."""
    weight = part.maps.weight
    blocks = torch.split(weight, _rows(part, 2 * weight.shape[1]))
    spectral, frobenius = zip(*map(_norms, blocks), strict=True)
    return Slopes(torch.cat(spectral) / part.frame.scale, torch.cat(frobenius) / part.frame.scale)


def slopes_in_input_space(part: PartitionData) -> Slopes:
    """Norms of the derivative by all inputs, (n_out, D) on each region."""
    if part.domain.dim == 2:  # the plane is the input space
        return slopes(part)
    known: Slopes | None = part.__dict__.get("_input_slopes")
    if known is not None:  # they take long
        return known
    units = sum(error.shape[0] for error in part.layer_errors.values())
    rows = _rows(part, part.values.shape[1] * part.domain.dim + units)
    regions = torch.arange(len(part), device=part.values.device)
    norms = [_norms(part.jacobian(block).flatten(2)) for block in torch.split(regions, rows)]
    spectral, frobenius = zip(*norms, strict=True)
    found = Slopes(torch.cat(spectral), torch.cat(frobenius))
    part.__dict__["_input_slopes"] = found
    return found


def _rows(part: PartitionData, numbers: int) -> int:
    """How many regions with so many numbers each make up a block."""
    return max(1, backend_of(part.values.device).numbers // max(1, numbers))


def _norms(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The largest singular value and the Frobenius norm of matrices (N, n, m), (N,) each.

    The largest singular value is the root of the Gram matrix's largest eigenvalue, which squaring
    costs no digits; it would the smaller ones. Dividing by a power of two rounds nothing and keeps
    the squares of very large and very small numbers within range.
    """
    largest = float(matrix.abs().max()) if matrix.numel() else 0.0
    unit = math.ldexp(1.0, math.frexp(largest)[1] - 1)
    matrix = matrix / unit
    total = matrix.square().sum((1, 2)).sqrt() * unit
    short = matrix if matrix.shape[1] <= matrix.shape[2] else matrix.mT
    if short.shape[1] == 1:
        return total, total
    if short.shape[1] == 2:
        a, b = short.unbind(1)
        squares, mixed = short.square().sum(2), (a * b).sum(1)
        p, q = squares.unbind(1)
        # All terms are positive: nothing cancels.
        square = (p + q) / 2 + torch.hypot((p - q) / 2, mixed)
        return square.sqrt() * unit, total
    square = torch.linalg.eigvalsh(short @ short.mT)[:, -1]
    return square.clamp(min=0).sqrt() * unit, total
