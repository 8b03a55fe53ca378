"""The band policy: replicas stay between two quantiles of a trusted forecast, at the lead time and from now on."""

import numpy as np

from flyball_contracts.config import ForecastConfig, SizingConfig
from flyball_models import bucket
from flyball_models.sizing.replicas import UNKNOWN, band, required
from flyball_streams.engine.workload.columns import Floats, Ints, Seen
from flyball_streams.engine.workload.forecaster import Forecaster, nearest
from flyball_streams.engine.workload.promised import DRAIN_S, FORECAST, PRESENT, Basis


def need(
    seen: Seen,
    now: Floats,
    backlog: Floats,
    usual: Floats,
    lead: Ints,
    period_s: float,
    slots: Ints,
    trusted: Floats,
    forecaster: Forecaster,
    forecast: ForecastConfig,
    sizing: SizingConfig,
) -> Basis:
    """What workloads need, whose forecasts are in `slots`, with work `now` and cold starts of `lead` ticks.

    The upper need is the quantile ``level`` between the lead time and the hold after it, the lower one ``down_level``
    from now on; between them the number stays, so hysteresis follows from the lead time. A forecast that is not trusted
    sizes nothing: then the backlog and the present demand alone ask for more, and nobody less.
    """
    n = bucket(len(slots))
    up_level, down_level = nearest(forecast.levels, sizing.level), nearest(forecast.levels, sizing.down_level)
    last = np.minimum(lead + int(np.ceil(sizing.hold_s / period_s)), forecast.horizon_ticks)
    now = now + np.nan_to_num(backlog) * seen.capacity / np.maximum(DRAIN_S, seen.cold_start_s)
    ahead = np.where(trusted > 0, forecaster.most(slots, up_level, lead, last), np.nan)
    later = np.where(trusted > 0, forecaster.most(slots, down_level, np.ones_like(lead), last), np.nan)
    upper, lower = np.fmax(now, ahead), np.where(np.isnan(later), np.nan, np.maximum(now, later))
    columns = [_padded(x, n) for x in (upper, lower, seen.capacity, usual, seen.replicas)]
    zero, most = np.zeros(n, np.int32), np.full(n, 2**31 - 1, np.int32)
    up = required(columns[0], columns[2], columns[3], zero, most)
    down = required(columns[1], columns[2], columns[3], zero, most)
    found = np.asarray(band(columns[4].astype(np.int32), up, down))[: len(slots)].astype(np.float64)
    more = found > seen.replicas
    work = np.where(more | np.isnan(lower), upper, lower)
    level = np.where(more, sizing.level, sizing.down_level)
    base = np.where(trusted > 0, FORECAST, PRESENT)
    replicas = np.where(found == UNKNOWN, np.nan, found)
    return Basis(
        replicas,
        base,
        seen.capacity * usual,
        work,
        np.where(more, ahead, later),
        level,
        (lead * period_s).astype(np.float64),
    )


def _padded(values: Floats, n: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Values in an array of the padded length, so that few shapes are compiled; zeros ask for nothing."""
    array = np.zeros(n, np.float32)
    array[: len(values)] = np.clip(values, -1e30, 1e30)
    return array
