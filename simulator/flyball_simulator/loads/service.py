"""Inference services: arrivals, and a queue in front of the ready replicas.

The queue is a first-in, first-out fluid queue, plus the stationary wait of M/M/c below saturation (Sakasegawa, "An
approximation formula Lq = a rho^b / (1 - rho)", 1977), taken as exponential. A request that would wait longer than
``TIMEOUT_S`` fails at once.
"""

import numpy as np
from numpy.random import Generator

from flyball_contracts.config import Service
from flyball_contracts.metrics import WORKLOAD
from flyball_simulator.hardware.site import Ints
from flyball_simulator.loads.arrivals import Arrivals
from flyball_simulator.loads.base import WAITING, Doubles, Moment, Running
from flyball_simulator.loads.queue import FluidQueue, share_within
from flyball_simulator.loads.tokens import SPREAD, Tokens

TIMEOUT_S = 30.0
OUTPUT_SHARE = 0.35
COLUMNS = np.array([
    WORKLOAD.column(f"flyball.workload.{key}")
    for key in (
        "request.rate", "work.rate", "request.active", "request.queued", "token.rate{kind=input}",
        "token.rate{kind=output}", "latency{stat=mean}", "latency{stat=p99}", "errors",
    )
])  # fmt: skip
LATENCIES = [6, 7]
"""Indices of the latencies in ``COLUMNS``."""
LEAST_PACE = 0.01


