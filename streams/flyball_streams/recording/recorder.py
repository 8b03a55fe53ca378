"""Records topics of a broker, exactly as they are."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from flyball_contracts.config import KafkaConfig
from flyball_contracts.errors import Stopped, TransportError
from flyball_contracts.kafka import ClientLog, Place, bounds, consumer_settings, list_topics, open_consumer
from flyball_contracts.topics import STATE, TOPICS
from flyball_streams.received import received
from flyball_streams.recording.format import RecordedMessage, event_time_ns
from flyball_streams.recording.writer import RecordingWriter

_LOG = logging.getLogger(__name__)
EVERYTHING: tuple[str, ...] = tuple(name for name in TOPICS if name != STATE.name)
"""All topics except the workers' snapshots, which a replay produces again."""
_BATCH = 1_000
_RESPONSE_S = 10.0
_QUIET_S = 5.0
_REFRESH_S = 0.2


@dataclass(frozen=True)
class RecordReport:
    """The result of a recording.

    `undated` messages have no readable event time and got Kafka's. `lost` offsets were deleted by retention or
    compaction before they could be read. `absent` topics were not on the broker. `complete` is false if the broker did
    not deliver everything up to the stop; what it delivered is recorded.
    """

    path: Path
    messages: int
    topics: dict[str, int]
    from_ns: int
    to_ns: int
    undated: int
    lost: int
    absent: tuple[str, ...]
    complete: bool


def record(
    kafka: KafkaConfig,
    path: Path,
    *,
    stop: threading.Event,
    topics: Sequence[str] = EVERYTHING,
    from_start: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> RecordReport:
    """Record topics from their start (or from now) until `stop`, then up to the end offsets at that moment.

    It joins no group and commits nothing. `progress` is called with the number of messages and 0 (the end is unknown).
    Raises `TransportError` if the broker cannot be reached or has none of the topics, and `RecordingError` if the file
    cannot be written or no message came.
    """
    settings = consumer_settings(
        kafka.bootstrap, group="flyball-record", client_id="flyball-record", from_start=True, extra=kafka.client
    )
    link = _Link(kafka.bootstrap)
    consumer = open_consumer({**settings, "error_cb": link.failed}, _LOG, "record", log_errors=False)
    try:
        places = _places(consumer, kafka.bootstrap, topics, stop)
        link.met = True
        found = {topic for topic, _ in places}
        absent = tuple(topic for topic in topics if topic not in found)
        for topic in absent:
            _LOG.warning("topic %s is not on the broker and is not recorded", topic)
        with RecordingWriter(path, made_by="flyball record") as writer:
            held = bounds(consumer, places, _RESPONSE_S)
            tape = _Tape(writer, {place: low if from_start else high for place, (low, high) in held.items()})
            tape.lost = sum(low for low, _ in held.values()) if from_start else 0
            consumer.assign([TopicPartition(*place, offset) for place, offset in tape.next.items()])
            while not stop.is_set():
                before = writer.messages
                tape.take(consumer.consume(_BATCH, 0.2))
                if not before and writer.messages:
                    _LOG.info("the first messages are recorded")
                link.look(consumer)
                if progress is not None:
                    progress(writer.messages, 0)
            complete = not link.lost() and _drain(consumer, tape)
    except KafkaException as error:
        raise TransportError(
            f"recording from {kafka.bootstrap} failed: {error.args[0].str()}; record again once the broker answers"
        ) from error
    finally:
        consumer.close()
    topics_seen = dict(sorted(writer.topics.items()))
    return RecordReport(path, writer.messages, topics_seen, *writer.span, tape.undated, tape.lost, absent, complete)


class _Link:
    """Logs once that the broker is unreachable, and once that it is back; the client reconnects by itself.

    ``met`` is true once the broker has responded; the caller reports a broker that never did.
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._others = ClientLog(_LOG, "record", bootstrap)
        self.met = self._away = False

    def failed(self, error: KafkaError) -> None:
        """Handle an error of the client."""
        if not self.met:
            return
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # pyright: ignore[reportPrivateUsage]
            if not self._away:
                _LOG.warning(
                    "no broker answers at %s (%s); trying again until it does or the recording is ended, "
                    "and keeping what was recorded",
                    self._bootstrap,
                    error.str(),
                )
            self._away = True
        elif error.code() != KafkaError._TRANSPORT:  # pyright: ignore[reportPrivateUsage]
            self._others.on_error(error)

    def look(self, consumer: Consumer) -> None:
        """Check whether an unreachable broker is back."""
        if not self._away:
            return
        try:
            consumer.list_topics(timeout=_REFRESH_S)
        except KafkaException:
            return
        self._away = False
        _LOG.warning("the broker at %s answers again; the recording goes on where it stopped", self._bootstrap)

    def lost(self) -> bool:
        """Log a warning, with the remedy, if the broker is unreachable as the recording ends; return whether it is."""
        if self._away:
            _LOG.warning(
                "the broker at %s is still away: the recording ends with what came before; "
                "record again once it is back, to have the rest",
                self._bootstrap,
            )
        return self._away


class _Tape:
    """Next offset of each partition, and counters."""

    def __init__(self, writer: RecordingWriter, start: dict[Place, int]) -> None:
        self.writer = writer
        self.next = start
        self.undated = 0
        self.lost = 0

    def take(self, messages: Sequence[Message]) -> None:
        for message in messages:
            error = message.error()
            if error is not None:
                _LOG.warning("broker: %s", error.str())
                if error.fatal():
                    raise TransportError(f"recording cannot go on: {error.str()}")
                continue
            self._take_one(message)

    def _take_one(self, message: Message) -> None:
        topic, partition, offset, timestamp_ms, key, value, headers = received(message)
        self.lost += max(0, offset - self.next[topic, partition])
        self.next[topic, partition] = offset + 1
        time_ns, own = event_time_ns(topic, value, headers, timestamp_ms)
        self.undated += not own
        self.writer.append(RecordedMessage(topic, partition, offset, time_ns, timestamp_ms, key, value, headers))


def _places(consumer: Consumer, bootstrap: str, topics: Sequence[str], stop: threading.Event) -> list[Place]:
    try:
        known = list_topics(consumer, _RESPONSE_S, stop).topics
    except Stopped as ended:
        raise Stopped(f"no broker answers at {bootstrap}; start one or name another") from ended
    except KafkaException as error:
        raise TransportError(
            f"no broker answers at {bootstrap} ({error.args[0].str()}); start one or name another"
        ) from error
    places = [(topic, partition) for topic in topics if topic in known for partition in sorted(known[topic].partitions)]
    if not places:
        raise TransportError(f"the broker at {bootstrap} has none of {', '.join(topics)}; is Flyball running on it?")
    return places


def _drain(consumer: Consumer, tape: _Tape) -> bool:
    """Read up to the current ends and return whether they were reached; an unreachable broker ends it."""
    try:
        ends = {place: following for place, (_, following) in bounds(consumer, tape.next, _RESPONSE_S).items()}
    except KafkaException as error:
        reason = error.args[0].str()
        _LOG.warning("the broker does not say where its topics end (%s); what was read so far is kept", reason)
        return False
    give_up = time.monotonic() + _QUIET_S
    while (short := any(tape.next[place] < end for place, end in ends.items())) and time.monotonic() < give_up:
        if batch := consumer.consume(_BATCH, 0.2):
            tape.take(batch)
            give_up = time.monotonic() + _QUIET_S
    return not short
