"""Inference services: load that waves and bursts, and a queue in front of the replicas that are ready.

The queue is a fluid one, Q' = load - capacity, plus the stationary wait of M/M/c below saturation
(Sakasegawa, "An approximation formula Lq = a rho^b / (1 - rho)", 1977). A request that would wait longer than
``TIMEOUT_S`` fails.
"""

import numpy as np
from numpy.random import Generator

from flyball_collectors.fleet.loads.base import WAITING, Moment, Running
from flyball_collectors.fleet.site import Ints
from flyball_contracts.config import Burst, Service
from flyball_contracts.metrics import WORKLOAD

TIMEOUT_S = 30.0
NOISE_S, RANDOM_BURST_S = 20.0, 40.0
"""Correlation time of the noise, and time in which a random burst fades."""
OUTPUT_SHARE = 0.35
COLUMNS = np.array([
    WORKLOAD.column(f"flyball.workload.{key}")
    for key in (
        "request.rate", "work.rate", "request.active", "request.queued", "token.rate{kind=input}",
        "token.rate{kind=output}", "latency{stat=mean}", "latency{stat=p99}", "errors",
    )
])  # fmt: skip


class ServiceLoad:
    """All inference services; arrays are [count], work is counted in tokens."""

    def __init__(self, first: int, configs: tuple[Service, ...]) -> None:
        self.first, self.count = first, len(configs)
        self._bursts = tuple(c.bursts for c in configs)
        self._capacity = np.array([c.capacity_tokens_per_s for c in configs])
        self._per_request = np.array([c.tokens_per_request for c in configs])
        self._service_s = np.array([c.service_s for c in configs])
        self._base = np.array([c.base_load * c.capacity_tokens_per_s * c.replicas for c in configs])
        self._wave = np.array([c.wave_share for c in configs])
        self._wave_s = np.array([c.wave_period_s for c in configs])
        self._noise_share = np.array([c.noise_share for c in configs])
        self._burst_rate = np.array([c.random_bursts_per_hour / 3600.0 for c in configs])
        self._noise = np.zeros(self.count)
        self._surge = np.zeros(self.count)
        self.queued_work = np.zeros(self.count)

    def step(self, moment: Moment, random: Generator, running: Running, rows: Ints) -> None:
        """Arrivals of the tick are shared evenly by the replicas that are ready (by all, while none is)."""
        mine = slice(self.first, self.first + self.count)
        dt, ready = moment.dt_s, running.ready_of[mine].astype(np.float64)
        load = self._arrivals(moment, random)
        able = ready * self._capacity
        backlog = self.queued_work + load * dt
        served = np.minimum(backlog, able * dt)
        most = np.maximum(able, self._capacity) * TIMEOUT_S
        left = backlog - served
        lost = np.maximum(left - most, 0.0)
        self.queued_work = left - lost

        busy = np.where(able > 0, served / np.maximum(able * dt, 1e-9), 0.0)
        rho = np.minimum(busy, 0.98)
        steady = self._service_s * rho ** (np.sqrt(2.0 * (ready + 1.0)) - 1.0) / np.maximum(ready, 1.0) / (1.0 - rho)
        wait = self.queued_work / np.maximum(able, 1e-9) + steady
        mean = np.where(able > 0, self._service_s + wait, np.nan)
        p99 = np.where(
            able > 0, 2.2 * self._service_s + self.queued_work / np.maximum(able, 1e-9) + 4.6 * steady, np.nan
        )
        sharers = np.where(ready > 0, ready, np.maximum(running.replicas_of[mine], 1))
        requests = served / dt / self._per_request
        report = np.stack([
            load / self._per_request, load, requests * self._service_s, self.queued_work / self._per_request,
            load * (1.0 - OUTPUT_SHARE), served / dt * OUTPUT_SHARE, mean * sharers, p99 * sharers,
            lost / self._per_request,
        ]) / sharers  # fmt: skip

        of = running.workload[rows] - self.first
        works = running.ready[rows]
        # Utilisation saturates long before capacity does: one request keeps a kernel running.
        running.use[rows] = np.where(works, (1.0 - (1.0 - busy) ** 2.5)[of], WAITING)
        running.work[rows] = np.where(works, busy[of], 0.01)
        told = works | (ready[of] == 0)
        running.report[np.ix_(rows, COLUMNS)] = np.where(told[:, None], report.T[of], np.nan)

    def _arrivals(self, moment: Moment, random: Generator) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Work that arrives per second."""
        t, dt = moment.t_s, moment.dt_s
        keep = np.exp(-dt / NOISE_S)
        self._noise = keep * self._noise + np.sqrt(1.0 - keep * keep) * random.standard_normal(self.count)
        starts = random.random(self.count) < -np.expm1(-self._burst_rate * dt)
        height = random.uniform(0.3, 0.9, self.count)
        self._surge = self._surge * np.exp(-dt / RANDOM_BURST_S) + np.where(starts, height, 0.0)
        wave = 1.0 + self._wave * np.sin(2.0 * np.pi * t / self._wave_s)
        planned = np.array([max((_factor(b, t) for b in bursts), default=1.0) for bursts in self._bursts])
        return self._base * wave * (planned + self._surge) * np.exp(self._noise_share * self._noise)


def _factor(burst: Burst, t_s: float) -> float:
    """Planned multiple of the usual load: a trapezoid."""
    rise = max(burst.rise_s, 1e-9)
    up = (t_s - burst.from_s) / rise
    down = (burst.from_s + 2.0 * burst.rise_s + burst.hold_s - t_s) / rise
    return 1.0 + (burst.factor - 1.0) * min(1.0, max(0.0, min(up, down)))
