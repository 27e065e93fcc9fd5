"""Movies of partitions: frames with the same colours, written as GIF, MP4 or a page."""

from __future__ import annotations

import base64
import html
import os
import secrets
import shutil
import statistics
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, repeat
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

from splinecam._util.options import kind_of
from splinecam._util.progress import progress_bar
from splinecam._util.text import how_to_install
from splinecam.errors import FileError, SplineCamError
from splinecam.geometry.domain import Domain
from splinecam.partitions.partition import Partition
from splinecam.plot.colors import Coloring, ColorOptions, beyond, color_regions
from splinecam.plot.decorations import fit_figure
from splinecam.plot.figures import SideLegend, require_matplotlib, written
from splinecam.plot.lines import Ints, Pixels
from splinecam.plot.palette import text_color
from splinecam.plot.regions import default_color, plot
from splinecam.questions.partition_data import PartitionData
from splinecam.training.runs import Run, Snapshot
from splinecam.training.store import open_run
from splinecam.training.watching import Watch

_COLORS = 256  # of a GIF
_STRIDE = 16  # of the rows of frames from which the colours of a GIF are chosen


def encode(frames: Iterator[Pixels], path: Path, fps: float, hold: int) -> None:
    """Write frames (h, w, 3) to a file in the format of its suffix, which appears when complete.

    fps: frames per second; hold: for how many frames the last one stays.
    """
    with _temporary(path) as file:
        FORMATS[path.suffix.lower()](frames, file, fps, hold)


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """A file in the same folder, which is renamed to the path at the end."""
    if not path.parent.is_dir():
        raise FileError(f"There is no folder {path.parent}; make it first.")
    file = path.with_name(f".{secrets.token_hex(4)}.{path.name}")
    try:
        yield file
        file.replace(path)
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{path} cannot be written: {error.strerror}.") from error
    finally:
        file.unlink(missing_ok=True)


def _gif(frames: Iterator[Pixels], path: Path, fps: float, hold: int) -> None:
    """Write a GIF with one table of colours, so that a colour is the same in all frames."""
    from PIL import Image

    pixels = list(frames)
    some = [frame[k % _STRIDE :: _STRIDE] for k, frame in enumerate(pixels)]
    table = _color_table(np.concatenate([*some, pixels[-1]]))
    images = [Image.fromarray(each) for each in map(_nearest_colors(table), pixels)]
    for image in images:
        image.putpalette(table.astype(np.uint8).tobytes())
    durations = [1000 / fps] * (len(images) - 1) + [1000 / fps * hold]
    options: Any = {"save_all": True, "append_images": images[1:], "loop": 0, "optimize": False}
    images[0].save(path, "GIF", duration=durations, **options)


def _color_table(sheet: Pixels) -> Ints:
    """Up to 256 colours for a picture, (n, 3); the lightest one is replaced by white."""
    from PIL import Image

    chosen = Image.fromarray(sheet).quantize(_COLORS, method=Image.Quantize.MEDIANCUT)
    table = np.array(chosen.getpalette()).reshape(-1, 3)
    table[table.sum(1).argmax()] = 255
    return table


def _nearest_colors(table: Ints) -> Callable[[Pixels], Pixels]:
    """A function that finds the nearest colour of a table (n, 3) for each pixel of a frame.

    It gives indices (h, w) for a frame (h, w, 3), and remembers what it has found.
    """
    squares = (table**2).sum(1, keepdims=True)
    terms = np.concatenate([-2 * table, squares], 1).T.astype(np.float32)
    known = np.zeros(1 << 24, np.uint16)  # by colour: the place in the table plus 1

    def nearest(frame: Pixels) -> Pixels:
        channels = [*np.moveaxis(frame, 2, 0), np.zeros(frame.shape[:2], np.uint8)]
        packed = np.stack(channels, 2).view("<u4").reshape(-1)
        start = np.append(0, np.flatnonzero(packed[1:] != packed[:-1]) + 1)  # of equal pixels
        colors = packed[start]
        new = np.unique(colors[np.take(known, colors) == 0])
        if len(new):
            factors = new.view(np.uint8).reshape(-1, 4).astype(np.float32)
            factors[:, 3] = 1
            # Whole numbers of this size are exact.
            known[new] = (factors @ terms).argmin(1) + 1
        found = (np.take(known, colors) - 1).astype(np.uint8)
        return np.repeat(found, np.diff(start, append=len(packed))).reshape(frame.shape[:2])

    return nearest


