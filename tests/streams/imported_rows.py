"""What the recording of an imported trace holds, and what the engine makes of it."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.codec import decode_message
from flyball_contracts.config import WorkerConfig
from flyball_contracts.frame import Frame
from flyball_contracts.metrics import WORKLOAD
from flyball_contracts.records import Inventory, Record, Snapshot
from flyball_streams.engine import Engine, Incoming
from flyball_streams.recording import Recording

Decoded = list[Record | Frame | Snapshot]


def decoded(path: Path) -> Decoded:
    return [decode_message(m.topic, m.value, m.headers) for batch in Recording.open(path).messages() for m in batch]


def frames(records: Decoded, schema: int, node: str = "") -> list[Frame]:
    return [r for r in records if isinstance(r, Frame) and r.schema == schema and node in r.node]


def column(records: Decoded, col: int, row: int = 0, node: str = "", schema: int = WORKLOAD.schema) -> list[float]:
    return [float(f.values[row, col]) for f in frames(records, schema, node)]


def total(records: Decoded, col: int, workload: str = "") -> dict[int, float]:
    """Sum over the replicas of a workload (or of all) by time, in order; NaN counts as nothing."""
    sums: dict[int, float] = {}
    for (time_ns, name), part in totals(records, col):
        if workload in name:
            sums[time_ns] = sums.get(time_ns, 0.0) + part
    return dict(sorted(sums.items()))


def totals(records: Decoded, col: int) -> Iterator[tuple[tuple[int, str], float]]:
    """What each replica shows, by time and workload; NaN is nothing."""
    held = {(r.node, r.epoch): [a.workload for a in r.allocations] for r in records if isinstance(r, Inventory)}
    for f in frames(records, WORKLOAD.schema):
        values = np.nan_to_num(f.values[:, col].astype(np.float64)).tolist()
        yield from zip(((f.time_ns, name) for name in held[f.node, f.inventory_epoch]), values, strict=True)


def played(path: Path) -> Decoded:
    """Everything that the engine makes of a recording, in event order; a dead letter would not decode."""
    engine, made = Engine(WorkerConfig()), list[Record | Frame | Snapshot]()
    rows = [m for batch in Recording.open(path).messages() for m in batch]
    for _, batch in groupby(rows, key=lambda m: m.time_ns):
        sent = engine.feed([Incoming(m.topic, m.partition, m.offset, m.key, m.value, m.headers) for m in batch])
        made += [decode_message(m.topic, m.value, m.headers) for m in sent]
    return made


def same(found: list[float] | NDArray[np.float64], expected: list[float] | NDArray[np.float64]) -> bool:
    return bool(np.allclose(found, expected, rtol=1e-5, atol=1e-7, equal_nan=True))
