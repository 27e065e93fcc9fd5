"""Compare what ``sc.estimate`` predicts with the partitions themselves.

Run ``python benchmarks/estimates.py``, or ``--only mlp256x6 resnet18_0.003``. What the columns mean
is described in benchmarks/README.md.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from time import process_time
from typing import Any

import torch
from common import Table, Workload, machine, options, seconds, warm_up
from networks import WORKLOADS
from torch import Tensor, nn

import splinecam as sc

SIDES = (0.001, 0.003)  # of squares for a ResNet-18; at 0.01 its partition takes minutes

TABLE = Table(
    {
        "workload": "<28",
        "regions": ">11,",
        "expected": ">11,",
        "times": ">8.2f",
        "MB": ">8,.0f",
        "seconds": ">9.3f",
        "expected s": ">12.3f",
        "times s": ">9.2f",
        "estimate s": ">12.3f",
    }
)


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        stride = 1 + (before != after)
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(after), nn.BatchNorm2d(after)])
        short = nn.Conv2d(before, after, 1, stride, bias=False)
        self.short = nn.Identity() if stride == 1 else short
        self.acts = nn.ModuleList([nn.ReLU(), nn.ReLU()])

    def forward(self, x: Tensor) -> Tensor:
        inner = self.acts[0](self.norms[0](self.first(x)))
        made: Tensor = self.acts[1](self.norms[1](self.second(inner)) + self.short(x))
        return made


def resnet18() -> nn.Module:
    """A random ResNet-18 for images of 3 x 32 x 32 numbers."""
    torch.manual_seed(0)
    widths = [64, 64, 64, 128, 128, 256, 256, 512, 512]
    stem = [nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()]
    blocks = [Block(a, b) for a, b in pairwise(widths)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)]
    return nn.Sequential(*stem, *blocks, *head).eval()


def around_noise(side: float) -> sc.Domain:
    """A square around random numbers in place of an image."""
    image = torch.randn(3, 32, 32, generator=torch.Generator().manual_seed(1))
    return sc.Domain.around(image, side=side)


def workloads() -> dict[str, Workload]:
    """Those of the other benchmarks, and a ResNet-18."""
    small = {name: work for name, work in WORKLOADS.items() if not work.large and not work.memory}
    images = {f"resnet18_{side}": Workload(resnet18, partial(around_noise, side)) for side in SIDES}
    return {**small, **images}


def least(work: Callable[[], object], device: torch.device) -> float:
    """Seconds of one call: those of this process where other programs keep it waiting."""
    began = process_time()
    return min(seconds(work, device), process_time() - began)


def measured(name: str, work: Workload, device: torch.device) -> dict[str, Any]:
    """The row of a workload."""
    model, domain = work.model(), work.domain()
    sc.estimate(model, domain, device=device)  # reads the model
    found: list[Any] = []
    asked = least(lambda: found.append(sc.estimate(model, domain, device=device)), device)
    find = partial(sc.partition, model, domain, device=device, progress=False)
    taken = least(lambda: found.append(find()), device)
    expected, part = found
    return {
        "workload": name,
        "regions": len(part),
        "expected": expected.regions,
        "times": expected.regions / len(part),
        "MB": expected.memory / 1e6,
        "seconds": taken,
        "expected s": expected.seconds,
        "times s": expected.seconds / taken,
        "estimate s": asked,
    }


def main() -> None:
    """Print the table."""
    known = workloads()
    settings = options(__doc__, known).parse_args()
    print(f"{machine(settings.device)}\n")
    warm_up(settings.device)
    print(TABLE.heading())
    for name, work in known.items():
        if not settings.only or name in settings.only:
            print(TABLE.line(measured(name, work, settings.device)), flush=True)


if __name__ == "__main__":
    main()