def _mp4(frames: Iterator[Pixels], path: Path, fps: float, hold: int) -> None:
    """Write an MP4 by passing raw frames to ffmpeg."""
    program = _ffmpeg()
    first = next(frames)
    high, wide = first.shape[:2]
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{wide}x{high}", "-r", str(fps)]
    video = ["-c:v", "libx264", "-crf", "16", "-pix_fmt", "yuv420p", "-movflags", "+faststart"]
    command = [program, "-y", "-loglevel", "error", *raw, "-i", "-", *video, str(path)]
    with TemporaryFile() as messages:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=messages)
        try:
            assert process.stdin is not None
            with process.stdin as pipe:
                for last in chain([first], frames):
                    pipe.write(last.tobytes())
                for frame in repeat(last, hold - 1):
                    pipe.write(frame.tobytes())
        except BrokenPipeError:
            pass  # ffmpeg has ended with a message
        except BaseException:
            process.kill()
            raise
        finally:
            process.wait()
        if process.returncode:
            messages.seek(0)
            reason = messages.read().decode(errors="replace").strip()
            raise SplineCamError(f"ffmpeg could not write the movie: {reason}")


def _ffmpeg() -> str:
    """The path of ffmpeg: that of the system, or of the package imageio-ffmpeg."""
    found = shutil.which("ffmpeg")
    if found is not None:
        return found
    try:
        import imageio_ffmpeg

        return str(imageio_ffmpeg.get_ffmpeg_exe())
    except (ImportError, RuntimeError):
        raise SplineCamError(
            "An MP4 needs ffmpeg, which is not installed. Install ffmpeg itself, choose a .gif or "
            f".html file, or run: {how_to_install('movie')}"
        ) from None


FORMATS: dict[str, Callable[[Iterator[Pixels], Path, float, int], Any]] = {
    ".gif": _gif,
    ".mp4": _mp4,
}


_TITLE = 0.34  # inches above the picture
_MARGIN = 0.05  # inches around it
_LETTERS = 10.0  # points
_COLOR_OPTIONS = ("output", "cmap", "limits", "level", "seed", "names")


