"""The non-linear operations: piecewise linear, maxima and sorting, smooth, and rejected ones.

A mask is a comparison of activations. It may choose between values that agree at its border.

sigmoid, tanh and logsigmoid are smooth, too, but have the rules of terminal operations, because
they are left out at the end of a network.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import torch
from torch import Tensor

from splinecam.network.curves import formulas
from splinecam.network.curves.curve import Curve
from splinecam.network.ops import registry as ops
from splinecam.network.ops.affine import NORM, STATISTICS, TRAINING
from splinecam.network.ops.registry import Call, Knots, register


def _prelu(call: Call) -> Knots:
    z, weight = call["self"], call["weight"]
    if weight.numel() > 1 and z.dim() > 1 and weight.dim() == 1:
        weight = weight.view(1, -1, *([1] * (z.dim() - 2)))
    return (0.0,), (weight, 1.0)


def _rrelu(call: Call) -> Knots | str:
    if call.get("training"):
        return TRAINING
    return (0.0,), ((call.get("lower", 1 / 8) + call.get("upper", 1 / 3)) / 2, 1.0)


def _between(low: Any, high: Any) -> Knots:
    """The identity cut off below ``low`` and above ``high``; constant if they leave no room."""
    middle: Any = 1.0
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        middle = torch.where(torch.as_tensor(low < high), 1.0, 0.0).to(torch.float64)
    elif low >= high:
        middle = 0.0
    return (low, high), (0.0, middle, 0.0)


def _leaky_relu(call: Call) -> Knots:
    return (0.0,), (call.get("negative_slope", 0.01), 1.0)


def _hardtanh(call: Call) -> Knots:
    return _between(call.get("min_val", -1.0), call.get("max_val", 1.0))


def _maximum(call: Call) -> Knots:
    return (call["constant"],), (0.0, 1.0)


def _minimum(call: Call) -> Knots:
    return (call["constant"],), (1.0, 0.0)


def _clamp(call: Call) -> Knots:
    low, high = call.get("min"), call.get("max")
    return _between(-inf if low is None else low, inf if high is None else high)


def _softshrink(call: Call) -> Knots:
    width = call.get("lambd", 0.5)
    return (-width, width), (1.0, 0.0, 1.0)


def _threshold(call: Call) -> Knots | str:
    if call["threshold"] != call["value"]:
        return "it jumps at its threshold: discontinuous unless threshold equals value"
    return (float(call["threshold"]),), (0.0, 1.0)


def _hardsigmoid(x: Tensor) -> Tensor:
    """The derivative in torch's own version is rounded to float32, also in float64."""
    return (x + 3).clamp(0, 6) / 6


def _piecewise(names: str, knots: Knots | Callable[[Call], Knots | str], **fields: Any) -> None:
    register(names, ops.PiecewiseRule(knots, **fields))


_piecewise("relu", ((0.0,), (0.0, 1.0)), notes="knot 0")
_piecewise("relu6", ((0.0, 6.0), (0.0, 1.0, 0.0)), notes="knots 0 and 6")
_piecewise("abs absolute", ((0.0,), (-1.0, 1.0)), notes="knot 0")
_piecewise("leaky_relu", _leaky_relu, exact=False, notes="knot 0")
_piecewise("prelu _prelu_kernel", _prelu, exact=False, notes="knot 0, slope per channel")
_piecewise("rrelu", _rrelu, exact=False, notes="knot 0; eval mode")
_piecewise("hardtanh", _hardtanh, notes="knots at both ends")
_piecewise("softshrink", _softshrink, exact=False, notes="knots at plus and minus lambda")
_piecewise("threshold", _threshold, notes="only where threshold equals value")
_piecewise(
    "hardsigmoid",
    ((-3.0, 3.0), (0.0, 1 / 6, 0.0)),
    exact=False,
    run=_hardsigmoid,
    notes="knots -3 and 3",
)
_piecewise(
    "clamp clip clamp_min clamp_max",
    _clamp,
    pairs=(("min", False), ("max", True)),
    notes="knots at the given ends; or ends that are activations",
)
_OF_TWO: Any = {"source": ("self", "other"), "notes": "with a constant, or of two activations"}
_piecewise("maximum fmax max.other", _maximum, pairs=(("other", False),), **_OF_TWO)
_piecewise("minimum fmin min.other", _minimum, pairs=(("other", True),), **_OF_TWO)

register("gt ge greater greater_equal", ops.ComparisonRule(("self", "other")))
register("lt le less less_equal", ops.ComparisonRule(("other", "self")))
register("logical_not bitwise_not", ops.ComparisonRule(None, notes="of a mask"))
_ZERO = "times a value that is zero where the sign changes"
register("sign sgn", ops.ComparisonRule(None, signed=True, notes=_ZERO))

SELECTS = "it picks units by their rank: sort them, and pick from the result"

Members = Callable[[Call, Tensor, list[int]], Tensor | str]
Windows = Callable[[Call, int, int, int], Tensor]
"""From a call, a dimension, its size and its number of windows O to their places (O, K), or -1."""


