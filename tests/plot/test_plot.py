"""Pictures of partitions: what is drawn is what the partition holds."""

from __future__ import annotations

import base64
import io
import re
import sys
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.legend import Legend
from torch import nn

import splinecam as sc
from splinecam.plot import plot
from splinecam.plot.decorations import add_legend
from splinecam.plot.figures import written

pytestmark = pytest.mark.few(1)

matplotlib.use("Agg")

KINDS = ("class", "slope", "area", "output", "layer", "vertices", "random")


def network(outputs: int, width: int = 10) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(2, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, outputs),
    )
    with torch.no_grad():
        model[-1].bias -= model(torch.zeros(1, 2))[0]
    return model


@pytest.fixture(scope="module", params=[1, 3])
def part(request: pytest.FixtureRequest) -> sc.Partition:
    return sc.partition(network(request.param), sc.Domain.box(-2, 2), device="cpu", progress=False)


def halves(at: float = 0.1) -> sc.Partition:
    """Two regions that meet where x is ``at``."""
    model = nn.Sequential(nn.Linear(2, 1), nn.ReLU(), nn.Linear(1, 1)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 0.0]]))
        model[0].bias.fill_(-at)
    return sc.partition(model, sc.Domain.box(-1, 1), device="cpu", progress=False)


def image_of(ax: Axes) -> Any:
    from splinecam.plot.artists import CellImage

    return next(image for image in ax.images if isinstance(image, CellImage))


def lines_of(ax: Axes) -> list[Any]:
    from splinecam.plot.artists import SegmentLines

    return [c for c in ax.collections if isinstance(c, SegmentLines)]


def legends_of(ax: Axes) -> list[Any]:
    from matplotlib.legend import Legend

    return ax.findobj(Legend)


def pixels(ax: Axes) -> np.ndarray:
    """The figure's pixels, the first row on top, (h, w, 3) from 0 to 1."""
    ax.figure.canvas.draw()
    return np.asarray(ax.figure.canvas.buffer_rgba())[:, :, :3] / 255


