"""Who may ask the viewer's server: pages of this machine that know the secret, and nobody else."""

from __future__ import annotations

import secrets

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Guard"]

_REFUSED = 1008  # the code with which a web socket says that a rule was broken


class Guard:
    """Lets requests through to an application that come from the viewer's own page.

    A page of the web cannot read what a browser gets from here: it does not know the token, which
    is the first part of every path. Neither can it have its own name lead to this machine (DNS
    rebinding), as ``Host`` must be the loopback address; nor open a web socket, as ``Origin`` must
    be it too.
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
        """Why a request is refused, or None."""
        headers = Headers(scope=scope)
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            known = " or ".join(sorted(self._hosts))
            return (
                f"The viewer answers at {known} only. When you forward the port, keep its number."
            )
        required = scope["type"] == "websocket"
        if len(origins) > 1 or (required and not origins) or not {*origins} <= self._origins:
            return "The viewer answers its own page only."
        first = scope["path"].split("/")[1:2]
        token = "".join(first).encode("utf-8", "replace")
        if not secrets.compare_digest(token, self._token) and token != b"open":
            return "This is not the address of a viewer that is open. It is that of viewer.url."
        return None


def _headers(port: int) -> dict[str, str]:
    """The headers of every answer.

    The policy names web sockets, as some browsers do not take 'self' to include them.
    """
    sockets = f"ws://127.0.0.1:{port} ws://localhost:{port}"
    policy = [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src data: blob:",
        f"connect-src 'self' {sockets}",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
    return {
        "Content-Security-Policy": "; ".join(policy),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    }
