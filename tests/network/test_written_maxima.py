"""Minima and maxima that networks write with ReLUs."""

from __future__ import annotations

import logging
import pickle
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn

import splinecam as sc
from splinecam.errors import SplineCamError
from splinecam.network.capture import capture
from splinecam.network.capture.written_maxima import with_maxima
from splinecam.network.nonlinearities import MaxNonlinearity
from splinecam.nn import AsWritten
from splinecam.testing import Max, Min, assert_same_cells, exact_partition
from written import WAYS, assert_united_cells, linear, multiplied, tree

SQUARE = sc.Domain.box(-1, 1)
ATOL = 1e-9


def first(units: int, seed: int = 0, inputs: int = 2) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(inputs, units).double()


def partition(model: nn.Module, domain: sc.Domain = SQUARE) -> sc.Partition:
    part = sc.partition(model.eval(), domain, progress=False, device="cpu")
    part.validate()
    return part


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("smallest", [False, True])
def test_a_tree_of_pairs_has_the_regions_of_one_maximum(
    way: str, whole: bool, smallest: bool
) -> None:
    body = [start := first(5), *tree([[0, 1, 2, 3, 4]], 5, way, smallest)]
    if whole:  # all but the first, whose products with 1 and 1/2 would be rounded if they were sums
        body = [start, *multiplied(body[1:])]
    part = partition(nn.Sequential(*body))
    (layer,) = part._network.layers
    assert isinstance(layer, MaxNonlinearity)
    assert (layer.members.shape, layer.smallest) == ((1, 5), smallest)
    flat = nn.Sequential(start, (Min if smallest else Max)(1, keepdim=True))
    assert_same_cells(part, exact_partition(flat, SQUARE), atol=ATOL)
    as_written = partition(AsWritten(nn.Sequential(*body)))
    assert len(as_written.layers) == 3
    assert len(as_written) > len(part) >= len(part.merged()) == len(as_written.merged())


@pytest.mark.parametrize("way", WAYS)
def test_a_lattice_has_the_regions_of_its_minima_and_maxima(way: str) -> None:
    groups = [[0, 1, 2, 5], [2, 3, 4], [4, 5], [1, 3, 5, 0, 2]]
    start, body = first(6), [*tree(groups, 6, way, True), *tree([[0, 1, 2, 3]], 4, way)]
    part = partition(nn.Sequential(start, *body))
    sizes = [(*layer.members.shape, layer.smallest) for layer in part._network.layers]
    assert sizes == [(4, 5, True), (1, 4, False)]
    assert part._network.stages[0].steps[-1].args[1].equal(start.weight)  # nothing was rounded
    exact = exact_partition(nn.Sequential(start, *body), SQUARE)
    assert_united_cells(part, exact, atol=ATOL)
    assert len(part) < len(exact)


def test_maxima_and_minima_side_by_side() -> None:
    start, body = first(6), tree([[0, 1, 2], [3, 4, 5], [1, 4]], 6, "step", [True, False, True])
    model = nn.Sequential(start, *body, linear(torch.tensor([[1.0, 2, -1], [0.5, 0, 1]]).double()))
    part = partition(model)
    assert [layer.name for layer in part._network.layers] == ["2..5"]
    assert_united_cells(part, exact_partition(model, SQUARE), atol=ATOL)


def test_layers_before_and_behind_stay() -> None:
    torch.manual_seed(3)
    before = [first(7), nn.ReLU(), nn.Linear(7, 4).double()]
    behind = [nn.Linear(2, 5).double(), nn.ReLU(), nn.Linear(5, 2).double()]
    model = nn.Sequential(*before, *tree([[0, 1, 2], [1, 2, 3]], 4, "pairs"), *behind)
    part = partition(model)
    assert part.layers == ("1", "4..7", "10")
    assert_united_cells(part, exact_partition(model, SQUARE), atol=ATOL)


def test_the_modulus_and_affine_functions_of_pairs() -> None:
    pair = torch.tensor([[1.0, 0.5], [-1.0, -0.5]], dtype=torch.float64)
    modulus = nn.Sequential(linear(pair), nn.ReLU(), linear(torch.ones(1, 2).double()))
    part = partition(modulus)
    assert (len(part), part.layers) == (2, ("1",))
    assert part._network.layers[0].members.shape == (1, 2)
    same = nn.Sequential(modulus[0], nn.ReLU(), linear(torch.tensor([[1.0, -1.0]]).double()))
    part = partition(same)
    assert (len(part), part.layers) == (1, ())
    assert part.weight.flatten().tolist() == pytest.approx([1.0, 0.5])
    assert "'1' is left out" in str(part.validate())


def test_equal_units_are_one() -> None:
    twice = linear(torch.tensor([[1.0, 2.0], [1.0, 2.0]]).double(), torch.full((2,), 0.25).double())
    model = nn.Sequential(twice, nn.ReLU(), linear(torch.tensor([[1.0, 3.0]]).double()))
    part = partition(model)
    assert len(part) == 2
    assert_same_cells(part, exact_partition(model, SQUARE), atol=ATOL)


