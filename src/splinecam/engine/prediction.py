"""Predict how many regions a network makes of a domain, and at which cost, from a small sample.

Lines in a convex domain make ``1 + lines + crossings`` regions. At a point every unit has a
tangent line: its border, if its slope there stayed the same. Three forward passes give all tangent
lines that cross a triangle, whatever their number, and so about how many crossings are in it.

The domain is divided into triangles. Where more crossings are expected, more triangles are drawn
and divided again, until each has a few crossings. These triangles are partitioned exactly, and
their crossings weighted by how likely they were drawn: tangent lines only say where to look. Where
a forward pass takes too long for that, their number alone must do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from math import exp, inf, log, pi, sqrt
from time import perf_counter, process_time
from typing import NamedTuple

import torch
from torch import Tensor

from splinecam.engine.activations import first_state
from splinecam.engine.batched import batch_mesh
from splinecam.engine.plan import Plan
from splinecam.engine.run import start
from splinecam.engine.step import Computation, Waiting
from splinecam.geometry.domain import Domain
from splinecam.geometry.subdivision import BORDER
from splinecam.network.nonlinearities import MaxNonlinearity

_SEED = 0
_TRIANGLES, _FEWEST = 64, 16  # that are drawn at a time, at most and at least
_CROSSINGS = 16  # about how many a triangle has that is partitioned
_INNER = 12  # triangles of which the number of crossings in a smaller domain follows
_SIZES = 2.0**-60, 2.0**60  # of domains that are proposed
_LEVELS = 16  # how often triangles are divided: all lines may meet in one point
_TINY = 2.0**-12  # the size of a triangle whose corners give tangent lines, relative to its own
_NUMBERS = 1 << 21  # values of units at a time
# Products of all forward passes, which take about a second, and of a single one beyond which the
# tangent lines at one point must do. The clock would choose differently on a busy machine.
_WORK, _HUGE = 1.5e9, 6e6
_PER_UNIT = 16  # what a unit costs besides, in products
_WHOLE = 2000  # about how many regions are partitioned as a whole
_ROOM, _MANY = 1 << 31, 200_000  # bytes and regions of what is partitioned, at most
_SAMPLE, _LEAST = 0.04, 1000  # the share of the regions that are timed, and how many at least
_LONG, _LONGEST = 0.1, 0.5  # seconds for which there is time, and for a second partition
_LATER = 1.3  # how much slower a whole partition is, whose tables leave the caches, measured
# What a network costs that is too slow to be timed, in forward passes: in any case, and per region.
_PASSES, _EACH = 12.0, 0.6
_UNSURE = 3.0  # the factor by which a number from tangent lines alone may be off


class Prediction(NamedTuple):
    """How many regions, and what they cost.

    There are ``1 + lines + crossings``. factor: by which their number may be off, 1 if it is exact.
    memory: bytes per region. fixed: seconds for any domain; root: seconds that grow with the number
    of lines, as the square root of that of regions; each: seconds per region. inner: how many
    crossings are in smaller copies of the domain around its centre, with their sizes, descending.
    """

    lines: float
    crossings: float
    factor: float
    memory: float
    fixed: float = 0.0
    root: float = 0.0
    each: float = 0.0
    inner: tuple[tuple[float, float], ...] = ()

    @property
    def regions(self) -> float:
        return 1 + self.lines + self.crossings

    @property
    def seconds(self) -> float:
        return self.fixed + self.root * sqrt(self.regions) + self.each * self.regions

    def regions_in(self, seconds: float) -> float:
        """How many regions can be found in so many seconds."""
        left = max(seconds - self.fixed, 0.0)
        under = self.root + sqrt(self.root**2 + 4 * self.each * left)
        return (2 * left / under) ** 2 if under else inf

    def regions_at(self, size: float) -> float:
        """How many regions a domain has that is so many times larger in each direction."""
        known = ((1.0, self.crossings), *self.inner)
        outer = [each for each in known if each[0] >= size]
        nearer = [each for each in known if each[0] < size]
        large, most = outer[-1] if outer else nearer[0]
        exponent = 2.0  # as of an area
        if outer and nearer and nearer[0][1]:
            exponent = log(most / nearer[0][1]) / log(large / nearer[0][0])
        return 1 + self.lines * size + most * exp(exponent * log(size / large))

    def size(self, regions: float) -> float:
        """How many times larger a domain is to be, in each direction, for so many regions."""
        low, high = _SIZES
        if self.regions_at(high) < regions:
            return inf
        while high / low > 1.001:
            middle = sqrt(low * high)
            low, high = (low, middle) if self.regions_at(middle) > regions else (middle, high)
        return high


class _Counted(NamedTuple):
    """What triangles have: crossings (n,), the regions of all, bytes per region, and seconds."""

    crossings: Tensor
    regions: int
    memory: float
    seconds: float


def predict(plan: Plan, domain: Domain) -> Prediction:
    """Predict the regions of a domain and their cost."""
    with torch.inference_mode():
        return _Predicting(plan, domain).found()


@dataclass
class _Predicting:
    """What stays the same while a domain is sampled."""

    plan: Plan
    domain: Domain

    def __post_init__(self) -> None:
        # What is predicted does not depend on the memory that there is for it.
        self.small, self.last = (
            Plan(replace(place, memory=_ROOM)) for place in (self.plan.first, self.plan.last)
        )
        self.program = self.plan.first.program
        self.random = torch.Generator().manual_seed(_SEED)
        # The first stage is affine on the domain, and three points give its values at all others.
        center, size = self.domain.center, self.domain.diameter
        self.three = center + size * torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]).double()
        entry = {self.program.input_name: self.domain.embed(self.three).to(self.program.device)}
        made = self.program.advance(0, entry).items()
        self.base = {name: torch.cat([z[:1], z[1:] - z[:1]]) for name, z in made}

    def found(self) -> Prediction:
        """The prediction by the best way for which there is time."""
        first, *others = self.program.products
        # Tangent lines need no first stage, but the corners of triangles do.
        work = first / 8 + sum(others) + _PER_UNIT * sum(self.program.widths)
        roots = cells = _fan(self.domain)
        if work > _HUGE and self.program.layers:
            return self._by_tangents(roots)
        count = max(_FEWEST, min(_TRIANGLES, int(_WORK / (72 * work))))
        while len(cells) < count:
            cells = _divided(cells)
        lines = self.tangent_lines(cells).sum(1)
        crossings, across = _crossings(cells, lines), self._across(cells, lines)
        if across + float(crossings.sum()) < _WHOLE:
            whole = self._whole()
            if whole is not None:
                return whole
        cells, weight = self._drawn(cells, crossings, count)
        made = self._partition(cells, self.small)
        if made is None:  # tangent lines have misled
            return self._by_tangents(roots)
        weighted = weight * made.crossings
        total = max(float(weighted.sum()), 0.0)
        factor = 1.2 + 2 * float(weighted.norm()) / max(total, 1.0)
        most = crossings.view(len(roots), -1).sum(1)
        inner = self._inner(cells.mean(1), weighted)
        found = Prediction(across, total, factor, made.memory, inner=inner)
        return self._with_cost(found, roots[most.argmax()], float(most.max()))

    def _inner(self, points: Tensor, weight: Tensor) -> tuple[tuple[float, float], ...]:
        """The weight of points in copies of the domain that are halved as long as some are left."""
        corners, center = self.domain.corners, self.domain.center
        along = corners.roll(-1, 0) - corners
        normal = torch.stack([along[:, 1], -along[:, 0]], 1)
        reach = (normal * (corners - center)).sum(1)
        size = ((points - center) @ normal.T / reach).amax(1)  # of the copy that a point is on
        copies = [2.0**-j for j in range(1, _LEVELS) if int((size < 2.0**-j).sum()) >= _INNER]
        return tuple((copy, float(weight[size < copy].sum())) for copy in copies)

    # -- tangent lines --------------------------------------------------------------------------

    def tangent_lines(self, cells: Tensor, at: Tensor | None = None) -> Tensor:
        """How many tangent lines of each layer cross triangles (n, 3, 2), (n, layers).

        They are those at the centre of each, or of ``at`` (1, 3, 2) for all.
        """
        step = max(1, _NUMBERS // (3 * max(self.program.widths)))
        parts = [self._lines(some, some if at is None else at) for some in torch.split(cells, step)]
        return torch.cat(parts).double()

    def _lines(self, cells: Tensor, at: Tensor) -> Tensor:
        device = self.program.device
        middle, sides = at.mean(1, keepdim=True), at[:, 1:] - at[:, :1]
        near = torch.cat([middle, middle + _TINY * sides], 1).flatten(0, 1)
        place = torch.ones(len(near), 3, dtype=near.dtype)
        place[:, 1:] = (near - self.domain.center) / self.domain.diameter
        live = {name: torch.tensordot(place.to(device), z, 1) for name, z in self.base.items()}
        # Each corner is so many sides away from the middle.
        (a, b), (c, d) = (side.unbind(1) for side in sides.unbind(1))
        turned = torch.stack([torch.stack([d, -b], 1), torch.stack([-c, a], 1)], 1)
        away = ((cells - middle) @ (turned / (a * d - b * c)[:, None, None])).to(device)
        found = [torch.zeros(len(cells), 0, device=device)]
        for layer, z in self.program.walk_on(0, live):
            value = z.reshape(len(at), 3, -1)
            values = value[:, :1] + away @ ((value[:, 1:] - value[:, :1]) / _TINY)
            piece = layer.pieces(values.reshape(-1, *layer.shape)).view(len(cells), 3, -1)
            if isinstance(layer, MaxNonlinearity):  # pieces are names of winners
                first, second, third = piece.unbind(1)
                crossed = (first != second).int() + ((third != first) & (third != second))
            else:
                crossed = piece.amax(1) - piece.amin(1)
            found.append(crossed.sum(1, keepdim=True))
        return torch.cat(found, 1).cpu()

    def _across(self, cells: Tensor, lines: Tensor) -> float:
        """How many lines cross the domain, if so many cross each of the triangles it is made of."""
        share = lines.sum() / _perimeters(cells).sum()
        return float(share * _perimeters(self.domain.corners[None])[0])

    def _by_tangents(self, cells: Tensor) -> Prediction:
        """The prediction by the tangent lines at the centre, of a network that is slow."""
        taken = _clock()
        lines = self.tangent_lines(cells, self.three[None]).cumsum(1)  # up to each layer
        passed = taken() / 3
        crossings = [float(_crossings(cells, some).sum()) for some in lines.unbind(1)]
        across = [self._across(cells, some) for some in lines.unbind(1)]
        counts = [1 + a + b for a, b in zip(across, crossings, strict=True)]
        widths = pairwise(self.program.widths)
        most = max(8.0 * n * (a + b) for n, (a, b) in zip(counts, widths, strict=True))
        found = Prediction(across[-1], crossings[-1], _UNSURE, most / counts[-1])
        return found._replace(fixed=_PASSES * passed, each=_EACH * passed)

    # -- samples --------------------------------------------------------------------------------

    def _drawn(self, cells: Tensor, crossings: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Small triangles with their weights; crossings: (n,) how many are expected in each."""
        done, weight = [], torch.ones_like(crossings)
        for level in range(_LEVELS):
            if len(cells) > count:
                # Less than proportional: tangent lines overestimate where lines bend.
                size = weight * (crossings**0.75 + 2)
                step = size.sum() / count
                place = (torch.rand(1, generator=self.random).double() + torch.arange(count)) * step
                index = torch.searchsorted(size.cumsum(0), place).clamp(max=len(size) - 1)
                index, times = torch.unique(index, return_counts=True)
                weight = weight[index] * times * step / size[index]
                cells, crossings = cells[index], crossings[index]
            large = (crossings > _CROSSINGS) & (level < _LEVELS - 1)
            done.append((cells[~large], weight[~large]))
            if not large.any():
                break
            cells, weight = _divided(cells[large]), weight[large].repeat_interleave(4)
            crossings = _crossings(cells, self.tangent_lines(cells).sum(1))
        some, weights = zip(*done, strict=True)
        return torch.cat(some), torch.cat(weights)

    # -- partitions -----------------------------------------------------------------------------

    def _whole(self) -> Prediction | None:
        """The prediction from the partition of the whole domain, if it is small."""
        taken, work = _clock(), Computation(self.small, 2 * _WHOLE)
        at, reason = work.carry(start(self.small, self.domain))
        if reason is not None:
            return None
        regions = at.faces
        return Prediction(0.0, regions - 1.0, 1.0, work.worst / regions, each=taken() / regions)

    def _partition(self, cells: Tensor, plan: Plan) -> _Counted | None:
        """Partition triangles at a time; None if they have far too many regions."""
        taken, count, work = _clock(), len(cells), Computation(plan, _MANY)
        low, high = cells.amin((0, 1)), cells.amax((0, 1))
        local = batch_mesh([*(cells - (low + high) / 2) / (high - low).amax()])
        x = self.domain.embed(cells.flatten(0, 1))
        at, reason = work.carry(Waiting(first_state(plan.first.program, local, x), 0))
        seconds, mesh = taken(), at.state.mesh
        if reason is not None:
            return None
        owner = torch.zeros_like(mesh.edges[:, 0])
        if count > 1:
            owner = mesh.uv[:, 2].long()[mesh.edges[:, 0]]
        border = torch.bincount(owner[mesh.edge_layer == BORDER], minlength=count)
        face = owner[mesh.corners[mesh.offsets[:-1]] >> 1]
        # With B edges on its border, R regions of a triangle have R - B / 2 + 1 / 2 crossings.
        crossings = torch.bincount(face, minlength=count) - border / 2 + 0.5
        return _Counted(crossings.double().cpu(), at.faces, work.worst / at.faces, seconds)

    def _with_cost(self, found: Prediction, cell: Tensor, number: float) -> Prediction:
        """The prediction with the cost of ever larger parts of a triangle, which has crossings."""
        parts = [(torch.lerp(cell.mean(0), cell, 2.0**-j), number / 4**j) for j in range(_LEVELS)]
        least = self._partition(torch.lerp(cell.mean(0), cell, 2.0**-_LEVELS)[None], self.last)
        most, known = max(_SAMPLE * found.crossings, _LEAST), list[_Counted]()
        for part, expected in reversed(parts):
            long = 4 * known[-1].seconds if known else 0.0
            if long > _LONGEST or (long > _LONG and known[1:] and expected > most):
                break
            made = self._partition(part[None], self.last) if expected > _LEAST / 4 else None
            known += [] if made is None else [made]
        if least is None or not known:
            return found
        (few, short), (many, long) = (
            (some.regions, max(some.seconds - least.seconds, some.seconds / 10))
            for some in (known * 2)[-2:]
        )
        # Seconds are root * sqrt(regions) + each * regions, and neither is negative.
        each = 0.0
        if many > 2 * few:
            each = (long - short * sqrt(many / few)) / (many - sqrt(few * many))
            each = min(max(each, 0.0), long / many)
        root, each = _LATER * (long - each * many) / sqrt(many), _LATER * each
        memory = known[-1].memory
        return found._replace(memory=memory, fixed=least.seconds, root=root, each=each)


