"""The other operations: piecewise linear, maxima and sorting, smooth, rejected, and written out.

A mask is a comparison of activations. It may choose between values that agree at its border.

sigmoid, tanh and logsigmoid are smooth, too, but have the rules of terminal operations, because
they are left out at the end of a network.

Recurrent layers, distances, norms and losses are written out as other operations. The functions
that do so take ``emit``, which adds a call to the graph and returns its result, and the arguments
of the operation as values of the graph. They return what stands for the operation's result, or the
reason against the call.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import inf
from typing import Any

import torch
from torch import Tensor

from splinecam.network.curves import formulas
from splinecam.network.curves.curve import Curve
from splinecam.network.ops import registry as ops
from splinecam.network.ops.affine import NORM, STATISTICS, TRAINING, each_axis
from splinecam.network.ops.registry import Call, CompositeRule, Emitter, Knots, register
from splinecam.network.values import MANY_POINTS


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


def _fixed_windows(call: Call, i: int, size: int, count: int) -> Tensor:
    kernel = each_axis(call["kernel_size"], i + 1)[i]
    stride = each_axis(call.get("stride") or call["kernel_size"], i + 1)[i]
    first = torch.arange(count) * stride - each_axis(call.get("padding", 0), i + 1)[i]
    places = first[:, None] + torch.arange(kernel) * each_axis(call.get("dilation", 1), i + 1)[i]
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
        return index.flatten(-dims)[..., plane.flatten(-dims).to(index.device)]

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


_REJECTED = {
    SMOOTH: "exp2 expm1 atan atan2 sinh cosh asinh erfc glu sinc special_log_softmax "
    "cosine_similarity std var var_mean std_mean prod cumprod lstm gru rnn_tanh lstm_cell gru_cell "
    "rnn_tanh_cell",
    f"{SMOOTH}, and its second derivative has no bound": (
        "log log2 log10 log1p sqrt rsqrt reciprocal tan asin acos acosh atanh logit"
    ),
    SOFT: "logsumexp logaddexp",
    QUADRATIC: "smooth_l1_loss huber_loss mse_loss",
    NORM: "layer_norm native_layer_norm group_norm native_group_norm rms_norm",
    STATISTICS: "_native_batch_norm_legit_functional _native_batch_norm_legit",
    TRAINING: "native_dropout",
    POWER: "pow float_power",
    PRODUCT: "det linalg_det linalg_inv inverse",
    ATTENTION: "scaled_dot_product_attention _native_multi_head_attention "
    "_transformer_encoder_layer_fwd _scaled_dot_product_flash_attention_for_cpu "
    "_scaled_dot_product_efficient_attention",
    JUMP: "floor ceil round trunc fix frac fmod remainder floor_divide hardshrink heaviside "
    "bucketize searchsorted",
    ROUNDED: "fake_quantize_per_tensor_affine fake_quantize_per_channel_affine quantize_per_tensor "
    "fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask "
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams fused_moving_avg_obs_fake_quant "
    "_fused_moving_avg_obs_fq_helper _fused_moving_avg_obs_fq_helper_functional "
    "quantize_per_channel quantize_per_tensor_dynamic",
    MASK: "eq ne not_equal logical_and logical_or logical_xor isnan isinf isfinite signbit "
    "bitwise_and bitwise_or any all isclose",
    WINNER: "argmax argmin argsort mode",
    COMPLEX: "fft_fft fft_fft2 fft_fftn fft_ifft fft_ifft2 fft_ifftn fft_rfft fft_rfft2 fft_rfftn "
    "view_as_complex complex polar stft istft",
    MIXES: "max.default min.default",
    "it has two results: use amin and amax": "aminmax",
    SELECTS: "kthvalue median nanmedian quantile nanquantile",
    RANDOM: "fractional_max_pool2d fractional_max_pool3d bernoulli rand_like randn_like "
    "randint_like multinomial normal poisson",
    PLACES: "max_unpool2d max_unpool3d",
    DATA: "nonzero item _local_scalar_dense _unique2 bincount",
    "it takes packed sequences: give it a tensor": "rnn_relu.data",
}
for _reason, _names in _REJECTED.items():
    register(_names, ops.RejectedRule(_reason))

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

# -- written out as others ----------------------------------------------------------------------

_ATEN = torch.ops.aten
_MEAN, _SUM = 1, 2  # how torch numbers the reductions of a loss


def _cell(emit: Emitter, call: Call) -> Any:
    """One step of a recurrent layer."""
    x = emit(_ATEN.linear.default, call["input"], call["w_ih"], call["b_ih"])
    h = emit(_ATEN.linear.default, call["hx"], call["w_hh"], call["b_hh"])
    return emit(_ATEN.relu.default, emit(_ATEN.add.Tensor, x, h))


def _layers(emit: Emitter, call: Call) -> Any:
    """All layers of a recurrent network, time step by time step: its outputs and last states."""
    if call["train"] and call["dropout"] > 0:
        return TRAINING
    time = 1 if call["batch_first"] else 0
    steps = emit.shape(call["input"])[time]
    if not isinstance(steps, int) or steps >= MANY_POINTS:
        return MIXES
    directions = 2 if call["bidirectional"] else 1
    size = 4 if call["has_biases"] else 2
    weights = [call["params"][i : i + size] for i in range(0, len(call["params"]), size)]
    states = emit(_ATEN.unbind.int, call["hx"], 0)
    x, last = call["input"], []
    for layer in range(call["num_layers"]):
        outputs = []
        for i in range(layer * directions, (layer + 1) * directions):
            h = emit(operator.getitem, states, i)
            backward = i % directions == 1
            hidden = _direction(emit, x, h, weights[i], time, range(steps), backward)
            last.append(hidden[-1])
            hidden = hidden[::-1] if backward else hidden
            outputs.append(emit(_ATEN.stack.default, hidden, time))
        x = outputs[0] if directions == 1 else emit(_ATEN.cat.default, outputs, -1)
    return x, emit(_ATEN.stack.default, last, 0)


def _direction(
    emit: Emitter, x: Any, h: Any, weights: Any, time: int, steps: range, backward: bool
) -> list[Any]:
    """The states of one layer in one direction, in the order in which they are computed."""
    w_ih, w_hh, b_ih, b_hh = [*weights, None, None][:4]
    driven = emit(_ATEN.linear.default, x, w_ih, b_ih)
    states = []
    for t in reversed(steps) if backward else steps:
        now = emit(_ATEN.select.int, driven, time, t)
        before = emit(_ATEN.linear.default, h, w_hh, b_hh)
        h = emit(_ATEN.relu.default, emit(_ATEN.add.Tensor, now, before))
        states.append(h)
    return states


def _norm(emit: Emitter, x: Any, p: Any, dims: list[int], keepdim: bool) -> Any:
    """The p-norm over dimensions, if it is piecewise linear."""
    if p == 0:
        return f"{JUMP}: it counts entries that are not zero"
    if p not in (1, inf, -inf):
        return LENGTH
    x = emit(_ATEN.abs.default, x)
    if p == 1:
        return emit(_ATEN.sum.dim_IntList, x, dims, keepdim)
    return emit(_ATEN.amax.default if p == inf else _ATEN.amin.default, x, dims, keepdim)


def _vector_norm(emit: Emitter, call: Call) -> Any:
    p = call.get("ord", call.get("p", 2))
    dims = call.get("dim")
    dims = [dims] if isinstance(dims, int) else list(dims or range(len(emit.shape(call["self"]))))
    return _norm(emit, call["self"], 2 if p is None else p, dims, bool(call.get("keepdim")))


def _matrix_norm(emit: Emitter, call: Call) -> Any:
    dims = call.get("dim")
    one = isinstance(dims, int) or (dims is not None and len(dims) == 1)
    return _vector_norm(emit, call) if one and not isinstance(call["ord"], str) else LENGTH


def _pairwise_distance(emit: Emitter, call: Call) -> Any:
    difference = emit(_ATEN.sub.Tensor, call["x1"], call["x2"])
    difference = emit(_ATEN.add.Scalar, difference, call["eps"])
    return _norm(emit, difference, call["p"], [-1], call["keepdim"])


def _cdist(emit: Emitter, call: Call) -> Any:
    first = emit(_ATEN.unsqueeze.default, call["x1"], -2)
    second = emit(_ATEN.unsqueeze.default, call["x2"], -3)
    return _norm(emit, emit(_ATEN.sub.Tensor, first, second), call["p"], [-1], False)


def _l1_loss(emit: Emitter, call: Call) -> Any:
    each = emit(_ATEN.abs.default, emit(_ATEN.sub.Tensor, call["self"], call["target"]))
    if call["reduction"] == _MEAN:
        return emit(_ATEN.mean.default, each)
    return emit(_ATEN.sum.default, each) if call["reduction"] == _SUM else each


def _masked_select(emit: Emitter, call: Call) -> Any:
    """The entries that a mask picks for each point, one point after the other."""
    x, mask = call["self"], call["mask"]
    shape, given = emit.shape(x), emit.shape(mask)
    if len(given) == len(shape) and given[0] == 1:
        mask, given = emit(_ATEN.select.int, mask, 0, 0), given[1:]
    inner = shape[len(shape) - len(given) :]
    if len(given) >= len(shape) or any(m not in (1, n) for m, n in zip(given, inner, strict=True)):
        return "its mask must be one for all points, and no larger than what it picks from"
    mask = emit(_ATEN.expand.default, mask, inner)
    skipped = [None] * (len(shape) - len(given))
    picked = emit(_ATEN.index.Tensor, x, [*skipped, mask])
    return emit(_ATEN.reshape.default, picked, [-1])


register("rnn_relu_cell", CompositeRule(_cell, notes="linear and relu"))
_STEPS = "linear and relu, for every time step; eval mode"
register("rnn_relu.input", CompositeRule(_layers, notes=_STEPS))
_WHICH = "of order 1, or infinite"
register("linalg_vector_norm norm", CompositeRule(_vector_norm, notes=f"{_WHICH}; over features"))
register("linalg_norm", CompositeRule(_matrix_norm, notes=f"of vectors, {_WHICH}; over features"))
register("pairwise_distance", CompositeRule(_pairwise_distance, notes=_WHICH))
register("cdist", CompositeRule(_cdist, notes=_WHICH))
register("l1_loss", CompositeRule(_l1_loss, notes="for each point of the batch on its own"))
register("masked_select", CompositeRule(_masked_select, constants=("mask",), notes="constant mask"))
