"""The format of a recording: its columns, its file metadata and its order.

One Parquet file (zstd), one row per Kafka message, with the columns of `SCHEMA`. Rows are in *event order*: by
event-time tick of `TICK_NS`, then topic (inventories before frames), partition and offset. So a reader streams the file
from its first row to its last in bounded memory, and every reader sees the same order. Within a tick a partition keeps
its own order, so that duplicates and reordered frames stay as they were.
"""

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from flyball_contracts.codec import BINDINGS, decode_message
from flyball_contracts.errors import DecodeError
from flyball_contracts.frame import Frame
from flyball_contracts.records import Snapshot
from flyball_contracts.topics import EVENTS, INVENTORY, POOLS, RESPONSES, SIGNALS, TELEMETRY, WORKLOADS

FORMAT = 1
TICK_NS = 1_000_000_000
NS_PER_MS = 1_000_000

SOURCES: tuple[str, ...] = tuple(t.name for t in (INVENTORY, WORKLOADS, POOLS, SIGNALS, RESPONSES, EVENTS, TELEMETRY))
"""Topics that come from outside the workers, in the order in which a tick plays them; the rest is derived."""
_RANK = {name: i for i, name in enumerate(SOURCES)}

SCHEMA = pl.Schema(
    {
        "topic": pl.String(),
        "partition": pl.Int32(),
        "offset": pl.Int64(),
        "time_ns": pl.Int64(),
        "timestamp_ms": pl.Int64(),
        "key": pl.Binary(),
        "headers": pl.List(pl.Struct({"name": pl.String(), "value": pl.Binary()})),
        "value": pl.Binary(),
    }
)

# Keys of the file metadata.
META_FORMAT = "flyball.format"
META_MADE_BY = "flyball.made_by"
META_FROM_NS = "flyball.from_ns"
META_TO_NS = "flyball.to_ns"
META_GROUP_ROWS = "flyball.group_rows"

# What polars raises for a file that it cannot read; a panic in its Rust code is not an `Exception`.
UNREADABLE: tuple[type[BaseException], ...] = (
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    OSError,
    OverflowError,
    UnicodeDecodeError,
)


class RecordedMessage(NamedTuple):
    """One row: a Kafka message as it was.

    `time_ns` is the event time of its content; `timestamp_ms` is Kafka's CreateTime (-1: none).
    """

    topic: str
    partition: int
    offset: int
    time_ns: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


Order = tuple[int, int, str, int, int]


def order_of(message: RecordedMessage) -> Order:
    """Place of a message in event order."""
    rank = _RANK.get(message.topic, len(_RANK))
    return (message.time_ns // TICK_NS, rank, message.topic, message.partition, message.offset)


def event_time_ns(
    topic: str, value: bytes | None, headers: Sequence[tuple[str, bytes | None]] | None, timestamp_ms: int
) -> tuple[int, bool]:
    """Event time of a message, and whether it is the message's own.

    It is Kafka's CreateTime where the message cannot be decoded or is a tombstone.
    """
    try:
        record = decode_message(topic, value, headers)
    except DecodeError:
        return timestamp_ms * NS_PER_MS, False
    if isinstance(record, Frame | Snapshot):
        return record.time_ns, True
    return BINDINGS[type(record)].time_ns(record), True
