"""Gradients of vertices, areas, maps, boundaries and integrals, against finite differences."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam.errors import SplineCamError
from splinecam.questions.differentiable import Differentiable
from splinecam.testing import Abs, Residual

BOX = sc.Domain.box(-1, 1)
STEP = 1e-7
MODELS: dict[str, Callable[[], nn.Module]] = {
    "relu": lambda: nn.Sequential(
        nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)
    ),
    "one output": lambda: nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1)),
    "hardtanh": lambda: nn.Sequential(
        nn.Linear(2, 6), nn.Hardtanh(-0.3, 0.4), nn.Linear(6, 6), nn.LeakyReLU(0.1), nn.Linear(6, 2)
    ),
    "normalised": lambda: nn.Sequential(
        nn.Linear(2, 6), nn.BatchNorm1d(6), nn.PReLU(6), nn.Linear(6, 2)
    ),
    "no biases": lambda: nn.Sequential(
        nn.Linear(2, 5, bias=False), nn.ReLU(), nn.Linear(5, 3, bias=False)
    ),
    "convolution": lambda: nn.Sequential(
        nn.Linear(2, 16), nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 2, 3, padding=1),
        nn.MaxPool2d(2), nn.Flatten(), nn.ReLU6(), nn.Linear(8, 3),
    ),
    "skip": lambda: nn.Sequential(
        nn.Linear(2, 5), Residual(nn.Sequential(nn.Linear(5, 5), Abs())), nn.Linear(5, 2)
    ),
}  # fmt: skip
EXPORTED = ("convolution", "skip")  # torch takes seconds to begin with these


def drawn(name: str, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = MODELS[name]().double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.7)
    return model


def length(ends: Tensor) -> Tensor:
    return (ends[:, 0] - ends[:, 1]).norm(dim=1).sum()


def numbers(d: Differentiable) -> Tensor:
    """Numbers that do not depend on the order of the regions."""
    points = torch.tensor([[0.3, 0.2], [-0.7, 0.4]], dtype=torch.float64)
    found = [
        d.areas.square().sum(), d.class_areas[0], length(d.boundary), length(d.level_set(0.1, 0)),
        d.integrals().sum(), d.integrals("square").sum(), d.integrals("modulus").sum(),
        d.weight.square().sum(), d.bias.square().sum(), d.vertices.square().sum(),
    ]  # fmt: skip
    if len(d.boundary):
        found.append(d.distances(points).sum())
    return torch.stack(found)


def compare(name: str, seed: int) -> bool:
    """Compare a network; False if the regions change within the step."""
    model = drawn(name, seed)
    part = sc.partition(model, BOX, progress=False)
    corners = BOX.corners.clone().requires_grad_()
    found = numbers(part.differentiable(corners=corners))
    leaves = [*model.parameters(), corners]
    weights = torch.linspace(0.5, 1.5, len(found), dtype=torch.float64)
    gradients = torch.autograd.grad(weights @ found, leaves, allow_unused=True)
    ways = [torch.randn_like(leaf) for leaf in leaves]
    pairs = zip(gradients, ways, strict=True)
    slope = sum(float((g * w).sum()) for g, w in pairs if g is not None)
    sides = []
    for sign in (1, -1):
        moved = drawn(name, seed)
        with torch.no_grad():
            for parameter, way in zip(moved.parameters(), ways, strict=False):
                parameter.add_(sign * STEP * way)
        domain = sc.Domain.polygon(BOX.corners + sign * STEP * ways[-1], basis=(0, 1))
        other = sc.partition(moved, domain, progress=False)
        if len(other) != len(part) or other.mesh.num_vertices != part.mesh.num_vertices:
            return False
        made = numbers(other.differentiable()).detach()
        if len(made) != len(found):
            return False
        sides.append(float(weights @ made))
    measured = (sides[0] - sides[1]) / (2 * STEP)
    size = sum(float(g.abs().sum()) for g in gradients if g is not None)
    assert abs(measured - slope) <= 2e-6 * max(abs(slope), size)
    return True


@pytest.mark.few(6)
@pytest.mark.parametrize(
    ("name", "seed"),
    [
        pytest.param(name, seed, marks=[pytest.mark.slow] * (name in EXPORTED))
        for seed in range(4)
        for name in MODELS
    ],
)
def test_gradients_are_those_of_finite_differences(name: str, seed: int) -> None:
    assert any(compare(name, 10 * seed + k) for k in range(3))


def test_values_are_those_of_the_partition() -> None:
    part = sc.partition(drawn("relu", 1), BOX, progress=False)
    d = part.differentiable()
    classes = part.class_regions()
    assert torch.allclose(d.areas, part.areas, atol=1e-12)
    assert torch.allclose(d.weight, part.weight, atol=1e-6)
    assert torch.allclose(d.class_areas, classes.areas, atol=1e-12)
    level = length(d.level_set(0.1, 2)).item()
    assert length(d.boundary).item() == pytest.approx(part.decision_boundary().length)
    assert level == pytest.approx(part.level_set(0.1, output=2).length)


def test_integrals_are_exact() -> None:
    part = sc.partition(nn.Sequential(nn.Identity(), nn.ReLU()), BOX, progress=False)
    d = part.differentiable()
    assert d.integrals().sum(0).tolist() == pytest.approx([1.0, 1.0])
    assert d.integrals("square").sum(0).tolist() == pytest.approx([2 / 3, 2 / 3])
    flat = sc.partition(nn.Linear(2, 1).double(), BOX, progress=False)
    with torch.no_grad():
        flat.model.weight.copy_(torch.tensor([[1.0, 0.0]]))
        flat.model.bias.zero_()
    d = sc.partition(flat.model, BOX, progress=False).differentiable()
    assert d.integrals("modulus").sum().item() == pytest.approx(2.0)
    with pytest.raises(ValueError, match="'cube'"):
        d.integrals("cube")  # type: ignore[arg-type]


def test_given_parameters_work_with_torch_func() -> None:
    model = drawn("relu", 2)
    part = sc.partition(model, BOX, progress=False)
    given = {name: p.detach() for name, p in model.named_parameters()}

    moving = part.differentiable()
    found = torch.func.grad(lambda p: moving.at(p).class_areas[0])(given)
    moving.class_areas[0].backward()
    for name, parameter in model.named_parameters():
        own = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        assert torch.allclose(found[name], own)


def test_vertices_of_more_than_two_lines_are_named() -> None:
    part = sc.partition(drawn("no biases", 0), BOX, progress=False)
    d = part.differentiable()
    assert "1 degenerate" in repr(d)
    assert d.vertices[d.degenerate].abs().max() < 1e-15


def test_what_does_not_fit_is_named() -> None:
    model = drawn("relu", 1)
    part = sc.partition(model, BOX, progress=False)
    moving, given = part.differentiable(), dict(model.named_parameters())
    square = BOX.corners
    for corners in (square[:3], square.tolist(), 2 * square, square * torch.nan):
        with pytest.raises(SplineCamError, match=r"corners .*domain.corners"):
            part.differentiable(corners=corners)  # type: ignore[arg-type]
    assert part.differentiable(corners=square.float()).areas.sum().item() == pytest.approx(4.0)
    with pytest.raises(SplineCamError, match=r"corners .*\(4, 2\)"):
        moving.at(given, square[:3])
    with pytest.raises(SplineCamError, match=r"'0.weight'.*named_parameters"):
        moving.at({name: p for name, p in given.items() if name != "0.weight"})
    with pytest.raises(SplineCamError, match=r"'0.weight' has the shape \(1, 2\)"):
        moving.at(given | {"0.weight": given["0.weight"][:1]})
    with pytest.raises(SplineCamError, match="for models with one output"):
        part.differentiable(level=0.1)
    with pytest.raises(SplineCamError, match="output=0 to 2"):
        moving.level_set(0.1)
    with pytest.raises(IndexError, match="output 3 of 3"):
        moving.level_set(0.1, 3)
    with pytest.raises(ValueError, match="finite"):
        moving.level_set(float("nan"), 0)
    for points in (torch.zeros(2), torch.zeros(1, 3)):
        with pytest.raises(ValueError, match=r"points .*\(N, 2\)"):
            moving.distances(points)
    with torch.no_grad():
        given["0.bias"].add_(0.1)
    with pytest.raises(SplineCamError, match=r"'0.bias' has changed.*[Pp]artition"):
        part.differentiable()


def test_there_is_no_distance_from_no_boundary() -> None:
    model = nn.Linear(2, 1)
    nn.init.constant_(model.bias, 9.0)
    moving = sc.partition(model, BOX, progress=False).differentiable()
    assert len(moving.boundary) == 0
    with pytest.raises(SplineCamError, match="no decision boundary"):
        moving.distances(torch.zeros(1, 2))


@pytest.mark.slow
def test_weights_that_are_computed_are_named() -> None:
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(2, 4)), nn.ReLU())
    part = sc.partition(model, BOX, progress=False)
    with pytest.raises(SplineCamError, match="computed from parameters"):
        part.differentiable()
