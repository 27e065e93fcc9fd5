"""The part of the domain whose outputs satisfy linear constraints: areas, polygons, curves.

On every region the outputs are affine, so that each constraint is a half-plane there. The regions
are cut along the borders of these half-planes; a cell then satisfies the condition as a whole or
not at all, unless a constraint vanishes on all of it to within rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from splinecam._util.arrays import lengths
from splinecam._util.tolerances import AREA_PRECISION
from splinecam.errors import SplineCamError
from splinecam.files.properties import OutputCondition
from splinecam.questions.boundary import unresolved_places
from splinecam.questions.certainty import Band, band_of
from splinecam.questions.class_regions import ClassPolygon, LabelledCells
from splinecam.questions.constraints import (
    INSIDE,
    OUTSIDE,
    UNDECIDED,
    CertainCells,
    PreimageCells,
    area_of,
    certain_cells,
    condition_of,
    preimage_cells,
)
from splinecam.questions.curves import Curves
from splinecam.questions.model_checks import run_real
from splinecam.questions.partition_data import PartitionData, Unresolved


@dataclass(frozen=True, eq=False, repr=False)
class Witness:
    """An input with what the model returns for it.

    input: in the model's floating-point type; place: its plane coordinates; outputs: (n_out,) what
    the model itself computes, as float64 numbers; confirmed: whether these outputs satisfy the
    condition.
    """

    input: Tensor
    place: tuple[float, float]
    outputs: Tensor
    confirmed: bool

    def __repr__(self) -> str:
        place = ", ".join(f"{x:.6g}" for x in self.place)
        judged = "confirmed by the model" if self.confirmed else "not confirmed by the model"
        return f"Witness(at ({place}), {judged})"


def find_witnesses(
    part: PartitionData,
    condition: OutputCondition,
    uv: Tensor,
    box: tuple[Tensor, Tensor] | None = None,
) -> list[Witness]:
    """The inputs at plane coordinates (N, 2) as witnesses of a condition.

    box: bounds (N, D) of the inputs, within which rounding must not leave them.
    """
    if not uv.shape[0]:
        return []
    x = part._inputs(uv) if box is None else _within(part, uv, *box)
    how = {"wide": False, "repeatable": False}
    running = run_real(part.model, part.output, part._dtype, device=x.device, **how)
    with torch.no_grad(), running as forward:
        y = forward(x).cpu()
    confirmed = condition(y, x.flatten(1).cpu().double()).tolist()
    places = [(u, v) for u, v in uv.tolist()]
    return [Witness(*each) for each in zip(x, places, y, confirmed, strict=True)]


def _within(part: PartitionData, uv: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
    """Inputs that rounding moves out of their bounds (N, D) are moved back, where that is possible.

    Bounds that are equal and not numbers of the model's type have no such number between them.
    """
    exact = part.domain.embed(uv.cpu()).flatten(1)
    x = torch.minimum(torch.maximum(exact, lo), hi).to(part._dtype)
    up, down = x.new_tensor(torch.inf), x.new_tensor(-torch.inf)
    x = torch.where(x.double() < lo, torch.nextafter(x, up), x)
    x = torch.where(x.double() > hi, torch.nextafter(x, down), x)
    return x.reshape(-1, *part.domain.input_shape).to(part.domain.origin.device)


@dataclass(frozen=True, eq=False, repr=False)
class Preimage:
    """The points of the domain whose outputs satisfy a condition; its length is that of its pieces.

    partition: what was asked; condition: the constraints, in the form of a VNN-LIB file.
    """

    partition: PartitionData
    condition: OutputCondition

    # -- how much -------------------------------------------------------------------------------

    @cached_property
    def _open(self) -> PreimageCells:
        """The cells of regions that are not inside or outside as a whole."""
        with torch.no_grad():
            return preimage_cells(self.partition, self.condition, whole=False)

    @cached_property
    def cells(self) -> PreimageCells:
        """The cells of all regions, with their status."""
        with torch.no_grad():
            return preimage_cells(self.partition, self.condition, whole=True)

    @cached_property
    def area(self) -> float:
        """The area of the points that satisfy the condition."""
        found, part = self._open, self.partition
        whole = area_of(part.mesh, found.settled == INSIDE)
        return (whole + area_of(found.mesh, found.member)) * part._frame.scale**2

    @property
    def share(self) -> float:
        """The same as a share of the domain, between 0 and 1."""
        return self.area / self.partition.domain.area

    @cached_property
    def _certain(self) -> CertainCells | None:
        """Where the condition is certain despite bounds; None if the partition is exact."""
        if self.partition.smoothing is None:
            return None
        with torch.no_grad():
            return certain_cells(self.partition, self.condition)

    @cached_property
    def certain_area(self) -> float:
        """The part of the area that satisfies the condition by more than rounding explains.

        If smooth functions were replaced, by more than the bounds of the regions explain.
        """
        if self._certain is not None:
            return self._certain.area(INSIDE)
        tied = area_of(self._open.mesh, self._open.member & self._tied)
        return self.area - tied * self.partition._frame.scale**2

    @property
    def undecided_area(self) -> float:
        """The area on which bounds leave open whether the model satisfies the condition.

        It is zero if the partition is exact.
        """
        return 0.0 if self._certain is None else self._certain.area(UNDECIDED)

    @property
    def outside_area(self) -> float:
        """The area on which the model is certain not to satisfy the condition."""
        if self._certain is not None:
            return self._certain.area(OUTSIDE)
        return self.partition.domain.area - self.area

    @cached_property
    def band(self) -> Band:
        """The polygons of ``undecided_area``."""
        undecided = [] if self._certain is None else [self._certain.cells[UNDECIDED]]
        return band_of(self.partition, undecided)

    @property
    def certain(self) -> bool:
        """Whether there is an area that satisfies the condition by more than rounding explains.

        If smooth functions were replaced, by more than the bounds of the regions explain.
        """
        if self._certain is not None:
            return self._certain.occurs(INSIDE)
        return bool((self._open.status == INSIDE).any() or (self._open.settled == INSIDE).any())

    @cached_property
    def tied_area(self) -> float:
        """The area, inside or outside, that depends on an equality that holds within rounding.

        There a constraint is ``0 <= 0``, which holds, or ``0 < 0``, which does not.
        """
        return area_of(self._open.mesh, self._tied) * self.partition._frame.scale**2

    @property
    def _tied(self) -> Tensor:
        return self._open.status == UNDECIDED

    @property
    def touches(self) -> bool:
        """Whether any point of the domain may satisfy the condition, to within rounding."""
        if self._certain is not None:
            return any(map(self._certain.occurs, (INSIDE, UNDECIDED)))
        return self._open.touches()

    @property
    def unresolved(self) -> tuple[Unresolved, ...]:
        """Places that float64 could not settle, usually none."""
        return unresolved_places(self.partition, self._open.overlay.ambiguities, "preimage")

    # -- where ----------------------------------------------------------------------------------

    @cached_property
    def _labelled(self) -> LabelledCells:
        cells = self.cells
        label = cells.member.long()
        return LabelledCells(self.partition, cells.mesh, cells.overlay.face, label)

    @property
    def _pieces(self) -> Tensor:
        """Which pieces of the cells satisfy the condition, (P,)."""
        return self._labelled.outlines.piece_label == 1

    def __len__(self) -> int:
        return int(self._pieces.sum())

    def polygons(self) -> list[ClassPolygon]:
        """The connected pieces with their holes and areas, the largest first."""
        return self._labelled.polygons(self._pieces)

    def rings(self) -> tuple[Tensor, Tensor]:
        """The outlines of the pieces and of their holes, as closed rings in plane coordinates.

        Each ring ends with its first point; the first result says where each begins, (R + 1,).
        """
        return self._labelled.rings(self._pieces)

    @cached_property
    def outline(self) -> Curves:
        """The border of the area, without the domain's border; the label of a segment is 0."""
        return self._labelled.outline(self.cells.member)

    @cached_property
    def curves(self) -> Curves:
        """Where the condition holds without an area, such as an equation, to within rounding.

        The label of a segment is 0.
        """
        return self._labelled.curves(self.cells.thin()[0])

    @cached_property
    def points(self) -> Tensor:
        """Single points (N, 2) at which the condition holds, to within rounding."""
        return self.partition._frame.to_plane(self.cells.mesh.uv[self.cells.thin()[1]])

    # -- witnesses ------------------------------------------------------------------------------

    def places(self, n: int) -> Tensor:
        """Plane coordinates (N, 2) of at most n points inside, in the widest cells first.

        If there is no area, they are points that satisfy the condition to within rounding. If
        smooth functions were replaced, they are where the condition is certain, or else undecided.
        """
        if self._certain is not None:
            status = INSIDE if self._certain.occurs(INSIDE) else UNDECIDED
            return self.partition._frame.to_plane(self._certain.widest(status, n))
        found, frame = self._open, self.partition._frame
        for chosen, regions in (
            (found.status == INSIDE, found.settled == INSIDE),
            (found.status == UNDECIDED, found.settled < OUTSIDE),
        ):
            places = self._widest(chosen, regions, n)
            if places.shape[0]:
                return frame.to_plane(places)
        curves = self.curves
        middle = curves.ends[curves.lengths.argsort(descending=True)].mean(1)
        return torch.cat([middle, self.points])[:n]

    def _widest(self, chosen: Tensor, regions: Tensor, n: int) -> Tensor:
        """The centroids of the widest of some cells and whole regions, (N, 2), local."""
        places, widths = [], []
        for mesh, mask in ((self._open.mesh, chosen), (self.partition.mesh, regions)):
            cells = mesh.select(mask.nonzero()[:, 0])[0]
            area, centroid = cells.areas_and_centroids()
            corner = cells.uv[cells.corner_vertices()]
            around = cells.sums(lengths(corner[cells.next_corner()] - corner))
            places.append(centroid)
            widths.append(area / around)
        order = torch.cat(widths).argsort(descending=True)[:n]
        return torch.cat(places)[order]

    def witnesses(self, n: int = 1) -> list[Witness]:
        """At most n inputs well inside, those in the widest cells first, judged by the model.

        If there is no area, they are inputs that satisfy the condition to within rounding.
        """
        return find_witnesses(self.partition, self.condition, self.places(n))

    # -- forms ----------------------------------------------------------------------------------

    def to_shapely(self) -> Any:
        """The area as shapely's MultiPolygon in plane coordinates, empty if there is none.

        >>> import splinecam as sc
        >>> part = sc.partition(torch.nn.ReLU(), sc.Domain.box(-1, 1), progress=False)
        >>> part.preimage([[1.0, 1.0]], [1.0]).to_shapely().area
        3.5
        """
        return self._labelled.to_shapely(2)[1]

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """Draw where the condition holds.

        ax: where to draw. options: see ``splinecam.plot.plot_preimage``.
        """
        from splinecam.plot import plot_preimage

        return plot_preimage(self, ax=ax, **options)

    def __repr__(self) -> str:
        pieces = f"{len(self):,} piece{'s' * (len(self) != 1)}"
        parts = [pieces, f"area {self.area:.4g}", f"{100 * self.share:.3g} % of the domain"]
        if not len(self):
            parts = ["no area"]
        if len(self.curves):
            parts.append(f"curves of length {self.curves.length:.4g} without area")
        if len(self.points):
            parts.append(f"{len(self.points):,} single point{'s' * (len(self.points) != 1)}")
        if self._certain is not None:
            parts.append(f"certain {self.certain_area:.4g}, undecided {self.undecided_area:.4g}")
        if self.tied_area > AREA_PRECISION * self.partition.domain.area:
            parts.append(f"area {self.tied_area:.4g} decided by equality")
        return f"Preimage({', '.join(parts)})"


