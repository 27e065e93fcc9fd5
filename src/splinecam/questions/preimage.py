"""Where outputs satisfy linear constraints, and whether a property holds on the domain.

On every region each constraint is a half-plane. The regions are cut along the borders of these; a
cell then satisfies the condition as a whole or not at all, unless a constraint vanishes on it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor

from splinecam._util.arrays import lengths
from splinecam._util.tolerances import AREA_PRECISION, EPS, SAFETY
from splinecam.errors import DomainError, SplineCamError
from splinecam.files.properties import Conjunction, OutputCondition, Property, PropertyCase
from splinecam.files.vnnlib import read_vnnlib
from splinecam.geometry.domain import Domain
from splinecam.questions.boundary import unresolved_places
from splinecam.questions.certain_cells import CertainCells, certain_cells
from splinecam.questions.certainty import Band, band_of
from splinecam.questions.certificates import write
from splinecam.questions.class_regions import ClassPolygon, LabelledCells
from splinecam.questions.constraints import (
    INSIDE,
    OUTSIDE,
    UNDECIDED,
    PreimageCells,
    area_of,
    condition_of,
    disjunction,
    margins,
    preimage_cells,
    require_sizes,
)
from splinecam.questions.curves import Curves
from splinecam.questions.partition_data import PartitionData, Unresolved, counted
from splinecam.questions.validate import run_real
from splinecam.questions.wanted import Wanted

_ROUGH, _FINE = 1e-4, 1e-7  # the shares that curves may leave undecided: of the domain, and inside


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

    def __str__(self) -> str:
        place = ", ".join(f"{x:.6g}" for x in self.place)
        return f"at ({place}), {'' if self.confirmed else 'not '}confirmed by the model"

    def __repr__(self) -> str:
        return f"Witness({self})"


def find_witnesses(
    part: PartitionData,
    condition: OutputCondition,
    uv: Tensor,
    box: tuple[Tensor, Tensor] | None = None,
) -> list[Witness]:
    """The inputs at plane coordinates (N, 2), within a box (N, D) each, as witnesses."""
    if not uv.shape[0]:
        return []
    x = part._inputs(uv) if box is None else _within(part, uv, *box)
    how = {"wide": False, "repeatable": False}
    running = run_real(part.model, part._chosen_output, part._dtype, device=x.device, **how)
    steep = condition.about_slopes
    with torch.set_grad_enabled(steep), running as forward:
        x = x.detach().requires_grad_(steep)
        y, slopes = forward(x), None
        if steep:
            each = (torch.autograd.grad(k.sum(), x, retain_graph=True) for k in y.unbind(1))
            slopes = torch.stack([slope.flatten(1) for (slope,) in each], 1).cpu().double()
    x, y = x.detach(), y.detach().cpu()
    confirmed = condition(y, x.flatten(1).cpu().double(), slopes).tolist()
    places = [(u, v) for u, v in uv.tolist()]
    return [Witness(*each) for each in zip(x, places, y, confirmed, strict=True)]


def _within(part: PartitionData, uv: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
    """The inputs at plane coordinates, moved back into bounds (N, D) if rounding has left them.

    This is impossible if no number of the model's type lies within the bounds.
    """
    exact = part.domain.embed(uv.cpu()).flatten(1)
    x = torch.minimum(torch.maximum(exact, lo), hi).to(part._dtype)
    up, down = x.new_tensor(torch.inf), x.new_tensor(-torch.inf)
    x = torch.where(x.double() < lo, torch.nextafter(x, up), x)
    x = torch.where(x.double() > hi, torch.nextafter(x, down), x)
    return x.reshape(-1, *part.domain.input_shape).to(part.domain.origin.device)


@dataclass(frozen=True, eq=False, repr=False)
class Preimage:
    """The points of the domain whose outputs satisfy a condition, in ``len(...)`` pieces.

    partition: what was asked; condition: the constraints, in the form of a VNN-LIB file.
    """

    partition: PartitionData
    condition: OutputCondition

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
        """The area of the points that satisfy the condition; of polynomials, the certain area."""
        if self.condition.factors is not None:
            return self.certain_area
        found, part = self._open, self.partition
        whole = area_of(part.mesh, found.settled == INSIDE)
        return (whole + area_of(found.mesh, found.member)) * part._frame.scale**2

    @property
    def share(self) -> float:
        """The same as a share of the domain, between 0 and 1."""
        return self.area / self.partition.domain.area

    @cached_property
    def _certain(self) -> CertainCells | None:
        """Where the condition is certain despite bounds; None if all is exact."""
        found = self._rough
        if found is None or self.condition.factors is None:
            return found
        # What is inside may be a tiny part of what was possible: its own size counts.
        allowed = float("inf")
        while found.occurs(INSIDE):
            possible = found.area(INSIDE) + found.area(UNDECIDED)
            if allowed < 2 * _FINE * possible:
                break
            allowed = _FINE * possible
            with torch.no_grad():
                found = certain_cells(self.partition, self.condition, allowed)
        return found

    @cached_property
    def _rough(self) -> CertainCells | None:
        """The same without the exact course of curves, which is enough for a verdict."""
        if self.partition.smoothing is None and self.condition.factors is None:
            return None
        with torch.no_grad():
            allowed = _ROUGH * self.partition.domain.area
            return certain_cells(self.partition, self.condition, allowed)

    @cached_property
    def certain_area(self) -> float:
        """The area that satisfies the condition by more than rounding and bounds explain."""
        if self._certain is not None:
            return self._certain.area(INSIDE)
        tied = area_of(self._open.mesh, self._open.member & self._tied)
        return self.area - tied * self.partition._frame.scale**2

    @property
    def undecided_area(self) -> float:
        """The area on which bounds leave the condition open; zero if all is exact.

        Of polynomials it is the area beside their curves, some 1e-7 of the whole.
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

    @cached_property
    def cover(self) -> Band:
        """Polygons on which a polynomial condition is certain, for pictures.

        Beside its curves, some ten-thousandth of the domain may be missing.
        """
        if self._rough is None:
            raise SplineCamError("The condition is linear: see .polygons() for the exact pieces.")
        return band_of(self.partition, [self._rough.having(INSIDE)])

    @cached_property
    def rim(self) -> Band:
        """The thin polygons around the curves at which ``cover`` ends."""
        return band_of(self.partition, [self._rough.having(UNDECIDED)] if self._rough else [])

    @property
    def certain(self) -> bool:
        """Whether an area satisfies the condition by more than rounding and bounds explain."""
        if self._rough is not None:
            return self._rough.occurs(INSIDE)
        part = self.partition
        y = part._outputs if part._wanted is None else part._outputs[part._known]
        # Outputs are continuous: if a vertex is inside, so is an area beside it.
        if self.condition.C is None and len(y):
            require_sizes(self.condition, part.domain.dim, part._n_out)
            if bool((margins(self.condition, y[:, :0], y, part._value_error) > 0).any()):
                return True
        return bool((self._open.status == INSIDE).any() or (self._open.settled == INSIDE).any())

    @cached_property
    def tied_area(self) -> float:
        """The area, inside or outside, that depends on an equality that holds within rounding.

        There a constraint is ``0 <= 0``, which holds, or ``0 < 0``, which does not.
        """
        if self.condition.factors is not None:
            return 0.0
        return area_of(self._open.mesh, self._tied) * self.partition._frame.scale**2

    @property
    def _tied(self) -> Tensor:
        return self._open.status == UNDECIDED

    @property
    def touches(self) -> bool:
        """Whether any point of the domain may satisfy the condition, to within rounding."""
        if self._rough is not None:
            return any(map(self._rough.occurs, (INSIDE, UNDECIDED)))
        return self._open.touches()

    @property
    def unresolved(self) -> tuple[Unresolved, ...]:
        """Places that float64 could not settle, usually none."""
        if self.condition.factors is not None:  # what is undecided has an area
            return ()
        return unresolved_places(self.partition, self._open.overlay.ambiguities, "preimage")

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
        """The border of the area, without the domain's border; all labels are 0."""
        return self._labelled.outline(self.cells.member)

    @cached_property
    def curves(self) -> Curves:
        """Where the condition holds within rounding, but without an area; all labels are 0."""
        return self._labelled.curves(self.cells.thin()[0])

    @cached_property
    def points(self) -> Tensor:
        """Single points (N, 2) at which the condition holds, to within rounding."""
        return self.partition._frame.to_plane(self.cells.mesh.uv[self.cells.thin()[1]])

    def places(self, n: int) -> Tensor:
        """Plane coordinates (N, 2) of at most n points inside, in the widest cells first.

        If there is no area, the points satisfy the condition to within rounding, or within bounds.
        """
        if self._rough is not None:
            status = INSIDE if self._rough.occurs(INSIDE) else UNDECIDED
            return self.partition._frame.to_plane(self._rough.widest(status, n))
        for status in (INSIDE, UNDECIDED):
            places = self._widest(status, n)
            if places.shape[0]:
                return self.partition._frame.to_plane(places)
        curves = self.curves
        middle = curves.ends[curves.lengths.argsort(descending=True)].mean(1)
        return torch.cat([middle, self.points])[:n]

    def _widest(self, status: int, n: int) -> Tensor:
        """The centroids of the widest cells and regions with a status, (N, 2), local."""
        places, widths, found = [], [], self._open
        settled = (found.settled == status) & (status != UNDECIDED)
        for mesh, mask in ((found.mesh, found.status == status), (self.partition.mesh, settled)):
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
        parts = ["no area"]
        if self.condition.factors is not None:
            share = f"{100 * self.share:.3g} % of the domain"
            area = f"area {self.area:.10g}, {share}, undecided {self.undecided_area:.2g}"
            return f"Preimage({area})"
        if len(self):
            share = f"{100 * self.share:.3g} % of the domain"
            parts = [counted(len(self), "piece"), f"area {self.area:.4g}", share]
        if len(self.curves):
            parts.append(f"curves of length {self.curves.length:.4g} without area")
        if len(self.points):
            parts.append(counted(len(self.points), "single point"))
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
    condition = condition_of(A, b, part.domain.dim, part._n_out)
    require_order_only(part.stripped, condition)
    return _asked(part, condition)


