"""One event is one incident, the cause before what follows from it; and what people say of it counts."""

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from msgspec.structs import replace
from tests.streams.engine.cell.arbiter_harness import move, outcome
from tests.streams.engine.incident_harness import IncidentHarness, at, label, moved, nodes, scaled, silence, symptom
from tests.streams.engine.scene import CELL, tick

from flyball_contracts.records import Acknowledgement, Cause, Device, Evidence, Incident, Proposal, Symptom
from flyball_contracts.records.incidents import Strength


def hang(index: int, workload: str = "train") -> Symptom:
    return symptom("node-0", None, index, "unknown", "effect", workload=workload, gang=True, detector="hang")


def shape(incidents: list[Incident]) -> list[tuple[str, str, str]]:
    return sorted((i.level, i.device or i.node or i.workload, i.cause) for i in incidents)


def test_a_fault_of_a_gpu_explains_its_gang_that_hangs_on_other_nodes() -> None:
    harness = IncidentHarness()
    (first,) = harness.at(1, symptom("node-1", 3, 1, "pcie", "fault", workload="train", detector="xid 79"))
    assert (first.level, first.device, first.cause, first.strength) == ("gpu", "node-1/3", "pcie", "fault")
    assert first.gpus_affected == 32
    assert first.peers == ("node-0", "node-2", "node-3")
    (again,) = harness.at(
        30, hang(25), *(symptom(f"node-{n}", 0, 25, "unknown", "effect", workload="train") for n in (0, 2))
    )
    assert (again.id, again.cause, again.device, again.symptom_count) == (first.id, "pcie", "node-1/3", 4)
    assert again.symptoms[0].detector == "xid 79"


def test_a_cause_that_is_seen_after_its_effects_takes_them_over_and_keeps_their_onset() -> None:
    harness = IncidentHarness()
    (first,) = harness.at(1, hang(1))
    assert (first.level, first.workload, first.cause) == ("workload", "train", "unknown")
    (now,) = harness.at(40, symptom("node-2", 5, 39, "gpu", "fault", workload="train", detector="xid 119"))
    assert (now.id, now.level, now.device, now.cause, now.onset_ns) == (first.id, "gpu", "node-2/5", "gpu", at(1))


def test_two_faults_far_from_each_other_are_two_incidents_though_one_gang_has_both() -> None:
    harness = IncidentHarness()
    harness.at(1, symptom("node-0", 0, 1, "pcie", "fault", workload="train"))
    harness.at(200, symptom("node-3", 1, 200, "gpu", "fault", workload="train"))
    assert shape(harness.open()) == [("gpu", "node-0/0", "pcie"), ("gpu", "node-3/1", "gpu")]


def test_a_switch_or_node_absorbs_what_its_gpus_show_before_and_after() -> None:
    harness = IncidentHarness()
    before = harness.at(1, *(symptom("node-1", row, 1, "nvlink", "fault", workload="train") for row in (0, 1)))
    assert {i.level for i in before} == {"link"}
    published = harness.at(3, symptom("node-1", None, 3, "nvlink", "fault", detector="xid 12028"))
    after = harness.at(5, *(symptom("node-1", row, 5, "nvlink", "fault", workload="train") for row in range(8)))
    (standing,) = harness.open()
    assert (standing.level, standing.node, standing.cause) == ("node", "node-1", "nvlink")
    assert {i.id for i in [*before, *published, *after] if i.status == "open"} == {standing.id}
    assert standing.symptoms[0].detector == "xid 12028"


def test_a_fault_of_a_gpu_is_not_its_node_s_where_the_gpu_is_divided_into_many_instances() -> None:
    (node, *others) = nodes(4)
    parts = [
        Device(id=f"MIG-{i}", model="h100", memory_bytes=10, parent="node-0/0", mig_profile="1g.10gb") for i in range(7)
    ]
    harness = IncidentHarness(replace(node, devices=(*node.devices, *parts)), *others)
    fault = symptom("node-0", 0, 1, "gpu", "fault", record="xid")
    of_it = [fault, *(replace(fault, device=part.id) for part in parts)]
    harness.at(1, *of_it)
    harness.at(2)
    assert {i.level for i in harness.open()} == {"gpu"}
    assert set(harness.manager.state.quarantine.nodes["node-0"].devices) == {s.device for s in of_it}
    harness.at(3, *(symptom("node-0", row, 3, "gpu", "fault") for row in (1, 2)))
    assert [i.level for i in harness.open()] == ["node"]


