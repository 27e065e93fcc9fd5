"""The exact difference of two networks on a domain, also of networks with smooth functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Unpack

import torch
from torch import Tensor

from splinecam._util.options import device_of
from splinecam._util.progress import progress_bar, tell
from splinecam._util.tolerances import SAFETY, UV_ERROR
from splinecam.engine.overlay import run_both
from splinecam.engine.plan import Plan, first_device
from splinecam.engine.run import Outcome, run
from splinecam.errors import SplineCamError
from splinecam.geometry.domain import Domain
from splinecam.geometry.point_location import Locator, signed_distances
from splinecam.geometry.subdivision import Mesh
from splinecam.network.capture import Both, capture
from splinecam.network.capture.pairs import Pair, Shown, pair_of
from splinecam.network.program import Program
from splinecam.partitions.computing import is_smooth, record_of
from splinecam.partitions.partition import Partition, assemble
from splinecam.partitions.request import Model, Options, Request, require_domain
from splinecam.questions.difference import Difference
from splinecam.questions.partition_data import Smoothing
from splinecam.smooth.smoothing import Smoothed, smoothed


def _record_on(mesh: Mesh, real: Program, found: Smoothed | None) -> Smoothing:
    """The record of a network with bounds on the regions of a finer mesh.

    A region has the bounds of the coarse region around it. Where rounding leaves open which one
    this is, it has the largest bounds of all. found: None if there are no smooth functions.
    """
    if found is None:
        outputs = int(torch.Size(real.output_shape).numel())
        none = mesh.uv.new_zeros((mesh.num_faces, outputs))
        return Smoothing(none.new_zeros(outputs), none)
    record, own, middle = record_of(real, found), found.outcome.mesh, mesh.means()
    face = Locator(own)(middle)
    known = (face >= 0).nonzero()[:, 0]
    deep = signed_distances(own, middle[known], face[known]) > SAFETY * UV_ERROR
    bounds = record._bound.expand(mesh.num_faces, -1).clone()
    bounds[known[deep]] = record.region_bounds[face[known[deep]]]
    return replace(record, region_bounds=bounds)


def _shown_record(records: Sequence[Smoothing], shown: Shown, *, equal: bool) -> Smoothing:
    """The record of the outputs that are shown, from the records of both networks.

    equal: whether both networks are the same, so that their difference is zero for certain.
    """
    a, b = records
    layers = tuple(
        replace(layer, name=f"{name}.{layer.name}")
        for name, record in zip("ab", records, strict=True)
        for layer in record.layers
        if shown in (name, "both", "difference")
    )
    if shown in ("a", "b"):
        own = a if shown == "a" else b
        return Smoothing(own.tolerance, own.region_bounds, layers)
    if shown == "both":
        tolerance = torch.cat([a.tolerance, b.tolerance])
        return Smoothing(tolerance, torch.cat([a.region_bounds, b.region_bounds], 1), layers)
    bounds: Tensor = a.region_bounds + b.region_bounds
    return Smoothing(a.tolerance + b.tolerance, bounds * 0.0 if equal else bounds, layers)


_WHERE = "model_a", "model_b"


def difference(
    model_a: Model, model_b: Model, domain: Domain, **options: Unpack[Options]
) -> Difference:
    """Where and by how much two networks of equal shapes differ on a domain, exactly.

    The domain is divided into regions on which both networks are affine. The difference of their
    outputs is then affine too, so that its largest value is found at a vertex, and its mean by an
    integral without sampling. Networks with the same weights have a difference of exactly zero.

    Outputs are compared before a final softmax, sigmoid or tanh, which both models must have, or
    neither.

    model_a, model_b: two models, captured networks or files, as for ``partition``, with inputs and
    outputs of the same shapes. The difference is the output of the first less the output of the
    second. options: as for ``partition``. Both networks together often have four times as many
    regions as one. ``smooth`` is the error that outputs of each network may have; ``diff.bound`` is
    how far the difference of the models can be from the difference of the replaced networks.

    >>> import copy
    >>> from torch import nn
    >>> a = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> b = copy.deepcopy(a)
    >>> diff = difference(a, b, Domain.box(-1, 1), progress=False)
    >>> diff.largest().value, diff.disagreement.area
    (0.0, 0.0)
    >>> _ = b[2].bias.data.add_(torch.tensor([0.0, 0.5, 0.0]))
    >>> diff = difference(a, b, Domain.box(-1, 1), progress=False)
    >>> [round(x, 6) for x in diff.mean.tolist()]
    [0.0, 0.5, 0.0]
    """
    requests = [
        Request.of("difference", model, options, argument=where)
        for where, model in zip(_WHERE, (model_a, model_b), strict=True)
    ]
    request = next((each for each in requests if each.device != "auto"), requests[0])
    smooth = request.smooth
    require_domain(domain)
    if smooth is not None and smooth.refine is not None:
        raise TypeError("refine= is for sc.partition: the difference of networks has no classes")
    with torch.inference_mode(False):
        outputs = requests[0].output, requests[1].output
        both = Both(requests[0].model, requests[1].model, outputs, smooth=smooth is not None)
        last = device_of(request.device)
        place = last if smooth else first_device(request.device, both, domain.input_shape)
        programs = _captured(both, domain, place)
        pair = pair_of(*programs)
        names, most = request.names_for(pair.a), request.max_regions
        layers = len(pair.a.layers) + len(pair.b.layers) - pair.shared
        with progress_bar(layers, "layer", request.progress) as bar, torch.no_grad():
            report = partial(tell, bar)

            def plan(program: Program) -> Plan:
                return Plan.of(program, last, request.memory)

            def run_one(program: Program) -> Outcome:
                return run(program, domain, max_regions=most, plan=plan(program))

            found = [
                smoothed(program, domain, smooth.allowed, run_one)
                if smooth is not None and is_smooth(program)
                else None
                for program in programs
            ]
            replaced = list(zip(programs, found, strict=True))
            if any(found):
                pair = pair_of(*(real if each is None else each.program for real, each in replaced))
            outcome, same = run_both(pair, domain, plan, max_regions=most, report=report)
        records = [_record_on(outcome.mesh, *each) for each in replaced] if any(found) else None
        return _assembled(both, pair, domain, outcome, same, names, records)


def _captured(both: Both, domain: Domain, device: torch.device) -> tuple[Program, Program]:
    """The programs of two networks, or an error unless shapes and last functions agree."""
    programs = []
    for where, model, output in zip(_WHERE, (both.a, both.b), both.outputs, strict=True):
        try:
            given = model, domain.input_shape
            program = capture(*given, device=device, output=output, smooth=both.smooth)
        except SplineCamError as error:
            error.args = (f"{where}: {error}", *error.args[1:])
            raise
        programs.append(program)
    a, b = programs
    if a.output_shape != b.output_shape:
        raise SplineCamError(
            f"model_a has outputs of the shape {a.output_shape}, and model_b of the shape "
            f"{b.output_shape}: only networks with outputs of the same shape have a difference."
        )
    if a.stripped != b.stripped:
        ends = [program.stripped or "no such function" for program in programs]
        raise SplineCamError(
            f"model_a ends with {ends[0]}, and model_b with {ends[1]}. Outputs are compared before "
            "a last softmax, sigmoid or tanh: leave it out of both models, or out of neither."
        )
    return a, b


def _assembled(
    both: Both,
    pair: Pair,
    domain: Domain,
    outcome: Outcome,
    same: Tensor,
    names: Sequence[str] | None,
    records: Sequence[Smoothing] | None,
) -> Difference:
    """The difference from the outcome of a run, which has the outputs of both networks.

    same: (n,) whether each output is known to be the same function in both. records: of smooth
    functions, if there are any.
    """
    error_a, error_b = outcome.error.chunk(2)
    rounding = error_a + error_b
    # Outputs that are the same function have no difference, and rounding has no part in this. The
    # models themselves round differently, unless they are equal bit by bit.
    error = torch.where(same, 0.0, rounding)
    rounding = torch.zeros_like(rounding) if pair.equal else rounding
    errors = {"both": outcome.error, "a": error_a, "b": error_b, "difference": rounding}
    stripped = pair.a.stripped is not None

    def view(kind: Shown) -> Partition:
        device = outcome.mesh.uv.device
        program = pair.joined(kind)
        program = program if program.device == device else program.to(device)
        chosen = replace(outcome, output=_outputs(outcome.output, kind), error=errors[kind])
        named = names if kind in ("a", "b") else None
        model = both.showing(kind, stripped=stripped)
        if records is not None:
            record = _shown_record(records, kind, equal=pair.equal)
            chosen = replace(chosen, smoothing=record)
        return assemble(model, program, domain, chosen, names=named)

    return Difference(view, error)


def _outputs(both: Tensor, kind: Shown) -> Tensor:
    """The outputs that are shown, from the outputs of both networks side by side (V, 2 n)."""
    if kind == "both":
        return both
    a, b = both.chunk(2, 1)
    return a - b if kind == "difference" else (a if kind == "a" else b).contiguous()
