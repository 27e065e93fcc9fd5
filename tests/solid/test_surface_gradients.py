"""Gradients of vertices, areas and volumes of surfaces, against differences of surfaces."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from gradient_cases import Largest
from splinecam.errors import SplineCamError
from splinecam.solid.differentiable import DifferentiableSurface
from splinecam.testing import Residual

CUBE = sc.Domain.cube(-1, 1)
BODIES = (CUBE, sc.Domain.tetrahedron(*torch.randn(4, 5, generator=torch.manual_seed(3)).double()))


def network(seed: int, inputs: int = 3, kind: str = "relu") -> nn.Sequential:
    torch.manual_seed(seed)
    layers: list[nn.Module] = [nn.Linear(inputs, 12), nn.ReLU()]
    if kind == "skip":
        layers += [Residual(nn.Sequential(nn.Linear(12, 12), nn.Hardtanh(-0.3, 0.4)))]
    else:
        layers += [nn.Linear(12, 12), nn.ReLU() if kind == "relu" else Largest(2, 1)]
    model = nn.Sequential(*layers, nn.LazyLinear(3)).double()
    model(torch.zeros(1, inputs).double())
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model


def numbers(moving: DifferentiableSurface) -> Tensor:
    areas, at = moving.areas, moving.vertices
    return torch.stack([areas.sum(), moving.volume, areas.square().sum(), at.square().sum()])


def slopes(found: Tensor, leaves: list[Tensor], ways: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The derivatives of numbers along a way, and the lengths of their gradients."""
    each = [torch.autograd.grad(x, leaves, retain_graph=True) for x in found]
    along = [sum((g * w).sum() for g, w in zip(own, ways, strict=True)) for own in each]
    sizes = [sum(g.square().sum() for g in own) for own in each]
    return torch.tensor(along).double(), torch.tensor(sizes).double().sqrt()


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("body", "kind", "output"),
    [(0, "relu", 0), (1, "relu", (0, 2)), (0, "maxima", 1), (1, "skip", 0), (0, "capped", 0)],
)
def test_gradients_are_those_of_differences(seed: int, body: int, kind: str, output: Any) -> None:
    box = BODIES[body]
    model = network(seed, box.dim, "relu" if kind == "capped" else kind)
    with torch.no_grad():
        level = model(box.to_input(box.middle[None]))[0]
    level = float(level[output] if isinstance(output, int) else level[0] - level[2]) + 0.05

    def surface_of(model: nn.Module) -> Any:
        found = sc.surface(model, box, level=level, output=output, progress=False)
        return found.capped() if kind == "capped" else found

    surface = surface_of(model)
    moving = surface.differentiable()
    found = numbers(moving)
    assert torch.equal(moving.vertices, surface.vertices)
    assert found[:2].tolist() == pytest.approx([surface.area, surface.volume])
    ways = [torch.randn_like(each) for each in model.parameters()]
    along, sizes = slopes(found, list(model.parameters()), ways)

    def moved(step: float) -> Tensor:
        other = copy.deepcopy(model)
        with torch.no_grad():
            for parameter, way in zip(other.parameters(), ways, strict=True):
                parameter.add_(step * way)
        made = surface_of(other)
        assert (len(made), len(made.edges)) == (len(surface), len(surface.edges))
        return numbers(made.differentiable()).detach()

    step = 2.0**-21
    a, b, c, d = (moved(k * step) for k in (-2, -1, 1, 2))
    measured = (8 * (c - b) - (d - a)) / (12 * step)
    assert float(((measured - along).abs() / sizes).max()) < 1e-8


def test_volumes_of_classes_add_up_whatever_the_parameters_are() -> None:
    model = network(2)
    with torch.no_grad():
        model[-1].bias.sub_(model(CUBE.corners).mean(0))
    classes = sc.surface(model, CUBE, output="argmax", progress=False)
    volumes = [each.differentiable().volume for each in classes]
    assert min(volumes) > 0.1
    assert sum(volumes).item() == pytest.approx(8)
    leaves = list(model.parameters())
    own = torch.autograd.grad(volumes[0], leaves, retain_graph=True)
    total = torch.autograd.grad(sum(volumes), leaves)
    for each, together in zip(own, total, strict=True):
        assert float(each.abs().max()) > 1e-3
        assert float(together.abs().max()) < 1e-10


def test_other_tensors_with_the_same_values_move_the_same_surface() -> None:
    model = network(1).float()
    moving = sc.surface(model, CUBE, progress=False).differentiable()
    moving.volume.backward()
    given = {name: p.detach() for name, p in model.named_parameters()}
    found = torch.func.grad(lambda p: moving.at(p).volume)(given)
    for name, parameter in model.named_parameters():
        assert torch.allclose(found[name], parameter.grad)
    with pytest.raises(SplineCamError, match=r"'0.weight'.*named_parameters"):
        moving.at({name: p for name, p in given.items() if name != "0.weight"})


def test_a_surface_of_other_parameters_is_named() -> None:
    model = network(1)
    surface = sc.surface(model, CUBE, progress=False)
    with torch.no_grad():
        model[0].bias.add_(0.1)
    with pytest.raises(SplineCamError, match=r"'0.bias' has changed.*surface"):
        surface.differentiable()


def test_no_surface_has_no_gradient() -> None:
    surface = sc.surface(network(1), CUBE, level=1e3, progress=False)
    moving = surface.differentiable()
    assert (moving.vertices.shape, moving.volume.item()) == ((0, 3), 8.0)
    moving.volume.backward()
    assert not any(p.grad is not None and p.grad.any() for p in surface.network.model.parameters())
