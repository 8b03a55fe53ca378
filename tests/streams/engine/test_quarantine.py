"""Nodes go out on more than one sign, never too many at once, and come back by evidence alone."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st
from tests.streams.engine.cell.arbiter_harness import move, outcome
from tests.streams.engine.incident_harness import IncidentHarness, at, moved, nodes, silence, symptom
from tests.streams.engine.scene import CELL, inventory, tick

from flyball_contracts.records import (
    Allocation,
    Device,
    Evidence,
    Inventory,
    NodeCondition,
    Proposal,
    Readmission,
    Symptom,
)
from flyball_contracts.records.commands.outcomes import OutcomeStatus
from flyball_contracts.topics import INVENTORY


def conditions(harness: IncidentHarness, index: int, *symptoms: Symptom) -> list[NodeCondition]:
    harness.at(index, *symptoms)
    return list(harness.manager.conditions(tick(index)))


def fault(node: str, row: int, index: int, record: str = "e1") -> Symptom:
    return symptom(node, row, index, "pcie", "fault", detector="xid 79", record=record, workload="train")


def sign(node: str, row: int, index: int, detector: str) -> Symptom:
    return symptom(node, row, index, "unknown", "sign", detector=detector, record=f"{node}/{detector}/{index}")


def readmission(node: str, index: int) -> Readmission:
    return Readmission(cell=CELL, time_ns=at(index), by="ann", node=node, evidence="dcgmi diag -r 3 passed")


def left(node: Inventory, epoch: int) -> Inventory:
    """The node when nobody is on it any more."""
    return msgspec.structs.replace(node, allocations=(), epoch=epoch, time_ns=at(epoch))


def test_a_fault_cordons_then_it_drains_and_evidence_alone_brings_it_back() -> None:
    harness = IncidentHarness()
    (one,) = conditions(harness, 1, fault("node-1", 3, 1))
    assert (one.node, one.condition, one.devices, one.gpus_moved) == ("node-1", "cordoned", ("node-1/3",), 32)
    unhealthy: dict[str, int] = {}
    harness.manager.quarantine(unhealthy, 7)
    assert unhealthy == {"node-1/3": 7}
    harness.know(left(nodes(2)[1], 2))
    (two,) = conditions(harness, 3)
    assert two.condition == "drained"
    assert conditions(harness, 80_000) == []
    harness.restart()
    harness.know(readmission("node-1", 100_001))
    (three,) = conditions(harness, 100_002)
    assert (three.condition, three.checked_by, three.evidence) == ("checked", "ann", "dcgmi diag -r 3 passed")
    (four,) = conditions(harness, 100_003)
    assert four.condition == "back"
    harness.manager.quarantine(unhealthy, 8)
    assert unhealthy == {}


def test_what_was_published_before_two_signs_agreed_brings_nothing_back() -> None:
    harness = IncidentHarness()
    harness.know(readmission("node-1", 0))
    bad = msgspec.structs.replace(sign("node-1", 3, 1, "straggling"), severity="critical")
    published = conditions(harness, 1, bad, sign("node-1", 3, 1, "throttle"))
    assert [c.condition for c in published] == ["cordoned"]
    assert [c.condition for i in range(2, 10) for c in conditions(harness, i)] == []
    harness.know(readmission("node-1", 10))
    assert [c.condition for i in (11, 12) for c in conditions(harness, i)] == ["checked", "back"]


def test_what_it_was_out_for_is_forgiven_and_what_is_new_is_not() -> None:
    harness = IncidentHarness()
    harness.at(1, fault("node-1", 3, 1))
    harness.know(readmission("node-1", 5))
    for index in (6, 7):
        harness.at(index)
    cited = Evidence(name="xid", value=79.0, record="e1")
    again = symptom("node-1", 3, 8, "pcie", "fault", detector="failing", record="a9", evidence=(cited,))
    assert conditions(harness, 8, again) == []
    p = msgspec.structs.replace(move(8, "train", "1-3", "node-1", 3), evidence=(cited,))
    assert not harness.manager.permits(p)
    (one,) = conditions(harness, 20, fault("node-1", 3, 20, record="e2"))
    assert one.condition == "cordoned"
    assert harness.manager.permits(
        msgspec.structs.replace(p, evidence=(Evidence(name="xid", value=79.0, record="e2"),))
    )


def test_one_that_stays_out_is_published_again_each_day() -> None:
    """Commands look back a week."""
    harness = IncidentHarness()
    harness.at(1, fault("node-1", 3, 1))
    assert len(conditions(harness, 2)) == 1
    seen = [c for day in range(1, 9) for index in (0, 600) for c in conditions(harness, day * 86_400 + index)]
    assert len({c.time_ns for c in seen}) == len(seen)
    assert [c.node for c in seen if c.time_ns >= at(4 * 86_400)] == ["node-1"] * 5


def test_evidence_from_before_the_last_fault_is_none() -> None:
    harness = IncidentHarness()
    harness.know(readmission("node-1", 3))
    assert [c.condition for c in conditions(harness, 5, fault("node-1", 3, 5))] == ["cordoned"]
    assert conditions(harness, 6) == []
    assert harness.manager.state.quarantine.nodes["node-1"].condition == "cordoned"


def test_one_sign_is_suspect_and_watched_when_it_stays_and_never_out() -> None:
    harness = IncidentHarness()
    assert [c.condition for c in conditions(harness, 1, sign("node-1", 2, 1, "straggling"))] == ["suspect"]
    seen = [c.condition for i in range(2, 200, 10) for c in conditions(harness, i, sign("node-1", 2, i, "straggling"))]
    assert seen == ["watched"]
    assert [c.condition for i in (900, 901) for c in conditions(harness, i)] == ["back"]


def test_two_signs_that_agree_put_it_out() -> None:
    harness = IncidentHarness()
    harness.at(1, sign("node-1", 2, 1, "straggling"))
    (one,) = conditions(harness, 5, sign("node-1", 2, 5, "throttle"))
    assert (one.condition, one.reason.partition(";")[0]) == ("cordoned", "straggling and throttle")


def test_never_more_than_a_share_of_the_cell_is_out_and_who_waits_is_published_and_not_moved() -> None:
    harness = IncidentHarness(*nodes(8))
    published = conditions(harness, 1, *(fault(f"node-{n}", 0, 1, f"e{n}") for n in range(4)))
    assert [c.condition for c in published] == ["cordoned", "cordoned", "watched", "watched"]
    assert "2 nodes of the cell are cordoned already" in published[2].held
    assert harness.manager.permits(move(1, "train", "0-0", "node-0", 0))
    assert not harness.manager.permits(move(1, "train", "2-0", "node-2", 0))
    harness.know(readmission("node-0", 3))
    later = [c for i in (4, 5, 6) for c in conditions(harness, i)]
    assert [(c.node, c.condition) for c in later] == [
        ("node-0", "checked"), ("node-0", "back"), ("node-2", "cordoned"),
    ]  # fmt: skip


def test_who_lifts_our_cordon_and_other_gpus_at_the_same_places_are_evidence() -> None:
    harness = IncidentHarness(*nodes(8))
    harness.at(1, fault("node-1", 3, 1), fault("node-2", 3, 1, "e2"))
    node = left(nodes(8)[1], 2)
    harness.know(msgspec.structs.replace(node, schedulable=False, cordon="flyball"))
    assert ("node-1", "drained") in [(c.node, c.condition) for c in conditions(harness, 3)]
    harness.know(msgspec.structs.replace(node, cordon="lifted", epoch=4, time_ns=at(4)))
    assert ("node-1", "the platform") in [(c.node, c.checked_by) for c in conditions(harness, 5)]
    harness.know(msgspec.structs.replace(nodes(8)[2], devices=renamed(nodes(8)[2], {3}), epoch=6, time_ns=at(6)))
    assert ("node-2", "the inventory") in [(c.node, c.checked_by) for c in conditions(harness, 7)]


def renamed(node: Inventory, rows: set[int], *, places: bool = True) -> tuple[Device, ...]:
    """The node's GPUs, some under other ids: others at the same places, or as they are called without an agent."""
    return tuple(
        msgspec.structs.replace(d, id=f"{d.id}-new", pci_address=d.pci_address if places else None) if i in rows else d
        for i, d in enumerate(node.devices)
    )


