"""Time many segments through ACAS Xu, and one segment through trained networks for images.

Run ``python benchmarks/segments.py``, or ``--only short --count 100000 --device cuda``. Without the
folder of trained networks a random network of the same shape stands for ACAS Xu. What the columns
mean is described in benchmarks/README.md.
"""

from __future__ import annotations

from time import process_time
from typing import Any

import networks
import torch
from common import Table, in_turns, machine, options, perceptron, seconds, warm_up
from torch import nn

import splinecam as sc

# Many segments: how long they are; "long" ones join two random inputs.
LENGTHS = {"short": 0.1, "long": None}
COUNT = {"short": 1_000_000, "long": 100_000}
FEW = {"cpu": 5_000, "cuda": 200_000}  # segments along which gradients are integrated
# One segment: a trained network for images, between two of its anchors.
SINGLE = ("mlp_fashion", "conv1_fashion", "resbn_fashion", "cnn5_cats")
BOX = (-0.3284, -0.5, -0.5, -0.5, -0.5), (0.6799, 0.5, 0.5, 0.5, 0.5)  # inputs of ACAS Xu

MANY = Table(
    {
        "workload": "<10",
        "segments": ">10,",
        "pieces": ">9.1f",
        "sweep": ">9.2f",
        "CPU s": ">9.2f",
        "µs each": ">9.2f",
        "variation": ">11.2f",
        "decisions": ">11.2f",
        "IG, µs each": ">13.2f",
    }
)
ONE = Table(
    {
        "workload": "<16",
        "pieces": ">9,",
        "ms": ">10.1f",
        "forward, ms": ">13.2f",
        "ratio": ">8.2f",
    }
)


def acas() -> nn.Module:
    """ACAS Xu, or a random network of its shape."""
    if (networks.SHARED / "zoo" / "zoo.py").exists():
        return networks.zoo_model("acasxu_1_1")
    model = perceptron(5, *[50] * 6, 5)
    generator = torch.Generator().manual_seed(0)
    for layer in model[::2]:  # variances at which about as many units switch as in ACAS Xu
        nn.init.kaiming_normal_(layer.weight, generator=generator)
        nn.init.normal_(layer.bias, std=0.1, generator=generator)
    return model


def segments(name: str, count: int, device: torch.device) -> sc.results.SegmentBatch:
    """Segments that begin at random inputs of ACAS Xu, in random directions."""
    generator = torch.Generator().manual_seed(0)
    low, high = torch.tensor(BOX, dtype=torch.float64)
    a, b = low + (high - low) * torch.rand(2, count, 5, generator=generator, dtype=torch.float64)
    length = LENGTHS[name]
    if length is not None:
        b = a + length * (b - a) / (b - a).norm(dim=1, keepdim=True)
    return sc.Domain.segments(a.to(device), b.to(device))


def many(name: str, count: int, repeat: int, device: torch.device) -> dict[str, Any]:
    """A sweep over many segments, and three questions about the result."""
    model, given = acas().to(device), segments(name, count, device)
    quiet = {"device": device, "progress": False}
    best, cpu = float("inf"), 0.0
    parts = sc.along(model, segments(name, 1000, device), **quiet)  # loads what is needed
    for _ in range(repeat):
        made: list[sc.results.SegmentPartitions] = []
        began = process_time()
        taken = seconds(lambda: made.append(sc.along(model, given, **quiet)), device)  # noqa: B023
        if taken < best:
            best, cpu = taken, process_time() - began
        parts = made[0]
    few = min(count, FEW[device.type])
    some = sc.along(model, segments(name, few, device), **quiet)
    return {
        "workload": name,
        "segments": count,
        "pieces": float(parts.counts.double().mean()),
        "sweep": best,
        "CPU s": cpu,
        "µs each": 1e6 * best / count,
        "variation": seconds(parts.total_variation, device),
        "decisions": seconds(parts.first_changes, device),
        "IG, µs each": 1e6 * seconds(lambda: some.integrated_gradients(output=0), device) / few,
    }


def one(name: str, repeat: int, device: torch.device) -> dict[str, Any]:
    """One segment, beside a forward pass of a single input for every breakpoint."""
    model, domain = networks.zoo_model(name).to(device), networks.zoo_domain(name)
    a, b = domain.embed(domain.corners)[[0, 2]]
    line = sc.Domain.segment(a, b)
    part = sc.along(model, line, device=device, progress=False)
    x = a[None].to(device)

    def forward() -> None:
        with torch.no_grad():
            for _ in range(100):
                model(x)

    def divide() -> None:
        sc.along(model, line, device=device, progress=False)

    taken, passes = (times.best for times in in_turns([divide, forward], repeat, device))
    each = passes / 100
    return {
        "workload": name,
        "pieces": len(part),
        "ms": 1e3 * taken,
        "forward, ms": 1e3 * each,
        "ratio": taken / (each * max(1, len(part) - 1)),
    }


def main() -> None:
    """Print both tables."""
    parser = options(__doc__, [*LENGTHS, *SINGLE])
    parser.add_argument("--count", type=int, help="segments, if not as many as the table has")
    settings = parser.parse_args()
    device, repeat = settings.device, settings.repeat
    print(f"{machine(device)}, best of {repeat}, seconds\n")
    warm_up(device)
    print(MANY.heading())
    for name in LENGTHS:
        if not settings.only or name in settings.only:
            count = settings.count or COUNT[name]
            print(MANY.line(many(name, count, repeat, device)), flush=True)
    if (networks.SHARED / "zoo" / "zoo.py").exists():
        print(f"\n{ONE.heading()}")
        for name in SINGLE:
            if not settings.only or name in settings.only:
                print(ONE.line(one(name, repeat, device)), flush=True)


if __name__ == "__main__":
    main()