def at(ax: Axes, uv: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """The colours of a picture's pixels at plane coordinates (N, 2)."""
    x, y = ax.transData.transform(uv).T
    return seen[(seen.shape[0] - y).astype(int), x.astype(int)]


def large_regions(part: sc.Partition, n: int = 30) -> torch.Tensor:
    return torch.argsort(part.areas, descending=True)[:n]


# -- regions -------------------------------------------------------------------------------------


@pytest.mark.few(30)
@pytest.mark.parametrize("color", [*KINDS, "numbers", "colours", None])
def test_every_kind_is_drawn(part: sc.Partition, color: str | None) -> None:
    given = {"numbers": part.areas, "colours": np.full((len(part), 3), 0.5)}.get(color, color)
    ax = part.plot(color=given, output=0 if color == "output" else None)
    seen = pixels(ax)
    centre = at(ax, np.array([[0.01, 0.02]]), seen)
    assert (centre < 1).any()  # not the paper
    numbers = color in ("slope", "area", "output", "numbers") or (
        color is None and part.values.shape[1] == 1
    )
    assert bool(ax.child_axes) == numbers
    entries = color in ("class", "layer", "vertices") or (color is None and not numbers)
    assert bool(legends_of(ax)) == entries


def test_given_colours_are_where_their_regions_are(part: sc.Partition) -> None:
    colors = np.random.default_rng(0).random((len(part), 3))
    ax = part.plot(color=colors, edges=False, boundary=False, axes="off")
    rows = large_regions(part)
    seen = at(ax, part.centroids[rows].numpy(), pixels(ax))
    assert np.abs(seen - colors[rows]).max() < 0.01


def test_classes_change_at_the_boundary(part: sc.Partition) -> None:
    ax = part.plot(color="class", edges=False, boundary=False, axes="off")
    x = part.sample(2000, dtype=torch.float64)
    uv = part.domain.project(x)[0]
    far = (part.decision_boundary().nearest(x).distance > 0.05) & (uv.abs() < 1.95).all(1)
    seen = at(ax, uv[far].numpy(), pixels(ax))
    n = part.values.shape[1]
    out = part.model.double()(x[far])
    part.model.float()
    number = out.argmax(1) if n > 1 else (out[:, 0] > 0).long()
    hue = matplotlib.colors.rgb_to_hsv(seen)[:, 0]
    palette = matplotlib.colors.rgb_to_hsv(sc.plot.class_colors(max(n, 2)))[:, 0]
    assert np.abs(hue - palette[number.numpy()]).max() < 0.06


def test_an_output_is_shaded_by_its_affine_maps(part: sc.Partition) -> None:
    ax = part.plot(color="output", output=0, edges=False, boundary=False, axes="off")
    image = image_of(ax)
    uv = 0.97 * part.domain.project(part.sample(500))[0].numpy()  # not on the frame
    seen = pixels(ax)
    middle = np.floor(ax.transData.transform(uv)) + 0.5  # of the pixels that are read
    x = torch.from_numpy(ax.transData.inverted().transform(middle))
    value = part.model.double()(x)[:, 0].detach().numpy()
    part.model.float()
    expected = image.cmap(image.norm(value))[:, :3]
    assert np.abs(at(ax, uv, seen) - expected).max() < 0.04
    assert len(np.unique(seen.reshape(-1, 3), axis=0)) > 100  # not one flat colour per region


def test_borders_of_the_fill_are_exact_to_a_part_of_a_pixel() -> None:
    part = halves(0.1234)
    ax = part.plot(color=np.array([[0.0] * 3, [1.0] * 3]), edges=False, boundary=False, axes="off")
    seen = pixels(ax)
    x, y = ax.transData.transform((0.1234, 0.0))
    row = seen[int(seen.shape[0] - y), int(x) - 20 : int(x) + 20, 0] ** 2
    left = min(row[0], row[-1])
    black = (1 - row).sum() if left == row[0] else row.sum()
    border = int(x) - 20 + (black if left == row[0] else 40 - black)
    assert abs(border - x) < 0.3


def test_lines_lie_on_the_borders() -> None:
    ax = halves(0.1234).plot(color=np.ones((2, 3)), boundary=False, axes="off", linewidth=1.0)
    seen = pixels(ax)
    x, y = ax.transData.transform((0.1234, 0.0))
    dark = 1 - seen[int(seen.shape[0] - y), int(x) - 20 : int(x) + 20, 0]
    middle = (dark * (np.arange(40) + int(x) - 20 + 0.5)).sum() / dark.sum()
    assert abs(middle - x) < 0.15


def test_zoomed_and_backward_axes(part: sc.Partition) -> None:
    colors = np.random.default_rng(0).random((len(part), 3))
    ax = part.plot(color=colors, edges=False, boundary=False, axes="off")
    ax.set_xlim(0.9, 0.1)
    ax.set_ylim(0.7, -0.1)
    uv = np.random.default_rng(1).uniform([0.2, 0.0], [0.8, 0.6], (300, 2))
    index = part.locate(torch.from_numpy(uv)).numpy()
    off = np.abs(at(ax, uv, pixels(ax)) - colors[index]).max(1)
    assert (off < 0.01).mean() > 0.95  # all but those on a border


def test_a_zoomed_picture_stays_in_its_axes(part: sc.Partition) -> None:
    import matplotlib.pyplot as plt

    _, ax = plt.subplots()
    part.plot(ax=ax, color="slope", colorbar=False)
    ax.set(xlim=(0.0, 0.5), ylim=(0.0, 0.5))
    seen = pixels(ax)
    box = ax.get_window_extent()
    assert (seen[:, : int(box.x0) - 1] == 1).all()
    assert (seen[:, int(box.x1) + 2 :] == 1).all()
    assert (seen[int(seen.shape[0] - box.y0) + 2 :] == 1).all()


def test_cells_smaller_than_a_pixel_are_averaged() -> None:
    part = sc.partition(network(1, 60), sc.Domain.box(-2, 2), device="cpu", progress=False)
    black = (torch.rand(len(part)) < 0.5).double()
    ax = part.plot(color=black[:, None].expand(-1, 3), edges=False, boundary=False, axes="off")
    image = image_of(ax)
    from matplotlib.transforms import Bbox

    coarse = image.pixels(Bbox.from_extents(-2, -2, 2, 2), 6, 6)[:, :, 0] / 255
    assert (coarse**2).mean() == pytest.approx(float((black * part.areas).sum()) / 16, abs=0.08)


def test_nothing_is_drawn_outside_of_the_domain() -> None:
    domain = sc.Domain.polygon([[0.0, 0.0], [3.0, 0.0], [1.0, 2.0]])
    part = sc.partition(network(3), domain, device="cpu", progress=False)
    ax = part.plot(axes="off", legend=False)
    seen = pixels(ax)
    assert (at(ax, np.array([[0.1, 1.5], [2.5, 1.5]]), seen) == 1).all()
    assert (at(ax, np.array([[1.1, 0.6]]), seen) < 1).any()


# -- lines ---------------------------------------------------------------------------------------


def test_edges_and_boundary(part: sc.Partition) -> None:
    inner = int((part.mesh.edge_layer >= 0).sum())
    several = part.values.shape[1] > 1
    segments = len(part.decision_boundary())

    def count(**options: Any) -> int:
        return sum(len(lines.get_segments()) for lines in lines_of(part.plot(**options)))

    assert count(boundary=False) == inner
    assert count(color="class") == inner + segments
    assert count(color="slope") == inner + 2 * segments * several  # with a rim
    assert count(color="class", edges=False) == segments
    merged = part.merged().edges
    assert count(color="class", edges=merged, boundary=False) == int(
        (part.mesh.edge_layer[merged] >= 0).sum()
    )


def test_edges_thin_out_where_regions_are_dense() -> None:
    def width(side: float) -> float:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 150), nn.ReLU(), nn.Linear(150, 1))
        dense = sc.partition(model, sc.Domain.box(-side, side), device="cpu", progress=False)
        ax = dense.plot(boundary=False)
        ax.figure.canvas.draw()
        return float(lines_of(ax)[0].get_linewidth()[0])

    assert width(2.0) < width(0.05)


