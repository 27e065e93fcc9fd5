"""The viewer's server: who gets an answer, who gets none, and how it ends."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, ConnectionClosedOK
from websockets.sync.client import ClientConnection, connect

from splinecam.errors import SplineCamError
from splinecam.viewer.container import Message, pack
from splinecam.viewer.server import Server
from viewer_messages import unpack

# Seconds after which a test fails that waits for something; none depends on how long that takes.
PATIENCE = 300

FILES = {
    "": (b"<p>page</p>", "text/html"),
    "viewer.js": (b"export {};", "text/javascript"),
    "style.css": (b"p {}", "text/css"),
}


class Echo:
    """Answers with the request itself; waits when it is told so."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.outdated: list[bool] = []

    def __call__(
        self,
        request: Mapping[str, Any],
        *,
        request_id: int | None,
        outdated: Callable[[], bool],
    ) -> bytes:
        if request.get("wait"):
            self.begun.set()
            assert self.go_on.wait(PATIENCE)
            self.outdated.append(outdated())
        if request.get("ask") == "fail":
            raise ArithmeticError("secret detail")
        return pack({"kind": "echo", "request": dict(request)}, request_id=request_id)


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def server(echo: Echo) -> Iterator[Server]:
    found = Server(echo, FILES, patience=0.0)
    yield found
    echo.go_on.set()
    found.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[Server]:
    """A server for tests that leave it as it is."""
    found = Server(Echo(), FILES)
    yield found
    found.close()


def token_of(server: Server) -> str:
    return server.url.split("/")[3]


def fetch(
    server: Server,
    path: str,
    method: str = "GET",
    host: str | None = None,
    body: bytes = b"",
    **headers: str,
) -> http.client.HTTPResponse:
    """The answer to a request with exactly these headers."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    with closing(connection):
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        connection.putheader("Host", f"127.0.0.1:{server.port}" if host is None else host)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        response = connection.getresponse()
        response.content = b"" if response.status == 101 else response.read()  # type: ignore[attr-defined]
        return response


def knock(server: Server, path: str, origin: str | None = "own", host: str | None = None) -> int:
    """The status with which the server answers when a web socket is to be opened."""
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    if origin is not None:
        headers["Origin"] = f"http://127.0.0.1:{server.port}" if origin == "own" else origin
    return fetch(server, path, host=host, **headers).status


def page(server: Server) -> ClientConnection:
    """A web socket as the viewer's page opens it."""
    place = f"127.0.0.1:{server.port}"
    origin: Any = f"http://{place}"
    patient: Any = {"open_timeout": PATIENCE, "close_timeout": PATIENCE, "ping_interval": None}
    address = f"ws://{place}/{token_of(server)}/socket"
    return connect(address, origin=origin, max_size=None, **patient)


def ask(socket: ClientConnection, number: int, **request: Any) -> None:
    socket.send(json.dumps({"id": number, "request": request}))


def receive(socket: ClientConnection) -> Message:
    data = socket.recv(PATIENCE)
    assert isinstance(data, bytes)
    return unpack(data)


# -- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_its_own_files(shared: Server, name: str, host: str) -> None:
    path = f"/{token_of(shared)}/{name}"
    answer = fetch(shared, path, host=f"{host}:{shared.port}")
    content, kind = FILES[name]
    assert (answer.status, answer.content) == (200, content)  # type: ignore[attr-defined]
    assert answer.headers["content-type"] == f"{kind}; charset=utf-8"


def test_every_answer_has_the_headers_that_protect_it(shared: Server) -> None:
    for path in (f"/{token_of(shared)}/", f"/{token_of(shared)}/none", "/wrong/", "/open/wrong"):
        headers = fetch(shared, path).headers
        policy = headers["content-security-policy"].split("; ")
        assert policy[0] == "default-src 'none'"
        assert "script-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        allowed = f"ws://127.0.0.1:{shared.port} ws://localhost:{shared.port}"
        assert f"connect-src 'self' {allowed}" in policy
        assert not any("unsafe" in rule or "http:" in rule or "*" in rule for rule in policy)
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers
        assert "shared" not in headers


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/viewer.js",
        "/socket",
        "/favicon.ico",
        "/wrong/",
        "/wrong/viewer.js",
        "//",
        "/%2e%2e/",
        "/%C3%A9/",
        "/%FF%00/",
        "/open",
        "/open/",
        "/open/wrong",
    ],
)
def test_nothing_without_the_token(shared: Server, path: str) -> None:
    answer = fetch(shared, path)
    assert answer.status in (403, 404)
    assert token_of(shared).encode() not in answer.content  # type: ignore[attr-defined]
    assert "location" not in answer.headers


