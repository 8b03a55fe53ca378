"""The lanes of one process: made when a partition is assigned, stepped, snapshot, dropped.

One thread steps them all. Whatever a step sends is acknowledged by the broker before the step counts as
done, so the source offsets are committed after their effect.
"""

import logging
import threading
import time
import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from confluent_kafka import KafkaError, Message as KafkaMessage, Producer
from faust.types import TP

from flyball_contracts.codec import Message, snapshot_message
from flyball_contracts.config import Config
from flyball_contracts.errors import DecodeError, TransportError
from flyball_contracts.kafka import producer_settings
from flyball_contracts.records import Snapshot
from flyball_contracts.topics import DEMAND, EVENTS, PROPOSALS, TELEMETRY
from flyball_streams.engine.cell import CellLane
from flyball_streams.engine.directory import Directory
from flyball_streams.engine.lane import Incoming, Lane
from flyball_streams.engine.node import NodeLane
from flyball_streams.engine.stats import LaneStats
from flyball_streams.engine.workload import WorkloadLane
from flyball_streams.worker.tables import TableReader

log = logging.getLogger(__name__)
ENGINE = "1"
ANY_PARTITION = -1
PART_BYTES = 512 * 1024
LANE_OF = {TELEMETRY.name: "node", EVENTS.name: "node", DEMAND.name: "workload", PROPOSALS.name: "cell"}
Key = tuple[str, int]


class LaneHost:
    """Runs the lanes of the partitions that this process holds."""

    def __init__(self, config: Config, partitions: Mapping[str, int], client_id: str) -> None:
        self.config = config
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
        self._producer = Producer({**settings, "on_delivery": self._delivered})

    def start(self) -> None:
        """Read the tables; raises :class:`TransportError` when the broker or a topic is missing."""
        self.tables.start()
        self._fold()

    def resume(self, assigned: Collection[TP]) -> dict[TP, int]:
        """Make the lanes of the assigned partitions and drop the others; where their topics go on.

        A lane that was here all along goes on where it is; a new one takes on its snapshot.
        """
        with self._lock:
            wanted = {(LANE_OF[tp.topic], tp.partition) for tp in assigned if tp.topic in LANE_OF}
            for key in set(self.lanes) - wanted:
                del self.lanes[key], self.offsets[key]
            fresh = sorted(wanted - set(self.lanes))
            if fresh:
                self.tables.catch_up()
                self._fold()
            for key in fresh:
                self._assign(key)
            places: dict[TP, int] = {}
            for tp in assigned:
                key = (LANE_OF.get(tp.topic, ""), tp.partition)
                offset = self.offsets.get(key, {}).get(_place(tp.topic, tp.partition))
                if offset is not None:
                    places[tp] = offset
            return places

    def revoke(self) -> None:
        """Leave a snapshot of every lane for whoever gets its partition next."""
        with self._lock:
            for key in sorted(self.lanes):
                self._save(key)
            self._flush()

    def step(self, topic: str, partition: int, batch: Sequence[Incoming]) -> None:
        """Step one lane and see what it sent acknowledged.

        Raises :class:`TransportError` when the broker does not take it: the process must end and start again
        from the committed offsets.
        """
        key = (LANE_OF[topic], partition)
        with self._lock:
            self._fold()
            lane = self.lanes.get(key)
            if lane is None:
                self._assign(key)
                lane = self.lanes[key]
            done = self.offsets[key].get(_place(topic, partition), 0)
            batch = [message for message in batch if message.offset >= done]
            if batch:
                self._send(lane.step(batch))
                self.offsets[key][_place(topic, partition)] = batch[-1].offset + 1
            self.progress += 1
            if time.monotonic() - self._snapshot_at[key] >= self.config.worker.snapshot_every_s:
                self._save(key)
            self._flush()

    def offset(self, topic: str, partition: int) -> int | None:
        """First offset that the lane of a partition has not used, ``None`` before it used any."""
        return self.offsets.get((LANE_OF.get(topic, ""), partition), {}).get(_place(topic, partition))

    def stats(self) -> dict[str, LaneStats]:
        """Counters of each lane, by its name."""
        with self._lock:
            return {self.lanes[key].source: self.lanes[key].stats for key in sorted(self.lanes)}

    def close(self) -> None:
        """Stop reading the tables and see everything sent."""
        self.tables.close()
        self._producer.flush(10.0)

    def _assign(self, key: Key) -> None:
        self.lanes[key], self.offsets[key] = self._make(key), {}
        self._snapshot_at[key] = time.monotonic()
        snapshot = self.tables.snapshot(*key)
        if snapshot is None:
            return
        if snapshot.engine != ENGINE:
            log.warning("snapshot of %s/%d has format %r, not %r: starting fresh", *key, snapshot.engine, ENGINE)
            return
        try:
            self.lanes[key].restore(zlib.decompress(snapshot.state))
            self.offsets[key] = dict(snapshot.offsets)
        except (DecodeError, KeyError, TypeError, ValueError, zlib.error) as error:
            log.warning("snapshot of %s/%d cannot be used (%s): starting fresh", *key, error)
            self.lanes[key] = self._make(key)

    def _make(self, key: Key) -> Lane:
        name, partition = key
        worker = self.config.worker
        if name == "node":
            return NodeLane(partition, worker, self.directory, self.partitions[DEMAND.name])
        if name == "workload":
            return WorkloadLane(partition, worker, self.directory, self.partitions[DEMAND.name])
        return CellLane(partition, worker, self.directory)

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
        state = zlib.compress(self.lanes[key].snapshot(), 1)  # padded arrays are mostly empty
        parts = [state[i : i + PART_BYTES] for i in range(0, len(state), PART_BYTES)]
        now_ns = time.time_ns()
        for i, part in enumerate(parts):
            snapshot = Snapshot(
                lane=key[0],
                partition=key[1],
                engine=ENGINE,
                time_ns=now_ns,
                offsets=self.offsets[key],
                state=part,
                part=i,
                parts=len(parts),
            )
            self._send([snapshot_message(snapshot)])

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
        left = self._producer.flush(120.0)
        if self._failed is not None or left:
            why = self._failed.str() if self._failed is not None else f"{left} messages were not acknowledged"
            raise TransportError(f"what the lanes sent was not taken by the broker: {why}")

    def _delivered(self, error: KafkaError | None, _message: KafkaMessage) -> None:
        if error is not None:
            self._failed = error


def _place(topic: str, partition: int) -> str:
    return f"{topic}/{partition}"
