"""Leave out cells that the zero set of the target provably does not meet.

A cell stays if the target changes sign at its corners. Otherwise the target is bounded over the
cell by its values at the corners and by what units that pass a knot in the cell add to these. Only
cells whose bounds exclude zero are left out, rounding included.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from splinecam._util.arrays import as_rows, take
from splinecam._util.backend import backend_of
from splinecam._util.tolerances import LARGEST_ERROR, SAFETY
from splinecam.engine.box_bounds import AffineRange, BoxBounds, CornerRange
from splinecam.network.ops.bounds import Bound
from splinecam.solid.front import Front

_PADDED = 4  # corners more than the fewest of a block


def without_empty(front: Front, counts: Counter[str]) -> Front:
    """The front with the cells only that the zero set of the target may meet.

    counts: is told how many cells were bounded and dropped.
    """
    assert front.target is not None
    assert front.f is not None
    margin = SAFETY * front.target.error(front.output_bound)
    offsets, corners = front.complex.cell_corners()
    low, high = extremes(take(front.f, corners), offsets)
    kept = (low <= margin) & (high >= -margin)
    counts["crossed"] = int(kept.sum())
    counts["largest"] = max(counts["largest"], front.complex.num_cells)
    # Where values may overflow, bounds show nothing, and the next layer raises an error.
    bounded = BoxBounds.fits(front.program) and margin <= LARGEST_ERROR
    if front.layer is not None and bounded:
        open_ = (~kept).nonzero()[:, 0]
        counts["bounded"] += open_.shape[0]
        kept[open_[_reached(front, open_, offsets, corners, margin)]] = True
    elif front.layer is not None or not margin <= LARGEST_ERROR:
        kept[:] = True
    counts["kept"] = int(kept.sum())
    counts["dropped"] += kept.shape[0] - counts["kept"]
    return front if bool(kept.all()) else front.select(kept.nonzero()[:, 0])


def extremes(values: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the largest value of each row; no row is empty."""
    found = values.numpy(), offsets[:-1].numpy()
    low, high = (torch.from_numpy(f.reduceat(*found)) for f in (np.minimum, np.maximum))
    return low, high


def _reached(
    front: Front, cells: Tensor, offsets: Tensor, corners: Tensor, margin: float
) -> Tensor:
    """Whether the target may vanish on each of some cells (N,)."""
    chain = _Rest.of(front)
    reached = _reached_on if chain is None else chain.reached
    sizes = take(offsets.diff(), cells)
    order = torch.argsort(sizes)
    sizes, cells = sizes[order], cells[order]
    found = torch.ones_like(cells, dtype=torch.bool)
    numbers, start = backend_of(sizes.device).numbers // max(front.program.widths), 0
    while start < len(order):
        most = int(sizes[start]) + _PADDED
        end = min(start + max(16, numbers // most), int(torch.searchsorted(sizes, most + 1)))
        own, begin, k = sizes[start:end], offsets[cells[start:end]], int(sizes[end - 1])
        place = begin + torch.minimum(torch.arange(k)[:, None], own - 1)
        value, radius = reached(front, take(corners, place.view(-1)).view(k, -1))
        radius += margin
        found[order[start:end]] = (value.amin(0) <= radius) & (value.amax(0) >= -radius)
        start = end
    return found


def _reached_on(front: Front, vertex: Tensor) -> tuple[Tensor, Tensor]:
    """The target about at the corners (k, B) of cells, (k, B), and how far off it may be, (B,)."""
    target, (k, count) = front.target, vertex.shape
    assert target is not None
    live: dict[str, AffineRange] = {}
    for name, x in front.live.items():
        rows = take(x, vertex.view(-1)).view(k, count, *x.shape[1:])
        rows = torch.cat([rows.mean(0, keepdim=True), rows])
        live[name] = CornerRange(rows, torch.zeros_like(rows[0]))
    sizes = {name: [x.expand(count, *x.shape[1:]) for x in front.bounds[name]] for name in live}
    bounds = {name: Bound(*parts) for name, parts in sizes.items()}
    made = BoxBounds(front.program, target.weight[None]).through(front.index, live, bounds)
    return target.of(made.rows.flatten(0, 1)).view(k + 1, -1)[1:], made.radius[:, 0]


@dataclass(frozen=True, eq=False)
class _Rest:
    """The rest of a network that is a chain of ReLUs and products with matrices.

    source: the units that are rectified first; weights, offsets: of the products, with the target
    as the last.
    """

    source: str
    weights: list[Tensor]
    offsets: list[Tensor]

    @classmethod
    def of(cls, front: Front) -> _Rest | None:
        """The rest of a network as a chain, if it is one."""
        program, layer, target = front.program, front.layer, front.target
        assert layer is not None
        assert target is not None
        weights, offsets = [], []
        for i in range(front.index, len(program.layers)):
            before, product = program.layers[i], program.dense(i + 1)
            if (
                not before.rectifies
                or len(before.shape) != 1
                or product is None
                or product[0] != before.result
            ):
                return None
            weight, bias = product[1].args[1], (*product[1].args, None)[2]
            weights.append(weight)
            offsets.append(weight.new_zeros(len(weight)) if bias is None else bias)
        if len(front.live) > 1:
            return None
        offsets[-1] = target.of(offsets[-1][None])
        weights[-1] = target.weight[None] @ weights[-1]
        return cls(layer.source, weights, offsets)

    def reached(self, front: Front, vertex: Tensor) -> tuple[Tensor, Tensor]:
        """The same as ``_reached_on``."""
        z = take(as_rows(front.live[self.source]), vertex.view(-1))
        z = z.view(*vertex.shape, z.shape[1])
        radius, slopes, noises = z.new_zeros(z.shape[1:]), [], []
        for k, (weight, offset) in enumerate(zip(self.weights, self.offsets, strict=True)):
            below, above = z.amin(0), z.amax(0)
            if k:
                below, above = below.sub_(radius), above.add_(radius)
            below, above = below.clamp_(max=0), above.clamp_(min=0)
            slope = (above / (above - below)).nan_to_num_(nan=0.0)
            noise = below.mul_(slope).mul_(-0.5)
            z = torch.addmm(offset, z.mul_(slope).add_(noise).flatten(0, 1), weight.T)
            z = z.view(*vertex.shape, len(weight))
            if k + 1 < len(self.weights):
                radius = radius.mul_(slope).add_(noise) @ weight.abs().T
            slopes.append(slope)
            noises.append(noise)
        way, total = self.weights[-1], torch.zeros_like(z[0, :, 0])
        for k in range(len(slopes) - 1, -1, -1):
            total = total + (way.abs() * noises[k]).sum(1)
            if k:
                way = (way * slopes[k]) @ self.weights[k - 1]
        return z[..., 0], total