def disguised(node: Inventory, how: str) -> Inventory:
    """The faulty node as it looks while nobody has looked after it."""
    changes: dict[str, dict[str, Any]] = {
        "no device": {"devices": (), "allocations": ()},
        "names of the controller": {"devices": renamed(node, set(range(8)), places=False)},
        "one fewer": {"devices": node.devices[:3] + node.devices[4:]},
        "not ready": {"schedulable": False},
        "cordoned by somebody": {"schedulable": False, "cordon": "other"},
        "lifted long ago": {"cordon": "lifted"},
    }
    return msgspec.structs.replace(node, **changes[how])


@pytest.mark.parametrize(
    "how",
    [
        "no device", "names of the controller", "one fewer", "not ready", "cordoned by somebody", "lifted long ago",
        "tombstone", "silence",
    ],
)  # fmt: skip
def test_absence_silence_and_other_names_bring_nothing_back(how: str) -> None:
    harness = IncidentHarness(*nodes(8))
    harness.at(1, fault("node-1", 3, 1))
    node = left(nodes(8)[1], 2)
    if how == "tombstone":
        harness.directory.forget(INVENTORY.name, "node-1")
    elif how == "silence":
        harness.know(silence(2, 20, node="node-1"))
    else:
        harness.know(disguised(node, how))
    for index in (3, 4):
        conditions(harness, index)
        harness.restart()
        if how != "tombstone":
            shut: dict[str, int] = {}
            harness.manager.quarantine(shut, 9)
            there = {d.id for d in harness.directory.inventories["node-1"].devices}
            assert shut.keys() >= ({"node-1/3"} if "node-1/3" in there else there)
    harness.know(msgspec.structs.replace(node, epoch=30, time_ns=at(30)))
    assert [c.condition for i in (31, 32) for c in conditions(harness, i) if c.condition in ("checked", "back")] == []
    assert harness.manager.state.quarantine.nodes["node-1"].condition == "drained"
    assert not harness.manager.state.quarantine.cleared
    harness.know(readmission("node-1", 33))
    assert [c.condition for i in (34, 35) for c in conditions(harness, i)] == ["checked", "back"]


