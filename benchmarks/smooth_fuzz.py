"""Look for points at which a network with smooth functions is further from a map than promised.

  python benchmarks/smooth_fuzz.py --count 1000 --seed 0

Networks are drawn at random: every smooth function, alone and mixed with layers that have kinks,
one to six hidden layers of 2 to 32 units, weights of many sizes, skips, normalisation, convolutions
and pooling, trained for some steps or not, on boxes from 1e-3 to 1e3 wide and on thin triangles. A
network is *wrong* if it is off a map by more than the bound of the region at any of 100,000 points
(in float64, and in high precision where that is close, and at others), if ``validate()`` fails, or
if the computation ends with an error. Networks that need more regions or more seconds than they are
given, or larger numbers than float64 has, count as *limited*. *Closest* is the largest error found
over the bound of its region. *Tightness* is the largest bound over the largest error, in the median
of all networks.
"""

from __future__ import annotations

import argparse
import copy
import math
import random
import signal
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from common import Table
from torch import Tensor, nn

import splinecam as sc

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from high_precision import SMOOTH, Call, Residual, Snake, largest_share, maps_at

POINTS = 100_000
EXACT = 30  # points at which all is computed in high precision
CLOSE = 1 - 1e-6  # shares of a bound beyond which float64 does not decide
MAX_REGIONS = 30_000
SECONDS = 60

TABLE = Table(
    {
        "depth": "<8",
        "networks": ">10,",
        "limited": ">9,",
        "regions": ">12,",
        "wrong": ">7,",
        "closest": ">9.4f",
        "tightness": ">11.2f",
        "seconds": ">9.1f",
    }
)


class _Late(Exception):
    """A network takes too long."""


@dataclass(frozen=True)
class Case:
    """A network and where it is partitioned, how accurately."""

    seed: int
    depth: int
    model: nn.Module
    domain: sc.Domain
    smooth: str | float
    refine: str | None = None

    def __str__(self) -> str:
        how = f"smooth={self.smooth!r}, refine={self.refine!r}"
        return f"seed {self.seed}, {how}, {self.domain!r}\n{self.model!r}"


