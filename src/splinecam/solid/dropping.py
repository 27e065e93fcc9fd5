"""Leave out cells that the zero set of the target provably does not meet.

A cell stays if the target changes sign at its corners. Otherwise the target is bounded over the
cell by its values at the corners and by what units that pass a knot in the cell add to these. Only
cells whose bounds exclude zero are left out, rounding included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from splinecam._util.arrays import as_rows, offsets_of, take, take_rows
from splinecam._util.backend import backend_of, single_precision
from splinecam._util.tolerances import LARGEST_ERROR, SAFETY
from splinecam.engine.box_bounds import (
    SINGLE,
    UPWARDS,
    AffineRange,
    BoxBounds,
    Chain,
    CornerRange,
    Product,
)
from splinecam.kernels.gpu import GpuKernel, Steps
from splinecam.kernels.kernel import Kernel, kernel_for
from splinecam.kernels.solid import Bounded, CutArrays
from splinecam.kernels.solid_gpu import gpu_of, list_corners
from splinecam.network.ops.bounds import Bound
from splinecam.network.program import Program
from splinecam.solid.front import Front, Target

_PADDED = 4  # corners more than the fewest of a block
_LEADING = 1 + 2.0**-8  # sums of products of moduli by their leading 10 bits are less by less
_CALLS = 32  # for which a margin is found at once; between two, a front is divided once at most


@dataclass(frozen=True, eq=False)
class Dropping:
    """Leaves out cells, and counts how many were bounded and dropped.

    chain: the network to the target, if it is a chain of products and ReLUs; margins: by stages,
    how far from zero the target is where it does not vanish, and how often that was asked.
    """

    kernel: Kernel | None
    chain: Chain | None
    counts: Counter[str]
    margins: dict[int, tuple[float, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, program: Program, target: Target) -> Dropping:
        """What leaves out cells that the zero set of a target does not meet."""
        kernel = kernel_for(program.device)
        chain = Chain.of(program, target.weight[None], kernel, target.level)
        return cls(kernel, chain, _nothing_yet())

    def afresh(self) -> Dropping:
        """The same that counts from the beginning."""
        return replace(self, counts=_nothing_yet(), margins={})

    def add(self, counts: Counter[str]) -> None:
        """Take note of what was left out of a part, and how many of its cells are left."""
        largest = max(self.counts["largest"], counts["largest"])
        self.counts.update(counts)
        self.counts["largest"] = largest

    def bounded(self, front: Front, ends: bool) -> Bounded | None:
        """What leaves out cells of a front while they are divided, None if nothing can.

        ends: whether they are divided by all that is left of the layer. If it is the last one, the
        values at corners are exact then.
        """
        if self.chain is None or self.kernel is None or front.layer is None:
            return None
        assert front.target is not None
        margin = SAFETY * front.target.error(front.output_bound)
        if not margin <= LARGEST_ERROR:
            return None
        z = as_rows(front.live[front.layer.source]).contiguous()
        ends = ends and front.index + 2 == len(front.program.stages)
        last = self.chain.exact if ends else None
        return Bounded(self.chain.compiled, front.index, margin, front.complex.uvw, z, last)

    def count(self, made: CutArrays) -> None:
        """Take note of what was left out of a cut."""
        cells = made.parent.shape[0] + made.dropped
        self.counts.update(bounded=made.bounded, dropped=made.dropped)
        self.counts["largest"] = max(self.counts["largest"], cells)

    def without_empty(
        self, front: Front, parent: Tensor | None = None
    ) -> tuple[Front, Tensor | None]:
        """The front with the cells that the zero set of the target may meet; see ``select``.

        parent: (C,) the cell that each was before a cut; then only pieces of cells are looked at.
        """
        kept = self._kept(front, parent)
        if kept is None:
            return front, None
        left, vertices = front.select(kept)
        self.counts["dropped"] += front.complex.num_cells - left.complex.num_cells
        return left, vertices

    def _kept(self, front: Front, parent: Tensor | None) -> Tensor | None:
        """Whether the zero set of the target may meet each cell, None if nothing shows that."""
        # With a chain and the compiled kernel, they are left out while they are divided.
        done = front.layer is None and self.chain is not None and self.kernel is not None
        if not front.complex.num_cells or done or self.bounded(front, False) is not None:
            return None
        assert front.target is not None
        counts, gpu, margin = self.counts, gpu_of(front.complex.uvw), self._margin(front)
        counts["largest"] = max(counts["largest"], front.complex.num_cells)
        # Where values may overflow, bounds show nothing, and the next layer raises an error.
        if not margin <= LARGEST_ERROR:
            return None
        if front.layer is not None and not BoxBounds.fits(front.program):
            return None
        same = None if parent is None else _unchanged(parent)
        if front.layer is not None and self.chain is not None and gpu is not None:
            pieces = None if same is None else (~same).nonzero()[:, 0]
            found = _open_cells(gpu, self.chain, front, margin, pieces)
            counts["bounded"] += len(found)
            return found if same is None else same.masked_scatter(~same, found)
        offsets, corners = front.complex.cell_corners()
        low, high = extremes(take(front.f, corners), offsets)
        kept = (low <= margin) & (high >= -margin)
        kept = kept if same is None else kept | same
        if front.layer is not None:
            counts["bounded"] += int((~kept).sum())
            kept |= self._reached(front, ~kept, offsets, corners, margin)
        return kept

    def _margin(self, front: Front) -> float:
        """How far from zero the target is where it does not vanish."""
        assert front.target is not None
        margin, calls = self.margins.get(front.index, (0.0, 0))
        if calls % _CALLS == 0:
            margin = SAFETY * front.target.error(front.aged(_CALLS).output_bound)
        self.margins[front.index] = margin, calls + 1
        return margin

    def _reached(
        self, front: Front, some: Tensor, offsets: Tensor, corners: Tensor, margin: float
    ) -> Tensor:
        """On which of some cells (C,) the target may vanish, (C,)."""
        if self.chain is None or self.kernel is None:
            cells = some.nonzero()[:, 0]
            some[cells[~_reached(front, cells, offsets, corners, margin)]] = False
            return some
        assert front.layer is not None
        z, numbers = as_rows(front.live[front.layer.source]), (front.index, margin)
        arrays = front.complex.uvw, z.contiguous(), offsets, corners, some
        self.kernel.bound_bodies(self.chain.compiled, numbers, arrays)
        return some


def _nothing_yet() -> Counter[str]:
    return Counter(dict.fromkeys(("largest", "bounded", "kept", "dropped"), 0))


def _unchanged(parent: Tensor) -> Tensor:
    """Which cells a cut has left whole, from what each was before, ascending, (C,)."""
    one = torch.ones_like(parent[:1], dtype=torch.bool)
    begins = torch.cat([one, parent[1:] != parent[:-1], one])
    return begins[1:] & begins[:-1]


def extremes(values: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the largest value of each row; no row is empty."""
    low, high = (torch.segment_reduce(values, f, offsets=offsets) for f in ("min", "max"))
    return low, high


