"""The viewer as a widget of Jupyter, VS Code, Colab and marimo."""

from __future__ import annotations

from typing import Any

import anywidget
import traitlets

from splinecam.errors import SplineCamError
from splinecam.viewer.answering import TELLING, Answer, Answering, failure, parsed
from splinecam.viewer.assets import asset
from splinecam.viewer.surroundings import in_marimo

__all__ = ["ViewerWidget"]


class ViewerWidget(anywidget.AnyWidget):
    """A view in a notebook.

    A request of the view is a message ``{"id": 7, "request": {...}}``. The answer is a message
    ``{"id": 7}`` with the bytes as its only buffer; the id of a notice is None. height: in pixels
    of the page. state: how the view is, as the browser writes it.

    anywidget itself switches on the custom widgets of Colab.
    """

    _esm = asset("viewer.js")
    _css = asset("style.css")

    height = traitlets.Int(560, min=100).tag(sync=True)
    state = traitlets.Dict().tag(sync=True)

    url: str | None = None

    def __init__(self, answer: Answer, **traits: Any):
        super().__init__(**traits)
        self._answer = answer
        # marimo sends messages from the thread of its cells only, Jupyter from any.
        self._answering = None if in_marimo() else Answering(answer)
        self.on_msg(self._take)

    def _take(self, _: object, content: Any, buffers: list[bytes]) -> None:
        """Answer a message of the view; callbacks run here, where notebooks show their output."""
        found = parsed(content)
        if found is None:
            self._reply(None, failure("The viewer does not understand a request."))
            return
        number, request = found
        if self._answering is None or request.get("ask") in TELLING:
            answer = self._answer(request, request_id=number, outdated=lambda: False)
            self._reply(number, answer)
            return
        self._answering.submit(self, number, request, lambda answer: self._reply(number, answer))

    def _reply(self, number: int | None, answer: bytes) -> None:
        self.send({"id": number}, buffers=[answer])

    def notify(self, notice: bytes) -> None:
        """Send a message to the view."""
        self._reply(None, notice)

    def wait(self) -> None:
        """Say that a notebook cannot wait."""
        raise SplineCamError(
            "A notebook cannot wait for its viewer, which is answered when no cell runs. Read "
            "viewer.selection in another cell, or let viewer.on_select call a function."
        )

    def close(self) -> None:
        """Remove the view from the notebook."""
        if self._answering is not None:
            self._answering.close()
        super().close()
