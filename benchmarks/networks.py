"""The benchmark's workloads by group: random, trained, degenerate and convolutional networks."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import torch
from common import Workload, mlp, perceptron
from torch import Tensor, nn

import splinecam as sc

SHARED = Path(os.environ.get("SPLINECAM_SHARED", Path(__file__).parents[2] / "shared"))

Group = dict[str, Workload]


def single_layers() -> Group:
    """One layer; the counts are those on which independent programs agree."""
    return {
        "line100_d2": mlp(100, side=2.0, regions=1_868),
        "line300_d2": mlp(300, side=2.0, regions=15_533),
        "line1000_d2": mlp(1000, side=2.0, regions=176_967),
        "line4000_d2": mlp(4000, side=2.0, regions=2_635_391, large=True),
        "line1000_d8002": mlp(1000, inputs=8002, side=2.0, regions=138_624),
    }


def perceptrons() -> Group:
    """Several layers; the counts are those on which independent programs agree."""
    return {
        "mlp32x3": mlp(*[32] * 3, side=2.0, regions=1_180),
        "mlp64x3": mlp(*[64] * 3, side=4.0, regions=12_042),
        "mlp128x4": mlp(*[128] * 4, side=4.0, regions=61_014),
        "mlp256x6": mlp(*[256] * 6, side=4.0, regions=386_316),
        "mlp512x6": mlp(*[512] * 6, side=4.0, regions=1_644_649, large=True),
        "mlp784_50x3": mlp(*[50] * 3, inputs=784, outputs=10, side=40.0, regions=5_097),
    }


def shapes() -> Group:
    """A wide one, a deep one, and a narrow one with many regions."""
    unit = partial(sc.Domain.box, 0.0, 1.0)
    return {
        "wide1024x2": mlp(1024, 1024, side=0.5),
        "deep64x16": mlp(*[64] * 16, side=4.0),
        "folds20": Workload(partial(folds, 8, 2, 20), unit, regions=495_616),
    }


# -- trained beside random ---------------------------------------------------------------------


def trained() -> Group:
    """Networks trained here, in seconds, each beside a random one of the same shape."""
    made: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
        "spirals64x3": (spiral_classifier, (2, 64, 64, 64, 1)),
        "image64x4": (image_network, (2, *[64] * 4, 3)),
    }
    group: Group = {}
    for name, (model, widths) in made.items():
        domain = partial(sc.Domain.box, -1.0, 1.0)
        group[f"{name}_trained"] = Workload(model, domain)
        group[f"{name}_random"] = Workload(partial(perceptron, *widths), domain)
    return group


def spiral_classifier() -> nn.Module:
    """The demo's classifier of two spirals."""
    from splinecam.cli.demo import train, two_spirals  # earlier versions have it elsewhere

    return train(*two_spirals(600)).double()


def image_network(side: int = 64, steps: int = 400) -> nn.Module:
    """A network that has learnt an image: colours as a function of the place."""
    axis = torch.linspace(-1, 1, side)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    rings = torch.sin(12 * torch.hypot(x - 0.2, y + 0.1))
    checks = torch.where((5 * x).floor() % 2 == (5 * y).floor() % 2, 1.0, -1.0)
    colors = torch.stack([rings, checks, torch.sin(6 * x) * torch.cos(9 * y)], -1).view(-1, 3)
    places = torch.stack([x, y], -1).view(-1, 2)
    model = perceptron(2, *[64] * 4, 3).float()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        batch = torch.randint(len(places), (1024,), generator=generator)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(places[batch]), colors[batch]).backward()
        optimizer.step()
    return model.double().eval()


# -- degenerate --------------------------------------------------------------------------------


def degenerate() -> Group:
    """All lines through one point; every unit twice; lines through vertices and along edges."""
    cells = 64
    return {
        "nobias256x3": Workload(without_biases, partial(sc.Domain.box, -1.0, 1.0)),
        "twins64x3": Workload(twins, mlp(64, side=4.0).domain, regions=12_042),
        "grid64": Workload(
            partial(grid, cells), partial(sc.Domain.box, 0.0, 1.0), regions=4 * cells**2
        ),
    }


