"""Time and peak memory of maxima: Voronoi diagrams, and max-pooling beside average pooling.

Run ``python benchmarks/maxima.py``, or ``--only voronoi500 --repeat 9 --device cuda``. The method
is described in ``benchmarks/README.md``.
"""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Callable
from dataclasses import dataclass

import torch
from bench import arguments, machine, seconds
from torch import Tensor, nn

import splinecam as sc
from splinecam.capture import capture
from splinecam.engine import run


class Largest(nn.Module):
    """The largest of all features."""

    def forward(self, x: Tensor) -> Tensor:
        return x.amax(1, keepdim=True)


def tangent_planes(count: int) -> nn.Module:
    """The largest of 2 p.x - |p|² for random sites p: its regions are a Voronoi diagram."""
    generator = torch.Generator().manual_seed(count)
    sites = 2 * torch.rand(count, 2, generator=generator, dtype=torch.float64) - 1
    linear = nn.Linear(2, count, dtype=torch.float64)
    with torch.no_grad():
        linear.weight.copy_(2 * sites)
        linear.bias.copy_(-(sites**2).sum(1))
    return nn.Sequential(linear, Largest())


def pooled(pool: Callable[[int], nn.Module], *channels: int) -> nn.Module:
    """Convolution, ReLU and a pool by two, for every number of channels, on 16 x 16 pixels."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers: list[nn.Module] = []
        for a, b in zip((1, *channels), channels, strict=False):
            layers += [nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), pool(2)]
        units = channels[-1] * (16 >> len(channels)) ** 2
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(units, 10)).double().eval()


def around_an_image(side: float) -> sc.Domain:
    """A square around a random image."""
    image = torch.randn(1, 16, 16, generator=torch.Generator().manual_seed(1))
    return sc.Domain.around(image, side=side, seed=1)


@dataclass(frozen=True)
class Workload:
    """``regions``: the right number where it is known; ``against``: what to compare with."""

    model: Callable[[], nn.Module]
    domain: Callable[[], sc.Domain]
    regions: int | None = None
    against: str | None = None


WORKLOADS = {
    f"voronoi{count}": Workload(
        lambda count=count: tangent_planes(count), lambda: sc.Domain.box(-1, 1), regions=count
    )
    for count in (10, 50, 200, 500)
}
for _name, _channels, _side in (("cnn8", (8,), 10.0), ("cnn8_8", (8, 8), 8.0)):
    WORKLOADS[f"{_name}_average"] = Workload(
        lambda channels=_channels: pooled(nn.AvgPool2d, *channels),
        lambda side=_side: around_an_image(side),
    )
    WORKLOADS[f"{_name}_max"] = Workload(
        lambda channels=_channels: pooled(nn.MaxPool2d, *channels),
        lambda side=_side: around_an_image(side),
        against=f"{_name}_average",
    )


@dataclass(frozen=True)
class Figures:
    """Regions, the best time in seconds, and the peak memory above the start in bytes."""

    regions: int
    best: float
    peak: int


def measure(name: str, repeat: int, device: torch.device) -> Figures:
    """The peak memory of a first run, and the time of the best of the others."""
    workload = WORKLOADS[name]
    domain, model = workload.domain(), workload.model().to(device)
    program = capture(model, domain.input_shape, device=device)
    small = capture(nn.Sequential(nn.Linear(2, 8), nn.ReLU()), (2,), device=device)
    with torch.no_grad():
        run(small, sc.Domain.box(-1, 1))  # loads what any partition needs
        start = memory(device)
        faces = run(program, domain).mesh.num_faces
        peak = memory(device) - start
        best = min(seconds(lambda: run(program, domain), device) for _ in range(repeat))
    return Figures(faces, best, peak)


def memory(device: torch.device) -> int:
    """The most bytes used up to now."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def line(name: str, figures: Figures, others: dict[str, Figures]) -> str:
    """One row of the table; the overhead is that of a region against the other pool's."""
    workload = WORKLOADS[name]
    each = figures.best / figures.regions
    text = (
        f"{name:<16}{figures.regions:>10,}{figures.best:>10.4f}{1e6 * each:>12.2f}"
        f"{figures.peak / 2**20:>10.1f}"
    )
    if workload.against in others:
        against = others[workload.against]
        text += f"{each / (against.best / against.regions):>10.2f}"
    if workload.regions not in (None, figures.regions):
        text += f"  expected {workload.regions:,} regions"
    return text


def main() -> None:
    """Print a table; each workload has a process of its own, for its peak memory."""
    options = arguments(__doc__, WORKLOADS)
    device = options.device
    print(f"{machine(device)}, best of {options.repeat}\n")
    head = ("workload", "regions", "best (s)", "each (µs)", "peak (MiB)", "overhead")
    print("{:<16}{:>10}{:>10}{:>12}{:>11}{:>9}".format(*head))
    figures: dict[str, Figures] = {}
    for name in options.only or WORKLOADS:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            figures[name] = pool.apply(measure, (name, options.repeat, device))
        print(line(name, figures[name], figures), flush=True)


if __name__ == "__main__":
    main()
