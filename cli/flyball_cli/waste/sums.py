"""Wasted GPU time, summed by subject and category."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from flyball_contracts.codec import decode_record
from flyball_contracts.config import WorkerConfig
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Waste
from flyball_contracts.topics import INSIGHTS


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """Waste of one subject in one category from ``from_ns`` to ``to_ns``; ``proposal`` is the newest.

    ``devices`` are those of the newest records: each node lane reports the devices on its own nodes. ``usd`` sums the
    known prices, ``None`` if none is known.
    """

    cell: str
    category: str
    subject: str
    gpu_hours: float
    usd: float | None
    devices: int
    action: str
    proposal: str
    from_ns: int
    to_ns: int


def of_recording(
    path: Path,
    config: WorkerConfig,
    stop: threading.Event | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Waste] | None:
    """Waste that the engine finds in a recording; ``None`` when ``stop`` came first.

    Raises :class:`RecordingError` when the file cannot be read.
    """
    from flyball_streams.engine import Engine
    from flyball_streams.recording import Recording
    from flyball_streams.recording.offline import fed

    recording, engine = Recording.open(path), Engine(config)
    found: list[Waste] = []
    done = 0
    for rows, sent in fed(recording, engine.feed):
        if stop is not None and stop.is_set():
            return None
        for message in sent:
            if message.topic == INSIGHTS.name:
                record = decode_record(message.topic, message.value, message.headers)
                if isinstance(record, Waste):
                    found.append(record)
        done += rows
        if progress is not None:
            progress(done, recording.rows)
    return found


def added_up(found: Iterable[Waste]) -> list[Loss]:
    """One loss for each subject and category, the most expensive first; those without a price follow, by GPU hours."""
    sums: dict[tuple[str, str, str], Loss] = {}
    once = {record.id: record for record in found}
    ordered = sorted(once.values(), key=lambda r: (r.time_ns, r.id))
    newest = {_key(record): record for record in ordered}
    devices = Counter[tuple[str, str, str]]()
    for record in ordered:
        key = _key(record)
        if record.time_ns > newest[key].from_ns:  # lanes take turns: one record of each in the time of the newest
            devices[key] += record.devices
        before = sums.get(key)
        sums[key] = Loss(
            cell=record.cell,
            category=record.category,
            subject=record.subject,
            gpu_hours=record.gpu_hours + (before.gpu_hours if before else 0.0),
            usd=_plus(record.usd, before.usd if before else None),
            devices=devices[key],
            action=record.action,
            proposal=record.proposal,
            from_ns=min(record.from_ns, before.from_ns) if before else record.from_ns,
            to_ns=record.time_ns,
        )
    return sorted(sums.values(), key=lambda s: (-(s.usd or 0.0), -s.gpu_hours, s.category, s.subject))


def hours(losses: list[Loss]) -> float:
    """Hours from the first to the last."""
    if not losses:
        return 0.0
    return (max(s.to_ns for s in losses) - min(s.from_ns for s in losses)) / NS_PER_S / 3_600.0


def _key(record: Waste) -> tuple[str, str, str]:
    return record.cell, record.category, record.subject


def _plus(a: float | None, b: float | None) -> float | None:
    return b if a is None else a if b is None else a + b
