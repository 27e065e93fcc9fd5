"""The affine operations, among them convolutions by the method that is fastest on a device.

On a CPU torch copies the windows of a whole batch in float64 before it multiplies, far more numbers
than the cache holds: a few images at a time are up to twice as fast. On CUDA its convolutions in
float64 do not use the matrix units; a product with a matrix whose columns are the windows does
(``as_product``). A convolution of each channel by itself is a sum of shifted images: on a CPU torch
convolves one channel after the other in float64, which is a hundred times as slow (``depthwise``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from operator import mul
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear, pad

from splinecam._util.backend import backend_of
from splinecam._util.tolerances import EPS
from splinecam.network.ops.bounds import root_of_squares
from splinecam.network.ops.registry import Call, affine

# If the windows of an image have more numbers, a CPU convolves one image per thread at a time.
_CACHED = 1 << 18

# On CUDA a product is faster where windows are long and there are enough channels. Measured on an
# H200: 1.3 to 4 times as fast from 64 numbers and 8 channels on, but slower for the 27 numbers of a
# first layer, and for windows of one pixel, which need no copy. In single precision, a third of the
# time for 512 channels of 4 x 4 pixels, but twice the time for 64 of 32 x 32.
_LONG, _MANY = 1 << 6, 1 << 3
_SMALL, _FULL = 1 << 4, 1 << 12  # places of an image, and of all images together
_COLUMNS = 1 << 26  # numbers in the windows that are copied at a time
_FEW = 1 << 6  # images with fewer windows share one matrix; others have one in the result's layout


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
        steps = [each_axis(item, weight.dim() - 2) for item in (stride, padding, dilation)]
        backend = backend_of(x.device)
        double = x.dtype == torch.float64  # other types have kernels that are fast everywhere
        slow = double and backend.slow_windows
        if slow and groups == x.shape[1] > 1:
            return depthwise(x, weight, bias, *steps)
        size = groups * prod(weight.shape[1:]) * _places(x, weight, steps)
        if slow and size > _CACHED:
            return _in_parts(plain, x, torch.get_num_threads())
        long = prod(weight.shape[1:]) >= _LONG and prod(weight.shape[2:]) > 1
        if not (backend.convolves_by_product and groups == 1 and long):
            return plain(x)
        places = _places(x, weight, steps)
        small = x.dtype == torch.float32 and places <= _SMALL and len(x) * places >= _FULL
        if (double or small) and weight.shape[0] >= _MANY:
            rows = max(1, _COLUMNS // size)
            return _in_parts(lambda part: as_product(part, weight, bias, *steps), x, rows)
        return plain(x)

    return convolve


def as_product(x: Tensor, weight: Tensor, bias: Tensor | None, *steps: Sequence[int]) -> Tensor:
    """A convolution of x (B, C, *size) as a product; steps: stride, padding and dilation."""
    stride, padding, dilation = steps
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


def depthwise(x: Tensor, weight: Tensor, bias: Tensor | None, *steps: Sequence[int]) -> Tensor:
    """A convolution of x (B, C, *size) with weight (C * m, 1, *kernel), m for each channel."""
    # Each image is one long row of pixels, along which it is shifted.
    stride, padding, dilation = steps
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


def each_axis(value: Any, count: int) -> list[int]:
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


TRAINING = "it is random in training mode: call model.eval() first"
STATISTICS = (
    "it uses the statistics of the batch, as in training mode: call model.eval() first, "
    "and let it track running statistics"
)
NORM = "it divides by a statistic of the activations: splinecam.freeze holds it at one input"


def _running_statistics(call: Call) -> str | None:
    if not call.get("use_input_stats"):
        return None
    return NORM if call.get("running_mean") is None else STATISTICS


def _instance_norm(x: Tensor, weight: Any, bias: Any, mean: Tensor, *rest: Any) -> Tensor:
    """Instance normalisation with running statistics, which is batch normalisation with them."""
    var, _, _, eps, *_ = rest
    return torch.batch_norm(x, weight, bias, mean, var, False, 0.0, eps, False)


def _batch_norm(call: Call) -> tuple[Tensor, Tensor]:
    """Fixed statistics make it ``scale * x + shift``, per channel."""
    (magnitude, error), mean = call["input"], call["running_mean"]
    scale = torch.rsqrt(call["running_var"] + call["eps"])
    if call.get("weight") is not None:
        scale = scale * call["weight"]
    shift = -mean * scale
    if call.get("bias") is not None:
        shift = shift + call["bias"]
    # The operation subtracts the mean before it scales, so that the mean counts in full.
    size = (1, -1, *([1] * (magnitude.dim() - 2)))
    offset = (mean * scale).abs() + (shift + mean * scale).abs()
    scale, offset = scale.abs().view(size), offset.view(size)
    bound = scale * magnitude + offset
    return bound, scale * error + EPS * bound


def _moduli(value: Any) -> tuple[Tensor, Tensor]:
    """The moduli of a factor, and the squares of its coefficients, or of its errors."""
    if isinstance(value, Tensor):
        return value.abs(), value * value
    magnitude, error = value
    return magnitude, error * error


def _linear(call: Call) -> tuple[Tensor, Tensor]:
    weight, bias = call["weight"], call.get("bias")
    parts = [weight]
    if isinstance(weight, Tensor) and weight.dim() == 2:  # the moduli of all may not fit the memory
        rows = max(1, backend_of(weight.device).moduli // max(1, weight.shape[1]))
        parts = list(torch.split(weight, rows)) if rows < weight.shape[0] else parts
    moduli, squares = _moduli(call["input"])
    found = [(linear(moduli, a), linear(squares, b)) for a, b in map(_moduli, parts)]
    bound, variance = found[0]
    if len(found) > 1:
        bound, variance = (torch.cat(part, -1) for part in zip(*found, strict=True))
    if bias is not None:
        bound, variance = bound + bias[0], variance + bias[1] * bias[1]

    def total() -> Tensor:
        both = call["input"], weight
        made = linear(*(x.abs() if isinstance(x, Tensor) else x[1] for x in both))
        return made if bias is None else made + bias[1]

    return bound, root_of_squares(variance, total) + EPS * bound


def _lerp(call: Call) -> tuple[Tensor, Tensor]:
    (m0, e0), (m1, e1) = call["self"], call["end"]
    weight = torch.as_tensor(call["weight"], dtype=m0.dtype, device=m0.device)
    near, far = (1 - weight).abs(), weight.abs()
    bound = near * m0 + far * m1
    return bound, near * e0 + far * e1 + EPS * bound


def _bicubic(call: Call) -> tuple[Tensor, Tensor]:
    # The weights of the cubic kernel add up to less than 2 in modulus.
    magnitude, error = call["self"] if "self" in call else call["input"]
    out = call["run"]().shape
    wide = [2 * part.amax((-2, -1), keepdim=True).expand(out) for part in (magnitude, error)]
    return wide[0], wide[1] + EPS * wide[0]


def _add(a: Any, b: Any, alpha: Any = 1) -> Any:
    return a + alpha * b


def _radd(a: Any, b: Any, alpha: Any = 1) -> Any:
    return alpha * a + b


def _add_neighbours(x: Tensor, n: int = 1, dim: int = -1, *edges: Any) -> Tensor:
    for _ in range(n):
        size = x.shape[dim]
        x = x.narrow(dim, 1, size - 1) + x.narrow(dim, 0, size - 1)
    return x


def _same(x: Any, *args: Any, **kwargs: Any) -> Any:
    return x


def _copy(x: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    return src.expand(x.shape)


def _needs_dims(call: Call) -> str | None:
    return None if call.get("dims") else "it mixes the points of the batch (no dimension is given)"


def _adds_only(call: Call) -> str | None:
    reduce = call.get("reduce")
    return None if reduce in (None, "sum", "add") else "it multiplies or compares activations"


def _plain_division(call: Call) -> str | None:
    return None if call.get("rounding_mode") is None else "it rounds, which is discontinuous"


_OR_MASK = "or a mask on whose border the two values agree"

# Sums with constant coefficients.
_WEIGHTED: Any = {"product": ("input", "weight"), "data": ("bias",)}
_CONVOLVED = "constant weights; strided, padded, dilated, grouped"
affine("linear", bound=_linear, notes="constant weights", **_WEIGHTED)
for _name in ("conv1d", "conv2d", "conv3d"):
    affine(_name, run=convolution(getattr(torch, _name)), notes=_CONVOLVED, **_WEIGHTED)
_names = "convolution conv_transpose1d conv_transpose2d conv_transpose3d"
affine(_names, notes=_CONVOLVED, **_WEIGHTED)
_FACTORS = ("self", "other", "mat2", "vec", "vec2")
_ONE = "one factor constant"
_OR_ZERO = f"{_ONE}, or a mask on whose border the other is zero"
affine("mm bmm matmul mv outer inner tensordot", product=_FACTORS, data=(), notes=_ONE)
affine("mul multiply", product=("self", "other"), data=(), notes=_OR_ZERO)
affine("einsum", product=("tensors",), data=(), notes="one operand an activation")
affine(
    "addmm baddbmm addmv addr",
    product=("mat1", "mat2", "batch1", "batch2", "mat", "vec", "vec1", "vec2"),
    data=("self",),
    factor=("beta", "alpha"),
    notes=_ONE,
)
_BILINEAR: Any = {"product": ("input1", "input2", "weight"), "data": ("bias",)}
affine("bilinear", notes="one input an activation", **_BILINEAR)
_DIVIDED: Any = {"check": _plain_division, "notes": "constant divisor"}
affine("div divide true_divide", data=("self",), factor=("other",), **_DIVIDED)
affine("addcmul", product=("tensor1", "tensor2"), factor=("value",), notes=_ONE)
affine("addcdiv", data=("self", "tensor1"), factor=("tensor2", "value"), notes="constant divisor")
affine("add", data=("self", "other"), factor=("alpha",))
affine("sub subtract", data=("self", "other"), factor=("alpha",), absolute=_add)
affine("rsub", data=("self", "other"), factor=("alpha",), absolute=_radd)
affine("neg negative", exact=True, absolute=_same)
affine("lerp", data=("self", "end"), bound=_lerp, notes="constant weight")
affine("diff", data=("self", "prepend", "append"), absolute=_add_neighbours, dims=("dim",))
affine("sum mean nansum", dims=("dim",), notes="over features")
affine("cumsum", dims=("dim",), notes="over features")

# Normalisation with fixed statistics.
affine(
    "batch_norm",
    data=("input",),
    bound=_batch_norm,
    check=lambda call: STATISTICS if call.get("training") else None,
    notes="eval mode",
)
affine(
    "instance_norm",
    data=("input",),
    run=_instance_norm,
    bound=_batch_norm,
    check=_running_statistics,
    notes="eval mode, with running statistics",
)
affine(
    "_native_batch_norm_legit_no_training native_batch_norm",
    data=("input",),
    bound=lambda call: (_batch_norm(call),),
    check=lambda call: STATISTICS if call.get("training") else None,
    notes="eval mode",
)

# Pooling and resampling.
affine(
    "avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d "
    "adaptive_avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d"
)
affine(
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d "
    "_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d",
    exact=True,
)
affine("upsample_linear1d upsample_bilinear2d upsample_trilinear3d _upsample_bilinear2d_aa")
affine("upsample_bicubic2d _upsample_bicubic2d_aa", bound=_bicubic)
affine("grid_sampler grid_sampler_2d", notes="constant grid")
affine("im2col", exact=True, notes="`nn.Unfold`")
affine("col2im", notes="`nn.Fold`")

# Nothing but the shape changes.
affine(
    "view reshape _unsafe_view flatten unflatten squeeze unsqueeze "
    "atleast_1d atleast_2d atleast_3d",
    reshapes=True,
)
affine("view_as reshape_as", reshapes=True, shape_only=("other",))
affine("expand_as", exact=True, shape_only=("other",))
affine(
    "expand broadcast_to broadcast_tensors permute transpose t numpy_T mT movedim moveaxis "
    "swapaxes swapdims adjoint contiguous clone alias pixel_shuffle pixel_unshuffle "
    "channel_shuffle",
    exact=True,
)
affine("unfold", exact=True, dims=("dimension",))
affine(
    "to _to_copy type_as",
    identity=True,
    shape_only=("other",),
    notes="all arithmetic is float64, so a conversion between floating types changes nothing",
)
affine("detach positive", identity=True)
affine("nan_to_num", identity=True, notes="activations are finite, so it changes nothing")
affine(
    "dropout feature_dropout alpha_dropout feature_alpha_dropout",
    identity=True,
    check=lambda call: TRAINING if call.get("train") else None,
    notes="eval mode",
)

# Parts of a tensor, and tensors put together.
affine("cat concat concatenate", exact=True, dims=("dim",), notes="over features")
affine("stack hstack dstack column_stack", exact=True)
affine(
    "split split_with_sizes chunk unbind tensor_split hsplit dsplit unsafe_chunk "
    "unsafe_split unsafe_split_with_sizes",
    exact=True,
    dims=("dim",),
    notes="over features",
)
affine("select slice narrow diagonal diag_embed", exact=True, notes="over features")
affine("index_select gather take_along_dim", exact=True, dims=("dim",), notes="constant indices")
affine("index _unsafe_index", exact=True, notes="constant indices")
affine("flip", exact=True, dims=("dims",), notes="over features")
affine("roll", exact=True, dims=("dims",), check=_needs_dims, notes="over features")
affine("rot90", exact=True, dims=("dims",), notes="over features")
affine("repeat_interleave", exact=True, notes="constant counts")
affine("fliplr repeat tile tril triu", exact=True)
affine("pad constant_pad_nd", offset=("value",), exact=True)
affine(
    "reflection_pad1d reflection_pad2d reflection_pad3d "
    "replication_pad1d replication_pad2d replication_pad3d",
    exact=True,
)
affine("where", data=("self", "other"), exact=True, notes=f"constant condition, {_OR_MASK}")
affine("masked_fill", offset=("value",), exact=True, notes=f"constant mask, {_OR_MASK}")
affine("select_scatter slice_scatter diagonal_scatter", data=("self", "src"), exact=True)
affine("copy", data=("self", "src"), exact=True, run=_copy)
affine("index_put _unsafe_index_put", data=("self", "values"), notes="constant indices")
affine("index_copy", data=("self", "source"), exact=True, dims=("dim",), notes="constant indices")
affine("index_fill", offset=("value",), exact=True, dims=("dim",), notes="constant indices")
affine(
    "index_add", data=("self", "source"), factor=("alpha",), dims=("dim",), notes="constant indices"
)
affine(
    "scatter scatter_add",
    data=("self", "src"),
    offset=("value",),
    dims=("dim",),
    check=_adds_only,
    notes="constant indices",
)

_LIKE = ("zeros_like", "ones_like", "full_like", "empty_like", "fill")
_NEW = ("new_zeros", "new_ones", "new_full", "new_empty")
CREATORS = frozenset(f"aten.{name}" for name in (*_LIKE, *_NEW))
"""Operations that read an activation for its shape only: their result is a constant."""
