import re
from math import nan
from typing import Any

import msgspec
import pytest
from tests.actuators.samples import CELL, NOW, S, migrate, preempt, scale, spec, world

from flyball_actuators.guard import CHECKS, Grant, Guard, GuardState
from flyball_actuators.parameters import ActuatorParameters, BlastRadiusParameters, RateParameters
from flyball_contracts.records import AnyDecision, Preempt, Resources, Scale, SubjectState

CONFIG = ActuatorParameters()
RESTARTED = msgspec.structs.replace(spec(interruptible=False, min_replicas=4), restart_hung_after_s=120.0)


def code(
    decision: AnyDecision, config: ActuatorParameters = CONFIG, now_ns: int = NOW, **around: Any
) -> tuple[str, str]:
    _, verdict = Guard(config).authorise(GuardState(), decision, now_ns, world(**around))
    assert (verdict.status == "accepted") == (verdict.code == "")
    return verdict.code, verdict.detail


@pytest.mark.parametrize(
    "decision", [scale(), preempt(), migrate(), migrate(to_node="n2")], ids=lambda d: type(d).__name__
)
def test_a_sound_decision_is_let_through_and_counted(decision: AnyDecision) -> None:
    state, verdict = Guard(CONFIG).authorise(GuardState(), decision, NOW, world())
    assert verdict == ("accepted", "", "", "", "", None)
    (grant,) = state.grants[CELL]
    taken = {"Scale": 0, "Preempt": 2, "Migrate": 1}[type(decision).__name__]
    assert grant == Grant(
        cell=CELL,
        target="cell-a/chat",
        subject="cell-a/chat#chat-0" if taken == 1 else "cell-a/chat",
        decided_ns=NOW,
        at_ns=NOW,
        taken=taken,
        decision=decision.id,
        urgency="rescue" if taken == 1 else "normal",
        dry_run=True,
        workload="chat",
        type=type(decision).__name__,
        starts=None if isinstance(decision, Preempt) else "",
        replicas=getattr(decision, "replicas", None),
    )


def test_a_restart_is_let_through_for_a_workload_that_is_not_interruptible_and_has_a_minimum() -> None:
    assert code(preempt(after=0, beneficiary="chat", checkpoint=False), specs=[RESTARTED]) == ("", "")


def test_resizing_counts_all_replicas_and_supersedes_no_scaling() -> None:
    resized = scale("d2", before=4, after=4, time_ns=NOW + S, resources=Resources(memory_bytes=2**30))
    state, verdict = Guard(CONFIG).authorise(GuardState(), resized, NOW + S, world())
    assert verdict.status == "accepted"
    (grant,) = state.grants[CELL]
    assert (grant.taken, grant.subject) == (4, "cell-a/chat#")
    _, verdict = Guard(CONFIG).authorise(state, scale(), NOW + S, world())  # older, about something else
    assert verdict.status == "accepted"


def test_a_resize_of_many_gets_the_room_that_is_left_and_the_rest_waits() -> None:
    def resized(id_: str, after_s: int, batch: int | None = None) -> Scale:
        given = scale(id_, before=9, after=9, time_ns=NOW + after_s * S, resources=Resources(cpu=1.0))
        return msgspec.structs.replace(given, batch_size=batch)

    guard, state, taken = Guard(CONFIG), GuardState(), list[int | str]()
    first = scale("d0", before=4, after=3)
    for decision in (first, resized("d1", 1), resized("d2", 2), resized("d3", 602, 2), resized("d4", 603)):
        state, verdict = guard.authorise(state, decision, decision.time_ns, world())
        taken.append(verdict.code or state.grants[CELL][-1].taken)
    assert taken == [1, 3, "blast_radius", 2, 2], "4 in ten minutes"


def test_replicas_that_move_to_other_machines_count_as_taken_away() -> None:
    moved = scale("d3", before=4, after=4, mix=[("od", 4, 1), ("spot", 0, 3)])
    state, verdict = Guard(CONFIG).authorise(GuardState(), moved, NOW, world())
    assert verdict.status == "accepted"
    (grant,) = state.grants[CELL]
    assert grant.taken == 3


