"""Demand like the tweets of the Numenta Anomaly Benchmark: how often a name was mentioned in five minutes."""

from pathlib import Path

import numpy as np
import polars as pl
from bench.series.rates import Rates, gridded

from flyball_contracts.errors import RecordingError
from flyball_streams.importers.base import read_table

WINDOW_S = 300
CATEGORY = "realTweets"


def read_nab(folder: Path) -> list[Rates]:
    """All series of tweets, in the order of their names.

    Raises :class:`RecordingError` when the folder is not that benchmark or holds none of them.
    """
    keys = {"category": pl.String(), "series": pl.String(), "timestamp": pl.Datetime("us")}
    rows = read_table(folder, "points.parquet", keys, {"value": pl.Float64()}).rows.drop_nulls()
    rows = rows.filter(pl.col("category") == CATEGORY)
    if rows.is_empty():
        raise RecordingError(f"{folder / 'points.parquet'}: has no series of {CATEGORY}; fetch it again")
    found: list[Rates] = []
    for name in rows["series"].unique().sort().to_list():
        part = rows.filter(pl.col("series") == name)
        time_s = part["timestamp"].dt.epoch("s").to_numpy().astype(np.int64)
        found.append(gridded(name, time_s, part["value"].to_numpy(), WINDOW_S, "NAB, tweets in five minutes"))
    return found
