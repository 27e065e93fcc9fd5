"""Short segments with exact ends and float32 between them, against all of it in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fixtures.networks import VGG, ResNet18, UNet, seeded
from splinecam._util.backend import single_precision, using
from splinecam._util.tolerances import SAFETY
from splinecam.engine import short_segments
from splinecam.engine.along_segments import run_segments
from splinecam.engine.short_segments import _Points, _Work, along_short_segments
from splinecam.errors import LimitError
from splinecam.network.capture import capture
from splinecam.network.program import FAR, Program

LIMITS: Any = {"memory": 1 << 30, "max_points": None}


class Bends(nn.Module):
    """Layers of all kinds: two slopes, a modulus, knots away from zero, maxima, and a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Conv2d(k, 4, 3, padding=1) for k in (2, 4, 4))
        self.last = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.leaky_relu(self.a(x), 0.3)
        x = x + nn.functional.relu6(4 * self.b(x))
        x = nn.functional.max_pool2d(self.c(x).abs(), 3, 2, 1)
        return torch.relu(self.last(x.flatten(1)))


def network(kind: str) -> tuple[nn.Module, tuple[int, ...]]:
    made: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
        "bends": (seeded(Bends()), (2, 4, 4)),
        "resnet": (seeded(ResNet18(2, stem=True)), (3, 32, 32)),
        "unet": (seeded(UNet()), (1, 16, 16)),
        "vgg": (seeded(VGG(2)), (3, 32, 32)),
    }
    model, shape = made[kind]
    return model.eval(), shape


def segments(program: Program, count: int, radius: float) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, way = torch.randn(2, count, *program.input_shape, generator=generator).double()
    way *= radius / way.flatten(1).norm(dim=1).view(-1, *[1] * (way.dim() - 1))
    return (x - way).flatten(1), (x + way).flatten(1)


@pytest.mark.parametrize("kind", ["bends", "resnet", "unet", "vgg"])
@pytest.mark.few(2)
def test_breakpoints_are_those_of_float64(kind: str) -> None:
    model, shape = network(kind)
    program = capture(model, shape)
    first, last = segments(program, 24, 0.2)
    expected = run_segments(program, first, last, switches=True)
    assert expected.switches is not None
    guess = expected.switches.sum(1)
    found = along_short_segments(program, first, last, guess, **LIMITS)
    kept = ~found.left  # pooling windows may leave some
    assert int(kept.sum()) > 8
    assert found.switches[kept].equal(expected.switches[kept])
    assert int(found.switches[kept].sum()) > 9
    for k in kept.nonzero()[:, 0].tolist():
        t = expected.t[expected.offsets[k] + 1 : expected.offsets[k + 1] - 1]
        mine = found.t[found.segment == k]
        assert len(mine) == len(t)
        assert torch.allclose(mine, t, rtol=0, atol=1e-5)
    with using(bend_numbers=1 << 14):  # one segment, or none, in a batch
        blocks = along_short_segments(program, first, last, guess, **LIMITS)
    kept = ~(found.left | blocks.left)
    assert blocks.switches[kept].equal(found.switches[kept])


@pytest.mark.parametrize("radius", [1e-3, 1e-2, 1e-1])
@pytest.mark.parametrize("kind", ["bends", "resnet", "unet"])
@pytest.mark.few(3)
def test_values_are_within_their_errors(
    kind: str, radius: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, shape = network(kind)
    program = capture(model, shape)
    first, last = segments(program, 3, radius)
    seen: list[tuple[str, Tensor, Tensor, Tensor]] = []
    advance = _Work.advance

    def noted(work: _Work, own: Program, coarse: Program, i: int) -> None:
        advance(work, own, coarse, i)
        points, name = work.points, own.layers[i].source
        x = torch.lerp(first[points.owner], last[points.owner], points.position[:, None])
        ends, bends = work.error(name, work.ends[name].flatten(1))
        seen.append((name, x, work.along(name).flatten(1), ends + bends / FAR))

    monkeypatch.setattr(short_segments._Work, "advance", noted)
    along_short_segments(program, first, last, torch.full((3,), 100), **LIMITS)
    assert len(seen) == len(program.layers)
    for layer, (name, x, z, error) in zip(program.layers, seen, strict=True):
        assert name == layer.source
        walk = program.walk(x.view(-1, *shape))
        exact = next(z for other, z in walk if other is layer).flatten(1)
        assert bool(((z - exact).abs() <= SAFETY * error + 1e-300).all())
        assert float(error.max()) < 1e-4 * radius  # as far as the bends are small


def test_a_segment_on_which_rounding_matters_is_left() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 1, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(8, 1))
    program = capture(model, (1, 2, 2))
    x = torch.tensor([[1.0, 1, 1, 1], [1.0, 1, -1, -1]]).double()  # the second one meets zero
    found = along_short_segments(program, x, torch.eye(4)[:2].double(), torch.ones(2), **LIMITS)
    assert found.left.tolist() == [True, True]
    found = along_short_segments(program, x, x + 3, torch.ones(2), **LIMITS)
    assert found.left.tolist() == [False, False]
    assert found.switches.sum(1).tolist() == [0, 4]
    assert found.segment.tolist() == [1]  # all of them at one point


def test_chains_of_products_and_long_segments_are_left() -> None:
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    program = capture(model, (3,))
    x = torch.randn(2, 3).double()
    assert along_short_segments(program, x, -x, torch.ones(2), **LIMITS).left.all()
    program = capture(*network("unet"))
    x, y = segments(program, 2, 0.1)
    many = torch.tensor([1, 1 << 40])
    assert along_short_segments(program, x, y, many, **LIMITS).left.tolist() == [False, True]
    with pytest.raises(LimitError, match="more than 2 breakpoints along some segments"):
        along_short_segments(program, x, y, many, memory=1 << 30, max_points=2)


def test_points_are_in_order_between_the_ends() -> None:
    t = torch.tensor([0.875, 0.5, 0.25]).double()
    points = _Points.of(torch.tensor([1, 0, 1]), t, 3)
    assert points.row.tolist() == [-1, 1, -1, -1, 2, 0, -1, -1, -1]
    assert points.position.tolist() == [0, 0.5, 1, 0, 0.25, 0.875, 1, 0, 1]
    assert points.owner.tolist() == [0, 0, 0, 1, 1, 1, 1, 2, 2]


@pytest.mark.parametrize("whole", [True, False])
def test_single_precision_is_restored(whole: bool) -> None:
    def state() -> tuple[Any, ...]:
        switches = torch.backends.cudnn, torch.backends.cuda.matmul
        return tuple(getattr(switch, "allow_tf32", None) for switch in switches)

    before = state()
    with pytest.raises(KeyError), single_precision(whole=whole):
        raise KeyError
    assert state() == before
