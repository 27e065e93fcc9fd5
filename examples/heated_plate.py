"""A Poisson problem, solved by a ReLU network with exact integrals instead of random points.

A square plate is heated evenly and loses heat at its border, in proportion to the temperature u
there: -Laplace u = 1 inside, and the slope outwards is -5 u. Of all functions u has the least
energy, the integral of |grad u|^2 / 2 - u over the plate and of 5 u^2 / 2 along its border. On each
region of the network these are polynomials, so ``part.differentiable()`` gives the energy exactly,
with its gradient. Random points miss a part of the gradient: at a point |grad u|^2 does not change
as kinks move. So the error stays, however many points there are.

Run: python examples/heated_plate.py --out out
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from torch import Tensor, nn

import splinecam as sc

DOMAIN = sc.Domain.box(-1, 1)
COOLING = 5.0
SIDE = 101  # points along each side at which the error is measured


def grid() -> Tensor:
    """Points (SIDE^2, 2) of the plate."""
    line = torch.linspace(-1, 1, SIDE, dtype=torch.float64)
    return torch.cartesian_prod(line, line).flip(1)


def solution(x: Tensor, terms: int = 40) -> Tensor:
    """The temperature at points (N, 2), from cosines with the right slope at the border, (N,)."""
    low = math.pi * torch.arange(terms, dtype=torch.float64)
    high = low + math.pi / 2
    for _ in range(60):  # k tan(k) = COOLING
        k = (low + high) / 2
        below = k * k.sin() * k.cos().sign() < COOLING * k.cos().abs()
        low, high = torch.where(below, k, low), torch.where(below, high, k)
    share = 2 * low.sin() / (low + low.sin() * low.cos())
    p, q = (share * (low * each[:, None]).cos() for each in x.unbind(1))
    return ((p @ (1 / (low.square()[:, None] + low.square()))) * q).sum(1)


def exact_energy(model: nn.Module) -> tuple[Tensor, sc.Partition]:
    """The energy by exact integrals over regions and pieces of the border."""
    part = sc.partition(model, DOMAIN, device="cpu", progress=False)
    moving = part.differentiable()
    inside = moving.areas @ moving.weight.square().sum((1, 2)) / 2 - moving.integrals().sum()
    ends = part.mesh.edges[part.mesh.edge_layer < 0]
    a, b = moving.values[ends, 0].unbind(1)
    lengths = (moving.vertices[ends[:, 0]] - moving.vertices[ends[:, 1]]).norm(dim=1)
    return inside + COOLING / 2 * (lengths @ (a * a + a * b + b * b)) / 3, part


def sampled_energy(model: nn.Module, count: int) -> Tensor:
    """The energy by means over random points, one in eight of them on the border."""
    x = 2 * torch.rand(count, 2, dtype=torch.float64) - 1
    border = x[: max(1, count // 8)].clone()
    row, side = torch.arange(len(border)), torch.randint(2, (len(border),))
    border[row, side] = border[row, side].sign()
    x = x[len(border) :].requires_grad_()
    u = model(x)
    slope = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
    inside = 4 * (slope.square().sum(1) / 2 - u[:, 0]).mean()
    return inside + COOLING / 2 * 8 * model(border).square().mean()


def train(
    options: argparse.Namespace, counts: list[int] | None = None
) -> tuple[nn.Module, list[int], list[float]]:
    """A network, the numbers of its evaluations, and its errors; counts: of random points."""
    torch.manual_seed(options.seed)
    width, x = options.width, grid()
    true, used, errors = solution(x), list[int](), list[float]()
    model = nn.Sequential(
        *(nn.Linear(2, width), nn.ReLU()),
        *(nn.Linear(width, width), nn.ReLU()),
        nn.Linear(width, 1),
    ).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
    for step in range(options.steps):
        if counts is None:
            energy, part = exact_energy(model)
            used.append(len(part.vertices))
        else:
            energy = sampled_energy(model, counts[step])
        optimizer.zero_grad()
        energy.backward()
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            errors.append(float((model(x)[:, 0] - true).norm() / true.norm()))
    return model, used, errors


def draw(model: nn.Module, ax: Axes, title: str) -> None:
    """The temperature, and the regions in which it is linear."""
    with torch.no_grad():
        u = model(grid()).view(SIDE, SIDE).numpy()
    style = {"vmin": 0, "vmax": 0.45, "cmap": "inferno", "interpolation": "bilinear"}
    shown = ax.imshow(u, origin="lower", extent=(-1, 1, -1, 1), **style)
    ax.figure.colorbar(shown, ax=ax, shrink=0.75, label="temperature")
    part = sc.partition(model, DOMAIN, device="cpu", progress=False)
    ax.plot(*part.vertices[part.mesh.edges].permute(2, 1, 0), color="white", lw=0.25)
    ax.set(title=title, xticks=[], yticks=[])


def main(argv: list[str] | None = None) -> None:
    """Solve the problem both ways, and with more random points; draw temperatures and errors."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
    parser.add_argument("--width", type=int, default=24, help="units of a hidden layer")
    parser.add_argument("--steps", type=int, default=400, help="training steps")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)

    figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    model, counts, errors = train(options)
    found = {"exact integrals": (model, errors)}
    for times, name in ((1, "as many random points"), (30, "30 times as many random points")):
        other, _, errors = train(options, [times * count for count in counts])
        found[name] = other, errors
    for k, (name, (model, errors)) in enumerate(found.items()):
        print(f"{name}: {errors[-1]:.1%} from the solution")
        if k < 2:
            draw(model, axes[k], f"{name}: {errors[-1]:.1%} off")
        axes[2].semilogy(errors, label=name, color=("#0072B2", "#D55E00", "#E69F00")[k])
    axes[2].set(xlabel="training step", title="distance from the solution")
    axes[2].yaxis.set_major_formatter("{x:.0%}")
    axes[2].legend()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "heated_plate.png"
    figure.savefig(path, dpi=110)
    print(f"The picture is in {path}")


if __name__ == "__main__":
    torch.set_num_threads(1)  # the networks are too small to share among threads
    main()
