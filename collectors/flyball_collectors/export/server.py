"""Serves ``/metrics`` and ``/health`` over HTTP, in threads independent of the tick loop."""

import logging
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from flyball_collectors.export.prometheus import PrometheusPages
from flyball_contracts.errors import ConfigError

_LOG = logging.getLogger(__name__)
_MOST_CLIENTS = 16
_CLIENT_S = 10.0  # a client that takes longer to send or to read is disconnected


class MetricsServer:
    """Serves until it is closed; ``illness`` returns the agent's problems, empty for none.

    Raises :class:`ConfigError` when it cannot listen there.
    """

    def __init__(self, listen: str, pages: PrometheusPages, illness: Callable[[], str]) -> None:
        host, _, port = listen.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        try:
            self._server = _Server((host, int(port)), pages, illness)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(
                f"agent.export.metrics_listen: {listen}: {reason}; name an address of this host and a free port"
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="metrics", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """Port that it listens on."""
        port: int = self._server.server_address[1]
        return port

    def close(self) -> None:
        """Stop listening; open requests are finished by their own threads."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = _MOST_CLIENTS

    def __init__(self, address: tuple[str, int], pages: PrometheusPages, illness: Callable[[], str]) -> None:
        self.pages = pages
        self.illness = illness
        self._places = threading.BoundedSemaphore(_MOST_CLIENTS)
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle a request in a thread of its own, if one is free; else disconnect."""
        if not self._places.acquire(blocking=False):
            _LOG.debug("more than %d clients request metrics; %s is sent away", _MOST_CLIENTS, client_address)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread to be had
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Handle one client."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that disconnects or is too slow."""
        _LOG.debug("%s got no answer", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    timeout = _CLIENT_S
    server_version = "flyball"
    sys_version = ""

    def do_GET(self) -> None:
        """Handle one request."""
        server = cast("_Server", self.server)
        path = self.path.partition("?")[0]
        if path == "/metrics":
            page = server.pages.page(self.headers.get("Accept", ""), self.headers.get("Accept-Encoding", ""))
            self._answer(200, page.content_type, page.body, page.encoding)
        elif path == "/health":
            illness = server.illness()
            self._answer_text(503 if illness else 200, illness or "ok")
        else:
            self._answer_text(404, "there are /metrics and /health")

    def _answer_text(self, status: int, text: str) -> None:
        self._answer(status, "text/plain; charset=utf-8", f"{text}\n".encode())

    def _answer(self, status: int, content_type: str, body: bytes, encoding: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if encoding:
            self.send_header("Content-Encoding", encoding)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Do not log requests."""
