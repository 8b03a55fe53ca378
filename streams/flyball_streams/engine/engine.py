"""All lanes in one process, connected by queues instead of topics."""

from collections import Counter, deque
from collections.abc import Mapping, Sequence

from flyball_contracts.codec import Message, decode_record
from flyball_contracts.config import WorkerConfig
from flyball_contracts.errors import DecodeError
from flyball_contracts.partitioner import partition_of
from flyball_contracts.tables import TABLES
from flyball_contracts.topics import DEMAND, EVENTS, PROPOSALS, TELEMETRY, TOPICS
from flyball_streams.engine.cell import CellLane
from flyball_streams.engine.directory import Directory
from flyball_streams.engine.lane import Incoming, Lane, refuse
from flyball_streams.engine.node import NodeLane
from flyball_streams.engine.offsets import next_offset
from flyball_streams.engine.parameters import parameters
from flyball_streams.engine.stats import LaneStats
from flyball_streams.engine.workload import WorkloadLane
from flyball_streams.engine.workload.forecast.history import History

TABLE_TOPICS = {topic.name for topic in TABLES}
NODE_TOPICS = {TELEMETRY.name, EVENTS.name}


class Engine:
    """Passes messages through the node, workload and cell lanes of every partition.

    ``partitions`` overrides the partition counts of :data:`TOPICS`. ``histories`` are initial histories of demand for
    the forecasters, by cell. The same messages in the same batches give the same output to the byte: the engine has no
    clock, no random source and no thread.
    """

    def __init__(
        self,
        config: WorkerConfig,
        partitions: Mapping[str, int] | None = None,
        histories: Mapping[str, History] | None = None,
    ) -> None:
        config = self.config = parameters(config)
        self.partitions = {name: topic.partitions for name, topic in TOPICS.items()} | dict(partitions or {})
        self.directory = Directory()
        self.nodes: dict[int, NodeLane] = {}
        self.workloads = [
            WorkloadLane(
                p, config, self.directory, self.partitions[DEMAND.name], histories, self.partitions[TELEMETRY.name]
            )
            for p in range(self.partitions[DEMAND.name])
        ]
        self.cells = [
            CellLane(p, config, self.directory, self.partitions[DEMAND.name])
            for p in range(self.partitions[PROPOSALS.name])
        ]
        self._offsets: Counter[tuple[str, int]] = Counter()

    def feed(self, batch: Sequence[Incoming]) -> list[Message]:
        """Process source messages in order; return all messages that the lanes send, in order, with dead letters."""
        sent: list[Message] = []
        queue = deque(self.measure(batch))
        while queue:
            inbox: dict[tuple[str, int], list[Incoming]] = {}
            for out in queue:
                sent.append(out)
                if out.topic in (DEMAND.name, PROPOSALS.name):
                    incoming = self._deliver(out)
                    inbox.setdefault((incoming.topic, incoming.partition), []).append(incoming)
            queue.clear()
            for (topic, partition), messages in sorted(inbox.items()):
                lanes: Sequence[Lane] = self.workloads if topic == DEMAND.name else self.cells
                queue += lanes[partition].step(messages)
        return sent

    def measure(self, batch: Sequence[Incoming]) -> list[Message]:
        """Process source messages by the node lanes alone; return what these send, in order, with dead letters."""
        sent: list[Message] = []
        by_partition: dict[int, list[Incoming]] = {}
        for message in batch:
            if message.topic in TABLE_TOPICS:
                sent += self._table(message)
            elif message.topic in NODE_TOPICS:
                by_partition.setdefault(message.partition, []).append(message)
        for partition, messages in sorted(by_partition.items()):
            lane = self._node(partition)
            lane.offsets = self.directory.offsets  # this lane is never restored after a crash
            sent += lane.step(messages)
        return sent

    def stats(self) -> dict[str, LaneStats]:
        """Counters of each lane, by its source name."""
        nodes = [self.nodes[p] for p in sorted(self.nodes)]
        lanes: list[Lane] = [*nodes, *self.workloads, *self.cells]
        return {lane.source: lane.stats for lane in lanes}

    def _node(self, partition: int) -> NodeLane:
        lane = self.nodes.get(partition)
        if lane is None:
            lane = NodeLane(
                partition,
                self.config,
                self.directory,
                self.partitions[DEMAND.name],
                node_partitions=self.partitions[TELEMETRY.name],
            )
            self.nodes[partition] = lane
        return lane

    def _table(self, message: Incoming) -> list[Message]:
        # Recordings are ordered by time: a record that comes later than its offset suggests counts from then on.
        offset = max(message.offset, next_offset(self.directory.offsets, message.topic, message.partition))
        if message.value is None:
            key = (message.key or b"").decode(errors="replace")
            self.directory.forget(message.topic, key, message.partition, offset)
            return []
        try:
            record = decode_record(message.topic, message.value, message.headers)
        except DecodeError as error:
            return [refuse(message, "tables", error)]
        self.directory.apply(record, message.partition, offset)
        return []

    def _deliver(self, message: Message) -> Incoming:
        partition = message.partition
        if partition is None:
            partition = partition_of(message.key, self.partitions[message.topic])
        place = (message.topic, partition)
        offset = self._offsets[place]
        self._offsets[place] += 1
        return Incoming(message.topic, partition, offset, message.key, message.value, message.headers)
