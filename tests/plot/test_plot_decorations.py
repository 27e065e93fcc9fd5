"""What surrounds pictures: colour bars, legends, frames and scale bars, in every kind of figure."""

from __future__ import annotations

import copy
import itertools
import pickle
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.text import Text
from torch import nn

import splinecam as sc
from splinecam.plot.artists import CellImage, SegmentLines
from splinecam.plot.decorations import ScaleBar, SideLegend
from splinecam.plot.palette import INK, ink_on

pytestmark = pytest.mark.few(1)

LAYOUTS = (None, "constrained", "compressed", "tight")


def cut_up(outputs: int, domain: sc.Domain, width: int = 10) -> sc.Partition:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, outputs))
    with torch.no_grad():
        model[-1].bias -= model(torch.zeros(1, 2))[0]
    return sc.partition(model, domain, device="cpu", progress=False)


@pytest.fixture(scope="module")
def part() -> sc.Partition:
    return cut_up(3, sc.Domain.box(-2, 2))


@pytest.fixture(scope="module")
def flat() -> sc.Partition:
    return cut_up(3, sc.Domain.box((-5, -0.5), (5, 0.5)))


def boxes(ax: Any) -> list[Any]:
    """Where the axes and what is beside them are, in pixels."""
    figure = ax.get_figure(root=True)
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    bars = [child.get_tightbbox(renderer) for child in ax.child_axes]
    legends = [legend.get_window_extent(renderer) for legend in ax.findobj(SideLegend)]
    return [ax.bbox, *bars, *legends]


def are_apart_and_seen(ax: Any) -> bool:
    around, page = boxes(ax), ax.get_figure(root=True).bbox
    seen = all(
        box.x0 >= page.x0 and box.x1 <= page.x1 and box.y0 >= page.y0 and box.y1 <= page.y1
        for box in around
    )
    return seen and not any(
        min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1
        for a, b in itertools.combinations(around, 2)
    )


def texts(ax: Any) -> list[str]:
    return [text.get_text() for legend in ax.findobj(SideLegend) for text in legend.get_texts()]


# -- places --------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [*LAYOUTS, "own"])
@pytest.mark.parametrize("color", ["slope", "class", "layer"])
def test_bars_and_legends_stand_side_by_side(part: sc.Partition, layout: Any, color: str) -> None:
    ax = None if layout == "own" else plt.subplots(figsize=(5, 4), layout=layout)[1]
    ax = part.plot(ax=ax, color=color, points=part.sample(5), labels=range(5))
    part.level_set([0.0, 0.1], output=2).plot(ax=ax)
    part.decision_boundary().plot(ax=ax, each=True)
    assert len(boxes(ax)) == (5 if color == "slope" else 4 + (color == "layer"))
    assert are_apart_and_seen(ax)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [(10, 3.2), (6, 3)])
def test_nothing_in_a_row_of_pictures_is_covered(
    part: sc.Partition, layout: Any, size: tuple[float, float]
) -> None:
    figure, row = plt.subplots(1, 3, figsize=size, layout=layout)
    for ax, color in zip(row, ("class", "slope", "area"), strict=True):
        part.plot(ax=ax, color=color)
    figure.canvas.draw()
    spans = [(min(b.x0 for b in found), max(b.x1 for b in found)) for found in map(boxes, row)]
    assert all(right < left for (_, right), (left, _) in itertools.pairwise(spans))
    assert spans[-1][1] <= figure.bbox.x1


def test_ticks_of_a_small_figure_are_seen(part: sc.Partition) -> None:
    figure, ax = plt.subplots(figsize=(3.3, 3.3))
    part.plot(ax=ax, axes="ticks")
    figure.canvas.draw()
    for axis in (ax.xaxis, ax.yaxis):
        box = axis.get_tightbbox(figure.canvas.get_renderer())
        assert box.x0 >= 0
        assert box.y0 >= 0
    assert are_apart_and_seen(ax)


def test_tight_layout_by_hand(part: sc.Partition) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(7, 3))
    part.plot(ax=left, color="slope")
    part.plot(ax=right)
    figure.tight_layout()  # a warning would be an error
    assert are_apart_and_seen(left)
    assert are_apart_and_seen(right)


def test_a_second_picture_replaces_what_explains_the_first(part: sc.Partition) -> None:
    _, ax = plt.subplots()
    part.plot(ax=ax)
    part.level_set([0.0, 0.1], output=2).plot(ax=ax)
    part.decision_boundary().plot(ax=ax, each=True)
    names = texts(ax)[3:]
    part.plot(ax=ax, color="slope")
    part.plot(ax=ax, color="area")
    labels = [bar.get_ylabel() for bar in ax.child_axes]
    assert labels == ["level of output 2", "area (log scale)"]
    assert texts(ax) == names  # of the curves
    assert len(ax.findobj(ScaleBar)) == 1
    assert are_apart_and_seen(ax)