@pytest.mark.parametrize(
    "name",
    [
        "SOURCES",
        "viewer.js/",
        "static/viewer.js",
        "../viewer.js",
        "..%2fviewer.js",
        "%2e%2e/server.py",
        "../../../etc/passwd",
        "..\\server.py",
        "/etc/passwd",
        "viewer.js%00",
        "viewer.js.map",
        "socket",
    ],
)
def test_no_other_files(shared: Server, name: str) -> None:
    assert fetch(shared, f"/{token_of(shared)}/{name}").status in (307, 403, 404)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_nothing_can_be_written(shared: Server, method: str) -> None:
    assert fetch(shared, f"/{token_of(shared)}/", method, body=b"x").status == 405


def test_a_long_address_is_refused(shared: Server) -> None:
    with suppress(ConnectionError):  # it need not read all of it
        assert fetch(shared, "/" + "x" * 10**6).status in (400, 403, 414)
    assert fetch(shared, f"/{token_of(shared)}/").status == 200


# -- who asks -------------------------------------------------------------------------------------

FOREIGN = ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost:1", ""]


@pytest.mark.parametrize("host", [*FOREIGN, "127.0.0.1:{port}.evil.example", "[::1]:{port}"])
def test_no_other_name_leads_to_it(shared: Server, host: str) -> None:
    """A page whose own name leads to this machine is of the same origin as what it gets."""
    host = host.format(port=shared.port)
    assert fetch(shared, f"/{token_of(shared)}/", host=host).status == 403
    assert knock(shared, f"/{token_of(shared)}/socket", host=host, origin=f"http://{host}") == 403
    assert knock(shared, f"/{token_of(shared)}/socket", host=host) == 403


def test_two_hosts_are_refused(shared: Server) -> None:
    place = f"127.0.0.1:{shared.port}"
    assert fetch(shared, f"/{token_of(shared)}/", host=place, HOST="evil.example").status in (
        400,
        403,
    )


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:{port}", "http://127.0.0.1:1"]
)
def test_no_other_page_is_answered(shared: Server, origin: str) -> None:
    origin = origin.format(port=shared.port)
    assert fetch(shared, f"/{token_of(shared)}/", Origin=origin).status == 403
    assert knock(shared, f"/{token_of(shared)}/socket", origin=origin) == 403


def test_a_web_socket_needs_an_origin_and_the_token(shared: Server) -> None:
    right = f"/{token_of(shared)}/socket"
    assert knock(shared, right) == 101
    assert knock(shared, right, origin=None) == 403
    for path in ("/wrong/socket", "/socket", f"{right}/", f"/{token_of(shared)}/", "/open/socket"):
        assert knock(shared, path) == 403


def test_it_listens_on_the_loopback_address_only(shared: Server) -> None:
    assert shared._socket.getsockname()[0] == "127.0.0.1"
    others = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None)}
    for address in others - {"127.0.0.1", "127.0.1.1", "::1"}:
        with pytest.raises(OSError, match=r"refused|timed out|unreachable"):
            socket.create_connection((str(address), shared.port), timeout=1)


def test_tokens_differ(server: Server, echo: Echo) -> None:
    other = Server(echo, FILES)
    assert token_of(other) != token_of(server)
    assert len(token_of(other)) >= 43  # 256 bits
    assert fetch(other, f"/{token_of(server)}/").status == 403
    other.close()


def test_a_ticket_leads_to_the_page_once(server: Server) -> None:
    path = server.ticket.removeprefix(f"http://127.0.0.1:{server.port}")
    assert token_of(server) not in path
    first, second = fetch(server, path), fetch(server, path)
    assert (first.status, first.headers["location"]) == (303, f"/{token_of(server)}/")
    assert (second.status, second.headers["location"]) == (403, None)
    assert fetch(server, "/open/").status in (403, 404)


def test_logs_do_not_hold_the_token(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), page(server) as socket:
        ask(socket, 1, ask="scene")
        receive(socket)
    assert "WebSocket /.../socket" in caplog.text
    lines = [each.getMessage() for each in caplog.records if each.name.startswith("uvicorn")]
    assert lines
    assert not any(token_of(server) in line for line in lines)


# -- requests -------------------------------------------------------------------------------------


def test_requests_and_answers(shared: Server) -> None:
    with page(shared) as socket:
        ask(socket, 7, ask="scene")
        answer = receive(socket)
    assert answer.request_id == 7
    assert answer.message == {"kind": "echo", "request": {"ask": "scene"}}


@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "[]", "7", '{"id": 1}', '{"id": "1", "request": {}}', "[" * 5000],
)
def test_what_is_no_request_is_answered_by_an_error(shared: Server, text: str) -> None:
    with page(shared) as socket:
        socket.send(text)
        answer = receive(socket)
        assert (answer.message["kind"], answer.request_id) == ("error", None)
        ask(socket, 1, ask="scene")
        assert receive(socket).request_id == 1


def test_bytes_end_the_connection(shared: Server) -> None:
    with page(shared) as socket:
        socket.send(b"\0" * 10)
        with pytest.raises(ConnectionClosed):
            socket.recv(PATIENCE)


