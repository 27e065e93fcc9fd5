"""Movies of partitions: all three kinds of files, and the same colours in all frames."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageSequence
from torch import nn

import splinecam as sc
from splinecam.plot.colors import ColorOptions, color_regions
from splinecam.plot.decorations import SideLegend
from splinecam.training import movies as encoders
from splinecam.training.frame_renderer import FrameRenderer

BOX = sc.Domain.box(-1, 1)


def network(outputs: int, seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, outputs))


def constant(value: list[float], slope: float = 0.0) -> sc.Partition:
    """A partition whose outputs are ``value``, and the first one grows with x."""
    model = nn.Linear(2, len(value))
    with torch.no_grad():
        model.bias.copy_(torch.tensor(value))
        model.weight.zero_()
        model.weight[0, 0] = slope
    return sc.partition(model, BOX, progress=False)


@pytest.fixture(scope="module")
def parts() -> list[sc.Partition]:
    models = [network(3, seed) for seed in range(3)]
    with torch.no_grad():
        for k, model in enumerate(models):
            model[2].weight.mul_(4**k)  # slopes and leads grow, as in training
    return [sc.partition(model, BOX, progress=False) for model in models]


@pytest.fixture(scope="module")
def single() -> list[sc.Partition]:
    return [sc.partition(network(1, seed), BOX, progress=False) for seed in range(2)]


def renderer(parts: list[sc.Partition], **plot: Any) -> FrameRenderer:
    return FrameRenderer.of(parts, plot, width=2.4, dpi=50)


# -- files ---------------------------------------------------------------------------------------


def test_a_gif_has_every_frame_and_one_table_of_colours(parts: list[sc.Partition], tmp_path: Path):
    path = tmp_path / "training.gif"
    movie = sc.movie(parts, path, width=2.4, dpi=50, fps=10, hold=2, progress=False)
    assert (movie.path, movie.frames) == (path, 3)
    with Image.open(path) as found:
        assert found.n_frames == 3
        assert found.size == movie.size
        assert found.info["loop"] == 0
        frames = [frame.convert("RGB") for frame in ImageSequence.Iterator(found)]
        durations = [frame.info["duration"] for frame in ImageSequence.Iterator(found)]
    assert durations == [100, 100, 2000]
    colors = {color for frame in frames for _, color in frame.getcolors(1 << 20)}
    assert len(colors) <= 256
    assert (255, 255, 255) in colors
    assert movie.size[0] % 2 == movie.size[1] % 2 == 0
    assert list(tmp_path.iterdir()) == [path]


def decoded(path: Path, size: tuple[int, int]) -> np.ndarray:
    """The frames of a video, (n, h, w, 3)."""
    command = [encoders._ffmpeg(), "-loglevel", "error", "-i", str(path), "-f", "rawvideo"]
    raw = subprocess.run([*command, "-pix_fmt", "rgb24", "-"], capture_output=True, check=True)
    return np.frombuffer(raw.stdout, np.uint8).reshape(-1, size[1], size[0], 3)


@pytest.mark.slow
def test_an_mp4_has_every_frame(parts: list[sc.Partition], tmp_path: Path):
    pytest.importorskip("imageio_ffmpeg")
    path = tmp_path / "training.mp4"
    movie = sc.movie(parts, path, width=2.4, dpi=50, fps=10, hold=0.4, progress=False)
    frames = decoded(path, movie.size)
    assert len(frames) == 2 + 4  # the last one stays
    drawn = renderer(parts).draw(parts[0], "step 0: 10 regions").astype(float)
    rows = slice(movie.size[1] // 4, None)  # below the title
    assert np.abs(frames[0][rows] - drawn[rows]).mean() < 6


def test_ffmpeg_of_the_system_comes_first(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert encoders._ffmpeg() == "/usr/bin/ffmpeg"


def test_without_ffmpeg_an_error_says_what_to_do(
    parts: list[sc.Partition], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(sc.SplineCamError, match=r"\.gif or \.html.*splinecam\[movie\]"):
        sc.movie(parts, tmp_path / "training.mp4", progress=False)
    assert not list(tmp_path.iterdir())


def test_ffmpeg_that_fails_is_quoted(parts: list[sc.Partition], tmp_path: Path, monkeypatch: Any):
    script = tmp_path / "ffmpeg"
    script.write_text("#!/bin/sh\necho no room >&2\nexit 3\n")
    script.chmod(0o755)
    monkeypatch.setattr(encoders, "_ffmpeg", lambda: str(script))
    with pytest.raises(sc.SplineCamError, match="could not write the movie: no room"):
        sc.movie(parts, tmp_path / "training.mp4", width=2.4, dpi=50, progress=False)
    assert list(tmp_path.iterdir()) == [script]


@pytest.mark.slow
def test_a_page_is_that_of_the_viewer(parts: list[sc.Partition], tmp_path: Path):
    watch = sc.watch(network(3, 0), BOX, every=1)
    for _ in range(2):
        watch.step(loss=1.0)
    for subject in (watch, watch.run, parts):
        movie = sc.movie(subject, tmp_path / "a.html", color="slope", progress=False)
        sc.to_html(subject, tmp_path / "b.html", color="slope")
        assert movie.frames == len(watch.run if subject is not parts else parts)
        assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
    names = ["first", "</script><b>", "last"]
    sc.movie(dict(zip(names, parts, strict=True)), tmp_path / "a.html", progress=False)
    sc.to_html(parts, tmp_path / "b.html", frames=names)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
    sc.movie(watch, tmp_path / "a.html", title=lambda shot: f"number {shot.step}")
    recorded = [shot.partition for shot in watch.run]
    sc.to_html(recorded, tmp_path / "b.html", frames=["number 0", "number 1"])
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_what_surrounds_frames_is_drawn_once(
    parts: list[sc.Partition], monkeypatch: pytest.MonkeyPatch
):
    drawn = []
    draw = SideLegend.draw
    monkeypatch.setattr(SideLegend, "draw", lambda self, to: drawn.append(1) or draw(self, to))
    common = renderer(parts, names=["a", "b", "c"])
    frames = [common.draw(part, "title") for part in (*parts, parts[0])]
    assert len(drawn) == 1
    assert np.array_equal(frames[0], frames[3])
    assert not np.array_equal(frames[0], frames[1])


def test_colours_of_a_gif_are_the_nearest_of_its_table():
    random = np.random.default_rng(0)
    frame = random.integers(0, 256, (20, 30, 3)).astype(np.uint8)
    table = random.integers(0, 256, (40, 3))
    nearest = encoders._nearest_colors(table)
    distance = ((frame[:, :, None].astype(int) - table) ** 2).sum(-1)
    for _ in range(2):  # the second time it remembers
        found = np.take_along_axis(distance, nearest(frame)[:, :, None].astype(int), -1)[:, :, 0]
        assert np.array_equal(found, distance.min(-1))


def test_a_movie_shows_itself_in_a_notebook(parts: list[sc.Partition], tmp_path: Path):
    options: dict[str, Any] = {"width": 2.4, "dpi": 50, "progress": False}
    gif = sc.movie(parts, tmp_path / "a.gif", **options)
    page = sc.movie(parts, tmp_path / "b.HTML", **options)
    assert gif._repr_html_().startswith('<img src="data:image/gif;base64,R0lGOD')
    assert page._repr_html_().startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    assert Path(gif).read_bytes()[:3] == b"GIF"
    wide, high = gif.size
    assert repr(gif) == f"Movie({tmp_path}/a.gif, 3 frames of {wide} x {high} pixels)"


# -- what it is made of --------------------------------------------------------------------------


@pytest.fixture
def titles(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The titles of the frames that are drawn."""
    found: list[str] = []

    def draw(self: FrameRenderer, part: sc.Partition, title: str) -> Any:
        found.append(title)
        return np.zeros((4, 4, 3), np.uint8)

    monkeypatch.setattr(FrameRenderer, "draw", draw)
    return found


