"""Sends lines to a v2 write API in bounded batches; retries while the server is unreachable, never a rejected line."""

import itertools
import logging
import threading
from collections.abc import Iterable
from typing import Self, cast

import urllib3
from influxdb_client.client.influxdb_client import InfluxDBClient
from influxdb_client.client.write_api import SYNCHRONOUS
from influxdb_client.rest import ApiException

from flyball_contracts.errors import ConfigError
from flyball_streams.sinks.parameters import InfluxParameters

_LOG = logging.getLogger(__name__)
LINES_PER_REQUEST = 5_000
_TIMEOUT_MS = 30_000
_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 30.0
_OPERATOR = {
    401: "the token is refused",
    403: "the token may not write",
    404: "no such bucket or organisation",
}
_TRANSIENT = {408, 429}


class LineWriter:
    """A connection that counts each line as `written` or `rejected`; `retries` are failed attempts."""

    def __init__(self, influx: InfluxParameters, token: str, stop: threading.Event) -> None:
        self.written = 0
        self.rejected = 0
        self.retries = 0
        self._influx = influx
        self._stop = stop
        self._client = InfluxDBClient(
            url=influx.url, token=token, org=influx.org, timeout=_TIMEOUT_MS, enable_gzip=True, retries=False
        )
        self._api = self._client.write_api(write_options=SYNCHRONOUS)  # pyright: ignore[reportUnknownMemberType]

    def write(self, lines: Iterable[str]) -> bool:
        """Write all lines; return false if `stop` came before the server accepted them."""
        source = iter(lines)
        while chunk := list(itertools.islice(source, LINES_PER_REQUEST)):
            if not self._write_chunk(chunk):
                return False
        return True

    def _write_chunk(self, lines: list[str]) -> bool:
        wait_s = _FIRST_WAIT_S
        while True:
            try:
                self._send(lines)
            except ApiException as error:
                status = cast(int | None, error.status) or 0  # pyright: ignore[reportUnknownMemberType]
                if status in _OPERATOR:
                    raise ConfigError(
                        f"{self._influx.url}: {_OPERATOR[status]} (bucket {self._influx.bucket!r}, organisation "
                        f"{self._influx.org!r}, token from {self._influx.token_env})"
                    ) from error
                if 400 <= status < 500 and status not in _TRANSIENT:
                    return self._divide(lines, error)
                reason = f"status {status}"
            except (urllib3.exceptions.HTTPError, OSError) as error:
                reason = str(error)
            else:
                self.written += len(lines)
                return True
            self.retries += 1
            _LOG.warning("%s does not take lines (%s); trying again in %.1f s", self._influx.url, reason, wait_s)
            if self._stop.wait(wait_s):
                return False
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def _divide(self, lines: list[str], error: ApiException) -> bool:
        """Find the rejected lines by halving; the others are written."""
        if len(lines) > 1:
            middle = len(lines) // 2
            return self._write_chunk(lines[:middle]) and self._write_chunk(lines[middle:])
        self.rejected += 1
        _LOG.error("%s rejects a line (%s): %s", self._influx.url, str(error)[:200], lines[0][:300])
        return True

    def _send(self, lines: list[str]) -> None:
        self._api.write(bucket=self._influx.bucket, org=self._influx.org, record="\n".join(lines).encode())  # pyright: ignore[reportUnknownMemberType]

    def close(self) -> None:
        """Close the connection."""
        self._api.close()  # type: ignore[no-untyped-call]
        self._client.close()  # type: ignore[no-untyped-call]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