@pytest.mark.parametrize("color", ["slope", "class"])
def test_colours_of_flat_pictures_are_explained_below(flat: sc.Partition, color: str) -> None:
    ax = flat.plot(color=color, axes="ticks")
    picture, other = boxes(ax)
    assert other.y1 < picture.y0
    assert are_apart_and_seen(ax)
    assert picture.width > 0.7 * ax.figure.bbox.width
    renderer = ax.figure.canvas.get_renderer()
    for axis in (ax.xaxis, ax.yaxis, *(bar.xaxis for bar in ax.child_axes)):
        seen = [label.get_window_extent(renderer) for label in axis.get_ticklabels()]
        inside = [box for box in seen if box.width]
        assert not any(a.overlaps(b) for a, b in itertools.pairwise(inside))


def test_many_names_fit_beside_a_small_picture() -> None:
    part = cut_up(20, sc.Domain.box(-9, 9))
    names = [f"kind number {k}" for k in range(20)]
    _, ax = plt.subplots(figsize=(5, 3))
    part.plot(ax=ax, color="slope", points=part.sample(200), labels=[*range(20)] * 10, names=names)
    assert len(texts(ax)) == 20
    assert are_apart_and_seen(ax)


@pytest.mark.parametrize("color", ["slope", "area", "class", "output"])
def test_figures_are_pickled_and_copied(part: sc.Partition, color: str) -> None:
    _, ax = plt.subplots()
    part.plot(ax=ax, color=color, output=0, points=part.sample(3), labels=[0, 1, 2])
    figure = ax.figure
    figure.canvas.draw()
    expected = np.asarray(figure.canvas.buffer_rgba())
    for other in (pickle.loads(pickle.dumps(figure)), copy.deepcopy(figure)):
        other.canvas.draw()
        assert np.array_equal(np.asarray(other.canvas.buffer_rgba()), expected)


# -- frames --------------------------------------------------------------------------------------


def test_labels_and_titles_are_seen(part: sc.Partition) -> None:
    ax = part.plot()
    ax.set(xlabel="first", ylabel="second", title="a title")
    ax.figure.canvas.draw()
    for text in (ax.xaxis.label, ax.yaxis.label, ax.title):
        box = text.get_window_extent()
        assert box.x0 >= 0
        assert box.y0 >= 0
        ink = np.asarray(ax.figure.canvas.buffer_rgba())[::-1, :, :3]
        inside = ink[int(box.y0) : int(box.y1) + 1, int(box.x0) : int(box.x1) + 1]
        assert inside.min() < 128
    assert not any(tick.get_visible() for tick in ax.get_xticklabels())


def frame_is_drawn(ax: Any) -> bool:
    ax.figure.canvas.draw()
    seen = np.asarray(ax.figure.canvas.buffer_rgba())[::-1, :, :3].astype(float).mean(2)
    box = ax.bbox
    rows = slice(int(box.y0) + 5, int(box.y1) - 5)
    left = seen[rows, int(box.x0) - 2 : int(box.x0) + 3].min(1)
    return bool((left < 140).all())


@pytest.mark.parametrize("axes", ["scale", "ticks", "off"])
def test_zoomed_pictures_have_a_frame(part: sc.Partition, axes: Any) -> None:
    ax = part.plot(color="white", axes=axes, edges=False, boundary=False)
    ax.set(xlim=(-1, 1), ylim=(-1, 1))
    assert frame_is_drawn(ax)
    ax.set(xlim=(-3, 3), ylim=(-3, 3))
    assert not frame_is_drawn(ax)


def test_scale_bars_avoid_thumbnails() -> None:
    torch.manual_seed(0)
    samples = torch.rand(3, 8, 8)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.ReLU(), nn.Linear(6, 3))
    domain = sc.Domain.through(*samples, margin=0.25)
    part = sc.partition(model, domain, device="cpu", progress=False)
    for size in (2, 3.3, 6):
        _, ax = plt.subplots(figsize=(size, size))
        part.plot(ax=ax, points=samples, images=True)
        ax.figure.canvas.draw()
        renderer = ax.figure.canvas.get_renderer()
        bar = ax.findobj(ScaleBar)[0].place(renderer)
        small = [image for image in ax.images if not isinstance(image, CellImage)]
        assert len(small) == 3
        assert not any(bar.overlaps(image.get_window_extent(renderer)) for image in small)


