"""Whether a flow leaves the set on which an output is at least zero.

The set is left where the output falls along the flow on the curve on which it is zero. On a region
the slopes are constant, so that the derivative is a polynomial on each segment of the curve. Where
the curve runs along a border between regions, both slopes count. At a corner of the curve, the
slopes of the segments that meet there do, and these are enough: a direction into a part where the
output is negative is outwards by the slopes beside one of the two curves around that part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from splinecam._util.arrays import lengths, take
from splinecam._util.tolerances import SAFETY
from splinecam.files.formulas import Polynomial, conjunction
from splinecam.files.properties import OutputCondition
from splinecam.geometry.convex import ConvexPolygons
from splinecam.questions.boundary import LevelSet, level_set
from splinecam.questions.certain_cells import Enclosure, sorted_cells
from splinecam.questions.constraints import INSIDE, UNDECIDED
from splinecam.questions.partition_data import PartitionData
from splinecam.questions.preimage import PropertyCheck, Status, Witness, find_witnesses

_UNDECIDED_SHARE = 1e-9  # of the curve, beside points at which the derivative is zero

_INWARDS = 2.0**-10


@dataclass(frozen=True, eq=False, repr=False)
class FlowCheck:
    """Where a flow leaves the set on which an output is at least zero.

    curves: the border of the set within the domain; condition: what holds where the flow leaves it;
    pieces: parts of the curves, by whether it does: 1, -1, or 0 if rounding or bounds cannot tell.
    """

    curves: LevelSet
    condition: OutputCondition
    pieces: dict[int, Tensor]  # (N, 2, 2) the ends of each, in plane coordinates
    least: tuple[float, float] | None  # where the derivative is least, among these

    @property
    def status(self) -> Status:
        """``"holds"``, ``"violated"``, or ``"unresolved"`` if rounding cannot tell."""
        if len(self.pieces[INSIDE]):
            return "violated"
        return "unresolved" if len(self.pieces[UNDECIDED]) else "holds"

    @property
    def leaving(self) -> float:
        """The length of the curve on which the flow certainly leaves the set."""
        return float(lengths(self.pieces[INSIDE].diff(dim=1)[:, 0]).sum())

    @property
    def undecided(self) -> float:
        """The length of the curve on which rounding or bounds cannot tell."""
        return float(lengths(self.pieces[UNDECIDED].diff(dim=1)[:, 0]).sum())

    @cached_property
    def witness(self) -> Witness | None:
        """The input at which the output falls fastest, or may fall; None if it never does.

        It lies on the curve up to rounding; ``confirmed`` tells whether the model's slopes agree.
        """
        if self.least is None:
            return None
        place = self.curves.points.new_tensor([self.least])
        return find_witnesses(self.curves.partition, self.condition, place)[0]

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """Draw the regions, the curve, and where the flow leaves the set.

        ax: where to draw. options: see ``splinecam.plot.plot_flow``.
        """
        from splinecam.plot import plot_flow

        return plot_flow(self, ax=ax, **options)

    def __repr__(self) -> str:
        parts = [self.status, f"curve of length {self.curves.length:.6g}"]
        if self.status == "violated":
            parts.append(f"left on length {self.leaving:.6g}, fastest {self.witness}")
        if self.undecided > 0:
            parts.append(f"undecided on length {self.undecided:.2g}")
        return f"FlowCheck({', '.join(parts)})"


@dataclass(frozen=True, eq=False, repr=False)
class BarrierCheck:
    """Whether an output is a barrier: zero between safe and unsafe inputs, and no flow crosses it.

    flow: whether the flow leaves the set on which it is at least zero; safe: whether that set has
    all safe inputs; unsafe: whether it has no unsafe ones; None if these were not given.
    """

    flow: FlowCheck
    safe: PropertyCheck | None
    unsafe: PropertyCheck | None

    @property
    def status(self) -> Status:
        """The verdict on all: ``"violated"`` if one is, else ``"unresolved"`` if one is."""
        found = [each.status for each in (self.flow, self.safe, self.unsafe) if each is not None]
        order: tuple[Literal["violated"], Literal["unresolved"]] = ("violated", "unresolved")
        return next((status for status in order if status in found), "holds")

    @property
    def witness(self) -> Witness | None:
        """An input at which it fails, or may fail; None if it holds."""
        found = [each for each in (self.flow, self.unsafe, self.safe) if each is not None]
        failing = sorted(found, key=lambda each: each.status != self.status)
        return None if self.status == "holds" else failing[0].witness

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """Draw the regions, the curve, and where the flow leaves the set.

        ax: where to draw. options: see ``splinecam.plot.plot_flow``.
        """
        return self.flow.plot(ax=ax, **options)

    def __repr__(self) -> str:
        parts = [f"{self.status}: {self.flow!r}"]
        for name, found in (("safe", self.safe), ("unsafe", self.unsafe)):
            if found is not None:
                parts.append(f"{name}={found!r}")
        return f"BarrierCheck({', '.join(parts)})"


def flow_across(
    part: PartitionData, derivatives: Sequence[Polynomial], output: int = 0
) -> FlowCheck:
    """Where all of some derivatives are negative on the curve on which an output is zero."""
    curves = level_set(part, 0.0, output=output)
    formula = conjunction([each < 0 for each in derivatives])
    condition = formula.condition(part.domain.dim, part._n_out)
    enclosure = _beside_curve(part, Enclosure.of(part, condition), output)
    segments = _segments(part, enclosure, curves)
    allowed = _UNDECIDED_SHARE * curves.length / part._frame.scale
    found = sorted_cells(enclosure, segments, allowed, _extents)
    pieces = {status: part._frame.to_plane(_ends(cells)) for status, cells in found.items()}
    least = None
    for status in (INSIDE, UNDECIDED):
        cells = found[status]
        if len(cells):
            # Of several controls the best counts: the largest derivative.
            constraints = enclosure.constraints
            each = enclosure.exact(cells)[:, constraints.function] * constraints.sign
            fall = each.amax(1)
            lowest = fall.argmin()
            own = cells.select(cells.owners[lowest, None])
            # A little inwards, as slopes change at the ends of segments.
            inwards = cells.uv[lowest] + _INWARDS * (own.uv.mean(0) - cells.uv[lowest])
            (place,) = part._frame.to_plane(inwards[None]).tolist()
            least = (place[0], place[1])
            break
    return FlowCheck(curves, condition, pieces, least)


def _beside_curve(part: PartitionData, enclosure: Enclosure, output: int) -> Enclosure:
    """An enclosure whose bounds allow for the rounding of the places of a curve."""
    if enclosure.slopes is None:  # the field is zero
        return enclosure
    D, n = part.domain.dim, part._n_out
    steep = lengths(enclosure.slopes.view(-1, D)).view(-1, n)
    off = SAFETY * part._value_error[output].to(steep) / steep[:, output, None]
    every = torch.cat(
        [off.expand(-1, D), 0 * off, 0 * steep.repeat(1, D), (off * steep).flip(1)], 1
    )
    errors = enclosure.errors + every.nan_to_num(nan=0.0)[:, enclosure.variables]
    return replace(enclosure, errors=errors)


def _segments(part: PartitionData, enclosure: Enclosure, curves: LevelSet) -> ConvexPolygons:
    """The segments of curves, once for each region beside them, as polygons with two corners."""
    a, b = curves.regions.unbind(1)
    sides = [(a, a >= 0), (b, (b >= 0) & (b != a))]
    rows = torch.cat([chosen.nonzero()[:, 0] for _, chosen in sides])
    source = torch.cat([region[chosen] for region, chosen in sides])
    uv, owner = curves.local_ends[rows].flatten(0, 1), source.repeat_interleave(2)
    maps, place = part._known_maps, part._frame.to_plane(uv)
    away = (uv - take(maps.anchor, owner))[:, :, None]
    y = take(maps.value, owner) + (take(maps.weight, owner) @ away)[:, :, 0]
    constraints = enclosure.constraints
    linear = y @ constraints.A.T + place @ constraints.slope.T + constraints.offset
    values = enclosure.values(linear, place, y)
    offsets = 2 * torch.arange(len(source) + 1, device=uv.device)
    return enclosure.sloped(ConvexPolygons(offsets, uv, values, source))


def _extents(cells: ConvexPolygons) -> Tensor:
    """The length of each polygon without width, (P,)."""
    return cells.perimeters() / 2


def _ends(cells: ConvexPolygons) -> Tensor:
    """Both ends of each polygon without width, (P, 2, 2)."""
    found = cells.uv[cells.offsets[:-1]]
    for _ in range(2):  # what is farthest from any corner is an end, and the farthest from that
        away = lengths(cells.uv - take(found, cells.owners))
        order = torch.argsort(away, stable=True)
        order = order[torch.argsort(cells.owners[order], stable=True)]
        first, found = found, cells.uv[order[cells.offsets[1:] - 1]]
    return torch.stack([first, found], 1)
