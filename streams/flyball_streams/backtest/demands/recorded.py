"""Demand of a workload in a recording, as the engine computes it from telemetry."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from flyball_contracts.codec import decode_record
from flyball_contracts.config import WorkerConfig
from flyball_contracts.errors import DecodeError, RecordingError
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Demand as DemandRecord, DemandTick, Tick, WorkloadSpec
from flyball_contracts.topics import DEMAND, WORKLOADS
from flyball_streams.backtest.demands.demand import Demand
from flyball_streams.engine import Engine
from flyball_streams.engine.workload.merge import merge
from flyball_streams.recording.offline import fed
from flyball_streams.recording.reader import Recording


class Recorded(dict[str, Demand]):
    """Demand of each workload by name, and the newest specification of each in ``specs``."""

    specs: dict[str, WorkloadSpec]


def read_recording(
    path: Path,
    config: WorkerConfig | None = None,
    progress: Callable[[int, int], None] | None = None,
    workload: str | None = None,
) -> Recorded:
    """Demand of all workloads of a recording that report work and whose capacity is known.

    A tick's rate applies to each of its seconds. A tick without a value between two known ones repeats the previous
    value, which ``about`` mentions. Without request rates, each second is weighted by its work.

    Raises :class:`RecordingError` when the file cannot be read or has no such workload. If the specifications in the
    file already show that there is none, or none of the name ``workload``, it raises before it replays the telemetry,
    which takes minutes.
    """
    recording = Recording.open(path)
    specs: dict[str, WorkloadSpec] = {}
    for batch in recording.messages():
        for row in batch:
            if row.topic == WORKLOADS.name:
                record = _record(row.topic, row.value, row.headers)
                if isinstance(record, WorkloadSpec):
                    specs[record.workload] = record
    served = sorted(name for name, spec in specs.items() if spec.capacity_per_replica > 0)
    if workload is not None and served and workload not in served:
        raise RecordingError(f"{path}: there is no served workload {workload!r}; known: {', '.join(served)}")
    if not served:
        raise _nothing_served(path)
    ticks: dict[tuple[str, int], Tick] = {}
    parts: dict[tuple[str, int], dict[str, dict[str, DemandRecord]]] = {}
    done = 0
    for count, sent in fed(recording, Engine(config or WorkerConfig()).measure):
        for message in sent:
            if message.topic == DEMAND.name:
                record = _record(message.topic, message.value, message.headers)
                if isinstance(record, DemandTick):
                    at = record.cell, record.tick.index
                    ticks[at] = record.tick
                    demands = parts.setdefault(at, {}).setdefault(record.source, {})
                    demands |= {demand.workload: demand for demand in record.demands}
        done += count
        if progress is not None:
            progress(done, recording.rows)
    rows: dict[str, list[tuple[Tick, DemandRecord]]] = {}
    for at, sources in sorted(parts.items()):
        for name, record in merge(sources).items():
            rows.setdefault(name, []).append((ticks[at], record))
    found = Recorded()
    found.specs = specs
    for name, series in rows.items():
        if name in served and any(demand.work_rate is not None for _, demand in series):
            found[name] = _seconds(name, series, specs[name].capacity_per_replica)
    if not found:
        raise _nothing_served(path)
    return found


def _nothing_served(path: Path) -> RecordingError:
    return RecordingError(
        f"{path}: no workload reports work per second and has a capacity per replica; "
        "record flyball.telemetry.v1 and flyball.workloads.v1 of a served workload"
    )


def _record(topic: str, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> object:
    try:
        return decode_record(topic, value, headers)
    except DecodeError:
        return None  # the engine has already refused it, with its reason


def _seconds(workload: str, series: list[tuple[Tick, DemandRecord]], capacity: float) -> Demand:
    series = sorted(series, key=lambda row: row[0].end_ns)  # they come cell by cell, and a workload may have moved
    period_ns = series[0][0].period_ns
    first = series[0][0].end_ns - period_ns
    length = round((series[-1][0].end_ns - first) / NS_PER_S)
    work, requests = np.full(length, np.nan), np.full(length, np.nan)
    for tick, record in series:
        end = round((tick.end_ns - first) / NS_PER_S)
        begin = round((tick.end_ns - tick.period_ns - first) / NS_PER_S)
        if record.work_rate is not None:
            work[begin:end] = record.work_rate / capacity
            requests[begin:end] = record.work_rate / capacity if record.request_rate is None else record.request_rate
    known = np.isfinite(work)
    last = np.maximum.accumulate(np.where(known, np.arange(length), -1))
    last[last < 0] = int(np.argmax(known))
    about = f"recording, {length / 3600:.2f} h in ticks of {period_ns / NS_PER_S:g} s"
    if not known.all():
        about += f"; {int((~known).sum())} s without data repeat the value before"
    return Demand(workload, work[last], requests[last], about, first / NS_PER_S)
