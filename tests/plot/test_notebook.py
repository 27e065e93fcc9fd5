"""What notebooks show: real notebooks are executed, and their outputs are counted."""

from __future__ import annotations

import base64
import io
import os
import re
import subprocess
import sys
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from torch import nn

import splinecam as sc
from drawing import cut_up, network
from splinecam.plot import figures
from splinecam.plot import notebook as pictures
from splinecam.plot import notebook as png

nbformat = pytest.importorskip("nbformat")
NotebookClient = pytest.importorskip("nbclient").NotebookClient
pytestmark = pytest.mark.slow

SETUP = """
import warnings
warnings.simplefilter("default")  # which are printed
import torch
import splinecam as sc
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
part = sc.partition(model, sc.Domain.box(-3, 3), names=["a", "b", "c"], progress=False)
flat = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
images = sc.partition(flat, sc.Domain.around(torch.rand(4, 4), side=20.0), progress=False)
import matplotlib.pyplot as plt
"""

# Cells, with the number of pictures that each shows.
FIGURES = {
    "part.plot()": 1,
    "part.plot().figure": 1,
    "part.plot.layers()": 1,
    "part.plot.histograms()": 1,
    "part.plot.surface(output=0)": 1,
    "part.plot.surface(output=0).figure": 1,
    "part.decision_boundary().plot()": 1,
    "part.decision_boundary().plot().figure": 1,
    "images.decision_boundary().plot_samples(4)": 1,
    "sc.plot.image_grid(torch.rand(4, 8, 8))": 1,
    "figure = part.plot.layers()": 1,
    "figure": 1,  # once more, in a later cell
    "part.plot.layers()\nNone": 1,
    "display(part.plot.layers())": 1,
    "part.plot.layers()\nsc.plot.image_grid(torch.rand(4, 8, 8))": 2,
    "figure, ax = plt.subplots()\nsc.plot.image_grid(torch.rand(4, 8, 8), ax=ax)": 1,
    "figure, axes = plt.subplots(2, 2)\npart.plot.histograms(axes=axes)": 1,
    "plt.plot([1, 2])\npart.plot.histograms()": 2,
}
# Cells that show HTML with or without a picture in it, and no figure.
CARDS = {
    "part": "<img",
    "part[3]": "<svg",
    "part.decision_boundary()": "<img",
    "part.level_set([0.0, 0.1], output=0)": "<img",
    "part.neurons()": "<img",
    "part.class_regions()": "<img",
    "part.domain": "<svg",
    "part.stats()": "<table",
    "sc.compare({'one': part, 'two': part})": "<table",
}


@pytest.fixture(scope="module")
def outputs() -> dict[str, list[Any]]:
    """What the cells of one notebook show."""
    cells = [SETUP, *FIGURES, *CARDS]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = NotebookClient(book, timeout=600, startup_timeout=600, kernel_name="python3")
    client.execute(env={k: v for k, v in os.environ.items() if k != "MPLBACKEND"})
    return {cell["source"]: cell["outputs"] for cell in book["cells"]}


def shown(found: list[Any], kind: str) -> list[str]:
    return [output["data"][kind] for output in found if kind in output.get("data", {})]


def test_nothing_is_printed_or_warned_of(outputs: dict[str, list[Any]]) -> None:
    for cell, found in outputs.items():
        assert not [output for output in found if output["output_type"] == "stream"], cell


@pytest.mark.parametrize("cell", FIGURES)
def test_figures_appear_once(outputs: dict[str, list[Any]], cell: str) -> None:
    assert len(shown(outputs[cell], "image/png")) == FIGURES[cell]


@pytest.mark.parametrize("cell", CARDS)
def test_objects_show_themselves(outputs: dict[str, list[Any]], cell: str) -> None:
    (page,) = shown(outputs[cell], "text/html")
    assert CARDS[cell] in page
    assert not shown(outputs[cell], "image/png")
    (text,) = shown(outputs[cell], "text/plain")  # for whoever cannot show HTML
    assert not text.startswith("<")


# -- figures outside of notebooks ----------------------------------------------------------------


