"""Counts of regions under several definitions, against brute force on maps of integers."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import networkx as nx
import pytest
import torch
from hypothesis import given
from torch import nn

import splinecam as sc
from splinecam.questions.comparison import Counts
from splinecam.testing import Abs
from strategies import dense, examples, lattice_networks, mlp

BOX = sc.Domain.box(-2, 2)


def cut(model: nn.Module, domain: sc.Domain = BOX) -> sc.Partition:
    return sc.partition(model, domain, device="cpu", progress=False)


def brute_force(part: sc.Partition) -> tuple[int, int]:
    """Linear regions and distinct maps, from maps that are rounded to seven digits."""
    maps = torch.cat([part.weight.flatten(1), part.bias], 1)
    keys = [tuple(round(x, 7) + 0.0 for x in row) for row in maps.tolist()]
    graph = nx.Graph()
    graph.add_nodes_from(range(len(part)))
    pairs = [pair for pair in part._edge_faces.tolist() if min(pair) >= 0]
    graph.add_edges_from(pair for pair in pairs if keys[pair[0]] == keys[pair[1]])
    return nx.number_connected_components(graph), len(set(keys))


def waves() -> nn.Sequential:
    """Zero but on the strips 0 < x < 1 and -2 < x < -1: the map zero is there in three places."""
    first = dense([[1, 0], [1, 0], [1, 0], [1, 0], [1, 0], [1, 0]], [0, -0.5, -1, 2, 1.5, 1])
    return nn.Sequential(first, nn.ReLU(), dense([[1, -2, 1, 1, -2, 1]]))


def test_the_numbers_differ() -> None:
    found = cut(waves(), sc.Domain.box(-3, 3)).counts()
    assert found == {
        "activation_regions": 7,
        "linear_regions": 7,
        "distinct_maps": 5,
        "unresolved": 0,
        "cells_by_layer.1": 7,
    }
    assert (found.linear_regions, found.distinct_maps, found.unresolved) == (7, 5, 0)


def test_a_unit_that_changes_nothing_divides_cells_only() -> None:
    ignored = nn.Sequential(dense([[1, 0], [0, 1]]), nn.ReLU(), dense([[1, 0]]))
    found = cut(ignored).counts()
    assert (found.activation_regions, found.linear_regions, found.distinct_maps) == (4, 2, 2)


def test_regions_that_touch_at_a_vertex_are_separate() -> None:
    # relu(min(x, -y)) + relu(min(-x, y)) is zero on two quadrants that touch at the origin only.
    first = nn.Sequential(dense([[1, 0], [0, 1]]), Abs())
    model = nn.Sequential(
        dense([[1, 0], [0, 1], [1, 1], [1, -1]]),
        Abs(),
        dense([[1, 1, -1, 0]]),  # |x| + |y| - |x + y|: 2 min(|x|, |y|) where the signs differ
    )
    found = cut(model).counts()
    assert found.linear_regions == 6  # two quadrants of zero, and two halves of each other one
    assert found.distinct_maps == 5
    assert cut(first).counts().distinct_maps == 4


def test_one_region_and_no_layer() -> None:
    found = cut(dense([[1, 2], [3, 4]])).counts()
    assert (found.activation_regions, found.linear_regions, found.distinct_maps) == (1, 1, 1)
    assert found.cells_by_layer == {}
    constant = cut(nn.Sequential(dense([[1, 0], [0, 1]]), nn.ReLU(), dense([[0, 0]], [3]))).counts()
    assert (constant.activation_regions, constant.distinct_maps) == (4, 1)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_maps_of_one_network_that_repeats(scale: float) -> None:
    # A zigzag of period 2 has two slopes, and each of its pieces an offset of its own, but a sum of
    # hats has the same zero map between them, whatever the size of domain and output.
    starts = [k / 4 for k in range(-4, 4)]
    rows = [[1.0 / scale, 0.0]] * (3 * len(starts))
    bias = [-(s + d) for s in starts for d in (0.0, 0.0625, 0.125)]
    model = nn.Sequential(dense(rows, bias), nn.ReLU(), dense([[1.0, -2.0, 1.0] * len(starts)]))
    part = cut(model, sc.Domain.box(-2 * scale, 2 * scale))
    assert len(part) == 25
    found = part.counts()
    assert (found.linear_regions, found.distinct_maps) == (25, 17)


def test_layers_are_those_of_at_layer() -> None:
    part = cut(mlp(2, 8, 8, 8, 3, seed=3))
    cells = part.counts().cells_by_layer
    assert cells == {name: len(part.at_layer(name)) for name in part.layers}
    assert list(cells.values())[-1] == len(part)


def test_every_cell_has_a_pattern_of_its_own() -> None:
    part = cut(mlp(2, 9, 9, 2, seed=4))
    patterns = torch.cat(list(part.patterns().values()), 1)
    assert len(torch.unique(patterns, dim=0)) == part.counts().activation_regions


@examples(60)
@given(lattice_networks())
def test_against_brute_force(model: nn.Sequential) -> None:
    part = cut(model)
    found = part.counts()
    assert (found.linear_regions, found.distinct_maps) == brute_force(part)
    assert found.unresolved == 0
    assert found.distinct_maps <= found.linear_regions <= found.activation_regions == len(part)


def test_random_networks_repeat_no_map_but_dead_ones() -> None:
    part = cut(mlp(2, 24, 24, 4, seed=0))
    found = part.counts()
    assert (found.linear_regions, found.distinct_maps) == brute_force(part)
    assert found.activation_regions == found.distinct_maps == len(part)


def test_results_are_plain_numbers() -> None:
    found = cut(waves()).counts()
    assert json.loads(json.dumps(found)) == found
    assert pickle.loads(pickle.dumps(found)) == found
    assert "<table>" in found._repr_html_()
    assert "distinct maps" in repr(found)
    assert repr(Counts()) == "Counts()"


def test_a_loaded_partition_counts(tmp_path) -> None:
    part = cut(mlp(2, 6, 6, 2, seed=1))
    part.save(tmp_path / "part.npz")
    assert sc.load(tmp_path / "part.npz", model=part.model).counts() == part.counts()


def test_maps_that_are_too_close_to_tell_are_reported() -> None:
    part = cut(waves(), sc.Domain.box(-3, 3))
    maps = part._maps
    flat = (maps.weight.abs().amax((1, 2)) <= maps.error).nonzero()[:, 0]
    assert len(flat) == 3
    for errors, distinct, unclear in ((1, 5, False), (6, 5, True), (100, 6, False)):
        weight, error = maps.weight.clone(), torch.full_like(maps.error, 1e-14)
        weight[flat[0], 0, 1] += errors * 1e-14
        part.__dict__["_maps"] = replace(maps, weight=weight, error=error)
        found = part.counts()
        assert (found.distinct_maps, found.unresolved > 0) == (distinct, unclear)