def test_the_first_layer_stays_visible(part: sc.Partition) -> None:
    ax = part.plot(boundary=False)
    ax.figure.canvas.draw()
    late, early = (float(lines.get_linewidth()[0]) for lines in lines_of(ax))
    assert early > late
    zoomed = part.plot(boundary=False)
    zoomed.set(xlim=(0, 0.1), ylim=(0, 0.1))
    zoomed.figure.canvas.draw()
    assert float(lines_of(zoomed)[0].get_linewidth()[0]) >= late


def test_given_width_and_edges_that_do_not_exist(part: sc.Partition) -> None:
    ax = part.plot(linewidth=0.3, boundary=False)
    assert {float(lines.get_linewidth()[0]) for lines in lines_of(ax)} == {0.3}
    with pytest.raises(IndexError, match="numbered from 0"):
        part.plot(edges=torch.tensor([len(part.mesh.edges)]))
    with pytest.raises(TypeError, match="numbers of the edges"):
        part.plot(edges=torch.tensor([0.5]))


# -- colour scales, legends, frames --------------------------------------------------------------


def test_limits_and_their_arrows(part: sc.Partition) -> None:
    numbers = part.areas.numpy().copy()
    numbers.flags.writeable = False
    ax = part.plot(color=numbers)
    image = image_of(ax)
    low, high = image.get_clim()
    assert numbers.min() <= low < high <= numbers.max()
    assert image.colorbar.extend in ("min", "both")
    given = part.plot(color=numbers, limits=(0.0, 100.0))
    assert image_of(given).get_clim() == (0.0, 100.0)
    assert image_of(given).colorbar.extend == "neither"
    assert part.plot(color=numbers > 0.1).child_axes  # booleans are numbers
    assert not part.plot(color=numbers, colorbar=False).child_axes


