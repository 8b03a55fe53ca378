"""A first-in, first-out fluid queue that tracks the waiting time of the work that leaves it."""

import math
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple


class Departure(NamedTuple):
    """Work that was served and left the queue; its wait, in seconds, varies evenly from ``first_s`` to ``last_s``."""

    work: float
    first_s: float
    last_s: float


@dataclass
class Waiting:
    """Work that arrived evenly from ``first_s`` to ``last_s``."""

    first_s: float
    last_s: float
    work: float


class FluidQueue:
    """The queue of one service; ``work`` is the queued work.

    Within a slice, arrivals and service are even. Arrivals that find a queue of ``most`` are rejected.
    """

    def __init__(self) -> None:
        self._waiting: deque[Waiting] = deque()
        self.work = 0.0

    def step(self, t_s: float, h_s: float, rate: float, capacity: float, most: float) -> tuple[list[Departure], float]:
        """Advance one slice of ``h_s`` from ``t_s`` on; returns the served work, and the amount rejected.

        ``rate`` is the work that arrives per second, ``capacity`` the work that can be served per second.
        """
        departures: list[Departure] = []
        arrives, budget = rate * h_s, capacity * h_s
        backlog = self._serve_old(t_s, capacity, budget, departures)
        if self._waiting or budget <= backlog:
            served = 0.0
        elif arrives <= budget - backlog:
            served = arrives
            # Arrivals wait less and less until the backlog is gone, and then not at all.
            behind = 0.0 if not backlog else rate * min(backlog / max(capacity - rate, 1e-12), h_s)
            departures += [Departure(behind, backlog / capacity, 0.0), Departure(served - behind, 0.0, 0.0)]
        else:
            served = budget - backlog
            departures.append(
                Departure(served, backlog / capacity, backlog / capacity + served / capacity - served / rate)
            )
        rest = arrives - served
        if rest > 0:
            self._waiting.append(Waiting(t_s + h_s * served / arrives, t_s + h_s, rest))
        self.work = math.fsum(one.work for one in self._waiting)
        return [one for one in departures if one.work > 0], self._reject_excess(most)

    def _serve_old(self, t_s: float, capacity: float, budget: float, departures: list[Departure]) -> float:
        """Serve work that was queued before the slice; returns its amount."""
        done = 0.0
        while self._waiting and done < budget:
            first = self._waiting[0]
            taken = min(first.work, budget - done)
            until_s = first.first_s + (first.last_s - first.first_s) * taken / first.work
            departures.append(
                Departure(taken, t_s + done / capacity - first.first_s, t_s + (done + taken) / capacity - until_s)
            )
            done += taken
            first.first_s, first.work = until_s, first.work - taken
            if first.work > 0:
                break
            self._waiting.popleft()
        return done

    def _reject_excess(self, most: float) -> float:
        lost, over = 0.0, self.work - most
        while over > 0 and self._waiting:
            newest = self._waiting[-1]
            gone = min(over, newest.work)
            if gone == newest.work:
                self._waiting.pop()
            else:
                newest.last_s -= (newest.last_s - newest.first_s) * gone / newest.work
                newest.work -= gone
            over -= gone  # counted down to 0: rounding errors of the sums would be rejected for ever
            lost += gone
        self.work -= lost
        return lost


def share_within(wait: Departure, limit_s: float, chance: float, tau_s: float) -> float:
    """Share of some work that waits at most ``limit_s``.

    A random wait is added to the wait in the queue: with probability ``chance``, exponential with mean ``tau_s``.
    """
    low, high = limit_s - max(wait.first_s, wait.last_s), limit_s - min(wait.first_s, wait.last_s)
    if high < 0:
        return 0.0
    start = max(low, 0.0)
    if high - low < 1e-9:
        return 1.0 - chance * math.exp(-start / tau_s)
    tail = chance * tau_s * (math.exp(-start / tau_s) - math.exp(-high / tau_s))
    return max((high - start - tail) / (high - low), 0.0)
