"""Replicas that serve requests in batches, as arrays: what each does now, and when it does the next thing.

A replica reads the prompts of its requests one after another, each at its full speed; meanwhile its batch stands still
(a server that lets prompts go first). Between prompts, the n requests in its batch share it: each proceeds at

    1 / (fixed slots + (1 - fixed) n)

of the replica's capacity, since a step of the batch takes a time of its own and a time for each request. A full batch,
n = slots, makes the most of the replica, all of its capacity; its requests proceed as slowly as the limit allows. With
fixed = 1 a slot is a server of its own; with fixed = 0 it is processor sharing; one slot serves one by one.

The batch keeps, for each request, the virtual time at which it is done; virtual time is the work that one request of the
batch has received since the batch last stood empty.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_models.scaling.compile import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ABSENT, READY, DRAINING = 0, 1, 2
NEVER = np.inf


class Service(NamedTuple):
    """Requests in a full batch, and the share of its step that does not depend on how many they are.

    ``unit`` is how many requests count as a concurrency of one replica.
    """

    slots: int
    fixed: float = 0.35
    unit: float = 1.0


class Replicas(NamedTuple):
    """Places of replicas, a power of two: ``state``, requests in the ``batch``, whether it is ``reading`` a prompt.

    ``rest`` is the work that the request being read still has after it; ``clock`` is the virtual time at ``since``;
    ``ends`` [places, slots] holds virtual ends, the last one first. ``born`` is the order in which they became ready,
    ``until`` the second to which a drain is billed at least. ``next`` and ``load`` are trees of minima over the time of
    each one's next event and over the batches of those that can take a request.
    """

    state: Ints
    batch: Ints
    reading: NDArray[np.bool_]
    rest: Floats
    clock: Floats
    since: Floats
    ends: Floats
    born: Ints
    until: Ints
    next: Floats
    load: Floats


@compiled
def places(count: int, slots: int) -> Replicas:
    """Make `count` empty places, a power of two."""
    return Replicas(
        np.zeros(count, np.int64),
        np.zeros(count, np.int64),
        np.zeros(count, np.bool_),
        np.zeros(count),
        np.zeros(count),
        np.zeros(count),
        np.zeros((count, slots)),
        np.zeros(count, np.int64),
        np.zeros(count, np.int64),
        np.full(2 * count, NEVER),
        np.full(2 * count, NEVER),
    )


@compiled
def put(tree: Floats, place: int, value: float) -> None:
    """Set a leaf and the minima above it."""
    i = len(tree) // 2 + place
    tree[i] = value
    while i > 1:
        i >>= 1
        least = min(tree[2 * i], tree[2 * i + 1])
        if tree[i] == least:
            break
        tree[i] = least


@compiled
def least(tree: Floats) -> int:
    """Place of the smallest leaf, the first of equals."""
    i, half = 1, len(tree) // 2
    while i < half:
        value = tree[i]
        i *= 2
        if tree[i] != value:
            i += 1
    return i - half


@compiled
def speed(n: float, service: Service) -> float:
    """Work per second that each of `n` requests in a batch receives."""
    return 1.0 / (service.fixed * service.slots + (1.0 - service.fixed) * n)


@compiled
def rate(fleet: Replicas, r: int, service: Service) -> float:
    """Work per second that a replica does."""
    if fleet.reading[r]:
        return 1.0
    n = float(fleet.batch[r])
    return n * speed(n, service) if n else 0.0


@compiled
def plan(fleet: Replicas, r: int, service: Service) -> None:
    """Bring both trees up to date for a replica that is not reading."""
    n = fleet.batch[r]
    if n:
        put(fleet.next, r, fleet.since[r] + (fleet.ends[r, n - 1] - fleet.clock[r]) / speed(float(n), service))
    else:
        put(fleet.next, r, NEVER)
    free = fleet.state[r] == READY and n < service.slots
    put(fleet.load, r, float(n) if free else NEVER)


@compiled
def join(fleet: Replicas, r: int, work: float) -> None:
    """Put a request with so much work left into the batch, which is up to date."""
    i = fleet.batch[r]
    if i == 0:
        fleet.clock[r] = 0.0
    end = fleet.clock[r] + work
    ends = fleet.ends[r]
    while i > 0 and ends[i - 1] < end:
        ends[i] = ends[i - 1]
        i -= 1
    ends[i] = end
    fleet.batch[r] += 1


@compiled
def take(fleet: Replicas, r: int, now: float, first: float, rest: float, service: Service) -> None:
    """Give a replica that can take one a request: `first` s of reading its prompt, then `rest` of work."""
    n = fleet.batch[r]
    if n:
        fleet.clock[r] += (now - fleet.since[r]) * speed(float(n), service)
    fleet.since[r] = now
    if first > 0.0:
        fleet.reading[r] = True
        fleet.rest[r] = rest
        put(fleet.next, r, now + first)
        put(fleet.load, r, NEVER)
    else:
        join(fleet, r, rest)
        plan(fleet, r, service)


@compiled
def proceed(fleet: Replicas, r: int, now: float, service: Service) -> bool:
    """Do a replica's next event, which is due `now`; return whether it has finished a request."""
    fleet.since[r] = now
    finished = not fleet.reading[r]
    if finished:
        fleet.batch[r] -= 1
        fleet.clock[r] = fleet.ends[r, fleet.batch[r]]
    else:
        fleet.reading[r] = False
        join(fleet, r, fleet.rest[r])
    plan(fleet, r, service)
    return finished


@compiled
def start(fleet: Replicas, now: float, order: int, service: Service) -> Replicas:
    """Make a replica ready in the first place that is free; return the places, twice as many where all were taken."""
    count = len(fleet.state)
    r = 0
    while r < count and fleet.state[r] != ABSENT:
        r += 1
    if r == count:
        fleet = _twice(fleet)
    fleet.state[r], fleet.born[r], fleet.since[r] = READY, order, now
    plan(fleet, r, service)
    return fleet


@compiled
def _twice(old: Replicas) -> Replicas:
    count = len(old.state)
    fleet = places(2 * count, old.ends.shape[1])
    fleet.state[:count], fleet.batch[:count], fleet.reading[:count] = old.state, old.batch, old.reading
    fleet.rest[:count], fleet.clock[:count], fleet.since[:count] = old.rest, old.clock, old.since
    fleet.ends[:count], fleet.born[:count], fleet.until[:count] = old.ends, old.born, old.until
    for r in range(count):
        put(fleet.next, r, old.next[count + r])
        put(fleet.load, r, old.load[count + r])
    return fleet


@compiled
def drain(fleet: Replicas, until: int) -> None:
    """Let the replica that became ready last take no more requests; it finishes those it has."""
    newest = -1
    for r in range(len(fleet.state)):
        if fleet.state[r] == READY and (newest < 0 or fleet.born[r] > fleet.born[newest]):
            newest = r
    fleet.state[newest], fleet.until[newest] = DRAINING, until
    put(fleet.load, newest, NEVER)


@compiled
def leave(fleet: Replicas, second: int) -> int:
    """Let drained replicas go that are empty and billed long enough; return how many still drain."""
    left = 0
    for r in range(len(fleet.state)):
        if fleet.state[r] == DRAINING:
            if fleet.batch[r] == 0 and not fleet.reading[r] and fleet.until[r] <= second:
                fleet.state[r] = ABSENT
            else:
                left += 1
    return left
