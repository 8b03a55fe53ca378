"""The fluid engine: one fleet, one queue, one policy, second by second, compiled.

Each second: what is due becomes ready (R); the backlog B grows by the arrived work, S = min(B, R) is served;
concurrency is C = S + B / residence; all that exists is billed, ordered or ready; then the policy may set what it
wants. More is ordered and ready after its cold start, unless its provisioning fails: then it vanishes unbilled when it
was due, and is ordered again. Less cancels the newest orders first, then ready replicas, each billed for a drain.

With A(j), S(j) the work arrived and served before second j, all requests of second t wait
min{j: S(j) >= A(t + 1) - 1e-6} - (t + 1) seconds, at least 0.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_models.scaling import STATE, Observation, desired
from flyball_models.scaling.compile import compiled, kept, sources

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BILLED, READY, SERVED, REQUESTS, STARTS, FAILURES, ACTIONS, FLAPS, LATE = range(9)
"""Columns of the sums per span of time; from LATE on, requests that waited longer than each limit."""
BINS = 3601
"""Delays of a whole hour and more share the last bin."""
RING = 4096
"""Seconds of past that the telemetry can reach; longer outages look back so far."""
MOST_PENDING = 4096
WARM_S = 60
EPSILON = 1e-6


class Plant(NamedTuple):
    """The fleet: replicas at the start, least and most, seconds of drain and of nominal residence."""

    start: int
    least: int = 2
    most: int = 100_000
    drain_s: int = 30
    residence_s: float = 20.0


class Bounds(NamedTuple):
    """What the forecast says in each step of `step_s` seconds, float64 each; one NaN where there is none."""

    step_s: int
    upper: Floats
    lower: Floats
    present: Floats


class Past(NamedTuple):
    """Sums of arrived and served work and of concurrency before each second, and the backlog after it; rings."""

    arrived: Floats
    served: Floats
    concurrency: Floats
    backlog: Floats


@compiled
def _mean(ring: Floats, end: int, seconds: int) -> float:
    """Mean of the last `seconds` of a summed ring, up to and with second `end`."""
    n = min(seconds, end + 1)
    return float((ring[(end + 1) % RING] - ring[(end + 1 - n) % RING]) / n)


@compiled
def _observe(t: int, at: int, lag: int, ready: int, pending: int, past: Past, bounds: Bounds) -> Observation:
    i = t // bounds.step_s
    return Observation(
        float(t),
        float(ready),
        float(pending),
        _mean(past.arrived, at, 5),
        _mean(past.arrived, at, 30),
        _mean(past.arrived, at, 180),
        _mean(past.served, at, 30),
        _mean(past.served, at, 60),
        _mean(past.concurrency, at, 1),
        _mean(past.concurrency, at, 6),
        _mean(past.concurrency, at, 60),
        past.backlog[at % RING],
        float(max(0, t - lag - at)),
        bounds.upper[min(i, len(bounds.upper) - 1)],
        bounds.lower[min(i, len(bounds.lower) - 1)],
        bounds.present[min(i, len(bounds.present) - 1)],
    )


@compiled
def _late(span: Floats, limits_s: Ints, wait_s: int, requests: float) -> None:
    """Count requests that waited `wait_s` under every limit that this breaks."""
    for i in range(len(limits_s)):
        if wait_s > limits_s[i]:
            span[LATE + i] += requests


def _build(stamp: int) -> Callable[..., None]:
    @kept
    def simulate(
        work: Floats,
        requests: Floats,
        plant: Plant,
        cold_s: Ints,
        fails: NDArray[np.bool_],
        fresh: Ints,
        kind: int,
        knobs: Floats,
        every: int,
        lag: int,
        bounds: Bounds,
        limits_s: Ints,
        turn_s: int,
        span_s: int,
        delays_from_s: int,
        spans: Floats,
        delays: Floats,
        ready_out: NDArray[np.int32],
        total_out: NDArray[np.int32],
        backlog_out: NDArray[np.float32],
    ) -> None:
        _ = stamp  # part of the key under which compiled code is kept
        state = np.zeros(STATE)
        past = Past(np.zeros(RING), np.zeros(RING), np.zeros(RING), np.zeros(RING))
        due = np.zeros(MOST_PENDING, np.int64)
        doomed = np.zeros(MOST_PENDING, np.bool_)
        ready, pending, ordered = plant.start, 0, 0
        want = ready
        backlog = arrived = served = concurrency = 0.0
        head = 0  # the oldest second whose requests still wait
        head_work = work[0] if len(work) else 0.0  # work arrived up to and with it
        last_turn, last_change = 0, -(10**9)
        end = len(work)
        for t in range(end):
            span = t // span_s
            if pending:
                kept = 0
                for i in range(pending):
                    if due[i] > t:
                        due[kept], doomed[kept] = due[i], doomed[i]
                        kept += 1
                    elif doomed[i]:
                        spans[span, FAILURES] += 1
                    else:
                        ready += 1
                pending = kept
            backlog += work[t]
            arrived += work[t]
            done = min(backlog, float(ready))
            backlog -= done
            served += done
            busy = done + backlog / plant.residence_s
            concurrency += busy
            now = (t + 1) % RING
            past.arrived[now], past.served[now], past.concurrency[now] = arrived, served, concurrency
            past.backlog[t % RING] = backlog
            billed = ready
            for i in range(pending):
                billed += 0 if doomed[i] else 1
            spans[span, BILLED] += billed
            spans[span, READY] += ready
            spans[span, SERVED] += done
            spans[span, REQUESTS] += requests[t]
            if backlog <= EPSILON:
                served = arrived  # rounding must not keep an empty queue waiting
                backlog = 0.0
            while head <= t and served >= head_work - EPSILON:
                if head >= delays_from_s:
                    delays[min(t - head, BINS - 1)] += requests[head]
                _late(spans[head // span_s], limits_s, t - head, requests[head])
                head += 1
                if head < end:
                    head_work += work[head]
            if len(ready_out):
                ready_out[t], total_out[t], backlog_out[t] = ready, ready + pending, backlog

            if t >= WARM_S and t % every == 0:
                at = max(0, t - lag)
                if len(fresh):
                    at = fresh[at]
                at = max(at, t + 1 - RING + 700)
                seen = _observe(t, at, lag, ready, pending, past, bounds)
                wish = desired(kind, state, seen, knobs)
                if wish == wish:  # not NaN: hold
                    want = int(min(max(wish, plant.least), plant.most))
                if want != ready + pending:
                    turn = 1 if want > ready + pending else -1
                    spans[span, ACTIONS] += 1
                    if turn == -last_turn and t - last_change < turn_s:
                        spans[span, FLAPS] += 1
                    last_turn, last_change = turn, t
            while ready + pending < want and pending < MOST_PENDING:
                due[pending] = t + cold_s[ordered % len(cold_s)]
                doomed[pending] = fails[ordered % len(fails)]
                ordered += 1
                pending += 1
                spans[span, STARTS] += 1
            if ready + pending > want:
                cancelled = min(pending, ready + pending - want)
                pending -= cancelled
                stopped = ready + pending - want
                ready -= stopped
                spans[span, BILLED] += stopped * plant.drain_s
        while head < end:  # what still waits has waited at least so long
            if head >= delays_from_s:
                delays[min(end - head, BINS - 1)] += requests[head]
            _late(spans[head // span_s], limits_s, end - head, requests[head])
            head += 1

    return simulate


simulate = _build(sources())
