"""Scrapes one gateway: arrivals for each workload."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from flyball_collectors.base import NAN
from flyball_collectors.workload.scraping.meter import Alternatives, Meter, Work
from flyball_collectors.workload.scraping.page import PageError, Reader, Sample
from flyball_collectors.workload.scraping.poller import Limits, Place, Poller

_MOST_KEPT = 256
"""Maximum readings between two ticks; an agent that is further behind misses some."""


class GatewayPage(NamedTuple):
    """One gateway: its page, the meaning of its series, and the workload of each label value.

    An empty value means the whole page. ``read`` and ``rate`` are those of the kind. Series without the label belong to
    the workload if the page has only one. If it has several, such series belong to none of them, because none may have
    the sum of all. A page without any series with the label is an error.
    """

    name: str
    place: Place
    series: Alternatives
    label: str
    workloads: Mapping[str, str]
    read: Callable[[str], list[Sample]] | None = None
    rate: str = ""


Requests = dict[str, "GatewayReading"]


class GatewayReading(NamedTuple):
    """Requests for one workload: per second, queued at the gateway, and in progress; NaN if unknown."""

    rate: float = NAN
    queued: float = NAN
    active: float = NAN


class GatewayScraper(Poller[Requests]):
    """Reads one gateway's page until :meth:`close`."""

    def __init__(self, page: GatewayPage, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(f"gateway {page.name}", page.place, limits, clock)
        self.absent: tuple[str, ...] = ()
        self.unlabelled: tuple[str, ...] = ()
        self._since: list[Requests] = []
        self._gateway = page
        self._parsed = page.read or partial(Reader(page.series.names).read, may_lack=True)
        self._meters = {
            value: Meter(page.series, Work(), {page.label: value} if value else {}) for value in page.workloads
        }
        self.start()

    def take(self) -> Requests:
        """Readings since the last call, by workload, else the last reading; empty if that is too old.

        Rates are means of all readings in between, even if the page cannot be read any more: a single request must not
        be missed.
        """
        self._hurry()
        with self._lock:
            since, self._since = self._since, []
            latest = self._latest() or {}
        if not any(since):
            return latest
        return {
            name: latest.get(name, GatewayReading())._replace(rate=_mean([one[name].rate for one in since if one]))
            for name in self._gateway.workloads.values()
        }

    def _read(self) -> Requests:
        samples = self._parsed(self._text())
        now_s, page = self._clock(), self._gateway
        seen: Requests = {}
        absent: list[str] = []
        labelled = self._labelled(samples)
        for value, meter in self._meters.items():
            requests = meter.take(labelled if value else samples, now_s, math.inf)  # late is better than missed
            mine = [s for s in labelled if s.labels.get(page.label, value) == value] if value else samples
            rates = [s.value for s in mine if s.name == page.rate]
            found = GatewayReading(sum(rates) if rates else requests.request_rate, requests.queued, requests.active)
            before = seen.get(page.workloads[value], GatewayReading())
            seen[page.workloads[value]] = GatewayReading(
                *(_known_sum(a, b) for a, b in zip(before, found, strict=True))
            )
            if not mine:
                absent.append(value)
        self.absent = tuple(absent)
        return seen

    def _labelled(self, samples: Sequence[Sample]) -> Sequence[Sample]:
        """The samples by workload label; raises :class:`PageError` if no series has the label."""
        page = self._gateway
        lacking = sorted({sample.name for sample in samples if page.label not in sample.labels})
        self.unlabelled = ()
        if not lacking or not any(page.workloads):
            return samples
        if not any(page.label in sample.labels for sample in samples):
            others = ", ".join(sorted({label for sample in samples for label in sample.labels})) or "none"
            raise PageError(
                f"no series has the label {page.label!r} (labels there: {others}); set label to the one that keeps "
                'workloads apart, or map "" to one workload for the whole page'
            )
        if len(set(page.workloads.values())) == 1:
            return samples
        self.unlabelled = tuple(lacking)
        return [sample for sample in samples if page.label in sample.labels]

    def _unread(self) -> Requests:
        return {}

    def _note(self, reading: Requests) -> None:
        super()._note(reading)
        self._since = [*self._since[1 - _MOST_KEPT :], reading]


def _mean(values: list[float]) -> float:
    known = [value for value in values if value == value]
    return sum(known) / len(known) if known else NAN


def _known_sum(a: float, b: float) -> float:
    return b if a != a else a if b != b else a + b
