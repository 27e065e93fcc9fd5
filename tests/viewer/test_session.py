"""A session answers every request, also a malformed one, with a message."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import splinecam as sc
from splinecam.viewer.panes import Pane, SceneOptions
from splinecam.viewer.session import Session
from strategies import examples
from viewer_messages import unpack


@pytest.fixture(scope="module")
def parts() -> list[sc.Partition]:
    torch.manual_seed(0)
    nets = [nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 3)) for _ in range(2)]
    domain = sc.Domain.box(-1, 1)
    return [sc.partition(net, domain, progress=False, names=["a", "b", "c"]) for net in nets]


@pytest.fixture(scope="module")
def session(parts: list[sc.Partition]) -> Session:
    return Session([Pane("nets", parts, ["early", "late"])])


def said(session: Session, request: Any) -> dict[str, Any]:
    return unpack(session.answer(request)).message


def test_the_scene_names_everything(session: Session) -> None:
    answer = unpack(session.answer({"ask": "scene"}, request_id=7))
    scene, (pane,) = answer.message, answer.message["panes"]
    assert answer.request_id == 7
    assert scene["title"] == "nets"
    assert scene["live"]
    assert scene["state"] == {"color": "class"}
    assert pane["frames"] == ["early", "late"]
    assert pane["layers"] == [{"name": "1", "units": 6}]
    assert pane["outputs"] == ["output 0", "output 1", "output 2"]
    assert [each["name"] for each in pane["classes"]] == ["a", "b", "c"]
    assert pane["classes"][0]["color"] == "#0072b2"
    assert pane["domain"]["axes"] == ["x₁", "x₂"]
    assert pane["domain"]["image"] is None
    assert np.array_equal(answer.arrays["0/basis"], np.eye(2))


def test_partitions_of_sent_meshes_are_kept(session: Session, parts: list[sc.Partition]) -> None:
    for frame in (0, 1):
        said(session, {"ask": "mesh", "pane": 0, "frame": frame})
        assert session.partition_of(f"0/{frame}") is parts[frame]
    with pytest.raises(sc.SplineCamError, match="not there any more"):
        session.partition_of("0/0/w1")


@pytest.mark.parametrize(
    ("request_", "match"),
    [
        (None, "object"),
        ([], "object"),
        ({}, "ask must be a text"),
        ({"ask": "cake"}, "does not answer 'cake'"),
        ({"ask": "mesh"}, "pane must be a whole number"),
        ({"ask": "mesh", "pane": True, "frame": 0}, "pane must be a whole number, not True"),
        ({"ask": "mesh", "pane": 1, "frame": 0}, "no pane 1: there are 1 panes"),
        ({"ask": "mesh", "pane": 0, "frame": -1}, "no frame -1"),
        ({"ask": "mesh", "pane": 0, "frame": 10**300}, "no frame 1000"),
        ({"ask": "mesh", "pane": 0, "frame": "0"}, "frame must be a whole number, not '0'"),
        ({"ask": "mesh", "pane": 0, "frame": float("nan")}, "frame must be a whole number"),
    ],
)
def test_malformed_requests_get_a_sentence(session: Session, request_: Any, match: str) -> None:
    found = said(session, request_)
    assert found["kind"] == "error"
    assert match in found["message"]
    assert found["message"].endswith(".")


values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
NAMES = ["pane", "frame", "mesh", "name", "output", "region", "window", "pixels", "anchors", "turn"]
asks = st.sampled_from(["scene", "mesh", "window", "coloring", "gradient", "plane", "select"])


@given(
    st.fixed_dictionaries(
        {"ask": asks | values},
        optional={name: values | st.sampled_from([0, "0/0", "class"]) for name in NAMES},
    )
    | values
)
@examples(200)
def test_no_request_is_an_exception(session: Session, request: Any) -> None:
    found = said(session, request)
    assert found["kind"] != "error" or found["message"]
    json.dumps(found, allow_nan=False)


def test_points_that_are_not_finite_are_left_out(parts: list[sc.Partition]) -> None:
    points = torch.tensor([[0.0, 0.5], [float("nan"), 0], [0, float("inf")], [9, 9], [0.25, 0]])
    options = SceneOptions(points=points, labels=["c", "a", "b", "a", "b"])
    answer = unpack(Session([Pane("", parts)], options).answer({"ask": "scene"}))
    pane = answer.message["panes"][0]
    assert pane["points"]["count"] == 2
    assert pane["points"]["labels"] == ["a", "b", "c"]
    assert pane["points"]["colors"] == [each["color"] for each in pane["classes"]]
    assert answer.arrays["0/label"].tolist() == [2, 1]
    assert answer.arrays["0/points"].tolist() == [[0, 0.5], [0.25, 0]]
    assert pane["notes"] == [
        "2 of 5 data points are left out: not finite.",
        "1 of 5 data points are outside of the domain.",
    ]


def test_images_have_thumbnails_and_anchors() -> None:
    images = torch.rand(3, 1, 60, 30)
    domain = sc.Domain.through(*images)
    model = nn.Sequential(nn.Flatten(), nn.Linear(1800, 10))
    part = sc.partition(model, domain, progress=False)
    options = SceneOptions(points=images, labels=[0, 1, 2], images=True, anchors=images)
    answer = unpack(Session([Pane("", [part])], options).answer({"ask": "scene"}))
    pane = answer.message["panes"][0]
    image = {"height": 60, "width": 30, "channels": 1, "low": 0.0, "high": 1.0}
    assert pane["domain"]["image"] == image
    assert pane["points"]["thumbnail"] == [48, 24]
    assert answer.arrays["0/thumbnails"].shape == (3, 48, 24, 4)
    assert answer.arrays["0/anchors"].shape == (3, 48, 24, 4)
    assert np.allclose(pane["anchors"]["at"], answer.arrays["0/points"], atol=1e-6)
    assert answer.arrays["0/thumbnails"][..., 3].min() == 255
    uv = np.array(pane["anchors"]["at"][1])
    rebuilt = answer.arrays["0/origin"] + uv @ answer.arrays["0/basis"]
    assert np.allclose(rebuilt, images[1].flatten(), atol=1e-5)


def test_a_network_without_a_partition_has_a_scene() -> None:
    from splinecam.viewer.panes import panes_of

    model = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 1), nn.Sigmoid())
    answer = unpack(Session(panes_of([(model, sc.Domain.box(-1, 1))])).answer({"ask": "scene"}))
    pane = answer.message["panes"][0]
    assert pane["layers"] == [{"name": "1", "units": 6}]
    assert [each["name"] for each in pane["classes"]] == ["logit ≤ 0", "logit > 0"]


def test_a_request_that_nobody_waits_for_may_end_with_an_exception(session: Session) -> None:
    with pytest.raises(sc.SplineCamError):
        session.answer({"ask": "mesh"}, lambda: True)


def test_a_single_output_has_classes_if_these_are_asked_for() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    part = sc.partition(model, sc.Domain.box(-1, 1), progress=False)
    for color, count in ((None, None), ("output", None), ("class", 2)):
        session = Session([Pane("", [part])], SceneOptions(color=color))
        (pane,) = unpack(session.answer({"ask": "scene"})).message["panes"]
        assert (pane["classes"] and len(pane["classes"])) == count
