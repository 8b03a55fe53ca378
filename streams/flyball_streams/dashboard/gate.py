"""Access checks of the page: Host, Origin and token, before anything is served."""

import hashlib
import hmac
import ipaddress
import os
from html import escape
from typing import Any
from urllib.parse import quote, urlsplit

from fastapi.responses import HTMLResponse, PlainTextResponse
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from flyball_contracts.config import DashboardConfig
from flyball_contracts.errors import ConfigError
from flyball_contracts.security.secret import secret_if_given
from flyball_streams.dashboard.policy import Guarded

COOKIE = "flyball_token"
OPEN = "/healthz"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_READING = ("GET", "HEAD")
TOKEN_ENV = "FLYBALL_DASHBOARD_TOKEN"


def token_of(settings: DashboardConfig) -> str:
    """Return the token that the page requires, empty for none.

    Raises :class:`ConfigError` when other machines can reach the page and there is none.
    """
    token = secret_if_given(os.environ, TOKEN_ENV, "dashboard")
    if not token and not _is_loopback(settings.host):
        raise ConfigError(
            f"dashboard.host {settings.host} is not loopback, so the page needs a token: set the environment variable "
            f"{TOKEN_ENV} (or {TOKEN_ENV}_FILE to a file with it), or dashboard.host to 127.0.0.1"
        )
    return token


class Gate:
    """ASGI middleware in front of the page: it responds 400, 401 or 403, or passes the request on, and adds headers.

    The token comes as ``Authorization: Bearer``, or once as ``?token=``, which is turned into a cookie.
    ``GET /healthz`` needs none.
    """

    def __init__(self, app: ASGIApp, settings: DashboardConfig, token: str) -> None:
        self._app = app
        self._names = {*_LOOPBACK, settings.host.lower(), *(name.lower() for name in settings.names)}
        self._token = token
        self._proof = hashlib.sha256(f"flyball dashboard {token}".encode()).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or connection."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return

        guarded = Guarded(send)
        refusal = self._refusal(HTTPConnection(scope))
        if refusal is None:
            await self._app(_plain(scope), receive, guarded)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})  # before it is accepted: the client gets a 403
        else:
            await refusal(scope, receive, guarded)

    def _refusal(self, request: HTTPConnection) -> Any:
        host = request.headers.get("host", "")
        if _name(host) not in self._names:
            return PlainTextResponse("This page has another name: add this one to dashboard.names.\n", 400)
        origin = request.headers.get("origin")
        writes = request.scope["type"] == "websocket" or request.scope["method"] not in _READING
        if writes and origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return PlainTextResponse("Another site may not use this page.\n", 403)
        if not self._token or request.url.path == OPEN or self._proven(request):
            return None
        given = request.query_params.get("token")
        if given is not None and _same(given, self._token):
            return self._grant(request)
        return PlainTextResponse("This page needs its token: open it once with ?token=TOKEN.\n", 401)

    def _proven(self, request: HTTPConnection) -> bool:
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and _same(given.strip(), self._token):
            return True
        return _same(request.cookies.get(COOKIE, ""), self._proof) and "token" not in request.query_params

    def _grant(self, request: HTTPConnection) -> HTMLResponse:
        """Respond with a page that redirects by script: a redirect from another site would not send a strict cookie."""
        on = escape("/" + quote(request.url.path.lstrip("/")))
        page = f'<!doctype html><meta http-equiv="refresh" content="0; url={on}"><title>Flyball</title>'
        answer = HTMLResponse(page, headers={"Cache-Control": "no-store"})
        answer.set_cookie(COOKIE, self._proof, httponly=True, samesite="strict", secure=request.url.scheme == "https")
        return answer


def _plain(scope: Scope) -> Scope:
    """A request for a page, without compression, because the page's scripts are marked on the way; others unchanged."""
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    if not any(name == b"accept" and b"text/html" in value for name, value in headers):
        return scope
    return {**scope, "headers": [one for one in headers if one[0] != b"accept-encoding"]}


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())


def _name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
