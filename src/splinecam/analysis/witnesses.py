"""Inputs that show that a condition on outputs is satisfied, judged by the model itself."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam.analysis.partition_data import PartitionData
from splinecam.analysis.reference_model import run_real
from splinecam.importing.properties import OutputCondition

__all__ = ["Witness", "find_witnesses"]


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
    x = part.inputs(uv) if box is None else _within(part, uv, *box)
    how = {"wide": False, "repeatable": False}
    running = run_real(part.model, part.output, part.dtype, device=x.device, **how)
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
    x = torch.minimum(torch.maximum(exact, lo), hi).to(part.dtype)
    up, down = x.new_tensor(torch.inf), x.new_tensor(-torch.inf)
    x = torch.where(x.double() < lo, torch.nextafter(x, up), x)
    x = torch.where(x.double() > hi, torch.nextafter(x, down), x)
    return x.reshape(-1, *part.domain.input_shape).to(part.domain.origin.device)
