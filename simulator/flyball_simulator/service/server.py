"""The platform's HTTP API, as in :mod:`flyball_contracts.simulated`."""

import logging
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from flyball_contracts.errors import ConfigError, RecordError
from flyball_contracts.simulated import Rejection, Submission
from flyball_simulator.operations import Refused
from flyball_simulator.service.platform import Platform

_LOG = logging.getLogger(__name__)
MOST_BYTES = 1 << 20
SILENCE_S = 30.0
LINGER_S, LINGER_READS = 0.5, 64
STATUSES = {
    "unknown_target": HTTPStatus.NOT_FOUND,
    "conflict": HTTPStatus.CONFLICT,
    "invalid": HTTPStatus.UNPROCESSABLE_ENTITY,
}
_json = msgspec.json.Encoder()
_submissions = msgspec.json.Decoder(Submission)


@contextmanager
def bound(platform: Platform, listen: str) -> Generator["Server"]:
    """Hold the address ``listen`` (``HOST:PORT``, port 0 for any free one) during the block; requests wait.

    Raises :class:`ConfigError` for an address that cannot be used.
    """
    host, _, port = listen.rpartition(":")
    handler = type("Handler", (_Handler,), {"platform": platform})
    try:
        server = Server((host, int(port)), handler)
    except (OSError, ValueError, OverflowError) as error:
        raise ConfigError(f"--listen {listen}: {error}; give a free HOST:PORT of this machine") from error
    with server:
        yield server


@contextmanager
def serving(server: "Server") -> Generator[str]:
    """Answer requests during the block; yields the URL."""
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="platform", daemon=True)
    thread.start()
    try:
        host, port = server.server_address[:2]
        yield f"http://{host if isinstance(host, str) else host.decode()}:{port}"
    finally:
        server.shutdown()
        thread.join()


class Server(ThreadingHTTPServer):
    """The platform's server; each request has a thread of its own."""

    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a request that broke off."""
        _LOG.warning("a request of %s broke off", client_address, exc_info=True)


class _Bad(Exception):
    """An invalid request."""

    def __init__(self, status: HTTPStatus, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    platform: Platform
    protocol_version = "HTTP/1.1"
    timeout = SILENCE_S
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def log_message(self, format: str, *args: Any) -> None:
        _LOG.debug(format, *args)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        self._send(HTTPStatus(code), Rejection(code="invalid", detail=message or HTTPStatus(code).phrase), close=True)

    def _answer(self, act: Any) -> None:
        try:
            status, body = act(tuple(map(unquote, urlsplit(self.path).path.strip("/").split("/"))))
        except _Bad as error:
            self._send(error.status, Rejection(code="invalid", detail=str(error)), close=True)
        except Refused as error:
            self._send(
                STATUSES[error.code],
                Rejection(code=error.code, detail=str(error), unsuitable_nodes=error.unsuitable_nodes),
            )
        except ConfigError as error:  # the journal cannot be written: nothing was done
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, Rejection(code="invalid", detail=str(error)))
        except RecordError as error:
            self._send(HTTPStatus.NOT_FOUND, Rejection(code="unknown_target", detail=str(error)))
        else:
            self._send(status, body)

    def _get(self, path: tuple[str, ...]) -> tuple[HTTPStatus, object]:
        platform = self.platform
        match path:
            case ("v1", "cell"):
                return HTTPStatus.OK, platform.cell()
            case ("v1", "workloads", name):
                return HTTPStatus.OK, platform.workload(name)
            case ("v1", "nodes", name):
                return HTTPStatus.OK, platform.node(name)
            case ("v1", "accounts"):
                return HTTPStatus.OK, platform.accounts()
            case ("v1", "operations"):
                return HTTPStatus.OK, platform.operations()
            case ("v1", "operations", name):
                operation = platform.operation(name)
                if operation is None:
                    raise Refused("unknown_target", f"there is no operation {name!r}; submit its decision first")
                return HTTPStatus.OK, operation
            case _:
                raise Refused("unknown_target", f"GET /{'/'.join(path)} is nothing here; see /v1/cell")

    def _post(self, path: tuple[str, ...]) -> tuple[HTTPStatus, object]:
        body = self._body()
        if path != ("v1", "operations"):
            raise Refused("unknown_target", f"POST /{'/'.join(path)} is nothing here; post to /v1/operations")
        try:
            submission = _submissions.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, OverflowError, RecursionError) as error:
            raise _Bad(HTTPStatus.BAD_REQUEST, f"the body is not a Submission: {error}") from error
        operation, new = self.platform.submit(submission)
        return HTTPStatus.ACCEPTED if new else HTTPStatus.OK, operation

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise _Bad(HTTPStatus.LENGTH_REQUIRED, "send the body with a Content-Length")
        if len(length) > 12 or int(length) > MOST_BYTES:
            raise _Bad(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is over {MOST_BYTES} bytes")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise _Bad(HTTPStatus.BAD_REQUEST, f"the body has {len(body)} of the {length} bytes that it promises")
        return body

    def _send(self, status: HTTPStatus, body: object, *, close: bool = False) -> None:
        data = _json.encode(body)
        self.close_connection = self.close_connection or close
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)
        if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            self._linger()

    def _linger(self) -> None:
        """Let the client finish sending, so that it reads the answer."""
        self.connection.settimeout(LINGER_S)
        with suppress(OSError):
            for _ in range(LINGER_READS):
                if not self.rfile.read1(1 << 16):
                    break
