"""Colours in the browser are those of the static pictures, cell by cell."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.transforms import Bbox
from torch import nn

import splinecam as sc
from splinecam.viewer.container import Message, unpack
from splinecam.viewer.panes import Pane
from splinecam.viewer.scene_options import SceneOptions
from splinecam.viewer.session import Session

KINDS = ["class", "slope", "area", "output", "layer", "vertices", "random", "merged"]


def partition_of(outputs: int, *last: nn.Module) -> sc.Partition:
    torch.manual_seed(outputs)
    layers = [nn.Linear(2, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, outputs)]
    model = nn.Sequential(*layers, *last).double()
    return sc.partition(model, sc.Domain.box(-2, 2), progress=False)


@pytest.fixture(scope="module", params=[3, 1], ids=["three outputs", "one output"])
def part(request: Any) -> sc.Partition:
    return partition_of(request.param)


def session_of(part: sc.Partition, **options: Any) -> Session:
    return Session([Pane("", [part])], SceneOptions(**options))


def coloring(session: Session, name: str, output: int | None = None, mesh: str = "0/0") -> Message:
    request = {"ask": "coloring", "mesh": mesh, "name": name, "output": output}
    found = unpack(session.answer(request))
    assert found.message["kind"] == "coloring", found.message
    return found


def shown(scale: dict[str, Any], lut: Any, numbers: Any) -> Any:
    """The colours of numbers, as the browser computes them."""
    low, center, high = scale["low"], scale["center"], scale["high"]
    numbers = numbers.astype(np.float64)
    if scale["type"] == "log":
        share = np.log(numbers / low) / np.log(high / low)
    elif scale["type"] == "linear":
        share = (numbers - low) / (high - low)
    else:
        below = (numbers - low) / (center - low)
        share = np.where(numbers < center, below, 1 + (numbers - center) / (high - center)) / 2
    return lut[np.clip(np.floor(256 * share), 0, 255).astype(int)]


def cell_colors(session: Session, found: Message) -> tuple[Any, Any]:
    """The centroids of all cells in plane coordinates, and their colours there."""
    mesh = unpack(session.answer({"ask": "mesh", "pane": 0, "frame": 0}))
    header, arrays = mesh.message, mesh.arrays
    corners = np.split(arrays["corners"], np.cumsum(arrays["counts"])[:-1].astype(int))
    start = [arrays["edges"].reshape(-1)[each] for each in corners]
    local = np.stack([arrays["points"][each].mean(0) for each in start])
    if "colors" in found.arrays:
        colors = found.arrays["colors"]
    else:
        column = header["outputs"].index(found.message["output"] or 0)
        numbers = (
            np.array([arrays["values"][each, column].mean() for each in start])
            if found.message["by"] == "output"
            else found.arrays["numbers"]
        )
        colors = shown(found.message["scale"], found.arrays["lut"], numbers)
    return np.array(header["center"]) + header["scale"] * local, colors


def pictured(part: sc.Partition, places: Any, **options: Any) -> tuple[Any, Any]:
    """The colours of a static picture at some places, and its axes."""
    ax = part.plot(**options)
    image: Any = ax.images[0]
    size = 1e-7
    pixels = [
        image.pixels(Bbox.from_extents(u - size, v - size, u + size, v + size), 1, 1)[0, 0, :3]
        for u, v in places
    ]
    plt.close("all")
    return np.array(pixels), ax


def assert_same_colors(part: sc.Partition, name: str, output: int | None = None) -> None:
    session = session_of(part)
    found = coloring(session, name, output)
    places, colors = cell_colors(session, found)
    some = np.random.default_rng(0).permutation(len(places))[:60]
    if name == "output" and output is None:
        output = 0
    expected, ax = pictured(part, places[some], color=name, output=output)
    difference = np.abs(colors[some].astype(int) - expected.astype(int)).max(1)
    # Numbers in single precision, and light that is averaged, may be next to an entry's border.
    assert (difference <= 2).mean() > 0.9
    assert difference.max() <= 8
    words = [text.get_text() for text in ax.figure.findobj(plt.Text)]
    for entry in found.message["legend"]:
        assert entry["name"] in words
    assert found.message["label"] in ["", *words]


@pytest.mark.parametrize("name", KINDS)
def test_colors_are_those_of_static_pictures(part: sc.Partition, name: str) -> None:
    if name == "class" and part.values.shape[1] == 1:
        request = {"ask": "coloring", "mesh": "0/0", "name": "class", "output": None}
        message = unpack(session_of(part).answer(request)).message
        assert "no classes" in message["message"]
        return
    if name != "class":  # the browser finds the colours of classes
        assert_same_colors(part, name)


@pytest.mark.parametrize("name", ["slope", "output"])
@pytest.mark.parametrize("output", [0, 2])
def test_colors_of_an_output(name: str, output: int) -> None:
    assert_same_colors(partition_of(3), name, output)


@pytest.mark.parametrize("part", [partition_of(3), partition_of(1, nn.Sigmoid())])
def test_classes_are_told_their_typical_lead(part: sc.Partition) -> None:
    found = coloring(session_of(part), "class").message
    cells = part.class_regions()
    order = cells.cell_leads.argsort()
    below = cells.cell_areas[order].cumsum(0) <= float(cells.cell_areas.sum()) / 2
    median = float(cells.cell_leads[order][int(below.sum())])
    assert found["by"] == "class"
    assert found["typical"] == pytest.approx(median, rel=0.2)
    words = [text.get_text() for text in part.plot(color="class").figure.findobj(plt.Text)]
    plt.close("all")
    assert {entry["name"] for entry in found["legend"]} <= set(words)


def test_columns_of_the_table(part: sc.Partition) -> None:
    rows = part.table()
    for name in ("perimeter", "eccentricity", "centroid_u"):
        found = coloring(session_of(part), name)
        assert np.allclose(found.arrays["numbers"], np.asarray(rows[name]), rtol=1e-6)
        assert found.message["label"] == name.replace("_", " ")
        assert found.message["scale"]["type"] == "linear"


def test_given_numbers_and_colors(part: sc.Partition) -> None:
    numbers = np.arange(len(part), dtype=float)
    numbers[0] = np.nan
    colors = np.random.default_rng(0).random((len(part), 3))
    given = {"mine": numbers, "paint": colors, "twice": lambda part: 2 * part.areas, "bad": [1.0]}
    session = session_of(part, colors=given)
    scene = unpack(session.answer({"ask": "scene"})).message
    assert {"mine", "paint", "twice"} <= {each["name"] for each in scene["panes"][0]["colorings"]}
    assert np.array_equal(coloring(session, "mine").arrays["numbers"], numbers, equal_nan=True)
    assert np.allclose(coloring(session, "paint").arrays["colors"] / 255, colors, atol=0.003)
    assert np.allclose(coloring(session, "twice").arrays["numbers"], 2 * part.areas)
    request = {"ask": "coloring", "mesh": "0/0", "name": "bad", "output": None}
    assert "regions" in unpack(session.answer(request)).message["message"]


def test_windows_have_the_limits_of_the_whole() -> None:
    part = partition_of(3)
    window = sc.partition(part.model, sc.Domain.box(0, 0.5), progress=False)
    session = session_of(part, colors={"number": torch.arange(len(part))})
    session.keep("0/0/w1", window)
    for name in (*KINDS, "perimeter"):
        whole, near = coloring(session, name), coloring(session, name, mesh="0/0/w1")
        assert whole.message["typical"] == near.message["typical"]
        if whole.message["scale"] is not None:
            kept = ("type", "low", "center", "high")
            assert [whole.message["scale"][key] for key in kept] == [
                near.message["scale"][key] for key in kept
            ]
    found = coloring(session, "number", mesh="0/0/w1").arrays["numbers"]
    middle = part.inputs(window.frame.to_plane(window.mesh.means()))
    assert np.array_equal(found, part.locate(middle))


def test_merged_pieces_have_their_edges() -> None:
    part = partition_of(3)
    session = session_of(part)
    edges = coloring(session, "merged").arrays["edges"]
    mesh = unpack(session.answer({"ask": "mesh", "pane": 0, "frame": 0}))
    ends = mesh.arrays["points"][mesh.arrays["edges"][edges]]
    length = np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1).sum() * mesh.message["scale"]
    own = part.vertices[part.edges[part.merged().edges]]
    assert length == pytest.approx(float((own[:, 1] - own[:, 0]).norm(dim=1).sum()))


def test_unknown_colorings_are_named() -> None:
    session = session_of(partition_of(1))
    for name in ("cake", "output_99", "<img>"):
        request = {"ask": "coloring", "mesh": "0/0", "name": name, "output": None}
        found = unpack(session.answer(request)).message
        assert found["kind"] == "error"
        assert name in found["message"]
