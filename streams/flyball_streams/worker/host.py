"""The lanes of one process: created when a partition is assigned, stepped, saved in snapshots, and dropped.

One thread steps all lanes. The output of a step is acknowledged by the broker first; then the source offsets may be
committed; and a snapshot only contains acknowledged steps. A restored lane continues where its snapshot ends, whatever
was committed. So a snapshot never includes unpublished output, and wherever a worker ends, the messages since the
snapshot are read again and give the same output with the same ids. A Kafka transaction would make the three atomic, but
its readers would see nothing before it ends, it needs three requests to a coordinator in each step, and lanes of two
processes would need two producers. Readers that de-duplicate by id gain nothing from it.

Snapshots are taken when the worker is idle, so that no decision waits for them.
"""

import logging
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from confluent_kafka import KafkaError, KafkaException, Message as KafkaMessage, Producer
from faust.types import TP

from flyball_contracts.codec import Message, snapshot_message
from flyball_contracts.config import Config, KafkaConfig
from flyball_contracts.errors import DecodeError, TransportError
from flyball_contracts.kafka import open_producer, producer_settings
from flyball_contracts.kafka.topic_ids import TopicIds
from flyball_contracts.security.signing import Signer
from flyball_contracts.tables import TABLES
from flyball_contracts.topics import DECISIONS, DEMAND, EVENTS, PROPOSALS, STATE, TELEMETRY, TOPICS
from flyball_streams.engine.cell import CellLane
from flyball_streams.engine.directory import Directory, Tombstone
from flyball_streams.engine.lane import Incoming, Lane
from flyball_streams.engine.node import NodeLane
from flyball_streams.engine.offsets import next_offset
from flyball_streams.engine.parameters import parameters
from flyball_streams.engine.stats import LaneStats
from flyball_streams.engine.workload import WorkloadLane
from flyball_streams.engine.workload.forecast.history import History
from flyball_streams.worker.snapshots import CompressionError, cut, state_of
from flyball_streams.worker.tables import TableReader

