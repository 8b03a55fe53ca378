"""Peer deviation: NumPy medians as oracle, small groups, missing values, persistence."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from flyball_models.anomaly import peers

N, M = 16, 3
FLOOR = np.array([0.01, 1.0, 5.0], np.float32)
Floats = np.ndarray[Any, Any]


def slow(x: Floats, group: Floats, mask: Floats) -> Floats:
    z = np.zeros(x.shape)
    for g in set(group.tolist()):
        if not 0 <= g < len(x):
            continue
        for m in range(x.shape[1]):
            members = [i for i in range(len(x)) if group[i] == g and mask[i] and np.isfinite(x[i, m])]
            if len(members) >= 3:
                values = x[members, m].astype(float)
                median = np.median(values)
                mad = np.median(np.abs(values - median))
                z[members, m] = (values - median) / (1.4826 * mad + FLOOR[m])
    return z


def fleet(seed: int, n: int = N) -> tuple[Floats, Floats, Floats]:
    rng = np.random.default_rng(seed)
    x = rng.normal(50, 10, (n, M)).round(int(rng.integers(0, 4))).astype(np.float32)
    x[rng.random((n, M)) < 0.1] = np.nan
    return x, rng.integers(-1, rng.integers(1, n + 1) + 1, n).astype(np.int32), rng.random(n) < 0.8


@given(st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=100)
def test_it_is_median_and_mad_within_each_group(seed: int) -> None:
    x, group, mask = fleet(seed)
    z = np.asarray(peers.deviations(x, group, mask, FLOOR))
    np.testing.assert_allclose(z, slow(x, group, mask), rtol=1e-4, atol=1e-4)


@given(st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=20)
def test_order_and_padding_change_no_bit(seed: int) -> None:
    x, group, mask = fleet(seed)
    z = np.asarray(peers.deviations(x, group, mask, FLOOR))
    order = np.random.default_rng(seed).permutation(N)
    np.testing.assert_array_equal(np.asarray(peers.deviations(x[order], group[order], mask[order], FLOOR)), z[order])
    wide = np.full((64, M), np.nan, np.float32)
    wide[:N] = x
    groups = np.zeros(64, np.int32)
    groups[:N] = np.where(group == N, -1, group)  # N is no group of 16, but is one of 64
    seen = np.zeros(64, np.bool_)
    seen[:N] = mask
    np.testing.assert_array_equal(np.asarray(peers.deviations(wide, groups, seen, FLOOR))[:N], z)


def test_a_straggler_stands_out_and_a_change_of_the_whole_job_does_not() -> None:
    rng = np.random.default_rng(2)
    group = (np.arange(N) // 8).astype(np.int32)
    mask = np.ones(N, np.bool_)
    x = rng.uniform(89, 91, (N, M)).astype(np.float32)
    x[:8] -= 85  # job 0 is in another phase
    x[11] -= 30
    z = np.abs(np.asarray(peers.deviations(x, group, mask, np.ones(M, np.float32))))
    assert z[11].min() > 4
    assert np.delete(z, 11, axis=0).max() < 4


def test_equal_peers_and_groups_of_two_give_zero_not_nan() -> None:
    x = np.full((N, M), 7.0, np.float32)
    assert (np.asarray(peers.deviations(x, np.zeros(N, np.int32), np.ones(N, np.bool_), FLOOR)) == 0).all()
    x[::2] = 1.0
    pairs = (np.arange(N) // 2).astype(np.int32)
    assert (np.asarray(peers.deviations(x, pairs, np.ones(N, np.bool_), FLOOR)) == 0).all()


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40), st.integers(1, 5), st.integers(0, 4))
@settings(deadline=None, max_examples=60)
def test_an_alarm_is_k_of_the_last_m_values(ticks: list[tuple[bool, bool]], k: int, more: int) -> None:
    m = k + more
    state = peers.init(N, M)
    seen: list[bool] = []
    for large, known in ticks:
        z = np.full((N, M), -4.5 if large else 3.5, np.float32)
        state, alarm = peers.persist(state, z, np.full(N, known), k, m)
        if known:
            seen.append(large)
        assert (np.asarray(alarm) == (sum(seen[-m:]) >= k)).all()


@pytest.mark.parametrize(("k", "m"), [(0, 3), (4, 3), (1, 33)])
def test_impossible_windows_are_refused(k: int, m: int) -> None:
    with pytest.raises(ValueError, match="pass 1 <= k <= m <= 32"):
        peers.persist(peers.init(N, M), np.zeros((N, M), np.float32), np.ones(N, np.bool_), k, m)
