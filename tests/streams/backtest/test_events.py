"""The event-driven engine holds to queueing theory, loses no request, and meets the fluid engine at high load."""

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from bench.scaling.servegen import Clients, arrivals
from bench.scaling.trace_requests import own, redrawn
from hypothesis import given, settings, strategies as st

from flyball_contracts.errors import RecordingError
from flyball_models.scaling import Policy, dynamo, hpa, kpa, shadow_selection, static
from flyball_streams.backtest import kernel, run as fluid
from flyball_streams.backtest.demands.demand import Demand
from flyball_streams.backtest.events.kernel import BEGUN, DONE, FINISHED, IN_SYSTEM
from flyball_streams.backtest.events.replicas import Service
from flyball_streams.backtest.events.requests import Requests, drawn
from flyball_streams.backtest.events.run import Served, service_for, simulate
from flyball_streams.backtest.run import Scenario

WORLD = Scenario(60.0, (0, 5))


def waiting(served: Served) -> int:
    """Requests that no replica had started at the end."""
    return served.given - int(served.tally[BEGUN])


def unfinished(served: Served) -> int:
    """Requests that a replica had started but not finished."""
    return int(served.tally[BEGUN] - served.tally[FINISHED])


def mean_time_s(served: Served) -> float:
    """Mean time of a request in the system, by Little's law."""
    return float(served.tally[IN_SYSTEM]) / max(1, served.given)


def steady(replicas: int, rate: float, work: np.ndarray[tuple[int], np.dtype[np.float64]], service: Service) -> Served:
    """Poisson arrivals of `rate` per second at a fleet that never changes; the start of the run counts too."""
    gaps = np.random.default_rng(1).exponential(1 / rate, len(work))
    at_s = np.cumsum(gaps)
    seconds = int(at_s[-1]) + 1
    second = at_s.astype(np.int64)
    sums, counts = np.zeros(seconds), np.zeros(seconds)
    np.add.at(sums, second, work)
    np.add.at(counts, second, 1.0)
    demand = Demand("x", sums, counts)
    # A fleet starts with ceil(1.5 work) + 1 replicas; the least and the most hold it at what is asked.
    world = WORLD._replace(least=replicas, most=replicas)
    return simulate(demand, Requests(at_s, np.zeros(len(work)), work), static.policy(replicas), world, service=service)


def erlang_c(servers: int, load: float) -> float:
    """Share of arrivals that wait in M/M/c."""
    terms = [load**k / math.factorial(k) for k in range(servers)]
    last = load**servers / math.factorial(servers) / (1 - load / servers)
    return last / (sum(terms) + last)


@pytest.mark.parametrize(("replicas", "slots"), [(1, 1), (4, 1), (2, 2)])
def test_slots_that_do_not_slow_each_other_are_the_servers_of_m_m_c(replicas: int, slots: int) -> None:
    servers, n = replicas * slots, 300_000
    load = 0.8 * servers
    # A slot has 1 / slots of its replica, so a request with so much work takes a second.
    work = np.random.default_rng(2).exponential(1 / slots, n)
    found = steady(replicas, load, work, Service(slots, fixed=1.0))
    waits = erlang_c(servers, load)
    requested = found.run.spans[:, kernel.REQUESTS].sum()
    assert found.run.spans[:, kernel.LATE].sum() / requested == pytest.approx(waits, abs=0.015)
    assert mean_time_s(found) == pytest.approx(1 + waits / (servers - load), rel=0.05)


def test_equal_requests_wait_half_as_long_as_random_ones() -> None:
    found = steady(1, 0.8, np.ones(200_000), Service(1))
    assert mean_time_s(found) == pytest.approx(1 + 0.8 / (2 * (1 - 0.8)), rel=0.03)  # M/D/1


@pytest.mark.parametrize("spread", [0.0, 2.0])
def test_processor_sharing_slows_all_alike_whatever_the_sizes(spread: float) -> None:
    work = np.random.default_rng(3).gamma(1 / spread, spread, 400_000) if spread else np.ones(200_000)
    found = steady(1, 0.7, work, Service(500, fixed=0.0))
    assert mean_time_s(found) == pytest.approx(1 / (1 - 0.7), rel=0.05)  # M/G/1-PS
    assert found.run.spans[:, kernel.LATE].sum() == 0


def test_prompts_go_first_and_the_batch_stands_still_meanwhile() -> None:
    demand = Demand("x", np.r_[6.0, np.zeros(19)], np.r_[2.0, np.zeros(19)])
    two = Requests(np.array([0.0, 0.5]), np.array([1.0, 2.0]), np.array([2.0, 1.0]))
    world = WORLD._replace(least=1, most=1)
    found = simulate(demand, two, static.policy(1), world, service=Service(2, fixed=1.0))
    # The first is read until 1, then the second until 3, when two slots of half the replica each remain: the second
    # ends at 5, the first at 7; so 2 x 7 - 2 + 0 - 0.5 seconds in the system.
    assert found.tally[FINISHED] == 2
    assert mean_time_s(found) == pytest.approx((7 + 4.5) / 2)
    assert found.run.delays[[0, 1]].tolist() == [1, 1]  # 0 and 0.5 s


LEARNED = shadow_selection.policy(0.5, 60.0, 5.0, 1440.0, 0.01, 0.01)
POLICIES = [static.policy(3), hpa.policy(0.6), kpa.policy(0.7), kpa.policy_held(0.7), dynamo.policy(0.6), LEARNED]
bursts = st.lists(st.tuples(st.floats(0, 30), st.integers(1, 90)), min_size=1, max_size=8)


