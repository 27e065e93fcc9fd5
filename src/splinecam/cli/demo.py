"""A small classifier, its exact partition, and pictures: ``splinecam demo``."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from splinecam._util.files import writing
from splinecam.cli.console import make_folder, write_text
from splinecam.cli.pictures import prepare_pictures, write_figure
from splinecam.geometry.domain import Domain
from splinecam.jobs.partitioning import partition
from splinecam.partitions.partition import Partition
from splinecam.plot import plot, plot_layers, plot_surface
from splinecam.viewer.page import to_html
from splinecam.viewer.playground import write_playground


def two_spirals(count: int, *, turns: float = 2.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return points ``(count, 2)`` of two noisy spirals in [-1, 1]^2, and labels ``(count,)``."""
    generator = torch.Generator().manual_seed(seed)
    label = torch.arange(count) % 2
    radius = 0.1 + 0.82 * torch.rand(count, generator=generator).sqrt()
    angle = 2 * math.pi * turns * radius + math.pi * label
    points = radius[:, None] * torch.stack([angle.cos(), angle.sin()], 1)
    return points + 0.014 * torch.randn(count, 2, generator=generator), label


def train(
    x: Tensor, label: Tensor, *, width: int = 64, depth: int = 3, steps: int = 800, seed: int = 1
) -> nn.Sequential:
    """Train a ReLU network with one output whose sign is the class of ``x: (N, 2)``."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers: list[nn.Module] = []
        for k in range(depth):
            layers += [nn.Linear(width if k else 2, width), nn.ReLU()]
        model = nn.Sequential(*layers, nn.Linear(width, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(model(x)[:, 0], label.float())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return model.eval()


def pictures(part: Partition, x: Tensor, label: Tensor) -> dict[str, Any]:
    """Return pictures by name: the regions with the training points, the graph, and the layers."""
    return {
        "demo": plot(part, color="class", points=x, labels=label, axes="off", legend=False).figure,
        "demo-surface": plot_surface(part).figure,
        "demo-layers": plot_layers(part, color="class"),
    }


def run(out: Path, *, device: str = "auto", dpi: int = 200, steps: int = 800) -> None:
    """Train, compute the partition, check it and draw it; print what was found and where."""
    prepare_pictures()
    make_folder(out)
    seconds: dict[str, float] = {}

    @contextmanager
    def step(name: str, doing: str) -> Iterator[None]:
        print(f"{doing} ...", end=" ", flush=True)
        start = perf_counter()
        yield
        seconds[name] = perf_counter() - start
        print(f"{seconds[name]:.2f} s", flush=True)

    x, label = two_spirals(600)
    with step("training", f"Training a network of 3 x 64 ReLUs on {len(x)} points of two spirals"):
        model = _trained(x, label, steps)
    with step("partition", "Computing all of its linear regions"):
        part = partition(model, Domain.box(-1.05, 1.05), device=device, progress=False)
    with step("validation", f"Checking the {len(part):,} regions against the network"):
        part.validate(progress=False)
    with step("pictures", "Drawing them"):
        for name, figure in pictures(part, x, label).items():
            write_figure(figure, [out / f"{name}.png"], dpi=dpi)
    with step("viewer", "Writing them as a page to look around in"):
        to_html(part, out / "demo.html", title="Two spirals", color="class", points=x, labels=label)
        write_playground(out / "playground.html")
    with step("files", "Saving the partition and the network"):
        part.save(out / "demo.npz")
        batch: Any = torch.export.Dim("batch")
        program = torch.export.export(model, (torch.zeros(2, 2),), dynamic_shapes=({0: batch},))
        with writing(out / "demo.pt2"):
            torch.export.save(program, out / "demo.pt2")
    stats = part.stats()
    content = {"stats": stats.nested(), "seconds": seconds}
    write_text(out / "demo.json", json.dumps(content, indent=2) + "\n")
    print(f"\n{stats}\n\n{_next_steps(out)}")


def _trained(x: Tensor, label: Tensor, steps: int) -> nn.Module:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the network is too small to share among threads
    try:
        return train(x, label, steps=steps)
    finally:
        torch.set_num_threads(threads)


def _next_steps(out: Path) -> str:
    """Return what was written, and what to try next, as text."""
    rows = [
        ("demo.png", "all regions, the decision boundary and the training points"),
        ("demo.html", "the same to point at and to zoom into: open it in a browser"),
        ("playground.html", "a page in which small networks train, with their regions"),
        ("demo-surface.png", "the network's output over the plane, a facet per region"),
        ("demo-layers.png", "the regions that each layer adds, and the line of one neuron"),
        ("demo.json", "the statistics above"),
        ("demo.npz", "the partition, for splinecam plot, splinecam stats and sc.load"),
        ("demo.pt2", "the network, as torch.export.save writes it"),
    ]
    wide = max(len(str(out / name)) for name, _ in rows)
    files = "\n".join(f"  {out / name!s:<{wide}}  {what}" for name, what in rows)
    command = "splinecam" if shutil.which("splinecam") else f"{sys.executable} -m splinecam"
    zoom = out / "zoom"
    return f"""Written:
{files}

Try next:
  {command} plot {out / "demo.npz"} --color slope --boundary --out {out / "slope.png"}
  {command} partition {out / "demo.pt2"} --box -0.25 0.25 --boundary --out {zoom}
  {command} stats {out / "demo.npz"} {zoom / "partition.npz"}"""