def test_three_gpus_of_a_node_are_the_node_s_incident_and_three_nodes_the_cell_s() -> None:
    harness = IncidentHarness()
    harness.at(1, *(symptom("node-1", row, 1, "power", "fault") for row in range(3)))
    (one,) = harness.open()
    assert (one.level, one.node, one.cause) == ("node", "node-1", "power")
    published = harness.at(4, *(symptom(f"node-{n}", row, 4, "power", "fault") for n in (2, 3) for row in range(4)))
    (all_of_it,) = harness.open()
    assert (all_of_it.level, all_of_it.cause, all_of_it.id) == ("cell", "power", one.id)
    assert all_of_it.nodes == ("node-1", "node-2", "node-3")
    assert {i.status for i in published} == {"open"}


def test_gpus_that_fail_by_themselves_on_three_nodes_are_no_incident_of_the_cell() -> None:
    harness = IncidentHarness()
    harness.at(1, *(symptom(f"node-{n}", 0, 1, "pcie", "fault") for n in range(3)))
    assert [i.level for i in harness.open()] == ["gpu"] * 3


def departed(node: int, index: int, rises: bool = True, metric: str = "hw.power", **more: str) -> Symptom:
    """A GPU of a workload of its own departs."""
    evidence = (Evidence(name=metric, value=400.0 if rises else 100.0, expected=250.0, unit="W"),)
    return symptom(
        f"node-{node}", 0, index, "unknown", "effect", workload=more.get("workload", f"alone-{node}"),
        detector="departure", statistical=True, evidence=evidence, severity="warning",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("others", "incidents"),
    [
        ([departed(1, 60), departed(2, 90)], 1),
        ([departed(1, 400)], 2),
        ([departed(1, 60, rises=False)], 2),
        ([departed(1, 60, metric="hw.temperature")], 2),
    ],
    ids=["at once, the same way", "later", "the other way", "another metric"],
)
def test_departures_of_several_workloads_are_one_incident_if_they_come_at_once_in_one_way(
    others: list[Symptom], incidents: int
) -> None:
    harness = IncidentHarness()
    harness.at(30, departed(0, 30))
    for one in others:
        harness.at((one.time_ns - at(0)) // (at(1) - at(0)), one)
    standing = harness.open()
    assert len(standing) == incidents
    assert sum(len(i.devices) for i in standing) == 1 + len(others)
    if incidents == 1:
        assert (standing[0].nodes, standing[0].onset_ns) == (("node-0", "node-1", "node-2"), at(30))
        assert "at once in 3 workloads" in standing[0].summary


def test_hundreds_that_depart_at_once_are_one_incident() -> None:
    harness = IncidentHarness()
    harness.at(30, *(departed(n, 30) for n in range(250)))
    (one,) = harness.open()
    assert "at once in 250 workloads" in one.summary


def test_a_fault_keeps_its_name_beside_a_burst_and_takes_its_effects_over() -> None:
    harness = IncidentHarness()
    harness.at(30, departed(0, 30), departed(1, 31))
    harness.at(40, symptom("node-3", 0, 40, "pcie", "fault", workload="train"))
    assert sorted(i.cause for i in harness.open()) == ["pcie", "unknown"]
    harness.at(50, symptom("node-1", 0, 50, "gpu", "fault", workload="alone-1"))
    assert shape(harness.open()) == [("gpu", "node-1/0", "gpu"), ("gpu", "node-3/0", "pcie")]


@pytest.mark.parametrize(("budget", "incidents"), [(1.0, 1), (10_000.0, 2)])
def test_where_departures_are_frequent_two_at_once_are_chance(budget: float, incidents: int) -> None:
    harness = IncidentHarness()
    harness.manager.correlation.budget = budget
    harness.at(30, departed(0, 30), departed(1, 31))
    assert len(harness.open()) == incidents


def test_what_was_merged_says_into_what() -> None:
    harness = IncidentHarness()
    a, b = (
        harness.at(1, symptom("node-1", 2, 1, "gpu", "fault")),
        harness.at(2, symptom("node-1", 5, 2, "thermal", "sign")),
    )
    published = harness.at(4, symptom("node-1", None, 3, "power", "fault"))
    ends = {i.id: i.merged_into for i in published if i.status == "merged"}
    (standing,) = harness.open()
    assert standing.id in {a[0].id, b[0].id}
    assert ends == {i.id: standing.id for i in (*a, *b) if i.id != standing.id}


def test_the_worst_comes_first() -> None:
    harness = IncidentHarness()
    published = harness.at(
        1,
        symptom("node-0", 1, 1, "unknown", "sign", severity="warning"),
        symptom("node-2", None, 1, "host", "fault"),
        symptom("node-3", 1, 1, "gpu", "fault"),
    )
    assert [i.level for i in published] == ["node", "gpu", "gpu"]
    assert [i.severity for i in published] == ["critical", "critical", "warning"]


def test_our_own_decision_explains_what_its_workload_shows_and_does_not_hide_a_fault() -> None:
    harness = IncidentHarness()
    harness.at(1)
    harness.manager.note(scaled(1))
    (published,) = harness.at(
        20, symptom("node-0", 2, 19, "unknown", "effect", workload="train", statistical=True, score=0.7)
    )
    assert (published.cause, published.severity, published.workload) == ("intervention", "info", "train")
    assert [a.decision for a in published.actions] == ["scale-1"]
    harness.at(30, symptom("node-0", 3, 30, "gpu", "fault", workload="train"))
    assert ("gpu", "node-0/3", "gpu") in shape(harness.open())


@pytest.mark.parametrize("status", ["planned", "refused", "failed"])
def test_a_decision_that_changed_nothing_explains_nothing(status: str) -> None:
    harness = IncidentHarness()
    harness.manager.note(scaled(1))
    harness.manager.receive(outcome(scaled(1), status))  # type: ignore[arg-type]
    (published,) = harness.at(20, hang(19))
    assert (published.cause, published.severity) == ("unknown", "critical")


def test_what_was_done_is_reported_with_what_became_of_it() -> None:
    harness = IncidentHarness()
    harness.at(1, symptom("node-1", 3, 1, "gpu", "fault", workload="train"))
    decision = moved(2, "node-1", 3)
    harness.manager.note(decision)
    harness.manager.receive(outcome(decision, "done", time_ns=at(9)))
    (published,) = harness.at(10)
    assert [(a.decision, a.type, a.status) for a in published.actions] == [(decision.id, "Migrate", "done")]
    assert published.revision == 2


def test_it_ends_when_nothing_is_seen_of_it_and_another_time_is_another_incident() -> None:
    harness = IncidentHarness()
    (first,) = harness.at(1, symptom("node-1", 3, 1, "gpu", "fault"))
    assert harness.at(600) == []
    (ended,) = harness.at(602)
    assert (ended.id, ended.status, ended.ended_ns) == (first.id, "resolved", tick(1).end_ns)
    (second,) = harness.at(700, symptom("node-1", 3, 700, "gpu", "fault"))
    assert second.id != first.id


def proposed(index: int, row: int, incident: Symptom) -> Proposal:
    return move(index, "train", f"1-{row}", "node-1", row)


def test_a_silenced_incident_is_listed_and_nothing_follows_until_the_silence_ends() -> None:
    harness = IncidentHarness(*nodes(8))
    fault = symptom("node-1", 3, 1, "gpu", "fault", workload="train")
    harness.know(silence(0, 50, node="node-1"))
    (published,) = harness.at(1, fault)
    assert published.silence == "maintenance"
    assert not harness.manager.permits(proposed(1, 3, fault))
    harness.at(2, symptom("node-2", 3, 2, "gpu", "fault"))
    assert harness.manager.permits(move(2, "train", "2-3", "node-2", 3))
    (over,) = harness.at(51)
    assert over.silence == ""
    assert harness.manager.permits(proposed(51, 3, fault))


@pytest.mark.parametrize(
    ("matchers", "is_silenced"),
    [
        ({"node": "node-*"}, True),
        ({"workload": "train"}, True),
        ({"workload": "other"}, False),
        ({"cause": "gpu"}, True),
        ({"cause": "thermal"}, False),
        ({"cause": "gpu", "node": "node-2"}, False),
        ({"device": "node-1/3"}, True),
        ({"removed": True}, False),
    ],
)
def test_all_matchers_of_a_silence_must_match(matchers: dict[str, str], is_silenced: bool) -> None:
    harness = IncidentHarness()
    harness.know(silence(0, 50, **matchers))
    (published,) = harness.at(1, symptom("node-1", 3, 1, "gpu", "fault", workload="train"))
    assert bool(published.silence) == is_silenced


def test_who_has_taken_it_on_is_reported_once() -> None:
    harness = IncidentHarness()
    (published,) = harness.at(1, symptom("node-1", 3, 1, "gpu", "fault"))
    harness.know(Acknowledgement(cell=CELL, time_ns=at(2), by="ann", incident=published.id))
    assert [i.acknowledged_by for i in harness.at(3)] == ["ann"]
    assert harness.at(4) == []


def test_who_has_taken_one_on_still_has_it_once_it_is_part_of_another_and_can_give_it_back() -> None:
    harness = IncidentHarness()
    (first,) = harness.at(1, symptom("node-1", 2, 1, "gpu", "fault"))
    (second,) = harness.at(2, symptom("node-1", 5, 2, "thermal", "sign"))
    harness.know(Acknowledgement(cell=CELL, time_ns=at(2), by="ann", incident=second.id))
    harness.at(3)
    harness.at(4, symptom("node-1", None, 4, "power", "fault"))
    (standing,) = harness.open()
    assert (standing.id, standing.acknowledged_by) == (first.id, "ann")
    harness.restart()
    harness.know(Acknowledgement(cell=CELL, time_ns=at(5), by="ann", incident=first.id, removed=True))
    assert [i.acknowledged_by for i in harness.at(6)] == [""]


def departure(row: int, index: int, score: float) -> Symptom:
    return symptom("node-1", row, index, "thermal", "effect", statistical=True, score=score, detector="departure")


def test_false_labels_raise_the_limit_of_that_cause_and_model_and_true_ones_take_it_back() -> None:
    harness = IncidentHarness()
    harness.know(label("a", 0, "thermal", False), label("b", 0, "thermal", False))
    assert harness.at(1, departure(0, 1, 0.7)) == []
    assert [i.device for i in harness.at(2, departure(1, 2, 0.81))] == ["node-1/1"]
    other = symptom("node-1", 4, 3, "gpu_memory", "effect", statistical=True, score=0.55)
    assert [i.device for i in harness.at(3, other)] == ["node-1/4"]
    harness.know(*(label(f"true-{i}", 3, "thermal", True) for i in range(6)))
    assert [i.device for i in harness.at(4, departure(5, 4, 0.55))] == ["node-1/5"]


def test_no_number_of_labels_hides_what_is_far_beyond_its_limit_or_what_a_rule_says() -> None:
    harness = IncidentHarness()
    harness.know(*(label(str(i), 0, "thermal", False) for i in range(50)))
    assert len(harness.at(1, departure(0, 1, 0.99))) == 1
    assert len(harness.at(2, symptom("node-2", 0, 2, "thermal", "sign", detector="throttle"))) == 1


def test_what_labels_hold_back_moves_nothing() -> None:
    harness = IncidentHarness()
    harness.know(*(label(str(i), 0, "unknown", False) for i in range(3)))
    slow = symptom("node-1", 3, 1, "unknown", "sign", statistical=True, score=0.85, detector="straggling", record="a-1")
    assert harness.at(1, slow) == []
    p = move(1, "train", "1-3", "node-1", 3, 0.8)
    assert not harness.manager.permits(replace(p, evidence=(Evidence(name="anomaly", value=0.85, record="a-1"),)))
    other = (Evidence(name="anomaly", value=0.95, record="a-2"),)
    assert harness.manager.permits(replace(p, evidence=other, confidence=0.95))


CAUSES: list[Cause] = ["gpu", "pcie", "nvlink", "thermal", "power", "host", "unknown", "application"]
STRENGTHS: list[Strength] = ["effect", "sign", "fault"]
SEEN = st.tuples(
    st.integers(0, 3), st.one_of(st.none(), st.integers(0, 7)), st.integers(1, 200), st.sampled_from(CAUSES),
    st.sampled_from(STRENGTHS), st.booleans(),
)  # fmt: skip


@settings(max_examples=60)
@given(st.lists(SEEN, max_size=40), st.integers(0, 2**16))
@example([(0, None, 1, "gpu", "effect", False), (0, None, 1, "gpu", "fault", False)], 0)
def test_whatever_is_seen_each_symptom_is_in_one_incident_and_no_order_or_restart_matters(
    seen: list[tuple[int, int | None, int, Cause, Strength, bool]], seed: int
) -> None:
    found = [
        symptom(f"node-{n}", row, i, cause, strength, workload="train" if held and row is not None else "")
        for n, row, i, cause, strength, held in seen
    ]
    mixed = list(found)
    np.random.default_rng(seed).shuffle(mixed)
    one, other = IncidentHarness(), IncidentHarness()
    for index in range(1, 202, 10):
        due = range(index, index + 10)
        published = one.at(index + 9, *(s for s in found if s.since_ns in map(at, due)))
        assert published == other.at(index + 9, *(s for s in mixed if s.since_ns in map(at, due)))
        other.restart()
    standing = one.open()
    assert sum(i.symptom_count for i in standing) == len(found)
    assert len({i.id for i in standing}) == len(standing)
    places = [
        (i.level, i.device or i.link or i.node or i.workload or i.cause) for i in standing if i.level != "workload"
    ]
    assert len(set(places)) == len(places)
    assert {i.status for i in standing} <= {"open"}
