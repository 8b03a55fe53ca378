"""Writes telemetry, demand, insights, decisions and outcomes to a server with the InfluxDB v2 write API."""

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from flyball_contracts.codec import decode_message
from flyball_contracts.config import InfluxConfig, KafkaConfig
from flyball_contracts.config.constants import with_constants
from flyball_contracts.deadletter import dead_letter
from flyball_contracts.errors import ConfigError, DecodeError, TransportError
from flyball_contracts.frame import Frame
from flyball_contracts.kafka import consumer_settings, open_consumer, open_producer, producer_settings
from flyball_contracts.security.clear import in_clear
from flyball_contracts.security.secret import secret_if_given
from flyball_contracts.topics import DECISIONS, DEMAND, INSIGHTS, OUTCOMES, TELEMETRY
from flyball_streams.received import Received, received
from flyball_streams.sinks.inventories import Inventories
from flyball_streams.sinks.lines import to_lines
from flyball_streams.sinks.parameters import InfluxParameters
from flyball_streams.sinks.writer import LineWriter

_LOG = logging.getLogger(__name__)
STORED: tuple[str, ...] = tuple(t.name for t in (TELEMETRY, DEMAND, INSIGHTS, DECISIONS, OUTCOMES))
STAGE = "influx sink"
_BATCH = 500
_POLL_S = 0.2
_FLUSH_S = 30.0
_PATIENCE_MS = 3_600_000  # if a server is away for longer, the group gives the partitions to another member


@dataclass
class SinkReport:
    """Exact counts of one run.

    `rejected` lines were refused by the server as malformed; `undecodable` messages went to the dead letters;
    `unnamed_frames` were written without device names, because their inventory was not known; `retries` are failed
    attempts to write.
    """

    messages: int = 0
    lines: int = 0
    rejected: int = 0
    undecodable: int = 0
    unnamed_frames: int = 0
    retries: int = 0


def run_influx_sink(
    kafka: KafkaConfig,
    section: InfluxConfig,
    *,
    stop: threading.Event,
    progress: Callable[[int, int], None] | None = None,
) -> SinkReport:
    """Write until `stop`; offsets are committed after the server has accepted the lines, so nothing is lost.

    Lines that are written twice after a crash are the same points. While the server is unreachable, writes are retried.
    `progress` is called with the number of messages and 0 (the end is unknown).

    Raises `ConfigError` for a missing address or token and if the server refuses them, and `TransportError` if Kafka
    cannot be reached.
    """
    influx = with_constants(InfluxParameters, section)
    token = secret_if_given(os.environ, influx.token_env, "influx")
    if not influx.url:
        raise ConfigError("influx.url is not set; give the address of the server, such as http://127.0.0.1:8086")
    if not token:
        raise ConfigError(
            f"the environment variable {influx.token_env} holds no token, and {influx.token_env}_FILE names no file"
        )
    if in_clear(influx.url):
        _LOG.warning("influx.url: %s: the token leaves this machine without TLS; use https", influx.url)
    report = SinkReport()
    try:
        with LineWriter(influx, token, stop) as writer:
            _Sink(kafka, writer, report, stop).run(stop, progress)
            report.lines, report.rejected, report.retries = writer.written, writer.rejected, writer.retries
    except KafkaException as error:
        raise TransportError(f"Kafka at {kafka.bootstrap}: {error.args[0].str()}; is the broker running?") from error
    return report


class _Sink:
    """The loop: consume, convert, write, report what could not be read, commit."""

    def __init__(self, kafka: KafkaConfig, writer: LineWriter, report: SinkReport, stop: threading.Event) -> None:
        self._writer = writer
        self._report = report
        self._refused = 0
        extra = {"max.poll.interval.ms": str(_PATIENCE_MS), **kafka.client}
        settings = consumer_settings(kafka.bootstrap, group="flyball-influx", client_id="flyball-influx", extra=extra)
        self._inventories = Inventories(kafka, stop)
        self._consumer = open_consumer(settings, _LOG, "sink")
        sending = producer_settings(kafka.bootstrap, client_id="flyball-influx", extra=kafka.client)
        self._producer = open_producer(sending, _LOG, "sink")

    def run(self, stop: threading.Event, progress: Callable[[int, int], None] | None) -> None:
        """Run until `stop`."""
        try:
            self._inventories.read_whole()
            self._consumer.subscribe(list(STORED))
            while not stop.is_set():
                batch = [m for m in self._consumer.consume(_BATCH, _POLL_S) if _sound(m)]
                if not batch:
                    continue
                self._inventories.catch_up()
                if not self._writer.write(self._lines(batch)):
                    break  # stopped while the server was away: not committed, so read again next time
                if self._producer.flush(_FLUSH_S) or self._refused:
                    raise TransportError(
                        "the broker did not take the dead letters; is its topic there? See 'flyball topics'"
                    )
                self._commit(batch)
                self._report.messages += len(batch)
                if progress is not None:
                    progress(self._report.messages, 0)
        finally:
            self._consumer.close()
            self._inventories.close()

    def _lines(self, batch: Sequence[Message]) -> Iterator[str]:
        patient = True
        for message in map(received, batch):
            try:
                record = decode_message(message.topic, message.value, message.headers)
            except DecodeError as error:
                self._refuse(message, error)
                continue
            if not isinstance(record, Frame):
                yield from to_lines(record)
                continue
            inventory = self._inventories.of(record)
            if inventory is None and patient:  # once per batch: frames without an inventory must not hold up the rest
                patient = bool(self._inventories.catch_up(_POLL_S))
                inventory = self._inventories.of(record)
            self._report.unnamed_frames += inventory is None
            yield from to_lines(record, inventory)

    def _refuse(self, message: Received, error: DecodeError) -> None:
        letter = dead_letter(
            topic=message.topic,
            partition=message.partition,
            offset=message.offset,
            key=message.key,
            value=message.value,
            headers=message.headers,
            stage=STAGE,
            error=error,
        )
        kept: list[tuple[str, str | bytes | None]] = list(letter.headers)
        self._producer.produce(letter.topic, letter.value, letter.key, headers=kept, on_delivery=self._delivered)
        self._report.undecodable += 1

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        self._refused += error is not None

    def _commit(self, batch: Sequence[Message]) -> None:
        after: dict[tuple[str, int], int] = {}
        for message in batch:
            place = (message.topic() or "", message.partition() or 0)
            after[place] = max(after.get(place, 0), (message.offset() or 0) + 1)
        try:
            self._consumer.commit(offsets=[TopicPartition(*p, o) for p, o in after.items()], asynchronous=False)
        except KafkaException as error:  # another member has the partitions now; it will write the same points again
            _LOG.warning("offsets were not committed: %s", error.args[0].str())


def _sound(message: Message) -> bool:
    error = message.error()
    if error is not None:
        _LOG.warning("broker: %s", error.str())
    return error is None
