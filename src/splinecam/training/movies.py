"""Movies of partitions, with the same colours, scales and axes in all frames."""

from __future__ import annotations

import base64
import html
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from splinecam._partition import Partition
from splinecam._util.options import kind_of
from splinecam._util.progress import progress_bar
from splinecam.errors import FileError
from splinecam.plot.figures import require_matplotlib
from splinecam.training.encoders import FORMATS, FrameSequence, encode
from splinecam.training.runs import Run, Snapshot
from splinecam.training.store import open_run
from splinecam.training.watching import Watch

__all__ = ["Movie", "movie"]

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
        encode(FrameSequence(frames, fps, max(1, round(hold * fps))), target)
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
