"""`bench/autoscaling.py` at its smallest: every policy has a row, losers too, and figures fit each other."""

import io
import json
from contextlib import redirect_stdout
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from bench import autoscaling
from bench.autoscaling import main
from bench.scaling import unseen
from bench.scaling.servegen import Clients, arrivals

from flyball_streams.backtest.demands.demand import Demand
from flyball_streams.backtest.kernel import Floats
from flyball_streams.backtest.policies.groups import BASELINES

pytestmark = pytest.mark.timeout(600)  # the fixture compiles much


def fewer(fleet: Clients, tokens: Floats, seed: int, mean_rps: float) -> Demand:
    """Draw a quarter of the requests, each of four times the work: those of four days take seconds to draw."""
    return arrivals(fleet, 4 * tokens, seed, mean_rps / 4)


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("bench") / "autoscaling.json"
    shown = io.StringIO()
    with redirect_stdout(shown), pytest.MonkeyPatch.context() as patch:
        patch.setattr(autoscaling, "arrivals", fewer)
        assert main(["--quick", "--json", str(path)]) == 0
    assert "supports no claim" in shown.getvalue()
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def test_every_policy_has_a_row_at_every_target(figures: dict[str, Any]) -> None:
    assert set(figures["targets"]) == {"0.95", "0.99", "0.999"}
    for rows in figures["targets"].values():
        assert [row["policy"] for row in rows] == [
            "slo_headroom",
            "lead_time_headroom",
            "shadow_selection",
            "headroom",
            *BASELINES,
            "oracle",
        ]


def test_managers_faults_and_events_have_their_figures(figures: dict[str, Any]) -> None:
    (row,) = figures["managers"]
    assert row["peak_attainment"] > 0.95  # another week may have a worse minute
    assert row["saved_against_peak"] == pytest.approx(1 - row["hours"] / row["peak_hours"])
    assert row["best_baseline"] in BASELINES
    faults = {(row["policy"], row["fault"]): row for row in figures["safety"]}
    assert faults["slo_headroom", "outage"]["of"] == 1
    assert all(row["blind"] == 0 for row in faults.values())
    share, *models = figures["apart"]
    parts = ("ordinary", "burst", "outage", "level shift")
    assert sum(share["accuracy"][name] for name in parts) == pytest.approx(1.0)
    assert {row["model"] for row in models} >= {"last value", "ensemble"}


def test_single_requests_have_their_say_on_every_configuration(figures: dict[str, Any]) -> None:
    (found,) = figures["single"].values()
    assert found["verdict"].startswith("Single requests")
    assert [row["key"] for row in found["rows"]] == [row["policy"] for row in figures["targets"]["0.99"]]
    assert all(row["events"]["tried"] >= 1 for row in found["rows"])


def test_hpa_is_compared_with_itself_and_nothing_bills_less_than_the_work(figures: dict[str, Any]) -> None:
    for rows in figures["targets"].values():
        (base,) = (row for row in rows if row["policy"] == "hpa")
        assert base["ratio"] in (1.0, None)
        for row in rows:
            assert row["reached"] <= row["of"]
            for hours in row["hours"].values():
                assert hours is None or hours > figures["bounds_hours"]["synthetic total work"]


def test_series_that_nobody_tuned_on_have_tables_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unseen, "QUICK_DAYS", 2)  # one to tune on, and one to judge
    days, start, rng = 8, datetime(2000, 1, 1), np.random.default_rng(1)
    for folder in ("worldcup98", "nab"):
        (tmp_path / folder).mkdir()
    minutes = [start + timedelta(minutes=k) for k in range(days * 1440)]
    counts = pl.DataFrame({"minute": minutes, "count": rng.poisson(900, len(minutes))})
    counts.write_parquet(tmp_path / "worldcup98" / "requests_per_minute.parquet")
    tweets = pl.DataFrame({"timestamp": minutes[::5]}).with_columns(
        pl.lit("realTweets").alias("category"), pl.lit("one").alias("series"), pl.lit(3.0).alias("value")
    )
    tweets.write_parquet(tmp_path / "nab" / "points.parquet")
    path = tmp_path / "unseen.json"
    asked = ["unseen", "--quick", "--policies", "headroom,hpa,oracle", "--data", str(tmp_path), "--json", str(path)]
    assert main(asked) == 0
    found = json.loads(path.read_text())
    assert found["targets"] == {}
    for rows in found["unseen"].values():
        assert [row["policy"] for row in rows] == ["headroom", "hpa", "oracle"]
        assert rows[0]["of"] == 1
    with pytest.raises(SystemExit):
        main(["unseen", "--quick"])


def test_without_data_or_quick_it_says_what_to_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([])
    assert "--data" in capsys.readouterr().err
