"""Points at which a condition holds, looked for before anything is divided."""

from __future__ import annotations

import torch
from torch import Tensor

from splinecam._util.arrays import as_rows
from splinecam.engine.along_segments import errors_along
from splinecam.files.properties import OutputCondition
from splinecam.geometry.domain import Domain
from splinecam.network.program import Program
from splinecam.questions.constraints import margins

_GRID = 16  # points along a side of the domain, at first
_ROUNDS = 1  # in which neighbours of the best points are tried
_BEST = 16  # points of which neighbours are tried, or that are returned


def counterexamples(program: Program, domain: Domain, condition: OutputCondition) -> Tensor:
    """Plane coordinates (N, 2) of a few points at which a condition holds beyond rounding."""
    corners = domain.corners.to(program.device)
    side = corners.roll(-1, 0) - corners
    inwards = torch.stack([-side[:, 1], side[:, 0]])
    low, step = corners.amin(0), (corners.amax(0) - corners.amin(0)) / _GRID
    line = torch.arange(_GRID, dtype=low.dtype, device=low.device)
    beside = torch.cartesian_prod(line[:3] - 1, line[:3] - 1)
    uv = low + (torch.cartesian_prod(line, line) + 0.5) * step
    for _ in range(_ROUNDS + 1):
        uv = uv[(uv @ inwards >= (corners.T * inwards).sum(0)).all(1)]
        x = domain.embed(uv)
        x, y = x.flatten(1), as_rows(program(x))
        margin = margins(condition, x, y, torch.zeros_like(y[0]))
        best = margin.argsort(descending=True)[:_BEST]
        if bool((margin > 0).any()):
            x, y, ends = x[best], y[best], torch.arange(len(best) + 1, device=y.device)
            errors, _ = errors_along(program, x, x, ends, torch.zeros_like(x[:, 0]))
            return uv[best[margins(condition, x, y, errors) > 0]]
        step = step / 3
        uv = (uv[best, None] + beside * step).flatten(0, 1)
    return uv[:0]