def test_slopes_have_a_logarithmic_scale(part: sc.Partition) -> None:
    from matplotlib.colors import LogNorm

    ax = part.plot(color="slope")
    assert isinstance(image_of(ax).norm, LogNorm)
    assert "slope" in ax.child_axes[0].get_ylabel()
    one = part.plot(color="slope", output=0)
    size = torch.linalg.vector_norm(part.weight[:, 0], dim=1).numpy()
    assert np.allclose(image_of(one).get_array(), size)


def test_outputs_with_both_signs_are_centred_at_the_level(part: sc.Partition) -> None:
    norm = image_of(part.plot(color="output", output=0)).norm
    assert norm(0.0) == pytest.approx(0.5)
    far = float(part.values.max()) + 1  # a level that no value has
    ax = part.plot(color="output", output=0, level=far if part.values.shape[1] == 1 else 0.0)
    assert image_of(ax).get_clim()[0] < image_of(ax).get_clim()[1]


def test_outputs_before_a_sigmoid_are_logits() -> None:
    model = nn.Sequential(network(1), nn.Sigmoid())
    part = sc.partition(model, sc.Domain.box(-2, 2), device="cpu", progress=False)
    names = [text.get_text() for text in legends_of(part.plot())[0].get_texts()]
    assert names == [r"logit $\leq$ 0", "logit $>$ 0"]
    assert part.plot(color="output").child_axes[0].get_ylabel() == "logit"


def test_colours_of_the_last_layer(part: sc.Partition) -> None:
    ax = part.plot(color="layer", boundary=False, edges=False)
    names = [text.get_text() for text in legends_of(ax)[0].get_texts()]
    assert set(names) <= set(part.layers)
    assert len(names) == 2
    colors = image_of(ax).fill.colors
    faces, layer = part._edge_faces.numpy(), part.mesh.edge_layer.numpy()
    for face in (0, len(part) // 2, len(part) - 1):
        last = layer[(faces == face).any(1)].max()
        same = [k for k in range(len(part)) if layer[(faces == k).any(1)].max() == last]
        assert (colors[same] == colors[face]).all()


def test_classes_of_many_outputs_have_different_colours() -> None:
    colors = sc.plot.class_colors(36)
    assert len(np.unique(colors.round(3), axis=0)) == 36
    assert sc.plot.class_colors(1000).shape == (1000, 3)


@pytest.mark.slow
def test_a_thousand_outputs_and_one_region() -> None:
    part = sc.partition(network(1000, 6), sc.Domain.box(-2, 2), device="cpu", progress=False)
    assert len(legends_of(part.plot())[0].get_texts()) <= 24
    flat = sc.partition(nn.Linear(2, 3), sc.Domain.box(-1, 1), device="cpu", progress=False)
    for color in KINDS:
        pixels(flat.plot(color=color, output=0))
    assert len(flat) == 1


def test_constant_network_is_drawn() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    with torch.no_grad():
        model[2].weight.zero_()
    part = sc.partition(model, sc.Domain.box(-1, 1), device="cpu", progress=False)
    for color in (*KINDS, None):
        pixels(part.plot(color=color, boundary=True))
    assert len(part) > 1


def test_axes_of_each_kind(part: sc.Partition) -> None:
    from splinecam.plot.decorations import ScaleBar

    scale, ticks, off = (part.plot(axes=kind) for kind in ("scale", "ticks", "off"))
    assert [bool(ax.findobj(ScaleBar)) for ax in (scale, ticks, off)] == [True, False, False]
    assert [ax.axison for ax in (scale, ticks, off)] == [True, True, False]
    assert (ticks.get_xlabel(), ticks.get_ylabel()) == ("$x_{1}$", "$x_{2}$")
    around = sc.Domain.around(torch.zeros(5), side=2.0)
    other = sc.partition(nn.Linear(5, 1), around, device="cpu", progress=False)
    assert other.plot(axes="ticks").get_xlabel() == "u"
    for shape, axes, names in (
        ((5,), (3, 0), ("x[3]", "x[0]")),
        ((1, 5), (1, 4), ("x[0, 1]", "x[0, 4]")),
        ((5,), ([1.0, 1, 0, 0, 0], 2), ("u", "v")),
    ):
        sliced = sc.Domain.slice((-1, 1), axes, input_shape=shape)
        ax = sc.partition(nn.Linear(5, 1), sliced, device="cpu", progress=False).plot(axes="ticks")
        assert (ax.get_xlabel(), ax.get_ylabel()) == names
    with pytest.raises(ValueError, match="choose one of 'scale'"):
        part.plot(axes="none")


@pytest.mark.parametrize("side", [1e-6, 3.0, 1e6])
def test_scale_bars_are_round_at_every_size(side: float) -> None:
    from splinecam.plot.decorations import ScaleBar

    domain = sc.Domain.box((0, 0), (side, side / 3))
    ax = sc.partition(nn.Linear(2, 2), domain, device="cpu", progress=False).plot()
    bar = ax.findobj(ScaleBar)[0]
    assert f"{bar.length:.0e}"[0] in "125"
    assert 0.08 * side < bar.length < 0.25 * side
    pixels(ax)
    ax.set_xlim(0, side / 100)
    assert bar.length < 0.0025 * side


def test_what_surrounds_a_new_picture_is_inside_of_it(part: sc.Partition) -> None:
    for kind, axes in (("class", "scale"), ("slope", "ticks"), ("vertices", "ticks")):
        ax = part.plot(color=kind, axes=axes)
        ax.set_title("A title")
        ax.figure.canvas.draw()
        box = ax.figure.get_tightbbox()
        width, height = ax.figure.get_size_inches()
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= width
        assert box.y1 <= height


def test_grids_of_axes_stay_aligned(part: sc.Partition) -> None:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, layout="constrained")
    assert plot(part, ax=left) is left
    assert part.plot(ax=right, color="slope") is right
    figure.canvas.draw()
    assert left.get_position().y0 == pytest.approx(right.get_position().y0, abs=1e-6)
    assert left.get_position().height == pytest.approx(right.get_position().height, abs=1e-6)
    low, high = left.get_xlim()
    assert low <= -2 < 2 <= high


