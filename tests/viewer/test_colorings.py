"""Colours in the browser are those of the static pictures, cell by cell."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.transforms import Bbox
from torch import nn

import splinecam as sc
from splinecam.plot.colors import ColorOptions
from splinecam.plot.figures import written
from splinecam.viewer.container import Message
from splinecam.viewer.panes import Pane, SceneOptions
from splinecam.viewer.scene import class_coloring
from splinecam.viewer.session import Session
from viewer_messages import unpack

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


def class_colors(session: Session, found: Message) -> tuple[Any, Any]:
    """The centroids of cells of one class each, and their colours as the browser computes them."""
    part = session.partition_of("0/0")
    cells = part.class_regions()
    classes = unpack(session.answer({"ask": "scene"})).message["panes"][0]["classes"]
    palette = np.array([to_rgb(each["color"]) for each in classes])
    lead = cells.cell_leads[:, None].numpy()
    share = 0.12 + (0.8 - 0.12) * lead / (lead + found.message["typical"])
    colors = 1 - share * (1 - palette[cells.cell_class])
    assert found.message["by"] == "class"
    assert not found.arrays
    centroids = cells.winners.overlay.mesh.areas_and_centroids()[1]
    return part._frame.to_plane(centroids).numpy(), 255 * colors + 0.5


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
    places, colors = (class_colors if name == "class" else cell_colors)(session, found)
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
        assert written(entry["name"]) in words
    assert written(found.message["label"]) in ["", *words]


@pytest.mark.few(2)
@pytest.mark.parametrize("name", KINDS)
def test_colors_are_those_of_static_pictures(part: sc.Partition, name: str) -> None:
    if name == "class" and part.values.shape[1] == 1:
        request = {"ask": "coloring", "mesh": "0/0", "name": "class", "output": None}
        message = unpack(session_of(part).answer(request)).message
        assert "no classes" in message["message"]
        return
    assert_same_colors(part, name)


@pytest.mark.parametrize("name", ["slope", "output"])
@pytest.mark.parametrize("output", [0, 2])
def test_colors_of_an_output(name: str, output: int) -> None:
    assert_same_colors(partition_of(3), name, output)


def test_two_classes_of_a_sigmoid() -> None:
    assert_same_colors(partition_of(1, nn.Sigmoid()), "class")


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
        if whole.message["scale"] is not None:
            kept = ("type", "low", "center", "high")
            assert [whole.message["scale"][key] for key in kept] == [
                near.message["scale"][key] for key in kept
            ]
    found = coloring(session, "number", mesh="0/0/w1").arrays["numbers"]
    middle = part._inputs(window._frame.to_plane(window.mesh.means()))
    assert np.array_equal(found, part.locate(middle))


def test_merged_pieces_have_their_edges() -> None:
    part = partition_of(3)
    edges = coloring(session_of(part), "merged").arrays["edges"]
    assert np.array_equal(edges, part.merged().edges)


def test_many_regions_have_nearly_the_same_lead_uncut() -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(2, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 3)]
    part = sc.partition(nn.Sequential(*layers), sc.Domain.box(-3, 3), progress=False)
    cut, uncut = (class_coloring(part, ColorOptions(), most=most) for most in (1 << 20, 0))
    assert cut.scale is not None
    assert uncut.scale == pytest.approx(cut.scale, rel=0.05)
    assert [name for name, _ in uncut.legend] == [name for name, _ in cut.legend]


def test_moved_planes_keep_the_lead_of_classes() -> None:
    part = partition_of(3)
    session = session_of(part)
    first = coloring(session, "class")
    session.keep("0/0/p1", sc.partition(part.model, sc.Domain.box(0, 1), progress=False))
    moved = coloring(session, "class", mesh="0/0/p1")
    assert moved.message["typical"] == first.message["typical"]
    areas = [coloring(session, "area", mesh=mesh).message["scale"] for mesh in ("0/0", "0/0/p1")]
    assert areas[0] != areas[1]


def test_unknown_colorings_are_named() -> None:
    session = session_of(partition_of(1))
    for name in ("cake", "output_99", "<img>"):
        request = {"ask": "coloring", "mesh": "0/0", "name": name, "output": None}
        found = unpack(session.answer(request)).message
        assert found["kind"] == "error"
        assert name in found["message"]
