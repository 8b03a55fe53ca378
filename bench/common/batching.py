"""A small simulation of servers with continuous batching, of known capacity.

Every replica decodes up to ``most`` requests at once; a step of b of them takes ``alpha + beta b`` seconds and gives
each a token, so a full replica does ``most / (alpha + beta most)`` tokens a second. Requests arrive by a Poisson
process, are ``tokens`` long on average (lognormal), wait in one queue, go to the replica with the fewest, and are
given up after ``patience_s``. Time moves in steps of ``STEP_S``, within which a batch is constant.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_models.capacity.base import FIELDS

STEP_S = 0.2
STEPS = 5
"""Steps in a tick of one second."""


class Server(NamedTuple):
    """One kind of replica."""

    most: int = 32
    alpha_s: float = 0.02
    beta_s: float = 0.001
    tokens: float = 100.0
    sigma: float = 0.6
    patience_s: float = math.inf

    @property
    def capacity(self) -> float:
        """Tokens per second of a replica whose batch is full."""
        return self.most / (self.alpha_s + self.beta_s * self.most)


def simulate(
    server: Server, replicas: int, load: NDArray[np.float64], seed: int, speed: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Return the telemetry of each tick, float64[T, F] in the order of the capacity models' ``FIELDS``.

    What servers report of their own answers is unknown: NaN.

    ``load[T]`` is the tokens that arrive per second on average over the capacity of all replicas at full speed,
    ``speed[T]`` the speed of the replicas, 1 where nothing is wrong.
    """
    random = np.random.default_rng(seed)
    left = np.zeros((replicas, server.most))
    since = np.zeros((replicas, server.most))
    queue: list[tuple[float, float]] = []
    ticks = load.shape[0]
    rows = np.full((ticks, len(FIELDS)), np.nan)
    mean = math.log(server.tokens) - server.sigma**2 / 2
    per_step = server.capacity * replicas / server.tokens * STEP_S
    for t in range(ticks):
        pace = 1.0 if speed is None else float(speed[t])
        work = requests = done = active = failed = 0.0
        latencies: list[float] = []
        for step in range(STEPS):
            now = t + step * STEP_S
            for _ in range(random.poisson(float(load[t]) * per_step)):
                tokens = max(1.0, float(random.lognormal(mean, server.sigma)))
                work += tokens
                requests += 1
                queue.append((tokens, now))
            while queue and now - queue[0][1] > server.patience_s:
                del queue[0]
                failed += 1
            busy = (left > 0).sum(axis=1)
            while queue and busy.min() < server.most:
                at = int(busy.argmin())
                slot = int(np.argmin(left[at]))
                left[at, slot], since[at, slot] = queue.pop(0)
                busy[at] += 1
            gained = STEP_S * pace / (server.alpha_s + server.beta_s * busy)
            got = np.minimum(left, gained[:, None])
            ended = (left > 0) & (left <= gained[:, None])
            latencies += (now + STEP_S - since[ended]).tolist()
            left -= got
            done += float(got.sum())
            active += float(busy.sum()) / STEPS
        rows[t, :9] = (
            replicas, work, requests, active, len(queue), min(1.0, 3.0 * active / (replicas * server.most)),
            np.mean(latencies) if latencies else np.nan, done, failed,
        )  # fmt: skip
    return rows