def _asked(part: PartitionData, condition: OutputCondition) -> Preimage:
    """The preimage, or an error if the partition was made for another question."""
    part._require("other conditions", Wanted("condition", condition=condition))
    return Preimage(part, condition)


def require_order_only(stripped: str | None, condition: OutputCondition) -> None:
    """Raise an error if a condition is about more than order, and a softmax was left out."""
    if stripped is None:
        return
    A = condition.A
    order = (A.ne(0).sum(1) == 2) & (A.sum(1) == 0) & (condition.b == 0)
    if condition.C is not None:
        order &= ~condition.C.ne(0).any(1)
    if condition.Q is not None:
        order &= ~condition.Q.ne(0).any(1)
    if not bool((order | ~A.ne(0).any(1)).all()):
        raise SplineCamError(
            f"The network ends in {stripped}, which is not piecewise linear, so that the "
            "partition has the outputs before it. Compare outputs with each other, or leave the "
            f"{stripped} out of the model and state the condition in these outputs."
        )


Status = Literal["holds", "violated", "unresolved"]
Boxes = tuple[tuple[Tensor, Tensor], ...]

_CANDIDATES = 64  # inputs among which the model is to confirm one


@dataclass(frozen=True, eq=False, repr=False)
class PropertyCheck:
    """The verdict on a property, which holds if no input of the domain is unsafe.

    As a truth value it is True if the property holds and False if it is violated; an unresolved one
    has no truth value, and raises an error.

    covered: the share of the domain that lies in the boxes of the property, between 0 and 1; the
    rest is not judged. boxes: (lo, hi) of the boxes that the domain meets, flat.
    """

    _preimage: Preimage | None  # None if only the verdict is known
    covered: float
    boxes: Boxes
    _found: tuple[Witness, ...] = ()  # the counterexamples that settled the verdict then

    @property
    def divided(self) -> bool:
        """Whether the domain was divided, so that the unsafe part is known, or a verdict alone."""
        return self._preimage is not None

    @property
    def preimage(self) -> Preimage:
        """The unsafe part of the domain."""
        if self._preimage is None:
            raise SplineCamError(
                "Only the verdict was asked for, and the check stopped at a counterexample: see "
                ".status and .witness. For the unsafe part of the domain, leave out verdict_only=."
            )
        return self._preimage

    @cached_property
    def status(self) -> Status:
        """``"holds"``, ``"violated"``, or ``"unresolved"`` if rounding cannot tell.

        Violated means that some area is unsafe by more than rounding explains. A condition whose
        limits are met with equality only, such as at a point, is unresolved. If smooth functions of
        the model were replaced, more than the bounds of the regions explain is needed; where the
        bounds leave it open whether the model is unsafe, the verdict is unresolved.
        """
        if self._preimage is None or self.preimage.certain:
            return "violated"
        return "unresolved" if self.preimage.touches else "holds"

    def __bool__(self) -> bool:
        if self.status == "unresolved":
            raise SplineCamError(
                "The property is neither shown to hold nor to be violated, so that it has no truth "
                'value: see .status, which is "unresolved", .witness and .preimage.'
            )
        return self.status == "holds"

    @property
    def area(self) -> float:
        """The unsafe area; if smooth functions were replaced, the certainly unsafe area."""
        found = self.preimage
        return found.area if found.partition.smoothing is None else found.certain_area

    @property
    def share(self) -> float:
        """The same as a share of the domain, between 0 and 1."""
        return self.area / self.preimage.partition.domain.area

    @property
    def undecided_area(self) -> float:
        """The area on which bounds leave open whether the model is unsafe; 0 if it is exact."""
        return self.preimage.undecided_area

    @cached_property
    def witness(self) -> Witness | None:
        """An unsafe input, which the model confirms unless rounding forbids; None if there is none.

        If the verdict is unresolved, it is an input that is unsafe to within rounding.
        """
        if self.status == "holds":
            return None
        found = self.witnesses(_CANDIDATES)
        return next((each for each in found if each.confirmed), found[0] if found else None)

    def witnesses(self, n: int = 1) -> list[Witness]:
        """At most n unsafe inputs, those in the widest cells first, judged by the model."""
        found = self._preimage
        if found is None:
            return list(self._found[:n])
        return unsafe_inputs(found.partition, found.condition, found.places(n), self.boxes)

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """Draw the regions, the unsafe part and the witness.

        ax: where to draw. options: see ``splinecam.plot.plot_preimage``.
        """
        shown = self.witness
        found = "unsafe input" if shown is None or shown.confirmed else "perhaps unsafe input"
        return self.preimage.plot(ax, **{"witness": shown, "words": ("unsafe", found), **options})

    def __repr__(self) -> str:
        if self._preimage is None:
            return f"PropertyCheck(violated, {self._found[0]})"
        if self.status == "holds":
            inside = f"{100 * self.covered:.3g} % of the domain that are in its box"
            return f"PropertyCheck(holds on the {inside if self.covered < 1 else 'domain'})"
        if self.status == "violated":
            text = f"violated on {100 * self.share:.3g} % of the domain, area {self.area:.4g}"
            if self.undecided_area:
                text += f", undecided on area {self.undecided_area:.4g}"
        elif self.undecided_area:
            share = self.undecided_area / self.preimage.partition.domain.area
            smoothed = self.preimage.partition.smoothing is not None
            what = "the bounds of the smooth functions leave" if smoothed else "rounding leaves"
            text = f"unresolved: {what} "
            text += f"{100 * share:.3g} % of the domain undecided, area {self.undecided_area:.4g}"
        elif self.preimage.tied_area > 0:
            text = f"unresolved: an equality within rounding on area {self.preimage.tied_area:.4g}"
        else:
            text = "unresolved: the limits are met within rounding, without area"
        if self.covered < 1:
            text += f", {100 * self.covered:.3g} % of which are in its box"
        if self.preimage.partition._model is not None and self.witness is not None:
            text += f", {self.witness}"
        return f"PropertyCheck({text})"


