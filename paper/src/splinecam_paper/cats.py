"""A convolutional network for two kinds of cats, in planes through three of their images.

The paper trains a network of five layers for 300 epochs to tell tabby from Egyptian cats (64 x 64
pixels), and shows its regions and its decision boundary on squares of area 450 in planes through
three images: over the epochs, with images that lie on the boundary, and with the number of regions,
which it says is larger where the boundary is more curved. It does not give the layers; those here
have about as many regions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from splinecam import Domain, Partition, partition
from splinecam.results import Boundary
from splinecam_paper.data import Images, load_images
from splinecam_paper.experiment import Experiment, Report, Row, Setup, Stopwatch, summary
from splinecam_paper.training import Training, accuracy, fit, parameter_count, seeded

if TYPE_CHECKING:
    from matplotlib.figure import Figure


AREA = 450.0
CATS = ("tabby cat", "Egyptian cat")
PAPER_REGIONS = (82_817, 119_895, 60_455)  # Fig. 19
PAPER_MINUTES = (7.46, 13.96, 5.02)
PAPER_CHANGES = {(50, 100): "not much", (100, 150): "sudden", (200, 300): "roughly none"}  # Fig. 7
NETWORK = "the paper does not give the layers"


@dataclass(frozen=True)
class Settings:
    """The networks and the planes.

    filters, hidden: of the convolutions, and units of the first fully connected layer. epochs:
    those of the pictures; the last one ends the training. networks: how many are trained. planes:
    of each network, for the correlation. images: of each class for training, at most. grid: points
    along a side of the square, to compare decisions.
    """

    filters: tuple[int, int, int] = (4, 8, 16)
    hidden: int = 32
    epochs: tuple[int, ...] = (50, 100, 150, 200, 300)
    networks: int = 3
    planes: int = 20
    images: int = 500
    grid: int = 40


def run(setup: Setup, settings: Settings) -> Report:
    """Train networks, and look at their regions and boundaries in planes of three images."""
    images = load_images("tinyimagenet", setup.data, stand_in=setup.quick)
    train, test = two_classes(images, settings.images)
    domains = [plane(train[0][three]) for three in triples(*train, settings.planes)]
    report = Report(notes=[images.source])
    report.numbers["networks"] = []
    for k in range(settings.networks):
        states = trained(train, settings, setup, seed=setup.seed + k)
        model = cat_network(settings)
        if k == 0:
            evolution(report, model, states, domains[:2], train, setup, settings)
        model.load_state_dict(states[settings.epochs[-1]])
        model.eval()
        measured = planes(report, model, domains, train, setup, first=k == 0)
        report.numbers["networks"].append(
            {
                "seed": setup.seed + k,
                "parameters": parameter_count(model),
                "train accuracy": accuracy(model, *train),
                "test accuracy": accuracy(model, *test),
                "planes": measured,
            }
        )
    correlations(report, setup)
    if images.stand_in:
        why = "no: digits in place of cats"
        report.rows = [replace(row, comparable=why) for row in report.rows]
    return report


def cat_network(settings: Settings) -> nn.Sequential:
    """Three convolutions and two fully connected layers.

    >>> parameter_count(cat_network(Settings()))
    10058
    """
    a, b, c = settings.filters
    return nn.Sequential(
        *(nn.Conv2d(3, a, 5, stride=4, padding=2), nn.ReLU()),  # 16 x 16
        *(nn.Conv2d(a, b, 3, stride=2, padding=1), nn.ReLU()),  # 8 x 8
        *(nn.Conv2d(b, c, 3, stride=2, padding=1), nn.ReLU()),  # 4 x 4
        *(nn.Flatten(), nn.Linear(16 * c, settings.hidden), nn.ReLU()),
        nn.Linear(settings.hidden, 2),
    )


def trained(
    train: tuple[Tensor, Tensor], settings: Settings, setup: Setup, *, seed: int
) -> dict[int, dict[str, Tensor]]:
    """The weights of a network after each of the epochs."""

    def weights(_: int, model: nn.Module) -> dict[str, Tensor]:
        return {name: value.cpu().clone() for name, value in model.state_dict().items()}

    with seeded(seed):
        model = cat_network(settings)
    training = Training(settings.epochs[-1], batch=64, constant=True)
    options: dict[str, Any] = {"record": weights, "record_after": settings.epochs}
    return fit(model, train, training, setup=setup, name=f"cats-{seed}", **options)


# -- data and planes -----------------------------------------------------------------------------


def two_classes(images: Images, most: int) -> list[tuple[Tensor, Tensor]]:
    """The images of tabby (0) and Egyptian cats (1), for training and for testing."""
    found = []
    for x, labels in ((images.train, images.train_labels), (images.test, images.test_labels)):
        at = [(labels == images.classes.index(cat)).nonzero()[:most, 0] for cat in CATS]
        y = torch.cat([torch.full((len(rows),), k) for k, rows in enumerate(at)])
        found.append((x[torch.cat(at)], y))
    return found


def triples(x: Tensor, labels: Tensor, count: int) -> list[list[int]]:
    """Images with their two nearest ones of the other class, the closest three first.

    No image is in two of the triples.

    >>> x = torch.tensor([[0.0], [1.0], [1.5], [10.0], [12.0], [13.0]])
    >>> triples(x, torch.tensor([0, 1, 1, 0, 1, 1]), 2)
    [[0, 1, 2], [3, 4, 5]]
    """
    distance = torch.cdist(x.flatten(1), x.flatten(1))
    other = torch.where(labels[:, None] != labels, distance, torch.inf)
    near = other.topk(2, largest=False).indices
    three = torch.cat([torch.arange(len(x))[:, None], near], 1)
    size = torch.stack([distance[three[:, i], three[:, j]] for i, j in ((0, 1), (0, 2), (1, 2))])
    chosen: list[list[int]] = []
    for row in three[size.amax(0).argsort()].tolist():
        if len(chosen) < count and not any(set(row) & set(known) for known in chosen):
            chosen.append(row)
    return chosen


def plane(three: Tensor) -> Domain:
    """The square of the paper's area in the plane of three images, around them."""
    square = Domain.through(*three)
    return square.zoom((square.area / AREA) ** 0.5)


