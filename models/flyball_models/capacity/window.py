"""Ticks to windows: served, active and waiting work of a replica over some tens of seconds.

Telemetry counts the work that *arrives*; served work is arriving work less the growth of the queue (its requests times
the mean work of one). Under overload clients give up, and their requests are neither served nor in the queue: so
generated tokens are a second estimate, by the work of a token in windows without overload; without token counts, failed
requests are subtracted. Waits follow from the queue by Little's law or, without a queue metric, from the latency above
its recent minimum. A window counts only when the number of ready replicas was the same throughout and at most a fifth
of its ticks is missing. The time between tokens is the servers' own if they report it, else requests in service over
tokens per second.
"""

from typing import NamedTuple

import numpy as np

from flyball_models.capacity.base import FIELDS, Bools, Floats, Point, empty, known_or

LEAST_SHARE = 0.8
KEEP = 0.9
"""Weight of the past in the mean work of a request, for windows without one."""
APART = 1.1
"""Served work may be at most this many times the token estimate, because requests change."""
CREEP = 1.002
"""Growth per window of the minimum latency: it adapts to a change within hours."""
_READY, _WORK, _REQUESTS, _ACTIVE, _QUEUED, _BUSY, _LATENCY, _TOKENS, _FAILED, _FIRST, _NEXT, _CACHE = range(
    len(FIELDS)
)


class State(NamedTuple):
    """The open window of each workload: sums and counts are [F, N], the rest [N].

    ``answers`` [3, N] are of the previous window: times to the first token and between tokens, cache in use.
    """

    ready: Floats
    steady: Bools
    total: Floats
    known: Floats
    least_queue: Floats
    queue: Floats
    queue_before: Floats
    work_per_request: Floats
    work_per_token: Floats
    least_latency_s: Floats
    answers: Floats


def init(n: int) -> State:
    """Return the state of `n` workloads without any tick."""
    return State(
        ready=empty(n),
        steady=np.ones(n, np.bool_),
        total=np.zeros((len(FIELDS), n)),
        known=np.zeros((len(FIELDS), n)),
        least_queue=empty(n),
        queue=empty(n),
        queue_before=empty(n),
        work_per_request=empty(n),
        work_per_token=empty(n),
        least_latency_s=empty(n),
        answers=empty(3, n),
    )


def add(state: State, seen: Floats) -> State:
    """Add a tick, [F, N], or several, [T, F, N], with the rows of FIELDS, NaN where unknown."""
    seen = seen.reshape(-1, *seen.shape[-2:])
    has = ~np.isnan(seen)
    first, total, queue = state.ready, state.total, state.queue
    for one, known, values in zip(seen, has, np.where(has, seen, 0.0), strict=True):
        first = np.where(np.isnan(first), one[_READY], first)
        queue = np.where(known[_QUEUED], one[_QUEUED], queue)
        total = total + values
    changes = has[:, _READY] & (seen[:, _READY] != first)
    return state._replace(
        ready=first,
        steady=state.steady & ~changes.any(axis=0),
        total=total,
        known=state.known + has.sum(axis=0),
        least_queue=np.fmin(state.least_queue, np.fmin.reduce(seen[:, _QUEUED])),
        queue=queue,
    )


def close(state: State, ticks: int, window_s: float) -> tuple[State, Point]:
    """End the windows after `ticks` ticks that took `window_s` seconds; return their content and start new ones."""
    n = len(state.ready)
    ready = state.ready
    usable = state.steady & (ready > 0) & (state.known[_WORK] >= LEAST_SHARE * ticks)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(state.known > 0, state.total / state.known, np.nan)
        kept = _tracked(state.work_per_request, np.where(mean[_REQUESTS] > 0, mean[_WORK] / mean[_REQUESTS], np.nan))
        grown = known_or((state.queue - state.queue_before) / window_s, 0.0)
        served = np.maximum(mean[_WORK] - grown * known_or(kept, 0.0), 0.0)
        quiet = (state.least_queue < ready) & (np.abs(served - mean[_WORK]) < 0.05 * mean[_WORK])
        per_token = np.where(quiet & (mean[_TOKENS] > 0), mean[_WORK] / mean[_TOKENS], np.nan)
        per_token = _tracked(state.work_per_token, per_token)
        by_tokens: Floats = per_token * mean[_TOKENS]
        failed = known_or(mean[_FAILED], 0.0)
        without_failed: Floats = np.maximum(served - failed * known_or(kept, 0.0), 0.0)
        unwitnessed: Bools = served > APART * by_tokens
        witnessed: Floats = np.where(unwitnessed, by_tokens, served)
        served = np.where(np.isnan(by_tokens), without_failed, witnessed)
        gone = np.maximum(mean[_REQUESTS] - grown - failed, 0.0)
        latency = mean[_LATENCY]
        least = np.fmin(state.least_latency_s * CREEP, latency)
        waits = known_or(np.where(gone > 0, mean[_QUEUED] / gone, np.nan), latency - least)
        token_s = known_or(mean[_NEXT], np.where(mean[_TOKENS] > 0, mean[_ACTIVE] / mean[_TOKENS], np.nan))
    fresh = init(n)._replace(
        queue_before=state.queue,
        work_per_request=kept,
        work_per_token=per_token,
        least_latency_s=least,
        answers=mean[[_FIRST, _NEXT, _CACHE]],
    )
    per_replica = np.where(usable, 1.0 / np.where(usable, ready, 1.0), np.nan)
    here = np.where(usable, 1.0, np.nan)
    return fresh, Point(
        served=served * per_replica,
        concurrency=mean[_ACTIVE] * per_replica,
        queue=state.least_queue * per_replica,
        wait_s=waits * here,
        token_s=token_s * here,
        busy=mean[_BUSY] * here,
        work_per_request=kept * here,
        first_token_s=mean[_FIRST] * here,
        kv_cache=mean[_CACHE] * here,
    )


def _tracked(before: Floats, now: Floats) -> Floats:
    return known_or(KEEP * before + (1.0 - KEEP) * now, known_or(before, now))
