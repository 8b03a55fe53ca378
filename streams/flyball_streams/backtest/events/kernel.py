"""The event-driven engine: requests wait in one queue, first come first served, for a replica that can take them.

A replica can take a request if it processes no other prompt and its batch has a free slot; of several, the one with the
smallest batch takes it (an ideal router). A request's delay ends when a replica starts it. How replicas serve requests
is described in :mod:`flyball_streams.backtest.events.replicas`.

Until `from_s` the fluid engine runs, so that policies have a history. From then on everything that a policy observes is
measured: the work of the requests that arrived in each second, the work that replicas did, mean requests in the system
(in units of what one replica holds, see ``Service``), and the work of those in the queue. Orders, cold starts, failures
and billing are those of the fluid engine, except the drain: the replica that became ready last takes no more requests,
finishes those it has, and is billed until then, `drain_s` seconds at least.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from flyball_models.scaling import STATE, chosen
from flyball_models.scaling.compile import compiled, kept, sources
from flyball_streams.backtest import kernel as fluid
from flyball_streams.backtest.events import replicas
from flyball_streams.backtest.events.replicas import (
    NEVER,
    STATE_COLUMNS,
    Service,
    drain,
    least,
    leave,
    more,
    more_lives,
    outstanding,
    proceed,
    start,
    take,
    twice,
    vacant,
)
from flyball_streams.backtest.events.requests import Requests
from flyball_streams.backtest.kernel import (
    ACTIONS,
    BILLED,
    BINS,
    BLIND,
    BLIND_S,
    FAILURES,
    FLAPS,
    LATE,
    MOST_PENDING,
    REACH_S,
    READY,
    REQUESTS,
    RING,
    SERVED,
    STARTS,
    WARM_S,
    Bounds,
    Control,
    Faults,
    Floats,
    Ints,
    Measure,
    Past,
    Plant,
    Sums,
    observe,
)

PLACES = 32
BEGUN, FINISHED, IN_SYSTEM, DONE = range(4)
"""Sums of a whole run: requests started and finished, request-seconds in the system, work done."""
TALLY = 4


class RequestInput(NamedTuple):
    """Work of each second, float64 [T], the requests from `from_s` on, and how replicas serve them."""

    work: Floats
    requests: Requests
    service: Service
    from_s: int


@compiled
def _delayed(
    wait_s: float, at_s: float, limits_s: Ints, span_s: int, delays_from_s: int, spans: Floats, delays: Floats
) -> None:
    """Count a request by its delay; most wait less than a second."""
    if at_s >= delays_from_s:
        delays[min(int(np.ceil(wait_s)), BINS - 1)] += 1.0
    if wait_s > 0.0:
        for k in range(len(limits_s)):
            if wait_s > limits_s[k]:
                spans[int(at_s) // span_s, LATE + k] += 1.0


def _build(stamp: int) -> Callable[..., None]:
    @kept
    def simulate(
        given: RequestInput,
        plant: Plant,
        cold_s: Ints,
        faults: Faults,
        control: Control,
        bounds: Bounds,
        measure: Measure,
        sums: Sums,
        tally: Floats,
    ) -> None:
        _ = stamp  # part of the key under which compiled code is kept
        work, requests, service, from_s = given
        kind, knobs, every, lag = control
        limits_s, turn_s, span_s, delays_from_s = measure
        spans, delays, ready_out, total_out, backlog_out = sums
        state = np.zeros(STATE)
        past = Past(np.zeros(RING), np.zeros(RING), np.zeros(RING), np.zeros(RING))
        past_arrived, past_served, past_concurrency, past_backlog = past
        fails, fresh, restarts = faults.fails, faults.fresh, faults.restarts
        due = np.zeros(MOST_PENDING, np.int64)
        terminating = np.zeros(MOST_PENDING, np.bool_)
        ready, pending, draining, ordered, restarted, born = plant.start, 0, 0, 0, 0, 0
        want, came = ready, 0
        backlog = arrived = served = concurrency = lost = 0.0
        last_turn, last_change = 0, -(10**9)
        slots, fixed = service.slots, service.fixed
        states, ends, life = (
            np.zeros((PLACES, STATE_COLUMNS)),
            np.zeros((PLACES, slots)),
            np.zeros((PLACES, 3), np.int64),
        )
        soon, load = np.full(2 * PLACES, NEVER), np.full(2 * PLACES, NEVER)
        at_s, first_s, rest_s = requests.at_s, requests.first_s, requests.rest_s
        count = len(at_s)
        coming = head = 0  # the next to arrive, the first in the queue
        arrival = at_s[0] if count else NEVER
        finished, inside = 0, 0.0
        end = len(work)
        for t in range(end):
            span = t // span_s
            came = ready if t == from_s else 0
            if pending:
                left = 0
                for i in range(pending):
                    if due[i] > t:
                        due[left], terminating[left] = due[i], terminating[i]
                        left += 1
                    elif terminating[i]:
                        spans[span, FAILURES] += 1
                    else:
                        ready += 1
                        came += 1
                pending = left
            if t < from_s:
                backlog += work[t]
                arrived += work[t]
                done = min(backlog, float(ready))
                backlog -= done
                served += done
                concurrency += done + backlog / plant.residence_s
            else:
                if t == from_s:
                    lost, backlog = arrived - served, 0.0  # work that waited until now has no single requests
                now, stop, area = float(t), float(t + 1), 0.0
                for _i in range(came):
                    r = vacant(life)
                    if r == len(life):
                        states, ends, life = more(states), more(ends), more_lives(life)
                        soon, load = twice(soon), twice(load)
                    start(states, soon, load, life, r, now, born)
                    born += 1
                while True:
                    if head < coming and load[1] < NEVER:
                        r = least(load)
                        take(states, ends, soon, load, r, now, first_s[head], rest_s[head], slots, fixed)
                        _delayed(now - at_s[head], at_s[head], limits_s, span_s, delays_from_s, spans, delays)
                        backlog -= first_s[head] + rest_s[head]
                        head += 1
                        continue
                    event = soon[1]
                    at = min(arrival, event)
                    if at >= stop:
                        break
                    area += inside * (at - now)
                    now = at
                    if arrival <= event:
                        size = first_s[coming] + rest_s[coming]
                        arrived += size
                        backlog += size
                        inside += 1.0
                        spans[span, REQUESTS] += 1.0
                        coming += 1
                        arrival = at_s[coming] if coming < count else NEVER
                    elif proceed(states, ends, soon, load, least(soon), now, slots, fixed):
                        inside -= 1.0
                        finished += 1
                area += inside * (stop - now)
                concurrency += area / service.unit
                tally[IN_SYSTEM] += area
                if head == coming:
                    backlog = 0.0
                before = served
                served = arrived - lost - backlog - outstanding(states, soon, stop, slots, fixed)
                done = served - before
            slot = (t + 1) % RING
            past_arrived[slot], past_served[slot], past_concurrency[slot] = arrived, served, concurrency
            past_backlog[t % RING] = backlog
            billed = ready + draining
            for i in range(pending):
                billed += 0 if terminating[i] else 1
            spans[span, BILLED] += billed
            spans[span, READY] += ready
            spans[span, SERVED] += done
            if draining:
                draining = leave(states, life, t + 1)
            if len(ready_out):
                ready_out[t], total_out[t], backlog_out[t] = ready, ready + pending, backlog

            if t >= WARM_S and t % every == 0:
                if restarted < len(restarts) and t >= restarts[restarted] + (0 if pending else 3600):
                    state[:] = 0.0
                    restarted += 1
                newest = max(0, t - lag)
                if len(fresh):
                    newest = fresh[newest]
                newest = max(newest, t - REACH_S)
                seen = observe(t, newest, lag, ready, pending, past, bounds)
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
                ordered += 1
                pending += 1
                spans[span, STARTS] += 1
            if ready + pending > want:
                pending -= min(pending, ready + pending - want)
                stopped = ready + pending - want
                ready -= stopped
                if t < from_s:
                    spans[span, BILLED] += stopped * plant.drain_s
                else:
                    for _i in range(stopped):
                        drain(states, load, life, t + 1 + plant.drain_s)
                    draining += stopped
        tally[BEGUN], tally[FINISHED], tally[DONE] = head, finished, served
        for i in range(head, coming):  # requests that still wait have waited at least this long
            _delayed(end - at_s[i], at_s[i], limits_s, span_s, delays_from_s, spans, delays)

    return simulate


simulate = _build(sources(Path(fluid.__file__), Path(replicas.__file__)))
