"""Both engines on a short demand: rankings are compared fairly, and the words and the page say what was found."""

import json

import msgspec
import numpy as np
import pytest

from flyball_streams.backtest.demands.demand import DAY_S, Demand
from flyball_streams.backtest.events import run, text
from flyball_streams.backtest.events.confirm import Confirmation, Pair, days_of
from flyball_streams.backtest.report.page import page
from flyball_streams.backtest.report.text import method
from flyball_streams.backtest.run import Scenario
from flyball_streams.backtest.study import Study, StudyConfig, study

KEYS = ("shadow_selection", "headroom", "hpa", "static", "oracle")


def demand_of(hours: float) -> Demand:
    seconds = int(hours * 3600)
    rng = np.random.default_rng(4)
    rate = (
        30 * (1.3 + np.sin(2 * np.pi * np.arange(seconds) / 3600)) * np.repeat(rng.gamma(8, 1 / 8, seconds // 20), 20)
    )
    requests = rng.poisson(rate).astype(np.float64)
    return Demand("shop", requests * 0.2, requests, "made for a test")


@pytest.fixture(scope="module")
def both() -> Study:
    return study([demand_of(2)], StudyConfig(KEYS, "hpa", 0.97, Scenario(60.0, (5,)), thin=8, engine="both"))


@pytest.fixture(scope="module")
def found(both: Study) -> Confirmation:
    assert both.confirmed is not None
    return both.confirmed


def test_every_policy_is_measured_in_both_engines_at_equal_service(found: Confirmation) -> None:
    assert [row.key for row in found.rows] == list(KEYS)
    for row in found.rows:
        for measured in (row.fluid, row.events):
            assert 0 < measured.worst_span <= measured.attainment <= 1
            assert 1 <= measured.tried <= 10
            assert measured.equal_hours is None or measured.equal_hours > 0
        # Frozen settings answer the same demand, so they bill much the same.
        assert row.events.billed_hours == pytest.approx(row.fluid.billed_hours, rel=0.25)
    base = next(row for row in found.rows if row.key == found.base)
    assert (base.fluid.ratio, base.events.ratio) == (1.0, 1.0)


def test_tau_counts_the_pairs_that_change_places(found: Confirmation) -> None:
    known = [r for r in found.rows if r.fluid.equal_hours is not None and r.events.equal_hours is not None]
    assert found.pairs == len(known) * (len(known) - 1) // 2
    assert found.tau == pytest.approx(1 - 2 * len(found.swapped) / found.pairs)
    for pair in found.swapped:
        assert pair.fluid <= 0 < pair.events


def test_words_say_how_far_the_ranking_is_confirmed(found: Confirmation) -> None:
    pair = {"first": "A", "second": "B", "fluid": -0.1, "events": 0.2}
    near, far = msgspec.convert({**pair, "events": 0.01}, Pair), msgspec.convert(pair, Pair)
    replace = msgspec.structs.replace
    assert "confirm the ranking: all" in text.verdict(replace(found, swapped=[]))
    assert "but for near ties" in text.verdict(replace(found, swapped=[near]))
    assert "do not confirm" in text.verdict(replace(found, swapped=[near, far]))
    assert "cannot" in text.verdict(replace(found, tau=None))
    assert text.swaps(replace(found, swapped=[near, far]))[0].startswith("A against B: -10.0 % fluid, +20.0 %")


def test_the_page_shows_both_engines(both: Study) -> None:
    text = page(both)
    assert text.count("<svg") == 3
    assert "Does a second engine agree?" in text
    assert "Second engine:" in text
    assert msgspec.json.decode(msgspec.json.encode(both), type=Study) == both
    assert "NaN" not in json.dumps(msgspec.to_builtins(both))


def test_a_short_demand_can_be_tuned_with_single_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    study_config = StudyConfig(
        ("shadow_selection", "hpa", "static"), "hpa", 0.97, Scenario(60.0, (5,)), thin=8, engine="events"
    )
    found = study([demand_of(1)], study_config)
    assert "single requests" in " ".join(method(found))
    assert found.confirmed is None
    assert all(row.billed_hours for row in found.rows)
    assert found.decisions
    assert all(" leads " in decision.reason for decision in found.decisions)
    monkeypatch.setattr(run, "MOST_REQUESTS", 1000)
    with pytest.raises(ValueError, match="both"):
        study([demand_of(1)], study_config)


def test_days_are_spread_over_the_half_and_whole() -> None:
    assert days_of(7 * DAY_S, 14 * DAY_S, 3600) == [(8 * DAY_S, 9 * DAY_S), (12 * DAY_S, 13 * DAY_S)]
    assert days_of(1800, 3550, 60) == [(1800, 3540)]
    assert len(days_of(0, 10 * DAY_S, 3600, 3)) == 3
