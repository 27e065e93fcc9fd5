"""Random networks with their partitions, by which the page's engine is compared with this one.

``python tests/viewer/page_networks.py 500 networks.json`` writes so many.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import splinecam as sc


class Maxout(nn.Module):
    """The larger of every two units that follow each other."""

    def forward(self, z: Tensor) -> Tensor:
        return z.unflatten(-1, (-1, 2)).amax(-1)


class Abs(nn.Module):
    """The modulus of every unit."""

    def forward(self, z: Tensor) -> Tensor:
        return z.abs()


ACTIVATIONS: list[tuple[dict[str, Any], nn.Module]] = [
    ({"name": "relu"}, nn.ReLU()),
    ({"name": "leaky", "slope": 0.1}, nn.LeakyReLU(0.1)),
    ({"name": "clip", "low": -1, "high": 1}, nn.Hardtanh()),
    ({"name": "maxout"}, Maxout()),
    ({"name": "abs"}, Abs()),
]


def network(seed: int) -> tuple[list[dict[str, Any]], nn.Module]:
    """Return a random network as the page takes it, and as a module; every fourth is degenerate."""
    draw = torch.Generator().manual_seed(seed)

    def number(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=draw))

    kind, module = ACTIVATIONS[seed % len(ACTIVATIONS)]
    degenerate = (seed // len(ACTIVATIONS)) % 4
    layers, modules, inputs = [], [], 2
    depth = number(1, 4)
    for index in range(depth + 1):
        last = index == depth
        width = number(1, 3) if last else number(1, 12 if depth > 2 else 24)
        doubled = 2 if kind["name"] == "maxout" and not last else 1
        dense = nn.Linear(inputs, doubled * width, dtype=torch.float64)
        scale = (6 / inputs) ** 0.5
        weight = scale * torch.randn(dense.weight.shape, generator=draw, dtype=torch.float64) / 2
        bias = 0.5 * torch.randn(dense.bias.shape, generator=draw, dtype=torch.float64)
        if degenerate == 1:  # all lines through one point
            bias = torch.zeros_like(bias)
        if degenerate == 2 and width > 1:  # units that are there twice, and mirrored ones
            weight[doubled : 2 * doubled], bias[doubled : 2 * doubled] = (
                weight[:doubled],
                bias[:doubled],
            )
            if width > 3:
                weight[2 * doubled : 3 * doubled] = -weight[:doubled]
                bias[2 * doubled : 3 * doubled] = -bias[:doubled]
        if degenerate == 3:  # lines along a grid, some of which are the border
            weight, bias = weight.mul(2).round().div(2), bias.mul(2).round().div(2)
        dense.weight.data, dense.bias.data = weight, bias
        activation = {"name": "linear"} if last else kind
        layers.append(
            {
                "inputs": inputs,
                "units": doubled * width,
                "weight": weight.T.flatten().tolist(),
                "bias": bias.tolist(),
                "activation": activation,
            }
        )
        modules += [dense] if last else [dense, module]
        inputs = width
    return layers, nn.Sequential(*modules)


def described(seed: int) -> dict[str, Any]:
    """Return a network with what its partition is to be."""
    layers, module = network(seed)
    part = sc.partition(module, sc.Domain.box(-1, 1), progress=False)
    mesh = part.mesh
    return {
        "seed": seed,
        "layers": layers,
        "regions": mesh.num_faces,
        "vertices": mesh.num_vertices,
        "unresolved": len(part.unresolved),
        "areas": sorted(part.areas.tolist()),
    }


def write(count: int, path: Path, first: int = 0) -> None:
    """Write the descriptions of so many networks."""
    path.write_text(json.dumps([described(first + k) for k in range(count)]))


if __name__ == "__main__":
    write(int(sys.argv[1]), Path(sys.argv[2]))
