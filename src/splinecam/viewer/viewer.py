"""The open viewer as an object: what is selected in it, what it shows, and how it is closed."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import RLock
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from splinecam.analysis.regions import Region
from splinecam.viewer.answers import Answer, Request
from splinecam.viewer.container import pack
from splinecam.viewer.growing import Growing
from splinecam.viewer.scene_options import SceneOptions
from splinecam.viewer.selection import Selection, selection_of
from splinecam.viewer.view_state import browser_state, checked_state, state_of_browser

if TYPE_CHECKING:
    from splinecam.viewer.session import Session

__all__ = ["Door", "Selection", "Viewer"]

_LOG = logging.getLogger("splinecam")

Callback = Callable[[Selection], object]


class Door(Protocol):
    """How a viewer is reached: by a browser or in a notebook."""

    @property
    def url(self) -> str | None:
        """The address for a browser, or None."""

    def notify(self, notice: bytes) -> None:
        """Send a message to every view that is open."""

    def wait(self) -> None:
        """Return when the last view has been closed."""

    def close(self) -> None:
        """Close all views."""


class Viewer:
    """A viewer that ``part.view()`` or ``sc.view(...)`` opened.

    A notebook shows it as the value of a cell. It is a context manager, which closes it. session:
    what is shown, and the answers to a view.

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
        self._door: Door | None = None
        self._growing: Growing | None = None
        self._selection = Selection()
        self._callbacks: dict[object, Callback] = {}
        self._state = _opening(session.options)
        self._lock = RLock()
        self._closed = False
        session.told |= {"select": self._told_selection, "state": self._told_state}

    # -- what comes back ----------------------------------------------------------------------

    @property
    def selection(self) -> Selection:
        """What is selected: region, place, input, unit; it counts as False if nothing is."""
        return self._selection

    def on_select(self, callback: Callable[[Selection], object]) -> Callable[[], None]:
        """Call a function with the selection whenever it changes; returns a function to end this.

        callback: the function. It is called in a thread of the viewer, or in a notebook when no
        cell runs, also when nothing is selected any more. An exception in it is logged.
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

    def _told_selection(self, request: Request) -> Answer:
        self._select(selection_of(request, self.session))
        return Answer({"kind": "ok"})

    def _told_state(self, request: Request) -> Answer:
        reported = state_of_browser(request.get("state"))
        with self._lock:
            self._state.update(reported)
        self._show_state()
        return Answer({"kind": "ok"})

    def _select(self, selection: Selection) -> None:
        """Take over a selection; views tell it again when they show it in another window."""
        before, self._selection = self._selection, selection
        if selection.key == before.key:
            return
        with self._lock:
            callbacks = list(self._callbacks.values())
        for callback in callbacks:
            try:
                callback(selection)
            except Exception:
                _LOG.exception("A callback of viewer.on_select raised an exception")

    # -- what is shown ------------------------------------------------------------------------

    @property
    def state(self) -> dict[str, Any]:
        """How the view is: camera, colours, switches; assign a dict to change some of it.

        center: plane coordinates of the middle; width: in plane coordinates, 0 for the whole
        domain; color, output, level: as in ``view``; frame: of a slider; edges, boundary, band,
        level_set, points, thumbnails: switches; hidden_layers: numbers of layers whose edges are
        hidden; edge_width: a factor; theme: "auto", "light" or "dark"; selected, compared: places
        ``{"pane": 0, "at": (u, v)}``. Only what was set or reported by the view is there.
        """
        with self._lock:
            return dict(self._state)

    @state.setter
    def state(self, state: Mapping[str, Any]) -> None:
        change = checked_state(state)
        with self._lock:
            self._state.update(change)
            options = self.session.options  # which views that open later begin with
            begin = {**options.state, **browser_state(change)}
            self.session.options = replace(options, state=begin)
        self._show_state()
        if self._door is not None:
            self._door.notify(pack({"kind": "state", "state": browser_state(change)}))

    def _show_state(self) -> None:
        """Let the traits of a widget have the state, too."""
        if self.widget is not None:
            self.widget.state = browser_state(self.state)

    def set(self, **state: Any) -> None:
        """Change some of the state: ``viewer.set(color="slope", width=0.1)``.

        state: values by the names that ``state`` has.
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

    def open(self, door: Door) -> None:
        """Be reached through a door from now on."""
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
        """Close the viewer: its page says that it is closed, and nothing is computed any more."""
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
        from splinecam.viewer.page import write_page
        from splinecam.viewer.session import Session

        options = replace(self.session.options, live=False, state=browser_state(self.state))
        write_page(Session(self.session.panes, options), path, **recorded)

    def __enter__(self) -> Viewer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        """The widget, where there is one."""
        if self.widget is None or self._closed:
            return {"text/plain": repr(self)}
        return self.widget._repr_mimebundle_(**options)

    def _display_(self) -> Any:
        """What marimo shows."""
        return repr(self) if self.widget is None else self.widget


def _opening(options: SceneOptions) -> dict[str, Any]:
    """The state that a viewer begins with, as far as it was given."""
    given = {name: getattr(options, name) for name in ("color", "output", "level")}
    state = {name: value for name, value in given.items() if value is not None}
    return checked_state(state) | state_of_browser(options.state)
