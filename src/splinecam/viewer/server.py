"""The viewer's server, which answers only pages of this machine that know the secret."""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import secrets
import socket
from collections.abc import Callable
from threading import Condition, Event, Thread, current_thread
from time import monotonic

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from splinecam.errors import SplineCamError
from splinecam.viewer.answers import Answerer, Answering, failure, parsed


class Guard:
    """Lets only requests of the viewer's own page through to an application.

    A page of the web does not know the token, the first part of every path. Nor can its own name
    lead to this machine (DNS rebinding), as ``Host`` must be the loopback address; nor can it open
    a web socket, as ``Origin`` must be the loopback address, too.
    """

    def __init__(self, application: ASGIApp, *, port: int, token: str):
        self._application, self._token = application, token.encode()
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._origins = {f"http://{host}" for host in self._hosts}
        self._headers = _headers(port)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        problem = self._problem(scope)
        if scope["type"] == "websocket":
            if problem is None:
                await self._application(scope, receive, send)
            else:
                await receive()
                await send({"type": "websocket.close", "code": _REFUSED})
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._headers)
            await send(message)

        refused = PlainTextResponse(f"{problem}\n", 403)
        await (self._application if problem is None else refused)(scope, receive, send_safely)

    def _problem(self, scope: Scope) -> str | None:
        """Return why a request is refused, or None."""
        headers = Headers(scope=scope)
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            known = " or ".join(sorted(self._hosts))
            return f"The viewer answers only at {known}. Forward the port with the same number."
        required = scope["type"] == "websocket"
        if len(origins) > 1 or (required and not origins) or not {*origins} <= self._origins:
            return "The viewer answers its own page only."
        token = "".join(scope["path"].split("/")[1:2]).encode("utf-8", "replace")
        if not secrets.compare_digest(token, self._token) and token != b"open":
            return "This is not the address of an open viewer. Open viewer.url."
        return None


def _headers(port: int) -> dict[str, str]:
    """Return the headers of every answer."""
    # Some browsers do not take 'self' to include web sockets.
    sockets = f"ws://127.0.0.1:{port} ws://localhost:{port}"
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src data: blob:; "
        f"connect-src 'self' {sockets}; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    }


_LOG = logging.getLogger("splinecam")
_HOST = "127.0.0.1"
_LARGEST = 1 << 16  # bytes of a request
_MOST = 32  # pages that may be open at the same time
# Codes of web sockets: a rule was broken, all is well, there are too many.
_REFUSED, _GOOD_BYE, _TRY_AGAIN = 1008, 1000, 1013
_START = 60.0  # seconds that the server has to start, also on a busy machine
_STOP = 5.0  # seconds that it has to stop

Files = dict[str, tuple[bytes, str]]
_Outbox = asyncio.Queue[bytes | None]  # messages for a page


