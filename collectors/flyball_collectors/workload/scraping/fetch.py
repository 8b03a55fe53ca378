"""One bounded HTTP GET at a time over a persistent connection, by TCP, TLS or a Unix socket."""

import http.client
import socket
import ssl
import time
from http import HTTPStatus
from urllib.parse import unquote, urlsplit

from flyball_collectors.workload.scraping.token import FetchError, MissingError, Token

_CHUNK_BYTES = 1 << 16


class Fetcher:
    """Gets pages of one server: ``http://``, ``https://`` or ``unix:///socket`` as ``base_url``.

    Redirects are not followed and no proxy is used: the server is on this node. TLS is verified with the authorities in
    ``ca_file``, empty: the system's. ``token`` is called for the bearer token before each request, and a response of at
    most ``most_bytes`` must be complete ``timeout_s`` after the request.
    """

    def __init__(self, base_url: str, timeout_s: float, most_bytes: int, token: Token, ca_file: str = "") -> None:
        self._base_url = base_url
        self._timeout_s = timeout_s
        self._most_bytes = most_bytes
        self._token = token
        self._ca_file = ca_file
        self._kept: http.client.HTTPConnection | None = None
        self._ends_s = float("inf")

    def get(self, path: str, accept: str = "text/plain") -> bytes:
        """Body of a 2xx response.

        Raises :class:`FetchError` for another status, :class:`MissingError` for 404, and without a complete response in
        time.
        """
        where = self._base_url + path
        reused = self._kept is not None
        self._ends_s = time.monotonic() + self._timeout_s
        try:
            try:
                return self._request(path, accept, where)
            except (http.client.RemoteDisconnected, ConnectionError):
                self.close()
                if not reused or time.monotonic() > self._ends_s:
                    raise
                # the server had closed the kept connection meanwhile
                return self._request(path, accept, where)
        except MissingError:  # a whole answer
            raise
        except FetchError:
            self.close()
            raise
        except (OSError, http.client.HTTPException) as error:
            self.close()
            late = time.monotonic() > self._ends_s
            raise FetchError(f"{where}: {self._reason(TimeoutError() if late else error)}") from None
        finally:
            self._ends_s = float("inf")

    def hurry(self) -> None:
        """Abort a request that is over time, from another thread: slow single bytes never end a read."""
        if time.monotonic() > self._ends_s:
            self.abort()

    def abort(self) -> None:
        """Abort the current request, if any, from another thread."""
        kept = self._kept
        sock: socket.socket | None = kept.sock if kept is not None else None
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # it has just ended

    def close(self) -> None:
        """Close the connection; the next request opens one."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _request(self, path: str, accept: str, where: str) -> bytes:
        headers = {"Accept": accept, "User-Agent": "flyball-agent"}
        if token := self._token():
            headers["Authorization"] = f"Bearer {token}"
        if self._kept is None:
            self._kept = self._connection()
        self._kept.request("GET", path or "/", headers=headers)
        answer = self._kept.getresponse()
        body = self._read(answer, where)
        if not 200 <= answer.status < 300:
            failure = MissingError if answer.status == HTTPStatus.NOT_FOUND else FetchError
            raise failure(f"{where}: status {answer.status}; {_advice(answer.status)}")
        return body

    def _read(self, answer: http.client.HTTPResponse, where: str) -> bytes:
        parts = bytearray()
        while part := answer.read1(_CHUNK_BYTES):
            parts += part
            if len(parts) > self._most_bytes:
                raise FetchError(f"{where}: longer than {self._most_bytes} bytes; let the server export less")
            if time.monotonic() > self._ends_s:
                raise TimeoutError
        if time.monotonic() > self._ends_s:  # aborted: without a length it looks complete
            raise TimeoutError
        if answer.length:
            raise http.client.IncompleteRead(bytes(parts), answer.length)
        answer.close()  # the connection is kept
        return bytes(parts)

    def _connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self._base_url)
        if parts.scheme == "unix":
            return _UnixConnection(unquote(parts.path), self._timeout_s)
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=self._ca_file or None)
            return http.client.HTTPSConnection(
                parts.hostname or "", parts.port, timeout=self._timeout_s, context=context
            )
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=self._timeout_s)

    def _reason(self, error: Exception) -> str:
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted ({error.verify_message}); set ca_file, or the name in url"
        if isinstance(error, ssl.SSLError):
            return "no TLS there; check https in url"
        if isinstance(error, TimeoutError):
            return f"no whole answer within {self._timeout_s:g} s; look at its load"
        if isinstance(error, socket.gaierror):
            return "its name is not known; check url and DNS"
        if isinstance(error, (ConnectionRefusedError, FileNotFoundError)):
            return "no server listens there; check url, and that the server runs"
        if isinstance(error, http.client.HTTPException):
            return f"the answer broke off ({type(error).__name__}); it is requested again"
        name = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        return f"{name}; it is requested again"


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _advice(status: int) -> str:
    if status in (401, 403):
        return "check token_file, and what the token allows"
    if 300 <= status < 400:
        return "a redirect; set url to where it leads"
    return "check url" if status < 500 else "the server is not well"