# -- triangles and clocks -------------------------------------------------------------------------


def _fan(domain: Domain) -> Tensor:
    """Triangles (n, 3, 2) that make up a domain, around a point that is like no other."""
    corners, center = domain.corners, domain.center
    aside = 0.0713 * (corners[0] - center) + 0.0391 * (corners[1] - center)
    return torch.stack([(center + aside).expand_as(corners), corners, corners.roll(-1, 0)], 1)


def _divided(cells: Tensor) -> Tensor:
    """Four equal parts of each triangle, those of one after the other."""
    a, b, c = cells.unbind(1)
    d, e, f = (a + b) / 2, (b + c) / 2, (c + a) / 2
    parts = [torch.stack(part, 1) for part in ((a, d, f), (d, b, e), (f, e, c), (e, f, d))]
    return torch.stack(parts, 1).flatten(0, 1)


def _perimeters(cells: Tensor) -> Tensor:
    """The perimeters (n,) of polygons (n, k, 2)."""
    lengths: Tensor = torch.linalg.vector_norm(cells - cells.roll(1, 1), dim=2)
    return lengths.sum(1)


def _crossings(cells: Tensor, lines: Tensor) -> Tensor:
    """How often so many lines (n,) of random directions cross each other in triangles, (n,)."""
    side, other = (cells[:, 1:] - cells[:, :1]).unbind(1)
    area = (side[:, 0] * other[:, 1] - side[:, 1] * other[:, 0]).abs() / 2
    return pi * area / _perimeters(cells).square() * lines * (lines - 1).clamp(min=0)


def _clock() -> Callable[[], float]:
    """Return what gives the seconds since now: of this process, where others keep it waiting."""
    wall, own = perf_counter(), process_time()
    return lambda: min(perf_counter() - wall, process_time() - own)