@settings(max_examples=30, deadline=None)
@given(bursts, st.sampled_from(POLICIES), st.integers(1, 90), st.floats(0, 0.3), st.floats(0, 1), st.integers(0, 200))
def test_no_request_and_no_work_is_lost(
    parts: list[tuple[float, int]], policy: Policy, cold: int, fails: float, share: float, from_s: int
) -> None:
    work = np.concatenate([np.full(n, rate) for rate, n in parts])
    demand = Demand("x", work, np.ceil(work))
    from_s = min(from_s, len(work) - 1)
    requests = drawn(demand, [(from_s, len(work))], share=share)[0]
    world = Scenario(cold, (0, 5), cold_sigma=0.2, fail_share=fails, lost_share=0.1, seed=3)
    found = simulate(demand, requests, policy, world, service=Service(5), from_s=from_s, record=True)
    spans = found.run.spans
    assert spans[:, kernel.REQUESTS].sum() == len(requests.at_s) == found.run.delays.sum()
    assert waiting(found) >= 0
    assert unfinished(found) >= 0
    assert spans[:, kernel.SERVED].sum() == pytest.approx(found.tally[DONE], abs=1e-6)
    assert found.tally[DONE] <= work.sum() + 1e-6
    drains = np.maximum(0, -np.diff(found.run.ready)).sum() * world.drain_s
    assert spans[:, kernel.BILLED].sum() >= found.run.ready.sum()
    if fails == 0 and from_s == 0:  # drains last longer than they are billed at least, or beyond the end
        assert spans[:, kernel.BILLED].sum() >= found.run.total.sum() + drains - world.drain_s * found.run.ready.max()
    again = simulate(demand, requests, policy, world, service=Service(5), from_s=from_s)
    assert (again.run.spans == spans).all()


def test_a_drained_replica_finishes_what_it_has_and_is_billed_until_then() -> None:
    demand = Demand("x", np.r_[np.full(70, 4.0), np.zeros(400)], np.r_[np.full(70, 1.0), np.zeros(400)])
    at_s = np.arange(70.0)
    requests = Requests(at_s, np.zeros(70), np.full(70, 4.0))
    world = WORLD._replace(least=1)
    served = simulate(demand, requests, static.policy(1), world, service=Service(40, fixed=1.0), record=True)
    assert unfinished(served) + waiting(served) + served.tally[FINISHED] == 70
    assert served.run.ready[-1] == 1
    # One of two stops at 60 s, with requests that take 160 s each; the last of them came at 59 or 60 s.
    assert served.run.spans[:, kernel.BILLED].sum() - served.run.total.sum() in (159, 160)


def test_at_high_load_both_engines_say_the_same() -> None:
    rng = np.random.default_rng(0)
    rate = 88 * np.where(np.arange(5400) % 1800 < 300, 1.3, 0.9)
    requested = np.asarray(rng.poisson(rate), np.float64)
    demand = Demand("x", requested * 0.226, requested)
    requests = drawn(demand, [(0, 5400)], share=0.9)[0]
    for policy in (static.policy(21), hpa.policy(0.9), dynamo.policy(0.95), LEARNED):
        slow = simulate(demand, requests, policy, WORLD).run
        fast = fluid.simulate(demand, policy, WORLD)
        assert slow.billed_hours() == pytest.approx(fast.billed_hours(), rel=0.02)
        assert slow.attainment(1) == pytest.approx(fast.attainment(1), abs=0.03)
        assert slow.delay_s(0.99) == pytest.approx(fast.delay_s(0.99), rel=0.1, abs=2)


def test_a_policy_sees_the_same_concurrency_at_the_working_load() -> None:
    demand = Demand("x", np.full(4000, 14.0), np.full(4000, 60.0))
    for share in (0.1, 0.42, 0.9):
        requests = drawn(demand, [(0, 4000)], share=share)[0]
        service = service_for(requests)
        found = simulate(demand, requests, static.policy(20), WORLD._replace(least=20, most=20), service=service)
        held = mean_time_s(found) * 60 / 20  # requests in a replica
        assert held / service.unit == pytest.approx(0.7, rel=0.2)


def test_requests_of_a_demand_add_up_to_it(tmp_path: Path) -> None:
    fleet = Clients("f", (3, 8), np.full((2, 12), 5.0), np.array([[1.0] * 12, [3.0] * 12]), "")
    tokens, prompts = np.array([0.5, 1.0, 3.0]), np.array([0.1, 0.5, 1.0])
    demand = arrivals(fleet, tokens, 1, mean_rps=20.0)
    windows = [(600, 1500), (3000, 7200)]
    for found, begun in (
        (redrawn(fleet, tokens, prompts, demand, windows, 1, 20.0), windows),
        (drawn(demand, windows), windows),
    ):
        for requests, (begin, end) in zip(found, begun, strict=True):
            second = requests.at_s.astype(int)
            work = np.bincount(second, requests.first_s + requests.rest_s, len(demand.work))
            assert work[begin:end] == pytest.approx(demand.work[begin:end])
            assert (np.bincount(second, minlength=len(demand.work))[begin:end] == demand.requests[begin:end]).all()
            assert all(a <= b for a, b in pairwise(requests.at_s.tolist()))
    with pytest.raises(RecordingError, match="seed"):
        redrawn(fleet, tokens, prompts, demand, windows, 2, 20.0)
    at_s, sizes = np.array([0.0, 1.5, 9.0]), np.array([1.0, 1.0, 2.0])
    real = own(at_s, sizes, np.full(3, 0.5), Demand("x", np.full(10, 0.8), np.ones(10)), [(1, 10)])[0]
    assert (real.at_s.tolist(), (real.first_s + real.rest_s).tolist()) == ([1.5, 9.0], [2.0, 4.0])
