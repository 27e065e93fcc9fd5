"""Ranges of outputs on boxes: bounds of auto_LiRPA beside those of one smooth partition.

Run ``python benchmarks/boxes.py``, or ``--only gelu64x2``, in an environment with auto_LiRPA. The
method is described in ``benchmarks/README.md``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from common import Table, machine, options, seconds
from torch import Tensor, nn

import splinecam as sc
from smooth import smooth_perceptron, spiral_classifier

NETWORKS: dict[str, tuple[Callable[[], nn.Module], float | str]] = {
    "gelu64x2": (partial(smooth_perceptron, nn.GELU, 2, 64, 64, 1), 1e-3),
    "gelu64x2_trained": (spiral_classifier, "1%"),
}
SIDES = 0.5, 0.1, 0.02
BOXES = 64
METHODS = "IBP", "CROWN"
_SAMPLES = 41  # along each side of a box, for its true range

TABLE = Table(
    {
        "network": "<18",
        "bounds": "<22",
        "seconds": ">9.2f",
        **{f"side {side:g}": ">12.4g" for side in SIDES},
    }
)


def boxes(side: float) -> tuple[Tensor, Tensor]:
    """The lower and upper corners of random boxes in the domain, (BOXES, 2) each."""
    generator = torch.Generator().manual_seed(0)
    low = torch.rand(BOXES, 2, generator=generator, dtype=torch.float64) * (2 - side) - 1
    return low, low + side


def sampled(model: nn.Module, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """The range of the output at points of each box, within its true range."""
    axis = torch.linspace(0, 1, _SAMPLES, dtype=torch.float64)
    share = torch.cartesian_prod(axis, axis)
    x = low[:, None] + share * (high - low)[:, None]
    with torch.no_grad():
        found = model(x.view(-1, 2)).view(len(low), -1)
    return found.amin(1), found.amax(1)


class Ranges:
    """Ranges of a partition's only output on boxes, widened by the bounds of its regions."""

    def __init__(self, part: sc.Partition) -> None:
        self.part = part
        ends = part.mesh.edges
        self.start, self.end = part.vertices[ends[:, 0]], part.vertices[ends[:, 1]]
        self.values = part.values[ends, 0]
        bounds = part.region_bounds[:, 0]
        faces = part._edge_faces
        self.off = torch.where(faces >= 0, bounds[faces.clamp(min=0)], 0.0).amax(1)

    def __call__(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        found = [self._range(*box) for box in zip(low, high, strict=True)]
        lower, upper = zip(*found, strict=True)
        return torch.stack(lower), torch.stack(upper)

    def _range(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The range on one box, from the corners of the parts of regions in it.

        A linear function has its extremes there. These corners are the ends of edges, clipped by
        the box, and the box's own corners.
        """
        step = self.end - self.start
        along = torch.where(step == 0, torch.finfo(step.dtype).tiny, step)
        at_low, at_high = (low - self.start) / along, (high - self.start) / along
        first = torch.minimum(at_low, at_high).amax(1).clamp(min=0)
        last = torch.maximum(at_low, at_high).amin(1).clamp(max=1)
        inside = first <= last
        begin, rise = self.values[inside, 0], (self.values[:, 1] - self.values[:, 0])[inside]
        ends = torch.stack([begin + first[inside] * rise, begin + last[inside] * rise])
        off = self.off[inside].expand_as(ends)
        corners = torch.cartesian_prod(*torch.stack([low, high], 1))
        own = self.part.locate(corners)
        maps = (self.part.weight[own, 0] * corners).sum(1) + self.part.bias[own, 0]
        widened = torch.cat([off.flatten(), self.part.region_bounds[own, 0]])
        found = torch.cat([ends.flatten(), maps])
        return (found - widened).min(), (found + widened).max()


class Lirpa:
    """Ranges by auto_LiRPA, which bounds networks of any number of inputs."""

    def __init__(self, model: nn.Sequential) -> None:
        self.library = importlib.import_module("auto_LiRPA")
        own: Any = importlib.import_module("auto_LiRPA.operators.gelu").GELU
        layers = [own() if isinstance(layer, nn.GELU) else layer for layer in model]
        self.model = self.library.BoundedModule(
            nn.Sequential(*layers), torch.zeros(BOXES, 2, dtype=torch.float64)
        )

    def __call__(self, method: str, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        within = self.library.PerturbationLpNorm(x_L=low, x_U=high)
        x = self.library.BoundedTensor((low + high) / 2, within)
        lower, upper = self.model.compute_bounds(x=(x,), method=method)
        return lower.detach()[:, 0], upper.detach()[:, 0]


def rows(name: str, device: torch.device) -> list[dict[str, Any]]:
    """Of each kind of bound: by how much its ranges are too wide in the median, for each side."""
    make, smooth = NETWORKS[name]
    model = make()
    domain = sc.Domain.box(-1, 1)
    made: list[Any] = []
    partition = partial(sc.partition, model, domain, smooth=smooth, progress=False, device=device)
    spent = seconds(lambda: made.append(Ranges(partition())), device)
    ways: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {f"partition, {smooth}": made[0]}
    bounded = Lirpa(model)
    ways |= {f"auto_LiRPA, {method}": partial(bounded, method) for method in METHODS}
    found = []
    for way, ranges in ways.items():
        row: dict[str, Any] = {"network": name, "bounds": way}
        row["seconds"] = spent if way.startswith("partition") else 0.0
        for side in SIDES:
            box = boxes(side)
            true = sampled(model, *box)
            answer: list[tuple[Tensor, Tensor]] = []
            ask = partial(ranges, *box)
            row["seconds"] += seconds(lambda: answer.append(ask()), device)  # noqa: B023
            lower, upper = answer[0]
            assert bool((lower <= true[0]).all() & (upper >= true[1]).all()), way
            row[f"side {side:g}"] = float(((upper - lower) / (true[1] - true[0])).median())
        found.append(row)
    return found


def main() -> None:
    """Print a table: widths of ranges, relative to those at samples."""
    torch.set_default_dtype(torch.float64)  # auto_LiRPA's own constants have this type
    settings = options(__doc__, NETWORKS).parse_args()
    print(f"{machine(settings.device)}; {BOXES} boxes of each side\n")
    print(TABLE.heading())
    for name in settings.only or NETWORKS:
        for row in rows(name, settings.device):
            print(TABLE.line(row), flush=True)


if __name__ == "__main__":
    main()
