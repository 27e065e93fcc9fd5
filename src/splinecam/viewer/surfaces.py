"""Surfaces in the viewer: what a page is told of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from splinecam.errors import DomainError
from splinecam.geometry.domain import Domain
from splinecam.plot.solids import SolidLook, facet_coloring, require_up
from splinecam.solid.outputs import chosen_output
from splinecam.solid.surface import Surface
from splinecam.viewer.answers import Request, RequestError, integer, number, text
from splinecam.viewer.container import Message, key_of, pack
from splinecam.viewer.dense import network_message
from splinecam.viewer.frames import Limits, Network, TooMuch
from splinecam.viewer.panes import SceneOptions
from splinecam.viewer.scene import coloring_answer
from splinecam.viewer.session import Session
from splinecam.viewer.view_state import browser_state, checked_state

# The colourings by name, with what the page calls them; the page knows the plain one by itself.
_COLORINGS = {"plain": "one colour", "normal": "normal", "layer": "last layer", "region": "region"}
_DISTANCE, _GIVEN = "distance", "given"
_CORNERS = 64  # of a section at most
_SHOWN = 6  # inches of a still picture


class SurfaceSession(Session):
    """Surfaces in one box, shown one at a time, and the answers to requests about them.

    look: ``color`` may also be another surface, whose distance is shown, or a sequence with numbers
    for each surface.
    """

    script = "surface.js"

    def __init__(
        self,
        surfaces: Sequence[Surface],
        labels: Sequence[str],
        options: SceneOptions,
        look: SolidLook,
    ) -> None:
        super().__init__([], options)
        self.surfaces, self.labels, self.look = tuple(surfaces), tuple(labels), look
        corners = self.surfaces[0].box.corners.cpu().double()
        self._middle = corners.mean(0)
        self._radius = float((corners - self._middle).norm(dim=1).max())
        self._numbers: list[Tensor] | None = None
        self._networks = dict[int, Network]()
        self._own, self._given = _own_coloring(look.color)
        self.answers = {
            "scene": self._scene,
            "surface": self._surface,
            "coloring": self._solid_coloring,
            "network": lambda request: network_message(self.surfaces[self._frame(request)]),
            "section": self._section,
        }

    @property
    def title(self) -> str:
        """The heading."""
        return self.options.title or _title(self.surfaces[0])

    def with_options(self, options: SceneOptions) -> SurfaceSession:
        """Return a session of the same surfaces with other options."""
        return SurfaceSession(self.surfaces, self.labels, options, self.look)

    def recorded(self) -> dict[str, bytes]:
        """Return all answers by key, for a file."""
        names = [name for name in (*_COLORINGS, self._own) if name and name != "plain"]
        asked: list[dict[str, Any]] = [{"ask": "scene"}]
        for frame in range(len(self.surfaces)):
            asked.append({"ask": "surface", "frame": frame})
            asked += [{"ask": "coloring", "frame": frame, "name": name} for name in names]
            asked.append({"ask": "network", "frame": frame})
        answers = ((request, self.reply(request)) for request in asked)
        return {key_of(key): pack(*found[:2], compact=True) for key, found in answers}

    def still_png(self, frame: int) -> bytes:
        """Return a picture of a surface for exported notebooks."""
        surface, style = self.surfaces[frame], {"up": self.look.up, "view": self.look.view}
        color: Any = {} if self._own else {"color": self.look.color}
        figure = surface.plot(**style, **color).figure
        figure.set_size_inches(_SHOWN, _SHOWN)
        file = BytesIO()
        figure.savefig(file, format="png")
        return file.getvalue()

    # -- the answers ------------------------------------------------------------------------------

    def _scene(self, _: Request) -> Message:
        first = self.surfaces[0]
        named = [*_COLORINGS.items()]
        if self._own:
            label = _DISTANCE if self._own == _DISTANCE else "given numbers"
            named.append((self._own, label))
        color = self._own or (self.look.color if self.look.color in _COLORINGS else "plain")
        sides = [zip(side, (*side[1:], side[0]), strict=True) for side in first.box.sides]
        edges = sorted({tuple(sorted(edge)) for side in sides for edge in side})
        return Message(
            {
                "kind": "solid",
                "title": self.title,
                "live": self.options.live,
                "frames": list(self.labels),
                "layers": _layers(first),
                "colorings": [{"name": name, "label": label} for name, label in named],
                "center": self._middle.tolist(),
                "scale": self._radius,
                "ball": self._ball(),
                "view": [float(angle) for angle in self.look.view],
                "up": self.look.up,
                "plain": first.box._plain,
                "state": {"color": color, "edges": self.look.edges is not False}
                | dict(self.options.state),
            },
            {
                "corners": self._local(first.box.corners.cpu().double()),
                "edges": np.asarray(edges, np.uint32),
            },
        )

    def _frame(self, request: Request) -> int:
        return integer(request, "frame", len(self.surfaces))

    def _local(self, points: Tensor) -> Any:
        """Points in the coordinates of the page: the box lies around 0, with radius 1."""
        return ((points - self._middle) / self._radius).to(torch.float32).numpy()

    def _ball(self) -> list[float]:
        """The middle and the radius of a ball around all surfaces, or else around the box."""
        every = torch.cat([surface.vertices for surface in self.surfaces])
        if not len(every):
            return [0.0, 0.0, 0.0, 1.0]
        local = (every - self._middle) / self._radius
        middle = (local.amin(0) + local.amax(0)) / 2
        return [*middle.tolist(), max(float((local - middle).norm(dim=1).max()), 1e-3)]

    def _surface(self, request: Request) -> Message:
        frame = self._frame(request)
        surface = self.surfaces[frame]
        counts, region = surface.structure.counts, surface.face_region
        report = surface.report()
        shown = ("faces", "vertices", "open edges", "components", "genus", "area", "volume")
        return Message(
            {
                "kind": "surface",
                "frame": frame,
                "level": surface.level,
                "output": str(surface.output),
                "facts": [[name, _plain(report[name])] for name in shown],
                "unresolved": report["unresolved"],
            },
            {
                "vertices": self._local(surface.vertices),
                "counts": counts.numpy().astype(np.uint16),
                "corners": surface.face_vertices.numpy().astype(np.uint32),
                "edgeLayer": surface.edge_layer.numpy().astype(np.int16),
                "gradients": surface.gradients.numpy().astype(np.float32),
                "bias": surface.bias.numpy(),
                "areas": surface.areas.numpy().astype(np.float32),
                "region": region.numpy().astype(np.int32 if _is_small(region) else np.float64),
            },
        )

    def _solid_coloring(self, request: Request) -> Message:
        frame, name = self._frame(request), text(request, "name")
        look = self.look
        if name == self._own:
            numbers = self._numbers_of_all()
            every = torch.cat(numbers) if look.limits is None else torch.zeros(0)
            limits = (float(every.min()), float(every.max())) if every.numel() else look.limits
            look = replace(look, color=numbers[frame].numpy(), limits=limits)
        elif name in _COLORINGS and name != "plain":
            look = replace(look, color=name)
        else:
            raise RequestError(f"There is no colouring {name[:60]!r}.")
        coloring = facet_coloring(self.surfaces[frame]._facets(), look)
        label = coloring.label or (_COLORINGS | {_DISTANCE: _DISTANCE}).get(name, "")
        coloring = replace(coloring, label=label)
        return coloring_answer(coloring, {"mesh": str(frame), "name": name, "output": None}, [])

    def _section(self, request: Request) -> Message:
        """The exact partition of a convex polygon of a plane, as polygons in space."""
        frame, corners = self._frame(request), request.get("corners")
        if not isinstance(corners, list | tuple) or not 3 <= len(corners) <= _CORNERS:
            raise RequestError(f"A section has 3 to {_CORNERS} corners.")
        flat = [number(x, "corners") for corner in corners for x in corner]
        if len(flat) != 3 * len(corners):
            raise RequestError("A corner has three coordinates.")
        surface = self.surfaces[frame]
        box, place = surface.box, torch.tensor(flat, dtype=torch.float64).view(-1, 3)
        domain = Domain.polygon(box.to_input(place))
        network = self._network(frame, domain)
        try:
            part = network.partition(domain, Limits(), self.outdated)
        except TooMuch as reason:
            return Message({"kind": "section", "frame": frame, "reason": str(reason)})
        mesh = part.mesh
        x = domain.embed(part.vertices.cpu()).reshape(-1, domain.dim) - box.origin.cpu().reshape(-1)
        values = chosen_output(part._outputs.cpu(), surface.output) - surface.level
        sides = mesh.corners.cpu()
        return Message(
            {"kind": "section", "frame": frame, "reason": ""},
            {
                "vertices": self._local(x @ box.basis.cpu().T),
                "values": values.numpy().astype(np.float32),
                "counts": mesh.counts().cpu().numpy().astype(np.uint16),
                "corners": part._face_vertices.cpu().numpy().astype(np.uint32),
                "edgeLayer": mesh.edge_layer.cpu()[sides >> 1].numpy().astype(np.int16),
            },
        )

    def _network(self, frame: int, domain: Domain) -> Network:
        if frame not in self._networks:
            found = Network.of_model(self.surfaces[frame].network, domain)
            self._networks[frame] = found
        return self._networks[frame]

    def _numbers_of_all(self) -> list[Tensor]:
        """The numbers of the faces of each surface, which share one scale."""
        if self._numbers is None:
            self._numbers = _numbers(self._given, self.surfaces)
        return self._numbers


def surface_session(
    subjects: Sequence[Any],
    *,
    frames: Sequence[str] | None = None,
    title: str = "",
    state: Mapping[str, Any] | None = None,
    live: bool = True,
    python: str = "",
    **options: Any,
) -> SurfaceSession:
    """Return the session of surfaces, with a slider if there are several."""
    surfaces = [
        s for each in subjects for s in (each if isinstance(each, list | tuple) else [each])
    ]
    if not all(isinstance(s, Surface) for s in surfaces):
        raise TypeError("surfaces are shown by themselves, with a slider: sc.view([first, second])")
    names = ("color", "cmap", "limits", "edges", "view", "up")
    unknown = [name for name in options if name not in names]
    if unknown:
        listed = ", ".join((*names, "frames", "title", "state"))
        raise TypeError(f"a surface is not shown with {unknown[0]!r}; there are {listed}")
    count = len(surfaces)
    labels = [str(k) for k in range(count)] if frames is None else [str(each) for each in frames]
    if len(labels) != count:
        raise ValueError(f"there are {len(labels)} labels for {count} surfaces")
    box = surfaces[0].box
    for label, surface in zip(labels, surfaces, strict=True):
        pairs = [(getattr(surface.box, a), getattr(box, a)) for a in ("corners", "origin", "basis")]
        if any(a.shape != b.shape or not torch.equal(a.cpu(), b.cpu()) for a, b in pairs):
            raise DomainError(f"The surface {label!r} lies in another box than the first one.")
    color = options.get("color")
    look = SolidLook(**options | {"color": "plain" if color is None else color})
    require_up(look.up)
    opening = browser_state(checked_state(state or {}))
    session = SurfaceSession(
        surfaces, labels, SceneOptions(title=title, state=opening, live=live, python=python), look
    )
    if session._own:  # wrong numbers are an error here, and not in the page
        session._numbers_of_all()
    elif look.color not in _COLORINGS:
        raise ValueError(f"color is {color!r}; choose of {', '.join(_COLORINGS)}, or give numbers")
    return session


def has_surfaces(subjects: Sequence[Any]) -> bool:
    """Whether surfaces are to be shown."""
    flat = [s for each in subjects for s in (each if isinstance(each, list | tuple) else [each])]
    return any(isinstance(each, Surface) for each in flat)


def _own_coloring(color: Any) -> tuple[str, Any]:
    """The name of a colouring by numbers, or "", and what gives them."""
    if isinstance(color, str):
        return "", None
    return (_DISTANCE if isinstance(color, Surface) else _GIVEN), color


def _numbers(given: Any, surfaces: Sequence[Surface]) -> list[Tensor]:
    if isinstance(given, Surface):
        return [given.distance(_centers(surface)) for surface in surfaces]
    each = [given] if len(surfaces) == 1 else given
    found = [torch.as_tensor(numbers).detach().cpu().double() for numbers in each]
    sizes = [len(surface) for surface in surfaces]
    if [tuple(numbers.shape) for numbers in found] != [(size,) for size in sizes]:
        raise ValueError(f"color has no number for each face: the surfaces have {sizes} faces")
    return found


def _centers(surface: Surface) -> Tensor:
    """The mean of the corners of each face, (F, 3)."""
    faces, at = surface.structure, surface.vertices[surface.face_vertices]
    total = at.new_zeros((len(surface), 3)).index_add_(0, faces.face, at)
    return total / faces.counts[:, None]


def _layers(surface: Surface) -> list[dict[str, Any]]:
    """The names of the layers, and how many units they have."""
    program = getattr(surface.network, "program", None)
    if program is None:
        return [{"name": name, "units": 0} for name in surface._facets().layers]
    return [{"name": each.name, "units": prod(each.shape)} for each in program.layers]


def _plain(value: Any) -> Any:
    """A number that JSON knows, or None."""
    return value if isinstance(value, int) or np.isfinite(value) else None


def _is_small(numbers: Tensor) -> bool:
    return not numbers.numel() or int(numbers.max()) < 1 << 31


def _title(surface: Surface) -> str:
    model = getattr(surface.network, "model", None)
    return "Surface" if model is None else f"Surface of {type(model).__name__}"
