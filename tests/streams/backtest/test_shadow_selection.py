"""The learned choice: its shadows cost what the real policies cost, and the leader is the one that pays."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from flyball_models.scaling import STATE, Observation, Policy, desired, fresh, number, shadow_selection
from flyball_streams.backtest import kernel
from flyball_streams.backtest.demands.demand import Demand
from flyball_streams.backtest.policies.groups import Setting
from flyball_streams.backtest.report.explain import explain
from flyball_streams.backtest.run import Scenario, simulate

HOUR = 3600
FOREVER = 1e9


def shown(policy: Policy, work: NDArray[np.float64], backlog: float = 0.0) -> NDArray[np.float64]:
    """State of the policy after it saw a demand, second by second, without any say of its own."""
    state, total = fresh(), np.concatenate([[0.0], np.cumsum(work)])
    for t in range(60, len(work), policy.every_s):
        at = t - policy.lag_s
        means = [(total[at + 1] - total[at + 1 - n]) / n for n in (5, 30, 45)]
        seen = Observation._make([float(t), 30.0, 0.0, *means, *[0.0] * 5, backlog, 0.0, math.nan, math.nan, 0.0])
        assert desired(number(policy), state, seen, policy.row()) >= 1.0
    return state


def waves(hours: int, seed: int, jump: float = 0.0) -> NDArray[np.float64]:
    """Noise about a wave of two hours; `jump` replicas more for five minutes of each hour."""
    t = np.arange(hours * HOUR)
    noise = np.random.default_rng(seed).gamma(20.0, 1.0, len(t))
    return np.asarray(noise * (1.0 + 0.4 * np.sin(2 * np.pi * t / (2 * HOUR))) + jump * (t % HOUR < 300), np.float64)


def policy(
    objective: float = 0.99, memory: float = FOREVER, eta: float = 0.0, margin: float = 0.0, cold_s: float = 120.0
) -> Policy:
    return shadow_selection.policy(objective, cold_s, 5.0, memory, margin, eta)


def test_all_of_it_fits_into_the_state() -> None:
    assert shadow_selection.NEEDED <= STATE


@pytest.mark.parametrize("cold_s", [120.0, 1200.0])
def test_a_shadow_costs_what_the_real_policy_does(cold_s: float) -> None:
    work = waves(24, 1, jump=15.0)
    stays = policy(0.9, margin=1.0, cold_s=cold_s)  # with its first leader
    of = shadow_selection.standing(shown(stays, work))
    real = simulate(Demand("x", work, work), stays, Scenario(cold_s))
    assert of.hours[of.leader] == pytest.approx(real.billed_hours(), rel=0.03)
    assert 0.005 < 1 - real.attainment() == pytest.approx(of.late[of.leader], rel=0.25)


@pytest.mark.parametrize("kind", ["headroom", "lead", "calm", "share"])
def test_more_caution_costs_more_and_is_late_less(kind: str) -> None:
    of = shadow_selection.standing(shown(policy(), waves(12, 2, jump=15.0)))
    cautious = [i for i, member in enumerate(shadow_selection.MEMBERS) if member.name.startswith(kind)]
    assert (np.diff(of.hours[cautious]) > 0).all()
    assert (np.diff(of.late[cautious]) <= 1e-9).all()


def test_the_leader_is_the_member_of_least_cost() -> None:
    for objective in (0.9, 0.9999):
        of = shadow_selection.standing(shown(policy(objective, memory=1440.0), waves(12, 3, jump=15.0)))
        cost = of.hours + of.price * of.late * of.work
        assert of.leader == int(cost.argmin()) or cost[of.leader] < 1.02 * cost.min()


def test_a_dearer_promise_takes_a_more_cautious_leader() -> None:
    work = waves(12, 4, jump=15.0)
    low, high = (shadow_selection.standing(shown(policy(p, memory=1440.0), work)) for p in (0.9, 0.9999))
    assert high.price > low.price
    assert high.hours[high.leader] > low.hours[low.leader]
    assert high.late[high.leader] < low.late[low.leader]


def test_the_leader_stays_where_a_change_does_not_pay() -> None:
    work = waves(6, 5)
    start = shadow_selection.standing(shown(policy(margin=10.0, memory=1440.0), work[: HOUR // 2])).leader
    assert shadow_selection.standing(shown(policy(margin=10.0, memory=1440.0), work)).leader == start


@pytest.mark.parametrize(("backlog", "turn"), [(0.0, -1.0), (500.0, 1.0)])
def test_the_price_follows_what_was_late_in_the_real_fleet(backlog: float, turn: float) -> None:
    work = waves(2, 6)
    start = shadow_selection.standing(shown(policy(0.9, eta=0.0), work)).price
    moved = shadow_selection.standing(shown(policy(0.9, eta=0.05), work, backlog)).price
    assert turn * (moved - start) > 0.0


def test_the_price_brings_the_real_fleet_to_the_promise() -> None:
    work = waves(240, 7, jump=15.0)

    def late(eta: float) -> float:
        tried = policy(0.95, memory=1440.0, eta=eta, margin=0.01)
        last = simulate(Demand("x", work, work), tried, Scenario(120.0)).spans[-72:].sum(axis=0)
        return float(last[kernel.LATE] / last[kernel.REQUESTS])

    assert late(0.0) > 0.1
    assert late(0.05) == pytest.approx(0.05, abs=0.01)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60), st.sampled_from([0.5, 0.99, 1.0]))
def test_any_load_leaves_sound_shadows(loads: list[float], objective: float) -> None:
    state = fresh()
    for k, load in enumerate(loads):
        seen = Observation._make([5.0 * k, 3.0, 0.0, *[load] * 3, *[0.0] * 5, load, 0.0, math.nan, math.nan, load])
        proposal = desired(number(policy()), state, seen, policy(objective, eta=0.1).row())
        assert math.isfinite(proposal)
        assert proposal >= 1.0
    of = shadow_selection.standing(state)
    assert np.isfinite(of.hours).all()
    assert (of.hours >= 0).all()
    assert ((of.late >= 0) & (of.late <= 1 + 1e-9)).all()


def test_a_backtest_says_who_led_and_at_what_cost() -> None:
    work = waves(8, 8, jump=15.0)
    demand = Demand("x", work, work)
    setting = Setting(policy(0.98, memory=1440.0, eta=0.01, margin=0.01))
    run = simulate(demand, setting.policy, Scenario(120.0), record=True)
    reported = explain(demand, setting, run, None, 4 * HOUR)
    assert reported
    for decision in reported:
        assert f"of {len(shadow_selection.MEMBERS)} policies tried in the shadow" in decision.reason
        assert any(f"{member.name} leads" in decision.reason for member in shadow_selection.MEMBERS)
