"""Random networks whose gradients are compared with differences of partitions."""

from __future__ import annotations

import copy
import math
import random
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam.questions.differentiable import Differentiable
from splinecam.testing import Abs, Residual

STEPS = (2.0**-15, 2.0**-19, 2.0**-23)  # the first at which no region comes or goes
FREE = 0.1  # a level of an output


class Largest(nn.Module):
    """The largest, or the smallest, of every two or three numbers."""

    def __init__(self, size: int, sign: int) -> None:
        super().__init__()
        self.size, self.sign = size, sign

    def forward(self, x: Tensor) -> Tensor:
        return self.sign * (self.sign * x).unflatten(1, (-1, self.size)).amax(2)


class Sorted(nn.Module):
    """Every two numbers in order."""

    def forward(self, x: Tensor) -> Tensor:
        return x.unflatten(1, (-1, 2)).sort(2).values.flatten(1)


SCALARS = (
    nn.ReLU, nn.ReLU, lambda: nn.LeakyReLU(0.1), Abs, lambda: nn.Hardtanh(-0.3, 0.4), nn.ReLU6,
    lambda: nn.PReLU(init=0.3), lambda: nn.Softshrink(0.2), nn.Hardsigmoid,
)  # fmt: skip
KINDS = ("plain", "plain", "skip", "pool", "maxout", "sort", "norm", "image")


def drawn(seed: int, kind: str | None = None) -> tuple[nn.Module, sc.Domain]:
    """A network in float64 and a domain; kind: one of ``KINDS``."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    kind = draw.choice(KINDS) if kind is None else kind
    inputs, outputs, width = draw.choice((2, 2, 3, 5)), draw.choice((1, 2, 3)), 6

    def scalar() -> nn.Module:
        module: nn.Module = draw.choice(SCALARS)()
        return module

    layers: list[nn.Module] = [nn.Linear(inputs, width), scalar()]
    if kind == "skip":
        layers += [Residual(nn.Sequential(nn.Linear(width, width), scalar()))]
    elif kind == "pool":
        layers = [
            nn.Linear(inputs, 16), nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 2, 3, padding=1),
            nn.MaxPool2d(2), scalar(), nn.Flatten(), nn.Linear(8, width),
        ]  # fmt: skip
    elif kind == "maxout":
        layers += [nn.Linear(width, 6), Largest(draw.choice((2, 3)), draw.choice((1, -1)))]
        layers += [nn.LazyLinear(width)]
    elif kind == "sort":
        layers += [nn.Linear(width, width), Sorted()]
    elif kind == "norm":
        layers[1:1] = [nn.BatchNorm1d(width)]
    elif kind == "image":
        layers = [
            nn.Linear(inputs, 9), nn.Unflatten(1, (1, 3, 3)), nn.Conv2d(1, 2, 2), scalar(),
            nn.AvgPool2d(2, 1), nn.Flatten(),
        ]  # fmt: skip
    if kind != "maxout" and draw.random() < 0.6:
        layers += [nn.LazyLinear(width), scalar()]
    model = nn.Sequential(*layers, nn.LazyLinear(outputs)).double().eval()
    corners = polygon(draw)
    domain = sc.Domain.polygon(corners, basis=(0, 1))
    if inputs > 2:
        basis = torch.linalg.qr(torch.randn(inputs, 2, dtype=torch.float64)).Q.T
        origin = torch.randn(inputs, dtype=torch.float64) / 2
        domain = sc.Domain.polygon(origin + corners @ basis)
    with torch.no_grad():
        model(torch.zeros(2, inputs, dtype=torch.float64))
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.7)
    return model, domain


def polygon(draw: random.Random) -> Tensor:
    """The corners of a convex polygon, (k, 2)."""
    turns = [(k + 0.6 * draw.random()) * math.tau / 5 for k in range(5)][: draw.choice((3, 4, 5))]
    return torch.tensor([[math.cos(t), math.sin(t)] for t in turns], dtype=torch.float64)


def length(ends: Tensor) -> Tensor:
    """The length of segments (S, 2, 2)."""
    return (ends[:, 0] - ends[:, 1]).norm(dim=1).sum()


def numbers(d: Differentiable) -> Tensor:
    """Numbers that do not depend on the order of the regions, (N,)."""
    points = torch.tensor([[0.3, 0.2], [-0.7, 0.4]], dtype=torch.float64)
    found = [
        d.areas.square().sum(), d.class_areas[0], length(d.boundary), length(d.level_set(FREE, 0)),
        d.integrals().sum(), d.integrals("square").sum(), d.integrals("modulus").sum(),
        (d.areas[:, None, None] * d.weight.square()).sum(),
        (d.areas[:, None] * d.bias.square()).sum(), d.vertices.square().sum(),
        d.values.square().sum(), length(d.level_set(FREE / 2, 0)),
    ]  # fmt: skip
    if len(d.boundary):
        found.append(d.distances(points).sum())
    return torch.stack(found)


def combinatorics(part: sc.Partition, d: Differentiable) -> tuple[Any, ...]:
    """What stays as it is between events."""
    mesh = part.mesh
    lines = torch.stack([mesh.edge_layer.long(), mesh.edge_unit.long()], 1)
    count = torch.unique(lines, dim=0, return_counts=True)
    values = part.values.detach()
    levels = (int((values[:, 0] > level).sum()) for level in (FREE, FREE / 2))
    classes = torch.bincount(values.argmax(1) if values.shape[1] > 1 else (values[:, 0] > 0).long())
    shape = len(part), mesh.num_vertices, mesh.counts().sort().values.tolist()
    return *shape, len(d.boundary), *levels, classes.tolist(), *(x.tolist() for x in count)


def error(model: nn.Module, domain: sc.Domain, seed: int) -> float | None:
    """The largest error of a gradient along a random way, relative to its norm.

    The reference is that of central differences at two steps, extrapolated. None if regions come
    or go within all steps.
    """
    part = sc.partition(model, domain, progress=False)
    corners = domain.corners.clone().requires_grad_()
    own = part.differentiable(corners=corners)
    found, before = numbers(own), combinatorics(part, own)
    leaves = [*model.parameters(), corners]
    torch.manual_seed(seed)
    ways = [torch.randn_like(leaf) for leaf in leaves]
    slopes, norms = [], []
    for number in found:
        gradient = torch.autograd.grad(number, leaves, retain_graph=True, allow_unused=True)
        pairs = [(g, w) for g, w in zip(gradient, ways, strict=True) if g is not None]
        slopes.append(float(sum((g * w).sum() for g, w in pairs)))
        norms.append(math.sqrt(float(sum(g.square().sum() for g, _ in pairs))))

    def moved(step: float) -> Tensor | None:
        other = copy.deepcopy(model)
        with torch.no_grad():
            for parameter, way in zip(other.parameters(), ways, strict=False):
                parameter.add_(step * way)
        place = replace(domain, corners=domain.corners + step * ways[-1])
        made = sc.partition(other, place, progress=False)
        d = made.differentiable()
        return numbers(d).detach() if combinatorics(made, d) == before else None

    for step in STEPS:
        ends = [moved(k * step) for k in (-2, -1, 1, 2)]
        if any(end is None for end in ends):
            continue
        a, b, c, d = (end for end in ends if end is not None)
        measured = ((8 * (c - b) - (d - a)) / (12 * step)).tolist()
        least = 1e-6 * max(norms)  # some numbers are zero for all parameters, up to rounding
        three = zip(measured, slopes, norms, strict=True)
        return max(abs(m - s) / max(n, least) for m, s, n in three)
    return None
