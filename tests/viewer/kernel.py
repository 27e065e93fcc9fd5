"""A real kernel with a viewer in it, for tests that take the place of the notebook's page."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

from splinecam.viewer.container import Message
from viewer_messages import unpack

__all__ = ["PARTITION", "Kernel", "running_kernel"]

PARTITION = """
import torch
import splinecam as sc
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
part = sc.partition(model, sc.Domain.box(-1, 1), progress=False)
"""
_PATIENCE = 600  # seconds; tests fail after it, and never depend on it
_SETUP = """
seen = []
viewer = part.view(color="slope", height=300)
remove = viewer.on_select(seen.append)
"""


class Kernel:
    """A kernel, and the widget that it shows."""

    def __init__(self, client: BlockingKernelClient):
        self.client = client
        self.run(PARTITION + _SETUP)
        opened = [each["content"] for each in self.heard if each["msg_type"] == "comm_open"]
        (self.model,) = [each for each in opened if "_esm" in each["data"]["state"]]
        self.state = self.model["data"]["state"]

    def run(self, code: str) -> str:
        """Run a cell; the text of its value."""
        shown = ""
        self.heard: list[dict[str, Any]] = []
        number = self.client.execute(code)
        while True:
            message = self.client.get_iopub_msg(timeout=_PATIENCE)
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

    def receive_bytes(self) -> tuple[Any, bytes]:
        """What the view gets: content, and its only buffer."""
        while True:
            message = self.client.get_iopub_msg(timeout=_PATIENCE)
            if _is_custom(message):
                (buffer,) = message["buffers"]
                return message["content"]["data"]["content"], bytes(buffer)

    def receive(self) -> tuple[Any, Message]:
        """What the view gets, with the message that is its buffer."""
        content, buffer = self.receive_bytes()
        return content, unpack(buffer)

    def custom_messages(self) -> list[bytes]:
        """The buffers that the last cell sent to the view."""
        return [bytes(each["buffers"][0]) for each in self.heard if _is_custom(each)]

    def ask(self, number: int, **request: Any) -> Message:
        """The answer to a request."""
        self.send({"id": number, "request": request})
        content, answer = self.receive()
        assert content == {"id": number}
        assert answer.request_id == number
        return answer


def _is_custom(message: dict[str, Any]) -> bool:
    data = message["content"].get("data", {})
    return message["msg_type"] == "comm_msg" and data.get("method") == "custom"


@contextmanager
def running_kernel() -> Iterator[Kernel]:
    """A kernel, which ends with the block."""
    threads = {**os.environ, "OMP_NUM_THREADS": "1"}
    manager, client = start_new_kernel(_PATIENCE, kernel_name="python3", env=threads)
    try:
        yield Kernel(client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
