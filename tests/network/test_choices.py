"""Choices between values that agree where the choice changes, nested or by the sign of a value."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import splinecam as sc
from splinecam.errors import UnsupportedOpError
from splinecam.network.capture import capture
from splinecam.network.nonlinearities import ChoiceNonlinearity
from splinecam.network.ops.bounds import Bound

where = torch.where


class Net(nn.Module):
    """A function of four values of two layers, and more layers after it."""

    def __init__(self, call: Callable[[Tensor], Tensor], scale: float = 1.0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(7)
        self.body = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 4)).double()
        self.last = nn.Linear(4, 2).double()
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
            self.body[-1].weight.mul_(scale)
        self.call = call

    def forward(self, x: Tensor) -> Tensor:
        y = self.call(self.body(x))
        return self.last(y) if y.shape[1:] == (4,) else y


def steps(h: Tensor) -> Tensor:
    """Five pieces."""
    low = where(h > 0, h, where(h > -1, 0.5 * h, -0.5))
    return where(h > 2, 3 * h - 3, where(h > 1, 2 * h - 1, low))


def largest(h: Tensor) -> Tensor:
    a, b, c, _ = h.unbind(1)
    return where(a > b, where(a > c, a, c), where(b > c, b, c))


# name -> the function written with choices, and the same function without
EQUAL: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "inner on the false side": (
        lambda h: where(h > 1, 2 * h - 1, where(h > 0, h, 0 * h)),
        lambda h: F.relu(h) + F.relu(h - 1),
    ),
    "inner on the true side": (
        lambda h: where(h > 0, where(h > 1, 2 * h - 1, h), 0.0),
        lambda h: F.relu(h) + F.relu(h - 1),
    ),
    "hardtanh": (
        lambda h: where(h < -1, -1.0, where(h > 1, 1.0, h)),
        lambda h: F.hardtanh(h),
    ),
    "soft threshold": (
        lambda h: where(h < -0.5, h + 0.5, where(h > 0.5, h - 0.5, torch.zeros_like(h))),
        lambda h: F.softshrink(h, 0.5),
    ),
    "soft threshold with sign": (
        lambda h: torch.sign(h) * F.relu(h.abs() - 0.5),
        lambda h: F.softshrink(h, 0.5),
    ),
    "soft threshold with sign at the end": (
        lambda h: (h.abs() - 0.5).clamp(min=0) * h.sgn(),
        lambda h: F.softshrink(h, 0.5),
    ),
    "no threshold": (lambda h: torch.sign(h) * F.relu(h.abs()), lambda h: h + 0 * F.relu(h)),
    "five pieces": (
        steps,
        lambda h: 0.5 * F.relu(h + 1) - 0.5 + 0.5 * F.relu(h) + F.relu(h - 1) + F.relu(h - 2),
    ),
    "largest of three": (largest, lambda h: h[:, :3].amax(1)),
    "a choice after relu": (
        lambda h: where(h > 1, h, F.relu(h).clamp(max=1)),
        lambda h: F.relu(h),
    ),
    "a mask times what vanishes there": (
        lambda h: (h > 1) * (F.relu(h) - 1),
        lambda h: F.relu(h - 1),
    ),
    "transposed": (
        lambda h: where(h.t() > 1, 2 * h.t() - 1, where(h.t() > 0, h.t(), 0.0)).t(),
        lambda h: F.relu(h) + F.relu(h - 1),
    ),
    "two values in a row": (
        lambda h: (lambda g: where(g > 1, 2 * g - 1, where(g > 0, g, 0.0)))(
            h.reshape(-1, 2)
        ).reshape(-1, 4),
        lambda h: F.relu(h) + F.relu(h - 1),
    ),
    "far away": (
        lambda h: where(1000 * h > 900, 2 * h - 1.4, where(1000 * h > 500, h - 0.5, 0.0)),
        lambda h: F.relu(h - 0.5) + F.relu(h - 0.9),
    ),
}


@pytest.mark.few(5)
@pytest.mark.parametrize("name", EQUAL)
def test_a_choice_is_the_function_without_choices(name: str) -> None:
    written, plain = (Net(call) for call in EQUAL[name])
    domain = sc.Domain.box(-2, 2)
    part, other = (sc.partition(model, domain) for model in (written, plain))
    part.validate()
    x = torch.randn(500, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(part._network(x), other._network(x))
    # Lines on which nothing changes are gone where regions with equal maps are united.
    part, other = part.merged(), other.merged()
    assert len(part) == len(other) > 10
    torch.testing.assert_close(part.areas.sort().values, other.areas.sort().values)


JUMPS: dict[str, Callable[[Tensor], Tensor]] = {
    "by little": lambda h: where(h > 1, 2 * h - 1 + 1e-10, where(h > 0, h, 0.0)),
    "by little inside": lambda h: where(h > 1, 2 * h - 1, where(h > 1e-10, h, 0.0)),
    "in the last of five": lambda h: where(h > 2, 3 * h - 3.01, steps(h)),
    "threshold below zero": lambda h: torch.sign(h) * F.relu(h.abs() + 0.5),
    "sign of another": lambda h: torch.sign(h.flip(1)) * F.relu(h.abs() - 0.5),
    "another value": lambda h: where(h > 1, h.flip(1), where(h > 0, h, 0.0)),
    "far away only": lambda h: where(h > 0, h + F.relu(h.flip(1) - 100), 0.0),
    "largest of other three": lambda h: where(
        h[:, 0] > h[:, 1],
        where(h[:, 0] > h[:, 2], h[:, 0], h[:, 2]),
        where(h[:, 1] > h[:, 3], h[:, 1], h[:, 3]),
    ),
    "another function": lambda h: where(
        h[:, 0] > h[:, 1], F.relu(h[:, 0] - h[:, 2]), F.leaky_relu(h[:, 1] - h[:, 2])
    ),
    "on one side of another border": lambda h: where(
        h[:, :1] > 0, where(h[:, 1:2] > 0, h[:, :1], 2 * h[:, :1]), 0.0
    ),
    "scaled sign": lambda h: 3 * torch.sign(h) * torch.ones(4, dtype=h.dtype),
}


@pytest.mark.parametrize("name", JUMPS)
def test_jumps_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedOpError, match=r"jumps where its mask changes|discontinuous"):
        capture(Net(JUMPS[name]), (2,))


@pytest.mark.parametrize(
    "call",
    [
        torch.sign,
        lambda h: h + torch.sgn(h),
        lambda h: torch.sign(h) * torch.sign(h),
        lambda h: h * torch.logical_not(torch.sign(h)),
        lambda h: -torch.sign(h),
    ],
)
def test_a_sign_alone_is_discontinuous(call: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(UnsupportedOpError, match="discontinuous"):
        capture(Net(call), (2,))


def test_many_equal_functions_prove_nothing() -> None:
    """Differences of equal functions are no more than the points at which they are compared."""

    def call(h: Tensor) -> Tensor:
        a, b, c, d = h.unbind(1)
        up = sum(F.relu(a - k * c) for k in range(6))
        return where(a > b, up, sum(F.relu(b - k * d) for k in range(6)))

    with pytest.raises(UnsupportedOpError, match="jumps where its mask changes"):
        capture(Net(call), (2,))


def test_bounds_of_choices_hold() -> None:
    program = capture(Net(steps), (2,))
    layers = [layer for layer in program.layers if isinstance(layer, ChoiceNonlinearity)]
    assert len(layers) == 3
    (layer, *_) = layers
    generator = torch.Generator().manual_seed(3)
    by = torch.randn(50, 4, dtype=torch.float64, generator=generator)
    sides = torch.stack([by, torch.relu(by), 0 * by], 1)
    error = torch.full((1, 3, 4), 1e-3, dtype=torch.float64)
    error[:, 0] = 1e-2
    before = Bound(sides.abs().amax(0, keepdim=True), error)
    made = layer.bound(before, by.amin(0), by.amax(0))
    assert made.magnitude.shape == made.error.shape == (1, 4)
    assert (layer.apply(sides).abs() <= made.magnitude).all()
    noise = error * (2 * torch.rand(sides.shape, generator=generator, dtype=torch.float64) - 1)
    steepness = layer.steepness.clamp(min=1.0)  # of these sides
    slack = made.error + (steepness - layer.steepness) * error[:, 0]
    assert ((layer.apply(sides + noise) - layer.apply(sides)).abs() <= slack).all()
    # A side that is never chosen has no part in it.
    alone = layer.bound(before, by.abs().amin(0) + 1, by.abs().amax(0) + 2)
    assert torch.equal(alone.error, error[:, 1])
