"""The image of a plane in space: a surface with one flat facet for each region.

The paper explains its formula for piecewise-affine maps with a toy map of two numbers to three: the
input space is divided into convex regions, and the map places each of them in space as a facet. The
facets fit together, since the map is continuous. Here a small network learns a twisted band.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import mse_loss

from splinecam import Domain, Partition, partition
from splinecam_paper.experiment import Experiment, Report, Row, Setup, Stopwatch
from splinecam_paper.training import Training, fit, mlp

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Settings:
    """The network and its training: widths of its layers, number of points, epochs."""

    widths: Sequence[int] = (2, 14, 14, 3)
    points: int = 2048
    epochs: int = 200


def run(setup: Setup, settings: Settings) -> Report:
    """Train the map, and draw its regions beside their facets."""
    uv = 2 * torch.rand(settings.points, 2, generator=torch.Generator().manual_seed(0)) - 1
    target = band(uv)
    model = mlp(settings.widths, seed=setup.seed)
    training = Training(settings.epochs, batch=256, rate=0.01)
    fit(model, (uv, target), training, setup=setup, name="surface", loss=mse_loss)
    watch = Stopwatch()
    with watch("partition"):
        part = partition(model, Domain.box(-1, 1), device=setup.device, progress=False)
    part.validate(progress=False)
    with torch.no_grad():
        error = float(mse_loss(model(uv.to(setup.trained_on)).cpu(), target)) ** 0.5
    gap, facets = largest_gap(part), facet_areas(part)
    given = (setup.seed, part.domain.area, watch.last)
    without = "the paper shows a picture without numbers"
    report = Report()
    report.rows = [
        Row("regions, each of them one facet", None, len(part), without, *given),
        Row("largest gap between neighbouring facets", "continuous", gap, "yes", *given),
        Row("area of the surface", None, float(facets.sum()), without, *given),
    ]
    report.numbers = {
        "regions": len(part),
        "largest gap": gap,
        "areas of regions": part.areas,
        "areas of facets": facets,
        "root mean square error": error,
        "seconds": watch.seconds,
    }
    report.figures["surface"] = draw(part)
    return report


def band(uv: Tensor) -> Tensor:
    """A band that is twisted by nearly half a turn on its way around an axis, (N, 3)."""
    around, across = 0.9 * math.pi * uv[:, 0], 0.55 * uv[:, 1]
    radius = 1 + across * torch.cos(around / 2)
    return torch.stack(
        [
            radius * torch.cos(around),
            radius * torch.sin(around),
            across * torch.sin(around / 2),
        ],
        1,
    )


def largest_gap(part: Partition) -> float:
    """How far the maps of neighbouring regions are apart at the ends of their edges."""
    inner = (part._edge_faces >= 0).all(1)
    ends = part.vertices[part.mesh.edges[inner]]  # (E, 2 ends, 2)
    left, right = (
        torch.einsum("eoi,eki->eko", part.weight[faces], ends) + part.bias[faces][:, None]
        for faces in part._edge_faces[inner].T
    )
    return float((left - right).abs().max()) if len(left) else 0.0


def facet_areas(part: Partition) -> Tensor:
    """The area of each facet: that of its region times the stretching of its map, (F,)."""
    gram = part.weight.mT @ part.weight
    stretching: Tensor = torch.linalg.det(gram).clamp(min=0).sqrt()
    return part.areas * stretching


def draw(part: Partition) -> Figure:
    """The regions on the left, and their facets in the same colours on the right."""
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(8.4, 4))
    left = figure.add_axes((0.07, 0.12, 0.38, 0.8))
    right = figure.add_axes((0.5, 0.0, 0.5, 0.93), projection="3d")
    part.plot(ax=left, color="random", boundary=False, axes="ticks", linewidth=0.7)
    part.plot.surface(ax=right, output=(0, 1, 2), color="random", view=(38, -62))
    right.set_axis_off()
    left.set_title(f"{len(part):,} regions of the plane", fontsize=10)
    figure.text(0.75, 0.935, "their images in space", fontsize=10, ha="center")
    return figure


EXPERIMENT = Experiment(
    name="surface",
    shows="the image of the plane under a map to space, a facet for each region",
    places=("Fig. 2",),
    full=Settings(),
    quick=Settings(),
    tiny=Settings((2, 6, 6, 3), points=512, epochs=5),
    run=run,
)
