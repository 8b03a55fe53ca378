"""First in, first out: a fluid queue that knows how long what leaves it has waited."""

import math
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple


class Left(NamedTuple):
    """Some work that left the queue served; its wait, in seconds, goes evenly from ``first_s`` to ``last_s``."""

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
    """The queue in front of one service; ``work`` is what waits.

    Between two slices, arrivals and service are even. What finds a queue of ``most`` is turned away.
    """

    def __init__(self) -> None:
        self._waiting: deque[Waiting] = deque()
        self.work = 0.0

    def step(self, t_s: float, h_s: float, rate: float, able: float, most: float) -> tuple[list[Left], float]:
        """One slice of ``h_s`` from ``t_s`` on: what was served, and how much work was turned away.

        ``rate`` is the work that arrives per second, ``able`` what can be served per second.
        """
        left: list[Left] = []
        arrives, budget = rate * h_s, able * h_s
        backlog = self._serve_old(t_s, able, budget, left)
        if self._waiting or budget <= backlog:
            served = 0.0
        elif arrives <= budget - backlog:
            served = arrives
            # Arrivals wait less and less until the backlog is gone, and then not at all.
            behind = 0.0 if not backlog else rate * min(backlog / max(able - rate, 1e-12), h_s)
            left += [Left(behind, backlog / able, 0.0), Left(served - behind, 0.0, 0.0)]
        else:
            served = budget - backlog
            left.append(Left(served, backlog / able, backlog / able + served / able - served / rate))
        rest = arrives - served
        if rest > 0:
            self._waiting.append(Waiting(t_s + h_s * served / arrives, t_s + h_s, rest))
        self.work = math.fsum(one.work for one in self._waiting)
        return [one for one in left if one.work > 0], self._turn_away(most)

    def _serve_old(self, t_s: float, able: float, budget: float, left: list[Left]) -> float:
        """Serve what waited before the slice; returns how much it was."""
        done = 0.0
        while self._waiting and done < budget:
            first = self._waiting[0]
            taken = min(first.work, budget - done)
            until_s = first.first_s + (first.last_s - first.first_s) * taken / first.work
            left.append(Left(taken, t_s + done / able - first.first_s, t_s + (done + taken) / able - until_s))
            done += taken
            first.first_s, first.work = until_s, first.work - taken
            if first.work > 0:
                break
            self._waiting.popleft()
        return done

    def _turn_away(self, most: float) -> float:
        lost, over = 0.0, self.work - most
        while over > 0 and self._waiting:
            newest = self._waiting[-1]
            gone = min(over, newest.work)
            if gone == newest.work:
                self._waiting.pop()
            else:
                newest.last_s -= (newest.last_s - newest.first_s) * gone / newest.work
                newest.work -= gone
            over -= gone  # counted down to 0: what rounding leaves of the sums would be turned away for ever
            lost += gone
        self.work -= lost
        return lost


def share_within(wait: Left, limit_s: float, chance: float, tau_s: float) -> float:
    """Share of some work that waits at most ``limit_s``.

    To its wait in the queue comes one by chance: with probability ``chance``, and exponential with mean ``tau_s``.
    """
    low, high = limit_s - max(wait.first_s, wait.last_s), limit_s - min(wait.first_s, wait.last_s)
    if high < 0:
        return 0.0
    start = max(low, 0.0)
    if high - low < 1e-9:
        return 1.0 - chance * math.exp(-start / tau_s)
    tail = chance * tau_s * (math.exp(-start / tau_s) - math.exp(-high / tau_s))
    return max((high - start - tail) / (high - low), 0.0)
