"""The operations that a piecewise-linear network cannot have, each with its reason."""

from __future__ import annotations

from splinecam.ops.affine import STATISTICS, TRAINING
from splinecam.ops.maxima import SELECTS
from splinecam.ops.registry import Rejected, Terminal, register

SMOOTH = "it is not piecewise linear"
NORM = "it divides by a statistic of the activations: not piecewise linear"
PLACES = "it moves values to the places of maxima, which are discontinuous"
SOFT = "it is not piecewise linear: the maximum that it smooths is (amax, maximum)"
LENGTH = (
    "it is not piecewise linear, or not written so: "
    "use abs().sum() for the 1-norm and abs().amax() for the largest modulus"
)
JUMP = "it is discontinuous"
WINNER = "it is discontinuous: return the values that it compares"
MASK = (
    "a mask computed from activations is discontinuous: "
    "write the function with relu, leaky_relu, clamp or maximum"
)
INDICES = "its indices are discontinuous"
CHOICE = (
    "it jumps where its mask changes, unless its two values differ by a constant times what is "
    "compared, as in where(x > 0, x, 0.1 * x)"
)
RANDOM = "it is random"
COMPLEX = "complex numbers are not supported: write a transform as a product with real matrices"
ATTENTION = "attention multiplies activations with each other: not piecewise linear"
MIXES = "it mixes the points of the batch"
PRODUCT = "it multiplies activations with each other: not piecewise linear"
UNKNOWN = "there is no rule for this operation; splinecam.register_op can teach one"
DATA = "its result depends on the data in a way that is not piecewise linear"

register("softmax _softmax", Terminal("softmax", elementwise=False))
register("log_softmax _log_softmax", Terminal("log_softmax", elementwise=False))
register("sigmoid special_expit", Terminal("sigmoid", elementwise=True))
register("log_sigmoid log_sigmoid_forward", Terminal("logsigmoid", elementwise=True))

register(
    "gelu silu mish elu selu celu softplus tanh exp exp2 expm1 log log2 log10 log1p sqrt "
    "rsqrt sin cos tan asin acos atan atan2 sinh cosh asinh acosh atanh erf erfc pow reciprocal "
    "hardswish glu sinc logit special_erf special_log_softmax "
    "cosine_similarity pairwise_distance cdist",
    Rejected(SMOOTH),
)
register("logsumexp logaddexp", Rejected(SOFT))
register("norm linalg_vector_norm linalg_norm", Rejected(LENGTH))
register("std var var_mean std_mean prod cumprod", Rejected(SMOOTH))
register(
    "layer_norm native_layer_norm group_norm native_group_norm instance_norm rms_norm",
    Rejected(NORM),
)
register("_native_batch_norm_legit_functional _native_batch_norm_legit", Rejected(STATISTICS))
register("native_dropout", Rejected(TRAINING))
register("square float_power det linalg_det linalg_inv inverse", Rejected(PRODUCT))
register(
    "scaled_dot_product_attention _native_multi_head_attention _transformer_encoder_layer_fwd "
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention",
    Rejected(ATTENTION),
)
register(
    "sign sgn floor ceil round trunc fix frac fmod remainder floor_divide hardshrink heaviside "
    "fake_quantize_per_tensor_affine quantize_per_tensor bucketize searchsorted nan_to_num",
    Rejected(JUMP),
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
register("nonzero masked_select item _local_scalar_dense _unique2 bincount", Rejected(DATA))
register(
    "lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell", Rejected(SMOOTH)
)

SPELLINGS = {
    "aten._native_batch_norm_legit_functional": "aten.batch_norm",
    "aten.native_dropout": "aten.dropout",
}
"""What the user wrote where functionalisation left another name in the graph."""