@dataclass(frozen=True)
class FrameRenderer:
    """What all frames have in common.

    first: the partition of the first frame. plot: options of ``part.plot``, with the limits,
    legend and colour bar of all frames; color: what regions are coloured by; size: of a frame in
    inches; dpi: pixels per inch.
    """

    first: PartitionData
    color: Any
    plot: Mapping[str, Any]
    size: tuple[float, float]
    dpi: float

    @classmethod
    def of(
        cls, parts: Iterable[PartitionData], plot: Mapping[str, Any], *, width: float, dpi: float
    ) -> FrameRenderer:
        """The renderer that makes the pictures of some partitions comparable."""
        color, colorings, first = plot.get("color"), [], None
        options = ColorOptions(**{name: plot[name] for name in _COLOR_OPTIONS if name in plot})
        for k, part in enumerate(parts):
            first = part if first is None else first
            if not _same_domain(first.domain, part.domain):
                raise ValueError(
                    f"parts[{k}] has another domain than parts[0]; make a movie of one domain"
                )
            color = default_color(part) if color is None else color
            found = color_regions(part, color(part) if callable(color) else color, options)
            colorings.append(_Scale.of(found))
        assert first is not None
        shared = {**plot, **_shared_options(color, plot, colorings)}
        renderer = cls(first, color, shared, (width, width), dpi)
        figure, ax = renderer._blank()
        renderer._plot(first, ax)
        fit_figure(ax, first.domain)
        return replace(renderer, size=(width, figure.get_figheight() + _TITLE + _MARGIN))

    @property
    def pixels(self) -> tuple[int, int]:
        """Width and height of a frame in pixels; even numbers, as video needs them."""
        wide, high = (2 * max(1, round(inches * self.dpi / 2)) for inches in self.size)
        return wide, high

    def draw(self, part: PartitionData, title: str) -> Pixels:
        """A frame (h, w, 3)."""
        return self._drawing(part, title)

    @cached_property
    def _drawing(self) -> Callable[[PartitionData, str], Pixels]:
        """Draws a frame over what surrounds it, which is the same in all, and is drawn once."""
        figure, ax = self._blank()
        self._plot(self.first, ax)
        for artist in _content(ax):
            artist.set_visible(isinstance(artist, SideLegend))
        canvas: Any = FigureCanvasAgg(figure)
        canvas.draw()  # which finds the place of the picture beside its legend
        background = np.asarray(canvas.buffer_rgba()).copy()
        size = figure.get_figwidth(), figure.get_figheight()
        bare = Figure(figsize=size, dpi=self.dpi, frameon=False)
        place = bare.add_axes(ax.get_position().bounds)
        place.set_axes_locator(lambda ax, renderer: ax.get_position(original=True))
        ink = text_color(bare)
        top = 1 - 0.5 * (_TITLE + _MARGIN) / bare.get_figheight()
        left = _MARGIN / bare.get_figwidth()  # so that changing numbers do not move the title
        style: Any = {"ha": "left", "va": "center", "fontsize": _LETTERS, "color": ink}
        words = bare.text(left, top, "", **style)
        axes = "off" if self.plot.get("axes") == "ticks" else self.plot.get("axes", "scale")
        over: Any = FigureCanvasAgg(bare)

        def draw(part: PartitionData, title: str) -> Pixels:
            for artist in _content(place):
                artist.remove()
            self._plot(part, place, legend=False, colorbar=False, axes=axes)
            place.set_axis_off()  # the background shows ticks
            words.set_text(written(title))
            renderer = over.get_renderer()
            pixels = np.asarray(renderer.buffer_rgba())
            pixels[:] = background
            bare.draw(renderer)
            return np.stack([pixels[:, :, k] for k in range(3)], 2)  # faster than a copy of all

        return draw

    def _blank(self) -> tuple[Figure, Axes]:
        wide, high = (pixels / self.dpi for pixels in self.pixels)
        figure = Figure(figsize=(wide, high), dpi=self.dpi)
        x, y = _MARGIN / wide, _MARGIN / high
        ax = figure.add_axes((x, y, 1 - 2 * x, 1 - 2 * y - _TITLE / high))
        return figure, ax

    def _plot(self, part: PartitionData, ax: Axes, **instead: Any) -> None:
        color = self.color(part) if callable(self.color) else self.color
        plot(part, ax=ax, **{**self.plot, "color": color, **instead})


def _content(ax: Axes) -> list[Any]:
    """What has been drawn in axes, and the legends beside them."""
    return [*ax.images, *ax.collections, *ax.patches, *ax.lines, *ax.texts, *ax.artists]


@dataclass(frozen=True)
class _Scale:
    """The scale and the legend of a coloring, without its cells.

    level: between the two colours of outputs, if there are two.
    """

    limits: tuple[float, float] | None
    extremes: tuple[float, float] | None
    level: float | None
    names: tuple[str, ...]

    @classmethod
    def of(cls, coloring: Coloring) -> _Scale:
        norm = coloring.norm
        level = float(norm.vcenter) if isinstance(norm, TwoSlopeNorm) else None
        names = tuple(name for name, _ in coloring.legend)
        return cls(coloring.limits, None if norm is None else coloring.extremes, level, names)


def _shared_options(color: Any, plot: Mapping[str, Any], scales: list[_Scale]) -> dict[str, Any]:
    """Options of ``part.plot`` for all frames: limits, ends of the colour bar, legend."""
    found: dict[str, Any] = {}
    limits = plot.get("limits") or _shared_limits(color, scales)
    if limits is not None:
        found["limits"] = limits
    extremes = [scale.extremes for scale in scales if scale.extremes is not None]
    if extremes and limits is not None and plot.get("colorbar", True) is True:
        lows, highs = zip(*extremes, strict=True)
        found["colorbar"] = beyond((min(lows), max(highs)), limits)
    if isinstance(color, str) and plot.get("legend", True) is True:
        names = list(dict.fromkeys(name for scale in scales for name in scale.names))
        # The legend of numbers of vertices follows from the limits.
        found["legend"] = {"class": names, "layer": "all"}.get(color, True)
    return found


