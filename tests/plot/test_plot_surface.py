"""Surfaces: facets at their exact heights, drawn in order, and placed on the page."""

from __future__ import annotations

import io
import itertools

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.path import Path as Outline
from torch import nn

import splinecam as sc
from drawing import cut_up, lies_in, network, pixels, scene_of, written
from splinecam.plot import scene
from splinecam.questions.measures import centroid_values

pytestmark = pytest.mark.few(1)


@pytest.fixture(scope="module", params=[1, 3])
def part(request: pytest.FixtureRequest) -> sc.Partition:
    return cut_up(network(request.param))


@pytest.fixture(scope="module")
def single() -> sc.Partition:
    return cut_up(network(1))


@pytest.mark.parametrize("color", ["output", "slope", "random", "numbers"])
def test_facets_are_the_regions_at_their_heights(part: sc.Partition, color: str) -> None:
    given = part.areas if color == "numbers" else color
    ax = part.plot.surface(output=0, color=given)
    items = scene_of(ax).items
    V, F, E = len(part.vertices), len(part), len(part.edges)
    assert np.array_equal(items.points[:V, :2], part.vertices)
    assert np.array_equal(items.points[:V, 2], part.values[:, 0])
    assert len(items.corners) == F + E + len(part.decision_boundary())
    for region in part:
        drawn = items.points[items.corners[region.index]]
        assert np.array_equal(np.unique(drawn[:, :2], axis=0), np.unique(region.vertices, axis=0))
    assert pixels(ax.figure).min() < 0.9


def test_facets_of_classes_and_the_boundary_lie_on_the_graph(part: sc.Partition) -> None:
    k = part.values.shape[1] - 1
    for color in ("class", "output"):
        items = scene_of(part.plot.surface(output=k, color=color)).items
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
    ax = single.plot.surface(view=view)
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
        ax = single.plot.surface(plane=True, level=level, view=view, color="slope")
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


@pytest.mark.slow
@pytest.mark.parametrize("colorbar", [False, True])
@pytest.mark.parametrize("size", [(2, 2), (4, 1), (1, 3)])
def test_labels_are_inside_the_figure(colorbar: bool, size: tuple[int, int]) -> None:
    model = network(1)[0]
    with torch.no_grad():
        model.weight *= 1000
    part = sc.partition(model, sc.Domain.box((0, 0), size), progress=False)
    for view in [None, (60, 10), (5, 130)]:
        ax = part.plot.surface(output=0, view=view, colorbar=colorbar)
        ax.figure.canvas.draw()
        inner = ax.figure.bbox.padded(1)
        boxes = [axis.get_tightbbox() for axis in (ax.xaxis, ax.yaxis, ax.zaxis)]
        boxes += [other.get_tightbbox() for other in ax.figure.axes if other is not ax]
        corners = np.concatenate([box.get_points() for box in boxes])
        assert all(inner.contains(*corner) for corner in corners)
        assert ax.get_zlabel() == "f, output 0"


