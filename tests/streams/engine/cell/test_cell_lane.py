"""The cell lane: proposals that come late or twice are heard once."""

from typing import Any

import pytest
from tests.streams.engine.cell.arbiter_harness import move, node, outcome
from tests.streams.engine.cell.platform import proposal
from tests.streams.engine.incident_harness import silence, symptom
from tests.streams.engine.scene import CELL, CONFIG, START_NS, Out, incoming_records, inventory, spec, tick

from flyball_contracts.codec import record_message
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Migrate, Proposal, ProposalTick, Scale, Tick
from flyball_streams.engine import Directory, Incoming
from flyball_streams.engine.cell import CellLane
from flyball_streams.engine.parameters import Parameters


def lane() -> CellLane:
    directory = Directory()
    for record in (inventory("n", 8), spec("a"), spec("b")):
        directory.apply(record)
    return CellLane(0, CONFIG, directory)


def marks(first: int, count: int) -> list[Incoming]:
    return [
        m
        for i in range(first, first + count)
        for m in incoming_records(ProposalTick(cell=CELL, source="workload/0", tick=tick(i)))
    ]


def requested(index: int, *proposals: Proposal) -> list[Incoming]:
    """Proposals of a node lane, for which no tick waits."""
    return incoming_records(
        ProposalTick(cell=CELL, source="node/0", tick=tick(index), proposals=proposals, closes=False)
    )


