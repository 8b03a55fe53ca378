"""The loop of the feeds: pace, back-off, staleness, what is sent, and what is never logged."""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.brokers.embedded import EmbeddedBroker
from tests.collectors.feeds.feed_server import NOW_NS, Answer, Provider, S, as_json, maps, moer, provider, uk

from flyball_collectors.agent.ticker import Clock
from flyball_collectors.feeds import FeedError, FeedReport, Source, fetch_once, open_feeds, run_feeds
from flyball_collectors.feeds.parameters import (
    ElectricityMapsParameters,
    FileFeedParameters,
    UkCarbonParameters,
    WattTimeParameters,
)
from flyball_contracts.codec import Message, decode_message
from flyball_contracts.config import AnyFeed, Config, KafkaConfig
from flyball_contracts.errors import ConfigError
from flyball_contracts.kafka import consumer_settings
from flyball_contracts.records import Signal
from flyball_contracts.topics import SIGNALS, TOPICS

CURVE = Signal(
    zone="DE", kind="carbon_intensity", published_ns=NOW_NS, start_ns=NOW_NS, step_s=3600.0, p50=(300.0, 200.0)
)


@dataclass
class Time:
    """A clock that only waiting moves."""

    until_s: float
    now_s: float = 0.0

    def clock(self) -> Clock:
        return Clock(lambda: NOW_NS + round(self.now_s * S), lambda: round(self.now_s * S))

    def wait(self, seconds: float) -> bool:
        assert 0 <= seconds <= 1.0  # a stop is heeded soon
        self.now_s += max(seconds, 0.001)
        return self.now_s >= self.until_s


@dataclass
class Scripted:
    """A feed that obeys orders, the last thing for ever."""

    script: list[Signal | Exception]
    name: str = "scripted/DE"
    left_out: int = 0
    requested_ns: list[int] = field(default_factory=list[int])

    def fetch(self, now_ns: int) -> list[Signal]:
        self.requested_ns.append(now_ns)
        reported = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(reported, Exception):
            raise reported
        return [reported]

    @property
    def requested_s(self) -> list[float]:
        return [round((t - NOW_NS) / S, 1) for t in self.requested_ns]


