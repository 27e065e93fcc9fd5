"""The viewer as a widget of Jupyter, VS Code, Colab and marimo."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable
from typing import Any

import anywidget
import traitlets

from splinecam.errors import SplineCamError
from splinecam.viewer.answers import TELLING, Answerer, Answering, failure, parsed
from splinecam.viewer.page import asset
from splinecam.viewer.surroundings import in_marimo

_LOG = logging.getLogger("splinecam")


class ViewerWidget(anywidget.AnyWidget):
    """A view in a notebook.

    A request of the view is a message ``{"id": 7, "request": {...}}``. The answer is a message
    ``{"id": 7}`` with the bytes as its only buffer; the id of a notice is None. height: in pixels.
    state: as the browser writes it. draw: returns a PNG for exported notebooks without Python.
    script: the built file that shows it.
    """

    _css = asset("style.css")

    height = traitlets.Int(560, min=100).tag(sync=True)
    state = traitlets.Dict().tag(sync=True)
    still = traitlets.Unicode().tag(sync=True)

    url: str | None = None

    def __init__(
        self,
        answer: Answerer,
        *,
        draw: Callable[[], bytes] | None = None,
        script: str = "viewer.js",
        **traits: Any,
    ):
        self._esm = asset(script)
        super().__init__(**traits)
        self._answer, self._draw = answer, draw
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

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """Return the view, and a still picture of it for pages without widgets."""
        found = super()._repr_mimebundle_(**options)
        if found is None or self._draw is None:
            return found
        data, about = found
        try:
            png = base64.b64encode(self._draw()).decode()
        except Exception:  # the view is shown also if its picture cannot be drawn
            _LOG.warning("There is no still picture of the viewer", exc_info=True)
            return found
        # Pages that show widgets without Python take the picture from the widget's state.
        self.still = f"data:image/png;base64,{png}"
        return {**data, "image/png": png}, about

    def _reply(self, number: int | None, answer: bytes) -> None:
        self.send({"id": number}, buffers=[answer])

    def notify(self, notice: bytes) -> None:
        """Send a message to the view."""
        self._reply(None, notice)

    def wait(self) -> None:
        """Raise an error: a notebook cannot wait."""
        raise SplineCamError(
            "A notebook cannot wait for its viewer, which works only when no cell runs. Read "
            "viewer.selection in another cell, or let viewer.on_select call a function."
        )

    def close(self) -> None:
        """Remove the view from the notebook."""
        if self._answering is not None:
            self._answering.close()
        super().close()
