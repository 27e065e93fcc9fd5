"""The mesh that is sent is the partition: areas, classes, boundary, values, provenance."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import splinecam as sc
from refinement_cases import eagerly
from splinecam.viewer.container import Message
from splinecam.viewer.panes import Pane
from splinecam.viewer.scene import MeshSizes
from splinecam.viewer.session import Session
from viewer_messages import unpack


def net(*sizes: int, last: Any = None) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    layers[-1:] = [] if last is None else [last]
    return nn.Sequential(*layers)


def partition_of(model: nn.Module, domain: sc.Domain | None = None) -> sc.Partition:
    return sc.partition(model, domain or sc.Domain.box(-2, 2), progress=False)


def mesh_of(part: sc.Partition, sizes: MeshSizes | None = None, **style: Any) -> Message:
    session = Session([Pane("a", [part])], sizes=sizes)
    found = unpack(session.answer({"ask": "mesh", "pane": 0, "frame": 0}, **style))
    assert found.message["kind"] == "mesh", found.message
    return found


def cell_centroids(arrays: dict[str, Any]) -> tuple[Any, Any]:
    """The areas and centroids of the cells in local coordinates, from the arrays alone."""
    corners, counts = arrays["corners"], arrays["counts"].astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    start = arrays["points"][arrays["edges"].reshape(-1)[corners]]
    end = arrays["points"][arrays["edges"].reshape(-1)[corners ^ 1]]
    cross = start[:, 0] * end[:, 1] - start[:, 1] * end[:, 0]
    area = np.add.reduceat(cross, offsets[:-1]) / 2
    moment = np.add.reduceat((start + end) * cross[:, None], offsets[:-1])
    return area, moment / (6 * area[:, None])


@pytest.mark.parametrize("seed", range(3))
def test_arrays_rebuild_the_partition(seed: int) -> None:
    torch.manual_seed(seed)
    part = partition_of(net(2, 16, 16, 4).double())
    header, arrays, _ = mesh_of(part)
    area, centroid = cell_centroids(arrays)
    scale, center = header["scale"], np.array(header["center"])
    assert np.allclose(area * scale**2, part.areas, rtol=1e-9, atol=1e-15)
    x = torch.from_numpy(center + scale * centroid)
    assert np.array_equal(part.locate(x), np.arange(len(part)))
    places = torch.from_numpy(center + scale * arrays["points"])
    assert np.allclose(arrays["values"], part.model(places).detach(), atol=1e-12)
    assert header["ranges"] == [[column.min(), column.max()] for column in arrays["values"].T]
    assert len(header["errors"]) == 4
    assert header["outputNames"] == [f"output {k}" for k in range(4)]
    # What the browser draws between classes follows from these values.
    assert np.array_equal(arrays["values"], part.values)


def test_edges_keep_their_layer_and_unit() -> None:
    torch.manual_seed(0)
    part = partition_of(net(2, 8, 8, 3).double())
    header, arrays, _ = mesh_of(part)
    layer, unit = arrays["edgeLayer"], arrays["edgeUnit"]
    middle = arrays["points"][arrays["edges"]].mean(1) * header["scale"] + header["center"]
    x = torch.from_numpy(middle)
    first = part.model[0](x)
    second = part.model[2](first.relu())
    for k, z in enumerate((first, second)):
        own = np.flatnonzero(layer == k)
        assert len(own)
        assert np.allclose(z.detach().numpy()[own, unit[own]], 0, atol=1e-12)
    assert (unit[layer < 0] == -1).all()
    assert (np.abs(middle[layer == -1]).max(1) == 2).all()


def test_one_output() -> None:
    part = partition_of(net(2, 8, 1))
    header, arrays, _ = mesh_of(part)
    assert len(arrays["counts"]) == header["regionCount"] == len(part)
    assert header["outputNames"] == ["output"]
    part = partition_of(net(2, 8, 1, last=nn.Sigmoid()))
    assert mesh_of(part).message["outputNames"] == ["logit"]


def test_one_region() -> None:
    header, arrays, _ = mesh_of(partition_of(nn.Linear(2, 1)))
    assert header["regionCount"] == 1
    assert arrays["points"].shape == (4, 2)


def test_a_million_outputs() -> None:
    torch.manual_seed(0)
    model = nn.Linear(2, 1_000_000)
    model.bias.data[777] = 50.0
    part = partition_of(model)
    header = mesh_of(part).message
    assert header["regionCount"] == 1
    assert len(header["outputs"]) == len(header["outputNames"]) == MeshSizes().outputs
    assert 777 in header["outputs"]
    assert header["outputs"] == sorted(set(header["outputs"]))
    session = Session([Pane("a", [part])])
    answer = session.answer({"ask": "scene"})
    assert len(answer) < 1_000_000
    (pane,) = unpack(answer).message["panes"]
    assert pane["outputCount"] == 1_000_000
    assert pane["classes"] is None
    assert "1,000,000 outputs" in pane["notes"][0]


def test_of_many_outputs_those_are_sent_that_win() -> None:
    torch.manual_seed(0)
    part = partition_of(net(2, 8, 500).double())
    header, arrays, _ = mesh_of(part, MeshSizes(values=3000))
    sent = header["outputs"]
    assert arrays["values"].shape[1] == len(sent) < 500
    assert set(part.class_regions().cell_class.tolist()) <= set(sent)
    x = torch.rand(1000, 2, dtype=torch.float64) * 4 - 2
    assert set(part.model(x).argmax(1).tolist()) <= set(sent)
    assert np.array_equal(arrays["values"], part.values[:, sent])
    few = mesh_of(part, MeshSizes(outputs=1)).message["outputs"]
    assert set(few) == set(part.class_regions().cell_class.tolist())
    fewer = mesh_of(part, MeshSizes(outputs=1, cut=0)).message["outputs"]
    assert set(fewer) == set(part.values.argmax(1).tolist())


def test_large_meshes_are_sent_in_single_precision() -> None:
    part = partition_of(net(2, 8, 1))
    assert mesh_of(part).arrays["points"].dtype == np.float64
    coarse = mesh_of(part, MeshSizes(points=3, precise=3)).arrays
    assert coarse["points"].dtype == coarse["values"].dtype == np.float32


CONDITION = sc.OutputCondition.of([([[1.0, -1.0, 0.0]], [0.0])])
SAYS = [
    ("boundary", "the decision boundary does not cross it"),
    ((0, 2), "the boundary between classes 0 and 2 does not cross it"),
    ({"level": 0.1, "output": 1}, "level 0.1 of output 1 does not cross it"),
    ({"level": [0.1, 0.2], "output": 0}, "levels 0.1, 0.2 of output 0 do not cross it"),
    (CONDITION, "the condition on the outputs holds all over it, or nowhere in it"),
]


@pytest.mark.parametrize(("refine", "words"), SAYS, ids=[words for _, words in SAYS])
def test_regions_that_are_not_divided_are_told(refine: Any, words: str) -> None:
    torch.manual_seed(0)
    model, domain = net(2, 24, 24, 3).double(), sc.Domain.box(-2, 2)
    with eagerly():
        part = sc.partition(model, domain, refine=refine, progress=False)
    assert not part.complete.all()
    header, arrays, _ = mesh_of(part)
    assert header["settled"] == f"Not divided: {words}."
    assert header["level"] == 0.0
    assert arrays["complete"].dtype == np.uint8
    assert np.array_equal(arrays["complete"], part.complete)
    session = Session([Pane("a", [part])])
    session.answer({"ask": "mesh", "pane": 0, "frame": 0})
    (pane,) = unpack(session.answer({"ask": "scene"})).message["panes"]
    assert part._wanted is not None
    assert part._wanted.words in pane["notes"][0]
    offered = {each["name"] for each in pane["colorings"]}
    # What needs maps is not offered, and classes only where they are known.
    assert offered - {"class"} == {"area", "layer", "vertices", "random"}
    assert ("class" in offered) == (pane["classes"] is not None) == (refine == "boundary")
    for name in {"class", "output", "slope", "merged", "perimeter"} - offered:
        request = {"ask": "coloring", "mesh": header["id"], "name": name, "output": None}
        answer = unpack(session.answer(request)).message
        assert answer["kind"] == "error", name
        assert "refine=" in answer["message"]


def test_settled_regions_have_one_class_and_no_gradient() -> None:
    torch.manual_seed(0)
    model, domain = net(2, 24, 24, 3).double(), sc.Domain.box(-2, 2)
    with eagerly():
        part = sc.partition(model, domain, refine="boundary", progress=False)
    arrays = mesh_of(part).arrays
    owner = np.repeat(np.arange(len(part)), arrays["counts"])
    winner = arrays["values"].argmax(1)[arrays["edges"].reshape(-1)[arrays["corners"]]]
    inside = model(part.centroids).argmax(1).numpy()
    own = arrays["complete"][owner] == 0
    assert np.array_equal(winner[own], inside[owner[own]])
    session = Session([Pane("a", [part])])
    mesh = unpack(session.answer({"ask": "mesh", "pane": 0, "frame": 0})).message["id"]
    region = int(np.flatnonzero(arrays["complete"] == 0)[0])
    request = {"ask": "gradient", "mesh": mesh, "region": region, "output": None}
    answer = unpack(session.answer(request)).message
    assert answer["kind"] == "error"
    assert "refine=" in answer["message"]


def test_nothing_is_added_where_all_regions_are_complete() -> None:
    torch.manual_seed(0)
    header, arrays, _ = mesh_of(partition_of(net(2, 8, 3)))
    assert not {"settled", "level"} & header.keys()
    assert "complete" not in arrays
