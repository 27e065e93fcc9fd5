"""Partitions that are written for other programs: ordinary ones and degenerate ones."""

from __future__ import annotations

import io
import math
from functools import cache
from itertools import pairwise

import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam.engine.affine_maps import AffineMaps
from splinecam.geometry.subdivision import Mesh

BOX = sc.Domain.box(-1, 1)


def mlp(*widths: int) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for a, b in pairwise(widths):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1]).eval()


def found(model: nn.Module, domain: sc.Domain = BOX, **options: object) -> sc.Partition:
    return sc.partition(model, domain, device="cpu", progress=False, **options)  # type: ignore[arg-type]


def loaded() -> sc.Partition:
    """A partition from a file, without its model."""
    file = io.BytesIO()
    found(mlp(2, 12, 12, 2)).save(file)
    file.seek(0)
    return sc.load(file)


def slivers() -> sc.Partition:
    """Thousands of regions between lines that are almost parallel."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3000), nn.ReLU(), nn.Linear(3000, 1)).double()
    with torch.no_grad():
        model[0].weight[:, 0] = 1.0
        model[0].weight[:, 1] = 1e-9 * torch.randn(3000, dtype=torch.float64)
        model[0].bias[:] = torch.linspace(-0.9, 0.9, 3000, dtype=torch.float64)
    return found(model)


def far_away() -> sc.Partition:
    """Regions of which some are narrower than the rounding of their plane coordinates."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 100), nn.ReLU(), nn.Linear(100, 2)).double()
    with torch.no_grad():
        model[0].bias[:] = -1e6 * model[0].weight.sum(1) - 1e-3 * torch.rand(100)
    return found(model, sc.Domain.box(1e6, 1e6 + 1e-3))


def crowded() -> sc.Partition:
    """Lines that miss a common point by rounding: places are unresolved, a polygon is not valid."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 30), nn.ReLU(), nn.Linear(30, 2)).double()
    with torch.no_grad():
        point = torch.tensor([0.6, 0.3], dtype=torch.float64)
        model[0].bias[:] = 1e-13 * torch.randn(30, dtype=torch.float64) - model[0].weight @ point
    return found(model)


def corners(count: int) -> Tensor:
    angle = torch.arange(count, dtype=torch.float64) * (2 * math.pi / count)
    return torch.stack([angle.cos(), angle.sin()], 1)


def straight_corner() -> sc.Partition:
    """Two rectangles that share two edges, with a vertex in the middle of their border."""
    uv = [[-1, -1], [1, -1], [1, 0], [1, 1], [-1, 1], [-1, 0], [0.25, 0]]
    edges = [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [5, 0], [5, 6], [6, 2]]
    layer = torch.tensor([-1] * 6 + [0, 0])
    plane = torch.tensor(uv, dtype=torch.float64)
    frame = found(nn.Identity())._frame
    mesh = Mesh(
        uv=frame.to_local(plane),
        edges=torch.tensor(edges),
        offsets=torch.tensor([0, 5, 10]),
        corners=torch.tensor([0, 2, 15, 13, 10, 12, 14, 4, 6, 8]),
        edge_layer=layer,
        edge_unit=layer.clone(),
        vertex_layer=torch.tensor([-1, -1, 0, -1, -1, 0, 0]),
    )
    part = sc.Partition(
        domain=BOX,
        mesh=mesh,
        _outputs=plane[:, 1:].relu(),
        _value_error=torch.zeros(1, dtype=torch.float64),
        _layer_errors={"relu": torch.zeros(1, dtype=torch.float64)},
        unresolved=(),
        layers=("relu",),
        stripped=None,
        _dtype=torch.float64,
    )
    slope = torch.tensor([[[0.0, 0.0]], [[0.0, frame.scale]]], dtype=torch.float64)
    zero = torch.zeros(2, dtype=torch.float64)
    part._maps = AffineMaps(anchor=mesh.uv[[6, 6]], value=zero[:, None], weight=slope, error=zero)
    return part


CASES = {
    "classifier": lambda: found(mlp(2, 16, 16, 3), names=["ash", "oak", 'e"lm']),
    "one output": lambda: found(mlp(2, 16, 16, 1)),
    "one region": lambda: found(nn.Linear(2, 2)),
    "many corners": lambda: found(mlp(2, 3, 1), sc.Domain.polygon(corners(700))),
    "many outputs": lambda: found(mlp(2, 8, 20)),
    "no biases": lambda: found(nn.Sequential(nn.Linear(2, 9, bias=False), nn.ReLU())),
    "straight corner": straight_corner,
    "slivers": slivers,
    "crowded": crowded,
    "far away": far_away,
    "three inputs": lambda: found(
        mlp(3, 16, 2), sc.Domain.through([0.0, 0, 0], [1.0, 0, 1], [0.0, 1, 1])
    ),
    "images": lambda: found(
        nn.Sequential(nn.Flatten(), mlp(16, 9, 4)), sc.Domain.around(torch.zeros(1, 4, 4), side=6.0)
    ),
    "tiles": lambda: found(mlp(2, 48, 48, 48, 2), sc.Domain.box(-3, 3), memory=2_500_000),
    "loaded": loaded,
}


@cache
def partition_of(name: str) -> sc.Partition:
    """The partition of a case, which is computed once."""
    return CASES[name]()
