"""Paths that are divided only where the class is open have the decisions of all pieces."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from refinement_cases import random_network
from splinecam.engine import open_stretches
from splinecam.engine.box_bounds import BoxBounds


@pytest.fixture(autouse=True)
def _eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_stretches, "COST", (0.01, 0.01))


def network(outputs: int = 3) -> nn.Module:
    torch.manual_seed(0)
    first, second, last = nn.Linear(2, 24), nn.Linear(24, 24), nn.Linear(24, outputs)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last).double()


def ends(seed: int, count: int) -> tuple[Tensor, Tensor]:
    """Segments, some of which lie on coarse grids or pass through the origin in their middle."""
    torch.manual_seed(seed)
    a, b = torch.randn(2, count, 2, dtype=torch.float64)
    if seed % 4 == 0:
        a, b = (8 * a).round() / 4, (8 * b).round() / 4 + 9
    return a, -a if seed % 5 == 0 else 2 * b


@pytest.mark.few(5)
@pytest.mark.parametrize("seed", range(40))
def test_decisions_are_those_of_all_pieces(seed: int) -> None:
    _, model, outputs = random_network(seed)
    segments = sc.Domain.segments(*ends(seed, (1, 5, 40)[seed % 3]))
    whole = sc.along(model, segments, progress=False)
    refine: Any = "boundary"
    level = 0.0
    if outputs == 1 and seed % 2:
        level = float(whole.values.median())
        refine = {"level": level}
    part = sc.along(model, segments, refine=refine, progress=False)
    mine, right = part.decisions(level), whole.decisions(level)
    assert torch.equal(mine.segment, right.segment)
    assert torch.equal(mine.label, right.label)
    assert torch.allclose(mine.begin, right.begin, atol=1e-9)
    found, wanted = part.first_changes(level), whole.first_changes(level)
    assert torch.allclose(found.t, wanted.t, atol=1e-9)
    assert torch.equal(found.after, wanted.after)


def test_settled_stretches_are_not_divided() -> None:
    model = network()
    path = sc.Domain.segment([-3.0, -2.0], [3.0, 2.5])
    whole = sc.along(model, path, progress=False)
    part = sc.along(model, path, refine="boundary", progress=False)
    assert 0 < int(part.complete.sum()) < len(part) < len(whole)
    assert part.t[0] == 0
    assert part.t[-1] == 1
    assert torch.allclose(part.values, model(part.inputs()), atol=1e-12)
    assert "of them complete" in repr(part)
    mine, right = part.first_change(), whole.first_change()
    assert mine is not None
    assert right is not None
    assert mine.t == pytest.approx(right.t, abs=1e-12)
    assert (mine.before, mine.after) == (right.before, right.after)


def test_a_path_through_several_inputs() -> None:
    model = network()
    path = sc.Domain.path([[-3.0, -2.0], [3.0, 2.5], [3.0, -2.5]])
    whole, part = (
        sc.along(model, path, refine=refine, progress=False) for refine in (None, "boundary")
    )
    assert torch.allclose(part.decisions().begin, whole.decisions().begin, atol=1e-9)
    assert torch.equal(part.decisions().label, whole.decisions().label)


def test_what_needs_all_pieces_says_so() -> None:
    path = sc.Domain.segment([-3.0, -2.0], [3.0, 2.5])
    part = sc.along(network(1), path, refine="boundary", progress=False)
    asks: list[Any] = [
        *(lambda name=name: getattr(part, name) for name in ("breakpoints", "slopes", "switches")),
        *(part.table, part.validate, part.plot, part.gradients, part.integrated_gradients),
        *(part.total_variation, lambda: part.at([0.5]), lambda: part.decisions(0.3)),
    ]
    for ask in asks:
        with pytest.raises(sc.SplineCamError, match="divided for level 0 of output 0 alone"):
            ask()
    many = sc.Domain.segments([-3.0, -2.0], [[3.0, 2.5], [3.0, 2.0]])
    parts = sc.along(network(1), many, refine="boundary", progress=False)
    for ask in (lambda: parts.counts, parts.integrated_gradients, parts.total_variation):
        with pytest.raises(sc.SplineCamError, match="pieces are not divided"):
            ask()


@pytest.mark.parametrize("refine", [(0, 1), {"kind": "argmin"}, {"level": 0.5, "output": 1}])
def test_other_questions_are_refused(refine: Any) -> None:
    path = sc.Domain.segment([-3.0, -2.0], [3.0, 2.5])
    with pytest.raises(TypeError, match='a path is divided for refine="boundary"'):
        sc.along(network(), path, refine=refine, progress=False)


def test_a_class_that_is_certain_everywhere() -> None:
    model = network()
    with torch.no_grad():
        model[-1].bias[1] += 50.0
    segments = sc.Domain.segments([-1.0, 0.0], [[1.0, 0.0], [0.0, 1.0]])
    parts = sc.along(model, segments, refine="boundary", progress=False)
    assert len(parts.t) <= 5
    assert not bool(parts.first_changes().t.isfinite().any())
    assert parts.decisions().label.tolist() == [1, 1]


class Ties(nn.Module):
    """Maxima of equal units, so that the winner is open wherever one looks."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = network()[:2], nn.Linear(24, 3).double()

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        return self.last(torch.stack([h, h], 2).amax(2))


def test_equal_units_are_not_halved_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    levels = []

    def counted(self: BoxBounds, x: Tensor) -> Any:
        levels.append(x.shape[1])
        return bounded(self, x)

    bounded = BoxBounds.__call__
    monkeypatch.setattr(BoxBounds, "__call__", counted)
    path = sc.Domain.segment([-30.0, -20.0], [30.0, 25.0])
    model = Ties()
    part = sc.along(model, path, refine="boundary", progress=False)
    assert 2 < len(levels) < 25
    right = sc.along(model, path, progress=False).decisions()
    assert torch.equal(part.decisions().label, right.label)
    assert torch.allclose(part.decisions().begin, right.begin, atol=1e-9)


def test_small_networks_are_divided_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # as users have it
    path = sc.Domain.segment([-3.0, -2.0], [3.0, 2.5])
    part = sc.along(network(), path, refine="boundary", progress=False)
    assert bool(part.complete.all())
    assert torch.equal(part.t, sc.along(network(), path, progress=False).t)
    assert part.validate().ok
