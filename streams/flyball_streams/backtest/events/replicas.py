"""Replicas that serve requests in batches, as arrays: the state of each, and the time of its next event.

A replica processes prompts one after the other at full speed; meanwhile its batch is paused (prefill has priority).
Between prompts, the n requests of its batch share it: each proceeds at 1 / (fixed slots + (1 - fixed) n) of the
replica's capacity, because a step of the batch has a fixed time and a time per request. A full batch, n = slots, uses
the whole capacity, and its requests then proceed as slowly as possible. With fixed = 1 each slot is a server of its
own; with fixed = 0 it is processor sharing; with one slot, requests are served one by one.

The batch stores, for each request, the virtual time at which it is done; virtual time is the work that each request of
the batch has received since the batch was last empty.

Arrays have a place for each replica, a power of two of them: ``states`` float64 [places, 8] with the columns below,
``ends`` float64 [places, slots] the virtual end times in the batch (the earliest last), ``soon`` and ``load`` trees of
minima over each replica's next event time and over the batches that can take a request, ``life`` int64 [places, 3].
They are separate arrays, not a tuple, because reading a tuple of arrays costs a reference count.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_models.scaling.compile import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BATCH, READING, REST, CLOCK, SINCE, SUM, OPEN = range(7)
"""Requests in the batch; 1 while a prompt is processed; work of that request after its prompt; virtual time and its
update time; sum of the virtual end times; 1 if new requests are accepted.
"""
STATE_COLUMNS = 8
STATE, BORN, UNTIL = range(3)
"""Life-cycle state; order in which the replica became ready; earliest end of the billing of a drain, in seconds."""
ABSENT, READY, DRAINING = range(3)
NEVER = np.inf


class Service(NamedTuple):
    """Requests in a full batch, and the share of a step's time that does not depend on the number of requests.

    ``unit`` is the number of requests that counts as one replica's concurrency.
    """

    slots: int
    fixed: float = 0.35
    unit: float = 1.0


@compiled
def put(tree: Floats, place: int, value: float) -> None:
    """Set a leaf and update the minima above it."""
    i = (len(tree) >> 1) + place
    tree[i] = value
    while i > 1:
        i >>= 1
        smaller = min(tree[2 * i], tree[2 * i + 1])
        if tree[i] == smaller:
            break
        tree[i] = smaller


@compiled
def least(tree: Floats) -> int:
    """Place of the smallest leaf; of equal ones the first."""
    i, half, value = 1, len(tree) >> 1, tree[1]
    while i < half:
        i *= 2
        if tree[i] != value:
            i += 1
    return i - half


@compiled
def pace(n: float, slots: int, fixed: float) -> float:
    """Seconds that a batch of `n` takes for one second of work of each request."""
    return fixed * slots + (1.0 - fixed) * n


@compiled
def _plan(states: Floats, ends: Floats, soon: Floats, load: Floats, r: int, slots: int, fixed: float) -> None:
    """Update both trees for a replica that is not processing a prompt."""
    n = int(states[r, BATCH])
    if n:
        left = ends[r, n - 1] - states[r, CLOCK]
        put(soon, r, states[r, SINCE] + left * pace(float(n), slots, fixed))
    else:
        put(soon, r, NEVER)
    put(load, r, float(n) if states[r, OPEN] > 0.0 and n < slots else NEVER)


@compiled
def _join(states: Floats, ends: Floats, r: int, work: float) -> None:
    """Add a request with the given remaining work to an up-to-date batch."""
    i = int(states[r, BATCH])
    if i == 0:
        states[r, CLOCK] = states[r, SUM] = 0.0
    end = states[r, CLOCK] + work
    while i > 0 and ends[r, i - 1] < end:
        ends[r, i] = ends[r, i - 1]
        i -= 1
    ends[r, i] = end
    states[r, BATCH] += 1.0
    states[r, SUM] += end


@compiled
def take(
    states: Floats,
    ends: Floats,
    soon: Floats,
    load: Floats,
    r: int,
    now: float,
    first: float,
    rest: float,
    slots: int,
    fixed: float,
) -> None:
    """Give a replica a request: `first` s of prompt processing, then `rest` of work."""
    n = states[r, BATCH]
    if n > 0.0:
        states[r, CLOCK] += (now - states[r, SINCE]) / pace(n, slots, fixed)
    states[r, SINCE] = now
    if first > 0.0:
        states[r, READING], states[r, REST] = 1.0, rest
        put(soon, r, now + first)
        put(load, r, NEVER)
    else:
        _join(states, ends, r, rest)
        _plan(states, ends, soon, load, r, slots, fixed)


@compiled
def proceed(
    states: Floats, ends: Floats, soon: Floats, load: Floats, r: int, now: float, slots: int, fixed: float
) -> bool:
    """Run a replica's next event, which is due `now`; return whether it has finished a request."""
    states[r, SINCE] = now
    finished = bool(states[r, READING] == 0.0)
    if finished:
        n = int(states[r, BATCH]) - 1
        end = ends[r, n]
        states[r, BATCH], states[r, CLOCK] = float(n), end
        states[r, SUM] -= end
    else:
        states[r, READING] = 0.0
        _join(states, ends, r, states[r, REST])
    _plan(states, ends, soon, load, r, slots, fixed)
    return finished


