"""A network of sines that has learnt an image, with the proved error of its linear pieces.

The sines of a SIREN are smooth, so it has no linear regions of its own. With ``smooth=``
piecewise-linear functions replace them, with more pieces where a unit bends more. Each region gets
a bound: nowhere in it is any colour of the network further from the region's map. The bounds are
near the largest true errors at pixels, which are shown beside them. Between the pixels only a proof
can bound the error.

Run: python examples/siren.py --out out
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from image_fitting import flower, mean_colors
from matplotlib.colors import Normalize
from torch import Tensor, nn

import splinecam as sc


class Sine(nn.Module):
    """The sine of a multiple of its argument."""

    def __init__(self, omega: float) -> None:
        super().__init__()
        self.omega = omega

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(self.omega * x)


def siren(width: int, omega: float) -> nn.Sequential:
    """Two hidden layers, whose initial weights give each layer the whole range of the sine."""
    layers = [nn.Linear(2, width), nn.Linear(width, width), nn.Linear(width, 3)]
    for k, layer in enumerate(layers):
        most = math.sqrt(6 / width) / omega if k else 1 / 2
        nn.init.uniform_(layer.weight, -most, most)
    return nn.Sequential(layers[0], Sine(omega), layers[1], Sine(omega), layers[2])


def fit(model: nn.Module, x: Tensor, rgb: Tensor, steps: int) -> None:
    """Train a network on pixels at places x."""
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.005, total_steps=steps)
    for _ in range(steps):
        batch = torch.randint(len(x), (2048,))
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x[batch]), rgb[batch]).backward()
        optimizer.step()
        schedule.step()


def errors(part: sc.Partition, model: nn.Module, x: Tensor) -> Tensor:
    """How far the maps are from the network at places x, in the worst colour, (N,)."""
    region = part.locate(x)
    found = (part.weight[region] @ x[:, :, None])[:, :, 0] + part.bias[region]
    with torch.no_grad():
        return (found - model(x)).abs().amax(1)


def draw(part: sc.Partition, model: nn.Module, side: int) -> plt.Figure:
    """The image, the regions in their mean colours, their bounds, and the true errors."""
    figure, axes = plt.subplots(2, 2, figsize=(9, 10), layout="constrained")
    (image, regions), (bounds, true) = axes
    x = flower(side)[0].double()
    with torch.no_grad():
        pixels = model(x).clamp(0, 1).view(side, side, 3)
    shown = {"origin": "lower", "extent": (-1, 1, -1, 1)}
    image.imshow(pixels.numpy(), **shown)
    image.set_title("the network: a smooth function")
    part.plot(ax=regions, color=mean_colors(part), boundary=False, axes="off", linewidth=0.1)
    regions.set_title(f"{len(part):,} linear regions")
    bound = part.region_bounds.amax(1)
    scale = Normalize(0, float(bound.max()))
    colors = plt.get_cmap("magma")
    proved = torch.from_numpy(colors(scale(bound.numpy()))[:, :3].copy())
    part.plot(ax=bounds, color=proved, edges=False, boundary=False, axes="off")
    bounds.set_title("the proved bound of each region")
    off = errors(part, model, x).view(side, side)
    drawn = true.imshow(off.numpy(), cmap=colors, norm=scale, **shown)
    true.set_title("the true error at each pixel")
    place = {"location": "bottom", "shrink": 0.6, "aspect": 40}
    figure.colorbar(drawn, ax=axes, label="error of a colour between 0 and 1", **place)
    for ax in axes.flat:
        ax.set(xticks=[], yticks=[])
    return figure


def main(argv: list[str] | None = None) -> None:
    """Fit the flower, partition the network, draw."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
    parser.add_argument("--smooth", type=float, default=0.1, help="the error that colours may have")
    parser.add_argument("--omega", type=float, default=8.0, help="the frequency of the sines")
    parser.add_argument("--width", type=int, default=16, help="units of a hidden layer")
    parser.add_argument("--steps", type=int, default=800, help="training steps")
    parser.add_argument("--side", type=int, default=512, help="pixels of the images")
    options = parser.parse_args(argv)

    torch.manual_seed(0)
    x, rgb = flower(128)
    model = siren(options.width, options.omega)
    fit(model, x, rgb, options.steps)
    model = model.double().eval()
    part = sc.partition(model, sc.Domain.box(-1, 1), smooth=options.smooth, progress=False)
    figure = draw(part, model, options.side)
    largest = float(errors(part, model, x.double()).max())
    print(f"{part!r}\n{part.smoothing!r}")
    proved = float(part.region_bounds.max())
    print(f"proved bound {proved:.4f}, largest error at pixels {largest:.4f}")
    path = options.out / "siren.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    print(f"The picture is in {path}")


if __name__ == "__main__":
    torch.set_num_threads(1)  # the network is too small to share among threads
    main()
