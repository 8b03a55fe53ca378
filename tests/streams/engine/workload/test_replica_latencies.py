"""Replicas that answer late or not at all are named across node lanes, from frames to the incident."""

import copy
from collections.abc import Mapping
from functools import cache

import numpy as np
from tests.streams.engine.scene import CELL, ONE, Out, incoming, incoming_records, inventory, spec

from flyball_contracts.codec import frame_message
from flyball_contracts.config import HealthConfig
from flyball_contracts.frame import make_frame
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.metrics import GPU, WORKLOAD
from flyball_contracts.records import Allocation, Anomaly, Demand, Incident, Inventory, Latencies, Tick
from flyball_streams.engine import Directory, Engine, Incoming
from flyball_streams.engine.packing import pack, unpack
from flyball_streams.engine.parameters import Parameters
from flyball_streams.engine.workload.merge import merge
from flyball_streams.engine.workload.replica_latencies import GONE_NS, ReplicaLatencies

MINUTE_NS, COUNT = 60 * NS_PER_S, 12
FIRST = 1_750_000_000 // 60
NAMES = tuple(f"chat-{i}" for i in range(COUNT))


def tick(minute: int) -> Tick:
    return Tick(index=FIRST + minute, period_ns=MINUTE_NS)


def node(row: int, gpus: int = 1) -> Inventory:
    return inventory(f"node-{row:02d}", gpus, [Allocation(workload="chat", replica=NAMES[row], devices=(gpus - 1,))])


class Service:
    """Replicas of one service, each on its node, of which two lanes see one half each."""

    def __init__(self, spread: float = 0.05) -> None:
        self.directory = Directory()
        for row in range(COUNT):
            self.directory.apply(node(row, 2))
        self.lane = ReplicaLatencies(CELL, HealthConfig(), self.directory)
        self.random, self.spread, self.minute = np.random.default_rng(1), spread, 0
        self.names: dict[int, str] = {}
        self.by_request = -1

    def run(
        self, minutes: int, factors: Mapping[int, float] | None = None, per: str = "request", without: int = -1
    ) -> list[Anomaly]:
        """Anomalies; the latency of some replicas is multiplied, NaN for no answer. ``without``: one that is gone."""
        found: list[Anomaly] = []
        for _ in range(minutes):
            values = 0.5 * np.exp(self.spread * self.random.standard_normal(COUNT))
            for row, factor in (factors or {}).items():
                values[row] *= factor
            shown = [float(x) if np.isfinite(x) else None for x in values]
            parts = {f"node/{lane}": {"chat": self._demand(lane, shown, per, without)} for lane in range(2)}
            found += self.lane.step(tick(self.minute), merge(parts))
            self.minute += 1
        return found

    def again(self) -> None:
        """Go on from a snapshot."""
        state = self.lane.state()
        self.lane = ReplicaLatencies(CELL, HealthConfig(), self.directory)
        self.lane.load(unpack(pack(state)))

    def _demand(self, lane: int, shown: list[float | None], per: str, without: int) -> Demand:
        rows = [row for row in range(lane, COUNT, 2) if row != without]
        others = [row for row in rows if row == self.by_request]
        parts = tuple(
            Latencies(
                replicas=tuple(self.names.get(row, NAMES[row]) for row in of),
                nodes=tuple(f"node-{row:02d}" for row in of),
                latency_s=tuple(shown[row] for row in of),
                requests=(3.0,) * len(of),
                model="h100",
                per="output_token" if per == "output_token" and of is not others else "request",
            )
            for of in (others, [row for row in rows if row not in others])
            if of
        )
        return Demand("chat", len(rows), len(rows), len(rows), latencies=parts)


@cache
def _learned(per: str) -> Service:
    service = Service()
    assert service.run(120, per=per) == []
    return service


def learned(per: str = "request") -> Service:
    """A service of which the lane has seen two hours in which nothing happened."""
    return copy.deepcopy(_learned(per))


def test_a_slow_replica_is_named_with_its_gpu_and_by_how_much() -> None:
    service = learned()
    first, *_ = found = service.run(30, {4: 1.25})
    assert {a.subject for a in found} == {"node-04/1"}  # its GPU, not the other one of the node
    assert (first.detector, first.node, first.workload) == ("slow_answers", "node-04", "chat")
    latency, slower, requests = first.evidence
    assert (latency.name, slower.name, requests.value) == (
        "flyball.workload.latency{stat=mean}", "slow_answers.slower", 3.0,
    )  # fmt: skip
    assert latency.expected is not None
    assert abs(latency.expected - 0.5) < 0.05
    assert abs(slower.value - 0.25) < 0.05
    assert first.since_ns is not None
    assert abs(first.since_ns - tick(119).end_ns) <= 3 * MINUTE_NS
    assert first.time_ns - tick(119).end_ns <= 15 * MINUTE_NS
    assert first.false_per_1000_gpu_days is not None
    assert first.false_per_1000_gpu_days <= 0.05


