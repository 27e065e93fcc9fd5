"""Affine functions that are given by their values at the corners of cells."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from splinecam._util.arrays import owners_of, take, take_rows
from splinecam._util.tolerances import EPS, SLOPE_PRECISION

_MATRICES = 1 << 13  # of which a GPU takes half a megabyte each
_SQUARES = 64.0  # units of rounding in the sums of squares of a cell


def affine_fits(
    uvw: Tensor, values: Tensor, offsets: Tensor, corners: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients (C, n, 3) and offsets (C, n) of functions on cells, and their narrowness.

    uvw: (V, 3); values: (V, n); offsets, corners: the vertices of each cell. An error of the values
    divided by the narrowness (C,) is one of the gradient. Of three directions without extent it is
    zero, and the gradient has no part there.
    """
    counts = offsets.diff()
    owner = owners_of(counts, corners.shape[0])
    mean, middle = (_sums(take(x, corners), owner, counts) for x in (uvw, values))
    mean, middle = mean / counts[:, None], middle / counts[:, None]
    d, z = take(uvw, corners) - mean[owner], take(values, corners) - middle[owner]
    gram = _sums((d[:, :, None] * d[:, None]).view(-1, 9), owner, counts).view(-1, 3, 3)
    # GPUs fail for many matrices at once.
    parts = [torch.linalg.eigh(some) for some in torch.split(gram, _MATRICES)]
    size, axes = (torch.cat(column) for column in zip(*parts, strict=True))
    inverse = torch.where(size > 0, 1 / size, 0.0)
    gradient = z.new_zeros((len(counts), z.shape[1], 3))
    # Squares of lengths have half the digits along a long cell. The second pass mends the others.
    for left in range(2):
        rest = z - (gradient[owner] @ d[:, :, None])[..., 0] if left else z
        moment = _sums((rest[:, :, None] * d[:, None]).flatten(1), owner, counts)
        moment = moment.view(gradient.shape)
        gradient += ((moment @ axes) * inverse[:, None]) @ axes.transpose(1, 2)
    bias = middle - (gradient @ mean[:, :, None])[..., 0]
    known = size[:, 0] > _SQUARES * EPS * size[:, 2]
    return gradient, bias, torch.where(known, size[:, 0], 0.0).sqrt()


def affine_maps(
    points: tuple[Tensor, Tensor, float],
    cells: tuple[Tensor, Tensor],
    group: Tensor,
    slopes: Callable[[Tensor], Tensor],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients (G, n, 3) and offsets (G, n) of functions on groups of cells.

    They follow from the values at the corners of the widest cell of each group, or where that is
    too narrow from the derivatives at its centre. Its width comes third, (G,), and the cell fourth.

    points: uvw (V, 3), values (V, n), and the error of these; cells: offsets and vertices of P
    cells; group: (P,) of each cell; slopes: the derivatives (N, n, 3) at points (N, 3).
    """
    (uvw, values, error), (offsets, corners) = points, cells
    fits, bias, width = affine_fits(uvw, values, offsets, corners)
    best = widest(width, group)
    gradient, bias = fits[best], bias[best]
    steepest = gradient.norm(dim=2).amax(1)
    narrow = (error > SLOPE_PRECISION * steepest * width[best]).nonzero()[:, 0]
    if narrow.shape[0]:
        centre = means(uvw, offsets, corners, best[narrow])
        gradient[narrow] = slopes(centre)
        middle = means(values, offsets, corners, best[narrow])
        bias[narrow] = middle - (gradient[narrow] @ centre[:, :, None])[..., 0]
    return gradient, bias, width[best], best


def widest(width: Tensor, group: Tensor) -> Tensor:
    """The widest cell of each group, (G,), from the width and the group of each, (P,)."""
    count = int(group.max()) + 1 if len(group) else 0
    most = width.new_zeros(count).scatter_reduce_(0, group, width, "amax")
    best = group.new_zeros(count)
    chosen = (width == most[group]).nonzero()[:, 0]
    best[group[chosen]] = chosen
    return best


def means(values: Tensor, offsets: Tensor, corners: Tensor, cells: Tensor) -> Tensor:
    """The mean of values (V, n) at the corners of some cells (N,), (N, n)."""
    rows, sizes = take_rows(offsets, cells)
    owner = owners_of(sizes, rows.shape[0])
    return _sums(take(values, take(corners, rows)), owner, sizes) / sizes[:, None]


def _sums(rows: Tensor, owner: Tensor, counts: Tensor) -> Tensor:
    return rows.new_zeros((len(counts), rows.shape[1])).index_add_(0, owner, rows)