def test_no_global_settings_are_changed(part: sc.Partition) -> None:
    before = dict(matplotlib.rcParams)
    part.plot()
    assert dict(matplotlib.rcParams) == before


def test_the_cursor_shows_the_number_of_its_cell(part: sc.Partition) -> None:
    from matplotlib.backend_bases import MouseEvent

    for color in ("class", "area", "output"):
        ax = part.plot(color=color, output=0)
        ax.figure.canvas.draw()
        image = image_of(ax)
        inside = MouseEvent("motion", ax.figure.canvas, *ax.transData.transform((0.3, 0.4)))
        outside = MouseEvent("motion", ax.figure.canvas, *ax.transData.transform((2.01, 0.4)))
        number = image.get_cursor_data(inside)
        assert image.get_cursor_data(outside) is None
        assert (number is None) == (color == "class")
        if color == "output":
            expected = part.model(torch.tensor([[0.3, 0.4]]))[0, 0].item()
            assert number == pytest.approx(expected, abs=1e-4)
        assert isinstance(image.format_cursor_data(number or 0.0), str)


# -- samples -------------------------------------------------------------------------------------


def test_points_have_the_colours_of_their_classes(part: sc.Partition) -> None:
    x = torch.tensor([[0.0, 0.0], [1.0, 1.0], [5.0, 5.0]])  # the last one is outside
    ax = part.plot(points=x, labels=[0, 2, 1], color="slope")
    (dots,) = (c for c in ax.collections if c not in lines_of(ax))
    assert dots.get_offsets().tolist() == [[0.0, 0.0], [1.0, 1.0]]
    palette = sc.plot.class_colors(3)
    assert np.allclose(dots.get_facecolor()[:, :3], palette[[0, 2]])
    names = [text.get_text() for text in legends_of(ax)[-1].get_texts()]
    assert names == ["0", "2"]
    assert len(part.plot(points=x[0]).collections) > 0  # a single input
    on_classes = part.plot(points=x, labels=[0, 7, 1], color="class")
    (both,) = legends_of(on_classes)  # one legend for the regions' classes and those of the points
    assert both.get_texts()[-1].get_text() == "other"  # 7 is no class
    with pytest.raises(ValueError, match="whole numbers"):
        part.plot(points=x, labels=[0.5, 1.0, 2.0])
    with pytest.raises(ValueError, match="give points="):
        part.plot(labels=[0])


