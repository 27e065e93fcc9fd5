"""Captured networks to hold on to: their weights are those of a moment, which is told."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import splinecam as sc

BOX = sc.Domain.box(-1, 1)


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 6)
        self.second = nn.Linear(6, 2)
        self.scale = 1.0

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        x = self.second(self.first(x).relu()) * self.scale
        return {"y": x, "p": x.softmax(1)}


def _network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 1), nn.Sigmoid())


def test_it_computes_what_the_model_does() -> None:
    model = _network()
    captured = sc.capture(model, (2,), device="cpu")
    x = torch.randn(5, 2)
    assert torch.allclose(captured(x).sigmoid(), model(x).double(), atol=1e-6)
    assert not captured(x.requires_grad_()).requires_grad
    assert captured.layers == ("1",)
    words = "Captured(Sequential, (2,) -> (1,), layers ('1',), final sigmoid left out, on cpu)"
    assert repr(captured) == words


def test_update_takes_over_weights_and_structure() -> None:
    model, x = Two(), torch.randn(5, 2)
    captured = sc.capture(model, (2,), output="y", device="cpu")
    before = captured(x)
    with torch.no_grad():
        model.first.weight.mul_(2)
        model.second.bias.data += 1
    assert torch.equal(captured(x), before)
    assert torch.allclose(captured.update()(x), model(x)["y"].double(), atol=1e-5)
    model.scale = -1.0
    model.second = nn.Linear(6, 3)
    assert captured.update() is captured
    assert torch.allclose(captured(x), model(x)["y"].double(), atol=1e-5)


def test_a_partition_is_of_the_model_as_it_is_now() -> None:
    model = Two()
    captured = sc.capture(model, (2,), output="p", device="cpu")
    with torch.no_grad():
        model.first.weight.mul_(3)
    found = sc.partition(captured, BOX, progress=False)
    expected = sc.partition(model, BOX, output="p", device="cpu", progress=False)
    assert torch.equal(found.vertices, expected.vertices)
    assert found.model is model
    assert found._chosen_output == "p"
    assert found.validate().ok
    (swept,) = sc.sweep(captured, [BOX], progress=False)
    assert torch.equal(swept.values, expected.values)
    with pytest.raises(TypeError, match="has its own"):
        sc.partition(captured, BOX, output="y")


def test_wrong_models_and_outputs_are_told() -> None:
    with pytest.raises(TypeError, match=r"nn\.Module"):
        sc.capture("model.pt", (2,))  # type: ignore[arg-type]
    with pytest.raises(sc.CaptureError, match="output='y'"):
        sc.capture(Two(), (2,))
    with pytest.raises(sc.UnsupportedOpError):
        sc.capture(nn.Sequential(nn.GELU(), nn.Linear(2, 1)), (2,))


@pytest.mark.parametrize("shape", [3, None, "ab"])
def test_a_shape_that_is_none_is_refused(shape: object) -> None:
    with pytest.raises(TypeError, match=r"such as \(2,\) or \(1, 28, 28\), not"):
        sc.capture(nn.Linear(2, 1), shape)  # type: ignore[arg-type]
