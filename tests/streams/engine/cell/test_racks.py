"""Several nodes of a rack or leaf switch with one cause are one incident, and nodes that fall silent are told why."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.streams.engine.cell.arbiter_harness import move
from tests.streams.engine.incident_harness import IncidentHarness, nodes, silence, symptom
from tests.streams.engine.scene import (
    CELL,
    FIRST,
    ONE,
    PERIOD_NS,
    Agent,
    Out,
    incoming_records,
    inventory,
    spec,
    tick,
)

from flyball_contracts.records import (
    Allocation,
    Cause,
    Incident,
    Inventory,
    Migrate,
    NodeCondition,
    NodeEvent,
    Proposal,
    ProposalTick,
    Scale,
    Symptom,
    Tick,
)
from flyball_contracts.records.events import node_event
from flyball_contracts.topics import INVENTORY
from flyball_streams.engine import Directory, Engine, Incoming
from flyball_streams.engine.cell.incidents.domains import Domains
from flyball_streams.engine.parameters import Parameters
from flyball_streams.notify.alerts import alert_of

RACK = 4
"""Nodes of a rack; two racks hang on each leaf switch."""


def racked(count: int, **more: Any) -> list[Inventory]:
    return [
        replace(node, rack=f"r{n // RACK}", leaf=f"leaf-{n // RACK // 2}", **more)
        for n, node in enumerate(nodes(count))
    ]


def down(node: int, index: int, cause: Cause = "power", **more: Any) -> Symptom:
    return symptom(f"node-{node}", None, index, cause, "fault", **more)


def effects(index: int, *of: int) -> list[Symptom]:
    hang = symptom("node-0", None, index, "unknown", "effect", workload="train", gang=True, detector="hang")
    return [hang, *(symptom(f"node-{n}", 1, index, "unknown", "effect", workload="train") for n in of)]


def places(found: list[Incident]) -> list[tuple[str, str, str]]:
    return sorted((i.level, i.domain or i.node or i.workload, i.cause) for i in found)


def test_nodes_of_one_rack_that_lose_power_are_the_rack_s_incident_with_what_its_gang_shows_elsewhere() -> None:
    harness = IncidentHarness(*racked(16))
    (first,) = harness.at(1, *effects(1, 9, 14))
    harness.at(3, *(down(n, 3) for n in (4, 5, 6, 7)))
    harness.at(20, *effects(15, 2, 3))
    (one,) = harness.open()
    assert (one.level, one.domain, one.cause, one.id) == ("rack", "r1", "power", first.id)
    assert one.summary.startswith("rack r1: power problem, by test power, on ")
    assert one.symptoms[0].node in {"node-4", "node-5", "node-6", "node-7"}
    assert one.gpus_affected == 16 * 8
    harness.restart()
    harness.at(30, down(5, 30), symptom("node-9", 3, 30, "gpu", "fault", workload="train"))
    assert places(harness.open()) == [("gpu", "node-9", "gpu"), ("rack", "r1", "power")]


def test_the_network_is_put_down_to_the_leaf_switch_though_its_nodes_are_in_two_racks() -> None:
    harness = IncidentHarness(*racked(16))
    harness.at(2, *(down(n, 2, "network") for n in (2, 4, 7)))
    assert places(harness.open()) == [("leaf", "leaf-0", "network")]


@pytest.mark.parametrize(
    ("of", "cause", "expected"),
    [
        ((4,), "power", {"node"}),
        ((4, 9), "power", {"node"}),
        ((4, 5), "host", {"node"}),
        ((4, 5), "thermal", {"rack"}),
        ((0, 4, 8), "power", {"cell"}),
        ((0, 1, 4, 5), "power", {"cell"}),
        ((4, 5, 9), "power", {"node", "rack"}),
    ],
)
def test_what_is_no_rack_s_stays_what_it_is(of: tuple[int, ...], cause: Cause, expected: set[str]) -> None:
    harness = IncidentHarness(*racked(16))
    harness.at(2, *(down(n, 2, cause) for n in of))
    assert {i.level for i in harness.open()} == expected


def test_two_of_a_rack_that_fail_minutes_apart_and_two_of_a_large_one_are_no_rack_s() -> None:
    harness = IncidentHarness(*racked(16))
    harness.at(2, down(4, 2))
    harness.at(200, down(5, 200))
    assert {i.level for i in harness.open()} == {"node"}
    large = IncidentHarness(*(replace(node, rack="r") for node in nodes(16)))
    large.at(2, down(4, 2), down(5, 2))
    assert {i.level for i in large.open()} == {"node"}


def test_what_a_struck_gpu_shows_besides_is_of_the_rack_s_incident_and_what_others_show_is_not() -> None:
    harness = IncidentHarness(*racked(16))
    harness.at(2, *(down(n, 2) for n in (4, 5, 6)))
    slow = {"detector": "straggling", "statistical": True, "score": 0.9}
    harness.at(9, symptom("node-5", 3, 9, "unknown", "sign", workload="train", **slow))
    assert places(harness.open()) == [("rack", "r1", "power")]
    harness.at(12, symptom("node-9", 3, 12, "unknown", "sign", workload="train", **slow))
    harness.at(14, symptom("node-5", 3, 14, "gpu", "fault", workload="train"))
    assert places(harness.open()) == [("gpu", "node-5", "gpu"), ("gpu", "node-9", "unknown"), ("rack", "r1", "power")]


class Telemetry:
    """An engine, and what its nodes send until they stop, in ticks of ``period_s`` seconds."""

    def __init__(self, count: int = 8, period_s: int = 1) -> None:
        given = [
            inventory(
                f"node-{n}", 8, [Allocation(workload="train", replica=str(n), devices=(0,))],
                rack=f"r{n // RACK}", leaf=f"leaf-{n // RACK // 2}",
            )
            for n in range(count)
        ]  # fmt: skip
        self.engine = Engine(Parameters(lateness_ticks=2), ONE)
        self.period_s = period_s
        self.agents = [Agent(node, period_s=period_s) for node in given]
        self.engine.feed(incoming_records(*given, spec("train", kind="training", max_replicas=count)))
        self.found: dict[str, Incident] = {}
        self.conditions: list[NodeCondition] = []

    def run(self, first: int, last: int, *silent: int, late: int = 0) -> None:
        for index in range(first, last, self.period_s):
            batch = [
                f for n, agent in enumerate(self.agents) if n not in silent for f in agent.frames(index, schemas=(1,))
            ]
            if late:
                batch += [f for n in silent for f in self.agents[n].frames(index - late, schemas=(1,))]
            self.take(Out(self.engine.feed(batch)))

    def take(self, out: Out) -> None:
        self.found.update({one.id: one for one in out.of(Incident)})
        self.conditions += out.of(NodeCondition)

    def stop(self, node: int, index: int) -> None:
        self.take(
            Out(
                self.engine.feed(
                    incoming_records(node_event(f"node-{node}", (FIRST + index) * PERIOD_NS, "agent_stopped"))
                )
            )
        )

    def restart(self) -> None:
        kept = self.engine
        self.engine = Engine(Parameters(lateness_ticks=2), ONE)
        self.engine.feed(incoming_records(*(agent.inventory for agent in self.agents)))
        for old, new in ((kept.nodes[0], self.engine._node(0)), (kept.workloads[0], self.engine.workloads[0]),  # pyright: ignore[reportPrivateUsage]
                         (kept.cells[0], self.engine.cells[0])):  # fmt: skip
            new.restore(old.snapshot())

    @property
    def open(self) -> list[Incident]:
        return [one for one in self.found.values() if one.status == "open"]


def test_a_node_that_falls_silent_is_reported_within_two_minutes_as_its_agent_s_trouble_and_nothing_is_done() -> None:
    cell = Telemetry()
    cell.run(0, 20)
    cell.run(20, 75, 3)
    assert cell.open == []
    cell.run(75, 150, 3)
    (one,) = cell.open
    assert (one.level, one.node, one.cause, one.strength, one.severity) == (
        "node", "node-3", "telemetry", "sign", "warning"
    )  # fmt: skip
    assert one.onset_ns == (FIRST + 20) * PERIOD_NS
    assert one.symptoms[0].detector == "no_telemetry"
    assert (one.actions, cell.conditions) == ((), [])


def test_a_silent_node_whose_gang_stands_still_is_down_and_one_sign_puts_it_out_of_nothing() -> None:
    harness = IncidentHarness(*racked(16))
    silent = symptom("node-6", None, 60, "telemetry", "sign", detector="no_telemetry", severity="warning")
    harness.at(60, *effects(30, 1, 2), silent)
    (one,) = harness.open()
    assert (one.level, one.node, one.cause, one.severity) == ("node", "node-6", "host", "critical")
    assert one.gpus_affected == 16 * 8
    assert [c.condition for c in harness.manager.conditions(tick(60))] == ["suspect"]


def test_a_rack_of_which_all_agents_stopped_on_purpose_is_no_failed_rack() -> None:
    fleet = Directory()
    rack = [inventory(f"s{n}", rack="r9", agent="stopped") for n in range(3)]
    for node in (*rack, inventory("s3", rack="r9")):
        fleet.apply(node)
    domains = Domains(CELL, fleet)
    assert not domains.is_enough(("rack", "r9"), {"s0", "s1"}, silent=True)
    assert not domains.is_enough(("rack", "r9"), {"s0", "s3"}, silent=True), "one of two is only not back yet"
    for node in rack:
        fleet.apply(replace(node, agent="running", epoch=2, time_ns=node.time_ns + 1))
    assert domains.is_enough(("rack", "r9"), {"s0", "s1", "s2", "s3"}, silent=True)


def test_all_of_a_rack_silent_is_the_network_and_some_of_it_is_not() -> None:
    cell = Telemetry()
    cell.run(0, 20)
    cell.run(20, 150, 4, 5, 6, 7)
    assert [(i.level, i.domain, i.cause, i.nodes) for i in cell.open] == [
        ("rack", "r1", "network", ("node-4", "node-5", "node-6", "node-7"))
    ]
    part = Telemetry()
    part.run(0, 20)
    part.run(20, 150, 4, 5, 6)
    assert places(part.open) == [("node", f"node-{n}", "telemetry") for n in (4, 5, 6)]


def test_an_agent_that_says_that_it_stops_is_no_symptom_until_it_has_spoken_again() -> None:
    cell = Telemetry(period_s=5)
    cell.run(0, 20)
    cell.stop(3, 19)
    cell.run(20, 60, 3)
    cell.restart()
    cell.run(60, 180, 3)
    assert cell.open == []
    cell.run(180, 190)
    cell.run(190, 320, 3)
    assert places(cell.open) == [("node", "node-3", "telemetry")]


def test_a_node_that_is_late_is_not_silent_and_nor_is_any_after_a_pause_of_all() -> None:
    cell = Telemetry()
    cell.run(0, 20)
    cell.run(20, 120, 3, late=10)
    cell.run(400, 430)
    assert cell.open == []


def test_a_silent_node_goes_on_being_reported_over_a_restart_and_ends_after_it_speaks_again() -> None:
    cell = Telemetry(period_s=5)
    cell.run(0, 20)
    cell.run(20, 150, 3)
    (one,) = cell.open
    cell.restart()
    cell.run(150, 700, 3)
    assert [i.id for i in cell.open] == [one.id]
    cell.run(700, 1300)
    assert cell.open == []
    assert cell.found[one.id].status == "resolved"


def granted(cell: Telemetry, first: int, *silent: int) -> int:
    """Replicas that a workload gets which wants all GPUs, each on one."""
    cell.engine.feed(incoming_records(spec("chat", max_replicas=64)))
    period_s = cell.period_s
    for index in range(first, first + 20 * period_s, period_s):
        wants = Proposal(
            id=f"all-{index}", action="scale", workload="chat", reason="r", replicas=64, observed_replicas=0
        )
        at = Tick(index=(FIRST + index) // period_s, period_ns=period_s * PERIOD_NS)
        asks = ProposalTick(cell=CELL, source="node/9", tick=at, proposals=(wants,), closes=False)
        frames = [
            f for n, agent in enumerate(cell.agents) if n not in silent for f in agent.frames(index, schemas=(1,))
        ]
        cell.engine.cells[0].step(incoming_records(asks))
        for scale in Out(cell.engine.feed(frames)).of(Scale):
            return scale.replicas
    return 0


def test_a_dead_node_is_no_room_and_is_reported_until_its_inventory_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Node 1 is dead, node 2 is removed, the controller speaks for node 3, and the agent of node 4 was stopped.

    All are silent for long enough that the lane drops them, twice. Here that takes as many seconds as in production, in
    fewer ticks.
    """
    monkeypatch.setattr("flyball_streams.engine.node.cell.GONE_TICKS", 1)
    cell, silent = Telemetry(5, period_s=10), (1, 2, 3, 4)
    cell.run(0, 20)
    cell.stop(4, 19)
    cell.run(20, 690, *silent)
    cell.restart()
    seen = replace(cell.agents[3].inventory, time_ns=(FIRST + 400) * PERIOD_NS, epoch=9)
    cell.engine.feed([*incoming_records(seen), Incoming(INVENTORY.name, 0, 0, b"node-2", None, [])])
    cell.run(690, 1310, *silent)
    assert sorted(one.node for one in cell.open) == ["node-1", "node-3"]
    assert granted(cell, 1310, *silent) == 3 * 7, "nodes 0, 3 and 4 have seven free GPUs each"


