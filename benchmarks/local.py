"""Local complexity: its cost beside the usual 25 forward passes, and trials of what it promises.

Run ``python benchmarks/local.py cost --samples 256``, ``bounds --networks 2000``, ``coverage
--trials 1000`` or ``density --trials 200``. What is measured is described in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from time import perf_counter, process_time
from typing import Any

import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam.engine.end_signs import EndCounts
from splinecam.jobs.local import Exact, corrected
from splinecam.questions.local_complexity import Sample

QUIET: Any = {"progress": False}


class Block(nn.Module):
    """Some convolutions and a skip connection."""

    def __init__(self, inside: int, outside: int, stride: int, *, bottleneck: bool) -> None:
        super().__init__()
        thin = outside // 4
        sizes = [(3, inside, outside, stride), (3, outside, outside, 1)]
        if bottleneck:
            sizes = [(1, inside, thin, 1), (3, thin, thin, stride), (1, thin, outside, 1)]
        way: list[nn.Module] = []
        for size, a, b, step in sizes:
            way += [nn.Conv2d(a, b, size, step, size // 2, bias=False), nn.BatchNorm2d(b)]
            way.append(nn.ReLU())
        self.way = nn.Sequential(*way[:-1])
        self.skip: nn.Module = nn.Identity()
        if stride > 1 or inside != outside:
            short = nn.Conv2d(inside, outside, 1, stride, bias=False)
            self.skip = nn.Sequential(short, nn.BatchNorm2d(outside))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.way(x) + self.skip(x))


def resnet(depth: int, width: int = 64) -> tuple[nn.Module, tuple[int, ...]]:
    """ResNet-18 for 32 x 32 pixels or ResNet-50 for 224 x 224, with random weights."""
    torch.manual_seed(0)
    large = depth == 50
    first = nn.Conv2d(3, width, *((7, 2, 3) if large else (3, 1, 1)), bias=False)
    layers: list[nn.Module] = [first, nn.BatchNorm2d(width), nn.ReLU()]
    layers += [nn.MaxPool2d(3, 2, 1)] if large else []
    before = width
    for k, count in enumerate((3, 4, 6, 3) if large else (2, 2, 2, 2)):
        after = width << (k + 2 if large else k)
        for block in range(count):
            stride = 2 if k and not block else 1
            layers.append(Block(before, after, stride, bottleneck=large))
            before = after
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000 if large else 10)]
    return nn.Sequential(*layers).eval(), (3, 224, 224) if large else (3, 32, 32)


def spent(work: Callable[[], Any], device: torch.device) -> tuple[float, Any]:
    """Seconds of the processor, or on a GPU of the clock, and the result."""
    clock = perf_counter if device.type == "cuda" else process_time
    if device.type == "cuda":
        torch.cuda.synchronize()
    begin = clock()
    made = work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return clock() - begin, made


def cost(options: argparse.Namespace) -> None:
    """The time of 25 forward passes a sample, and that of an estimate to 1 %."""
    device = torch.device(options.device)
    model, shape = resnet(options.depth, options.width)
    model = model.to(device)
    x = torch.rand(options.samples, *shape)
    batch = torch.rand(25, *shape, device=device)
    begin = perf_counter()
    sc.local_complexity(model, x[:1], 0.005, precision=1.0, device=device, **QUIET)  # reads it
    print(f"first call, which reads the network: {perf_counter() - begin:.1f} s")

    def passes() -> None:
        with torch.inference_mode():
            for _ in range(options.samples):
                model(batch)

    def estimate() -> sc.results.LocalComplexity:
        return sc.local_complexity(model, x, 0.005, device=device, **QUIET)

    turns = [(spent(passes, device)[0], *spent(estimate, device)) for _ in range(options.repeat)]
    script, taken = (min(turn[k] for turn in turns) for k in (0, 1))
    found = turns[-1][2]
    print(found)
    print(f"script {script:.2f} s, here {taken:.2f} s: {taken / script:.2f} times as long")
    mean = found.mean()
    print(f"half the interval {100 * (mean.high - mean.low) / 2 / mean.value:.2f} % of the mean")


class Both(nn.Module):
    """Two units for each: they switch at the same place."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([torch.relu(x), torch.relu(-x)], 1)


def random_network(seed: int) -> tuple[nn.Module, tuple[int, ...]]:
    """A small network of one of several kinds."""
    torch.manual_seed(seed)
    width, kind = int(torch.randint(2, 16, ())), seed % 8
    if kind == 5:
        pool = (nn.MaxPool2d(2), nn.MaxPool2d(3, 2, 1))[seed % 16 == 5]
        body = nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), pool, nn.Flatten()
        return nn.Sequential(*body, nn.Linear(27, width), nn.ReLU(), nn.Linear(width, 2)), (1, 6, 6)
    if kind == 6:
        blocks = (
            Block(2, 4 * width, 1, bottleneck=False),
            Block(4 * width, 4 * width, 2, bottleneck=True),
        )
        return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(36 * width, 2)), (2, 6, 6)
    if kind == 7:
        middle = nn.Linear(3, width), Both(), nn.Linear(2 * width, 4), nn.ReLU()
        return nn.Sequential(*middle, nn.Linear(4, 1)), (3,)
    act = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.Hardtanh, nn.PReLU)[kind]
    layers: list[nn.Module] = []
    for k in range(1 + seed % 4):
        layers += [nn.Linear(width if k else 3, width), act()]
    return nn.Sequential(*layers, nn.Linear(width, 2)), (3,)