class ServiceLoad:
    """All inference services; arrays are [count], work is counted in tokens.

    Since the start, ``arrived = in_time + late + lost + queued``; ``in_time`` waited at most the objective's delay.
    ``rate`` [count] is the arrivals per second in the last tick, ``busy`` the share of capacity used, and ``wait_s``
    the wait of a request that arrives now.
    """

    def __init__(self, first: int, configs: tuple[Service, ...], seed: int) -> None:
        self.first, self.count = first, len(configs)
        self._arrivals = Arrivals(configs, seed)
        self._capacity = np.array([c.capacity_tokens_per_s for c in configs])
        self.per_request = np.array([c.tokens_per_request for c in configs])
        self._service_s = np.array([c.service_s for c in configs])
        self._delay_s = [c.delay_s for c in configs]
        self._tokens = Tokens(configs)
        self._queues = [FluidQueue() for _ in configs]
        self.arrived, self.in_time, self.late, self.lost = np.zeros((4, self.count))
        self.rate, self.busy, self.wait_s = np.zeros((3, self.count))

    @property
    def served_s(self) -> Doubles:
        """Seconds that one replica at full load needs for the work served since the start, [count]."""
        seconds: Doubles = (self.in_time + self.late) / self._capacity
        return seconds

    @property
    def queued(self) -> Doubles:
        """Queued work, [count]."""
        return np.array([queue.work for queue in self._queues])

    def step(self, moment: Moment, random: Generator, running: Running, rows: Ints) -> None:
        """Share arrivals evenly among the ready replicas (in reports, among all replicas while none is ready)."""
        mine = slice(self.first, self.first + self.count)
        dt = moment.dt_s
        rate = self._arrivals.take(moment)
        ready = running.ready_of[mine].astype(np.float64)
        capacity = self._capacity_per_slice(running, rows, len(rate))
        served, lost = self._serve(moment.t_s - dt, dt / len(rate), rate, capacity, ready)

        load, capacity_now = rate.mean(axis=0), capacity[-1]
        could = capacity.mean(axis=0) * dt
        self.rate, self.busy = load, np.minimum(served / np.maximum(could, 1e-9), 1.0)
        busy, queued = self.busy, self.queued
        steady = self._chance(busy, ready) * self._mean_wait_s(busy, ready)
        behind = queued / np.maximum(capacity_now, 1e-9)
        self.wait_s = np.where(capacity_now > 0, behind + steady, TIMEOUT_S)
        mean = np.where(capacity_now > 0, self._service_s + behind + steady, np.nan)
        p99 = np.where(capacity_now > 0, SPREAD * self._service_s + behind + 4.6 * steady, np.nan)
        sharers = np.where(ready > 0, ready, np.maximum(running.replicas_of[mine], 1))
        requests = served / dt / self.per_request
        report = np.stack([
            load / self.per_request, load, requests * self._service_s, queued / self.per_request,
            load * (1.0 - OUTPUT_SHARE), served / dt * OUTPUT_SHARE, mean * sharers, p99 * sharers,
            lost / self.per_request,
        ]) / sharers  # fmt: skip

        of = running.workload[rows] - self.first
        works = running.ready[rows]
        # Utilisation saturates long before capacity does: one request keeps a kernel running.
        running.use[rows] = np.where(works, (1.0 - (1.0 - busy) ** 2.5)[of], WAITING)
        running.work[rows] = np.where(works, busy[of], 0.01)
        reports = works | (ready[of] == 0)
        longer = 1.0 / np.maximum(running.pace[rows], LEAST_PACE)  # on a slow GPU each request takes longer
        shown = report.T[of]
        shown[:, LATENCIES] += np.outer((longer - 1.0) * self._service_s[of], (1.0, SPREAD))
        running.report[np.ix_(rows, COLUMNS)] = np.where(reports[:, None], shown, np.nan)
        if self._tokens.any_:
            at_once = requests * self._service_s / np.maximum(ready, 1.0)
            frame_rows = self._tokens.frame_rows(busy, behind + steady, behind + 4.6 * steady, at_once, queued > 0)
            running.answers[rows] = np.where(works[:, None], self._tokens.slowed(frame_rows, of, longer), np.nan)

    def _capacity_per_slice(self, running: Running, rows: Ints, count: int) -> Doubles:
        """Work per second that can be served in each slice, float64[slices, count]."""
        of, pace, share = running.workload[rows] - self.first, running.pace[rows], running.ready_share[rows]
        # A replica that became ready in the tick works in the last part of it.
        part = np.clip(np.arange(1, count + 1)[:, None] - count * (1.0 - share), 0.0, 1.0) * pace
        capacity = np.stack([np.bincount(of, one, self.count).astype(np.float64) for one in part])
        capacity *= self._capacity
        return capacity

    def _serve(self, t_s: float, h: float, rate: Doubles, capacity: Doubles, ready: Doubles) -> tuple[Doubles, Doubles]:
        """Work served and work rejected in a tick, [count] each."""
        served, lost = np.zeros((2, self.count))
        most = np.maximum(capacity, self._capacity) * TIMEOUT_S
        rho = np.minimum(rate / np.maximum(capacity, 1e-9), 1.0)
        chance, tau_s = self._chance(rho, ready), self._mean_wait_s(rho, ready)
        slices = rate.tolist(), capacity.tolist(), most.tolist(), chance.tolist(), tau_s.tolist()
        for j, of_slice in enumerate(zip(*slices, strict=True)):
            for i, (arrives, can, limit, p, tau) in enumerate(zip(*of_slice, strict=True)):
                left, away = self._queues[i].step(t_s + j * h, h, arrives, can, limit)
                lost[i] += away
                for part in left:
                    in_time = part.work * share_within(part, self._delay_s[i], p, tau)
                    self.in_time[i] += in_time
                    self.late[i] += part.work - in_time
                    served[i] += part.work
        self.arrived += rate.sum(axis=0) * h
        self.lost += lost
        return served, lost

    def _chance(self, rho: Doubles, ready: Doubles) -> Doubles:
        """Probability of a wait below saturation."""
        return np.minimum(rho, 0.98) ** (np.sqrt(2.0 * (ready + 1.0)) - 1.0)

    def _mean_wait_s(self, rho: Doubles, ready: Doubles) -> Doubles:
        """Mean wait below saturation, over the requests that wait at all."""
        return self._service_s / np.maximum(ready, 1.0) / (1.0 - np.minimum(rho, 0.98))
