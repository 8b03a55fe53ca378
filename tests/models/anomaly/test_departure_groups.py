"""Departures where groups change: who joins a group makes nobody else depart."""

import numpy as np

from flyball_models.anomaly import departure, tail

RATE = 1e-3 / 86_400.0


def test_many_that_join_a_group_move_nobody_else() -> None:
    """Sixteen warm GPUs are freed beside eight that have been idle for long, and cool down."""
    n, floor = 24, np.array([3.0], np.float32)
    random, group, mask = np.random.default_rng(2), np.repeat([0, 1], (8, 16)).astype(np.int32), np.ones(24, bool)
    state, known = departure.init(n, 1), tail.init(2, RATE)
    for tick in range(900):
        if tick == 600:
            group = np.zeros(n, np.int32)
            fresh = departure.init(n, 1)
            state = departure.State._make(
                np.concatenate([old[..., :8], new[..., 8:]], axis=-1) for old, new in zip(state, fresh, strict=True)
            )
        since = max(0.0, (tick - 600) * 1.0)
        x = np.where(np.arange(n) < 8, 30.0, 30.0 + 30.0 * np.exp(-since / 25.0)) + random.normal(0, 0.3, n)
        state, known, found = departure.step(state, known, x[:, None].astype(np.float32), mask, group, floor, 1.0, RATE)
        assert not found.ratio.any()
