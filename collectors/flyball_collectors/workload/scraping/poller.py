"""One thread per page reads it periodically, and the tick uses the last reading."""

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from flyball_collectors.workload.scraping.page import PageError
from flyball_collectors.workload.scraping.token import FetchError, Token

if TYPE_CHECKING:  # imported where something is scraped: it costs memory
    from flyball_collectors.workload.scraping.fetch import Fetcher

_LOG = logging.getLogger(__name__)
_STALE_PERIODS = 3
_ACCEPT = "text/plain;version=0.0.4"
T = TypeVar("T")


class Limits(NamedTuple):
    """Period, timeout and size limits."""

    period_s: float
    timeout_s: float
    page_bytes: int


class Place(NamedTuple):
    """Address and authentication of a page."""

    base_url: str
    path: str
    token: Token
    ca_file: str


class Poller(ABC, Generic[T]):
    """Reads one page until :meth:`close`; ``who`` names it in the log.

    Errors are counted, and logged once until it works again; ``problem`` is the last one, empty if there is none and
    ``None`` before the first reading. A subclass defines a reading, and calls :meth:`start` once it is ready.
    """

    def __init__(self, who: str, place: Place, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.errors = 0
        self.problem: str | None = None
        self._who = who
        self._place = place
        self._limits = limits
        self._clock = clock
        self._page = self._fetcher(place.base_url)
        self._lock = threading.Lock()
        self._reading: T | None = None
        self._reading_s: float | None = None
        self._logged = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"scrape-{who}", daemon=True)

    def start(self) -> None:
        """Start reading."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread soon, without waiting for it; the current request is aborted."""
        self._stop.set()
        for fetcher in self._fetchers():
            fetcher.abort()

    def close(self) -> None:
        """End the thread."""
        self.stop()
        self._thread.join(2 * self._limits.timeout_s)

    @abstractmethod
    def _read(self) -> T:
        """Read the page once; raises :class:`FetchError` or :class:`PageError`."""

    @abstractmethod
    def _unread(self) -> T:
        """The reading for an unreadable page."""

    def _note(self, reading: T) -> None:
        """Store a reading; the lock is held."""
        self._reading, self._reading_s = reading, self._clock()

    def _fetchers(self) -> "tuple[Fetcher, ...]":
        return (self._page,)

    def _fetcher(self, base_url: str) -> "Fetcher":
        from flyball_collectors.workload.scraping.fetch import Fetcher

        limits, place = self._limits, self._place
        return Fetcher(base_url, limits.timeout_s, limits.page_bytes, place.token, place.ca_file)

    def _latest(self) -> T | None:
        """The last reading, ``None`` if it is too old; the lock is held."""
        limits = self._limits
        longest_s = max(_STALE_PERIODS * limits.period_s, limits.period_s + 2 * limits.timeout_s)
        if self._reading_s is None or self._clock() - self._reading_s > longest_s:
            return None
        return self._reading

    def _hurry(self) -> None:
        for fetcher in self._fetchers():
            fetcher.hurry()

    def _text(self) -> str:
        return self._page.get(self._place.path, _ACCEPT).decode("utf-8", "replace")

    @property
    def _longest_s(self) -> float:
        """The longest time between two readings over which a rate is current."""
        return _STALE_PERIODS * self._limits.period_s

    def _run(self) -> None:
        due_s = self._clock()
        while not self._stop.is_set():
            self._poll()
            now_s = self._clock()
            due_s = max(due_s + self._limits.period_s, now_s)  # a slow server is polled less often, never in a burst
            self._stop.wait(due_s - now_s)
        for fetcher in self._fetchers():
            fetcher.close()

    def _poll(self) -> None:
        reading = self._unread()
        where = f"{self._place.base_url}{self._place.path}"
        problem = ""
        try:
            reading = self._read()
        except FetchError as error:
            problem = str(error)
        except PageError as error:
            problem = f"{where}: {error}"
        except Exception as error:  # a page that breaks this reader must not end the thread
            problem = f"{where}: {type(error).__name__}: {error}; please report it"
        with self._lock:  # so that readers see both together
            self._set_problem(problem)
            self._note(reading)

    def _set_problem(self, problem: str) -> None:
        """Log a problem when it begins or changes, and its end; the lock is held."""
        kind = problem.partition("; ")[0]
        if self._stop.is_set():
            return  # aborted by this side
        self.problem = problem
        if problem:
            self.errors += 1
        if kind != self._logged:
            if problem:
                _LOG.warning("%s: %s", self._who, problem)
            else:
                _LOG.info("%s: well again after %d errors in all", self._who, self.errors)
        self._logged = kind
