"""How much of each second the work runs: without a break, with pauses to save and evaluate, or as it is asked for."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_simulator.profiles.draws import Doubles, Draws
from flyball_simulator.profiles.work import Work


class Load(NamedTuple):
    """``active`` [T, N]: share of each second in iterations; ``saving`` [T, N] the same in writing a checkpoint.

    ``evaluating`` [T, N] is 1 while an iteration has no backward pass. Of servers: ``requests`` [T, N] that arrive per
    second, ``queued`` [T, N] that wait, ``cost_s`` [N] what each takes; NaN of others.
    """

    active: Doubles
    saving: Doubles
    evaluating: Doubles
    requests: Doubles
    queued: Doubles
    cost_s: Doubles


def loads(draws: Draws, work: Work, seconds: int) -> Load:
    """Loads over some seconds, from an arbitrary moment of each workload's life."""
    n = draws.count
    t = np.arange(1, seconds + 1, dtype=np.float64)[:, None]
    asked, opened = work.is_kind("inference"), work.is_kind("interactive")
    learns = work.is_kind("training", "fine_tuning")
    active = np.ones((seconds, n))
    saving = _within(draws, t, draws(240.0, 1800.0, log=True), draws(4.0, 40.0, log=True)) * learns
    evaluating = _within(draws, t, draws(60.0, 600.0, log=True), draws(5.0, 40.0, log=True))
    evaluating = evaluating * work.is_kind("fine_tuning")
    active -= saving
    requests, queued = np.full((2, seconds, n), np.nan)
    cost_s = np.full(n, np.nan)
    served, requests[:, asked], queued[:, asked], cost_s[asked] = _served(draws, work, seconds, asked)
    active[:, asked] = served
    active[:, opened] = _cells(draws, work, seconds)[:, opened]
    return Load(active, saving, evaluating, requests, queued, cost_s)


def _within(draws: Draws, t: Doubles, every_s: Doubles, length_s: Doubles) -> Doubles:
    """Share of each second that lies in a pause, which comes at regular times."""
    start = draws.random.random(draws.count) * every_s
    inside = (t + start) % every_s < np.minimum(length_s, 0.3 * every_s)
    return inside.astype(np.float64)


def _served(
    draws: Draws, work: Work, seconds: int, asked: NDArray[np.bool_]
) -> tuple[Doubles, Doubles, Doubles, Doubles]:
    """One server each: Poisson arrivals whose rate wanders and bursts, served in the order of arrival."""
    random = draws.random
    rate = draws(*work.of("rate_hz"), log=True)[asked]
    idle = np.array(work.bound)[asked] == "idle"
    full = np.array(work.bound)[asked] == "memory_capacity"
    language = np.array(work.family)[asked] == "transformer"
    rho = np.where(idle, draws(0.0002, 0.01, log=True)[asked], draws(0.15, 0.85)[asked])
    rho = np.where(full, draws(0.93, 1.05)[asked], rho)
    rate = np.where(idle, rate * 0.02, rate)
    cost_s = rho / rate
    wander, swing = np.zeros(len(rate)), draws(0.05, 0.4)[asked]
    backlog = np.where(full, draws(5.0, 60.0)[asked], 0.0)
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


def _cells(draws: Draws, work: Work, seconds: int) -> Doubles:
    """A person runs a cell, looks at the result, thinks; most of the time nothing runs."""
    random, n = draws.random, draws.count
    idle = np.array([b == "idle" for b in work.bound])
    runs_s = np.where(idle, draws(2.0, 6.0, log=True), draws(10.0, 90.0, log=True))
    thinks_s = np.where(idle, draws(300.0, 3600.0, log=True), draws(15.0, 200.0, log=True))
    on = random.random(n) < runs_s / (runs_s + thinks_s)
    level = random.uniform(0.3, 1.0, n)
    found = np.zeros((seconds, n))
    for i in range(seconds):
        luck = random.random(n)
        turns = luck < np.where(on, 1.0 / runs_s, 1.0 / thinks_s)
        on = on ^ turns
        level = np.where(turns, random.uniform(0.3, 1.0, n), level)
        found[i] = np.where(on, level, 0.0)
    return found
