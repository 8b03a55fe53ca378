"""Counters become increases that are never negative and never invented."""

from math import isnan

import numpy as np
from hypothesis import given, strategies as st

from flyball_collectors.base import Counters, fill_row
from flyball_contracts.metrics import HOST


@given(st.lists(st.one_of(st.none(), st.integers(0, 2**50)), min_size=1))
def test_increases_between_known_values(values: list[int | None]) -> None:
    counters = Counters()
    before: int | None = None
    for value in values:
        increase = counters.increase("x", value)
        if before is None or value is None or value < before:
            assert isnan(increase)
        else:
            assert increase == value - before
        before = value


def test_an_instance_that_comes_counts_from_zero_and_one_that_goes_counts_no_more() -> None:
    counters = Counters()
    assert isnan(counters.increase_of_sum("x", {"a": 100.0}))
    assert counters.increase_of_sum("x", {"a": 103.0, "b": 5.0}) == 8.0
    assert counters.increase_of_sum("x", {"b": 6.0}) == 1.0


def test_a_sum_that_was_not_reported_once_starts_anew() -> None:
    counters = Counters()
    counters.increase_of_sum("x", {"a": 1.0})
    assert isnan(counters.increase("x", None))
    assert isnan(counters.increase_of_sum("x", {"a": 9.0}))


def test_one_reset_instance_makes_the_sum_unknown() -> None:
    counters = Counters()
    counters.increase_of_sum("x", {"a": 100.0, "b": 100.0})
    assert isnan(counters.increase_of_sum("x", {"a": 1.0, "b": 200.0}))


def test_a_row_is_nan_where_nothing_was_found() -> None:
    row = fill_row(HOST, {"system.uptime": 5.0}, Counters())
    assert row[HOST.column("system.uptime")] == 5.0
    assert np.isnan(np.delete(row, HOST.column("system.uptime"))).all()
