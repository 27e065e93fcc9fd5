"""Two finished partitions of one domain as one, without running a network again.

Both networks are affine on the regions of the common partition, so that their outputs follow from
those at the vertices of their own partitions. Where vertices or edges of the two come so close that
rounding could decide how they lie, there is no overlay, and the networks are run together instead.
"""

from __future__ import annotations

import torch
from torch import Tensor

from splinecam._util.tolerances import EPS, OVERLAY_SLACK, SAFETY
from splinecam.engine.activations import empty_table
from splinecam.engine.run import Outcome
from splinecam.kernels import Kernel

__all__ = ["fitted_error", "overlay_outcomes"]

# A value inside a face follows from those at three of its corners. The first lies farthest from the
# middle, the second farthest from the first, and the third farthest from the line through both, so
# that the errors of all add up to no more than this many times the largest one.
_FITTED = 7


def fitted_error(found: Outcome) -> Tensor:
    """The rounding error (n,) of outputs that follow from those at the corners of a face."""
    largest = torch.maximum(found.output.amax(0), -found.output.amin(0))
    return _FITTED * found.error + SAFETY * EPS * largest


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
