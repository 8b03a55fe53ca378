"""The outcomes topic as a ledger, offsets, the lease, and what a change did."""

from hypothesis import given, strategies as st
from tests.actuators.samples import CELL, NOW, spec

from flyball_actuators.execution.effect import difference, effect_of
from flyball_actuators.lease import Lease
from flyball_actuators.ledger import OutcomeIndex, outcome_index as module
from flyball_actuators.progress import Progress
from flyball_contracts.records import Effect, Outcome, Portion, Resources, SubjectState
from flyball_contracts.records.commands.outcomes import OutcomeStatus


def outcome(
    decision: str,
    status: OutcomeStatus,
    actuator: str = "a",
    before: SubjectState | None = None,
    expected: SubjectState | None = None,
) -> Outcome:
    return Outcome(
        id=f"{decision}-{status}", decision=decision, type="Scale", target=f"{CELL}/chat", cell=CELL, workload="chat",
        time_ns=NOW, status=status, mode="live", driver="test", actuator=actuator, before=before, expected=expected,
    )  # fmt: skip


def test_the_first_claim_and_the_first_final_outcome_count() -> None:
    index = OutcomeIndex()
    for one in (
        outcome("d", "accepted", "a"),
        outcome("d", "accepted", "b"),
        outcome("d", "running", "a"),
        outcome("d", "done", "a"),
        outcome("d", "failed", "b"),
    ):
        index.add(0, one, 7)
    page = index.outcomes_of(0, "d")
    assert page is not None
    assert page.claims == ["a", "b"]
    assert page.final is not None
    assert (page.final.status, page.final.actuator, page.final_ms) == ("done", "a", 7)
    assert index.outcomes_of(1, "d") is None
    index.forget(0)
    assert index.outcomes_of(0, "d") is None


def test_a_scale_in_while_replicas_are_on_their_way_starts_none() -> None:
    """After a takeover; `ready` below `replicas` is what an earlier decision starts."""
    index, state = OutcomeIndex(), SubjectState
    cases = {
        "less than was requested": ((6, 3), 4, None),
        "more": ((3, 3), 5, ""),
        "more than was requested": ((3, 5), 4, ""),
        "no more than is there already": ((5, 3), 5, None),
        "unknown": ((None, None), 5, ""),
    }
    for name, ((replicas, ready), after, _) in cases.items():
        index.add(0, outcome(name, "accepted", "b", state(replicas=replicas, ready=ready), state(replicas=after)), 0)
    assert {g.decision: g.starts for g in index.grants(0)} == {name: starts for name, (_, _, starts) in cases.items()}


def test_limits_count_what_others_took_away() -> None:
    index, down = OutcomeIndex(), (SubjectState(replicas=9), SubjectState(replicas=4))
    index.add(0, outcome("taken", "accepted", "b", *down), 0)
    index.add(0, outcome("refused", "accepted", "b", *down), 0)
    index.add(0, outcome("refused", "refused", "b"), 0)
    index.add(0, outcome("planned", "planned", "b", *down), 0)
    index.add(0, outcome("resized", "accepted", "b", down[0], SubjectState(resources=Resources(cpu=1.0))), 0)
    serving = SubjectState(replicas=1, ready=6), SubjectState(replicas=3)
    index.add(0, outcome("serving", "accepted", "b", *serving), 0)
    mix = (Portion(offer="spot", replicas=1, replicas_before=3), Portion(offer="od", replicas=3, replicas_before=1))
    index.add(0, outcome("moved", "accepted", "b", SubjectState(replicas=4), SubjectState(replicas=4, mix=mix)), 0)
    assert {g.decision: (g.taken, g.cell, g.dry_run) for g in index.grants(0)} == {
        "taken": (5, CELL, False),
        "resized": (9, CELL, False),
        "serving": (3, CELL, False),
        "moved": (2, CELL, False),
    }


