"""Bounds over squares hold at points of them, and squares settle only faces that are settled."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import nn

import splinecam as sc
from splinecam._util import backend
from splinecam.arrangement.refine import Refinement, refine_compiled
from splinecam.engine import box_bounds
from splinecam.engine import open_part as squares
from splinecam.engine import run as running
from splinecam.engine import step as stepping
from splinecam.engine.box_bounds import BoxBounds
from splinecam.engine.open_part import OpenPart, Question
from splinecam.engine.plan import Plan
from splinecam.engine.run import Outcome, run
from splinecam.engine.step import silent
from splinecam.geometry.domain import Frame
from splinecam.geometry.subdivision import Mesh
from splinecam.kernels.kernel import Kernel, LayerFunctions
from splinecam.network.capture import capture
from splinecam.network.program import Program

DOMAIN = sc.Domain.box(-1, 1)


class Mixed(nn.Module):
    """A skip connection, sorted values, and a choice by sign."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(2, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The outputs."""
        h = torch.relu(self.first(x))
        z = self.second(h)
        h = h + torch.where(z > 0, 1.5 * z, -0.3 * z)
        return self.last(h.view(-1, 2, 4).sort(-1).values.reshape(-1, 8))


def chain(*widths: int, act: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in pairwise(widths):
        layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers[:-1])


NETWORKS = {
    "chain": lambda: chain(2, 40, 33, 20, 3),
    "deep": lambda: chain(2, *[24] * 8, 3),
    "narrow": lambda: chain(2, 1, 1),
    "linear": lambda: chain(2, 3),
    "leaky": lambda: chain(2, 12, 12, 3, act=nn.LeakyReLU),
    "clipped": lambda: chain(2, 12, 12, 3, act=nn.Hardtanh),
    "periodic": lambda: chain(2, 6, 3, act=nn.Softshrink),
    "mixed": Mixed,
    "pooled": lambda: nn.Sequential(
        nn.Linear(2, 64),
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 3),
    ),
}


def network(name: str, seed: int = 0) -> tuple[nn.Module, Program]:
    torch.manual_seed(seed)
    model = NETWORKS[name]().double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    return model, capture(model, (2,))


@pytest.fixture(autouse=True)
def _small_networks_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "CPU", replace(backend.CPU, squares_from=0.0))
    monkeypatch.setattr(squares, "WORTH", 0.03)
    monkeypatch.setattr(squares, "_FUTILE", 1e9)
    monkeypatch.setattr(running, "_FEWER", 1.0)


def middle_of(model: nn.Module) -> torch.Tensor:
    """A value of each output that is neither the largest nor the smallest."""
    with torch.no_grad():
        found: torch.Tensor = model(2 * torch.rand(400, 2).double() - 1)
        return found.median(0).values


def kernels(program: Program) -> list[object]:
    found = Plan.of(program).first.kernel
    return [None] if found is None else [None, found]


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("leading", [False, True])
def test_no_point_of_a_box_is_beyond_its_bound(name: str, leading: bool) -> None:
    model, program = network(name)
    n = program.output_shape[0]
    if leading and n == 1:
        pytest.skip("one output leads")
    rows = None if leading else torch.randn(4, n, dtype=torch.float64)
    size = 2.0 ** -torch.arange(0, 8).repeat(4).double()
    centre = (2 * torch.rand(len(size), 2).double() - 1) * (1 - size / 2)[:, None]
    half = torch.stack([size, torch.zeros_like(size)], 1) / 2
    x = torch.stack([centre, centre + half, centre + half.flip(1)])
    inside = 2 * torch.rand(500, len(size), 2).double() - 1
    with torch.no_grad():
        y = model((centre + inside * size[:, None] / 2).view(-1, 2)).view(500, len(size), n)
        for kernel in kernels(program):
            middle, right, upper = (found := BoxBounds(program, rows, kernel)(x)).rows
            near = middle + inside[..., :1] * (right - middle) + inside[..., 1:] * (upper - middle)
            off = y - near
            if rows is None:
                off = off - off.gather(2, middle.argmax(1)[None, :, None].expand(500, -1, 1))
            else:
                off = off @ rows.T
            assert (off.abs() <= found.radius).all()
            assert (found.radius[size < 0.01] < 0.5).all()  # and the bounds say something


