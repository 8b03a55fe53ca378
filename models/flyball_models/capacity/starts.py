"""Time from a replica's appearance to its readiness: matched from counts, and its 90th percentile.

The inputs are two counts: replicas and ready replicas. A rise of the first opens as many starts, a rise of the second
ends the oldest open ones, and a fall of the first cancels the newest. A replica that is ready in the tick of its
appearance is no sample, because many workloads do not report readiness.

Few samples give no reliable quantile: the 90th percentile of n samples is the one of rank 0.9 (n + 1) (for n < 10 the
largest), shrunk towards the seed (the owner's value, or that of the workload elsewhere) with the weight of PRIOR
samples:

    log p90 = (n log q + PRIOR log seed) / (n + PRIOR)
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

LEVEL = 0.9
PRIOR = 3.0
KEPT = 32
"""Samples that are kept, the newest."""
MOST_AT_ONCE = 4
"""Maximum weight of starts that were ordered together and end together: one slow registry is one event."""
LONGEST_S = 7200.0
"""Starts that are open longer are dropped."""
_LEAST_S = 1.0


class Counts(NamedTuple):
    """Counts of a workload at a time; ``open`` are starts, oldest first: time, number, whether others were ready."""

    time_s: float
    replicas: int
    ready: int
    open: tuple[tuple[float, int, bool], ...] = ()


class Sample(NamedTuple):
    """One start that ended; ``warm``: others were ready when it began."""

    seconds: float
    warm: bool


def advance(before: Counts, time_s: float, replicas: int, ready: int) -> tuple[Counts, list[Sample]]:
    """Return the counts at `time_s` and the starts that ended since `before`."""
    waiting = [start for start in before.open if time_s - start[0] <= LONGEST_S]
    rose, came = replicas - before.replicas, ready - before.ready
    samples: list[Sample] = []
    if came > 0:
        waiting, samples = _ended(waiting, came, time_s)
    if rose > 0:
        waiting.append((time_s, rose, before.ready > 0))
    elif rose < 0:
        waiting = _cancelled(waiting, max(-rose - max(-came, 0), 0))
    waiting = _cancelled(waiting, sum(n for _, n, _ in waiting) - max(replicas - ready, 0))
    return Counts(time_s, replicas, ready, tuple(waiting)), samples


def p90(samples: Sequence[float], seed_s: float) -> float:
    """Return the 90th percentile in seconds, shrunk towards `seed_s` while samples are few."""
    n = len(samples)
    if not n:
        return seed_s
    rank = min(math.ceil(LEVEL * (n + 1)), n)
    quantile = max(sorted(samples)[rank - 1], _LEAST_S)
    return math.exp((n * math.log(quantile) + PRIOR * math.log(max(seed_s, _LEAST_S))) / (n + PRIOR))


def _ended(
    waiting: list[tuple[float, int, bool]], came: int, time_s: float
) -> tuple[list[tuple[float, int, bool]], list[Sample]]:
    samples: list[Sample] = []
    while came > 0 and waiting:
        since, n, warm = waiting[0]
        ended = min(n, came)
        samples += [Sample(time_s - since, warm)] * min(ended, MOST_AT_ONCE)
        came -= ended
        waiting = [(since, n - ended, warm), *waiting[1:]] if ended < n else waiting[1:]
    return waiting, samples


def _cancelled(waiting: list[tuple[float, int, bool]], gone: int) -> list[tuple[float, int, bool]]:
    """Cancel the newest starts."""
    while gone > 0 and waiting:
        since, n, warm = waiting[-1]
        taken = min(n, gone)
        gone -= taken
        waiting = [*waiting[:-1], (since, n - taken, warm)] if taken < n else waiting[:-1]
    return waiting