def _entry(value: Any, i: int) -> int:
    """The i-th number of several, or the one number for all."""
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


def _pool(windows: Windows, dims: int) -> Members:
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
    return index.movedim(call.get("dim", 0), -1)  # msort takes no dimension


def _maxima(names: str, members: Members, *, smallest: bool = False, notes: str) -> None:
    register(names, ops.MaximumRule(members, smallest, notes))


for _dims in (1, 2, 3):
    _names = f"max_pool{_dims}d max_pool{_dims}d_with_indices"
    _fixed, _adaptive = _pool(_fixed_windows, _dims), _pool(_adaptive_windows, _dims)
    _maxima(_names, _fixed, notes="strided, padded, dilated; the values only")
    _maxima(f"adaptive_max_pool{_dims}d", _adaptive, notes="the values only")
_maxima("amax", _reduced, notes="over features")
_maxima("amin", _reduced, smallest=True, notes="over features")
_maxima("max.dim", _reduced, notes="over features; the values only")
_maxima("min.dim", _reduced, smallest=True, notes="over features; the values only")
_maxima("topk", _largest_of_all, notes="the largest only, over features; its value only")
_maxima("cummax", _prefixes, notes="over features; the values only")
_maxima("cummin", _prefixes, smallest=True, notes="over features; the values only")
register("sort", ops.SortRule(_sorted, notes="over features; the values only"))
register("msort", ops.SortRule(_sorted, notes="where the batch is not the first dimension"))
register("scatter_reduce", ops.ScatterRule("src", whole=False))
register("index_reduce", ops.ScatterRule("source", whole=True))

SMOOTH = "it is not piecewise linear"
PLACES = "it moves values to the places of maxima, which are discontinuous"
UNPOOLED = (
    "max_unpool moves values to the places of its maxima, which are discontinuous: "
    "use interpolate or a transposed convolution instead"
)
CONSTANT_PLACES = "with constant indices it is affine: write it with scatter, which is supported"
SOFT = "it is not piecewise linear: the maximum that it smooths is (amax, maximum)"
LENGTH = "it is not piecewise linear: only norms of order 1 and infinity are"
JUMP = "it is discontinuous, also with a straight-through gradient, which changes backward only"
ROUNDED = "it rounds, which is discontinuous: partition the float model, before it is quantised"
WINNER = "it is discontinuous: return the values that it compares"
MASK = (
    "a mask computed from activations is discontinuous: "
    "write the function with relu, leaky_relu, clamp or maximum"
)
INDICES = "its indices are discontinuous"
CHOICE = (
    "it jumps where its mask changes, or cannot be shown not to: its two values must agree there, "
    "as in where(x > 0, x, 0.1 * x)"
)
RANDOM = "it is random"
COMPLEX = "complex numbers are not supported: write a transform as a product with real matrices"
ATTENTION = (
    "attention multiplies activations with each other: splinecam.freeze holds it at one input"
)
MIXES = "it mixes the points of the batch"
PRODUCT = (
    "it multiplies activations with each other: at best piecewise quadratic, not piecewise linear"
)
POWER = "it is not piecewise linear: a square, for one, is piecewise quadratic"
QUADRATIC = "it is piecewise quadratic, not piecewise linear"
UNKNOWN = "there is no rule for this operation; splinecam.register_op adds one"
DATA = "its result depends on the data in a way that is not piecewise linear"

register("softmax _softmax", ops.TerminalRule("softmax", elementwise=False))
register("log_softmax _log_softmax", ops.TerminalRule("log_softmax", elementwise=False))
_ALSO_SMOOTH = "stripped when it makes the output; elsewhere replaced with `smooth=`"
for _names, _label, _curve in (
    ("sigmoid special_expit", "sigmoid", formulas.SIGMOID),
    ("log_sigmoid log_sigmoid_forward", "logsigmoid", formulas.softplus(-1.0)),
    ("tanh", "tanh", formulas.TANH),
):
    register(_names, ops.TerminalRule(_label, True, _curve, notes=_ALSO_SMOOTH))


def _reject(names: str, reason: str) -> None:
    register(names, ops.RejectedRule(reason))


