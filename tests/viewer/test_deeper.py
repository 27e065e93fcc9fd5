"""A session answers for windows, moved planes and networks that are too large."""

from __future__ import annotations

from concurrent.futures import CancelledError
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import splinecam as sc
from splinecam.viewer.container import Message
from splinecam.viewer.panes import SceneOptions, panes_of
from splinecam.viewer.session import Session
from viewer_messages import unpack

BOX = sc.Domain.box(-1, 1)


def mlp(inputs: int = 2, width: int = 8) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, 3))


def asked(session: Session, ask: str, pane: int = 0, **request: Any) -> Message:
    return unpack(session.answer({"ask": ask, "pane": pane, **request}))


def points_of(mesh: Message) -> np.ndarray:
    header = mesh.message
    return np.array(header["center"]) + header["scale"] * mesh.arrays["points"]


def test_a_window_is_a_mesh_with_the_coordinates_of_the_pane():
    part = sc.partition(mlp(), BOX, progress=False)
    session = Session(panes_of([part]))
    window = [0.25, -0.5, 0.75, 0.5]
    found = asked(session, "window", frame=0, window=window, pixels=100)
    assert found.message["kind"] == "mesh"
    assert found.message["id"] == "0/0/w1"
    assert found.message["window"] == window
    points = points_of(found)
    assert points.min(0).tolist() == [0.25, -0.5]
    assert points.max(0).tolist() == [0.75, 0.5]
    shown = session.partition_of("0/0/w1")
    assert found.message["regionCount"] == len(shown)
    assert torch.allclose(shown.areas.sum(), torch.tensor(0.5).double())
    again = asked(session, "window", frame=0, window=window, pixels=100)
    assert again.message["id"] == "0/0/w2"
    for name in ("class", "slope", "area"):
        colors = asked(session, "coloring", mesh="0/0/w1", name=name, output=None)
        whole = asked(session, "coloring", mesh="0/0", name=name, output=None)
        for same in ("low", "high"):
            scale = colors.message["scale"]
            assert scale is None or scale[same] == whole.message["scale"][same]


@pytest.mark.parametrize(
    ("window", "text"),
    [
        ([3, 3, 4, 4], "outside of the domain"),
        ([0.5, 0.5, 0.5 + 1e-15, 0.5 + 1e-15], "float64 ends here"),
        ([0, 0, 0, 0], "is empty"),
        ("abcd", "four numbers"),
    ],
)
def test_windows_that_are_refused(window, text):
    session = Session(panes_of([(mlp(), BOX)]))
    found = asked(session, "window", frame=0, window=window, pixels=100).message
    assert found["kind"] == "error"
    assert text in found["message"]


@pytest.mark.slow
def test_a_network_that_is_too_large_has_a_raster_and_a_start():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 200), nn.ReLU(), nn.Linear(200, 3))
    session = Session(panes_of([(model, BOX)], max_regions=2000))
    (pane,) = asked(session, "scene").message["panes"]
    assert pane["start"] is not None
    coarse = asked(session, "mesh", frame=0)
    assert coarse.message["kind"] == "raster"
    assert coarse.message["window"] == [-1, -1, 1, 1]
    assert coarse.message["reason"] == "more than 2,000 regions"
    assert coarse.arrays["pixels"].shape[2] == 3
    first = asked(session, "window", frame=0, window=pane["start"], pixels=300).message
    assert first["kind"] == "mesh"
    assert first["regionCount"] <= 2000
    wide = asked(session, "window", frame=0, window=[-1, -1, 0.9, 0.9], pixels=300).message
    assert wide["kind"] == "raster"


def test_a_plane_is_turned_and_its_meshes_are_new():
    domain = sc.Domain.around([0.0] * 4, side=2.0)
    part = sc.partition(mlp(4), domain, progress=False)
    session = Session(panes_of([part]))
    scene = asked(session, "scene")
    count = len(scene.message["panes"][0]["directions"])
    assert count == 2
    plane = asked(session, "plane", turn=[0.3, 0.0], shift=[0.0, 0.2])
    header = plane.message["header"]
    assert plane.message["kind"] == "plane"
    assert header["domain"]["corners"] == scene.message["panes"][0]["domain"]["corners"]
    assert not np.allclose(plane.arrays["0/basis"], scene.arrays["0/basis"])
    mesh = asked(session, "mesh", frame=0)
    assert mesh.message["id"] == "0/0/p1"
    shown = session.partition_of("0/0/p1")
    fresh = sc.partition(part.model, shown.domain, progress=False)
    assert len(shown) == len(fresh) == mesh.message["regionCount"]
    assert np.allclose(plane.arrays["0/basis"], shown.domain.basis)
    window = asked(session, "window", frame=0, window=[-0.1, -0.1, 0.1, 0.1], pixels=9).message
    assert window["id"] == "0/0/p1/w1"
    assert asked(session, "coloring", mesh="0/0/p1/w1", name="slope").message["kind"] == "coloring"
    asked(session, "plane", turn=[0.0, 0.0])
    assert session.partition_of(asked(session, "mesh", frame=0).message["id"]) is part
    assert (
        "not there any more"
        in asked(session, "coloring", mesh="0/0/p9", name="area").message["message"]
    )