def test_a_silence_only_interrupts_what_waits_for_room() -> None:
    harness = IncidentHarness(*nodes(8))
    harness.at(1, *(fault(f"node-{n}", 0, 1, f"e{n}") for n in range(4)))
    harness.know(silence(2, 20, node="node-2"))
    assert "node-2" not in [c.node for i in (3, 4) for c in conditions(harness, i) if c.condition == "back"]
    harness.know(readmission("node-0", 5), readmission("node-1", 5))
    assert "node-2" not in [c.node for i in (6, 7, 8) for c in conditions(harness, i) if c.condition == "cordoned"]
    assert ("node-2", "cordoned") in [(c.node, c.condition) for c in conditions(harness, 23)]


@pytest.mark.parametrize(("count", "most"), [(1, 1), (2, 1), (3, 1), (5, 1), (6, 2), (20, 2), (40, 4)])
def test_the_share_of_a_small_cell_is_small(count: int, most: int) -> None:
    harness = IncidentHarness(*nodes(count))
    for n in range(count):  # one a tick
        harness.at(1 + n, symptom(f"node-{n}", 0, 1 + n, "driver", "fault", detector="xid 78", record=f"e{n}"))
    assert len(harness.manager.state.quarantine.out()) == most


@pytest.mark.parametrize("together", [True, False])
def test_many_nodes_that_fail_as_one_are_cordoned_up_to_the_share_and_the_rest_waits_for_a_person(
    together: bool,
) -> None:
    harness, published = IncidentHarness(*nodes(40)), list[NodeCondition]()
    found = [
        symptom(f"node-{n}", 0, 1, "driver", "fault", detector="xid 78", record=f"e{n}", workload="train")
        for n in range(35)
    ]
    for index, batch in enumerate([found] if together else [[one] for one in found], 1):
        published += conditions(harness, index, *batch)
        harness.restart()
    assert {c.level for c in harness.open()} == {"cell"}
    last = {c.node: c for c in published}
    assert sum(c.condition == "cordoned" for c in last.values()) == 4
    assert sum("a person decides" in c.held for c in last.values()) == 31
    moves = [
        msgspec.structs.replace(
            move(40, "train", f"{n}-0", f"node-{n}", 0), evidence=(Evidence(name="xid", value=78.0, record=f"e{n}"),)
        )
        for n in range(35)
    ]
    assert sum(harness.manager.permits(one) for one in moves) == 4


