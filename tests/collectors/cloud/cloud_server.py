"""Metadata services on loopback: they answer in the clouds' forms, and in wrong ones where a test says so."""

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Metadata:
    """What is answered by path, 404 elsewhere; ``tokens`` are the good ones of AWS, in the order they were given.

    ``headers`` must be in a question, or it is refused with 400. ``pause_s`` is waited for before each byte of a body;
    ``refuses`` takes no token at all.
    """

    url: str = ""
    pages: dict[str, str] = field(default_factory=dict[str, str])
    status: dict[str, int] = field(default_factory=dict[str, int])
    headers: dict[str, str] = field(default_factory=dict[str, str])
    answer_headers: dict[str, str] = field(default_factory=dict[str, str])
    tokens: list[str] | None = None
    requests: list[str] = field(default_factory=list[str])
    pause_s: float = 0.0
    refuses: bool = False

    def expire(self) -> None:
        """No token given so far is good any more."""
        self.tokens = []


@contextmanager
def metadata() -> Generator[Metadata]:
    """A running service; it ends with the block."""
    found = Metadata()
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            lifetime = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
            found.requests.append(f"PUT {self.path}")
            if found.tokens is None or self.path != "/latest/api/token" or not lifetime.isdigit():
                self.reply(found.status.get(self.path, 403), "")
            else:
                found.tokens.append(f"token-{time.monotonic_ns()}")
                self.reply(found.status.get(self.path, 200), found.tokens[-1])

        def do_GET(self) -> None:
            found.requests.append(self.path)
            given = {key.lower(): value for key, value in self.headers.items()}
            token = given.get("x-aws-ec2-metadata-token")
            if found.refuses or (found.tokens is not None and token not in found.tokens):
                self.reply(401, "<html>Unauthorized</html>")
            elif any(given.get(key.lower()) != value for key, value in found.headers.items()):
                self.reply(400, "")
            else:
                page = found.pages.get(self.path)
                status = found.status.get(self.path, 404 if page is None else 200)
                self.reply(status, page or "<html>Not Found</html>")

        def reply(self, status: int, text: str) -> None:
            body = text.encode("utf-8", "surrogateescape")
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            for name, value in found.answer_headers.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                for byte in body if found.pause_s else b"":
                    if ended.wait(found.pause_s):
                        return
                    self.wfile.write(bytes([byte]))
                if not found.pause_s:
                    self.wfile.write(body)
            except OSError:
                return  # the agent has had enough

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        server.shutdown()
        thread.join()
        server.server_close()