def _shared_limits(color: Any, scales: list[_Scale]) -> tuple[float, float] | None:
    """The widest limits; of classes the median of the typical leads."""
    limits = [scale.limits for scale in scales if scale.limits is not None]
    if not limits:
        return None
    lows, highs = zip(*limits, strict=True)
    if isinstance(color, str) and color == "class":
        return 0.0, statistics.median(highs)
    low, high = min(lows), max(highs)
    level = next((scale.level for scale in reversed(scales) if scale.level is not None), None)
    if level is not None:
        reach = max(abs(low - level), abs(high - level))
        return level - reach, level + reach
    return low, high


def _same_domain(a: Domain, b: Domain) -> bool:
    """Whether two domains are one polygon in one plane."""
    pairs = ((getattr(a, k), getattr(b, k)) for k in ("origin", "basis", "corners"))
    return a.input_shape == b.input_shape and all(torch.equal(x, y) for x, y in pairs)


Title = Callable[[Snapshot], str]

_PAGE = (960, 640)  # pixels of a page in a notebook


def movie(
    parts: Run | Watch | str | os.PathLike[str] | Mapping[str, Partition] | Iterable[Partition],
    path: str | os.PathLike[str],
    *,
    fps: float = 12.0,
    hold: float = 1.5,
    title: Title | None = None,
    width: float = 4.8,
    dpi: float = 100.0,
    progress: bool = True,
    **plot: Any,
) -> Movie:
    """Make a movie of partitions of one domain: a .gif, an .mp4 or an .html file.

    Colours mean the same in all frames: their scale spans what all partitions need, the legend
    has every class of any of them, and the axes stay where they are.

    parts: what ``sc.open_run`` gives, a watch, the folder of a store, or partitions, in a list, or
    by name, which is then the title. All must be partitions of the same domain.

    path: the file. A GIF loops. An MP4 needs ffmpeg, which ``splinecam[movie]`` brings. An HTML
    page is the one that ``sc.to_html`` writes, with a slider and a button to play.

    fps: frames per second; a page has a pace and a size of its own.

    hold: for how many seconds the last frame stays.

    title: a function that gives the title of a ``Snapshot``; by default this is its step, and in
    pictures the number of regions, and the loss if it is known.

    width: of the picture, in inches.

    dpi: pixels per inch.

    progress: show a bar, in interactive use only.

    plot: options of ``part.plot``, such as color, points, labels, names or linewidth; of a page
    those of ``sc.view``. The colour may also be a function of the partition that gives what
    ``part.plot`` takes.

    >>> import splinecam as sc, tempfile
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    >>> watch = sc.watch(model, sc.Domain.box(-1, 1), every=1)
    >>> for _ in range(3):
    ...     _ = watch.step(loss=1.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sc.movie(watch, f"{folder}/training.gif", color="slope").frames
    3
    """
    require_matplotlib()

    target = Path(path)
    if target.suffix.lower() not in (*FORMATS, ".html"):
        raise ValueError(f"{target.name} must end in {', '.join(FORMATS)}, .html")
    if not (fps > 0 and hold >= 0 and width > 0 and dpi > 0):
        raise ValueError("fps, width and dpi must be positive, and hold must not be negative")
    if "ax" in plot:
        raise ValueError("a movie has its own figure: give width= and dpi= instead of ax=")
    shown = _titled(parts, title)
    if target.suffix.lower() == ".html":
        return _page(parts, shown, target, titled=title is not None, options=plot)
    titles, snapshots = [name for name, _ in shown], [each for _, each in shown]
    with progress_bar(2 * len(shown), "frame", progress) as bar, torch.no_grad():
        renderer = FrameRenderer.of(_loaded(snapshots, bar.update), plot, width=width, dpi=dpi)
        frames = map(renderer.draw, _loaded(snapshots, bar.update), titles)
        encode(frames, target, fps, max(1, round(hold * fps)))
    return Movie(target, len(shown), renderer.pixels)


