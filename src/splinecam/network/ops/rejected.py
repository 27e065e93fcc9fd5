"""The operations that a piecewise-linear network cannot have, each with its reason."""

from __future__ import annotations

from splinecam.network.curves import Sigmoid, Softplus, Tanh
from splinecam.network.ops.affine import NORM, STATISTICS, TRAINING
from splinecam.network.ops.maxima import SELECTS
from splinecam.network.ops.registry import Rejected, Terminal, register

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

register("softmax _softmax", Terminal("softmax", elementwise=False))
register("log_softmax _log_softmax", Terminal("log_softmax", elementwise=False))
_ALSO_SMOOTH = "stripped when it makes the output; elsewhere replaced with `smooth=`"
register(
    "sigmoid special_expit",
    Terminal("sigmoid", True, lambda call: Sigmoid(), notes=_ALSO_SMOOTH),
)
register(
    "log_sigmoid log_sigmoid_forward",
    Terminal("logsigmoid", True, lambda call: Softplus(-1.0), notes=_ALSO_SMOOTH),
)
register("tanh", Terminal("tanh", True, lambda call: Tanh(), notes=_ALSO_SMOOTH))

register(
    "exp2 expm1 atan atan2 sinh cosh asinh erfc glu sinc special_log_softmax cosine_similarity",
    Rejected(SMOOTH),
)
register(
    "log log2 log10 log1p sqrt rsqrt reciprocal tan asin acos acosh atanh logit",
    Rejected(f"{SMOOTH}, and its second derivative has no bound"),
)
register("logsumexp logaddexp", Rejected(SOFT))
register("smooth_l1_loss huber_loss mse_loss", Rejected(QUADRATIC))
register("std var var_mean std_mean prod cumprod", Rejected(SMOOTH))
register(
    "layer_norm native_layer_norm group_norm native_group_norm rms_norm",
    Rejected(NORM),
)
register("_native_batch_norm_legit_functional _native_batch_norm_legit", Rejected(STATISTICS))
register("native_dropout", Rejected(TRAINING))
register("pow float_power", Rejected(POWER))
register("det linalg_det linalg_inv inverse", Rejected(PRODUCT))
register(
    "scaled_dot_product_attention _native_multi_head_attention _transformer_encoder_layer_fwd "
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention",
    Rejected(ATTENTION),
)
register(
    "floor ceil round trunc fix frac fmod remainder floor_divide hardshrink heaviside "
    "bucketize searchsorted",
    Rejected(JUMP),
)
register(
    "fake_quantize_per_tensor_affine fake_quantize_per_channel_affine quantize_per_tensor "
    "fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask "
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams "
    "fused_moving_avg_obs_fake_quant _fused_moving_avg_obs_fq_helper "
    "_fused_moving_avg_obs_fq_helper_functional quantize_per_channel quantize_per_tensor_dynamic",
    Rejected(ROUNDED),
)
register(
    "eq ne not_equal logical_and logical_or logical_xor isnan isinf isfinite signbit bitwise_and "
    "bitwise_or any all isclose",
    Rejected(MASK),
)
register("argmax argmin argsort mode", Rejected(WINNER))
register(
    "fft_fft fft_fft2 fft_fftn fft_ifft fft_ifft2 fft_ifftn fft_rfft fft_rfft2 fft_rfftn "
    "view_as_complex complex polar stft istft",
    Rejected(COMPLEX),
)
register("max.default min.default", Rejected(MIXES))
register("aminmax", Rejected("it has two results: use amin and amax"))
register("kthvalue median nanmedian quantile nanquantile", Rejected(SELECTS))
register("fractional_max_pool2d fractional_max_pool3d", Rejected(RANDOM))
register("max_unpool2d max_unpool3d", Rejected(PLACES))
register("bernoulli rand_like randn_like randint_like multinomial normal poisson", Rejected(RANDOM))
register("nonzero item _local_scalar_dense _unique2 bincount", Rejected(DATA))
register("lstm gru rnn_tanh lstm_cell gru_cell rnn_tanh_cell", Rejected(SMOOTH))
register("rnn_relu.data", Rejected("it takes packed sequences: give it a tensor"))

SPELLINGS = {
    "aten._native_batch_norm_legit_functional": "aten.batch_norm",
    "aten.native_dropout": "aten.dropout",
}
"""What the user wrote where functionalisation left another name in the graph."""
