"""If a gang hangs again after a restart, its nodes are checked while it is stopped, until one fails."""

from typing import Any

import msgspec
import pytest
from tests.streams.engine.cell.arbiter_harness import outcome
from tests.streams.engine.cell.test_checks import LIVES_NS, checks, report
from tests.streams.engine.incident_harness import IncidentHarness, at, nodes, scaled, silence, symptom
from tests.streams.engine.incidents.test_restarts import TRAIN, hang, proposed
from tests.streams.engine.scene import CELL, PERIOD_NS, tick
from tests.streams.engine.test_quarantine import fault, left, readmission

from flyball_actuators.parameters import ActuatorParameters
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Allocation, Check, NodeCondition, Preempt
from flyball_contracts.topics import INVENTORY
from flyball_streams.engine.cell.incidents.manager import IncidentManager
from flyball_streams.engine.cell.incidents.restarts import BEGUN_WITHIN_S, MOST_BEGUN
from flyball_streams.engine.parameters import HealthParameters

MINUTE = 60 * NS_PER_S // PERIOD_NS
COUNT = 6


def stopped(index: int) -> Preempt:
    return Preempt(
        id=f"stop-{index}", target=f"{CELL}/train", cell=CELL, workload="train", time_ns=tick(index).end_ns,
        expires_ns=tick(index).end_ns + LIVES_NS, confidence=0.9, policy="test", reason="it hangs",
        replicas=0, replicas_before=8 * COUNT, checkpoint=False, beneficiary="train",
    )  # fmt: skip


def started(index: int) -> Any:
    return msgspec.structs.replace(scaled(index), replicas_before=0, replicas=8 * COUNT)


def again(harness: IncidentHarness, index: int) -> Preempt:
    """The gang was restarted, has hung again, and is stopped in a tick; its replicas do not leave yet."""
    harness.know(TRAIN)
    for begin in (index - 10 * MINUTE, index):
        harness.at(begin, hang(begin, 130))
        assert len(proposed(harness, begin)) == 1
        stop = stopped(begin)
        harness.manager.note(stop)
        if begin < index:
            assert checks(harness, begin + 1) == [], "a restart alone helps most"
            assert not harness.manager.is_checked("train")
            harness.manager.receive(outcome(stop, "done"))
            harness.manager.note(started(begin + 1))
    return stop


def emptied(harness: IncidentHarness, stop: Preempt, epoch: int, *, but: str = "") -> None:
    """All replicas have stopped."""
    harness.know(*(left(node, epoch) for node in nodes(COUNT) if node.node != but))
    harness.manager.receive(outcome(stop, "done", time_ns=at(epoch)))


def stands(harness: IncidentHarness, index: int) -> list[NodeCondition]:
    return list(harness.manager.conditions(tick(index)))


def test_all_nodes_are_checked_before_it_starts_no_more_at_once_than_may_be_out() -> None:
    harness = IncidentHarness(*nodes(COUNT))
    stop = again(harness, 1000)
    assert checks(harness, 1001) == [], "it still stops"
    assert harness.manager.is_checked("train")
    emptied(harness, stop, 1002)
    tried: list[Check] = []
    for index in range(1003, 1006):
        harness.restart()
        made = checks(harness, index)
        assert len(made) == 2, "a third of six"
        unhealthy: dict[str, int] = {}
        harness.manager.quarantine(unhealthy, 7)
        assert unhealthy == dict.fromkeys((f"{check.node}/{i}" for check in made for i in range(8)), 7)
        assert harness.manager.is_checked("train")
        for check in made:
            report(harness, check, "accepted", index)
            report(harness, check, "done", index)
        tried += made
    assert [check.node for check in tried] == [f"node-{n}" for n in range(COUNT)]
    assert {check.devices for check in tried if check.node == "node-3"} == {tuple(f"node-3/{i}" for i in range(8))}
    assert "a gang hung on it again after a restart" in tried[0].reason
    assert checks(harness, 1006) == []
    assert not harness.manager.is_checked("train")
    assert stands(harness, 1006) == []
    (incident,) = (one for one in harness.open() if any(a.type == "Check" for a in one.actions))
    assert sum(a.type == "Check" for a in incident.actions) == COUNT