def test_small_pictures_have_small_points(part: sc.Partition) -> None:
    def size(inches: float) -> float:
        _, ax = plt.subplots(figsize=(inches, inches))
        part.plot(ax=ax, points=part.sample(5))
        return float(ax.collections[-1].get_sizes()[0])

    assert size(2) < size(3.3) < size(6) == size(9)


# -- styles --------------------------------------------------------------------------------------


def brightness(color: Any) -> float:
    return float(np.dot(to_rgb(color), (0.299, 0.587, 0.114)))


@pytest.mark.parametrize("axes", ["scale", "ticks"])
@pytest.mark.parametrize("color", ["class", "slope", "none"])
def test_dark_figures(part: sc.Partition, color: str, axes: Any) -> None:
    with plt.style.context("dark_background"):
        ax = part.plot(color=color, axes=axes, points=part.sample(5), labels=[0, 1, 2, 0, 9])
        ax.figure.canvas.draw()
        on_cells = [text for bar in ax.findobj(ScaleBar) for text in bar.findobj(Text)]
        assert all(text.get_path_effects() for text in on_cells)  # a halo
        found = [t for t in ax.figure.findobj(Text) if t not in on_cells]
        written = [t for t in found if t.get_text() and t.get_visible()]
        assert len(written) > 3
        assert all(brightness(text.get_color()) > 0.5 for text in written)
        assert brightness(ax.patches[0].get_edgecolor()[:3]) > 0.5  # the outline
        light = [brightness(c.get_edgecolor()[0][:3]) > 0.5 for c in ax.collections[:2]]
        assert all(light) == (color == "none")  # dark lines are seen on colours
        curves = part.decision_boundary().plot()
        assert brightness(curves.collections[0].get_edgecolor()[0][:3]) > 0.5


def test_ink_is_seen_on_its_paper(part: sc.Partition) -> None:
    assert ink_on("white") == INK
    assert brightness(ink_on("navy")) > 0.5
    _, ax = plt.subplots()
    ax.set_facecolor("black")
    (lines,) = part.decision_boundary().plot(ax=ax).collections
    assert brightness(lines.get_edgecolor()[0][:3]) > 0.5
    black = part.plot(color="black", boundary=False)
    assert brightness(black.collections[0].get_edgecolor()[0][:3]) > 0.5
    part.decision_boundary().plot(ax=black)
    assert brightness(black.collections[-1].get_edgecolor()[0][:3]) > 0.5


def test_no_grid_on_regions(part: sc.Partition) -> None:
    with plt.rc_context({"axes.grid": True}):
        ax = part.plot(axes="ticks", color="slope")
        ax.figure.canvas.draw()
        for each in (ax, *ax.child_axes):
            grid = [*each.get_xgridlines(), *each.get_ygridlines()]
            assert not any(line.get_visible() for line in grid)


def test_edges_have_a_colour(part: sc.Partition) -> None:
    lines = part.plot(edges="red", boundary=False).collections
    assert {tuple(c.get_edgecolor()[0][:3]) for c in lines} == {(1.0, 0.0, 0.0)}
    assert all(0 < c.get_edgecolor()[0][3] < 1 for c in lines)
    with pytest.raises(TypeError, match="which is no colour"):
        part.plot(edges="blurple")


def test_dark_lines_are_seen_on_the_default_colour_maps(part: sc.Partition) -> None:
    for color in ("slope", "area", "output"):
        image = next(i for i in part.plot(color=color, output=0).images)
        darkest = min(brightness(image.cmap(v)[:3]) for v in np.linspace(0, 1, 20))
        assert darkest > brightness(INK) + 0.1


# -- axes, names, labels -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["array", "figure", "text", "3d", "polar"])
def test_axes_that_cannot_be_drawn_on(part: sc.Partition, kind: str) -> None:
    figure, axes = plt.subplots(1, 2)
    bad: Any = {"array": axes, "figure": figure, "text": "axes"}.get(kind)
    if bad is None:
        bad = plt.figure().add_subplot(projection=kind)
    for draw in (part.plot, part.decision_boundary().plot):
        with pytest.raises(TypeError, match="ax must be plain 2-D axes"):
            draw(ax=bad)


