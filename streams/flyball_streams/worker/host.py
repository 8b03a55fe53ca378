"""The lanes of one process: made when a partition is assigned, stepped, snapshot, dropped.

One thread steps them all. Whatever a step sends is acknowledged by the broker before the step counts as
done, so the source offsets are committed after their effect.
"""

import logging
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from confluent_kafka import KafkaError, Message as KafkaMessage, Producer
from faust.types import TP

from flyball_contracts.codec import Message, snapshot_message
from flyball_contracts.config import Config
from flyball_contracts.errors import DecodeError, TransportError
from flyball_contracts.kafka import producer_settings
from flyball_contracts.kafka_log import ClientLog
from flyball_contracts.topics import DEMAND, EVENTS, INVENTORY, PROPOSALS, STATE, TELEMETRY, WORKLOADS
from flyball_streams.engine.cell import CellLane
from flyball_streams.engine.directory import Directory
from flyball_streams.engine.lane import Incoming, Lane
from flyball_streams.engine.node import NodeLane
from flyball_streams.engine.stats import LaneStats
from flyball_streams.engine.workload import WorkloadLane
from flyball_streams.engine.workload.history import History
from flyball_streams.worker.snapshots import CompressionError, cut, state_of
from flyball_streams.worker.tables import TableReader

log = logging.getLogger(__name__)
ENGINE = "5"
ANY_PARTITION = -1
FLUSH_S = 120.0
LANE_OF = {TELEMETRY.name: "node", EVENTS.name: "node", DEMAND.name: "workload", PROPOSALS.name: "cell"}
Key = tuple[str, int]


