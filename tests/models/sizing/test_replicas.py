"""Replicas: exact fits, limits, the unknown, and the lead-time band."""

import math
from typing import Any

import numpy as np
from hypothesis import given, strategies as st

from flyball_models.sizing import replicas

Floats = np.ndarray[Any, Any]


def required(q: float, capacity: float, target: float, low: int, high: int) -> int:
    one = np.ones(16, np.float32)
    out = replicas.required(
        one * np.float32(q), one * np.float32(capacity), one * np.float32(target),
        np.full(16, low, np.int32), np.full(16, high, np.int32),
    )  # fmt: skip
    assert out.dtype == np.int32
    return int(out[0])


def band(current: int, up: int, down: int) -> int:
    return int(replicas.band(*(np.full(16, value, np.int32) for value in (current, up, down)))[0])


@given(st.integers(0, 3000), st.floats(0.5, 50, width=32), st.sampled_from([0.5, 0.6, 0.7, 0.9, 1.0]))
def test_an_exact_fit_costs_no_replica_more(n: int, capacity: float, target: float) -> None:
    assert required(n * capacity * target, capacity, target, 0, 10_000) == n


# A quotient below the normal numbers is none: XLA flushes it to zero.
DEMAND = st.just(0.0) | st.floats(2.0**-60, 2.0**30, width=32)


@given(DEMAND, st.floats(2.0**-10, 2.0**20, width=32), st.integers(0, 5), st.integers(5, 500))
def test_it_serves_the_demand_within_the_limits(q: float, capacity: float, low: int, high: int) -> None:
    n = required(q, capacity, 0.7, low, high)
    assert low <= n <= high
    assert abs(n - min(max(math.ceil(q / (capacity * 0.7)), low), high)) <= 1
    assert n == high or n * capacity * 0.7 >= q * (1 - 1e-5)


def test_what_is_not_known_is_not_a_number_of_replicas() -> None:
    nan = float("nan")
    assert required(nan, 1, 1, 0, 9) == replicas.UNKNOWN
    assert required(1, nan, 1, 0, 9) == replicas.UNKNOWN
    assert required(1, 0, 1, 0, 9) == replicas.UNKNOWN
    assert required(1, 1, 0, 0, 9) == replicas.UNKNOWN
    assert required(-1, 1, 1, 0, 9) == replicas.UNKNOWN
    assert required(0, 1, 1, 2, 9) == 2


def test_a_demand_beyond_all_bounds_is_the_maximum() -> None:
    assert required(3e38, 1e-3, 1, 2, 9) == 9


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100))
def test_the_band_moves_no_further_than_it_must(current: int, up: int, down: int) -> None:
    n = band(current, up, down)
    assert n >= up
    if up <= current <= down:
        assert n == current
    elif up <= down:
        assert n == (up if current < up else down)


def test_an_unknown_side_does_not_bind() -> None:
    unknown = replicas.UNKNOWN
    assert band(7, unknown, unknown) == 7
    assert band(7, 9, unknown) == 9
    assert band(7, unknown, 4) == 4
    assert band(0, unknown, unknown) == 0
