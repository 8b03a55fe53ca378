"""shadow_selection for many workloads at once: its compiled step, row by row, once per five-second sample.

The state of a workload is a row: the last desired replicas and why, when its shadows began, the number of the next
sample, and the state of :mod:`flyball_models.scaling.shadow_selection`. A row of zeros has no data.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from flyball_models.scaling import shadow_selection
from flyball_models.scaling.base import Floats, Observation, counted, whole
from flyball_models.scaling.compile import kept, sources
from flyball_models.sizing.slo_headroom import KNOWN, NOW_SAMPLES, SAMPLE_S, SAMPLES

Ints = NDArray[np.int64]
DESIRED, WHY, SINCE, NEXT, HEAD = range(5)
"""Places in a row: replicas, the reason, seconds, number of a sample, and the state."""
UNKNOWN, STARTS, PROVIDES, PRESENT = range(4)
"""Reasons: nothing desired; history too short to remove anything; the leader's headroom; present work and backlog."""
FLOATS = HEAD + shadow_selection.NEEDED
"""Floats of a row."""
_step = shadow_selection.step
_MINUTES, _PRESENT = HEAD + shadow_selection.MINUTES, HEAD + shadow_selection.PRESENT


def _build(stamp: int) -> Callable[[Floats, Ints, int, Floats, Floats, Floats, Floats, Floats, Floats], None]:
    @kept
    def advance(
        memory: Floats,
        rows: Ints,
        at: int,
        raw: Floats,
        load: Floats,
        ready: Floats,
        pending: Floats,
        backlog: Floats,
        knobs: Floats,
    ) -> None:
        """Step the workloads in `rows` [J] of a `memory` [N, FLOATS] through their samples before number `at`.

        `raw` [12, N] is the work of the last twelve samples, by number modulo twelve, NaN where unknown: unknown
        samples are skipped, and after a minute of them the reason is ``UNKNOWN``. `load` [J] is the work per replica;
        `ready` and `pending` replicas and the `backlog` in replica seconds (NaN: unknown) are current [J]; for `knobs`
        [J, 9] see :func:`flyball_models.scaling.shadow_selection.knobs_of`.
        """
        _ = stamp  # part of the key under which compiled code is kept
        unused = np.nan
        for j in range(len(rows)):
            own, row = memory[rows[j]], rows[j]
            first = min(max(counted(own[NEXT]), at - SAMPLES), at)
            own[NEXT] = at
            for number in range(first, at):
                work = raw[number % SAMPLES, row]
                if work != work:
                    continue
                total, count = 0.0, 0
                for back in range(min(NOW_SAMPLES, SAMPLES - (at - 1 - number))):
                    x = raw[(number - back) % SAMPLES, row]
                    if x == x:
                        total, count = total + x, count + 1
                t_s = float(SAMPLE_S * (number + 1))
                if own[SINCE] == 0.0:
                    own[SINCE] = t_s
                work_5, work_30 = max(0.0, work / load[j]), max(0.0, total / count / load[j])
                seen = Observation(
                    t_s, ready[j], pending[j], work_5, work_30, unused, unused, unused, unused, unused, unused,
                    backlog[j], 0.0, unused, unused, unused,
                )  # fmt: skip
                own[DESIRED] = _step(own[HEAD:], seen, knobs[j])
                own[WHY] = PROVIDES if own[DESIRED] > whole(own[_PRESENT]) else PRESENT
                if own[_MINUTES] < KNOWN:
                    own[WHY] = STARTS
            silent = True
            for k in range(SAMPLES):
                if raw[k, row] == raw[k, row]:
                    silent = False
            if silent:
                own[WHY] = UNKNOWN

    return advance


advance = _build(sources())
