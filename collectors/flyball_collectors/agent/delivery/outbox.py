"""Delivery to Kafka: an idempotent producer that never blocks the tick loop and counts lost messages."""

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message as Delivered, Producer

from flyball_collectors.agent.delivery.replay import Replay
from flyball_collectors.spool import Spool, SpoolStats, pack, unpack
from flyball_contracts.codec import Message
from flyball_contracts.config import KafkaConfig
from flyball_contracts.errors import ConfigError, DecodeError
from flyball_contracts.kafka import REFUSED, open_producer, producer_settings
from flyball_contracts.topics import TOPICS

_LOG = logging.getLogger(__name__)
_WARN_EVERY_S = 30.0
_REOPEN_EVERY_S = 1.0
_DELIVERY_S = 120.0
_DELIVERY_WITH_SPOOL_S = 20.0  # a kill loses messages in memory, not those on disk
_PART_S = 1.0
_SETTLE_POLLS, _SETTLE_POLL_S = 25, 0.01
_REPLAY_SHARE = 4  # one part in this many of the queue is for replays
_COMPACTED = {topic.name for topic in TOPICS.values() if topic.retention == "compacted"}


class Connection(NamedTuple):
    """A connection to a broker, opened and not used yet."""

    bootstrap: str
    settings: dict[str, Any]
    producer: Producer


