"""Smooth functions against 80 digits of mpmath, their bounds against samples."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import mpmath
import pytest
import torch
from torch import Tensor

from splinecam._util.tolerances import EPS, SINGLE_EPS
from splinecam.network.curves.curve import USUAL_ROUNDING, Curve, RegisteredCurve, Scaled, scaled
from splinecam.network.curves.formulas import (
    COSINE,
    ERF,
    EXP,
    GELU,
    GELU_TANH,
    HARDSWISH,
    MISH,
    SIGMOID,
    SILU,
    SINE,
    SOFTSIGN,
    TANH,
    Wave,
    exponential_linear,
    power,
    softplus,
)
from splinecam.network.curves.tabulated import TabulatedCurve, is_registered, tabulated
from splinecam.network.nonlinearities import apply_curve

Real = Any
mp = mpmath.mp.clone()
mp.dps = 80


def logistic(z: Real) -> Real:
    return 1 / (1 + mp.exp(-z))


def gelu_tanh(z: Real) -> Real:
    return z * logistic(2 * mp.sqrt(2 / mp.pi) * (z + mp.mpf(0.044715) * z**3))


def log_of_exp(beta: float) -> Callable[[Real], Real]:
    def function(z: Real) -> Real:
        scaled = beta * z
        return (max(scaled, mp.mpf(0)) + mp.log1p(mp.exp(-abs(scaled)))) / beta

    return function


def elu(below: float, rate: float, above: float) -> Callable[[Real], Real]:
    return lambda z: above * z if z > 0 else below * mp.expm1(rate * z)


def hardswish(z: Real) -> Real:
    return z * min(max(z + 3, mp.mpf(0)), mp.mpf(6)) / 6


CURVES: list[tuple[Curve, Callable[[Real], Real]]] = [
    (GELU, lambda z: z * mp.erfc(-z / mp.sqrt(2)) / 2),
    (GELU_TANH, gelu_tanh),
    (SILU, lambda z: z * logistic(z)),
    (MISH, lambda z: z * mp.tanh(log_of_exp(1.0)(z))),
    (softplus(1.0, 20.0), log_of_exp(1.0)),
    (softplus(2.5, 20.0), log_of_exp(2.5)),
    (softplus(-1.0), log_of_exp(-1.0)),
    (exponential_linear(0.75), elu(0.75, 1.0, 1.0)),
    (exponential_linear(0.5, 2.0, 1.0, "celu"), elu(0.5, 2.0, 1.0)),
    (exponential_linear(1.75, 1.0, 1.05, "selu"), elu(1.75, 1.0, 1.05)),
    (TANH, mp.tanh),
    (SIGMOID, logistic),
    (HARDSWISH, hardswish),
    (SOFTSIGN, lambda z: z / (1 + abs(z))),
    (ERF, mp.erf),
    (scaled(GELU, 2.0, -1.5), lambda z: -1.5 * z * mp.erfc(1.5 * z / mp.sqrt(2))),
    (scaled(HARDSWISH, -0.5, 2.0), lambda z: -hardswish(2 * z) / 2),
    (SINE, mp.sin),
    (COSINE, mp.cos),
    (EXP, mp.exp),
    (power(2), lambda z: z**2),
    (power(3), lambda z: z**3),
    (power(6), lambda z: z**6),
]
NAMES = [f"{curve.name}-{i}" for i, (curve, _) in enumerate(CURVES)]
every_curve = pytest.mark.parametrize(("curve", "exact"), CURVES, ids=NAMES)

BASE = [0.0, 1e-300, 1e-160, 1e-17, 1e-8, 1.0, 3.0, 20.0, 37.0, 40.0, 700.0, 745.0, 800.0, 1e4]
NEAR = [1e-9, 3 - 1e-9, 3 + 1e-9, 1.4142, 2.3994]  # beside kinks and inflections
HUGE = [1e8, 1e154, 1e155, 1e200, 1.7e308]
STEP = mp.mpf(10) ** -15


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@cache
def levels() -> Tensor:
    nasty = numbers(*BASE, *NEAR)
    return torch.cat([3 * random(30), 30 * random(15), nasty, -nasty])


@cache
def derivatives(index: int) -> list[tuple[Real, Real, Real]]:
    """The function and its derivatives at all levels, by differences over tiny steps."""
    exact, found = CURVES[index][1], []
    for z in map(mp.mpf, levels().tolist()):
        before, at, after = (exact(z + k * STEP) for k in (-1, 0, 1))
        slope = (after - before) / (2 * STEP)
        found.append((at, slope, (after - 2 * at + before) / STEP**2))
    return found


def jumps_of(curve: Curve) -> list[float]:
    """Where the first or the second derivative jumps."""
    return [level for level, _ in (*shape_limits(curve, 0), *shape_limits(curve, 1))]


def shape_limits(curve: Curve, order: int) -> tuple[tuple[float, float], ...]:
    if isinstance(curve, Scaled):
        return tuple((z / curve.rate, x) for z, x in shape_limits(curve.base, order))
    if isinstance(curve, Wave):
        return ()
    return (curve.shape.slope_limits, curve.shape.curvature_limits)[order]


def beside_jumps(curve: Curve, z: float) -> bool:
    return any(abs(z - level) < 1e-12 for level in jumps_of(curve))


@pytest.mark.parametrize("index", range(len(CURVES)), ids=NAMES)
def test_values_and_derivatives_are_accurate(index: int) -> None:
    curve = CURVES[index][0]
    z = levels()
    made = [function(z).tolist() for function in (curve.value, curve.slope, curve.curvature)]
    for at, *found, exact in zip(z.tolist(), *made, derivatives(index), strict=True):
        value, slope, curvature = exact
        if curve is EXP and at > 709:
            assert found == [torch.inf] * 3
            continue
        # Terms of derivatives cancel near zero; far out, a rounded argument is an error of its own.
        noise = 8 * EPS if abs(at) < 5 else 1e-30
        off = [abs(mp.mpf(x) - y) for x, y in zip(found, exact, strict=True)]
        assert (
            off[0] <= 8 * EPS * abs(value) + EPS * abs(at) * (abs(slope) + curve.noise) + 1e-300
        ), at
        if beside_jumps(curve, at):
            continue
        size = max(1, *(abs(x) for x in exact))
        assert off[1] <= EPS * (16 * abs(slope) + 4 * abs(at * curvature)) + noise * size, at
        assert off[2] <= EPS * (16 + 4 * at * at) * abs(curvature) + noise * size, at


@pytest.mark.parametrize("curve", [GELU, GELU_TANH, SILU, TANH, scaled(SILU, 2.0, -1.5)])
def test_values_in_single_precision(curve: Curve) -> None:
    noise = curve.single_noise
    assert noise is not None
    z = torch.cat(
        [4 * random(20_000), 300 * random(5_000), torch.exp(20 * random(5_000)), levels()]
    )
    z = torch.cat([z, -z])
    off = (curve.value(z.float()).double() - curve.value(z)).abs()
    slope = curve.slope_bound(z - 1e-6 * z.abs(), z + 1e-6 * z.abs())
    assert (off <= SINGLE_EPS * ((slope + noise) * z.abs() + 2.0**-64)).all()


@every_curve
def test_nothing_is_lost_far_out(curve: Curve, exact: Callable[[Real], Real]) -> None:
    z = numbers(*HUGE, *(-x for x in HUGE))
    polynomial = isinstance(curve, Scaled) or curve.name.startswith(("square", "power", "exp"))
    for function in (curve.value, curve.slope, curve.curvature):
        found = function(z)
        assert not found.isnan().any()
        assert polynomial or found.isfinite().all()
    ends = numbers(-torch.inf, torch.inf, -torch.inf), numbers(-50.0, torch.inf, torch.inf)
    for bound in (curve.slope_bound, curve.curvature_bound):
        assert not bound(*ends).isnan().any()
    near = curve.derivatives(ends[0], numbers(-60.0, 0.0, 0.0), ends[1])
    assert not any(bound.isnan().any() for bound in near[:5])
    if not polynomial and not isinstance(curve, Wave):
        off = abs(mp.mpf(float(curve.value(numbers(1e8)))) - exact(mp.mpf(1e8)))
        assert off <= 8 * EPS * 1e8


@every_curve
def test_bounds_on_intervals(curve: Curve, exact: Callable[[Real], Real]) -> None:
    middle, width = 4 * random(300), torch.exp(2 * random(300, seed=1) - 2)
    width[100:] *= 10 ** (-4 * torch.rand(200, dtype=torch.float64))
    low, high = middle - width, middle + width
    at = low + (high - low) * torch.rand(300, dtype=torch.float64)
    low[:2], high[:2], at[:2] = 0.0, numbers(0.0, 3.0), 0.0  # an interval that is a point
    share = torch.linspace(0, 1, 1001, dtype=torch.float64)[:, None]
    z = torch.cat([low + (high - low) * share, low[None], high[None]])
    slope, curvature = curve.slope(z), curve.curvature(z)
    near = curve.derivatives(low, at, high)
    rough = 2.0**-5 * near.slope.abs()
    for bound, found, slack in (
        (curve.value_bound(low, high), curve.value(z), 0.0),
        (curve.slope_bound(low, high), slope, 0.0),
        (curve.curvature_bound(low, high), curvature, 0.0),
        (near.largest_slope, slope, rough),
        (near.largest_curvature, curvature, 0.0),
        (near.slope_variation, slope - near.slope, rough),
        (near.curvature_variation, curvature - near.curvature, 0.0),
    ):
        largest = found.abs().amax(0)
        assert (bound >= largest).all()
        close = bound <= (1.02 if isinstance(slack, float) else 1.4) * largest + slack + 1e-9
        assert close.double().mean() > 0.9  # the others have a jump, or an extremum between samples
    assert torch.equal(near.slope, curve.slope(at))
    width = curvature.amax(0) - curvature.amin(0)
    assert (near.curvature_variation <= 0.51 * width + 1e-9).double().mean() > 0.9


@every_curve
def test_bounds_are_sound_where_extrema_are(curve: Curve, exact: Callable[[Real], Real]) -> None:
    """Tiny intervals around every level of the shape, evaluated with 80 digits."""
    if isinstance(curve, Wave):
        found = [0.0, mp.pi / 2, mp.pi, -mp.pi / 2, 100 * mp.pi, 1e8]
    elif isinstance(curve, Scaled):
        levels = () if isinstance(curve.base, Wave) else curve.base.shape.inflections
        found = [*(level / curve.rate for level in levels), *jumps_of(curve), 0.0]
    else:
        shape = curve.shape
        found = [*shape.extrema, *shape.inflections, *shape.curvature_extrema, *jumps_of(curve)]
    for level in map(float, found):
        for left, right in ((1e-7, 1e-7), (0.0, 1e-9), (1e-9, 0.0), (0.0, 0.0)):
            low, high = numbers(level - left), numbers(level + right)
            bounds = [float(f(low, high)) for f in (curve.slope_bound, curve.curvature_bound)]
            for z in (mp.mpf(float(low)), mp.mpf(level), mp.mpf(float(high))):
                sides = (-1, 1) if beside_jumps(curve, float(z)) else (0,)
                for side in sides:
                    middle = z + side * 2 * STEP
                    before, at, after = (exact(middle + k * STEP) for k in (-1, 0, 1))
                    reached = side == 0 or float(low) <= float(z) <= float(high)
                    slack = mp.mpf(10) ** -12 if side else mp.mpf(10) ** -25
                    assert reached
                    assert abs(after - before) / (2 * STEP) <= bounds[0] + slack
                    assert abs(after - 2 * at + before) / STEP**2 <= bounds[1] + slack


@every_curve
def test_levels_of_the_shape_are_roots(curve: Curve, exact: Callable[[Real], Real]) -> None:
    """Derivatives change their sign there, and nowhere else."""
    if isinstance(curve, (Wave, Scaled)):
        pytest.skip("its bounds come from elsewhere")
    grid = torch.linspace(-30, 30, 60001, dtype=torch.float64) + 1e-5
    slope, curvature, shape = curve.slope(grid), curve.curvature(grid), curve.shape
    known = [*shape.inflections, *(level for level, _ in shape.curvature_limits)]
    for i in (curvature[1:] * curvature[:-1] < 0).nonzero()[:, 0].tolist():
        assert any(grid[i] - 1e-3 <= level <= grid[i + 1] + 1e-3 for level in known)
    far = curvature.abs() > 1e-12 * curvature.abs().max()  # elsewhere rounding decides
    third = curvature.diff()
    turning = (third[1:] * third[:-1] < 0) & far[1:-1]
    known = [*shape.curvature_extrema, *(level for level, _ in shape.curvature_limits)]
    for i in turning.nonzero()[:, 0].tolist():
        beside = any(abs(float(grid[i + 1]) - level) < 3e-3 for level in known)
        assert beside or abs(third[i]) < 1e-12 * curvature.abs().max()
    for level, jump in curve.kinks:
        before, after = curve.slope(numbers(level - 1e-9, level + 1e-9)).tolist()
        assert abs(after - before - jump) < 1e-8
    assert all(low < high for low, high in pairwise(shape.inflections))
    assert slope.isfinite().all()


@every_curve
def test_curves_can_be_pickled_and_differentiated(
    curve: Curve, exact: Callable[[Real], Real]
) -> None:
    assert pickle.loads(pickle.dumps(curve)) == curve
    z = torch.cat([random(20), numbers(-800.0, -1e200, 1e-300)]).requires_grad_()
    (slope,) = torch.autograd.grad(apply_curve(z, curve).sum(), z)
    assert torch.equal(slope, curve.slope(z))
    _, along = torch.func.jvp(lambda x: apply_curve(x, curve), (z,), (torch.ones_like(z),))
    assert torch.equal(along, slope)
    each = torch.func.vmap(lambda x: apply_curve(x, curve))(z)
    assert torch.equal(each, curve.value(z))


def test_a_softplus_that_jumps_says_so() -> None:
    curve = softplus(1.0, 20.0)
    z = torch.linspace(15, 25, 1001, dtype=torch.float64)
    off = (torch.nn.functional.softplus(z) - curve.value(z)).abs()
    assert off.max() > 1e-9
    assert (off <= curve.rounding * EPS * curve.value(z)).all()
    smooth = z < curve.rough
    assert 19.9 < z[smooth].max() < 20
    assert (off <= USUAL_ROUNDING * EPS * curve.value(z))[smooth].all()
    assert softplus(-1.0).rounding < 100
    assert softplus(-1.0, 20.0).rough == -math.inf


def test_a_gpu_multiplies_by_a_rounded_sixth() -> None:
    """torch's hardswish on a GPU is off by 2^-25 of itself, which bounds count there."""
    sixth = float(torch.tensor(1 / 6, dtype=torch.float32))
    on_gpu = scaled(HARDSWISH, 2.0, -1.0).to(torch.device("cuda"))
    assert abs(6 * sixth - 1) <= EPS * on_gpu.rounding < 4e-8
    assert on_gpu.to(torch.device("cpu")).rounding == 12


