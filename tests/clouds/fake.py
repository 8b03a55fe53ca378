"""What the fakes of clouds share: an HTTP server that can break off, throttle and refuse."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit


class Call(NamedTuple):
    """One request; ``path`` is without the query."""

    method: str
    path: str
    query: dict[str, str]
    body: dict[str, Any]
    headers: dict[str, str]


class Reply(NamedTuple):
    """One answer."""

    status: int
    body: Any
    headers: Mapping[str, str] = MappingProxyType({})


class CloudFake:
    """``cut[verb]`` is where the next such call breaks, ``before`` or ``after``; ``throttled[verb]`` are refused.

    ``errors[verb]`` is the status, code and message of the answer to the next such call, which does nothing.

    ``allowed`` are the rights of the role that is shipped, without which calls are refused; ``used`` are those used.
    """

    def __init__(self, allowed: Collection[str]) -> None:
        self.allowed, self.used = frozenset(allowed), set[str]()
        self.calls: Counter[str] = Counter()
        self.cut: dict[str, str] = {}
        self.throttled: Counter[str] = Counter()
        self.denied: set[str] = set()
        self.errors: dict[str, tuple[int, str, str]] = {}
        self.on_cut: Callable[[], object] = lambda: None
        self.lock = threading.RLock()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                fake.serve(self)

            do_POST = do_PATCH = do_GET

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def verb(self, call: Call) -> str:
        """What a call is about, for faults and counts."""
        raise NotImplementedError

    def right(self, call: Call) -> str:
        """The right that a call needs, after the cloud's reference."""
        raise NotImplementedError

    def answer(self, call: Call) -> Reply:
        """What the cloud answers."""
        raise NotImplementedError

    def refusal(self, status: int, code: str, message: str) -> Reply:
        """An error in the cloud's own form."""
        raise NotImplementedError

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        raw = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        parts = urlsplit(request.path)
        call = Call(
            request.command or "",
            unquote(parts.path),
            dict(parse_qsl(parts.query, keep_blank_values=True)),
            json.loads(raw) if raw else {},
            {name.lower(): value for name, value in request.headers.items()},
        )
        with self.lock:
            verb = self.verb(call)
            self.calls[verb] += 1
            cut = self.cut.pop(verb, "")
            reply = None if cut == "before" else self._judged(verb, call)
        if cut:
            self.on_cut()
            request.close_connection = True
            return
        assert reply is not None
        body = json.dumps(reply.body).encode()
        try:
            request.send_response(reply.status)
            request.send_header("Content-Type", "application/json")
            request.send_header("Content-Length", str(len(body)))
            for name, value in reply.headers.items():
                request.send_header(name, value)
            request.end_headers()
            request.wfile.write(body)
        except OSError:
            request.close_connection = True

    def _judged(self, verb: str, call: Call) -> Reply:
        if self.throttled[verb] > 0:
            self.throttled[verb] -= 1
            return self.refusal(429, "rateLimitExceeded", "too many requests")
        if verb in self.errors:
            return self.refusal(*self.errors.pop(verb))
        self.used.add(self.right(call))
        if verb in self.denied or self.right(call) not in self.allowed:
            return self.refusal(403, "forbidden", "no permission")
        return self.answer(call)
