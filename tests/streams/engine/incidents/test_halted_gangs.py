"""A gang that stands still because of one node leaves that node: two observations of different origin, or none."""

from msgspec.structs import replace
from tests.streams.engine.incident_harness import IncidentHarness, nodes, symptom
from tests.streams.engine.scene import tick

from flyball_contracts.records import Allocation, Inventory, Proposal, Symptom
from flyball_streams.engine.symptoms import NO_TELEMETRY


def hang(index: int) -> Symptom:
    return symptom("node-0", None, index, "unknown", "effect", workload="train", gang=True, detector="hang")


def silent(node: str, index: int, since: int) -> Symptom:
    found = symptom(node, None, since, "telemetry", "sign", detector=NO_TELEMETRY, severity="warning")
    return replace(found, time_ns=tick(index).end_ns)


def ports(node: str, index: int) -> Symptom:
    return symptom(node, None, index, "network", "sign", detector="network", severity="warning")


def proposed(harness: IncidentHarness, index: int) -> list[Proposal]:
    return list(harness.manager.proposals(tick(index)))


def moved_to(node: Inventory, other: Inventory) -> Inventory:
    """The other node with the ranks of the first beside its own, as after a move."""
    more = tuple(
        Allocation(workload=a.workload, replica=a.replica, devices=tuple(d + 8 for d in a.devices))
        for a in node.allocations
    )
    devices = tuple(replace(d, id=f"{other.node}/{8 + row}") for row, d in enumerate(other.devices))
    return replace(
        other, epoch=2, devices=(*other.devices, *devices), allocations=(*other.allocations, *more)
    )  # fmt: skip


def test_the_ranks_of_a_gang_that_hangs_leave_the_node_that_is_silent() -> None:
    harness = IncidentHarness()
    harness.at(10, hang(10))
    assert proposed(harness, 10) == [], "a hang names no rank"
    (incident,) = (i for i in harness.at(80, silent("node-2", 80, 5)) if i.status == "open")
    assert (incident.level, incident.node, incident.cause) == ("node", "node-2", "host")
    found = proposed(harness, 80)
    assert sorted(p.replica for p in found) == [f"2-{row}" for row in range(8)]
    assert {(p.action, p.node, p.workload) for p in found} == {("migrate", "node-2", "train")}
    assert all(harness.manager.permits(p) for p in found)
    assert {e.name for e in found[0].evidence} == {"hang", NO_TELEMETRY, "incident"}


def test_errors_of_a_port_name_the_rank_that_a_gang_waits_for() -> None:
    harness = IncidentHarness()
    harness.at(10, hang(10))
    harness.at(20, ports("node-1", 20))
    assert {p.node for p in proposed(harness, 20)} == {"node-1"}


def test_one_of_the_two_alone_moves_nothing_and_neither_does_an_old_one() -> None:
    harness = IncidentHarness()
    harness.at(80, silent("node-2", 80, 5), ports("node-1", 80))
    assert proposed(harness, 80) == []
    harness = IncidentHarness()
    harness.at(10, hang(10))
    harness.at(300, silent("node-2", 300, 200))
    assert proposed(harness, 300) == [], "the hang was seen five minutes ago and may be over"


def test_a_rank_that_has_left_is_neither_moved_again_nor_blamed_for_the_next_hang() -> None:
    """The inventory of a silent node is the last that it sent: it still lists what was moved off it."""
    before = nodes(4)
    harness = IncidentHarness(*before)
    harness.at(10, hang(10))
    harness.at(80, silent("node-2", 80, 5))
    harness.know(moved_to(before[2], before[3]))
    harness.at(140, silent("node-2", 140, 5))
    assert proposed(harness, 140) == []
    later = harness.at(2000, hang(2000), silent("node-2", 2000, 5))
    assert ("workload", "train") in {(i.level, i.workload) for i in later if i.status == "open"}
    harness.at(2010, ports("node-1", 2010))
    assert {p.node for p in proposed(harness, 2010)} == {"node-1"}


def test_a_rank_leaves_the_next_node_that_is_silent_though_the_first_still_lists_it() -> None:
    before = nodes(4)
    harness = IncidentHarness(*before)
    harness.at(10, hang(10))
    harness.at(80, silent("node-2", 80, 5))
    harness.know(replace(moved_to(before[2], before[3]), time_ns=before[2].time_ns + 1))
    harness.at(2000, silent("node-2", 2000, 5), silent("node-3", 2000, 1990), hang(2000))
    assert {(p.node, p.replica) for p in proposed(harness, 2000)} == {
        ("node-3", f"{n}-{row}") for n in (2, 3) for row in range(8)
    }
