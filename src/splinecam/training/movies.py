"""Movies of partitions: frames with the same colours, written as GIF, MP4 or a page."""

from __future__ import annotations

import base64
import html
import os
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import torch

from splinecam._util.files import writing
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
_STRIDE = 16  # the colours of a GIF are chosen from every 16th row


def _gif(frames: Iterator[Pixels], path: Path, fps: float, hold: int) -> None:
    """Write a GIF; it has one table of colours, white among them. hold: frames of the last."""
    from PIL import Image

    pixels = list(frames)
    some = [frame[k % _STRIDE :: _STRIDE] for k, frame in enumerate(pixels)]
    sheet = Image.fromarray(np.concatenate([*some, pixels[-1]]))
    chosen = sheet.quantize(_COLORS, method=Image.Quantize.MEDIANCUT)
    table = np.array(chosen.getpalette()).reshape(-1, 3)
    table[table.sum(1).argmax()] = 255  # the lightest one
    images = [Image.fromarray(each) for each in map(_nearest_colors(table), pixels)]
    for image in images:
        image.putpalette(table.astype(np.uint8).tobytes())
    durations = [1000 / fps] * (len(images) - 1) + [1000 / fps * hold]
    options: Any = {"save_all": True, "append_images": images[1:], "loop": 0, "optimize": False}
    images[0].save(path, "GIF", duration=durations, **options)


def _nearest_colors(table: Ints) -> Callable[[Pixels], Pixels]:
    """Return a function from a frame (h, w, 3) to the nearest colours (h, w) of a table (n, 3)."""
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
            known[new] = (factors @ terms).argmin(1) + 1  # exact: these are small whole numbers
        found = (np.take(known, colors) - 1).astype(np.uint8)
        return np.repeat(found, np.diff(start, append=len(packed))).reshape(frame.shape[:2])

    return nearest


def _mp4(frames: Iterator[Pixels], path: Path, fps: float, hold: int) -> None:
    """Write an MP4 by passing raw frames to ffmpeg."""
    program, first = _ffmpeg(), next(frames)
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
    """Return the path of ffmpeg, of the system or of the package imageio-ffmpeg."""
    if found := shutil.which("ffmpeg"):
        return found
    try:
        import imageio_ffmpeg

        return str(imageio_ffmpeg.get_ffmpeg_exe())
    except (ImportError, RuntimeError):
        raise SplineCamError(
            "An MP4 needs ffmpeg, which is not installed. Install ffmpeg itself, choose a .gif or "
            f".html file, or run: {how_to_install('movie')}"
        ) from None


_FORMATS: dict[str, Callable[..., None]] = {".gif": _gif, ".mp4": _mp4}
_PAGE = (960, 640)  # pixels of a page in a notebook

Title = Callable[[Snapshot], str]


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
    has every class, and the axes stay where they are.

    parts: a run, as ``sc.load`` gives it, a watch, the folder of a store, or partitions of one
    domain, in a list or by their titles.

    path: the file. A GIF loops. An MP4 needs ffmpeg, which ``splinecam[movie]`` brings. An HTML
    page is written by ``sc.to_html``, with a slider and a button to play.

    fps: frames per second; a page has a pace and a size of its own.

    hold: for how many seconds the last frame stays.

    title: a function from a ``Snapshot`` to its title, by default the step; in pictures also the
    number of regions, and the loss if it is known.

    width: of the picture, in inches.

    dpi: pixels per inch.

    progress: show a bar, in interactive use only.

    plot: options of ``part.plot``, such as color, points, labels, names or linewidth; for a page,
    options of ``sc.view``. The colour may also be a function from a partition to a colour of
    ``part.plot``.

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
    if target.suffix.lower() not in (*_FORMATS, ".html"):
        raise ValueError(f"{target.name} must end in {', '.join(_FORMATS)}, .html")
    if not (fps > 0 and hold >= 0 and width > 0 and dpi > 0):
        raise ValueError("fps, width and dpi must be positive, and hold must not be negative")
    if "ax" in plot:
        raise ValueError("a movie has its own figure: give width= and dpi= instead of ax=")
    shown = _titled(parts, title)
    if not target.parent.is_dir():
        raise FileError(f"There is no folder {target.parent}; make it first.")
    if target.suffix.lower() == ".html":
        from splinecam.viewer.page import to_html

        recorded = isinstance(parts, Run | Watch | str | os.PathLike)
        named = title is not None or isinstance(parts, Mapping)
        subject = parts if recorded and not named else [each.partition for _, each in shown]
        to_html(subject, target, frames=[name for name, _ in shown] if named else None, **plot)
        return Movie(target, len(shown), _PAGE)
    with progress_bar(2 * len(shown), "frame", progress) as bar, torch.no_grad():

        def loaded() -> Iterator[Partition]:
            for _, snapshot in shown:
                yield snapshot.partition
                bar.update()

        renderer = FrameRenderer.of(loaded(), plot, width=width, dpi=dpi)
        frames = map(renderer.draw, loaded(), [name for name, _ in shown])
        draft = target.with_name(f".{secrets.token_hex(4)}.{target.name}")
        with writing(target):  # the file appears when it is complete
            try:
                _FORMATS[target.suffix.lower()](frames, draft, fps, max(1, round(hold * fps)))
                draft.replace(target)
            finally:
                draft.unlink(missing_ok=True)
    return Movie(target, len(shown), renderer.pixels)


@dataclass(frozen=True)
class Movie:
    """A movie in a file: its path, the number of frames, and their size in pixels.

    It can be given wherever a path is expected, and plays in a notebook. The size of a page is its
    size in a notebook.
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


def _titled(parts: Any, title: Title | None) -> list[tuple[str, Snapshot]]:
    """Return the titles and the snapshots of all frames, in order."""
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
    """Return the step, the number of regions, and the loss, as far as they are known."""
    regions = snapshot.scalars.get("num_regions")
    if regions is None and isinstance(snapshot.source, Partition):
        regions = len(snapshot.source)
    words = [] if regions is None else [f"{int(regions):,} regions"]
    if "loss" in snapshot.scalars:
        words.append(f"loss {snapshot.scalars['loss']:.3g}")
    return f"step {snapshot.step:,}{': ' * bool(words)}{', '.join(words)}"
