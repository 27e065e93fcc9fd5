"""Whole networks of the kinds people have, each validated against the real model."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import splinecam as sc
from fixtures.networks import VGG, Mixed, ResNet18, UNet, seeded
from splinecam.partitions.partition import Partition


def partition(model: nn.Module, domain: sc.Domain) -> Partition:
    part = sc.partition(model, domain, progress=False)
    assert part.validate(samples=100).ok
    assert not part.unresolved
    return part


def image(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.slow
def test_resnet18():
    model = seeded(ResNet18(8))
    part = partition(model, sc.Domain.around(image(3, 16, 16), side=0.02))
    assert len(part) > 10
    assert part.layers[0] == "relu"
    assert part.layers[-1] == "layer4.1.relu#2"
    assert len(part.layers) == 17


def borders(part: Partition, name: str) -> int:
    """How many edges a layer has made."""
    return int((part.mesh.edge_layer == part.layers.index(name)).sum())


@pytest.mark.slow
def test_resnet18_with_a_max_pooling_stem():
    model = seeded(ResNet18(16, stem=True))
    part = partition(model, sc.Domain.around(image(3, 32, 32), side=0.15))
    assert len(part) > 30
    assert part.layers[:3] == ("relu", "maxpool", "layer1.0.relu")
    assert borders(part, "maxpool") > 3


@pytest.mark.slow
def test_vgg_with_five_max_pools():
    part = partition(seeded(VGG()), sc.Domain.around(image(3, 32, 32), side=0.07))
    assert len(part) > 100
    assert len(part.layers) == 11
    pools = [name for name in part.layers if name in {f"features.{i}" for i in (3, 7, 11, 15, 19)}]
    assert len(pools) == 5
    assert all(borders(part, name) > 0 for name in pools[:3])


def test_unet_with_transposed_convolution_and_concatenation():
    part = partition(seeded(UNet()), sc.Domain.around(image(1, 16, 16), side=0.5))
    assert len(part) > 100


def test_functional_relu_abs_clamp_and_residual_adds():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(2, 12), nn.Linear(12, 12), nn.Linear(12, 12)
            self.head = nn.Linear(24, 3)

        def forward(self, x: Tensor) -> Tensor:
            h = F.relu(self.a(x))
            h = h + torch.abs(self.b(h))
            h = h + self.c(h).clamp(-0.3, 0.4)
            return self.head(torch.cat([h, F.leaky_relu(h - 1, 0.2)], 1))

    part = partition(Net(), sc.Domain.box(-2, 2))
    assert len(part) > 100
    assert part.layers == ("relu", "abs", "clamp", "leaky_relu")


def test_mixed_operations():
    assert len(partition(seeded(Mixed()), sc.Domain.box(-3, 3))) > 10


def test_plane_through_three_images():
    cnn = nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 3 * 3, 10),
    )
    a, b, c = image(3, 1, 12, 12)
    part = partition(cnn, sc.Domain.through(a, b, c, margin=0.2))
    assert (part.locate(torch.stack([a, b, c])) >= 0).all()
    logits = (
        part.weight[part.locate(a)[0]] @ part.domain.project(a)[0][0] + part.bias[part.locate(a)[0]]
    )
    assert torch.allclose(logits.float(), cnn(a[None])[0], atol=1e-5)


def test_one_dimensional_and_three_dimensional_convolutions():
    for conv, shape in ((nn.Conv1d(2, 3, 3), (2, 9)), (nn.Conv3d(1, 4, 3), (1, 4, 4, 4))):
        units = conv(torch.zeros(1, *shape)).numel()
        model = nn.Sequential(conv, nn.Hardtanh(), nn.Flatten(), nn.Linear(units, 2))
        assert len(partition(model, sc.Domain.around(image(*shape), side=20.0))) > 10


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_low_precision_models_are_partitioned_with_their_own_weights(dtype: torch.dtype):
    model = nn.Sequential(nn.Linear(2, 20), nn.ReLU(), nn.Linear(20, 1)).to(dtype)
    part = partition(model, sc.Domain.box(-1, 1))
    assert len(part) > 20
    assert next(model.parameters()).dtype == dtype
