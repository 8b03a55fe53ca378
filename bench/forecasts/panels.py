"""Ten-minute demand series of the public data sets, and the statistics on them that the forecast benchmark needs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

SEASON = 144
WEEK = 7 * SEASON
GAP = 0.15
WORST = 0.1
"""The share of the days that count as unexpected."""

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]


class Panel(NamedTuple):
    """Series of one source: y and known [T, S]; unknown values are gaps."""

    name: str
    y: Floats
    known: Bools

    @property
    def scale(self) -> NDArray[np.float64]:
        """Mean |y[t] - y[t-1]| of week 1 [S]."""
        step = np.abs(np.diff(self.y[:WEEK].astype(float), axis=0))
        pairs = self.known[1:WEEK] & self.known[: WEEK - 1]
        return mean(np.where(pairs, step, np.nan))

    def both(self, h: int) -> Bools:
        """Whether a forecast `h` ticks ahead is scored, by origin [T - h, S]: both ends are known."""
        return self.known[h:] & self.known[:-h]


def mean(x: NDArray[Any], axis: int = 0) -> NDArray[np.float64]:
    """Mean of what is there; NaN where nothing is, without a warning."""
    there = np.isfinite(x)
    total = np.where(there, x, 0.0).sum(axis=axis)
    count = there.sum(axis=axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def by_day(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return means [S, D] over the days after week 1 of x [T, S]."""
    later = x[WEEK:]
    days = max(len(later) // SEASON, 1)
    return np.stack([mean(part) for part in np.array_split(later, days)], axis=1)


def unexpected(data: Panel) -> Bools:
    """Return which days after week 1 [S, D] are least like the day before: bursts, outages and level shifts.

    It is a property of the series alone: |y[t] - y[t - 1 day]| over the mean of the series, the largest tenth.
    """
    off = np.full(data.y.shape, np.nan)
    off[SEASON:] = np.where(data.both(SEASON), np.abs(data.y[SEASON:] - data.y[:-SEASON]), np.nan)
    daily = by_day(off) / np.maximum(mean(np.where(data.known, data.y, np.nan)), 1e-9)[:, None]
    return daily >= np.nanquantile(daily, 1 - WORST)


def panel(name: str, y: NDArray[Any], known: Bools) -> Panel:
    """Return the series that week 1 shows to be busy: above 0 more than half of the time, and not constant."""
    known = known & np.isfinite(y)
    y = np.where(known, y, 0.0).astype(np.float32)
    busy = ((y > 0) & known)[:WEEK].mean(axis=0) > 0.5 * known[:WEEK].mean(axis=0)
    busy &= Panel(name, y, known).scale > 0  # NaN, never two values in a row, is not above 0 either
    return Panel(name, y[:, busy], known[:, busy])


def servegen(folder: Path) -> Panel:
    """Read arrival rates per client, and their total, of each model with two weeks of data.

    Windows in which the total is below 0.15 of its median are gaps of the telemetry.
    """
    rates = pl.read_parquet(folder / "servegen" / "rates.parquet")
    columns: list[NDArray[Any]] = []
    gaps: list[Bools] = []
    for model in sorted(rates["model"].cast(pl.String).unique()):
        table = rates.filter(pl.col("model").cast(pl.String) == model)
        y = table.pivot(on="client", index="t_s", values="rate_rps").sort("t_s").drop("t_s").to_numpy()
        if len(y) < 2 * WEEK:
            continue
        total = y.sum(axis=1)
        columns += [y[: 2 * WEEK], total[: 2 * WEEK, None]]
        gap = total[: 2 * WEEK] < GAP * np.median(total)
        gaps.append(np.repeat(~gap[:, None], y.shape[1] + 1, axis=1))
    if not columns:
        raise SystemExit(f"{folder}/servegen: no model has two weeks of ten-minute windows")
    return panel("servegen", np.concatenate(columns, axis=1), np.concatenate(gaps, axis=1))


def held_out(folder: Path, every: str = "10m", ticks: int = 4 * WEEK) -> Iterator[Panel]:
    """Read the first ticks of the sources that nothing is tuned on, those that are there."""
    paths = {
        "philly_node_demand": "nodes_minutely.parquet",
        "helios_earth_vc": "vc_minutely.parquet",
        "worldcup98": "requests_per_minute.parquet",
    }
    for name, file in paths.items():
        if not (folder / name / file).is_file():
            continue
        table = pl.read_parquet(folder / name / file)
        if name == "philly_node_demand":
            yield _minutely(name, table, every, ticks, "time", pl.col("active"))
        elif name == "helios_earth_vc":
            requested = pl.col("running_gpu_num") + pl.col("pending_gpu_num")
            yield _minutely(name, table, every, ticks, "time", requested, "vc")
        else:
            yield _minutely(name, table, every, ticks, "minute", pl.col("count"))


def _minutely(
    name: str, table: pl.DataFrame, every: str, ticks: int, time_column: str, value: pl.Expr, series: str | None = None
) -> Panel:
    """Return the means of `every` some minutes, `ticks` of them; those without any value are a gap."""
    keys = [time_column] if series is None else [time_column, series]
    table = table.select(*(pl.col(k) for k in keys), value.cast(pl.Float64).alias("v")).with_columns(
        pl.col(time_column).dt.truncate(every)
    )
    table = table.group_by(keys).agg(pl.col("v").mean())
    wide = table.pivot(on=series, index=time_column, values="v") if series else table
    wide = wide.sort(time_column).upsample(time_column, every=every).head(ticks)
    y = wide.drop(time_column).to_numpy().astype(float)
    return panel(name, y, np.isfinite(y))
