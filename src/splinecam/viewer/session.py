"""Panes, and the answers to requests about them."""

from __future__ import annotations

import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

import torch

from splinecam._util.options import as_float64
from splinecam.errors import DomainError, SplineCamError
from splinecam.geometry.domain import Domain
from splinecam.partitions.partition import Partition
from splinecam.plot.colors import Coloring, Limits
from splinecam.questions.partition_data import PartitionData
from splinecam.tiles.extracting import Box
from splinecam.viewer import scene
from splinecam.viewer.answers import Request, RequestError, failure, integer, number, text
from splinecam.viewer.container import Message, pack
from splinecam.viewer.frames import TooMuch
from splinecam.viewer.panes import Pane, SceneOptions
from splinecam.viewer.planes import Plane
from splinecam.viewer.windows import Window, raster_pixels


def _plane_of(domain: Domain, options: SceneOptions) -> Plane:
    """Return the plane of a domain; given anchors are used if they lie in it."""
    points = None if options.points is None else as_float64(options.points, "points")
    if points is not None and points.numel() % domain.dim:
        points = None  # the scene says what is wrong with them
    with suppress(DomainError):
        return Plane.of(domain, anchors=options.anchors, points=points)
    return Plane.of(domain, points=points)


def _moved_plane(pane: Pane, request: Request) -> Plane:
    """Return the plane that a request asks for; an error says that no network could cut it."""
    plane = pane.plane
    if plane is None or pane.home is None:
        raise RequestError(
            "The plane cannot be moved: the partition was recorded or loaded without its network. "
            "Give the network as well: sc.load(path, model=model)."
        )
    if request.get("reset") is True:
        return pane.home
    anchors, turn, shift = (request.get(name) for name in ("anchors", "turn", "shift"))
    if anchors is None and turn is None and shift is None:
        raise RequestError("A plane is moved by anchors, turn or shift.")
    if anchors is not None:
        if not isinstance(anchors, list | tuple):
            raise RequestError("anchors must be three places or numbers of data points.")
        a_place = "An anchor is a place with two coordinates, or a data point."
        plane = plane.through(
            [each if type(each) is int else _numbers(each, "anchors", a_place) for each in anchors]
        )
    if turn is None and shift is None:
        return plane
    each_one = "must be a list of numbers, one for each direction."
    turned = _numbers(turn, "turn", f"turn {each_one}")
    return plane.turned(turned, _numbers(shift, "shift", f"shift {each_one}"))


def _numbers(values: Any, name: str, otherwise: str) -> tuple[float, ...]:
    """Return the numbers of a list or of None; otherwise: the message about something else."""
    if values is None:
        return ()
    if not isinstance(values, list | tuple):
        raise RequestError(otherwise)
    return tuple(number(each, name) for each in values)


_KEPT = 12  # partitions of windows and frames that stay for later requests
_LIMITS = 1000  # limits of colour scales that are remembered
_COARSE = 512  # pixels of a domain whose partition is too large

# The name of a mesh of a whole domain: "0/3", and after the plane was moved twice "0/3/p2".
_WHOLE = re.compile(r"(?P<pane>\d{1,9})/(?P<frame>\d{1,9})(/p(?P<generation>\d{1,9}))?")

logger = logging.getLogger(__name__)


def _never() -> bool:
    return False


