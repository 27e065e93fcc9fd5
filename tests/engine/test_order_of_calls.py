"""The same call gives the same bits, whatever ran before it in the process."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam.engine.run import run
from splinecam.network.capture import capture
from strategies import mlp

BOX = sc.Domain.box(-3, 3)


def _arrays(part: sc.Partition) -> list[Tensor]:
    return [*vars(part.mesh).values(), part.values, part._value_error]


def _partition(model: nn.Module, memory: int | None = None) -> Callable[[], list[Tensor]]:
    return lambda: _arrays(sc.partition(model, BOX, device="cpu", memory=memory, progress=False))


def _sweep(model: nn.Module) -> Callable[[], list[Tensor]]:
    domains = [
        sc.Domain.around(torch.linspace(-1, 1, 5) * (1 + i), side=3.0, seed=i) for i in range(6)
    ]

    def call() -> list[Tensor]:
        parts = sc.sweep(model, domains, device="cpu", progress=False)
        return [array for part in parts for array in _arrays(part)]

    return call


def _by_tensors(model: nn.Module) -> Callable[[], list[Tensor]]:
    def call() -> list[Tensor]:
        outcome = run(capture(model, BOX.input_shape, device="cpu"), BOX, compiled=False)
        return [*vars(outcome.mesh).values(), outcome.output, outcome.error]

    return call


def _calls() -> dict[str, Callable[[], list[Tensor]]]:
    torch.manual_seed(7)
    images = (nn.Linear(2, 36), nn.Unflatten(1, (1, 6, 6)), nn.Conv2d(1, 3, 3), nn.ReLU())
    pooled = nn.Sequential(*images, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 2)).double()
    wide, deep = mlp(2, 200, 3), mlp(2, 24, 24, 24, 2)
    return {
        "wide": _partition(wide),
        "deep": _partition(deep),
        "tiles": _partition(deep, memory=1_000_000),
        "max-pool": _partition(pooled),
        "max-pool by tensors": _by_tensors(pooled),
        "deep by tensors": _by_tensors(deep),
        "sweep": _sweep(mlp(5, 16, 16, 2)),
        "sweep of maxima": _sweep(nn.Sequential(sc.nn.Maxout(5, 6, 3), nn.Linear(6, 2)).double()),
    }


def test_the_same_bits_in_any_order_of_calls() -> None:
    calls = _calls()
    once = {name: call() for name, call in calls.items()}
    for order in ([*reversed(calls)], [*calls, *calls]):
        for name in order:
            found = calls[name]()
            assert len(found) == len(once[name])
            assert all(map(torch.equal, found, once[name])), name
