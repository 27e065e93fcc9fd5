"""The drawings of the page on the mathematics; run, it writes them to docs/img/math-*.svg."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Polygon
from mpl_toolkits.mplot3d.art3d import Line3DCollection, Poly3DCollection
from torch import nn

import splinecam as sc
from splinecam.plot import CLASSES, INK
from splinecam.testing import polygons

FOLDER = Path(__file__).parent / "img"
BLUE, ORANGE, GREEN, PINK = CLASSES[:4]
GREY = "#9aa3ad"

STYLE = {
    "font.size": 10.5,
    "axes.titlesize": 11,
    "axes.titlepad": 8,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "mathtext.fontset": "cm",
    "svg.hashsalt": "splinecam",
}
CROP: dict[str, Any] = {"bbox_inches": "tight", "pad_inches": 0.06}


def pale(color: str, share: float = 0.3) -> np.ndarray:
    """A colour on white paper."""
    return 1 - share * (1 - np.array(to_rgb(color)))


def mlp(*widths: int, seed: int, spread: float = 1.0) -> nn.Sequential:
    """A ReLU network in double precision; ``spread`` scales the biases."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for k, (n, m) in enumerate(pairwise(widths)):
        layers += [nn.ReLU()] * bool(k) + [nn.Linear(n, m).double()]
        nn.init.normal_(layers[-1].weight, std=1.4 / n**0.5)
        nn.init.normal_(layers[-1].bias, std=0.4 * spread)
    return nn.Sequential(*layers)


def square(model: nn.Module) -> sc.Partition:
    """The partition of the square from -1 to 1."""
    return sc.partition(model, sc.Domain.box(-1, 1), device="cpu", progress=False)


def panels(count: int, *, height: float = 3.1, width: float = 3.1) -> tuple[Figure, list[Axes]]:
    """Panels side by side, without frames, with equal scales."""
    figure, axes = plt.subplots(1, count, figsize=(width * count, height), layout="constrained")
    for ax in axes:
        ax.set_aspect("equal")
        ax.axis("off")
    return figure, list(axes)


def lines(ax: Axes, segments: Any, color: str = INK, width: float = 1.0, **style: Any) -> None:
    """Segments (S, 2, 2)."""
    drawn = LineCollection(
        np.asarray(segments), colors=color, linewidths=width, capstyle="round", **style
    )
    ax.add_collection(drawn)


def dots(ax: Axes, uv: Any, color: str = INK, size: float = 20, **style: Any) -> None:
    """Points (N, 2) with a white rim."""
    u, v = np.asarray(uv).reshape(-1, 2).T
    ax.scatter(u, v, s=size, color=color, edgecolors="white", linewidths=0.8, zorder=6, **style)


def frame(ax: Axes) -> None:
    """The square from -1 to 1."""
    corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    lines(ax, np.stack([corners, np.roll(corners, -1, 0)], 1), width=1.2, zorder=5)
    ax.set_xlim(-1.06, 1.06)
    ax.set_ylim(-1.06, 1.06)


def shades(part: sc.Partition, seed: int) -> np.ndarray:
    """A pale colour for every region, different from region to region."""
    chance = np.random.default_rng(seed)
    base = np.array([to_rgb(c) for c in CLASSES[:6]])[chance.permutation(len(part)) % 6]
    return 1 - (0.22 + 0.2 * chance.random((len(part), 1))) * (1 - base)


# -- the drawings -----------------------------------------------------------------------------


def spline() -> Figure:
    """The graph of a network over its regions."""
    part = square(mlp(2, 5, 4, 1, seed=13))
    values, faces = part.values[:, 0].numpy(), part.mesh.corner_vertices().numpy()
    low, high = values.min(), values.max()
    floor = low - 0.75 * (high - low)
    colors, ink = shades(part, 3), [INK] * len(part)
    cells = [np.r_[uv, uv[:1]] for uv in polygons(part)]
    heights = np.split(values[faces], part.mesh.offsets.numpy()[1:-1])
    heights = [np.r_[z, z[:1]] for z in heights]
    figure = plt.figure(figsize=(6.4, 5.4))
    ax = figure.add_axes((0, 0, 1, 1), projection="3d", computed_zorder=False)
    flat = [np.c_[uv, np.full(len(uv), floor)] for uv in cells]
    lifted = [np.c_[uv, z] for uv, z in zip(cells, heights, strict=True)]
    ends = part.vertices.numpy()[part.mesh.vertex_layer.numpy() < 0]
    tops = values[part.mesh.vertex_layer.numpy() < 0]
    posts = [[(*uv, floor), (*uv, z)] for uv, z in zip(ends, tops, strict=True)]
    ax.add_collection3d(Poly3DCollection(flat, facecolors=colors, edgecolors=ink, linewidths=0.6))
    ax.add_collection3d(Line3DCollection(posts, colors=GREY, linewidths=0.9, linestyles=":"))
    ax.add_collection3d(Poly3DCollection(lifted, facecolors=colors, edgecolors=ink, linewidths=0.8))
    ax.set(xlim=(-1, 1), ylim=(-1, 1), zlim=(floor, high))
    ax.set_box_aspect((1, 1, 0.95), zoom=1.02)
    ax.view_init(26, -58)
    ax.axis("off")
    figure.text(-0.06, 0.74, "the graph of $f$:\nflat facets that meet", fontsize=11)
    figure.text(-0.06, 0.1, "the partition $\\Omega$:\nconvex regions $\\omega$", fontsize=11)
    return figure