def turning(boundary: Boundary) -> float:
    """The angles by which the boundary turns, added up, in radians.

    A segment has the higher class on its left, so that the next one begins where it ends.
    """
    start, end = boundary.segments.T
    following = torch.full((len(boundary.points),), -1, device=start.device)
    following[start] = torch.arange(len(start), device=start.device)
    after = following[end]
    way = boundary.ends[:, 1] - boundary.ends[:, 0]
    a, b = way[after >= 0], way[after[after >= 0]]
    cross = a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]
    return float(torch.atan2(cross, (a * b).sum(1)).abs().sum())


# -- over the epochs: Fig. 7 ---------------------------------------------------------------------


def evolution(
    report: Report,
    model: nn.Module,
    states: dict[int, dict[str, Tensor]],
    domains: Sequence[Domain],
    train: tuple[Tensor, Tensor],
    setup: Setup,
    settings: Settings,
) -> None:
    """Add the partitions of some planes over the epochs, and how much the decisions change."""
    parts: list[list[Partition]] = [[] for _ in domains]
    decided: dict[int, list[Tensor]] = {}
    for epoch in settings.epochs:
        model.load_state_dict(states[epoch])
        model.eval()
        decided[epoch] = [decisions(model, domain, settings.grid) for domain in domains]
        for row, domain in zip(parts, domains, strict=True):
            row.append(partition(model, domain, device=setup.device, progress=False))
    report.numbers["epochs"] = [
        {"plane": k, "epoch": epoch, "regions": len(part), "boundary": boundary.length}
        for k, row in enumerate(parts)
        for epoch, part in zip(settings.epochs, row, strict=True)
        for boundary in [part.decision_boundary()]
    ]
    for pair in pairwise(settings.epochs):
        before, after = (decided[epoch] for epoch in pair)
        shares = [float((a != b).double().mean()) for a, b in zip(before, after, strict=True)]
        what = f"share of two planes that changes class, epochs {pair[0]} to {pair[1]}"
        ours = " and ".join(f"{share:.1%}" for share in shares)
        said = PAPER_CHANGES.get(pair)
        why = "the paper has words only" if said else "the paper says nothing"
        report.rows.append(Row(what, said, ours, why, setup.seed, AREA))
    report.figures["cats"] = draw_epochs(parts, settings.epochs, train)


