"""Networks with smooth functions: time, regions, and how near bounds are to the true errors.

Run ``python benchmarks/smooth.py``, or ``--only gelu64x2 --repeat 9``. The method is described in
``benchmarks/README.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from common import Table, alone, in_turns, machine, options, warm_up
from networks import around_an_image
from torch import Tensor, nn

import splinecam as sc

POINTS = 10**6  # random points at which the true error is looked for
_BATCH = 1 << 15
TRAINING = 200  # steps


@dataclass(frozen=True)
class SmoothWorkload:
    """A network with smooth functions, a square, and how close the partition is to be.

    limits: the seconds and regions that are asked for, where they are.
    """

    model: Callable[[], nn.Module]
    domain: Callable[[], sc.Domain]
    smooth: float | str
    how: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)


# -- networks ------------------------------------------------------------------------------------


class Sine(nn.Module):
    """The sine of a multiple of its argument, as in networks that learn images."""

    def __init__(self, omega: float) -> None:
        super().__init__()
        self.omega = omega

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(self.omega * x)


def smooth_perceptron(act: Callable[[], nn.Module], *widths: int) -> nn.Sequential:
    """A network in float64, initialised as torch does; widths from input to output."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers: list[nn.Module] = []
        for a, b in pairwise(widths):
            layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers[:-1]).double().eval()


def two_spirals(count: int = 1000) -> tuple[Tensor, Tensor]:
    """Points of two spirals in a square, and the one to which each belongs."""
    generator = torch.Generator().manual_seed(0)
    turn = 3 * torch.rand(count, generator=generator, dtype=torch.float64).sqrt()
    own = torch.randint(2, (count,), generator=generator)
    angle = math.pi * (turn + own)
    noise = 0.02 * torch.randn(count, 2, generator=generator, dtype=torch.float64)
    return 0.3 * turn[:, None] * torch.stack([angle.cos(), angle.sin()], 1) + noise, own


def patterns(inputs: int = 784, classes: int = 10) -> Tensor:
    """Random inputs, the centres of as many classes, (classes, inputs)."""
    generator = torch.Generator().manual_seed(1)
    return 0.1 * torch.randn(classes, inputs, generator=generator, dtype=torch.float64)


def _trained(model: nn.Module, batch: Callable[[], Tensor], rate: float) -> nn.Module:
    """Train a network on a loss of batches."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(TRAINING):
        optimizer.zero_grad()
        batch().backward()
        optimizer.step()
    return model.eval()


def spiral_classifier() -> nn.Module:
    """The network gelu64x2 after it has learnt two spirals."""
    model = smooth_perceptron(nn.GELU, 2, 64, 64, 1)
    x, own = two_spirals()

    def loss() -> Tensor:
        return nn.functional.binary_cross_entropy_with_logits(model(x)[:, 0], own.double())

    return _trained(model, loss, 0.01)


def pattern_classifier() -> nn.Module:
    """The network silu784_50x3 after it has learnt to which pattern a noisy input belongs."""
    model = smooth_perceptron(nn.SiLU, 784, 50, 50, 50, 10)
    centres = patterns()
    generator = torch.Generator().manual_seed(0)

    def loss() -> Tensor:
        own = torch.randint(len(centres), (256,), generator=generator)
        noise = torch.randn(256, 784, generator=generator, dtype=torch.float64)
        return nn.functional.cross_entropy(model(centres[own] + 0.2 * noise), own)

    return _trained(model, loss, 0.001)


def sine_network(omega: float = 10.0, width: int = 32) -> nn.Module:
    """Two layers of sines that have learnt an image of rings; initial weights as is usual there."""
    model = smooth_perceptron(partial(Sine, omega), 2, width, width, 1)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for k, layer in enumerate(model):
            if isinstance(layer, nn.Linear):
                most = 1 / layer.in_features if k == 0 else math.sqrt(6 / width) / omega
                layer.weight.uniform_(-most, most, generator=generator)

    def loss() -> Tensor:
        x = 2 * torch.rand(1024, 2, generator=generator, dtype=torch.float64) - 1
        rings = torch.sin(9 * torch.hypot(x[:, 0] - 0.2, x[:, 1] + 0.1))
        return nn.functional.mse_loss(model(x)[:, 0], rings)

    return _trained(model, loss, 0.002)


def pooled_network() -> nn.Module:
    """A convolution with GELU and max-pooling on 12 x 12 pixels: kinks and smooth functions."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = [nn.Conv2d(1, 4, 3), nn.GELU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(100, 10)]
        return nn.Sequential(*layers).double().eval()


