"""Checks of quarantined nodes, which come back when they pass: the incident manager alone, and the closed loop."""

from typing import Any

import msgspec
import pytest
from tests.streams.engine.cell.arbiter_harness import outcome
from tests.streams.engine.closed_loop import ClosedLoop
from tests.streams.engine.incident_harness import IncidentHarness, at, nodes, silence
from tests.streams.engine.scene import CELL, PERIOD_NS, tick
from tests.streams.engine.test_quarantine import conditions, fault, left, sign

from flyball_contracts.codec import decode_record
from flyball_contracts.config.fleet import Batch, FailingGpu, FailingLink, FleetConfig, GridZone, NodePool, Training
from flyball_contracts.records import Check, Incident, Migrate, NodeCondition
from flyball_contracts.records.commands.outcomes import OutcomeStatus
from flyball_streams.engine.parameters import HealthParameters, Parameters

LIVES_NS = 60 * 10**9
AFTER = 300 * 10**9 // PERIOD_NS
"""Ticks that a node must be quiet."""


def drained(harness: IncidentHarness) -> None:
    """Node 1 is cordoned since tick 1, and empty since tick 3."""
    harness.at(1, fault("node-1", 3, 1))
    list(harness.manager.conditions(tick(1)))
    harness.know(left(nodes(2)[1], 2))
    (seen,) = conditions(harness, 3)
    assert seen.condition == "drained"


def checks(harness: IncidentHarness, index: int) -> list[Check]:
    """What is to be checked in a tick."""
    harness.at(index)
    made = harness.manager.checks(tick(index), LIVES_NS)
    for check in made:
        harness.manager.note(check)
    return made


def report(harness: IncidentHarness, check: Check, status: OutcomeStatus, index: int, **more: Any) -> None:
    harness.manager.receive(outcome(check, status, time_ns=at(index), **more))


