"""The Docker Engine API over its Unix socket; see :class:`Engine`."""

import http.client
import json
import socket
from typing import Any, NamedTuple, cast
from urllib.parse import quote, urlencode, urlsplit

from flyball_actuators.platforms.base import PlatformError
from flyball_actuators.platforms.calls import check_stop, record_call
from flyball_contracts.errors import ConfigError

SOCKET = "unix:///var/run/docker.sock"
OLDEST, NEWEST = (1, 41), (1, 52)
"""API versions between which the calls used here have the same meaning."""
_LARGEST_BYTES = 64 * 1024 * 1024


class Answer(NamedTuple):
    """Status and decoded body of one call."""

    status: int
    body: Any

    @property
    def ok(self) -> bool:
        """Whether the request succeeded, now or before."""
        return self.status < 300 or self.status == http.client.NOT_MODIFIED

    @property
    def fields(self) -> dict[str, Any]:
        """The body if it is an object, else empty."""
        body: object = self.body
        return cast("dict[str, Any]", body) if isinstance(body, dict) else {}

    @property
    def entries(self) -> list[dict[str, Any]]:
        """The body if it is a list of objects, else empty."""
        body: object = self.body
        return cast("list[dict[str, Any]]", body) if isinstance(body, list) else []

    @property
    def message(self) -> str:
        """The engine's error message."""
        return f"HTTP {self.status}: {str(self.fields.get('message') or self.body or '').strip()}"


class NoAnswer(PlatformError):
    """The engine accepted a call and did not answer in time; it is still working on it."""


class Engine:
    """One Docker engine behind the Unix socket ``url``; each call waits ``timeout_s`` for its answer.

    The API version is the newest that both sides know; it is negotiated once, and again after an error.
    """

    def __init__(self, url: str, timeout_s: float, where: str = "platform") -> None:
        self.url = url or SOCKET
        parts = urlsplit(self.url)
        if parts.scheme != "unix" or parts.netloc or not parts.path:
            raise ConfigError(
                f"{where}.url: {self.url!r} is no Unix socket; pass such as {SOCKET}: who reaches an engine commands "
                "its machine, so it is reached on the machine alone"
            )
        self._path, self._timeout_s = parts.path, timeout_s
        self._version = ""

    def get(self, path: str, **query: Any) -> Answer:
        """Read something."""
        return self.call("GET", path, query)

    def call(self, method: str, path: str, query: dict[str, Any] | None = None, body: Any = None) -> Answer:
        """One call; raises :class:`PlatformError` without an answer."""
        version = _text(self.version())
        params: dict[str, str] = {
            key: value if isinstance(value, str) else json.dumps(value) for key, value in (query or {}).items()
        }
        return self._send(method, f"/v{version}{path}" + (f"?{urlencode(params)}" if params else ""), body)

    def version(self) -> tuple[int, int]:
        """The API version in use."""
        if not self._version:
            self._version = self._negotiate()
        return _version(self._version)

    def machine(self) -> str:
        """Name of the engine's machine."""
        return str(self.get("/info").fields.get("Name", ""))

    def experimental(self) -> bool:
        """Whether the engine has experimental features on, which checkpoints need."""
        return bool(self.get("/info").fields.get("ExperimentalBuild"))

    def _negotiate(self) -> str:
        answer = self._send("GET", "/version", None)
        try:
            newest, oldest = (_version(answer.fields[key]) for key in ("ApiVersion", "MinAPIVersion"))
        except (KeyError, AttributeError, ValueError) as error:
            raise PlatformError(f"{self.url}: no Docker engine answers there: {answer.message}") from error
        chosen = min(newest, NEWEST)
        if chosen < max(OLDEST, oldest):
            raise PlatformError(
                f"{self.url}: the engine supports versions {_text(oldest)} to {_text(newest)} of its API, Flyball "
                f"{_text(OLDEST)} to {_text(NEWEST)}; upgrade the older one"
            )
        return _text(chosen)

    def _send(self, method: str, path: str, body: Any) -> Answer:
        changes = method != "GET"
        if changes:
            check_stop()
        connection = _Local(self._path, self._timeout_s)
        sent = False
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/json"} if data else {})
            sent = True
            response = connection.getresponse()
            raw = response.read(_LARGEST_BYTES)
        except (OSError, http.client.HTTPException) as error:
            self._version = ""  # another engine may listen there when it is back
            if changes:
                record_call(method, path, f"no answer: {type(error).__name__}")
            if sent and isinstance(error, TimeoutError):
                raise NoAnswer(f"{method} {self.url}{path}: no answer in {self._timeout_s:g} s") from error
            raise PlatformError(f"{method} {self.url}{path}: {str(error) or type(error).__name__}") from error
        finally:
            connection.close()
        if changes:
            record_call(method, path, response.status)
        return Answer(response.status, _decoded(raw))


class _Local(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("docker", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def segment(name: str) -> str:
    """A name escaped as one path segment."""
    return quote(name, safe="")


def _decoded(raw: bytes) -> Any:
    try:
        return json.loads(raw) if raw.strip() else None
    except ValueError:
        return raw[:200].decode("utf-8", "replace")


def _version(text: str) -> tuple[int, int]:
    major, minor = text.split(".")
    return int(major), int(minor)


def _text(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