def drawn(seed: int) -> Case:
    """The network of a seed."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    depth = rng.choice([1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 6])
    size = 10 ** rng.uniform(-3, 3) if rng.random() < 0.3 else rng.uniform(0.5, 2)
    image = rng.random() < 0.15
    model = _image_network(rng) if image else _perceptron(rng, depth)
    _scale(rng, model, size)
    if rng.random() < 0.3:
        _train(model, (2, 4, 4) if image else (2,), size)
    if rng.random() < 0.5:
        model = model.double()
    domain = _domain(rng, size, image)
    share = rng.choice([1, 3, 10]) if depth <= 2 else rng.choice([5, 10, 30])
    refine = "boundary" if rng.random() < 0.2 else None
    return Case(seed, 2 if image else depth, model.eval(), domain, f"{share}%", refine)


def _activation(rng: random.Random, pure: str | None) -> nn.Module:
    if pure is not None:
        return SMOOTH[pure][0]()
    if rng.random() < 0.75:
        return SMOOTH[rng.choice([*SMOOTH])][0]()
    kinked = nn.ReLU, nn.LeakyReLU, nn.ReLU6, nn.Hardtanh, lambda: Call("abs", torch.abs)
    return rng.choice(kinked)()


def _perceptron(rng: random.Random, depth: int) -> nn.Module:
    most = {1: 32, 2: 12, 3: 8}.get(depth, 6)
    pure = rng.choice([*SMOOTH]) if rng.random() < 0.6 else None
    steep = pure in ("exp", "square", "cube") and depth > 2
    pure = "tanh" if steep else pure
    width, steps = 2, []
    for number in range(depth):
        wide = rng.randint(2, most)
        linear = nn.Linear(width, wide, bias=rng.random() < 0.9)
        if rng.random() < 0.15:
            linear.weight.data *= torch.rand_like(linear.weight) < 0.4  # sparse, perhaps empty rows
        if rng.random() < 0.15:
            linear.weight.data[-1] = linear.weight.data[0]
        linear.weight.data *= 10 ** rng.uniform(-1, 1) if rng.random() < 0.3 else rng.uniform(1, 3)
        steps.append(linear)
        if rng.random() < 0.15:
            norm = nn.BatchNorm1d(wide)
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.1, 2)
            steps.append(norm)
        # The first is smooth, so that there is something to replace.
        steps.append(_activation(rng, pure or (None if number else rng.choice([*SMOOTH]))))
        if rng.random() < 0.1:
            steps.append(nn.PReLU(wide))
            steps[-1].weight.data.uniform_(-0.5, 1.5)
        if rng.random() < 0.15:
            inner = nn.Linear(wide, wide)
            steps.append(Residual(inner, _activation(rng, pure)))
        width = wide
    return nn.Sequential(*steps, nn.Linear(width, rng.choice([1, 1, 2, 3, 10])))


def _image_network(rng: random.Random) -> nn.Module:
    channels = rng.randint(1, 3)
    act = rng.choice(["gelu", "silu", "tanh", "softplus", "hardswish", "sigmoid"])
    pool = rng.choice([nn.AvgPool2d(2), nn.MaxPool2d(2)])
    steps = [nn.Conv2d(2, channels, 3, padding=1), nn.BatchNorm2d(channels), SMOOTH[act][0]()]
    if rng.random() < 0.5:
        steps.append(nn.PReLU(channels))
    steps += [pool, nn.Flatten(), nn.Linear(4 * channels, 4), SMOOTH[act][0](), nn.Linear(4, 2)]
    return nn.Sequential(*steps)


def _scale(rng: random.Random, model: nn.Module, size: float) -> None:
    """Let the first layer see its domain as one of about unit size, more often than not."""
    if rng.random() < 0.9:
        next(model.parameters()).data /= size


def _train(model: nn.Module, shape: tuple[int, ...], size: float) -> None:
    """Some steps towards a wave."""
    x = size * (2 * torch.rand(64, *shape) - 1)
    goal = torch.sin(3 * x.flatten(1).sum(1, keepdim=True) / size)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2 * min(1.0, 1 / size))
    kept = copy.deepcopy(model.state_dict())
    for _ in range(20):
        optimiser.zero_grad()
        (model(x) - goal).square().mean().backward()
        optimiser.step()
    if not all(bool(torch.isfinite(p).all()) for p in model.parameters()):
        model.load_state_dict(kept)


def _domain(rng: random.Random, size: float, image: bool) -> sc.Domain:
    if image:
        points = size * torch.randn(3, 2, 4, 4)
        return sc.Domain.through(*points)
    kind = rng.random()
    if kind < 0.6:
        return sc.Domain.box(-size, size)
    if kind < 0.8:
        thin = 10 ** rng.uniform(-6, 0)
        turn = rng.uniform(0, 6.3)
        c, s = (size * float(f(torch.tensor(turn))) for f in (torch.cos, torch.sin))
        return sc.Domain.polygon([[0.0, 0.0], [c, s], [c / 2 - thin * s, s / 2 + thin * c]])
    low = [rng.uniform(-2, 2) * size for _ in range(2)]
    return sc.Domain.box(low, [end + rng.uniform(0.01, 2) * size for end in low])


@dataclass
class Count:
    """What became of the networks of one depth."""

    depth: str
    networks: int = 0
    limited: int = 0
    regions: int = 0
    wrong: int = 0
    closest: float = 0.0
    seconds: float = 0.0
    shares: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def tightness(self) -> float:
        return statistics.median(self.shares) if self.shares else float("nan")

    def row(self) -> dict[str, Any]:
        return {**vars(self), "tightness": self.tightness}

    def add(self, case: Case) -> None:
        """Check one network."""
        start = perf_counter()
        try:
            with _within(SECONDS):
                regions, closest, tightness = checked(case)
        except (sc.LimitError, _Late):
            self.limited += 1
        except Exception as error:  # each is a finding, unless numbers are too large
            if "float64" in str(error) or "not finite" in str(error):
                self.limited += 1
                return
            self.wrong += 1
            self.failures.append(f"{case}\n{type(error).__name__}: {error}")
        else:
            self.networks += 1
            self.regions += regions
            self.closest = max(self.closest, closest)
            self.shares.append(tightness)
        self.seconds += perf_counter() - start


@contextmanager
def _within(seconds: int) -> Iterator[None]:
    def late(*_: object) -> None:
        raise _Late

    signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def checked(case: Case) -> tuple[int, float, float]:
    """How many regions there are, the largest share of a bound, and the tightness.

    Raises an error if a bound is too small, or if the partition is not valid.
    """
    part = sc.partition(
        case.model,
        case.domain,
        smooth=sc.Smooth(case.smooth, refine=case.refine),
        max_regions=MAX_REGIONS,
        progress=False,
    )
    model = copy.deepcopy(case.model).double()
    part.validate(progress=False)
    x = points(part)
    region = part.locate(x)
    x, region = x[region >= 0], region[region >= 0]
    with torch.no_grad():
        off = (model(x).flatten(1) - maps_at(part, x, region)).abs()
    share = (off / part.region_bounds[region]).amax(1)
    order = share.argsort(descending=True)
    close = int((share > CLOSE).sum())
    chosen = torch.cat(
        [order[: max(EXACT // 2, min(close, 4 * EXACT))], order[:: len(order) // 20]]
    )
    exact = largest_share(part, model, x, region, chosen.tolist())
    if exact > 1:
        raise AssertionError(f"the network is off by {exact:.9g} of the bound")
    largest = off.amax(0)
    found = largest > 0
    tightness = float((part._bound[found] / largest[found]).max()) if bool(found.any()) else 1.0
    return len(part), exact, tightness


def points(part: sc.Partition) -> Tensor:
    """Random points, and points in the middle and close to the corners of regions."""
    generator = torch.Generator().manual_seed(0)
    mesh = part.mesh
    centers = mesh.means()
    owner, vertex = mesh.owners(), mesh.corner_vertices()
    some = torch.randint(len(owner), (POINTS // 4,), generator=generator)
    share = torch.rand((len(some), 1), generator=generator, dtype=torch.float64).pow(3)
    near = mesh.uv[vertex[some]] * (1 - share) + centers[owner[some]] * share
    middle = centers[torch.randint(len(centers), (POINTS // 4,), generator=generator)]
    frame = sc.geometry.domain.Frame.of(part.domain)
    placed = part.domain.embed(frame.to_plane(torch.cat([near, middle])))
    return torch.cat([part.sample(POINTS // 2, generator=generator).double(), placed])


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table, one depth a line, and every network that is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100, help="networks in all (100)")
    parser.add_argument("--seed", type=int, default=0, help="of the first network (0)")
    parser.add_argument("--minutes", type=float, default=math.inf, help="draw no more after these")
    parser.add_argument("--verbose", action="store_true", help="print every network's seed")
    given = parser.parse_args(argv)
    torch.set_num_threads(1)
    handle = sc.register_op(Snake, curvature=2.0)
    counts: dict[int, Count] = {}
    start = perf_counter()
    try:
        for seed in range(given.seed, given.seed + given.count):
            if perf_counter() - start > 60 * given.minutes:
                break
            case = drawn(seed)
            count = counts.setdefault(case.depth, Count(str(case.depth)))
            before = count.seconds, count.limited, len(count.failures)
            count.add(case)
            for failure in count.failures[before[2] :]:
                print(f"\n{failure}\n", flush=True)
            if given.verbose:
                took, limited = count.seconds - before[0], count.limited - before[1]
                print(f"{seed} depth {case.depth}: {took:.1f} s{' limited' * limited}", flush=True)
    finally:
        handle.remove()
    print(TABLE.heading())
    for _, count in sorted(counts.items()):
        print(TABLE.line(count.row()))
    return int(any(count.wrong for count in counts.values()))


if __name__ == "__main__":
    raise SystemExit(main())