def test_one_event_is_one_sign_however_many_detectors_cite_it() -> None:
    harness = IncidentHarness(*nodes(8))
    cited = Evidence(name="xid", value=999.0, record="e5")
    first = symptom("node-1", 3, 1, "unknown", "sign", detector="xid 999", record="e5")
    again = symptom("node-1", 3, 1, "unknown", "sign", detector="suspect", record="a5", evidence=(cited,))
    assert [c.condition for c in conditions(harness, 1, first, again)] == ["suspect"]
    other = symptom("node-1", 3, 2, "unknown", "sign", detector="nvlink", record="a6")
    assert [c.condition for c in conditions(harness, 2, other)] == ["cordoned"]


def test_what_the_application_or_the_cloud_did_puts_no_node_out() -> None:
    harness = IncidentHarness()
    harness.at(1, symptom("node-1", None, 1, "reclaimed", "fault"), symptom("node-2", 1, 1, "application", "effect"))
    assert harness.manager.state.quarantine.nodes == {}


def slow(node: str, row: int, index: int, **more: Any) -> Symptom:
    """A device whose clock is below that of its peers."""
    given: dict[str, Any] = {"detector": "straggling", "severity": "warning", "workload": "train"}
    return symptom(node, row, index, "unknown", "sign", record=f"{node}/{row}/{index}", **(given | more))


def leave(index: int, node: str, row: int, replica: str) -> Proposal:
    return move(index, "train", replica, node, row, 0.8)


def test_a_slow_device_loses_its_replica_on_a_second_sign_or_when_it_lasts_and_goes_out_with_it() -> None:
    harness = IncidentHarness(*nodes(8))
    conditions(harness, 1, slow("node-1", 3, 1))
    assert not harness.manager.permits(leave(1, "node-1", 3, "1-3"))
    harness.restart()
    conditions(harness, 62, slow("node-1", 3, 62, since_ns=at(1)))
    assert harness.manager.permits(leave(62, "node-1", 3, "1-3"))
    harness = IncidentHarness(*nodes(8))
    other = symptom("node-2", 3, 63, "unknown", "effect", detector="step_time", gang=True, workload="train", record="s")
    conditions(harness, 63, slow("node-2", 3, 63), other)
    assert harness.manager.permits(leave(63, "node-2", 3, "2-3"))
    harness.manager.note(msgspec.structs.replace(moved(63, "node-2", 3), confidence=0.8))
    (one,) = harness.manager.conditions(tick(63))
    assert (one.node, one.condition, one.devices) == ("node-2", "cordoned", ("node-2/3",))
    assert one.reason.startswith("work leaves its device node-2/3")
    harness.know(left(nodes(8)[2], 64))
    assert [c.condition for c in conditions(harness, 65)] == ["drained"]
    assert [check.node for i in range(66, 500) for check in harness.manager.checks(tick(i), 10)][:1] == ["node-2"]


@pytest.mark.parametrize("status", ["refused", "planned", "failed"])
@pytest.mark.parametrize("faulty", [False, True])
def test_a_move_that_was_not_carried_out_closes_nothing_but_what_is_faulty(status: OutcomeStatus, faulty: bool) -> None:
    harness = IncidentHarness(*nodes(8))
    for index in (1, 62):
        conditions(harness, index, slow("node-2", 3, index, since_ns=at(1)))
    if faulty:
        conditions(harness, 62, fault("node-2", 3, 62))
    decided = msgspec.structs.replace(moved(62, "node-2", 3), confidence=0.8)
    harness.manager.note(decided)
    quarantine = harness.manager.state.quarantine
    assert quarantine.out() == {"node-2"}
    harness.restart()
    harness.manager.receive(outcome(decided, status))
    assert harness.manager.state.quarantine.out() == ({"node-2"} if faulty else set())


