"""A generator of digits: the regions of its latent plane, and the surface of all its images.

A small generative adversarial network learns the 8x8 digits that come with scikit-learn, from a
latent plane. Its generator is piecewise linear up to the final tanh, which is left out. It maps
each region of the plane affinely to a facet of a surface in the space of images. All images of the
generator lie on this surface. The picture shows the surface in its three principal components, with
facets in the colours of their regions. Where the map stretches the plane a lot, images change fast.

Run: python examples/generator.py --out out
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import splinecam as sc

BRIGHT = 0.8  # where tanh is still steep
RATE = 0.0015  # of learning, at the beginning
REACH = 1.0  # latent points are uniform in the square from -REACH to REACH


def digits(classes: list[int]) -> Tensor:
    """The images of some digits, (N, 64), from -BRIGHT to BRIGHT."""
    found = load_digits()
    kept = torch.isin(torch.tensor(found.target), torch.tensor(classes))
    return BRIGHT * (torch.tensor(found.data, dtype=torch.float32) / 8 - 1)[kept]


def networks(width: int, seed: int) -> tuple[nn.Sequential, nn.Sequential]:
    """A generator from the plane to images, and a discriminator of images."""
    torch.manual_seed(seed)
    generator = nn.Sequential(
        *(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, 2 * width), nn.ReLU()),
        *(nn.Linear(2 * width, 64), nn.Tanh()),
    )
    discriminator = nn.Sequential(
        *(nn.Linear(64, 128), nn.LeakyReLU(0.2), nn.Linear(128, 64), nn.LeakyReLU(0.2)),
        nn.Linear(64, 1),
    )
    return generator, discriminator


def latent(count: int) -> Tensor:
    """Random points (count, 2) of the latent plane."""
    return REACH * (2 * torch.rand(count, 2) - 1)


def train(generator: nn.Module, discriminator: nn.Module, x: Tensor, *, steps: int) -> None:
    """Train both against each other; noise on all images, which fades, keeps them balanced."""
    of_generator, of_discriminator = (
        torch.optim.Adam(model.parameters(), betas=(0.5, 0.99))
        for model in (generator, discriminator)
    )
    for step in range(steps):
        left = 1 - step / steps
        for group in (*of_generator.param_groups, *of_discriminator.param_groups):
            group["lr"] = RATE * min(1, 2 * left)
        noise = 0.5 * left
        real = x[torch.randint(len(x), (64,))]
        real, made = (
            each + noise * torch.randn_like(each) for each in (real, generator(latent(64)))
        )
        loss = nn.functional.softplus(discriminator(made.detach())).mean()
        loss = loss + nn.functional.softplus(-discriminator(real)).mean()
        of_discriminator.zero_grad()
        loss.backward()
        of_discriminator.step()
        of_generator.zero_grad()
        nn.functional.softplus(-discriminator(made)).mean().backward()
        of_generator.step()
    generator.eval()


def main(argv: list[str] | None = None) -> None:
    """Train, partition the latent plane, and draw it beside the surface of images."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
    parser.add_argument(
        "--classes", type=int, nargs="+", default=[0, 1, 4, 7], help="digits to learn"
    )
    parser.add_argument("--width", type=int, default=32, help="units of the first layer")
    parser.add_argument("--steps", type=int, default=3000, help="training steps")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)

    x = digits(options.classes)
    generator, discriminator = networks(options.width, options.seed)
    train(generator, discriminator, x, steps=options.steps)
    part = sc.partition(generator, sc.Domain.box(-REACH, REACH), progress=False)
    print(part)

    # The area by which each region is stretched: the product of the two singular values.
    stretch = torch.linalg.svdvals(part.weight).prod(1)
    print(
        f"area of the surface: {float(part.areas @ stretch):.1f}, from a square of {4 * REACH**2:g}"
    )
    middle = part.values.mean(0)
    axes = torch.linalg.svd(part.values - middle, full_matrices=False)
    share = axes.S[:3].square().sum() / axes.S.square().sum()
    print(f"three principal components hold {share:.0%} of the surface's variance")

    figure = plt.figure(figsize=(13.2, 4.9), layout="constrained")
    left, images = (figure.add_subplot(1, 3, k) for k in (1, 2))
    space = figure.add_subplot(1, 3, 3, projection="3d")
    part.plot(ax=left, color="random", boundary=False, axes="off", linewidth=0.3)
    left.set_title(f"{len(part):,} regions of the latent plane")
    steps = REACH * (torch.arange(10) + 0.5) / 5 - REACH
    grid = torch.cartesian_prod(steps.flip(0), steps).flip(1)
    with torch.no_grad():
        made = generator(grid).view(-1, 1, 8, 8)
    sc.plot.image_grid(made, ax=images, columns=10, limits=(-BRIGHT, BRIGHT))
    images.set_title("what is generated there")
    part.plot.surface(output=axes.Vh[:3].T, ax=space, view=(30, -50))
    space.set_axis_off()
    space.set_title("the surface of images, on three axes")
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "generator.png"
    figure.savefig(path, dpi=130)
    print(f"The picture is in {path}")


if __name__ == "__main__":
    torch.set_num_threads(1)  # the networks are too small to share among threads
    main()
