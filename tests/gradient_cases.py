"""Random networks whose gradients are compared with differences of partitions."""

from __future__ import annotations

import copy
import math
import random
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import splinecam as sc
from splinecam.questions.differentiable import Differentiable
from splinecam.testing import Abs, Residual

STEPS = (2.0**-17, 2.0**-20, 2.0**-23)  # the first at which no region comes or goes
FREE = 0.1  # a level of an output
TIE = 1e-12  # values that differ by less are equal up to rounding
POINTS = torch.tensor([[0.3, 0.2], [-0.7, 0.4]], dtype=torch.float64)  # whose distance is taken


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
    found = [
        d.areas.square().sum(), d.class_areas[0], length(d.boundary), length(d.level_set(FREE, 0)),
        d.integrals().sum(), d.integrals("square").sum(), d.integrals("modulus").sum(),
        (d.areas[:, None, None] * d.weight.square()).sum(),
        (d.areas[:, None] * d.bias.square()).sum(), d.vertices.square().sum(),
        d.values.square().sum(), length(d.level_set(FREE / 2, 0)),
    ]  # fmt: skip
    if len(d.boundary):
        found.append(d.distances(POINTS).sum())
    return torch.stack(found)


def combinatorics(part: sc.Partition, d: Differentiable) -> tuple[Any, ...]:
    """What stays as it is between events.

    Each region is told by its pattern: where three lines pass through one point, a triangle gives
    way to one of another pattern, and all numbers of regions, edges and vertices remain.
    """
    mesh, values, boundary = part.mesh, part.values.detach(), d.boundary.detach()
    lines = torch.stack([mesh.edge_layer.long(), mesh.edge_unit.long()], 1)
    rank = torch.unique(torch.cat(list(part.patterns().values()), 1), dim=0, return_inverse=True)
    way = (boundary[:, 1] - boundary[:, 0]).flip(1) * values.new_tensor([1e-7, -1e-7])
    sides = torch.stack([boundary.mean(1) + way, boundary.mean(1) - way])  # it may be an edge
    beside = part.locate(part.domain.embed(sides.flatten(0, 1))).view(2, -1)
    low, high = torch.where(beside < 0, -1, rank[1][beside]).sort(0).values + 1
    segment = low * (len(part) + 1) + high
    winner = values >= values.amax(1, keepdim=True) - TIE
    levels = values[:, :1] > values.new_tensor([FREE, FREE / 2])
    above = torch.cat([levels, values > TIE, winner], 1).long()
    corners = above.new_zeros(len(part), above.shape[1])
    corners.index_add_(0, mesh.owners(), above[mesh.corner_vertices()])
    rows = torch.cat([rank[1][:, None], mesh.counts()[:, None], corners], 1)
    found = [
        rank[0],
        segment.sort().values,
        *(torch.unique(x, dim=0, return_counts=True) for x in (lines, rows)),
    ]
    sizes = len(part), mesh.num_vertices, len(boundary)
    return *sizes, nearest(boundary, segment), *(x.tolist() for x in tree_leaves(found))


def nearest(segments: Tensor, label: Tensor) -> list[tuple[list[int], bool]]:
    """The labels of the segments that are nearest to each point, and whether at an end of them."""
    found = []
    for point in POINTS if len(segments) else ():
        a, way = segments[:, 0], segments[:, 1] - segments[:, 0]
        part = ((point - a) * way).sum(1) / way.square().sum(1).clamp_min(1e-300)
        off = (a + part.clamp(0, 1)[:, None] * way - point).norm(dim=1)
        first = off <= off.min() * (1 + 1e-12) + 1e-15  # two that share an end are equally near
        inner = (part > 0) & (part < 1)
        found.append((label[first].sort().values.tolist(), not bool(inner[first].any())))
    return found


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
