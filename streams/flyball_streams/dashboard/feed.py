"""Reads the topics into a :class:`FleetView` with a plain consumer that commits nothing."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from flyball_contracts.cloudevents import header
from flyball_contracts.codec import decode_message
from flyball_contracts.config import KafkaConfig
from flyball_contracts.deadletter import PREFIX
from flyball_contracts.errors import DecodeError
from flyball_contracts.kafka import Bounds, Place, bounds, consumer_settings, open_consumer
from flyball_contracts.topics import (
    DEAD_LETTERS,
    DECISIONS,
    DEMAND,
    EVENTS,
    INCIDENTS,
    INSIGHTS,
    INVENTORY,
    OUTCOMES,
    PROPOSALS,
    SIGNALS,
    TELEMETRY,
    WORKLOADS,
)
from flyball_streams.dashboard.state.fleet import FleetView

_LOG = logging.getLogger(__name__)
ALL = -1
# Messages to read back per partition when the page starts; the topics that describe the world are read whole.
TAIL: dict[str, int] = {
    INVENTORY.name: ALL,
    WORKLOADS.name: ALL,
    SIGNALS.name: ALL,
    TELEMETRY.name: 500,
    EVENTS.name: 500,
    DEMAND.name: 3_000,
    INCIDENTS.name: 20_000,  # a cordon is repeated once a day, an open incident every five minutes
    INSIGHTS.name: 5_000,
    PROPOSALS.name: 2_000,
    DECISIONS.name: 1_000,
    OUTCOMES.name: 3_000,
    DEAD_LETTERS.name: 50,
}
_TOMBSTONES = (INVENTORY.name, WORKLOADS.name, SIGNALS.name)
_BATCH = 500
_POLL_S = 0.2
_REFRESH_S, _RETRY_S, _RESPONSE_S = 5.0, 1.0, 2.0


@dataclass(frozen=True, slots=True)
class Link:
    """State of the connection; ``lag`` counts messages that are not read yet."""

    bootstrap: str
    connected: bool
    tried: bool
    error: str
    partitions: int
    lag: int


class Feed:
    """Keeps a view up to date; hold :attr:`lock` to read it."""

    def __init__(self, view: FleetView, kafka: KafkaConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self.view = view
        self.lock = threading.Lock()
        self._kafka = kafka
        self._clock = clock
        self._assigned: set[tuple[str, int]] = set()
        self._connected = False
        self._tried = False
        self._error = ""
        self._lag = 0

    @property
    def link(self) -> Link:
        """Snapshot of the connection's state."""
        return Link(self._kafka.bootstrap, self._connected, self._tried, self._error, len(self._assigned), self._lag)

    def run(self, stop: threading.Event) -> None:
        """Read until ``stop`` is set; reconnect when the broker is lost."""
        settings = consumer_settings(
            self._kafka.bootstrap, group="flyball-dashboard", client_id="flyball-dashboard", extra=self._kafka.client
        )
        # The client's log would repeat, each second of an outage, what the banner shows once.
        consumer = open_consumer(
            {**settings, "error_cb": self._failed, "log_level": 0}, _LOG, "dashboard", log_errors=False
        )
        prefs = self._clock()
        try:
            while not stop.is_set():
                if self._clock() >= prefs:
                    self._prefs(consumer)
                    prefs = self._clock() + (_REFRESH_S if self._connected and self._assigned else _RETRY_S)
                if self._assigned:
                    self.take(consumer.consume(_BATCH, _POLL_S))
                else:
                    consumer.poll(0)
                    stop.wait(_POLL_S)
        finally:
            consumer.close()

    def take(self, messages: list[Message]) -> None:
        """Apply a batch."""
        if not messages:
            return
        with self.lock:
            for message in messages:
                error = message.error()
                if error is None:
                    self._apply(message)
                elif error.code() != KafkaError._PARTITION_EOF:  # pyright: ignore[reportPrivateUsage]
                    self._error = error.str()

    def _apply(self, message: Message) -> None:
        topic, value, key = message.topic() or "", message.value(), message.key()
        pairs = cast(list[tuple[str, bytes | None]], message.headers() or [])  # a consumer always gives pairs
        if topic == DEAD_LETTERS.name:
            self.view.count_dead_letters(
                1, header(pairs, f"{PREFIX}exception.message") or "dead letter without a reason"
            )
            return
        if value is None and topic in _TOMBSTONES:
            name = key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key or "")
            self.view.forget(topic, name)
            return
        try:
            data = value.encode() if isinstance(value, str) else value
            self.view.apply(decode_message(topic, data, pairs))
        except DecodeError as error:
            self.view.refuse(str(error))

    def _prefs(self, consumer: Consumer) -> None:
        """Find partitions, start reading new ones, and check whether the broker responds."""
        try:
            known = consumer.list_topics(timeout=_RESPONSE_S).topics
            found = {(t, p) for t in TAIL if t in known for p in known[t].partitions}
            if new := sorted(found - self._assigned):
                held = bounds(consumer, new, _RESPONSE_S)
                consumer.incremental_assign([self._start(place, held[place]) for place in new])
                self._assigned |= found
            self._lag = self._behind(consumer)
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            self._lost(reason.str())
            return
        if not self._connected:
            _LOG.info("dashboard reads %d partitions at %s", len(self._assigned), self._kafka.bootstrap)
        self._connected, self._tried, self._error = True, True, ""

    def _start(self, place: Place, held: Bounds) -> TopicPartition:
        (topic, partition), (low, high) = place, held
        start = low if TAIL[topic] == ALL else max(low, high - TAIL[topic])
        if topic == DEAD_LETTERS.name:
            with self.lock:
                self.view.count_dead_letters(start - low)
        return TopicPartition(topic, partition, start)

    def _behind(self, consumer: Consumer) -> int:
        lag = 0
        for place in consumer.position([TopicPartition(topic, partition) for topic, partition in self._assigned]):
            _, high = consumer.get_watermark_offsets(place, cached=True)
            lag += max(0, high - place.offset) if place.offset >= 0 and high >= 0 else 0
        return lag

    def _failed(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # pyright: ignore[reportPrivateUsage]
            self._lost(error.str())

    def _lost(self, reason: str) -> None:
        if self._connected or not self._tried:
            _LOG.warning("no broker answers at %s (%s); trying again", self._kafka.bootstrap, reason)
        self._error, self._tried, self._connected = reason, True, False
