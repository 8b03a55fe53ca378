"""Rules for some decisions only: each is refused by name, and no sequence passes a limit."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import example, given, strategies as st
from tests.actuators.samples import CELL, NOW, S, check, migrate, preempt, scale, spec, world

from flyball_actuators.guard import Grant, Guard, GuardState, Verdict, World
from flyball_actuators.parameters import ActuatorParameters, BlastRadiusParameters, RateParameters
from flyball_contracts.config import parse_config
from flyball_contracts.errors import ConfigError
from flyball_contracts.records import AnyDecision, Approval, Effect, Resources

OPEN = {
    "per_target": RateParameters(actions=10_000),
    "per_cell": RateParameters(actions=10_000),
    "blast_radius": BlastRadiusParameters(share=1.0, replicas=10_000, most=10_000),
    "max_age_s": 1e9,
}
BERLIN = ZoneInfo("Europe/Berlin")


def config(policies: str, **more: Any) -> ActuatorParameters:
    """A configuration with policies written as a user writes them, and no other limit."""
    parsed = parse_config(f"policies:\n{policies}", ActuatorParameters)
    return msgspec.structs.replace(parsed, **OPEN, **more)


def judged(
    settings: ActuatorParameters, decision: AnyDecision, around: World | None = None, now_ns: int = NOW
) -> Verdict:
    return Guard(settings).authorise(GuardState(), decision, now_ns, around or world())[1]


def at(text: str) -> int:
    """A local time in Berlin, in nanoseconds."""
    return round(datetime.fromisoformat(text).replace(tzinfo=BERLIN).timestamp()) * S


def refused(verdict: Verdict, code: str, *words: str) -> None:
    assert (verdict.status, verdict.code) == ("refused", code), verdict
    for word in words:
        assert word in verdict.detail


@pytest.mark.parametrize(
    ("match", "decision", "hit"),
    [
        ("", scale(), True),
        ("workloads: [ch*]", scale(), True),
        ("workloads: [train-*, db]", scale(), False),
        ("cells: [cell-b]", scale(), False),
        ("tenants: [default]", scale(), True),
        ("tenants: [research]", scale(), False),
        ("types: [Preempt, Migrate]", scale(), False),
        ("types: [Preempt, Migrate]", preempt(), True),
        ("urgencies: [normal, deferral]", migrate(), False),
        ("urgencies: [normal, deferral]", migrate(from_device=""), True),
        ("urgencies: [deferral]", preempt(until_s=3600), True),
    ],
)
def test_a_policy_is_about_what_it_matches(match: str, decision: AnyDecision, hit: bool) -> None:
    settings = config(f"  - {{name: core, protect: true{', ' if match else ''}{match}}}")
    verdict = judged(settings, decision)
    if hit:
        refused(verdict, "protected", "policy 'core' protects workload 'chat'", "actuator.policies")
    else:
        assert verdict.status == "accepted"


FREEZE = '  - {name: weekend, never_during: ["fri 16:00-mon 08:00"], zone: Europe/Berlin}'
NIGHTS = '  - {name: nights, only_during: ["mon,tue 22:00-06:00"], zone: Europe/Berlin}'


@pytest.mark.parametrize(
    ("policies", "when", "allowed"),
    [
        (FREEZE, "2026-11-20T15:59", True),
        (FREEZE, "2026-11-20T16:00", False),
        (FREEZE, "2026-11-22T12:00", False),
        (FREEZE, "2026-11-23T07:59", False),
        (FREEZE, "2026-11-23T08:00", True),
        (NIGHTS, "2026-11-23T21:59", False),
        (NIGHTS, "2026-11-23T22:00", True),
        (NIGHTS, "2026-11-24T05:59", True),
        (NIGHTS, "2026-11-24T06:00", False),
        (NIGHTS, "2026-11-25T05:59", True),
        (NIGHTS, "2026-11-25T22:30", False),
        # The clock goes back at 03:00 on 25 October, and forward at 02:00 on 29 March: the local time counts.
        ('  - {name: w, only_during: ["02:30-04:00"], zone: Europe/Berlin}', "2026-10-25T02:45", True),
        ('  - {name: w, only_during: ["02:30-04:00"], zone: Europe/Berlin}', "2026-03-29T03:30", True),
        ('  - {name: w, only_during: ["sun 00:00-24:00"]}', "2026-11-22T12:00", True),
    ],
)
def test_windows_and_freezes_follow_the_local_clock(policies: str, when: str, allowed: bool) -> None:
    now_ns = at(when)
    verdict = judged(config(policies), scale(time_ns=now_ns), now_ns=now_ns)
    assert (verdict.status == "accepted") == allowed, verdict
    if not allowed:
        refused(verdict, "window", "policy", "Europe/Berlin")


def test_a_refusal_says_when_it_is_allowed_again() -> None:
    now_ns = at("2026-11-20T18:00")
    refused(judged(config(FREEZE), scale(time_ns=now_ns), now_ns=now_ns), "window", "until Mon 08:00 (Europe/Berlin)")
    now_ns = at("2026-11-25T12:00")
    verdict = judged(config(NIGHTS), scale(time_ns=now_ns), now_ns=now_ns)
    refused(verdict, "window", "from Mon 22:00 (Europe/Berlin) on")


def test_what_waited_into_a_freeze_is_not_carried_out() -> None:
    guard, before, within = Guard(config(FREEZE)), at("2026-11-20T15:59"), at("2026-11-20T16:00")
    decision = scale(time_ns=before)
    state, verdict = guard.authorise(GuardState(), decision, before, world())
    assert verdict.status == "accepted"
    found = guard.still(state, decision, within, world())
    assert found is not None
    assert found.code == "window"


def dear(id_: str, usd_per_hour: float, **changes: Any) -> AnyDecision:
    return msgspec.structs.replace(scale(id_, **changes), expected=Effect(cost_usd_per_hour=usd_per_hour))


def test_money_that_decisions_add_is_limited() -> None:
    guard = Guard(config("  - {name: budget, limits: [{per: tenant, window_s: 3600, usd_per_hour: 100}]}"))
    specs = [spec("embed"), msgspec.structs.replace(spec("other"), tenant="research")]
    around = world(specs=specs)
    state, verdict = guard.authorise(GuardState(), dear("a", 60.0), NOW, around)
    assert verdict.status == "accepted"
    state, verdict = guard.authorise(state, dear("b", 50.0, workload="embed"), NOW, around)
    refused(verdict, "limit", "policy 'budget', limits[0]", "50 USD an hour added after 60", "'default' may have 100")
    state, verdict = guard.authorise(state, dear("c", -500.0, workload="embed"), NOW, around)
    assert verdict.status == "accepted"  # what saves is free, and makes no room
    assert guard.authorise(state, dear("d", 41.0, workload="embed"), NOW, around)[1].code == "limit"
    assert guard.authorise(state, dear("e", 100.0, workload="other"), NOW, around)[1].status == "accepted"
    later = NOW + 3600 * S
    assert guard.authorise(state, dear("f", 50.0, workload="embed", time_ns=later), later, around)[1].code == ""


def test_a_quota_is_of_a_tenant() -> None:
    settings = config("  - {name: fair, quota: {replicas: 10, gpus: 16}}")
    big = msgspec.structs.replace(spec("embed"), gpus_per_replica=4.0)
    other = msgspec.structs.replace(spec("other"), tenant="research")
    around = world(specs=[big, other], running={"chat": 4, "embed": 2, "other": 18})
    assert judged(settings, scale(before=4, after=8), around).status == "accepted"
    refused(judged(settings, scale(before=4, after=9), around), "quota", "'default' would hold 11 replicas", "hold 10")
    dear_one = judged(settings, scale(workload="embed", before=2, after=4), around)
    refused(dear_one, "quota", "policy 'fair'", "would hold 20 GPUs")
    assert judged(settings, scale(workload="other", before=18, after=15), around).status == "accepted"  # it takes less


def test_what_was_just_let_through_counts_toward_a_quota() -> None:
    guard, around = (
        Guard(config("  - {name: fair, quota: {replicas: 10}}")),
        world(specs=[spec("embed")], running={"chat": 4, "embed": 4}),
    )
    state, verdict = guard.authorise(GuardState(), scale("a", before=4, after=6), NOW, around)
    assert verdict.status == "accepted"
    kept = [msgspec.json.decode(msgspec.json.encode(grant), type=Grant) for grant in state.grants[CELL]]
    state = GuardState.restored(kept, dry_run=True)
    more = scale("b", workload="embed", before=4, after=6, time_ns=NOW + S)
    refused(guard.authorise(state, more, NOW + S, around)[1], "quota", "would hold 12 replicas", "may hold 10")
    fewer, _ = guard.authorise(state, scale("c", before=6, after=4, time_ns=NOW + S), NOW + S, around)
    assert guard.authorise(fewer, more, NOW + S, around)[1].status == "accepted", "the newest counts"
    late = NOW + 601 * S
    assert guard.authorise(state, scale("d", workload="embed", time_ns=late), late, around)[1].status == "accepted"


APPROVAL = "  - {name: ask, workloads: [chat, 'node:*'], approval: true}"


def resized(batch: int | None) -> AnyDecision:
    return scale("x", before=4, after=4, resources=Resources(cpu=1.0), batch_size=batch)


def approved(decision: AnyDecision, until_s: int = 600) -> World:
    return world()._replace(
        approvals=(Approval(decision=decision, time_ns=NOW, until_ns=NOW + until_s * S, by="an engineer"),)
    )


@pytest.mark.parametrize(
    ("agreed", "requested", "allowed"),
    [
        (scale(before=4, after=8), scale("x", before=4, after=8), True),
        (scale(before=4, after=8), scale("x", before=5, after=6), True),
        (scale(before=4, after=8), scale("x", before=4, after=9), False),
        (scale(before=4, after=8), scale("x", before=4, after=3), False),
        (scale(before=4, after=2), scale("x", before=4, after=3), True),
        (scale(before=4, after=2), preempt("x", before=4, after=2), False),
        (scale(before=4, after=8), scale("x", before=4, after=4, resources=Resources(memory_bytes=2**30)), False),
        (migrate(replica="chat-0"), migrate("x", replica="chat-0"), True),
        (migrate(replica="chat-0"), migrate("x", replica="chat-1"), False),
        (migrate(to_node="n2"), migrate("x", to_node="n2"), True),
        (migrate(to_node="n2"), migrate("x", to_node=""), False),
        (migrate(), migrate("x", to_node="n2"), False),
        (migrate(), migrate("x", from_device=""), False),
        (preempt(before=4, after=2), preempt("x", before=4, after=2), True),
        (preempt(before=4, after=2, until_s=60), preempt("x", before=4, after=2, until_s=60), True),
        (preempt(before=4, after=2, until_s=60), preempt("x", before=4, after=2), False),
        (preempt(before=4, after=2, until_s=60), preempt("x", before=4, after=2, until_s=90), False),
        (preempt(before=4, after=2), preempt("x", before=4, after=2, checkpoint=False), False),
        (preempt(before=4, after=3), msgspec.structs.replace(preempt("x", before=4, after=3), beneficiary="db"), False),
        (preempt(after=2, victims=("chat-3", "chat-2")), preempt("x", after=2, victims=("chat-2", "chat-3")), True),
        (preempt(after=2, victims=("chat-3", "chat-2")), preempt("x", after=3, victims=("chat-2",)), True),
        (preempt(after=2, victims=("chat-3", "chat-2")), preempt("x", after=3), False),
        (preempt(after=3, victims=("chat-3",)), preempt("x", after=3, victims=("chat-0",)), False),
        (preempt(after=3, victims=("chat-3",)), preempt("x", after=3), False),
        (preempt(after=3), preempt("x", after=3, victims=("chat-0",)), False),
        (check(devices=("g0",)), check("x", devices=("g0",), attempt=2), True),
        (check(devices=("g0",)), check("x", devices=()), False),
        (resized(batch=2), resized(batch=1), True),
        (resized(batch=2), resized(batch=None), False),
    ],
)
def test_an_approval_covers_the_same_and_no_more(agreed: AnyDecision, requested: AnyDecision, allowed: bool) -> None:
    settings = config(APPROVAL)
    refused(judged(settings, requested), "approval", "policy 'ask'", "flyball approve x")
    assert (judged(settings, requested, approved(agreed)).status == "accepted") == allowed
    assert judged(settings, requested, approved(agreed, until_s=0)).code == "approval"


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("  - {name: a}", "policies", "it has no rule"),
        ("  - {name: '', protect: true}", "policies", "name: it is empty"),
        ("  - {name: a, protect: true, cells: []}", "policies", "it matches nothing"),
        ("  - {name: a, protect: true}\n  - {name: a, approval: true}", "policies", "'a' is there twice"),
        ("  - {name: a, limits: [{per: cell}]}", "limits", "it limits nothing"),
        ("  - {name: a, types: [Delete], protect: true}", "types", "Scale"),
        ('  - {name: a, only_during: ["25:00-06:00"]}', "only_during", "'25:00' is no time"),
        ('  - {name: a, only_during: ["10:00-fri 06:00"]}', "only_during", "the day of both"),
        ('  - {name: a, only_during: ["06:00-06:00"]}', "only_during", "no length"),
        ('  - {name: a, only_during: ["05:00-06:00"], zone: Mars}', "only_during", "no time zone"),
        ('  - {name: a, only_during: ["mon,someday 10:00-11:00"]}', "only_during", "is no day"),
    ],
)
def test_a_policy_that_cannot_be_is_an_error_with_its_place(text: str, place: str, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        config(text)
    assert place in str(raised.value)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


DECISIONS = st.tuples(
    st.sampled_from(["Scale", "Preempt"]),
    st.sampled_from(["chat", "embed"]),
    st.integers(0, 20),
    st.integers(0, 20),
    st.integers(0, 900),
    st.floats(-50, 80, allow_nan=False),
)
LIMITS = """\
  - {name: all, limits: [{per: cell, window_s: 1200, actions: 5, replicas: 12}]}
  - {name: each, limits: [{per: workload, window_s: 600, replicas: 6, usd_per_hour: 60}]}
  - {name: chat, workloads: [chat], types: [Scale], limits: [{per: target, window_s: 300, actions: 1}]}