def test_a_replica_that_answers_nothing_while_the_others_do_is_named() -> None:
    service = learned()
    first, *_ = found = service.run(30, {4: np.nan})
    assert {(a.detector, a.subject) for a in found} == {("no_answers", "node-04/1")}
    assert [(e.name, e.value) for e in first.evidence][1:] == [("flyball.workload.request.active", 3.0)]
    assert first.time_ns - tick(119).end_ns <= 15 * MINUTE_NS


def test_output_tokens_are_named_where_they_are_compared() -> None:
    service = learned("output_token")
    found = service.run(30, {4: 1.5}, per="output_token")
    assert {a.evidence[0].name for a in found} == {"gen_ai.server.time_per_output_token{stat=mean}"}


def test_a_replica_that_answers_in_another_way_is_not_missed() -> None:
    service = learned("output_token")
    service.by_request = 4
    assert service.run(60, per="output_token") == []


def test_a_snapshot_changes_nothing() -> None:
    whole, cut = Service(0.2), Service(0.2)
    expected = whole.run(120) + whole.run(60, {4: 1.8, 7: np.nan})
    found = cut.run(70)
    cut.again()
    found += cut.run(50) + cut.run(20, {4: 1.8, 7: np.nan})
    cut.again()
    found += cut.run(40, {4: 1.8, 7: np.nan})
    assert found == expected
    assert {a.detector for a in found} == {"slow_answers", "no_answers"}


def test_a_replica_that_is_gone_is_not_missed_and_its_slot_is_freed() -> None:
    service = learned()
    assert service.run(GONE_NS // MINUTE_NS + 30, without=4) == []
    service.names = {5: "chat-new"}
    assert service.run(1) == []  # it is back, in the minute in which another one has come
    assert service.run(GONE_NS // MINUTE_NS + 30) == []
    service.names = {5: "chat-newer"}
    assert service.run(1) == []
    slots = service.lane.known.values()
    assert sorted(slots) == sorted(set(slots))
    assert {replica for _, replica, _ in service.lane.known} == {*NAMES, "chat-new", "chat-newer"} - {NAMES[5]}


def test_a_replica_without_a_gpu_is_named_by_its_node() -> None:
    service = Service()
    for row in range(COUNT):
        held = Allocation(workload="chat", replica=NAMES[row], devices=())
        service.directory.apply(inventory(f"node-{row:02d}", 0, [held], epoch=2))
    service.run(120)
    assert {(a.subject, a.node, a.workload) for a in service.run(30, {4: 2.0})} == {("node-04", "node-04", "")}


class Nodes:
    """Agents of a service with a GPU for each replica, and a worker's engine, at a tick a minute."""

    def __init__(self) -> None:
        self.nodes = [node(row) for row in range(COUNT)]
        self.engine = Engine(Parameters(), ONE)
        self.engine.feed(incoming_records(*self.nodes, spec("chat", min_replicas=COUNT, max_replicas=COUNT)))
        self.random, self.minute, self.seq = np.random.default_rng(6), 0, 0

    def run(self, minutes: int, factors: Mapping[int, float] | None = None) -> list[Incident]:
        """Incidents; the latency of some replicas is multiplied."""
        messages = list[Incoming]()
        out: list[Incident] = []
        for _ in range(minutes):
            messages.clear()
            for row, one in enumerate(self.nodes):
                gpu, workload = (np.full((1, len(layout)), np.nan, np.float32) for layout in (GPU, WORKLOAD))
                gpu[0, GPU.column("hw.gpu.utilization{task=general}")] = 0.6
                latency_s = 0.5 * float(np.exp(0.05 * self.random.standard_normal())) * (factors or {}).get(row, 1.0)
                for key, value in (("latency{stat=mean}", latency_s), ("request.active", 4.0), ("ready", 1.0)):
                    workload[0, WORKLOAD.column(f"flyball.workload.{key}")] = value
                for layout, block in ((GPU, gpu), (WORKLOAD, workload)):
                    self.seq += 1
                    messages.append(
                        incoming(
                            frame_message(
                                make_frame(
                                    block, schema=layout.schema, node=one.node, boot_id=one.boot_id, epoch=1,
                                    seq=self.seq, time_ns=tick(self.minute).end_ns - MINUTE_NS, period_ns=MINUTE_NS,
                                    inventory_epoch=one.epoch,
                                )
                            )
                        )
                    )  # fmt: skip
            self.minute += 1
            out += Out(self.engine.feed(messages)).of(Incident)
        return out


def test_from_the_frames_to_one_incident_at_the_slow_gpu() -> None:
    fleet = Nodes()
    assert fleet.run(90) == []
    found = fleet.run(30, {4: 1.4})
    (one,) = {i.id: i for i in found}.values()
    assert (one.node, one.device, one.workload, one.level) == ("node-04", "node-04/0", "chat", "gpu")
    assert one.summary == "GPU 0 of node-04: unknown cause, by slow_answers"
