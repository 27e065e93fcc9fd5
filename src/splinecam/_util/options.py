"""What callers may give: devices, limits, numbers and points, checked and converted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from splinecam._util.text import bytes_of
from splinecam.errors import DomainError, SplineCamError, option


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
        named = option(f"device {device!r}", flag=f"--device {device}")
        raise SplineCamError(f"{named} is not available: use {known}.")
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


def as_float64(value: Any, name: str) -> Tensor:
    """A detached float64 tensor of ``value``, a tensor, an array or nested lists of numbers."""
    try:
        if isinstance(value, Tensor):
            tensor = value.detach()
        elif isinstance(value, (list, tuple)) and any(isinstance(v, Tensor) for v in value):
            tensor = torch.stack([as_float64(v, name) for v in value])
        else:
            tensor = torch.from_numpy(np.array(value))
    except (TypeError, ValueError, RuntimeError) as error:
        raise DomainError(
            f"{name} is not an array of numbers ({error}). Give a tensor, an array or nested "
            "lists, with all points of the same shape."
        ) from error
    if tensor.is_complex():
        raise DomainError(f"{name} is complex; a domain needs real numbers.")
    return tensor.to(torch.float64)


def as_tensor(value: Any, name: str) -> Tensor:
    """A float64 copy of ``value`` on the CPU."""
    return as_float64(value, name).cpu().clone()


def finite(value: Any, name: str) -> Tensor:
    """A float64 copy of ``value`` on the CPU; an entry that is not finite is an error."""
    return require_finite(as_tensor(value, name), name)


def require_finite(tensor: Tensor, name: str) -> Tensor:
    """The same tensor; an entry that is not finite is an error."""
    bad = (~tensor.isfinite()).nonzero()
    if len(bad):
        where = "".join(f"[{int(i)}]" for i in bad[0])
        entry = float(tensor[tuple(bad[0])])
        raise DomainError(f"{name}{where} is {entry}; all coordinates must be finite numbers.")
    return tensor


def pair(value: Any, name: str) -> Tensor:
    """Two finite numbers, (2,); a single one is repeated."""
    tensor = finite(value, name)
    if tensor.numel() not in (1, 2):
        raise DomainError(
            f"{name} has {tensor.numel()} numbers; give one number or a pair. For inputs of more "
            f"than two numbers choose a plane with {option('Domain.slice')}, {option('through')}, "
            f"{option('around')} or {option('polygon')}."
        )
    return tensor.reshape(-1).expand(2)


def points_of(points: Any) -> tuple[Tensor, tuple[int, ...]]:
    """At least three points ``(k, *shape)``, flattened to ``(k, D)``, and their shape."""
    x = finite(points, "points")
    if x.ndim < 2 or len(x) < 3:
        count = len(x) if x.ndim else 0
        raise DomainError(
            f"points has shape {tuple(x.shape)}: {count} point(s), but a polygon needs at least "
            "three. Give them as (k, *input_shape), k >= 3."
        )
    shape = tuple(x.shape[1:])
    if math.prod(shape) < 2:
        raise DomainError(
            f"Each point has shape {shape}, but a plane needs inputs of at least two numbers."
        )
    return x.reshape(len(x), -1), shape


def batch_of(x: Any) -> tuple[Tensor, tuple[int, ...]]:
    """A batch of at least two inputs, flattened to ``(N, D)``, and the shape of one."""
    batch = finite(x, "x")
    shape = tuple(batch.shape[1:])
    if math.prod(shape) < 2 or len(batch) < 2:
        raise DomainError(
            f"x has shape {tuple(batch.shape)}: give a batch (N, *input_shape) of at least two "
            "inputs, each of two numbers or more. For a single input use "
            f"{option('Domain.around')}."
        )
    return batch.reshape(len(batch), -1), shape


def positive(value: float, name: str) -> None:
    """Raise an error if ``value`` is not a finite number above 0."""
    if not (math.isfinite(value) and value > 0):
        raise DomainError(f"{name} is {value}; give a finite number above 0.")


def single_of(x: Any) -> tuple[Tensor, tuple[int, ...]]:
    """A single input, flat ``(D,)``, and its shape."""
    single = finite(x, "x")
    if single.numel() < 2:
        raise DomainError(
            f"x has {single.numel()} number(s), but a plane needs inputs of at least two numbers."
        )
    return single.reshape(-1), tuple(single.shape)


def samples_of(**samples: Any) -> tuple[Tensor, tuple[int, ...]]:
    """Samples ``(k, D)`` that are given one by one, and their common shape."""
    found = {name: finite(value, name) for name, value in samples.items()}
    shape, *others = (tuple(each.shape) for each in found.values())
    count = {2: "two", 3: "three", 4: "four"}[len(found)]
    if any(other != shape for other in others):
        shapes = ", ".join(f"{name} {tuple(t.shape)}" for name, t in found.items())
        raise DomainError(
            f"The {count} samples differ in shape: {shapes}. Give {count} single samples of the "
            "model's input shape, without a batch dimension."
        )
    if math.prod(shape) < 2:
        raise DomainError(
            f"The samples have shape {shape}, but a plane needs inputs of at least two numbers."
        )
    return torch.stack(list(found.values())).reshape(len(found), -1), shape