def decisions(model: nn.Module, domain: Domain, grid: int) -> Tensor:
    """The class at each point of a grid over the square, (grid²,)."""
    low, high = domain.corners.amin(0), domain.corners.amax(0)
    share = (torch.arange(grid, dtype=torch.float64) + 0.5) / grid
    uv = low + torch.cartesian_prod(share, share) * (high - low)
    with torch.no_grad():
        return torch.cat([model(domain.embed(p).float()).argmax(1) for p in torch.split(uv, 500)])


# -- after the training: Fig. 9 and 19 -----------------------------------------------------------


def planes(
    report: Report,
    model: nn.Module,
    domains: Sequence[Domain],
    train: tuple[Tensor, Tensor],
    setup: Setup,
    *,
    first: bool,
) -> list[dict[str, float]]:
    """Measure regions, seconds and curvature in each plane; of the first network draw three."""
    found, shown = [], []
    with setup.bar(len(domains), "planes") as bar:
        for k, domain in enumerate(domains):
            watch = Stopwatch()
            with watch("partition"):
                part = partition(model, domain, device=setup.device, progress=False)
            boundary = part.decision_boundary()
            turned = turning(boundary)
            found.append(
                {
                    "regions": len(part),
                    "seconds": watch.last,
                    "boundary": boundary.length,
                    "turning": turned,
                    "curvature": turned / boundary.length if boundary.length else 0.0,
                }
            )
            if first and k < len(PAPER_REGIONS):
                shown.append(part)
            bar.update()
    if first:
        shown[0].validate(progress=False)
        for k, row in enumerate(found[: len(PAPER_REGIONS)]):
            seconds = row["seconds"]
            given = (setup.seed, AREA, seconds)
            regions = int(row["regions"])
            report.rows += [
                Row(f"regions, plane {k + 1}", PAPER_REGIONS[k], regions, NETWORK, *given),
                Row(
                    f"seconds, plane {k + 1}",
                    round(60 * PAPER_MINUTES[k], 1),
                    seconds,
                    f"another machine, and {NETWORK}",
                    *given,
                ),
            ]
        report.figures["cats-planes"] = draw_planes(shown, train, CATS)
        report.figures["cats-samples"] = draw_samples(shown)
    return found


# -- regions and curvature -----------------------------------------------------------------------


def correlations(report: Report, setup: Setup) -> None:
    """Add how the number of regions goes with the curvature of the boundary, over all planes."""
    plain, ranked = [], []
    for network in report.numbers["networks"]:
        pair = curvature_and_regions(network)
        if pair.shape[1] > 2:
            plain.append(float(torch.corrcoef(pair)[0, 1]))
            ranked.append(float(torch.corrcoef(pair.argsort(1).argsort(1).double())[0, 1]))
    report.figures["cats-curvature"] = draw_curvature(
        {
            f"network {network['seed']}": curvature_and_regions(network)
            for network in report.numbers["networks"]
        }
    )
    found = summary({"Pearson": plain, "Spearman": ranked}) if plain else {}
    report.numbers["correlation"] = {"Pearson": plain, "Spearman": ranked, **found}
    for name, value in found.items():
        what = f"correlation of regions and curvature ({name}), {len(plain)} network(s)"
        ours = f"{value['mean']:.2f} ± {value['std']:.2f}"
        why = "the paper names no measure, and has three planes"
        report.rows.append(Row(what, "positive", ours, why, setup.seed, AREA))
    scores = report.numbers["networks"]
    for part in ("train", "test"):
        value = summary({part: [each[f"{part} accuracy"] for each in scores]})[part]
        ours = f"{value['mean']:.3f} ± {value['std']:.3f}"
        report.rows.append(Row(f"{part} accuracy", None, ours, "the paper gives none"))


def curvature_and_regions(network: dict[str, Any]) -> Tensor:
    """Both numbers for the planes that the boundary crosses, (2, planes)."""
    crossed = [row for row in network["planes"] if row["boundary"] > 0]
    keys = ("curvature", "regions")
    return torch.tensor([[row[key] for row in crossed] for key in keys], dtype=torch.float64)


# -- figures --------------------------------------------------------------------------------------


