"""The verbs for one question about a network on a domain: boundary, level_set, check.

Only those regions are divided on which the answer is not certain.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import prod
from typing import Any, Unpack

import torch
from torch import Tensor

from splinecam._util.arrays import as_rows
from splinecam._util.options import as_float64, device_of
from splinecam.engine.run import Outcome
from splinecam.errors import DomainError
from splinecam.files.formulas import Formula
from splinecam.files.properties import Property, PropertyCase
from splinecam.files.vnnlib import read_vnnlib
from splinecam.geometry.domain import Domain, Frame
from splinecam.geometry.subdivision import polygon_mesh
from splinecam.jobs.partitioning import partition
from splinecam.partitions.partition import Partition, assemble
from splinecam.partitions.request import Model, Options, Request, require_domain
from splinecam.questions.boundary import Boundary, Kind, LevelSet
from splinecam.questions.constraints import condition_of
from splinecam.questions.counterexamples import counterexamples
from splinecam.questions.preimage import PropertyCheck, unsafe_inputs, unsafe_outputs

_WEIGHTS = 10_000  # of networks whose regions take longer than to look for a counterexample


def boundary(
    model: Model,
    domain: Domain,
    *,
    classes: tuple[int | str, int | str] | None = None,
    kind: Kind = "argmax",
    **options: Unpack[Options],
) -> Boundary:
    """The exact decision boundary of a network, without its whole partition.

    The result is that of ``part.decision_boundary``. A single output is compared with 0;
    ``level_set`` takes other levels.

    model, domain, options: as for ``partition``. classes: only the part between these two classes,
    given by number or, with the option ``names``, by name. kind: with several outputs, where the
    two largest are equal (``"argmax"``), the two smallest (``"argmin"``), or any two
    (``"pairwise"``).

    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> curves = boundary(model, Domain.box(-1, 1), progress=False)
    >>> curves.kind
    'argmax'
    """
    if "level" in options:
        raise TypeError("levels are for sc.level_set, as in sc.level_set(model, domain, 0.5)")
    given = {} if classes is None else {"classes": classes}
    plain = kind == "argmax" and classes is None
    part = _refined(model, domain, "boundary" if plain else {"kind": kind, **given}, options)
    return part.decision_boundary(kind=kind, classes=classes)


def level_set(
    model: Model,
    domain: Domain,
    levels: float | Sequence[float] | Tensor,
    *,
    output: int | None = None,
    **options: Any,
) -> LevelSet:
    """The exact curves on which an output has given values, without the whole partition.

    The result is that of ``part.level_set``.

    model, domain, options: as for ``partition``; of a model with several tensors as outputs, give
    ``capture(model, input_shape, output=...)``. levels: one value, or several. output: the index of
    the output among the numbers that the model returns, needed if there are several.

    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> level_set(model, Domain.box(-1, 1), [0.0, 0.5], output=2, progress=False).levels
    (0.0, 0.5)
    """
    part = _refined(model, domain, {"level": levels, "output": output}, options)
    return part.level_set(levels, output=output)


def _refined(model: Model, domain: Domain, refine: Any, options: Any) -> Partition:
    """The partition for a question; smooth functions need all regions, but for the boundary."""
    if options.get("smooth") is not None and refine != "boundary":
        refine = None
    return partition(model, domain, refine=refine, **options)


def check(
    model: Model,
    domain: Domain | tuple[Any, Any],
    prop: Any,
    *,
    verdict_only: bool = False,
    **options: Unpack[Options],
) -> PropertyCheck:
    """Whether a property holds on a domain: it holds, is violated, or is unresolved.

    The result is that of ``part.check``, without the whole partition.

    model, options: as for ``partition``. domain: also the box ``(lo, hi)`` of a property if just
    two inputs vary in it. prop: a property from ``read_vnnlib``, one of its cases, or the path of
    the file; or the unsafe outputs alone, as for ``part.preimage``. verdict_only: try large
    networks at some points, and stop at a counterexample that the model itself confirms. Then
    ``.status`` and ``.witness`` are known, but not how much of the domain is unsafe.

    >>> model = torch.nn.ReLU()
    >>> check(model, Domain.box(-1, 1), [([[-1.0, 0.0]], [-2.0])], progress=False)
    PropertyCheck(holds on the domain)
    >>> check(model, Domain.box(-1, 1), [([[-1.0, 0.0]], [-0.5])], progress=False).area
    1.0
    """
    request, domain = Request.of("check", model, options), _plane_of(domain)
    if isinstance(prop, str | os.PathLike):
        prop = read_vnnlib(prop)
    elif not isinstance(prop, Property | PropertyCase | Formula):
        prop = condition_of(prop, None, 0, 0)
    exact = request.smooth is None
    found = _stopped(request, domain, prop) if verdict_only and exact else None
    if found is not None:
        return found
    options["refine"] = prop if exact else None
    return partition(model, domain, **options).check(prop)


def _plane_of(domain: Domain | tuple[Any, Any]) -> Domain:
    """The domain, which may be a box in which two inputs vary."""
    if not isinstance(domain, tuple | list):
        require_domain(domain)
        return domain
    lo, hi = (as_float64(side, name) for side, name in zip(domain, ("lo", "hi"), strict=True))
    wide = (lo < hi).flatten().nonzero()[:, 0].tolist()
    if len(wide) != 2:
        raise DomainError(
            f"{len(wide)} inputs vary in the box, and a domain has two dimensions: choose two "
            "inputs, as in sc.Domain.slice(prop.box, axes=(0, 1))."
        )
    return Domain.slice((lo, hi), axes=wide)


def _stopped(request: Request, domain: Domain, prop: Any) -> PropertyCheck | None:
    """The verdict at a counterexample, None if none is found, or regions are found faster."""
    weights = sum(weight.numel() for weight in request.model.parameters())
    if weights < _WEIGHTS and len(domain.input_shape) == 1:
        return None
    with torch.inference_mode(False), torch.no_grad():
        program = request.captured(domain.input_shape, device_of(request.device))
        outputs = prod(program.output_shape)
        condition, limits, boxes = unsafe_outputs(prop, domain, outputs, program.stripped)
        # The share of the domain in the boxes, and slopes, need regions.
        if limits is not None or condition.about_slopes:
            return None
        places = counterexamples(program, domain, condition)
        if not len(places):
            return None
        # As long as nothing is divided, the domain is a single region.
        corners = domain.corners.to(program.device)
        y = as_rows(program(domain.embed(corners)))
        whole = Outcome(polygon_mesh(Frame.of(domain).to_local(corners)), y, 0 * y[0], {}, [])
        part = assemble(request.model, program, domain, whole, output=request.output)
        found = [x for x in unsafe_inputs(part, condition, places, boxes) if x.confirmed]
    return PropertyCheck(None, 1.0, boxes, tuple(found)) if found else None