@pytest.mark.parametrize(
    ("curve", "how"), [(GELU, "none"), (GELU_TANH, "tanh")], ids=["gelu", "tanh"]
)
def test_torch_rounds_far_below_zero_no_more_than_noise(curve: Curve, how: str) -> None:
    z = torch.linspace(-12, -3, 1000, dtype=torch.float64)
    off = (torch.nn.functional.gelu(z, approximate=how) - curve.value(z)).abs()
    assert (off <= EPS * (8 * curve.value(z).abs() + curve.noise * z.abs())).all()


def user_function(run: Callable[[Tensor], Tensor], limit: float) -> RegisteredCurve:
    return RegisteredCurve("user", lambda z, _: run(z), lambda *_: limit, ())


SNAKE = user_function(lambda z: z + torch.sin(z) ** 2, 2.0)


@pytest.mark.parametrize("base", [SNAKE, scaled(SNAKE, -0.5, 3.0)], ids=["plain", "scaled"])
def test_a_table_is_near_a_registered_function_and_bounds_its_own_derivatives(base):
    assert is_registered(base)
    found = tabulated(base, *torch.tensor([-9.0, 7.0]).double())
    assert isinstance(found, TabulatedCurve)
    assert 0 < found.off < 1e-7
    z = torch.linspace(-10, 8, 100_001, dtype=torch.float64)
    assert torch.equal(found.value(z), base.value(z))
    # The integral of its slopes is off the function by no more than it says.
    step = z[1] - z[0]
    middle = found.slope((z[1:] + z[:-1]) / 2) * step
    total = torch.cat([middle.new_zeros(1), middle.cumsum(0)]) - (base.value(z) - base.value(z[:1]))
    assert (total.abs() < 2 * found.off + 1e-6).all()
    assert ((found.slope(z) - base.slope(z)).abs() < 1e-3).all()
    generator = torch.Generator().manual_seed(0)
    ends = torch.rand(2, 300, generator=generator).double() * 18 - 10
    ends[1, :150] = ends[0, :150] + 1e-3 * ends[1, :150]
    low, high = ends.amin(0), ends.amax(0)
    inside = low + (high - low) * torch.linspace(0, 1, 501).double()[:, None]
    for order in (0, 1, 2):
        least, most = found.extent(order, low, high)
        numbers = found.derivative(order, inside)
        slack = 1e-12 + (found._noise[order - 1] if order else 0.0)
        assert (least <= numbers.amin(0) + slack).all()
        assert (most >= numbers.amax(0) - slack).all()
    # Within the table bounds are close, which a bound for all arguments is not.
    small = (high - low < 0.1) & (low > -9) & (high < 7)
    curvature = found.derivative(2, inside)
    width = (most - least) - (curvature.amax(0) - curvature.amin(0))
    assert small.sum() > 50
    assert (width[small] < 0.3).all()


def test_functions_that_are_rough_or_not_finite_get_no_table():
    ends = torch.tensor([-9.0, 7.0]).double()
    single = user_function(lambda z: torch.sin(z.float()).double(), 1.0)
    assert tabulated(single, *ends) is single
    assert tabulated(SNAKE, ends[0], ends[0]) is SNAKE
    large = user_function(torch.exp, math.inf)
    assert tabulated(large, *(1e3 * ends)) is large
    assert not is_registered(TANH)
