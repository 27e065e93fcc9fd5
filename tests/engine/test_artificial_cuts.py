"""A single face that is too large is divided by artificial lines; nothing is left of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import splinecam as sc
from checks import ATOL, assert_same_partition
from splinecam.engine.artificial_cuts import CutLines, RegionSample, choose_lines, sample_regions
from splinecam.engine.plan import Plan
from splinecam.engine.run import finish, outcome_of, start
from splinecam.engine.step import Computation, TooLarge, Waiting
from splinecam.geometry.domain import Frame
from splinecam.network.capture import capture
from splinecam.partitions.partition import Partition, assemble
from splinecam.testing import Max, SortedGroups, assert_same_cells, assert_valid, exact_partition
from strategies import Net, domains, examples, maxima_nets, nets

SMALL = 1_000_000  # bytes, for 1000 regions


@dataclass
class Divided(Computation):
    """A computation that divides single faces until they are smaller than ``area``."""

    area: float = 2.0

    def step(self, at: Waiting) -> Waiting | sc.LimitError:
        refines = at.faces == 1 and at.layer_input is not None
        if refines and float(at.state.mesh.areas_and_centroids()[0]) >= self.area:
            return TooLarge("large")
        return super().step(at)


def divided(
    model: nn.Module,
    domain: sc.Domain,
    *,
    memory: int | None = None,
    area: float = 2.0,
    lines: Callable[[RegionSample, int], CutLines] = choose_lines,
) -> Partition:
    """The partition, with all faces divided that are larger than ``area``, or than the memory."""
    program = capture(model, domain.input_shape, device=torch.device("cpu"))
    plan = Plan.of(program, memory=memory)
    with torch.inference_mode():
        work = Divided(plan, choose_lines=lines, area=area)
        outcome = outcome_of(work, finish(work, start(plan, domain))).kept()
    return assemble(model, program, domain, outcome)


def whole(model: nn.Module, domain: sc.Domain) -> Partition:
    return sc.partition(model, domain, device="cpu", progress=False)


def sequential(*modules: nn.Module) -> nn.Module:
    torch.manual_seed(1)
    for module in modules:
        if isinstance(module, nn.Linear):
            module.reset_parameters()
    return nn.Sequential(*modules).double()


NETWORKS = {
    "one layer": lambda: sequential(nn.Linear(2, 90), nn.ReLU(), nn.Linear(90, 1)),
    "three layers": lambda: sequential(
        *(nn.Linear(2, 80), nn.LeakyReLU(), nn.Linear(80, 20), nn.LeakyReLU()),
        *(nn.Linear(20, 10), nn.ReLU(), nn.Linear(10, 2)),
    ),
    "several knots": lambda: sequential(
        *(nn.Linear(2, 50), nn.Hardtanh(-0.3, 0.3), nn.Linear(50, 8), nn.ReLU(), nn.Linear(8, 2)),
    ),
    "maxima of five": lambda: sequential(
        nn.Linear(2, 200), nn.Unflatten(1, (40, 5)), Max(2), nn.Linear(40, 8), nn.ReLU()
    ),
    "sorted": lambda: sequential(nn.Linear(2, 240), SortedGroups(2), nn.Linear(240, 5), nn.ReLU()),
    "all through one point": lambda: sequential(
        nn.Linear(2, 900, bias=False), nn.ReLU(), nn.Linear(900, 1)
    ),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_first_layer_larger_than_the_memory(name: str) -> None:
    model, domain = NETWORKS[name](), sc.Domain.box(-1, 1)
    part = sc.partition(model, domain, device="cpu", memory=SMALL, progress=False)
    assert len(part) > SMALL // 1000
    assert_same_partition(part, whole(model, domain))


@pytest.mark.slow
def test_a_later_layer_that_makes_too_much_of_few_faces() -> None:
    model = sequential(nn.LeakyReLU(0.5), nn.Linear(2, 150), nn.ReLU(), nn.Linear(150, 1))
    domain = sc.Domain.box(-2, 2)
    part = sc.partition(model, domain, device="cpu", memory=SMALL, progress=False)
    assert len(part.at_layer(1)) == 4
    assert len(part) > 2 * SMALL // 1000
    assert_same_partition(part, whole(model, domain))


def test_domains_of_a_sweep_that_are_too_large_each() -> None:
    model = NETWORKS["one layer"]()
    boxes = [sc.Domain.box(-1, 1), sc.Domain.box(-2, 2)]
    parts = sc.sweep(model, boxes, device="cpu", memory=SMALL, progress=False)
    for part, box in zip(parts, boxes, strict=True):
        assert len(part) > SMALL // 1000
        assert_same_partition(part, whole(model, box))


def test_the_limit_of_regions_counts_none_twice() -> None:
    model, domain = NETWORKS["one layer"](), sc.Domain.box(-1, 1)
    given = {"device": "cpu", "memory": SMALL, "progress": False}
    count = len(whole(model, domain))
    assert len(sc.partition(model, domain, max_regions=count, **given)) == count
    with pytest.raises(sc.LimitError, match=f"max_regions={count - 1:,} while cutting at '1'"):
        sc.partition(model, domain, max_regions=count - 1, **given)


class Crossing(nn.Module):
    """Many lines, and one along u = 0.5 or through (0.5, 0.25), where the artificial lines are."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.kind, self.lines, self.sum = kind, nn.Linear(2, 30), nn.Linear(30, 1)

    def forward(self, x: Tensor) -> Tensor:
        u, v = x[:, :1], x[:, 1:]
        later_u, later_v = torch.relu(u + 4) - 4, torch.relu(v + 4) - 4  # the same one layer later
        y = self.sum(torch.relu(self.lines(x)))
        if self.kind == "first layer":
            return y + torch.relu(u - 0.5)
        if self.kind == "second layer":
            return y + torch.relu(later_u - 0.5)
        if self.kind == "bent twice":
            return y + torch.relu(later_u - 0.5 + torch.relu(v) - torch.relu(v - 0.5))
        if self.kind == "maximum":
            return y + torch.cat([later_u, 0.5 + torch.relu(v), later_v - 3], 1).amax(1, True)
        if self.kind == "sorted":
            return y + torch.cat([later_u, 0.5 + 0 * later_v], 1).sort(1).values[:, :1]
        first = torch.relu(u - 0.5 + v - 0.25)
        return y + first + torch.relu(later_u - 0.5 - 2 * (later_v - 0.25))


