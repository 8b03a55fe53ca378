"""The band policy: replicas stay between two quantiles of a trusted forecast, at the lead time and from now on."""

import numpy as np

from flyball_models import bucket
from flyball_models.sizing import slo_headroom
from flyball_models.sizing.replicas import UNKNOWN, band, required
from flyball_streams.engine.workload.sizing.columns import Floats
from flyball_streams.engine.workload.sizing.policy import DRAIN_S, FORECAST, PRESENT, Basis, Policy, PolicyInput


def need(given: PolicyInput) -> Basis:
    """Needs of workloads.

    The upper need is the quantile ``level`` between the lead time and the hold after it, the lower one ``down_level``
    from now on; between them the number stays, so hysteresis follows from the lead time. Without a trusted forecast,
    backlog and present demand alone can add replicas, and none are removed.
    """
    n, seen, sizing = bucket(len(given.slots)), given.seen, given.sizing
    now = given.now + np.nan_to_num(given.backlog) * seen.capacity / np.maximum(DRAIN_S, seen.cold_start_s)
    ahead = given.ahead(sizing.level, given.lead)
    later = given.ahead(sizing.down_level, np.ones_like(given.lead))
    upper, lower = np.fmax(now, ahead), np.where(np.isnan(later), np.nan, np.maximum(now, later))
    columns = [_padded(x, n) for x in (upper, lower, seen.capacity, given.usual, seen.replicas)]
    zero, most = np.zeros(n, np.int32), np.full(n, 2**31 - 1, np.int32)
    up = required(columns[0], columns[2], columns[3], zero, most)
    down = required(columns[1], columns[2], columns[3], zero, most)
    found = np.asarray(band(columns[4].astype(np.int32), up, down))[: len(given.slots)].astype(np.float64)
    more = found > seen.replicas
    work = np.where(more | np.isnan(lower), upper, lower)
    level = np.where(more, sizing.level, sizing.down_level)
    base = np.where(given.trusted, FORECAST, PRESENT)
    replicas = np.where(found == UNKNOWN, np.nan, found)
    return Basis(replicas, base, seen.capacity * given.usual, work, np.where(more, ahead, later), level, given.lead_s)


def _padded(values: Floats, n: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Values in an array of the padded length, so that few shapes are compiled; zeros need nothing."""
    array = np.zeros(n, np.float32)
    array[: len(values)] = np.clip(values, -1e30, 1e30)
    return array


POLICY = Policy(need, slo_headroom.RULE)
