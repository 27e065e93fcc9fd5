"""Networks, squares and checks for the tests of the names of the paper's code."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam import compat
from splinecam.compat.utils import areas_of, mesh_of
from splinecam.testing import assert_valid


def mlp(**options: Any) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(4, 9, **options),
        nn.ReLU(),
        nn.Linear(9, 7, **options),
        nn.ReLU(),
        nn.Linear(7, 3),
    )


def convolutions() -> nn.Sequential:
    model = nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1, bias=False),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(3, 4, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4, 5),
        nn.ReLU(),
        nn.Linear(5, 2),
    )
    model(torch.randn(50, 2, 6, 6))  # statistics of the normalisation
    return model


def leaky() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(3, 8),
        nn.LeakyReLU(0.03),
        nn.Linear(8, 8),
        nn.BatchNorm1d(8),
        nn.LeakyReLU(0.03),
        nn.Linear(8, 1),
    )


class Skipping(nn.Module):
    """One ReLU that is called three times, modules that are called in another order, and a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(6, 3)
        self.act = nn.ReLU()
        self.first = nn.Linear(4, 6)
        self.twice = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.first(x))
        x = x + self.act(self.twice(x))
        return self.out(self.act(self.twice(x)))


NETWORKS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "mlp": (mlp, (4,)),
    "convolutions": (convolutions, (2, 6, 6)),
    "leaky": (leaky, (3,)),
    "without biases": (lambda: mlp(bias=False), (4,)),
    "nested": (lambda: nn.Sequential(nn.Sequential(nn.Identity(), mlp()[:2]), mlp()[2:]), (4,)),
    "shared": (Skipping, (4,)),
    "plane": (lambda: nn.Sequential(nn.Linear(2, 9), nn.ReLU(), nn.Linear(9, 2)), (2,)),
}


def make(name: str) -> tuple[nn.Module, Tensor]:
    """A network in eval mode, and a square of its input space."""
    torch.manual_seed(0)
    kind, shape = NETWORKS[name]
    model = kind().eval()
    model.input_shape = shape
    center = torch.randn(1, *shape, dtype=torch.float64) / 2
    return model, compat.utils.get_square_slice_from_one_anchor(center, pad_dist=2, seed=3)


def wrap(model: nn.Module, domain: Tensor, shape: tuple[int, ...] | None = None) -> Any:
    T = compat.utils.get_proj_mat(domain)
    return compat.wrappers.model_wrapper(model, input_shape=shape, T=T, device="cpu")


def assert_same_regions(cycles: list[Tensor], NN: Any, model: nn.Module, domain: Tensor) -> None:
    """The polygons are the regions of the partition, one by one."""
    shape = NN.input_shape
    part = sc.partition(
        model, sc.Domain.polygon(domain.reshape(-1, *shape)), device="cpu", progress=False
    )
    assert_valid(part)
    assert len(cycles) == len(part)
    means = compat.utils.get_region_means(cycles)
    region = part.locate(NN.layers[0](means).cpu().reshape(-1, *shape))
    assert region.unique().tolist() == list(range(len(part)))
    areas = areas_of(mesh_of(cycles))
    torch.testing.assert_close(areas, part.areas[region], rtol=1e-6, atol=1e-12)
    assert [len(cycle) for cycle in cycles] == part.mesh.counts()[region].tolist()
