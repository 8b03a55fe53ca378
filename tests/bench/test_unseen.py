"""Series of counts as demand: their windows, their gaps, and what is refused."""

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from bench.series.nab import CATEGORY, read_nab
from bench.series.worldcup import read_worldcup

from flyball_contracts.errors import RecordingError

START = datetime(1998, 5, 1)


def worldcup(folder: Path, counts: dict[int, int]) -> Path:
    times = [START + timedelta(minutes=minute) for minute in counts]
    frame = pl.DataFrame({"minute": times, "count": list(counts.values())})
    frame.write_parquet(folder / "requests_per_minute.parquet")
    return folder


def tweets(folder: Path, category: str = CATEGORY) -> Path:
    rows = [
        (category, name, START + timedelta(minutes=5 * k), float(k % 3 + i))
        for i, name in enumerate(("b", "a"), 1)
        for k in range(288)
    ]
    frame = pl.DataFrame(rows, schema=["category", "series", "timestamp", "value"], orient="row")
    frame.write_parquet(folder / "points.parquet")
    return folder


def test_a_minute_without_a_row_is_interpolated_and_that_is_said(tmp_path: Path) -> None:
    rates = read_worldcup(worldcup(tmp_path, {0: 10, 1: 20, 3: 40, 4: 50}))
    assert rates.counts.tolist() == [10, 20, 30, 40, 50]
    assert "1 windows interpolated" in rates.about
    assert rates.start_s == 893_980_800.0


def test_demand_follows_the_counts_and_repeats(tmp_path: Path) -> None:
    rates = read_worldcup(worldcup(tmp_path, {k: 100 + 80 * (k >= 60) for k in range(120)}))
    demand = rates.demand(1)
    assert len(demand.work) == 7200
    assert demand.work.mean() == pytest.approx(20.0)
    assert demand.requests.mean() == pytest.approx(88.0, rel=0.02)
    first, second = demand.work.reshape(2, -1).mean(axis=1)
    assert second / first == pytest.approx(1.8, rel=0.05)
    minutes = demand.requests.reshape(120, 60)[:60]
    assert minutes.var() == pytest.approx(minutes.mean(), rel=0.1)  # arrivals of a Poisson process
    assert (rates.demand(1).work == demand.work).all()
    assert (rates.demand(2).work != demand.work).any()


def test_each_series_of_tweets_is_a_demand_of_its_own(tmp_path: Path) -> None:
    first, second = (rates.part(3600) for rates in read_nab(tweets(tmp_path)))
    assert (first.name, second.name) == ("a", "b")
    assert first.counts.tolist() == [2, 3, 4] * 4
    assert np.unique(second.counts).tolist() == [1, 2, 3]
    assert len(first.demand(0).work) == 3600


def test_what_is_not_such_a_series_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="realTweets"):
        read_nab(tweets(tmp_path, "realTraffic"))
    with pytest.raises(RecordingError, match="nothing was counted"):
        read_worldcup(worldcup(tmp_path, {0: 0, 1: 0}))
    with pytest.raises(RecordingError, match=r"requests_per_minute\.parquet"):
        read_worldcup(tmp_path / "elsewhere")
