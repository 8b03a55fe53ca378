"""The compacted topics and the outcomes, read whole by every worker process.

Inventories, specifications and curves concern all partitions, so they are not shared out in a consumer group: a
plain consumer reads all partitions from the start. Lane snapshots are found the same way.
"""

import logging
import threading
from typing import NamedTuple, cast

import msgspec
from confluent_kafka import Consumer, KafkaException, Message as KafkaMessage, TopicPartition

from flyball_contracts.codec import Message, decode_record, decode_snapshot
from flyball_contracts.config import KafkaConfig
from flyball_contracts.errors import DecodeError, TransportError
from flyball_contracts.kafka import consumer_settings
from flyball_contracts.records import Outcome, Record, Snapshot
from flyball_contracts.topics import INVENTORY, OUTCOMES, SIGNALS, STATE, WORKLOADS
from flyball_streams.engine.lane import Incoming, refuse

log = logging.getLogger(__name__)
Place = tuple[str, int]
TABLES = (INVENTORY, WORKLOADS, SIGNALS, OUTCOMES, STATE)


class Changes(NamedTuple):
    """What has been read since the last look: records to fold in, outcomes to heed, messages refused."""

    records: list[Record]
    outcomes: list[Outcome]
    dead: list[Message]


class TableReader:
    """Reads the tables in a thread of its own; :meth:`drain` hands over what is new."""

    def __init__(self, kafka: KafkaConfig, client_id: str) -> None:
        settings = consumer_settings(
            kafka.bootstrap, group=f"{client_id}-tables", client_id=client_id, extra=kafka.client
        )
        self._consumer = Consumer(settings)
        # Calls of other threads starve while the reading one is in consume(): questions go through a client of their own.
        self._asker = Consumer(settings)
        self._places: list[TopicPartition] = []
        self._lock = threading.Lock()
        self._changes = Changes([], [], [])
        self._snapshots: dict[tuple[str, int], Snapshot] = {}
        self._parts: dict[tuple[str, int], list[Snapshot]] = {}
        self._next: dict[Place, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tables", daemon=True)

    def start(self) -> None:
        """Read to the present ends of the tables, then go on in the background.

        Raises :class:`TransportError` when a topic is missing or the broker does not answer.
        """
        self._places = self._find_places()
        ends = self._ends(self._places)
        self._consumer.assign(self._places)
        while self._behind(ends):
            self._poll(0.2)
        self._thread.start()

    def drain(self) -> Changes:
        """Hand over everything read since the last call."""
        with self._lock:
            changes, self._changes = self._changes, Changes([], [], [])
        return changes

    def snapshot(self, lane: str, partition: int) -> Snapshot | None:
        """Newest snapshot of a lane partition that has been read."""
        with self._lock:
            return self._snapshots.get((lane, partition))

    def catch_up(self, timeout_s: float = 10.0) -> None:
        """Wait until what is in the topics now has been read: after a rebalance, others' snapshots are there."""
        ends = self._ends([tp for tp in self._places if tp.topic == STATE.name])
        waited = threading.Event()
        for _ in range(int(timeout_s / 0.05)):
            if not self._behind(ends):
                return
            waited.wait(0.05)
        log.warning("the state topic was not read to its end within %.0f s; older snapshots are used", timeout_s)

    def close(self) -> None:
        """Stop reading."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(5.0)
        self._consumer.close()
        self._asker.close()

    def _assemble(self, part: Snapshot) -> None:
        """Keep a snapshot once all its parts are here; parts of an older one are dropped."""
        key = (part.lane, part.partition)
        parts = [p for p in self._parts.get(key, []) if p.time_ns == part.time_ns and p.part != part.part]
        parts = sorted([*parts, part], key=lambda p: p.part)
        self._parts[key] = parts
        if len(parts) == part.parts:
            self._snapshots[key] = msgspec.structs.replace(part, state=b"".join(p.state for p in parts))
            del self._parts[key]

    def _find_places(self) -> list[TopicPartition]:
        try:
            known = self._asker.list_topics(timeout=10.0).topics
        except KafkaException as error:
            raise TransportError(f"the broker does not answer: {error}; check kafka.bootstrap") from error
        missing = [t.name for t in TABLES if t.name not in known or not known[t.name].partitions]
        if missing:
            raise TransportError(f"missing topics: {', '.join(missing)}; create them with `flyball topics --create`")
        return [TopicPartition(t.name, p, 0) for t in TABLES for p in known[t.name].partitions]

    def _ends(self, places: list[TopicPartition]) -> dict[Place, int]:
        """Offset after the last message of each partition that has any left."""
        ends: dict[Place, int] = {}
        for tp in places:
            low, high = self._asker.get_watermark_offsets(tp, timeout=10.0)
            if high > low:
                ends[tp.topic, tp.partition] = int(high)
        return ends

    def _behind(self, ends: dict[Place, int]) -> bool:
        with self._lock:
            return any(self._next.get(place, 0) < end for place, end in ends.items())

    def _run(self) -> None:
        while not self._stop.is_set():
            self._poll(0.2)

    def _poll(self, timeout_s: float) -> None:
        for message in self._consumer.consume(500, timeout_s):
            error = message.error()
            if error is not None:
                log.warning("tables: %s", error.str())
                continue
            self._take(message)

    def _take(self, message: KafkaMessage) -> None:
        topic, value = message.topic() or "", message.value()
        with self._lock:
            self._next[topic, message.partition() or 0] = (message.offset() or 0) + 1
        if value is None:
            return  # a tombstone: what it deletes is superseded by its absence at the next start
        incoming = Incoming(
            topic, message.partition() or 0, message.offset() or 0, message.key(), value, _headers(message)
        )
        try:
            record = decode_snapshot(value) if topic == STATE.name else decode_record(topic, value, incoming.headers)
        except DecodeError as error:
            with self._lock:
                self._changes.dead.append(refuse(incoming, "tables", error))
            return
        with self._lock:
            if isinstance(record, Snapshot):
                self._assemble(record)
            elif isinstance(record, Outcome):
                self._changes.outcomes.append(record)
            else:
                self._changes.records.append(record)


def _headers(message: KafkaMessage) -> list[tuple[str, bytes | None]]:
    return cast("list[tuple[str, bytes | None]]", message.headers() or [])