def test_a_node_that_fails_is_cordoned_ends_the_search_and_is_checked_again() -> None:
    harness = IncidentHarness(*nodes(COUNT))
    emptied(harness, again(harness, 1000), 1001)
    first, second = checks(harness, 1002)
    report(harness, first, "accepted", 1003)
    report(harness, first, "failed", 1004, detail="GPU 3 has wrong results")
    harness.restart()
    assert checks(harness, 1005) == [], "it is found"
    assert harness.manager.is_checked("train"), "the other one still runs"
    (seen,) = stands(harness, 1005)
    assert (seen.node, seen.condition, seen.devices) == ("node-0", "drained", tuple(f"node-0/{i}" for i in range(8)))
    report(harness, second, "done", 1006)
    assert not harness.manager.is_checked("train")
    harness.manager.note(started(1007))
    assert checks(harness, 1003 + 9 * MINUTE) == []
    (later,) = checks(harness, 1005 + 10 * MINUTE)
    assert (later.node, later.attempt) == ("node-0", 2)
    report(harness, later, "done", 1006 + 10 * MINUTE)
    found = [c.condition for i in (7, 8) for c in _seen(harness, 1000 + 10 * MINUTE + i)]
    assert found == ["checked", "back"]


def _seen(harness: IncidentHarness, index: int) -> list[NodeCondition]:
    harness.at(index)
    return stands(harness, index)


def test_if_nothing_helps_it_is_left_alone_for_an_hour() -> None:
    harness = IncidentHarness(*nodes(COUNT))
    emptied(harness, again(harness, 1000), 1001)
    harness.manager.note(started(1002))
    for index in (1500, 1000 + 59 * MINUTE):
        harness.at(index, hang(index, 130))
        assert proposed(harness, index) == []
    index = 1010 + 60 * MINUTE
    harness.at(index, hang(index, 130))
    (found,) = proposed(harness, index)
    assert "within the hour" not in found.reason


CANNOT = [
    "other work is on it",
    "it is gone",
    "its devices are gone",
    "it is out",
    "a dead node lists it",
]


@pytest.mark.parametrize("why", CANNOT)
def test_a_node_that_cannot_be_checked_holds_nothing_up(why: str) -> None:
    harness = IncidentHarness(*nodes(COUNT))
    stop = again(harness, 1000)
    emptied(harness, stop, 1001, but="node-0" if why == "a dead node lists it" else "")
    node = left(nodes(1)[0], 1002)
    if why == "other work is on it":
        other = Allocation(workload="other", replica="0", devices=(5,))
        harness.know(msgspec.structs.replace(node, allocations=(other,)))
    elif why == "it is gone":
        harness.directory.forget(INVENTORY.name, "node-0")
    elif why == "its devices are gone":
        harness.know(msgspec.structs.replace(node, devices=node.devices[:4], epoch=1003))
    elif why == "it is out":
        harness.at(1002, fault("node-0", 3, 1002))
    tried = [check for i in range(3, 9) for check in _passed(harness, 1000 + i)]
    assert [check.node for check in tried] == [f"node-{n}" for n in range(1, COUNT)]
    if why == "a dead node lists it":
        assert harness.manager.is_checked("train"), "its inventory may be under way"
        checks(harness, 1001 + 2 * MINUTE)
    assert not harness.manager.is_checked("train")


def _passed(harness: IncidentHarness, index: int) -> list[Check]:
    made = checks(harness, index)
    for check in made:
        report(harness, check, "done", index)
    return made


def test_no_more_nodes_are_checked_if_as_many_as_may_be_are_out() -> None:
    harness = IncidentHarness(*nodes(COUNT))
    stop = again(harness, 1000)
    harness.at(1001, fault("node-4", 3, 1001), fault("node-5", 3, 1001, "e2"))
    emptied(harness, stop, 1002)
    assert checks(harness, 1003) == []
    assert not harness.manager.is_checked("train")


@pytest.mark.parametrize("status", ["refused", "failed", "planned"])
def test_where_it_was_not_stopped_nothing_is_checked_and_it_counts_as_no_restart(status: Any) -> None:
    harness = IncidentHarness(*nodes(COUNT))
    stop = again(harness, 1000)
    harness.manager.receive(outcome(stop, status))
    harness.know(*(left(node, 1001) for node in nodes(COUNT)))
    assert checks(harness, 1002) == []
    assert not harness.manager.is_checked("train")
    harness.at(1100, hang(1100, 130))
    assert len(proposed(harness, 1100)) == 1


CODES = [("refused", "no_platform"), ("refused", "not_allowed"), ("refused", "mode_off"), ("planned", "")]


@pytest.mark.parametrize(("status", "code"), CODES)
def test_where_no_node_can_be_checked_not_each_is_tried(status: Any, code: str) -> None:
    harness = IncidentHarness(*nodes(COUNT))
    emptied(harness, again(harness, 1000), 1001)
    for check in checks(harness, 1002):
        report(harness, check, status, 1003, code=code)
    assert checks(harness, 1004) == []
    assert not harness.manager.is_checked("train")