def test_other_backends_keep_their_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    figure: Any = figures.new_figure()
    with pytest.raises(NotImplementedError):  # which makes IPython show it as usual
        figure._ipython_display_()
    assert plt.fignum_exists(figure.number)
    monkeypatch.setattr("matplotlib.get_backend", lambda: "inline")
    with pytest.raises(NotImplementedError):
        figure._ipython_display_()
    assert not plt.fignum_exists(figure.number)


# -- cards ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def part() -> sc.Partition:
    return cut_up(network(3))


def image_in(page: str) -> np.ndarray:
    (source,) = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    return np.asarray(plt.imread(io.BytesIO(base64.b64decode(source)), format="png"))


def everything(part: sc.Partition) -> list[Any]:
    lines = [part.decision_boundary(), part.level_set([0.0], output=0), part.neurons()]
    return [part, part[0], part.class_regions(), part.domain, part.stats(), *lines]


def test_numbers_are_in_the_cards(part: sc.Partition) -> None:
    page = part._repr_html_()
    for number in (len(part), part.mesh.num_edges, part.mesh.num_vertices):
        assert f">{number:,}<" in page
    region = part[5]._repr_html_()
    assert f"Region 5 of {len(part):,}" in region
    assert f"{part[5].area:.4g}" in region
    assert f"{part.decision_boundary().length:.4g}" in part.decision_boundary()._repr_html_()
    found = part.class_regions()
    share = float(found.areas.max() / found.areas.sum())
    assert f"{100 * share:.3g} %" in found._repr_html_()
    assert f"{part.domain.area:.4g}" in part.domain._repr_html_()


def test_what_users_name_is_escaped() -> None:
    model = nn.Sequential()
    model.add_module("first<i>", nn.Linear(2, 8))
    model.add_module("relu<b>", nn.ReLU())
    model.add_module("last", nn.Linear(8, 3))
    torch.manual_seed(0)
    names = ["<script>alert(1)</script>", "a&b", "'\"" + "x" * 10_000]
    part = sc.partition(model, sc.Domain.box(-9, 9), names=names, progress=False)
    for each in [*everything(part), *part[:5]]:
        page = each._repr_html_()
        assert "<script" not in page
        assert "<b>" not in page
        assert "<i>" not in page
    assert "relu&lt;b&gt;" in part._repr_html_()
    assert len(part._repr_html_()) < 100_000


def test_the_picture_has_the_classes_of_its_points(part: sc.Partition) -> None:
    image = image_in(part._repr_html_())
    side = len(image)
    low, high = part.domain.corners.amin(0), part.domain.corners.amax(0)
    place = torch.rand(500, 2, dtype=torch.float64)
    row = ((1 - place[:, 1]) * side).long().clamp(0, side - 1).numpy()
    column = (place[:, 0] * side).long().clamp(0, side - 1).numpy()
    colors = pictures.class_colors(3)
    found = image[row, column, :3]
    # The hue of a paler or darker colour is that of its distance from grey.
    off = found - found.mean(1, keepdims=True)
    hue = colors - colors.mean(1, keepdims=True)
    scores = off @ (hue / np.linalg.norm(hue, axis=1, keepdims=True)).T
    truth = part.model(low + place * (high - low)).argmax(1).numpy()
    strong = np.linalg.norm(off, axis=1) > 0.05
    assert strong.mean() > 0.5
    assert (scores.argmax(1) == truth)[strong].mean() > 0.97


def test_the_picture_of_one_output_has_its_sign() -> None:
    torch.manual_seed(1)
    part = cut_up(network(1))
    image = image_in(part._repr_html_())
    place = part.sample(300)
    value = part.model(place)[:, 0].detach()
    side = len(image)
    low, high = part.domain.corners.amin(0), part.domain.corners.amax(0)
    at = ((place - low) / (high - low) * side).long().clamp(0, side - 1).numpy()
    red_less_blue = (
        image[side - 1 - at[:, 1], at[:, 0], 0] - image[side - 1 - at[:, 1], at[:, 0], 2]
    )
    clear = value.abs().numpy() > 0.1 * float(value.abs().max())
    assert ((red_less_blue > 0) == (value.numpy() > 0))[clear].mean() > 0.97


