"""One thread for each server: it reads the page every period, and the tick takes what the last one said."""

import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlsplit

from flyball_collectors.base import NAN
from flyball_collectors.workload.fetch import Fetcher, FetchError, Token
from flyball_collectors.workload.meter import Alternatives, Meter, Told
from flyball_collectors.workload.page import PageError, Reader
from flyball_contracts.config.workload import Work

_LOG = logging.getLogger(__name__)
_STALE_PERIODS = 3
_ACCEPT = "text/plain;version=0.0.4"


class Target(NamedTuple):
    """One page: where it is, what its series mean, and how the server says that it is well.

    ``health_url`` is whole, or empty: then a page that can be read is a sign of health. ``match`` is as in
    :class:`~flyball_contracts.config.workload.TargetSettings`.
    """

    workload: str
    replica: str
    base_url: str
    path: str
    health_url: str
    series: Alternatives
    work: Work
    match: tuple[tuple[str, str], ...]
    token: Token
    ca_file: str


class Limits(NamedTuple):
    """How often, how long and how much."""

    period_s: float
    timeout_s: float
    page_bytes: int


class Scraper:
    """Reads one target's page until :meth:`close`.

    Errors are counted and said once until it is well again; ``problem`` is the last one, empty while it is well and
    ``None`` before the first scrape has ended.
    """

    def __init__(self, target: Target, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.errors = 0
        self.problem: str | None = None
        self._target = target
        self._limits = limits
        self._clock = clock
        self._reader = Reader(target.series.names)
        self._meter = Meter(target.series, target.work, dict(target.match))
        make = (limits.timeout_s, limits.page_bytes, target.token, target.ca_file)
        self._page = Fetcher(target.base_url, *make)
        health = urlsplit(target.health_url)
        self._health_path = health.path
        own = f"{health.scheme}://{health.netloc}"
        self._health = self._page if not target.health_url or own == target.base_url else Fetcher(own, *make)
        self._lock = threading.Lock()
        self._told = Told()
        self._told_s: float | None = None
        self._failed = NAN
        self._said = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"scrape-{target.workload}", daemon=True)
        self._thread.start()

    def take(self) -> Told:
        """What the last finished scrape said; ``failed`` since the last call. NaN when that was too long ago."""
        self._page.hurry()
        self._health.hurry()
        limits = self._limits
        longest_s = max(_STALE_PERIODS * limits.period_s, limits.period_s + 2 * limits.timeout_s)
        with self._lock:
            told_s, failed = self._told_s, self._failed
            if told_s is None or self._clock() - told_s > longest_s:
                return Told()
            self._failed = 0.0 if failed == failed else NAN
            return self._told._replace(failed=failed)

    @property
    def resets(self) -> int:
        """Counters of the server that went down so far."""
        return self._meter.resets

    def stop(self) -> None:
        """Let the thread end soon, without waiting for it; a request that is under way is broken off."""
        self._stop.set()
        self._page.abort()
        self._health.abort()

    def close(self) -> None:
        """End the thread."""
        self.stop()
        self._thread.join(2 * self._limits.timeout_s)

    def _run(self) -> None:
        due_s = self._clock()
        while not self._stop.is_set():
            self._scrape()
            now_s = self._clock()
            due_s = max(due_s + self._limits.period_s, now_s)  # a slow server is asked less often, never in a burst
            self._stop.wait(due_s - now_s)
        self._page.close()
        self._health.close()

    def _scrape(self) -> None:
        told = Told(ready=0.0)
        try:
            told = self._read()
            self._say("")
        except (FetchError, PageError) as error:
            place = "" if isinstance(error, FetchError) else f"{self._target.base_url}{self._target.path}: "
            self._say(f"{place}{error}")
        except Exception as error:  # a page that breaks this reader must not end the thread
            self._say(f"{self._target.base_url}{self._target.path}: {type(error).__name__}: {error}; please report it")
        with self._lock:
            self._told, self._told_s = told, self._clock()
            if told.failed == told.failed:
                self._failed = told.failed + (self._failed if self._failed == self._failed else 0.0)

    def _read(self) -> Told:
        """Well or not is asked first, so that a server that still loads its model needs no page."""
        if self._target.health_url:
            self._health.get(self._health_path)
        text = self._page.get(self._target.path, _ACCEPT).decode("utf-8", "replace")
        told = self._meter.take(self._reader.read(text), self._clock(), _STALE_PERIODS * self._limits.period_s)
        return told._replace(ready=float(told.ready != 0.0))  # a page without such a series is a sign of health

    def _say(self, problem: str) -> None:
        """Log a problem when it begins or changes its nature, and its end."""
        kind = problem.partition("; ")[0]
        if self._stop.is_set():
            return  # broken off from here
        self.problem = problem
        if problem:
            self.errors += 1
        if kind != self._said:
            who = f"workload {self._target.workload}, replica {self._target.replica}"
            if problem:
                _LOG.warning("%s: %s", who, problem)
            else:
                _LOG.info("%s: well again after %d errors in all", who, self.errors)
        self._said = kind
