"""How the architecture shapes the partition: a fully connected network beside a convolutional one.

Both learn to tell drawn shapes apart (small grey images made here, nothing is downloaded). Both are
partitioned on the same plane, through three test images of different classes. The result is that of
the paper's first table: with fewer parameters the convolutional network has many more and much
smaller regions, since every weight of a convolution bends the function at all pixels. A region has
four vertices on average, whatever the architecture, as in any arrangement of many lines. A few
regions with two vertices close together rule the mean eccentricity; its median tells more.

Run: python examples/architectures.py --out out
With ``--zoo FOLDER`` it takes two networks trained on Fashion-MNIST, ``mlp_fashion`` and
``conv1_fashion``, which ``zoo.py`` in that folder loads.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from time import perf_counter

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

import splinecam as sc

SIDE = 28
CLASSES = ("disc", "ring", "square", "frame", "triangle", "cross")
COMPARED = (
    *("NR", "ARV", "ANV", "ARE", "area.median", "eccentricity.median"),
    *("slope_spectral.mean_by_area", "lipschitz_plane", "boundary_length"),
)


def drawn_shapes(count: int, *, seed: int) -> tuple[Tensor, Tensor]:
    """Grey images ``(count, 784)`` of shapes of random place, size and angle; labels (count,)."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, 1, 1, generator=generator)

    axis = torch.linspace(-1, 1, SIDE)
    a, b = axis[:, None] - uniform(-0.25, 0.25), axis[None, :] - uniform(-0.25, 0.25)
    angle, size, thin = uniform(0, 2 * math.pi), uniform(0.4, 0.65), 0.12
    x, y = angle.cos() * a + angle.sin() * b, angle.cos() * b - angle.sin() * a
    round_, boxy = (x**2 + y**2).sqrt() - size, torch.maximum(x.abs(), y.abs()) - size
    tip = torch.maximum(-y, (math.sqrt(3) * x.abs() + y) / 2) - 0.6 * size
    bar, beam = (torch.maximum(p.abs() - size, q.abs() - thin) for p, q in ((x, y), (y, x)))
    frame, ring = boxy.abs() - thin, round_.abs() - thin
    distance = torch.stack([round_, ring, boxy, frame, tip, torch.minimum(bar, beam)])
    label = torch.arange(count) % len(CLASSES)
    ink = (0.5 - SIDE / 2 * distance[label, torch.arange(count)]).clamp(0, 1)
    grain = 0.05 * torch.randn(count, SIDE, SIDE, generator=generator)
    return (ink + grain).flatten(1), label


def networks(width: int, channels: Sequence[int], *, seed: int) -> dict[str, nn.Sequential]:
    """An untrained MLP of depth 3, and two convolutions with one hidden layer."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        mlp: list[nn.Module] = []
        for a, b in pairwise((SIDE**2, width, width, width)):
            mlp += [nn.Linear(a, b), nn.ReLU()]
        conv: list[nn.Module] = [nn.Unflatten(1, (1, SIDE, SIDE))]
        for a, b in pairwise((1, *channels)):
            conv += [nn.Conv2d(a, b, 3, stride=2, padding=1), nn.ReLU()]
        units = channels[-1] * (SIDE >> len(channels)) ** 2
        conv += [nn.Flatten(), nn.Linear(units, width), nn.ReLU()]
        return {
            name: nn.Sequential(*body, nn.Linear(width, len(CLASSES)))
            for name, body in (("mlp", mlp), ("conv", conv))
        }


def train(model: nn.Module, x: Tensor, label: Tensor, *, steps: int, seed: int) -> None:
    """Adam on random batches, in place."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=steps)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the networks are too small to share among threads
    for _ in range(steps):
        batch = torch.randint(len(x), (128,), generator=generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[batch]), label[batch]).backward()
        optimizer.step()
        schedule.step()
    torch.set_num_threads(threads)
    model.eval()


def trained(options: argparse.Namespace) -> tuple[dict[str, nn.Sequential], sc.Domain]:
    """Both networks, trained here, and the plane through a disc, a triangle and a cross."""
    x, label = drawn_shapes(options.images, seed=options.seed)
    unseen, truth = drawn_shapes(len(CLASSES) * 100, seed=options.seed + 1)
    models = networks(options.width, options.channels, seed=options.seed)
    for name, model in models.items():
        start = perf_counter()
        train(model, x, label, steps=options.steps, seed=options.seed)
        with torch.no_grad():
            right = float((model(unseen).argmax(1) == truth).double().mean())
        seconds = perf_counter() - start
        print(f"{name}: {right:.1%} of new images right after {seconds:.1f} s of training")
    corners = (unseen[CLASSES.index(name)] for name in ("disc", "triangle", "cross"))
    return models, sc.Domain.through(*corners, margin=options.margin)


def from_zoo(folder: Path) -> tuple[dict[str, nn.Sequential], sc.Domain]:
    """Two networks trained on Fashion-MNIST, and the plane that both share."""
    found = importlib.util.spec_from_file_location("zoo", folder / "zoo.py")
    if found is None or found.loader is None:
        raise SystemExit(f"there is no zoo.py in {folder}")
    zoo = importlib.util.module_from_spec(found)
    found.loader.exec_module(zoo)
    items = {name: zoo.load(name) for name in ("mlp_fashion", "conv1_fashion")}
    domain = sc.Domain.polygon(items["mlp_fashion"].domain)
    return {name: item.model for name, item in items.items()}, domain


def picture(parts: dict[str, sc.Partition], path: Path) -> None:
    """The partitions side by side, each region coloured by its area."""
    figure, axes = plt.subplots(1, len(parts), figsize=(13, 6), layout="constrained")
    areas = torch.cat([part.areas.cpu() for part in parts.values()])
    common = areas.quantile(0.4).item(), areas.quantile(0.998).item()
    for ax, (name, part) in zip(axes, parts.items(), strict=True):
        part.plot(ax=ax, color="area", limits=common, edges=False, colorbar=ax is axes[-1])
        ax.set_title(f"{name}: {len(part):,} regions")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    print(f"The picture is in {path}")


def main(argv: Sequence[str] | None = None) -> None:
    """Train or load both networks, compute their partitions on one plane, print the numbers."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
    parser.add_argument("--zoo", type=Path, help="folder with zoo.py and trained networks")
    parser.add_argument("--images", type=int, default=6000, help="training images")
    parser.add_argument("--steps", type=int, default=1200, help="training steps")
    parser.add_argument("--width", type=int, default=50, help="units of a hidden layer")
    parser.add_argument("--channels", type=int, nargs=2, default=(3, 6), help="of convolutions")
    parser.add_argument("--margin", type=float, default=0.2, help="room around the three images")
    parser.add_argument("--seed", type=int, default=0, help="of images, weights and batches")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--full", action="store_true", help="print all statistics as well")
    options = parser.parse_args(argv)
    models, domain = from_zoo(options.zoo) if options.zoo else trained(options)
    parts, found = {}, {}
    for name, model in models.items():
        start = perf_counter()
        parts[name] = sc.partition(model, domain, device=options.device)
        middle = perf_counter()
        found[name] = parts[name].stats(full=options.full)
        size = sum(weights.numel() for weights in model.parameters())
        print(
            f"{name}: {size:,} parameters, partition {middle - start:.1f} s, "
            f"statistics {perf_counter() - middle:.1f} s"
        )
        if options.full:
            print(f"\n{found[name]}\n")
    print(f"\n{sc.compare(found, keys=COMPARED)}\n")
    picture(parts, options.out / "architectures.png")


if __name__ == "__main__":
    main()
