"""The on/off plan against brute force over all plans."""

import math
from itertools import product
from typing import NamedTuple

import numpy as np
from hypothesis import given, settings, strategies as st

from flyball_models.timing import on_off

T, MOST = 7, 14


class Job(NamedTuple):
    """Cost and units by slot, work, what a start loses, and whether it is on."""

    slots: list[tuple[int, int]]
    need: int
    lost: int
    running: bool


jobs = st.builds(
    Job,
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 2)), min_size=T, max_size=T),
    st.integers(0, 8),
    st.integers(0, 3),
    st.booleans(),
)


def planned(job: Job) -> on_off.Plan:
    cost, units = np.array(job.slots).T
    work, running = np.array((job.need, job.lost), np.int32), np.array(job.running)
    return on_off.plan(cost.astype(np.float32), units.astype(np.int32), work, running, most=MOST)


def cost_of(job: Job, run: tuple[bool, ...]) -> float:
    """Cost of a plan as carried out, infinite when the work does not end."""
    left, on, cost = job.need, job.running, 0
    for (price, units), wanted in zip(job.slots, run, strict=True):
        if wanted and left > 0:
            left += 0 if on else job.lost
            done = min(left, units)
            cost, left = cost + price * done, left - done
        on = wanted
    return cost if left <= 0 else math.inf


@given(jobs)
@settings(deadline=None, max_examples=150)
def test_no_other_plan_is_cheaper(job: Job) -> None:
    made = planned(job)
    best = min(cost_of(job, run) for run in product((False, True), repeat=T))
    assert bool(made.feasible) == math.isfinite(best)
    assert float(made.cost) == best
    if math.isfinite(best):
        assert cost_of(job, tuple(np.asarray(made.run).tolist())) == best


def test_of_equal_plans_the_earliest_is_taken() -> None:
    flat = planned(Job([(3, 2)] * T, 4, 0, False))
    assert np.asarray(flat.run).tolist() == [True, True] + [False] * (T - 2)


def test_work_that_does_not_fit_runs_at_once_and_on() -> None:
    late = planned(Job([(5, 2), (1, 2), (1, 2)] + [(1, 0)] * (T - 3), 7, 0, False))
    assert not late.feasible
    assert np.asarray(late.run).all()
