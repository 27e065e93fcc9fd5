"""The graph of regions is the mesh's adjacency, with numbers of the partition on it."""

from __future__ import annotations

import gc
import io
import logging
import sys
from typing import Any

import networkx
import numpy as np
import pytest
import torch

import splinecam as sc
from export_cases import CASES, mlp, partition_of
from splinecam.partitions.exports import to_geojson, to_ply, to_vtk


@pytest.fixture(params=CASES)
def part(request: pytest.FixtureRequest) -> sc.Partition:
    return partition_of(request.param)


def test_the_graph_is_the_adjacency_of_the_mesh(part: sc.Partition) -> None:
    graph = part.to_networkx(progress=False)
    assert list(graph) == list(range(len(part)))
    assert {type(node) for node in graph} == {int}
    inner = part._edge_faces[(part._edge_faces >= 0).all(1)]
    assert {frozenset(pair) for pair in graph.edges} == {frozenset(p) for p in inner.tolist()}
    for region in range(0, len(part), max(1, len(part) // 20)):
        assert tuple(sorted(graph[region])) == part[region].neighbours
    assert networkx.is_connected(graph)


def test_nodes_have_areas_classes_and_maps(part: sc.Partition) -> None:
    graph = part.to_networkx(progress=False)
    areas = [graph.nodes[k]["area"] for k in graph]
    assert areas == part.areas.tolist()
    assert sum(areas) == pytest.approx(part.domain.area)
    rows = part.table()
    assert [graph.nodes[k]["class"] for k in graph] == rows["class"].tolist()
    assert [graph.nodes[k]["vertices"] for k in graph] == rows["vertices"].tolist()
    for k in graph:
        node = graph.nodes[k]
        assert (node["centroid_u"], node["centroid_v"]) == tuple(part.centroids[k].tolist())
        assert np.array_equal(node["weight"], part.weight[k])
        assert np.array_equal(node["bias"], part.bias[k])
        assert {type(node[name]) for name in ("class", "layer", "vertices")} == {int}
        if k > 50:
            break


def test_edges_have_what_the_regions_share(part: sc.Partition) -> None:
    graph = part.to_networkx(progress=False)
    found = {edge["edge"]: (a, b, edge) for a, b, edge in graph.edges(data=True)}
    assert len(found) == graph.number_of_edges()
    some = sorted(found)[:: max(1, len(found) // 200)]
    for index in some:
        a, b, edge = found[index]
        assert {a, b} == set(part._edge_faces[index].tolist())
        assert edge["layer"] == int(part.mesh.edge_layer[index])
        assert edge["unit"] == int(part.mesh.edge_unit[index])
        assert edge["layer_name"] == part.layers[edge["layer"]]
        corners = [{tuple(uv) for uv in part[region].vertices.tolist()} for region in (a, b)]
        assert set(edge["ends"]) <= corners[0] & corners[1]
        p, q = np.array(edge["ends"])
        reach = part.domain.corners.abs().max().item()
        assert edge["length"] == pytest.approx(np.linalg.norm(p - q), abs=1e-14 * reach)


def test_regions_that_share_two_edges_have_one_edge_of_the_graph() -> None:
    part = partition_of("straight corner")
    graph = part.to_networkx()
    assert list(graph.edges) == [(0, 1)]
    edge = graph.edges[0, 1]
    assert edge["length"] == 2.0
    assert set(edge["ends"]) == {(-1.0, 0.0), (1.0, 0.0)}
    assert edge["edge"] == 6


def test_names_of_layers_and_classes_are_there() -> None:
    part = partition_of("classifier")
    graph = part.to_networkx()
    assert part.names is not None
    assert all(node["class_name"] == part.names[node["class"]] for node in graph.nodes.values())
    assert "class_name" not in partition_of("one output").to_networkx().nodes[0]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("graphml", {"node_type": int}),
        ("gexf", {"node_type": int}),
        ("gml", {"label": "id"}),
    ],
)
def test_plain_attributes_go_into_files_of_networkx(kind: str, options: dict[str, Any]) -> None:
    part = partition_of("classifier")
    graph = part.to_networkx(maps=False, ends=False)
    file = io.BytesIO()
    getattr(networkx, f"write_{kind}")(graph, file)
    file.seek(0)
    again = getattr(networkx, f"read_{kind}")(file, **options)
    extra = {"label", "id"}  # that some formats add
    for k in graph:
        node = {name: x for name, x in again.nodes[k].items() if name not in extra}
        assert node == graph.nodes[k]
    for pair in graph.edges:
        edge = {name: x for name, x in again.edges[pair].items() if name not in extra}
        assert edge == graph.edges[pair]


def test_what_is_left_out() -> None:
    part = partition_of("one output")
    graph = part.to_networkx(maps=False, ends=False)
    assert not {"weight", "bias"} & set(graph.nodes[0])
    assert all("ends" not in edge for *_, edge in graph.edges(data=True))


# -- what it costs --------------------------------------------------------------------------------


def test_a_large_graph_says_beforehand_what_it_costs(caplog: pytest.LogCaptureFixture) -> None:
    part = partition_of("classifier")
    with pytest.raises(sc.LimitError, match=r"takes about \d+ MB of memory and \d+ s") as error:
        part.to_networkx(max_regions=10)
    assert "max_regions=None" in str(error.value)
    assert "maps=False" in str(error.value)
    with pytest.raises(sc.LimitError) as error:
        part.to_networkx(max_regions=10, maps=False, ends=False)
    assert "maps=False" not in str(error.value)
    with caplog.at_level(logging.INFO, logger="splinecam"):
        assert len(part.to_networkx(max_regions=None)) == len(part)
    assert "MB of memory" in caplog.text
    with pytest.raises(ValueError, match="max_regions"):
        part.to_networkx(max_regions=0)


def test_the_estimate_counts_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sc.Partition, "__len__", lambda self: 1_000_000)
    with pytest.raises(sc.LimitError, match=r"1,000,000 regions takes about 3\.\d GB of memory"):
        partition_of("one output").to_networkx()


@pytest.mark.parametrize("collects", [True, False])
def test_collection_goes_on_as_before(collects: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if collects else gc.disable)()
        partition_of("one region").to_networkx()
        assert gc.isenabled() == collects
    finally:
        (gc.enable if before else gc.disable)()


def test_without_networkx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(sc.SplineCamError, match=r"needs networkx.*pip install networkx"):
        partition_of("one region").to_networkx()


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_what_is_on_a_gpu_is_exported_as_from_the_cpu() -> None:
    there = sc.partition(
        mlp(2, 16, 16, 3).cuda(), sc.Domain.box(-1, 1), device="cuda", progress=False
    )
    saved = io.BytesIO()
    there.save(saved)
    saved.seek(0)
    here = sc.load(saved)
    assert (there.mesh.uv.device.type, here.mesh.uv.device.type) == ("cuda", "cpu")
    graphs = [part.to_networkx() for part in (there, here)]
    assert graphs[0].edges == graphs[1].edges
    contents = []
    for part in (there, here):
        files = io.BytesIO(), io.BytesIO(), io.BytesIO()
        to_geojson(part, files[0], columns=["class", "layer"])
        to_ply(part, files[1], output=0, columns=["class", "layer"])
        to_vtk(part, files[2], output=0, columns=["class", "layer"])
        contents.append([file.getvalue() for file in files])
    assert contents[0] == contents[1]
