"""Random networks, questions about them, and whether a refined partition answers as the whole."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam._util import backend
from splinecam.engine import box_bounds, open_part, run
from splinecam.network.capture import capture
from splinecam.partitions.partition import assemble
from splinecam.partitions.refining import wanted_of
from splinecam.questions.wanted import Wanted

ATOL = 1e-9
BOX = sc.Domain.box(-1, 1)
QUADRANGLE = sc.Domain.polygon(torch.tensor([[-1.0, -1], [2, -1], [1.4, 1.7], [-0.7, 1.1]]))


@contextmanager
def eagerly(worth: float = 0.04, deep: int = 1) -> Iterator[None]:
    """Let small networks be bounded on few squares and settled, too, though that does not pay.

    deep: products of a chain from which on the noise of units is carried with its sign.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(open_part, "WORTH", worth)
        patch.setattr(backend, "CPU", replace(backend.CPU, squares_from=0.0))
        patch.setattr(open_part, "_LAST", 6)
        patch.setattr(run, "_FEWER", 1.0)
        patch.setattr(box_bounds, "_DEEP", deep)
        yield


class Asked:
    """A network that is captured once, as that takes longer than to partition it."""

    def __init__(self, model: nn.Module, domain: sc.Domain, outputs: int) -> None:
        self.model, self.domain, self.outputs = model, domain, outputs
        self.program = capture(model, domain.input_shape)
        self.whole = self._part(None)

    def refined(self, refine: Any, worth: float = 0.04, deep: int = 1) -> sc.Partition:
        """The partition for one question."""
        wanted = wanted_of(refine, self.domain, self.outputs, None, self.program.stripped)
        with eagerly(worth, deep):
            return self._part(wanted)

    def _part(self, wanted: Wanted | None) -> sc.Partition:
        question = None if wanted is None else wanted.question(self.outputs)
        outcome = run.run(self.program, self.domain, question=question)
        return assemble(self.model, self.program, self.domain, outcome, wanted=wanted)


class Calls(nn.Module):
    """Modules, and a function of them and an input."""

    def __init__(self, call: Callable[..., Tensor], *parts: nn.Module) -> None:
        super().__init__()
        self.call, self.parts = call, nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        return self.call(x, *self.parts)


def _skip(x: Tensor, a: nn.Module, b: nn.Module, c: nn.Module, d: nn.Module) -> Tensor:
    h = a(x).relu()
    h = h + b(h).clamp(-1, 1)
    return d(torch.cat([h[:, :2], c(h).relu()[:, 2:]], 1) * 0.7)


def _maxima(x: Tensor, a: nn.Module, b: nn.Module, c: nn.Module) -> Tensor:
    h = a(x).view(len(x), -1, 3).amax(2)
    return c(b(h).view(len(x), -1, 2).amin(2))


def _sorted(x: Tensor, a: nn.Module, b: nn.Module) -> Tensor:
    return b(torch.sort(a(x).view(len(x), -1, 4), -1).values.flatten(1))


def _chosen(x: Tensor, a: nn.Module, b: nn.Module) -> Tensor:
    h = a(x)
    return b(torch.where(h > 0, 1.5 * h, -0.3 * h))


def _dense(width: int, depth: int, n: int, act: Any, norm: bool) -> nn.Module:
    layers: list[nn.Module] = [nn.Linear(2, width)]
    for _ in range(depth):
        layers += [*([nn.BatchNorm1d(width)] if norm else []), act(), nn.Linear(width, width)]
    return nn.Sequential(*layers, act(), nn.Linear(width, n))


def _convolution(n: int, act: Any) -> nn.Module:
    return nn.Sequential(
        *(nn.Linear(2, 64), nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 4, 3, padding=1), act()),
        *(nn.MaxPool2d(2), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(64, n)),
    )


