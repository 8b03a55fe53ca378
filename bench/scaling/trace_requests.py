"""Single requests of a demand that a public trace gave: recorded, or the ones that its arrivals were drawn from.

Their work and number per second equal those of the demand, so both engines of the backtest serve the same.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from bench.scaling.servegen import MEAN_RPS, NO_SUMS, WINDOW_S, Clients, Singles, draw_requests
from numpy.typing import NDArray

from flyball_contracts.errors import RecordingError
from flyball_streams.backtest.demands.demand import Demand, Floats
from flyball_streams.backtest.events.requests import Requests, Window

WORKERS = os.cpu_count() or 1


def _split(at_s: Floats, work: Floats, share: Floats | float) -> Requests:
    first = work * share
    return Requests(at_s, first, work - first)


def own(at_s: Floats, work: Floats, share: Floats, demand: Demand, windows: Sequence[Window]) -> list[Requests]:
    """Recorded requests of a trace; their work is scaled like the demand's."""
    factor = float(demand.work.sum()) / float(work.sum())
    found: list[Requests] = []
    for begin, end in windows:
        part = slice(*np.searchsorted(at_s, (begin, end)))
        found.append(_split(at_s[part], work[part] * factor, share[part]))
    return found


def redrawn(
    fleet: Clients,
    tokens: Floats,
    prompts: Floats,
    demand: Demand,
    windows: Sequence[Window],
    seed: int = 0,
    mean_rps: float = MEAN_RPS,
) -> list[Requests]:
    """Draw again the requests that ``servegen.arrivals`` drew for the demand, with the same tokens, seed and mean.

    `prompts` is the prompt's share of each of the `tokens`. Raises :class:`RecordingError` when they differ from the
    demand, which then has another seed or fleet.
    """
    last = -(-max(end for _, end in windows) // WINDOW_S)
    wanted = np.zeros(fleet.rate.shape[1], np.bool_)
    for begin, end in windows:
        wanted[begin // WINDOW_S : -(-end // WINDOW_S)] = True
    seconds = np.repeat(wanted, WINDOW_S)
    count = int(demand.requests[seconds].sum())
    scale = mean_rps / float(fleet.rate.sum(axis=0).mean())

    def some(worker: int) -> tuple[Floats, NDArray[np.int32]]:
        singles, filled = Singles(wanted, np.empty(count), np.empty(count, np.int32)), 0
        for i in range(worker, len(fleet.ids), WORKERS):
            draw = np.random.default_rng(1000 * seed + fleet.ids[i])
            filled = draw_requests(fleet.rate[i, :last] * scale, fleet.cv[i], tokens, draw, NO_SUMS, singles, filled)
        return singles.at_s[:filled], singles.token[:filled]

    with ThreadPoolExecutor(WORKERS) as pool:
        parts = list(pool.map(some, range(WORKERS)))
    at_s, which = (np.concatenate(column) for column in zip(*parts, strict=True))
    if not np.array_equal(
        np.bincount(at_s.astype(np.int64), minlength=len(seconds))[seconds], demand.requests[seconds]
    ):
        raise RecordingError(f"{demand.name}: its requests cannot be drawn again; name the fleet and seed it is of")
    factor = float(demand.work[seconds].sum()) / float(tokens[which].sum())
    found: list[Requests] = []
    for begin, end in windows:
        chosen = np.flatnonzero((at_s >= begin) & (at_s < end))
        chosen = chosen[np.argsort(at_s[chosen], kind="stable")]
        found.append(_split(at_s[chosen], tokens[which[chosen]] * factor, prompts[which[chosen]]))
    return found
