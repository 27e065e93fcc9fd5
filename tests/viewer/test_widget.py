"""The viewer in notebooks: a real kernel runs, and this test takes the place of the browser."""

from __future__ import annotations

import base64
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import splinecam as sc
from splinecam.errors import SplineCamError
from splinecam.viewer.container import pack
from splinecam.viewer.recording import still_png
from splinecam.viewer.subjects import session_of
from splinecam.viewer.surroundings import has_screen, in_marimo, in_notebook, is_interactive
from splinecam.viewer.viewer import Viewer
from viewer_messages import unpack

pytest.importorskip("anywidget")
pytest.importorskip("jupyter_client")
pytestmark = pytest.mark.slow

from splinecam.viewer.widget import ViewerWidget  # noqa: E402
from viewer.kernel import Kernel, running_kernel  # noqa: E402


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with running_kernel() as found:
        yield found


def test_the_model_of_the_widget(kernel: Kernel) -> None:
    state = kernel.state
    assert state["height"] == 300
    assert state["_model_module"] == state["_view_module"] == "anywidget"
    assert "export" in state["_esm"]
    assert state["_css"]
    assert state["state"]["color"] == "slope"


def test_a_cell_shows_the_widget(kernel: Kernel) -> None:
    assert kernel.run("viewer")
    view = kernel.bundle["application/vnd.jupyter.widget-view+json"]
    assert view["model_id"] == kernel.model["comm_id"]
    # What exported notebooks show: pages without widgets, and pages with widgets but no Python.
    png = kernel.bundle["image/png"]
    assert Image.open(BytesIO(base64.b64decode(png))).size == (480, 480)
    assert kernel.run(f"viewer.widget.still == 'data:image/png;base64,{png.strip()}'") == "True"


def test_requests_are_answered(kernel: Kernel) -> None:
    scene = kernel.ask(1, ask="scene")
    assert scene.message["kind"] == "scene"
    assert scene.message["live"]
    mesh = kernel.ask(2, ask="mesh", pane=0, frame=0)
    assert mesh.message["id"] == "0/0"
    assert mesh.arrays["points"].shape[1] == 2
    assert kernel.ask(3, ask="nonsense").message["kind"] == "error"


def test_a_selection_comes_back(kernel: Kernel) -> None:
    kernel.ask(1, ask="mesh", pane=0, frame=0)
    place = {"pane": 0, "frame": 0, "mesh": "0/0", "at": [0.25, 0.5]}
    chosen = {"region": 2, "compared": None, "unit": [0, 3]}
    assert kernel.ask(2, ask="select", **place, **chosen).message == {"kind": "ok"}
    assert kernel.run("viewer.selection.region == part[2]") == "True"
    assert kernel.run("viewer.selection.unit") == "('1', 3)"
    assert kernel.run("viewer.selection.input") == "tensor([0.2500, 0.5000])"
    assert kernel.run("seen[-1] is viewer.selection") == "True"
    assert kernel.run("remove(); len(seen)") == "1"


def test_the_state_goes_both_ways(kernel: Kernel) -> None:
    assert kernel.ask(1, ask="state", state={"edgeWidth": 2}).message == {"kind": "ok"}
    assert kernel.run("viewer.state['edge_width']") == "2.0"
    assert kernel.run("viewer.widget.state['edgeWidth']") == "2.0"
    kernel.run("viewer.set(color='area')")
    (notice,) = kernel.custom_messages()
    assert unpack(notice).message == {"kind": "state", "state": {"color": "area"}}


@pytest.mark.parametrize("content", [None, 3, [], {}, {"id": 1}, {"id": "1", "request": {}}])
def test_what_is_no_request_is_answered_by_an_error(kernel: Kernel, content: object) -> None:
    kernel.send(content)
    _, answer = kernel.receive()
    assert answer.message["kind"] == "error"


def test_a_notebook_cannot_wait(kernel: Kernel) -> None:
    code = (
        "try:\n    viewer.wait()\nexcept sc.SplineCamError as error:\n    told = str(error)\ntold"
    )
    assert "viewer.on_select" in kernel.run(code)


# -- still pictures -------------------------------------------------------------------------------


def still(*subjects: Any, **options: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The pixels of the still picture of a viewer."""
    viewer = Viewer(session_of(subjects, **options))
    return np.asarray(Image.open(BytesIO(still_png(viewer.session, viewer.state))).convert("RGB"))


def test_still_pictures_of_whatever_is_shown() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 3))
    part = sc.partition(model, sc.Domain.box(-1, 1), progress=False)
    usual = still(part)
    assert len(np.unique(usual.reshape(-1, 3), axis=0)) > 20
    assert (still(part, color="perimeter") != usual).any()
    color, state = np.arange(len(part)), {"edges": False}
    assert (still(part, part, color=color, state=state)[:, :480] != usual).any()
    decision = still(model, sc.Domain.box(-1, 1))  # which is not partitioned for this
    assert len(np.unique(decision.reshape(-1, 3), axis=0)) > 20


def test_a_view_without_a_still_picture_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> bytes:
        raise RuntimeError("nothing can be drawn")

    data, _ = ViewerWidget(answer, draw=fail)._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert "image/png" not in data
    assert "no still picture" in caplog.text


# -- without a kernel -----------------------------------------------------------------------------


def answer(
    request: Mapping[str, Any], *, request_id: int | None, outdated: Callable[[], bool]
) -> bytes:
    return pack({"kind": "echo", "request": dict(request)}, request_id=request_id)


def test_marimo_is_answered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """marimo sends messages from the thread of its cells only."""
    marimo = types.SimpleNamespace(running_in_notebook=lambda: True)
    monkeypatch.setitem(sys.modules, "marimo", marimo)
    assert in_marimo()
    assert in_notebook()
    assert is_interactive()
    widget, sent = ViewerWidget(answer), list[Any]()
    monkeypatch.setattr(widget, "send", lambda content, buffers: sent.append((content, buffers)))
    widget._handle_custom_msg({"id": 5, "request": {"ask": "scene"}}, [])
    ((content, buffers),) = sent
    assert content == {"id": 5}
    assert unpack(buffers[0]).message == {"kind": "echo", "request": {"ask": "scene"}}
    with pytest.raises(SplineCamError, match="cannot wait"):
        widget.wait()
    widget.close()


def test_where_a_browser_can_open() -> None:
    assert not in_notebook()
    assert not has_screen({"SSH_CONNECTION": "1"}, "darwin")
    assert has_screen({"SSH_CONNECTION": "1", "BROWSER": "code"}, "linux")
    assert has_screen({"WAYLAND_DISPLAY": "wayland-0"}, "linux")
    assert has_screen({}, "win32")
