"""The k-lowest plan: brute force over all plans, and what each plan must be."""

from itertools import combinations
from typing import Any

import numpy as np
from hypothesis import given, settings, strategies as st

from flyball_models.timing import k_lowest

T, B = 8, 4
Ints = np.ndarray[Any, Any]
costs = st.lists(st.integers(-5, 5), min_size=T, max_size=T)
job = st.tuples(st.integers(-2, T + 1), st.integers(-1, T + 2), st.integers(0, T + 1))


def planned(cost: list[int], jobs: list[tuple[int, int, int]]) -> tuple[Ints, Ints, Ints]:
    release, deadline, need = np.array(jobs, np.int32).T
    out = k_lowest.plan(np.array(cost, np.float32), release, deadline, need)
    return np.asarray(out.run), np.asarray(out.saving), np.asarray(out.feasible)


@given(costs, st.lists(job, min_size=B, max_size=B))
@settings(deadline=None, max_examples=200)
def test_no_other_plan_is_cheaper_and_ties_go_to_the_earliest(
    cost: list[int], jobs: list[tuple[int, int, int]]
) -> None:
    run, saving, feasible = planned(cost, jobs)
    for b, (release, deadline, need) in enumerate(jobs):
        window = [t for t in range(T) if release <= t < deadline]
        assert feasible[b] == (len(window) >= need)
        take = min(need, len(window))
        # Among equal costs, a plan is earlier when its sorted (cost, slot) pairs come first.
        best = min(
            combinations(window, take),
            key=lambda plan: (sum(cost[t] for t in plan), sorted((cost[t], t) for t in plan)),
        )
        assert np.flatnonzero(run[b]).tolist() == list(best)
        assert saving[b] == sum(cost[t] for t in window[:take]) - sum(cost[t] for t in best)


@given(st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=40)
def test_on_long_curves_it_takes_the_cheapest_of_the_window(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cost = rng.gamma(2, 100, 192).astype(np.float32)
    release = rng.integers(0, 100, 64).astype(np.int32)
    deadline = (release + rng.integers(1, 90, 64)).astype(np.int32)
    need = rng.integers(0, 60, 64).astype(np.int32)
    out = k_lowest.plan(cost, release, deadline, need)
    run = np.asarray(out.run)
    for b in range(64):
        window = cost[release[b] : deadline[b]]
        k = min(int(need[b]), len(window))
        assert run[b].sum() == k == run[b, release[b] : deadline[b]].sum()
        np.testing.assert_allclose(np.sort(cost[run[b]]), np.sort(window)[:k])
    assert (np.asarray(out.saving) >= 0).all()


@given(costs, st.lists(job, min_size=B, max_size=B))
@settings(deadline=None, max_examples=30)
def test_jobs_do_not_see_each_other(cost: list[int], jobs: list[tuple[int, int, int]]) -> None:
    run, saving, feasible = planned(cost, jobs)
    back = planned(cost, jobs[::-1])
    for one, other in zip((run, saving, feasible), back, strict=True):
        np.testing.assert_array_equal(one, other[::-1])


def test_an_unknown_cost_is_taken_last() -> None:
    cost = np.array([5, np.nan, 1, 2], np.float32)
    zero, end = np.zeros(1, np.int32), np.full(1, 4, np.int32)
    out = k_lowest.plan(cost, zero, end, np.array([3], np.int32))
    assert np.asarray(out.run).tolist() == [[True, False, True, True]]
    out = k_lowest.plan(cost, zero, end, np.array([1], np.int32))
    assert np.asarray(out.saving).tolist() == [4]
