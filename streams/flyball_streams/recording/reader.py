"""Reads a recording."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import polars as pl

from flyball_contracts.errors import RecordingError
from flyball_streams.recording.format import (
    FORMAT,
    META_FORMAT,
    META_FROM_NS,
    META_GROUP_ROWS,
    META_MADE_BY,
    META_TO_NS,
    SCHEMA,
    UNREADABLE,
    Order,
    RecordedMessage,
    order_of,
)
from flyball_streams.recording.rows import read_rows

MAKE_ONE = "make one with 'flyball record' or 'flyball import'"
_MAGIC = b"PAR1"


@dataclass(frozen=True)
class Recording:
    """A valid recording of which only the footer has been read.

    `made_by` is its origin, `rows` its number of messages; its event times are from `from_ns` to `to_ns`.
    """

    path: Path
    rows: int
    made_by: str
    from_ns: int
    to_ns: int
    group_rows: int

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a file; `RecordingError` says what is wrong with it and what to do."""
        if not path.exists():
            raise RecordingError(f"{path}: there is no such file; {MAKE_ONE}")
        if not path.is_file():
            raise RecordingError(f"{path}: is not a file; a recording is one Parquet file: {MAKE_ONE}")
        try:
            schema = pl.read_parquet_schema(path)
            metadata = pl.read_parquet_metadata(path)
            rows = int(pl.scan_parquet(path).select(pl.len()).collect().item())
        except UNREADABLE as error:
            cut = "it is cut short: " if begins_as_parquet(path) else ""
            raise RecordingError(
                f"{path}: is not a whole Parquet file ({_first_line(error)}); {cut}{MAKE_ONE}"
            ) from error
        _check_version(path, metadata)
        _check_columns(path, schema)
        if rows == 0:
            raise RecordingError(f"{path}: holds no messages; {MAKE_ONE}")
        from_ns, to_ns, group_rows = (_number(path, metadata, k) for k in (META_FROM_NS, META_TO_NS, META_GROUP_ROWS))
        return cls(path, rows, metadata.get(META_MADE_BY, ""), from_ns, to_ns, max(1, group_rows))

    def messages(self) -> Iterator[list[RecordedMessage]]:
        """Yield all messages in event order, in lists of bounded size.

        `RecordingError` where the file is damaged or out of order.
        """
        last: Order | None = None
        try:
            for batch in read_rows(self.path, self.rows, self.group_rows):
                for message in batch:
                    order = order_of(message)
                    if last is not None and order < last:
                        raise RecordingError(
                            f"{self.path}: {message.topic} {message.partition}/{message.offset} is not in "
                            f"event order; recordings are written sorted: {MAKE_ONE}"
                        )
                    last = order
                yield batch
        except UNREADABLE as error:
            raise RecordingError(f"{self.path}: is damaged ({_first_line(error)}); {MAKE_ONE}") from error

    def topics(self) -> dict[str, int]:
        """Count the messages of each topic, by name."""
        try:
            counts = pl.scan_parquet(self.path).group_by("topic").len().sort("topic").collect()
        except UNREADABLE as error:
            raise RecordingError(f"{self.path}: is damaged ({_first_line(error)}); {MAKE_ONE}") from error
        return {str(topic): int(count) for topic, count in counts.iter_rows()}


def begins_as_parquet(path: Path) -> bool:
    """Whether a file has the first bytes of Parquet."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def _check_version(path: Path, metadata: Mapping[str, str]) -> None:
    found = metadata.get(META_FORMAT)
    if found is None:
        raise RecordingError(f"{path}: is a Parquet file but not a recording (no {META_FORMAT} in it); {MAKE_ONE}")
    if not found.isdecimal() or int(found) < 1:
        raise RecordingError(f"{path}: has the recording format {found!r}, which never existed; {MAKE_ONE}")
    if int(found) > FORMAT:
        raise RecordingError(
            f"{path}: was written in format {found} by a newer Flyball; this one reads up to {FORMAT}: upgrade"
        )


def _check_columns(path: Path, schema: Mapping[str, pl.DataType]) -> None:
    for name, kind in SCHEMA.items():
        if name not in schema:
            raise RecordingError(f"{path}: has no column {name!r}; a recording has {', '.join(SCHEMA)}: {MAKE_ONE}")
        if schema[name] != kind:
            raise RecordingError(f"{path}: column {name!r} is {schema[name]}, not {kind}; {MAKE_ONE}")


def _number(path: Path, metadata: Mapping[str, str], key: str) -> int:
    try:
        return int(metadata[key])
    except (KeyError, ValueError) as error:
        raise RecordingError(f"{path}: its metadata has no number {key}; {MAKE_ONE}") from error


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)[:200]
