"""Each rule of the autoscalers that ours is compared with, one call at a time."""

import math
from typing import Any

import numpy as np
import pytest

from flyball_models.scaling import (
    KINDS,
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
    static,
)
from flyball_models.sizing.slo_headroom import start

IDLE = Observation(
    t_s=0.0,
    ready=10.0,
    pending=0.0,
    work_5=5.0,
    work_30=5.0,
    work_180=5.0,
    served_30=5.0,
    served_60=5.0,
    concurrency=5.0,
    concurrency_6=5.0,
    concurrency_60=5.0,
    backlog=0.0,
    stale_s=0.0,
    upper=math.nan,
    lower=math.nan,
    present=5.0,
)


class Player:
    """A policy and its memory; time goes on by its interval with each call."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.state, self.t_s = policy, fresh(), 0.0

    def sees(self, **what: Any) -> float:
        seen = IDLE._replace(t_s=self.t_s, **{k: float(v) for k, v in what.items()})
        self.t_s += self.policy.every_s
        return desired(number(self.policy), self.state, seen, self.policy.row())


def test_every_kind_has_a_step_and_an_unknown_one_is_refused() -> None:
    for kind in KINDS:
        assert math.isfinite(Player(Policy(kind, kind, 15, 0, (1.0, 0.1, 0.25, 120.0, 60.0, 1.0))).sees())
    with pytest.raises(ValueError, match="known: static"):
        number(Policy("x", "x", 15, 0))


def test_static_stays() -> None:
    assert Player(static.policy(7)).sees(backlog=100) == 7


def test_hpa_holds_within_its_tolerance() -> None:
    assert Player(hpa.policy(0.5)).sees(served_60=5.4) == 10
    assert Player(hpa.policy(0.5)).sees(served_60=5.6) == 12


def test_hpa_on_load_and_on_queue_see_what_served_work_cannot_show() -> None:
    overload = {"served_60": 10.0, "work_30": 18.0, "backlog": 120.0}
    assert Player(hpa.policy(0.9)).sees(**overload) == 12
    assert Player(hpa.load(1.0)).sees(**overload) == 20
    assert Player(hpa.queue(8.0)).sees(**overload) == 15


@pytest.mark.parametrize(("ready", "expected"), [(10, 20), (2, 6)])
def test_hpa_grows_at_most_to_twice_or_four_more(ready: int, expected: int) -> None:
    assert Player(hpa.policy(0.5)).sees(ready=ready, served_60=50) == expected


def test_hpa_shrinks_to_the_largest_recommendation_of_300_s() -> None:
    player = Player(hpa.policy(0.5))
    assert player.sees(served_60=4.0) == 8
    proposals = [player.sees(ready=8, served_60=1.0) for _ in range(21)]
    assert proposals[:20] == [8.0] * 20  # 8 is the first of 21 recommendations, 15 s apart
    assert proposals[20] == 2


def test_hpa_counts_pending_replicas() -> None:
    assert Player(hpa.policy(0.5)).sees(ready=5, pending=15, served_60=5.0, concurrency=5.0) == 10


def test_keda_looks_at_concurrency() -> None:
    assert Player(hpa.keda(0.5)).sees(concurrency=10) == 20
    assert Player(hpa.keda(0.5)).sees(served_60=10) == 10


@pytest.mark.parametrize(
    "policy",
    [
        hpa.policy(0.5),
        hpa.keda(0.5),
        kpa.policy(0.5),
        kpa.policy_held(0.5),
        dynamo.policy(0.5),
        band.engine(0.8, 0.1, 0.25, 120.0, 300.0, ""),
        headroom.policy(2, 8, 3, 300),
    ],
)
def test_missing_data_means_hold(policy: Policy) -> None:
    quiet = {"work_30": 0, "work_180": 0, "served_30": 0, "served_60": 0, "concurrency": 0, "concurrency_6": 0}
    assert Player(policy).sees(pending=3, stale_s=120, concurrency_60=0, lower=1, upper=1, **quiet) == 13


def test_kpa_follows_its_stable_window_without_panic() -> None:
    assert Player(kpa.policy(0.5)).sees(concurrency_60=6, concurrency_6=7) == 12


def test_kpa_panics_on_its_short_window_and_never_shrinks_meanwhile() -> None:
    player = Player(kpa.policy(0.5))
    assert player.sees(concurrency_6=10) == 20  # 20 / 10 ready is the threshold
    assert player.sees(concurrency_6=12) == 24
    assert player.sees(concurrency_6=1) == 24
    calm = [player.sees(ready=20, concurrency_6=6, concurrency_60=6) for _ in range(40)]
    first = calm.index(12.0)
    assert calm[:first] == [24.0] * first
    assert 28 <= first <= 30  # 60 s after the last second of panic


def test_kpa_shrinks_at_most_to_half_of_what_is_ready() -> None:
    assert Player(kpa.policy(0.5)).sees(concurrency_60=0.1, concurrency_6=0.1) == 5


def test_kpa_with_a_hold_keeps_the_largest_proposal_of_600_s() -> None:
    player = Player(kpa.policy_held(0.5))
    assert player.sees(concurrency_60=9) == 18
    proposals = [player.sees(concurrency_60=3, concurrency_6=3) for _ in range(320)]
    gone = proposals.index(6.0)
    assert proposals[:gone] == [18.0] * gone
    assert 595 <= gone * 2 <= 617


def test_dynamo_raises_to_its_floor_and_steps_by_one() -> None:
    player = Player(dynamo.policy(0.5))
    assert player.sees(work_180=8, served_30=8) == 16
    assert player.sees(ready=16, work_180=1, backlog=32, served_30=16) == 17
    assert player.sees(ready=16, pending=1, work_180=1, backlog=320) == 17  # one action at a time
    assert player.sees(ready=17, served_30=1, work_180=1) == 16  # not below the floor of this window
    assert player.sees(ready=16, served_30=1, work_180=1) == 16


def test_dynamo_shrinks_only_where_one_less_stays_below_its_load() -> None:
    assert Player(dynamo.policy(1.0)).sees(served_30=7.0) == 9
    assert Player(dynamo.policy(1.0)).sees(served_30=7.3) == 10


def test_a_proposal_is_a_whole_number() -> None:
    rng = np.random.default_rng(0)
    for kind in KINDS:
        player = Player(Policy(kind, kind, 15, 0, (0.37, 0.1, 0.25, 120.0, 60.0, 1.0)))
        if kind == "static":
            continue
        for _ in range(50):
            load = float(rng.gamma(2, 10))
            proposal = player.sees(
                work_30=load, served_60=load, concurrency=load, concurrency_60=load, upper=load, lower=load
            )
            assert proposal == math.floor(proposal)


def test_headroom_is_the_level_plus_z_times_the_spread_of_an_hour() -> None:
    player, rng = Player(headroom.policy(2.0, 8, 1, 300)), np.random.default_rng(1)
    minutes = rng.gamma(9, 2, (70, 12))
    proposals = [[player.sees(work_5=x, work_30=0) for x in minute] for minute in minutes]
    needs = np.sort(minutes, axis=1)[:, -2]
    for k in range(5, 70):
        expected = minutes[max(0, k - 7) : k + 1].mean() + 2.0 * needs[max(0, k - 59) : k + 1].std()
        assert proposals[k][-1] == math.ceil(expected - 1e-9)


def test_headroom_holds_its_largest_target_and_takes_nothing_away_before_it_knows() -> None:
    player = Player(headroom.policy(0.0, 1, 3, 300))
    assert [player.sees(work_5=4, work_30=0) for _ in range(59)] == [10.0] * 59
    after = [player.sees(work_5=4 if i < 1 else 9 if i < 13 else 3, work_30=0) for i in range(72)]
    assert after[0] == 4
    assert [after[i] for i in (12, 24, 36)] == [9, 9, 9]
    assert after[60] == 3


def test_headroom_answers_a_backlog_at_once() -> None:
    player = Player(headroom.policy(0.0, 8, 1, 100))
    for _ in range(120):
        player.sees(work_5=4, work_30=4)
    assert player.sees(work_5=4, work_30=4, backlog=1000) == 14


def test_headroom_tracks_its_promise_by_the_step_of_an_online_quantile() -> None:
    policy = headroom.policy(2.0, 5, 1, 300, objective=0.99, eta=0.5)
    player, rng, z = Player(policy), np.random.default_rng(3), 2.0
    needs, means = list[float](), list[float]()
    for k in range(40):
        minute, late = rng.gamma(9, 2, 12), float(k % 10 == 0)
        proposal = [player.sees(work_5=x, work_30=0, backlog=51 * late, ready=10) for x in minute][-1]
        needs.append(np.sort(minute)[-2])
        z += 0.5 * (late - 0.01)
        means.append(minute.mean())
        if k >= 5:
            assert proposal == math.ceil(np.mean(means[-5:]) + z * np.std(needs) - 1e-9)


@pytest.mark.parametrize(
    "policy", [headroom.policy(2.0, 5, 10, 300), lead_time_headroom.policy(0.99, 0.02, 5, 10, 300, 5)]
)
def test_a_forecast_adds_at_most_a_quarter_of_what_the_record_needs(policy: Policy) -> None:
    alone, reported, wild = Player(policy), Player(policy), Player(policy)
    for work in np.random.default_rng(9).gamma(9, 2, 240):
        need = alone.sees(work_5=work, work_30=work)
        assert reported.sees(work_5=work, work_30=work, upper=0.9 * need) == need
        assert wild.sees(work_5=work, work_30=work, upper=1e6) <= math.ceil(1.25 * need)


def test_lead_spreads_by_the_error_at_the_lead_time_and_by_the_last_hour() -> None:
    player, rng = Player(lead_time_headroom.policy(0.9, 0.0, 4, 1, 180, 5)), np.random.default_rng(6)
    z, square = start(0.9), 0.0
    needs, means = list[float](), list[float]()
    for k in range(90):
        minute = rng.gamma(9, 2, 12) * (2 if k > 45 else 1)
        proposal = [player.sees(work_5=x, work_30=0) for x in minute][-1]
        needs.append(np.sort(minute)[-2])
        means.append(minute.mean())
        if k >= 3:
            error = needs[k] - np.mean(means[max(0, k - 6) : k - 2])
            square += max(1 - 0.5 ** (1 / 120), 1 / (k - 2)) * (error**2 - square)
        if k >= 5:
            spread = math.sqrt(0.5 * square + 0.5 * np.var(needs[-60:]))
            assert proposal == math.ceil(np.mean(means[-4:]) + z * spread - 1e-9)


def test_lead_keeps_what_present_work_requested_for_for_two_minutes() -> None:
    player = Player(lead_time_headroom.policy(0.5, 0.0, 1, 1, 180, 5))
    for _ in range(120):
        player.sees(work_5=4, work_30=4)
    after = [player.sees(work_5=4, work_30=30 if i == 0 else 4, backlog=270 if i == 0 else 0) for i in range(30)]
    assert after[:25] == [33] * 25
    assert after[-1] < 10