def unsafe_inputs(
    part: PartitionData, condition: OutputCondition, uv: Tensor, boxes: Boxes
) -> list[Witness]:
    """The inputs at plane coordinates (N, 2) as witnesses, each within one of some boxes."""
    if not boxes:
        return find_witnesses(part, condition, uv)
    x = part.domain.embed(uv.cpu()).flatten(1)
    lo, hi = (torch.stack(side) for side in zip(*boxes, strict=True))
    # Each input belongs to the box that it violates least, which is by rounding at most.
    off = torch.maximum(lo[:, None] - x, x - hi[:, None]).amax(2)
    own = off.argmin(0)
    return find_witnesses(part, condition, uv, (lo[own], hi[own]))


def check(
    part: PartitionData, spec: Any, *, certificate: str | os.PathLike[str] | None = None
) -> PropertyCheck:
    """Whether a property holds on the domain: it holds, is violated, or is unresolved.

    spec: a property from ``read_vnnlib``, one of its cases, or the path of the file; or the unsafe
    outputs alone, as for ``preimage``. Of a property, the part of the domain in its boxes counts:
    ``covered`` says how much that is. The network is judged in exact arithmetic with its weights,
    up to bounds of the rounding errors of float64; the witness is judged by the model itself.

    Where the limits are met with equality, to within rounding, and nowhere exceeded, the verdict is
    unresolved, although ``preimage`` and ``area`` count such points if a limit is ``<=``.

    certificate: a file from which anyone can check the verdict of exact arithmetic, as for
    ``part.certify(exact=True)``. It settles equality, too: the file never is unresolved.

    >>> import splinecam as sc
    >>> part = sc.partition(torch.nn.ReLU(), sc.Domain.box(-1, 1), progress=False)
    >>> part.check([([[-1.0, 0.0]], [-2.0])])
    PropertyCheck(holds on the domain)
    >>> part.check([([[-1.0, 0.0]], [-0.5])])
    PropertyCheck(violated on 25 % of the domain, area 1, at (0.75, 0.5), confirmed by the model)
    """
    condition, limits, boxes = unsafe_outputs(spec, part.domain, part._n_out, part.stripped)
    covered = 1.0 if limits is None else _asked(part, limits).share
    if covered == 0:
        raise DomainError("The domain touches the boxes of the property, without a common area.")
    if certificate is not None:
        write(part, certificate, condition, exact=True)
    return PropertyCheck(_asked(part, condition), covered, boxes)


