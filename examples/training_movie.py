"""A movie of training: regions and decision boundary of a network that learns two spirals.

Training is fast at first and slow later, so the frames are spaced logarithmically: every frame
shows about as much change as the one before. Each is an exact partition of the same square.

Run: python examples/training_movie.py --out out
It writes an MP4 as well where ffmpeg is installed.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.animation import AbstractMovieWriter, FFMpegWriter, PillowWriter
from torch import Tensor, nn

import splinecam as sc
from splinecam.demo import two_spirals


def frame_steps(frames: int, last: int) -> list[int]:
    """Steps from 0 to ``last``, each once, nearly logarithmic."""
    steps = np.geomspace(1, last + 1, frames) - 1
    return sorted({round(step) for step in steps})


def training(
    x: Tensor, label: Tensor, domain: sc.Domain, *, steps: list[int], width: int, seed: int
) -> Iterator[tuple[int, sc.Partition, float]]:
    """Train a network with one output; its partition and accuracy at each of the steps."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        *(nn.Linear(2, width), nn.ReLU()),
        *(nn.Linear(width, width), nn.ReLU()),
        *(nn.Linear(width, width), nn.ReLU()),
        nn.Linear(width, 1),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003, weight_decay=0.05)
    for step in range(steps[-1] + 1):
        logit = model(x)[:, 0]
        if step in steps:
            right = float(((logit > 0) == (label == 1)).double().mean())
            yield step, sc.partition(model, domain, progress=False), right
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(logit, label.float()).backward()
        optimizer.step()


def main(argv: list[str] | None = None) -> None:
    """Train, and film it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the movie")
    parser.add_argument("--frames", type=int, default=90)
    parser.add_argument("--steps", type=int, default=1500, help="training steps")
    parser.add_argument("--width", type=int, default=24, help="units of a hidden layer")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)

    x, label = two_spirals(200, turns=1.2, seed=options.seed)
    domain = sc.Domain.box(-1.05, 1.05)
    steps = frame_steps(options.frames, options.steps)
    options.out.mkdir(parents=True, exist_ok=True)
    writers: dict[Path, AbstractMovieWriter] = {
        options.out / "training_movie.gif": PillowWriter(fps=12)
    }
    if shutil.which("ffmpeg"):
        writers[options.out / "training_movie.mp4"] = FFMpegWriter(fps=12, bitrate=4000)

    figure, ax = plt.subplots(figsize=(4.25, 4.5))
    figure.subplots_adjust(0.01, 0.01, 0.99, 0.94)
    for path, writer in writers.items():
        writer.setup(figure, path, dpi=96)
    for step, part, right in training(
        x, label, domain, steps=steps, width=options.width, seed=options.seed
    ):
        ax.clear()
        part.plot(
            ax=ax, color="class", points=x, labels=label, axes="off", legend=False, linewidth=0.25
        )
        ax.set_title(f"step {step:,}: {len(part):,} regions, {right:.0%} right")
        print(f"step {step}: {len(part)} regions, {right:.0%} of the points right")
        hold = 12 if step == steps[-1] else 1  # the last frame stays for a second
        for writer in writers.values():
            for _ in range(hold):
                writer.grab_frame()
    for path, writer in writers.items():
        writer.finish()
        print(f"The movie is in {path}")


if __name__ == "__main__":
    torch.set_num_threads(1)  # the networks are too small to share among threads
    main()
