"""On which device a run begins."""

from __future__ import annotations

from math import prod

import torch
from torch import nn

from splinecam._util.options import device_of

__all__ = ["first_device", "is_light"]

# Networks with more weights or larger inputs begin on the GPU: a CPU needs as long for one point of
# them as a GPU for thousands.
_WEIGHTS, _INPUTS = 1 << 21, 1 << 14


def first_device(
    device: str | torch.device, model: nn.Module, input_shape: tuple[int, ...]
) -> torch.device:
    """The device on which a run begins: the caller's, or the CPU if that is free and pays."""
    last = device_of(device)
    if device != "auto" or last.type == "cpu" or not is_light(model, input_shape):
        return last
    return torch.device("cpu")


def is_light(model: nn.Module, input_shape: tuple[int, ...]) -> bool:
    """Whether a model and its inputs are so small that a run may begin on the CPU."""
    if prod(input_shape) > _INPUTS:
        return False
    return sum(weight.numel() for weight in model.parameters()) <= _WEIGHTS