def unsafe_outputs(
    spec: Any, domain: Domain, n: int, stripped: str | None
) -> tuple[OutputCondition, OutputCondition | None, Boxes]:
    """What ``check`` looks for on a domain, as a condition on n outputs.

    Also the condition that an input is in the boxes of a property, None if all of the domain is,
    and the boxes that the domain meets. stripped: the final function that was left out.
    """
    if isinstance(spec, str | os.PathLike):
        spec = read_vnnlib(spec)
    if not isinstance(spec, Property | PropertyCase):
        condition = condition_of(spec, None, domain.dim, n)
        require_sizes(condition, domain.dim, n)
        require_order_only(stripped, condition)
        return condition, None, ()
    D = domain.dim
    if isinstance(spec, Property):
        cases, inputs, outputs = spec.cases, prod(spec.input_shape), prod(spec.output_shape)
    else:
        cases, inputs, outputs = (spec,), spec.lo.numel(), int(spec.condition.A.shape[1])
    for found, size, kind in ((inputs, D, "inputs"), (outputs, n, "outputs")):
        if found != size:
            raise SplineCamError(f"The property is about {found} {kind}; the network has {size}.")
    for case in cases:
        require_order_only(stripped, case.condition)
    return _unsafe_in_boxes(cases, domain, n)


