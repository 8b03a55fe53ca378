"""Starts matched from counts, and the quantile of few of them."""

import math

import pytest
from hypothesis import given, settings, strategies as st

from flyball_models.capacity.starts import LONGEST_S, MOST_AT_ONCE, Counts, Sample, advance, p90


def reported(*steps: tuple[float, int, int], before: Counts | None = None) -> tuple[Counts, list[Sample]]:
    """Counts after (time, replicas, ready) was told again and again."""
    now = before or Counts(0.0, steps[0][1], steps[0][2])
    samples: list[Sample] = []
    for step in steps:
        now, ended = advance(now, *step)
        samples += ended
    return now, samples


def test_a_start_is_from_appearing_to_ready() -> None:
    now, samples = reported((0, 2, 2), (10, 4, 2), (70, 4, 3), (95, 4, 4))
    assert samples == [Sample(60.0, True), Sample(85.0, True)]
    assert now.open == ()


def test_the_first_replica_starts_cold() -> None:
    assert reported((0, 0, 0), (10, 1, 0), (310, 1, 1))[1] == [Sample(300.0, False)]


def test_what_is_ready_at_once_says_nothing() -> None:
    assert reported((0, 1, 1), (10, 5, 5)) == (Counts(10, 5, 5), [])


def test_the_newest_start_is_cancelled_first() -> None:
    now, samples = reported((0, 2, 2), (10, 3, 2), (40, 5, 2), (50, 4, 2), (100, 4, 4))
    assert [s.seconds for s in samples] == [90.0, 60.0]
    assert now.open == ()


def test_ready_replicas_that_go_cancel_no_start() -> None:
    assert [s.seconds for s in reported((0, 3, 3), (10, 4, 3), (20, 3, 2), (50, 3, 3))[1]] == [40.0]


def test_a_batch_counts_as_one_event_and_a_stuck_start_as_none() -> None:
    assert len(reported((0, 0, 0), (1, 20, 0), (30, 20, 20))[1]) == MOST_AT_ONCE
    assert reported((0, 0, 0), (1, 1, 0), (LONGEST_S + 2, 1, 1))[1] == []


def test_few_samples_lean_on_the_seed() -> None:
    assert p90([], 60.0) == 60.0
    assert 20.0 < p90([10.0], 60.0) < 60.0
    assert p90([10.0] * 30, 60.0) == pytest.approx(10.0, rel=0.2)
    assert p90([300.0] * 3, 60.0) == pytest.approx(math.sqrt(300 * 60))
    assert p90([*[50.0] * 27, *[200.0] * 5], 60.0) > 150


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=40))
def test_any_counts_keep_as_many_starts_open_as_are_not_ready(steps: list[tuple[int, int]]) -> None:
    now = Counts(0.0, 0, 0)
    for i, (replicas, ready) in enumerate(steps):
        now, ended = advance(now, 10.0 * (i + 1), replicas, min(ready, replicas))
        assert sum(n for _, n, _ in now.open) <= now.replicas - now.ready
        assert all(n > 0 for _, n, _ in now.open)
        assert all(0 < s.seconds <= 10.0 * (i + 1) for s in ended)
        assert [since for since, _, _ in now.open] == sorted(since for since, _, _ in now.open)
