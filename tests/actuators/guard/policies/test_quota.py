"""A quota refuses exactly what a sum over all workloads says."""

import msgspec
from hypothesis import example, given, strategies as st
from tests.actuators.guard.policies.test_policies import config
from tests.actuators.samples import CELL, NOW, S, scale, spec, world

from flyball_actuators.guard import UNSEEN_S, Guard, GuardState

TENANT_AND_GPUS = {"a": ("x", 1.0), "b": ("x", 0.5), "c": ("x", 2.0), "d": ("y", 1.0)}
COUNTS = st.fixed_dictionaries({name: st.integers(0, 4) for name in TENANT_AND_GPUS})
FELL = st.dictionaries(st.sampled_from([*TENANT_AND_GPUS]), st.integers(1, 6), max_size=2)
NONE = dict.fromkeys(TENANT_AND_GPUS, 0)


@given(
    st.lists(
        st.tuples(st.sampled_from([*TENANT_AND_GPUS]), st.integers(0, 8), st.sampled_from([1, 200, 400]), COUNTS, FELL),
        min_size=1, max_size=12,
    ),
    st.integers(6, 24),
    st.integers(6, 24),
)  # fmt: skip
@example([("c", 3, 1, NONE, {}), ("a", 1, 1, NONE, {})], 24, 6)  # GPUs that only a grant gave
@example([("a", 1, 1, NONE, {"b": 6})], 6, 24)  # replicas that only fell
@example([("a", 1, 1, NONE, {"c": 3})], 24, 6)  # GPUs of replicas that only fell
def test_it_refuses_what_a_sum_over_all_workloads_says(
    steps: list[tuple[str, int, int, dict[str, int], dict[str, int]]], most: int, most_gpus: int
) -> None:
    """What inventories show, what was let through of late and what fell without a decision come and go meanwhile."""
    specs = [
        msgspec.structs.replace(spec(name), tenant=tenant, gpus_per_replica=gpus)
        for name, (tenant, gpus) in TENANT_AND_GPUS.items()
    ]
    guard = Guard(config(f"  - {{name: fair, quota: {{replicas: {most}, gpus: {most_gpus}}}}}"))
    state, now_ns, let_through = GuardState(), NOW, dict[str, tuple[int, int]]()
    for number, (workload, after, later_s, running, fell) in enumerate(steps):
        now_ns += later_s * S
        around = world(specs=specs, running=running)._replace(held={(CELL, name): n for name, n in fell.items()})
        decision = scale(f"d{number}", workload=workload, before=running[workload], after=after, time_ns=now_ns)
        counts = {name: max(running[name], fell.get(name, 0)) for name in running}
        for name, (at_ns, replicas) in let_through.items():
            if now_ns - at_ns < UNSEEN_S * S:
                counts[name] = max(running[name], replicas)
        counts[workload] = after
        own = [name for name, (tenant, _) in TENANT_AND_GPUS.items() if tenant == TENANT_AND_GPUS[workload][0]]
        over = sum(counts[name] for name in own) > most
        over |= sum(counts[name] * TENANT_AND_GPUS[name][1] for name in own) > most_gpus
        state, verdict = guard.authorise(state, decision, now_ns, around)
        assert (verdict.code == "quota") == (over and after > running[workload]), verdict
        if verdict.status == "accepted":
            let_through[workload] = now_ns, after
