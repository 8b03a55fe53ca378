"""The importer interface.

An importer converts a published trace to a recording of real records, at the trace's own times. It invents no
measurements: values that the trace lacks are NaN or absent, and each assumption is in the importer's documentation. It
depends on columns and units, never on names of pods, models or services, so it also reads other parts of the same
trace.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flyball_contracts.codec import frame_message, record_message
from flyball_contracts.errors import RecordingError
from flyball_contracts.frame import make_frame
from flyball_contracts.records import Inventory, Record
from flyball_streams.recording import RecordingWriter
from flyball_streams.recording.format import UNREADABLE

NS_PER_S = 1_000_000_000
GIB = 1024**3
BOOT_ID = "trace"
EPOCH = 1
DEVICES_PER_NODE = 8
"""Devices of a synthetic node; traces name no nodes."""
UNKNOWN_BOARD = "unknown"

# Time that one replica of a small model (8B, one GPU) takes for a token, from the evaluation protocol of the reference.
PROMPT_TOKENS_PER_S = 12_000.0
GENERATED_TOKENS_PER_S = 1_600.0

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class ImportReport:
    """Result of an import; `left_out` counts unusable rows by reason."""

    path: Path
    messages: int
    topics: dict[str, int]
    from_ns: int
    to_ns: int
    left_out: dict[str, int]


class Importer(Protocol):
    """One kind of trace."""

    @property
    def name(self) -> str:
        """Name of the trace, of its folder and of the cell in the recording."""
        ...

    @property
    def about(self) -> str:
        """One sentence on its contents."""
        ...

    def convert(self, source: Path, out: Path, *, progress: Progress | None = None) -> ImportReport:
        """Convert the folder `source` to the recording `out`.

        The same files give the same messages. `RecordingError` names file, column and remedy when the folder is not
        such a trace.
        """
        ...


class Table(NamedTuple):
    """Rows of a file, and how many were dropped because a key was empty."""

    rows: pl.DataFrame
    dropped: int


def read_table(source: Path, file: str, keys: Mapping[str, pl.DataType], values: Mapping[str, pl.DataType]) -> Table:
    """Read columns of a trace's Parquet file as the given types, sorted by `keys`.

    Rows with an empty key are dropped. NaN becomes null.
    """
    path = source / file
    wanted = {**keys, **values}
    if not source.is_dir():
        raise RecordingError(f"{source}: is not a folder; name the folder that holds {file}")
    if not path.is_file():
        raise RecordingError(f"{path}: is missing; name the folder that holds {file}")
    try:
        found = pl.read_parquet_schema(path)
        for name in wanted:
            if name not in found:
                raise RecordingError(f"{path}: has no column {name!r}, only {', '.join(found)}; is it the right trace?")
        raw = pl.read_parquet(path, columns=list(wanted))
    except UNREADABLE as error:
        raise RecordingError(f"{path}: is not a whole Parquet file ({error}); fetch it again") from error
    for name, kind in wanted.items():
        try:
            raw = raw.with_columns(pl.col(name).cast(kind))
        except pl.exceptions.PolarsError as error:
            raise RecordingError(
                f"{path}: column {name!r} is {found[name]}, not {kind}; is it the right trace?"
            ) from error
    floats = [name for name, kind in wanted.items() if kind.is_float()]
    rows = raw.with_columns(pl.col(floats).fill_nan(None)).drop_nulls(list(keys)).sort(list(keys), maintain_order=True)
    if rows.is_empty():
        raise RecordingError(f"{path}: has no usable row; fetch it again")
    return Table(rows, len(raw) - len(rows))


def totals(
    index: NDArray[np.int64], values: NDArray[np.float64], size: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Sum and number of the non-NaN values for each index below `size`; always added in the same order."""
    known = np.isfinite(values)
    total = np.zeros(size)
    np.add.at(total, index[known], values[known])
    return total, np.bincount(index[known], minlength=size).astype(np.int64)


def means(index: NDArray[np.int64], values: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Mean of the non-NaN values for each index below `size`; NaN if there are none."""
    total, known = totals(index, values, size)
    return np.where(known > 0, total / np.maximum(known, 1), np.nan)


class RecordingBuilder:
    """Writes records and frames of one trace, and makes the report."""

    def __init__(self, writer: RecordingWriter, cell: str) -> None:
        self._writer = writer
        self._source = f"/flyball/import/{cell}"
        self._seq: dict[str, int] = {}

    def record(self, record: Record, time_ns: int) -> None:
        """Write a record with its time."""
        self._writer.add(record_message(record, self._source), time_ns)

    def frame(
        self, inventory: Inventory, schema: int, values: NDArray[np.float32], time_ns: int, period_ns: int
    ) -> None:
        """Write one frame of a node; sequence numbers are consecutive."""
        seq = self._seq.get(inventory.node, -1) + 1
        self._seq[inventory.node] = seq
        frame = make_frame(
            values,
            schema=schema,
            node=inventory.node,
            boot_id=inventory.boot_id,
            epoch=EPOCH,
            seq=seq,
            time_ns=time_ns,
            period_ns=period_ns,
            inventory_epoch=inventory.epoch,
        )
        self._writer.add(frame_message(frame), time_ns)


def report_of(writer: RecordingWriter, left_out: Mapping[str, int]) -> ImportReport:
    """Report of a finished recording."""
    counted = {reason: count for reason, count in left_out.items() if count}
    return ImportReport(writer.path, writer.messages, dict(sorted(writer.topics.items())), *writer.span, counted)
