"""Sending the simulated fleet to a broker, at its own pace or faster."""

import logging
import threading
import time
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message as Delivered, Producer

from flyball_collectors.fleet.fleet import Fleet
from flyball_collectors.fleet.follow import Follower
from flyball_contracts.codec import Message
from flyball_contracts.config import FleetConfig, KafkaConfig
from flyball_contracts.errors import RecordError, TransportError
from flyball_contracts.kafka import producer_settings
from flyball_contracts.kafka_log import ClientLog

_LOG = logging.getLogger(__name__)
_CONNECT_S = 10.0
_FLUSH_S = 15.0
_SLICE_S = 0.1


@dataclass
class FleetReport:
    """What a run did.

    ``failed`` messages were given up by the client; ``late_ticks`` were sent behind schedule; ``applied`` and
    ``refused`` count the decisions that the simulated platform obeyed and could not obey.
    """

    start_ns: int
    ticks: int = 0
    messages: int = 0
    sent_bytes: int = 0
    failed: int = 0
    late_ticks: int = 0
    applied: int = 0
    refused: int = 0
    undecodable: int = 0


def run_fleet(
    config: FleetConfig,
    kafka: KafkaConfig,
    *,
    stop: threading.Event,
    start_ns: int,
    speed: float = 1.0,
    ticks: int | None = None,
    follow_decisions: bool = False,
) -> FleetReport:
    """Send the fleet's messages until ``stop`` is set or ``ticks`` ticks are sent.

    ``speed`` is event seconds per wall second (infinite: as fast as the broker takes them); the wall clock only
    paces. Each tick has its own absolute due time, so a late one delays no other. With ``follow_decisions``,
    decisions whose outcome is ``done`` are obeyed from the next tick on.

    Raises :class:`TransportError` when the broker does not answer at the start, :class:`ConfigError` for a fleet
    that cannot be, ``ValueError`` for a speed that is not positive.
    """
    if not speed > 0:
        raise ValueError(f"speed is {speed}; pass a positive number of event seconds per wall second")
    fleet = Fleet(config, start_ns)
    sender = _Sender(kafka, config.cell, FleetReport(start_ns), stop)
    follower = Follower(kafka, config.cell) if follow_decisions else None
    report = sender.report
    try:
        sender.send(fleet.messages_at_start())
        began = time.monotonic()
        while not stop.is_set() and (ticks is None or report.ticks < ticks):
            due = began + report.ticks * config.tick_s / speed
            report.late_ticks += time.monotonic() > due + config.tick_s / speed
            sender.wait_until(due)
            if stop.is_set():
                break
            if follower is not None:
                _obey(fleet, follower, report)
            sender.send(fleet.tick(report.ticks))
            report.ticks += 1
    finally:
        if follower is not None:
            follower.close()
        sender.close()
    return report


def _obey(fleet: Fleet, follower: Follower, report: FleetReport) -> None:
    followed = follower.poll()
    report.undecodable += followed.undecodable
    for decision in followed.decisions:
        try:
            answer = fleet.apply(decision)
        except RecordError as error:
            report.refused += 1
            _LOG.warning("decision %s refused: %s", decision.id, error)
        else:
            report.applied += 1
            _LOG.info("decision %s: %s", decision.id, answer)


class _Sender:
    """An idempotent producer that waits when its queue is full and counts what is lost."""

    def __init__(self, kafka: KafkaConfig, cell: str, report: FleetReport, stop: threading.Event) -> None:
        self.report, self._stop = report, stop
        settings = producer_settings(kafka.bootstrap, client_id=f"flyball-fleet-{cell}", extra=kafka.client)
        told = ClientLog(_LOG, "fleet", kafka.bootstrap)
        options = {"delivery.report.only.error": True, "error_cb": told.on_error}
        self._producer = Producer({**settings, **options}, logger=told)
        try:
            self._producer.list_topics(timeout=_CONNECT_S)
        except KafkaException as error:
            raise TransportError(
                f"no broker answers at {kafka.bootstrap} ({error.args[0].str()}); check kafka.bootstrap or --bootstrap"
            ) from error

    def send(self, messages: list[Message]) -> None:
        """Queue messages; waits while the queue is full, gives up only when told to stop."""
        for message in messages:
            while not self._queued(message):
                if self._stop.is_set():
                    self.report.failed += 1
                    break
                self._producer.poll(_SLICE_S)
        self._producer.poll(0)

    def wait_until(self, due: float) -> None:
        """Serve the client until a monotonic time or the stop."""
        while (left := due - time.monotonic()) > 0 and not self._stop.wait(min(left, _SLICE_S)):
            self._producer.poll(0)

    def close(self) -> None:
        """Wait for what is under way."""
        left = self._producer.flush(_FLUSH_S)
        if left:
            self.report.failed += left
            _LOG.error("%d messages were not delivered within %.0f s and are lost", left, _FLUSH_S)

    def _queued(self, message: Message) -> bool:
        try:
            if message.partition is None:
                self._producer.produce(
                    message.topic, message.value, message.key, headers=list(message.headers), on_delivery=self._lost
                )
            else:
                self._producer.produce(
                    message.topic,
                    message.value,
                    message.key,
                    message.partition,
                    headers=list(message.headers),
                    on_delivery=self._lost,
                )
        except BufferError:
            return False
        self.report.messages += 1
        self.report.sent_bytes += len(message.value)
        return True

    def _lost(self, error: KafkaError | None, message: Delivered) -> None:
        if error is not None:
            self.report.failed += 1
            if self.report.failed == 1:
                _LOG.error("a message for %s was not delivered: %s", message.topic(), error)