_reject(
    "exp2 expm1 atan atan2 sinh cosh asinh erfc glu sinc special_log_softmax cosine_similarity",
    SMOOTH,
)
_reject(
    "log log2 log10 log1p sqrt rsqrt reciprocal tan asin acos acosh atanh logit",
    f"{SMOOTH}, and its second derivative has no bound",
)
_reject("logsumexp logaddexp", SOFT)
_reject("smooth_l1_loss huber_loss mse_loss", QUADRATIC)
_reject("std var var_mean std_mean prod cumprod", SMOOTH)
_reject("layer_norm native_layer_norm group_norm native_group_norm rms_norm", NORM)
_reject("_native_batch_norm_legit_functional _native_batch_norm_legit", STATISTICS)
_reject("native_dropout", TRAINING)
_reject("pow float_power", POWER)
_reject("det linalg_det linalg_inv inverse", PRODUCT)
_reject(
    "scaled_dot_product_attention _native_multi_head_attention _transformer_encoder_layer_fwd "
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention",
    ATTENTION,
)
_reject(
    "floor ceil round trunc fix frac fmod remainder floor_divide hardshrink heaviside "
    "bucketize searchsorted",
    JUMP,
)
_reject(
    "fake_quantize_per_tensor_affine fake_quantize_per_channel_affine quantize_per_tensor "
    "fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask "
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams "
    "fused_moving_avg_obs_fake_quant _fused_moving_avg_obs_fq_helper "
    "_fused_moving_avg_obs_fq_helper_functional quantize_per_channel quantize_per_tensor_dynamic",
    ROUNDED,
)
_reject(
    "eq ne not_equal logical_and logical_or logical_xor isnan isinf isfinite signbit bitwise_and "
    "bitwise_or any all isclose",
    MASK,
)
_reject("argmax argmin argsort mode", WINNER)
_reject(
    "fft_fft fft_fft2 fft_fftn fft_ifft fft_ifft2 fft_ifftn fft_rfft fft_rfft2 fft_rfftn "
    "view_as_complex complex polar stft istft",
    COMPLEX,
)
_reject("max.default min.default", MIXES)
_reject("aminmax", "it has two results: use amin and amax")
_reject("kthvalue median nanmedian quantile nanquantile", SELECTS)
_reject("fractional_max_pool2d fractional_max_pool3d", RANDOM)
_reject("max_unpool2d max_unpool3d", PLACES)
_reject("bernoulli rand_like randn_like randint_like multinomial normal poisson", RANDOM)
_reject("nonzero item _local_scalar_dense _unique2 bincount", DATA)
_reject("lstm gru rnn_tanh lstm_cell gru_cell rnn_tanh_cell", SMOOTH)
_reject("rnn_relu.data", "it takes packed sequences: give it a tensor")

SPELLINGS = {
    "aten._native_batch_norm_legit_functional": "aten.batch_norm",
    "aten.native_dropout": "aten.dropout",
}
"""What the user wrote where functionalisation left another name in the graph."""

_LARGEST_JUMP = 1e-6  # of torch's softplus at its threshold, relative to its value
_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


def _gelu(call: Call) -> Curve:
    return formulas.GELU_TANH if call.get("approximate") == "tanh" else formulas.GELU


def _softplus(call: Call) -> Curve | str:
    beta, threshold = float(call.get("beta", 1)), float(call.get("threshold", 20))
    if beta == 0 or threshold <= 0:
        return "it jumps at its threshold: give it a positive threshold, and a beta that is not 0"
    jump = formulas.softplus_jump(threshold)
    if jump > _LARGEST_JUMP:
        return (
            f"it jumps at its threshold of {threshold:g} by {jump:.1g} of its value: give it "
            "the threshold 20, as torch does by default"
        )
    return formulas.softplus(beta, threshold)


def _elu(call: Call) -> Curve | str:
    alpha, scale = float(call.get("alpha", 1)), float(call.get("scale", 1))
    return _exponential_linear(scale * alpha, float(call.get("input_scale", 1)), scale, "elu")


def _celu(call: Call) -> Curve | str:
    alpha = float(call.get("alpha", 1))
    return _exponential_linear(alpha, 1 / alpha if alpha else 0.0, 1.0, "celu")


def _exponential_linear(below: float, rate: float, above: float, kind: str) -> Curve | str:
    if not rate > 0:
        return f"the rate of its exponential, {rate:g}, is not positive"
    return formulas.exponential_linear(below, rate, above, kind)


def _power(call: Call) -> Curve | str:
    exponent = call["exponent"]
    if isinstance(exponent, (int, float)) and exponent >= 2 and exponent == int(exponent):
        return formulas.power(int(exponent))
    return (
        f"its exponent is {exponent}: only powers with a whole exponent of at least 2 have a "
        "second derivative that is bounded on every range"
    )


_SELU = formulas.exponential_linear(_SELU_SCALE * _SELU_ALPHA, 1.0, _SELU_SCALE, "selu")


def _smooth(names: str, curve: Curve | Callable[[Call], Curve | str], **fields: str) -> None:
    register(names, ops.SmoothRule(curve, **fields))


_smooth("gelu", _gelu, notes="exact, or by tanh")
_smooth("silu", formulas.SILU)
_smooth("mish", formulas.MISH)
_smooth("softplus", _softplus, notes="beta; with a threshold of at least 12")
_smooth("elu", _elu, notes="with a kink at 0, unless alpha is 1")
_smooth("celu", _celu)
_smooth("selu", _SELU, notes="with a kink at 0")
_smooth("hardswish", formulas.HARDSWISH, reason=QUADRATIC, notes="with kinks at -3 and 3")
_smooth("erf special_erf", formulas.ERF)
_smooth("sin", formulas.SINE)
_smooth("cos", formulas.COSINE)
_smooth("exp", formulas.EXP, notes="where it is finite")
_smooth("square", formulas.power(2), reason=QUADRATIC)
_smooth("pow.Tensor_Scalar", _power, reason=POWER, notes="whole exponents of at least 2")
