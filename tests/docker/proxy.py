"""A door to a Docker engine that can fail; see :class:`FaultProxy`."""

import http.client
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Literal, NamedTuple

Backend = Callable[[str, str, bytes], tuple[int, bytes]]


class Cut(NamedTuple):
    """Where a caller is cut off: at its call number ``at``, ``before`` the engine has heard it, ``after`` it was done,
    or so that it is done ``late``, two calls of others later."""

    at: int
    when: Literal["before", "after", "late"]


class FaultProxy:
    """Serves an engine on a Unix socket in ``folder``, and cuts callers off as ``cut`` says; then nobody is until told.

    ``calls`` has the calls of callers, by method and path.
    """

    def __init__(self, backend: Backend, folder: Path) -> None:
        self._backend = backend
        self.path = folder / "gate.sock"
        self.url = f"unix://{self.path}"
        self.cut: Cut | None = None
        self.calls: list[str] = []
        self._count = 0
        self._late: tuple[int, Callable[[], object]] | None = None
        self._lock = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                proxy.serve(self, "GET")

            def do_POST(self) -> None:
                proxy.serve(self, "POST")

            def do_DELETE(self) -> None:
                proxy.serve(self, "DELETE")

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._http = _Server(str(self.path), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def arm(self, cut: Cut) -> None:
        """Cut the next caller off."""
        self.cut, self._count = cut, 0

    def serve(self, request: BaseHTTPRequestHandler, method: str) -> None:
        path = request.path
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        with self._lock:
            self.calls.append(f"{method} {path}")
            late = self._due()
            cut = self._reached()
        if late is not None:
            late()
        if cut is not None and cut.when == "late":
            self._late = (2, lambda: self._backend(method, path, body))
        if cut is not None and cut.when != "after":
            return
        status, raw = self._backend(method, path, body)
        if cut is not None:
            return
        try:
            request.send_response(status)
            request.send_header("Content-Type", "application/json")
            request.send_header("Content-Length", str(len(raw)))
            request.end_headers()
            request.wfile.write(raw)
        except OSError:
            request.close_connection = True

    def settle(self) -> None:
        """Let what was to be done late be done."""
        if self._late is not None:
            self._late[1]()
            self._late = None

    def _due(self) -> Callable[[], object] | None:
        if self._late is None:
            return None
        left, call = self._late
        self._late = (left - 1, call) if left > 1 else None
        return call if left <= 1 else None

    def _reached(self) -> Cut | None:
        if self.cut is None:
            return None
        self._count += 1
        if self._count < self.cut.at:
            return None
        found, self.cut = self.cut, None
        return found


class _Server(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64


class _Local(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("docker", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(60)
        self.sock.connect(self._path)


def forward(path: str) -> Backend:
    """An engine that listens on a Unix socket."""

    def send(method: str, target: str, body: bytes) -> tuple[int, bytes]:
        connection = _Local(path)
        try:
            connection.request(method, target, body or None, {"Content-Type": "application/json"} if body else {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    return send