def test_points_off_the_plane_are_hollow() -> None:
    domain = sc.Domain.through([0.0, 0, 0], [1, 0, 0], [0, 1, 0])
    part = sc.partition(nn.Linear(3, 2), domain, device="cpu", progress=False)
    ax = part.plot(points=[[0.1, 0.2, 0.0], [0.3, 0.4, 0.5]])
    full, hollow = (c for c in ax.collections if c not in lines_of(ax))
    assert (hollow.get_facecolor()[:, :3] == 1).all()
    assert (full.get_facecolor()[:, :3] < 1).any()


@pytest.mark.parametrize("channels", [1, 3])
def test_thumbnails_are_inside_and_apart(channels: int) -> None:
    samples = torch.rand(3, channels, 8, 8)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64 * channels, 6), nn.ReLU(), nn.Linear(6, 3))
    domain = sc.Domain.through(*samples, margin=0.3)
    part = sc.partition(model, domain, device="cpu", progress=False)
    ax = part.plot(points=samples, labels=[0, 1, 2], images=True)
    ax.figure.canvas.draw()
    small = [image for image in ax.images if image is not image_of(ax)]
    assert len(small) == 3
    boxes = np.array([image.get_extent() for image in small])
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    assert (boxes[:, 0] > left).all()
    assert (boxes[:, 1] < right).all()
    assert (boxes[:, 2] > low).all()
    assert (boxes[:, 3] < high).all()
    for a, b in ((0, 1), (0, 2), (1, 2)):
        apart = (boxes[a, [0, 2]] >= boxes[b, [1, 3]]) | (boxes[b, [0, 2]] >= boxes[a, [1, 3]])
        assert apart.any()
    with pytest.raises(sc.SplineCamError, match="images have shape"):
        part.plot(points=samples, images=torch.rand(3, 5))


# -- files ---------------------------------------------------------------------------------------


def svg_image(text: str) -> tuple[np.ndarray, np.ndarray]:
    """The first image of a drawing: its pixels, and the matrix (2, 3) that places them."""
    from PIL import Image

    tag = next(tag for tag in re.findall(r"<image[^>]*>", text))
    data = re.search(r"base64,\s*([^\"]*)\"", tag)
    matrix = re.search(r"matrix\(([^)]*)\)", tag)
    assert data
    assert matrix
    picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(data.group(1)))))
    numbers = np.array([float(v) for v in re.split(r"[ ,]+", matrix.group(1).strip())])
    return picture, numbers.reshape(3, 2).T


def test_vector_files_place_the_fill_exactly(part: sc.Partition, tmp_path: Path) -> None:
    colors = np.random.default_rng(0).random((len(part), 3))
    ax = part.plot(color=colors, edges=False, boundary=False, axes="off")
    path = tmp_path / "a.svg"
    ax.figure.savefig(path)
    picture, place = svg_image(path.read_text())
    assert picture.shape[1] > 300 * 5  # six inches wide, for print
    figure = ax.figure
    ax.figure.canvas.draw()
    rows = large_regions(part)
    uv = part.centroids[rows].numpy()
    points = ax.transData.transform(uv) * 72 / figure.dpi  # from below
    points[:, 1] = 72 * figure.get_figheight() - points[:, 1]
    column, row = np.linalg.solve(place[:, :2], points.T - place[:, 2:])
    seen = picture[row.astype(int), column.astype(int), :3] / 255
    assert np.abs(seen - colors[rows]).max() < 0.01


@pytest.mark.slow
def test_sizes_of_files_are_bounded(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 350), nn.ReLU(), nn.Linear(350, 1))
    part = sc.partition(model, sc.Domain.box(-2, 2), device="cpu", progress=False)
    assert len(part.mesh.edges) > 50_000
    ax = part.plot(color="class")
    for kind, most in (("png", 3e6), ("pdf", 8e6), ("svg", 16e6)):
        ax.figure.savefig(tmp_path / f"a.{kind}")
        assert 1e4 < (tmp_path / f"a.{kind}").stat().st_size < most
    assert (tmp_path / "a.svg").read_text().count("<image") == 2  # the fill and the lines