@pytest.mark.few(5)
@pytest.mark.parametrize("lines", ["along", "a cross", "across"])
@pytest.mark.parametrize(
    "kind", ["first layer", "second layer", "bent twice", "maximum", "sorted", "through a vertex"]
)
def test_artificial_lines_along_lines_of_the_network_and_through_vertices(
    kind: str, lines: str
) -> None:
    model, domain = Crossing(kind).double(), sc.Domain.box(-2, 2)
    point = Frame.of(domain).to_local(torch.tensor([[0.5, 0.25]], dtype=torch.float64))
    normals = {"along": [[1.0, 0.0]], "a cross": [[1.0, 0.0], [0.0, 1.0]], "across": [[0.6, 0.8]]}
    normal = torch.tensor(normals[lines], dtype=torch.float64)
    chosen = CutLines(normal, (normal * point).sum(1))
    part = divided(model, domain, area=0.99, lines=lambda *_: chosen)
    assert_same_partition(part, whole(model, domain))


@examples(10)
@given(nets(), domains(), st.sampled_from([0.15, 0.5]))
def test_random_networks_have_the_oracles_cells(net: Net, domain: sc.Domain, area: float) -> None:
    _assert_exact(net.module(), domain, area)


@examples(10)
@given(maxima_nets(), domains())
def test_random_maxima_have_the_oracles_cells(net: Net, domain: sc.Domain) -> None:
    _assert_exact(net.module(), domain, 0.3)


def in_the_middle(sample: RegionSample, parts: int) -> CutLines:
    """Lines that do not depend on the network."""
    return choose_lines(sample_regions(sample.outline, None), parts)


def _assert_exact(model: nn.Module, domain: sc.Domain, area: float) -> None:
    part = divided(model, domain, area=area, lines=in_the_middle)
    assert_same_cells(part, exact_partition(model, domain), atol=ATOL)
    assert_valid(part)
    assert int(part.mesh.edge_layer.max()) < max(1, len(part.layers))
    assert int(part.mesh.vertex_layer.max()) < max(1, len(part.layers))