def preimage(part: PartitionData, A: Any, b: Any = None) -> Preimage:
    """The exact part of the domain whose outputs y satisfy ``A y <= b``.

    A: (m, n_out), a row for each of any number of half-spaces; b: (m,) the limits. Or A alone: a
    list of pairs ``(A, b)``, of which one must hold, or the condition of a VNN-LIB file. Equations
    are two rows with opposite signs; they hold on curves, without an area.

    Where a limit is met with equality, to within rounding, ``<=`` counts as met: ``tied_area`` is
    how much depends on it, and ``part.check`` calls a property that fails nowhere else unresolved.

    >>> import splinecam as sc
    >>> part = sc.partition(torch.nn.ReLU(), sc.Domain.box(-1, 1), progress=False)
    >>> part.preimage([[1.0, 1.0]], [1.0])
    Preimage(1 piece, area 3.5, 87.5 % of the domain)
    >>> part.preimage([([[-1.0, 0.0]], [-0.5]), ([[0.0, -1.0]], [-0.5])]).area
    1.75
    """
    condition = condition_of(A, b)
    require_order_only(part, condition)
    return Preimage(part, condition)


def require_order_only(part: PartitionData, condition: OutputCondition) -> None:
    """Raise an error if a final softmax was left out, and a condition is not only about order.

    The partition has the numbers before it, which have the same order.
    """
    if part.stripped is None:
        return
    A = condition.A
    order = (A.ne(0).sum(1) == 2) & (A.sum(1) == 0) & (condition.b == 0)
    if condition.C is not None:
        order &= ~condition.C.ne(0).any(1)
    if not bool((order | ~A.ne(0).any(1)).all()):
        raise SplineCamError(
            f"The network ends in {part.stripped}, which is not piecewise linear, so that the "
            "partition has the outputs before it. Compare outputs with each other, or leave the "
            f"{part.stripped} out of the model and state the condition in these outputs."
        )
