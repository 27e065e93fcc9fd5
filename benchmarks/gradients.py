"""Gradients of the geometry: against finite differences, and what they cost.

python benchmarks/gradients.py --networks 2000 --device cpu
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path

import torch
from common import Best
from torch import Tensor, nn

import splinecam as sc
from splinecam.questions.differentiable import Differentiable

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from gradient_cases import KINDS, drawn, error

QUANTITIES: dict[str, Callable[[Differentiable], Tensor]] = {
    "class areas": lambda d: d.class_areas.square().sum(),
    "boundary": lambda d: d.boundary.square().sum(),
    "areas": lambda d: d.areas.square().sum(),
    "integrals": lambda d: d.integrals("square").sum(),
    "maps": lambda d: d.weight.square().sum() + d.bias.square().sum(),
}
NETWORKS = (
    ([32] * 3, 1.0),
    ([64] * 4, 5.0),
    ([128] * 3, 9.0),
    ([128] * 4, 9.0),
    ([32] * 6, 12.0),
)
"""Widths, and half the side of the square."""


def network(widths: list[int]) -> nn.Sequential:
    """A ReLU network with weights of a size that cuts the domain often."""
    torch.manual_seed(0)
    sizes, layers = [2, *widths, 2], list[nn.Module]()
    for n, m in pairwise(sizes):
        layers += [nn.Linear(n, m), nn.ReLU()]
        nn.init.normal_(layers[-2].weight, std=1.5 * (2 / n) ** 0.5)
        nn.init.normal_(layers[-2].bias, std=0.5)
    return nn.Sequential(*layers[:-1]).double()


def cost(widths: list[int], side: float, device: torch.device, repeat: int) -> None:
    """Forward and backward beside the partition, in seconds; the best of some alternating runs."""
    model, domain = network(widths).to(device), sc.Domain.box(-side, side)
    best = Best(device)

    def differentiate(part: sc.Partition, of: Callable[[Differentiable], Tensor]) -> None:
        model.zero_grad()
        of(part.differentiable()).backward()

    for _ in range(repeat):
        for name, of in QUANTITIES.items():
            part = best.time(
                "partition", lambda: sc.partition(model, domain, device=device, progress=False)
            )
            best.time(name, partial(differentiate, part, of))
    base = best.times.pop("partition")
    each = ", ".join(f"{name} {taken / base:.1f}" for name, taken in best.times.items())
    shape = f"{len(widths)} x {widths[0]}"
    print(f"{shape}, {len(part):,} regions in {base:.4f} s: {each} partitions", flush=True)


def fuzzed(seed: int) -> tuple[int, str, float | None]:
    """The error of a random network."""
    torch.set_num_threads(1)
    kind = KINDS[seed % len(KINDS)]
    return seed, kind, error(*drawn(seed, kind), seed)


def fuzz(seeds: range, workers: int) -> None:
    """Compare random networks with finite differences."""
    start, found = time.perf_counter(), Counter[str]()
    worst: list[tuple[float, int, str]] = []
    with ProcessPoolExecutor(workers) as pool:
        for seed, kind, off in pool.map(fuzzed, seeds, chunksize=4):
            found["regions come or go" if off is None else "compared"] += 1
            if off is not None:
                worst = sorted([*worst, (off, seed, kind)])[-5:]
                if not off <= 1e-6:
                    print(f"network {seed} ({kind}): {off:.1e}", flush=True)
    print(f"{dict(found)} in {time.perf_counter() - start:.0f} s; largest errors {worst}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first network")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    options = parser.parse_args()
    if options.repeat:
        for widths, side in NETWORKS:
            cost(widths, side, options.device, options.repeat)
    if options.networks:
        fuzz(range(options.first, options.first + options.networks), options.workers)
