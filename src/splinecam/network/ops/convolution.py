"""Convolutions in float64, by the method that is fastest on a device.

On a CPU torch copies the windows of a whole batch before it multiplies, far more numbers than the
cache holds: a few images at a time are up to twice as fast. On CUDA its convolutions do not use the
matrix units for float64; a product with a matrix whose columns are the windows does
(``as_product``). A convolution of each channel by itself is a sum of shifted images: on a CPU torch
convolves one channel after the other, which is a hundred times as slow (``depthwise``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from operator import mul
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from splinecam._util.backend import backend_of

__all__ = ["as_product", "convolution", "depthwise"]

# Numbers in the windows of one image from which on a CPU convolves as many images at a time as it
# has threads.
_CACHED = 1 << 18

# On CUDA a product is faster where windows are long and there are enough channels. Measured on an
# H200: 1.3 to 4 times as fast from 64 numbers and 8 channels on, but slower for the 27 numbers of a
# first layer, and for windows of one pixel, which need no copy.
_LONG, _MANY = 1 << 6, 1 << 3
_COLUMNS = 1 << 26  # numbers in the windows that are copied at a time

# Images with fewer windows than this share one matrix. The others have a matrix each, which has the
# layout of the result.
_FEW = 1 << 6


def convolution(run: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function with the arguments and results of the convolution ``run``, but faster."""

    def convolve(
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        def plain(part: Tensor) -> Tensor:
            return run(part, weight, bias, stride, padding, dilation, groups)

        if x.dim() != weight.dim() or isinstance(padding, str):
            return plain(x)
        steps = [_each(item, weight.dim() - 2) for item in (stride, padding, dilation)]
        backend = backend_of(x.device)
        if backend.slow_windows and groups == x.shape[1] > 1:
            return depthwise(x, weight, bias, *steps)
        window = prod(weight.shape[1:])
        size = groups * window * _places(x, weight, steps)
        if backend.slow_windows and size > _CACHED:
            return _in_parts(plain, x, torch.get_num_threads())
        if backend.convolves_by_product and groups == 1 and _pays(weight):
            rows = max(1, _COLUMNS // size)
            return _in_parts(lambda part: as_product(part, weight, bias, *steps), x, rows)
        return plain(x)

    return convolve


def as_product(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    """A convolution of x (B, C, *size) with weight (O, C, *kernel) as a product of matrices."""
    batch, outputs, dims = x.shape[0], weight.shape[0], weight.dim()
    windows = pad(x, [n for width in reversed(padding) for n in (width, width)])
    axes = range(2, dims)
    for axis, step, gap in zip(axes, stride, dilation, strict=True):
        reach = gap * (weight.shape[axis] - 1) + 1
        windows = windows.unfold(axis, reach, step)[..., ::gap]
    shape, inner = windows.shape[2:dims], range(dims, windows.dim())
    shared = prod(shape) < _FEW
    order = (1, *inner, 0, *axes) if shared else (0, 1, *inner, *axes)
    count = 1 if shared else batch
    columns = windows.permute(order).reshape(count, prod(weight.shape[1:]), -1)
    factor = weight.reshape(1, outputs, -1).expand(count, -1, -1)
    if bias is None:
        product = torch.bmm(factor, columns)
    else:
        product = torch.baddbmm(bias[:, None], factor, columns)
    if shared:
        product = product.view(outputs, batch, -1).transpose(0, 1).contiguous()
    return product.view(batch, outputs, *shape)


def depthwise(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    """A convolution of x (B, C, *size) with weight (C * m, 1, *kernel), m for each channel.

    Each image is one long row of pixels, along which it is shifted.
    """
    borders = [n for width in reversed(padding) for n in (width, width)]
    sizes = [n + 2 * width for n, width in zip(x.shape[2:], padding, strict=True)]
    strides = [prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    reach = [gap * (k - 1) for gap, k in zip(dilation, weight.shape[2:], strict=True)]
    length = prod(sizes) - sum(map(mul, reach, strides))
    taps = list(product(*map(range, weight.shape[2:])))
    starts = [sum(map(mul, map(mul, tap, dilation), strides)) for tap in taps]
    factors = weight.reshape(weight.shape[0], -1, 1)
    copies = weight.shape[0] // x.shape[1]
    places = [slice(0, n - far, step) for n, far, step in zip(sizes, reach, stride, strict=True)]

    def convolve(part: Tensor) -> Tensor:
        rows = pad(part, borders).flatten(2)
        rows = rows.repeat_interleave(copies, 1) if copies > 1 else rows
        total = rows[:, :, :length] * factors[:, 0]
        for k, start in enumerate(starts[1:], 1):
            total.addcmul_(rows[:, :, start : start + length], factors[:, k])
        total = total if bias is None else total.add_(bias[:, None])
        whole: Tensor = pad(total, [0, prod(sizes) - length]).view(*total.shape[:2], *sizes)
        return whole[:, :, *places].contiguous()

    return _in_parts(convolve, x, max(1, _CACHED // (copies * prod(x.shape[1:]))))


def _pays(weight: Tensor) -> bool:
    """Whether a product of matrices is faster on CUDA."""
    outputs, window = weight.shape[0], prod(weight.shape[1:])
    return outputs >= _MANY and window >= _LONG and prod(weight.shape[2:]) > 1


def _each(value: Any, count: int) -> list[int]:
    """One number for each axis, from one for all or one for each."""
    numbers = [value] if isinstance(value, int) else list(value)
    return numbers * count if len(numbers) == 1 else numbers


def _places(x: Tensor, weight: Tensor, steps: list[list[int]]) -> int:
    """How many windows an image has."""
    sizes = zip(x.shape[2:], weight.shape[2:], *steps, strict=True)
    return prod((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes)


def _in_parts(apply: Callable[[Tensor], Tensor], x: Tensor, rows: int) -> Tensor:
    """Apply a function to so many images at a time."""
    if x.shape[0] <= rows:
        return apply(x)
    return torch.cat([apply(part) for part in torch.split(x, rows)])