def _unsafe_in_boxes(
    cases: Sequence[PropertyCase], domain: Domain, n: int
) -> tuple[OutputCondition, OutputCondition | None, Boxes]:
    """The same for the cases of a property, each with its box."""
    corners = domain.embed(domain.corners).flatten(1)
    reach = domain.origin.abs() + domain.corners.abs().amax(0) @ domain.basis.abs()
    bounds = [(case.lo.reshape(-1), case.hi.reshape(-1)) for case in cases]
    found = [_limits(lo, hi, corners, reach) for lo, hi in bounds]
    met = [k for k, rows in enumerate(found) if rows is not None]
    limits = [rows for rows in found if rows is not None]
    if not met:
        raise DomainError(
            "The domain lies outside of the boxes of the property, so that there is nothing to "
            "check. sc.Domain.slice(prop.box, axes=(0, 1)) is a slice of the box."
        )
    if len(met) == 1 and not len(limits[0][1]) and len(cases[met[0]].condition):
        return cases[met[0]].condition, None, (bounds[met[0]],)
    groups: list[Conjunction] = []
    for k, (C, b) in zip(met, limits, strict=True):
        groups += [_with_limits(each, C, b, n) for each in cases[k].condition]
    none = torch.zeros(0, n, dtype=torch.float64)
    anything = Conjunction(none, none[:, 0], none[:, 0] > 0, None)
    boxes = [_with_limits(anything, *rows, n) for rows in limits]
    whole = any(len(each.b) == 0 for each in boxes)
    zero = torch.zeros(1, n, dtype=torch.float64)  # no outputs y satisfy 0 y <= -1
    condition = disjunction(groups) if groups else OutputCondition.of([(zero, zero[:, 0] - 1)])
    return condition, None if whole else disjunction(boxes), tuple(bounds[k] for k in met)


