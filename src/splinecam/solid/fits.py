"""Affine functions that are given by their values at the corners of cells."""

from __future__ import annotations

import torch
from torch import Tensor

from splinecam._util.arrays import owners_of, take


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
    moment = _sums((z[:, :, None] * d[:, None]).flatten(1), owner, counts)
    moment = moment.view(len(counts), z.shape[1], 3)
    size, axes = torch.linalg.eigh(gram)
    inverse = torch.where(size > 0, 1 / size, 0.0)
    gradient = ((moment @ axes) * inverse[:, None]) @ axes.transpose(1, 2)
    bias = middle - (gradient @ mean[:, :, None])[..., 0]
    return gradient, bias, size[:, 0].clamp(min=0).sqrt()


def _sums(rows: Tensor, owner: Tensor, counts: Tensor) -> Tensor:
    return rows.new_zeros((len(counts), rows.shape[1])).index_add_(0, owner, rows)
