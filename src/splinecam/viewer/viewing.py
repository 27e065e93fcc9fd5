"""Open a viewer: in the notebook, or in the browser."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from splinecam.viewer.assets import asset, live_page
from splinecam.viewer.panes import MAX_REGIONS
from splinecam.viewer.subjects import missing_package, session_of
from splinecam.viewer.surroundings import in_notebook, is_interactive, open_browser
from splinecam.viewer.view_state import browser_state
from splinecam.viewer.viewer import Viewer

if TYPE_CHECKING:
    from splinecam.viewer.session import Session

__all__ = ["opened", "view"]


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
    """Open a viewer in which one looks at regions, points at them, and zooms without end.

    A notebook (Jupyter, VS Code, Colab, marimo) shows it as the value of a cell; elsewhere it opens
    in the browser, from a server on this machine that nobody else can reach. What is selected there
    comes back as ``viewer.selection``.

    subjects: a partition or an atlas, or several side by side; a list of partitions of one domain,
    with a slider; a model and a domain, ``sc.view(model, domain)``, which is computed as far as one
    looks; a run of ``sc.watch``, or its folder, also while it grows.

    color, output, level, points, labels, images, names: as for ``part.plot``. color may be any name
    that the viewer offers, such as a column of ``part.table()``, or an array of numbers or colours
    (F,). anchors: three inputs, by which one moves the plane; by default those of the domain.
    frames: labels of a slider. title: the heading. state: the view to begin with, as
    ``viewer.state`` gives it. max_regions: of what is computed while one looks. more: further
    options of the scene (``cmap``, ``limits``, ``seed``, ``colors``, ``shape``), and ``memory`` and
    ``device`` for what is computed.

    door: ``"widget"`` or ``"browser"``, by default the one that fits. browser: open it; without,
    open ``viewer.url`` yourself, which holds a secret. port: of the server, by default one that is
    free. block: wait until the page is closed, or Ctrl-C, by default in scripts, where Python would
    end. height: of the widget, in pixels.

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
    session: Session,
    *,
    door: Literal["widget", "browser"] | None = None,
    browser: bool = True,
    port: int = 0,
    block: bool | None = None,
    height: int = 560,
) -> Viewer:
    """A viewer of a session, through the door that fits; the options are those of ``view``."""
    viewer = Viewer(session)
    if door == "widget" or (door is None and in_notebook()):
        viewer.open(_widget(viewer, height))
        return viewer
    server = _server(viewer, port)
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


def _widget(viewer: Viewer, height: int) -> Any:
    """A widget that shows a viewer."""
    try:
        from splinecam.viewer.stills import still_png
        from splinecam.viewer.widget import ViewerWidget
    except ImportError as error:
        raise missing_package("In a notebook the viewer needs anywidget", error) from error
    state = browser_state(viewer.state)
    return ViewerWidget(
        viewer.session.answer,
        draw=lambda: still_png(viewer.session, viewer.state),
        height=height,
        state=state,
    )


def _server(viewer: Viewer, port: int) -> Any:
    """A server that shows a viewer."""
    try:
        from splinecam.viewer.server import Server
    except ImportError as error:
        raise missing_package("The viewer needs starlette and uvicorn", error) from error
    script, style = asset("viewer.js").encode(), asset("style.css").encode()
    files = {
        "": (live_page().encode(), "text/html"),
        "viewer.js": (script, "text/javascript"),
        "style.css": (style, "text/css"),
    }
    return Server(viewer.session.answer, files, port=port)


def _say(text: str) -> None:
    """Tell somebody at a terminal; a script's results stay alone on standard output."""
    if sys.stderr is not None:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
