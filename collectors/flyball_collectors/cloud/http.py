"""HTTP to a metadata service: one short request at a time, and never through a proxy."""

import http.client
import time
from collections.abc import Mapping
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from flyball_collectors.cloud.base import MetadataError

LINK_LOCAL = "http://169.254.169.254"
"""The address that all three clouds use."""
MOST_BYTES = 1 << 18
T = TypeVar("T")


class Answer(NamedTuple):
    """Status and body."""

    status: int
    body: bytes
    headers: Mapping[str, str]


class MetadataServer:
    """A metadata service; a response that takes longer than ``timeout_s``, or is huge, is an error."""

    def __init__(self, address: str = "", timeout_s: float = 1.0) -> None:
        self.address = address or LINK_LOCAL
        self._timeout_s = timeout_s

    def request(self, path: str, headers: Mapping[str, str], method: str = "GET") -> Answer:
        """Response with any status; raises :class:`MetadataError` without one."""
        parts = urlsplit(self.address)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        try:
            connection = kind(parts.netloc, timeout=self._timeout_s)
            try:
                connection.request(method, path, headers={"User-Agent": "flyball-agent", **headers})
                answer = connection.getresponse()
                return Answer(answer.status, self._body(answer, path), {k.lower(): v for k, v in answer.getheaders()})
            finally:
                connection.close()
        except TimeoutError:
            raise MetadataError(f"{self.address}{path}: no answer within {self._timeout_s:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            raise MetadataError(f"{self.address}{path}: no answer: {error or type(error).__name__}") from error

    def text(self, answer: Answer, path: str) -> str:
        """Text of a successful response, ``""`` for status 404.

        Raises :class:`MetadataError` for any other status, and for text that is not one printable line.
        """
        if answer.status == 404:
            return ""
        self.check(answer, path)
        text = answer.body.decode("utf-8", "replace").strip()
        if not text.isprintable() or text[:1] == "<" or len(text) > 256:
            raise MetadataError(f"{self.address}{path}: not what a metadata service says: {text[:40]!r}")
        return text

    def check(self, answer: Answer, path: str) -> None:
        """Raise :class:`MetadataError` for a status other than 200."""
        if answer.status != 200:
            raise MetadataError(f"{self.address}{path}: status {answer.status}")

    def decode(self, answer: Answer, path: str, kind: type[T]) -> T:
        """JSON of a successful response as ``kind``; raises :class:`MetadataError`."""
        self.check(answer, path)
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MetadataError(f"{self.address}{path}: not the JSON that is known: {error}") from error

    def _body(self, answer: http.client.HTTPResponse, path: str) -> bytes:
        ends_s = time.monotonic() + self._timeout_s
        body = bytearray()
        while part := answer.read1(65_536):
            body += part
            if len(body) > MOST_BYTES:
                raise MetadataError(f"{self.address}{path}: longer than {MOST_BYTES} bytes")
            if time.monotonic() > ends_s:
                raise MetadataError(f"{self.address}{path}: not whole after {self._timeout_s:g} s")
        return bytes(body)