def test_the_last_inventory_of_an_agent_that_died_opens_none_of_its_gpus() -> None:
    """An agent sends it before the frames of its tick, so it can be newer than the last frame."""
    cell = Telemetry(2)
    cell.run(0, 20)
    cell.engine.feed(incoming_records(replace(cell.agents[1].inventory, time_ns=(FIRST + 20) * PERIOD_NS + 1)))
    cell.run(20, 150, 1)
    assert places(cell.open) == [("node", "node-1", "telemetry")]
    assert granted(cell, 150, 1) == 7


def faults(at_index: int, node: str) -> list[NodeEvent]:
    xid = {"severity": "critical", "code": 79, "remedy": "reset_gpu"}
    return [node_event(node, (FIRST + at_index) * PERIOD_NS, "xid", device=f"{node}/0", **xid)]  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("is_silenced", [True, False])
def test_in_a_maintenance_window_a_fault_is_listed_and_nothing_is_moved_or_put_out(is_silenced: bool) -> None:
    cell = Telemetry()
    window = silence(10, 60, node="node-3" if is_silenced else "node-7", name="firmware")
    cell.engine.feed(incoming_records(window))
    cell.run(0, 20)
    out = Out(cell.engine.feed(incoming_records(*faults(20, "node-3"))))
    for index in range(20, 60):
        batch = [f for agent in cell.agents for f in agent.frames(index, schemas=(1,))]
        out = Out([*out.messages, *cell.engine.feed(batch)])
    incidents = out.of(Incident)
    assert {(i.node, i.silence) for i in incidents} == {("node-3", "firmware" if is_silenced else "")}
    moved, put_out = out.of(Migrate), [c.condition for c in out.of(NodeCondition) if c.condition == "cordoned"]
    assert (bool(moved), bool(put_out)) == (not is_silenced, not is_silenced)
    posted = [alert for i in incidents if (alert := alert_of(i, i.time_ns)).ends_ns > i.time_ns]
    assert bool(posted) == (not is_silenced)


def test_what_a_silenced_rack_shows_moves_nothing() -> None:
    harness = IncidentHarness(*racked(16))
    harness.know(silence(0, 500, node="node-[4-7]"))
    gpus = [symptom(f"node-{n}", row, 3, "power", "fault", workload="train") for n in (4, 5) for row in range(8)]
    (one,) = harness.at(3, *gpus)
    assert (one.level, one.silence) == ("rack", "maintenance")
    assert not harness.manager.permits(move(3, "train", "4-3", "node-4", 3))
    assert harness.manager.permits(move(3, "train", "9-3", "node-9", 3))
