"""`bench/scaling/rightsizing.py` on two small series: a row for each rule, and kills and slack as they should be."""

import numpy as np
import pytest
from bench.scaling import rightsizing
from bench.scaling.rightsizing import Score, Series

GIB = 2.0**30
WAVE = 8 * GIB * (1.5 + np.sin(np.arange(48 * 4).reshape(48, 4, 1) / 15.0 + np.array([0.0, 2.0])))


@pytest.mark.parametrize("kind", ["memory", "cpu"])
def test_every_rule_has_a_row(kind: str) -> None:
    x = WAVE if kind == "memory" else np.repeat(WAVE, 3, axis=1) / GIB
    rows = rightsizing.contest(Series(kind, "wave", x))
    assert [row["rule"] for row in rows] == ["cost", "vpa", "peak", "fixed"]
    assert [row["rule"] for row in rows if "shipped" in row] == ["cost", "vpa"]
    assert all(0 <= row["risk 2"] <= 1 and row["slack 2"] < 1 for row in rows)


def test_a_fixed_request_of_the_peak_kills_nothing_and_a_lower_one_grows_by_its_kills() -> None:
    data = Series("memory", "wave", WAVE)
    fixed = {rule.settings: rule for rule in rightsizing.rules("memory", WAVE) if rule.name == "fixed"}
    whole = rightsizing.play(fixed["1 x first half's peak"], data)
    assert not whole[1].any()
    found = rightsizing.score(fixed["1 x first half's peak"], data, whole, slice(0, 48))
    top = WAVE.max(axis=(0, 1))
    assert found == Score(pytest.approx(1 - (WAVE / top).mean()), 0.0)  # type: ignore[arg-type]
    request, killed, _ = rightsizing.play(fixed["0.5 x first half's peak"], data)
    assert killed.any()
    assert (request[1:][~killed[:-1]] == np.broadcast_to(0.5 * top, (47, 2))[~killed[:-1]]).all()


def test_slack_at_a_risk_lies_between_the_settings_around_it() -> None:
    tried = [Score(0.2, 0.02), Score(0.4, 0.0), Score(0.5, 0.01)]
    assert rightsizing.at_risk(tried, 0.01) == pytest.approx(0.3)
    assert rightsizing.at_risk(tried, 0.05) == pytest.approx(0.2)
    assert np.isnan(rightsizing.at_risk([Score(0.2, 0.02)], 0.01))
