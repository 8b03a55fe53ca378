"""A limit as a share: of a cell, a tenant, a workload or a pool, no more than that goes in a window."""

from math import ceil
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st
from tests.actuators.guard.policies.test_policies import config, refused
from tests.actuators.samples import CELL, NOW, S, preempt, scale, spec, world

from flyball_actuators.guard import Guard, GuardState, Verdict, World
from flyball_contracts.config import PlatformConfig, PoolConfig
from flyball_contracts.errors import ConfigError
from flyball_contracts.records import AnyDecision, SubjectState

POOL = PoolConfig(
    name="a100", kind="auto_scaling_group", resource="g", instance_type="p4d", price_usd_per_hour=30.0, max_machines=20
)
POOLS = (PlatformConfig(cells=(CELL,), driver="aws", region="r", pools=(POOL,)),)


def policy(limit: str, match: str = "") -> str:
    return f"  - {{name: calm, {match}limits: [{{{limit}}}]}}"


def fleet(**running: int) -> World:
    """Workloads ``chat`` and ``embed`` of one tenant, ``other`` of another."""
    return world(specs=[spec("embed"), msgspec.structs.replace(spec("other"), tenant="research")], running=running)


def judged(
    limit: str, decision: AnyDecision, around: World, observed: SubjectState | None = None, match: str = "", **more: Any
) -> Verdict:
    guard = Guard(config(policy(limit, match), **more))
    return guard.authorise(GuardState(), decision, NOW, around, observed)[1]


def down(workload: str, before: int, gone: int) -> AnyDecision:
    return scale(workload=workload, before=before, after=before - gone)


@pytest.mark.parametrize(
    ("limit", "match", "workload", "most"),
    [
        ("per: workload, replicas: 25%", "", "chat", 2),
        ("per: target, replicas: 25%", "", "other", 5),
        ("per: tenant, replicas: 25%", "", "chat", 5),
        ("per: tenant, replicas: 25%", "", "embed", 5),
        ("per: cell, replicas: 10%", "", "chat", 4),
        ("per: workload, replicas: 5%", "", "other", 1),
        ("per: workload, replicas: 26%", "", "chat", 3),
        ("per: workload, replicas: 30%", "", "other", 6),
        ("per: cell, replicas: 25%", "workloads: [chat, embed], ", "chat", 5),
        ("per: cell, replicas: 25%", "tenants: [research], ", "other", 5),
        ("per: workload, replicas: 10%", "", "chat", 1),
        ("per: workload, replicas: 0%", "", "chat", 0),
    ],
)
def test_a_share_is_of_what_the_limit_counts(limit: str, match: str, workload: str, most: int) -> None:
    running = {"chat": 8, "embed": 12, "other": 20}
    around, before = fleet(**running), running[workload]
    for gone in range(1, most + 1):
        assert judged(limit, down(workload, before, gone), around, match=match).status == "accepted"
    verdict = judged(limit, down(workload, before, most + 1), around, match=match)
    refused(verdict, "limit", "policy 'calm', limits[0]", f"{most + 1} replicas taken away after 0", f"may have {most}")
    assert verdict.allowed == most
    assert f", {limit.rpartition(' ')[2]} of the " in verdict.detail
    assert judged(limit, scale(workload=workload, before=before, after=before), around, match=match).code == ""


def test_what_the_platform_shows_counts_where_inventories_show_less() -> None:
    nothing = fleet()
    shown = SubjectState(replicas=8, ready=8)
    for per in ("workload", "tenant", "cell"):
        limit = f"per: {per}, replicas: 25%"
        assert judged(limit, down("chat", 8, 2), nothing, shown).status == "accepted"
        refused(judged(limit, down("chat", 8, 3), nothing, shown), "limit", "25% of the 8 that run")
        assert judged(limit, down("chat", 8, 3), nothing).status == "accepted", "on arrival it is not known yet"
    assumed = scale(before=100, after=20)
    refused(judged("per: workload, replicas: 25%", assumed, fleet(chat=8)), "limit", "of the 8 that run")


def test_a_pool_is_a_target_with_its_own_machines() -> None:
    gone = scale(workload="pool:a100", before=10, after=6)
    more: dict[str, Any] = {"platforms": POOLS, "match": "workloads: ['pool:*'], "}
    observed = SubjectState(replicas=10, ready=10)
    refused(judged("per: target, replicas: 30%", gone, fleet(chat=90), observed, **more), "limit", "of the 10 that run")
    assert judged("per: target, replicas: 40%", gone, fleet(), observed, **more).status == "accepted"
    assert judged("per: target, replicas: 30%", gone, fleet(), **more).status == "accepted", "on arrival"


def test_a_share_beyond_all_is_refused_in_the_configuration() -> None:
    with pytest.raises(ConfigError, match=r"replicas.*25%"):
        config(policy("replicas: 150%"))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["chat", "embed", "other"]), st.integers(1, 12), st.integers(0, 700), st.booleans()
    ),
    max_size=25,
)  # fmt: skip


@given(STEPS, st.sampled_from([10, 25, 50]))
def test_no_sequence_takes_more_than_a_share_of_what_runs(steps: list[tuple[str, int, int, bool]], share: int) -> None:
    guard, state, now_ns = Guard(config(policy(f"per: tenant, window_s: 600, replicas: {share}%"))), GuardState(), NOW
    running = {"chat": 10, "embed": 10, "other": 20}
    taken: list[tuple[int, str, int]] = []
    for number, (workload, gone, step_s, shows) in enumerate(steps):
        now_ns += step_s * S
        around, before = fleet(**running), running[workload]
        after = max(0, before - gone)
        kind = scale if number % 2 or after == before else preempt
        decision = msgspec.structs.replace(
            kind(f"d{number}", workload=workload, before=before, after=after, time_ns=now_ns),
            expires_ns=now_ns + 60 * S,
        )
        state, verdict = guard.authorise(state, decision, now_ns, around, SubjectState(replicas=before, ready=before))
        if verdict.status != "accepted":
            continue
        tenant = around.tenant(workload)
        taken.append((now_ns, tenant, before - after))
        lately = sum(n for at_ns, whose, n in taken if whose == tenant and at_ns > now_ns - 600 * S)
        runs = sum(n for name, n in running.items() if around.tenant(name) == tenant)
        assert before == after or lately <= ceil(share * runs / 100)
        running[workload] = after if shows else before
