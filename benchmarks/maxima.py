"""Time and peak memory of maxima: Voronoi diagrams, and max-pooling beside average pooling.

Run ``python benchmarks/maxima.py``, or ``--only voronoi500 --repeat 9 --device cuda``. The method
is described in ``benchmarks/README.md``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from bench import measure, note
from common import Table, Workload, alone, machine, options
from networks import around_an_image, linear, pooled
from torch import Tensor, nn

import splinecam as sc


class Largest(nn.Module):
    """The largest of all features."""

    def forward(self, x: Tensor) -> Tensor:
        return x.amax(1, keepdim=True)


def tangent_planes(count: int) -> nn.Module:
    """The largest of 2 p.x - |p|² for random sites p: its regions are a Voronoi diagram."""
    generator = torch.Generator().manual_seed(count)
    sites = 2 * torch.rand(count, 2, generator=generator, dtype=torch.float64) - 1
    return nn.Sequential(linear(2 * sites, -(sites**2).sum(1)), Largest())


WORKLOADS = {
    f"voronoi{count}": Workload(
        partial(tangent_planes, count), partial(sc.Domain.box, -1, 1), regions=count
    )
    for count in (10, 50, 200, 500)
}
for _name, _channels, _side in (("cnn8", (8,), 10.0), ("cnn8_8", (8, 8), 8.0)):
    for _kind, _pool in (("average", nn.AvgPool2d), ("max", nn.MaxPool2d)):
        WORKLOADS[f"{_name}_{_kind}"] = Workload(
            partial(pooled, _pool, *_channels), partial(around_an_image, 16, _side)
        )

TABLE = Table(
    {
        "workload": "<16",
        "regions": ">10,",
        "best": ">10.4f",
        "µs each": ">12.2f",
        "peak": ">10.1f",
        "overhead": ">10.2f",
    }
)


def row(name: str, repeat: int, device: torch.device) -> dict[str, Any]:
    """What the other benchmark measures, of these workloads."""
    return measure(WORKLOADS[name], name, repeat, device)


def main() -> None:
    """Print a table; the overhead of a maximum is that of a region against the average's."""
    settings = options(__doc__, WORKLOADS).parse_args()
    print(f"{machine(settings.device)}, best of {settings.repeat}; peak in MiB\n")
    print(TABLE.heading())
    each: dict[str, float] = {}
    for name in settings.only or WORKLOADS:
        made = alone(row, name, settings.repeat, settings.device)
        each[name] = made["µs each"]
        other = each.get(name.replace("_max", "_average"))
        if other is not None and name.endswith("_max"):
            made["overhead"] = each[name] / other
        print(TABLE.line(made, note(made)), flush=True)


if __name__ == "__main__":
    main()
