"""Ticks to windows: what a replica served, held and made wait over some tens of seconds.

Telemetry counts the work that *arrives*; what was served is that less what the queue grew by (its requests times the mean
work of one). Waits follow from the queue by Little's law, or, where no queue is told, from how far the latency lies above
the least seen lately. A window counts only when the number of ready replicas was the same throughout and at most a
fifth of its ticks is missing.
"""

from typing import NamedTuple

import numpy as np

from flyball_models.capacity.base import FIELDS, Bools, Floats, Point, empty, known_or

LEAST_SHARE = 0.8
KEEP = 0.9
"""Weight of the past in the mean work of a request, for windows without one."""
CREEP = 1.002
"""Growth per window of the least latency: it is found again after a change within hours."""
_READY, _WORK, _REQUESTS, _ACTIVE, _QUEUED, _BUSY, _LATENCY, _TOKENS = range(len(FIELDS))


class State(NamedTuple):
    """The open window of each workload: sums and counts are [8, N], the rest [N]."""

    ready: Floats
    steady: Bools
    total: Floats
    known: Floats
    least_queue: Floats
    queue: Floats
    queue_before: Floats
    work_per_request: Floats
    least_latency_s: Floats


def init(n: int) -> State:
    """Return the state of `n` workloads that nobody has heard of."""
    return State(
        ready=empty(n),
        steady=np.ones(n, np.bool_),
        total=np.zeros((len(FIELDS), n)),
        known=np.zeros((len(FIELDS), n)),
        least_queue=empty(n),
        queue=empty(n),
        queue_before=empty(n),
        work_per_request=empty(n),
        least_latency_s=empty(n),
    )


def add(state: State, seen: Floats) -> State:
    """Take a tick in; `seen` is [8, N] with the rows of FIELDS, NaN where unknown."""
    ready, queue = seen[_READY], seen[_QUEUED]
    has = ~np.isnan(seen)
    told = has[_READY]
    return state._replace(
        ready=np.where(np.isnan(state.ready), ready, state.ready),
        steady=state.steady & (~told | np.isnan(state.ready) | (ready == state.ready)),
        total=state.total + np.where(has, seen, 0.0),
        known=state.known + has,
        least_queue=np.fmin(state.least_queue, queue),
        queue=np.where(has[_QUEUED], queue, state.queue),
    )


def close(state: State, ticks: int, window_s: float) -> tuple[State, Point]:
    """End the windows after `ticks` ticks that took `window_s` seconds; return what they say and start new ones."""
    n = len(state.ready)
    ready = state.ready
    usable = state.steady & (ready > 0) & (state.known[_WORK] >= LEAST_SHARE * ticks)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(state.known > 0, state.total / state.known, np.nan)
        per_request = known_or(np.where(mean[_REQUESTS] > 0, mean[_WORK] / mean[_REQUESTS], np.nan), np.nan)
        kept = known_or(KEEP * state.work_per_request + (1.0 - KEEP) * per_request, state.work_per_request)
        kept = known_or(kept, per_request)
        grown = known_or((state.queue - state.queue_before) / window_s, 0.0)
        served = np.maximum(mean[_WORK] - grown * known_or(known_or(per_request, kept), 0.0), 0.0)
        gone = np.maximum(mean[_REQUESTS] - grown, 0.0)
        latency = mean[_LATENCY]
        least = np.fmin(state.least_latency_s * CREEP, latency)
        waits = known_or(np.where(gone > 0, mean[_QUEUED] / gone, np.nan), latency - least)
        pace = np.where(mean[_TOKENS] > 0, mean[_ACTIVE] / mean[_TOKENS], np.nan)
    fresh = init(n)._replace(queue_before=state.queue, queue=state.queue, work_per_request=kept, least_latency_s=least)
    per_replica = np.where(usable, 1.0 / np.where(usable, ready, 1.0), np.nan)
    here = np.where(usable, 1.0, np.nan)
    return fresh, Point(
        served=served * per_replica,
        concurrency=mean[_ACTIVE] * per_replica,
        queue=state.least_queue * per_replica,
        wait_s=waits * here,
        pace_s=pace * here,
        busy=mean[_BUSY] * here,
        work_per_request=kept * here,
    )
