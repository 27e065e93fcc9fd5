"""Movies of partitions: frames with the same colours, written as GIF, MP4 or a page."""

from __future__ import annotations

import base64
import html
import os
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import torch

from splinecam._util.options import kind_of
from splinecam._util.progress import progress_bar
from splinecam._util.text import how_to_install
from splinecam.errors import FileError, SplineCamError
from splinecam.partitions.partition import Partition
from splinecam.plot.arrays import Ints, Pixels
from splinecam.plot.figures import require_matplotlib
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
    from splinecam.training.frame_renderer import FrameRenderer

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
