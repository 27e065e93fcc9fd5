"""What every computation takes, for the overloads of the public functions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypedDict

import torch
from torch import nn

from splinecam._captured import Captured
from splinecam.network.capture.outputs import Output

__all__ = ["Model", "Options"]

Model = nn.Module | Captured | str | os.PathLike[str]


class Options(TypedDict, total=False):
    """What ``partition`` and ``sweep`` take, whatever they return."""

    output: Output
    device: str | torch.device
    memory: float | str | None
    max_regions: float | None
    names: Sequence[str] | None
    progress: bool
