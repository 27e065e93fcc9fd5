"""The viewer in notebooks: a real kernel runs, and this test takes the place of the browser."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

from splinecam.errors import SplineCamError
from splinecam.viewer.container import Message, pack, unpack
from splinecam.viewer.surroundings import has_screen, in_marimo, in_notebook, is_interactive
from splinecam.viewer.widget import ViewerWidget

SETUP = """
import torch
import splinecam as sc
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
part = sc.partition(model, sc.Domain.box(-1, 1), progress=False)
seen = []
viewer = part.view(color="slope", height=300)
remove = viewer.on_select(seen.append)
"""


class Kernel:
    """A kernel, and the widget that it shows."""

    def __init__(self, client: BlockingKernelClient):
        self.client = client
        self.run(SETUP)
        opened = [each["content"] for each in self.heard if each["msg_type"] == "comm_open"]
        (self.model,) = [each for each in opened if "_esm" in each["data"]["state"]]
        self.state = self.model["data"]["state"]

    def run(self, code: str) -> str:
        """Run a cell; the text of its value."""
        shown = ""
        self.heard: list[dict[str, Any]] = []
        number = self.client.execute(code)
        while True:
            message = self.client.get_iopub_msg(timeout=120)
            self.heard.append(message)
            content = message["content"]
            assert message["msg_type"] != "error", "\n".join(content["traceback"])
            if message["msg_type"] == "execute_result":
                self.bundle = content["data"]
                shown = content["data"]["text/plain"]
            idle = message["msg_type"] == "status" and content["execution_state"] == "idle"
            if idle and message["parent_header"].get("msg_id") == number:
                return shown

    def send(self, content: Any) -> None:
        """Send what the view would send."""
        data = {"method": "custom", "content": content}
        body = {"comm_id": self.model["comm_id"], "data": data}
        self.client.shell_channel.send(self.client.session.msg("comm_msg", body))

    def receive(self) -> tuple[Any, Message]:
        """What the view gets: content, and the message that is its only buffer."""
        while True:
            message = self.client.get_iopub_msg(timeout=60)
            data = message["content"].get("data", {})
            if message["msg_type"] == "comm_msg" and data.get("method") == "custom":
                (buffer,) = message["buffers"]
                return data["content"], unpack(bytes(buffer))

    def ask(self, number: int, **request: Any) -> Message:
        """The answer to a request."""
        self.send({"id": number, "request": request})
        content, answer = self.receive()
        assert content == {"id": number}
        assert answer.request_id == number
        return answer


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    manager, client = start_new_kernel(
        kernel_name="python3", env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    try:
        yield Kernel(client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


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
    assert kernel.run("viewer.selection.region == part.regions[2]") == "True"
    assert kernel.run("viewer.selection.unit") == "('1', 3)"
    assert kernel.run("viewer.selection.input") == "tensor([0.2500, 0.5000])"
    assert kernel.run("seen[-1] is viewer.selection") == "True"
    assert kernel.run("remove(); len(seen)") == "1"


def test_the_state_goes_both_ways(kernel: Kernel) -> None:
    assert kernel.ask(1, ask="state", state={"edgeWidth": 2}).message == {"kind": "ok"}
    assert kernel.run("viewer.state['edge_width']") == "2.0"
    assert kernel.run("viewer.widget.state['edgeWidth']") == "2.0"
    kernel.run("viewer.set(color='area')")
    sent = [each for each in kernel.heard if each["msg_type"] == "comm_msg"]
    notices = [each for each in sent if each["content"]["data"]["method"] == "custom"]
    assert unpack(bytes(notices[0]["buffers"][0])).message == {
        "kind": "state",
        "state": {"color": "area"},
    }


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
