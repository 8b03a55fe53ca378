"""What a decision assumed is compared with what the platform shows; limits of rescues and of dry runs are apart."""

from typing import Any

import msgspec
from hypothesis import given, strategies as st
from tests.actuators.guard.policies.test_policies import config
from tests.actuators.samples import CELL, NOW, S, migrate, preempt, scale, spec, world

from flyball_actuators.guard import Guard, GuardState
from flyball_actuators.parameters import ActuatorParameters, BlastRadiusParameters, RateParameters
from flyball_contracts.records import AnyDecision, Effect, Evidence, Portion, Resources, SubjectState

GUARD = Guard(ActuatorParameters(blast_radius=BlastRadiusParameters(replicas=100)))


def code(decision: AnyDecision, observed: SubjectState) -> str:
    return GUARD.authorise(GuardState(), decision, NOW, world(), observed)[1].code


def shows(replicas: int, ready: int | None = None) -> SubjectState:
    return SubjectState(replicas=replicas, ready=replicas if ready is None else ready)


def test_what_was_assumed_may_be_asked_for_or_serving_or_between() -> None:
    for before in (4, 5, 6):
        assert code(scale(before=before, after=8), shows(6, ready=4)) == ""
    assert code(scale(before=4, after=6), SubjectState()) == "", "nothing is known of it"


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 20))
def test_it_never_does_the_opposite_or_more_than_it_says(before: int, after: int, shown: int) -> None:
    change, decided = after - shown, after - before
    within = change == 0 or (change * decided > 0 and abs(change) <= abs(decided))
    assert (code(scale(before=before, after=after), shows(shown)) == "") == (within or before == shown)


def test_a_decision_stands_for_those_that_it_overtook() -> None:
    newer = scale(before=18, after=19)
    assert code(newer, shows(12)) == "conflict"
    assert GUARD.authorise(GuardState(), newer, NOW, world(), shows(12), (12,))[1].status == "accepted"
    assert GUARD.authorise(GuardState(), newer, NOW, world(), shows(9), (12,))[1].code == "conflict"


def test_a_preemption_takes_no_more_than_it_says() -> None:
    assert code(preempt(before=4, after=2), shows(4)) == ""
    assert code(preempt(before=4, after=2), shows(3)) == ""
    assert code(preempt(before=4, after=2), shows(9)) == "conflict"
    assert code(preempt(before=4, after=2), shows(1)) == "conflict"


@given(st.integers(0, 20), st.integers(1, 20), st.integers(0, 20), st.integers(0, 20))
def test_a_preemption_never_starts_anything(after: int, going: int, requested: int, ready: int) -> None:
    preemption = preempt(before=after + going, after=after)
    state, verdict = GUARD.authorise(GuardState(), preemption, NOW, world(), shows(requested, ready))
    if after > requested:
        assert (verdict.code, state.grants) == ("conflict", {})
        assert f"{after} replicas should stay, but the platform shows {requested}" in verdict.detail
        assert verdict.detail.endswith("decide again on what runs now")


def test_a_replica_that_moved_already_stays() -> None:
    assert code(migrate(), SubjectState(nodes={"chat-0": "n1"})) == ""
    assert code(migrate(), SubjectState(nodes={"chat-0": "n2"})) == "conflict"
    assert code(migrate(), SubjectState(nodes={"chat-0": ""})) == "conflict"


def test_resources_that_are_others_stay() -> None:
    resize = scale(before=4, after=4, resources=Resources(cpu=2.0), resources_before=Resources(cpu=4.0))
    assert code(resize, SubjectState(replicas=4, ready=4, resources=Resources(cpu=4.0))) == ""
    assert code(resize, SubjectState(replicas=4, ready=4, resources=Resources(cpu=1.0))) == "conflict"


def test_nothing_uses_up_the_room_of_a_failing_device() -> None:
    config = ActuatorParameters(
        blast_radius=BlastRadiusParameters(share=0.0, replicas=2),
        per_target=RateParameters(2, 600.0),
        per_cell=RateParameters(2, 600.0),
    )
    guard, state = Guard(config), GuardState()
    for i in range(2):
        moved = migrate(f"tidy-{i}", replica=f"chat-{i}", from_device="")
        state, verdict = guard.authorise(state, moved, NOW, world())
        assert verdict.status == "accepted"
    assert guard.authorise(state, preempt(), NOW, world())[1].code == "rate"
    for i in range(2):
        state, verdict = guard.authorise(state, migrate(f"rescue-{i}", replica=f"chat-{i}"), NOW, world())
        assert verdict.status == "accepted"
    assert guard.authorise(state, migrate("rescue-2", replica="chat-2"), NOW, world())[1].code == "rate"


def test_what_is_deferred_uses_up_no_room_of_what_is_needed_now() -> None:
    config = ActuatorParameters(blast_radius=BlastRadiusParameters(share=0.0, replicas=2))
    guard, state = Guard(config), GuardState()
    state, verdict = guard.authorise(state, preempt("greener", workload="chat", until_s=3600), NOW, world())
    assert verdict.status == "accepted"
    assert guard.authorise(state, preempt("again", workload="chat", until_s=3600), NOW, world())[1].code == (
        "blast_radius"
    )
    state, verdict = guard.authorise(state, preempt("urgent", workload="chat"), NOW, world())
    assert verdict.status == "accepted"


