"""Padded capacity: bucket sizes, growth that keeps content, clear refusals."""

import pytest
from hypothesis import given, strategies as st

from flyball_models._padding import bucket, grow
from flyball_models.forecast import conformal, damped


@given(st.integers(0, 3_000_000))
def test_bucket_is_the_least_of_64_96_128_192_that_fits(n: int) -> None:
    size = bucket(n)
    assert size >= n
    assert size == 64 or 2 * size / 3 <= n
    assert size in {64 * 2**power for power in range(17)} | {96 * 2**power for power in range(17)}


def test_the_first_buckets() -> None:
    assert [bucket(n) for n in (0, 64, 65, 97, 129, 256, 257, 1025)] == [64, 64, 96, 128, 192, 256, 384, 1536]


def test_a_negative_number_of_series_is_refused() -> None:
    with pytest.raises(ValueError, match="pass 0 or more"):
        bucket(-1)


def test_shrinking_is_refused() -> None:
    with pytest.raises(ValueError, match="16 slots cannot hold the 64 in use"):
        grow(damped.init(64), 16, damped.init)


def test_growth_under_another_configuration_is_refused() -> None:
    state = conformal.init(16, conformal.Config(horizons=4, lead=2))
    with pytest.raises(ValueError, match="pass the configuration"):
        grow(state, 64, conformal.init)
