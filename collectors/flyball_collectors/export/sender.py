"""Sends views to an OTLP endpoint from a thread of its own."""

import gzip
import logging
import random as randomness
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import unquote

import urllib3
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from urllib3.exceptions import HTTPError

from flyball_collectors.export.latest import View
from flyball_collectors.export.otlp import request_of, resource_attributes
from flyball_collectors.parameters import ExportParameters
from flyball_collectors.retry_after import retry_after_s
from flyball_contracts.security.clear import in_clear
from flyball_contracts.security.secret import secret_if_given

_LOG = logging.getLogger(__name__)
_RETRIED = frozenset({429, 502, 503, 504})  # by the OTLP specification; anything else would be refused again
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 60.0
_LONGEST_RETRY_AFTER_S = 600.0
_CLOSE_S = 3.0


class Refused(NamedTuple):
    """Reason why a request was rejected: for good, or until ``wait_s`` has passed if the endpoint says so."""

    reason: str
    lasting: bool = False
    wait_s: float | None = None


class OtlpSender:
    """A bounded queue of views and the thread that sends them; the oldest are dropped when it is full.

    Counters in the views are cumulative, so that a dropped view costs resolution, not sums. ``taken`` and ``lost`` are
    numbers of requests.
    """

    def __init__(
        self,
        config: ExportParameters,
        host: str,
        environment: Mapping[str, str],
        *,
        random: Callable[[], float] = randomness.random,
    ) -> None:
        self.taken = 0
        self.lost = 0
        self._config = config
        self._host = host
        self._environment = environment
        self._random = random
        self._waiting: deque[View] = deque()
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._ill = False
        timeout = urllib3.Timeout(total=config.otlp_timeout_s)
        self._pool = urllib3.PoolManager(maxsize=1, timeout=timeout, retries=False)
        secrets = _headers(secret_if_given(environment, config.otlp_headers_env, "agent.export"))
        if secrets and in_clear(config.otlp_endpoint):
            where = config.otlp_endpoint
            _LOG.warning("agent.export.otlp_endpoint: %s: headers leave this machine without TLS; use https", where)
        self._headers = {
            "Content-Type": "application/x-protobuf",
            "Content-Encoding": "gzip",
            "User-Agent": "flyball-agent",
            **secrets,
        }
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
        self._thread.start()

    def put(self, view: View) -> None:
        """Queue one view; never waits."""
        with self._changed:
            self._waiting.append(view)
            while len(self._waiting) > self._config.otlp_queue:
                self._waiting.popleft()
                self.lost += 1
            self._changed.notify()

    def close(self, timeout_s: float = _CLOSE_S) -> None:
        """Send waiting views within a time limit; the rest is lost and counted."""
        self._closing.set()
        with self._changed:
            self._changed.notify()
        self._thread.join(timeout_s)
        with self._changed:
            self.lost += len(self._waiting)
            self._waiting.clear()
        self._pool.clear()

    def _run(self) -> None:
        failures = 0
        while True:
            with self._changed:
                while not self._waiting and not self._closing.is_set():
                    self._changed.wait()
                if not self._waiting:
                    return
                view, last_try = self._waiting[0], self._closing.is_set()
            try:
                refused = self._post(view)
            except Exception as error:  # a fault of ours: the thread must go on, or all later requests would be lost
                _LOG.exception("an OTLP request could not be made; report it")
                refused = Refused(f"unexpected {type(error).__name__}", lasting=True)
            if refused is None or refused.lasting:
                failures = 0
                self._done(view, lost=refused is not None)
            if refused is None:
                self._note_taken()
                continue
            self._note_refused(refused)
            if last_try:
                return
            if not refused.lasting:
                failures += 1
                backoff_s = min(_FIRST_WAIT_S * 2.0 ** min(failures - 1, 10), _LONGEST_WAIT_S) * (
                    0.5 + self._random() / 2
                )
                self._closing.wait(backoff_s if refused.wait_s is None else refused.wait_s)

    def _done(self, view: View, *, lost: bool) -> None:
        with self._changed:
            if self._waiting and self._waiting[0] is view:
                self._waiting.popleft()
                self.taken += not lost
                self.lost += lost
            elif not lost:  # dropped from the full queue while it was being sent, yet delivered
                self.taken += 1
                self.lost -= 1

    def _post(self, view: View) -> Refused | None:
        resource = resource_attributes(view.inventory, self._host, self._environment)
        body = gzip.compress(request_of(view, resource).SerializeToString(), compresslevel=1)
        try:
            answer = self._pool.request(
                "POST", self._config.otlp_endpoint, body=body, headers=self._headers, redirect=False
            )
        except (HTTPError, OSError) as error:
            return Refused(type(error).__name__)
        if answer.status == 200:
            self._note_partial(answer.data)
            return None
        wait_s = retry_after_s(answer.headers.get("Retry-After"), time.time_ns(), _LONGEST_RETRY_AFTER_S)
        text = " ".join(answer.data.decode("utf-8", "replace").split())[:200]
        return Refused(f"status {answer.status} {text!r}", answer.status not in _RETRIED, wait_s)

    def _note_partial(self, body: bytes) -> None:
        try:
            refused = ExportMetricsServiceResponse.FromString(body).partial_success
        except Exception:  # whatever the answer's body is, its status says that the request was taken
            return
        if refused.rejected_data_points:
            _LOG.warning(
                "the OTLP endpoint refused %d data points: %s",
                refused.rejected_data_points,
                refused.error_message[:200],
            )

    def _note_refused(self, refused: Refused) -> None:
        if not self._ill:
            self._ill = True
            fate = "it is given up" if refused.lasting else f"at most {self._config.otlp_queue} requests wait"
            _LOG.warning("OTLP endpoint %s: %s; %s", self._config.otlp_endpoint, refused.reason, fate)

    def _note_taken(self) -> None:
        if self._ill:
            self._ill = False
            _LOG.warning("OTLP endpoint %s takes requests again; %d were lost", self._config.otlp_endpoint, self.lost)


def _headers(text: str) -> dict[str, str]:
    """Headers as OpenTelemetry writes them, with characters such as blanks and commas percent-encoded."""
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {unquote(name.strip()): unquote(value.strip()) for name, _, value in pairs}