def through_patterns() -> sc.Domain:
    """A square through the centres of three classes."""
    return sc.Domain.through(*patterns()[:3])


_BOX = partial(sc.Domain.box, -1.0, 1.0)
_PLANE = partial(sc.Domain.around, [0.0] * 784, side=2.0, seed=1)
_BOUNDARY = {"refine": "boundary", "undecided": 1e-3}  # of sc.Smooth
_GELU = partial(smooth_perceptron, nn.GELU, 2, 64, 64, 1)
_SELU = partial(smooth_perceptron, nn.SELU, 2, 64, 64, 1)
_SILU = partial(smooth_perceptron, nn.SiLU, 784, 50, 50, 50, 10)

WORKLOADS = {
    "gelu64x2": SmoothWorkload(_GELU, _BOX, 1e-3, limits={"seconds": 0.5, "regions": 400_000}),
    "gelu64x2_boundary": SmoothWorkload(_GELU, _BOX, 1e-3, _BOUNDARY),
    "gelu64x2_trained": SmoothWorkload(spiral_classifier, _BOX, "1%"),
    "gelu64x2_trained_boundary": SmoothWorkload(spiral_classifier, _BOX, "1%", _BOUNDARY),
    "silu784_50x3": SmoothWorkload(_SILU, _PLANE, 1e-2, limits={"seconds": 5.0}),
    "silu784_50x3_trained": SmoothWorkload(pattern_classifier, through_patterns, "1%"),
    "siren32x2": SmoothWorkload(sine_network, _BOX, "2%"),
    "selu64x2_boundary": SmoothWorkload(_SELU, _BOX, 1e-3, _BOUNDARY),
    "cnn4_gelu_max": SmoothWorkload(pooled_network, partial(around_an_image, 12, 2.0), 1e-2),
}

# -- errors --------------------------------------------------------------------------------------


class Square:
    """A square domain by its sides: points of it, and values on a grid."""

    def __init__(self, domain: sc.Domain) -> None:
        self.domain = domain
        corners = domain.corners
        self.corner = corners[0]
        self.sides = torch.stack([corners[1] - corners[0], corners[3] - corners[0]])

    def plane(self, share: Tensor) -> Tensor:
        """The plane coordinates of points (N, 2) given by their shares of both sides."""
        return self.corner + share @ self.sides

    def outputs(self, model: nn.Module, share: Tensor) -> Tensor:
        """The outputs of a model at such points, (N, n)."""
        with torch.no_grad():
            parts = [
                model(self.domain.embed(self.plane(batch))).flatten(1)
                for batch in share.split(_BATCH)
            ]
        return torch.cat(parts)


def true_error(part: sc.Partition, square: Square, share: Tensor, real: Tensor) -> float:
    """The largest distance of the maps from the model at points."""
    worst = 0.0
    for batch, outputs in zip(share.split(_BATCH), real.split(_BATCH), strict=True):
        uv = square.plane(batch)
        own = part.locate(square.domain.embed(uv))
        found = (part.weight[own] @ uv[:, :, None])[:, :, 0] + part.bias[own]
        worst = max(worst, float((found - outputs)[own >= 0].abs().max()))
    return worst


def grid_errors(
    model: nn.Module, square: Square, count: int, share: Tensor, real: Tensor
) -> tuple[float, float]:
    """The largest errors between samples on a grid: by the nearest one, and bilinear."""
    side = max(2, math.ceil(math.sqrt(count)))
    axis = torch.linspace(0, 1, side, dtype=torch.float64)
    known = square.outputs(model, torch.cartesian_prod(axis, axis)).view(side, side, -1)
    place = share * (side - 1)
    i, j = place.round().long().unbind(1)
    nearest = known[i, j]
    low = place.long().clamp(max=side - 2)
    (i, j), (s, t) = low.unbind(1), (place - low)[:, :, None].unbind(1)
    first = (1 - t) * known[i, j] + t * known[i, j + 1]
    second = (1 - t) * known[i + 1, j] + t * known[i + 1, j + 1]
    bilinear = (1 - s) * first + s * second
    return float((nearest - real).abs().max()), float((bilinear - real).abs().max())