@pytest.mark.parametrize("change", ["unit", "factor", "bias"])
def test_what_is_not_exactly_a_maximum_stays(change: str) -> None:
    start, body = first(4), tree([[0, 1, 2, 3]], 4)
    other = {"unit": body[3].weight, "factor": body[-1].weight, "bias": None}[change]
    with torch.no_grad():
        if other is None:
            body[3] = linear(body[3].weight, torch.tensor([0.0, 0.0, 2.0**-60, 0.0]).double())
        else:
            other.view(-1)[0] *= 1 + 2.0**-52
    program = capture(nn.Sequential(start, *body), (2,))
    assert not any(name in each.relus for each in program.written for name in ("5",))
    model = nn.Sequential(start, *body)
    assert_united_cells(partition(model), exact_partition(model, SQUARE), atol=ATOL)


def test_sums_that_would_be_rounded_are_left_to_the_network() -> None:
    unit = torch.tensor([[1.0, 0.5], [1.0, 0.5]], dtype=torch.float64)
    for small, written in ((2.0**-50, 1), (2.0**-60, 0)):
        last = linear(torch.tensor([[1.0, small]], dtype=torch.float64))
        model = nn.Sequential(linear(unit), nn.ReLU(), last)
        assert len(capture(model, (2,)).written) == written
        assert len(partition(model)) == 2


def test_ordinary_networks_are_left_as_they_are() -> None:
    torch.manual_seed(0)
    for widths in ((2, 8, 8, 3), (2, 1, 1, 1), (2, 3, 1)):
        body: list[nn.Module] = []
        for n, m in pairwise(widths):
            body += [nn.Linear(n, m), nn.ReLU()]
        program = capture(AsWritten(nn.Sequential(*body[:-1])), (2,))
        assert with_maxima(program) is program


def test_units_without_effect_are_not_maxima() -> None:
    model = nn.Sequential(first(3), nn.ReLU(), linear(torch.zeros(1, 3).double()))
    assert partition(model).layers == ("1",)


def test_the_log_the_report_and_errors_say_what_was_read(caplog: pytest.LogCaptureFixture) -> None:
    model = nn.Sequential(first(4), *tree([[0, 1, 2, 3]], 4))
    with caplog.at_level(logging.INFO, logger="splinecam"):
        part = partition(model)
    said = "the layers ('2', '5') are read as the maxima or minima '2..5' that the ReLUs write"
    assert said in caplog.messages
    assert said in str(part.validate())
    assert part.at_layer("2..5") is not None
    with pytest.raises(
        SplineCamError, match=r"'5' is no layer of its own, as .*AsWritten\(model\)"
    ):
        part.at_layer("5")


def test_the_choice_stays_with_captures_copies_and_files(tmp_path: Any) -> None:
    model = nn.Sequential(first(4), *tree([[0, 1, 2, 3]], 4))
    for given, layers in ((model, ("2..5",)), (AsWritten(model), ("2", "5"))):
        captured = sc.capture(given, (2,), device="cpu")
        assert captured.layers == captured.update().layers == layers
        assert pickle.loads(pickle.dumps(captured)).layers == layers
        part = partition(captured.model)
        part.save(tmp_path / "part.npz")
        loaded = sc.load(tmp_path / "part.npz")
        loaded.attach(model)
        assert loaded.layers == layers
        loaded.validate()


def test_gradients_are_those_of_every_relu() -> None:
    model = nn.Sequential(first(4), *tree([[0, 1, 2, 3]], 4))
    with pytest.raises(
        SplineCamError, match=r"'2\.\.5'.* Partition splinecam.nn.AsWritten\(model\)"
    ):
        partition(model).differentiable()
    areas = partition(AsWritten(model)).differentiable().areas
    assert areas.requires_grad
    assert float(areas.detach().sum()) == pytest.approx(4.0)


@pytest.mark.parametrize("inputs", [2, 3])
def test_all_kinds_of_domains(inputs: int) -> None:
    torch.manual_seed(1)
    body = tree([[0, 1, 2], [1, 2, 3]], 4)
    model = nn.Sequential(first(4, inputs=inputs), *body, nn.Linear(2, 3).double())
    domain = SQUARE if inputs == 2 else sc.Domain.cube(-1, 1)
    part: Any = sc.partition(model, domain, progress=False, device="cpu")
    part.validate()
    every: Any = sc.partition(AsWritten(model), domain, progress=False, device="cpu")
    assert len(part) < len(every)
    if inputs == 2:
        assert (
            abs(sc.difference(model, AsWritten(model), domain, progress=False).largest().value)
            < 1e-12
        )
        line = sc.Domain.segment(torch.tensor([-1.0, -0.7]), torch.tensor([1.0, 0.8]))
        along, through = (
            sc.along(each, line, progress=False) for each in (model, AsWritten(model))
        )
        along.validate()
        assert len(along) <= len(through)
