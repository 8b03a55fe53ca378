"""The actuator service: decisions in, outcomes out, offsets committed after the effect."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import cast

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from flyball_actuators.carry_out import Executor
from flyball_actuators.drivers import Driver, DryRun, make_driver
from flyball_actuators.guard import World
from flyball_actuators.ledger import Ledger
from flyball_actuators.messages import headers_of
from flyball_actuators.outbox import Outbox
from flyball_actuators.report import ActuatorReport
from flyball_actuators.world import WorldReader, partitions_of
from flyball_contracts.codec import decode_record, record_message
from flyball_contracts.config import Config
from flyball_contracts.deadletter import dead_letter
from flyball_contracts.errors import ConfigError, DecodeError, TransportError
from flyball_contracts.kafka import consumer_settings, producer_settings
from flyball_contracts.kafka_log import ClientLog
from flyball_contracts.records import AnyDecision
from flyball_contracts.topics import DECISIONS

_LOG = logging.getLogger(__name__)
SOURCE = "/actuator"
_CLIENT = "flyball-actuator"
_WAIT_S = 0.2
_BATCH = 50
_DAY_S = 86_400.0


def run_actuator(
    config: Config,
    *,
    stop: Event,
    ready: Callable[[], None] | None = None,
    driver: Driver | None = None,
    clock: Callable[[], int] = time.time_ns,
) -> ActuatorReport:
    """Carry out decisions until ``stop`` is set.

    ``ready`` is called once partitions of the decisions are assigned; ``driver`` stands in for the configured one
    in mode ``live``; ``clock`` is the wall clock in nanoseconds. At-least-once in, at most one driver call for
    each decision id as long as one actuator (with one ledger) runs in the group.
    Raises :class:`ConfigError` for settings that cannot work, :class:`TransportError` when the broker
    cannot be reached at the start.
    """
    settings = config.actuator
    chosen = driver or make_driver(settings.driver)
    if settings.mode != "live":
        chosen = DryRun()
    elif not settings.ledger and not chosen.repeatable:
        raise ConfigError(
            f"actuator.ledger: driver {chosen.name!r} in mode live needs a ledger file, or a restart could act twice"
        )
    windows = (settings.per_target.window_s, settings.per_cell.window_s, settings.blast_radius.window_s)
    keep_ns = None if settings.clock == "event" else round(max(_DAY_S, *windows) * 1e9)
    with Ledger(Path(settings.ledger) if settings.ledger else None, keep_ns=keep_ns) as ledger:
        service = _Service(config, stop, Executor(settings, chosen, ledger, clock), ledger, ready)
        _LOG.info("actuator in mode %s with driver %s", settings.mode, chosen.name)
        try:
            service.run()
        finally:
            service.close()
        return service.report


class _Service:
    """The clients of one run and what is not committed yet."""

    def __init__(
        self, config: Config, stop: Event, executor: Executor, ledger: Ledger, ready: Callable[[], None] | None
    ) -> None:
        kafka, group = config.kafka, config.actuator.group
        self.report = ActuatorReport()
        self._stop = stop
        self._executor = executor
        self._ledger = ledger
        self._ready = ready
        self._bootstrap = kafka.bootstrap
        self._pending: dict[tuple[str, int], int] = {}
        reading = consumer_settings(kafka.bootstrap, group=group, client_id=_CLIENT, extra=kafka.client)
        writing = producer_settings(kafka.bootstrap, client_id=_CLIENT, linger_ms=0, extra=kafka.client)
        told = ClientLog(_LOG, "decisions", kafka.bootstrap)
        self._consumer = Consumer({**reading, "error_cb": told.on_error}, logger=told)
        self._world = WorldReader(reading, kafka.bootstrap)
        self._outbox = Outbox(writing)

    def run(self) -> None:
        """The loop: read, judge and act, be heard, commit."""
        self._world.start(self._stop)
        try:
            partitions_of(self._consumer, DECISIONS.name)
        except KafkaException as error:
            raise TransportError(f"{self._bootstrap}: decisions cannot be read: {error.args[0].str()}") from error
        self._consumer.subscribe([DECISIONS.name], on_assign=self._assigned, on_revoke=self._revoked)
        while not self._stop.is_set():
            messages = self._consumer.consume(_BATCH, _WAIT_S)
            self._world.drain()
            for message in messages:
                if self._stop.is_set():
                    break
                self._take(message)
            if self._pending and self._outbox.flush(self._stop):
                self._commit()

    def close(self) -> None:
        """Leave the group; what is not committed will come again."""
        self.report.delivered = self._outbox.delivered
        self.report.unreadable_world = self._world.undecodable
        self._consumer.close()
        self._world.close()
        self._outbox.close()

    def _take(self, message: Message) -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        error = message.error()
        if error is not None or topic is None or partition is None or offset is None:
            if error is not None and error.fatal():
                raise TransportError(f"{self._bootstrap}: decisions can no longer be read: {error.str()}")
            _LOG.warning("reading decisions: %s", error)
            return
        try:
            record = decode_record(topic, message.value(), headers_of(message))
        except DecodeError as bad:
            self._refuse(message, topic, partition, offset, bad)
        else:
            decision = cast(AnyDecision, record)  # the codec lets nothing else through on this topic
            self.report.decisions += 1
            for outcome in self._executor.carry_out(decision, self._view, self._refresh):
                self.report.count(outcome)
                self._outbox.put(record_message(outcome, SOURCE))
        self._pending[topic, partition] = offset + 1

    def _refuse(self, message: Message, topic: str, partition: int, offset: int, error: DecodeError) -> None:
        self.report.undecodable += 1
        _LOG.warning("%s/%d@%d goes to the dead letters: %s", topic, partition, offset, error)
        self._outbox.put(
            dead_letter(
                topic=topic,
                partition=partition,
                offset=offset,
                key=message.key(),
                value=message.value(),
                headers=headers_of(message),
                stage=_CLIENT,
                error=error,
            )
        )

    def _view(self, stop: str) -> World:
        return self._world.view(self._ledger, stop)

    def _refresh(self) -> None:
        try:
            self._world.catch_up(self._stop)
        except KafkaException as error:
            _LOG.warning("workloads and inventories could not be brought up to date: %s", error.args[0].str())

    def _commit(self) -> None:
        offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in self._pending.items()]
        try:
            committed = self._consumer.commit(offsets=offsets, asynchronous=False) or []
        except KafkaException as error:
            self.report.commit_failures += 1
            _LOG.warning("offsets are not committed yet, which is safe: %s", error.args[0].str())
            return
        for part in committed:
            if part.error is None:
                self._pending.pop((part.topic, part.partition), None)
            else:
                self.report.commit_failures += 1
                _LOG.warning("%s/%d is not committed yet, which is safe: %s", part.topic, part.partition, part.error)
        self.report.commits += 1

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._ready is not None:
            self._ready()
            self._ready = None

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for part in partitions:  # the next owner reads them again; the ledger knows what was done
            self._pending.pop((part.topic, part.partition), None)
