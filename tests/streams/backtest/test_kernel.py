"""The fluid engine: work is conserved, bills cover what was ready, and delays equal a slow reference."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from flyball_models.scaling import Policy, band, dynamo, hpa, kpa, static
from flyball_streams.backtest import kernel
from flyball_streams.backtest.demands.demand import Demand
from flyball_streams.backtest.run import Scenario, simulate

POLICIES = [
    static.policy(3),
    hpa.policy(0.6),
    hpa.keda(0.6),
    kpa.policy(0.7),
    kpa.policy_held(0.7),
    dynamo.policy(0.6),
    band.engine(0.8, 0.1, 0.25, 120.0, 60.0, ""),
]
LIMITS = (0, 5)

bursts = st.lists(st.tuples(st.floats(0, 30), st.integers(1, 60)), min_size=1, max_size=12)


def demand_of(parts: list[tuple[float, int]]) -> Demand:
    work = np.concatenate([np.full(n, rate) for rate, n in parts])
    requests = np.random.default_rng(len(work)).integers(0, 5, len(work)).astype(float)
    return Demand("x", work, requests)


def slow_delays(work: list[float], ready: list[int]) -> list[int]:
    """Waiting time of each second's requests, from the queue itself: parcels served first come, first served."""
    queue: list[list[float]] = []  # [second, work left]
    finished: dict[int, int] = {}
    for t, (arrived, can) in enumerate(zip(work, ready, strict=True)):
        queue.append([t, arrived])
        left = float(can)
        while queue and queue[0][1] <= left + 1e-6:
            second, need = queue.pop(0)
            left = max(0.0, left - need)
            finished[int(second)] = t - int(second)
        if queue:
            queue[0][1] -= left
    return [finished.get(t, len(work) - t) for t in range(len(work))]


@settings(max_examples=60, deadline=None)
@given(bursts, st.sampled_from(POLICIES), st.integers(1, 90))
def test_delays_are_those_of_a_slow_queue(parts: list[tuple[float, int]], policy: Policy, cold: int) -> None:
    demand = demand_of(parts)
    run = simulate(demand, policy, Scenario(cold, LIMITS), record=True)
    waits = np.array(slow_delays(demand.work.tolist(), run.ready.tolist()))
    for i, limit in enumerate(LIMITS):
        late = demand.requests[waits > limit].sum()
        assert run.spans[:, kernel.LATE + i].sum() == pytest.approx(late)
    expected = np.bincount(np.minimum(waits, kernel.BINS - 1), demand.requests, kernel.BINS)
    assert run.delays == pytest.approx(expected)


@settings(max_examples=60, deadline=None)
@given(bursts, st.sampled_from(POLICIES), st.integers(1, 90), st.floats(0, 0.5), st.floats(0, 0.3), st.integers(0, 9))
def test_work_is_conserved_and_bills_cover_what_was_ready(
    parts: list[tuple[float, int]], policy: Policy, cold: int, sigma: float, fails: float, seed: int
) -> None:
    demand = demand_of(parts)
    world = Scenario(cold, LIMITS, cold_sigma=sigma, fail_share=fails, lost_share=0.1, seed=seed)
    run = simulate(demand, policy, world, record=True)
    served = run.spans[:, kernel.SERVED].sum()
    assert served <= demand.work.sum() + 1e-6
    assert served <= run.spans[:, kernel.READY].sum() + 1e-6
    assert (run.spans[:, kernel.BILLED] >= run.spans[:, kernel.READY]).all()
    assert run.spans[:, kernel.READY].sum() == run.ready.sum()
    assert run.spans[:, kernel.REQUESTS].sum() == demand.requests.sum()
    assert 0 <= run.worst_span(1) <= run.attainment(1) <= 1
    assert run.attainment(0) <= run.attainment(1)
    assert (run.total >= world.least).all()
    # What is not served waits: a queue that a big fleet empties serves all.
    ample = simulate(demand, static.policy(40), Scenario(1, LIMITS), record=True)
    if len(demand.work) > 2 * kernel.WARM_S and demand.work[kernel.WARM_S :].sum() < 30 * kernel.WARM_S:
        assert ample.spans[:, kernel.SERVED].sum() <= demand.work.sum() + 1e-6


def test_everything_is_served_where_there_is_room() -> None:
    demand = demand_of([(5.0, 600), (9.0, 600)])
    run = simulate(demand, static.policy(20), Scenario(30, LIMITS))
    assert run.spans[:, kernel.SERVED].sum() == pytest.approx(demand.work.sum())
    assert run.attainment() == 1
    assert run.delay_s(0.999) == 0


def test_a_replica_is_billed_from_its_order_and_ready_after_its_cold_start() -> None:
    demand = demand_of([(2.0, 400)])
    run = simulate(demand, static.policy(10), Scenario(100, LIMITS), record=True)
    begin = math.ceil(1.5 * 2.0) + 1
    assert run.ready[:160].tolist() == [begin] * 160  # asked for at 60 s
    assert run.ready[160:].tolist() == [10] * 240
    assert run.spans[0, kernel.BILLED] == begin * 61 + 10 * 339
    assert run.spans[0, kernel.STARTS] == 10 - begin


def test_less_cancels_orders_first_and_bills_a_drain_for_each_that_stops() -> None:
    demand = demand_of([(8.0, 200), (0.0, 700)])
    run = simulate(demand, dynamo.policy(1.0), Scenario(30, LIMITS), record=True)
    stopped = int(np.maximum(0, -np.diff(run.ready)).sum())
    assert stopped > 0
    assert run.spans[0, kernel.BILLED] == run.total.sum() + 30 * stopped


def test_failed_orders_are_not_billed_and_ordered_again() -> None:
    demand = demand_of([(2.0, 1200)])
    run = simulate(demand, static.policy(30), Scenario(20, LIMITS, fail_share=0.5, seed=1), record=True)
    assert run.spans[0, kernel.FAILURES] > 5
    assert run.ready[-1] == 30
    assert run.spans[0, kernel.BILLED] < run.total.sum()


def test_a_reversal_within_two_cold_starts_is_a_flap() -> None:
    demand = demand_of([(2.0, 300), (40.0, 60), (0.0, 900)])
    run = simulate(demand, kpa.policy(0.7), Scenario(300, LIMITS))
    assert run.spans[0, kernel.FLAPS] >= 1
    assert run.spans[0, kernel.ACTIONS] > run.spans[0, kernel.FLAPS]


def test_the_same_seed_gives_the_same_run() -> None:
    demand = demand_of([(6.0, 300), (20.0, 300)])
    world = Scenario(60, LIMITS, cold_sigma=0.25, fail_share=0.1, lost_share=0.05, seed=3)
    first, second = (simulate(demand, hpa.policy(0.5), world) for _ in range(2))
    assert (first.spans == second.spans).all()
    assert (first.delays == second.delays).all()
    other = simulate(demand, hpa.policy(0.5), world._replace(seed=4))
    assert (first.spans != other.spans).any()
