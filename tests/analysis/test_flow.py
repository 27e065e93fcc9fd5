"""Barriers and decrease along a flow: against exact fractions, samples, and known shapes."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam.errors import DomainError, SplineCamError
from splinecam.testing import exact_partition

F64 = torch.float64
x, y = sc.input(0), sc.input(1)
OUT = {"device": "cpu", "progress": False}


class Diamond(nn.Module):
    def forward(self, v: Tensor) -> Tensor:
        return 1 - v.abs().sum(1, keepdim=True)


class Square(nn.Module):
    def forward(self, v: Tensor) -> Tensor:
        return 1 - torch.maximum(v[:, :1].abs(), v[:, 1:].abs())


def mlp(*sizes: int, seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = [layer for n, m in pairwise(sizes) for layer in (nn.Linear(n, m).double(), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def linear(rows: list[list[float]]) -> nn.Linear:
    layer = nn.Linear(2, 2, bias=False).double()
    layer.weight.data = torch.tensor(rows, dtype=F64)
    return layer


@pytest.mark.parametrize("model", [Square(), Diamond()])
@pytest.mark.parametrize(
    ("field", "status"),
    [
        ((-x, -y), "holds"),
        ((x, y), "violated"),
        ((y, -x), "violated"),
        ((y - x, -x - y), None),
        ((y - 0.9 * x, -x - 0.9 * y), "violated"),
        ((y - 1.1 * x, -x - 1.1 * y), "holds"),
        ((-(x**3), -(y**3)), "holds"),
        ((0, 0), "holds"),
        ((0 * x, x - x), "holds"),
        ([(y, -x), (-x, -y)], "holds"),  # of two controls, one is enough
        ([(y, -x), (2 * y, -2 * x)], "violated"),
        (linear([[-1.0, 0.1], [0.1, -1.0]]), "holds"),
        ([linear([[0.0, 1.0], [-1.0, 0.0]]), (x, 0)], "violated"),
    ],
)
def test_known_sets(model: nn.Module, field: Any, status: str | None) -> None:
    found = sc.check_barrier(model, sc.Domain.box(-2, 2), field, **OUT)
    assert found.status == (status or "unresolved")
    assert (found.witness is None) == (status == "holds")
    if status == "violated":
        assert found.witness is not None
        assert found.witness.confirmed
        assert found.status in repr(found)


def test_the_part_that_is_left() -> None:
    domain = sc.Domain.box(-2, 2)
    flow = sc.check_barrier(Diamond(), domain, (y, -x), **OUT).flow
    assert flow.curves.length == pytest.approx(4 * 2**0.5)
    assert flow.leaving == pytest.approx(2 * 2**0.5, abs=1e-8)
    assert flow.undecided < 1e-8
    assert sum(map(len, flow.pieces.values())) >= 8
    axes = flow.plot()
    assert axes.collections
    flow = sc.check_barrier(Square(), domain, (y, -x), **OUT).flow
    assert flow.leaving == pytest.approx(4, abs=1e-8)
    assert flow.witness is not None
    assert sorted(map(abs, flow.witness.place)) == pytest.approx([1, 1], abs=1e-2)
    # Around half of the rotation and half of the radius, the flow leaves near the corners.
    flow = sc.check_barrier(Square(), domain, (y - 0.5 * x, -x - 0.5 * y), **OUT).flow
    assert flow.leaving == pytest.approx(2, abs=1e-8)


def test_safe_and_unsafe_inputs() -> None:
    domain, inwards = sc.Domain.box(-2, 2), (-x, -y)
    disc, far = x**2 + y**2 <= 0.49, x**2 + y**2 > 1
    found = sc.check_barrier(Diamond(), domain, inwards, safe=disc, unsafe=far, **OUT)
    assert found.status == "holds"  # the circle touches the corners of the diamond
    met = sc.check_barrier(Diamond(), domain, inwards, unsafe=x**2 + y**2 >= 1, **OUT)
    assert (met.status, met.flow.status) == ("unresolved", "holds")
    found = sc.check_barrier(Diamond(), domain, inwards, safe=x**2 + y**2 <= 0.51, **OUT)
    assert found.status == "violated"
    assert found.witness is not None
    assert found.witness.confirmed
    assert "safe=PropertyCheck(violated" in repr(found)
    found = sc.check_barrier(Diamond(), domain, inwards, unsafe=x**2 + y**2 >= 1.01, **OUT)
    assert found.status == "holds"


# -- random networks -------------------------------------------------------------------------------

Point = tuple[Fraction, Fraction]


def exact_fall(model: nn.Module, domain: sc.Domain, field: Sequence[Any]) -> Fraction | None:
    """The least derivative along a quadratic field on the zeros of a network."""
    least = None
    for cell in exact_partition(model, domain).cells:
        (a, b), c = cell.weight[0], cell.bias[0]
        values = [a * p[0] + b * p[1] + c for p in cell.vertices]
        ends = [p for p, value in zip(cell.vertices, values, strict=True) if value == 0]
        sides = zip(cell.vertices, [*cell.vertices[1:], cell.vertices[0]], strict=True)
        for (p, r), v, w in zip(sides, values, [*values[1:], values[0]], strict=True):
            if v * w < 0:
                t = v / (v - w)
                ends.append((p[0] + t * (r[0] - p[0]), p[1] + t * (r[1] - p[1])))
        if len(ends) < 2:
            continue

        def fall(t: Fraction, ends: list[Point] = ends, slope: Point = (a, b)) -> Fraction:
            u, v = (ends[0][k] + t * (ends[1][k] - ends[0][k]) for k in range(2))
            powers = {None: 1, 0: u, 1: v, (0, 0): u * u, (0, 1): u * v, (1, 1): v * v}
            terms = ((s, each._term) for s, each in zip(slope, field, strict=True))
            return sum((s * f * powers[key] for s, term in terms for key, f in term.items()), t * 0)

        begin, half, end = (fall(Fraction(k, 2)) for k in range(3))
        bend, slope = 2 * (begin - 2 * half + end), 4 * half - 3 * begin - end
        found = [begin, end]
        if bend and 0 < (t := -slope / (2 * bend)) < 1:
            found.append(fall(t))
        least = min([*found, *([] if least is None else [least])])
    return least


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", range(24))
def test_verdicts_agree_with_fractions(seed: int) -> None:
    model, domain = mlp(2, 5, 4, 1, seed=seed), sc.Domain.box(-2, 2)
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(-3, 4, (2, 6), generator=generator).tolist()
    terms = [1 + 0 * x, x, y, x * x, x * y, y * y]
    field = tuple(sum((k * t for k, t in zip(row, terms, strict=True)), 0 * x) for row in rows)
    least = exact_fall(model, domain, field)
    found = sc.check_barrier(model, domain, field, **OUT)
    if least is None:
        assert len(found.flow.curves) == 0
        assert found.status == "holds"
        return
    assert found.status == ("violated" if least < 0 else "holds")
    # Nowhere on the zeros does the output fall faster.
    part = sc.partition(model, domain, **OUT)
    above = part.check((sc.output(0).along(field) < float(least) - 1e-6) & (sc.output(0) == 0))
    assert above.status == "holds"


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(4))
def test_lengths_agree_with_samples(seed: int) -> None:
    model, domain = mlp(2, 8, 8, 1, seed=seed), sc.Domain.box(-2, 2)
    with torch.no_grad():
        model[-1].bias -= model(torch.zeros(1, 2, dtype=F64))[0]
    velocity = mlp(2, 6, 2, seed=seed + 100)
    flow = sc.check_barrier(model, domain, velocity, **OUT).flow
    ends = flow.curves.ends
    assert len(ends) > 4
    t = (torch.arange(400, dtype=F64) + 0.5) / 400
    v = (ends[:, :1] + t[:, None] * (ends[:, 1:] - ends[:, :1])).flatten(0, 1).requires_grad_()
    (slope,) = torch.autograd.grad(model(v).sum(), v)
    falls = ((slope * velocity(v)).sum(1) < 0).view(len(ends), -1).double().mean(1)
    assert flow.leaving == pytest.approx(float(falls @ flow.curves.lengths), abs=0.02)
    total = sum(float((p[:, 1] - p[:, 0]).norm(dim=1).sum()) for p in flow.pieces.values())
    assert total >= flow.curves.length * (1 - 1e-9)


# -- steps -----------------------------------------------------------------------------------------


class Loop(nn.Module):
    """A double integrator with a saturated controller."""

    def forward(self, v: Tensor) -> Tensor:
        u = (-0.5 * v[:, :1] - v[:, 1:]).clamp(-1, 1)
        return torch.cat([v[:, :1] + 0.1 * v[:, 1:], v[:, 1:] + 0.1 * u], 1)


def test_decrease_of_a_closed_loop() -> None:
    domain, V = sc.Domain.box(-2, 2), mlp(2, 12, 1, seed=3)
    found = sc.check_decrease(V, domain, Loop(), where=x**2 + y**2 >= 0.25, **OUT)
    points = torch.rand(100_000, 2, dtype=F64) * 4 - 2
    with torch.no_grad():
        rises = (V(Loop()(points)) > V(points))[:, 0] & (points.square().sum(1) >= 0.25)
    assert found.status == "violated"
    assert found.share == pytest.approx(float(rises.double().mean()), abs=0.01)
    assert found.witness is not None
    assert found.witness.confirmed


def test_decrease_of_a_known_function() -> None:
    V = nn.Sequential(linear([[1.0, 0.0], [0.0, 1.0]]), Diamond())
    step = linear([[0.9, 0.05], [-0.05, 0.9]])
    away = x**2 + y**2 >= 0.01
    rising = nn.Sequential(V, nn.Linear(1, 1).double())
    rising[1].weight.data, rising[1].bias.data = (
        -torch.ones(1, 1, dtype=F64),
        torch.ones(1, dtype=F64),
    )
    domain = sc.Domain.box(-1, 1)
    assert sc.check_decrease(rising, domain, step, where=away, **OUT).status == "holds"
    assert sc.check_decrease(rising, domain, step, where=away, by=0.004, **OUT).status == "holds"
    assert sc.check_decrease(rising, domain, step, where=away, by=0.02, **OUT).status == "violated"
    assert sc.check_decrease(V, domain, step, where=away, **OUT).status == "violated"
    assert sc.check_decrease(rising, domain, step, **OUT).status == "unresolved"  # at the origin


def test_decrease_in_polynomial_steps() -> None:
    domain, V = sc.Domain.box(-1, 1), mlp(2, 8, 1, seed=3)
    step = (x**2 - 0.3 * x * y**2, 0.5 * y - x * y / 4 + 0.1)
    found = sc.check_decrease(V, domain, step, where=x + y >= 0, **OUT)
    points = torch.rand(100_000, 2, dtype=F64) * 2 - 1
    a, b = points.T
    after = torch.stack([a**2 - 0.3 * a * b**2, 0.5 * b - a * b / 4 + 0.1], 1)
    with torch.no_grad():
        rises = float(((V(after) > V(points))[:, 0] & (a + b >= 0)).double().mean())
    assert found.status == "violated"
    assert found.share - 0.01 < rises < found.share + found.undecided_area / 4 + 0.01
    assert found.witness is not None
    assert found.witness.confirmed
    near = sc.check_decrease(V, domain, step, where=x + y >= 0, smooth=1e-3, **OUT)
    assert near.undecided_area < 0.05


def test_decrease_in_polynomial_steps_is_certain() -> None:
    domain, step = sc.Domain.box(0.3, 0.7), (x * y, x**2)
    V = nn.Linear(2, 1, bias=False).double()
    V.weight.data.fill_(1.0)
    # (x + y) - (x y + x^2) = (x + y) (1 - x) is least at (0.7, 0.3), where it is 0.3.
    assert sc.check_decrease(V, domain, step, by=0.2995, **OUT).status == "holds"
    assert sc.check_decrease(V, domain, step, by=0.3005, **OUT).status == "violated"
    assert sc.check_decrease(V, domain, step, by=0.3, smooth=0.1, **OUT).status == "unresolved"
    assert sc.check_decrease(V, domain, (0.5 * x, 0), by=0.4, **OUT).status == "holds"


def test_what_cannot_be_asked() -> None:
    domain = sc.Domain.box(-1, 1)
    with pytest.raises(ValueError, match="two components, and here are 1"):
        sc.check_barrier(Diamond(), domain, (x,), **OUT)
    with pytest.raises(TypeError, match="as a module"):
        sc.check_decrease("net.onnx", domain, Loop(), **OUT)
    with pytest.raises(ValueError, match="those of an output"):
        (sc.output(0) + 1).along((x, y))
    box = (torch.zeros(3), torch.ones(3))
    part = sc.partition(nn.Linear(3, 1), sc.Domain.slice(box, axes=(0, 1)), **OUT)
    with pytest.raises(SplineCamError, match="leave the plane"):
        _ = part.check(sc.output(0).along((x, y, x)) > 0).area
    condition = (sc.output(0).along((x, y)) > 0).condition(2, 1)
    with pytest.raises(SplineCamError, match="slopes="):
        condition(torch.zeros(1, 1), torch.zeros(1, 2))
    assert repr(sc.output(1).along((2, 0 * x))).startswith("2*d output(1)/d input(0)")


def test_slopes_in_conditions_on_regions() -> None:
    model = mlp(2, 8, 8, 2, seed=5)
    part = sc.partition(model, sc.Domain.box(-2, 2), **OUT)
    found = part.check((sc.output(0).along((y, -x)) > 0.1) & (sc.output(1) * x <= 0.2))
    v = part.sample(50_000, dtype=F64).requires_grad_()
    out = model(v)
    (slope,) = torch.autograd.grad(out[:, 0].sum(), v)
    holds = (slope[:, 0] * v[:, 1] - slope[:, 1] * v[:, 0] > 0.1) & (out[:, 1] * v[:, 0] <= 0.2)
    assert found.share == pytest.approx(float(holds.double().mean()), abs=0.01)
    assert found.witness is not None
    assert found.witness.confirmed


def test_networks_and_fields_that_do_not_fit() -> None:
    domain, three = sc.Domain.box(-1, 1), nn.Linear(2, 3)
    with pytest.raises(DomainError, match="V has one output, and this network has 3"):
        sc.check_decrease(three, domain, Loop(), **OUT)
    with pytest.raises(TypeError, match="give the step as a module"):
        sc.check_decrease(Diamond(), domain, "step.onnx", **OUT)
    for step in ((x,), (x, y, sc.output(0)), (x, sc.input(2))):
        with pytest.raises(ValueError, match="a polynomial in the inputs for each of them"):
            sc.check_decrease(Diamond(), domain, step, **OUT)
    with pytest.raises(TypeError, match="a step is a network, or a tuple of polynomials"):
        sc.check_decrease(Diamond(), domain, (x, "y"), **OUT)
    with pytest.raises(TypeError, match="where= is a condition"):
        sc.check_decrease(Diamond(), domain, Loop(), where=True, **OUT)
    with pytest.raises(DomainError, match="expected 1 in all, and here are 3"):
        sc.check_barrier(three, domain, (y, -x), **OUT)
    with pytest.raises(DomainError, match="expected 3 in all, and here are 4"):
        sc.check_barrier(Diamond(), domain, three, **OUT)
    with pytest.raises(ValueError, match="the list of fields is empty"):
        sc.check_barrier(Diamond(), domain, [], **OUT)
    with pytest.raises(TypeError, match="a field is a network, or a tuple"):
        sc.check_barrier(Diamond(), domain, torch.ones(2), **OUT)
    with pytest.raises(TypeError, match="unsafe= is a condition"):
        sc.check_barrier(Diamond(), domain, (y, -x), unsafe=[1], **OUT)
