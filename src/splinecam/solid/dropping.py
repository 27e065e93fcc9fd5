"""Leave out cells that the zero set of the target provably does not meet.

A cell stays if the target changes sign at its corners. Otherwise the target is bounded over the
cell by its values at the corners and by what units that pass a knot in the cell add to these. Only
cells whose bounds exclude zero are left out, rounding included.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import torch
from torch import Tensor

from splinecam._util.arrays import take
from splinecam._util.backend import backend_of
from splinecam._util.tolerances import SAFETY
from splinecam.engine.box_bounds import BoxBounds, CornerRange
from splinecam.solid.front import Front

_PADDED = 4  # corners more than the fewest of a block


def without_empty(front: Front, counts: Counter[str]) -> Front:
    """The front with the cells only that the zero set of the target may meet.

    counts: is told how many cells were bounded and dropped.
    """
    assert front.target is not None and front.f is not None
    margin = SAFETY * front.target.error(front.output_bound)
    offsets, corners = front.complex.cell_corners()
    low, high = extremes(take(front.f, corners), offsets)
    kept = (low <= margin) & (high >= -margin)
    counts["crossed"] = int(kept.sum())
    counts["largest"] = max(counts["largest"], front.complex.num_cells)
    if front.layer is not None and BoxBounds.fits(front.program):
        open_ = (~kept).nonzero()[:, 0]
        counts["bounded"] += open_.shape[0]
        kept[open_[_reached(front, open_, offsets, corners, margin)]] = True
    elif front.layer is not None:
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
    target, program = front.target, front.program
    assert target is not None
    bounds = BoxBounds(program, target.weight[None])
    sizes = take(offsets.diff(), cells)
    order = torch.argsort(sizes)
    found = torch.ones_like(cells, dtype=torch.bool)
    width = max(program.widths)
    numbers, start = backend_of(sizes.device).numbers, 0
    while start < len(order):
        most = int(sizes[order[start]]) + _PADDED
        count = max(16, numbers // (width * (most + 1)))
        some = order[start : start + count]
        some = some[sizes[some] <= most]
        start += len(some)
        k = int(sizes[some[-1]])
        own, begin = sizes[some], offsets[cells[some]]
        place = begin + torch.minimum(torch.arange(k)[:, None], own - 1)
        vertex = corners[place]  # (k, B)
        live = {}
        for name, x in front.live.items():
            rows = take(x, vertex.view(-1)).view(k, len(some), *x.shape[1:])
            rows = torch.cat([rows.mean(0, keepdim=True), rows])
            live[name] = CornerRange(rows, torch.zeros_like(rows[0]))
        made = bounds.through(front.index, live, front.bounds)
        value = target.of(made.rows.flatten(0, 1)).view(k + 1, -1)[1:]
        radius = made.radius[:, 0] + margin
        found[some] = (value.amin(0) <= radius) & (value.amax(0) >= -radius)
    return found