class Outbox:
    """Sends messages in the background.

    Memory is bounded by ``queue_bytes``. Messages that cannot be sent go to ``spool``: all waiting ones as soon as no
    broker responds, all new ones while none does, and those that do not fit the queue. Once a broker answers, new
    messages go out at once, and the spooled ones beside them in their order, some at each :meth:`poll`, at least once.
    So a control loop gets current data first: the engine refuses frames older than ``lateness_ticks`` as late; replayed
    ones serve recorders, sinks and history, which order them and drop duplicates by ``(epoch, seq)``. An old record
    that is replayed to a compacted topic is followed by the newest one, which therefore stays.

    Without a spool, messages that cannot be sent are dropped: the oldest messages when the delivery timeout ends, new
    ones when the queue is full. A kill loses the messages in memory that the broker has not confirmed.

    All counts are of messages: ``sent + carried = delivered + dropped + waiting + spooled``, except that ``dropped``
    also has ``torn`` records of the run before, and that spooled records on their way are in ``waiting``, too. Not
    thread-safe: one loop owns it.

    Raises :class:`ConfigError` for client settings that librdkafka refuses.
    """

    def __init__(
        self,
        kafka: KafkaConfig,
        *,
        client_id: str,
        queue_bytes: int,
        spool: Spool | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.sent = 0
        self.carried = 0 if spool is None else len(spool)
        self._client_id = client_id
        self._queue_bytes = queue_bytes
        self._spool = spool
        self._replay = None if spool is None else Replay(spool, queue_bytes // _REPLAY_SHARE)
        self._monotonic = monotonic
        self._wall_ns = wall_ns
        self._delivered = 0
        self._given_up = 0
        self._newest: dict[tuple[str, bytes], Message] = {}
        self._warned_s: float | None = None
        self._unreachable = False
        self._away = False  # only with a spool: no broker answers, and nothing waits in memory but a probe
        self._broken = False
        self._bootstrap, self._settings, self._producer = self.prepare(kafka)
        self._opened_s = monotonic()

    @property
    def waiting(self) -> int:
        """Messages in memory that are neither delivered nor dropped; replayed ones are also in the spool."""
        return len(self._producer)

    @property
    def spooled(self) -> int:
        """Messages that wait on disk."""
        return 0 if self._spool is None else len(self._spool)

    @property
    def spool_stats(self) -> SpoolStats | None:
        """Counts of the spool; ``None`` without one."""
        return None if self._spool is None else self._spool.stats

    @property
    def delivered(self) -> int:
        """Messages that a broker confirmed."""
        return self._delivered + (0 if self._spool is None else self._spool.replayed)

    @property
    def dropped(self) -> int:
        """Lost messages: dropped here, or lost by the spool."""
        return self._given_up + (0 if self._spool is None else self._spool.lost)

    def prepare(self, kafka: KafkaConfig) -> Connection:
        """Open another connection, to switch to; raises :class:`ConfigError` for settings that librdkafka refuses."""
        settings: dict[str, Any] = {
            **producer_settings(
                kafka.bootstrap,
                client_id=self._client_id,
                queue_bytes=self._queue_bytes,
                delivery_timeout_s=_DELIVERY_S if self._spool is None else _DELIVERY_WITH_SPOOL_S,
                linger_ms=0,  # a tick is one message, and decisions wait for it
                extra=kafka.client,
            ),
            "error_cb": self._on_error,
        }
        return Connection(kafka.bootstrap, settings, _producer(settings))

    def switch_to(self, way: Connection) -> None:
        """Send over another connection from now on, first the newest records of compacted topics.

        Messages in the old connection have a second to arrive, then they are spooled, or dropped and counted.
        """
        self._flush(_PART_S)
        self._producer.purge()
        self._flush(_PART_S)
        self._replace(way)
        self._away = self._unreachable = False
        self._warned_s = None
        for message in list(self._newest.values()):
            self.send(message)

    def send(self, message: Message) -> None:
        """Queue or spool one message; one that fits neither is dropped and counted."""
        self.sent += 1
        if message.topic in _COMPACTED:
            self._newest[message.topic, message.key] = message
        if self._broken:
            if self._monotonic() - self._opened_s < _REOPEN_EVERY_S:
                self._put_by(message, "the producer met a fatal error and will be replaced")
                return
            self._restart()
        if self._away:
            self._put_by(message, "no broker answers")
            # With nothing on disk that could be tried, only a message in memory shows when a broker is back.
            self._away = self.spooled > 0
            return
        try:
            try:
                self._produce(message, partial(self._on_delivery, message if self._spool is not None else None))
            except BufferError:
                self.poll()  # a message holds its place until its delivery is noted
                self._produce(message, partial(self._on_delivery, message if self._spool is not None else None))
        except BufferError:
            self._put_by(message, f"the queue is full with {self.waiting} messages")
        except KafkaException as error:
            self._note_fatal(error)
            self._fail(message, error.args[0])

    def poll(self) -> None:
        """Process delivery reports, and replay some of the spool; does not wait."""
        self._serve()
        if self._replay is not None and not self._broken:
            self._send_spooled(self._replay)

    def settle(self) -> None:
        """Wait briefly until queued messages arrive, unless no broker responds: later messages depend on them."""
        for _ in range(_SETTLE_POLLS):
            if not self.waiting or self._away or self._unreachable or self._broken:
                return
            self._serve(_SETTLE_POLL_S)

    def close(self, timeout_s: float = 5.0) -> None:
        """Wait up to a limit for queued messages; then spool the rest, or drop and count it."""
        self._flush(0.0 if self._away else timeout_s)
        if self.waiting:
            if self._spool is None:
                _LOG.warning("%d messages could not be sent to %s and are given up", self.waiting, self._bootstrap)
            self._producer.purge()
            self._flush(timeout_s)
        if self._spool is not None:
            self._spool.close()
            if self.spooled:
                _LOG.warning("%d messages wait in the spool for the next start", self.spooled)

    def _serve(self, wait_s: float = 0.0) -> None:
        was_away = self._away
        try:
            self._producer.poll(wait_s)
            if self._away and not was_away:  # a kill would lose messages in memory
                self._producer.purge(blocking=False)
                self._producer.poll(0)
        except KafkaException as error:
            self._note_fatal(error)

    def _send_spooled(self, replay: Replay) -> None:
        for record in replay.probe() if self._away else replay.due():
            try:
                message = unpack(record.payload)
            except DecodeError as error:
                replay.sent(record)
                self._refuse_spooled(replay, record.id, str(error))
                continue
            try:
                self._produce(message, partial(self._on_replayed, replay, record.id))
                replay.sent(record)
                newest = self._newest.get((message.topic, message.key))
                if newest is not None and newest != message:
                    self._produce(newest, None)
            except BufferError:
                return
            except KafkaException as error:
                self._note_fatal(error)
                if error.args[0].code() not in REFUSED:
                    return
                replay.sent(record)
                self._refuse_spooled(replay, record.id, error.args[0].str())

    def _produce(self, message: Message, on_delivery: Callable[[KafkaError | None, Delivered], None] | None) -> None:
        options: dict[str, Any] = {} if message.partition is None else {"partition": message.partition}
        self._producer.produce(
            message.topic,
            message.value,
            message.key,
            headers=list(message.headers),
            on_delivery=on_delivery,
            **options,
        )

    def _restart(self) -> None:
        """Replace a producer after a fatal error; its messages are spooled, or dropped and counted."""
        self._producer.purge()
        self._flush(_PART_S)
        self._replace(Connection(self._bootstrap, self._settings, _producer(self._settings)))

    def _replace(self, way: Connection) -> None:
        """Switch to another producer; messages that the old one has not reported yet are never reported."""
        spooled = self._replay.restart() if self._replay is not None else 0
        if lost := max(self.waiting - spooled, 0):
            self._given_up += lost
            self._warn("%d messages were given up (%d so far): their producer was replaced", lost, self._given_up)
        self._bootstrap, self._settings, self._producer = way
        self._opened_s = self._monotonic()
        self._broken = False

    def _flush(self, timeout_s: float) -> None:
        # A fatal error waiting in the queue would come out of flush amid the delivery callbacks, and break them
        # (confluent-kafka 2.16: SystemError); poll lets it out alone.
        self._serve()
        try:
            self._producer.flush(timeout_s)
        except KafkaException as error:
            self._note_fatal(error)

    def _note_fatal(self, error: KafkaException) -> None:
        """Handle a fatal error, which ends an idempotent producer and may come from any call."""
        reason: KafkaError = error.args[0]
        if reason.fatal() or reason.code() == KafkaError._FATAL:
            self._broken = True
            self._warn("Kafka at %s: %s; starting a new producer", self._bootstrap, reason.str())

    def _on_delivery(self, message: Message | None, error: KafkaError | None, delivered: Delivered) -> None:
        if error is None:
            self._delivered += 1
            self._note_answer()
        else:
            # The client's own copy has lost its headers, so a message that may be spooled is kept here, too.
            self._fail(message or Message(str(delivered.topic()), b"", b"", []), error)

    def _on_replayed(self, replay: Replay, id: int, error: KafkaError | None, delivered: Delivered) -> None:
        if error is None:
            if replay.arrived(id):
                self._note_answer()
        elif error.code() in REFUSED:
            self._refuse_spooled(replay, id, error.str())
        else:
            replay.failed(id)

    def _refuse_spooled(self, replay: Replay, id: int, reason: str) -> None:
        if not replay.arrived(id):
            return
        self._delivered -= 1  # the spool counts it as replayed
        self._give_up("a spooled message", reason)

    def _note_answer(self) -> None:
        if self._unreachable:
            self._warned_s = None
            _LOG.warning("Kafka at %s takes messages again; %d are replayed", self._bootstrap, self.spooled)
        self._unreachable = self._away = False

    def _fail(self, message: Message, error: KafkaError) -> None:
        """Handle a message that a broker did not accept."""
        if error.code() in REFUSED:
            self._give_up(f"a message for {message.topic}", error.str())
        else:
            self._put_by(message, error.str())

    def _put_by(self, message: Message, reason: str) -> None:
        """Spool a message, or drop it; the spool counts messages that it does not accept."""
        if self._spool is None:
            self._give_up(f"a message for {message.topic}", reason)
        else:
            self._warn("a message for %s waits on disk: %s", message.topic, reason)
            self._spool.append(pack(message), self._wall_ns())

    def _give_up(self, what: str, reason: str) -> None:
        self._given_up += 1
        self._warn("%s was given up (%d so far): %s", what, self._given_up, reason)

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._broken = True
        if error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE):
            self._unreachable = True
            self._away |= self._spool is not None and error.code() == KafkaError._ALL_BROKERS_DOWN
            self._warn(
                "no Kafka broker answers at %s (%s); messages wait %s until then: check that it runs there, "
                "or name it by kafka.bootstrap or --bootstrap",
                self._bootstrap,
                error.str(),
                "in memory" if self._spool is None else "on disk",
            )
        else:
            self._warn("Kafka at %s: %s", self._bootstrap, error.str())

    def _warn(self, text: str, *args: object) -> None:
        """Log at most one warning per half minute: the counters have the rest."""
        now_s = self._monotonic()
        if self._warned_s is None or now_s - self._warned_s >= _WARN_EVERY_S:
            self._warned_s = now_s
            _LOG.warning(text, *args)


def _producer(settings: dict[str, Any]) -> Producer:
    try:
        return open_producer(settings, _LOG, "agent", log_errors=False)
    except KafkaException as error:
        raise ConfigError(f"kafka: librdkafka refuses the settings: {error.args[0].str()}; see kafka.client") from error
