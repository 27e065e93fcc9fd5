"""Smooth functions that the user registers with a bound on their second derivative."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam.errors import UnsupportedOpError
from splinecam.network.capture import capture
from splinecam.network.nonlinearities import SmoothScalar
from splinecam.network.program import Program
from splinecam.parallel.flat import join, load, parts_of


class Snake(nn.Module):
    """``x + sin(rate x)^2 / rate``, whose second derivative is at most ``2 rate``."""

    def __init__(self, rate: float = 1.0) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.tensor(rate))

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.sin(self.rate * x) ** 2 / self.rate


class Function(nn.Module):
    """Any function of the tests."""

    def __init__(self, call: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.call = call

    def forward(self, x: Tensor) -> Tensor:
        return self.call(x)


@torch.library.custom_op("splinecamtests::bump", mutates_args=())
def bump(x: Tensor, rate: float) -> Tensor:
    return torch.exp(-rate * x * x)


bump.register_fake(lambda x, rate: torch.empty_like(x))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.rate = inputs[1]


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
    (x,) = ctx.saved_tensors
    return -2 * ctx.rate * x * torch.exp(-ctx.rate * x * x) * gradient, None


bump.register_autograd(_backward, setup_context=_keep)


class Bump(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return bump(x, 0.5)


@contextmanager
def registered(target: Any, **how: Any) -> Iterator[None]:
    with sc.register_op(target, **how):
        yield


def network(act: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 5), act, nn.Linear(5, 3))


def read(act: nn.Module) -> Program:
    return capture(network(act), (2,), smooth=True)


def check(program: Program, model: nn.Module) -> SmoothScalar:
    """The one layer of a network; bounds hold on random intervals."""
    (layer,) = program.layers
    assert isinstance(layer, SmoothScalar)
    generator = torch.Generator().manual_seed(0)
    x = 3 * torch.randn(50, 2, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(program(x), model.double()(x), rtol=1e-13, atol=1e-13)
    curve = layer.curve
    low = 3 * torch.randn(40, generator=generator, dtype=torch.float64)
    high = low + torch.rand(40, generator=generator, dtype=torch.float64)
    at = low + (high - low) / 3
    share = torch.linspace(0, 1, 101, dtype=torch.float64)[:, None]
    z = (low + share * (high - low)).requires_grad_()
    slope = curve.slope(z)
    assert (curve.value(z).abs() <= curve.value_bound(low, high)).all()
    assert (slope.abs() <= curve.slope_bound(low, high)).all()
    assert (curve.curvature(z).abs() <= curve.curvature_bound(low, high)).all()
    near = curve.derivatives(low, at, high)
    assert (slope.abs() <= near.largest_slope).all()
    assert ((slope - near.slope).abs() <= near.slope_variation).all()
    off = (curve.curvature(z) - near.curvature).abs()
    assert (off <= near.curvature_variation).all()
    (by_layer,) = torch.autograd.grad(layer.apply(z).sum(), z)
    torch.testing.assert_close(by_layer, slope)
    return layer


def test_a_module_with_a_number() -> None:
    with registered(Snake, curvature=2.0):
        layer = check(read(Snake()), network(Snake()))
        assert (layer.name, layer.curve.name) == ("1", "Snake")
        with pytest.raises(UnsupportedOpError, match=r"registered as smooth.*smooth=1e-3"):
            capture(network(Snake()), (2,))


def test_a_module_whose_bound_depends_on_its_parameters_and_on_the_interval() -> None:
    with registered(Snake, curvature=lambda module, low, high: 2 * module.rate):
        check(read(Snake(3.0)), network(Snake(3.0)))
    cube = Function(lambda x: x**3)
    with registered(Function, curvature=lambda _, low, high: 6 * torch.maximum(-low, high).abs()):
        layer = check(read(cube), network(cube))
        ends = torch.tensor([0.5], dtype=torch.float64), torch.tensor([1.0], dtype=torch.float64)
        assert float(layer.curve.curvature_bound(*ends)) == pytest.approx(6)


def test_an_operator_with_its_other_arguments() -> None:
    with registered("splinecamtests::bump", curvature=lambda low, high, rate: 2 * rate):
        check(read(Bump()), network(Bump()))
    with registered("splinecamtests::bump", curvature=1.0):
        check(read(Bump()), network(Bump()))


@pytest.mark.parametrize(
    ("target", "act"), [(Snake, Snake), ("splinecamtests::bump", Bump)], ids=["module", "operator"]
)
def test_it_can_be_pickled_and_moved(target: Any, act: type[nn.Module]) -> None:
    with registered(target, curvature=2.0):
        program = read(act())
        copy = load(join(parts_of(program))).to("cpu")
        x = torch.ones(1, 2, dtype=torch.float64)
        assert torch.equal(copy(x), program(x))


PER_CHANNEL = torch.linspace(1, 2, 5, dtype=torch.float64)

WRONG = {
    "a bound that is too small": (lambda x: torch.sin(3 * x), 8.9, "larger than curvature=8.9"),
    "a kink": (torch.relu, 1.0, "second derivative|bends"),
    "a jump": (torch.floor, 1.0, "it jumps or bends there"),
    "a step without a slope": (torch.sign, 5.0, "it jumps or bends there"),
    "a root": (lambda x: x.abs().sqrt(), 100.0, "jumps or bends|larger|not finite"),
    "a logarithm": (torch.log, 1.0, "it has no bound near"),
    "no bound": (torch.sin, lambda _, low, high: torch.inf, "it has no bound near"),
    "a negative bound": (torch.sin, lambda _, low, high: -1 - 0 * low, "is negative"),
    "a bound of another shape": (torch.sin, lambda _, low, high: torch.ones(3), "cannot be comp"),
    "entries together": (lambda x: x - x.mean(1, keepdim=True), 1.0, "same function of one"),
    "functions by channels": (lambda x: torch.sin(PER_CHANNEL * x), 4.0, "same function|fails"),
    "no derivative": (lambda x: torch.sin(x.detach()), 1.0, "a derivative by autograd"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_hold_is_refused(name: str) -> None:
    call, curvature, reason = WRONG[name]
    with (
        registered(Function, curvature=curvature),
        pytest.raises(UnsupportedOpError, match=reason) as caught,
    ):
        read(Function(call))
    (op,) = caught.value.ops
    assert (op.name, op.target) == ("1", "Function")


@pytest.mark.parametrize(
    ("how", "error", "reason"),
    [
        ({}, ValueError, "give either"),
        ({"affine": True, "curvature": 1.0}, ValueError, "give either"),
        ({"curvature": "1"}, TypeError, "a number or a function"),
        ({"curvature": True}, TypeError, "a number or a function"),
        ({"curvature": -1.0}, ValueError, "finite bound"),
        ({"curvature": float("inf")}, ValueError, "cannot be replaced by pieces"),
        ({"curvature": float("nan")}, ValueError, "finite bound"),
    ],
)
def test_misuse(how: dict[str, Any], error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        sc.register_op(Snake, **how)
