"""The event-driven engine: requests wait in one queue, first come first served, for a replica that can take them.

A replica can take a request while it reads no other one's prompt and has room in its batch; of several, the one with
the smallest batch does (an ideal router). A request's delay lasts until a replica begins with it. What replicas do with
requests: see :mod:`flyball_streams.backtest.events.replicas`.

Seconds before `from_s` pass as in the fluid engine, so that policies have their memory of longer ago. From then on all
that a policy sees is measured: the work of the requests that arrived in each second, the work that replicas did, mean
requests in the system (in units of what one replica holds, see ``Service``), and the work of those in the queue. Orders, cold starts, failures and
bills are those of the fluid engine, but for the drain: the replica that became ready last takes no more requests,
finishes those it has, and is billed until then, `drain_s` seconds at least.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flyball_models.scaling import STATE, desired
from flyball_models.scaling.compile import compiled, kept, sources
from flyball_streams.backtest import kernel as fluid
from flyball_streams.backtest.events import replicas
from flyball_streams.backtest.events.replicas import Replicas, Service, drain, least, leave, places, proceed, rate, start, take
from flyball_streams.backtest.events.requests import Requests
from flyball_streams.backtest.kernel import (
    ACTIONS,
    BILLED,
    BINS,
    FAILURES,
    FLAPS,
    LATE,
    MOST_PENDING,
    READY,
    REQUESTS,
    RING,
    SERVED,
    STARTS,
    WARM_S,
    Bounds,
    Floats,
    Ints,
    Past,
    Plant,
    observe,
)

PLACES = 32
BEGUN, FINISHED, IN_SYSTEM, BUSY = range(4)
"""Sums of a whole run: requests begun and finished, request-seconds in the system, work done."""
TALLY = 4


@compiled
def _begin(
    fleet: Replicas,
    i: int,
    now: float,
    requests: Requests,
    service: Service,
    limits_s: Ints,
    span_s: int,
    delays_from_s: int,
    spans: Floats,
    delays: Floats,
) -> float:
    """Let the least busy replica take request `i`; return how much more work per second the fleet does."""
    r = least(fleet.load)
    before = rate(fleet, r, service)
    take(fleet, r, now, requests.first_s[i], requests.rest_s[i], service)
    _delayed(now - requests.at_s[i], requests.at_s[i], limits_s, span_s, delays_from_s, spans, delays)
    return rate(fleet, r, service) - before


@compiled
def _delayed(
    wait_s: float, at_s: float, limits_s: Ints, span_s: int, delays_from_s: int, spans: Floats, delays: Floats
) -> None:
    span = int(at_s) // span_s
    for k in range(len(limits_s)):
        if wait_s > limits_s[k]:
            spans[span, LATE + k] += 1.0
    if at_s >= delays_from_s:
        delays[min(int(np.ceil(wait_s)), BINS - 1)] += 1.0


def _build(stamp: int) -> Callable[..., None]:
    @kept
    def simulate(
        work: Floats,
        requests: Requests,
        service: Service,
        from_s: int,
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
        tally: Floats,
    ) -> None:
        _ = stamp  # part of the key under which compiled code is kept
        state = np.zeros(STATE)
        past = Past(np.zeros(RING), np.zeros(RING), np.zeros(RING), np.zeros(RING))
        due = np.zeros(MOST_PENDING, np.int64)
        doomed = np.zeros(MOST_PENDING, np.bool_)
        ready, pending, draining, ordered = plant.start, 0, 0, 0
        want = ready
        backlog = arrived = served = concurrency = 0.0
        last_turn, last_change = 0, -(10**9)
        fleet, born = places(PLACES, service.slots), 0
        at_s, count = requests.at_s, len(requests.at_s)
        coming = head = 0  # the next to arrive, the first in the queue
        inside = doing = 0.0  # requests in the system, work per second of all replicas
        end = len(work)
        for t in range(end):
            span = t // span_s
            if pending:
                left = 0
                for i in range(pending):
                    if due[i] > t:
                        due[left], doomed[left] = due[i], doomed[i]
                        left += 1
                    elif doomed[i]:
                        spans[span, FAILURES] += 1
                    else:
                        ready += 1
                        if t > from_s:
                            fleet = start(fleet, float(t), born, service)
                            born += 1
                pending = left
            if t < from_s:
                backlog += work[t]
                arrived += work[t]
                done = min(backlog, float(ready))
                backlog -= done
                concurrency += done + backlog / plant.residence_s
            else:
                if t == from_s:
                    backlog = 0.0
                    for _i in range(ready):
                        fleet = start(fleet, float(t), born, service)
                        born += 1
                done = area = 0.0
                now, stop = float(t), float(t + 1)
                while head < coming and fleet.load[1] < np.inf:  # those that became ready this second
                    doing += _begin(
                        fleet, head, now, requests, service, limits_s, span_s, delays_from_s, spans, delays
                    )
                    backlog -= requests.first_s[head] + requests.rest_s[head]
                    head += 1
                while True:
                    arrival = at_s[coming] if coming < count else np.inf
                    event = fleet.next[1]
                    at = min(arrival, event)
                    if at >= stop:
                        break
                    done += doing * (at - now)
                    area += inside * (at - now)
                    now = at
                    if arrival <= event:
                        size = requests.first_s[coming] + requests.rest_s[coming]
                        arrived += size
                        backlog += size
                        inside += 1.0
                        spans[span, REQUESTS] += 1.0
                        coming += 1
                    else:
                        r = least(fleet.next)
                        before = rate(fleet, r, service)
                        if proceed(fleet, r, now, service):
                            inside -= 1.0
                            tally[FINISHED] += 1.0
                        doing += rate(fleet, r, service) - before
                    if head < coming and fleet.load[1] < np.inf:
                        doing += _begin(
                            fleet, head, now, requests, service, limits_s, span_s, delays_from_s, spans, delays
                        )
                        backlog -= requests.first_s[head] + requests.rest_s[head]
                        head += 1
                done += doing * (stop - now)
                area += inside * (stop - now)
                concurrency += area / service.unit
                tally[IN_SYSTEM] += area
                tally[BUSY] += done
                doing = 0.0  # summed anew, so that rounding does not add up
                for r in range(len(fleet.state)):
                    doing += rate(fleet, r, service)
                if head == coming:
                    backlog = 0.0
            served += done
            slot = (t + 1) % RING
            past.arrived[slot], past.served[slot], past.concurrency[slot] = arrived, served, concurrency
            past.backlog[t % RING] = backlog
            billed = ready + draining
            for i in range(pending):
                billed += 0 if doomed[i] else 1
            spans[span, BILLED] += billed
            spans[span, READY] += ready
            spans[span, SERVED] += done
            if draining:
                draining = leave(fleet, t + 1)
            if len(ready_out):
                ready_out[t], total_out[t], backlog_out[t] = ready, ready + pending, backlog

            if t >= WARM_S and t % every == 0:
                newest = max(0, t - lag)
                if len(fresh):
                    newest = fresh[newest]
                newest = max(newest, t + 1 - RING + 700)
                wish = desired(kind, state, observe(t, newest, lag, ready, pending, past, bounds), knobs)
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
                pending -= min(pending, ready + pending - want)
                stopped = ready + pending - want
                ready -= stopped
                if t < from_s:
                    spans[span, BILLED] += stopped * plant.drain_s
                else:
                    for _i in range(stopped):
                        drain(fleet, t + 1 + plant.drain_s)
                    draining += stopped
        tally[BEGUN] = head
        for i in range(head, coming):  # what still waits has waited at least so long
            _delayed(end - at_s[i], at_s[i], limits_s, span_s, delays_from_s, spans, delays)

    return simulate


simulate = _build(sources(Path(fluid.__file__), Path(replicas.__file__)))