def bounds(options: argparse.Namespace) -> None:
    """Whether the ends of diameters ever prove more switches than there are."""
    wrong = lines = switches = proved = 0
    for seed in range(options.first, options.first + options.networks):
        model, shape = random_network(seed)
        x, radius = torch.randn(1, *shape), 10 ** float(torch.rand(()) * 3 - 2)
        found = sc.local_complexity(model.eval(), x, radius, exact=True, seed=seed, **QUIET)
        lower = found.lower.flatten(0, 1)[found.chosen]
        wrong += int((lower > found.switches).sum())
        lines += len(found.chosen)
        switches, proved = switches + int(found.switches.sum()), proved + int(lower.sum())
    print(f"{options.networks:,} networks, {lines:,} diameters: {wrong} bounds violated,")
    print(f"{proved:,} of {switches:,} switches proved by the ends")


def trained(D: int, width: int, depth: int) -> nn.Module:
    """A network that has learnt a wave."""
    torch.manual_seed(0)
    layers = [x for k in range(depth) for x in (nn.Linear(width if k else D, width), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(width, 1))
    x = torch.randn(512, D)
    y = torch.sin(3 * x[:, :1]) * torch.cos(2 * x[:, 1:2])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(400):
        optimizer.zero_grad()
        ((model(x) - y) ** 2).mean().backward()
        optimizer.step()
    return model.eval()


def populations() -> Iterator[tuple[str, sc.results.LocalComplexity]]:
    """Balls of all sizes in trained networks, all of whose diameters are known exactly."""
    for D, width, depth in ((2, 32, 2), (10, 64, 3), (2, 64, 4)):
        model = trained(D, width, depth)
        for radius in (0.05, 0.15, 0.4, 1.0):
            x = torch.randn(100, D, generator=torch.Generator().manual_seed(0))
            name = f"{D} inputs, {depth} x {width}, radius {radius}"
            yield name, sc.local_complexity(model, x, radius, exact=True, **QUIET)


def coverage(options: argparse.Namespace) -> None:
    """How often the interval covers the exact mean."""
    for name, whole in populations():
        order = whole.chosen.argsort()
        columns = whole.switches[order], whole.breakpoints[order], whole.first[order]
        numbers = columns[0].sum(1).double()
        cheap, least = (part.sum(-1).flatten().double() for part in (whole.ends, whole.lower))
        ends = EndCounts(whole.lower, whole.ends, whole.open, whole.points)

        def divide(chosen: Tensor, columns: Any = columns) -> Exact:
            return Exact(chosen, *(column[chosen] for column in columns))

        none, true, drawn, covered = divide(order[:0]), float(numbers.mean()), 0, 0
        for seed in range(options.trials):
            known, risk = corrected(ends, divide, none, options.precision, seed)
            exact = known.switches.sum(1).double()
            found = Sample(cheap, least, known.chosen, exact).mean(risk)
            covered += found.low - 1e-9 <= true <= found.high + 1e-9
            drawn += len(known.chosen)
        missed = 100 * (1 - float(cheap.mean()) / true)
        share = 100 * covered / options.trials
        print(
            f"{name:34} mean {true:7.2f}  missed by the ends {missed:5.1f} %  "
            f"covered {share:5.1f} %  exact {drawn / options.trials:5.0f} of {len(numbers):,}",
            flush=True,
        )


def density(options: argparse.Namespace) -> None:
    """How often the interval of chords covers the density of borders of a partition."""
    model = trained(2, 32, 2)
    part = sc.partition(model, sc.Domain.disc([0.0, 0.0], 1.0, corners=256), progress=False)
    corners = part.domain.corners
    sides = float((corners - corners.roll(1, 0)).norm(dim=1).sum())
    true = (part.stats()["total_edge_length"] - sides) / part.domain.area
    covered = 0
    for seed in range(options.trials):
        how: Any = {"directions": 200, "chords": True, "seed": seed, "precision": 0.05, **QUIET}
        found = sc.local_complexity(model, [[0.0, 0.0]], 1.0, **how).density()
        covered += found.low <= true <= found.high
    print(
        f"exact {true:.4g}, last estimate {found}, covered {100 * covered / options.trials:.1f} %"
    )


def main() -> None:
    """Measure what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("cost", "bounds", "coverage", "density"))
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--repeat", type=int, default=2, help="of cost: turns; the least counts")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--depth", type=int, choices=(18, 50), default=18)
    parser.add_argument("--first", type=int, default=0, help="seed of the first network")
    parser.add_argument("--networks", type=int, default=2000)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--precision", type=float, default=0.05)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    {"cost": cost, "bounds": bounds, "coverage": coverage, "density": density}[options.what](
        options
    )


if __name__ == "__main__":
    main()
