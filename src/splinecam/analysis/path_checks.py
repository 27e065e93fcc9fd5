"""Validation of the pieces of a path: by themselves, and against the real model."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam._util.csr import take
from splinecam._util.tolerances import EPS, JACOBIAN_PRECISION, SAFETY, VALUE_PRECISION
from splinecam.analysis.path_data import PathData
from splinecam.analysis.pieces import Pieces, piece_inputs, rows_in_pass
from splinecam.analysis.reference_model import CannotRun, Forward, run_real
from splinecam.errors import ValidationError
from splinecam.geometry.checks import Check

__all__ = ["PathReport", "validate"]

_SLOPES = 64  # pieces on which slopes are compared with autograd


@dataclass(frozen=True, repr=False)
class PathReport:
    """All checks of a path, and how many pieces were compared with the real model."""

    checks: tuple[Check, ...]
    pieces: int
    sampled: int

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    def __repr__(self) -> str:
        passed = sum(check.ok for check in self.checks)
        return f"PathReport({passed} of {len(self.checks)} checks passed, {self._extent()})"

    def __str__(self) -> str:
        return "\n".join([self._extent(), *map(str, self.checks)])

    def _extent(self) -> str:
        return f"{self.sampled:,} of {self.pieces:,} pieces compared with the model"


def validate(part: PathData, *, samples: int = 1000, seed: int = 0) -> PathReport:
    """Check the order of the points, and the pieces against the real model.

    Returns a report of the checks, or raises a ``ValidationError`` with those that failed. Outputs
    are compared with the model in float64 at the points and inside the pieces, slopes with its
    gradients; and no unit may switch inside a piece.

    samples: how many pieces are compared at most; seed: determines which.

    >>> import splinecam as sc
    >>> line = sc.Domain.segment([-1.0, -2.0], [3.0, 1.0])
    >>> sc.partition(torch.nn.ReLU(), line, progress=False).validate()
    PathReport(5 of 5 checks passed, 3 of 3 pieces compared with the model)
    """
    if samples < 1:
        raise ValueError(f"samples must be at least 1, not {samples}")
    generator = torch.Generator().manual_seed(seed)
    order = float((part.t.diff() <= 0).sum()) + abs(float(part.t[0])) + abs(1 - float(part.t[-1]))
    checks = [Check("points that are out of order", order, 0)]
    chosen = torch.randperm(len(part), generator=generator)[:samples].sort().values
    chosen = chosen.to(part.t.device)
    with torch.inference_mode(False):
        checks += [_check_switches(part.pieces, chosen), *_check_model(part, chosen)]
    report = PathReport(tuple(checks), len(part), int(chosen.shape[0]))
    if not report.ok and not part.unresolved:
        listed = "\n".join(f"  {check}" for check in checks if not check.ok)
        raise ValidationError(
            f"{part!r} is not valid:\n{listed}\n"
            "If the model was changed since (weights, train mode), partition the path again."
        )
    return report


def _check_switches(pieces: Pieces, chosen: Tensor) -> Check:
    """A check that no unit is on different pieces at two points inside one piece of the path."""
    switched, rows = 0, rows_in_pass(pieces.program)
    ends = [piece_inputs(pieces, share) for share in (0.25, 0.75)]
    with torch.no_grad():
        for some in torch.split(chosen, rows):
            walks = [
                pieces.program.walk(pieces.inputs(segment[some], t[some])) for segment, t in ends
            ]
            apart = torch.zeros(some.shape[0], dtype=torch.bool, device=some.device)
            for (layer, a), (_, b) in zip(*walks, strict=True):
                error = SAFETY * take(pieces.errors[1][layer.name], ends[0][0][some])
                apart |= layer.apart(a, b, error).any(1)
            switched += int(apart.sum())
    return Check("pieces inside which a unit switches", switched, 0)


def _check_model(part: PathData, chosen: Tensor) -> list[Check]:
    """Checks of outputs and slopes against the real model."""
    pieces = part.pieces
    options = (pieces.model, pieces.output, pieces.dtype)
    try:
        with run_real(*options, wide=True, device=part.t.device) as forward:
            values = _check_values(forward, part, chosen, torch.float64)
            return [*values, _check_slopes(forward, part, chosen[:_SLOPES])]
    except CannotRun as error:
        obstacle = error
    try:
        with run_real(*options, wide=False, device=part.t.device) as forward:
            values = _check_values(forward, part, chosen, pieces.dtype)
    except CannotRun as error:
        raise ValidationError(f"{part!r}: the model cannot be run: {error}") from error
    return [*values, Check(f"slopes not compared: {obstacle}", 0, 0)]


def _final(part: PathData, values: Tensor) -> Tensor:
    """The outputs of the model from those of the program, which may lack a final function."""
    if part.program.final is None:
        return values
    shaped = values.view(-1, *part.program.output_shape)
    return part.program.final(shaped).reshape(values.shape)


def _check_values(
    forward: Forward, part: PathData, chosen: Tensor, dtype: torch.dtype
) -> list[Check]:
    """Checks of outputs at the points, and in the middle of the pieces."""
    pieces, begin = part.pieces, part.pieces.before[chosen]
    values, t = pieces.breaks.values, pieces.breaks.t
    spread = float((values.amax(0) - values.amin(0)).max())
    coarse = torch.finfo(dtype).eps / EPS
    noise = SAFETY * float(part.value_error.max()) * coarse
    limit = VALUE_PRECISION * max(spread, EPS * float(values.abs().max())) + noise
    middle = [x[chosen] for x in piece_inputs(pieces)]
    sites = {
        "the points": (pieces.segment[begin], t[begin], values[begin]),
        "the middle of pieces": (*middle, torch.lerp(values[begin], values[begin + 1], 0.5)),
    }
    checks, rows = [], 4 * rows_in_pass(part.program)
    for name, columns in sites.items():
        worst = 0.0
        for own, at, said in zip(*(torch.split(x, rows) for x in columns), strict=True):
            with torch.no_grad():
                off = forward(pieces.inputs(own, at)) - _final(part, said)
            worst = max(worst, float(off.abs().max().nan_to_num(nan=torch.inf)))
        checks.append(Check(f"outputs against the model at {name}", worst, limit))
    return checks


def _check_slopes(forward: Forward, part: PathData, chosen: Tensor) -> Check:
    """A check of the slopes of a sum of all outputs with random signs."""
    pieces = part.pieces
    segment, t = (x[chosen] for x in piece_inputs(pieces))
    way = (pieces.ends - pieces.starts) / part.path.lengths.to(part.t.device)[:, None]
    outputs = part.values.shape[1]
    signs = torch.randint(2, (outputs,), generator=torch.Generator().manual_seed(0))
    signs = (2.0 * signs - 1).to(part.values)
    steepest = float(part.slopes.abs().max()) or 1.0
    noise = SAFETY * float(part.value_error.max())
    limit = (JACOBIAN_PRECISION * steepest + noise) * outputs**0.5
    if part.program.final is not None:
        return Check("slopes not compared, as the final function was left out", 0, 0)
    try:
        with torch.enable_grad():
            x = pieces.inputs(segment, t).requires_grad_()
            (made,) = torch.autograd.grad((forward(x) @ signs).sum(), x, materialize_grads=True)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, CannotRun):
        return Check("slopes not compared, as the model has no gradient", 0, 0)
    along = (made.reshape(chosen.shape[0], -1) * way[segment]).sum(1)
    off = (along - part.slopes[chosen] @ signs).abs().max()
    return Check("slopes against autograd", float(off.nan_to_num(nan=torch.inf)), limit)
