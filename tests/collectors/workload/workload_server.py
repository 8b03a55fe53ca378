"""A server of pages on loopback, by TCP, TLS or a Unix socket; what it answers may change at any time."""

import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest

DEADLINE_S = 20.0


@dataclass(frozen=True)
class Reply:
    """`drip` sends byte by byte until the other side has had enough; `whole` false ends before the body does."""

    body: str | bytes = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    drip: bool = False
    whole: bool = True


class Request(NamedTuple):
    path: str
    headers: dict[str, str]
    connection: int


@dataclass
class PageServer:
    """Answers by path without query, or what a function says now; `None` closes the connection with no answer."""

    url: str
    replies: dict[str, "Reply | Callable[[], str] | None"] = field(
        default_factory=dict[str, "Reply | Callable[[], str] | None"]
    )
    requests: list[Request] = field(default_factory=list[Request])
    released: threading.Event = field(default_factory=threading.Event)

    def respond(self, path: str, body: str | bytes = "", status: int = 200) -> None:
        self.replies[path] = Reply(body, status)


@contextmanager
def page_server(*, unix: Path | None = None, tls: ssl.SSLContext | None = None, port: int = 0) -> Generator[PageServer]:
    """A running server; it ends with the block, its connections too."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            found.requests.append(Request(self.path, dict(self.headers), id(self.connection)))
            reply = found.replies.get(path, Reply(status=404))
            if callable(reply):
                reply = Reply(reply())
            if reply is None:
                self.close_connection = True
                return
            body = reply.body.encode() if isinstance(reply.body, str) else reply.body
            try:
                self.send_response(reply.status)
                length = len(body) + (0 if reply.whole else 10)
                for name, value in {"Content-Length": str(length), **reply.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if reply.drip:
                    while not found.released.wait(0.01):
                        self.wfile.write(b"#")
                self.wfile.write(body)
                self.close_connection = not reply.whole
            except OSError:
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_UNIX if unix else socket.AF_INET
        daemon_threads = True
        block_on_close = False

        def server_bind(self) -> None:
            if unix is None:
                super().server_bind()
            else:
                self.socket.bind(self.server_address)

        def get_request(self) -> tuple[socket.socket, object]:
            made, address = super().get_request()
            open_now.append(made)
            return made, address or ("unix", 0)

        def handle_error(self, request: object, client_address: object) -> None:
            del request, client_address  # a connection that the other side broke off

    open_now: list[socket.socket] = []
    server = Server(str(unix) if unix else ("127.0.0.1", port), Handler)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    url = f"unix://{unix}" if unix else f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
    found = PageServer(url)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield found
    finally:
        found.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
        for one in open_now:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def certificate(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """A server's context and the authority to trust, for 127.0.0.1."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with; install it")
    key, cert = folder / "key.pem", folder / "cert.pem"
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=loopback"
    extension = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*make.split(), *extension, "-keyout", key, "-out", cert], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context, cert


def until(holds: Callable[[], bool]) -> None:
    """Wait until it holds; fail when it does not come to."""
    ends_s = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < ends_s, "it did not come to hold"
        time.sleep(0.01)