@pytest.mark.parametrize("name", ["chain", "deep", "narrow", "linear"])
@pytest.mark.parametrize("leading", [False, True])
def test_no_point_of_a_quarter_is_beyond_its_bound(
    name: str, leading: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(box_bounds, "_DEEP", 1)
    model, program = network(name)
    kernel, n = Plan.of(program).first.kernel, program.output_shape[0]
    if kernel is None or (leading and n == 1):
        pytest.skip("there is nothing to compare")
    rows = None if leading else torch.randn(4, n, dtype=torch.float64)
    bounds = BoxBounds(program, rows, kernel)
    centre, half = 2 * torch.rand(40, 2).double() - 1, 0.5
    place, parent, tighter = torch.zeros_like(centre), None, []
    inside = 2 * torch.rand(600, 40, 2).double() - 1
    for level in range(9):
        step = half * torch.eye(2, dtype=torch.float64)
        x = torch.stack([centre, centre + step[0], centre + step[1]])
        known, _, kept = bounds.on_squares(x, parent, place)
        assert kept is not None
        middle, right, upper = known.rows
        near = middle + inside[..., :1] * (right - middle) + inside[..., 1:] * (upper - middle)
        with torch.no_grad():
            off = model((centre + half * inside).view(-1, 2)).view(near.shape) - near
        if rows is None:
            off = off - off.gather(2, middle.argmax(1)[None, :, None].expand(600, -1, 1))
        else:
            off = off @ rows.T
        assert (off.abs() <= known.radius).all()
        tighter.append(float((known.radius / (bounds(x).radius + 1e-4)).median()))
        place = torch.randint(0, 2, centre.shape).double() - 0.5
        centre, half, parent = centre + half * place, half / 2, kept.address
        if level == 2:  # some begin anew
            parent = parent * (torch.arange(40) % 3 > 0)
    assert max(tighter) < 1.5
    assert name != "deep" or min(tighter) < 0.8


@pytest.mark.parametrize("name", ["chain", "narrow"])
def test_the_kernel_bounds_as_tensor_operations_do(name: str) -> None:
    _, program = network(name)
    kernel = Plan.of(program).first.kernel
    if kernel is None:
        pytest.skip("there is no compiled kernel")
    x = torch.randn(3, 200, 2, dtype=torch.float64)
    for rows in (torch.randn(2, program.output_shape[0], dtype=torch.float64), None):
        own, other = (BoxBounds(program, rows, each)(x) for each in (kernel, None))
        assert torch.allclose(own.rows, other.rows, rtol=1e-4, atol=1e-4)
        assert torch.equal(own.passed, other.passed)
        assert (own.radius >= other.radius * 0.999).all()


def found(program: Program, question: Question) -> OpenPart:
    with torch.no_grad():
        part = squares.open_part(Plan.of(program).first, DOMAIN, question, silent)
    assert part is not None
    return part


CONJUNCTIONS = torch.tensor([0, 2, 3])


@pytest.mark.parametrize("name", ["chain", "mixed", "pooled"])
@pytest.mark.parametrize("start", [None, CONJUNCTIONS])
@pytest.mark.parametrize("leading", [False, True])
def test_the_kernel_looks_at_faces_as_tensor_operations_do(
    name: str, start: torch.Tensor | None, leading: bool
) -> None:
    model, program = network(name)
    question = Question()
    if not leading:
        question = Question(torch.eye(3, dtype=torch.float64), -middle_of(model), start)
    part, kernel = found(program, question), Plan.of(program).first.kernel
    whole = run(program, DOMAIN)
    own = part.faces(whole.mesh, None)
    assert 0 < int(own.sum()) < len(own)
    if kernel is not None:
        few = whole.mesh.counts() <= squares._CORNERS
        assert torch.equal(part.faces(whole.mesh, kernel)[few], own[few])


@pytest.mark.parametrize("name", ["chain", "mixed", "pooled"])
@pytest.mark.parametrize("compiled", [True, False])
def test_settled_faces_have_one_sign_and_others_are_whole_regions(
    name: str, compiled: bool
) -> None:
    model, program = network(name, seed=1)
    rows = torch.tensor([[1.0, -1.0, 0.0]], dtype=torch.float64)
    offset = -middle_of(model) @ rows.T
    outcome = run(program, DOMAIN, compiled=compiled, question=Question(rows, offset))
    whole = run(program, DOMAIN, compiled=compiled)
    settled = outcome.settled
    assert settled is not None
    assert settled.any()
    assert not settled.all()
    areas, centre = outcome.mesh.areas_and_centroids()
    known, _ = whole.mesh.areas_and_centroids()
    assert torch.allclose(areas.sum(), known.sum())
    assert outcome.mesh.num_faces < whole.mesh.num_faces
    with torch.no_grad():
        truth = (model(DOMAIN.embed(Frame.of(DOMAIN).to_plane(centre))) @ rows.T + offset)[:, 0] > 0
    low, high = outcome.mesh.ranges(outcome.output @ rows.T + offset)
    assert torch.equal(low[settled, 0] > 0, truth[settled])
    assert torch.equal(high[settled, 0] > 0, truth[settled])
    # Each of the others is one of the regions.
    places = {tuple(place) for place in (1e9 * known).round().long()[:, None].tolist()}
    mine = (1e9 * areas[~settled]).round().long()[:, None]
    assert all({tuple(x.tolist()) for x in (each - 1, each, each + 1)} & places for each in mine)


def complete_areas(outcome: Outcome) -> torch.Tensor:
    assert outcome.settled is not None
    return outcome.mesh.areas_and_centroids()[0][~outcome.settled].sort().values


def sides_divided(outcome: Outcome) -> bool:
    """Whether all sides fit together: then a disk has one vertex more than edges less faces."""
    mesh = outcome.mesh
    uses = torch.bincount(mesh.corners >> 1, minlength=mesh.num_edges)
    whole = mesh.num_vertices - mesh.num_edges + mesh.num_faces == 1
    return whole and int(uses.min()) >= 1 and int(uses.max()) <= 2


@pytest.mark.parametrize("refused", [None, 1, 2])
def test_settled_faces_stay_in_the_mesh_or_are_joined_to_it(
    refused: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, program = network("chain", seed=2)
    if Plan.of(program).first.kernel is None:
        pytest.skip("there is no compiled kernel")
    rows = torch.tensor([[1.0, -1.0, 0.0]], dtype=torch.float64)
    question = Question(rows, -middle_of(model) @ rows.T)
    calls: list[bool] = []

    def refine_or_not(kernel: Kernel, mesh: Mesh, units: LayerFunctions) -> Refinement | None:
        calls.append(units.settled is not None)
        refuses = calls[-1] and sum(calls) == refused
        return None if refuses else refine_compiled(kernel, mesh, units)

    with monkeypatch.context() as patch:
        patch.setattr(stepping, "refine_compiled", refine_or_not)
        own = run(program, DOMAIN, question=question)
    assert sum(calls) == 2  # layers after the first
    with monkeypatch.context() as patch:
        patch.setattr(running, "_stays", lambda work, at: False)
        other = run(program, DOMAIN, question=question)
    assert sides_divided(own)
    assert sides_divided(other)
    assert own.settled is not None
    assert other.settled is not None
    assert own.mesh.num_faces == other.mesh.num_faces
    assert torch.allclose(complete_areas(own), complete_areas(other), rtol=0, atol=1e-14)
    ends = [torch.cat([x.mesh.uv, x.output], 1) for x in (own, other)]
    exactly = "donot_use_mm_for_euclid_dist"
    near = torch.cdist(*ends, compute_mode=exactly).amin(
        1
    )  # each vertex has its place and its outputs
    assert (near < 1e-9).all()


def test_squares_beside_a_slim_domain_are_left_out() -> None:
    _, program = network("chain")
    slim = sc.Domain.polygon(torch.tensor([[-1.0, -1.0], [1.0, 0.9], [1.0, 1.0], [-1.0, -0.9]]))
    told: list[str] = []
    with torch.no_grad():
        place = Plan.of(program).first
        part = squares.open_part(place, slim, Question(), lambda name, *_: told.append(name))
    assert part is not None
    assert len(part.half) < len(found(program, Question()).half)
    shares = [int(text.partition("%")[0]) for text in told]
    assert shares == sorted(shares)
    assert 0 <= shares[0] <= shares[-1] <= 100
    whole = run(program, slim)
    kernel = Plan.of(program).first.kernel
    few = whole.mesh.counts() <= squares._CORNERS
    assert torch.equal(part.faces(whole.mesh, kernel)[few], part.faces(whole.mesh, None)[few])


def test_a_constant_output_is_settled_at_once() -> None:
    model = chain(2, 6, 6, 1).double()
    nn.init.zeros_(model[-1].weight)
    nn.init.ones_(model[-1].bias)
    program = capture(model, (2,))
    outcome = run(program, DOMAIN, question=Question(torch.ones(1, 1, dtype=torch.float64)))
    assert outcome.settled is not None
    assert outcome.settled.all()
    assert outcome.mesh.num_faces < run(program, DOMAIN).mesh.num_faces


def test_a_network_that_cannot_be_bounded_is_computed_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(BoxBounds, "fits", staticmethod(lambda program: False))
    _, program = network("chain")
    assert run(program, DOMAIN, question=Question()).settled is None
