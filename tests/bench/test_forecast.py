"""The forecast benchmark runs from a data folder to a report, on the smallest input that has two weeks."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from bench import forecast
from bench.forecasts import panels, tuning
from tests.models.forecast.stepping import SHORT


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Five daily clients and a dead one, two weeks of ten minutes, with one outage of all of them."""
    rng = np.random.default_rng(1)
    ticks = np.arange(2 * panels.WEEK)
    rows: list[pl.DataFrame] = []
    for client in range(6):
        rate = 20 * np.exp(np.sin(2 * np.pi * ticks / panels.SEASON) + 0.2 * rng.normal(size=len(ticks)))
        rate[1200:1230] = 0.0
        if client == 5:
            rate[:] = 0.0
        columns = {"model": "m", "client": client, "t_s": ticks * 600, "rate_rps": rate}
        rows.append(pl.DataFrame(columns))
    (tmp_path / "servegen").mkdir()
    pl.concat(rows).write_parquet(tmp_path / "servegen" / "rates.parquet")
    return tmp_path


@pytest.mark.timeout(600)  # it compiles much
def test_it_reports_every_row_and_its_figures_are_right(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    forecast.main(["--data", str(data), "--quick", "--parts", "peers", "held-out", "minutes", "--json", str(out)])
    report = json.loads(out.read_text())
    assert report["gap_windows"] == 30
    assert list(report["servegen"]) == list(forecast.MODELS)
    assert report["held_out"] == {}
    assert report["peers"].startswith("left out")
    rows = report["servegen"]
    assert rows["ensemble"]["mase_60min"] < 0.8 * rows["last"]["mase_60min"]
    assert 0.85 < rows["ensemble"]["coverage_60min"][1] < 0.95
    assert rows["ensemble"]["accuracy_60min"]["regular"] > rows["last"]["accuracy_60min"]["regular"]
    assert rows["last"]["mase_60min_vs_last"]["medians"] == [1.0, 1.0, 1.0]
    assert sum(report["weights_60min"].values()) == pytest.approx(1.0, abs=1e-3)

    # The last value by hand, over what follows week 1, both ends known.
    panel = panels.servegen(data)
    y, known = panel.y.astype(float), panel.known
    ahead = tuning.HORIZONS
    off = np.abs(y[ahead:] - y[:-ahead])[panels.WEEK :]
    pairs = (known[ahead:] & known[:-ahead])[panels.WEEK :]
    by_series = (off * pairs).sum(axis=0) / pairs.sum(axis=0) / panel.scale
    assert rows["last"]["mase_60min"] == pytest.approx(np.median(by_series[::4]), rel=1e-4)


def test_the_speed_of_a_tick_is_that_of_all_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "SPEED_SERIES", 64)
    found = forecast.speed(SHORT, 12)  # compiled for the tests of the models, too
    assert found["series"] == 64
    for name in ("damped", "ensemble"):
        row = found[name]
        assert row["tick_ms_best"] <= row["tick_ms_median"]
        assert row["series_per_s_median"] == pytest.approx(64e3 / row["tick_ms_median"])
        assert row["series_per_cpu_s_median"] > 0


def test_the_days_least_like_the_day_before_are_the_unexpected_ones() -> None:
    rng = np.random.default_rng(3)
    ticks = np.arange(2 * panels.WEEK)
    daily = np.sin(2 * np.pi * ticks / panels.SEASON)[:, None]
    y = 20 * np.exp(daily + 0.05 * rng.normal(size=(len(ticks), 10)))
    start = panels.WEEK + 3 * panels.SEASON
    y[start : start + panels.SEASON, 4] *= 5  # one day of one series, and so the day after it
    found = panels.unexpected(panels.panel("p", y, np.ones(y.shape, np.bool_)))
    assert found[4, 3]
    assert found[4, 4]
    assert found.sum() == 7


def test_settings_are_chosen_without_the_series_they_are_judged_on() -> None:
    objective = np.array([[0.0, 9, 9, 9, 0, 9, 9, 9], [5.0, 4, 4, 4, 5, 4, 4, 4]])
    chosen, overall = tuning.leave_out(objective)
    assert chosen.tolist() == [1] * 8  # setting 0 is best on fold 0 only, which never sees itself
    assert overall == 1


def test_a_folder_without_two_weeks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "servegen").mkdir()
    short = pl.DataFrame({"model": ["m"], "client": [0], "t_s": [0], "rate_rps": [1.0]})
    short.write_parquet(tmp_path / "servegen" / "rates.parquet")
    with pytest.raises(SystemExit, match="no model has two weeks"):
        panels.servegen(tmp_path)
