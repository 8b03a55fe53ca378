"""Who is notified in tests: a strict double of Alertmanager's API v2 and of a webhook, that may be away for a while."""

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

POSTABLE = {"labels", "annotations", "startsAt", "endsAt", "generatorURL"}


class Receiver:
    """Keeps the bodies that it took; the first ``away`` requests, and what names ``unfit``, get ``status``."""

    def __init__(self, away: int = 0, status: int = 503, unfit: str = "") -> None:
        self.away, self.status, self.unfit = away, status, unfit
        self.bodies: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.wrong: list[str] = []
        self.refused = 0
        self.url = ""

    def answer(self, path: str, headers: dict[str, str], body: Any) -> int:
        if self.away:
            self.away -= 1
            self.refused += 1
            return self.status
        if self.unfit and json.dumps(self.unfit) in json.dumps(body):
            self.refused += 1
            return self.status
        if path.startswith("/api/"):
            self.wrong += check(path, body)
        self.bodies.append(body)
        self.headers.append(headers)
        return 400 if self.wrong else 200

    @property
    def alerts(self) -> list[dict[str, Any]]:
        """All alerts that came, in order."""
        found: list[dict[str, Any]] = []
        for body in self.bodies:
            found += body if isinstance(body, list) else body["alerts"]
        return found


def check(path: str, body: Any) -> list[str]:
    """What of a request Alertmanager's OpenAPI document (postableAlerts) does not allow."""
    if path != "/api/v2/alerts":
        return [f"no such path: {path}"]
    if not isinstance(body, list):
        return ["not a list"]
    wrong: list[str] = []
    alerts = cast("list[dict[str, Any]]", body)
    for alert in alerts:
        wrong += [f"unknown field {name}" for name in alert.keys() - POSTABLE]
        if not alert.get("labels", {}).get("alertname"):
            wrong.append("no labels")
        for name in ("labels", "annotations"):
            wrong += [f"{name}.{key} is no text" for key, v in alert.get(name, {}).items() if not isinstance(v, str)]
        times = [datetime.fromisoformat(alert[name]) for name in ("startsAt", "endsAt")]
        if times[0] > times[1]:
            wrong.append("it ends before it begins")
    return wrong


@contextmanager
def receiving(receiver: Receiver) -> Generator[Receiver]:
    """Serve on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            receiver.paths.append(self.path)
            status = receiver.answer(self.path, dict(self.headers.items()), body)
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", "https://new.example/hook?key=s3cret")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        receiver.url = f"http://127.0.0.1:{server.server_port}"
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