def test_names_of_classes(part: sc.Partition) -> None:
    names = ["cat", "dog", "horse"]
    x = part.sample(4)
    ax = part.plot(names=names, points=x, labels=["horse", "cat", "dog", "cat"])
    assert texts(ax) == names
    numbers = part.plot(points=x, labels=[2.0, 0.0, 1.0, 0.0])
    faces = [each.collections[-1].get_facecolor() for each in (ax, numbers)]
    assert np.array_equal(*faces)
    slope = part.plot(names=names, color="slope", points=x, labels=[1, 1, 2, 2])
    assert texts(slope) == ["dog", "horse"]
    with pytest.raises(ValueError, match="'bird' is not among the names"):
        part.plot(names=names, points=x, labels=["bird"] * 4)
    with pytest.raises(ValueError, match="give these in order by names="):
        part.plot(names=["a", "b", "c"], points=x, labels=names[:1] * 4)
    apart = part.plot(points=x, labels=names[:1] * 4)  # nobody knows which class that is
    assert texts(apart)[-1] == "cat"
    assert len(texts(apart)) == 4
    with pytest.raises(ValueError, match="names has 2 entries, but there are 3 classes"):
        part.plot(names=names[:2])
    single = cut_up(1, sc.Domain.box(-2, 2))
    assert texts(single.plot(color="class", names=["no", "yes"])) == ["no", "yes"]


def test_labels_that_are_no_classes_are_grey_and_come_last(part: sc.Partition) -> None:
    x = part.sample(4)
    ax = part.plot(points=x, labels=[2, -1, 7, np.nan])
    assert texts(ax) == ["0", "1", "2", "other"]
    grey = ax.collections[-1].get_facecolor()[1:, :3]
    assert (grey == grey[0]).all()
    assert np.ptp(grey[0]) < 0.1


def test_the_legend_is_in_the_order_of_classes() -> None:
    torch.manual_seed(0)
    model = nn.Linear(2, 4).double()
    with torch.no_grad():
        model.bias.copy_(torch.tensor([9.0, -9.0, 9.0, 9.0]))
    part = sc.partition(model, sc.Domain.box(-1, 1), device="cpu", progress=False)
    assert "1" not in texts(part.plot())
    shown = texts(part.plot(points=part.sample(2), labels=[1, 3]))
    assert shown == sorted(shown)
    assert "1" in shown


def test_points_that_cannot_be_drawn(part: sc.Partition) -> None:
    with pytest.raises(sc.SplineCamError, match=r"points has shape \(5, 3\)"):
        part.plot(points=torch.zeros(5, 3))
    with pytest.raises(ValueError, match=r"points\[1\] is not finite"):
        part.plot(points=[[0.0, 0.0], [np.nan, 0.0]])
    with pytest.raises(ValueError, match="2 entries for 3 points"):
        part.plot(points=torch.zeros(3, 2), labels=[0, 1])
    with pytest.raises(ValueError, match="2 pictures for 3 points"):
        part.plot(points=torch.zeros(3, 2), images=torch.rand(2, 8, 8))


def test_curves_have_lines_in_their_legend(part: sc.Partition) -> None:
    ax = part.neurons(layer="1", unit=[0, 1]).plot(each=True)
    assert texts(ax) == ["layer 1, unit 0", "layer 1, unit 1"]
    (legend,) = ax.findobj(SideLegend)
    assert all(isinstance(handle, Line2D) for handle in legend.legend_handles)


# -- colours -------------------------------------------------------------------------------------


def test_names_of_colours(part: sc.Partition) -> None:
    names = ["red", "#00ff00"] * len(part)
    (image,) = part.plot(color=names[: len(part)]).images
    assert image.fill.colors[:2].tolist() == [[1, 0, 0, 1], [0, 1, 0, 1]]
    with pytest.raises(ValueError, match="names of colours"):
        part.plot(color=["blurple"] * len(part))
    with pytest.raises(sc.SplineCamError, match="regions: give"):
        part.plot(color=["red", "blue"])


def test_merged_pieces() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 24), nn.ReLU(), nn.Linear(24, 6), nn.ReLU(), nn.Linear(6, 1))
    with torch.no_grad():
        model[2].bias -= 0.25
    part = sc.partition(model, sc.Domain.box(-2, 2), device="cpu", progress=False)
    pieces = part.merged()
    assert len(pieces) < len(part)
    ax = part.plot(color="merged", boundary=False)
    colors, label = ax.images[0].fill.colors, pieces.labels.numpy()
    first = np.unique(label, return_index=True)[1]
    assert np.array_equal(colors, colors[first][label])  # one colour for each piece
    a, b = part._edge_faces[pieces.edges].numpy().T
    inner = (a >= 0) & (b >= 0)
    assert (colors[a[inner]] != colors[b[inner]]).any(1).all()  # and others beside it

    def drawn(ax: Any) -> int:
        return sum(len(c.get_segments()) for c in ax.collections if isinstance(c, SegmentLines))

    assert drawn(ax) == int(inner.sum())
    assert drawn(part.plot(color="merged", boundary=False, edges=True)) > drawn(ax)
    assert not any(hasattr(each, "place") for each in ax.child_axes)