def test_the_book_is_bounded_and_never_forgets_what_is_open() -> None:
    most, index = module.MOST_SETTLED, OutcomeIndex()
    index.add(0, outcome("open", "accepted"), 0)
    for i in range(2 * most + 1):
        index.add(0, outcome(f"d{i}", "done"), 0)
    assert index.outcomes_of(0, "open") is not None
    assert index.outcomes_of(0, "d0") is None
    assert index.outcomes_of(0, f"d{2 * most}") is not None


@given(st.lists(st.integers(0, 30), max_size=40), st.integers(1, 20))
def test_nothing_is_committed_beyond_what_has_no_final_outcome(done: list[int], read: int) -> None:
    progress = Progress()
    for offset in range(10, 10 + read):
        progress.read(0, offset)
    for offset in done:
        progress.done(0, 10 + offset)
    left = [offset for offset in range(10, 10 + read) if offset - 10 not in done]
    assert progress.commit_to() == {0: left[0] if left else 10 + read}
    assert progress.ahead() == (not left or left[0] > 10)
    progress.committed(0, progress.commit_to()[0])
    assert not progress.ahead()
    assert progress.position() == {0: 10 + read}
    progress.forget(0)
    assert progress.commit_to() == {}


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_lease_runs_from_when_it_was_asked_for() -> None:
    clock = Clock()
    lease = Lease(10.0, clock)
    assert not lease.valid()
    assert lease.due()
    lease.commit_sent()
    assert not lease.due()
    clock.now_s += 2.0
    lease.commit_answered(accepted=True)
    assert lease.valid()
    clock.now_s += 4.9
    assert lease.valid()
    assert lease.due()
    clock.now_s += 0.2
    assert not lease.valid(), "a session of 10 s less the margin, from the question on"
    lease.commit_sent()
    lease.commit_answered(accepted=False)
    assert not lease.valid(), "the broker refused: we are no member any more"
    lease.commit_sent()
    lease.commit_answered(accepted=True)
    lease.lost()
    assert not lease.valid()


def test_an_answer_counts_for_the_oldest_question() -> None:
    clock = Clock()
    lease = Lease(10.0, clock)
    lease.commit_sent()
    clock.now_s += 8.0
    assert lease.due(), "no answer came"
    lease.commit_sent()
    lease.commit_answered(accepted=True)
    assert not lease.valid(), "that was the answer of 8 s ago"
    lease.commit_answered(accepted=True)
    assert lease.valid()


def test_effect_is_what_the_states_tell() -> None:
    before, after = SubjectState(replicas=4, ready=4), SubjectState(replicas=6, ready=5)
    assert effect_of(before, after, spec(), 2.0) == Effect(gpus=1.0, cost_usd_per_hour=2.0)
    assert effect_of(before, after, spec(), None) == Effect(gpus=1.0)
    assert effect_of(before, after, None, 2.0) is None
    assert effect_of(before, SubjectState(), spec(), 2.0) is None

    def mixed(spot: int) -> SubjectState:
        return SubjectState(mix=(Portion(offer="spot", replicas=spot, gpus=2.0, usd_per_hour=3.0),))

    assert effect_of(mixed(1), mixed(4), spec(), 2.0) == Effect(gpus=6.0, cost_usd_per_hour=9.0)


def test_a_difference_is_said_where_both_tell() -> None:
    expected = SubjectState(replicas=6, ready=6, nodes={"a": "n2", "b": ""}, power_limit_w=300.0)
    assert difference(expected, expected) == ""
    assert difference(expected, SubjectState()) == ""
    assert difference(None, expected) == ""
    shown = SubjectState(replicas=6, ready=5, nodes={"a": "n1", "b": "n3"}, power_limit_w=400.0)
    assert difference(expected, shown) == (
        "6 ready replicas were expected, the platform shows 5; 300 W of power limit were expected, the platform shows "
        "400; replica 'a' was expected on 'n2', the platform shows it on 'n1'; replica 'b' was expected stopped, the "
        "platform shows it on 'n3'"
    )
    assert "resources.cpu 1.0 was expected" in difference(
        SubjectState(resources=Resources(cpu=1.0)), SubjectState(resources=Resources(cpu=2.0))
    )