class Session:
    """Panes, and the answers to requests about them, one at a time."""

    script = "viewer.js"  # of the page

    def __init__(
        self,
        panes: Sequence[Pane],
        options: SceneOptions | None = None,
        *,
        sizes: scene.MeshSizes | None = None,
    ) -> None:
        self.panes = list(panes)
        self.options = options or SceneOptions()
        self.sizes = sizes or scene.MeshSizes()  # how much a mesh may hold
        if self.options.color is not None:
            scene.check_name(self.options.color, self.options)
        self.answers: dict[str, Callable[[Request], Message]] = {
            "scene": lambda _: scene.scene_answer(self.panes, self.options),
            "mesh": self._mesh,
            "coloring": self._coloring,
            "band": self._band,
            "gradient": self._gradient,
            "window": self._window,
            "plane": self._plane,
        }
        self.told: dict[str, Callable[[Request], Message]] = {}  # kinds that do not wait
        self.outdated = _never  # whether nobody waits for the answer
        self._limits: dict[tuple[str, str, int | None], Limits | None] = {}
        self._kept: OrderedDict[str, Partition] = OrderedDict()
        self._windows = count(1)
        self._lock = threading.RLock()
        self._shelf = threading.Lock()  # of kept partitions, also while an answer is computed
        for pane in self.panes:
            if self.options.live and pane.live:
                pane.plane = pane.home = _plane_of(pane.domain, self.options)

    def with_options(self, options: SceneOptions) -> Session:
        """Return a session of the same panes with other options."""
        return Session(self.panes, options)

    def answer(
        self, request: Any, outdated: Callable[[], bool] = _never, *, request_id: int | None = None
    ) -> bytes:
        """Return the answer to a request as bytes; an outdated one may raise any exception."""
        try:
            found = self.reply(request, outdated)
        except Exception as error:  # the browser shows it, and the session goes on
            if outdated():
                raise
            if not isinstance(error, SplineCamError):
                logger.info("A request of the viewer failed", exc_info=True)
            return failure(_said(error), request_id)
        try:
            return pack(found.message, found.arrays, request_id=request_id)
        except (TypeError, ValueError) as error:  # such as numbers that JSON does not know
            logger.exception("An answer of the viewer cannot be sent")
            return failure(_said(error), request_id)

    def reply(self, request: Any, outdated: Callable[[], bool] = _never) -> Message:
        """Return the answer to a request; an exception says what is wrong with it."""
        if not isinstance(request, Mapping):
            raise RequestError(f"A request is an object, not {type(request).__name__}.")
        ask = text(request, "ask")
        if ask in self.told:
            return self.told[ask](request)
        if ask not in self.answers:
            raise RequestError(f"This viewer does not answer {ask[:60]!r}.")
        with self._lock, torch.no_grad():
            self.outdated = outdated
            return self.answers[ask](request)

    # -- what requests refer to -------------------------------------------------------------------

    def pane_of(self, request: Request) -> tuple[int, Pane]:
        """Return the number of a request's pane, and the pane."""
        number = integer(request, "pane", len(self.panes))
        return number, self.panes[number]

    def frame_of(self, request: Request, pane: Pane) -> int:
        """Return the number of a request's frame."""
        return integer(request, "frame", len(pane.labels))

    def partition_of(self, mesh: str) -> Partition:
        """Return the partition of a mesh that was sent, by its id; the last few are kept."""
        with self._shelf:
            if mesh in self._kept:
                self._kept.move_to_end(mesh)
                return self._kept[mesh]
        found = _WHOLE.fullmatch(mesh)
        if found is not None:
            _, pane = self.pane_of({"pane": int(found["pane"])})
            if int(found["generation"] or 0) == pane.generation:
                frame = self.frame_of({"frame": int(found["frame"])}, pane)
                return self.keep(mesh, pane.partition(frame, self.outdated))
        raise RequestError(f"The mesh {mesh[:60]!r} is not there any more; ask for it again.")

    def keep(self, mesh: str, part: Partition) -> Partition:
        """Remember and return the partition of a mesh that is sent."""
        with self._shelf:
            self._kept[mesh] = part
            self._kept.move_to_end(mesh)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return part

    def place_of(self, part: PartitionData) -> tuple[int, int] | None:
        """Return the pane and the frame that show a partition or its window now, or None."""
        with self._shelf:
            names = [mesh for mesh, kept in self._kept.items() if kept is part]
        for name in names:
            pane, frame = (int(number) for number in name.split("/")[:2])
            whole = self.panes[pane].mesh_id(pane, frame)
            if name == whole or name.startswith(f"{whole}/w"):
                return pane, frame
        for place, shown in enumerate(self.panes):
            frames = [k for k, each in enumerate(shown.frames.partitions) if each is part]
            if frames and not shown.generation:
                return place, frames[0]
        return None

    # -- the answers ------------------------------------------------------------------------------

    def _mesh(self, request: Request) -> Message:
        number, pane = self.pane_of(request)
        frame = self.frame_of(request, pane)
        try:
            part = pane.partition(frame, self.outdated)
        except TooMuch as reason:
            low, high = pane.domain.corners.amin(0).tolist(), pane.domain.corners.amax(0).tolist()
            return self._raster(number, frame, (*low, *high), _COARSE, reason)
        return self._sent(part, pane.mesh_id(number, frame), number, frame)

    def _window(self, request: Request) -> Message:
        number, pane = self.pane_of(request)
        frame, box = self.frame_of(request, pane), request.get("window")
        if not isinstance(box, list | tuple):
            raise RequestError("window must be four numbers: u0, v0, u1, v1.")
        window = Window.of(pane.domain, box)
        try:
            part = pane.window(frame, window, self.outdated)
        except TooMuch as reason:
            pixels = int(request.get("pixels") or _COARSE)
            return self._raster(number, frame, window.box, pixels, reason)
        mesh = f"{pane.mesh_id(number, frame)}/w{next(self._windows)}"
        return self._sent(part, mesh, number, frame, window.box)

    def _raster(self, number: int, frame: int, box: Box, pixels: int, reason: TooMuch) -> Message:
        """Return pixels of the network's decision, in place of a partition that is too large."""
        pane, level = self.panes[number], self.options.level or 0.0
        style: Any = {"level": level, "typical": pane.typical_lead(frame, level)}
        shown, image = raster_pixels(pane.frames.network(frame), pane.domain, box, pixels, **style)
        about = {"kind": "raster", "pane": number, "frame": frame, "window": list(shown)}
        return Message({**about, "reason": str(reason)}, {"pixels": image})

    def _plane(self, request: Request) -> Message:
        number, pane = self.pane_of(request)
        pane.move(_moved_plane(pane, request))
        found = scene.pane_answer(number, pane, self.options)
        return Message({"kind": "plane", "pane": number, "header": found.message}, found.arrays)

    def _sent(
        self, part: Partition, mesh: str, pane: int, frame: int, window: Box | None = None
    ) -> Message:
        """Return the mesh of a partition under an id, to which later requests refer."""
        self.keep(mesh, part)
        about = {"id": mesh, "pane": pane, "frame": frame, "window": window and list(window)}
        return scene.mesh_answer(part, about, self.options.level, self.sizes)

    def _coloring(self, request: Request) -> Message:
        mesh, name = text(request, "mesh"), text(request, "name")
        part = self.partition_of(mesh)
        output = self._output_of(request, part) if name in scene.BY_OUTPUT else None
        coloring = self.coloring_of(mesh, name, output)
        about = {"mesh": mesh, "name": name, "output": output}
        outputs = scene.outputs_of(part, self.options.level, self.sizes)
        return scene.coloring_answer(coloring, about, outputs)

    def coloring_of(self, mesh: str, name: str, output: int | None) -> Coloring:
        """Return the colours of a mesh; a window has the limits of the whole picture."""
        part, whole_id = self.partition_of(mesh), mesh.partition("/w")[0]
        pane, frame = map(int, mesh.split("/")[:2])
        whole, limits_id = part, whole_id
        if whole_id != mesh:
            try:
                whole = self.partition_of(whole_id)
            except TooMuch:  # there are only windows, and pixels that they must match
                limits_id = str(pane)
                if name == "class" and (limits_id, name, output) not in self._limits:
                    typical = self.panes[pane].typical_lead(frame, self.options.level or 0.0)
                    self._limits[limits_id, name, output] = (0.0, typical)
            except SplineCamError:  # the plane was moved since
                limits_id = str(pane)
        given = self.options.colors.get(name)
        count = len(self.panes[pane].labels)
        if count > 1 and isinstance(given, list | tuple) and len(given) == count:
            given = given[frame]

        def colored(shown: Partition, like: Limits | None = None) -> Coloring:
            own = None if given is None else scene.given_colors(given, shown, whole)
            return scene.coloring_of(shown, name, output, self.options, like=like, given=own)

        if name == "class":  # leads are similar in other planes, and take long to find
            limits_id = limits_id.partition("/p")[0]
        key = limits_id, name, output
        if mesh == limits_id or key not in self._limits:
            found = colored(whole)
            self._limits[key] = found.limits
            while len(self._limits) > _LIMITS:
                del self._limits[next(iter(self._limits))]
            if part is whole:
                return found
        return colored(part, self._limits[key])

    def _band(self, request: Request) -> Message:
        mesh, level = text(request, "mesh"), request.get("level")
        part = self.partition_of(mesh)
        if part.smoothing is None or not scene.has_classes(part, self.options.level):
            raise RequestError("There is no band: the partition is exact, or has no classes.")
        if level is None:  # the level of the first view
            level = self.options.state.get("level", self.options.level or 0.0)
        return scene.band_answer(part, {"mesh": mesh}, level)

    def _gradient(self, request: Request) -> Message:
        mesh = text(request, "mesh")
        part = self.partition_of(mesh)
        region = integer(request, "region", len(part))
        return scene.gradient_answer(part, mesh, region, self._output_of(request, part))

    def _output_of(self, request: Request, part: Partition) -> int | None:
        """Return the output of a request, or None."""
        if request.get("output") is None:
            return None
        return integer(request, "output", part._n_out)


def _said(error: BaseException) -> str:
    """Return what went wrong, in a sentence."""
    said = " ".join(str(error).split()) or type(error).__name__
    if not isinstance(error, SplineCamError | ValueError | IndexError | TypeError):
        said = f"{type(error).__name__}: {said}"
    return said[:2000]
