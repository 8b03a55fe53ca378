"""The fluid engine: one fleet, one queue, one policy, second by second, compiled.

Each second: orders that are due become ready (R); arrived work is added to the backlog B, and S = min(B, R) is served;
concurrency is C = S + B / residence; everything that exists is billed, ordered or ready; then the policy may set the
number of replicas.

Additional replicas are ordered and become ready after their cold start. An order whose provisioning fails disappears
unbilled when it was due, and is placed again. A lower number cancels the newest orders first, then ready replicas, each
billed for a drain. With A(j), S(j) the work arrived and served before second j, all requests of second t wait min{j:
S(j) >= A(t + 1) - 1e-6} - (t + 1) seconds, at least 0.

Between two events (a policy decision, a due order, the end of a span) the fleet does not change, and a second without
backlog in which all work fits costs only the read of its work. Sums that do not depend on the policy come with the
:class:`Flow`.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_models.scaling import STATE, Observation, chosen
from flyball_models.scaling.compile import compiled, kept, sources

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BILLED, READY, SERVED, REQUESTS, STARTS, FAILURES, ACTIONS, FLAPS, BLIND, LATE = range(10)
"""Columns of the sums per span of time.

BLIND counts replicas removed while no sample was newer than :data:`BLIND_S`. The columns from LATE on count the
requests that waited longer than each limit.
"""
BINS = 3601
"""Delays of an hour and more share the last bin."""
RING = 4096
"""Seconds of history that are kept."""
REACH_S = RING - 200
"""How old the newest sample can be; longer outages read this far back. Means of 180 s before it are still kept."""
MOST_PENDING = 4096
WARM_S = 60
BLIND_S = 60
EPSILON = 1e-6
_MASK = RING - 1


class Flow(NamedTuple):
    """Work of each second float64 [T], and sums of work and of requests before each second float64 [T + 1]."""

    work: Floats
    arrived: Floats
    requested: Floats


class Plant(NamedTuple):
    """The fleet: replicas at the start, minimum and maximum, seconds of drain and of nominal residence."""

    start: int
    least: int = 2
    most: int = 100_000
    drain_s: int = 30
    residence_s: float = 20.0


class Bounds(NamedTuple):
    """Forecast in each step of `step_s` seconds, float64 each; a single NaN if there is none."""

    step_s: int
    upper: Floats
    lower: Floats
    present: Floats


class Faults(NamedTuple):
    """Injected faults; empty arrays mean no faults.

    ``fails``: which orders never become ready; the sequence repeats. ``fresh`` [T]: at each second, the newest second
    whose sample has arrived. ``restarts``: after each of these seconds the policy loses its state, at its next decision
    with pending orders, or an hour later.
    """

    fails: NDArray[np.bool_]
    fresh: Ints
    restarts: Ints


class Control(NamedTuple):
    """The policy: its number, its parameters float64, its interval, and the age of its newest sample (seconds)."""

    kind: int
    knobs: Floats
    every_s: int
    lag_s: int


class Measure(NamedTuple):
    """What is counted: late requests by limit, reversals within `turn_s` (flaps), spans, delays from a second on."""

    limits_s: Ints
    turn_s: int
    span_s: int
    delays_from_s: int


class Sums(NamedTuple):
    """Results of a run: sums per span, requests by delay, and, if recorded, replicas and backlog of each second."""

    spans: Floats
    delays: Floats
    ready: NDArray[np.int32]
    total: NDArray[np.int32]
    backlog: NDArray[np.float32]


class Past(NamedTuple):
    """Rings with sums of arrived and served work and of concurrency before each second, and the backlog after it."""

    arrived: Floats
    served: Floats
    concurrency: Floats
    backlog: Floats


@compiled
def _mean(ring: Floats, end: int, seconds: int) -> float:
    """Mean of the last `seconds` of a cumulative ring, up to and including second `end`."""
    n = min(seconds, end + 1)
    return float((ring[(end + 1) % RING] - ring[(end + 1 - n) % RING]) / n)


@compiled
def observe(t: int, at: int, lag: int, ready: int, pending: int, past: Past, bounds: Bounds) -> Observation:
    """Return a policy's observation in second `t`, where `at` is the newest known second, from an engine's history."""
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


def flow_of(work: Floats, requests: Floats) -> Flow:
    """Sum up a demand once for all policies that run on it."""
    zero = np.zeros(1)
    return Flow(work, np.concatenate([zero, np.cumsum(work)]), np.concatenate([zero, np.cumsum(requests)]))


@compiled
def late(span: Floats, limits_s: Ints, wait_s: int, requests: float) -> None:
    """Count requests that waited `wait_s` as late for every limit that `wait_s` exceeds."""
    for i in range(len(limits_s)):
        if wait_s > limits_s[i]:
            span[LATE + i] += requests


def _build(stamp: int) -> Callable[..., None]:
    @kept
    def simulate(
        flow: Flow,
        plant: Plant,
        cold_s: Ints,
        faults: Faults,
        control: Control,
        bounds: Bounds,
        measure: Measure,
        sums: Sums,
    ) -> None:
        _ = stamp  # part of the key under which compiled code is kept
        state = np.zeros(STATE)
        # Arrays are taken out of their tuples here: in the loop, each access to a tuple would cost a reference count.
        kind, knobs, every, lag = control
        limits_s, turn_s, span_s, delays_from_s = measure
        spans, delays, ready_out, total_out, backlog_out = sums
        backlogs, summed_up = np.zeros(RING), np.zeros(RING)
        upper, lower, present, step_s = bounds.upper, bounds.lower, bounds.present, bounds.step_s
        residence_s, last_step = plant.residence_s, len(bounds.upper) - 1
        work, arrived, requested = flow.work, flow.arrived, flow.requested
        fails, fresh, restarts = faults.fails, faults.fresh, faults.restarts
        due = np.zeros(MOST_PENDING, np.int64)
        terminating = np.zeros(MOST_PENDING, np.bool_)
        ready, pending, doomed_now, ordered, restarted = plant.start, 0, 0, 0, 0
        want = ready
        backlog = summed = 0.0
        head = 0  # the oldest second whose requests still wait, if any do
        last_turn, last_change = 0, -(10**9)
        end = len(work)
        decides = -(-WARM_S // every) * every
        soonest, step, span, span_end = end, 0, 0, span_s
        t = 0
        while t < end:
            if t >= span_end:
                span, span_end = span + 1, span_end + span_s
            if pending and t >= soonest:
                kept, soonest = 0, end
                for i in range(pending):
                    if due[i] > t:
                        due[kept], terminating[kept] = due[i], terminating[i]
                        soonest = min(soonest, due[i])
                        kept += 1
                    elif terminating[i]:
                        spans[span, FAILURES] += 1
                        doomed_now -= 1
                    else:
                        ready += 1
                pending = kept
            stop = min(min(end, span_end), decides + 1)
            if pending:
                stop = min(stop, soonest)
            if ready + pending != want:
                stop = t + 1
            room, before = float(ready), backlog
            for s in range(t, stop):
                if backlog == 0.0:
                    if work[s] <= room:
                        backlogs[s & _MASK] = 0.0
                        summed_up[(s + 1) & _MASK] = summed
                        continue
                    head = s
                backlog += work[s]
                backlog -= min(backlog, room)
                if backlog <= EPSILON:
                    backlog = 0.0
                summed += backlog
                backlogs[s & _MASK] = backlog
                summed_up[(s + 1) & _MASK] = summed
                served = arrived[s + 1] - backlog + EPSILON
                while head <= s and arrived[head + 1] <= served:
                    if s > head:
                        requests = requested[head + 1] - requested[head]
                        if head >= delays_from_s:
                            delays[min(s - head, BINS - 1)] += requests
                        late(spans[head // span_s], limits_s, s - head, requests)
                    head += 1
                if len(backlog_out):
                    backlog_out[s] = backlog
            seconds = stop - t
            spans[span, BILLED] += seconds * (ready + pending - doomed_now)
            spans[span, READY] += seconds * ready
            spans[span, SERVED] += arrived[stop] - arrived[t] - (backlog - before)
            spans[span, REQUESTS] += requested[stop] - requested[t]
            if len(ready_out):
                ready_out[t:stop], total_out[t:stop] = ready, ready + pending
            t = stop - 1  # the second that has just ended

            if t == decides:
                decides += every
                if restarted < len(restarts) and t >= restarts[restarted] + (0 if pending else 3600):
                    state[:] = 0.0
                    restarted += 1
                at = max(0, t - lag)
                if len(fresh):
                    at = fresh[at]
                at = max(at, t - REACH_S)
                while (step + 1) * step_s <= t:
                    step += 1
                n5, n6, n30 = min(5, at + 1), min(6, at + 1), min(30, at + 1)
                n60, n180 = min(60, at + 1), min(180, at + 1)
                total, waits, concurrent = arrived[at + 1], backlogs[at & _MASK], summed_up[(at + 1) & _MASK]
                work_30, work_60 = total - arrived[at + 1 - n30], total - arrived[at + 1 - n60]
                # Work served is the work that arrived, less the growth of the backlog.
                served_1 = work[at] - waits + backlogs[(at - 1) & _MASK]
                served_6 = (total - arrived[at + 1 - n6] - waits + backlogs[(at - n6) & _MASK]) / n6
                served_60 = (work_60 - waits + backlogs[(at - n60) & _MASK]) / n60
                k = min(step, last_step)
                seen = Observation(
                    float(t),
                    float(ready),
                    float(pending),
                    (total - arrived[at + 1 - n5]) / n5,
                    work_30 / n30,
                    (total - arrived[at + 1 - n180]) / n180,
                    (work_30 - waits + backlogs[(at - n30) & _MASK]) / n30,
                    served_60,
                    served_1 + (concurrent - summed_up[at & _MASK]) / residence_s,
                    served_6 + (concurrent - summed_up[(at + 1 - n6) & _MASK]) / (n6 * residence_s),
                    served_60 + (concurrent - summed_up[(at + 1 - n60) & _MASK]) / (n60 * residence_s),
                    waits,
                    float(max(0, t - lag - at)),
                    upper[k],
                    lower[k],
                    present[k],
                )
                desired = chosen(kind, state, seen, knobs)
                if desired == desired:  # not NaN: hold
                    want = int(min(max(desired, plant.least), plant.most))
                if want != ready + pending:
                    turn = 1 if want > ready + pending else -1
                    spans[span, ACTIONS] += 1
                    if turn == -last_turn and t - last_change < turn_s:
                        spans[span, FLAPS] += 1
                    if turn < 0 and seen.stale_s > BLIND_S:
                        spans[span, BLIND] += ready + pending - want
                    last_turn, last_change = turn, t
            while ready + pending < want and pending < MOST_PENDING:
                due[pending] = t + cold_s[ordered % len(cold_s)]
                terminating[pending] = len(fails) > 0 and fails[ordered % len(fails)]
                doomed_now += 1 if terminating[pending] else 0
                soonest = due[pending] if pending == 0 else min(soonest, due[pending])
                ordered += 1
                pending += 1
                spans[span, STARTS] += 1
            if ready + pending > want:
                cancelled = min(pending, ready + pending - want)
                for i in range(pending - cancelled, pending):
                    doomed_now -= 1 if terminating[i] else 0
                pending -= cancelled
                stopped = ready + pending - want
                ready -= stopped
                spans[span, BILLED] += stopped * plant.drain_s
            t += 1
        if backlog > 0.0:
            while head < end:  # requests that still wait have waited at least this long
                requests = requested[head + 1] - requested[head]
                if head >= delays_from_s:
                    delays[min(end - head, BINS - 1)] += requests
                late(spans[head // span_s], limits_s, end - head, requests)
                head += 1
        waited = delays[1:].sum()
        delays[0] = max(0.0, requested[end] - requested[min(delays_from_s, end)] - waited)

    return simulate


simulate = _build(sources())