class Box:
    """An outbox without a broker; it gives up the first ``refuses`` messages."""

    delivered = 0
    dropped = 0
    refuses = 0

    def __init__(self) -> None:
        self.sent: list[Message] = []

    def send(self, message: Message) -> None:
        self.sent.append(message)
        if self.dropped < self.refuses:
            self.dropped += 1

    def poll(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> Box:
    found = Box()
    monkeypatch.setattr("flyball_collectors.feeds.run.Outbox", lambda *_, **__: found)  # pyright: ignore
    return found


def run(feed: Scripted, until_s: float, stale_after_s: float | None = None, jitter: float = 1.0) -> FeedReport:
    time = Time(until_s)
    return run_feeds(
        Config(),
        stop=threading.Event(),
        sources=[Source(feed, 300.0, stale_after_s)],
        clock=time.clock(),
        wait=time.wait,
        random=lambda: jitter,
    )


def newer(seconds: float, *p50: float) -> Signal:
    return msgspec.structs.replace(CURVE, published_ns=NOW_NS + round(seconds * S), p50=p50 or CURVE.p50)


def test_each_period_and_only_what_is_new_is_sent(box: Box) -> None:
    longer = msgspec.structs.replace(CURVE, p50=(300.0, 200.0, 100.0))
    feed = Scripted(
        [
            newer(10),
            newer(10),
            newer(20),
            newer(10),
            newer(20),
            msgspec.structs.replace(longer, published_ns=NOW_NS + 20 * S),
        ]
    )
    report = run(feed, 1799.0)
    assert feed.requested_s == [0.0, 300.0, 600.0, 900.0, 1200.0, 1500.0]
    counts = report.feeds["scripted/DE"]
    assert (counts.polls, counts.sent, counts.unchanged, counts.older, counts.failed) == (6, 3, 2, 1, 0)
    sent = [decode_message(m.topic, m.value, m.headers) for m in box.sent]
    assert [s.published_ns for s in sent if isinstance(s, Signal)] == [NOW_NS + t * S for t in (10, 20, 20)]
    assert dict(box.sent[0].headers)["ce_source"] == b"/feed/scripted/DE"


def test_back_off_doubles_to_a_cap_and_ends_with_an_answer(box: Box) -> None:
    feed = Scripted([*([FeedError("there: away")] * 9), CURVE])
    run(feed, 3400.0)
    waits = [later - earlier for earlier, later in zip(feed.requested_s, feed.requested_s[1:], strict=False)]
    assert waits == pytest.approx([10, 20, 40, 80, 160, 320, 640, 900, 900, 300], abs=0.5)
    assert len(box.sent) == 1


def test_back_off_has_full_jitter(box: Box) -> None:
    feed = Scripted([FeedError("there: away")])
    run(feed, 74.0, jitter=0.5)
    assert feed.requested_s == pytest.approx([0, 5, 15, 35], abs=0.5)
    del box


def test_retry_after_is_honoured_and_lasting_errors_wait_a_period(box: Box) -> None:
    feed = Scripted([FeedError("busy", retry_after_s=500.0), FeedError("wrong token", lasting=True), CURVE])
    run(feed, 1000.0, jitter=0.0)
    assert feed.requested_s == pytest.approx([0, 500, 800], abs=0.5)
    del box


def test_staleness_is_reported_once_and_its_end_too(box: Box, caplog: pytest.LogCaptureFixture) -> None:
    feed = Scripted([*[CURVE] * 10, newer(3000)])
    report = run(feed, 4000.0, stale_after_s=1000.0)
    assert report.feeds["scripted/DE"].stale == 1
    reported = [r.getMessage() for r in caplog.records if "stale" in r.getMessage() or "fresh" in r.getMessage()]
    assert reported == [
        "feed scripted/DE is stale: nothing newer for 0.3 h; look at what its provider says",
        "feed scripted/DE is fresh again",
    ]
    assert len(box.sent) == 2


def test_an_old_forecast_is_stale_at_once_and_keeps_its_time_of_issue(box: Box) -> None:
    report = run(Scripted([newer(-7200)]), 10.0, stale_after_s=3600.0)
    assert report.feeds["scripted/DE"].stale == 1
    record = decode_message(box.sent[0].topic, box.sent[0].value, box.sent[0].headers)
    assert isinstance(record, Signal)
    assert record.published_ns == NOW_NS - 7200 * S


def test_a_feed_that_never_answers_becomes_stale(box: Box) -> None:
    report = run(Scripted([FeedError("away")]), 5000.0, stale_after_s=3600.0)
    assert report.feeds["scripted/DE"].stale == 1
    assert not box.sent


def test_what_the_broker_did_not_take_is_sent_again(box: Box) -> None:
    box.refuses = 1
    report = run(Scripted([CURVE]), 900.0)
    assert report.feeds["scripted/DE"].sent == len(box.sent) == 2


def test_a_fault_of_ours_stops_nothing_and_reports_no_secret(box: Box, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    feed = Scripted([ValueError("Invalid header value tok-8d1f2"), CURVE])
    report = run(feed, 400.0)
    assert report.feeds["scripted/DE"].failed == 1
    assert len(box.sent) == 1
    assert "unexpected ValueError in " in caplog.text
    assert "tok-8d1f2" not in caplog.text


def test_a_streak_of_failures_is_one_warning(box: Box, caplog: pytest.LogCaptureFixture) -> None:
    run(Scripted([*[FeedError("http://x/y: status 500")] * 5, CURVE]), 1000.0)
    reported = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert reported == [
        "feed scripted/DE: http://x/y: status 500 (next attempt in 10 s)",
        "feed scripted/DE answers again after 5 failures",
    ]
    del box


ENVIRON = {"ELECTRICITYMAPS_TOKEN": "tok-8d1f2", "WATTTIME_USER": "ada", "WATTTIME_PASSWORD": "pass-77c1"}


@pytest.mark.parametrize(
    ("feeds", "reported"),
    [
        ((), "feeds: none is configured; `flyball config example` shows them all"),
        (
            (ElectricityMapsParameters(zone="DE", token_env="NO_SUCH"),),
            r"feeds\[0\]: the environment variable NO_SUCH is not set",
        ),
        (
            (ElectricityMapsParameters(zone="DE", token_env="TORN"),),
            "variable TORN holds characters that no HTTP header may have$",
        ),
        (
            (ElectricityMapsParameters(zone="DE"), WattTimeParameters(zone="DE")),
            r"feeds\[1\]: zone 'DE' has its carbon_intensity from feeds\[0\] already",
        ),
    ],
)
def test_a_configuration_that_cannot_work(feeds: tuple[AnyFeed, ...], reported: str) -> None:
    with pytest.raises(ConfigError, match=reported):
        open_feeds(feeds, ENVIRON | {"TORN": "a\nb"})


def test_carbon_and_price_of_one_zone_are_two_feeds() -> None:
    price = FileFeedParameters(zone="DE", path="p.csv", kind="electricity_price")
    carbon = FileFeedParameters(zone="DE", path="c.csv")
    assert len(open_feeds((price, carbon), {})) == 2


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    with provider() as found:
        found.respond(as_json({"token": "bearer-3e9a"}), path="/login")
        found.respond(as_json(maps([301, None, 250, 240])), path="/v3/carbon-intensity/forecast")
        found.respond(Answer(b"", 429, {"Retry-After": "30"}), as_json(moer([1000.0])), path="/v3/forecast")
        found.respond(Answer(b"", 500), as_json(uk([200.0, 150.0])))
        yield found


def three(url: str, bootstrap: str = "127.0.0.1:1") -> Config:
    feeds = (
        UkCarbonParameters(base_url=url),
        ElectricityMapsParameters(zone="DE", base_url=url),
        WattTimeParameters(zone="us-west", region="CAISO_NORTH", base_url=url),
    )
    return Config(feeds=feeds, kafka=KafkaConfig(bootstrap=bootstrap))


def read(bootstrap: str, partitions: int, enough: int) -> Sequence[tuple[bytes, Signal]]:
    consumer = Consumer(consumer_settings(bootstrap, group="test", client_id="test"))
    found: list[tuple[bytes, Signal]] = []
    try:
        consumer.assign([TopicPartition(SIGNALS.name, p, 0) for p in range(partitions)])
        for _ in range(100):
            for message in consumer.consume(100, timeout=0.2):
                assert message.error() is None
                record = decode_message(SIGNALS.name, message.value(), message.headers())  # type: ignore[arg-type]
                assert isinstance(record, Signal)
                found.append((message.key() or b"", record))
            if len(found) >= enough:
                return found
    finally:
        consumer.close()
    raise AssertionError(f"only {len(found)} signals")


def test_from_providers_to_a_broker_without_any_of_the_secrets(
    there: Provider, embedded_broker: Callable[..., EmbeddedBroker], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    bootstrap = embedded_broker(dict.fromkeys(TOPICS, 2)).bootstrap
    time = Time(100.0)
    report = run_feeds(
        three(there.url, bootstrap),
        stop=threading.Event(),
        clock=time.clock(),
        wait=time.wait,
        random=lambda: 0.5,
    )
    assert (report.delivered, report.dropped) == (3, 0)
    assert report.feeds["electricity_maps/DE"].left_out == 2
    assert [report.feeds[name].failed for name in ("uk_carbon/GB", "watttime/us-west")] == [1, 1]
    found = {key.decode(): record for key, record in read(bootstrap, 2, 3)}
    assert set(found) == {"GB", "DE", "us-west"}
    assert found["DE"].p50 == (250.0, 240.0)
    assert found["us-west"].p50 == pytest.approx((453.59237,))
    reported = caplog.text + repr(report)
    assert "status 429" in reported
    assert not any(secret in reported for secret in ("tok-8d1f2", "pass-77c1", "bearer-3e9a", "YWRhOnBhc3MtNzdjMQ"))


def test_once(there: Provider) -> None:
    answers = {a.name: a for a in fetch_once(three(there.url), NOW_NS)}
    assert answers["electricity_maps/DE"].signals[0].p50 == (250.0, 240.0)
    assert "status 500" in answers["uk_carbon/GB"].error


def test_a_stop_ends_it(box: Box) -> None:
    stop = threading.Event()
    stop.set()
    feed = Scripted([CURVE])
    report = run_feeds(Config(), stop=stop, sources=[Source(feed, 300.0, None)])
    assert report.feeds["scripted/DE"].polls == 0
    assert not box.sent
