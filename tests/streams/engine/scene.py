"""Small cells for the engine's tests: nodes, frames, and what came out of a feed."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.cloudevents import header
from flyball_contracts.codec import Message, decode_record, frame_message, record_message
from flyball_contracts.frame import make_frame
from flyball_contracts.metrics import GPU, HOST, WORKLOAD
from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import (
    Allocation,
    Demand,
    DemandTick,
    Device,
    Inventory,
    Proposal,
    ProposalTick,
    Record,
    Tick,
    WorkloadSpec,
)
from flyball_contracts.topics import DEAD_LETTERS, TELEMETRY, TOPICS
from flyball_streams.engine import Directory, Engine, Incoming
from flyball_streams.engine.node.detector import CellTick
from flyball_streams.engine.node.table import SubjectTable
from flyball_streams.engine.node.tenancy import Tenancy
from flyball_streams.engine.parameters import ForecastParameters, Parameters

PERIOD_NS = 1_000_000_000
FIRST = 1_750_000_000
"""Tick of the first frames, so that times look like times."""
START_NS = FIRST * PERIOD_NS
ONE = dict.fromkeys(TOPICS, 1)
FORECAST = ForecastParameters(horizon_ticks=4, lead_ticks=2, trust_after_ticks=8, publish_every_ticks=1)
CONFIG = Parameters(lateness_ticks=2, max_ahead_ticks=20, forecast=FORECAST)
"""One small horizon for all tests: each other one costs a compilation."""
CELL = "cell-1"
R = TypeVar("R", bound=Record)
Floats = NDArray[np.float32]


def incoming(message: Message, partitions: Mapping[str, int] = ONE) -> Incoming:
    place = partition_of(message.key, partitions[message.topic]) if message.partition is None else message.partition
    return Incoming(message.topic, place, 0, message.key, message.value, message.headers)


def incoming_records(*records: Record) -> list[Incoming]:
    """Records as incoming messages."""
    return [incoming(record_message(record, "/test")) for record in records]


def spec(workload: str, **changes: Any) -> WorkloadSpec:
    given: dict[str, Any] = {"cell": CELL, "time_ns": START_NS, "kind": "inference", "max_replicas": 8}
    return WorkloadSpec(workload=workload, **(given | changes))


def tick(index: int) -> Tick:
    return Tick(index=FIRST + index, period_ns=PERIOD_NS)


def inventory(node: str, gpus: int = 2, allocations: Sequence[Allocation] = (), **changes: Any) -> Inventory:
    devices = tuple(Device(id=f"{node}/{i}", model="h100", memory_bytes=80) for i in range(gpus))
    given: dict[str, Any] = {"cell": CELL, "epoch": 1, "time_ns": START_NS, "boot_id": "boot-1", "devices": devices}
    return Inventory(node=node, allocations=tuple(allocations), **(given | changes))


def cell_tick(
    at: Tick, gpus: SubjectTable | None = None, hosts: SubjectTable | None = None, *nodes: Inventory, rate: float = 0.0
) -> CellTick:
    """What a detector sees of a tick without events; ``rate`` is the budget of a node, per second."""
    devices, inventories = gpus or SubjectTable(GPU), {node.node: node for node in nodes}
    return CellTick(
        cell=CELL, tick=at, gpus=devices, hosts=hosts or SubjectTable(HOST),
        tenancy=Tenancy(inventories, devices.slots, devices.capacity), directory=Directory(), inventories=inventories,
        events=[], usage=[], node_rate=rate,
    )  # fmt: skip


class Values(NamedTuple):
    """What the sensors of a node show, by metric key; the same for all rows of a frame unless it is an array."""

    gpu: Mapping[str, float | Floats] = {}
    host: Mapping[str, float | Floats] = {}
    workload: Mapping[str, float | Floats] = {}


class Agent:
    """Makes the frames of one node as its agent would, for ticks of ``period_s`` seconds; indices count seconds."""

    def __init__(self, node: Inventory, *, epoch: int = 1, period_s: int = 1) -> None:
        self.inventory = node
        self.epoch = epoch
        self.period_s = period_s
        self.seq = 0

    def frames(
        self, index: int, values: Values | None = None, *, schemas: Sequence[int] = (1, 2, 3), seq: int | None = None
    ) -> list[Incoming]:
        """Frames of one tick, counted from :data:`FIRST`."""
        values = values or Values({"hw.power": 100.0}, {"system.cpu.utilization": 0.5})
        held = self.inventory
        made: list[Incoming] = []
        for layout, rows, shown in (
            (GPU, len(held.devices), values.gpu),
            (HOST, 1, values.host),
            (WORKLOAD, len(held.allocations), values.workload),
        ):
            if layout.schema not in schemas:
                continue
            block = np.full((rows, len(layout)), np.nan, np.float32)
            for key, value in shown.items():
                block[:, layout.column(key)] = value
            made.append(self.frame(index, block, layout.schema, self.seq if seq is None else seq))
            self.seq += 1
        return made

    def frame(self, index: int, block: Floats, schema: int, seq: int, **changes: Any) -> Incoming:
        given: dict[str, Any] = {
            "node": self.inventory.node,
            "boot_id": self.inventory.boot_id,
            "epoch": self.epoch,
            "seq": seq,
            "time_ns": (FIRST + index) * PERIOD_NS,
            "period_ns": self.period_s * PERIOD_NS,
            "inventory_epoch": self.inventory.epoch,
        }
        return incoming(frame_message(make_frame(block, schema=schema, **(given | changes))))


class Out(NamedTuple):
    """What the lanes sent."""

    messages: list[Message]

    def of(self, kind: type[R]) -> list[R]:
        """Records of one type, in order."""
        wanted = [m for m in self.messages if header(m.headers, "ce_type") == f"io.flyball.{kind.__name__}"]
        found = [decode_record(m.topic, m.value, m.headers) for m in wanted]
        return [record for record in found if isinstance(record, kind)]

    def demands(self) -> list[Demand]:
        """Demand of each workload from the node lanes, in order."""
        return [demand for published in self.of(DemandTick) for demand in published.demands]

    def proposals(self) -> list[Proposal]:
        """Proposals of the lanes, in order."""
        return [proposal for published in self.of(ProposalTick) for proposal in published.proposals]

    def refusals(self) -> list[str]:
        """Why messages went to the dead-letter topic."""
        name = "__connect.errors.exception.message"
        return [header(m.headers, name) or "?" for m in self.messages if m.topic == DEAD_LETTERS.name]


class Cell:
    """An engine with one partition of everything, and the agents of some nodes."""

    def __init__(self, *nodes: Inventory, records: Iterable[Record] = (), config: Parameters = CONFIG) -> None:
        self.engine = Engine(config, ONE)
        self.agents = [Agent(node) for node in nodes]
        self.engine.feed(incoming_records(*nodes, *records))

    def feed(self, batch: Sequence[Incoming]) -> Out:
        return Out(self.engine.feed(batch))

    def run(self, first: int, count: int, values: Values | None = None) -> Out:
        """Ticks of all nodes, one after the other."""
        return Out(
            [
                message
                for index in range(first, first + count)
                for message in self.engine.feed([f for agent in self.agents for f in agent.frames(index, values)])
            ]
        )

    @property
    def stats(self) -> Any:
        """Counters of the node lane."""
        return self.engine.stats()["node/0"]


def telemetry(value: bytes | None) -> Incoming:
    return Incoming(TELEMETRY.name, 0, 7, b"node-1", value, [])
