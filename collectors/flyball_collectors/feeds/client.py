"""HTTP for the feeds: one bounded GET, an ETag cache, and errors with a remedy."""

import ssl
import time
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.exceptions import HTTPError, NewConnectionError, ProxyError, SSLError, TimeoutError as TimedOut
from urllib3.util import parse_url

from flyball_collectors.feeds.base import FeedError
from flyball_collectors.retry_after import retry_after_s

MOST_BYTES = 8 * 1024 * 1024
LONGEST_WAIT_S = 86_400.0
_CHUNK = 65_536
_RETRIED = frozenset({408, 425, 429})


class _Kept(NamedTuple):
    url: str
    etag: str
    body: bytes


class Client:
    """Gets responses of one provider; the last one is kept with its ETag, so that an unchanged one costs no transfer.

    TLS certificates are verified against the system's store (``SSL_CERT_FILE`` names another) and the proxy variables
    of the environment apply. Redirects are not followed: headers may contain secrets.
    """

    def __init__(self, base_url: str, timeout_s: float) -> None:
        self._base_url = base_url.rstrip("/")
        self._timeout_s = timeout_s
        self._kept: _Kept | None = None

    def where(self, path: str) -> str:
        """Address of a path for errors: without the query, which may contain secrets."""
        return self._base_url + path

    def get(
        self, path: str, query: Mapping[str, str], headers: Mapping[str, str], now_ns: int, *, keep: bool = True
    ) -> bytes:
        """Body of a response with status 200, or the cached one on 304; ``keep`` is false for secret content.

        Raises :class:`FeedError` with a remedy by status, :class:`Unauthorized` for 401 and 403.
        """
        url = self.where(path) + ("?" + urlencode(query) if query else "")
        known = self._kept if self._kept is not None and self._kept.url == url else None
        sent = {"Accept": "application/json", "User-Agent": "flyball-feed", **headers}
        if known is not None:
            sent["If-None-Match"] = known.etag
        try:
            with self._pool() as pool:
                answer = pool.request("GET", url, headers=sent, preload_content=False, redirect=False, retries=False)
                try:
                    return self._take(answer, url, path, known, now_ns, keep)
                finally:
                    answer.close()
        except (HTTPError, OSError) as error:
            raise FeedError(f"{self.where(path)}: {self._reason(error)}") from None  # its text may hold the request

    def _take(
        self, answer: urllib3.BaseHTTPResponse, url: str, path: str, known: _Kept | None, now_ns: int, keep: bool
    ) -> bytes:
        if answer.status == 304 and known is not None:
            return known.body
        if answer.status != 200:
            raise _refusal(answer, self.where(path), now_ns)
        body = self._read(answer, path)
        etag = answer.headers.get("ETag", "")
        if keep:
            self._kept = _Kept(url, etag, body) if etag else None
        return body

    def _read(self, answer: urllib3.BaseHTTPResponse, path: str) -> bytes:
        ends_s = time.monotonic() + self._timeout_s
        parts = bytearray()
        while part := answer.read1(_CHUNK):
            parts += part
            if len(parts) > MOST_BYTES:
                raise FeedError(f"{self.where(path)}: longer than {MOST_BYTES} bytes; it is no curve", lasting=True)
            if time.monotonic() > ends_s:
                raise FeedError(f"{self.where(path)}: not whole after {self._timeout_s:g} s; it is requested again")
        return bytes(parts)

    def _pool(self) -> urllib3.PoolManager:
        """A pool for one request: the next one is minutes later, so connections are not kept.

        The system's certificates are read only if it speaks TLS.
        """
        timeout = urllib3.Timeout(total=self._timeout_s)
        target = urlsplit(self._base_url)
        proxy = getproxies().get(target.scheme)
        if not proxy or proxy_bypass(target.hostname or ""):
            return urllib3.PoolManager(timeout=timeout)
        parts = parse_url(proxy if "://" in proxy else f"http://{proxy}")
        headers = urllib3.make_headers(proxy_basic_auth=parts.auth) if parts.auth else None
        address = f"{parts.scheme}://{parts.netloc}"
        return urllib3.ProxyManager(address, proxy_headers=headers, timeout=timeout)

    def _reason(self, error: Exception) -> str:
        if isinstance(error, (SSLError, ssl.SSLError)):
            return "its certificate is not trusted; name a CA by SSL_CERT_FILE"
        if isinstance(error, ProxyError):
            return "the proxy does not let it through; check HTTPS_PROXY and NO_PROXY"
        if isinstance(error, NewConnectionError):
            return "no connection; check DNS, the proxy and the firewall"
        if isinstance(error, (TimedOut, TimeoutError)):
            return f"no answer within {self._timeout_s:g} s; it is requested again"
        return f"the answer broke off ({type(error).__name__}); it is requested again"


def _refusal(answer: urllib3.BaseHTTPResponse, where: str, now_ns: int) -> FeedError:
    status = answer.status
    if 300 <= status < 400:
        location = answer.headers.get("Location", "").partition("?")[0]
        text = f"{where}: status {status}, a redirect to {location[:200]!r}; see whether a proxy wants a log-in"
        return FeedError(text, lasting=True)
    if status in (401, 403):
        text = "check the token or the log-in in the environment, and that the plan includes this zone"
        return Unauthorized(f"{where}: status {status}, refused; {text}", lasting=True)
    if status < 500 and status not in _RETRIED:
        return FeedError(f"{where}: status {status}; check zone, region and key", lasting=True)
    wait_s = retry_after_s(answer.headers.get("Retry-After"), now_ns, LONGEST_WAIT_S) or 0.0
    text = (
        "too many requests; configure fewer feeds" if status == 429 else "the provider's fault; it is requested again"
    )
    return FeedError(f"{where}: status {status}, {text}", retry_after_s=wait_s)


class Unauthorized(FeedError):
    """Status 401 or 403: a token has expired, or was never valid."""
