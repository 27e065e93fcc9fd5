"""Time and peak memory of VGG11 and VGG16, with exact max-pooling, on small squares of images.

  python benchmarks/vgg.py --only vgg11
  python benchmarks/vgg.py --device cuda --validate

What the columns mean is described in benchmarks/README.md.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter

import torch
from bench import TABLE, measure, note
from common import Workload, alone, machine, options
from torch import Tensor, nn

import splinecam as sc

# Channels of the convolutions; 0 is a max-pool.
SHAPES = {
    "vgg11": (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0),
    "vgg16": (64, 64, 0, 128, 128, 0, *[256] * 3, 0, *[512] * 3, 0, *[512] * 3, 0),
}


class VGG(nn.Module):
    """Convolutions and pools, an average pool, and a classifier with two hidden layers."""

    def __init__(self, channels: tuple[int, ...], classes: int, hidden: int = 4096) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        width = 3
        for count in channels:
            if count:
                layers += [nn.Conv2d(width, count, 3, padding=1), nn.ReLU(inplace=True)]
                width = count
            else:
                layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(width * 49, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(hidden, classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.avgpool(self.features(x))
        scores: Tensor = self.classifier(torch.flatten(x, 1))
        return scores


def vgg(name: str, classes: int = 1000) -> VGG:
    """A VGG whose random weights (seed 0) let signals keep their size."""
    with torch.device("meta"):  # torch's own initial values would take seconds
        model = VGG(SHAPES[name], classes)
    model = model.to_empty(device="cpu").eval()
    generator = torch.Generator().manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu", generator=generator)
            nn.init.zeros_(module.bias)
    return model


def around_an_image(side: float) -> sc.Domain:
    """A square around a random image of 64 x 64 pixels."""
    image = torch.randn(3, 64, 64, generator=torch.Generator().manual_seed(1))
    return sc.Domain.around(image, side=side, seed=1)


def workload(name: str, side: float, *, large: bool = False) -> Workload:
    """A network on a square around an image."""
    return Workload(partial(vgg, name), partial(around_an_image, side), large=large)


WORKLOADS = {
    "vgg11": workload("vgg11", 0.002),
    "vgg11_large": workload("vgg11", 0.02, large=True),
    "vgg16": workload("vgg16", 0.002),
    "vgg16_1000": workload("vgg16", 0.0102, large=True),
    "vgg16_large": workload("vgg16", 0.05, large=True),
}


def row(name: str, repeat: int, device: torch.device) -> dict[str, object]:
    """One row of the table, measured in this process."""
    return measure(WORKLOADS[name], name, repeat, device)


def validated(name: str, device: torch.device) -> str:
    """What ``validate`` says of a partition, and how long it takes."""
    start = perf_counter()
    part = sc.partition(
        WORKLOADS[name].model(), WORKLOADS[name].domain(), device=device, progress=False
    )
    report = part.validate(samples=200)
    return f"{name}: {report!r}, {perf_counter() - start:.1f} s with the partition"


def main() -> None:
    """Print a table; each workload has a process of its own, for its peak memory."""
    parser = options(__doc__, WORKLOADS)
    parser.add_argument("--validate", action="store_true", help="compare with the model as well")
    settings = parser.parse_args()
    device, names = settings.device, settings.only
    if names is None:
        names = [name for name, each in WORKLOADS.items() if device.type != "cpu" or not each.large]
    print(f"{machine(device)}; seconds, at least {settings.repeat} runs; peak in MiB")
    print(TABLE.heading())
    for name in names:
        made = alone(row, name, settings.repeat, device)
        print(TABLE.line(made, note(made)), flush=True)
    for name in names if settings.validate else ():
        print(alone(validated, name, device), flush=True)


if __name__ == "__main__":
    main()
