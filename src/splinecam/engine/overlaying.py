"""Two finished partitions of one domain as one, without running a network again.

Both networks are affine on the regions of the common partition, so that their outputs follow from
those at the vertices of their own partitions. Where vertices or edges of the two come so close that
rounding could decide how they lie, there is no overlay, and the networks are run together instead.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from splinecam._util.tolerances import EPS, OVERLAY_SLACK, SAFETY
from splinecam.engine.activations import empty_table
from splinecam.engine.run import Outcome
from splinecam.geometry.domain import Domain
from splinecam.kernels import Kernel
from splinecam.network.program import Program

__all__ = ["fitted_error", "lines_coincide", "overlay_outcomes"]

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
