"""A movie of training: regions and decision boundary of a network that learns two spirals.

Training is fast at first and slow later, so the frames are spaced logarithmically: every frame
shows about as much change as the one before. Each is an exact partition of the same square, and
colours mean the same in all of them.

Run: python examples/training_movie.py --out out
It also writes the curves of the run: the loss, and regions around training and random points.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn

import splinecam as sc
from splinecam.cli.demo import two_spirals


def title(shot: sc.results.Snapshot) -> str:
    """The title of a frame."""
    numbers = shot.scalars
    regions, right = int(numbers["num_regions"]), numbers["accuracy"]
    return f"step {shot.step:,}: {regions:,} regions, {right:.0%} right"


def main(argv: list[str] | None = None) -> None:
    """Train, and film it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the movie")
    parser.add_argument("--frames", type=int, default=80)
    parser.add_argument("--steps", type=int, default=1500, help="training steps")
    parser.add_argument("--width", type=int, default=24, help="units of a hidden layer")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)

    torch.manual_seed(options.seed)
    x, label = two_spirals(200, turns=1.2, seed=options.seed)
    width = options.width
    model = nn.Sequential(
        *(nn.Linear(2, width), nn.ReLU()),
        *(nn.Linear(width, width), nn.ReLU()),
        *(nn.Linear(width, width), nn.ReLU()),
        nn.Linear(width, 1),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003, weight_decay=0.05)
    watch = sc.watch(
        model,
        sc.Domain.box(-1.05, 1.05),
        every=sc.training.log_steps(options.steps, options.frames),
        points={"training points": x, "random points": 100},
        radius=0.05,
        statistics=["num_regions"],
    )
    for _ in range(options.steps + 1):
        logit = model(x)[:, 0]
        loss = nn.functional.binary_cross_entropy_with_logits(logit, label.float())
        shot = watch.step(loss=loss, accuracy=((logit > 0) == (label == 1)).float().mean())
        if shot:
            print(title(shot))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    figure = watch.plot(scalars=("loss", "accuracy"))
    figure.savefig(options.out / "training_curves.png", dpi=150)
    look = {"color": "class", "points": x, "labels": label, "axes": "off", "linewidth": 0.25}
    path = options.out / "training_movie.gif"
    sc.movie(watch, path, title=title, width=4.25, dpi=96, legend=False, **look)
    print(f"The movie is in {path}")


if __name__ == "__main__":
    torch.set_num_threads(1)  # the networks are too small to share among threads
    main()