def test_dry_runs_and_live_runs_count_apart() -> None:
    def used(mode: str) -> GuardState:
        guard, state = Guard(ActuatorParameters(mode=mode)), GuardState()  # type: ignore[arg-type]  # pyright: ignore
        for i in range(6):
            state, _ = guard.authorise(state, scale(f"{mode}-{i}", time_ns=NOW + i), NOW + i, world())
        return state

    both = [grant for mode in ("live", "dry_run") for grant in used(mode).grants[CELL]]
    assert len(both) == 12
    for dry_run in (False, True):
        restored = GuardState.restored(both, dry_run=dry_run)
        assert len(restored.grants[CELL]) == 6
        assert {grant.dry_run for grant in restored.grants[CELL]} == {dry_run}


def test_a_decision_that_is_taken_up_again_counts_once() -> None:
    state, _ = GUARD.authorise(GuardState(), preempt(), NOW, world())
    state, _ = GUARD.authorise(state, preempt(), NOW + S, world())
    (grant,) = state.grants[CELL]
    assert grant.at_ns == NOW + S
    assert state.without(preempt()).grants[CELL] == ()


def test_what_may_change_while_it_waits_is_asked_again() -> None:
    state, _ = GUARD.check(GuardState(), scale(), NOW, world())
    assert GUARD.still(state, scale(), NOW, world()) is None
    assert state.grants == {}, "to look at it grants nothing"
    late = GUARD.still(state, scale(), NOW + 121 * S, world())
    stopped = GUARD.still(state, scale(), NOW, world(stop="rack on fire"))
    state, _ = GUARD.check(state, scale("d2", time_ns=NOW + S), NOW + S, world(specs=[spec()]))
    old = GUARD.still(state, scale(), NOW + S, world())
    assert late is not None
    assert stopped is not None
    assert old is not None
    assert (late.code, stopped.code, old.code) == ("expired", "kill_switch", "stale")


def test_who_only_says_that_it_is_urgent_has_the_limits_of_all_others() -> None:
    guard = Guard(ActuatorParameters(per_target=RateParameters(1, 600.0)))
    fault = Evidence(name="xid", value=48.0, record="event-1")
    slow = (Evidence(name="hw.gpu.clock", value=1.0), Evidence(name="anomaly", value=0.9, record="anomaly-1"))
    claims: dict[str, dict[str, Any]] = {
        "no evidence": {"evidence": ()},
        "a slow device": {"evidence": slow},
        "an event without a record": {"evidence": (msgspec.structs.replace(fault, record=""),)},
        "a counter at 0": {"evidence": (Evidence(name="nvidia.gpu.recovery_action", value=0.0),)},
        "little confidence": {"evidence": (fault,), "confidence": 0.8},
    }
    state, _ = guard.authorise(GuardState(), migrate("tidy", from_device=""), NOW, world())
    for what, claim in claims.items():
        decision = msgspec.structs.replace(migrate(what, replica="chat-1"), **claim)
        _, verdict = guard.authorise(state, decision, NOW, world())
        assert (verdict.code, verdict.detail.split("; ")[-1].split(":")[0]) == ("rate", "it counts as normal"), what
    for evidence in (fault, Evidence(name="spot_notice", value=1.0, record="event-2")):
        decision = msgspec.structs.replace(migrate("true", replica="chat-1"), evidence=(evidence,))
        assert guard.authorise(state, decision, NOW, world())[1].status == "accepted"
    pause = preempt("pause", until_s=600)
    assert guard.authorise(state, pause, NOW, world())[1].status == "accepted"
    told = msgspec.structs.replace(pause, evidence=())
    assert "a deferral has evidence" in guard.authorise(state, told, NOW, world())[1].detail


def test_what_a_decision_starts_is_judged_from_what_runs_and_not_from_what_it_was_told() -> None:
    """It stands for one that expired before it was carried out, and that no limit has judged."""
    around = world(specs=[spec("embed")], running={"chat": 3, "embed": 4})

    def after(policy: str, newer: AnyDecision) -> tuple[str, GuardState]:
        guard = Guard(config(f"  - {{name: fair, {policy}}}"))
        state, verdict = guard.authorise(GuardState(), newer, NOW, around, shows(3), (3,))
        return verdict.code or verdict.status, state

    newer = scale(before=20, after=12, expected=Effect(cost_usd_per_hour=-80.0))
    assert after("quota: {replicas: 16}", newer)[0] == "accepted"
    assert after("quota: {replicas: 15}", newer)[0] == "quota"
    assert after("limits: [{per: tenant, usd_per_hour: 90}]", newer)[0] == "accepted"
    assert after("limits: [{per: tenant, usd_per_hour: 89}]", newer)[0] == "limit"
    (grant,) = after("quota: {replicas: 99}", newer)[1].grants[CELL]
    assert (grant.usd_per_hour, grant.starts) == (90.0, "")
    assert after("quota: {replicas: 99}", scale(before=20, after=20, power_limit_w=None))[0] == "conflict", (
        "it costs unknown"
    )
    moved = msgspec.structs.replace(shows(7), mix=(Portion(offer="b", replicas=7, replicas_before=0),))
    parts = scale(before=12, after=7, mix=[("a", 10, 5), ("b", 2, 2)])
    state, _ = Guard(config("  - {name: none, quota: {replicas: 99}}")).authorise(
        GuardState(), parts, NOW, around, moved
    )
    assert (state.grants[CELL][0].starts, state.grants[CELL][0].taken) == ("", 10)