def without_biases() -> nn.Module:
    """A random network whose lines all go through the origin."""
    model = perceptron(2, 256, 256, 256, 1)
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.zeros_(layer.bias)
    return model


def twins() -> nn.Module:
    """The workload mlp64x3 with every hidden unit twice, each with half of its weight."""
    layers = []
    for layer in perceptron(2, 64, 64, 64, 1):
        if isinstance(layer, nn.Linear):
            weight, bias = layer.weight.detach(), layer.bias.detach()
            if layer.in_features == 64:
                weight = torch.cat([weight, weight], 1) / 2
            if layer.out_features == 64:
                weight, bias = torch.cat([weight, weight]), torch.cat([bias, bias])
            layers.append(linear(weight, bias))
        else:
            layers.append(nn.ReLU())
    return nn.Sequential(*layers).eval()


def grid(cells: int) -> nn.Module:
    """Lines of a grid in the unit square and both diagonals of its cells, four through a vertex.

    The outermost lie along the domain's edges.
    """
    steps = torch.arange(cells + 1, dtype=torch.float64) / cells
    across = torch.arange(-cells, cells + 1, dtype=torch.float64) / cells
    families = [((1.0, 0.0), steps), ((0.0, 1.0), steps), ((1, -1), across), ((1, 1), across + 1)]
    weight = torch.cat([torch.tensor([w] * len(at), dtype=torch.float64) for w, at in families])
    bias = -torch.cat([at for _, at in families])
    last = torch.randn(
        1, len(bias), dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    return nn.Sequential(linear(weight, bias), nn.ReLU(), linear(last, last[0, :1])).eval()


def linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    """A layer with the given numbers."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    return layer


# -- convolutions ------------------------------------------------------------------------------


def convolutional() -> Group:
    """Convolutions, without and with max-pooling."""
    return {
        "cnn_stride": Workload(strided, partial(around_an_image, 28, 10.0)),
        "cnn_average": Workload(
            partial(pooled, nn.AvgPool2d, 8, 8), partial(around_an_image, 16, 3.0)
        ),
        "cnn_max": Workload(partial(pooled, nn.MaxPool2d, 8, 8), partial(around_an_image, 16, 3.0)),
    }


def pooled(pool: Callable[[int], nn.Module], *channels: int) -> nn.Module:
    """Convolution, ReLU and a pool by two, for every number of channels, on 16 x 16 pixels."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers: list[nn.Module] = []
        for a, b in zip((1, *channels), channels, strict=False):
            layers += [nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), pool(2)]
        units = channels[-1] * (16 >> len(channels)) ** 2
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(units, 10)).double().eval()