def draw_epochs(
    parts: list[list[Partition]],
    epochs: Sequence[int],
    train: tuple[Tensor, Tensor],
) -> Figure:
    """A row for each plane, a column for each epoch: region size, boundary, and images."""
    import matplotlib.pyplot as plt

    size = (2 * len(epochs), 2.05 * len(parts) + 0.25)
    figure, axes = plt.subplots(*(len(parts), len(epochs)), figsize=size, layout="constrained")
    for row, several in enumerate(parts):
        for column, part in enumerate(several):
            draw_plane(axes[row, column], part, train)
            if row == 0:
                axes[row, column].set_title(f"epoch {epochs[column]}", fontsize=9)
            axes[row, column].text(
                *(0.5, -0.02, f"{len(part):,} regions"),
                **{"transform": axes[row, column].transAxes, "ha": "center", "va": "top"},
                fontsize=8,
            )
    return figure


def draw_plane(ax: Any, part: Partition, train: tuple[Tensor, Tensor]) -> None:
    """The regions by area, the boundary in red, and the images that span the plane in white."""
    style: dict[str, Any] = {"color": "area", "cmap": "viridis", "edges": False, "axes": "off"}
    part.plot(ax=ax, boundary=True, boundary_color="red", colorbar=False, legend=False, **style)
    uv, distance = part.domain.project(train[0])
    ax.scatter(*uv[distance < 1e-3].T, s=16, color="white", edgecolors="black", zorder=9)


def draw_planes(
    parts: Sequence[Partition], train: tuple[Tensor, Tensor], names: Sequence[str]
) -> Figure:
    """For each plane the three images, the partition, and images on the boundary."""
    import matplotlib.pyplot as plt

    from splinecam.plot import image_grid

    size = (7.4, 2.95 * len(parts))
    figure = plt.figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(parts), 3, width_ratios=[0.8, 3, 3], squeeze=False)
    for row, part in zip(axes, parts, strict=True):
        distance = part.domain.project(train[0])[1]
        spanning = distance < 1e-3
        titles = [names[k] for k in train[1][spanning].tolist()]
        image_grid(train[0][spanning], ax=row[0], columns=1, titles=titles)
        draw_plane(row[1], part, train)
        row[1].set_title(f"{len(part):,} regions", fontsize=9)
        draw_boundary_images(row[2], part, 16, 4)
    return figure


def draw_samples(parts: Sequence[Partition]) -> Figure:
    """Images on the decision boundary, a row for each plane."""
    import matplotlib.pyplot as plt

    size = (8, 1.05 * len(parts))
    figure, axes = plt.subplots(len(parts), figsize=size, layout="constrained", squeeze=False)
    for ax, part in zip(axes[:, 0], parts, strict=True):
        draw_boundary_images(ax, part, 8, 8)
    return figure


def draw_boundary_images(ax: Any, part: Partition, count: int, columns: int) -> None:
    """Random images on the decision boundary, or a note that it does not cross the plane."""
    boundary = part.decision_boundary()
    if boundary.length:
        generator = torch.Generator().manual_seed(0)
        boundary.plot_samples(
            count, ax=ax, columns=columns, generator=generator, titles=False, limits=(0, 1)
        )
    else:
        ax.set_axis_off()
        ax.text(0.5, 0.5, "The boundary does not cross this plane.", ha="center", fontsize=8)


def draw_curvature(pairs: Mapping[str, Tensor]) -> Figure:
    """Regions by curvature (2, planes) of several networks, a point for each plane."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(4.6, 3.4), layout="constrained")
    for name, (curvature, regions) in pairs.items():
        ax.scatter(curvature, regions, s=14, label=name)
    ax.set(xlabel="turning of the boundary per length (radians)", ylabel="regions")
    ax.yaxis.set_major_formatter("{x:,g}")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=8)
    return figure


EXPERIMENT = Experiment(
    name="cats",
    shows="regions and boundary of a cat classifier in planes of three images, over epochs",
    places=("Fig. 7", "Fig. 9", "Fig. 19"),
    full=Settings(),
    quick=Settings((2, 4, 8), 16, (10, 20, 30, 40), networks=1, planes=6, images=200, grid=20),
    tiny=Settings((1, 2, 2), 4, (1, 2), networks=1, planes=3, images=20, grid=4),
    run=run,
    data=("tinyimagenet",),
)
