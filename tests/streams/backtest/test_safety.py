"""Faults: nothing is taken away blindly, by any policy; a controller that forgot waits until it knows again."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from flyball_models.scaling import (
    Observation,
    Policy,
    band,
    desired,
    dynamo,
    fresh,
    headroom,
    hpa,
    kpa,
    lead_time_headroom,
    number,
    shadow_selection,
)
from flyball_streams.backtest import kernel
from flyball_streams.backtest.demands.demand import Demand
from flyball_streams.backtest.kernel import Bounds
from flyball_streams.backtest.run import Scenario, once_in, simulate
from flyball_streams.backtest.safety import FAULTS

pytestmark = pytest.mark.timeout(600)  # it compiles much

SEEING = [
    hpa.policy(0.6),
    hpa.keda(0.6),
    kpa.policy(0.7),
    kpa.policy_held(0.7),
    dynamo.policy(0.6),
    band.engine(0.8, 0.1, 0.25, 120.0, 300.0, ""),
    headroom.policy(2.0, 5, 10, 300.0),
    headroom.tracking(0.99, 0.05, 5, 10, 300.0, 5.0),
    shadow_selection.policy(0.99, 300.0, 5.0, 1440.0, 0.01, 0.01),
    lead_time_headroom.policy(0.99, 0.02, 5, 10, 300.0, 5.0),
]
loads = st.lists(st.floats(0, 60), min_size=1, max_size=40)


def seen(t_s: float, load: float, replicas: int, stale_s: float, reported: float) -> Observation:
    """All are floats, as in the other tests: policies are compiled anew for each combination of types."""
    waits = max(0.0, load - replicas)
    return Observation._make([t_s, float(replicas), 0.0, *[load] * 8, waits, stale_s, reported, reported, load])


@settings(max_examples=100, deadline=None)
@given(loads, st.sampled_from(SEEING), st.integers(0, 50), st.sampled_from([0.0, 0.3, 20.0, float("nan")]))
def test_no_policy_takes_anything_away_without_fresh_samples(
    past: list[float], policy: Policy, replicas: int, reported: float
) -> None:
    state, t = fresh(), 60.0
    for load in past:
        desired(number(policy), state, seen(t, load, replicas, 0.0, reported), policy.row())
        t += policy.every_s
    for _ in range(40):
        t += policy.every_s
        assert desired(number(policy), state, seen(t, 0.0, replicas, 61.0, reported), policy.row()) >= replicas


@pytest.mark.parametrize("policy", SEEING, ids=lambda p: p.kind)
def test_in_an_outage_the_fleet_does_not_shrink(policy: Policy) -> None:
    work = np.r_[np.full(1200, 20.0), np.zeros(2400)]
    bounds = Bounds(60, np.full(60, 2.0), np.full(60, 2.0), np.full(60, 2.0))
    demand, world = Demand("x", work, work), Scenario(30, outage_s=1500, outage_every_s=3600, seed=4)
    (begin,) = once_in(3600, 3600, 4)
    run = simulate(demand, policy, world, bounds, record=True)
    blind = run.total[begin + policy.lag_s + kernel.BLIND_S + 1 : begin + 1500]
    assert len(blind) > 900
    assert (np.diff(blind) >= 0).all()
    assert run.spans[:, kernel.BLIND].sum() == 0


def test_a_controller_that_forgot_all_takes_nothing_away_before_it_knows() -> None:
    rng = np.random.default_rng(0)
    work = np.repeat(rng.gamma(4, 5, 360), 60)
    demand, policy = Demand("x", work, work), headroom.policy(2.0, 5, 10, 60.0)
    plain, forgot = (simulate(demand, policy, Scenario(60, restart_every_s=x), record=True) for x in (0, 7200))
    at = once_in(len(work), 7200, 0)[0]
    assert (plain.total[:at] == forgot.total[:at]).all()
    assert (plain.total != forgot.total).any()
    assert (np.diff(forgot.total[at : at + 300]) >= 0).all()


def test_forecast_faults_are_what_they_say() -> None:
    reported = np.arange(1.0, 2 * 1440 + 1)
    clean = Bounds(60, reported, reported / 2, reported)
    made = {fault.key: fault.bounds(clean, 0) for fault in FAULTS if fault.bounds is not None}
    assert (made["x0.3"].upper == 0.3 * reported).all()
    assert (made["x3"].lower == 1.5 * reported).all()
    assert np.isnan(made["nan"].upper).all()
    assert np.isnan(made["stale"].upper[:60]).all()
    assert (made["stale"].upper[60:] == reported[:-60]).all()
    for day in (slice(0, 1440), slice(1440, 2880)):
        assert sorted(made["shuffled"].upper[day]) == reported[day].tolist()
        assert (made["shuffled"].lower == made["shuffled"].upper / 2).all()
    assert all((b.present == reported).all() for b in made.values())  # what was is known
