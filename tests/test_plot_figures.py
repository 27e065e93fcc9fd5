"""Surfaces, layer by layer panels, histograms and grids of images: what is drawn is what is so."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import StepPatch
from torch import nn

import splinecam as sc
from splinecam.plot import histograms, layers, scene
from splinecam.plot.lines import Lines
from splinecam.table import centroid_values


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    yield
    plt.close("all")


def network(outputs: int, width: int = 12, depth: int = 2, inputs: int = 2) -> nn.Sequential:
    torch.manual_seed(outputs)
    sizes = [inputs, *[width] * depth]
    hidden = [x for a, b in itertools.pairwise(sizes) for x in (nn.Linear(a, b), nn.ReLU())]
    model = nn.Sequential(*hidden, nn.Linear(width, outputs)).double()
    with torch.no_grad():
        model[-1].bias -= model(torch.zeros(1, inputs).double())[0]
    return model


def cut_up(model: nn.Module, side: float = 3.0) -> sc.Partition:
    return sc.partition(model, sc.Domain.box(-side, side), progress=False)


@pytest.fixture(scope="module", params=[1, 3])
def part(request: pytest.FixtureRequest) -> sc.Partition:
    return cut_up(network(request.param))


@pytest.fixture(scope="module")
def single() -> sc.Partition:
    return cut_up(network(1))


def pixels(figure: Any) -> np.ndarray:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba(), float)[:, :, :3] / 255


def written(figure: Any, kind: str) -> int:
    file = io.BytesIO()
    figure.savefig(file, format=kind)
    return file.tell()


# -- surfaces ------------------------------------------------------------------------------------


def scene_of(ax: Any) -> scene.Scene:
    (found,) = (c for c in ax.collections if isinstance(c, scene.Scene))
    return found


@pytest.mark.parametrize("color", ["output", "slope", "random", "numbers"])
def test_facets_are_the_regions_at_their_heights(part: sc.Partition, color: str) -> None:
    given = part.areas if color == "numbers" else color
    ax = part.plot_surface(output=0, color=given)
    items = scene_of(ax).items
    V, F, E = len(part.vertices), len(part), len(part.edges)
    assert np.array_equal(items.points[:V, :2], part.vertices)
    assert np.array_equal(items.points[:V, 2], part.values[:, 0])
    assert len(items.corners) == F + E + len(part.decision_boundary())
    for region in part.regions:
        drawn = items.points[items.corners[region.index]]
        assert np.array_equal(np.unique(drawn[:, :2], axis=0), np.unique(region.vertices, axis=0))
    assert pixels(ax.figure).min() < 0.9


def test_facets_of_classes_and_the_boundary_lie_on_the_graph(part: sc.Partition) -> None:
    k = part.values.shape[1] - 1
    for color in ("class", "output"):
        items = scene_of(part.plot_surface(output=k, color=color)).items
        z = part.model(torch.tensor(items.points[:, :2]))
        assert np.allclose(items.points[:, 2], z[:, k].detach(), atol=1e-12)
        line = items.points[items.corners[items.rank == 2][:, :2]].reshape(-1, 3)
        out = part.model(torch.tensor(line[:, :2])).detach()
        top = out.topk(2).values if k else torch.cat([out, 0 * out], 1)
        assert len(line) == 2 * len(part.decision_boundary()) > 0
        assert torch.allclose(top[:, 0], top[:, 1], atol=1e-12)


@pytest.mark.parametrize("kind", ["persp", "ortho"])
@pytest.mark.parametrize("view", [(30, -60), (10, 17), (-25, 200), (89, 45)])
def test_whatever_hides_another_is_drawn_later(
    single: sc.Partition, kind: str, view: tuple[float, float]
) -> None:
    ax = single.plot_surface(view=view)
    ax.set_proj_type(kind)
    eye = scene.eye_of(np.asarray(ax.get_proj()))
    turn = scene.painters_order(scene_of(ax).pairs, eye)
    random = np.random.default_rng(0)
    for target in random.uniform(-2.9, 2.9, (40, 2)):
        along = eye[:2] - eye[3] * target
        line = target + np.linspace(-9, 9, 4001)[:, None] * along / np.linalg.norm(along)
        if eye[3] and np.abs(eye[:2]).max() < 3:  # nothing hides another seen from above
            line = line[(line - eye[:2]) @ along <= 0]
        cell = single.locate(torch.tensor(line)).numpy()
        met = turn[cell[cell >= 0]]
        assert (np.diff(met) >= 0).all()
    assert len(np.unique(turn)) > 5


def test_contradictions_do_not_stop_the_painter() -> None:
    along = np.array([[0.0, 1.0]] * 3)
    ring = np.arange(3)
    pairs = scene.Neighbours(ring, np.roll(ring, 1), np.zeros((3, 2)), along, 3)
    turn = scene.painters_order(pairs, np.array([-1.0, 0.0, 0.0, 0.0]))
    assert sorted(turn) == [0, 1, 2]


def test_the_plane_is_between_what_is_above_and_below(single: sc.Partition) -> None:
    level = float(single.values.median())
    for view in [(30, -60), (-30, -60)]:
        ax = single.plot_surface(plane=True, level=level, view=view, color="slope")
        drawn = scene_of(ax)
        items, order = drawn.items, drawn.items.order(drawn.pairs, ax.get_proj(), level)
        heights = items.points[items.corners, 2] - level
        above, below = heights.max(1) > 1e-9, heights.min(1) < -1e-9
        assert not (above & below).any()
        place = np.argsort(order)
        plane = place[items.half == 0]
        assert len(plane) == 1
        first, last = (below, above) if view[0] > 0 else (above, below)
        assert place[first].max() < plane < place[last].min()


@pytest.mark.parametrize("colorbar", [False, True])
@pytest.mark.parametrize("size", [(2, 2), (4, 1), (1, 3)])
def test_labels_are_inside_the_figure(colorbar: bool, size: tuple[int, int]) -> None:
    model = network(1)[0]
    with torch.no_grad():
        model.weight *= 1000
    part = sc.partition(model, sc.Domain.box((0, 0), size), progress=False)
    for view in [None, (60, 10), (5, 130)]:
        ax = part.plot_surface(output=0, view=view, colorbar=colorbar)
        ax.figure.canvas.draw()
        inner = ax.figure.bbox.padded(1)
        boxes = [axis.get_tightbbox() for axis in (ax.xaxis, ax.yaxis, ax.zaxis)]
        boxes += [other.get_tightbbox() for other in ax.figure.axes if other is not ax]
        corners = np.concatenate([box.get_points() for box in boxes])
        assert all(inner.contains(*corner) for corner in corners)
        assert ax.get_zlabel() == "f, output 0"


def test_every_facet_is_seen_from_above(single: sc.Partition) -> None:
    from mpl_toolkits.mplot3d import proj3d

    ax = single.plot_surface(view=(90, -90), edges=False, boundary=False, color="random")
    figure, items = ax.figure, scene_of(ax).items
    figure.set_dpi(200)
    shown = pixels(figure)
    middle = np.concatenate([single.centroids, centroid_values(single)], 1)
    x, y, _ = proj3d.proj_transform(*middle.T, ax.M)
    column, row = ax.transData.transform(np.stack([x, y], 1)).astype(int).T
    wide = (single.areas > 0.02).numpy()
    found = shown[len(shown) - 1 - row, column]
    assert wide.sum() > 50
    assert np.abs(found - items.face[: len(single), :3])[wide].max() < 0.01


def test_the_plane_shows_no_seams() -> None:
    model = nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.zero_()
    flat = sc.partition(model, sc.Domain.box(-1, 1), progress=False)
    ax = flat.plot_surface(plane=True, level=2.0, view=(90, -90), edges=False, boundary=False)
    shown = pixels(ax.figure)
    high, wide = shown.shape[:2]
    inside = shown[high // 3 : 2 * high // 3, wide // 3 : 2 * wide // 3]
    assert np.ptp(inside, axis=(0, 1)).max() == 0
    assert inside.max() < 0.9


@pytest.mark.parametrize("kind", ["svg", "pdf"])
def test_vector_output(single: sc.Partition, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = written(single.plot_surface().figure, kind)
    monkeypatch.setattr(scene, "_PATHS", 0)
    image = written(single.plot_surface().figure, kind)
    assert min(paths, image) > 10_000
    assert paths != image


def test_surface_on_axes_of_ones_own(single: sc.Partition) -> None:
    figure = plt.figure()
    ax = figure.add_subplot(projection="3d")
    ax.view_init(20, 20)
    assert single.plot_surface(ax=ax, edges=False, boundary=False, color="class") is ax
    assert (ax.elev, ax.azim) == (20, 20)
    before = pixels(figure)
    ax.view_init(20, 140)
    assert np.abs(pixels(figure) - before).mean() > 0.01


def test_flat_surfaces() -> None:
    model = nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.zero_()
    flat = sc.partition(model, sc.Domain.box(-1, 1), progress=False)
    ax = flat.plot_surface()
    assert len(scene_of(ax).items.corners) == 1 + 4
    low, high = ax.get_zlim()
    assert low < float(model.bias.detach()) < high


def test_surface_rejects(single: sc.Partition) -> None:
    with pytest.raises(sc.SplineCamError, match="3 outputs"):
        cut_up(network(3)).plot_surface()
    with pytest.raises(sc.SplineCamError, match="one output"):
        cut_up(network(3)).plot_surface(output=0, plane=True)
    with pytest.raises(TypeError, match="projection"):
        single.plot_surface(ax=plt.figure().add_subplot())
    with pytest.raises(sc.SplineCamError, match="choose"):
        single.plot_surface(color="blurple")


# -- layers --------------------------------------------------------------------------------------


def drawn_lines(ax: Any) -> list[np.ndarray]:
    return [np.asarray(c.get_segments()) for c in ax.collections if isinstance(c, Lines)]


def test_regions_after_each_layer_are_those_of_the_truncated_network() -> None:
    model = network(2, width=9, depth=4)
    counts = cut_up(model).regions_by_layer()
    assert counts == [len(cut_up(model[: 2 * k + 2])) for k in range(4)]
    assert counts == sorted(counts)
    assert cut_up(nn.Linear(2, 1)).regions_by_layer() == []


def test_maxima_and_knots_are_counted_layer_by_layer() -> None:
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Linear(2, 8), nn.Hardtanh(), nn.Unflatten(1, (1, 8)), nn.MaxPool1d(2), nn.Flatten()
    )
    full = nn.Sequential(*model, nn.Linear(4, 4), nn.ReLU()).double()
    counts = cut_up(full).regions_by_layer()
    assert counts == [len(cut_up(full[:k])) for k in (2, 4, 7)]


def test_panels_have_the_lines_of_their_layers() -> None:
    part = cut_up(network(1, depth=3))
    figure = part.plot_layers()
    assert len(figure.axes) == 4
    for op, ax in enumerate(figure.axes[:-1]):
        earlier, latest, rim, curve = drawn_lines(ax)
        assert len(earlier) == int(((part.edge_op >= 0) & (part.edge_op < op)).sum())
        assert len(latest) == int((part.edge_op == op).sum())
        every = part.neurons(layer=op)
        unit = int(every.units[every.unit_lengths.argmax(), 1])
        assert np.array_equal(curve, part.neurons(layer=op, unit=unit).ends)
        assert np.array_equal(curve, rim)
        title = ax.get_title()
        assert f"layer {part.cuts[op]}, unit {unit}" in title
        assert f"{part.regions_by_layer()[op]:,} regions" in title
    assert pixels(figure).min() < 0.5


def test_chosen_layers_and_units() -> None:
    part = cut_up(network(1, depth=3))
    figure = part.plot_layers(layers=["3", 0], unit=[2, None], whole=False)
    second, first = figure.axes
    assert "unit 2" in second.get_title()
    assert len(drawn_lines(second)) == 4
    assert "unit" not in first.get_title()
    assert len(drawn_lines(first)) == 2
    by_layer = part.plot_layers(unit={"1": 4}, columns=2, color="slope", size=2.0)
    assert ["unit" in ax.get_title() for ax in by_layer.axes] == [True, False, False, False]


def test_large_partitions_show_the_lines_that_units_drew(monkeypatch: pytest.MonkeyPatch) -> None:
    part = cut_up(network(1, depth=2))
    exact = drawn_lines(part.plot_layers(unit=[1, 1]).axes[1])[3]
    monkeypatch.setattr(layers, "_MANY", 0)
    own = drawn_lines(part.plot_layers(unit=[1, 1]).axes[1])[3]

    def length(ends: np.ndarray) -> float:
        return float(np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1).sum())

    assert length(own) == pytest.approx(length(exact))


def test_layers_reject() -> None:
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
            part.plot_layers(**options)


# -- histograms ----------------------------------------------------------------------------------


def heights(ax: Any) -> list[np.ndarray]:
    """Of the outlines in some axes."""
    found = [p for p in ax.patches if isinstance(p, StepPatch) and not p.get_fill()]
    return [np.asarray(p.get_data().values) for p in found]


def test_bars_count_the_regions(part: sc.Partition) -> None:
    figure = part.plot_histograms()
    assert [ax.get_xlabel() for ax in figure.axes][:3] == ["area", "eccentricity", "vertices"]
    for ax in figure.axes:
        (bars,) = heights(ax)
        assert bars.sum() == len(part)
    counts = torch.bincount(part.num_corners)[3:]
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
    again = part.plot_histograms(columns="area", label="a")
    other.plot_histograms(columns="area", label="b", axes=again.axes)
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
    ax = part.plot_histograms(columns=["slope_frobenius"]).axes[0]
    assert dead > 0
    assert ax.get_xscale() == "log"
    assert heights(ax)[0].sum() + dead == len(part)
    assert ax.texts[0].get_text() == f"at 0: {dead}"
    linear = part.plot_histograms(columns=["slope_frobenius"], log=False).axes[0]
    assert heights(linear)[0].sum() == len(part)


def test_columns_of_all_kinds(single: sc.Partition) -> None:
    columns = ["class", "output_0", "slope_spectral_full", "perimeter", "centroid_u"]
    figure = single.plot_histograms(columns=columns, bins=7)
    assert [bars.sum() for ax in figure.axes for bars in heights(ax)] == [len(single)] * 5
    assert figure.axes[0].get_title(loc="right") == ""
    lonely = cut_up(nn.Linear(2, 1)).plot_histograms(log=True)
    assert [heights(ax)[0].sum() for ax in lonely.axes] == [1] * 4


def test_histograms_reject(single: sc.Partition) -> None:
    for options, error, what in [
        ({"columns": ["size"]}, sc.SplineCamError, "eccentricity"),
        ({"columns": []}, ValueError, "one column"),
        ({"bins": 0}, ValueError, "bins"),
        ({"columns": ["output_0"], "log": True}, ValueError, "negative"),
        ({"axes": plt.figure().add_subplot()}, ValueError, "1 axes for 4"),
    ]:
        with pytest.raises(error, match=what):
            single.plot_histograms(**options)
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


def test_images_rejected() -> None:
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
        i, j = map(int, text.get_text().split(" | "))
        assert i < j
        assert float(out[i]) == pytest.approx(float(out[j]), abs=1e-6)
        assert float(out.max()) == pytest.approx(float(out[i]), abs=1e-6)
    titles = [text.get_text() for text in ax.texts]
    assert titles == sorted(titles)
    assert len(set(titles)) > 1


def test_samples_by_name_level_and_unit(pictures: sc.Partition) -> None:
    seed = torch.Generator().manual_seed(0)
    named = pictures.decision_boundary().plot_samples(3, names=list("abcd"), generator=seed)
    assert all(set(t.get_text()) <= set("abcd | ") for t in named.axes[0].texts)
    level = float(pictures.values[:, 0].median())
    levels = pictures.level_set([level], output=0).plot_samples(2)
    assert [t.get_text() for t in levels.axes[0].texts] == [f"{level:.4g}"] * 2
    units = pictures.neurons(layer=0, unit=int(pictures.edge_unit[pictures.edge_op == 0][0]))
    assert units.plot_samples(1).axes[0].texts[0].get_text().startswith(pictures.cuts[0])
    assert (
        not pictures.decision_boundary().plot_samples(2, titles=False).axes[0].texts[0].get_text()
    )


def test_samples_that_are_no_images(part: sc.Partition, pictures: sc.Partition) -> None:
    with pytest.raises(sc.SplineCamError, match="Give shape="):
        part.decision_boundary().plot_samples()
    assert part.decision_boundary().plot_samples(2, shape=(1, 2)).axes
    with pytest.raises(ValueError, match="2 names for 4"):
        pictures.decision_boundary().plot_samples(names=["a", "b"])


# -- without the model ---------------------------------------------------------------------------


def test_figures_of_a_partition_without_its_model(part: sc.Partition, tmp_path: Path) -> None:
    part.save(tmp_path / "part.npz")
    loaded = sc.load(tmp_path / "part.npz")
    ax = loaded.plot_surface(output=0, color="slope")
    points = scene_of(part.plot_surface(output=0, color="slope")).items.points
    assert np.allclose(scene_of(ax).items.points, points)
    panels = loaded.plot_layers()
    assert [len(drawn_lines(panel)) for panel in panels.axes[:-1]] == [2, 2]
    assert heights(loaded.plot_histograms().axes[0])[0].sum() == len(part)
    with pytest.raises(sc.SplineCamError, match="model"):
        loaded.plot_layers(unit=[0, 0])


def test_a_grid_on_axes_of_ones_own() -> None:
    figure, (_, ax) = plt.subplots(1, 2)
    assert sc.plot.image_grid(torch.rand(6, 4, 8), ax=ax, columns=3) is figure
    assert len(ax.images) == 6
    assert ax.get_aspect() == 1
