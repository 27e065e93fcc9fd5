"""The common refinement of the partitions of two networks.

There are two ways. Networks that have no units in common are run one after the other, and their
partitions are laid over each other. Others, and those whose partitions touch, are run as one
network: chains of dense layers are stacked, in which equal units are computed once.

Both networks are affine on the regions of the common partition, so that their outputs follow from
those at the vertices of their own partitions. Where vertices or edges of the two come so close that
rounding could decide how they lie, there is no overlay, and the networks are run together instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from math import prod

import torch
from torch import Tensor

from splinecam._util.arrays import take
from splinecam._util.tolerances import EPS, OVERLAY_SLACK, SAFETY
from splinecam.engine.activations import empty_table
from splinecam.engine.plan import Plan, overlaying_kernel
from splinecam.engine.run import Outcome, run
from splinecam.engine.step import Report, faces_within, silent
from splinecam.errors import LimitError, option
from splinecam.geometry.domain import Domain
from splinecam.kernels.kernel import Kernel
from splinecam.network.capture.pairs import Pair, Units, chains_of, stacked
from splinecam.network.program import Program

# A value inside a face follows from those at three of its corners. The first lies farthest from the
# middle, the second farthest from the first, and the third farthest from the line through both, so
# that the errors of all add up to no more than this many times the largest one.
_FITTED = 7

# Lines are compared by this many parts of the values at corners, mixed into one number.
_DIGITS, _MIXER = 2.0**30, 0x2545F4914F6CDD1D


def fitted_error(found: Outcome) -> Tensor:
    """The rounding error (n,) of outputs that follow from those at the corners of a face."""
    largest = torch.maximum(found.output.amax(0), -found.output.amin(0))
    return _FITTED * found.error + SAFETY * EPS * largest


def lines_coincide(programs: Sequence[Program], domain: Domain) -> bool:
    """Whether the first layers of two programs have units that vanish on the same line.

    Their partitions then have no overlay. Lines are told by the functions' values at the corners
    of the domain, divided by the largest one. This may overlook some.
    """
    known = []
    for program in programs:
        stage, x = program.stages[0], domain.embed(domain.corners).to(program.device)
        if stage.layer is None:
            return False
        z = program.advance(0, {program.input_name: x})[stage.layer.source].flatten(1)
        z = z[:, (z.amin(0) < 0) & (z.amax(0) > 0)]
        size, place = z.abs().max(0)
        digits = (z / (size * z.gather(0, place[None])[0].sign()) * _DIGITS).round().long()
        factors = torch.arange(1, z.shape[0] + 1, device=z.device) * _MIXER
        known.append((digits * factors[:, None]).sum(0))
    return bool(torch.isin(known[0], known[1]).any())


def overlay_outcomes(
    first: Outcome, second: Outcome, kernel: Kernel, layers: int, max_faces: int
) -> Outcome | str:
    """The common refinement of two outcomes, with the outputs of both side by side.

    layers: those of the first network, after which the second one's are numbered. Returns why there
    is none where edges of both touch ("degenerate"), or where there are "too many faces".
    """
    corners = int((first.mesh.vertex_layer < 0).sum())
    given = first.mesh, second.mesh, corners, OVERLAY_SLACK
    made = kernel.overlay(*given, layers=layers, max_faces=max_faces)
    if isinstance(made, str):
        return made
    shape = (made.mesh.num_vertices, 2 * first.output.shape[1])
    output = empty_table(shape, first.output.device)
    kernel.overlay_values(made, first.output.contiguous(), second.output.contiguous(), output)
    return Outcome(
        made.mesh.kept(),
        output,
        torch.cat([fitted_error(first), fitted_error(second)]),
        first.layer_errors | second.layer_errors,
        first.ambiguities + second.ambiguities,
    )


def run_both(
    pair: Pair,
    domain: Domain,
    plan: Callable[[Program], Plan],
    *,
    max_regions: int | None = None,
    report: Report = silent,
    overlaid: bool = True,
) -> tuple[Outcome, Tensor]:
    """Partition the domain by both networks together.

    Returns the outcome, with the outputs of both side by side, (V, 2 n), and whether each output of
    both is known to be the same function, (n,). Two partitions are laid over each other where that
    can be done; else both networks are run as one. plan: where to run a program; overlaid: whether
    to try the first way.
    """

    def run_one(program: Program, report: Report = report) -> Outcome:
        given = plan(program)
        return run(program, domain, max_regions=max_regions, report=report, plan=given)

    if pair.equal:
        return _repeated(run_one(pair.a))
    where = plan(pair.a)
    kernel = overlaying_kernel(where) if overlaid else None
    # Edges of units that both networks have lie on each other.
    if kernel is None or pair.shared or lines_coincide((pair.a, pair.b), domain):
        return _run_as_one(pair, run_one)
    first, second = run_one(pair.a), run_one(pair.b)
    fits = faces_within(where.first.memory)
    most = fits if max_regions is None else min(fits, max_regions)
    found = overlay_outcomes(first, second, kernel, len(pair.a.layers), most)
    if isinstance(found, Outcome):
        return found, torch.zeros_like(first.error, dtype=torch.bool)
    if found == "too many faces" and most < fits:
        raise LimitError(
            f"The partition of both networks exceeds {option('max_regions', f'{max_regions:,}')}; "
            f"that of the first has {first.mesh.num_faces:,} regions, and that of the second "
            f"{second.mesh.num_faces:,}. Raise {option('max_regions')}, or choose a smaller domain."
        )
    # No share of the work is reported anew.
    again = partial(run_one, report=lambda name, regions, share: report(name, regions, 0.0))
    return _run_as_one(pair, again)


def _run_as_one(pair: Pair, run_one: Callable[[Program], Outcome]) -> tuple[Outcome, Tensor]:
    """Run both networks as one, in which chains of dense layers have equal units only once."""
    chains = chains_of(pair)
    if chains is not None:
        program, units = stacked(pair.a, chains)
        return _separated(run_one(program), program, units, pair)
    found = run_one(pair.joined("both"))
    return found, torch.zeros(
        found.error.shape[0] // 2, dtype=torch.bool, device=found.error.device
    )


def _repeated(found: Outcome) -> tuple[Outcome, Tensor]:
    """The outcome of two equal networks."""
    both = torch.cat([found.output, found.output], 1)
    twice = replace(found, output=both, error=torch.cat([found.error, found.error]))
    return twice, torch.ones_like(found.error, dtype=torch.bool)


def _separated(
    found: Outcome, program: Program, units: Units, pair: Pair
) -> tuple[Outcome, Tensor]:
    """The outcome of stacked networks in terms of the units of each."""
    device, mesh, shared = found.mesh.uv.device, found.mesh, pair.shared
    units = [(a.to(device), b.to(device)) for a, b in units]
    sizes = [prod(layer.shape) for layer in program.layers]
    layers, numbers, errors = [], [], {}
    for i, ((a, b), size) in enumerate(zip(units, sizes, strict=False)):
        layer, number = (torch.full((size,), -1, device=device) for _ in range(2))
        # Units that both have count as those of the first.
        for places, index in ((b, len(pair.a.layers) + i - shared), (a, i)):
            layer[places] = index
            number[places] = torch.arange(places.shape[0], device=device)
        layers.append(layer)
        numbers.append(number)
        error = found.layer_errors[program.layers[i].name].to(device)
        errors[pair.a.layers[i].name] = error[a]
        if i >= shared:
            errors[pair.b.layers[i].name] = error[b]
    edge_layer, edge_unit = mesh.edge_layer, mesh.edge_unit
    if layers:
        first = torch.tensor([0, *accumulate(sizes)], device=device)
        inner = edge_layer >= 0
        place = (first[edge_layer.clamp(min=0)] + edge_unit).clamp(min=0)
        edge_layer = torch.where(inner, torch.cat(layers)[place], edge_layer)
        edge_unit = torch.where(inner, torch.cat(numbers)[place], edge_unit)
    made = torch.full_like(mesh.vertex_layer, -1)
    for index in range(len(pair.a.layers) + len(pair.b.layers) - shared):
        # A vertex is made by the last layer that draws an edge to it.
        edge = (edge_layer == index).nonzero()[:, 0]
        made.index_fill_(0, take(mesh.edges, edge).view(-1), index)
    a, b = units[-1]
    columns = torch.cat([a, b])
    apart = found.output.shape[1] == columns.shape[0]  # no output is common to both
    outcome = replace(
        found,
        mesh=replace(mesh, edge_layer=edge_layer, edge_unit=edge_unit, vertex_layer=made),
        output=found.output if apart else found.output[:, columns],
        error=found.error[columns],
        layer_errors=errors,
    )
    return outcome, a == b
