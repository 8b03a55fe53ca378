"""Load of generated work per second: continuous, with pauses to save and evaluate, or driven by requests."""

from typing import NamedTuple

import numpy as np
from bench.profiles.draws import Doubles, Draws
from bench.profiles.work import Work
from numpy.typing import NDArray


class Load(NamedTuple):
    """``active`` [T, N]: share of each second in iterations; ``saving`` [T, N]: share in writing a checkpoint.

    ``evaluating`` [T, N] is 1 while an iteration has no backward pass. For servers: ``requests`` [T, N] that arrive per
    second, ``queued`` [T, N] requests, ``cost_s`` [N] seconds per request; NaN for others.
    """

    active: Doubles
    saving: Doubles
    evaluating: Doubles
    requests: Doubles
    queued: Doubles
    cost_s: Doubles


def loads(draws: Draws, work: Work, seconds: int) -> Load:
    """Loads over some seconds, starting at an arbitrary time of each workload's life."""
    n = draws.count
    t = np.arange(1, seconds + 1, dtype=np.float64)[:, None]
    serves, interactive = work.is_kind("inference"), work.is_kind("interactive")
    learns = work.is_kind("training", "fine_tuning")
    active = np.ones((seconds, n))
    saving = _within(draws, t, draws(240.0, 1800.0, log=True), draws(4.0, 40.0, log=True)) * learns
    evaluating = _within(draws, t, draws(60.0, 600.0, log=True), draws(5.0, 40.0, log=True))
    evaluating = evaluating * work.is_kind("fine_tuning")
    active -= saving
    requests, queued = np.full((2, seconds, n), np.nan)
    cost_s = np.full(n, np.nan)
    served, requests[:, serves], queued[:, serves], cost_s[serves] = _served(draws, work, seconds, serves)
    active[:, serves] = served
    active[:, interactive] = _interactive(draws, work, seconds)[:, interactive]
    return Load(active, saving, evaluating, requests, queued, cost_s)


def _within(draws: Draws, t: Doubles, every_s: Doubles, length_s: Doubles) -> Doubles:
    """Share of each second that lies in a periodic pause."""
    start = draws.random.random(draws.count) * every_s
    inside = (t + start) % every_s < np.minimum(length_s, 0.3 * every_s)
    return inside.astype(np.float64)


def _served(
    draws: Draws, work: Work, seconds: int, serves: NDArray[np.bool_]
) -> tuple[Doubles, Doubles, Doubles, Doubles]:
    """One server each: Poisson arrivals with a drifting, bursty rate, served in the order of arrival."""
    random = draws.random
    rate = draws(*work.of("rate_hz"), log=True)[serves]
    idle = np.array(work.bound)[serves] == "idle"
    full = np.array(work.bound)[serves] == "memory_capacity"
    language = np.array(work.family)[serves] == "transformer"
    rho = np.where(idle, draws(0.0002, 0.01, log=True)[serves], draws(0.15, 0.85)[serves])
    rho = np.where(full, draws(0.93, 1.05)[serves], rho)
    rate = np.where(idle, rate * 0.02, rate)
    cost_s = rho / rate
    wander, swing = np.zeros(len(rate)), draws(0.05, 0.4)[serves]
    backlog = np.where(full, draws(5.0, 60.0)[serves], 0.0)
    active, requests, queued = np.empty((3, seconds, len(rate)))
    for i in range(seconds):
        wander = 0.97 * wander + 0.24 * random.standard_normal(len(rate))
        came = random.poisson(rate * np.exp(swing * wander - 0.5 * swing**2)).astype(np.float64)
        backlog = backlog + came * cost_s
        done = np.minimum(backlog, 1.0)
        backlog = backlog - done
        active[i], requests[i], queued[i] = done, came, backlog / cost_s
    # A batch of a language model runs while any of its requests does, each for seconds.
    active = np.where(language & ~idle, active**0.35, active)
    return active, requests, queued, cost_s


def _interactive(draws: Draws, work: Work, seconds: int) -> Doubles:
    """A person runs code, reads the result, thinks; most of the time nothing runs."""
    random, n = draws.random, draws.count
    idle = np.array([b == "idle" for b in work.bound])
    runs_s = np.where(idle, draws(2.0, 6.0, log=True), draws(10.0, 90.0, log=True))
    thinks_s = np.where(idle, draws(300.0, 3600.0, log=True), draws(15.0, 200.0, log=True))
    on = random.random(n) < runs_s / (runs_s + thinks_s)
    level = random.uniform(0.3, 1.0, n)
    found = np.zeros((seconds, n))
    for i in range(seconds):
        draw = random.random(n)
        turns = draw < np.where(on, 1.0 / runs_s, 1.0 / thinks_s)
        on = on ^ turns
        level = np.where(turns, random.uniform(0.3, 1.0, n), level)
        found[i] = np.where(on, level, 0.0)
    return found
