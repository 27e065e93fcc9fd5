"""The recorded answers in a file of the viewer, and still pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from splinecam.errors import SplineCamError
from splinecam.partitions.partition import Partition
from splinecam.plot.regions import plot
from splinecam.questions.measures import table
from splinecam.questions.partition_data import PartitionData
from splinecam.viewer.container import Message, key_of, pack
from splinecam.viewer.frames import TooMuch
from splinecam.viewer.panes import Pane, SceneOptions
from splinecam.viewer.scene import (
    COLUMNS,
    MeshSizes,
    given_colors,
    has_classes,
    outputs_of,
    quantized_gradients,
)
from splinecam.viewer.session import Session
from splinecam.viewer.surfaces import SurfaceSession
from splinecam.viewer.windows import raster_pixels

_FILE = MeshSizes(outputs=200, values=3_200_000, points=1_000_000, precise=1_000_000)
_ALL, _MOST = 50_000, 300_000  # regions up to which files hold all colourings, or most
_CHEAP = ("class", "output", "layer", "area", "vertices")  # the colourings of larger files
_SLOPES = 2_000_000  # numbers up to which files hold the slopes of every output
_GRADIENTS = 6_000_000  # numbers up to which files hold gradients


class Recording:
    """The answers of a session that is not live; colorings, gradients: as for ``to_html``."""

    def __init__(
        self,
        session: Session,
        *,
        colorings: Sequence[str] | None = None,
        gradients: bool | None = None,
    ) -> None:
        if isinstance(colorings, str):
            raise TypeError(f"colorings must be a list of names, not {colorings!r}")
        self.session = session
        self.session.sizes = _FILE
        self.scene = self.session.reply({"ask": "scene"})
        self._wanted, self._gradients = colorings, gradients

    def answers(self) -> dict[str, bytes]:
        """Return all answers by key."""
        # Frames are read twice: those of a long run do not fit in memory together.
        sizes = [self._size(pane, frame) for pane, frame in self._frames()]
        regions, numbers = (sum(each) for each in zip(*sizes, strict=True))
        names, single = self._names(regions), numbers > _SLOPES
        found = {}
        for pane, frame in self._frames():
            chosen = self.session.panes[pane]
            part = self.session.keep(chosen.mesh_id(pane, frame), chosen.partition(frame))
            request = {"ask": "mesh", "pane": pane, "frame": frame}
            answer = self.session.reply(request)
            gradients, dim = self._gradients, part.domain.dim
            if gradients is None:  # in a plane of two inputs, the maps tell the same
                known = part._program is not None and dim > 2 and part._wanted is None
                gradients = known and regions * dim <= _GRADIENTS
            if gradients:
                answer = Message(answer.message, answer.arrays | quantized_gradients(part))
            found[key_of(request)] = _packed(answer)
            if part.smoothing is not None and has_classes(part, self.session.options.level):
                request = {"ask": "band", "pane": pane, "mesh": answer.message["id"], "level": None}
                found[key_of(request)] = _packed(self.session.reply(request))
            for name in list(names):
                try:
                    found |= self._colorings(part, answer.message["id"], name, single=single)
                except SplineCamError:
                    if self._is_asked_for(name):
                        raise
                    names.remove(name)  # it may need a network that is not there
        found[key_of({"ask": "scene"})] = _packed(self._scene(names, single=single))
        return found

    def _frames(self) -> list[tuple[int, int]]:
        panes = enumerate(self.session.panes)
        return [(number, frame) for number, pane in panes for frame in range(len(pane.labels))]

    def _size(self, pane: int, frame: int) -> tuple[int, int]:
        """Return the number of regions of a frame, and of its outputs on all regions."""
        try:
            part = self.session.panes[pane].partition(frame)
        except TooMuch as reason:
            raise SplineCamError(
                f"The partition is too large for a file: {reason}. Give a smaller domain, or a "
                "larger max_regions."
            ) from None
        return len(part), len(part) * part._n_out

    def _names(self, regions: int) -> list[str]:
        """Return the colourings of the file: those that were asked for, or are not too much."""
        panes = self.scene.message["panes"]
        known = dict.fromkeys(each["name"] for pane in panes for each in pane["colorings"])
        own = [name for name in known if self._is_asked_for(name)]
        if self._wanted is not None:
            if unknown := [name for name in self._wanted if name not in known]:
                names = ", ".join(known)
                raise ValueError(f"there is no colouring {unknown[0]!r}; choose of {names}")
            return own
        if regions <= _ALL:
            return list(known)
        most = [name for name in known if name not in COLUMNS or name in own]
        if regions <= _MOST:
            return most
        return [name for name in most if name in _CHEAP or name in own]

    def _is_asked_for(self, name: str) -> bool:
        asked = (*(self._wanted or ()), *self.session.options.colors)
        return name in asked or name == self.scene.message["state"]["color"]

    def _colorings(
        self, part: Partition, mesh: str, name: str, *, single: bool
    ) -> dict[str, bytes]:
        """Return the answers about one colouring of a mesh, for each output where it matters."""
        outputs: list[int | None] = [None]
        if part._n_out > 1 and (name == "output" or (name == "slope" and not single)):
            outputs += outputs_of(part, self.session.options.level, _FILE)
        found: dict[str, bytes] = {}
        for output in reversed(outputs):
            request = {"ask": "coloring", "mesh": mesh, "name": name, "output": output}
            first = key_of(request | {"output": 0})
            if name == "output" and output is None and first in found:  # by default the first one
                found[key_of(request)] = found[first]
            else:
                found[key_of(request)] = _packed(self.session.reply(request))
        return found

    def _scene(self, names: Sequence[str], *, single: bool) -> Message:
        """Return the scene with the colourings of the file."""
        panes = []
        for pane in self.scene.message["panes"]:
            shown = [dict(each) for each in pane["colorings"] if each["name"] in names]
            for each in shown:
                each["byOutput"] &= each["name"] == "output" or not single
            panes.append(pane | {"colorings": shown})
        return Message(self.scene.message | {"panes": panes}, self.scene.arrays)


def _packed(answer: Message) -> bytes:
    return pack(answer.message, answer.arrays, compact=True)


_SIDE, _DPI = 4.8, 100  # inches of a pane, and pixels of an inch
_MANY = 100_000  # more regions are drawn without edges, which would take long
_PIXELS = 480  # of a decision whose regions are not known


def still_png(session: Session, state: Mapping[str, Any]) -> bytes:
    """Return the PNG of all domains; without a partition, it shows the decision of the network."""
    if isinstance(session, SurfaceSession):
        return session.still_png(min(int(state.get("frame", 0)), len(session.surfaces) - 1))
    figure = Figure(figsize=(_SIDE * len(session.panes), _SIDE), layout="constrained")
    axes = figure.subplots(1, len(session.panes), squeeze=False)[0]
    for ax, pane in zip(axes, session.panes, strict=True):
        frame = min(int(state.get("frame", 0)), len(pane.labels) - 1)
        part = pane.frames.partition(frame)
        if part is None or pane.generation:
            _draw_decision(ax, pane, frame, session.options.level or 0.0)
        else:
            _draw(ax, part, session.options, state)
        if len(axes) > 1:
            ax.set_title(pane.title)
    file = BytesIO()
    figure.savefig(file, format="png", dpi=_DPI)
    return file.getvalue()


def _draw(ax: Axes, part: PartitionData, options: SceneOptions, state: Mapping[str, Any]) -> None:
    """Draw a partition as a state wants it."""
    color: Any = state.get("color", options.color)
    if color in options.colors:
        given = given_colors(options.colors[color], part, part)
        color = given if len(given) == len(part) else None  # otherwise there is one per frame
    elif color in COLUMNS:
        color = np.asarray(table(part)[color])
    style: dict[str, Any] = {
        "color": color,
        "limits": options.limits if state.get("color") == options.color else None,
        "level": float(state.get("level", options.level or 0.0)),
        "edges": False if len(part) > _MANY or not state.get("edges", True) else None,
        "boundary": None if state.get("boundary", True) else False,
    }
    if options.points is not None and state.get("points", True):
        style |= {"points": options.points, "labels": options.labels}
    style |= {"cmap": options.cmap, "seed": options.seed, "names": options.names}
    plot(part, ax=ax, output=state.get("output"), **style)


def _draw_decision(ax: Axes, pane: Pane, frame: int, level: float) -> None:
    """Draw the decision of the network of a pane."""
    (u0, v0), (u1, v1) = (corner.tolist() for corner in pane.domain.corners.aminmax(dim=0))
    network, box = pane.frames.network(frame), (u0, v0, u1, v1)
    box, pixels = raster_pixels(network, pane.domain, box, _PIXELS, level=level)
    ax.imshow(pixels, origin="lower", extent=(box[0], box[2], box[1], box[3]))
    ax.set_axis_off()