def strided() -> nn.Module:
    """Two convolutions by stride two, and two linear layers, on 28 x 28 pixels."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return (
            nn.Sequential(
                *(nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU()),
                *(nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU()),
                *(nn.Flatten(), nn.Linear(16 * 7 * 7, 50), nn.ReLU(), nn.Linear(50, 10)),
            )
            .double()
            .eval()
        )


def around_an_image(pixels: int, side: float) -> sc.Domain:
    """A square around a random image."""
    image = torch.randn(1, pixels, pixels, generator=torch.Generator().manual_seed(1))
    return sc.Domain.around(image, side=side, seed=1)


# -- growth and tiles --------------------------------------------------------------------------


def growing_domains() -> Group:
    """One network, and domains of which each is larger than the one before."""
    return {
        f"mlp256x4_side{side:g}": mlp(*[256] * 4, side=side)
        for side in (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
    }


def growing_widths() -> Group:
    """Three layers on one domain, wider and wider."""
    return {
        f"mlp{width}x3_side2": mlp(*[width] * 3, side=2.0, size=width)
        for width in (32, 64, 128, 256, 512)
    }


def tiled() -> Group:
    """One partition in one piece, and within budgets of memory that make tiles of it."""
    known = {"regions": 61_014, "side": 4.0}
    group = {"mlp128x4_whole": mlp(*[128] * 4, **known)}
    for megabytes in (128, 32, 8):
        budget = megabytes * 10**6
        group[f"mlp128x4_{megabytes}MB"] = mlp(*[128] * 4, memory=budget, **known)
    unit = partial(sc.Domain.box, 0.0, 1.0)
    group["folds92_4GB"] = Workload(
        partial(folds, 8, 2, 92), unit, regions=10_158_080, memory=4 * 10**9, large=True
    )
    return group


def folds(pleats: int, times: int, lines: int) -> nn.Module:
    """The unit square folded in both directions, again and again, then cut by random lines.

    A narrow network with many regions: (pleats ** times) ** 2 mirror images of those that the lines
    make in the square.
    """
    creases = torch.arange(pleats, dtype=torch.float64) / pleats
    slopes = 2 * pleats * (-1.0) ** torch.arange(pleats)
    slopes[0] = pleats
    both = torch.eye(2, dtype=torch.float64)
    fold = linear(torch.kron(both, slopes.double()[None]), torch.zeros(2))
    layers: list[nn.Module] = []
    for _ in range(times):
        spread = linear(both.repeat_interleave(pleats, 0), -creases.repeat(2))
        layers += [spread, nn.ReLU(), fold]
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(lines, 2, generator=generator, dtype=torch.float64)
    through = torch.rand(lines, 2, generator=generator, dtype=torch.float64)
    last = torch.randn(1, lines, generator=generator, dtype=torch.float64)
    layers += [linear(normal, -(normal * through).sum(1)), nn.ReLU(), linear(last, last[0, :1])]
    return nn.Sequential(*layers).eval()


# -- the zoo -----------------------------------------------------------------------------------

# What part of its domain is measured, where the whole has too many regions.
PARTS = {
    "inr256x6_camera": 0.2,
    "sdf2d_easy_metfaces": 0.2,
    "sdf2d_hard_metfaces": 0.2,
    "sdf3d_bunny": 0.2,
    "conv1_fashion": 0.5,
    "resbn_fashion": 0.002,
    "cnn5_cats": 0.01,
    "vnn_verivital_maxpool": 0.03,
}


def zoo() -> Group:
    """Trained networks of others, where their folder is there."""
    if not (SHARED / "zoo" / "zoo.py").exists():
        return {}
    return {
        f"zoo_{name}": Workload(partial(zoo_model, name), partial(zoo_domain, name))
        for name in _keeper().names()
    }


def _keeper() -> ModuleType:
    folder = str(SHARED / "zoo")
    if folder not in sys.path:
        sys.path.append(folder)
    sys.dont_write_bytecode = True
    return importlib.import_module("zoo")


def zoo_model(name: str) -> nn.Module:
    """A table that is looked up by index is written as our encoding."""
    model: nn.Sequential = _keeper().load(name).model
    if type(model[0]).__name__ != "PWLPosEnc":
        return model
    encoding = sc.nn.PeriodicEncoding(model[0].L, pieces=model[0].pieces, dtype=torch.float64)
    return nn.Sequential(encoding, *model[1:]).eval()


def zoo_domain(name: str) -> sc.Domain:
    """Its own domain, or the part of it that is measured."""
    corners: Tensor = _keeper().load(name).domain
    middle = corners.mean(0)
    return sc.Domain.polygon(middle + PARTS.get(name, 1.0) * (corners - middle))


GROUPS: dict[str, Callable[[], Group]] = {
    "lines": single_layers,
    "mlp": perceptrons,
    "shapes": shapes,
    "trained": trained,
    "degenerate": degenerate,
    "conv": convolutional,
    "zoo": zoo,
    "regions": growing_domains,
    "width": growing_widths,
    "tiles": tiled,
}
WORKLOADS: Group = {name: work for group in GROUPS.values() for name, work in group().items()}