log = logging.getLogger(__name__)
ENGINE = "22"
ANY_PARTITION = -1
FLUSH_S = 120.0
REFRESH_S = 20.0
"""Longest wait for tables; a step may wait for two of these, and the watchdog for longer than a step."""
MOST_PATIENCE = 2.0
"""Factor of ``snapshot_every_s`` after which a snapshot is taken even if the worker is busy."""
BACKLOG = 100
"""Lag of a partition in messages from which it counts as a backlog."""
_SOON: dict[str, str] = {"topic.metadata.refresh.interval.ms": "10000"}
"""Producers notice new partitions within this time, so that a cell's decisions go where its actuator is."""
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
        self.parameters = parameters(config.worker)
        self.histories = histories
        self.partitions = partitions
        self.directory = Directory()
        self.tables = TableReader(config.kafka, client_id, config.worker.app)
        self.lanes: dict[Key, Lane] = {}
        self.offsets: dict[Key, dict[str, int]] = {}
        self.topics: dict[Key, dict[str, str]] = {}
        self.ids = TopicIds(config.kafka, LANE_OF)
        self._steps = 0
        self._snapshot_at: dict[Key, float] = {}
        self._unsaved: set[Key] = set()
        self._failed: KafkaError | None = None
        self._lock = threading.Lock()
        key = config.worker.signing_key
        self._signer = Signer(Path(key)) if key else None
        self._producers = {portable: self._open(config.kafka, client_id, portable) for portable in (False, True)}

    def start(self) -> None:
        """Read the tables; raises :class:`TransportError` when the broker or a topic is missing."""
        self.tables.start()
        self._fold()

    def resume(self, assigned: Collection[TP]) -> dict[TP, int]:
        """Create the lanes of newly assigned partitions and drop the others; return the offsets to resume from.

        A lane that stays assigned keeps its state; a new one restores its snapshot. Raises :class:`TransportError` if
        the broker does not say which ids the topics have: snapshots are found by them.
        """
        wanted = {(LANE_OF[tp.topic], tp.partition) for tp in assigned if tp.topic in LANE_OF}
        self.ids.wait_known()  # slow requests are made before the lanes are locked
        ends = self._ends(assigned)
        if wanted - set(self.lanes):  # snapshots of other workers, and the tables as far as those have read
            self.tables.catch_up(STATE.name, *(topic.name for topic in TABLES))
        with self._lock:
            for key in set(self.lanes) - wanted:
                self._drop(key)
            for tp in assigned:
                if (LANE_OF[tp.topic], tp.partition) in self.lanes and self._is_other(tp, ends):
                    self._drop((LANE_OF[tp.topic], tp.partition))
            self._fold()
            for key in sorted(wanted - set(self.lanes)):
                self._assign(key, ends)
            return {tp: offset for tp in assigned if (offset := self.offset(tp.topic, tp.partition)) is not None}

    def begin(self, starts: Mapping[TP, int]) -> None:
        """Note the start offsets of topics that no snapshot covers, and publish snapshots of lanes without one.

        From then on a restart reads exactly the messages that are not in a snapshot. Raises :class:`TransportError` if
        the broker does not accept it.
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
        """Publish a snapshot of every lane for the worker that gets its partition next."""
        with self._lock:
            for key in sorted(self.lanes):
                self._save(key)
            self._flush()

    def refresh_tables(self) -> None:
        """Wait until the tables are read up to their current ends: ticks are decided on that state.

        Call it when messages were fetched, before the step that uses them.
        """
        self.tables.catch_up(*(topic.name for topic in TABLES), timeout_s=REFRESH_S)

    def step(self, batches: Sequence[tuple[TP, Sequence[Incoming]]]) -> None:
        """Step each lane once, through all of its batches, and wait until their output is acknowledged.

        A node lane reads the events of a step before the frames, because the frames may close the events' ticks. The
        output is sent together: a lane that reads several lanes does not see only one of them for long. Raises
        :class:`TransportError` if the broker does not accept it, or a lane is not assigned here: the process must end
        and restart from the committed offsets.
        """
        with self._lock:
            self._fold()
            inputs: dict[Key, list[Incoming]] = {}
            for tp, batch in batches:
                self._take(tp, batch, inputs.setdefault((LANE_OF[tp.topic], tp.partition), []))
            self._send([message for key, batch in inputs.items() if batch for message in self.lanes[key].step(batch)])
            self._flush()
            self._unsaved.update(inputs)
            overdue = self._due(MOST_PATIENCE * self.config.worker.snapshot_every_s)
            for key in overdue:
                self._save(key)
            if overdue:
                self._flush()
            self._steps += 1

    def rest(self) -> bool:
        """Publish the snapshot that has been due for longest, if any; return whether more are due."""
        with self._lock:
            due = self._due(self.config.worker.snapshot_every_s)
            for key in due[:1]:
                self._save(key)
                self._flush()
            return len(due) > 1

    def offset(self, topic: str, partition: int) -> int | None:
        """First offset that the lane of a partition has not used, ``None`` before that is known."""
        return self.offsets.get((LANE_OF.get(topic, ""), partition), {}).get(_place(topic, partition))

    def progress(self) -> int:
        """Return a counter that rises with each tick that a lane closes, and with each step; for any thread.

        A step that takes up a backlog on a busy machine may go on for minutes.
        """
        return self._steps + sum(lane.stats.ticks for lane in list(self.lanes.values()))

    def stats(self) -> dict[str, LaneStats]:
        """Counters of each lane, by its name."""
        with self._lock:
            return {self.lanes[key].source: self.lanes[key].stats for key in sorted(self.lanes)}

    def close(self) -> None:
        """Stop reading the tables, and wait until everything is sent."""
        self.ids.close()
        self.tables.close()
        for producer in self._producers.values():
            producer.flush(5.0)

    def _open(self, kafka: KafkaConfig, client_id: str, portable: bool) -> Producer:
        settings = producer_settings(
            kafka.bootstrap, client_id=client_id, linger_ms=2, portable=portable, extra={**_SOON, **kafka.client}
        )
        reports = {"on_delivery": self._failed_to_send, "delivery.report.only.error": True}
        return open_producer({**settings, **reports}, log, "output")

    def _take(self, tp: TP, batch: Sequence[Incoming], taken: list[Incoming]) -> None:
        """Add the messages of a partition that its lane has not used to those ``taken`` for the lane in this step."""
        key, place = (LANE_OF[tp.topic], tp.partition), _place(tp.topic, tp.partition)
        if key not in self.lanes:
            raise TransportError(f"{place} is not assigned to this worker")
        done = self.offsets[key].get(place, 0)
        if batch[0].offset < done and self._is_other(tp, self._ends([tp])):
            self._restart_lane(key, place, batch[0].offset)
            taken[:] = [message for message in taken if message.topic != tp.topic]  # these are of the deleted topic
            done = batch[0].offset
        batch = [message for message in batch if message.offset >= done]
        if batch:
            if batch[0].offset > done:
                log.warning("%s: %d messages are gone", place, batch[0].offset - done)
            taken += batch
            self.offsets[key][place] = batch[-1].offset + 1

    def ahead(self, lags: Mapping[TP, int]) -> set[TP]:
        """Telemetry partitions to pause, by the ``lags`` of all partitions in messages.

        Lanes wait for each other, and the output of those in front is buffered meanwhile. So in a backlog no partition
        is read further ahead of the slowest one with a backlog than the lanes' lateness, which bounds the buffers. A
        cell that has ended in a partition which goes on with other cells does not count: two partitions in which
        different cells have ended would wait for each other for ever.
        """
        slow: dict[str, int] = {}
        reached: list[tuple[TP, str, int]] = []
        with self._lock:
            for tp, lag in lags.items():
                lane = self.lanes.get(("node", tp.partition))
                if tp.topic != TELEMETRY.name or not isinstance(lane, NodeLane):
                    continue
                ends_ns = {cell: lane.reached(cell) or 0 for cell in lane.intake.cells}
                newest_ns = max(ends_ns.values(), default=0)
                for cell, at_ns in ends_ns.items():
                    period_ns = lane.intake.cells[cell].gate.period_ns
                    lateness_ns = self.parameters.lane_lateness_ticks(period_ns) * period_ns
                    reached.append((tp, cell, at_ns - lateness_ns))
                    if lag > BACKLOG and at_ns >= newest_ns - lateness_ns:
                        slow[cell] = min(at_ns, slow.get(cell, at_ns))
        return {tp for tp, cell, least_ns in reached if least_ns > slow.get(cell, least_ns)}

    def changed(self) -> set[str]:
        """Source topics that were deleted and recreated since our lanes read them; may query the broker."""
        now = self.ids.now()
        with self._lock:
            known = {name: topic_id for topics in self.topics.values() for name, topic_id in topics.items()}
        return {name for name, topic_id in known.items() if now.get(name, topic_id) != topic_id}

    def _ends(self, places: Collection[TP]) -> dict[str, int]:
        found = self.tables.ends((tp.topic, tp.partition) for tp in places)
        return {_place(*place): end for place, end in found.items()}

    def _is_other(self, tp: TP, ends: Mapping[str, int]) -> bool:
        """Whether a partition is not the one that its lane has read: it ends earlier, or its topic has another id."""
        key, place = (LANE_OF[tp.topic], tp.partition), _place(tp.topic, tp.partition)
        done, then = self.offsets[key].get(place, 0), self.topics[key].get(tp.topic)
        now = self.ids.now(refresh=True).get(tp.topic, then)
        other = ends.get(place, done) < done or (then is not None and now != then)  # an upgraded broker gains ids
        if other:
            log.warning("%s was made again or lost messages: %s begins again with what is there now", place, key[0])
        return other

    def _restart_lane(self, key: Key, place: str, first: int) -> None:
        """Restart a lane at the beginning of a recreated topic; its other topic resumes if it is unchanged."""
        then, now = self.topics[key], self._topics(key)
        known = self.offsets[key].items()
        same = {at: n for at, n in known if then.get(topic := at.rpartition("/")[0]) == now.get(topic)}
        offsets = {**dict.fromkeys(self.offsets[key], 0), **same, place: first}
        self._drop(key)
        self.lanes[key], self.offsets[key], self.topics[key] = self._make(key), offsets, self._topics(key)
        self._snapshot_at[key] = time.monotonic()

    def _topics(self, key: Key) -> dict[str, str]:
        now = self.ids.now()
        return {topic: now[topic] for topic, lane in LANE_OF.items() if lane == key[0] and topic in now}

    def _assign(self, key: Key, ends: Mapping[str, int]) -> None:
        lane = self.lanes[key] = self._make(key)
        self.offsets[key], self.topics[key] = {}, self._topics(key)
        self._snapshot_at[key] = time.monotonic()
        snapshot = self.tables.snapshot(self._name(key), key[1], self.topics[key])
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
            except (DecodeError, KeyError, TypeError, ValueError, MemoryError, CompressionError) as error:
                log.warning("snapshot of %s/%d cannot be used (%s): starting fresh", *key, error)
                self.lanes[key] = self._make(key)

    def _due(self, age_s: float) -> list[Key]:
        """Lanes with new input since their last snapshot, if that is at least this old; the oldest first."""
        now_s = time.monotonic()
        due = [key for key in self._unsaved if now_s - self._snapshot_at[key] >= age_s]
        return sorted(due, key=lambda key: (self._snapshot_at[key], key))

    def _drop(self, key: Key) -> None:
        self._unsaved.discard(key)
        del self.lanes[key], self.offsets[key], self.topics[key], self._snapshot_at[key]

    def _make(self, key: Key) -> Lane:
        name, partition = key
        worker, demand, telemetry = self.parameters, self.partitions[DEMAND.name], self.partitions[TELEMETRY.name]
        if name == "node":
            return NodeLane(partition, worker, self.directory, demand, node_partitions=telemetry)
        if name == "workload":
            return WorkloadLane(partition, worker, self.directory, demand, self.histories, telemetry)
        return CellLane(partition, worker, self.directory, demand)

    def _name(self, key: Key) -> str:
        """Name of a lane in snapshots: two apps on one Kafka must not restore each other's state."""
        return f"{self.config.worker.app}:{key[0]}"

    def _fold(self) -> None:
        changes = self.tables.drain()
        for topic, partition, offset, change in changes.rows:
            if offset < next_offset(self.directory.offsets, topic, partition):  # the topic was recreated
                self.directory.read(topic, partition, offset)
            if isinstance(change, Tombstone):
                self.directory.forget(topic, change.key, partition, offset)
            else:
                self.directory.apply(change, partition, offset)
        for (topic, partition), offset in changes.following.items():
            self.directory.read(topic, partition, offset)
        self._send(changes.dead)

    def _save(self, key: Key) -> None:
        self._snapshot_at[key] = time.monotonic()
        self._unsaved.discard(key)
        try:
            state = self.lanes[key].snapshot()
            parts = cut(self._name(key), key[1], ENGINE, time.time_ns(), self.offsets[key], state, self.topics[key])
        except (TypeError, ValueError):  # decisions matter more than a quick restart
            log.exception("%s/%d could not take a snapshot: a restart will read its topics again", *key)
            return
        self._send([snapshot_message(part) for part in parts])

    def _send(self, messages: Sequence[Message]) -> None:
        for topic, key, value, headers, partition in messages:
            place = ANY_PARTITION if partition is None else partition
            producer = self._producers[TOPICS[topic].portable]
            sent = headers
            if self._signer is not None and topic == DECISIONS.name:
                sent = [*headers, self._signer.header(topic, value)]
            while True:
                try:
                    producer.produce(topic, value, key, place, headers=cast("Any", sent))
                    break
                except BufferError:
                    producer.poll(0.1)
                except KafkaException as error:
                    raise _not_taken(error.args[0].str()) from error
        for producer in self._producers.values():
            producer.poll(0)

    def _flush(self) -> None:
        left = sum(producer.flush(FLUSH_S) for producer in self._producers.values())
        if self._failed is not None or left:
            why = self._failed.str() if self._failed is not None else f"{left} messages were not acknowledged"
            raise _not_taken(why)

    def _failed_to_send(self, error: KafkaError | None, _message: KafkaMessage) -> None:
        self._failed = error


def _place(topic: str, partition: int) -> str:
    return f"{topic}/{partition}"


def _not_taken(why: str) -> TransportError:
    return TransportError(f"what the lanes sent was not taken by the broker: {why}")