def sum_of_moduli(model: nn.Sequential, part: sc.Partition, x: Tensor) -> float:
    """The bound that carries the errors of tables through a network by absolute values of weights.

    It knows of no cancellation: every error has the worst sign, and every function its largest
    slope. The errors of the tables are those at inputs x, which favours it.
    """
    assert part.smoothing is not None
    names = iter(layer.name for layer in part.smoothing.layers)
    tables = {layer.name: layer for layer in part._network.layers}
    error = torch.zeros(1, *part.domain.input_shape, dtype=torch.float64)
    with torch.no_grad():
        for module in model:
            if isinstance(module, nn.Linear):
                error = nn.functional.linear(error, module.weight.abs())
            elif isinstance(module, nn.Conv2d):
                error = nn.functional.conv2d(error, module.weight.abs())
            elif isinstance(module, nn.MaxPool2d | nn.Flatten):
                error = module(error)
            else:
                z = module.omega * x if isinstance(module, Sine) else x
                off = (module(x) - tables[next(names)].apply(z)).abs().amax(0)
                error = largest_slope(module) * error + off
            x = module(x)
    return float(error.max())


def largest_slope(module: nn.Module) -> float:
    """The largest slope of a function of one variable anywhere."""
    if isinstance(module, Sine):
        return module.omega
    z = torch.linspace(-10, 10, 20_001, dtype=torch.float64, requires_grad=True)
    with torch.enable_grad():
        (slope,) = torch.autograd.grad(module(z).sum(), z)
    return float(slope.abs().max())


# -- the table -----------------------------------------------------------------------------------

TABLE = Table(
    {
        "workload": "<27",
        "smooth": ">8",
        "seconds": ">9.3f",
        "regions": ">10,",
        "pieces": ">8,",
        "bound": ">10.2g",
        "error": ">10.2g",
        "ratio": ">7.2f",
        "undecided": ">11.3%",
        "moduli": ">9.2g",
        "nearest": ">9.2g",
        "bilinear": ">10.2g",
    }
)


def measure(
    work: SmoothWorkload, name: str, repeat: int, device: torch.device, points: int = POINTS
) -> dict[str, Any]:
    """A row of the table."""
    warm_up(device)
    model, domain = work.model().to(device), work.domain()
    made: list[sc.Partition] = []

    def run() -> None:
        made[:] = [
            sc.partition(model, domain, smooth=sc.Smooth(work.smooth, **work.how), progress=False)
        ]

    (times,) = in_turns([run], repeat, device)
    part, model = made[0].to("cpu") if device.type != "cpu" else made[0], model.cpu()
    square = Square(domain)
    generator = torch.Generator().manual_seed(0)
    share = torch.rand(points, 2, generator=generator, dtype=torch.float64)
    real = square.outputs(model, share)
    error, bound = true_error(part, square, share, real), float(part._bound.max())
    nearest, bilinear = grid_errors(model, square, len(part.vertices), share, real)
    assert part.smoothing is not None
    row = {
        "workload": name,
        "smooth": str(work.smooth),
        "seconds": times.best,
        "regions": len(part),
        "pieces": sum(layer.pieces for layer in part.smoothing.layers),
        "bound": bound,
        "error": error,
        "ratio": bound / error,
        "undecided": part.class_regions().undecided / domain.area,
        "nearest": nearest,
        "bilinear": bilinear,
    }
    if not part.smoothing.refined:
        row["moduli"] = sum_of_moduli(model, part, domain.embed(square.plane(share[:_BATCH])))
    return row


def row(name: str, repeat: int, device: torch.device) -> dict[str, Any]:
    """The row of a workload, by its name."""
    return measure(WORKLOADS[name], name, repeat, device)


def note(made: dict[str, Any]) -> str:
    """What a row has more of than is asked for."""
    limits = WORKLOADS[made["workload"]].limits
    over = [f"{key} above {most:g}" for key, most in limits.items() if made[key] > most]
    return ", ".join(over)


def main() -> None:
    """Print a table."""
    settings = options(__doc__, WORKLOADS).parse_args()
    print(f"{machine(settings.device)}, best of {settings.repeat}\n")
    print(TABLE.heading())
    for name in settings.only or WORKLOADS:
        made = alone(row, name, settings.repeat, settings.device)
        print(TABLE.line(made, note(made)), flush=True)


if __name__ == "__main__":
    main()