def scales(messages: list[Incoming], to: CellLane) -> list[tuple[str, int, int]]:
    found = Out(to.step(messages)).of(Scale)
    return [(s.workload, s.replicas, s.time_ns // 10**9 - tick(0).index - 1) for s in found]


def test_a_proposal_is_decided_at_its_own_tick() -> None:
    assert scales([*requested(3, proposal("a", tick(3), 2)), *marks(0, 20)], lane()) == [("a", 2, 3)]


def test_a_late_proposal_is_received_at_the_next_tick() -> None:
    harness = lane()
    harness.step(marks(0, 20))
    assert scales(requested(3, proposal("a", tick(3), 2)), harness) == []
    assert scales(marks(20, 1), harness) == [("a", 2, 20)]


def test_a_late_proposal_is_received_though_the_next_tick_does_not_exist() -> None:
    harness = lane()
    harness.step(marks(0, 20))
    harness.step(requested(3, proposal("a", tick(3), 2)))
    assert scales(marks(23, 1), harness) == [("a", 2, 23)]
    assert harness.ticks[CELL].open == {}


def test_a_proposal_from_the_future_is_received_now() -> None:
    harness = lane()
    harness.step(marks(0, 20))
    assert scales([*requested(9999, proposal("a", tick(9999), 2)), *marks(20, 1)], harness) == [("a", 2, 20)]


def test_a_proposal_that_is_published_twice_is_one() -> None:
    published = requested(3, proposal("a", tick(3), 2), proposal("b", tick(3), 1))
    assert scales([*published, *published, *marks(0, 20)], lane()) == [("a", 2, 3), ("b", 1, 3)]


def test_a_tombstone_and_an_unknown_type_are_refused() -> None:
    harness = lane()
    mark = record_message(ProposalTick(cell=CELL, source="x", tick=tick(0)), "/x")
    nothing = Incoming(mark.topic, 0, 0, mark.key, None, mark.headers)
    strange = Incoming(mark.topic, 0, 1, mark.key, mark.value, [("ce_type", b"io.flyball.Inventory")])
    reasons = Out(harness.step([nothing, strange])).refusals()
    assert reasons == [
        "ProposalTick on flyball.proposals.v2 has no value; a tombstone is not a record",
        "record type 'Inventory' does not belong on flyball.proposals.v2",
    ]


def test_proposals_come_with_the_mark_of_their_lane() -> None:
    proposals = (proposal("a", tick(3), 2), proposal("b", tick(3), 1))
    published = ProposalTick(cell=CELL, source="workload/0", tick=tick(3), proposals=proposals)
    assert scales([*marks(0, 3), *incoming_records(published), *marks(4, 20)], lane()) == [("a", 2, 3), ("b", 1, 3)]


def test_a_tick_waits_for_all_that_a_lane_says_of_it() -> None:
    harness = lane()
    harness.step(marks(0, 20))
    first, last = (
        incoming_records(
            ProposalTick(cell=CELL, source="workload/0", tick=tick(20), proposals=(w,), part=part, closes=part == 1)
        )
        for part, w in enumerate((proposal("a", tick(20), 2), proposal("b", tick(20), 1)))
    )
    assert scales(first, harness) == []
    assert scales(last, harness) == [("a", 2, 20), ("b", 1, 20)]


def proposal_message(index: int, *new: Proposal, repeated: tuple[str, ...] = ()) -> list[Incoming]:
    """All that the workload lane proposes after a tick."""
    return incoming_records(
        ProposalTick(cell=CELL, source="workload/0", tick=tick(index), proposals=new, repeated=repeated)
    )


def test_a_proposal_that_is_only_named_is_the_one_that_was_published() -> None:
    harness, first = lane(), proposal("a", tick(19), 2)
    harness.step(marks(0, 19))
    assert scales(proposal_message(19, first), harness) == [("a", 2, 19)]
    second = proposal("b", tick(20), 1)
    assert scales(proposal_message(20, second, repeated=(first.id,)), harness) == [("b", 1, 20)]
    assert set(harness.ticks[CELL].received["workload/0"]) == {first.id, second.id}


def test_a_proposal_that_no_lane_received_waits_until_it_is_published_in_full() -> None:
    harness, lost = lane(), proposal("a", tick(3), 2)
    harness.step(marks(0, 20))
    assert scales(proposal_message(20, repeated=(lost.id,)), harness) == []
    assert scales(proposal_message(21, lost), harness) == [("a", 2, 21)]


def test_a_proposal_that_is_not_named_any_more_is_forgotten() -> None:
    harness, old = lane(), proposal("a", tick(19), 2)
    harness.step(marks(0, 19))
    harness.step(proposal_message(19, old))
    harness.step(proposal_message(20))
    assert harness.ticks[CELL].received["workload/0"] == {}


def test_named_proposals_survive_a_restart() -> None:
    harness, old = lane(), proposal("a", tick(18), 9)
    harness.step(marks(0, 18))
    harness.step(proposal_message(18, old))
    other = lane()
    other.restore(harness.snapshot())
    for index in range(19, 40):
        assert harness.step(proposal_message(index, repeated=(old.id,))) == other.step(
            proposal_message(index, repeated=(old.id,))
        )


def test_what_a_lane_says_again_after_a_crash_is_not_received_again() -> None:
    """It was decided on at its tick, or came to nothing there; it may be true no longer."""
    harness, old = lane(), proposal("a", tick(18), 2)
    failing = requested(18, proposal("b", tick(18), 1))
    harness.step(marks(0, 18))
    assert scales([*failing, *proposal_message(18, old)], harness) == [("a", 2, 18), ("b", 1, 18)]
    held = harness.ticks[CELL].received
    again = [*failing, *proposal_message(18, old), *marks(19, 1)]
    assert scales(again, harness) == []
    assert harness.ticks[CELL].open == {}
    assert harness.stats.duplicates == 2
    assert held["workload/0"].keys() <= {old.id}


def published_again(index: int, *events: str, part: int = 1) -> list[Incoming]:
    """Symptoms of events that a node lane publishes of a tick."""
    symptoms = tuple(
        symptom("n", ord(record) - ord("a"), index, "thermal", "sign", detector="throttle", record=record)
        for record in events
    )
    return incoming_records(
        ProposalTick(cell=CELL, source="node/0", tick=tick(index), part=part, closes=False, symptoms=symptoms)
    )


def counted(harness: CellLane, index: int) -> list[str]:
    """Events that count in the incidents after a tick."""
    harness.step(marks(index, 1))
    incidents = harness.incident_managers[CELL].state.incidents.values()
    return [s.record for incident in incidents for s in incident.symptoms.values() for _ in range(s.count)]


def test_an_event_that_a_lane_reads_only_after_a_crash_counts_once() -> None:
    """Before it, the lane had published the tick without the event, and later ticks as well."""
    harness = lane()
    harness.step([*marks(0, 18), *published_again(18, "a")])
    assert counted(harness, 18) == ["a"]
    again = published_again(17, "b", "a")
    harness.step(again)
    assert sorted(counted(harness, 19)) == ["a", "b"]
    other = lane()
    other.restore(harness.snapshot())
    for one in (harness, other):
        one.step([*again, *published_again(18, "a")])
        assert sorted(counted(one, 20)) == ["a", "b"]


def test_an_event_that_a_lane_reads_later_after_a_crash_counts_once() -> None:
    harness = lane()
    harness.step([*marks(0, 18), *published_again(17, "a")])
    assert counted(harness, 18) == ["a"]
    harness.step(published_again(19, "a", "b"))
    assert sorted(counted(harness, 19)) == ["a", "b"]


def test_a_move_that_a_lane_proposes_only_after_a_crash_is_decided_once() -> None:
    """Its event was read too late before, and it would be proposed again after 30 ticks."""
    directory = Directory()
    for record in (node("n", 2, {"a/0": (0,), "a/1": (1,)}), node("m", 2), spec("a")):
        directory.apply(record)
    harness = CellLane(0, CONFIG, directory)
    first, other = (move(18, "a", str(row), "n", row) for row in range(2))
    harness.step([*marks(0, 18), *requested(18, first)])
    assert [d.replica for d in Out(harness.step(marks(18, 1))).of(Migrate)] == ["0"]
    again = requested(17, other)
    found = [*Out(harness.step(again)).of(Migrate), *Out(harness.step(marks(19, 1))).of(Migrate)]
    assert [d.replica for d in found] == ["1"]
    for _ in range(2):
        harness.step([*again, *requested(18, first)])
    moved = [d for index in range(20, 40) for d in Out(harness.step(marks(index, 1))).of(Migrate)]
    assert moved == []


def test_an_event_of_long_ago_does_not_count_again() -> None:
    harness = lane()
    harness.step([*marks(0, 18), *published_again(18, "a")])
    for first in range(18, 678, 20):
        harness.step(marks(first, 20))
    harness.step(published_again(678, "b"))
    assert counted(harness, 678) == ["b"], "the incident of the other is over"
    harness.step(published_again(18, "a"))
    assert counted(harness, 679) == ["b"]


def test_events_of_a_flood_are_forgotten_with_their_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flyball_streams.engine.cell.recently_counted.MOST", 3)
    harness = lane()
    harness.step([*marks(0, 18), *published_again(18, "a", "b"), *marks(18, 1), *published_again(19, "c", "d", "e")])
    before = counted(harness, 19)
    assert sorted(before) == ["a", "b", "c", "d", "e"]
    harness.step(published_again(18, "a", "h"))
    assert counted(harness, 20) == before


def test_after_its_clock_was_set_back_a_cell_takes_events_from_repeats() -> None:
    harness = lane()
    harness.step([*marks(5000, 20), *published_again(5020, "a"), *marks(5020, 1)])
    harness.step([*marks(0, 20), *published_again(19, "b")])
    assert "b" in counted(harness, 20)
    harness.step(published_again(18, "c"))
    assert "c" in counted(harness, 21)


def test_after_its_clock_was_set_back_a_cell_hears_its_lanes() -> None:
    harness = lane()
    harness.step(marks(5000, 20))
    harness.step(marks(0, 20))
    assert scales(
        [*requested(21, proposal("b", tick(21), 1)), *proposal_message(21, proposal("a", tick(21), 2))], harness
    ) == [
        ("a", 2, 21),
        ("b", 1, 21),
    ]


@pytest.mark.parametrize(("second", "is_moved"), [(0, True), (7, True), (9, True), (10, False)])
def test_a_move_off_a_slow_device_is_decided_when_its_second_sign_comes(second: int, is_moved: bool) -> None:
    """It is not decided without one, and only once."""
    directory = Directory()
    for record in (node("n", 1, {"a/0": (0,)}), node("m", 1), spec("a")):
        directory.apply(record)
    slow = symptom("n", 0, 20, "unknown", "sign", detector="straggling", record="slow")
    hot = symptom("n", 0, 20 + second, "thermal", "sign", detector="throttle", record="hot")
    lacks = move(20, "a", "0", "n", 0, confidence=0.8)
    at: dict[str, Any] = {"cell": CELL, "source": "node/0", "closes": False}
    published = [
        ProposalTick(tick=tick(20), proposals=(lacks,), symptoms=(slow,), **at),
        ProposalTick(tick=tick(20 + second), part=1, symptoms=(hot,), **at),
    ]
    harness, moved = CellLane(0, CONFIG, directory), list[Migrate]()
    harness.step(marks(0, 20))
    for index in range(20, 80):
        due = [message for message in published if message.tick == tick(index)]
        moved += Out(harness.step([*incoming_records(*due), *marks(index, 1)])).of(Migrate)
        restarted = CellLane(0, CONFIG, directory)
        restarted.restore(harness.snapshot())
        harness = restarted
    assert [d.time_ns for d in moved] == ([tick(20 + second).end_ns] if is_moved else [])


@pytest.mark.parametrize("is_silenced", [False, True])
def test_a_move_whose_node_was_refused_is_decided_again_only_if_it_is_still_permitted(is_silenced: bool) -> None:
    directory = Directory()
    for record in (node("n", 1, {"a/0": (0,)}), node("m", 1), node("o", 1), spec("a")):
        directory.apply(record)
    harness = CellLane(0, CONFIG, directory)
    moves = ProposalTick(
        cell=CELL, source="node/0", tick=tick(3), proposals=(move(3, "a", "0", "n", 0),), closes=False,
        symptoms=(symptom("n", 0, 3, "power", "fault"),),
    )  # fmt: skip
    (first,) = Out(harness.step([*incoming_records(moves), *marks(0, 20)])).of(Migrate)
    directory.apply(outcome(first, "refused", unsuitable_nodes=(first.to_node,)))
    if is_silenced:
        directory.apply(silence(5, 500, node="n"))
    again = Out(harness.step(marks(20, 60))).of(Migrate)
    assert {d.to_node for d in again} == (set() if is_silenced else {"m", "o"} - {first.to_node})


@pytest.mark.parametrize(("period_s", "waits_s"), [(1, 60), (10, 60), (30, 180)])
def test_a_silent_lane_holds_decisions_for_a_minute_however_long_ticks_are(period_s: int, waits_s: int) -> None:
    """At least one tick more than a node may be late, which is five."""
    harness, sent = CellLane(0, Parameters(), lane().directory, 2), list[int]()

    def mark(index: int, *sources: str) -> None:
        at = Tick(index=START_NS // NS_PER_S // period_s + index, period_ns=period_s * NS_PER_S)
        made = [ProposalTick(cell=CELL, source=source, tick=at) for source in sources]
        batch = [m._replace(log_ms=index * period_s * 1000) for m in incoming_records(*made)]
        harness.step(batch)
        sent.append(index)

    for index in range(20):
        mark(index, "workload/0", "workload/1")
    before = harness.stats.ticks
    while harness.stats.ticks == before:
        mark(len(sent), "workload/0")
    assert (len(sent) - 20) * period_s == waits_s