def _limits(lo: Tensor, hi: Tensor, corners: Tensor, reach: Tensor) -> tuple[Tensor, Tensor] | None:
    """The bounds of a box that cut the domain, as ``C x <= b``; None if the domain is outside.

    corners: (k, D) of the domain; reach: (D,) the sizes of the numbers that coordinates sum up. A
    bound that the domain exceeds by rounding only does not cut it.
    """
    bound, sign = torch.stack([hi, lo]), torch.tensor([[1.0], [-1.0]], dtype=lo.dtype)
    slack = SAFETY * EPS * (reach + bound.abs().nan_to_num(posinf=0.0))
    above = sign[:, None] * (corners - bound[:, None])
    if bool((above.amin(1) > slack).any()):
        return None
    side, axis = (above.amax(1) > slack).nonzero().unbind(1)
    C = lo.new_zeros(len(axis), len(lo)).index_put_((torch.arange(len(axis)), axis), sign[side, 0])
    return C, sign[side, 0] * bound[side, axis]


def _with_limits(given: Conjunction, C: Tensor, b: Tensor, n: int) -> Conjunction:
    """A conjunction with further rows ``C x <= b`` on inputs."""
    if not len(b):
        return given
    A, limits, strict, inputs, Q, factors = given
    own = torch.zeros(len(limits), C.shape[1], dtype=C.dtype) if inputs is None else inputs
    more = None if Q is None else torch.cat([Q, Q.new_zeros(len(b), Q.shape[1])])
    return Conjunction(
        torch.cat([A, torch.zeros(len(b), n, dtype=A.dtype)]),
        torch.cat([limits, b]),
        torch.cat([strict, torch.zeros(len(b), dtype=torch.bool)]),
        torch.cat([own, C]),
        more,
        factors,
    )
