"""Which way to turn: the exact advisories of a network that avoids collisions, and where it fails.

An aircraft meets another one, the intruder. A table says which of five advisories is best: to go
on, or to turn left or right, weakly or strongly. It follows from where both would fly in the next
half minute. A network learns the table from the intruder's position and velocity. Each picture is
the plane of positions for one velocity, with the own aircraft at the origin, and shows the
advisories of the network exactly: every region, and every border between them.

An intruder is dangerous if it comes near within seconds unless somebody turns. The network must not
call it clear of conflict, and the table does not in any of the planes. In the hatched part the
network does, also between the samples that it has learnt from. The star is one such encounter, and
the network itself confirms it.

The networks of ACAS Xu are known for such pictures (K. D. Julian et al., *Policy Compression for
Aircraft Collision Avoidance Systems*, DASC 2016). They take the distance and the angle of the
intruder; their regions are curved in this plane. Our network takes x and y, and its regions are
polygons in the plane.

Run: python examples/encounter.py --out out
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path as Outline
from matplotlib.transforms import Affine2D
from torch import Tensor, nn

import splinecam as sc
from splinecam.plot import INK

# Distances are in thousands of feet, times in seconds. The own aircraft flies along y.
OWN_SPEED = 0.7
ADVISORIES = {  # degrees a second to the left, what the turn costs, and a colour
    "clear of conflict": (0.0, 0.0, "#eef0f2"),
    "weak left": (1.5, 0.1, "#a9d8f2"),
    "weak right": (-1.5, 0.1, "#f5cc7f"),
    "strong left": (3.0, 0.2, "#4d9fd0"),
    "strong right": (-3.0, 0.2, "#e58a4d"),
}
SAFE, HORIZON = 5.0, 30.0  # the separation that needs no turn, and how far the table looks ahead
NEAR, SOON = 4.5, (3.0, 12.0)  # how near an intruder comes, and when, that is dangerous
INPUTS = torch.tensor([[-12.0, -6, -0.8, -0.8], [12, 18, 0.8, 0.8]], dtype=torch.float64)
ENCOUNTERS = {  # the intruder's velocity
    "head-on": (0.0, -0.6),
    "from the right": (-0.6, 0.0),
    "ahead and slower": (0.0, 0.3),
}
RED, DASHES, HATCH = "#7a0000", (0, (5, 3)), "//////"


def own_path(rate: Tensor, t: Tensor) -> Tensor:
    """Where the own aircraft is at times (T,) if it turns at rates (A,) in degrees, (A, T, 2)."""
    angle = torch.deg2rad(rate)[:, None] * t
    # The chord of an arc points along half of its angle.
    reach = OWN_SPEED * t * torch.sinc(angle / (2 * math.pi))
    return torch.stack([-reach * (angle / 2).sin(), reach * (angle / 2).cos()], 2)


def costs(x: Tensor) -> Tensor:
    """What each advisory costs (N, 5) in encounters x, y, u, v (N, 4): its turn and the danger."""
    rate = torch.tensor([each for each, _, _ in ADVISORIES.values()]).to(x)
    price = torch.tensor([each for _, each, _ in ADVISORIES.values()]).to(x)
    t = torch.arange(0, HORIZON + 1, 1.0).to(x)
    own, closest = own_path(rate, t), []
    for some in x.split(2000):
        intruder = some[:, None, :2] + t[:, None] * some[:, None, 2:]
        apart = intruder[:, None] - own  # (N, A, T, 2), taken to be straight within a second
        first, step = apart[:, :, :-1], apart.diff(dim=2)
        share = (-(first * step).sum(3) / step.square().sum(3)).clamp(0, 1)
        closest.append((first + share[..., None] * step).norm(dim=3).amin(2))
    return price + 20 * (1 - torch.cat(closest) / SAFE).clamp(min=0)


def encounters(count: int, seed: int) -> Tensor:
    """Random positions and velocities, (count, 4)."""
    generator = torch.Generator().manual_seed(seed)
    low, high = INPUTS
    return low + (high - low) * torch.rand(count, 4, generator=generator, dtype=torch.float64)


def train(x: Tensor, label: Tensor, *, width: int, steps: int, seed: int) -> nn.Sequential:
    """A network with three hidden layers that has learnt the best advisories."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = [nn.Linear(4, width), nn.ReLU()]
    for _ in range(2):
        layers += [nn.Linear(width, width), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(width, len(ADVISORIES)))
    middle, half = INPUTS.mean(0), INPUTS.diff(dim=0)[0] / 2
    z = ((x - middle) / half).float()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, steps))
    for _ in range(steps):
        some = torch.randint(len(z), (512,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(z[some]), label[some]).backward()
        optimizer.step()
        rate.step()
    with torch.no_grad():  # from now on it takes the numbers themselves
        model[0].weight /= half.float()
        model[0].bias -= model[0].weight @ middle.float()
    return model.eval()


def closing(velocity: tuple[float, float]) -> tuple[Tensor, float]:
    """The direction (2,) in which the intruder moves as seen from the own aircraft, and how fast.

    The own aircraft flies straight on.
    """
    relative = torch.tensor([velocity[0], velocity[1] - OWN_SPEED], dtype=torch.float64)
    return relative / relative.norm(), float(relative.norm())


def danger(velocity: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """The positions p with ``C p <= b`` from which the intruder comes near soon: a rectangle."""
    (u, v), speed = closing(velocity)
    C = torch.tensor([[-v, u], [v, -u], [u, v], [-u, -v]], dtype=torch.float64)
    return C, torch.tensor([NEAR, NEAR, -SOON[0] * speed, SOON[1] * speed], dtype=torch.float64)


def danger_corners(velocity: tuple[float, float]) -> Tensor:
    """The corners of the same rectangle, (4, 2)."""
    along, speed = closing(velocity)
    across = NEAR * torch.stack([-along[1], along[0]])
    first, last = (-time * speed * along for time in SOON)
    return torch.stack([first + across, first - across, last - across, last + across])


def unsafe(velocity: tuple[float, float]) -> sc.Conjunction:
    """The condition that a dangerous intruder is called clear of conflict."""
    C, b = danger(velocity)
    n = len(ADVISORIES)
    eye = torch.eye(n, dtype=torch.float64)
    A = torch.cat([eye[1:] - eye[0], torch.zeros(len(b), n, dtype=torch.float64)])
    C = torch.cat([torch.zeros(n - 1, 4, dtype=torch.float64), nn.functional.pad(C, (0, 2))])
    limits = torch.cat([torch.zeros(n - 1, dtype=torch.float64), b])
    return sc.Conjunction(A, limits, torch.zeros(len(limits), dtype=torch.bool), C)


def aircraft(ax: Axes, place: tuple[float, float], heading: float, color: str) -> None:
    """Draw an aircraft from above; heading: in degrees, 0 along y and 90 to the left."""
    half = [(0, 1.0), (0.11, 0.75), (0.13, 0.3), (0.95, -0.25), (0.95, -0.45), (0.13, -0.2)]
    half += [(0.1, -0.7), (0.4, -0.9), (0.4, -1.05), (0, -0.95)]
    points = half + [(-x, y) for x, y in reversed(half[1:-1])]
    turn = Affine2D().scale(1.3).rotate_deg(heading).translate(*place)
    outline = Outline([*points, points[0]], closed=True).transformed(turn)
    ax.add_patch(PathPatch(outline, facecolor=color, edgecolor="white", linewidth=1.2, zorder=6))


def draw(ax: Axes, found: sc.results.PropertyCheck, velocity: tuple[float, float]) -> None:
    """One plane of positions: advisories, regions, the dangerous rectangle, where it fails."""
    part = found.preimage.partition
    classes = part.class_regions()
    for name, (_, _, color) in ADVISORIES.items():
        for piece in classes.polygons(name):
            rings = [
                Outline([*ring, ring[0]], closed=True) for ring in (piece.outline, *piece.holes)
            ]
            area = Outline.make_compound_path(*rings)
            ax.add_patch(PathPatch(area, facecolor=color, linewidth=0, zorder=0))
    found.plot(ax=ax, fill="none", legend=False, axes="ticks", linewidth=0.25, color=RED)
    corners = danger_corners(velocity)
    ax.plot(*torch.cat([corners, corners[:1]]).T, color=INK, lw=1.3, ls=DASHES, zorder=5)
    aircraft(ax, (0, 0), 0, INK)
    heading = math.degrees(math.atan2(-velocity[0], velocity[1]))
    aircraft(ax, (-9.6, -3.4), heading, RED)
    ax.text(-7.7, -3.4, "the intruder's\nheading", va="center", color=RED)
    ax.set(xlabel="to the right, in 1,000 ft", ylabel="")


def legend() -> list[Artist]:
    """What the colours and lines of all pictures mean, in columns of two."""
    areas = [
        Patch(facecolor=color, edgecolor=INK, linewidth=0.5, label=name)
        for name, (_, _, color) in ADVISORIES.items()
    ]
    text = f"comes within {1000 * NEAR:,.0f} ft in {SOON[0]:.0f} to {SOON[1]:.0f} s: dangerous"
    dangerous = Line2D([], [], color=INK, lw=1.3, ls=DASHES, label=text)
    unsafe = Patch(facecolor="white", edgecolor=RED, hatch=HATCH, label="dangerous, called clear")
    witness = Line2D([], [], color=RED, marker="*", ms=12, ls="", label="one such encounter")
    clear, *turns = areas
    return [clear, dangerous, *(turns[k] for k in (0, 2, 1, 3)), unsafe, witness]


def main(argv: list[str] | None = None) -> None:
    """Train, check the property on three planes, draw."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
    parser.add_argument("--samples", type=int, default=8000, help="encounters of the table")
    parser.add_argument("--width", type=int, default=24, help="units of a hidden layer")
    parser.add_argument("--steps", type=int, default=1500, help="training steps")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)

    x = encounters(options.samples, options.seed)
    how = {"width": options.width, "steps": options.steps, "seed": options.seed}
    model = train(x, costs(x).argmin(1), **how)
    new = encounters(5000, options.seed + 1)
    right = (model(new.float()).argmax(1) == costs(new).argmin(1)).double().mean()
    print(f"{float(right):.1%} of 5,000 new encounters get the advisory of the table")

    figure, axes = plt.subplots(1, 3, figsize=(15, 6), layout="constrained")
    for ax, (name, velocity) in zip(axes, ENCOUNTERS.items(), strict=True):
        domain = sc.Domain.slice(tuple(INPUTS), axes=(0, 1), at=[0, 0, *velocity])
        part = sc.partition(model, domain, names=list(ADVISORIES), progress=False)
        found = part.check([unsafe(velocity)])
        area = 2 * NEAR * (SOON[1] - SOON[0]) * closing(velocity)[1]
        verdict = f"called clear on {100 * found.area / area:.1f} % of the dangerous area"
        print(f"{name}: {len(part):,} regions; {verdict}")
        print(f"  {found}")
        draw(ax, found, velocity)
        ax.set_title(f"{name}\n{verdict}")
    axes[0].set_ylabel("ahead, in 1,000 ft")
    figure.legend(handles=legend(), loc="outside lower center", ncols=4, frameon=False)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "encounter.png"
    figure.savefig(path, dpi=80)
    print(f"The picture is in {path}")


if __name__ == "__main__":
    torch.set_num_threads(1)  # the network is too small to share among threads
    main()
