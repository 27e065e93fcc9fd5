"""Runs that grow while one looks: new frames are looked for, and told to the views."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from threading import Event, Thread, current_thread

from splinecam.viewer.container import pack
from splinecam.viewer.panes import Pane

__all__ = ["Growing"]

_LOG = logging.getLogger("splinecam")


class Growing:
    """Looks for new frames of panes from time to time, in a thread.

    notify: takes a notice for all views. pause: seconds between two looks.
    """

    def __init__(
        self, panes: Sequence[Pane], notify: Callable[[bytes], None], *, pause: float = 1.0
    ):
        self._panes = [(number, pane) for number, pane in enumerate(panes) if pane.grows]
        self._notify, self._pause = notify, pause
        self._closed = Event()
        self._thread = Thread(target=self._run, name="splinecam-frames", daemon=True)
        if self._panes:
            self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._closed.set()
        if self._thread.is_alive() and self._thread is not current_thread():
            self._thread.join()

    def _run(self) -> None:
        failed = set[int]()
        while not self._closed.wait(self._pause):
            for number, pane in self._panes:
                try:
                    labels = pane.poll()
                    failed.discard(number)
                except Exception:
                    if number not in failed:  # else it would be logged every second
                        _LOG.exception("The frames of pane %d cannot be read", number)
                    failed.add(number)
                    continue
                if labels is not None:
                    self._notify(pack({"kind": "frames", "pane": number, "frames": list(labels)}))
