"""Pictures use the names of the classes."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from torch import nn

import splinecam as sc
from drawing import cut_up, network, pixels
from splinecam.plot.decorations import SideLegend
from splinecam.plot.palette import class_colors

pytestmark = pytest.mark.few(1)

NAMES = ("cat", "dog", "horse")
BOX = sc.Domain.box(-3, 3)


@pytest.fixture(scope="module")
def part() -> sc.Partition:
    return sc.partition(network(3), BOX, names=NAMES, progress=False)


@pytest.fixture(scope="module")
def other() -> sc.Partition:
    return cut_up(network(3))


def legends(ax: Any) -> list[list[str]]:
    found = [each for each in ax.artists if isinstance(each, SideLegend)]
    return [[text.get_text() for text in each.get_texts()] for each in found]


def test_pictures_use_the_names_of_the_partition(part: sc.Partition) -> None:
    (shown,) = legends(part.plot())
    assert shown == [name for name in NAMES if name in shown]
    assert legends(part.plot(names=["x", "y", "z"], legend="all")) == [["x", "y", "z"]]
    x = part.sample(4)
    (both,) = legends(part.plot(points=x, labels=["horse", "cat", "dog", "cat"]))
    assert both == list(NAMES)
    ax = part.decision_boundary().plot(each=True)
    assert all(set(text.split(" $|$ ")) <= set(NAMES) for text in legends(ax)[0])
    with pytest.raises(ValueError, match="'cow' is not among the names"):
        part.plot(points=x, labels=["cow"] * 4)


def test_samples_of_a_boundary_use_the_names_of_the_partition() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    domain = sc.Domain.around(torch.rand(4, 4), side=20.0)
    images = sc.partition(model, domain, names=NAMES, progress=False)
    figure = images.decision_boundary().plot_samples(5)
    titles = {text.get_text() for text in figure.axes[0].texts}
    assert all(set(title.split(" $|$ ")) <= set(NAMES) for title in titles)
    assert titles


def test_legends_of_all_classes() -> None:
    """Where one class has all of the domain, the legend and the colours are those of the whole."""
    model = network(3)
    whole, small = cut_up(model), sc.partition(model, BOX.zoom(1000, at=(2.5, 2.5)), progress=False)
    (winner,) = small.class_regions().areas.nonzero()[:, 0].tolist()
    assert legends(small.plot()) == [[str(winner)]]
    assert legends(small.plot(legend="all")) == [["0", "1", "2"]]
    assert legends(small.plot(legend=[2, 0])) == [["0", "2"]]
    small.names = NAMES
    assert legends(small.plot(legend="all")) == [list(NAMES)]
    assert legends(small.plot(legend=["horse", "cat"])) == [["cat", "horse"]]
    assert legends(small.plot(legend=False)) == []
    assert legends(small.plot(legend=[])) == []

    def swatches(part: sc.Partition) -> list[Any]:
        (found,) = [x for x in part.plot(legend="all").artists if isinstance(x, SideLegend)]
        return [patch.get_facecolor() for patch in found.get_patches()]

    assert swatches(small) == swatches(whole)


def test_pictures_of_a_series_have_one_layout() -> None:
    """The picture stays in its place while classes come and go."""
    model = network(3)
    boxes = [BOX.zoom(1000, at=(2.5, 2.5)), BOX]
    places = []
    for box in boxes:
        part = sc.partition(model, box, names=NAMES, progress=False)
        ax = part.plot(legend="all", axes="off")
        pixels(ax.figure)
        places.append((ax.get_position().bounds, tuple(ax.figure.get_size_inches())))
    assert np.allclose(places[0][0], places[1][0])
    assert np.allclose(places[0][1], places[1][1])


def test_wrong_legends(part: sc.Partition) -> None:
    with pytest.raises(ValueError, match="legend is 'every'; give True, False, \"all\""):
        part.plot(legend="every")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="there is no class 'cow'"):
        part.plot(legend=["cow"])
    with pytest.raises(IndexError, match="class 3 of 3 classes"):
        part.plot(legend=[3])


def test_all_layers_in_a_legend() -> None:
    part = sc.partition(network(1), BOX.zoom(1e6, at=(1.234, 2.345)), progress=False)
    assert len(part) == 1
    assert legends(part.plot(color="layer")) == [["none"]]
    assert legends(part.plot(color="layer", legend="all")) == [list(part.layers)]


@pytest.mark.parametrize("labels", [list, np.array, tuple])
def test_string_labels_without_names(other: sc.Partition, labels: Any) -> None:
    """Nobody knows which class they are: they have a legend and colours of their own."""
    x = other.sample(4)
    given = labels(["pig", "cow", "pig", "hen"])
    ax = other.plot(points=x, labels=given, legend="all")
    assert legends(ax) == [["0", "1", "2"], ["cow", "hen", "pig"]]
    face = ax.collections[-1].get_facecolor()[:, :3]
    assert np.allclose(face, class_colors(6)[[5, 3, 5, 4]])
    ax = other.plot(color="slope", points=x, labels=given)
    assert legends(ax) == [["cow", "hen", "pig"]]
    assert np.allclose(ax.collections[-1].get_facecolor()[:, :3], class_colors(3)[[2, 0, 2, 1]])
    numbers = other.plot(points=x, labels=["2", "0", "1", "0"])
    assert legends(numbers) == [["0", "1", "2"]]
    plt.close("all")


def test_string_labels_on_a_single_output() -> None:
    part = cut_up(network(1))
    x = part.sample(3)
    assert legends(part.plot(points=x, labels=["yes", "no", "yes"])) == [["no", "yes"]]
    part.names = ["no", "yes"]
    ax = part.plot(points=x, labels=["yes", "no", "yes"], color="class")
    assert legends(ax) == [["no", "yes"]]
