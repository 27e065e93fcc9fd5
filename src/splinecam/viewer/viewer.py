"""Opens a viewer in the notebook or the browser; the open viewer as an object."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import RLock
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import torch
from torch import Tensor

from splinecam.partitions.partition import Partition
from splinecam.questions.partition_data import Region
from splinecam.viewer.answers import Request, RequestError, integer, number, text
from splinecam.viewer.container import Message, pack
from splinecam.viewer.page import LIVE_PAGE, asset, write_page
from splinecam.viewer.panes import MAX_REGIONS, Growing
from splinecam.viewer.subjects import missing_package, session_of
from splinecam.viewer.surroundings import in_notebook, is_interactive, open_browser
from splinecam.viewer.view_state import browser_state, checked_state, state_of_browser

if TYPE_CHECKING:
    from splinecam.viewer.server import Server
    from splinecam.viewer.session import Session
    from splinecam.viewer.widget import ViewerWidget


@dataclass(frozen=True, eq=False)
class Selection:
    """What was clicked in a viewer; it counts as False where nothing is selected.

    region: a region of the partition that was given to the viewer; if none was given, or the plane
    was moved, a region of the computed partition. compared: a second region, or None. uv: the plane
    coordinates of the place, or None. unit: the name of a layer and the number of its unit, if an
    edge was clicked. pane, frame: where it was clicked. partition: the partition of ``region``, or
    None if nothing is selected.
    """

    partition: Partition | None = None
    region: Region | None = None
    compared: Region | None = None
    uv: tuple[float, float] | None = None
    unit: tuple[str, int] | None = None
    pane: int = 0
    frame: int = 0

    @property
    def input(self) -> Tensor | None:
        """The input at the place, ready for the model, or None."""
        if self.uv is None or self.partition is None:
            return None
        return self.partition._inputs(torch.tensor([self.uv], dtype=torch.float64))[0]

    @property
    def key(self) -> tuple[Any, ...]:
        """What differs when something else is selected."""
        return self.region, self.compared, self.uv, self.unit, self.pane, self.frame

    def __bool__(self) -> bool:
        return self.partition is not None

    def __repr__(self) -> str:
        parts = [] if self else ["nothing"]
        if self.region is not None and self.partition is not None:
            parts.append(f"region {self.region.index} of {len(self.partition):,}")
        if self.compared is not None:
            parts.append(f"compared with {self.compared.index}")
        if self.uv is not None:
            parts.append(f"at ({self.uv[0]:.6g}, {self.uv[1]:.6g})")
        if self.unit is not None:
            parts.append("layer {}, unit {}".format(*self.unit))
        return f"Selection({', '.join(parts)})"


def selection_of(request: Mapping[str, Any], session: Session) -> Selection:
    """Return the selection of a request, which may be nothing, or raise a ``RequestError``."""
    place, pane = session.pane_of(request)
    frame = session.frame_of(request, pane)
    names = ("region", "compared", "unit", "at")
    region, compared, unit, at = (request.get(name) for name in names)
    if region is None and compared is None and unit is None:
        return Selection(pane=place, frame=frame)
    mesh, uv = text(request, "mesh"), None if at is None else _place(at)
    shown = None if region is None else _region(session, mesh, request, "region", uv)
    other = None
    if compared is not None:
        other_mesh = text(request, "comparedMesh") if request.get("comparedMesh") else mesh
        other = _region(session, other_mesh, request, "compared", None)
    seen = session.partition_of(mesh)
    part = seen if shown is None else shown.partition
    assert isinstance(part, Partition)
    if unit is not None:
        if not isinstance(unit, list | tuple) or len(unit) != 2:
            raise RequestError("unit must be two numbers: layer, unit.")
        layer = seen.layers[integer({"layer": unit[0]}, "layer", len(seen.layers))]
        unit = layer, integer({"unit": unit[1]}, "unit", 1 << 31)
    return Selection(part, shown, other, uv, unit, place, frame)


Place = tuple[float, float]


def _place(at: Any) -> Place:
    if not isinstance(at, list | tuple) or len(at) != 2:
        raise RequestError("at must be two numbers: u, v.")
    return number(at[0], "at"), number(at[1], "at")


def _region(session: Session, mesh: str, request: Request, name: str, uv: Place | None) -> Region:
    """Return the region of the given partition if there is one, else that of the mesh."""
    seen = session.partition_of(mesh)
    index = integer(request, name, len(seen), what="regions")
    pane, frame, *rest = mesh.split("/")
    moved = any(part.startswith("p") for part in rest)  # to another plane
    given = None if moved else session.panes[int(pane)].frames.partition(int(frame))
    if given is None or given is seen:
        return seen[index]
    place = seen.centroids[index].cpu() if uv is None else torch.tensor(uv, dtype=torch.float64)
    found = int(given.locate(given.domain.embed(place[None]))[0])
    return seen[index] if found < 0 else given[found]


_LOG = logging.getLogger("splinecam")

Callback = Callable[[Selection], object]
Door = Literal["widget", "browser"] | None


class Viewer:
    """A viewer that ``part.view()`` or ``sc.view(...)`` opened.

    A notebook shows it as the value of a cell. As a context manager, it is closed at the end.
    session: what is shown, and the answers to a view.

    >>> import splinecam as sc
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> part = sc.partition(net, sc.Domain.box(-1, 1), progress=False)
    >>> with part.view(browser=False, block=False) as viewer:
    ...     viewer.set(color="slope", edge_width=2)
    ...     viewer.selection
    Selection(nothing)
    """

    def __init__(self, session: Session):
        self.session = session
        self._door: Server | ViewerWidget | None = None
        self._growing: Growing | None = None
        self._selection = Selection()
        self._callbacks: dict[object, Callback] = {}
        options = session.options  # they give the first state, as far as it is known
        given = {name: getattr(options, name) for name in ("color", "output", "level")}
        known = {name: value for name, value in given.items() if value is not None}
        self._state = checked_state(known) | state_of_browser(options.state)
        self._lock = RLock()
        self._closed = False
        session.told |= {"select": self._told_selection, "state": self._told_state}

    # -- what comes back ----------------------------------------------------------------------

    @property
    def selection(self) -> Selection:
        """What is selected: region, place, input, unit; it counts as False if nothing is."""
        return self._selection

    def on_select(self, callback: Callable[[Selection], object]) -> Callable[[], None]:
        """Call a function with the selection whenever it changes; return a function to end this.

        callback: the function. It is called in a thread of the viewer, or in a notebook when no
        cell runs, even when nothing is selected any more. Its exceptions are logged.
        """
        if not callable(callback):
            raise TypeError(f"a callback is a function, not {type(callback).__name__}")
        entry = object()  # the same function may be called for several reasons
        with self._lock:
            self._callbacks[entry] = callback

        def remove() -> None:
            with self._lock:
                self._callbacks.pop(entry, None)

        return remove

    def _told_selection(self, request: Request) -> Message:
        """Take over a selection; views tell it again when they show it in another window."""
        selection = selection_of(request, self.session)
        before, self._selection = self._selection, selection
        with self._lock:
            callbacks = list(self._callbacks.values())
        for callback in callbacks if selection.key != before.key else ():
            try:
                callback(selection)
            except Exception:
                _LOG.exception("A callback of viewer.on_select raised an exception")
        return Message({"kind": "ok"})

    def _told_state(self, request: Request) -> Message:
        reported = state_of_browser(request.get("state"))
        with self._lock:
            self._state.update(reported)
        self._show_state()
        return Message({"kind": "ok"})

    # -- what is shown ------------------------------------------------------------------------

    @property
    def state(self) -> dict[str, Any]:
        """The state of the view: camera, colours, switches; assign a dict to change some of it.

        center: plane coordinates of the middle; width: in plane coordinates, 0 for the whole
        domain; color, output, level: as in ``view``; frame: of a slider; edges, boundary, band,
        level_set, points, thumbnails: switches; hidden_layers: numbers of layers without edges;
        edge_width: a factor; theme: "auto", "light" or "dark"; selected, compared: places
        ``{"pane": 0, "at": (u, v)}``. It holds only what was set, or reported by the view.
        """
        with self._lock:
            return dict(self._state)

    @state.setter
    def state(self, state: Mapping[str, Any]) -> None:
        change = checked_state(state)
        with self._lock:
            self._state.update(change)
            options = self.session.options  # views that open later begin with these
            begin = {**options.state, **browser_state(change)}
            self.session.options = replace(options, state=begin)
        self._show_state()
        if self._door is not None:
            self._door.notify(pack({"kind": "state", "state": browser_state(change)}))

    def _show_state(self) -> None:
        """Give the state to the traits of a widget, too."""
        if self.widget is not None:
            self.widget.state = browser_state(self.state)

    def set(self, **state: Any) -> None:
        """Change some of the state: ``viewer.set(color="slope", width=0.1)``.

        state: values by the names of ``state``.
        """
        self.state = state

    def select(self, region: Region | None) -> None:
        """Select a region of a partition that is shown.

        region: the region, or None to select nothing.
        """
        if region is None:
            self.set(selected=None, compared=None)
            return
        shown = self.session.place_of(region.partition)
        if shown is None:
            raise ValueError(f"{region!r} is not of a partition that this viewer shows")
        pane, frame = shown
        self.set(frame=frame, selected={"pane": pane, "at": region.centroid})

    # -- doors --------------------------------------------------------------------------------

    def open(self, door: Server | ViewerWidget) -> None:
        """Open a door to this viewer, for a browser or a notebook."""
        self._door = door
        self._growing = Growing(self.session.panes, door.notify)

    @property
    def url(self) -> str | None:
        """The address of the page, which holds its secret; None in a notebook."""
        return None if self._door is None else self._door.url

    @property
    def widget(self) -> Any:
        """The widget of a notebook, or None."""
        return self._door if hasattr(self._door, "_repr_mimebundle_") else None

    def wait(self) -> None:
        """Return when the page has been closed, or at Ctrl-C."""
        if self._door is not None and not self._closed:
            try:
                self._door.wait()
            except KeyboardInterrupt:
                _LOG.info("The viewer was interrupted")

    def close(self) -> None:
        """Close the viewer: its page says so, and nothing is computed any more."""
        if not self._closed:
            self._closed = True
            if self._growing is not None:
                self._growing.close()
            if self._door is not None:
                self._door.close()

    def to_html(self, path: str | os.PathLike[str] | BinaryIO, **recorded: Any) -> None:
        """Write what is shown, as it is shown, to one HTML file, which opens without Python.

        path: the file. recorded: the options ``colorings`` and ``gradients`` of ``sc.to_html``.
        """
        options = replace(self.session.options, live=False, state=browser_state(self.state))
        write_page(self.session.with_options(options), path, **recorded)

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        panes = self.session.panes
        parts = [", ".join(pane.title for pane in panes)]
        if self._closed:
            parts.append("closed")
        elif self.url is not None:
            parts.append(self.url)
        if self._selection:
            parts.append(repr(self._selection))
        return f"Viewer({', '.join(parts)})"

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """Return the widget, where there is one."""
        if self.widget is None or self._closed:
            return {"text/plain": repr(self)}
        return self.widget._repr_mimebundle_(**options)

    def _display_(self) -> Any:
        """Return what marimo shows."""
        return repr(self) if self.widget is None else self.widget


def view(  # noqa: PLR0913 - the options of a picture, each given by its name
    *subjects: Any,
    color: Any = None,
    output: int | None = None,
    level: float | None = None,
    points: Any = None,
    labels: Any = None,
    images: Any = None,
    anchors: Any = None,
    names: Sequence[str] | None = None,
    frames: Sequence[str] | None = None,
    title: str | None = None,
    state: Mapping[str, Any] | None = None,
    max_regions: float = MAX_REGIONS,
    door: Literal["widget", "browser"] | None = None,
    browser: bool = True,
    port: int = 0,
    block: bool | None = None,
    height: int = 560,
    **more: Any,
) -> Viewer:
    """Open a viewer to look at regions, point at them, and zoom without end.

    A notebook (Jupyter, VS Code, Colab, marimo) shows it as the value of a cell; elsewhere it opens
    in the browser, from a server on this machine that nobody else can reach. ``viewer.selection``
    is what is selected there.

    subjects: a partition or an atlas, or several side by side; a list of partitions of one domain,
    with a slider; a model and a domain, ``sc.view(model, domain)``, computed as far as one looks; a
    run of ``sc.watch``, or its folder, also while it grows; a surface of ``sc.surface``, or a list
    of surfaces in one box, with a slider.

    color, output, level, points, labels, images, names: as for ``part.plot``. color may be any name
    that the viewer offers, such as a column of ``part.table()``, or an array of numbers or colours
    (F,). anchors: three inputs to move the plane by, by default corners of the domain. frames:
    labels of a slider. title: the heading. state: the first view, as in ``viewer.state``.
    max_regions: limits what is computed while one looks. more: further options of the scene
    (``cmap``, ``limits``, ``seed``, ``colors``, ``shape``), and ``memory``, ``device`` and
    ``smooth`` for what is computed.

    door: ``"widget"`` or ``"browser"``, by default the one that fits. browser: whether to open it;
    if not, open ``viewer.url`` yourself, which holds a secret. port: of the server, by default any
    free one. block: wait until the page is closed, or for Ctrl-C, by default in scripts, where
    Python would end. height: of the widget, in pixels.

    >>> import splinecam as sc, torch
    >>> part = sc.partition(torch.nn.Linear(2, 3), sc.Domain.box(-1, 1), progress=False)
    >>> viewer = sc.view(part, color="slope", browser=False, block=False)
    >>> viewer.state["color"]
    'slope'
    >>> viewer.close()
    """
    if door not in (None, "widget", "browser"):
        raise ValueError(f'door is {door!r}; choose "widget" or "browser"')
    options = {"names": names, "title": title, "state": state, "level": level, **more}
    samples = {"points": points, "labels": labels, "images": images, "anchors": anchors}
    session = session_of(
        subjects,
        color=color,
        output=output,
        frames=frames,
        max_regions=max_regions,
        **{name: value for name, value in (options | samples).items() if value is not None},
    )
    return opened(session, door=door, browser=browser, port=port, block=block, height=height)


def opened(
    session: Session, *, door: Door, browser: bool, port: int, block: bool | None, height: int = 560
) -> Viewer:
    """Return an open viewer of a session; options: of ``view``."""
    viewer = Viewer(session)
    if door == "widget" or (door is None and in_notebook()):
        try:
            from splinecam.viewer.recording import still_png
            from splinecam.viewer.widget import ViewerWidget
        except ImportError as error:
            raise missing_package("In a notebook the viewer needs anywidget", error) from error
        traits: Any = {"height": height, "state": browser_state(viewer.state)}
        traits["draw"] = lambda: still_png(session, viewer.state)
        viewer.open(ViewerWidget(session.answer, script=session.script, **traits))
        return viewer
    try:
        from splinecam.viewer.server import Server
    except ImportError as error:
        raise missing_package("The viewer needs starlette and uvicorn", error) from error
    files = {
        "": (LIVE_PAGE.encode(), "text/html"),
        "viewer.js": (asset(session.script).encode(), "text/javascript"),
        "style.css": (asset("style.css").encode(), "text/css"),
    }
    server = Server(session.answer, files, port=port)
    viewer.open(server)
    shown = browser and open_browser(server.ticket)
    waits = not is_interactive() if block is None else block
    if waits or (browser and not shown):
        _say(f"The viewer is open at {server.url}")
    if waits:
        with suppress(KeyboardInterrupt):  # as soon as it has been told
            _say("Close its page or press Ctrl-C to end it.")
            viewer.wait()
        viewer.close()
    return viewer


def _say(text: str) -> None:
    """Write to the terminal; a script's results stay alone on standard output."""
    if sys.stderr is not None:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