REFUSALS: list[tuple[str, AnyDecision, dict[str, Any], str, str]] = [
    ("mode", scale(), {"config": ActuatorParameters(mode="off")}, "mode_off", r"actuator\.mode is off; set it"),
    ("kill switch", scale(), {"stop": "/stop exists"}, "kill_switch", r"/stop exists"),
    ("at expiry", scale(), {"now_ns": NOW + 120 * S}, "expired", r"expired 0\.000 s ago"),
    ("after expiry", scale(), {"now_ns": NOW + 121 * S}, "expired", r"1\.000 s ago.*decide again on present data"),
    ("future", scale(), {"now_ns": NOW - 61 * S}, "not_yet_valid", r"61\.000 s from now; at most 60 s"),
    ("no spec", scale(workload="ghost"), {}, "unknown_target", r"'ghost' has no specification"),
    ("removed", scale(workload="old"), {"specs": [spec("old", removed=True)]}, "unknown_target", r"'old' has no"),
    ("other cell", scale(cell="cell-b"), {}, "unknown_target", r"belongs to cell 'cell-a', the decision to 'cell-b'"),
    ("no node", migrate(from_node="n9"), {}, "unknown_target", r"node 'n9' has no inventory"),
    ("empty from", migrate(from_node=""), {}, "unknown_target", r"node '' has no inventory"),
    ("no to node", migrate(to_node="n9"), {}, "unknown_target", r"node 'n9' has no inventory"),
    ("far node", migrate(to_node="far"), {}, "unknown_target", r"node 'far' belongs to cell 'cell-b'"),
    ("allow", scale(), {"config": ActuatorParameters(allow=("a*", "b*"))}, "not_allowed", r"a\*, b\*, not .chat."),
    ("allow none", scale(), {"config": ActuatorParameters(allow=())}, "not_allowed", r"covers nothing"),
    ("too many", scale(after=21), {}, "invalid", r"21 replicas lie outside 0 to 20"),
    ("negative", scale(after=-1), {}, "invalid", r"-1 replicas lie outside"),
    ("before", scale(before=-1), {}, "invalid", r"replicas_before is -1"),
    ("no power", scale(power_limit_w=0.0), {"power_w": 600.0}, "invalid", r"power_limit_w is 0; .* take 200 to 600 W"),
    ("power of others", scale(power_limit_w=300.0), {}, "invalid", r"no inventory reports .*'chat' runs; leave it out"),
    ("little power", scale(power_limit_w=199.0), {"power_w": 600.0}, "invalid", r"199; .* take 200 to 600 W.* third"),
    ("much power", scale(power_limit_w=601.0), {"power_w": 600.0}, "invalid", r"601; .*: choose one between"),
    ("power not a number", scale(power_limit_w=nan), {"power_w": 600.0}, "invalid", r"nan; the GPUs"),
    ("power of a resized one", scale(after=4, resources=Resources(cpu=1.0), power_limit_w=9e3), {"power_w": 600.0},
     "invalid", r"9000; the GPUs"),
    ("old", scale(ttl_s=9000), {"now_ns": NOW + 901 * S}, "expired", r"901\.000 s ago.*nothing older than 900 s"),
    ("resize and scale", scale(resources=Resources(cpu=1.0)), {}, "invalid", r"6 replicas instead of 4; change one"),
    ("resize nothing", scale(after=4, resources=Resources()), {}, "invalid", r"name nothing to change"),
    ("resize to none", scale(after=4, resources=Resources(cpu=0.0)), {}, "invalid", r"resources\.cpu is 0\.0"),
    ("mix twice", scale(mix=[("od", 0, 1), ("od", 0, 1)]), {}, "invalid", r"names offer 'od' twice"),
    ("mix below none", scale(mix=[("od", 0, -1)]), {}, "invalid", r"mix has -1 replicas of offer 'od'"),
    ("mix of more", scale(mix=[("od", 0, 7)]), {}, "invalid", r"7 replicas in all where the decision has 6"),
    ("no id", scale(""), {}, "invalid", r"id is empty"),
    ("pinned", preempt(workload="pin"), {"specs": [spec("pin", interruptible=False)]}, "invalid", r"not interruptible"),
    ("pinned restart", preempt(after=0, beneficiary="chat"), {}, "invalid", r"must set restart_hung_after_s"),
    ("half a restart", preempt(after=1, beneficiary="chat"), {"specs": [RESTARTED]}, "invalid", r"must stop all"),
    ("takes none", preempt(before=2, after=2), {}, "invalid", r"must take some away"),
    ("until past", preempt(until_s=0), {}, "invalid", r"until_ns is not after time_ns"),
    ("twice", preempt(victims=("chat-0", "chat-0")), {}, "invalid", r"2 victims are named for 2 .* each once"),
    ("too many victims", preempt(victims=("a", "b", "c")), {}, "invalid", r"3 victims are named for 2"),
    ("no replica", migrate(replica=""), {}, "invalid", r"must name the replica"),
    ("nowhere", migrate(to_node="n1"), {}, "invalid", r"both 'n1'"),
    ("drained", migrate(to_node="n3"), {}, "invalid", r"'n3' is drained"),
    ("target", scale(target="chat"), {}, "invalid", r"must be 'cell-a/chat'"),
    ("target of another", scale(target="cell-a/other"), {}, "invalid", r"'cell-a/other' is not workload 'chat'"),
    ("foreign replica", migrate(replica="b-0"), {"running": {"b": 1}}, "invalid", r"belongs to workload 'b', not 'c"),
    ("foreign victim", preempt(victims=("b-0",)), {"running": {"b": 1}}, "invalid", r"belongs to workload 'b'"),
    ("kept", preempt(after=1), {"specs": [spec(min_replicas=2)]}, "invalid", r"1 replicas lie outside 2 to 20"),
    ("above most", preempt(before=30, after=21), {}, "invalid", r"21 replicas lie outside 0 to 20"),
    ("blast", preempt(before=5, after=0), {}, "blast_radius", r"5 replicas after 0 .* 4: wait, take at most 4 now"),
    ("stale claim", scale(before=1, after=0), {"running": {"chat": 9}}, "blast_radius", r"takes away 9 replicas"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("decision", "around", "expected", "says"), [r[1:] for r in REFUSALS], ids=[r[0] for r in REFUSALS]
)
def test_refusals_say_the_limit_and_the_remedy(
    decision: AnyDecision, around: dict[str, Any], expected: str, says: str
) -> None:
    found, detail = code(decision, **around)
    assert found == expected
    assert re.search(says, detail), detail


def test_a_power_limit_within_its_bounds_is_let_through() -> None:
    for limit_w in (200.0, 450.0, 600.0):
        assert code(scale(power_limit_w=limit_w), power_w=600.0) == ("", "")


def test_a_decision_may_be_as_old_as_is_allowed() -> None:
    assert code(scale(ttl_s=9000), now_ns=NOW + 900 * S)[0] == ""
    assert code(scale(ttl_s=9000), ActuatorParameters(max_age_s=9000.0), NOW + 8999 * S)[0] == ""
    guard = Guard(CONFIG)
    late = guard.still(GuardState(), scale(ttl_s=9000), NOW + 901 * S, world())
    assert late is not None
    assert late.code == "expired"


def test_blast_radius_grows_with_the_cell() -> None:
    big = {"chat": 10, "other": 90}
    assert code(preempt(before=10, after=0), running=big)[0] == ""
    tight = ActuatorParameters(blast_radius=BlastRadiusParameters(share=0.05, replicas=1))
    assert code(preempt(before=10, after=5), tight, running=big)[0] == ""
    assert code(preempt(before=10, after=4), tight, running=big)[0] == "blast_radius"


def test_no_inventory_raises_the_blast_radius_beyond_its_ceiling() -> None:
    many = {"chat": 300, "other": 10_000}
    loose = ActuatorParameters(blast_radius=BlastRadiusParameters(share=1.0, replicas=1000))
    found, detail = code(preempt(before=300, after=0), loose, running=many)
    assert found == "blast_radius"
    assert (
        "allows cell 'cell-a' 200: wait, take at most 200 now, or raise its share (1), replicas (1000) or most (200)"
        in detail
    )
    higher = ActuatorParameters(blast_radius=BlastRadiusParameters(share=1.0, most=300))
    assert code(preempt(before=300, after=0), higher, running=many)[0] == ""


@pytest.mark.parametrize("shown", [SubjectState(replicas=9), SubjectState(ready=9), SubjectState(replicas=1, ready=9)])
def test_what_inventories_do_not_show_is_counted_as_the_platform_shows_it(shown: SubjectState) -> None:
    overtaken = scale(before=9, after=0)  # it stands for what it overtook, and says less of it itself
    down = msgspec.structs.replace(overtaken, replicas_before=0)
    assert Guard(CONFIG).check(GuardState(), down, NOW, world())[1].status == "accepted"
    verdict = Guard(CONFIG).authorise(GuardState(), down, NOW, world(), shown, (9,))[1]
    assert verdict.code == "blast_radius"
    assert "takes away 9 replicas after 0" in verdict.detail
    wide = Guard(ActuatorParameters(blast_radius=BlastRadiusParameters(replicas=9)))
    state, verdict = wide.authorise(GuardState(), down, NOW, world(), shown, (9,))
    assert verdict.status == "accepted"
    assert state.grants[CELL][0].taken == 9


def test_the_window_slides() -> None:
    config = ActuatorParameters(per_target=RateParameters(actions=2, window_s=100.0))
    guard, state = Guard(config), GuardState()
    answers: list[str] = []
    for i, at_s in enumerate([0, 50, 99, 100, 149, 150]):
        now = NOW + at_s * S
        state, verdict = guard.authorise(state, scale(f"d{i}", time_ns=now), now, world())
        answers.append(verdict.code)
    assert answers == ["", "", "rate", "", "rate", ""]


def test_each_target_has_its_own_rate() -> None:
    guard, state = Guard(ActuatorParameters(per_target=RateParameters(actions=1, window_s=100.0))), GuardState()
    answers: list[str] = []
    for i, workload in enumerate(["chat", "embed", "chat"]):
        decision, around = scale(f"d{i}", workload=workload), world(specs=[spec("embed")])
        state, verdict = guard.authorise(state, decision, NOW, around)
        answers.append(verdict.code)
    assert answers == ["", "", "rate"]


def test_grants_that_no_limit_can_count_any_more_are_forgotten() -> None:
    config = ActuatorParameters(per_target=RateParameters(actions=1000, window_s=100.0))
    guard, state = Guard(config), GuardState()
    times_ns = [NOW + i * 100 * S for i in range(20)]
    for i, now_ns in enumerate(times_ns):
        state, verdict = guard.authorise(state, scale(f"d{i}", time_ns=now_ns), now_ns, world())
        assert verdict.status == "accepted"
    ages_s = [(times_ns[-1] - grant.at_ns) // S for grant in state.grants[CELL]]
    assert ages_s == [500, 400, 300, 200, 100, 0], "a quota looks back ten minutes, and no limit longer"


def test_a_rate_refusal_says_when_there_is_room() -> None:
    guard = Guard(ActuatorParameters(per_target=RateParameters(actions=1, window_s=100.0)))
    state, _ = guard.authorise(GuardState(), scale(), NOW, world())
    _, verdict = guard.authorise(state, scale("d2", time_ns=NOW + S), NOW + 40 * S, world())
    assert "had 1 actions in the last 100 s and actuator.per_target allows 1; there is room again in 60.000 s" in (
        verdict.detail
    )


def test_per_cell_counts_all_targets() -> None:
    guard = Guard(ActuatorParameters(per_cell=RateParameters(actions=2, window_s=100.0)))
    state = GuardState()
    around = world(specs=[spec("a"), spec("b"), spec("c")])
    verdicts: list[str] = []
    for name in "abc":
        state, verdict = guard.authorise(state, scale(name, workload=name), NOW, around)
        verdicts.append(verdict.code)
    assert verdicts == ["", "", "rate"]


def test_an_older_decision_is_superseded_even_by_one_that_a_limit_refused() -> None:
    guard = Guard(ActuatorParameters(per_target=RateParameters(actions=1, window_s=1000.0)))
    state, _ = guard.authorise(GuardState(), scale("d1"), NOW, world())
    state, verdict = guard.authorise(state, scale("d3", time_ns=NOW + 2 * S), NOW, world())
    assert verdict.code == "rate"
    after, verdict = guard.authorise(state, scale("d2", time_ns=NOW + S), NOW, world())
    assert (verdict.status, verdict.code) == ("superseded", "stale")
    assert "1.000 s newer" in verdict.detail
    assert after == state


def test_an_unsound_decision_supersedes_nothing() -> None:
    guard = Guard(CONFIG)
    state, verdict = guard.authorise(GuardState(), scale("bad", after=99, time_ns=NOW + S), NOW, world())
    assert (verdict.code, state) == ("invalid", GuardState())
    assert guard.authorise(state, scale(), NOW, world())[1].status == "accepted"


def test_migrations_of_different_replicas_do_not_supersede_each_other() -> None:
    guard = Guard(CONFIG)
    state, _ = guard.authorise(GuardState(), migrate("m2", replica="chat-1", time_ns=NOW + S), NOW, world())
    state, verdict = guard.authorise(state, migrate("m1", replica="chat-0"), NOW, world())
    assert verdict.status == "accepted"
    assert guard.authorise(state, migrate("m0", replica="chat-1"), NOW, world())[1].status == "superseded"


def test_the_first_objection_wins_in_the_documented_order() -> None:
    names = [check.__name__ for check in CHECKS]
    assert names == [
        "mode_off", "kill_switch", "expired", "not_yet_valid", "unknown_target", "out_of_tenant", "not_allowed",
        "protected", "out_of_hours", "invalid", "superseded", "conflict", "tenant_mixed", "rate", "blast_radius",
        "over_budget", "over_limit", "over_quota", "unapproved",
    ]  # fmt: skip
    full = Grant(cell=CELL, target="cell-a/chat", subject="cell-a/chat", decided_ns=NOW + S, at_ns=NOW, taken=4)
    state = GuardState.restored([full] * 6)
    off = ActuatorParameters(mode="off", allow=())
    late = scale(workload="ghost", after=99, ttl_s=0)
    worst: list[tuple[ActuatorParameters, Scale, dict[str, Any], str]] = [
        (off, late, {"stop": "on"}, "mode_off"),
        (ActuatorParameters(allow=()), late, {"stop": "on"}, "kill_switch"),
        (ActuatorParameters(allow=()), late, {}, "expired"),
        (ActuatorParameters(allow=()), scale(workload="ghost", after=99), {}, "unknown_target"),
        (ActuatorParameters(allow=()), scale(after=99), {}, "not_allowed"),
        (CONFIG, scale(after=99), {}, "invalid"),
        (CONFIG, scale(before=9, after=0), {}, "stale"),
        (CONFIG, scale(before=9, after=0, time_ns=NOW + S), {}, "rate"),
        (
            ActuatorParameters(per_target=RateParameters(actions=7)),
            scale(before=9, after=0, time_ns=NOW + S),
            {},
            "blast_radius",
        ),
    ]
    for config, decision, around, expected in worst:
        assert Guard(config).authorise(state, decision, NOW, world(**around))[1].code == expected


def test_a_restart_resets_no_limit() -> None:
    guard, state = Guard(CONFIG), GuardState()
    for i in range(CONFIG.per_target.actions):
        state, _ = guard.authorise(state, scale(f"d{i}", time_ns=NOW + i), NOW, world())
    again = GuardState.restored((grant for grants in state.grants.values() for grant in grants), dry_run=True)
    assert again == state
    assert guard.authorise(again, scale("next", time_ns=NOW + S), NOW, world())[1].code == "rate"
