"""Carbon of public grids by hour, and what was known of it when."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Signal

HOUR_NS = 3600 * NS_PER_S
WEEK_H = 7 * 24
Floats = NDArray[np.float64]


class Grid(NamedTuple):
    """One zone: carbon gCO2e/kWh by hour from ``start`` on, and the forecasts by the hour of their issue."""

    zone: str
    start: datetime
    carbon: Floats
    issues: dict[int, Floats]

    def hour(self, time: datetime) -> int:
        """Hours from the start to a time."""
        return round((time - self.start) / timedelta(hours=1))

    def newest(self, hour: int) -> tuple[int, Floats] | None:
        """Forecast issued last by an hour, with the hour of its first value."""
        issued = [h for h in range(hour, hour - 49, -1) if h in self.issues]
        return (issued[0], self.issues[issued[0]]) if issued else None


def signal(zone: str, first_h: int, values: Floats, published_h: int, forecast: bool) -> Signal:
    """Curve of some hours."""
    return Signal(
        zone=zone,
        kind="carbon_intensity",
        published_ns=published_h * HOUR_NS,
        start_ns=first_h * HOUR_NS,
        step_s=3600.0,
        p50=tuple(values.tolist()),
        forecast=forecast,
    )


def past(grid: Grid, hour: int) -> Signal:
    """The week that ends with an hour, as it was."""
    first = max(0, hour - WEEK_H + 1)
    return signal(grid.zone, first, grid.carbon[first : hour + 1], hour, forecast=False)


def known(grid: Grid, source: str, hour: int, until: int) -> Signal:
    """What a source has at an hour: ``perfect``, ``forecast`` (as issued, after the measured hour) or ``actuals``."""
    if source == "perfect":
        return signal(grid.zone, hour, grid.carbon[hour:until], hour, forecast=True)
    now = grid.carbon[hour : hour + 1]
    found = grid.newest(hour) if source == "forecast" else None
    if found is None:
        return signal(grid.zone, hour, now, hour, forecast=False)
    first, values = found
    return signal(grid.zone, hour, np.concatenate([now, values[hour - first + 1 :]]), hour, forecast=True)


def grids(folder: Path) -> list[Grid]:
    """Grids with forecasts, lifecycle factors; FileNotFoundError when the folder does not hold them."""
    actual = pl.read_parquet(folder / "carbon_carboncast" / "actual_hourly.parquet")
    forecasts = pl.read_parquet(folder / "carbon_carboncast" / "forecast_96h.parquet").filter(
        pl.col("kind") == "lifecycle"
    )
    found: list[Grid] = []
    for zone in sorted(actual["region"].cast(pl.String).unique().to_list()):
        mine = actual.filter(pl.col("region").cast(pl.String) == zone).sort("time")
        grid = Grid(zone, mine["time"][0], mine["lifecycle"].cast(pl.Float64).to_numpy(), {})
        rows = forecasts.filter(pl.col("region").cast(pl.String) == zone).sort("issue_time", "h")
        for (issued,), part in rows.group_by(["issue_time"], maintain_order=True):
            grid.issues[grid.hour(issued)] = part["forecast"].cast(pl.Float64).to_numpy()
        found.append(grid)
    return found


def made_up(zones: int = 3, days: int = 60) -> list[Grid]:
    """Synthetic grids: they show that the script works, not what is claimed."""
    found: list[Grid] = []
    for zone in range(zones):
        random = np.random.default_rng([7, zone])
        hours = np.arange(days * 24)
        weather = np.convolve(random.normal(size=len(hours)), np.ones(36) / 6, mode="same")
        carbon = 300 + 90 * np.cos((hours - 19) * np.pi / 12) + 40 * weather
        carbon = np.maximum(carbon, 20.0)
        issues = {
            h: carbon[h : h + 96] * np.exp(np.cumsum(random.normal(0, 0.01, len(carbon[h : h + 96]))))
            for h in range(0, len(hours), 24)
        }
        found.append(Grid(f"made-up-{zone}", datetime(2021, 1, 1), carbon, issues))
    return found