def test_anchors_on_data_points_are_numbered_as_they_were_given():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(30, 16, generator=generator)
    x[4] = torch.nan
    options = SceneOptions(points=x, anchors=x[:3], images=x.reshape(-1, 1, 4, 4), shape=(4, 4))
    session = Session(panes_of([(mlp(16), sc.Domain.through(*x[:3]))]), options)
    scene = asked(session, "scene")
    assert scene.arrays["0/anchors"].shape == (3, 4, 4, 4)
    numbers = scene.arrays["0/number"].tolist()
    assert 4 not in numbers
    at = scene.message["panes"][0]["anchors"]["at"]
    chosen = numbers[-1]
    plane = asked(session, "plane", anchors=[at[0], chosen, at[2]])
    domain = session.panes[0].domain
    places = torch.tensor(plane.message["header"]["anchors"]["at"], dtype=torch.float64)
    assert torch.allclose(domain.embed(places), x[[0, chosen, 2]].double(), atol=1e-5)
    shown = plane.arrays["0/points"][plane.arrays["0/number"].tolist().index(chosen)]
    assert np.allclose(shown, places[1], atol=1e-5)
    assert not np.array_equal(plane.arrays["0/anchors"], scene.arrays["0/anchors"])
    for wrong, text in (([at[0], at[0], at[2]], "one line"), ([at[0], 4, at[2]], "not finite")):
        found = asked(session, "plane", anchors=wrong).message
        assert found["kind"] == "error"
        assert text in found["message"]
        assert session.panes[0].domain is domain


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({}, "moved by anchors"),
        ({"anchors": 3}, "three places"),
        ({"anchors": [[0, 0], [1, 0], "x"]}, "place with two coordinates"),
        ({"anchors": [[0, 0], [1, 0], [0, "x"]]}, "must be a number"),
        ({"turn": 0.5}, "list of numbers"),
        ({"turn": [0.5]}, "1 numbers for 0 directions"),
        ({"anchors": [[0, 0], [1, 0], True]}, "place with two coordinates"),
    ],
)
def test_moves_that_are_refused(request_, text):
    session = Session(panes_of([(mlp(), BOX)]))
    found = asked(session, "plane", **request_).message
    assert found["kind"] == "error"
    assert text in found["message"]


def test_without_a_network_nothing_is_computed(tmp_path):
    sc.partition(mlp(), BOX, progress=False).save(tmp_path / "part.npz")
    session = Session(panes_of([sc.load(tmp_path / "part.npz")]))
    scene = asked(session, "scene").message
    assert scene["live"]
    assert not scene["panes"][0]["live"]
    assert scene["panes"][0]["directions"] == []
    moved = asked(session, "plane", turn=[0.1]).message
    assert "without its network" in moved["message"]
    window = asked(session, "window", frame=0, window=[0, 0, 0.5, 0.5], pixels=9).message
    assert "loaded without it" in window["message"]


def test_a_plane_goes_back_to_where_it_was():
    part = sc.partition(mlp(), BOX, progress=False)
    session = Session(panes_of([part]))
    asked(session, "plane", anchors=[[0, 0], [1, 0], [0, 1]])
    assert session.panes[0].domain != BOX
    again = asked(session, "plane", reset=True)
    assert again.message["header"]["domain"]["corners"] == BOX.corners.tolist()
    assert session.partition_of(asked(session, "mesh", frame=0).message["id"]) is part


def test_an_outdated_window_is_given_up():
    session = Session(panes_of([(mlp(), BOX)]))
    request = {"ask": "window", "pane": 0, "frame": 0, "window": [0, 0, 1, 1], "pixels": 9}
    with pytest.raises(CancelledError):
        session.answer(request, lambda: True)
    assert unpack(session.answer(request)).message["kind"] == "mesh"