def test_a_loaded_partition_is_drawn(part: sc.Partition, tmp_path: Path) -> None:
    part.save(tmp_path / "a.npz")
    loaded = sc.load(tmp_path / "a.npz")
    for color in (*KINDS, None):
        assert np.array_equal(
            pixels(loaded.plot(color=color, output=0, boundary=True)),
            pixels(part.plot(color=color, output=0, boundary=True)),
        )


def test_wrong_options_of_plot_are_rejected(
    part: sc.Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(sc.SplineCamError, match='choose "class"'):
        plot(part, color="blurple")
    with pytest.raises(sc.SplineCamError, match="give \\(F,\\)"):
        plot(part, color=torch.zeros(len(part) + 1))
    with pytest.raises(ValueError, match="from 0 to 1"):
        plot(part, color=torch.full((len(part), 3), 255))
    with pytest.raises(ValueError, match="colour map"):
        plot(part, color="slope", cmap="nothing")
    with pytest.raises(ValueError, match="0 < low < high"):
        plot(part, color="slope", limits=(-1.0, 1.0))
    with pytest.raises(ValueError, match="low < high"):
        plot(part, color="area", limits=(2.0, 1.0))
    with pytest.raises(TypeError, match="two numbers"):
        plot(part, color="area", limits=3.0)
    with pytest.raises(TypeError, match="array of numbers"):
        plot(part, color=object())
    if part.values.shape[1] > 1:
        with pytest.raises(sc.SplineCamError, match="say which one"):
            plot(part, color="output")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(sc.SplineCamError, match=r"pip install 'splinecam\[plot\]'"):
        plot(part)


def test_one_colour_for_all(part: sc.Partition) -> None:
    image = image_of(plot(part, color="white", boundary=False))
    assert np.allclose(image.fill.colors, 1)
    assert not image_of(plot(part, color="none")).fill.colors[:, 3].any()


# -- fonts ----------------------------------------------------------------------------------------


def test_labels_in_a_font_without_signs() -> None:
    import matplotlib.pyplot as plt

    model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
    tiny = sc.partition(model, sc.Domain.box(-1e-7, 1e-7), progress=False)
    plain = sc.partition(model, sc.Domain.box(-1, 1), progress=False)
    font = {"font.family": "cmr10", "axes.formatter.use_mathtext": True}
    # A sign that is missing from the font is a warning, which is an error here.
    with plt.rc_context(font):
        for ax in (plain.plot(axes="ticks"), plain.plot(color="slope"), tiny.plot()):
            ax.figure.canvas.draw()
            plt.close(ax.figure)


def test_labels_for_latex() -> None:
    import matplotlib.pyplot as plt

    model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2))
    names = ["width_1 & 50%", r"$\alpha_1$"]
    part = sc.partition(model, sc.Domain.box(-1, 1), names=names, progress=False)
    with plt.rc_context({"text.usetex": True}):
        assert written("width_1 & 50%") == r"width\_1 \& 50\%"
        assert written("5 $") == r"5 \$"
        assert written(r"$\alpha_1$") == r"$\alpha_1$"  # what the user means as a formula
        assert written("a > 0") == "a $>$ 0"
        canvas = plt.figure().add_subplot()
        canvas.set_axis_off()  # so that no LaTeX is needed
        add_legend(canvas, [(name, "red") for name in part.names or ()])
        (legend,) = (each for each in canvas.get_children() if isinstance(each, Legend))
        assert [text.get_text() for text in legend.get_texts()] == [
            r"width\_1 \& 50\%",
            r"$\alpha_1$",
        ]
        plt.close(canvas.figure)
    assert written("width_1 & 50%") == "width_1 & 50%"
    assert written("5 $ > 4") == r"5 \$ $>$ 4"  # mathtext shows a dollar
