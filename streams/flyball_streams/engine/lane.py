"""What all lanes share: messages in, messages out, and nothing else."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from flyball_contracts.codec import Message, decode_record
from flyball_contracts.deadletter import dead_letter
from flyball_contracts.errors import DecodeError, RecordError
from flyball_contracts.records import Record, Tick
from flyball_streams.engine.stats import LaneStats


class Incoming(NamedTuple):
    """One message of a source topic, as any client delivers it.

    ``log_ms`` is its time in the log, Kafka's ``CreateTime`` in ms since the Unix epoch; below 0: unknown.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    log_ms: int = -1


class Lane(Protocol):
    """A pure stage for one partition: its state and how a micro-batch changes it.

    ``step`` returns what to send, in order; dead letters are among it. It never raises for bad input. ``snapshot`` and
    ``restore`` carry the whole state, so that a lane restored and stepped gives byte-identical messages.
    """

    source: str
    stats: LaneStats

    def step(self, batch: Sequence[Incoming]) -> list[Message]:
        """Messages that a micro-batch leads to."""
        ...

    def snapshot(self) -> bytes:
        """The whole state."""
        ...

    def restore(self, state: bytes) -> None:
        """Take on the state of a snapshot; raises :class:`DecodeError` when it is not one of this lane."""
        ...


def refuse(message: Incoming, stage: str, error: Exception) -> Message:
    """Dead letter of one incoming message."""
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
    take: Callable[[Any, int], None],
    stats: LaneStats,
    stage: str,
) -> list[Message]:
    """Pass the records of ``kinds`` in a micro-batch to ``take``; return the dead letters of what cannot be used.

    ``take`` gets a record and its log time in ms, and raises :class:`RecordError` for a record that does not fit.
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
            take(record, message.log_ms)
        except RecordError as error:
            stats.unfit += 1
            dead.append(refuse(message, stage, error))
    return dead


def check_period(cell: str, source: str, tick: Tick, period_ns: int) -> None:
    """Raise :class:`RecordError` when a source counts the ticks of a cell in another period than its lane does."""
    if tick.period_ns != period_ns:
        raise RecordError(
            f"{source} counts the ticks of cell {cell!r} in {tick.period_ns / 1e9:g} s, this lane in "
            f"{period_ns / 1e9:g} s; give all agents of a cell the same agent.period_s"
        )
