"""The signed distance to a surface in space, learnt, and three slices of its partition.

A leaky-ReLU network of width 256 and depth 6 learns the distance of places in space to the bunny,
negative inside. Its partition is exact on the planes x = 0, y = 0 and z = 0, with the zero level
set, which is the learnt surface. The paper sees that units of deeper layers switch near the
surface: the length of edges near it is measured here, by layer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import l1_loss

from splinecam import Domain, Partition, partition
from splinecam.plot import plot_bands, plot_slices
from splinecam_paper.data import Mesh, load_mesh, signed_distance
from splinecam_paper.experiment import Experiment, Report, Row, Setup, Stopwatch
from splinecam_paper.fields import (
    RED,
    conditions,
    crowding,
    draw_by_layer,
    mean_text,
    outputs,
)
from splinecam_paper.training import Training, fit, mlp

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AREA = 4.0
NEAR = 0.02  # the distance from the surface within which edges are near it
SPREAD = (0.02, 0.1)  # of training places around the surface
SLICES = {"x = 0": (1, 2), "y = 0": (0, 2), "z = 0": (0, 1)}  # the axes to the right and upwards
COLORS = {"x = 0": RED, "y = 0": "#0072B2", "z = 0": "#009E73"}
VIEW = (25, -50)  # degrees: the elevation and the azimuth of the eye


@dataclass(frozen=True)
class Settings:
    """The networks, the training and its number of places, and the number of seeds.

    grid: the points on a side of the grid on which the surface is drawn.
    """

    width: int
    depth: int
    places: int
    training: Training
    seeds: int
    grid: int


def run(setup: Setup, settings: Settings) -> Report:
    """Train a network for each seed, and measure and draw its slices."""
    mesh = upright(load_mesh("bunny", setup.data, stand_in=setup.quick))
    report = Report(notes=[mesh.source])
    places = places_in_space(mesh, settings.places, seed=setup.seed)
    distance = signed_distance(mesh, places.to(setup.trained_on)).float().cpu()
    drawn: dict[str, Partition] = {}
    found: list[dict[str, Any]] = []
    with setup.bar(settings.seeds * len(SLICES), "slices") as bar:
        for seed in range(setup.seed, setup.seed + settings.seeds):
            sizes = [3, *[settings.width] * settings.depth, 1]
            model, first = (mlp(sizes, nn.LeakyReLU, seed=seed) for _ in range(2))
            fit(
                model,
                (places, distance[:, None]),
                settings.training,
                setup=replace(setup, seed=seed),
                name=f"sdf3d-{seed}",
                loss=l1_loss,
            )
            error = float((outputs(model, places) - distance).abs().mean())
            found.append({"seed": seed, "mean_error": error, "slices": {}})
            for name in SLICES:
                part, row = measure(name, model, first, mesh, setup)
                found[-1]["slices"][name] = row
                drawn.setdefault(name, part)
                bar.update()
    next(iter(drawn.values())).validate(progress=False)
    report.rows = table(found, settings, mesh)
    report.numbers = {"mesh": mesh.source, "near": NEAR, "runs": found}
    report.figures["sdf3d"] = draw(drawn, settings.grid)
    report.figures["sdf3d-by-layer"] = draw_by_layer(drawn["x = 0"], "x = 0")
    report.figures["sdf3d-slices"] = draw_slices(drawn)
    if bool(crowding_of(found, "crowding_by_layer").isfinite().any()):
        report.figures["sdf3d-layers"] = draw_layers(found)
    return report


def upright(mesh: Mesh) -> Mesh:
    """The mesh turned so that its y axis, on which the bunny's ears are up, is the z axis."""
    return replace(mesh, vertices=mesh.vertices[:, [2, 0, 1]])


