"""How long partitions of narrow networks with smooth functions take, and which are refused.

  python benchmarks/narrow_smooth.py --networks 1000 --seed 0

Networks are drawn at random: one to three hidden layers with 1 to 9 units in all, every smooth
function, alone or mixed with others and with ReLU, weights as torch draws them or up to 2.5 times
as large, on boxes of width 0.2 to 6, some of them 10 or 100 times as long as wide. Errors from 1e-1
to 1e-4 are allowed, relative to the range of the outputs, or absolute where that range is from 0.1
to 10. Networks whose outputs are not finite are drawn again. Seconds are those of the CPU with one
thread, after one network of each function: the first calls of torch.export take long. *Needed* is
about the least number of convex regions that could do, from the integral of second derivatives H: a
region on which an output is off a plane by at most e has an area of 6 sqrt(3) e / sqrt(|det H|).
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import process_time

import torch
from common import Table
from torch import Tensor, nn

import splinecam as sc

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from high_precision import SMOOTH, Snake

LIMIT = 2.0  # seconds that no network should need
AREA = 6 * 3**0.5  # of a hexagon on which the square of the radius, over 4, is at most 1

TABLE = Table(
    {
        "networks": ">8,",
        "refused": ">9,",
        "median": ">8.3f",
        "worst": ">8.2f",
        "above": ">7,",
        "regions": ">11,",
        "seconds": ">9.0f",
    }
)


@dataclass(frozen=True)
class Case:
    """A network, the box on which it is partitioned, and the error that is allowed."""

    seed: int
    model: nn.Sequential
    domain: sc.Domain
    smooth: str | float

    def __str__(self) -> str:
        steps = ", ".join(
            str(step.out_features) if isinstance(step, nn.Linear) else type(step).__name__
            for step in self.model
        )
        return f"seed {self.seed}: {steps}, {self.domain!r}, smooth={self.smooth!r}"


def drawn(seed: int) -> Case:
    """The network of a seed."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    domain = _domain(rng)
    while True:
        model = _network(rng)
        outputs = model(_points(domain).to(next(model.parameters())))
        if bool(torch.isfinite(outputs).all()):
            break
    error = 10 ** rng.uniform(-4, -1)
    ranges = outputs.amax(0) - outputs.amin(0)
    ordinary = 0.1 <= float(ranges.amin()) <= float(ranges.amax()) <= 10
    absolute = ordinary and rng.random() < 0.6
    return Case(seed, model, domain, error if absolute else f"{100 * error:.4g}%")


def _network(rng: random.Random) -> nn.Sequential:
    depth = rng.choice([1, 2, 3])
    units = rng.randint(depth, 9)
    ends = [0, *sorted(rng.sample(range(1, units), depth - 1)), units]
    pure = None if rng.random() < 0.15 else rng.choice([*SMOOTH])
    width, steps = 2, []
    for wide in (b - a for a, b in pairwise(ends)):
        linear = nn.Linear(width, wide)
        if rng.random() < 0.6:
            linear.weight.data *= rng.uniform(1, 2.5)
        steps += [linear, SMOOTH[pure or rng.choice([*SMOOTH])][0]()]
        if rng.random() < 0.05:
            steps.append(nn.ReLU())
        width = wide
    model = nn.Sequential(*steps, nn.Linear(width, rng.choice([1, 1, 1, 2, 3])))
    return (model.double() if rng.random() < 0.5 else model).eval().requires_grad_(False)


def _domain(rng: random.Random) -> sc.Domain:
    size = rng.choice([0.1, 1, 1, 1, 3])
    half = [size, size * rng.choice([1, 1, 1, 0.1, 0.01])]
    rng.shuffle(half)
    center = [rng.uniform(-0.5, 0.5) * size for _ in range(2)]
    low, high = ([c + sign * h for c, h in zip(center, half, strict=True)] for sign in (-1, 1))
    return sc.Domain.box(low, high)


def needed(case: Case, allowed: Tensor) -> int:
    """The least number of convex regions, about, given the error (n,) of each output."""
    x = _points(case.domain).to(next(case.model.parameters()))
    hessian = torch.func.vmap(torch.func.hessian(lambda point: case.model(point[None])[0]))
    bent = hessian(x).double().det().abs().sqrt().mean(0)
    return int((bent * case.domain.area / (AREA * allowed)).amax())


def _points(domain: sc.Domain) -> Tensor:
    low, high = domain.corners.aminmax(dim=0)
    steps = (torch.arange(32, dtype=torch.float64) + 0.5) / 32
    return low + (high - low) * torch.cartesian_prod(steps, steps)


def main(argv: Sequence[str] | None = None) -> int:
    """Print every network that is slow or refused, and a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", type=int, default=100, help="how many to draw (100)")
    parser.add_argument("--seed", type=int, default=0, help="of the first network (0)")
    given = parser.parse_args(argv)
    torch.set_num_threads(1)
    handle = sc.register_op(Snake, curvature=2.0)
    seconds, regions, refused = [], 0, 0
    try:
        for act, *_ in SMOOTH.values():
            first = nn.Sequential(nn.Linear(2, 1), act(), nn.ReLU(), nn.Linear(1, 1))
            sc.partition(first, sc.Domain.box(-1, 1), smooth=0.1, progress=False)
        for seed in range(given.seed, given.seed + given.networks):
            case = drawn(seed)
            start = process_time()
            try:
                part = sc.partition(case.model, case.domain, smooth=case.smooth, progress=False)
            except sc.SplineCamError as error:
                refused += 1
                print(f"{case}\n  {type(error).__name__}: {error}", flush=True)
                continue
            seconds.append(process_time() - start)
            regions += len(part)
            if seconds[-1] > LIMIT and part.smoothing is not None:
                least = needed(case, part.smoothing.tolerance)
                text = f"{seconds[-1]:.2f} s, {len(part):,} regions, {least:,} needed"
                print(f"{case}\n  {text}", flush=True)
    except KeyboardInterrupt:
        print("interrupted")
    finally:
        handle.remove()
    row = {
        "networks": len(seconds) + refused,
        "refused": refused,
        "median": statistics.median(seconds),
        "worst": max(seconds),
        "above": sum(each > LIMIT for each in seconds),
        "regions": regions,
        "seconds": sum(seconds),
    }
    print(TABLE.heading())
    print(TABLE.line(row))
    return int(refused > 0)


if __name__ == "__main__":
    raise SystemExit(main())