def test_titles_of_frames(parts: list[sc.Partition], tmp_path: Path, titles: list[str]):
    watch = sc.watch(network(1, 0), BOX, every=1000, store=tmp_path / "run")
    watch.step(loss=0.123456)
    watch.step(2000)
    regions = len(watch.run[0].partition)
    path = tmp_path / "a.gif"
    for run in (watch, watch.run, sc.load(tmp_path / "run"), str(tmp_path / "run")):
        sc.movie(run, path, progress=False)
        assert titles == [
            f"step 0: {regions} regions, loss 0.123",
            f"step 2,000: {regions} regions",
        ]
        titles.clear()
    sc.movie(watch, path, title=lambda shot: f"<{shot.step}>", progress=False)
    sc.movie({"before": parts[0], "after": parts[1]}, path, progress=False)
    sc.movie(iter(parts[:1]), path, progress=False)
    assert titles == ["<0>", "<2000>", "before", "after", f"step 0: {len(parts[0])} regions"]


def test_wrong_arguments_of_movie_are_rejected(parts: list[sc.Partition], tmp_path: Path):
    gif = tmp_path / "a.gif"
    with pytest.raises(ValueError, match=r"must end in \.gif, \.mp4, \.html"):
        sc.movie(parts, tmp_path / "a.avi")
    with pytest.raises(ValueError, match="nothing to show"):
        sc.movie([], gif)
    with pytest.raises(TypeError, match="several partitions, not Partition"):
        sc.movie(parts[0], gif)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"parts\[1\] must be a partition, not int"):
        sc.movie([parts[0], 3], gif)  # type: ignore[list-item]
    with pytest.raises(ValueError, match="fps"):
        sc.movie(parts, gif, fps=0)
    with pytest.raises(ValueError, match="instead of ax="):
        sc.movie(parts, gif, ax=None)
    with pytest.raises(sc.FileError, match="no folder"):
        sc.movie(parts, tmp_path / "nowhere" / "a.gif", width=1, dpi=50, progress=False)
    with pytest.raises(sc.FileError, match="no folder"):
        sc.movie(parts, tmp_path / "nowhere" / "a.html", progress=False)
    with pytest.raises(TypeError, match=r"no option 'linewidth'.*part\.plot"):
        sc.movie(parts, tmp_path / "a.html", linewidth=1.0, progress=False)
    with pytest.raises(sc.FileError, match="is not there"):
        sc.movie(tmp_path / "run", gif)
    other = sc.partition(network(3, 0), sc.Domain.box(-1, 2), progress=False)
    with pytest.raises(ValueError, match=r"parts\[3\] has another domain"):
        sc.movie([*parts, other], gif, progress=False)
    assert not list(tmp_path.iterdir())