@pytest.mark.parametrize(
    "domain",
    [
        sc.Domain.box((-100, -1), (100, 1)),
        sc.Domain.box((1e6, 1e6), (1e6 + 1e-3, 1e6 + 1)),
        sc.Domain.polygon([[0.0, 0.0], [3.0, 0.0], [0.0, 1e-6]]),
        sc.Domain.box(-1e-9, 1e-9),
        sc.Domain.polygon(
            [[np.cos(t), np.sin(t)] for t in np.linspace(0, 2 * np.pi, 2000, endpoint=False)]
        ),
    ],
)
def test_shapes_of_all_kinds(domain: sc.Domain) -> None:
    part = sc.partition(network(3), domain, progress=False)
    for each in everything(part):
        assert 0 < len(each._repr_html_()) < 100_000


@pytest.mark.parametrize("outputs", [1, 2, 40, 1000])
def test_any_number_of_outputs(outputs: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, outputs))
    part = sc.partition(model, sc.Domain.box(-3, 3), progress=False)
    for each in (part, part[0], part.class_regions(), part.decision_boundary()):
        assert 0 < len(each._repr_html_()) < 100_000


def test_empty_curves_and_a_final_sigmoid() -> None:
    model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1), nn.Sigmoid())
    part = sc.partition(model, sc.Domain.box(-1, 1), names=["no", "yes"], progress=False)
    page = part._repr_html_()
    assert "final sigmoid left out" in page
    assert "no" in page
    nowhere = part.level_set([1e9])
    assert len(nowhere) == 0
    assert "<img" in nowhere._repr_html_()


def test_many_regions_stay_small() -> None:
    """A fine arrangement of lines, of which the picture is noise."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 700), nn.ReLU(), nn.Linear(700, 4))
    part = sc.partition(model, sc.Domain.box(-2, 2), progress=False)
    assert len(part) > 100_000
    for each in (part, part[0], part.class_regions(), part.decision_boundary(), part.neurons()):
        assert len(each._repr_html_()) < 100_000


def test_a_crowded_partition_is_drawn_with_fewer_points(
    part: sc.Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    fine = image_in(part._repr_html_())
    monkeypatch.setattr(pictures, "_MANY", 1)
    coarse = image_in(part._repr_html_())
    assert fine.shape == coarse.shape
    assert np.abs(fine - coarse).mean() < 0.05


def test_noise_fits_in_a_page() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (440, 440, 4), dtype=np.uint8)
    assert len(png.data_uri(noise)) < 90_000


def test_pixels_survive_the_file() -> None:
    rng = np.random.default_rng(0)
    colors = rng.integers(0, 256, (200, 4), dtype=np.uint8)
    pixels = colors[rng.integers(0, 200, (30, 40))]
    read = plt.imread(io.BytesIO(png.png(pixels)), format="png")
    assert np.abs(np.round(255 * read) - pixels).max() <= 32  # of alpha; colours are closer
    assert np.abs(np.round(255 * read[..., :3]) - pixels[..., :3]).max() <= 4


def test_a_rare_colour_is_kept() -> None:
    pixels = np.zeros((100, 100, 4), np.uint8)
    pixels[..., 3] = 255
    pixels[..., 0] = np.arange(100)[:, None] * 2
    pixels[..., 1] = np.arange(100) * 2
    pixels[50, 50] = (0, 0, 255, 255)
    read = plt.imread(io.BytesIO(png.png(pixels)), format="png")
    assert read[50, 50].tolist() == [0, 0, 1, 1]


def test_cards_without_matplotlib() -> None:
    """And without importing it, where it is installed."""
    code = """
import sys
sys.modules["matplotlib"] = None
import torch, splinecam as sc
net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
part = sc.partition(net, sc.Domain.box(-1, 1), progress=False)
for each in (part, part[0], part.decision_boundary(), part.class_regions(), part.domain):
    assert "<svg" in each._repr_html_() or "<img" in each._repr_html_()
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cards_on_a_gpu() -> None:
    part = sc.partition(network(3), sc.Domain.box(-3, 3), device="cuda", progress=False)
    for each in everything(part):
        assert each._repr_html_()