def places_in_space(mesh: Mesh, count: int, *, seed: int) -> Tensor:
    """Random places (count, 3): a third each in the cube [-1, 1]^3, near, and nearest the surface.

    Those near it are points of the surface, uniform by area, moved by random steps.
    """
    random = torch.Generator().manual_seed(seed)
    corners = mesh.vertices[mesh.triangles]
    sides = corners[:, 1:] - corners[:, :1]
    areas = torch.linalg.cross(sides[:, 0], sides[:, 1]).norm(dim=1)
    chosen = torch.multinomial(areas, count - count // 3, replacement=True, generator=random)
    share = torch.rand(len(chosen), 2, generator=random, dtype=torch.float64)
    share = torch.where((share.sum(1) > 1)[:, None], 1 - share, share)
    surface = corners[chosen, 0] + (share[:, :, None] * sides[chosen]).sum(1)
    spread = torch.tensor(SPREAD)[torch.arange(len(chosen)) % 2, None]
    near = surface + spread * torch.randn(len(chosen), 3, generator=random)
    anywhere = 2 * torch.rand(count // 3, 3, generator=random) - 1
    return torch.cat([near.float(), anywhere]).clamp(-1, 1)


def slice_through(right: int, up: int) -> Domain:
    """The square [-1, 1]^2 of two axes of space, where the third coordinate is 0."""
    square = torch.tensor([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    return Domain(torch.zeros(3), torch.eye(3)[[right, up]], square, (3,))


def measure(
    name: str, model: nn.Module, first: nn.Module, mesh: Mesh, setup: Setup
) -> tuple[Partition, dict[str, Any]]:
    """The partition of a slice, and its measures, also of the network before its training."""
    domain = slice_through(*SLICES[name])
    watch = Stopwatch()
    with watch("partition"):
        part = partition(model, domain, device=setup.device, progress=False)
    before = partition(first, domain, device=setup.device, progress=False)
    surface = part.level_set(0.0)
    row: dict[str, Any] = {
        "regions": len(part),
        "regions_before": len(before),
        "seconds": watch.last,
    }
    row["regions_by_layer"] = list(part.counts().cells_by_layer.values())
    if len(surface):
        random = torch.Generator().manual_seed(0)
        some = signed_distance(mesh, surface.sample(500, generator=random, device=setup.trained_on))
        row["surface_error"] = float(some.abs().mean())
        row["crowding_by_layer"] = crowding(part, surface, NEAR)
        row["crowding_before"] = crowding(before, surface, NEAR)
    return part, row


def crowding_of(found: Sequence[dict[str, Any]], key: str) -> Tensor:
    """The densities of edges near the surface by seed and layer, means of the slices, (S, L)."""
    each = [[row[key] for row in run["slices"].values() if key in row] for run in found]
    depth = len(next(iter(found[0]["slices"].values()))["regions_by_layer"])
    empty = torch.full((1, depth), math.nan)
    return torch.stack([torch.tensor(rows or empty.tolist()).nanmean(0) for rows in each])


def table(found: list[dict[str, Any]], settings: Settings, mesh: Mesh) -> list[Row]:
    """The rows of the table: means over the seeds."""
    small = (settings.width, settings.depth) != (256, 6)
    same = conditions(settings.seeds, small=small, stand_in=mesh.stand_in, what="mesh of the bunny")
    rows = []
    for name in SLICES:
        each = [run["slices"][name] for run in found]
        seconds = sum(row["seconds"] for row in each) / len(each)
        ours = mean_text([row["regions"] for row in each])
        rows.append(Row(f"regions of the slice {name}", None, ours, same, None, AREA, seconds))
    for key, when in (("crowding_by_layer", "after"), ("crowding_before", "before")):
        of = crowding_of(found, key)
        for layer in range(of.shape[1]):
            paper = "many" if when == "after" and layer >= of.shape[1] // 2 else None
            ours = mean_text(of[:, layer].tolist())
            what = f"edges of layer {layer + 1} near the surface, by everywhere, {when} training"
            rows.append(Row(what, paper, ours, same, area=AREA))
    errors = [
        row["surface_error"]
        for run in found
        for row in run["slices"].values()
        if "surface_error" in row
    ]
    if errors:
        what = "distance of the learnt surface from the true one"
        rows.append(Row(what, None, mean_text(errors), same, area=AREA))
    return rows


def draw(drawn: dict[str, Partition], grid: int) -> Figure:
    """The learnt surface by its normals, and the three slices with their zero level sets."""
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(8, 8), layout="constrained")
    space = figure.add_subplot(2, 2, 1, projection="3d")
    draw_surface(space, next(iter(drawn.values())).model, grid)
    for k, (name, part) in enumerate(drawn.items()):
        ax = figure.add_subplot(2, 2, k + 2)
        part.plot(ax=ax, color="white", boundary_color=COLORS[name], boundary=True, axes="off")
        ax.set_title(f"{name}: {len(part):,} regions")
        ring = part.domain.embed(part.domain.corners[[0, 1, 2, 3, 0]])
        space.plot(*ring.T, color=COLORS[name], linewidth=1)
    return figure


def draw_surface(ax: Any, model: nn.Module, grid: int) -> None:
    """Draw the learnt surface in the colours of its normals."""
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    triangles, normals = learnt_surface(model, grid)
    colors = ((normals + 1) / 2).numpy()
    # Edges in the colours of their faces hide the seams; so many triangles are drawn as pixels.
    style: dict[str, Any] = {"facecolors": colors, "edgecolors": colors, "linewidths": 0.2}
    ax.add_collection3d(Poly3DCollection(triangles.numpy(), rasterized=True, **style))
    ax.set(xlim=(-1, 1), ylim=(-1, 1), zlim=(-1, 1))
    ax.set_box_aspect((1, 1, 1), zoom=1.2)
    ax.view_init(*VIEW)
    ax.set_axis_off()
    ax.set_title("normals of the learnt surface")


def learnt_surface(model: nn.Module, grid: int) -> tuple[Tensor, Tensor]:
    """Triangles (T, 3, 3) of the zero level set on a grid, and normals (T, 3): an illustration.

    The normals are the gradients of the network in the middles of the triangles.
    """
    from skimage import measure

    axis = torch.linspace(-1, 1, grid)
    places = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1).view(-1, 3)
    values = outputs(model, places).view(grid, grid, grid)
    if not float(values.min()) < 0 < float(values.max()):
        return torch.zeros(0, 3, 3), torch.zeros(0, 3)
    vertices, faces, *_ = measure.marching_cubes(values.numpy(), 0.0)
    corners = torch.as_tensor(vertices.copy())[torch.as_tensor(faces.astype("int64"))]
    triangles = corners.float() * (2 / (grid - 1)) - 1
    device = next(model.parameters()).device
    middle = triangles.mean(1).to(device).requires_grad_()
    (gradient,) = torch.autograd.grad(model(middle).sum(), middle)
    return triangles, nn.functional.normalize(gradient, dim=1).cpu()


def draw_slices(drawn: dict[str, Partition]) -> Figure:
    """The three slices where they lie in space."""
    ax = plot_slices(list(drawn.values()), boundary_color=list(COLORS.values()), view=VIEW)
    return cast("Figure", ax.figure)


def draw_layers(found: list[dict[str, Any]]) -> Figure:
    """The density of each layer's edges near the surface, before and after training."""
    shown = {"before training": "crowding_before", "after training": "crowding_by_layer"}
    values = {label: crowding_of(found, key).T for label, key in shown.items()}
    layers = range(1, len(values["after training"]) + 1)
    label = f"edges within {NEAR:g} of the surface,\nper area, by everywhere"
    ax = plot_bands(layers, values, band="points", log=False, xlabel="layer", ylabel=label)
    ax.set_xticks(layers)
    return cast("Figure", ax.figure)


EXPERIMENT = Experiment(
    name="sdf3d",
    shows="the signed distance of the bunny: three slices, and the learnt surface",
    places=("Fig. 1", "Sec. 3.1"),
    full=Settings(256, 6, 400_000, Training(300, 16_384, rate=1e-3), 3, 96),
    quick=Settings(64, 4, 12_000, Training(60, 1024, rate=2e-3), 1, 64),
    tiny=Settings(12, 2, 300, Training(60, 100, rate=2e-2), 1, 16),
    run=run,
    data=("bunny",),
)