# -- the same in all frames ----------------------------------------------------------------------


@pytest.mark.parametrize("color", ["slope", "area", "output"])
def test_scales_hold_for_all_frames(parts: list[sc.Partition], color: str):
    alone = [
        color_regions(part, color, ColorOptions(0, None, None, 0.0, 0)).limits for part in parts
    ]
    plot = renderer(parts, color=color, output=0).plot
    low, high = plot["limits"]
    assert low <= min(limits[0] for limits in alone if limits)
    assert high >= max(limits[1] for limits in alone if limits)
    assert renderer(parts, color=color, output=0, limits=(0.1, 2.0)).plot["limits"] == (0.1, 2.0)


def test_colour_bars_are_pointed_where_any_frame_has_more():
    some = [constant([0.0], 1.0), constant([0.0], 2.0)]  # -2 to 2
    assert renderer(some, color="output", limits=(-1.0, 3.0)).plot["colorbar"] == "min"
    assert renderer(some, color="output", limits=(-3.0, 3.0)).plot["colorbar"] == "neither"
    assert renderer(some, color="output", limits=(-1.0, 1.0)).plot["colorbar"] == "both"
    assert (
        "colorbar" not in renderer(some, color="output", colorbar=False).plot
        or not renderer(some, color="output", colorbar=False).plot["colorbar"]
    )


