"""Plays a recording back to a broker."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message

from flyball_contracts.cloudevents import header
from flyball_contracts.codec import decode_message, record_message
from flyball_contracts.config import KafkaConfig
from flyball_contracts.errors import DecodeError, TransportError
from flyball_contracts.frame import Frame, encode_frame
from flyball_contracts.kafka import list_topics, open_producer, producer_settings
from flyball_contracts.records import Record, Snapshot
from flyball_contracts.topics import RETENTION_MS, TELEMETRY
from flyball_streams.recording.format import NS_PER_MS, SOURCES, RecordedMessage
from flyball_streams.recording.reader import Recording

_LOG = logging.getLogger(__name__)
_RESPONSE_S = 10.0
_FLUSH_S = 60.0
_POLL_EVERY = 256
KEPT_MS = RETENTION_MS[TELEMETRY.retention]
WHEN_SENT = 0
"""A CreateTime that librdkafka replaces with the current time."""
T = TypeVar("T", Frame, Record)
_DURATIONS = frozenset({"period_ns", "read_ns"})  # every other field `*_ns` of a source record is an instant


def shift(message: RecordedMessage, by_ns: int) -> RecordedMessage:
    """Move every instant in a message by `by_ns`: headers, and each field `*_ns` that is not a duration.

    The sender sets CreateTime. Ids inside records are kept, and so are headers that are not of CloudEvents.
    `DecodeError` when the message cannot be read, `ValueError` when it is a snapshot.
    """
    record = decode_message(message.topic, message.value, message.headers)
    moved = message._replace(time_ns=message.time_ns + by_ns)
    if isinstance(record, Snapshot):
        raise ValueError("a snapshot belongs to its offsets; it cannot be moved in time")
    if isinstance(record, Frame):
        return moved._replace(value=encode_frame(_moved(record, by_ns)))
    made = record_message(_moved(record, by_ns), header(message.headers, "ce_source") or "/flyball/replay")
    ours = {name for name, _ in made.headers}
    others = [(name, value) for name, value in message.headers if name not in ours]
    return moved._replace(value=made.value, headers=[*made.headers, *others])


def _moved(record: T, by_ns: int) -> T:
    instants = {
        name: value + by_ns
        for name in record.__struct_fields__
        if name.endswith("_ns") and name not in _DURATIONS and (value := getattr(record, name)) is not None
    }
    return msgspec.structs.replace(record, **instants)


@dataclass(frozen=True)
class ReplayReport:
    """The result of a replay.

    `derived` messages were left out, as workers produce them again; `not_rebased` ones could not be decoded and were
    sent with their original times. `finished` is false when `stop` came first.
    """

    path: Path
    messages: int
    topics: dict[str, int]
    derived: int
    not_rebased: int
    from_ns: int
    to_ns: int
    finished: bool


def replay(
    path: Path,
    kafka: KafkaConfig,
    *,
    stop: threading.Event,
    speed: float | None = None,
    rebase_to_ns: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ReplayReport:
    """Produce the source topics of a recording, in event order, until its end or `stop`.

    `speed` is in seconds of event time per second (`None`: as fast as the broker takes it); the wall clock only paces.
    What precedes the first telemetry is sent at once: specifications and curves may be weeks older.
    Partitions follow from the keys, so the broker may have another number of them. `rebase_to_ns` shifts all times so
    that the first event is at that time (see `shift`); CreateTime is then the time of sending. Without `rebase_to_ns`
    it is the original one: a broker that deletes by time then deletes the replay of an old recording.
    `progress` is called with the number of messages done and of all.

    `RecordingError` when the file cannot be read, `TransportError` when the broker cannot be reached or refuses a
    message, `ValueError` for a speed that is not positive.
    """
    if speed is not None and not speed > 0:
        raise ValueError(f"speed is {speed}; it must be above 0, or None for as fast as possible")
    recording = Recording.open(path)
    first_ns, last_ns = recording.from_ns, recording.to_ns
    by_ns = 0 if rebase_to_ns is None else rebase_to_ns - first_ns
    sender = _Sender(kafka, stop)
    if rebase_to_ns is None and time.time_ns() - first_ns > KEPT_MS * NS_PER_MS:
        _LOG.warning(
            "%s begins longer ago than the %g h for which topics keep telemetry by default: the broker may delete it "
            "before it is read; --rebase plays it as of now",
            path,
            KEPT_MS / 3_600_000,
        )
    derived = not_rebased = done = 0
    began, paced_ns = time.monotonic(), first_ns
    paced = speed is not None and TELEMETRY.name not in recording.topics()
    for batch in recording.messages():
        for message in batch:
            if message.topic not in SOURCES:
                derived += 1
                continue
            if speed is not None and message.topic == TELEMETRY.name and not paced:
                began, paced_ns, paced = time.monotonic(), message.time_ns, True
            if speed is not None and paced:
                sender.wait(began + (message.time_ns - paced_ns) / 1e9 / speed)
            if stop.is_set():
                break
            moved, readable = _shifted(message, by_ns)
            not_rebased += not readable
            # A recording may be longer than a topic's retention, which the broker measures from CreateTime.
            sender.produce(moved if rebase_to_ns is None else moved._replace(timestamp_ms=WHEN_SENT))
        if stop.is_set():
            break
        done += len(batch)
        if progress is not None:
            progress(done, recording.rows)
    sender.finish()
    span = (first_ns + by_ns, last_ns + by_ns)
    topics = dict(sorted(sender.topics.items()))
    return ReplayReport(path, sender.topics.total(), topics, derived, not_rebased, *span, done == recording.rows)


def _shifted(message: RecordedMessage, by_ns: int) -> tuple[RecordedMessage, bool]:
    """Return the shifted message; an undecodable one keeps its content."""
    if by_ns == 0:
        return message, True
    try:
        return shift(message, by_ns), True
    except DecodeError:
        return message._replace(time_ns=message.time_ns + by_ns), False


class _Sender:
    """A producer that counts failed deliveries."""

    def __init__(self, kafka: KafkaConfig, stop: threading.Event) -> None:
        self.topics: Counter[str] = Counter()
        self._bootstrap = kafka.bootstrap
        self._stop = stop
        self._refused: Counter[str] = Counter()
        settings = producer_settings(kafka.bootstrap, client_id="flyball-replay", extra=kafka.client)
        self._producer = open_producer(settings, _LOG, "replay")
        try:
            list_topics(self._producer, _RESPONSE_S, stop)
        except KafkaException as error:
            raise TransportError(
                f"no broker answers at {kafka.bootstrap} ({error.args[0].str()}); start one"
            ) from error

    def wait(self, until: float) -> None:
        """Wait for the wall clock, serving the producer meanwhile; return early on stop."""
        while not self._stop.is_set() and (left := until - time.monotonic()) > 0:
            self._producer.poll(0)
            self._stop.wait(min(left, 0.5))

    def produce(self, message: RecordedMessage) -> None:
        """Queue one message, waiting for room in the queue."""
        while True:
            try:
                self._producer.produce(
                    message.topic,
                    message.value,
                    message.key,
                    headers=list(message.headers),
                    on_delivery=self._delivered,
                    timestamp=max(WHEN_SENT, message.timestamp_ms),
                )
                break
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                raise TransportError(
                    f"{message.topic}: the message cannot be produced: {error.args[0].str()}"
                ) from error
        self.topics[message.topic] += 1
        if self.topics.total() % _POLL_EVERY == 0:
            self._producer.poll(0)

    def finish(self) -> None:
        """Wait until everything is delivered; `TransportError` if something was not."""
        left = self._producer.flush(_FLUSH_S)
        if left or self._refused:
            why = "; ".join(f"{count} x {reason}" for reason, count in self._refused.most_common(3))
            lost = left + self._refused.total()
            raise TransportError(
                f"{lost} of {self.topics.total()} messages did not reach {self._bootstrap}: {why or 'no answer'}"
            )

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._refused[str(error)] += 1