@dataclass(frozen=True)
class Movie:
    """A movie in a file: its path, the number of frames, and their size in pixels.

    A page fits itself to any size; its own is that in a notebook.

    It is a path for everything that takes one, and plays in a notebook.
    """

    path: Path
    frames: int
    size: tuple[int, int]

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        wide, high = self.size
        return f"Movie({self.path}, {self.frames} frames of {wide} x {high} pixels)"

    def _repr_html_(self) -> str:
        """The movie itself, for notebooks."""
        (wide, high), name = self.size, html.escape(self.path.name)
        kind = self.path.suffix.lower()
        if kind == ".html":
            page = html.escape(self.path.read_text(encoding="utf-8"))
            frame = f'width="100%" height="{high}" style="border:0; max-width:{wide}px"'
            return f'<iframe srcdoc="{page}" {frame} title="{name}"></iframe>'
        content = base64.b64encode(self.path.read_bytes()).decode()
        size = f'width="{wide}" height="{high}"'
        if kind == ".gif":
            return f'<img src="data:image/gif;base64,{content}" {size} alt="{name}">'
        source = f'<source src="data:video/mp4;base64,{content}" type="video/mp4">'
        return f"<video controls loop muted {size}>{source}</video>"


def _page(
    parts: Any,
    shown: list[tuple[str, Snapshot]],
    path: Path,
    *,
    titled: bool,
    options: Mapping[str, Any],
) -> Movie:
    """The page that ``sc.to_html`` writes. titled: whether frames have titles of the caller's."""
    from splinecam.viewer.page import to_html

    if not path.parent.is_dir():
        raise FileError(f"There is no folder {path.parent}; make it first.")
    recorded = isinstance(parts, Run | Watch | str | os.PathLike)
    named = titled or isinstance(parts, Mapping)
    subject = parts if recorded and not named else [each.partition for _, each in shown]
    to_html(subject, path, frames=[name for name, _ in shown] if named else None, **options)
    return Movie(path, len(shown), _PAGE)


def _titled(parts: Any, title: Title | None) -> list[tuple[str, Snapshot]]:
    """The titles and the snapshots of all frames, in order."""
    if isinstance(parts, str | os.PathLike):
        parts = open_run(parts)
    if isinstance(parts, Watch):
        parts = parts.run
    if isinstance(parts, Partition) or not isinstance(parts, Iterable):
        raise TypeError(
            "parts must be a run, a watch, the folder of a store, or several partitions, "
            f"not {kind_of(parts)}"
        )
    named = isinstance(parts, Mapping)
    items: list[Any] = list(parts.items()) if isinstance(parts, Mapping) else list(enumerate(parts))
    if not items:
        raise ValueError("there is nothing to show: no step has been recorded, or no part is given")
    found = []
    for k, (name, each) in enumerate(items):
        snapshot = Snapshot(k, {}, source=each) if isinstance(each, Partition) else each
        if not isinstance(snapshot, Snapshot):
            raise TypeError(f"parts[{name!r}] must be a partition, not {kind_of(each)}")
        words = title(snapshot) if title else f"{name}" if named else _title(snapshot)
        found.append((str(words), snapshot))
    return found


def _title(snapshot: Snapshot) -> str:
    """The step, the number of regions, and the loss, as far as they are known."""
    regions = snapshot.scalars.get("num_regions")
    if regions is None and isinstance(snapshot.source, Partition):
        regions = len(snapshot.source)
    words = [] if regions is None else [f"{int(regions):,} regions"]
    if "loss" in snapshot.scalars:
        words.append(f"loss {snapshot.scalars['loss']:.3g}")
    return f"step {snapshot.step:,}{': ' * bool(words)}{', '.join(words)}"


def _loaded(snapshots: list[Snapshot], done: Callable[[], Any]) -> Iterator[Partition]:
    """The partitions of snapshots, read one by one."""
    for snapshot in snapshots:
        yield snapshot.partition
        done()
