"""The answers that a file holds: to every request that needs no computation while one looks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from splinecam._partition import Partition
from splinecam.errors import SplineCamError
from splinecam.viewer.answers import Answer, Request
from splinecam.viewer.container import key_of, pack
from splinecam.viewer.gradients import quantized_gradients
from splinecam.viewer.meshes import Sizes, has_classes, outputs_of
from splinecam.viewer.scene import COLUMNS
from splinecam.viewer.session import Session
from splinecam.viewer.windows import TooMuch

__all__ = ["Recording"]

_FILE = Sizes(outputs=200, values=3_200_000, points=1_000_000, precise=1_000_000)
_ALL, _MOST = 50_000, 300_000  # regions up to which files hold all colourings, or most
_CHEAP = ("class", "output", "layer", "area", "vertices")  # those of larger ones
_SLOPES = 2_000_000  # numbers up to which files hold the slopes of every output
_GRADIENTS = 6_000_000  # numbers up to which files hold gradients


class Recording:
    """A scene, and the answers to what a viewer asks about it.

    session: gives the answers; it must not be live. colorings, gradients: what is recorded, by
    default what is not too much.
    """

    def __init__(
        self,
        session: Session,
        *,
        colorings: Sequence[str] | None = None,
        gradients: bool | None = None,
    ) -> None:
        self.session = session
        self.session.sizes = _FILE
        self.scene = self.session.reply({"ask": "scene"})
        self._wanted, self._gradients = colorings, gradients
        if isinstance(colorings, str):
            raise TypeError(f"colorings must be a list of names, not {colorings!r}")

    @property
    def title(self) -> str:
        """The title of the scene."""
        return str(self.scene.message["title"])

    def answers(self) -> dict[str, bytes]:
        """All answers by key."""
        # Frames are looked at twice, so that those of a long run need not be in memory together.
        sizes = [self._size(pane, frame) for pane, frame in self._frames()]
        regions, numbers = (sum(each) for each in zip(*sizes, strict=True))
        names, single = self._names(regions), numbers > _SLOPES
        found = {}
        for pane, frame in self._frames():
            part = self._partition(pane, frame)
            request = {"ask": "mesh", "pane": pane, "frame": frame}
            answer = self.session.reply(request)
            if self._with_gradients(part, regions * part.domain.dim):
                answer = Answer(answer.message, answer.arrays | quantized_gradients(part))
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
                    names.remove(name)  # such as one that needs a network that is not there
        found[key_of({"ask": "scene"})] = _packed(self._scene(names, single=single))
        return found

    def _frames(self) -> Iterator[tuple[int, int]]:
        for number, pane in enumerate(self.session.panes):
            for frame in range(len(pane.labels)):
                yield number, frame

    def _size(self, pane: int, frame: int) -> tuple[int, int]:
        """The number of regions of a frame, and of its outputs on all of them."""
        try:
            part = self.session.panes[pane].partition(frame)
        except TooMuch as reason:
            raise SplineCamError(
                f"The partition is too large for a file: {reason}. Give a smaller domain, or a "
                "larger max_regions."
            ) from None
        return len(part), len(part) * int(part.values.shape[1])

    def _partition(self, pane: int, frame: int) -> Partition:
        chosen = self.session.panes[pane]
        return self.session.keep(chosen.mesh_id(pane, frame), chosen.partition(frame))

    def _with_gradients(self, part: Partition, numbers: int) -> bool:
        """Whether a file holds gradients: in a plane of two inputs the maps are the same."""
        if self._gradients is not None:
            return self._gradients
        known = part._program is not None and part.domain.dim > 2
        return known and numbers <= _GRADIENTS

    def _names(self, regions: int) -> list[str]:
        """The colourings of the file: those that were asked for, or are not too much."""
        panes = self.scene.message["panes"]
        known = dict.fromkeys(each["name"] for pane in panes for each in pane["colorings"])
        if self._wanted is not None:
            unknown = next((name for name in self._wanted if name not in known), None)
            if unknown is not None:
                raise ValueError(f"there is no colouring {unknown!r}; choose of {', '.join(known)}")
        own = [name for name in known if self._is_asked_for(name)]
        if self._wanted is not None:
            return own
        if regions <= _ALL:
            return list(known)
        most = [name for name in known if name not in COLUMNS or name in own]
        if regions <= _MOST:
            return most
        return [name for name in most if name in _CHEAP or name in own]

    def _is_asked_for(self, name: str) -> bool:
        options = self.session.options
        asked = (*(self._wanted or ()), *options.colors)
        return name in asked or name == self.scene.message["state"]["color"]

    def _colorings(
        self, part: Partition, mesh: str, name: str, *, single: bool
    ) -> dict[str, bytes]:
        """The answers about one colouring of a mesh: of each output, where colours depend on it."""
        outputs: list[int | None] = [None]
        if part.values.shape[1] > 1 and (name == "output" or (name == "slope" and not single)):
            outputs += outputs_of(part, self.session.options.level, _FILE)
        found: dict[str, bytes] = {}
        for output in reversed(outputs):
            request = {"ask": "coloring", "mesh": mesh, "name": name, "output": output}
            first = key_of(request | {"output": 0})
            if name == "output" and output is None and first in found:  # which is the first one
                found[key_of(request)] = found[first]
            else:
                found[key_of(request)] = _packed(self.session.reply(request))
        return found

    def _scene(self, names: Sequence[str], *, single: bool) -> Answer:
        """The scene, with the colourings that are in the file."""
        panes = [
            pane
            | {
                "colorings": [
                    choice | {"byOutput": choice["byOutput"] and (_of_all(choice) or not single)}
                    for choice in pane["colorings"]
                    if choice["name"] in names
                ]
            }
            for pane in self.scene.message["panes"]
        ]
        return Answer(self.scene.message | {"panes": panes}, self.scene.arrays)


def _of_all(choice: Request) -> bool:
    """Whether a file always holds a colouring for every output."""
    return bool(choice["name"] == "output")


def _packed(answer: Answer) -> bytes:
    return pack(answer.message, answer.arrays, compact=True)
