"""The live pages of the documentation: regions that answer when one points at them.

``python docs/live_pages.py FOLDER`` writes five self-contained pages: the lines of a single layer,
the folding by a second one, a classifier of two spirals over its training, and a convolutional
network on the plane through three digits; and the playground. Building the site writes them into
its folder ``live``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam.viewer.playground import write_playground


def lines(path: Path) -> None:
    """One layer: each unit draws a straight line, and all together they cut the plane."""
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(2, 14), nn.ReLU(), nn.Linear(14, 1))
    with torch.no_grad():  # lines in all directions, close to the middle
        angle = torch.rand(14) * 2 * math.pi
        model[0].weight[:] = torch.stack([angle.cos(), angle.sin()], 1)
        model[0].bias[:] = torch.randn(14) * 0.4
    part = sc.partition(model, sc.Domain.box(-1, 1), progress=False)
    part.to_html(path, title="The lines of one layer", color="random")


def folding(path: Path) -> None:
    """Two layers: the first folds the plane, and the second cuts the folded sheet with lines."""
    fold = nn.Linear(2, 2)
    cut = nn.Linear(2, 6)
    with torch.no_grad():
        fold.weight[:] = torch.tensor([[0.9, 0.5], [-0.4, 1.0]])
        fold.bias[:] = torch.tensor([0.1, -0.15])
        angle = torch.tensor([0.3, 0.8, 1.3, 2.0, 2.6, 0.55])
        cut.weight[:] = torch.stack([angle.cos(), angle.sin()], 1)
        cut.bias[:] = -torch.tensor([0.5, 0.75, 0.6, 0.1, -0.35, 0.2])
    torch.manual_seed(0)
    model = nn.Sequential(fold, Absolute(), cut, nn.ReLU(), nn.Linear(6, 1))
    part = sc.partition(model, sc.Domain.box(-1, 1), progress=False)
    part.to_html(path, title="Folding by a second layer", color="output")


class Absolute(nn.Module):
    """The absolute value, which folds the plane along a line."""

    def forward(self, x: Tensor) -> Tensor:
        """Fold each coordinate at zero."""
        return x.abs()


def training(path: Path) -> None:
    """A classifier of two spirals while it learns: a slider runs over its training."""
    torch.manual_seed(1)
    x, label = spirals(200)
    model = nn.Sequential(nn.Linear(2, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU())
    model.append(nn.Linear(24, 2))
    watch = sc.watch(model, sc.Domain.box(-1, 1), every=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(601):
        if step in {round(600 * (k / 24) ** 2) for k in range(25)}:  # often at the beginning
            watch.snapshot(step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), label).backward()
        optimizer.step()
    title = "Two spirals, from the first step to the last"
    sc.to_html(watch.run, path, title=title, points=x, labels=label)


def spirals(count: int) -> tuple[Tensor, Tensor]:
    """Points (count, 2) of two spirals, and which of them each belongs to."""
    label = torch.arange(count) % 2
    radius = 0.1 + 0.8 * torch.rand(count).sqrt()
    angle = 3 * math.pi * radius + math.pi * label
    return radius[:, None] * torch.stack([angle.cos(), angle.sin()], 1), label


def digits(path: Path) -> None:
    """A convolutional network on the plane through three digits: each place is an image."""
    from sklearn.datasets import load_digits

    found = load_digits()
    x = torch.tensor(found.images, dtype=torch.float32)[:, None] / 16
    label = torch.tensor(found.target)
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32, 10)),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(300):
        batch = torch.randint(len(x), (128,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[batch]), label[batch]).backward()
        optimizer.step()
    chosen = torch.tensor([int((label == digit).nonzero()[0]) for digit in (3, 8, 9)])
    plane = sc.Domain.through(*x[chosen], margin=0.15)
    part = sc.partition(model.eval(), plane, names=[str(k) for k in range(10)], progress=False)
    title = "A network on the plane through three digits"
    part.to_html(path, title=title, points=x[chosen], labels=label[chosen], images=True)


def playground(path: Path) -> None:
    """The playground, which trains networks by itself."""
    write_playground(path)


PAGES: dict[str, Callable[[Path], None]] = {
    "lines": lines,
    "folding": folding,
    "training": training,
    "digits": digits,
    "playground": playground,
}


def write_missing(folder: Path) -> None:
    """Write the pages that a folder does not have; the folder is made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, write in PAGES.items():
        path = folder / f"{name}.html"
        if not path.exists():
            write(path)


if __name__ == "__main__":
    write_missing(Path(sys.argv[1]))
