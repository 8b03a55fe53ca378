"""Demand of the web site of the football World Cup of 1998: HTTP requests of each minute."""

from pathlib import Path

import numpy as np
import polars as pl
from bench.series.rates import Rates, gridded

from flyball_streams.importers.base import read_table

WINDOW_S = 60


def read_worldcup(folder: Path) -> Rates:
    """Requests of each minute; raises :class:`RecordingError` when the folder is not such a trace."""
    columns = {"minute": pl.Datetime("us")}, {"count": pl.Float64()}
    rows = read_table(folder, "requests_per_minute.parquet", *columns).rows.drop_nulls()
    time_s = rows["minute"].dt.epoch("s").to_numpy().astype(np.int64)
    return gridded("worldcup98", time_s, rows["count"].to_numpy(), WINDOW_S, "HTTP requests per minute, World Cup 1998")
