"""The interface of all lanes: messages in, messages out."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from flyball_contracts.codec import Message, decode_record
from flyball_contracts.deadletter import dead_letter
from flyball_contracts.errors import DecodeError, RecordError
from flyball_contracts.records import Record, Tick
from flyball_streams.engine.stats import LaneStats

OF_NODES = "node/"
"""Prefix of the names of node lanes; the partition follows."""


class Incoming(NamedTuple):
    """One message of a source topic, independent of the client.

    ``log_ms`` is its timestamp in the log, Kafka's ``CreateTime`` in ms since the Unix epoch; negative: unknown.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    log_ms: int = -1


class Lane(Protocol):
    """A pure processing stage for one partition.

    ``step`` returns the messages to send, in order, dead letters included. It never raises for bad input. ``snapshot``
    and ``restore`` carry the whole state: a restored lane sends byte-identical messages.
    """

    source: str
    stats: LaneStats

    def step(self, batch: Sequence[Incoming]) -> list[Message]:
        """Process a micro-batch; return the messages to send."""
        ...

    def snapshot(self) -> bytes:
        """Return the whole state."""
        ...

    def restore(self, state: bytes) -> None:
        """Replace the state by that of a snapshot; raises :class:`DecodeError` if it is not one of this lane."""
        ...


def refuse(message: Incoming, stage: str, error: Exception) -> Message:
    """Return the dead letter of an incoming message."""
    return dead_letter(
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        key=message.key,
        value=message.value,
        headers=message.headers,
        stage=stage,
        error=error,
    )


def take_records(
    batch: Sequence[Incoming],
    kinds: tuple[type[Record], ...],
    ingest: Callable[[Any, int], None],
    stats: LaneStats,
    stage: str,
) -> list[Message]:
    """Pass the records of ``kinds`` in a micro-batch to ``ingest``; return dead letters for the unusable ones.

    ``ingest`` gets a record and its log time in ms, and raises :class:`RecordError` for a record that does not fit.
    Records of other kinds are counted as ignored.
    """
    dead: list[Message] = []
    for message in batch:
        try:
            record = decode_record(message.topic, message.value, message.headers)
        except DecodeError as error:
            stats.undecodable += 1
            dead.append(refuse(message, stage, error))
            continue
        if not isinstance(record, kinds):
            stats.ignored += 1
            continue
        try:
            ingest(record, message.log_ms)
        except RecordError as error:
            stats.unfit += 1
            dead.append(refuse(message, stage, error))
    return dead


def check_period(cell: str, source: str, tick: Tick, period_ns: int) -> None:
    """Raise :class:`RecordError` if a source has another tick period than the lane of its cell."""
    if tick.period_ns != period_ns:
        raise RecordError(
            f"{source} counts the ticks of cell {cell!r} in {tick.period_ns / 1e9:g} s, this lane in "
            f"{period_ns / 1e9:g} s; give all agents of a cell the same agent.period_s"
        )
