"""The loop of the feeds: query each when it is due, send new curves."""

import logging
import random as randomness
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from flyball_collectors.agent.delivery.outbox import Outbox
from flyball_collectors.agent.ticker import Clock
from flyball_collectors.feeds.base import FeedError
from flyball_collectors.feeds.curve import longer
from flyball_collectors.feeds.schedule import FeedCounts, Freshness, Schedule
from flyball_collectors.feeds.sources import Source, open_feeds
from flyball_contracts.codec import record_message
from flyball_contracts.config import Config
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Signal

_LOG = logging.getLogger(__name__)
_LONGEST_WAIT_S = 1.0
_QUEUE_BYTES = 8 * 1024 * 1024


class FeedReport(NamedTuple):
    """Result of a run, by feed; ``delivered`` and ``dropped`` count messages."""

    feeds: dict[str, FeedCounts]
    delivered: int
    dropped: int


class Answer(NamedTuple):
    """Result of a query: curves, or why there are none."""

    name: str
    signals: list[Signal]
    error: str


def run_feeds(
    config: Config,
    *,
    stop: threading.Event,
    sources: Sequence[Source] | None = None,
    clock: Clock | None = None,
    wait: Callable[[float], bool] | None = None,
    random: Callable[[], float] = randomness.random,
) -> FeedReport:
    """Query all feeds, each in its own period, and send new curves to Kafka until ``stop`` or ``wait`` ends it.

    ``sources``, ``clock``, ``wait`` and ``random`` (0..1, the jitter) replace those of the configuration and the
    system. The feeds are queried one after the other, and ``wait`` is called between any two. Raises
    :class:`ConfigError` for a configuration that cannot work; an unreachable feed or broker does not raise.
    """
    clock = clock or Clock()
    wait = wait or stop.wait
    if sources is None:
        sources = open_feeds(config.feeds)
    outbox = Outbox(config.kafka, client_id="flyball-feed", queue_bytes=_QUEUE_BYTES)
    runners = [_Runner(source, config, clock, random, outbox) for source in sources]
    dropped = 0
    try:
        while not stop.is_set():
            first = min(runners, key=lambda r: r.due_ns)
            due_s = (first.due_ns - clock.monotonic_ns()) / NS_PER_S
            if wait(min(max(due_s, 0.0), _LONGEST_WAIT_S)):
                break
            if due_s <= 0.0:
                first.poll()
            for runner in runners:
                runner.check()
            outbox.poll()
            if outbox.dropped > dropped:  # messages that were given up must not count as published
                dropped = outbox.dropped
                for runner in runners:
                    runner.forget()
    finally:
        outbox.close()
    return FeedReport({r.name: r.counts for r in runners}, outbox.delivered, outbox.dropped)


def fetch_once(config: Config, now_ns: int | None = None) -> list[Answer]:
    """Query each feed once, without Kafka; raises :class:`ConfigError`."""
    answers: list[Answer] = []
    for source in open_feeds(config.feeds):
        try:
            signals = source.feed.fetch(time.time_ns() if now_ns is None else now_ns)
            answers.append(Answer(source.feed.name, signals, ""))
        except FeedError as error:
            answers.append(Answer(source.feed.name, [], str(error)))
    return answers


class _Runner:
    """One feed in a run."""

    def __init__(
        self, source: Source, config: Config, clock: Clock, random: Callable[[], float], outbox: Outbox
    ) -> None:
        self.name = source.feed.name
        self.counts = FeedCounts()
        self._feed = source.feed
        self._clock = clock
        self._outbox = outbox
        self._schedule = Schedule(source.period_s, random, clock.monotonic_ns())
        self._freshness = Freshness(source.stale_after_s, clock.wall_ns())
        self._published: dict[tuple[str, str], Signal] = {}
        self._seen = False

    @property
    def due_ns(self) -> int:
        """Monotonic time at which the feed is polled next."""
        return self._schedule.due_ns

    def check(self) -> None:
        """Log once when the feed becomes stale, and once when it is fresh again."""
        now_ns = self._clock.wall_ns()
        turned = self._freshness.check(now_ns)
        if turned:
            self.counts.stale += 1
            hours = self._freshness.age_s(now_ns) / 3600.0
            _LOG.warning("feed %s is stale: nothing newer for %.1f h; look at what its provider says", self.name, hours)
        elif turned is False:
            _LOG.warning("feed %s is fresh again", self.name)

    def forget(self) -> None:
        """Count nothing as published: the next response is sent, new or not."""
        self._published.clear()

    def poll(self) -> None:
        """Query the feed and send new curves."""
        self.counts.polls += 1
        try:
            signals = self._fetch()
        except FeedError as error:
            self.counts.failed += 1
            wait_s = self._schedule.failed(error, self._clock.monotonic_ns())
            level = logging.WARNING if self._schedule.failures == 1 else logging.DEBUG
            _LOG.log(level, "feed %s: %s (next attempt in %.0f s)", self.name, error, wait_s)
        else:
            if self._schedule.failures:
                _LOG.warning("feed %s answers again after %d failures", self.name, self._schedule.failures)
            self._schedule.succeeded(self._clock.monotonic_ns())
            for signal in signals:
                self._take(signal)
        self.counts.left_out = self._feed.left_out

    def _fetch(self) -> list[Signal]:
        try:
            return self._feed.fetch(self._clock.wall_ns())
        except FeedError:
            raise
        except Exception as error:  # a fault of ours: the other feeds must go on; its text might hold a secret
            trace = error.__traceback__
            while trace is not None and trace.tb_next is not None:
                trace = trace.tb_next
            place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else "?"
            raise FeedError(f"unexpected {type(error).__name__} in {place}; report it", lasting=True) from None

    def _take(self, signal: Signal) -> None:
        key = (signal.zone, signal.kind)
        published = self._published.get(key)
        self._freshness.saw(signal.published_ns, first=not self._seen)
        self._seen = True
        if published is not None and signal.published_ns < published.published_ns:
            self.counts.older += 1
        elif published is not None and signal.published_ns == published.published_ns and not longer(signal, published):
            self.counts.unchanged += 1
        else:
            self._outbox.send(record_message(signal, f"/feed/{self.name}"))
            self._published[key] = signal
            self.counts.sent += 1
