"""Panels by layer, histograms and grids of images: the pictures show the right data."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.patches import StepPatch
from torch import nn

import splinecam as sc
from drawing import cut_up, network, pixels, scene_of
from splinecam.plot import histograms, regions
from splinecam.plot import images as images_module
from splinecam.plot.artists import SegmentLines
from splinecam.questions.measures import regions_by_layer

pytestmark = pytest.mark.few(1)


@pytest.fixture(scope="module", params=[1, 3])
def part(request: pytest.FixtureRequest) -> sc.Partition:
    return cut_up(network(request.param))


@pytest.fixture(scope="module")
def single() -> sc.Partition:
    return cut_up(network(1))


# -- layers --------------------------------------------------------------------------------------


def drawn_lines(ax: Any) -> list[np.ndarray]:
    return [np.asarray(c.get_segments()) for c in ax.collections if isinstance(c, SegmentLines)]


def test_regions_after_each_layer_are_those_of_the_truncated_network() -> None:
    model = network(2, width=9, depth=4)
    counts = regions_by_layer(cut_up(model))
    assert counts == [len(cut_up(model[: 2 * k + 2])) for k in range(4)]
    assert counts == sorted(counts)
    assert regions_by_layer(cut_up(nn.Linear(2, 1))) == []


def test_maxima_and_knots_are_counted_layer_by_layer() -> None:
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Linear(2, 8), nn.Hardtanh(), nn.Unflatten(1, (1, 8)), nn.MaxPool1d(2), nn.Flatten()
    )
    full = nn.Sequential(*model, nn.Linear(4, 4), nn.ReLU()).double()
    counts = regions_by_layer(cut_up(full))
    assert counts == [len(cut_up(full[:k])) for k in (2, 4, 7)]


def test_panels_have_the_lines_of_their_layers() -> None:
    part = cut_up(network(1, depth=3))
    figure = part.plot.layers()
    assert len(figure.axes) == 4
    for layer, ax in enumerate(figure.axes[:-1]):
        earlier, latest, rim, curve = drawn_lines(ax)
        assert len(earlier) == int(
            ((part.mesh.edge_layer >= 0) & (part.mesh.edge_layer < layer)).sum()
        )
        assert len(latest) == int((part.mesh.edge_layer == layer).sum())
        every = part.neurons(layer=layer)
        unit = int(every.units[every.unit_lengths.argmax(), 1])
        assert np.array_equal(curve, part.neurons(layer=layer, unit=unit).ends)
        assert np.array_equal(curve, rim)
        title = ax.get_title()
        regions = regions_by_layer(part)[layer]
        assert (
            title
            == f"layer {layer + 1} of 3 ({part.layers[layer]!r})\n{regions:,} regions, unit {unit}"
        )
    assert pixels(figure).min() < 0.5


def test_chosen_layers_and_units() -> None:
    part = cut_up(network(1, depth=3))
    figure = part.plot.layers(layers=["3", 0], unit=[2, None], whole=False)
    second, first = figure.axes
    assert "unit 2" in second.get_title()
    assert len(drawn_lines(second)) == 4
    assert "unit" not in first.get_title()
    assert len(drawn_lines(first)) == 2
    by_layer = part.plot.layers(unit={"1": 4}, columns=2, color="slope", size=2.0)
    assert ["unit" in ax.get_title() for ax in by_layer.axes] == [True, False, False, False]


def test_large_partitions_show_the_lines_that_units_drew(monkeypatch: pytest.MonkeyPatch) -> None:
    part = cut_up(network(1, depth=2))
    exact = drawn_lines(part.plot.layers(unit=[1, 1]).axes[1])[3]
    monkeypatch.setattr(regions, "_MANY", 0)
    own = drawn_lines(part.plot.layers(unit=[1, 1]).axes[1])[3]

    def length(ends: np.ndarray) -> float:
        return float(np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1).sum())

    assert length(own) == pytest.approx(length(exact))


def test_units_that_do_not_switch_are_named_so() -> None:
    model = network(1)
    with torch.no_grad():
        model[2].weight[7], model[2].bias[7] = 0.0, 1.0
    first, second, whole = cut_up(model).plot.layers(unit=[0, 7]).axes
    assert second.get_title().endswith("unit 7 switches nowhere")
    assert first.get_title().endswith("regions, unit 0")
    assert whole.get_title().startswith("all layers\n")


@pytest.mark.parametrize("size", [(2, 2), (4, 1), (1, 3)])
@pytest.mark.parametrize("options", [{}, {"axes": "ticks", "legend": True}])
def test_panels_fill_their_figure(size: tuple[int, int], options: dict[str, Any]) -> None:
    part = sc.partition(network(3), sc.Domain.box((0, 0), size), progress=False)
    figure = part.plot.layers(unit=[None, 1], **options)
    ink = pixels(figure).min(2) < 0.5
    inch = figure.dpi
    (top, bottom), (left, right) = (np.flatnonzero(ink.any(k))[[0, -1]] for k in (1, 0))
    high, wide = ink.shape
    assert 0.03 < top / inch < 0.2
    assert 0.03 < left / inch < 0.2
    assert max(high - bottom, wide - right) / inch < 0.2 + 0.1 * bool(options)
    for ax in figure.axes:
        assert ax.get_window_extent().width > 1.8 * inch
        assert ax.title.get_window_extent().width < ax.get_window_extent().width + 2


def test_wrong_options_of_plot_layers_are_rejected() -> None:
    part = cut_up(network(1))
    for options, error in [
        ({"unit": [1]}, ValueError),
        ({"unit": 3}, ValueError),
        ({"unit": {"1": 2}, "layers": ["3"]}, ValueError),
        ({"unit": {"1": 99}}, IndexError),
        ({"layers": ["9"]}, sc.SplineCamError),
        ({"columns": 0}, ValueError),
        ({"layers": [], "whole": False}, ValueError),
    ]:
        with pytest.raises(error):
            part.plot.layers(**options)


# -- histograms ----------------------------------------------------------------------------------


def heights(ax: Any) -> list[np.ndarray]:
    """Of the outlines in some axes."""
    found = [p for p in ax.patches if isinstance(p, StepPatch) and not p.get_fill()]
    return [np.asarray(p.get_data().values) for p in found]


def test_bars_count_the_regions(part: sc.Partition) -> None:
    figure = part.plot.histograms()
    assert [ax.get_xlabel() for ax in figure.axes][:3] == ["area", "eccentricity", "vertices"]
    for ax in figure.axes:
        (bars,) = heights(ax)
        assert bars.sum() == len(part)
    counts = torch.bincount(part.mesh.counts())[3:]
    assert np.array_equal(heights(figure.axes[2])[0], counts)
    assert figure.axes[0].get_xscale() == "log"
    assert f"{float(part.areas.median()):.3g}"[:3] in figure.axes[0].get_title(loc="right")
    assert pixels(figure).min() < 0.9


def test_several_partitions_are_compared_by_shares(part: sc.Partition) -> None:
    other = cut_up(network(1, width=5))
    figure = sc.plot.plot_histograms({"a": part, "b": other}, by_area=True, columns=["area"])
    (ax,) = figure.axes
    assert [bars.sum() for bars in heights(ax)] == pytest.approx([100, 100])
    names = [text.get_text().split(":")[0] for text in ax.get_legend().get_texts()]
    assert names == ["a", "b"]
    again = part.plot.histograms(columns="area", label="a")
    other.plot.histograms(columns="area", label="b", axes=again.axes)
    first, second = (p for p in again.axes[0].patches if not p.get_fill())
    assert first.get_edgecolor() != second.get_edgecolor()
    assert first.get_linestyle() != second.get_linestyle()
    assert again.axes[0].get_ylim()[1] > max(bars.max() for bars in heights(again.axes[0]))


def test_the_median_by_area_halves_the_domain(single: sc.Partition) -> None:
    values, weight = single.areas.numpy(), single.areas.numpy()
    middle = histograms._median(values, weight)
    assert weight[values < middle].sum() <= weight.sum() / 2 <= weight[values <= middle].sum()
    assert histograms._median(values, np.ones_like(values)) == np.median(values)


def test_zeros_on_a_logarithmic_axis_are_noted() -> None:
    model = nn.Sequential(nn.Linear(2, 30), nn.ReLU(), nn.Linear(30, 1)).double()
    with torch.no_grad():
        model[0].bias.fill_(-0.4)
        model[2].weight.copy_(10 ** torch.linspace(-4, 4, 30))
    part = cut_up(model, side=1.0)
    slope = part.table()["slope_frobenius"]
    dead = int((slope <= 2**-52 * slope.max()).sum())
    ax = part.plot.histograms(columns=["slope_frobenius"]).axes[0]
    assert dead > 0
    assert ax.get_xscale() == "log"
    assert heights(ax)[0].sum() + dead == len(part)
    assert ax.texts[0].get_text() == f"at 0: {dead}"
    linear = part.plot.histograms(columns=["slope_frobenius"], log=False).axes[0]
    assert heights(linear)[0].sum() == len(part)


def test_columns_of_all_kinds(single: sc.Partition) -> None:
    columns = ["class", "output_0", "slope_spectral_full", "perimeter", "centroid_u"]
    figure = single.plot.histograms(columns=columns, bins=7)
    assert [bars.sum() for ax in figure.axes for bars in heights(ax)] == [len(single)] * 5
    assert figure.axes[0].get_title(loc="right") == ""
    lonely = cut_up(nn.Linear(2, 1)).plot.histograms(log=True)
    assert [heights(ax)[0].sum() for ax in lonely.axes] == [1] * 4


def test_partitions_in_a_list(single: sc.Partition) -> None:
    (ax,) = sc.plot.plot_histograms([single, single], columns="area").axes
    names = [text.get_text().split(":")[0] for text in ax.get_legend().get_texts()]
    assert names == ["[0]", "[1]"]
    for wrong in (3, "area", [single, 3], {"a": single.stats()}):
        with pytest.raises(TypeError, match="partitions"):
            sc.plot.plot_histograms(wrong)


def test_wrong_options_of_plot_histograms_are_rejected(single: sc.Partition) -> None:
    for options, error, what in [
        ({"columns": ["size"]}, sc.SplineCamError, "eccentricity"),
        ({"columns": []}, ValueError, "one column"),
        ({"bins": 0}, ValueError, "bins"),
        ({"columns": ["output_0"], "log": True}, ValueError, "negative"),
        ({"axes": plt.figure().add_subplot()}, ValueError, "1 axes were given, but 4"),
    ]:
        with pytest.raises(error, match=what):
            single.plot.histograms(**options)
    with pytest.raises(ValueError, match="one partition"):
        sc.plot.plot_histograms({})


# -- images --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "option"),
    [
        ((6, 4, 5), None),
        ((6, 1, 4, 5), None),
        ((6, 3, 4, 5), None),
        ((6, 4, 5, 3), None),
        ((6, 20), (4, 5)),
        ((6, 60), (3, 4, 5)),
    ],
)
def test_images_of_all_shapes(shape: tuple[int, ...], option: tuple[int, ...] | None) -> None:
    images = torch.rand(shape, dtype=torch.float64)
    figure = sc.plot.image_grid(images, shape=option, titles=list("abcdef"), columns=4)
    ax = figure.axes[0]
    assert [text.get_text() for text in ax.texts] == list("abcdef")
    each = images.reshape(6, *(option or shape[1:]))
    for image, drawn in zip(each, ax.images, strict=True):
        expected = image if image.shape[-1] == 3 or image.ndim == 2 else image.permute(1, 2, 0)
        assert np.array_equal(
            drawn.get_array(), expected.squeeze(-1) if 3 not in shape else expected
        )
    assert pixels(figure).min() < 0.5


def test_limits_of_images() -> None:
    whole = sc.plot.image_grid(np.array([[[0, 51]]], np.uint8)).axes[0].images[0].get_array()
    assert whole.tolist() == [[0.0, 0.2]]
    wide = sc.plot.image_grid(torch.tensor([[[-1.0, 1.0, 3.0]]])).axes[0].images[0].get_array()
    assert wide.tolist() == [[0.0, 0.5, 1.0]]
    given = sc.plot.image_grid(torch.tensor([[[0.0, 4.0]]]), limits=(2, 6)).axes[0].images[0]
    assert given.get_array().tolist() == [[0.0, 0.5]]


def test_titles_stay_within_their_images() -> None:
    titles = ["sneaker | ankle boot", "a"]
    figure = sc.plot.image_grid(torch.rand(2, 8, 8), titles=titles)
    figure.canvas.draw()
    ax = figure.axes[0]
    for text, image in zip(ax.texts, ax.images, strict=True):
        box, frame = text.get_window_extent(), image.get_window_extent()
        assert frame.x0 - 1 <= box.x0 < box.x1 <= frame.x1 + 1
        assert box.y0 >= frame.y1 - 1


def test_wrong_images_are_rejected() -> None:
    grid = sc.plot.image_grid
    with pytest.raises(sc.SplineCamError, match="Give shape="):
        grid(torch.rand(3, 16))
    with pytest.raises(sc.SplineCamError, match="do not fit"):
        grid(torch.rand(3, 16), shape=(5, 5))
    with pytest.raises(sc.SplineCamError, match="not images"):
        grid(torch.rand(3, 7, 16, 16))
    with pytest.raises(ValueError, match="no images"):
        grid(torch.rand(0, 4, 4))
    with pytest.raises(ValueError, match="2 titles for 3"):
        grid(torch.rand(3, 4, 4), titles=["a", "b"])
    with pytest.raises(ValueError, match="ascending"):
        grid(torch.rand(3, 4, 4), limits=(1, 1))
    with pytest.raises(TypeError, match="numbers"):
        grid(np.array([["a"]]))


@pytest.fixture(scope="module")
def pictures() -> sc.Partition:
    model = nn.Sequential(nn.Flatten(), *network(4, width=20, inputs=36))
    torch.manual_seed(0)
    corners = 4 * torch.randn(3, 6, 6, dtype=torch.float64)
    with torch.no_grad():  # all classes meet in the middle
        model[-1].bias -= model(corners.mean(0, keepdim=True))[0]
    return sc.partition(model, sc.Domain.through(*corners, margin=0.3), progress=False)


def test_samples_tie_in_the_two_classes_of_their_titles(pictures: sc.Partition) -> None:
    wide = 1000.0
    figure = pictures.decision_boundary().plot_samples(30, limits=(-wide, wide))
    ax = figure.axes[0]
    assert len(ax.images) == 30
    for image, text in zip(ax.images, ax.texts, strict=True):
        x = torch.tensor(np.asarray(image.get_array()) * 2 * wide - wide)
        out = pictures.model(x[None])[0].detach()
        i, j = map(int, text.get_text().split(" $|$ "))
        assert i < j
        assert float(out[i]) == pytest.approx(float(out[j]), abs=1e-6)
        assert float(out.max()) == pytest.approx(float(out[i]), abs=1e-6)
    titles = [text.get_text() for text in ax.texts]
    assert titles == sorted(titles)
    assert len(set(titles)) > 1


def test_samples_by_name_level_and_unit(pictures: sc.Partition) -> None:
    seed = torch.Generator().manual_seed(0)
    named = pictures.decision_boundary().plot_samples(3, names=list("abcd"), generator=seed)
    assert all(set(t.get_text()) <= set("abcd $|$ ") for t in named.axes[0].texts)
    level = float(pictures.values[:, 0].median())
    levels = pictures.level_set([level], output=0).plot_samples(2)
    assert [t.get_text() for t in levels.axes[0].texts] == [f"{level:.4g}"] * 2
    units = pictures.neurons(
        layer=0, unit=int(pictures.mesh.edge_unit[pictures.mesh.edge_layer == 0][0])
    )
    assert units.plot_samples(1).axes[0].texts[0].get_text().startswith(pictures.layers[0])
    assert (
        not pictures.decision_boundary().plot_samples(2, titles=False).axes[0].texts[0].get_text()
    )


def test_samples_that_are_no_images(part: sc.Partition, pictures: sc.Partition) -> None:
    with pytest.raises(sc.SplineCamError, match="Give shape="):
        part.decision_boundary().plot_samples()
    assert part.decision_boundary().plot_samples(2, shape=(1, 2)).axes
    with pytest.raises(ValueError, match="2 names for 4"):
        pictures.decision_boundary().plot_samples(names=["a", "b"])


def test_a_far_sample_leaves_the_others_their_contrast() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), *network(4, width=20, inputs=36))
    corners = torch.rand(3, 6, 6, dtype=torch.float64)
    for shift, spread in [(0.0, 1.0), (-7.0, 10.0)]:
        given = shift + spread * corners
        with torch.no_grad():
            model[-1].bias -= model(given.mean(0, keepdim=True))[0]
        domain = sc.Domain.through(*given, margin=0.3)
        boundary = sc.partition(model, domain, progress=False).decision_boundary()
        images = boundary.plot_samples(40).axes[0].images
        shown = np.stack([np.asarray(image.get_array()) for image in images])
        assert shown.min() == 0
        assert shown.max() == 1
        assert np.ptp(np.percentile(shown, (10, 90))) > 0.4
    pixels = np.array([*np.linspace(0.1, 0.9, 97), -5.0, 0.0, 30.0])
    assert images_module.sample_limits(pixels, np.array([0.2, 0.8])) == (0, 1)
    low, high = images_module.sample_limits(pixels, np.array([0.2, 1.8]))
    assert -1 < low < 0.2 < 0.8 < high < 2
    assert images_module.sample_limits(np.full(9, 3.0), np.array([3.0])) == (3.0, 4.0)


# -- styles -----------------------------------------------------------------------------------


def brightness(color: Any) -> float:
    return float(np.mean(to_rgb(color)))


def figures(part: sc.Partition, pictures: sc.Partition) -> dict[str, Any]:
    grid = plt.figure().add_subplot(1, 2, 1, projection="3d")
    return {
        "surface": part.plot.surface(output=0, colorbar=True).figure,
        "given": part.plot.surface(output=0, ax=grid, color="class", colorbar=True).figure,
        "layers": part.plot.layers(),
        "histograms": part.plot.histograms(),
        "several": sc.plot.plot_histograms([part, part]),
        "samples": pictures.decision_boundary().plot_samples(4),
    }


@pytest.mark.slow
def test_figures_can_be_pickled(part: sc.Partition, pictures: sc.Partition) -> None:
    for name, figure in figures(part, pictures).items():
        pixels(figure)  # layouts settle
        before = pixels(figure)
        again = pickle.loads(pickle.dumps(figure))
        assert np.array_equal(pixels(again), before), name


@pytest.mark.slow
def test_dark_backgrounds(part: sc.Partition, pictures: sc.Partition) -> None:
    from matplotlib.text import Text

    with plt.style.context("dark_background"):
        made = figures(part, pictures)
    for name, figure in made.items():
        assert pixels(figure)[:3].mean() < 0.1
        texts = [text for text in figure.findobj(Text) if text.get_text().strip()]
        colors = [brightness(text.get_color()) for text in texts if text.get_visible()]
        assert min(colors) > 0.6, name
    first, second = made["layers"].axes[:2]
    earlier, latest, *_ = (each for each in second.collections if isinstance(each, SegmentLines))
    for lines in (latest, first.collections[1]):
        assert brightness(lines.get_color()[0]) > 0.8
    assert 0.2 < brightness(earlier.get_color()[0]) < 0.6


def test_settings_of_grids_and_letters(part: sc.Partition, pictures: sc.Partition) -> None:
    plain = pixels(part.plot.layers())
    with plt.rc_context({"axes.grid": True, "grid.color": "red", "axes.facecolor": "#eeeeff"}):
        assert np.array_equal(pixels(part.plot.layers()), plain)
        for ax in part.plot.histograms().axes:
            assert ax.get_axisbelow() is True
    letters = {"text.color": "green", "axes.labelcolor": "blue", "xtick.labelcolor": "red"}
    with plt.rc_context(letters):
        ax = part.plot.surface(output=0)
        layers = part.plot.layers()
        bars = part.plot.histograms(columns="area").axes[0]
    assert ax.zaxis.label.get_color() == "blue"
    assert {label.get_color() for label in ax.xaxis.get_ticklabels()} == {"red"}
    assert {panel.title.get_color() for panel in layers.axes} == {"green"}
    assert (
        bars.findobj(lambda text: "median" in getattr(text, "get_text", str)())[0].get_color()
        == "green"
    )


# -- without the model ---------------------------------------------------------------------------


def test_figures_of_a_partition_without_its_model(part: sc.Partition, tmp_path: Path) -> None:
    part.save(tmp_path / "part.npz")
    loaded = sc.load(tmp_path / "part.npz")
    ax = loaded.plot.surface(output=0, color="slope")
    points = scene_of(part.plot.surface(output=0, color="slope")).points
    assert np.allclose(scene_of(ax).points, points)
    panels = loaded.plot.layers()
    assert [len(drawn_lines(panel)) for panel in panels.axes[:-1]] == [2, 2]
    assert heights(loaded.plot.histograms().axes[0])[0].sum() == len(part)
    with pytest.raises(sc.SplineCamError, match="model"):
        loaded.plot.layers(unit=[0, 0])


def test_a_grid_on_axes_of_ones_own() -> None:
    figure, (_, ax) = plt.subplots(1, 2)
    assert sc.plot.image_grid(torch.rand(6, 4, 8), ax=ax, columns=3) is figure
    assert len(ax.images) == 6
    assert ax.get_aspect() == 1