"""


@given(st.lists(DECISIONS, max_size=25), st.booleans())
@example([("Scale", "chat", 20, 0, 0, 0.0)], False)
def test_no_sequence_passes_a_limit(requested: list[tuple[str, str, int, int, int, float]], restart: bool) -> None:
    guard, state, now_ns = Guard(config(LIMITS)), GuardState(), NOW
    around = world(specs=[spec("embed")])
    granted: list[tuple[int, str, str, int, float]] = []
    for number, (kind, workload, before, after, step_s, usd) in enumerate(requested):
        now_ns += step_s * S
        change = {"workload": workload, "before": before, "after": after}
        decision: AnyDecision = (
            scale(f"d{number}", time_ns=now_ns, **change)  # type: ignore[arg-type]
            if kind == "Scale"
            else msgspec.structs.replace(preempt(f"d{number}", **change), time_ns=now_ns, expires_ns=now_ns + 60 * S)  # type: ignore[arg-type]
        )
        decision = msgspec.structs.replace(decision, expected=Effect(cost_usd_per_hour=usd))
        state, verdict = guard.authorise(state, decision, now_ns, around)
        if verdict.status == "accepted":
            taken = max(0, before - after)
            granted.append((now_ns, kind, workload, taken, max(0.0, usd)))
        if restart:
            held = [grant for grants in state.grants.values() for grant in grants]
            state = GuardState.restored(held, dry_run=True)._replace(newest=state.newest)
    for end_ns, *_ in granted:  # every window that ends with a grant

        def within(seconds: int, end_ns: int = end_ns) -> list[tuple[int, str, str, int, float]]:
            return [g for g in granted if end_ns - seconds * S < g[0] <= end_ns]

        assert len(within(1200)) <= 5
        assert sum(g[3] for g in within(1200)) <= 12
        for name in ("chat", "embed"):
            assert sum(g[3] for g in within(600) if g[2] == name) <= 6
            assert sum(g[4] for g in within(600) if g[2] == name) <= 60
        assert sum(g[1:3] == ("Scale", "chat") for g in within(300)) <= 1


def test_policies_of_one_cell_leave_others_alone() -> None:
    settings = config("  - {name: one, cells: [cell-b], limits: [{actions: 1}]}")
    guard, state = Guard(settings), GuardState()
    for number in range(3):
        state, verdict = guard.authorise(state, scale(f"d{number}", time_ns=NOW + number), NOW, world())
        assert verdict.status == "accepted"
    assert len(state.grants[CELL]) == 3


def test_a_resize_gets_the_room_that_a_policy_leaves_and_anything_else_is_told_how_much_that_is() -> None:
    def resized(id_: str, after_s: int) -> AnyDecision:
        return scale(id_, before=10, after=10, time_ns=NOW + after_s * S, resources=Resources(cpu=1.0))

    settings = config("  - {name: calm, limits: [{per: workload, replicas: 6}, {per: tenant, replicas: 4}]}")
    guard, state, taken = Guard(settings), GuardState(), list[int | str]()
    shrink = scale("d0", before=4, after=3)
    for decision in (shrink, resized("d1", 1), resized("d2", 2), resized("d3", 3_602), resized("d4", 3_603)):
        state, verdict = guard.authorise(state, decision, decision.time_ns, world())
        taken.append(verdict.code or state.grants[CELL][-1].taken)
    assert taken == [1, 3, "limit", 4, "limit"], "4 in an hour, by the narrower of the two"
    refused(verdict, "limit", "10 replicas taken away after 4", "may have 4; wait, or raise the limit")
    less = scale(before=10, after=4)
    refused(judged(settings, less), "limit", "6 replicas taken away after 0", "may have 4; wait, take at most 4 now")
    assert judged(settings, scale(before=10, after=6)).status == "accepted"
    narrow = msgspec.structs.replace(settings, blast_radius=BlastRadiusParameters(replicas=2))
    refused(judged(narrow, less), "blast_radius", "6 replicas after 0", "wait, take at most 2 now")
