"""Token metrics of language model servers: times to tokens, and use of the KV cache.

A prompt is read in parallel and an answer is written token by token, so a prompt token takes an eighth of the time of
an answer token. A request waits before its first token.
"""

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.config import Service
from flyball_contracts.metrics import SERVING
from flyball_simulator.hardware.site import Floats, Ints
from flyball_simulator.loads.base import Doubles

PROMPT_SHARE = 0.125
SPREAD = 2.2
"""99th percentile of a service time over its mean, as for whole requests."""
SLOWING = 0.5
"""A full batch writes tokens slower than an empty one by this share; the mean of both is the configured time."""
FULL = 0.95
"""Share of the cache that servers fill before requests wait."""
KEYS = ("time_to_first_token{stat=mean}", "time_to_first_token{stat=p99}", "time_per_output_token{stat=mean}",
        "time_per_output_token{stat=p99}")  # fmt: skip
COLUMNS = [*(SERVING.column(f"gen_ai.server.{key}") for key in KEYS),
           SERVING.column("flyball.workload.kv_cache.utilization")]  # fmt: skip


class Tokens:
    """The services; those with a ``model`` report token metrics. Arrays are [count]."""

    def __init__(self, configs: tuple[Service, ...]) -> None:
        models = [c.model for c in configs]
        self._has_model = np.array([model is not None for model in models], np.bool_)
        self.any_ = bool(self._has_model.any())
        prompt = np.array([model.prompt_tokens if model else 1.0 for model in models])
        answer = np.array([model.answer_tokens if model else 1.0 for model in models])
        service_s = np.array([c.service_s for c in configs])
        self._prompt_s = service_s * PROMPT_SHARE * prompt / (PROMPT_SHARE * prompt + answer)
        self._token_s = (service_s - self._prompt_s) / answer
        self._most = np.array([model.most_at_once if model else 1.0 for model in models])

    def frame_rows(
        self, busy: Doubles, wait_s: Doubles, wait_p99_s: Doubles, at_once: Doubles, waits: NDArray[np.bool_]
    ) -> Floats:
        """Rows of the serving frames, float32[count, metrics]; ``at_once`` is the number of requests per replica."""
        token_s = self._token_s * (1.0 + SLOWING * (busy - 0.5))
        cache = np.where(waits, FULL, FULL * np.minimum(at_once / self._most, 1.0))
        rows = np.full((len(busy), len(SERVING)), np.nan, np.float32)
        rows[:, COLUMNS] = np.stack([
            self._prompt_s + wait_s, SPREAD * self._prompt_s + wait_p99_s, token_s, SPREAD * token_s, cache,
        ]).T  # fmt: skip
        rows[~self._has_model] = np.nan
        return rows

    def slowed(self, rows: Floats, of: Ints, longer: Doubles) -> Floats:
        """Rows of the replicas of services ``of`` [R], whose prompts and tokens take ``longer`` [R] times as long."""
        found = rows[of]
        found[:, COLUMNS[:2]] += np.outer((longer - 1.0) * self._prompt_s[of], (1.0, SPREAD))
        found[:, COLUMNS[2:4]] *= longer[:, None]
        return found
