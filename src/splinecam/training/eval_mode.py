"""Eval mode for a while, after which the model and all random states are as before."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from torch import nn

from splinecam.network.capture.isolation import unwrap

__all__ = ["temporary_eval_mode"]


@contextmanager
def temporary_eval_mode(model: nn.Module) -> Iterator[None]:
    """Put a model into eval mode, and restore its modes and all random states at the end.

    The flags ``training`` are set one by one: ``train`` and ``eval`` of a module may do more, such
    as merging weights. Gradients and autocast are off inside.
    """
    modes = [(module, module.training) for module in unwrap(model).modules()]
    with ExitStack() as stack:
        stack.enter_context(_same_random_state())
        stack.enter_context(torch.no_grad())
        for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
            stack.enter_context(torch.autocast(device, enabled=False))
        try:
            for module, _ in modes:
                module.training = False
            yield
        finally:
            for module, mode in modes:
                module.training = mode


@contextmanager
def _same_random_state() -> Iterator[None]:
    """Restore the random states of torch on all devices in use, of numpy and of Python."""
    used = torch.cuda.is_available() and bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
    devices = list(range(torch.cuda.device_count())) if used else []
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)  # noqa: NPY002
