"""The on/off plan: brute force over all plans, and that jobs of a batch do not see each other."""

import math
from itertools import product
from typing import NamedTuple

import numpy as np
from hypothesis import given, settings, strategies as st

from flyball_models.timing import on_off

T, B, MOST = 7, 3, 14


class Job(NamedTuple):
    """Cost and units by slot, work, what a start loses, and whether it is on."""

    slots: list[tuple[int, int]]
    need: int
    lost: int
    running: bool


jobs_ = st.lists(
    st.builds(
        Job,
        st.lists(st.tuples(st.integers(1, 5), st.integers(0, 2)), min_size=T, max_size=T),
        st.integers(0, 8),
        st.integers(0, 3),
        st.booleans(),
    ),
    min_size=B,
    max_size=B,
)


def planned(jobs: list[Job]) -> on_off.Plan:
    slots = np.array([job.slots for job in jobs])
    made = on_off.plan(
        slots[:, :, 0].astype(np.float32),
        slots[:, :, 1].astype(np.int32),
        np.array([job.need for job in jobs], np.int32),
        np.array([job.lost for job in jobs], np.int32),
        np.array([job.running for job in jobs]),
        most=MOST,
    )
    return on_off.Plan(*(np.asarray(a) for a in made))  # type: ignore[arg-type]


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


@given(jobs_)
@settings(deadline=None, max_examples=60)
def test_no_other_plan_is_cheaper(jobs: list[Job]) -> None:
    made = planned(jobs)
    for b, job in enumerate(jobs):
        best = min(cost_of(job, run) for run in product((False, True), repeat=T))
        assert made.feasible[b] == math.isfinite(best)
        assert made.cost[b] == best
        if math.isfinite(best):
            assert cost_of(job, tuple(made.run[b].tolist())) == best


@given(jobs_)
@settings(deadline=None, max_examples=20)
def test_jobs_do_not_see_each_other(jobs: list[Job]) -> None:
    for one, other in zip(planned(jobs), planned(jobs[::-1]), strict=True):
        np.testing.assert_array_equal(one, np.asarray(other)[::-1])


def test_of_equal_plans_the_earliest_is_taken() -> None:
    flat = planned([Job([(3, 2)] * T, 4, 0, False)] * B)
    assert flat.run[0].tolist() == [True, True] + [False] * (T - 2)


def test_work_that_does_not_fit_runs_at_once_and_on() -> None:
    late = planned([Job([(5, 2), (1, 2), (1, 2)] + [(1, 0)] * (T - 3), 7, 0, False)] * B)
    assert not late.feasible[0]
    assert late.run[0].all()
