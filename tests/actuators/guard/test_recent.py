"""What is kept of grants from one judgement to the next is what a walk over all of them gives."""

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
from hypothesis import example, given, strategies as st
from tests.actuators.samples import CELL, S

from flyball_actuators.guard import UNDECLARED, Grant
from flyball_actuators.guard.grants import GrantIndex, RecentGrants
from flyball_actuators.guard.sums import DeclaredByName

DECLARED: tuple[DeclaredByName, ...] = ({}, {"a": ("x", 1.0), "b": ("x", 0.5)}, {"a": ("y", 1.0), "b": ("x", 2.0)})
NAMES = ("a", "b", "c")
Held = list[Grant]
Step = Callable[[Held, int], Held]
"""What becomes of the grants at a time."""


def grant(name: str, at_ns: int, workload: str, starts: str | None, replicas: int | None) -> Grant:
    return Grant(
        cell=CELL, target=f"{CELL}/{workload}", subject=workload, decided_ns=at_ns, at_ns=at_ns, taken=0, decision=name,
        workload=workload, starts=starts, replicas=replicas, urgency="rescue" if workload == "b" else "normal",
    )  # fmt: skip


def more(workload: str, starts: str | None, replicas: int | None) -> Step:
    return lambda held, now_ns: [*held, grant(f"d{now_ns}-{len(held)}", now_ns, workload, starts, replicas)]


def of_others(ago_s: int) -> Step:
    return lambda held, now_ns: sorted(
        [*held, grant(f"o{now_ns}", now_ns - ago_s * S, "a", "", 3)], key=lambda one: one.at_ns
    )


def without(row: int) -> Step:
    return lambda held, now_ns: held[:row] + held[row + 1 :]


def window(long_s: int) -> Step:
    return lambda held, now_ns: [one for one in held if one.at_ns > now_ns - long_s * S]


STEPS: st.SearchStrategy[Step] = st.one_of(
    st.builds(more, st.sampled_from([*NAMES, ""]), st.sampled_from([None, "", "n1"]), st.sampled_from([None, 1, 2])),
    st.integers(0, 4).map(of_others),
    st.integers(0, 10).map(without),
    st.integers(0, 6).map(window),
)


@given(
    st.lists(st.tuples(STEPS, st.integers(0, 2), st.sampled_from(DECLARED)), max_size=30), st.booleans(), st.booleans()
)
@example([(more("a", None, None), 0, {}), (of_others(0), 0, {}), (more("", None, None), 0, {})], False, False)
def test_it_is_what_a_walk_gives(
    steps: list[tuple[Step, int, DeclaredByName]], redeclared: bool, read_anew: bool
) -> None:
    """Specifications may change meanwhile, and grants of other actuators are other objects each time."""
    recent, index, held, now_ns, declared = RecentGrants(), GrantIndex(), Held(), 0, DECLARED[0]
    for step, later_s, others in steps:
        now_ns += later_s * S
        held = step(held, now_ns)
        if read_anew:
            held = [msgspec.structs.replace(one) for one in held]
        declared = others if redeclared else declared
        recent.update(tuple(held), declared)
        replicas_of: dict[str, dict[str, tuple[int, float]]] = {}
        starts_of: dict[str, Counter[tuple[str, float]]] = {}
        for one in held:
            tenant, gpus = declared.get(one.workload, UNDECLARED)
            if one.replicas is not None:
                replicas_of.setdefault(tenant, {})[one.workload] = one.replicas, gpus
            if one.starts is not None:
                starts_of.setdefault(tenant, Counter())[one.starts, gpus] += 1
        assert {tenant: of for tenant, of in recent.replicas.items() if of} == replicas_of
        assert {tenant: of for tenant, of in recent.starts.items() if of} == starts_of
        assert {tenant: of for tenant, of in recent.total.items() if of[0]} == {
            tenant: (sum(n for n, _ in of.values()), sum(n * gpus for n, gpus in of.values()))
            for tenant, of in replicas_of.items()
        }
        assert recent.grants == tuple(held)
        index.update(tuple(held), declared)
        _check(index, held, declared)


def _unnamed_first(one: Grant) -> tuple[int, bool]:
    return one.at_ns, one.workload != ""


def _check(index: GrantIndex, held: Sequence[Grant], declared: DeclaredByName) -> None:
    assert index.grants == tuple(held)
    for urgency in ("normal", "rescue"):
        urgent = [one for one in held if one.urgency == urgency]
        assert [*index.of_urgency(urgency)] == urgent
        for name in NAMES:
            assert [*index.of_urgency(urgency, f"{CELL}/{name}")] == [g for g in urgent if g.target == f"{CELL}/{name}"]
    for name in NAMES:
        of_workload = sorted([one for one in held if one.workload in ("", name)], key=_unnamed_first)
        assert [*index.of("workload", name)] == of_workload
        assert [*index.of("target", f"{CELL}/{name}")] == of_workload
    for tenant in ("", "x", "y"):
        of_tenant = [g for g in held if not g.workload or declared.get(g.workload, UNDECLARED)[0] == tenant]
        assert [*index.of("tenant", tenant)] == sorted(of_tenant, key=_unnamed_first)
    names = {one.decision for one in held}
    assert all(index.has(name) for name in names)
    assert not index.has("another")
