"""Open a viewer: in the notebook, or in the browser."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal

from torch import nn

from splinecam._captured import Captured
from splinecam.errors import SplineCamError
from splinecam.geometry.domain import Domain
from splinecam.viewer.assets import asset, live_page
from splinecam.viewer.panes import MAX_REGIONS, panes_of
from splinecam.viewer.scene_options import SceneOptions
from splinecam.viewer.surroundings import in_notebook, is_interactive, open_browser
from splinecam.viewer.view_state import browser_state, checked_state
from splinecam.viewer.viewer import Viewer

if TYPE_CHECKING:
    from splinecam.viewer.session import Session

__all__ = ["opened", "session_of", "view"]

_OWN = "given"  # the name of a colouring by an array


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

    subjects: a partition, or several side by side; a list of partitions of one domain, with a
    slider; a model and a domain, ``sc.view(model, domain)``, which is computed as far as one looks;
    a run of ``sc.watch``, or its folder, also while it grows.

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

    >>> import splinecam as sc
    >>> part = sc.partition(nn.Linear(2, 3), Domain.box(-1, 1), progress=False)
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
        _say("Close its page or press Ctrl-C to go on.")
        viewer.wait()
        viewer.close()
    return viewer


def session_of(
    subjects: Sequence[Any],
    *,
    color: Any = None,
    frames: Sequence[str] | None = None,
    max_regions: float = MAX_REGIONS,
    state: Mapping[str, Any] | None = None,
    **options: Any,
) -> Session:
    """The session of what is shown; the options are those of ``view``."""
    try:
        from splinecam.viewer.scene import scene_answer
        from splinecam.viewer.session import Session
    except ImportError as error:
        raise _missing("The viewer needs matplotlib for its colours", error) from error
    computed: dict[str, Any] = {
        name: options.pop(name) for name in ("memory", "device") if name in options
    }
    if "names" in options:
        computed["names"] = options["names"]
    panes = panes_of(_paired(subjects), labels=frames, max_regions=max_regions, **computed)
    known = {each.name for each in fields(SceneOptions)}
    unknown = [name for name in options if name not in known]
    if unknown:
        raise TypeError(f"a viewer has no option {unknown[0]!r}")
    if color is not None and not isinstance(color, str):
        options["colors"] = {_OWN: color, **options.get("colors", {})}
        color = _OWN
    opening = browser_state(checked_state(state or {}))
    session = Session(panes, SceneOptions(color=color, state=opening, **options))
    _check(session, scene_answer(panes, session.options).message["panes"])
    return session


def _check(session: Session, panes: Sequence[Mapping[str, Any]]) -> None:
    """Raise an error if the panes do not have the colouring or the output that is asked for."""
    color, output = session.options.color, session.options.output
    known = dict.fromkeys(each["name"] for pane in panes for each in pane["colorings"])
    if color is not None and color not in known:
        raise ValueError(f"color is {color!r}; choose {', '.join(known)}, or an array")
    count = max(pane["outputCount"] for pane in panes)
    if output is not None and not 0 <= output < count:
        raise ValueError(f"output is {output}; there are {count}, numbered from 0")


def _paired(subjects: Sequence[Any]) -> list[Any]:
    """Subjects with each model beside its domain, which is the next one that is given."""
    paired, models = list[Any](), list[Any]()
    for subject in subjects:
        if isinstance(subject, nn.Module | Captured):
            models.append(subject)
        elif isinstance(subject, Domain) and models:
            paired += [(model, subject) for model in models]
            models = []
        else:
            paired.append(subject)
    if models:
        raise TypeError("a model is shown on a domain: sc.view(model, domain)")
    return paired


def _widget(viewer: Viewer, height: int) -> Any:
    """A widget that shows a viewer."""
    try:
        from splinecam.viewer.widget import ViewerWidget
    except ImportError as error:
        raise _missing("In a notebook the viewer needs anywidget", error) from error
    state = browser_state(viewer.state)
    return ViewerWidget(viewer.session.answer, height=height, state=state)


def _server(viewer: Viewer, port: int) -> Any:
    """A server that shows a viewer."""
    try:
        from splinecam.viewer.server import Server
    except ImportError as error:
        raise _missing("The viewer needs starlette and uvicorn", error) from error
    script, style = asset("viewer.js").encode(), asset("style.css").encode()
    files = {
        "": (live_page().encode(), "text/html"),
        "viewer.js": (script, "text/javascript"),
        "style.css": (style, "text/css"),
    }
    return Server(viewer.session.answer, files, port=port)


def _missing(needs: str, error: ImportError) -> SplineCamError:
    missing = f"{error.name} is not installed" if error.name else str(error)
    return SplineCamError(f"{needs}, and {missing}. Run: pip install 'splinecam[view]'")


def _say(text: str) -> None:
    """Tell somebody at a terminal; a script's results stay alone on standard output."""
    if sys.stderr is not None:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
