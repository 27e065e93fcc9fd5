"""Requests of the viewer: what they may hold, and the threads that answer them."""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Condition, Event, Thread, current_thread
from typing import Any

from splinecam.errors import SplineCamError
from splinecam.viewer.container import pack

Request = Mapping[str, Any]


class RequestError(SplineCamError):
    """A request cannot be answered; the message says why."""


def integer(request: Request, name: str, count: int, *, what: str = "") -> int:
    """Return an entry that must be a whole number from 0 to below a count of ``what``."""
    value = request.get(name)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise RequestError(f"{name} must be a whole number, not {_shown(value)}.")
    if not 0 <= value < count:
        there = f"there are {count:,} {what or name + 's'}, numbered from 0"
        raise RequestError(f"There is no {name} {_shown(value)}: {there}.")
    return value


def number(value: Any, name: str) -> float:
    """Return a value that must be a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RequestError(f"{name} must be a number, not {_shown(value)}.")
    if not abs(value) <= sys.float_info.max:
        raise RequestError(f"{name} must be a finite number, not {_shown(value)}.")
    return float(value)


def text(request: Request, name: str) -> str:
    """Return an entry that must be a text."""
    value = request.get(name)
    if not isinstance(value, str):
        raise RequestError(f"{name} must be a text, not {_shown(value)}.")
    return value


def _shown(value: Any) -> str:
    """Return a value as text for a message, shortened."""
    shown = str(value) if isinstance(value, int | float) else repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


_LOG = logging.getLogger("splinecam")
# A newer request of one of these kinds for the same pane makes an older one outdated.
_REPLACED = ("mesh", "window", "plane", "band", "section")
# These only tell Python something, so they need not wait for a computation.
TELLING = ("select", "state")
_MOST = 256  # requests of one client that may wait
_PATIENCE = 2.0  # seconds that a computation has to end when the viewer closes

Reply = Callable[[bytes], None]
Answerer = Callable[..., bytes]  # a function such as ``Session.answer``


def failure(message: str, request_id: int | None = None) -> bytes:
    """Return the answer that something went wrong."""
    return pack({"kind": "error", "message": message}, request_id=request_id)


def parsed(content: Any) -> tuple[int, Request] | None:
    """Return the number and the request of a message, or None if it is something else.

    >>> parsed({"id": 7, "request": {"ask": "scene"}})
    (7, {'ask': 'scene'})
    """
    if not isinstance(content, dict):
        return None
    number, request = content.get("id"), content.get("request")
    if type(number) is not int or not isinstance(request, dict):
        return None
    return number, request


@dataclass(eq=False)
class _Job:
    """A request that waits for its answer, or is being answered."""

    client: object
    number: int
    request: Request
    reply: Reply
    outdated: Event = field(default_factory=Event)

    def replaces(self, other: _Job) -> bool:
        """Return whether this request makes another one outdated."""
        return (
            self.client is other.client
            and self.request.get("ask") in _REPLACED
            and all(self.request.get(name) == other.request.get(name) for name in ("ask", "pane"))
        )

    def drop(self) -> None:
        """Reply that a newer request has taken the place of this one."""
        self.reply(pack({"kind": "dropped"}, request_id=self.number))


class _Lane:
    """One thread with the requests that wait for it."""

    def __init__(self, name: str, answer: Answerer):
        self._answer = answer
        self._waiting: deque[_Job] = deque()
        self._running: _Job | None = None
        self._changed, self._closed = Condition(), False
        self._thread = Thread(target=self._run, name=f"splinecam-{name}", daemon=True)
        self._thread.start()

    def add(self, job: _Job) -> list[_Job]:
        """Queue a request; return the requests that it removes from the queue as outdated."""
        with self._changed:
            if sum(each.client is job.client for each in self._waiting) >= _MOST:
                raise OverflowError
            old = self._drop(job.replaces)
            self._waiting.append(job)
            self._changed.notify()
        return old

    def forget(self, client: object) -> None:
        """Answer no more requests of a client that has gone."""
        with self._changed:
            self._drop(lambda job: job.client is client)

    def _drop(self, is_outdated: Callable[[_Job], bool]) -> list[_Job]:
        """Remove and return outdated requests from the queue; tell the running one."""
        old = [each for each in self._waiting if is_outdated(each)]
        for each in old:
            self._waiting.remove(each)
        if self._running is not None and is_outdated(self._running):
            self._running.outdated.set()
        return old

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._drop(lambda job: True)
            self._changed.notify()
        if self._thread is not current_thread():
            self._thread.join(_PATIENCE)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._running = None
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                job = self._running = self._waiting.popleft()
            try:
                self._settle(job)
            except Exception:  # the thread goes on for other requests
                _LOG.exception("The viewer could not send an answer")

    def _settle(self, job: _Job) -> None:
        """Reply with the answer, with an error, or that the request is outdated."""
        try:
            answer = self._answer(job.request, request_id=job.number, outdated=job.outdated.is_set)
        except Exception:  # an outdated computation may end with any exception
            if not job.outdated.is_set():
                _LOG.exception("The viewer could not answer the request %s", job.request)
            answer = failure("An unexpected error happened; Python's log has it.", job.number)
        if job.outdated.is_set():  # reading the answer would take the browser time
            job.drop()
        else:
            job.reply(answer)


class Answering:
    """Answers requests of several clients, one at a time; what is only told has another thread."""

    def __init__(self, answer: Answerer):
        self._computed, self._told = _Lane("answers", answer), _Lane("selections", answer)

    def submit(self, client: object, number: int, request: Request, reply: Reply) -> None:
        """Answer a request when its turn comes, by calling ``reply`` in another thread."""
        lane = self._told if request.get("ask") in TELLING else self._computed
        try:
            outdated = lane.add(_Job(client, number, request, reply))
        except OverflowError:
            reply(failure(f"More than {_MOST} requests wait for an answer.", number))
            return
        for job in outdated:
            job.drop()

    def forget(self, client: object) -> None:
        """Drop the requests of a client that has gone."""
        self._computed.forget(client)
        self._told.forget(client)

    def close(self) -> None:
        """End the threads; a running computation ends soon."""
        self._computed.close()
        self._told.close()