def neuron() -> Figure:
    """Where one unit of each layer switches."""
    part = square(mlp(2, 5, 5, 5, 1, seed=55))
    uv, edges, layer = part.vertices.numpy(), part.mesh.edges.numpy(), part.mesh.edge_layer.numpy()
    titles = ("layer 1: a straight line", "layer 2: bent by layer 1", "layer 3: bent by both")
    figure, axes = panels(3)
    for k, (ax, title) in enumerate(zip(axes, titles, strict=True)):
        ax.set_title(title)
        for j in range(k):
            lines(ax, uv[edges[layer == j]], GREY, 0.9)
        curves = part.neurons(layer=k)
        longest = int(curves.units[curves.unit_lengths.argmax(), 1])
        rest = curves.of(layer=k, unit=[n for n in range(5) if n != longest])
        lines(ax, rest.ends.numpy(), BLUE, 1.1, alpha=0.6)
        chosen = curves.of(layer=k, unit=longest)
        lines(ax, chosen.ends.numpy(), ORANGE, 2.6, zorder=4)
        dots(ax, bends(chosen), ORANGE, 26)
        frame(ax)
    return figure


def bends(curves: sc.results.NeuronCurves) -> np.ndarray:
    """The points at which curves change their direction, (N, 2)."""
    found = [np.zeros((0, 2))]
    for line in curves.polylines:
        path = line.path.numpy()
        step = np.diff(path, axis=0)
        angle = np.arctan2(step[:, 1], step[:, 0])
        turned = np.abs(np.sin(np.diff(angle))) > 0.01
        found.append(path[1:-1][turned])
    return np.concatenate(found)


def vertices() -> Figure:
    """One value per vertex; where a unit's line meets a region; when two lines cross."""
    figure, axes = panels(3, height=3.3)
    part = square(mlp(2, 4, 3, 1, seed=21))
    for cell, color in zip(polygons(part), shades(part, 1), strict=True):
        axes[0].add_patch(Polygon(cell, facecolor=color))
    lines(axes[0], part.vertices[part.mesh.edges].numpy(), width=0.9)
    dots(axes[0], part.vertices.numpy(), BLUE, 24)
    frame(axes[0])
    count, corners = len(part.vertices), len(part.mesh.corner_vertices())
    axes[0].set_title(f"{count} vertices, not {corners} corners")

    hexagon = np.array(
        [[-0.9, -0.35], [-0.1, -0.95], [0.85, -0.6], [0.95, 0.3], [0.1, 0.95], [-0.75, 0.6]]
    )
    slope, offset = np.array([0.95, 0.75]), -0.1
    z = hexagon @ slope + offset
    ends = crossings(hexagon, z)
    region(axes[1], hexagon)
    for (u, v), value in zip(hexagon, z, strict=True):
        color = ORANGE if value > 0 else BLUE
        dots(axes[1], (u, v), color, 60)
        axes[1].text(1.17 * u, 1.17 * v, f"{value:+.1f}", ha="center", va="center", color=color)
    lines(axes[1], [ends], ORANGE, 2.4)
    dots(axes[1], ends, INK, 30)
    axes[1].text(0.12, 0.12, "$z = 0$", ha="left", color=ORANGE)
    axes[1].set_title(r"a chord: $t = z_a / (z_a - z_b)$")

    region(axes[2], hexagon)
    for name, color, (slope, offset) in (
        ("1", ORANGE, (np.array([0.95, 0.75]), -0.1)),
        ("2", BLUE, (np.array([1.0, -0.9]), 0.1)),
        ("3", GREEN, (np.array([1.0, -0.62]), 0.72)),
    ):
        ends = crossings(hexagon, hexagon @ slope + offset)
        lines(axes[2], [ends], color, 2.4)
        dots(axes[2], ends, color, 40)
        for u, v in ends:
            scale = 1 + 0.17 / np.hypot(u, v)
            axes[2].text(scale * u, scale * v, name, ha="center", va="center", color=color)
    axes[2].set_title("1 2 1 2: they cross; 2 2 3 3: not")
    for ax in axes[1:]:
        ax.set_xlim(-1.2, 1.2)
        ax.set_ylim(-1.2, 1.2)
    return figure