def test_a_move_of_which_nobody_knows_what_it_did_keeps_its_node_closed_until_it_is_checked() -> None:
    harness = IncidentHarness(*nodes(8))
    for index in (1, 62):
        conditions(harness, index, slow("node-2", 3, index, since_ns=at(1)))
    decided = msgspec.structs.replace(moved(62, "node-2", 3), confidence=0.8)
    harness.manager.note(decided)
    unknown = msgspec.structs.replace(outcome(decided, "failed"), detail="unknown outcome: no answer for 300 s")
    harness.manager.receive(unknown)
    assert harness.manager.state.quarantine.out() == {"node-2"}
    harness.know(left(nodes(8)[2], 64))
    assert [c.condition for c in conditions(harness, 65)] == ["drained"]
    assert [check.node for i in range(66, 500) for check in harness.manager.checks(tick(i), 10)][:1] == ["node-2"]


def test_what_departs_elsewhere_at_once_is_no_second_sign_of_a_slow_device() -> None:
    harness = IncidentHarness(*nodes(8))
    departures = [
        symptom(
            f"node-{n}", 1, index, "unknown", "effect", detector="departure", workload=f"w{n}", statistical=True,
            severity="warning", evidence=(Evidence(name="hw.power", value=100.0, expected=250.0, unit="W"),),
        )
        for n, index in ((1, 1), (2, 2), (3, 3))
    ]  # fmt: skip
    for index, one in enumerate(departures, start=1):
        conditions(harness, index, one)
    conditions(harness, 80, slow("node-5", 1, 80, workload="w2"))
    assert not harness.manager.permits(move(80, "w2", "5-1", "node-5", 1, 0.8))


def test_moves_off_slow_devices_stay_within_the_share() -> None:
    harness = IncidentHarness(*nodes(40))
    for index in (1, 62):
        conditions(harness, index, *(slow(f"node-{n}", 0, index, since_ns=at(1)) for n in range(20)))
    assert sum(harness.manager.permits(leave(62, f"node-{n}", 0, f"{n}-0")) for n in range(20)) == 4


@pytest.mark.parametrize("renames", [False, True])
def test_a_replica_that_is_slow_wherever_it_runs_is_the_cause_and_moves_no_more(renames: bool) -> None:
    harness, places = IncidentHarness(*nodes(40)), ["node-1", "node-2", "node-3"] if renames else ["node-1", "node-2"]
    for count, node in enumerate(places):
        index, replica = 100 * count + 1, f"rank-{count if renames else 0}"
        for name in places:
            held = [Allocation(workload="train", replica=replica, devices=(0,))] if name == node else []
            harness.know(inventory(name, 8, held, epoch=index, time_ns=at(index)))
        for i in (index, index + 61):
            conditions(harness, i, slow(node, 0, i, since_ns=at(index)))
        permitted = harness.manager.permits(leave(index + 61, node, 0, replica))
        assert permitted == (node != places[-1])
        if permitted:
            decided = msgspec.structs.replace(moved(index + 61, node, 0), confidence=0.8, replica=replica)
            harness.manager.note(decided)
            harness.restart()
    assert {c.cause for c in harness.open() if places[-1] in c.nodes} == {"application"}
    assert places[-1] not in harness.manager.state.quarantine.nodes


LOOKS = ("no device", "names of the controller", "one fewer", "not ready", "cordoned by somebody")
STEP = st.tuples(
    st.integers(0, 2),
    st.sampled_from(
        [
            "fault", "storm", "sign", "other sign", "leave", "readmit", "nothing", "tombstone", "silence", "cordon",
            "lift", "replace", *LOOKS,
        ]
    ),
)  # fmt: skip


