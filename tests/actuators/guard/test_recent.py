"""What is kept of recent grants from one judgement to the next is what a walk over all of them gives."""

from collections import Counter
from collections.abc import Callable

import msgspec
from hypothesis import given, strategies as st
from tests.actuators.samples import CELL, S

from flyball_actuators.guard import UNDECLARED, Grant
from flyball_actuators.guard.grants import RecentGrants
from flyball_actuators.guard.sums import DeclaredByName

DECLARED: tuple[DeclaredByName, ...] = ({}, {"a": ("x", 1.0), "b": ("x", 0.5)}, {"a": ("y", 1.0), "b": ("x", 2.0)})
Held = list[Grant]
Step = Callable[[Held, int], Held]
"""What becomes of the grants at a time."""


def grant(name: str, at_ns: int, workload: str, starts: str | None, replicas: int | None) -> Grant:
    return Grant(
        cell=CELL, target=f"{CELL}/{workload}", subject=workload, decided_ns=at_ns, at_ns=at_ns, taken=0, decision=name,
        workload=workload, starts=starts, replicas=replicas,
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
    st.builds(more, st.sampled_from("abc"), st.sampled_from([None, "", "n1"]), st.sampled_from([None, 1, 2])),
    st.integers(0, 4).map(of_others),
    st.integers(0, 10).map(without),
    st.integers(0, 6).map(window),
)


@given(
    st.lists(st.tuples(STEPS, st.integers(0, 2), st.sampled_from(DECLARED)), max_size=30), st.booleans(), st.booleans()
)
def test_it_is_what_a_walk_gives(
    steps: list[tuple[Step, int, DeclaredByName]], redeclared: bool, read_anew: bool
) -> None:
    """Specifications may change meanwhile, and grants of other actuators are other objects each time."""
    recent, held, now_ns, declared = RecentGrants(), Held(), 0, DECLARED[0]
    for step, later_s, others in steps:
        now_ns += later_s * S
        held = step(held, now_ns)
        if read_anew:
            held = [msgspec.structs.replace(one) for one in held]
        declared = others if redeclared else declared
        recent.update(tuple(held), declared)
        replicas_of: dict[str, dict[str, int]] = {}
        starts_of: dict[str, Counter[tuple[str, float]]] = {}
        for one in held:
            tenant, gpus = declared.get(one.workload, UNDECLARED)
            if one.replicas is not None:
                replicas_of.setdefault(tenant, {})[one.workload] = one.replicas
            if one.starts is not None:
                starts_of.setdefault(tenant, Counter())[one.starts, gpus] += 1
        assert {tenant: of for tenant, of in recent.replicas.items() if of} == replicas_of
        assert {tenant: of for tenant, of in recent.starts.items() if of} == starts_of
        assert recent.grants == tuple(held)
