"""Nodes go out on more than one sign, never too many at once, and come back by evidence alone."""

import msgspec
from hypothesis import given, settings, strategies as st
from tests.streams.engine.cell.arbiter_harness import move
from tests.streams.engine.incident_harness import IncidentHarness, at, nodes, symptom
from tests.streams.engine.scene import CELL, tick

from flyball_contracts.records import Evidence, Inventory, NodeCondition, Readmission, Symptom


def conditions(harness: IncidentHarness, index: int, *symptoms: Symptom) -> list[NodeCondition]:
    harness.at(index, *symptoms)
    return list(harness.manager.conditions(tick(index)))


def fault(node: str, row: int, index: int, record: str = "e1") -> Symptom:
    return symptom(node, row, index, "pcie", "fault", detector="xid 79", record=record, workload="train")


def sign(node: str, row: int, index: int, detector: str) -> Symptom:
    return symptom(node, row, index, "unknown", "sign", detector=detector)


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
    assert conditions(harness, 100_000) == []
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


def test_a_platform_that_opens_it_again_and_a_gpu_that_was_replaced_are_evidence() -> None:
    harness = IncidentHarness(*nodes(8))
    harness.at(1, fault("node-1", 3, 1), fault("node-2", 3, 1, "e2"))
    node = nodes(8)[1]
    harness.know(msgspec.structs.replace(left(node, 2), schedulable=False))
    assert ("node-1", "drained") in [(c.node, c.condition) for c in conditions(harness, 3)]
    harness.know(left(node, 4))
    assert ("node-1", "the platform") in [(c.node, c.checked_by) for c in conditions(harness, 5)]
    other = nodes(8)[2]
    devices = tuple(msgspec.structs.replace(d, id=f"{d.id}-new") if i == 3 else d for i, d in enumerate(other.devices))
    harness.know(msgspec.structs.replace(other, devices=devices, epoch=6, time_ns=at(6)))
    assert ("node-2", "the inventory") in [(c.node, c.checked_by) for c in conditions(harness, 7)]


def test_what_the_application_or_the_cloud_did_puts_no_node_out() -> None:
    harness = IncidentHarness()
    harness.at(1, symptom("node-1", None, 1, "reclaimed", "fault"), symptom("node-2", 1, 1, "application", "effect"))
    assert harness.manager.state.quarantine.nodes == {}


STEP = st.tuples(st.integers(0, 5), st.sampled_from(["fault", "sign", "other sign", "leave", "readmit", "nothing"]))


@settings(max_examples=25)
@given(st.lists(STEP, max_size=25))
def test_whatever_happens_nodes_go_only_where_they_may_and_never_too_many_are_out(steps: list[tuple[int, str]]) -> None:
    harness, held = IncidentHarness(*nodes(6)), nodes(6)
    before: dict[str, str] = {}
    evidence: dict[str, int] = {}
    for count, (n, what) in enumerate(steps, 1):
        index, node = 10 * count, f"node-{n}"
        found: list[Symptom] = []
        if what == "fault":
            found = [fault(node, 0, index, f"e{index}")]
        elif what.endswith("sign"):
            found = [sign(node, 0, index, what)]
        elif what == "leave":
            harness.know(left(held[n], index))
        elif what == "readmit":
            harness.know(readmission(node, index))
            evidence[node] = index
        for published in (*conditions(harness, index, *found), *conditions(harness, index + 5)):
            if published.node in before:
                assert published.condition == before[published.node] or published.condition in reachable(
                    before[published.node]
                )
            if published.condition == "checked":
                assert published.evidence
                assert published.node in evidence
            before[published.node] = published.condition
            if published.condition == "back":
                del before[published.node]
        harness.restart()
        assert sum(condition in ("cordoned", "drained", "checked") for condition in before.values()) <= 2


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
