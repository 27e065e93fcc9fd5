"""What users try first: loops over regions, equal domains, memory="4GB", names of classes."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from torch import nn

import splinecam as sc
from drawing import cut_up, network, pixels
from splinecam._util.amounts import bytes_of
from splinecam._util.options import memory_of
from splinecam.cli import option_types
from splinecam.plot.palette import class_colors
from splinecam.plot.side_layout import SideLegend

NAMES = ("cat", "dog", "horse")
BOX = sc.Domain.box(-3, 3)


@pytest.fixture(scope="module")
def part() -> sc.Partition:
    return sc.partition(network(3), BOX, names=NAMES, progress=False)


@pytest.fixture(scope="module")
def other() -> sc.Partition:
    return cut_up(network(3))


# -- a partition is a sequence of regions --------------------------------------------------------


def test_a_partition_is_a_sequence_of_its_regions(part: sc.Partition, other: sc.Partition) -> None:
    regions = list(part)
    assert [region.index for region in regions] == list(range(len(part)))
    assert all(isinstance(region, sc.Region) for region in regions)
    assert part[0] == regions[0] == part.regions[0]
    assert part[-1] == regions[-1]
    assert part[2:8:2] == regions[2:8:2]
    assert part[np.int64(3)] == part[torch.tensor(3)] == regions[3]
    assert next(reversed(part)) == regions[-1]
    with pytest.raises(IndexError, match=f"of {len(part):,} regions"):
        part[len(part)]


def test_regions_are_in_their_own_partition(part: sc.Partition, other: sc.Partition) -> None:
    assert part[3] in part
    assert part[3] in part.regions
    assert other[3] not in part
    assert 3 not in part
    assert part.index(part[7]) == 7
    assert part.count(part[7]) == 1
    assert part.count(other[7]) == 0
    with pytest.raises(ValueError, match="not among these regions"):
        part.index(other[7])
    with pytest.raises(ValueError, match="not among these regions"):
        part.index(part[7], 8)
    assert len({part[3], part[3], part[4]}) == 2
    assert len({part, other}) == 2
    assert part != other


def test_neighbours_are_plain_ints(part: sc.Partition) -> None:
    found = part[5].neighbours
    assert isinstance(found, tuple)
    assert all(type(k) is int for k in found)
    assert list(found) == sorted(found) == part.neighbours(5).tolist()
    assert json.loads(json.dumps(found)) == list(found)


# -- domains -------------------------------------------------------------------------------------


def test_equal_domains_are_equal() -> None:
    x = torch.randn(3, 4, 5, dtype=torch.float64)
    makers: list[Any] = [
        lambda: sc.Domain.box(-1, 1),
        lambda: sc.Domain.box((0, 0), (2, 1)),
        lambda: sc.Domain.box(-1, 1, input_shape=(1, 2)),
        lambda: sc.Domain.through(*x),
        lambda: sc.Domain.around(x[0], side=2.0, seed=1),
        lambda: sc.Domain.around(x[0], side=2.0, seed=2),
        lambda: sc.Domain.around(x[1], side=2.0, seed=1),
        lambda: sc.Domain.box(-1, 1).zoom(2),
    ]
    domains = [make() for make in makers]
    again = [make() for make in makers]
    assert domains == again
    assert [hash(each) for each in domains] == [hash(each) for each in again]
    assert len(set(domains + again)) == len(makers)
    assert {domains[0]: "here"}[again[0]] == "here"
    assert domains[0] != "domain"
    assert pickle.loads(pickle.dumps(domains[3])) == domains[3]


def test_the_first_corner_and_the_sign_of_zero_do_not_matter() -> None:
    corners = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
    one = sc.Domain.polygon(corners)
    turned = sc.Domain.polygon(corners[2:] + corners[:2])
    minus = sc.Domain.polygon([[-0.0, 0.0], [1.0, -0.0], [1.0, 1.0], [0.0, 1.0]])
    backwards = sc.Domain.polygon(corners[::-1])
    assert one == turned == minus == backwards == sc.Domain.box(0, 1)
    assert len({one, turned, minus, backwards}) == 1
    assert one != sc.Domain.polygon(corners[:3])


def test_a_loaded_domain_is_the_same(part: sc.Partition, tmp_path: Path) -> None:
    part.save(tmp_path / "part.npz")
    assert sc.load(tmp_path / "part.npz").domain == part.domain


# -- memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "number"),
    [
        ("4GB", 4 * 10**9),
        ("4gb", 4 * 10**9),
        ("4 GB", 4 * 10**9),
        ("4G", 4 * 10**9),
        ("1.5GB", 1_500_000_000),
        ("512MiB", 512 * 2**20),
        ("2GiB", 2**31),
        ("2e9", 2 * 10**9),
        ("2000000000", 2 * 10**9),
        ("2000000000b", 2 * 10**9),
    ],
)
def test_memory_in_words(word: str, number: int) -> None:
    assert memory_of(word) == bytes_of(word) == option_types.bytes_of_memory(word) == number


@pytest.mark.parametrize(
    "word", ["", "GB", "much", "-4GB", "0GB", "4XB", "4GiG", "nan", "inf", "1e999", "1.5"]
)
def test_memory_in_other_words(word: str) -> None:
    with pytest.raises(ValueError, match='is not an amount of memory: write "500MB", "4GB"'):
        sc.partition(nn.Linear(2, 1), BOX, memory=word)
    with pytest.raises(Exception, match="is not an amount of memory"):
        option_types.bytes_of_memory(word)


def test_memory_in_words_limits_a_partition() -> None:
    model = network(1)
    part = sc.partition(model, BOX, memory="4GB", progress=False)
    (swept,) = sc.sweep(model, [BOX], memory="4GB", progress=False)
    assert len(part) == len(swept) == len(cut_up(model))
    with pytest.raises(sc.LimitError, match="memory=2,000 bytes"):
        sc.partition(network(1, width=60), BOX, memory="2kB", progress=False)


# -- names ---------------------------------------------------------------------------------------


def test_names_are_remembered(part: sc.Partition, tmp_path: Path) -> None:
    assert part.names == NAMES
    assert cut_up(network(3)).names is None
    part.save(tmp_path / "named.npz")
    assert sc.load(tmp_path / "named.npz").names == NAMES
    assert pickle.loads(pickle.dumps(part)).names == NAMES
    swept = sc.sweep(part.model, [BOX, BOX.zoom(2)], names=NAMES, progress=False)
    assert [each.names for each in swept] == [NAMES] * 2
    assert "'cat', 'dog', 'horse'" in repr(part)


def test_names_can_be_set_later() -> None:
    part = cut_up(network(3))
    part.names = ["a", "b", "c"]
    assert part.names == ("a", "b", "c")
    for wrong, error in (
        (["a", "b"], ValueError),
        ("abc", TypeError),
        (["a", "b", "a"], ValueError),
    ):
        with pytest.raises(error, match="names"):
            part.names = wrong
    with pytest.raises(TypeError, match="names must be a list"):
        part.names = 3  # type: ignore[assignment]
    assert part.names == ("a", "b", "c")
    part.names = None
    assert part.names is None


def test_names_are_checked_before_anything_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splinecam._partition.run", None)
    with pytest.raises(ValueError, match="names has 2 entries, but there are 3 classes"):
        sc.partition(network(3), BOX, names=["a", "b"])
    with pytest.raises(ValueError, match="2 classes: the class at or below the level"):
        sc.partition(network(1), BOX, names=["yes"])
    with pytest.raises(ValueError, match="names has 2 entries"):
        sc.sweep(network(3), [BOX], names=["a", "b"])


def test_files_without_names_still_load(part: sc.Partition) -> None:
    """As versions before names wrote them."""
    file = io.BytesIO()
    part.save(file)
    file.seek(0)
    arrays = dict(np.load(file))
    about = json.loads(arrays["about"].tobytes())
    assert tuple(about.pop("names")) == NAMES
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    old = io.BytesIO()
    np.savez(old, **arrays)
    old.seek(0)
    again = sc.load(old)
    assert again.names is None
    assert len(again) == len(part)
    about["names"] = ["only one"]
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    bad = io.BytesIO()
    np.savez(bad, **arrays)
    bad.seek(0)
    with pytest.raises(sc.FileError, match="names has 1 entries"):
        sc.load(bad)


def test_classes_by_name(part: sc.Partition) -> None:
    line = part.decision_boundary()
    i, j = max(line.pairs(), key=line.pairs().__getitem__)
    named = line.between(NAMES[j], NAMES[i])
    assert named.length == line.between(i, j).length > 0
    assert part.decision_boundary(classes=(NAMES[i], NAMES[j])).length == named.length
    assert f"classes {NAMES[i]} and {NAMES[j]}" in repr(named)
    found = part.class_regions()
    assert "dog: " in repr(found) or "cat: " in repr(found)
    for k, name in enumerate(NAMES):
        areas = [piece.area for piece in found.polygons(name)]
        assert areas == [piece.area for piece in found.polygons(k)]
    with pytest.raises(ValueError, match="no class 'cow'; the names are 'cat', 'dog', 'horse'"):
        line.between("cow", "cat")
    with pytest.raises(ValueError, match="has no names: set part"):
        cut_up(network(3)).class_regions().polygons("cat")


# -- names in pictures ---------------------------------------------------------------------------


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
    assert all(set(text.split(" | ")) <= set(NAMES) for text in legends(ax)[0])
    with pytest.raises(ValueError, match="'cow' is not among the names"):
        part.plot(points=x, labels=["cow"] * 4)


def test_samples_of_a_boundary_use_the_names_of_the_partition() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    domain = sc.Domain.around(torch.rand(4, 4), side=20.0)
    images = sc.partition(model, domain, names=NAMES, progress=False)
    figure = images.decision_boundary().plot_samples(5)
    titles = {text.get_text() for text in figure.axes[0].texts}
    assert all(set(title.split(" | ")) <= set(NAMES) for title in titles)
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