def test_after_three_refusals_in_a_row_no_further_node_is_tried() -> None:
    harness = IncidentHarness(*nodes(COUNT))
    emptied(harness, again(harness, 1000), 1001)
    first, second = checks(harness, 1002)
    report(harness, first, "refused", 1003, code="conflict")
    report(harness, second, "accepted", 1003)
    report(harness, second, "done", 1004)
    for check in checks(harness, 1005):
        report(harness, check, "refused", 1006, code="conflict")
    (fifth, _) = checks(harness, 1007)
    report(harness, fifth, "refused", 1008, code="rate")
    assert checks(harness, 1009) == []


def test_a_silenced_node_is_not_checked_though_it_has_no_incident() -> None:
    harness = IncidentHarness(*nodes(COUNT))
    emptied(harness, again(harness, 1000), 1001)
    harness.know(silence(4, 100_000, node="node-4"))
    tried = [check.node for i in range(3, 9) for check in _passed(harness, 1000 + i)]
    assert tried == ["node-0", "node-1", "node-2", "node-3", "node-5"]


def test_a_gang_that_is_silenced_meanwhile_starts_without_further_checks() -> None:
    harness = IncidentHarness(*nodes(COUNT))
    emptied(harness, again(harness, 1000), 1001)
    assert len(_passed(harness, 1002)) == 2
    harness.know(silence(4, 100_000, workload="train"))
    assert checks(harness, 1003) == []
    assert not harness.manager.is_checked("train")


def test_nodes_of_a_workload_that_is_removed_are_not_checked() -> None:
    harness = IncidentHarness(*nodes(COUNT))
    emptied(harness, again(harness, 1000), 1001)
    harness.know(msgspec.structs.replace(TRAIN, removed=True, time_ns=at(1001)))
    assert checks(harness, 1002) == []


def test_faults_elsewhere_count_the_nodes_that_are_checked_as_out() -> None:
    harness = IncidentHarness(*nodes(COUNT))
    emptied(harness, again(harness, 1000), 1001)
    assert [check.node for check in checks(harness, 1002)] == ["node-0", "node-1"]
    harness.at(1003, fault("node-4", 3, 1003), fault("node-5", 3, 1003, "e2"))
    seen = {c.node: (c.condition, c.held) for c in stands(harness, 1003)}
    assert {name: condition for name, (condition, _) in seen.items()} == {"node-4": "watched", "node-5": "watched"}
    assert all("2 nodes of the cell are cordoned already" in held for _, held in seen.values())


def test_in_a_larger_cell_one_place_is_left_for_a_fault() -> None:
    harness = IncidentHarness(*nodes(40))
    stop = again(harness, 1000)
    harness.know(*(left(node, 1001) for node in nodes(40)))
    harness.manager.receive(outcome(stop, "done", time_ns=at(1001)))
    assert len(checks(harness, 1002)) == 3, "four may be out"
    harness.at(1003, fault("node-30", 3, 1003), fault("node-31", 3, 1003, "e2"))
    assert [(c.node, c.condition) for c in stands(harness, 1003)] == [("node-30", "cordoned"), ("node-31", "watched")]


def test_a_check_that_is_accepted_after_it_had_expired_counts() -> None:
    harness = IncidentHarness(*nodes(COUNT))
    emptied(harness, again(harness, 1000), 1001)
    first, second = checks(harness, 1002)
    report(harness, second, "done", 1003)
    late = 1004 + 2 * MINUTE
    assert {check.node for check in checks(harness, late)} == {"node-2", "node-3"}
    harness.restart()
    report(harness, first, "refused", late + 1, code="duplicate")
    report(harness, first, "accepted", late + 1)
    report(harness, first, "failed", late + 2)
    assert [(c.node, c.condition) for c in _seen(harness, late + 3)] == [("node-0", "drained")]


def test_a_node_that_gets_another_gpu_after_its_check_has_failed_comes_back() -> None:
    harness = IncidentHarness(*nodes(COUNT))
    emptied(harness, again(harness, 1000), 1001)
    first, _ = checks(harness, 1002)
    harness.directory.forget(INVENTORY.name, "node-0")
    report(harness, first, "failed", 1003, detail="it does not start")
    (seen,) = _seen(harness, 1004)
    assert (seen.condition, seen.reason.split(";")[0]) == ("cordoned", "its inventory is gone")
    old = left(nodes(1)[0], 1005)
    devices = tuple(msgspec.structs.replace(d, id=f"new-{d.id}") for d in old.devices)
    harness.know(msgspec.structs.replace(old, devices=devices))
    assert [c.condition for i in (1006, 1007) for c in _seen(harness, i)] == ["checked", "back"]


def test_a_failure_of_some_gpus_opens_no_other_of_a_node_that_is_out_as_a_whole() -> None:
    harness = IncidentHarness(*nodes(COUNT))
    emptied(harness, again(harness, 1000), 1001)
    first, _ = checks(harness, 1002)
    harness.at(1003, symptom("node-0", None, 1003, "network", "fault", detector="port"))
    report(harness, first, "failed", 1004)
    harness.at(1005)
    assert harness.manager.state.quarantine.nodes["node-0"].devices == {}


