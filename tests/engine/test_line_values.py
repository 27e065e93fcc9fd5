"""Values at new vertices by kinks: the same as by sending every vertex through the stage."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from checks import follow_lines
from splinecam.arrangement import breakpoints as breakpoints
from splinecam.engine import dense_layers as dense
from splinecam.engine import evaluate
from splinecam.engine.line_values import Bags, Sums
from splinecam.engine.run import run
from splinecam.geometry.interpolation import Breakpoints, InterpolatedVertices
from splinecam.network.capture import capture


class Skip(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(2, 12), nn.Linear(12, 12), nn.Linear(12, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.first(x))
        z = nn.functional.leaky_relu(self.second(y), 0.2) + y
        return self.last(nn.functional.hardtanh(z) - 0.5 * z)


def _nets() -> dict[str, nn.Module]:
    torch.manual_seed(5)
    image = [nn.Linear(2, 36), nn.Unflatten(1, (1, 6, 6)), nn.Conv2d(1, 3, 3, padding=1)]
    return {
        "relu": nn.Sequential(
            nn.Linear(2, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 1)
        ),
        "several knots": nn.Sequential(
            nn.Linear(2, 9), nn.Hardtanh(), nn.Linear(9, 9), nn.ReLU6(), nn.Linear(9, 3)
        ),
        "skip": Skip(),
        "images": nn.Sequential(
            *image, nn.ReLU(), nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2)
        ),
    }


NETS = _nets()


def _always(monkeypatch: pytest.MonkeyPatch, narrow: int) -> list[str]:
    """Find all values by kinks; the list tells how often that was done."""
    used: list[str] = []
    along_lines, ways = evaluate._along_lines, dense._ways

    def noted(*args):
        used.append("along lines")
        along_lines(*args)

    def noted_ways(*args):
        found = ways(*args)
        used.extend(way for way in found if way != "direct")
        return found

    follow_lines(monkeypatch, narrow)
    monkeypatch.setattr(evaluate, "_along_lines", noted)
    monkeypatch.setattr(dense, "_ways", noted_ways)
    return used


@pytest.mark.parametrize("narrow", [0, 64], ids=["bags", "sums"])
@pytest.mark.parametrize("name", NETS)
def test_same_values_as_vertex_by_vertex(
    name: str, narrow: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, domain = NETS[name].double().eval(), sc.Domain.box(-3, 3)
    program = capture(model, domain.input_shape, device=torch.device("cpu"))
    with torch.no_grad():
        direct = run(program, domain)
        used = _always(monkeypatch, narrow)
        bent = run(program, domain)
    assert used
    assert torch.equal(direct.mesh.edges, bent.mesh.edges)
    assert torch.equal(direct.mesh.corners, bent.mesh.corners)
    assert float((direct.output - bent.output).abs().max()) < 1e-12
    sc.partition(model, domain, progress=False).validate()


def test_zeros_stay_zeros_where_nothing_is_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    layers = (nn.Linear(2, 36), nn.ReLU(), nn.Unflatten(1, (1, 6, 6)), nn.AvgPool2d(1))
    model = nn.Sequential(*layers, nn.MaxPool2d(2)).double().eval()
    used = _always(monkeypatch, 64)
    part = sc.partition(model, sc.Domain.box(-2, 2), progress=False)
    assert not used
    assert bool((part.values == 0).any())
    assert part.validate().ok


def _line() -> tuple[Breakpoints, InterpolatedVertices, Tensor]:
    """Three lines with 4, 0 and 2 kinks of five units, and a vertex at each kink."""
    generator = torch.Generator().manual_seed(0)
    t = torch.tensor([0.1, 0.4, 0.5, 0.9, 0.3, 0.7], dtype=torch.float64)
    line = torch.tensor([0, 0, 0, 0, 2, 2])
    slope_change = torch.rand(6, generator=generator, dtype=torch.float64)
    unit = torch.tensor([0, 3, 1, 2, 4, 0])
    some = Breakpoints(torch.tensor([0, 4, 4, 6]), t, unit, slope_change, line, torch.arange(6))
    nothing = torch.zeros(6, dtype=torch.int64)
    columns = torch.randn(5, 7, generator=generator, dtype=torch.float64)
    return some, InterpolatedVertices(nothing, nothing, t), columns


def _off(bags: Bags, columns: Tensor) -> Tensor:
    return torch.cat([bags.sums(rows, entries, columns) for rows, entries in bags.blocks(4)])


def test_bags_and_sums_follow_the_formula() -> None:
    some, interpolated, columns = _line()
    expected = torch.zeros(6, 7, dtype=torch.float64)
    for vertex in range(6):
        for kink in range(6):
            if some.line[vertex] == some.line[kink]:
                t, at = sorted((float(interpolated.t[vertex]), float(some.t[kink])))
                expected[vertex] += (
                    some.slope_change[kink] * t * (1 - at) * columns[some.unit[kink]]
                )
    assert torch.allclose(_off(Bags.of(some, interpolated), columns), expected, atol=1e-15)
    assert torch.allclose(Sums(some, interpolated).off(columns), expected, atol=1e-15)


def test_sums_wrap_around_without_loss() -> None:
    count, lines = 200, 400
    offsets = count * torch.arange(lines + 1)
    t = torch.linspace(0.001, 0.999, count, dtype=torch.float64).repeat(lines)
    line = torch.arange(lines).repeat_interleave(count)
    unit, place = torch.zeros_like(line), torch.arange(count * lines)
    some = Breakpoints(offsets, t, unit, torch.ones_like(t), line, place)
    interpolated = InterpolatedVertices(unit, unit, t)
    columns = torch.ones(1, 1, dtype=torch.float64)
    off = Sums(some, interpolated).off(columns).view(lines, count)
    bags = _off(Bags.of(some, interpolated), columns)[:count, 0]
    assert torch.equal(off, off[:1].expand(lines, -1))
    assert torch.allclose(off[0], bags, rtol=1e-13)
