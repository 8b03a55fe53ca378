"""Content security policy: a page runs only the scripts that came with it, each marked with a fresh nonce."""

import re
import secrets
from collections.abc import Mapping

from starlette.datastructures import MutableHeaders
from starlette.types import Message, Send

_SCRIPT = re.compile(rb"^(\s*)<script(?=[\s>])", re.MULTILINE)
_OTHERS: Mapping[str, str] = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}


def headers(nonce: str) -> dict[str, str]:
    """Headers that a browser obeys.

    Vue compiles templates, which is ``unsafe-eval``, and NiceGUI adds style elements, which is ``unsafe-inline`` for
    styles alone.
    """
    policy = (
        f"default-src 'self'; script-src 'self' 'nonce-{nonce}' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; font-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'"
    )
    return {"Content-Security-Policy": policy, **_OTHERS}


class Guarded:
    """Sends one response with these headers; in a page, each script that begins a line gets the nonce.

    A page's scripts contain the shown values as escaped text, which cannot begin another script.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._nonce = secrets.token_urlsafe(16)
        self._start: Message | None = None
        self._parts: list[bytes] = []

    async def __call__(self, message: Message) -> None:
        """Send one message; a page is sent as a whole."""
        if message["type"] == "http.response.start":
            found = MutableHeaders(scope=message)
            found.update(headers(self._nonce))
            if found.get("content-type", "").startswith("text/html") and "content-encoding" not in found:
                self._start = message
                return
        if self._start is None or message["type"] != "http.response.body":
            await self._send(message)
            return
        self._parts.append(message.get("body", b""))
        if message.get("more_body", False):
            return
        body = b"".join(self._parts)
        marked = _SCRIPT.sub(rb'\1<script nonce="' + self._nonce.encode() + rb'"', body)
        if marked != body:
            MutableHeaders(scope=self._start)["content-length"] = str(len(marked))
        await self._send(self._start)
        await self._send({"type": "http.response.body", "body": marked})