class Server:
    """Serves a viewer to browsers on this machine that know its secret address."""

    def __init__(self, answer: Answerer, files: Files, *, port: int = 0, patience: float = 3.0):
        self._answering, self._files = Answering(answer), files
        self._patience = patience
        self._outboxes = set[_Outbox]()  # of the pages that are open
        self._changed, self._was_open, self._left = Condition(), False, 0.0
        self._closed = False
        self._token, self._ticket = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self._socket = _listening(port)
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://{_HOST}:{self.port}/{self._token}/"
        self._uvicorn = uvicorn.Server(self._config())
        logging.getLogger("uvicorn.error").addFilter(self._redact)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = Event()
        self._thread = Thread(target=self._run, name="splinecam-server", daemon=True)
        self._thread.start()
        atexit.register(self.close)
        if not self._started.wait(_START):
            raise SplineCamError("The viewer's server did not start. Is this machine overloaded?")

    @property
    def ticket(self) -> str:
        """An address that leads to the page once, as other users see a browser's arguments."""
        return f"http://{_HOST}:{self.port}/open/{self._ticket}"

    def notify(self, notice: bytes | None) -> None:
        """Send a message to all pages; None says good-bye."""

        def send() -> None:
            for outbox in self._outboxes:
                outbox.put_nowait(notice)

        self._soon(send)

    def wait(self) -> None:
        """Return when all pages have been closed, after at least one was open."""
        with self._changed:
            while not self._closed:
                gone = self._was_open and not self._outboxes
                if gone and monotonic() - self._left >= self._patience:
                    return
                self._changed.wait(0.1 if self._was_open else 0.5)

    def close(self) -> None:
        """Stop the server; pages see that their connection ends."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        atexit.unregister(self.close)
        self.notify(None)
        self._uvicorn.should_exit = True
        self._answering.close()
        if self._thread is not current_thread():
            self._thread.join(_STOP)
        self._socket.close()
        logging.getLogger("uvicorn.error").removeFilter(self._redact)

    # -- the thread of the server -------------------------------------------------------------

    def _config(self) -> uvicorn.Config:
        return uvicorn.Config(
            Guard(self._application(), port=self.port, token=self._token),
            loop="asyncio",
            http="h11",
            ws="websockets-sansio",
            ws_max_size=_LARGEST,
            ws_ping_interval=None,  # a connection within one machine does not get lost
            ws_per_message_deflate=False,  # deflating takes longer than copying
            lifespan="off",
            interface="asgi3",
            log_config=None,  # logging belongs to the program
            access_log=False,  # it would show the secret
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=1,
        )

    def _application(self) -> Starlette:
        async def serve(request: Request) -> Response:
            content, kind = self._files[request.url.path.rpartition("/")[2]]
            return Response(content, media_type=kind)

        pages = [Route(f"/{name}", serve) for name in self._files]
        secret = Mount(f"/{self._token}", routes=[*pages, WebSocketRoute("/socket", self._talk)])
        return Starlette(routes=[Route("/open/{ticket}", self._redeem), secret])

    def _run(self) -> None:
        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            self._started.set()
            await self._uvicorn.serve(sockets=[self._socket])

        try:
            asyncio.run(main())
        except Exception:
            _LOG.exception("The viewer's server ended unexpectedly")

    def _soon(self, action: Callable[[], object]) -> None:
        """Do something in the thread of the server, if it still runs."""
        try:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(action)
        except RuntimeError:  # the loop has just been closed
            _LOG.debug("The viewer is closed")

    # -- what is served -----------------------------------------------------------------------

    async def _redeem(self, request: Request) -> Response:
        """Lead to the page, once."""
        given = str(request.path_params["ticket"]).encode()
        valid = secrets.compare_digest(given, self._ticket.encode())
        if not (self._ticket and valid):
            return PlainTextResponse("This address was already used. Open viewer.url.", 403)
        self._ticket = ""
        return RedirectResponse(f"/{self._token}/", 303)

    async def _talk(self, page: WebSocket) -> None:
        """Answer the requests of a page until it is closed."""
        if len(self._outboxes) >= _MOST:
            await page.close(_TRY_AGAIN, "too many pages are open")
            return
        await page.accept()
        outbox: _Outbox = asyncio.Queue()
        sender = asyncio.create_task(_send_all(outbox, page))
        with self._changed:
            self._outboxes.add(outbox)
            self._was_open = True
            self._changed.notify_all()
        try:
            while True:
                self._take(outbox, await page.receive_text())
        except (WebSocketDisconnect, KeyError):  # the page has gone, or does not send text
            pass
        finally:
            with self._changed:
                self._outboxes.discard(outbox)
                self._left = monotonic()
                self._changed.notify_all()
            self._answering.forget(outbox)
            sender.cancel()

    def _take(self, outbox: _Outbox, text: str) -> None:
        """Submit one request; the answer is put into the outbox of its page."""
        try:
            found = parsed(json.loads(text))
        except (ValueError, RecursionError):
            found = None
        if found is None:
            outbox.put_nowait(failure("The viewer does not understand a request."))
            return
        number, request = found

        def reply(answer: bytes) -> None:
            self._soon(lambda: outbox.put_nowait(answer))

        self._answering.submit(outbox, number, request, reply)

    def _redact(self, record: logging.LogRecord) -> bool:
        """Keep the secret out of logs, which have the path of each web socket."""
        if self._token in (text := record.getMessage()):
            record.msg, record.args = text.replace(self._token, "..."), ()
        return True


async def _send_all(outbox: _Outbox, page: WebSocket) -> None:
    """Send the messages of an outbox while its page is open; None says good-bye."""
    try:
        while (message := await outbox.get()) is not None:
            await page.send_bytes(message)
        await page.close(_GOOD_BYE, "the viewer was closed")
    except (WebSocketDisconnect, RuntimeError, OSError):
        _LOG.debug("A page went away before it had its answer")


def _listening(port: int) -> socket.socket:
    """Return a socket that listens on the loopback address, which other machines cannot reach."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        found.bind((_HOST, port))
        found.listen(64)
    except (OSError, OverflowError) as error:
        found.close()
        raise SplineCamError(
            f"Port {port} cannot be used: {getattr(error, 'strerror', None) or error}. Choose "
            "another one, or port=0 for any that is free."
        ) from error
    return found