class Course:
    """Twelve nodes to which things happen, and what each of them has to show for itself."""

    def __init__(self) -> None:
        self.harness, self.shown = IncidentHarness(*nodes(12)), nodes(12)
        self.failed: dict[str, int] = {}
        self.evidence: dict[str, int] = {}
        self.records: dict[str, str] = {}

    def device(self, node: str) -> str:
        """Its first GPU now."""
        return self.shown[int(node[5:])].devices[0].id

    def do(self, n: int, what: str, index: int) -> list[Symptom]:
        """Let something happen to a node, or to it and six more; what is seen of it."""
        node = f"node-{n}"
        if what in ("fault", "storm"):
            names = [f"node-{(n + i) % 12}" for i in range(7 if what == "storm" else 1)]
            for name in names:
                self.failed[name], self.records[f"{name}/e{index}"] = index, name
            return [
                msgspec.structs.replace(fault(name, 0, index, f"{name}/e{index}"), device=self.device(name))
                for name in names
            ]
        if what.endswith("sign"):
            return [msgspec.structs.replace(sign(node, 0, index, what), device=self.device(node))]
        if what == "readmit":
            self.harness.know(readmission(node, index))
            self.evidence[node] = index
        elif what == "silence":
            self.harness.know(silence(index, 30, node=node))
        elif what == "tombstone":
            self.harness.directory.forget(INVENTORY.name, node)
        elif what == "replace":
            self.shown[n] = msgspec.structs.replace(self.shown[n], devices=renamed(self.shown[n], {0}))
            self.evidence[node] = index
        elif what == "cordon":
            self.shown[n] = msgspec.structs.replace(self.shown[n], schedulable=False, cordon="flyball")
        elif what == "lift" and self.shown[n].cordon == "flyball":
            self.evidence[node] = index
            self.shown[n] = msgspec.structs.replace(self.shown[n], schedulable=True, cordon="lifted")
        elif what == "leave":
            self.shown[n] = left(self.shown[n], index)
        if what in ("replace", "cordon", "lift", "leave", "nothing"):
            self.harness.know(msgspec.structs.replace(self.shown[n], epoch=index, time_ns=at(index)))
        elif what in LOOKS:
            self.harness.know(msgspec.structs.replace(disguised(self.shown[n], what), epoch=index, time_ns=at(index)))
        return []


@settings(max_examples=40)
@given(st.sampled_from(["fault", "storm"]), st.lists(STEP, min_size=8, max_size=25))
def test_whatever_happens_nodes_go_only_where_they_may_and_never_too_many_are_out(
    first: str, steps: list[tuple[int, str]]
) -> None:
    course, before = Course(), dict[str, str]()
    for count, (n, what) in enumerate([(0, first), *steps], 1):
        index, harness = 10 * count, course.harness
        found = course.do(n, what, index)
        for published in (*conditions(harness, index, *found), *conditions(harness, index + 5)):
            if published.node in before:
                assert published.condition == before[published.node] or published.condition in reachable(
                    before[published.node]
                )
            if published.condition == "checked":
                assert published.evidence
                assert course.evidence.get(published.node, -1) >= course.failed.get(published.node, 0)
            before[published.node] = published.condition
            if published.condition == "back":
                del before[published.node]
        assert {
            course.records[name] for name in harness.manager.state.quarantine.cleared if name in course.records
        } <= (course.evidence.keys())
        out = harness.manager.state.quarantine.out()
        assert len(out) <= 2
        for name in harness.manager.state.quarantine.nodes.keys() & course.failed.keys():
            leaving = msgspec.structs.replace(
                move(index, "train", "0-0", name, 0), device=course.device(name), evidence=()
            )
            silenced = all(c.silence for c in harness.manager.correlation.of_device(leaving.device, name))
            assert harness.manager.permits(leaving) <= (
                name in out or len(out) < 2 or silenced or name not in harness.directory.inventories
            )
        harness.restart()


MAY = {
    "suspect": "watched cordoned back",
    "watched": "cordoned back",
    "cordoned": "drained checked",
    "drained": "cordoned checked",
    "checked": "back cordoned",
    "back": "",
}
"""The way of a node as docs/decisions/0020 tells it."""


def reachable(condition: str) -> set[str]:
    """Conditions that one tick may pass on to: a record tells the last of them."""
    first = set(MAY[condition].split())
    return first | {name for one in first & {"suspect", "watched"} for name in MAY[one].split()}
