"""What a viewer shows: panes side by side, each with one frame or a series of them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Thread, current_thread
from typing import Any

from torch import nn

from splinecam._util.options import kind_of, limit_of, memory_of
from splinecam.errors import SplineCamError
from splinecam.geometry.domain import Domain
from splinecam.partitions.captured import Captured
from splinecam.partitions.partition import Partition
from splinecam.tiles.atlas import Atlas
from splinecam.tiles.extracting import Box
from splinecam.training.runs import Run
from splinecam.training.watching import Watch
from splinecam.viewer.container import pack
from splinecam.viewer.frames import Frames, Limits, Network, RunFrames, TooMuch
from splinecam.viewer.planes import Plane
from splinecam.viewer.windows import Window, start_window, typical_lead

MAX_REGIONS = Limits.max_regions
_REMEMBERED = 32  # windows with too many regions that are remembered
_SEARCH = 2.0  # seconds of each attempt to find the first window


@dataclass(frozen=True)
class SceneOptions:
    """Options for all panes; most are options of ``part.plot`` by the same names."""

    title: str = ""
    color: str | None = None
    output: int | None = None
    cmap: Any = None
    limits: tuple[float, float] | None = None
    level: float | None = None
    seed: int = 0
    names: Sequence[str] | None = None
    colors: Mapping[str, Any] = field(default_factory=dict)  # arrays for the regions, or functions
    points: Any = None
    labels: Any = None
    images: Any = None
    anchors: Any = None  # three inputs that span the plane
    shape: Sequence[int] | None = None  # (h, w) or (channels, h, w) of flat images
    state: Mapping[str, Any] = field(default_factory=dict)  # the first view
    python: str = ""  # the arguments of ``view``
    live: bool = True  # whether Python answers

    def __post_init__(self) -> None:
        if self.color == "class" and self.level is None:  # a single output has classes, too
            object.__setattr__(self, "level", 0.0)


class Pane:
    """Partitions of one domain, shown one at a time: epochs, checkpoints, or a single one."""

    def __init__(
        self,
        title: str,
        frames: Frames | Sequence[Partition],
        labels: Sequence[str] | None = None,
        *,
        limits: Limits | None = None,
    ):
        self.title = title
        self.frames = Frames(frames, labels) if isinstance(frames, Sequence) else frames
        self.limits = limits or Limits()
        self.domain = self.frames.domain  # in the plane as it is now
        self.plane: Plane | None = None  # None if it cannot be moved
        self.home: Plane | None = None  # the plane at first
        self.generation = 0  # how often the plane was moved
        self._computed: dict[int, Partition | TooMuch] = {}
        self._start: tuple[Box, Partition] | None = None
        self._leads: dict[int, float] = {}
        self._crowded: dict[int, list[tuple[Box, str]]] = {}  # by frame, windows with too much

    @property
    def labels(self) -> list[str]:
        """What the slider says about each frame."""
        return self.frames.labels

    @property
    def live(self) -> bool:
        """Whether there is a network to compute windows and other planes."""
        try:
            self.frames.network(0)
        except Exception:  # whatever the reason is
            return False
        return True

    def partition(self, frame: int, outdated: Callable[[], bool] = lambda: False) -> Partition:
        """Return the partition of a frame in the present plane; ``TooMuch`` if it is too large."""
        count = len(self.labels)
        if not 0 <= frame < count:
            raise IndexError(f"frame {frame} of {count}, numbered from 0")
        unmoved = self.domain is self.frames.domain
        given = self.frames.partition(frame) if unmoved else None
        if given is not None:
            return given
        if frame not in self._computed:
            try:
                self._computed = {frame: self.computed(frame, self.domain, outdated)}
            except TooMuch as reason:
                self._computed = {frame: reason}
        found = self._computed[frame]
        if isinstance(found, TooMuch):
            raise TooMuch(str(found))
        return found

    def computed(
        self, frame: int, domain: Domain, outdated: Callable[[], bool] = lambda: False
    ) -> Partition:
        """Return the partition of any domain by the network of a frame, within the limits."""
        return self.frames.network(frame).partition(domain, self.limits, outdated)

    @property
    def start(self) -> Box | None:
        """The first window if the partition of the domain is too large, else None."""
        if self.generation:
            return None  # the view stays as it is when the plane moves
        try:
            self.partition(0)
        except TooMuch:
            if self._start is None:
                limits = replace(self.limits, seconds=min(_SEARCH, self.limits.seconds))
                self._start = start_window(self.frames.network(0), self.domain, limits)
            return self._start[0]
        return None

    def window(
        self, frame: int, window: Window, outdated: Callable[[], bool] = lambda: False
    ) -> Partition:
        """Return the partition of a window of the plane; ``TooMuch`` if it is too large."""
        if frame == 0 and self._start is not None and self._start[0] == window.box:
            return window.placed(self._start[1], self.domain)
        crowded = self._crowded.setdefault(frame, [])
        for box, reason in crowded:
            left, low, right, high = (a - b for a, b in zip(window.box, box, strict=True))
            # A larger window has no fewer regions.
            if left <= 0 and low <= 0 and right >= 0 and high >= 0:
                raise TooMuch(reason)
        try:
            part = self.computed(frame, window.domain, outdated)
        except TooMuch as reason:
            del crowded[:-_REMEMBERED]
            crowded.append((window.box, str(reason)))
            raise
        return window.placed(part, self.domain)

    def mesh_id(self, number: int, frame: int) -> str:
        """Return the name of the mesh of a frame in the present plane; number: of the pane."""
        return f"{number}/{frame}" + (f"/p{self.generation}" if self.generation else "")

    def typical_lead(self, frame: int, level: float) -> float:
        """Return about the lead at which a class has half of its colour, without a partition."""
        if frame not in self._leads:
            network, domain = self.frames.network(frame), self.frames.domain
            self._leads[frame] = typical_lead(network, domain, level)
        return self._leads[frame]

    def move(self, plane: Plane) -> None:
        """Show the domain of another plane from now on."""
        self.plane, self.domain = plane, plane.domain
        self._computed, self._start, self._crowded = {}, None, {}
        self.generation += 1


def panes_of(
    subjects: Sequence[Any],
    *,
    titles: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    max_regions: float = MAX_REGIONS,
    memory: float | str = Limits.memory,
    **options: Any,
) -> list[Pane]:
    """Return the panes of a viewer, one for each subject, side by side.

    subjects: as for ``view``, with a model and its domain as a tuple. titles: of the panes. labels:
    of the frames of given lists. max_regions, memory: limits of what is computed while one looks.
    options: output, device, names and smooth, for models.

    >>> from splinecam.jobs.partitioning import partition
    >>> net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
    >>> part = partition(net, Domain.box(-1, 1), progress=False)
    >>> [pane.labels for pane in panes_of([part, [part, part], (net, Domain.box(-1, 1))])]
    [[''], ['0', '1'], ['']]
    """
    if not subjects:
        raise TypeError("there is nothing to show: give a partition")
    if titles is not None and len(titles) != len(subjects):
        raise ValueError(f"there are {len(titles)} titles for {len(subjects)} panes")
    most = limit_of("max_regions", max_regions) or MAX_REGIONS
    limits = Limits(most, memory_of(memory) or Limits.memory)
    found = [
        _frames_of_atlas(subject, limits.max_regions)
        if isinstance(subject, Atlas)
        else _frames_of(subject, labels, options)
        for subject in subjects
    ]
    names = _distinct([title for title, _ in found]) if titles is None else titles
    return [Pane(names[k], frames, limits=limits) for k, (_, frames) in enumerate(found)]


def _frames_of(
    subject: Any, labels: Sequence[str] | None, options: dict[str, Any]
) -> tuple[str, Frames]:
    """Return the title and the frames of one subject."""
    if isinstance(subject, Partition):
        return _title(subject), Frames([subject])
    if isinstance(subject, Watch):
        return type(subject.model).__name__, RunFrames(subject)
    if isinstance(subject, Run):
        return subject.folder.name if subject.folder else "Training run", RunFrames(subject)
    if isinstance(subject, str | os.PathLike):
        return Path(subject).name, RunFrames(Path(subject))
    if isinstance(subject, list | tuple):
        if len(subject) == 2 and isinstance(subject[1], Domain):
            model, domain = subject
            if not isinstance(model, nn.Module | Captured):
                raise TypeError(f"with a domain goes a model, not {kind_of(model)}")
            network = Network.of_model(model, domain, **options)
            return type(network.model).__name__, Frames((), given=(network, domain))
        wrong = [each for each in subject if not isinstance(each, Partition)]
        if not wrong:
            return _title(*subject), Frames(subject, labels)
        raise TypeError(f"the frames of a pane are partitions, not {kind_of(wrong[0])}")
    raise TypeError(
        "a viewer shows a partition, a list of them, a model with a domain as a tuple, a run, a "
        f"watch, or the folder of a run, not {kind_of(subject)}"
    )


def _frames_of_atlas(atlas: Atlas, max_regions: int) -> tuple[str, Frames]:
    """Return the title and the frames of an atlas; its network computes too large ones."""
    if len(atlas) <= max_regions:
        low, high = atlas.domain.corners.amin(0), atlas.domain.corners.amax(0)
        pad = (high - low) / 100  # the sides of the domain lie inside
        part = atlas.window((*(low - pad).tolist(), *(high + pad).tolist()))
        return _title(part), Frames([part])
    if atlas._model is None:
        raise SplineCamError(
            f"The atlas has {len(atlas):,} regions, and a viewer shows {max_regions:,} at a time. "
            "Give it its model, atlas.attach(model), or choose a part: atlas.view(window=...)."
        )
    network = Network(atlas.model, atlas._network, atlas.device, atlas.output, atlas.names)
    return type(atlas.model).__name__, Frames((), given=(network, atlas.domain))


def _distinct(titles: Sequence[str]) -> list[str]:
    """Return titles with numbers where several are the same.

    >>> _distinct(["a", "b", "a"])
    ['a 1', 'b', 'a 2']
    """
    return [
        f"{title} {titles[: k + 1].count(title)}" if titles.count(title) > 1 else title
        for k, title in enumerate(titles)
    ]


def _title(*parts: Partition) -> str:
    """Return the name of the model of a first partition, if there is one."""
    model = parts[0]._model if parts else None
    return "Partition" if model is None else type(model).__name__


_LOG = logging.getLogger("splinecam")


class Growing:
    """Looks for new frames of panes every second, in a thread, and notifies all views."""

    def __init__(
        self, panes: Sequence[Pane], notify: Callable[[bytes], None], *, pause: float = 1.0
    ):
        self._panes = [(number, pane) for number, pane in enumerate(panes) if pane.frames.grows]
        self._notify, self._pause = notify, pause
        self._closed = Event()
        self._thread = Thread(target=self._run, name="splinecam-frames", daemon=True)
        if self._panes:
            self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        if self._thread.is_alive() and self._thread is not current_thread():
            self._thread.join()

    def _run(self) -> None:
        failed = set[int]()
        while not self._closed.wait(self._pause):
            for number, pane in self._panes:
                try:
                    changed = pane.frames.poll()
                    failed.discard(number)
                except Exception:
                    if number not in failed:  # otherwise it would be logged every second
                        _LOG.exception("The frames of pane %d cannot be read", number)
                    failed.add(number)
                    continue
                if changed:
                    self._notify(pack({"kind": "frames", "pane": number, "frames": pane.labels}))
