"""Whether a property holds on a domain: holds, violated where and how much, or unresolved."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor

from splinecam._util.tolerances import EPS, SAFETY
from splinecam.errors import DomainError, SplineCamError
from splinecam.files.properties import Conjunction, OutputCondition, Property, PropertyCase
from splinecam.files.vnnlib import read_vnnlib
from splinecam.questions.constraints import condition_of
from splinecam.questions.constraints import disjunction as joined
from splinecam.questions.partition_data import PartitionData
from splinecam.questions.preimage import Preimage, Witness, find_witnesses, require_order_only

Status = Literal["holds", "violated", "unresolved"]

_CANDIDATES = 64  # inputs of which the model confirms one


@dataclass(frozen=True, eq=False, repr=False)
class PropertyCheck:
    """The verdict on a property, which holds if no input of the domain is unsafe.

    As a truth value it is True if the property holds and False if it is violated; an unresolved one
    has no truth value, and raises an error.

    preimage: the unsafe part of the domain; covered: the share of the domain that lies in the boxes
    of the property, between 0 and 1; the rest is not judged. boxes: (lo, hi) of the boxes that the
    domain meets, flat.
    """

    preimage: Preimage
    covered: float
    boxes: tuple[tuple[Tensor, Tensor], ...]

    @cached_property
    def status(self) -> Status:
        """``"holds"``, ``"violated"``, or ``"unresolved"`` if rounding cannot tell.

        Violated means that some area is unsafe by more than rounding explains. A condition whose
        limits are met with equality only, such as at a point, is unresolved. If smooth functions of
        the model were replaced, more than the bounds of the regions explain is needed; where the
        bounds leave it open whether the model is unsafe, the verdict is unresolved.
        """
        if self.preimage.certain:
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
        """The area of the unsafe part, with what is unsafe by an equality only.

        If smooth functions were replaced, it is the part that is certainly unsafe.
        """
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
        """An unsafe input, if there is one; unless rounding forbids, one that the model confirms.

        If the verdict is unresolved, it is an input that is unsafe to within rounding.
        """
        if self.status == "holds":
            return None
        found = self.witnesses(_CANDIDATES)
        return next((each for each in found if each.confirmed), found[0] if found else None)

    def witnesses(self, n: int = 1) -> list[Witness]:
        """At most n unsafe inputs, those in the widest cells first, judged by the model."""
        part, uv = self.preimage.partition, self.preimage.places(n)
        if not self.boxes:
            return find_witnesses(part, self.preimage.condition, uv)
        x = part.domain.embed(uv.cpu()).flatten(1)
        lo, hi = (torch.stack(side) for side in zip(*self.boxes, strict=True))
        # Each input belongs to the box that it violates least, which is by rounding at most.
        off = torch.maximum(lo[:, None] - x, x - hi[:, None]).amax(2)
        own = off.argmin(0)
        return find_witnesses(part, self.preimage.condition, uv, (lo[own], hi[own]))

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """Draw the regions, the unsafe part and the witness.

        ax: where to draw. options: see ``splinecam.plot.plot_preimage``.
        """
        shown = self.witness
        found = "unsafe input" if shown is None or shown.confirmed else "perhaps unsafe input"
        words = ("unsafe", found)
        return self.preimage.plot(ax=ax, **{"witness": shown, "words": words, **options})

    def __repr__(self) -> str:
        if self.status == "holds":
            where = "on the domain"
            if self.covered < 1:
                where = f"on the {100 * self.covered:.3g} % of the domain that are in its box"
            return f"PropertyCheck(holds {where})"
        if self.status == "violated":
            text = f"violated on {100 * self.share:.3g} % of the domain, area {self.area:.4g}"
            if self.undecided_area:
                text += f", undecided on area {self.undecided_area:.4g}"
        elif self.undecided_area:
            share = self.undecided_area / self.preimage.partition.domain.area
            text = (
                f"unresolved: the bounds of the smooth functions leave {100 * share:.3g} % of the "
                f"domain undecided, area {self.undecided_area:.4g}"
            )
        elif self.preimage.tied_area > 0:
            text = f"unresolved: an equality within rounding on area {self.preimage.tied_area:.4g}"
        else:
            text = "unresolved: the limits are met within rounding, without area"
        if self.covered < 1:
            text += f", {100 * self.covered:.3g} % of which are in its box"
        if self.preimage.partition._model is not None and self.witness is not None:
            text += ", " + repr(self.witness).removeprefix("Witness(").removesuffix(")")
        return f"PropertyCheck({text})"


def check(part: PartitionData, spec: Any) -> PropertyCheck:
    """Whether a property holds on the domain: it holds, is violated, or is unresolved.

    spec: a property from ``read_vnnlib``, one of its cases, or the path of the file; or the unsafe
    outputs alone, as for ``preimage``. Of a property, the part of the domain in its boxes counts:
    ``covered`` says how much that is. The network is judged in exact arithmetic with its weights,
    up to bounds of the rounding errors of float64; the witness is judged by the model itself.

    Where the limits are met with equality, to within rounding, and nowhere exceeded, the verdict is
    unresolved, although ``preimage`` and ``area`` count such points if a limit is ``<=``.

    >>> import splinecam as sc
    >>> part = sc.partition(torch.nn.ReLU(), sc.Domain.box(-1, 1), progress=False)
    >>> part.check([([[-1.0, 0.0]], [-2.0])])
    PropertyCheck(holds on the domain)
    >>> part.check([([[-1.0, 0.0]], [-0.5])])
    PropertyCheck(violated on 25 % of the domain, area 1, at (0.75, 0.5), confirmed by the model)
    """
    if isinstance(spec, str | os.PathLike):
        spec = read_vnnlib(spec)
    if not isinstance(spec, Property | PropertyCase):
        condition = condition_of(spec, None)
        require_order_only(part, condition)
        return PropertyCheck(Preimage(part, condition), 1.0, ())
    cases = spec.cases if isinstance(spec, Property) else (spec,)
    n, D = int(part.values.shape[1]), part.domain.dim
    shapes = (
        (spec.input_shape, spec.output_shape)
        if isinstance(spec, Property)
        else (tuple(spec.lo.shape), (int(spec.condition.A.shape[1]),))
    )
    for shape, size, kind in zip(shapes, (D, n), ("inputs", "outputs"), strict=True):
        if prod(shape) != size:
            raise SplineCamError(
                f"The property is about {prod(shape)} {kind}; the network has {size}."
            )
    return _check_cases(part, cases, n)


def _check_cases(part: PartitionData, cases: Sequence[PropertyCase], n: int) -> PropertyCheck:
    corners = part.domain.embed(part.domain.corners).flatten(1)
    reach = part.domain.origin.abs() + part.domain.corners.abs().amax(0) @ part.domain.basis.abs()
    met, limits = [], []
    for case in cases:
        lo, hi = case.lo.reshape(-1), case.hi.reshape(-1)
        rows = _limits(lo, hi, corners, reach)
        if rows is not None:
            met.append(case)
            limits.append(rows)
    if not met:
        raise DomainError(
            "The domain lies outside of the boxes of the property, so that there is nothing to "
            "check. sc.Domain.slice(prop.box, axes=(0, 1)) is a slice of the box."
        )
    groups: list[Conjunction] = []
    for case, (C, b) in zip(met, limits, strict=True):
        require_order_only(part, case.condition)
        groups += [_with_limits(each, C, b, n) for each in case.condition]
    none = torch.zeros(0, n, dtype=torch.float64)
    boxes = [
        _with_limits(Conjunction(none, none[:, 0], none[:, 0] > 0, None), *x, n) for x in limits
    ]
    whole = any(len(each.b) == 0 for each in boxes)
    covered = 1.0 if whole else Preimage(part, joined(boxes)).share
    if covered == 0:
        raise DomainError("The domain touches the boxes of the property, without a common area.")
    bounds = tuple((case.lo.reshape(-1), case.hi.reshape(-1)) for case in met)
    condition = joined(groups) if groups else _never(n)
    return PropertyCheck(Preimage(part, condition), covered, bounds)


def _limits(lo: Tensor, hi: Tensor, corners: Tensor, reach: Tensor) -> tuple[Tensor, Tensor] | None:
    """The bounds of a box that cut the domain, as ``C x <= b``; None if the domain is outside.

    corners: (k, D) of the domain; reach: (D,) the largest numbers that coordinates are summed of.
    A bound that the domain exceeds by rounding only does not cut it.
    """
    found, eye = [], torch.eye(len(lo), dtype=torch.float64)
    for sign, bound in ((1.0, hi), (-1.0, lo)):
        slack = SAFETY * EPS * (reach + bound.abs().nan_to_num(posinf=0.0))
        above = sign * (corners - bound)
        if bool((above.amin(0) > slack).any()):
            return None
        cutting = (above.amax(0) > slack).nonzero()[:, 0]
        found.append((sign * eye[cutting], sign * bound[cutting]))
    (C, b), (D, c) = found
    return torch.cat([C, D]), torch.cat([b, c])


def _with_limits(given: Conjunction, C: Tensor, b: Tensor, n: int) -> Conjunction:
    """A conjunction with further rows ``C x <= b`` on inputs."""
    if not len(b):
        return given
    A, limits, strict, inputs = given
    own = torch.zeros(len(limits), C.shape[1], dtype=C.dtype) if inputs is None else inputs
    return Conjunction(
        torch.cat([A, torch.zeros(len(b), n, dtype=A.dtype)]),
        torch.cat([limits, b]),
        torch.cat([strict, torch.zeros(len(b), dtype=torch.bool)]),
        torch.cat([own, C]),
    )


def _never(n: int) -> OutputCondition:
    """The condition that no outputs satisfy."""
    zero = torch.zeros(1, n, dtype=torch.float64)
    return OutputCondition.of([(zero, zero[:, 0] - 1)])
