"""Maxima and sorting: the groups of units that are compared with each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from splinecam.network.ops.registry import Call, Maximum, Scatter, Sort, register

__all__ = ["SELECTS"]

SELECTS = "it picks units by their rank: sort them, and pick from the result"

Windows = Callable[[Call, int, int, int], Tensor]
"""A function of a call, a dimension, its size and its number of windows O.

It returns the places (O, K) in that dimension that each window covers, -1 for none.
"""


def _entry(value: Any, i: int) -> int:
    """The i-th of numbers that may be given as one for all."""
    if isinstance(value, int):
        return value
    return int(value[i] if len(value) > 1 else value[0])


def _fixed_windows(call: Call, i: int, size: int, count: int) -> Tensor:
    kernel = _entry(call["kernel_size"], i)
    stride = _entry(call.get("stride") or call["kernel_size"], i)
    first = torch.arange(count) * stride - _entry(call.get("padding", 0), i)
    places = first[:, None] + torch.arange(kernel) * _entry(call.get("dilation", 1), i)
    return torch.where((places >= 0) & (places < size), places, -1)


def _adaptive_windows(call: Call, i: int, size: int, count: int) -> Tensor:
    window = torch.arange(count)
    first, end = window * size // count, -((window + 1) * -size // count)
    places = first[:, None] + torch.arange(int((end - first).max()))
    return torch.where(places < end[:, None], places, -1)


def _pool(windows: Windows, dims: int) -> Callable[[Call, Tensor, list[int]], Tensor | str]:
    """The groups of a pooling: windows over the last dimensions, each a product of places."""

    def members(call: Call, index: Tensor, shape: list[int]) -> Tensor | str:
        sizes = index.shape[-dims:]
        plane = torch.arange(sizes.numel()).view(sizes)
        for i in range(dims):
            places = windows(call, i, sizes[i], shape[i - dims])
            last = places.amax(1, keepdim=True)
            if bool((last < 0).any()):
                return "one of its windows holds nothing but padding"
            # Padding never wins: it is replaced by a place that the window covers.
            places = torch.where(places < 0, last, places)
            picked = torch.unflatten(plane.index_select(i, places.flatten()), i, places.shape)
            plane = picked.movedim(i + 1, -1)
        flat = plane.flatten(-dims).to(index.device)
        return index.flatten(-dims)[..., flat]

    return members


def _reduced(call: Call, index: Tensor, shape: list[int]) -> Tensor:
    """All units in the given dimensions, or all units."""
    dims = call.get("dim")
    dims = [dims] if isinstance(dims, int) else list(dims or range(index.dim()))
    last = list(range(-len(dims), 0))
    return index.movedim(dims, last).reshape(*shape, -1)


def _largest_of_all(call: Call, index: Tensor, shape: list[int]) -> Tensor | str:
    if call["k"] != 1:
        return SELECTS
    if call.get("largest") is False:
        return "of the smallest unit: use amin"
    return _reduced(call, index, shape)


def _prefixes(call: Call, index: Tensor, shape: list[int]) -> Tensor:
    """All units up to each one; the places of later ones are filled with the unit itself."""
    place = torch.arange(index.shape[call["dim"]], device=index.device)
    upto = torch.minimum(place[:, None], place)
    return index.movedim(call["dim"], -1)[..., upto].movedim(-2, call["dim"] % index.dim())


def _sorted(call: Call, index: Tensor) -> Tensor:
    return index.movedim(call.get("dim", -1), -1)


def _sorted_first(call: Call, index: Tensor) -> Tensor:
    return index.movedim(0, -1)


for _dims in (1, 2, 3):
    register(
        f"max_pool{_dims}d max_pool{_dims}d_with_indices",
        Maximum(_pool(_fixed_windows, _dims), notes="strided, padded, dilated; the values only"),
    )
    register(
        f"adaptive_max_pool{_dims}d",
        Maximum(_pool(_adaptive_windows, _dims), notes="the values only"),
    )
register("amax", Maximum(_reduced, notes="over features"))
register("amin", Maximum(_reduced, smallest=True, notes="over features"))
register("max.dim", Maximum(_reduced, notes="over features; the values only"))
register("min.dim", Maximum(_reduced, smallest=True, notes="over features; the values only"))
register("topk", Maximum(_largest_of_all, notes="the largest only, over features; its value only"))
register("cummax", Maximum(_prefixes, notes="over features; the values only"))
register("cummin", Maximum(_prefixes, smallest=True, notes="over features; the values only"))
register("sort", Sort(_sorted, notes="over features; the values only"))
register("msort", Sort(_sorted_first, notes="where the batch is not the first dimension"))
register("scatter_reduce", Scatter("src", whole=False))
register("index_reduce", Scatter("source", whole=True))
