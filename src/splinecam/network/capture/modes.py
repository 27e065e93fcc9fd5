"""Modes of torch in which functions may do something else than usual."""

from __future__ import annotations

import torch
from torch.utils._device import DeviceContext

__all__ = ["any_mode"]


def any_mode() -> bool:
    """Whether torch is in a mode that may change results; where tensors are made is none."""
    functions = range(torch._C._len_torch_function_stack())
    others = [i for i in functions if type(torch._C._get_function_stack_at(i)) is not DeviceContext]
    dispatch = torch._C._len_torch_dispatch_stack()
    return bool(others) or dispatch > 0 or torch._C._is_any_autocast_enabled()
