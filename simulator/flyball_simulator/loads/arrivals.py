"""Arrivals of work at services: a recorded series, or a season, a wave, bursts and noise."""

import math
from typing import Any

import numpy as np

from flyball_contracts.config import Burst, Service
from flyball_simulator.loads.base import Doubles, Moment

SLICE_S = 1.0
"""Longest slice in which demand and queues are simulated, whatever the length of a tick."""
NOISE_S, RANDOM_BURST_S, DAY_S = 20.0, 40.0, 86_400.0
"""Correlation time of the noise, decay time of a random burst, period of the season."""
BLOCK = 64
AHEAD = 1 << 20


def slices_in(dt_s: float) -> int:
    """Number of slices of a tick."""
    return max(1, math.ceil(dt_s / SLICE_S - 1e-9))


class Arrivals:
    """Demand of all services; arrays are [count].

    It depends on the seed and on time only, not on replicas or the length of ticks: the random numbers of a second are
    derived from the number of that second.
    """

    def __init__(self, configs: tuple[Service, ...], seed: int) -> None:
        self._configs, self._seed, self._count = configs, seed, len(configs)
        self._base = np.array([c.base_load * c.capacity_tokens_per_s * c.replicas for c in configs])
        self._wave = np.array([c.wave_share for c in configs])
        self._wave_s = np.array([c.wave_period_s for c in configs])
        self._daily = np.array([c.daily_share for c in configs])
        self._peak_s = np.array([c.daily_peak_s for c in configs])
        self._at_start = self._season(np.zeros(1))[0]
        self._noise_share = np.array([c.noise_share for c in configs])
        self._burst_rate = np.array([c.random_bursts_per_hour / 3600.0 for c in configs])
        self._noise, self._surge = np.zeros(self._count), np.zeros(self._count)
        self._series = [(i, np.array(c.arrivals), c.arrivals_step_s) for i, c in enumerate(configs) if c.arrivals]
        self._block, self._drawn = -1, np.zeros((0, 3, 0))

    def take(self, moment: Moment) -> Doubles:
        """Work that arrives per second in each slice of a tick, float64[slices, count]; ticks come in order."""
        count = slices_in(moment.dt_s)
        h = moment.dt_s / count
        number = moment.number * count - count + 1 + np.arange(count)
        middle_s = moment.t_s - moment.dt_s + (np.arange(count) + 0.5) * h
        keep, fades = math.exp(-h / NOISE_S), math.exp(-h / RANDOM_BURST_S)
        spread, chance = math.sqrt(1.0 - keep * keep), -np.expm1(-self._burst_rate * h)
        noise, surge = np.empty((2, count, self._count))
        for j in range(count):
            normal, draw, height = self._draws(int(number[j]))
            self._noise = keep * self._noise + spread * normal
            self._surge = self._surge * fades + np.where(draw < chance, height, 0.0)
            noise[j], surge[j] = self._noise, self._surge
        wave = 1.0 + self._wave * np.sin(2.0 * np.pi * middle_s[:, None] / self._wave_s)
        planned = np.array([[_factor(c.bursts, t) for c in self._configs] for t in middle_s.tolist()])
        season = self._season(middle_s) / self._at_start
        usual = self._base * season * wave * np.exp(self._noise_share * noise)
        work = np.asarray(usual * (planned + surge), np.float64)
        for i, series, step_s in self._series:
            work[:, i] = series[np.maximum(middle_s // step_s, 0.0).astype(np.int64) % len(series)]
        return work

    def _season(self, t_s: "np.ndarray[Any, np.dtype[np.floating[Any]]]") -> Doubles:
        angle = 2.0 * np.pi * (t_s[:, None] - self._peak_s) / DAY_S
        return np.asarray(1.0 + self._daily * np.cos(angle), np.float64)

    def _draws(self, number: int) -> Doubles:
        """Normal, uniform and burst height of one slice, float64[3, count]."""
        block, place = divmod(number + AHEAD, BLOCK)
        if block != self._block:
            random = np.random.Generator(np.random.Philox(key=[self._seed, AHEAD * AHEAD + block]))
            shape = BLOCK, self._count
            kinds = random.standard_normal(shape), random.random(shape), random.uniform(0.3, 0.9, shape)
            self._block, self._drawn = block, np.stack(kinds, axis=1)
        drawn: Doubles = self._drawn[place]
        return drawn


def _factor(bursts: tuple[Burst, ...], t_s: float) -> float:
    """Planned multiple of the usual load: the maximum of the trapezoids."""
    found = 1.0
    for burst in bursts:
        rise = max(burst.rise_s, 1e-9)
        up = (t_s - burst.from_s) / rise
        down = (burst.from_s + 2.0 * burst.rise_s + burst.hold_s - t_s) / rise
        found = max(found, 1.0 + (burst.factor - 1.0) * min(1.0, max(0.0, min(up, down))))
    return found
