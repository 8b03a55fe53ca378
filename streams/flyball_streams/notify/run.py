"""Reads the incidents and delivers them, at least once each."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from flyball_contracts.codec import decode_record
from flyball_contracts.config import KafkaConfig
from flyball_contracts.deadletter import dead_letter
from flyball_contracts.errors import DecodeError, TransportError
from flyball_contracts.kafka import (
    bounds,
    consumer_settings,
    list_topics,
    open_consumer,
    open_producer,
    producer_settings,
)
from flyball_contracts.records import Incident
from flyball_contracts.records.events import Severity
from flyball_contracts.records.incidents import SEVERITY
from flyball_contracts.topics import DEAD_LETTERS, INCIDENTS
from flyball_streams.notify.targets import Refused, Target, Unfit
from flyball_streams.received import Received, received

_LOG = logging.getLogger(__name__)
GROUP = "flyball-notify"
RESPONSE_S = 10.0
POLL_S = 0.2
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
FLUSH_S = 10.0
STAGE = "notifier"
_BATCH = 500
_Read: TypeAlias = tuple[Received, Incident, bool, bool]


@dataclass
class NotifierReport:
    """Exact counts of one run: alerts that were delivered, incidents that receivers refused for good, retries."""

    delivered: int = 0
    refused: int = 0
    retries: int = 0


def run_notifier(
    kafka: KafkaConfig,
    targets: Sequence[Target],
    *,
    stop: threading.Event,
    least: Severity = "warning",
    wall_ns: Callable[[], int] = time.time_ns,
    monotonic: Callable[[], float] = time.monotonic,
    once: bool = False,
) -> NotifierReport:
    """Deliver incidents until ``stop`` is set; with ``once``, until all are delivered.

    An incident that a receiver rejects for good is logged and sent to the dead letters. Offsets are committed in group
    ``flyball-notify`` once every target has accepted or rejected the incidents, so a restart delivers again what may
    have been lost. At the start the whole topic is read, as open incidents have to be repeated.

    Raises :class:`TransportError` if the broker does not respond at the start or has no such topic.
    """
    settings: dict[str, Any] = {
        **consumer_settings(kafka.bootstrap, group=GROUP, client_id=GROUP, extra=kafka.client),
        "enable.partition.eof": True,
    }
    consumer, report = open_consumer(settings, _LOG, "notify"), NotifierReport()
    try:
        reader = _Reader(consumer, kafka.bootstrap)
        posts = [_Post(target, monotonic, report) for target in targets]
        dead_letters = _DeadLetters(kafka, report)
        while not stop.is_set():
            for message, one, is_new, in_doubt in reader.read():
                if SEVERITY[one.severity] >= SEVERITY[least] or one.status != "open":
                    dead_letters.know(message, one)
                    for target in targets:
                        target.take(one, is_new=is_new, in_doubt=in_doubt)
            if not reader.at_end:
                continue
            report.delivered += sum(post.send(wall_ns()) for post in posts)
            for target in targets:
                dead_letters.send_dead_letter(target)
            if all(target.is_done for target in targets):
                dead_letters.forget()
                reader.commit()
                if once:
                    break
        return report
    except KafkaException as error:
        raise TransportError(
            f"{INCIDENTS.name} cannot be read at {kafka.bootstrap}: {error.args[0].str()}; start the broker, or set "
            "kafka.bootstrap (--bootstrap)"
        ) from error
    finally:
        consumer.close()


class _Post:
    """One target and its retry state: after a failure it waits, longer each time."""

    def __init__(self, target: Target, monotonic: Callable[[], float], report: NotifierReport) -> None:
        self._target = target
        self._report = report
        self._monotonic = monotonic
        self._wait_s = 0.0
        self._at_s = 0.0

    def send(self, now_ns: int) -> int:
        if self._monotonic() < self._at_s:
            return 0
        try:
            sent = self._target.send(now_ns)
        except TransportError as error:
            self._report.retries += 1
            self._wait_s = min(LONGEST_WAIT_S, max(FIRST_WAIT_S, 2.0 * self._wait_s))
            self._at_s = self._monotonic() + self._wait_s
            remedy = "; check its address and token" if isinstance(error, Refused) else ""
            _LOG.warning("%s%s; trying again in %.0f s", error, remedy, self._wait_s)
            return 0
        self._wait_s = 0.0
        return sent


class _DeadLetters:
    """Dead letters for incidents that receivers reject for good; ``know`` keeps the newest message of each incident."""

    def __init__(self, kafka: KafkaConfig, report: NotifierReport) -> None:
        self._kafka = kafka
        self._report = report
        self._known: dict[str, tuple[Received, bool]] = {}
        self._producer: Producer | None = None

    def know(self, message: Received, one: Incident) -> None:
        self._known[one.id] = message, one.status == "open"

    def forget(self) -> None:
        """Drop incidents that have ended, once they are delivered."""
        self._known = {name: known for name, known in self._known.items() if known[1]}

    def send_dead_letter(self, target: Target) -> None:
        """Log a rejection once and send it to the dead letters; also log if that fails."""
        refused, target.refused = target.refused, []
        for one, error in refused:
            self._report.refused += 1
            _LOG.error(
                "%s; it will not get incident %s (%s, %s), which goes to %s: see `flyball incidents show %s`",
                error, one.id, one.severity, one.summary, DEAD_LETTERS.name, one.id[:12],
            )  # fmt: skip
            self._send(self._known[one.id][0], error)
        if refused and self._producer is not None and self._producer.flush(FLUSH_S):
            _LOG.error("%s does not take the dead letters; is the topic there? See `flyball topics`", DEAD_LETTERS.name)

    def _send(self, message: Received, error: Unfit) -> None:
        if self._producer is None:
            settings = producer_settings(self._kafka.bootstrap, client_id=GROUP, extra=self._kafka.client)
            self._producer = open_producer(settings, _LOG, "notify")
        letter = dead_letter(
            topic=message.topic, partition=message.partition, offset=message.offset, key=message.key,
            value=message.value, headers=message.headers, stage=STAGE, error=error,
        )  # fmt: skip
        kept: list[tuple[str, str | bytes | None]] = list(letter.headers)
        self._producer.produce(letter.topic, letter.value, letter.key, headers=kept, on_delivery=_delivered)


def _delivered(error: KafkaError | None, _message: Message) -> None:
    if error is not None:
        _LOG.error("a dead letter was not taken: %s", error.str())


class _Reader:
    """Reads all partitions of the topic without a consumer group assignment: one notifier reads them all."""

    def __init__(self, consumer: Consumer, bootstrap: str) -> None:
        self._consumer = consumer
        known = list_topics(consumer, RESPONSE_S).topics.get(INCIDENTS.name)
        if known is None or known.error is not None or not known.partitions:
            raise TransportError(
                f"{bootstrap} has no topic {INCIDENTS.name}; create the topics with `flyball topics --create`"
            )
        places = [(INCIDENTS.name, partition) for partition in sorted(known.partitions)]
        held = bounds(consumer, places, RESPONSE_S)
        committed = consumer.committed([TopicPartition(*place) for place in places], RESPONSE_S)
        self._next = {place[1]: held[place].first for place in places}
        self._new_from = {tp.partition: max(0, tp.offset or 0) for tp in committed}
        """First offset of each partition of which it is not known that it was delivered before the start."""
        self._in_doubt_to = {
            tp.partition: held[INCIDENTS.name, tp.partition].following for tp in committed if (tp.offset or 0) >= 0
        }
        """What an earlier run may have delivered to some receivers, while another was away, ends here."""
        for partition, offset in self._new_from.items():
            if offset > (end := held[INCIDENTS.name, partition].following):
                self._begin_again(partition, f"it ends at {end}, and {offset} were delivered")
        self._ended = {place[1] for place in places if held[place].first >= held[place].following}
        self._committed: dict[int, int] = {}
        consumer.assign([TopicPartition(*place, held[place].first) for place in places])

    @property
    def at_end(self) -> bool:
        """Whether everything on the topic was read."""
        return len(self._ended) == len(self._next)

    def read(self) -> list[_Read]:
        """New incidents, each with its message, whether it is new to this group, and whether that is in doubt."""
        found: list[_Read] = []
        for message in self._consumer.consume(_BATCH, POLL_S):
            error, partition = message.error(), message.partition() or 0
            if error is None:
                self._take(received(message), found)
            elif error.code() == KafkaError._PARTITION_EOF:  # pyright: ignore[reportPrivateUsage]
                self._expect(partition, message.offset() or 0)
                self._ended.add(partition)
            else:
                _LOG.warning("%s: %s", INCIDENTS.name, error.str())
        return found

    def commit(self) -> None:
        """Commit everything that was read; it has been delivered."""
        if self._next != self._committed:
            offsets = [TopicPartition(INCIDENTS.name, p, offset) for p, offset in self._next.items()]
            try:
                self._consumer.commit(offsets=offsets, asynchronous=False)
            except KafkaException as error:  # after a restart, repeated incidents have the same fingerprint
                _LOG.warning("%s: not committed: %s; trying again", INCIDENTS.name, error.args[0].str())
                return
            self._committed = dict(self._next)

    def _take(self, message: Received, found: list[_Read]) -> None:
        partition, offset = message.partition, message.offset
        self._expect(partition, offset)
        self._next[partition] = offset + 1
        try:
            record = decode_record(INCIDENTS.name, message.value, message.headers)
        except DecodeError as error:
            _LOG.warning("%s/%d@%d is passed over: %s", INCIDENTS.name, partition, offset, error)
            return
        if isinstance(record, Incident):
            is_new = offset >= self._new_from.get(partition, 0)
            found.append((message, record, is_new, is_new and offset < self._in_doubt_to.get(partition, 0)))

    def _expect(self, partition: int, offset: int) -> None:
        """Compare an offset with the expected one; a lower one belongs to a new topic of the same name."""
        if offset < (expected := self._next[partition]):
            self._begin_again(partition, f"{offset} came where {expected} was expected")
            self._next[partition] = offset
            self._ended.discard(partition)  # until the whole topic is read, an incident that has ended may look open

    def _begin_again(self, partition: int, why: str) -> None:
        _LOG.warning(
            "%s/%d was made again or lost messages (%s): all incidents there count as new",
            INCIDENTS.name,
            partition,
            why,
        )
        self._new_from[partition] = self._in_doubt_to[partition] = 0