def region(ax: Axes, corners: np.ndarray) -> None:
    """A convex cell."""
    ax.add_patch(Polygon(corners, facecolor=pale(GREY, 0.25), edgecolor=INK, linewidth=1.1))


def crossings(corners: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Where a function with values z at the corners of a convex cell vanishes on its border."""
    after, there = np.roll(z, -1), np.roll(corners, -1, 0)
    crossed = z * after < 0
    t = (z / (z - after))[crossed, None]
    return corners[crossed] + t * (there - corners)[crossed]


def maximum() -> Figure:
    """The upper envelope of lines, and of planes."""
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(8.4, 3.5), layout="constrained", width_ratios=(1.25, 1)
    )
    x = np.linspace(-1, 1, 401)
    units = ((-0.9, 0.05, "r", BLUE), (0.12, 0.3, "s", GREEN), (1.0, 0.05, "t", ORANGE))
    values = np.array([a * x + b for a, b, *_ in units])
    winner = values.argmax(0)
    for k, (a, b, name, color) in enumerate(units):
        left.plot(x, values[k], color=color, lw=1.0, alpha=0.75)
        top = np.where(winner == k, values[k], np.nan)
        left.plot(x, top, color=color, lw=3.4, solid_capstyle="round")
        at = (-1.0, 0.0, 1.0)[k]
        left.text(at, a * at + b + 0.1, f"${name}$", color=color, ha="center", fontsize=13)
    for (a, b, *_), (c, d, *_) in pairwise(units):
        at = (d - b) / (a - c)
        dots(left, (at, a * at + b), INK, 44)
    at = 0.0
    left.plot(at, 0.05, "o", ms=7, mfc="white", mec=GREY, mew=1.4)
    left.annotate(
        "$r = t$, but $s$ is larger: no border",
        (at, 0.03),
        (0.0, -0.5),
        ha="center",
        color=INK,
        bbox={"boxstyle": "square,pad=0.15", "fc": "white", "ec": "none"},  # over the lines
        arrowprops={"arrowstyle": "-", "color": GREY, "shrinkB": 5},
    )
    left.set_title(r"$\max(r, s, t)$: borders where the winner changes")
    left.set_ylim(-0.75, 1.3)
    left.axis("off")
    _planes(right)
    return figure


def _planes(ax: Axes) -> None:
    torch.manual_seed(2)
    sites = torch.tensor(
        [[-0.6, 0.55], [0.55, 0.65], [0.05, 0.05], [-0.55, -0.5], [0.6, -0.45]], dtype=torch.float64
    )
    unit = sc.nn.Maxout(2, 1, len(sites)).double()
    with torch.no_grad():  # planes that touch a paraboloid above the sites
        unit.linear.weight.copy_(2 * sites)
        unit.linear.bias.copy_(-sites.square().sum(1))
    part = square(unit)
    winner = next(iter(part.patterns().values()))[:, 0]
    for cell, k in zip(polygons(part), winner.tolist(), strict=True):
        ax.add_patch(Polygon(cell, facecolor=pale(CLASSES[k], 0.35)))
    for i in range(len(sites)):
        for j in range(i):
            a, b, c = _tie(unit.linear, i, j)
            point = -c * np.array([a, b]) / (a * a + b * b)
            ax.axline(point, point + np.array([-b, a]), color=GREY, lw=0.8, ls=(0, (4, 3)))
    inner = part.mesh.edge_layer.numpy() >= 0
    lines(ax, part.vertices[part.mesh.edges].numpy()[inner], INK, 2.2, zorder=4)
    frame(ax)
    ax.set_aspect("equal")
    ax.axis("off")
    ax.set_title("five planes: 8 borders on 10 ties")
    border = ax.patches[0]
    for line in ax.lines:
        line.set_clip_path(Polygon([(-1, -1), (1, -1), (1, 1), (-1, 1)], transform=ax.transData))
    border.set_zorder(0)


def _tie(linear: nn.Linear, i: int, j: int) -> tuple[float, float, float]:
    """Where two units are equal: a u + b v + c = 0."""
    weight, bias = linear.weight.detach(), linear.bias.detach()
    a, b = (weight[i] - weight[j]).tolist()
    return a, b, float(bias[i] - bias[j])


def maps() -> Figure:
    """A region's affine map from three of its vertices, and the decision boundary."""
    figure = plt.figure(figsize=(9.3, 3.5))
    ax = figure.add_axes((-0.03, -0.1, 0.36, 1.12), projection="3d", computed_zorder=False)
    corners = np.array(
        [[-0.9, -0.2], [-0.3, -0.8], [0.6, -0.75], [0.9, 0.1], [0.35, 0.8], [-0.55, 0.7]]
    )
    z = corners @ np.array([0.25, 0.4]) + 1.15
    three = [0, 2, 4]
    ax.add_collection3d(
        Poly3DCollection([np.c_[corners, 0 * z]], facecolors=[pale(GREY, 0.3)], edgecolors=INK)
    )
    posts = [[(*corners[k], 0), (*corners[k], z[k])] for k in three]
    ax.add_collection3d(Line3DCollection(posts, colors=ORANGE, linewidths=1.6, linestyles=":"))
    top = np.c_[corners, z]
    ax.add_collection3d(
        Poly3DCollection([top], facecolors=[pale(BLUE, 0.35)], edgecolors=INK, alpha=0.95)
    )
    ax.add_collection3d(
        Poly3DCollection([top[three]], facecolors="none", edgecolors=ORANGE, linewidths=1.6)
    )
    for height in (z, 0 * z):
        ax.scatter(*corners[three].T, height[three], color=ORANGE, s=24, depthshade=False, zorder=9)
    ax.set(xlim=(-0.9, 0.9), ylim=(-0.9, 0.9), zlim=(0, 1.7))
    ax.set_box_aspect((1, 1, 0.9), zoom=1.15)
    ax.view_init(22, -62)
    ax.axis("off")
    figure.text(0.165, 0.865, "three values give the plane", ha="center", fontsize=11)
    _ties(figure.add_axes((0.345, 0.03, 0.3, 0.86)), corners)
    _decision(figure.add_axes((0.68, 0.03, 0.3, 0.86)))
    return figure


def _ties(ax: Axes, corners: np.ndarray) -> None:
    difference = corners @ np.array([0.9, -0.55]) - 0.05
    region(ax, corners)
    ends = crossings(corners, difference)
    lines(ax, [ends], INK, 2.6)
    for (u, v), value in zip(corners, difference, strict=True):
        color = ORANGE if value > 0 else BLUE
        dots(ax, (u, v), color, 60)
        name = "2" if value > 0 else "1"
        ax.text(1.17 * u, 1.17 * v, name, ha="center", va="center", color=color)
    ax.text(0.15, 0.13, "$f_1 = f_2$", rotation=58, ha="center", va="bottom")
    ax.set(xlim=(-1.06, 1.06), ylim=(-1.06, 1.06), aspect="equal")
    ax.axis("off")
    ax.set_title("in one region: a segment")


def _decision(ax: Axes) -> None:
    part = square(mlp(2, 9, 8, 3, seed=46, spread=0.5))
    cells = part.class_regions()
    corners = np.split(cells.cell_corners.numpy(), cells.cell_offsets.numpy()[1:-1])
    for cell, k in zip(corners, cells.cell_class.tolist(), strict=True):
        ax.add_patch(Polygon(cell, facecolor=pale(CLASSES[k], 0.35), edgecolor="none"))
    lines(ax, part.vertices[part.mesh.edges].numpy(), INK, 0.5, alpha=0.5)
    lines(ax, part.decision_boundary().ends.numpy(), INK, 2.6, zorder=4)
    frame(ax)
    ax.set_aspect("equal")
    ax.axis("off")
    ax.set_title("in all of them: the boundary")


DRAWINGS: dict[str, Callable[[], Figure]] = {
    "spline": spline,
    "neuron": neuron,
    "vertices": vertices,
    "maximum": maximum,
    "maps": maps,
}


def main() -> None:
    """Write every drawing."""
    for name, draw in DRAWINGS.items():
        with plt.rc_context(STYLE):
            figure = draw()
            figure.savefig(
                FOLDER / f"math-{name}.svg", metadata={"Date": None}, **CROP, facecolor="white"
            )
            plt.close(figure)


if __name__ == "__main__":
    main()
