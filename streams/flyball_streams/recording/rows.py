"""Rows of a Parquet file of the recording schema, a slice at a time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from flyball_streams.recording.format import SCHEMA, RecordedMessage


def read_rows(path: Path, rows: int, step: int) -> Iterator[list[RecordedMessage]]:
    """Yield the rows of a file in its own order, `step` at a time, with no more than that in memory."""
    for start in range(0, rows, step):
        piece = pl.scan_parquet(path).select(SCHEMA.names()).slice(start, step).collect()
        yield [_message(row) for row in piece.iter_rows()]


def _message(row: tuple[Any, ...]) -> RecordedMessage:
    topic, partition, offset, time_ns, timestamp_ms, key, headers, value = row
    pairs: list[tuple[str, bytes | None]] = [(header["name"], header["value"]) for header in headers or ()]
    return RecordedMessage(topic, partition, offset, time_ns, timestamp_ms, key, value, pairs)