def random_network(seed: int) -> tuple[str, nn.Module, int]:
    """The kind of a network with two inputs, the network, and the number of its outputs."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    kinds = ["dense", "dense", "norm", "convolution", "skip", "maxima", "sorted", "chosen"]
    kind, w = rng.choice(kinds), rng.choice([4, 8, 16, 24])
    n, depth = rng.choice([1, 1, 2, 3, 5]), rng.choice([1, 2, 3, 4])
    act = rng.choice([nn.ReLU, nn.LeakyReLU, nn.Hardtanh, nn.ReLU6, nn.PReLU, nn.Softshrink])
    lin = nn.Linear
    make: dict[str, Callable[[], nn.Module]] = {
        "dense": lambda: _dense(w, depth, n, act, norm=False),
        "norm": lambda: _dense(w, depth, n, act, norm=True),
        "convolution": lambda: _convolution(n, act),
        "skip": lambda: Calls(_skip, lin(2, w), lin(w, w), lin(w, w), lin(w, n)),
        "maxima": lambda: Calls(_maxima, lin(2, 3 * w), lin(w, 2 * w), lin(w, n)),
        "sorted": lambda: Calls(_sorted, lin(2, w), lin(w, n)),
        "chosen": lambda: Calls(_chosen, lin(2, w), lin(w, n)),
    }
    model = make[kind]().double().eval().requires_grad_(False)
    for parameter in model.parameters():
        if rng.random() < 0.3:  # degenerate: many lines through one point, equal and dead units
            parameter.copy_((8 * parameter).round() / 4)
        else:
            parameter.mul_(rng.choice([1.0, 1.5, 2.0]))
    if rng.random() < 0.03:
        next(iter(model.parameters())).zero_()  # constant
    return kind, model, n


def questions(model: nn.Module, domain: sc.Domain, n: int, seed: int = 0) -> list[Any]:
    """Values for ``refine=``, with levels that the outputs take on the domain."""
    share = torch.rand(50, len(domain.corners), dtype=torch.float64) ** 4
    y = model(domain.embed(share / share.sum(1, keepdim=True) @ domain.corners))
    low, middle, high = y[:, seed % n].quantile(torch.tensor([0.1, 0.5, 0.9]).double()).tolist()
    asked: list[Any] = [
        "boundary",
        {"level": middle, "output": seed % n},
        {"level": [low, high], "output": seed % n},
    ]
    row, other = torch.eye(n, dtype=torch.float64)[[seed % n, (seed + 1) % n]]
    if n == 1:
        between = [([[1.0]], [low]), ([[-1.0]], [-high])]
        return [*asked, sc.OutputCondition.of(between), sc.OutputCondition.of([between[0]])]
    largest = torch.cat([torch.eye(n)[1:] - torch.eye(n)[:1]]).double()
    conditions = [
        [(largest, torch.zeros(n - 1))],
        [(torch.stack([row, other]), [middle, middle]), ([(-row).tolist()], [-high])],
    ]
    asked += [sc.OutputCondition.of(each) for each in conditions]
    return [*asked, {"kind": "argmin"}, {"kind": "pairwise"}, (seed % n, (seed + 1) % n)]


def answers(part: sc.Partition, refine: Any) -> dict[str, Any]:
    """All that a partition says about a question: segments (S, 2, 2), and numbers."""
    if isinstance(refine, sc.OutputCondition):
        found = part.preimage(refine)
        numbers = [found.area, found.tied_area, float(len(found)), found.curves.length]
        return {
            "segments": found.outline.ends,
            "numbers": torch.tensor([*numbers, float(len(found.points))], dtype=torch.float64),
            "verdict": part.check(refine).status,
        }
    given = refine if isinstance(refine, dict) else {}
    if "level" in given:
        curves = part.level_set(given["level"], output=given["output"])
        return {"segments": curves.ends, "numbers": _lengths(curves, len(curves.levels))}
    kind, classes = given.get("kind", "argmax"), refine if isinstance(refine, tuple) else None
    curves = part.decision_boundary(kind=kind, classes=classes)
    numbers = _lengths(curves, curves.n_classes**2)
    if classes is None and kind != "pairwise":
        numbers = torch.cat([numbers, part.class_regions(kind=kind).areas])
    return {"segments": curves.ends, "numbers": numbers}


def _lengths(curves: Any, labels: int) -> Tensor:
    """The length of the curves with each label."""
    return curves.lengths.new_zeros(labels).index_add_(0, curves.label, curves.lengths)


def disagreement(part: sc.Partition, whole: sc.Partition, refine: Any) -> str:
    """Where a refined partition answers otherwise than the whole; nothing if nowhere."""
    mine, right = answers(part, refine), answers(whole, refine)
    size = part.domain.diameter
    if mine.get("verdict") != right.get("verdict"):
        return f"verdict {mine['verdict']}, not {right['verdict']}"
    if not torch.allclose(mine["numbers"], right["numbers"], rtol=ATOL, atol=ATOL * size**2):
        return f"numbers {mine['numbers'].tolist()}, not {right['numbers'].tolist()}"
    a, b = mine["segments"].flatten(1), right["segments"].flatten(1)
    if len(a) != len(b):
        return f"{len(a)} segments, not {len(b)}"
    if not len(a):
        return ""
    apart = torch.cdist(a, b, p=torch.inf)
    if "verdict" in mine:  # the outline of a condition has no direction
        apart = torch.minimum(apart, torch.cdist(a, b.roll(2, 1), p=torch.inf))
    worst = float(torch.maximum(apart.amin(0).max(), apart.amin(1).max()))
    return f"segments are {worst:.2g} apart" if worst > ATOL * size else ""
