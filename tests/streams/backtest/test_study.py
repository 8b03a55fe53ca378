"""A whole backtest on small demands: what it says holds together, and the page shows it without any other file."""

import json
import re

import msgspec
import numpy as np
import pytest

from flyball_streams.backtest.demands.demand import DAY_S, Demand
from flyball_streams.backtest.policies.groups import BASELINES, BUDGET, POLICY_GROUPS, Conditions
from flyball_streams.backtest.policies.prepared import PreparedDemand
from flyball_streams.backtest.report.page import page
from flyball_streams.backtest.report.plots import pareto
from flyball_streams.backtest.report.text import against, headline, method, percent, plain
from flyball_streams.backtest.run import Scenario
from flyball_streams.backtest.study import Study, StudyConfig, study


def demand_of(days: float, seed: int) -> Demand:
    seconds = int(days * DAY_S)
    rng = np.random.default_rng(seed)
    rate = (
        12
        * (1.4 + np.sin(2 * np.pi * np.arange(seconds) / DAY_S))
        * np.repeat(rng.gamma(8, 1 / 8, seconds // 60 + 1), 60)[:seconds]
    )
    requests = rng.poisson(rate).astype(float)
    return Demand("shop <&>", requests, requests, "made for a test")


@pytest.fixture(scope="module")
def found() -> Study:
    study_config = StudyConfig(
        ("headroom", "hpa", "static", "oracle"), "hpa", 0.98, Scenario(120.0, (5,)), thin=4, safety=True
    )
    return study([demand_of(4, s) for s in range(2)], study_config)


def test_every_policy_has_its_row_and_the_bounds_hold(found: Study) -> None:
    assert [row.key for row in found.rows] == ["headroom", "hpa", "static", "oracle"]
    for row in found.rows:
        assert row.billed_hours is not None
        assert row.billed_hours > 0
        assert row.equal_hours is None or row.equal_hours > found.work_hours
        assert row.setting
    assert found.cover_hours > found.work_hours
    base = next(row for row in found.rows if row.key == "hpa")
    assert (base.ratio, base.ratio_low, base.ratio_high) == (1.0, 1.0, 1.0)
    assert set(found.series) == {"demand", "headroom", "hpa", "oracle"}
    assert len({len(values) for values in found.series.values()}) == 1


def test_faults_are_reported_of_ours_and_of_the_reactive_one(found: Study) -> None:
    assert {o.policy for o in found.safety} == {"headroom", "hpa"}
    assert [o.fault for o in found.safety if o.policy == "headroom"] == [
        "none",
        "outage",
        "lost",
        "stock-out",
        "restart",
    ]
    for o in found.safety:
        row = next(row for row in found.rows if row.key == o.policy)
        assert o.blind == 0
        assert o.policy != "hpa" or o.lost_points == 0
        assert o.fault != "none" or o.attainment == pytest.approx(row.attainment)
        assert o.passed == (o.lost_points <= 1 and o.cost_change <= 0.1)
    assert "reactive-only" in " ".join(method(found)).lower()


def test_largest_decisions_are_explained_with_what_the_baseline_had(found: Study) -> None:
    assert found.decisions
    for d in found.decisions:
        assert d.before != d.after
        assert d.rule in ("headroom", "backlog", "present demand", "release")
        assert d.baseline is not None
        assert f"{d.before} → {d.after}" in d.reason
    assert [d.time_s for d in found.decisions] == sorted(d.time_s for d in found.decisions)


def test_json_says_all_and_comes_back(found: Study) -> None:
    text = msgspec.json.encode(found)
    assert msgspec.json.decode(text, type=Study) == found
    assert "NaN" not in text.decode()
    assert json.loads(text)["rows"][0]["tried"] <= BUDGET


def test_the_page_stands_alone(found: Study) -> None:
    text = page(found)
    assert "shop &lt;&amp;&gt;" in text
    assert text.count("<svg") == 3
    assert not re.findall(r'(?:src|href)="(?!#)[^"]*"', text)
    assert "url(" not in text.replace("url(#", "")
    assert page(found) == text
    for row in found.rows:
        assert row.title in text


def test_words_claim_no_more_than_was_measured(found: Study) -> None:
    ours = found.rows[0]
    unsure = msgspec.structs.replace(ours, ratio=0.9, ratio_low=0.7, ratio_high=1.1)
    assert "not clearly different" in headline(msgspec.structs.replace(found, rows=[unsure, *found.rows[1:]]))
    never = msgspec.structs.replace(ours, ratio=None, equal_hours=None)
    published = headline(msgspec.structs.replace(found, rows=[never, *found.rows[1:]]))
    assert f": {ours.title} never got there" in published
    assert against(never) == "not reached"
    alone = msgspec.structs.replace(ours, ratio=None, equal_hours=43.7)
    base = msgspec.structs.replace(found.rows[1], ratio=None, equal_hours=None)
    published = headline(msgspec.structs.replace(found, rows=[alone, base, *found.rows[2:]]))
    assert f": {base.title} never got there" in published
    assert against(alone) == "43.7 h"
    little = headline(msgspec.structs.replace(found, test_hours=0.05))
    assert little.startswith("Too little data for a claim: 3 min were measured, and it takes 20")
    assert "2 to 100,000 replicas" in " ".join(method(found))
    assert "2 seeds" in " ".join(method(found))


def test_a_page_of_too_little_data_shows_no_headline_in_tiles(found: Study) -> None:
    assert 'class="tile"' in page(found)
    little = page(msgspec.structs.replace(found, test_hours=0.05))
    assert "Too little data for a claim" in little
    assert 'class="tile"' not in little


def test_what_serves_everything_is_in_the_chart(found: Study) -> None:
    hours = found.rows[0].equal_hours
    assert hours is not None
    rows = [msgspec.structs.replace(row, front=[(1.0, hours)]) for row in found.rows]
    chart = pareto(msgspec.structs.replace(found, rows=rows))
    left, width = (
        float(re.findall(rf'<clipPath.*?<rect [^>]*?{key}="([\d.]+)"', chart, re.DOTALL)[0]) for key in ("x", "width")
    )
    marks = re.findall(r'<g clip-path="[^"]*">\s*<use [^>]*?\bx="([\d.]+)"', chart)
    assert len(marks) == len(rows)
    assert all(left < float(x) < left + width for x in marks)


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0.0, "0"), (12345.6, "12,346"), (0.01234, "0.0123"), (99.96, "100")]
)
def test_plain_numbers(value: float | None, text: str) -> None:
    assert plain(value) == text


def test_percent_shows_what_matters_near_all() -> None:
    assert [percent(x) for x in (None, 0.5, 0.9912, 0.99987, 1.0)] == ["-", "50.0 %", "99.12 %", "99.987 %", "100 %"]


@pytest.mark.parametrize("key", sorted({*POLICY_GROUPS}))
def test_no_family_has_more_settings_than_the_others_may(key: str) -> None:
    settings = POLICY_GROUPS[key].settings(Conditions(PreparedDemand(demand_of(1 / 24, 0)), 300.0, 5))
    budget = BUDGET // 2 if key == "shadow_selection" else BUDGET
    assert len(settings) == budget
    assert len({(s.policy.knobs, s.policy.name) for s in settings}) >= budget - 10
    assert key in BASELINES or POLICY_GROUPS[key].ours or key == "oracle"


def test_demand_of_less_than_a_minute_is_refused() -> None:
    short = Demand("x", np.ones(59), np.ones(59))
    with pytest.raises(ValueError, match="x: there are 59 s of its demand; a backtest needs a minute or more"):
        study([short], StudyConfig(("static", "oracle"), "static", 0.99, Scenario(60.0)))
