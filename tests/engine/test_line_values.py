"""Values at new vertices along lines: the same as by sending every vertex through the stage."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from checks import follow_lines
from splinecam.engine import evaluate
from splinecam.engine.evaluate import LineTerms, running_sums
from splinecam.engine.plan import DIRECT, StagePlan
from splinecam.engine.run import run
from splinecam.geometry.subdivision import Breakpoints, InterpolatedVertices
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
        "sequences": nn.Sequential(
            nn.Linear(2, 12),
            nn.Unflatten(1, (3, 4)),
            nn.ReLU(),
            nn.Linear(4, 6),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(18, 2),
        ),
        "images": nn.Sequential(
            *image, nn.ReLU(), nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2)
        ),
    }


NETS = _nets()


def _always(monkeypatch: pytest.MonkeyPatch, narrow: int) -> list[StagePlan]:
    """Find all values along lines; the list holds the plans of the stages that do."""
    used: list[StagePlan] = []
    plan_stage = evaluate.plan_stage

    def noted(*args):
        plan = plan_stage(*args)
        if plan.evaluators != DIRECT:
            used.append(plan)
        return plan

    follow_lines(monkeypatch, narrow)
    monkeypatch.setattr(evaluate, "plan_stage", noted)
    return used


@pytest.mark.parametrize("narrow", [0, 64], ids=["terms", "sums"])
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
    """Three lines with 4, 0 and 2 breakpoints of five units, and a vertex at each of these."""
    generator = torch.Generator().manual_seed(0)
    t = torch.tensor([0.1, 0.4, 0.5, 0.9, 0.3, 0.7], dtype=torch.float64)
    line = torch.tensor([0, 0, 0, 0, 2, 2])
    slope_change = torch.rand(6, generator=generator, dtype=torch.float64)
    unit = torch.tensor([0, 3, 1, 2, 4, 0])
    some = Breakpoints(torch.tensor([0, 4, 4, 6]), t, unit, slope_change, line, torch.arange(6))
    nothing = torch.zeros(6, dtype=torch.int64)
    columns = torch.randn(5, 7, generator=generator, dtype=torch.float64)
    return some, InterpolatedVertices(nothing, nothing, t), columns


def _terms(some: Breakpoints, interpolated: InterpolatedVertices, columns: Tensor) -> Tensor:
    """What the breakpoints take off values that are zero at the ends of all lines."""
    table = torch.cat([torch.zeros(1, columns.shape[1], dtype=torch.float64), columns])
    return -torch.cat([x for _, x in LineTerms.of(some, interpolated, 1).sums(table, 4)])


def test_terms_and_running_sums_follow_the_formula() -> None:
    some, interpolated, columns = _line()
    expected = torch.zeros(6, 7, dtype=torch.float64)
    for vertex in range(6):
        for j in range(6):
            if some.line[vertex] == some.line[j]:
                t, at = sorted((float(interpolated.t[vertex]), float(some.t[j])))
                expected[vertex] += some.slope_change[j] * t * (1 - at) * columns[some.unit[j]]
    assert torch.allclose(_terms(some, interpolated, columns), expected, atol=1e-15)
    assert torch.allclose(running_sums(some, interpolated, columns), expected, atol=1e-15)


@pytest.mark.slow
def test_running_sums_wrap_around_without_loss() -> None:
    count, lines = 200, 400
    offsets = count * torch.arange(lines + 1)
    t = torch.linspace(0.001, 0.999, count, dtype=torch.float64).repeat(lines)
    line = torch.arange(lines).repeat_interleave(count)
    unit, place = torch.zeros_like(line), torch.arange(count * lines)
    some = Breakpoints(offsets, t, unit, torch.ones_like(t), line, place)
    interpolated = InterpolatedVertices(unit, unit, t)
    columns = torch.ones(1, 1, dtype=torch.float64)
    off = running_sums(some, interpolated, columns).view(lines, count)
    terms = _terms(some, interpolated, columns)[:count, 0]
    assert torch.equal(off, off[:1].expand(lines, -1))
    assert torch.allclose(off[0], terms, rtol=1e-13)
