"""What lanes said is what they say again of their logs: to the byte, whatever was killed between.

Demand and proposals tell how far the tables count for each tick. So a fresh lane that is fed what a lane read, from the
first message on, must say the same: nothing was lost, nothing made up, and nothing said in two ways.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec
from tests.faults.audit import Finding

from flyball_contracts.cloudevents import header
from flyball_contracts.codec import Message, decode_record, record_message
from flyball_contracts.config import WorkerConfig
from flyball_contracts.errors import DecodeError
from flyball_contracts.records import DemandTick, ProposalTick, TableOffsets
from flyball_contracts.tables import TABLES
from flyball_contracts.topics import DECISIONS, DEMAND, EVENTS, PROPOSALS, TELEMETRY
from flyball_streams.engine import Directory, Engine, Incoming, Lane
from flyball_streams.engine.cell import CellLane
from flyball_streams.engine.parameters import parameters
from flyball_streams.engine.workload import WorkloadLane
from flyball_streams.recording.format import RecordedMessage, order_of

PROPOSED, DECIDED = "proposals follow from the log", "decisions follow from the log"
SOURCES = frozenset({TELEMETRY.name, EVENTS.name})
READ = SOURCES | frozenset({DEMAND.name, PROPOSALS.name, DECISIONS.name, *(topic.name for topic in TABLES)})
"""Topics that a :class:`Log` is made of."""
RecordsById = dict[str, set[bytes]]


class Log:
    """What lies on the topics after a run, each in the order of its partitions."""

    def __init__(self, messages: Iterable[RecordedMessage]) -> None:
        self.sources: list[RecordedMessage] = []
        self._of: dict[str, list[RecordedMessage]] = defaultdict(list)
        for m in messages:  # in the order of event time
            (self.sources if m.topic in SOURCES else self._of[m.topic]).append(m)
        for of in self._of.values():
            of.sort(key=lambda m: (m.partition, m.offset))

    def on(self, topic: str) -> list[RecordedMessage]:
        """Messages of a topic."""
        return self._of[topic]

    def read_tables(self, directory: Directory) -> None:
        """Let a directory read all tables to their ends."""
        _read_tables(directory, [m for topic in TABLES for m in self.on(topic.name)])


def compare_lanes(log: Log, worker: WorkerConfig, partitions: Mapping[str, int]) -> tuple[Finding, Finding]:
    """Compare proposals of workload lanes, and decisions, with those of fresh lanes on the same logs."""
    directory, count, known = Directory(), partitions[DEMAND.name], parameters(worker)
    workloads: list[Lane] = [
        WorkloadLane(p, known, directory, count, node_partitions=partitions[TELEMETRY.name]) for p in range(count)
    ]
    cells: list[Lane] = [CellLane(p, known, directory, count) for p in range(partitions[PROPOSALS.name])]
    log.read_tables(directory)
    theirs = _by_id(m for m in log.on(PROPOSALS.name) if _source(m.headers).startswith("/workload/"))
    proposals = _compare(PROPOSED, theirs, _replay_lanes(workloads, log.on(DEMAND.name), PROPOSALS.name))
    decided = _replay_lanes(cells, log.on(PROPOSALS.name), DECISIONS.name)
    return proposals, _compare(DECIDED, _by_id(log.on(DECISIONS.name)), decided)


class Replay(Engine):
    """An engine that decides each tick on the tables that it was decided on, as its proposals tell."""

    def __init__(self, log: Log, worker: WorkerConfig, partitions: Mapping[str, int]) -> None:
        super().__init__(worker, partitions)
        self._used: dict[tuple[str, str, int], TableOffsets] = {}
        for m in log.on(PROPOSALS.name):
            record = decode_record(m.topic, m.value, m.headers)
            if isinstance(record, ProposalTick) and record.table_offsets:
                self._used.setdefault((record.cell, record.source, record.tick.index), record.table_offsets)
        log.read_tables(self.directory)

    def _deliver(self, message: Message) -> Incoming:
        record = decode_record(message.topic, message.value, message.headers)
        if isinstance(record, DemandTick):
            used = self._used.get(
                (record.cell, f"workload/{record.partition}", record.tick.index), record.table_offsets
            )
            record = msgspec.structs.replace(record, table_offsets=used)
            message = message._replace(value=record_message(record, f"/{record.source}").value)
        return super()._deliver(message)


def replayed(log: Log, worker: WorkerConfig, partitions: Mapping[str, int]) -> tuple[list[DemandTick], list[Any]]:
    """Demand and decisions of the pure engine on all frames and events, tick by tick, on the tables that were used."""
    engine = Replay(log, worker, partitions)
    demand: list[DemandTick] = []
    decisions: list[Any] = []
    for _, batch in groupby(log.sources, key=lambda m: order_of(m)[0]):
        for m in engine.feed([_incoming(m) for m in batch]):
            if m.topic not in (DEMAND.name, DECISIONS.name):
                continue
            record = decode_record(m.topic, m.value, m.headers)
            if isinstance(record, DemandTick):
                demand.append(record)
            else:
                decisions.append(record)
    return demand, decisions


def _read_tables(directory: Directory, messages: Iterable[RecordedMessage]) -> None:
    for m in messages:
        if m.value is None:
            directory.forget(m.topic, (m.key or b"").decode(), m.partition, m.offset)
            continue
        try:
            directory.apply(decode_record(m.topic, m.value, m.headers), m.partition, m.offset)
        except DecodeError:
            directory.read(m.topic, m.partition, m.offset + 1)


def _replay_lanes(lanes: Sequence[Lane], log: Sequence[RecordedMessage], topic: str) -> RecordsById:
    """What lanes say on a topic, by the ids of the messages."""
    sent: list[Message] = []
    for p, lane in enumerate(lanes):
        sent += lane.step([_incoming(m)._replace(log_ms=m.timestamp_ms) for m in log if m.partition == p])
    return _by_id(m for m in sent if m.topic == topic)


def _incoming(m: RecordedMessage) -> Incoming:
    return Incoming(m.topic, m.partition, m.offset, m.key, m.value, m.headers)


def _by_id(messages: Iterable[RecordedMessage | Message]) -> RecordsById:
    contents: RecordsById = defaultdict(set)
    for m in messages:
        contents[header(m.headers, "ce_id") or "?"].add(m.value or b"")
    return contents


def _source(headers: Sequence[tuple[str, bytes | None]]) -> str:
    return header(headers, "ce_source") or ""


def _compare(oracle: str, recorded: RecordsById, replayed: RecordsById) -> Finding:
    broken: list[str] = []
    for identity in sorted(recorded.keys() | replayed.keys()):
        theirs, ours = recorded.get(identity, set()), replayed.get(identity, set())
        if theirs != ours:
            what = "lost" if not theirs else "made up" if not ours else f"{len(theirs)} contents, another in a replay"
            broken.append(f"{identity}: {what}: {_shown(min(theirs or ours))}")
    return Finding(oracle, len(recorded), broken)


def _shown(value: bytes) -> str:
    return value.decode(errors="replace")[:300]
