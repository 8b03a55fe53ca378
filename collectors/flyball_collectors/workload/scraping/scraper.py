"""The page of one replica: its last report, and failures since the last call."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from flyball_collectors.base import NAN
from flyball_collectors.workload.scraping.meter import Alternatives, Meter, ServerReading, Work
from flyball_collectors.workload.scraping.page import PageError, Reader, Sample
from flyball_collectors.workload.scraping.poller import Limits, Place, Poller
from flyball_collectors.workload.scraping.token import Token

if TYPE_CHECKING:  # imported where something is scraped: it costs memory
    from flyball_collectors.workload.scraping.fetch import Fetcher

_LOG = logging.getLogger(__name__)
_SHOWN = 5


def check_apart(found: Sequence[Sample], match: Mapping[str, str], model: str) -> None:
    """Raise :class:`PageError` if the samples do not distinguish the target.

    They do not if none has the labels and values of ``match``, or if the label ``model`` has several values and
    ``match`` names none of them. A page without samples, of an unused server, is valid.
    """
    if not found:
        return
    for label, value in match.items():
        values = _values(found, label)
        if not values:
            others = (
                ", ".join(sorted({name for sample in found for name in sample.labels} - {"le", "quantile"})) or "none"
            )
            raise PageError(
                f"no series has the label {label!r} that match names (labels there: {others}); correct match"
            )
        if value not in values:
            raise PageError(f"no series has {label}={value!r}; set match.{label} to one of {_shown(values)}")
    values = _values(found, model) if model and model not in match else []
    if len(values) > 1:
        raise PageError(
            f"its series are of {len(values)} models, {_shown(values)}; name one of them with match: "
            f"{{{model}: {values[0]}}} (a pod: flyball.dev/model, a job: FLYBALL_MODEL)"
        )


def _values(found: Sequence[Sample], label: str) -> list[str]:
    return sorted({sample.labels[label] for sample in found if label in sample.labels})


def _shown(values: Sequence[str]) -> str:
    return ", ".join(values[:_SHOWN]) + (", ..." if len(values) > _SHOWN else "")


class Target(NamedTuple):
    """One page: its address, the meaning of its series, and the server's health check.

    ``health_url`` is a complete URL, or empty: then a readable page is a sign of health. ``match`` is as in
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


class Scraper(Poller[ServerReading]):
    """Reads one target's page until :meth:`close`."""

    def __init__(self, target: Target, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        place = Place(target.base_url, target.path, target.token, target.ca_file)
        super().__init__(f"workload {target.workload}, replica {target.replica}", place, limits, clock)
        self._reader = Reader(target.series.names)
        self._match, self._model = dict(target.match), target.series.model
        self._meter = Meter(target.series, target.work, self._match)
        own = not target.health_url or target.health_url.startswith(f"{target.base_url}/")
        health = urlsplit(target.health_url)
        self._checks_health = bool(target.health_url)
        self._health_path = target.health_url.removeprefix(target.base_url) if own else health.path
        self._health = self._page if own else self._fetcher(f"{health.scheme}://{health.netloc}")
        self._failed = NAN
        self._lacked: set[str] = set()
        self.start()

    def take(self) -> ServerReading:
        """Result of the last finished scrape, ``failed`` since the last call. NaN when that is too old."""
        self._hurry()
        with self._lock:
            reading, failed = self._latest(), self._failed
            if reading is None:
                return ServerReading()
            self._failed = 0.0 if failed == failed else NAN
            return reading._replace(failed=failed)

    def _fetchers(self) -> "tuple[Fetcher, ...]":
        return (self._page, self._health)

    def _read(self) -> ServerReading:
        """Check health first: a server that still loads its model needs no page."""
        if self._checks_health:
            self._health.get(self._health_path)
        found = self._reader.read(self._text())
        check_apart(found, self._match, self._model)
        reading = self._meter.take(found, self._clock(), self._longest_s)
        self._miss(self._meter.absent)
        return reading._replace(ready=float(reading.ready != 0.0))  # a page without such a series is a sign of health

    def _miss(self, absent: Mapping[str, str]) -> None:
        """Log once for each field that the page has no series for it."""
        for field in absent.keys() - self._lacked:
            _LOG.warning(
                "%s: %s stays unknown: %s%s has no %s; switch it on there, or name its series with server: generic",
                *(self._who, field, self._place.base_url, self._place.path, absent[field]),
            )
        self._lacked |= absent.keys()

    def _unread(self) -> ServerReading:
        return ServerReading(ready=0.0)

    def _note(self, reading: ServerReading) -> None:
        super()._note(reading)
        if reading.failed == reading.failed:
            self._failed = reading.failed + (self._failed if self._failed == self._failed else 0.0)