@compiled
def outstanding(states: Floats, soon: Floats, now: float, slots: int, fixed: float) -> float:
    """Work of the requests that replicas have taken and not finished."""
    total, half = 0.0, len(soon) >> 1
    for r in range(len(states)):
        n, clock = states[r, BATCH], states[r, CLOCK]
        if states[r, READING] > 0.0:
            total += soon[half + r] - now + states[r, REST]
        elif n > 0.0:
            clock += (now - states[r, SINCE]) / pace(n, slots, fixed)
        if n > 0.0:
            total += states[r, SUM] - n * clock
    return total


@compiled
def vacant(life: Ints) -> int:
    """The first free place; one past the last if there is none."""
    for r in range(len(life)):
        if life[r, STATE] == ABSENT:
            return r
    return len(life)


@compiled
def start(states: Floats, soon: Floats, load: Floats, life: Ints, r: int, now: float, order: int) -> None:
    """Make a replica ready in a free place."""
    life[r, STATE], life[r, BORN] = READY, order
    states[r] = 0.0
    states[r, SINCE], states[r, OPEN] = now, 1.0
    put(soon, r, NEVER)
    put(load, r, 0.0)


@compiled
def more(rows: Floats) -> Floats:
    """Return the replica rows with as many empty ones appended."""
    count, width = rows.shape
    wide = np.zeros((2 * count, width))
    for r in range(count):
        for i in range(width):
            wide[r, i] = rows[r, i]
    return wide


@compiled
def more_lives(life: Ints) -> Ints:
    """Return the life rows with as many empty ones appended."""
    wide = np.zeros((2 * len(life), 3), np.int64)
    for r in range(len(life)):
        for i in range(3):
            wide[r, i] = life[r, i]
    return wide


@compiled
def twice(tree: Floats) -> Floats:
    """Return a tree with twice the capacity."""
    count = len(tree) >> 1
    wide = np.full(4 * count, NEVER)
    for r in range(count):
        put(wide, r, tree[count + r])
    return wide


@compiled
def drain(states: Floats, load: Floats, life: Ints, until: int) -> None:
    """Make the replica that became ready last refuse new requests; it finishes its own."""
    newest = -1
    for r in range(len(life)):
        if life[r, STATE] == READY and (newest < 0 or life[r, BORN] > life[newest, BORN]):
            newest = r
    life[newest, STATE], life[newest, UNTIL] = DRAINING, until
    states[newest, OPEN] = 0.0
    put(load, newest, NEVER)


@compiled
def leave(states: Floats, life: Ints, second: int) -> int:
    """Remove drained replicas that are empty and were billed long enough; return how many still drain."""
    left = 0
    for r in range(len(life)):
        if life[r, STATE] == DRAINING:
            if states[r, BATCH] == 0.0 and states[r, READING] == 0.0 and life[r, UNTIL] <= second:
                life[r, STATE] = ABSENT
            else:
                left += 1
    return left