def _reached(
    front: Front, cells: Tensor, offsets: Tensor, corners: Tensor, margin: float
) -> Tensor:
    """Whether the target may vanish on each of some cells (N,)."""
    sizes = take(offsets.diff(), cells)
    order = torch.argsort(sizes)
    sizes, cells = sizes[order], cells[order]
    found = torch.ones_like(cells, dtype=torch.bool)
    backend, start = backend_of(sizes.device), 0
    numbers = backend.numbers // max(front.program.widths)
    while start < len(order):
        fewest = int(sizes[start])
        most = fewest + (fewest if backend.asynchronous else _PADDED)
        end = min(start + max(16, numbers // most), int(torch.searchsorted(sizes, most + 1)))
        own, begin, k = sizes[start:end], offsets[cells[start:end]], int(sizes[end - 1])
        place = begin + torch.minimum(torch.arange(k, device=own.device)[:, None], own - 1)
        value, radius = _reached_on(front, take(corners, place.view(-1)).view(k, -1))
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


def _open_cells(
    kernel: GpuKernel, chain: Chain, front: Front, margin: float, chosen: Tensor | None
) -> Tensor:
    """On which cells (N,) the function of a chain may vanish, (N,), as boxes.c bounds it.

    margin: how far from zero the function is where it does not vanish; chosen: the cells, or None
    for all.
    """
    assert front.layer is not None
    z, arrays = as_rows(front.live[front.layer.source]), front.complex.arrays
    if chosen is not None:
        rows, sizes = take_rows(arrays.cell_offsets, chosen)
        arrays = arrays._replace(cell_offsets=offsets_of(sizes), sides=take(arrays.sides, rows))
    cells = arrays.cell_offsets.shape[0] - 1
    steps = list_corners(kernel, arrays, single=SINGLE)
    steps.set("uvw", front.complex.uvw.contiguous())
    steps.set("z", z.contiguous())
    steps.allocate({"chosen": 4 * cells, "most_of": 3 * cells, "open": cells})
    steps.set("share", z.new_empty((len(steps["seen"]), 3), dtype=torch.float32))
    steps.run(cells, "span_cell")
    products = chain.products[front.index + 1 :]
    widest = max(z.shape[1], *(len(norm) for _, _, _, norm, _ in products))
    block = max(1, backend_of(z.device).numbers // (4 * widest))
    with single_precision():
        for begin in range(0, cells, block):
            steps.struct.from_cell = begin
            _find_open(steps, products, min(block, cells - begin), z.shape[1], margin)
    return steps["open"].bool()


def _find_open(
    steps: Steps, products: Sequence[Product], count: int, units: int, margin: float
) -> None:
    """Bound the function on so many cells."""
    run, step, lines = steps.struct, "enter", []
    new = partial(torch.empty, dtype=torch.float32, device=steps.device)
    x, wide = new((4, count, units)), new((count, units))
    for weight, modulus, offset, norm, rounded in products:
        run.units, run.items = x.shape[2], count * x.shape[2]
        slope, noise, size, rounding = new((4, count, run.units))
        found = {"slope": slope, "noise": noise, "size": size, "rounding": rounding}
        for name, array in (found | {"x": x, "wide": wide}).items():
            steps.set(name, array)
        steps.run(run.items, step)
        step = "rectify"
        # A sum of products rounds by no more than the product of both norms.
        off = rounding.amax(1).add_(size.norm(dim=1), alpha=run.single)
        x = x @ weight.T
        with single_precision(whole=False):
            wide = wide @ (_LEADING * modulus.T)
        for name, array in {"off": off, "offset": offset, "norm": norm, "rounded": rounded}.items():
            steps.set(name, array)
        lines.append((slope, noise, weight))
    way, moved = lines[-1][2], new(count).zero_()
    for k in range(len(lines) - 1, -1, -1):
        slope, noise, _ = lines[k]
        moved += (way.abs() * noise).sum(1)
        if k:
            way = (way * slope) @ lines[k - 1][2]
    # The slopes backwards round by less than the same share of the radius forwards.
    radius = UPWARDS * moved + (UPWARDS - 1) * wide[:, 0] + rounded + off * norm
    steps.set("x", x)
    steps.set("radius", radius.double() + margin)
    run.items = count
    steps.run(count, "find_open")