def test_a_request_that_is_too_large_ends_the_connection(shared: Server) -> None:
    with page(shared) as socket:
        socket.send(json.dumps({"id": 1, "request": {"ask": "x" * 10**6}}))
        with pytest.raises(ConnectionClosed):
            socket.recv(PATIENCE)
    with page(shared) as socket:
        ask(socket, 1, ask="scene")
        assert receive(socket).request_id == 1


def test_an_unexpected_error_is_logged_and_not_told(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with page(server) as socket:
        ask(socket, 3, ask="fail")
        answer = receive(socket)
    assert (answer.message["kind"], answer.request_id) == ("error", 3)
    assert "secret" not in answer.message["message"]
    assert "secret detail" in caplog.text


def test_outdated_requests_are_dropped(server: Server, echo: Echo) -> None:
    with page(server) as socket, page(server) as other:
        ask(socket, 1, ask="window", pane=0, wait=True)
        assert echo.begun.wait(PATIENCE)
        for number in (2, 3):
            ask(socket, number, ask="window", pane=0)
        ask(socket, 4, ask="window", pane=1)
        ask(socket, 5, ask="coloring", pane=0)
        assert receive(socket).message == {"kind": "dropped"}  # the second
        ask(other, 6, ask="window", pane=0)  # of another page
        echo.go_on.set()
        answers = [receive(socket) for _ in range(4)]
        assert [answer.request_id for answer in answers] == [1, 3, 4, 5]
        kinds = [answer.message["kind"] for answer in answers]
        assert kinds == ["dropped", "echo", "echo", "echo"]  # the first was outdated meanwhile
        assert receive(other).request_id == 6
        assert echo.outdated == [True]


def test_a_selection_need_not_wait(server: Server, echo: Echo) -> None:
    with page(server) as socket:
        ask(socket, 1, ask="window", pane=0, wait=True)
        assert echo.begun.wait(PATIENCE)
        ask(socket, 2, ask="select")
        assert receive(socket).request_id == 2
        echo.go_on.set()
        assert receive(socket).request_id == 1


def test_too_many_requests_are_refused(server: Server, echo: Echo) -> None:
    with page(server) as socket:
        ask(socket, 0, ask="scene", wait=True)
        assert echo.begun.wait(PATIENCE)
        for number in range(1, 300):
            ask(socket, number, ask="scene")
        first = receive(socket)
        echo.go_on.set()
        others = [receive(socket) for _ in range(299)]
    assert (first.message["kind"], first.request_id) == ("error", 257)
    assert {answer.request_id for answer in [first, *others]} == {*range(300)}


def test_many_pages(server: Server) -> None:
    with ExitStack() as stack:
        pages = [stack.enter_context(page(server)) for _ in range(32)]
        assert knock(server, f"/{token_of(server)}/socket") == 403
        server.notify(pack({"kind": "state", "state": {}}))
        for number, each in enumerate(pages):
            assert receive(each).message["kind"] == "state"
            ask(each, number, ask="scene")
            assert receive(each).request_id == number
    with page(server) as again:
        ask(again, 1, ask="scene")
        assert receive(again).request_id == 1


def test_what_is_asked_before_a_page_closes_is_dropped(server: Server, echo: Echo) -> None:
    with page(server) as socket:
        ask(socket, 1, ask="window", pane=0, wait=True)
        assert echo.begun.wait(PATIENCE)
        ask(socket, 2, ask="coloring", wait=True)
    with page(server) as socket:  # the next one to be answered, after the first
        ask(socket, 3, ask="scene")
        echo.go_on.set()
        assert receive(socket).request_id == 3
    assert echo.outdated == [True]


# -- beginning and end ----------------------------------------------------------------------------


def test_it_waits_until_the_last_page_is_closed(server: Server) -> None:
    with page(server), page(server):
        waiting = threading.Thread(target=server.wait)
        waiting.start()
        assert waiting.is_alive()
    waiting.join(PATIENCE)
    assert not waiting.is_alive()


def test_closing_ends_waiting_pages_and_threads(server: Server) -> None:
    lanes = server._answering._computed, server._answering._told
    ended = [server._thread, *(lane._thread for lane in lanes)]
    waiting = threading.Thread(target=server.wait)
    waiting.start()
    with page(server) as socket:
        server.close()
        with pytest.raises(ConnectionClosedOK, match="the viewer was closed"):
            socket.recv(PATIENCE)
    waiting.join(PATIENCE)
    for thread in ended:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    server.close()  # again
    server.notify(b"")
    with pytest.raises(OSError, match="refused"):
        fetch(server, "/")


def test_a_port_that_is_taken(server: Server, echo: Echo) -> None:
    with pytest.raises(SplineCamError, match=rf"Port {server.port} cannot be used: .* port=0"):
        Server(echo, FILES, port=server.port)
    with pytest.raises(SplineCamError, match="Port 99999 cannot be used"):
        Server(echo, FILES, port=99999)
