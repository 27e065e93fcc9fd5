"""What callers may give for a device or a limit, and how it is named in an error."""

from __future__ import annotations

import torch

from splinecam._util.amounts import bytes_of
from splinecam.errors import SplineCamError

__all__ = ["device_of", "kind_of", "limit_of", "memory_of"]


def cuda_is_there() -> bool:
    """Whether there is a GPU that torch can use."""
    return torch.cuda.is_available()


def device_of(device: str | torch.device) -> torch.device:
    """The device that is meant; "auto" is a GPU if there is one."""
    there = cuda_is_there()
    if device == "auto":
        return torch.device("cuda" if there else "cpu")
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError):
        chosen = torch.device("meta")
    if chosen.type not in ("cpu", *(["cuda"] if there else [])):
        known = "'auto', 'cpu' or 'cuda'" if there else "'auto' or 'cpu', as there is no CUDA here"
        raise SplineCamError(f"device {device!r} is not available: use {known}.")
    return chosen


def limit_of(name: str, limit: float | None) -> int | None:
    """A limit as a whole number, which may be written as 1e9."""
    if limit is None:
        return None
    whole = isinstance(limit, (int, float)) and float(limit).is_integer()
    if not whole or isinstance(limit, bool):
        raise TypeError(f"{name} must be a whole number or None, not {limit!r}")
    if limit < 1:
        raise ValueError(f"{name} must be at least 1, not {limit}")
    return int(limit)


def memory_of(limit: float | str | None) -> int | None:
    """A limit of memory in bytes, which may be written "4GB".

    >>> memory_of("4GB"), memory_of(2e9)
    (4000000000, 2000000000)
    """
    if not isinstance(limit, str):
        return limit_of("memory", limit)
    found = bytes_of(limit)
    if found is None:
        raise ValueError(
            f'memory is {limit!r}, which is not an amount of memory: write "500MB", "4GB", "4GiB" '
            "or a number of bytes"
        )
    return limit_of("memory", found)


def kind_of(value: object) -> str:
    """What a value is, in words."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