def test_a_failed_check_outweighs_a_readmission_of_the_same_moment() -> None:
    harness = IncidentHarness(*nodes(COUNT))
    emptied(harness, again(harness, 1000), 1001)
    first, _ = checks(harness, 1002)
    harness.at(1003, fault("node-0", 3, 1003))
    harness.know(readmission("node-0", 1004))
    harness.at(1005)
    report(harness, first, "failed", 1006, detail="GPU 3 has wrong results")
    seen = _seen(harness, 1007)
    assert [(c.node, c.condition) for c in seen] == [("node-0", "drained")]
    assert "GPU 3 has wrong results" in seen[0].reason


def test_two_gangs_that_share_nodes_both_wait_for_their_checks() -> None:
    halves = tuple(Allocation(workload="ab"[i % 2], replica=str(i), devices=(i,)) for i in range(8))
    harness = IncidentHarness(*(msgspec.structs.replace(node, allocations=halves) for node in nodes(COUNT)))
    for name in "ab":
        harness.know(msgspec.structs.replace(TRAIN, workload=name))
    for index in (400, 1000):
        symptoms = [msgspec.structs.replace(hang(index, 130), workload=name, record=name) for name in "ab"]
        harness.at(index, *symptoms)
        for name in "ab":
            stop = msgspec.structs.replace(stopped(index), id=f"{name}-{index}", workload=name, beneficiary=name)
            harness.manager.note(stop)
            harness.manager.receive(outcome(stop, "done"))
            if index == 400:
                harness.manager.note(msgspec.structs.replace(started(401), workload=name))
    harness.know(*(left(node, 1001) for node in nodes(COUNT)))
    (first, second) = checks(harness, 1002)
    assert harness.manager.is_checked("a")
    assert harness.manager.is_checked("b")
    assert {first.node, second.node} == {"node-0", "node-1"}


def test_the_incident_stays_open_while_the_gang_is_stopped() -> None:
    harness = IncidentHarness(*nodes(COUNT))
    emptied(harness, again(harness, 1000), 1001)
    for index in range(1002, 1006):
        _passed(harness, index)
    seen = harness.at(1000 + 50 * MINUTE)
    assert [i.status for i in seen if i.workload == "train"] == []
    harness.manager.note(started(1001 + 50 * MINUTE))
    seen = harness.at(1002 + 50 * MINUTE)
    assert [i.status for i in seen if i.workload == "train"] == ["resolved"]


@pytest.mark.parametrize(("begun", "condition"), [(True, ["drained"]), (False, [])])
def test_a_check_without_a_result_closes_its_node_only_if_it_had_begun(begun: bool, condition: list[str]) -> None:
    """The platform may have closed it, and only a check opens it again."""
    harness = IncidentHarness(*nodes(COUNT))
    emptied(harness, again(harness, 1000), 1001)
    first, second = checks(harness, 1002)
    if begun:
        report(harness, first, "accepted", 1003)
    report(harness, second, "refused", 1003, code="rate")
    assert harness.manager.is_checked("train")
    assert [c.condition for c in _seen(harness, 1004 + 61 * MINUTE)] == condition
    assert not harness.manager.is_checked("train")


def test_it_waits_no_longer_than_a_quarter_of_an_hour() -> None:
    harness = IncidentHarness(*nodes(COUNT))
    emptied(harness, again(harness, 1000), 1001)
    for check in checks(harness, 1002):
        report(harness, check, "accepted", 1003)
    harness.at(999 + 15 * MINUTE)
    assert harness.manager.is_checked("train")
    assert checks(harness, 1000 + 15 * MINUTE) == []
    assert not harness.manager.is_checked("train")


def test_checks_leave_half_of_what_the_guard_allows_to_other_decisions() -> None:
    limit = ActuatorParameters().per_cell
    assert limit.actions >= 2 * MOST_BEGUN
    assert limit.window_s <= BEGUN_WITHIN_S


def test_not_all_checks_of_a_large_gang_begin_at_once() -> None:
    """The actuator allows 60 decisions in ten minutes, and others need some of them."""
    harness = IncidentHarness(*nodes(80))
    harness.manager = IncidentManager(CELL, HealthParameters(quarantine_share=0.9), harness.directory)
    stop = again(harness, 1000)
    harness.know(*(left(node, 1001) for node in nodes(80)))
    harness.manager.receive(outcome(stop, "done", time_ns=at(1001)))
    made: list[int] = []
    for index in range(1002, 1002 + 14 * MINUTE):
        found = checks(harness, index)
        made.append(len(found))
        for check in found:
            report(harness, check, "done", index)
    assert [(i, n) for i, n in enumerate(made) if n] == [(0, 30), (10 * MINUTE, 30)]