@pytest.mark.slow
def test_every_facet_is_seen_from_above(single: sc.Partition) -> None:
    from mpl_toolkits.mplot3d import proj3d

    ax = single.plot.surface(view=(90, -90), edges=False, boundary=False, color="random")
    figure, items = ax.figure, scene_of(ax).items
    figure.set_dpi(300)
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
    ax = flat.plot.surface(plane=True, level=2.0, view=(90, -90), edges=False, boundary=False)
    shown = pixels(ax.figure)
    high, wide = shown.shape[:2]
    inside = shown[high // 3 : 2 * high // 3, wide // 3 : 2 * wide // 3]
    assert np.ptp(inside, axis=(0, 1)).max() == 0
    assert inside.max() < 0.9


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["svg", "pdf"])
def test_vector_output(single: sc.Partition, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = written(single.plot.surface().figure, kind)
    monkeypatch.setattr(scene, "_PATHS", 0)
    image = written(single.plot.surface().figure, kind)
    assert min(paths, image) > 10_000
    assert paths != image


def test_surface_on_axes_of_ones_own(single: sc.Partition) -> None:
    figure = plt.figure()
    ax = figure.add_subplot(projection="3d")
    ax.view_init(20, 20)
    assert single.plot.surface(ax=ax, edges=False, boundary=False, color="class") is ax
    assert (ax.elev, ax.azim) == (20, 20)
    before = pixels(figure)
    ax.view_init(20, 140)
    assert np.abs(pixels(figure) - before).mean() > 0.01


def test_flat_surfaces() -> None:
    model = nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.zero_()
    flat = sc.partition(model, sc.Domain.box(-1, 1), progress=False)
    ax = flat.plot.surface()
    assert len(scene_of(ax).items.corners) == 1 + 4
    low, high = ax.get_zlim()
    assert low < float(model.bias.detach()) < high


def test_wrong_options_of_plot_surface_are_rejected(single: sc.Partition) -> None:
    with pytest.raises(sc.SplineCamError, match="3 outputs"):
        cut_up(network(3)).plot.surface()
    with pytest.raises(sc.SplineCamError, match="one output"):
        cut_up(network(3)).plot.surface(output=0, plane=True)
    with pytest.raises(TypeError, match="projection"):
        single.plot.surface(ax=plt.figure().add_subplot())
    with pytest.raises(sc.SplineCamError, match="choose"):
        single.plot.surface(color="blurple")


@pytest.mark.slow
@pytest.mark.parametrize("tight", [False, True])
def test_titles_of_surfaces_are_seen_above_them(single: sc.Partition, tight: bool) -> None:
    heights = []
    for title, head in [("", ""), ("a title", ""), ("", "of the figure"), ("two\nlines", "both")]:
        ax = single.plot.surface(colorbar=tight)
        ax.set_title(title)
        ax.figure.suptitle(head)
        ax.figure.savefig(io.BytesIO(), bbox_inches="tight" if tight else None)
        ax.figure.canvas.draw()
        content = ax.get_axes_locator().content()
        shown = [text for text in (ax.title, *ax.figure.texts) if text.get_text()]
        tops = [content.y1, *(text.get_window_extent().y1 for text in shown)]
        for text, below in zip(shown, tops, strict=False):
            assert lies_in(text.get_window_extent(), ax.figure.bbox)
            assert text.get_window_extent().y0 > below
        assert lies_in(content, ax.figure.bbox)
        heights.append(content.height)
    assert heights[0] > max(heights[1:])
    assert min(heights) > 0.7 * heights[0]


@pytest.mark.parametrize("layout", [None, "constrained", "tight", "compressed"])
@pytest.mark.parametrize("colorbar", [False, True])
def test_surfaces_side_by_side(layout: str | None, colorbar: bool) -> None:
    part, figure = cut_up(network(3)), plt.figure(figsize=(9, 3), layout=layout)
    for k in range(3):
        ax = figure.add_subplot(1, 3, k + 1, projection="3d")
        part.plot.surface(output=k, ax=ax, colorbar=colorbar)
        ax.set_title(str(k))
    figure.canvas.draw()
    panels = [ax for ax in figure.axes if ax.name == "3d"]
    boxes = [ax.get_axes_locator().content() for ax in panels]
    for ax, box in zip(panels, boxes, strict=True):
        assert lies_in(box, figure.bbox)
        assert lies_in(ax.title.get_window_extent(), figure.bbox)
        assert ax.title.get_window_extent().y0 > box.y1
        assert ax.xaxis.pane.get_facecolor()[3] == 0
        assert box.width > (0.7 if colorbar else 1.9) * figure.dpi
    assert all(a.x1 < b.x0 + 1 for a, b in itertools.pairwise(boxes))
    others = [ax.get_tightbbox() for ax in figure.axes if ax.name != "3d"]
    assert len(others) == 3 * colorbar
    assert all(lies_in(box, figure.bbox) for box in others)


def test_small_surfaces_have_thin_lines(single: sc.Partition) -> None:
    def ink(size: float) -> float:
        figure = plt.figure(figsize=(size, size), dpi=600 / size)
        ax = figure.add_subplot(projection="3d")
        single.plot.surface(ax=ax, edges=False, color="white", boundary_color="black")
        ax.set_axis_off()
        return float((pixels(figure).max(2) < 0.2).mean())

    small, large = ink(1.5), ink(7.0)
    assert 0 < small < 2.5 * large


@pytest.mark.slow
def test_a_surface_fits_whatever_the_view_and_without_axes(single: sc.Partition) -> None:
    figure = plt.figure(figsize=(6, 3))
    ax = single.plot.surface(ax=figure.add_subplot(projection="3d"))
    for _ in range(2):  # with axes, and without
        for view in [(30, -60), (5, 100), (90, 0)]:
            ax.view_init(*view)
            figure.canvas.draw()
            box = ax.get_axes_locator().content()
            assert lies_in(box, figure.bbox)
            high = 0.95 * ax.get_position(original=True).height * figure.bbox.height
            assert box.height > high or box.width > 0.7 * figure.bbox.width
        ax.set_axis_off()


def test_names_of_the_plane_are_those_of_flat_pictures(single: sc.Partition) -> None:
    around = sc.Domain.around([1.0, 2.0], side=2.0)
    for part in (single, sc.partition(single.model, around, progress=False)):
        flat, ax = part.plot(axes="ticks"), part.plot.surface()
        assert (ax.get_xlabel(), ax.get_ylabel()) == (flat.get_xlabel(), flat.get_ylabel())
    assert single.plot.surface().get_xlabel() == "$x_{1}$"
    assert ax.get_xlabel() == "u"


def test_outlines_of_facets_are_closed(single: sc.Partition) -> None:
    ax = single.plot.surface()
    written(ax.figure, "svg")
    drawn = scene_of(ax)
    paths, faces = drawn.get_paths(), drawn.items.face[drawn._order, 3] > 0
    assert all(path.codes[-1] == Outline.CLOSEPOLY for path in paths)
    corners = [
        len(np.unique(path.vertices, axis=0)) for path, f in zip(paths, faces, strict=True) if f
    ]
    assert sorted(corners) == sorted(single.num_corners.tolist())


def test_every_edge_of_a_facet_is_drawn() -> None:
    flat = sc.partition(nn.Linear(2, 1), sc.Domain.box(-1, 1), progress=False)
    ax = flat.plot.surface(view=(90, -90), color="white", boundary=False)
    ax.set_proj_type("ortho")
    ax.set_axis_off()
    shown = pixels(ax.figure).min(2)
    dark = shown < shown[len(shown) // 2, len(shown) // 2] - 0.05
    rows, columns = dark.mean(1), dark.mean(0)
    assert (rows > 0.5).nonzero()[0].size >= 2
    assert (columns > 0.5).nonzero()[0].size >= 2
    assert np.ptp((rows > 0.5).nonzero()[0]) > 0.8 * len(rows)