def test_an_output_has_the_same_colour_in_all_frames(single: list[sc.Partition]):
    """Alone, the second would have another colour map, as it is above 0 everywhere."""
    model, parts = network(1, 0), []
    middle = float(single[0].values.amax() + single[0].values.amin()) / 2
    for shift in (-middle, 3.0):
        with torch.no_grad():
            model[2].bias.add_(shift)
        parts.append(sc.partition(model, BOX, progress=False))
    options = ColorOptions(None, None, None, 0.0, 0)
    assert len({type(color_regions(part, "output", options).norm) for part in parts}) == 2
    common, norms = renderer(parts), []
    for part in parts:
        _, ax = common._blank()
        common._plot(part, ax)
        image = ax.images[0]
        norms.append((type(image.norm), image.norm.vmin, image.norm.vmax, image.cmap.name))
    assert norms[0] == norms[1]
    assert norms[0][1] == -norms[0][2] < -2.5


def test_a_lead_has_the_same_colour_in_all_frames():
    small, large = constant([1.0, 0.0]), constant([9.0, 0.0])
    both = constant([1.0, 0.0], 0.0)
    common = renderer([small, large, both], color="class", axes="off", boundary=False)
    a, b, c = (common.draw(part, "") for part in (small, large, both))
    assert np.array_equal(a, c)
    pixel = a.shape[0] // 2, 20
    assert a[pixel].astype(int).sum() > b[pixel].astype(int).sum() + 60  # paler


def test_legends_keep_all_classes():
    """Each of the partitions has one class only."""
    some = [constant([1.0, 0.0, 0.0]), constant([0.0, 0.0, 1.0])]
    for part in some:
        assert len(color_regions(part, "class", ColorOptions(None, None, None, 0.0, 0)).legend) == 1
    common = renderer(some, names=["a", "b", "c"])
    assert common.plot["legend"] == ["a", "c"]
    frames = [common.draw(part, "") for part in some]
    legend = np.s_[:, int(0.87 * frames[0].shape[1]) :]
    assert np.array_equal(frames[0][legend], frames[1][legend])
    assert len(np.unique(frames[0][legend].reshape(-1, 3), axis=0)) > 5
    assert renderer(some, legend=False).plot["legend"] is False


def test_layers_and_vertices_have_fixed_legends(parts: list[sc.Partition]):
    flat = sc.partition(nn.Sequential(nn.Linear(2, 1), nn.ReLU()), BOX, progress=False)
    made = color_regions(parts[0], "layer", ColorOptions(None, None, None, 0.0, 0, shown="all"))
    assert [name for name, _ in made.legend] == list(parts[0].layers)
    assert renderer(parts, color="layer").plot["legend"] == "all"
    plot = renderer([flat, *parts], color="vertices").plot
    most = int(plot["limits"][1])
    for part in (flat, *parts):
        made = color_regions(part, "vertices", ColorOptions(None, None, plot["limits"], 0.0, 0))
        assert [name for name, _ in made.legend] == [
            *map(str, range(3, most)),
            f"{most} or more",
        ]


def test_colours_may_be_a_function_of_the_partition(parts: list[sc.Partition]):
    common = renderer(parts, color=lambda part: part.centroids[:, 0], cmap="Greys")
    low, high = common.plot["limits"]
    assert -1 < low < -0.5
    assert 0.5 < high < 1
    assert common.draw(parts[0], "").shape == common.draw(parts[2], "").shape


def test_options_of_plot_reach_it(single: list[sc.Partition]):
    plain = renderer(single, edges=False).draw(single[0], "")
    points = renderer(single, edges=False, points=[[0.0, 0.0]]).draw(single[0], "")
    assert not np.array_equal(plain, points)
    with pytest.raises(TypeError, match="colour"):
        renderer(single, colour="class")


def test_no_figure_of_pyplot_is_made(single: list[sc.Partition], tmp_path: Path):
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    sc.movie(single, tmp_path / "a.gif", width=2.4, dpi=50, progress=False)
    assert plt.get_fignums() == before