def test_what_is_empty_and_quiet_is_checked_and_a_check_that_passes_brings_it_back() -> None:
    harness = IncidentHarness()
    drained(harness)
    assert checks(harness, 3 + AFTER - 1) == []
    (check,) = checks(harness, 3 + AFTER)
    assert (check.node, check.devices, check.attempt) == ("node-1", tuple(f"node-1/{i}" for i in range(8)), 1)
    assert (check.workload, check.target, check.cell) == ("node:node-1", f"{CELL}/node:node-1", CELL)
    assert check.expires_ns - check.time_ns == LIVES_NS
    assert [e.name for e in check.evidence] == ["incident"]
    assert checks(harness, 4 + AFTER) == [], "one at a time"
    harness.restart()
    report(harness, check, "accepted", 5 + AFTER)
    assert checks(harness, 5 + AFTER + 1_000) == [], "it is under way"
    report(harness, check, "done", 6 + AFTER, answer="8 GPUs were well")
    seen = [c for i in (7, 8) for c in conditions(harness, i + AFTER)]
    assert [c.condition for c in seen] == ["checked", "back"]
    assert seen[0].evidence == "8 GPUs were well"
    assert seen[0].checked_by == f"check {check.id}"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("failed", "check 1 failed: GPU 3 has errors of a link; it stays out"),
        ("refused", "check 1 was refused: GPU 3 has errors of a link; it stays out"),
        ("planned", "check 1 was planned only, in dry run: GPU 3 has errors of a link; it stays out"),
    ],
)
def test_a_check_that_does_not_pass_is_published_and_the_next_one_waits_longer(
    status: OutcomeStatus, words: str
) -> None:
    harness = IncidentHarness()
    drained(harness)
    (check,) = checks(harness, 3 + AFTER)
    index = 4 + AFTER
    waits: list[int] = []
    for attempt in range(1, 4):
        assert check.attempt == attempt
        report(harness, check, status, index, detail="GPU 3 has errors of a link")
        (seen,) = conditions(harness, index + 1)
        assert seen.condition == "drained"
        if attempt == 1:
            assert words in seen.reason
        step = 600 * 10**9 // PERIOD_NS
        found = next(i for i in range(index + 1, index + 8 * step + 9) if harness.manager.checks(tick(i), LIVES_NS))
        check = msgspec.structs.replace(
            check, id=harness.manager.state.quarantine.nodes["node-1"].check.decision, attempt=attempt + 1
        )
        waits.append((found - index) * PERIOD_NS // 10**9)
        index = found
    assert [round(wait / 600) for wait in waits] == [1, 2, 4]


def test_a_fault_since_makes_a_check_void_and_puts_the_next_off() -> None:
    harness = IncidentHarness()
    drained(harness)
    (check,) = checks(harness, 3 + AFTER)
    harness.at(4 + AFTER, fault("node-1", 3, 4 + AFTER, record="e2"))
    report(harness, check, "done", 5 + AFTER, answer="well")
    assert [c.condition for i in (6, 7) for c in conditions(harness, i + AFTER)] == []
    quiet = IncidentHarness()
    drained(quiet)
    quiet.at(100, sign("node-1", 3, 100, "nvlink"))
    assert checks(quiet, 3 + AFTER) == []
    assert len(checks(quiet, 101 + AFTER)) == 1


def test_nodes_that_are_silenced_or_held_are_left_alone() -> None:
    harness = IncidentHarness()
    drained(harness)
    harness.know(silence(4, 10_000, node="node-1"))
    assert checks(harness, 3 + AFTER) == []
    assert [c for i in range(4 + AFTER, 10 * AFTER, 50) for c in checks(harness, i)] == [], (
        "its incident is over by then"
    )
    assert len(checks(harness, 10_004)) == 1
    held = IncidentHarness()
    held.at(1, fault("node-1", 3, 1))
    assert [c for i in range(2, 3 * AFTER, 20) for c in checks(held, i)] == [], "a replica is on it"


def test_what_others_hold_of_a_node_is_not_checked() -> None:
    harness = IncidentHarness()
    harness.at(1, fault("node-1", 3, 1))
    whole = nodes(2)[1]
    kept = tuple(a for a in whole.allocations if a.devices not in ((3,), (5,)))
    harness.know(msgspec.structs.replace(whole, allocations=kept, epoch=2, time_ns=at(2)))
    harness.at(3)
    (check,) = checks(harness, 3 + AFTER)
    assert check.devices == ("node-1/3", "node-1/5")


def fleet(**faults: Any) -> FleetConfig:
    """A gang of 8 GPUs and some batch work on 6 nodes."""
    pool = NodePool(name="pool", sku="h100", nodes=6, zone="z", gpus_per_node=4)
    gang = Training(name="train", pools=("pool",), replicas=4, gpus_per_replica=2, checkpoint_s=4.0)
    sort = Batch(name="sort", pools=("pool",), replicas=4, nominal_replicas=4, duration_s=1e6)
    none: dict[str, Any] = {"failing": (), "straggling": ()}
    return FleetConfig(
        cell=CELL, tick_s=10.0, zones=(GridZone(name="z"),), pools=(pool,), trainings=(gang,), services=(),
        notebooks=(), batches=(sort,), **(none | faults),
    )  # fmt: skip


class Watched(ClosedLoop):
    """The loop, and what was said of incidents and nodes."""

    def __init__(self, config: FleetConfig) -> None:
        super().__init__(config, Parameters(health=HealthParameters(check_after_s=60.0)))
        self.incidents: list[Incident] = []
        self.conditions: list[NodeCondition] = []

    def published(self, sent: list[Any]) -> list[Any]:
        for message in sent:
            if message.topic.startswith("flyball.incidents"):
                record = decode_record(message.topic, message.value, message.headers)
                (self.incidents if isinstance(record, Incident) else self.conditions).append(record)  # type: ignore[arg-type]
        return sent


@pytest.mark.parametrize(("link", "cause"), [(3, "nvlink"), (None, "pcie")])
def test_a_link_fails_and_its_node_is_out_until_it_is_mended_and_checked(link: int | None, cause: str) -> None:
    faulty = FailingLink(workload="train", replica=1, from_s=40.0, link=link, lasts_s=300.0)
    loop = Watched(fleet(links=(faulty,)))
    loop.run(100)
    one = loop.incidents[-1]
    assert (one.cause, one.status) == (cause, "resolved")
    assert {incident.id for incident in loop.incidents} == {one.id}
    assert [(a.type, a.status) for a in one.actions] == [("Migrate", "done"), ("Check", "failed"), ("Check", "done")]
    if link is not None:
        links = {e.name for s in one.symptoms for e in s.evidence}
        assert "nvidia.gpu.nvlink.errors{link=3}" in links
    kinds = [type(decision) for decision in loop.decisions]
    assert kinds == [Migrate, Check, Check]
    seen = [c.condition for c in loop.conditions if c.node == one.node]
    assert seen[-5:] == ["cordoned", "drained", "drained", "checked", "back"]
    failed = loop.conditions[-3]
    assert "check 1 failed" in failed.reason
    assert "has errors of a link" in failed.reason
    shown = next(n for n in loop.fleet.nodes if n.node == one.node)
    assert shown.schedulable
    assert all(device.schedulable for device in shown.devices)


def test_a_gpu_that_stays_dead_stays_out() -> None:
    loop = Watched(fleet(failing=(FailingGpu(workload="train", replica=1, from_s=40.0),)))
    loop.run(130)
    made = [d for d in loop.decisions if isinstance(d, Check)]
    assert [d.attempt for d in made] == [1, 2]
    assert {loop.conditions[-1].condition} == {"drained"}
    assert "runs nothing" in loop.conditions[-1].reason
    state = loop.fleet.node(made[0].node)
    assert state.cordoned


def test_no_more_nodes_are_checked_than_may_be_out() -> None:
    names = ("a", "b", "c", "d")
    pool = NodePool(name="pool", sku="h100", nodes=8, zone="z", gpus_per_node=2)
    jobs = tuple(
        Batch(name=name, pools=("pool",), replicas=1, gpus_per_replica=2, nominal_replicas=1, duration_s=1e6)
        for name in names
    )
    faults = tuple(FailingLink(workload=name, replica=0, from_s=20.0, link=1, lasts_s=9e9) for name in names)
    config = msgspec.structs.replace(fleet(links=faults), pools=(pool,), trainings=(), batches=jobs)
    loop = Watched(config)
    loop.run(50)
    checked = {d.node for d in loop.decisions if isinstance(d, Check)}
    out = {c.node for c in loop.conditions if c.condition == "cordoned"}
    assert len(out) == 2
    assert checked == out
    assert any("a person decides" in c.held for c in loop.conditions)
