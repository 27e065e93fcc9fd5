"""The difference of two networks beside the larger of their two partitions.

Run ``python benchmarks/difference.py``, or ``--only mlp128x3_pruned --repeat 9 --device cuda``. The
pairs are described in ``benchmarks/README.md``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from common import Table, alone, in_turns, machine, options, perceptron, seconds, square, warm_up
from networks import around_an_image, pooled
from torch import nn

import splinecam as sc


def quantised(model: nn.Module) -> nn.Module:
    """The weights of each tensor rounded to the levels of int8."""
    other = copy.deepcopy(model)
    for weight in other.parameters():
        step = weight.detach().abs().max() / 127
        weight.data = (weight.data / step).round() * step
    return other


def pruned(model: nn.Module) -> nn.Module:
    """The smallest 30 % of the weights of each matrix are zero."""
    other = copy.deepcopy(model)
    for weight in other.parameters():
        if weight.dim() > 1:
            limit = weight.detach().abs().flatten().quantile(0.3)
            weight.data[weight.detach().abs() < limit] = 0
    return other


def tuned(model: nn.Module) -> nn.Module:
    """The weights of the last layer are others."""
    other = copy.deepcopy(model)
    last = list(other.parameters())[-2]
    noise = torch.randn(last.shape, generator=torch.Generator().manual_seed(1), dtype=last.dtype)
    last.data += 0.1 * noise.to(last.device)
    return other


CHANGES: dict[str, Callable[[nn.Module], nn.Module]] = {
    "equal": copy.deepcopy,
    "tuned": tuned,
    "pruned": pruned,
    "quantised": quantised,
}
NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], sc.Domain]]] = {
    "mlp32x2": (partial(perceptron, 2, 32, 32, 3), partial(square, 2, 4.0)),
    "mlp128x3": (partial(perceptron, 2, 128, 128, 128, 10), partial(square, 2, 4.0)),
    "mlp256x2": (partial(perceptron, 2, 256, 256, 10), partial(square, 2, 4.0)),
    "cnn8_max": (partial(pooled, nn.MaxPool2d, 8), partial(around_an_image, 16, 2.0)),
}
WORKLOADS = {
    f"{name}_{change}": (*made, changed)
    for name, made in NETWORKS.items()
    for change, changed in CHANGES.items()
}
# Two networks that have nothing in common but their shapes, or not even their depths.
for _name, _widths in (("other", (2, 128, 128, 128, 10)), ("shallower", (2, 128, 10))):
    WORKLOADS[f"mlp128x3_{_name}"] = (
        *NETWORKS["mlp128x3"],
        lambda model, widths=_widths: perceptron(*widths, seed=1).to(next(model.parameters())),
    )

TABLE = Table(
    {
        "workload": "<22",
        "regions": ">10,",
        "of both": ">10,",
        "partition": ">11.4f",
        "difference": ">12.4f",
        "ratio": ">8.2f",
        "per region": ">12.2f",
        "numbers": ">10.3f",
    }
)


def row(name: str, repeat: int, device: torch.device) -> dict[str, Any]:
    """The times of both partitions and of the difference, in turns, and of all its numbers."""
    make, domain_of, change = WORKLOADS[name]
    model, domain = make().to(device), domain_of()
    pair = model, change(model)
    warm_up(device)
    quiet = {"device": device, "progress": False}
    parts = [sc.partition(each, domain, **quiet) for each in pair]
    found = sc.difference(*pair, domain, **quiet)
    works = [partial(sc.partition, each, domain, **quiet) for each in pair]
    works.append(partial(sc.difference, *pair, domain, **quiet))
    *single, both = (time.best for time in in_turns(works, repeat, device))
    regions, larger = max(map(len, parts)), max(single)
    return {
        "workload": name,
        "regions": regions,
        "of both": len(found),
        "partition": larger,
        "difference": both,
        "ratio": both / larger,
        "per region": both / larger * regions / len(found),
        "numbers": seconds(found.stats, device),
    }


def main() -> None:
    """Print a table: the time beside that of the larger partition, and the same per region."""
    settings = options(__doc__, WORKLOADS).parse_args()
    print(f"{machine(settings.device)}, best of {settings.repeat}; seconds\n")
    print(TABLE.heading())
    for name in settings.only or WORKLOADS:
        print(TABLE.line(alone(row, name, settings.repeat, settings.device)), flush=True)


if __name__ == "__main__":
    main()
