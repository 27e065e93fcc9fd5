"""Surfaces: facets at their exact heights, drawn in order, and placed on the page."""

from __future__ import annotations

import io
import itertools
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from mpl_toolkits.mplot3d import proj3d
from torch import nn

import splinecam as sc
from drawing import cut_up, lies_in, network, pixels, scene_of, written
from splinecam.plot.scene import Scene
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
    scene = scene_of(ax)
    assert np.array_equal(scene.points[:, :2], part.vertices)
    assert np.array_equal(scene.points[:, 2], part.values[:, 0])
    assert len(scene.corners) == len(part)
    assert len(scene.strokes.ends) == len(part.mesh.edges) + len(part.decision_boundary())
    for region in part:
        drawn = scene.points[scene.corners[region.index]]
        assert np.array_equal(np.unique(drawn[:, :2], axis=0), np.unique(region.vertices, axis=0))
    assert pixels(ax.figure).min() < 0.9


def test_facets_of_classes_and_the_boundary_lie_on_the_graph(part: sc.Partition) -> None:
    k = part.values.shape[1] - 1
    for color in ("class", "output"):
        scene = scene_of(part.plot.surface(output=k, color=color))
        strokes = scene.strokes
        points = np.concatenate([scene.points, strokes.ends.reshape(-1, 3)])
        z = part.model(torch.tensor(points[:, :2]))
        assert np.allclose(points[:, 2], z[:, k].detach(), atol=1e-12)
        line = strokes.ends[strokes.rank == 2].reshape(-1, 3)
        out = part.model(torch.tensor(line[:, :2])).detach()
        top = out.topk(2).values if k else torch.cat([out, 0 * out], 1)
        assert len(line) == 2 * len(part.decision_boundary()) > 0
        assert torch.allclose(top[:, 0], top[:, 1], atol=1e-12)


@pytest.mark.parametrize(
    ("kind", "view"),
    [("persp", (10, 17)), ("ortho", (10, 17)), ("persp", (-25, 200)), ("ortho", (89, 45))],
)
def test_what_is_behind_another_is_hidden(
    single: sc.Partition, kind: str, view: tuple[float, float]
) -> None:
    ax = single.plot.surface(view=view, color="random", edges=False, boundary=False)
    ax.set_proj_type(kind)
    ax.figure.set_dpi(300)
    shown, scene = pixels(ax.figure), scene_of(ax)
    middle = np.concatenate([single.centroids, centroid_values(single)], 1)
    step = np.linspace(0, 1, 2001)[1:, None]
    eye = eye_of(np.asarray(ax.get_proj()))
    column, row = place(ax, middle)
    enough = 0.01 * np.ptp(scene.points[:, 2])
    seen, hidden = [], 0
    for k in np.flatnonzero(single.areas.numpy() > 0.1):
        way = eye[:3] - eye[3] * middle[k]
        line = middle[k] + step * 9 * way / np.linalg.norm(way)
        line = line[(np.abs(line[:, :2]) < 3).all(1)]
        off = line[:, 2] - single.model(torch.tensor(line[:, :2])).detach().numpy()[:, 0]
        drawn = shown[len(shown) - 1 - row[k], column[k]]
        there = np.abs(drawn - scene.face[k, :3]).max() < 0.01
        if off.min() < -enough and off.max() > enough:  # the line of sight crosses the surface
            hidden += 1
            assert not there
        elif (off > 0).all() or (off < 0).all():
            seen.append(there)
    assert len(seen) > 10
    assert np.mean(seen) > 0.97  # some are thinner than a pixel
    assert hidden > 0 or view[0] != 10


def eye_of(projection: np.ndarray) -> np.ndarray:
    """The eye of a projection (4, 4) in homogeneous coordinates, or the direction towards it."""
    if projection[3, :3].any():
        eye = np.linalg.svd(projection[[0, 1, 3]])[2][-1]
        return np.asarray(eye / eye[3])
    toward = np.cross(projection[0, :3], projection[1, :3])
    away = projection[2, :3] @ toward > 0  # depths grow away from the eye
    return np.append(-toward if away else toward, 0.0)


def place(ax: Any, points: np.ndarray) -> np.ndarray:
    """The columns and rows (2, N), from below, of the pixels at points (N, 3)."""
    x, y, _ = proj3d.proj_transform(*points.T, ax.M)
    return ax.transData.transform(np.stack([x, y], 1)).astype(int).T


def test_the_plane_is_between_what_is_above_and_below(single: sc.Partition) -> None:
    level = float(single.values.median())
    middle = np.concatenate([single.centroids, centroid_values(single)], 1)
    far = np.abs(middle[:, 2] - level) > 0.05 * np.ptp(middle[:, 2])
    for view in [(30, -60), (-30, -60)]:
        style = {"view": view, "color": "random", "edges": False, "boundary": False}
        with_plane = single.plot.surface(plane=True, level=level, **style)
        without = single.plot.surface(level=level, **style)
        without.set(zlim=with_plane.get_zlim())
        changed = np.abs(pixels(with_plane.figure) - pixels(without.figure)).max(2) > 0.01
        column, row = place(with_plane, middle)
        covered = changed[len(changed) - 1 - row, column]
        beyond = (middle[:, 2] < level) if view[0] > 0 else (middle[:, 2] > level)
        assert not covered[far & ~beyond].any()
        assert covered[far & beyond].sum() > 20


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
    ax = single.plot.surface(view=(90, -90), edges=False, boundary=False, color="random")
    ax.figure.set_dpi(300)
    shown = pixels(ax.figure)
    column, row = place(ax, np.concatenate([single.centroids, centroid_values(single)], 1))
    wide = (single.areas > 0.02).numpy()
    found = shown[len(shown) - 1 - row, column]
    assert wide.sum() > 50
    assert np.abs(found - scene_of(ax).face[:, :3])[wide].max() < 0.01


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
def test_vector_output_has_the_surface_as_a_fine_image(single: sc.Partition, kind: str) -> None:
    figure = single.plot.surface().figure
    sizes = []
    scene = scene_of(figure.axes[0])
    scene._image = lambda *a: sizes.append((found := Scene._image(scene, *a))[1].shape) or found
    assert written(figure, kind) > 10_000
    assert max(sizes[0]) > 300 * 0.6 * min(figure.get_size_inches())


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
    assert len(scene_of(ax).corners) == 1
    assert len(scene_of(ax).strokes.ends) == 4
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
