"""The floor: plain forward passes, each vertex of a partition once, from the layer that made it.

A corner of the domain runs through the whole network; a vertex that the k-th non-linearity has made
runs through that non-linearity and the rest. Nothing else is done: there are no signs and no
interpolation, no results are kept, and all batches have the same few rows, which are in the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod

import torch
from common import seconds
from torch import Tensor, nn

import splinecam as sc
from splinecam.engine.run import Outcome
from splinecam.geometry.domain import Frame
from splinecam.network.program import Program

# Rows of a batch: the fastest of these counts. With fewer rows the same few would stay in the
# innermost cache, which those of different vertices do not.
BATCHES = {"cpu": (512, 1024, 4096), "cuda": (4096, 32768, 262144)}
# Wide networks have an eighth of that, and as many as give this many numbers at most.
WIDE = 4096
NUMBERS = {"cpu": 1 << 25, "cuda": 1 << 28}

Work = Callable[[], None]


@dataclass(frozen=True)
class Tail:
    """What follows a non-linearity, some rows of its argument, and how many there are in all."""

    run: Callable[[int], object]
    count: int


def floors(
    program: Program, model: nn.Module, domain: sc.Domain, outcome: Outcome
) -> dict[str, Work]:
    """The fastest passes of the captured program, and of a perceptron's own modules: kind -> work.

    Which batch is the fastest is measured here.
    """
    device = program.device
    batches = _batches(max(_widths(program, domain)), device.type)
    made_by = outcome.mesh.vertex_layer + 1
    counts = torch.bincount(made_by.cpu(), minlength=len(program.layers) + 1).tolist()
    kinds = {"program": partial(_program_tail, program, domain, outcome)}
    if _is_perceptron(model, program):
        kinds["modules"] = partial(_module_tail, model, device)
    best: dict[str, Work] = {}
    for kind, tail in kinds.items():
        tails = [
            Tail(tail(k - 1, min(count, batches[-1])), count)
            for k, count in enumerate(counts)
            if count
        ]
        works = [partial(_passes, tails, size) for size in batches]
        works[0]()
        best[kind] = min(works, key=lambda work: seconds(work, device))
    return best


def _batches(widest: int, device: str) -> list[int]:
    """Sizes to try for a network whose widest layer has this many numbers a row."""
    most = max(1, NUMBERS[device] // widest)
    sizes = [size // 8 if widest > WIDE else size for size in BATCHES[device]]
    return sorted({min(size, most) for size in sizes})


def _passes(tails: list[Tail], batch: int) -> None:
    with torch.no_grad():
        for tail in tails:
            for done in range(0, tail.count, batch):
                tail.run(min(batch, tail.count - done))


def _program_tail(
    program: Program, domain: sc.Domain, outcome: Outcome, k: int, rows: int
) -> Callable[[int], object]:
    """Run from the k-th layer on (-1: from the input), on vertices that it has made."""
    mesh = outcome.mesh
    chosen = (mesh.vertex_layer == k).nonzero()[:rows, 0]
    uv = Frame.of(domain).to_plane(mesh.uv[chosen]).to(domain.corners)
    live = {program.input_name: domain.embed(uv).to(program.device)}
    with torch.no_grad():
        for i in range(k + 1):
            live = program.advance(i, live if i == 0 else _past_layer(program, i - 1, live))

    def run(count: int) -> dict[str, Tensor]:
        values = {name: value[:count] for name, value in live.items()}
        values = _past_layer(program, k, values)
        for i in range(k + 1, len(program.stages)):
            values = _past_layer(program, i, program.advance(i, values))
        return values

    return run


def _past_layer(program: Program, i: int, live: dict[str, Tensor]) -> dict[str, Tensor]:
    layer = program.stages[i].layer if i >= 0 else None
    return live if layer is None else {**live, layer.result: layer.apply(live[layer.argument])}


def _widths(program: Program, domain: sc.Domain) -> list[int]:
    """Numbers of a row of everything that is alive after each stage."""
    live = {program.input_name: domain.embed(domain.corners[:1]).to(program.device)}
    widths = [prod(domain.input_shape)]
    with torch.no_grad():
        for i in range(len(program.stages)):
            live = program.advance(i, live)
            widths.append(sum(value.numel() for value in live.values()))
            live = _past_layer(program, i, live)
    return widths


def _is_perceptron(model: nn.Module, program: Program) -> bool:
    plain = isinstance(model, nn.Sequential) and isinstance(model[0], nn.Linear)
    if not plain or any(type(layer) not in (nn.Linear, nn.ReLU) for layer in model):
        return False
    return sum(isinstance(layer, nn.ReLU) for layer in model) == len(program.layers)


def _module_tail(
    model: nn.Sequential, device: torch.device, k: int, rows: int
) -> Callable[[int], object]:
    """Run from the k-th ReLU on (-1: from the input), on random rows."""
    relus = [i for i, layer in enumerate(model) if isinstance(layer, nn.ReLU)]
    start = relus[k] if k >= 0 else 0
    before = model[:start] if k >= 0 else model[:1]
    linear = [layer for layer in before if isinstance(layer, nn.Linear)][-1]
    width = linear.out_features if k >= 0 else linear.in_features
    x = torch.randn(rows, width, dtype=torch.float64, device=device)
    tail = model[start:]
    return lambda count: tail(x[:count])