class LaneHost:
    """Runs the lanes of the partitions that this process holds."""

    def __init__(
        self,
        config: Config,
        partitions: Mapping[str, int],
        client_id: str,
        histories: Mapping[str, History] | None = None,
    ) -> None:
        self.config = config
        self.histories = histories
        self.partitions = partitions
        self.directory = Directory()
        self.tables = TableReader(config.kafka, client_id)
        self.lanes: dict[Key, Lane] = {}
        self.offsets: dict[Key, dict[str, int]] = {}
        self.progress = 0
        self._snapshot_at: dict[Key, float] = {}
        self._failed: KafkaError | None = None
        self._lock = threading.Lock()
        settings = producer_settings(
            config.kafka.bootstrap, client_id=client_id, linger_ms=2, extra=config.kafka.client
        )
        told = ClientLog(log, "output", config.kafka.bootstrap)
        reports = {"on_delivery": self._failed_to_send, "delivery.report.only.error": True}
        self._producer = Producer({**settings, **reports, "error_cb": told.on_error}, logger=told)

    def start(self) -> None:
        """Read the tables; raises :class:`TransportError` when the broker or a topic is missing."""
        self.tables.start()
        self._fold()

    def resume(self, assigned: Collection[TP]) -> dict[TP, int]:
        """Make the lanes of the assigned partitions and drop the others; where their topics go on.

        A lane that was here all along goes on where it is; a new one takes on its snapshot.
        """
        wanted = {(LANE_OF[tp.topic], tp.partition) for tp in assigned if tp.topic in LANE_OF}
        ends: dict[str, int] = {}
        if wanted - set(self.lanes):  # slow questions are asked before the lanes are locked
            self.tables.catch_up(STATE.name)
            found = self.tables.ends((tp.topic, tp.partition) for tp in assigned)
            ends = {_place(*place): end for place, end in found.items()}
        with self._lock:
            for key in set(self.lanes) - wanted:
                self._drop(key)
            self._fold()
            for key in sorted(wanted - set(self.lanes)):
                self._assign(key, ends)
            return {tp: offset for tp in assigned if (offset := self.offset(tp.topic, tp.partition)) is not None}

    def begin(self, starts: Mapping[TP, int]) -> None:
        """Note where topics that no snapshot spoke of are read from, and leave a snapshot of lanes that had none.

        From then on a restart reads again exactly what is not in a snapshot. Raises :class:`TransportError` when the
        broker does not take it.
        """
        with self._lock:
            fresh: set[Key] = set()
            for tp, start in starts.items():
                key = (LANE_OF[tp.topic], tp.partition)
                if key in self.offsets:
                    fresh |= {key} if not self.offsets[key] else set()
                    self.offsets[key].setdefault(_place(tp.topic, tp.partition), start)
            for key in sorted(fresh):
                self._save(key)
            self._flush()

    def save(self) -> None:
        """Leave a snapshot of every lane for whoever gets its partition next."""
        with self._lock:
            for key in sorted(self.lanes):
                self._save(key)
            self._flush()

    def step(self, batches: Sequence[tuple[TP, Sequence[Incoming]]]) -> None:
        """Step lanes, a batch after the other, and see all that they send acknowledged.

        It is sent together: a lane that reads what several lanes say must not hear one of them alone for long.
        Raises :class:`TransportError` when the broker does not take it, or a lane is not ours: the process must end
        and start again from the committed offsets.
        """
        if any(tp.topic == TELEMETRY.name for tp, _ in batches):
            self.tables.catch_up(INVENTORY.name, WORKLOADS.name)  # frames name them
        with self._lock:
            self._fold()
            messages: list[Message] = []
            keys = [self._step(tp, batch, messages) for tp, batch in batches]
            self._send(messages)
            for key in dict.fromkeys(keys):
                if time.monotonic() - self._snapshot_at[key] >= self.config.worker.snapshot_every_s:
                    self._save(key)
            self._flush()
            self.progress += 1

    def offset(self, topic: str, partition: int) -> int | None:
        """First offset that the lane of a partition has not used, ``None`` before that is known."""
        return self.offsets.get((LANE_OF.get(topic, ""), partition), {}).get(_place(topic, partition))

    def stats(self) -> dict[str, LaneStats]:
        """Counters of each lane, by its name."""
        with self._lock:
            return {self.lanes[key].source: self.lanes[key].stats for key in sorted(self.lanes)}

    def close(self) -> None:
        """Stop reading the tables and see everything sent."""
        self.tables.close()
        self._producer.flush(5.0)

    def _step(self, tp: TP, batch: Sequence[Incoming], messages: list[Message]) -> Key:
        """Step the lane of a partition, whose key is returned; what it says is added to `messages`."""
        key, place = (LANE_OF[tp.topic], tp.partition), _place(tp.topic, tp.partition)
        lane = self.lanes.get(key)
        if lane is None:
            raise TransportError(f"{place} is not assigned to this worker")
        done = self.offsets[key].get(place, 0)
        batch = [message for message in batch if message.offset >= done]
        if batch:
            if batch[0].offset > done:
                log.warning("%s: %d messages are gone", place, batch[0].offset - done)
            messages += lane.step(batch)
            self.offsets[key][place] = batch[-1].offset + 1
        return key

    def _assign(self, key: Key, ends: Mapping[str, int]) -> None:
        lane = self.lanes[key] = self._make(key)
        self.offsets[key] = {}
        self._snapshot_at[key] = time.monotonic()
        snapshot = self.tables.snapshot(self._name(key), key[1])
        if snapshot is None:
            return
        ahead = [place for place, offset in snapshot.offsets.items() if offset > ends.get(place, offset)]
        if snapshot.engine != ENGINE:
            log.warning("snapshot of %s/%d has format %r, not %r: starting fresh", *key, snapshot.engine, ENGINE)
        elif ahead:
            log.warning("snapshot of %s/%d has read further than %s goes: starting fresh", *key, ", ".join(ahead))
        else:
            try:
                lane.restore(state_of(snapshot))
                self.offsets[key] = dict(snapshot.offsets)
                log.info("%s/%d goes on from its snapshot at %s", *key, snapshot.offsets)
            except (DecodeError, KeyError, TypeError, ValueError, CompressionError) as error:
                log.warning("snapshot of %s/%d cannot be used (%s): starting fresh", *key, error)
                self.lanes[key] = self._make(key)

    def _drop(self, key: Key) -> None:
        del self.lanes[key], self.offsets[key], self._snapshot_at[key]

    def _make(self, key: Key) -> Lane:
        name, partition = key
        worker = self.config.worker
        if name == "node":
            return NodeLane(partition, worker, self.directory, self.partitions[DEMAND.name])
        if name == "workload":
            return WorkloadLane(partition, worker, self.directory, self.partitions[DEMAND.name], self.histories)
        return CellLane(partition, worker, self.directory)

    def _name(self, key: Key) -> str:
        """Name of a lane in snapshots: two apps on one Kafka must not take each other's state for theirs."""
        return f"{self.config.worker.app}:{key[0]}"

    def _fold(self) -> None:
        changes = self.tables.drain()
        for record in changes.records:
            self.directory.apply(record)
        for lane in self.lanes.values():
            if isinstance(lane, CellLane):
                for outcome in changes.outcomes:
                    lane.heed(outcome)
        self._send(changes.dead)

    def _save(self, key: Key) -> None:
        self._snapshot_at[key] = time.monotonic()
        try:
            state = self.lanes[key].snapshot()
        except (TypeError, ValueError):  # to decide goes before to be quick after a restart
            log.exception("%s/%d could not take a snapshot: a restart will read its topics again", *key)
            return
        parts = cut(self._name(key), key[1], ENGINE, time.time_ns(), self.offsets[key], state)
        self._send([snapshot_message(part) for part in parts])

    def _send(self, messages: Sequence[Message]) -> None:
        for topic, key, value, headers, partition in messages:
            place = ANY_PARTITION if partition is None else partition
            while True:
                try:
                    self._producer.produce(topic, value, key, place, headers=cast("Any", headers))
                    break
                except BufferError:
                    self._producer.poll(0.1)
        self._producer.poll(0)

    def _flush(self) -> None:
        left = self._producer.flush(FLUSH_S)
        if self._failed is not None or left:
            why = self._failed.str() if self._failed is not None else f"{left} messages were not acknowledged"
            raise TransportError(f"what the lanes sent was not taken by the broker: {why}")

    def _failed_to_send(self, error: KafkaError | None, _message: KafkaMessage) -> None:
        self._failed = error


def _place(topic: str, partition: int) -> str:
    return f"{topic}/{partition}"
