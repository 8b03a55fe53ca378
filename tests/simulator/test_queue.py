"""The fluid queue: nothing is lost or made up, and waits obey Little's law."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given, settings

from flyball_simulator.loads.queue import Departure, FluidQueue, share_within

H = 0.5
rates = st.floats(0.0, 1e5)
slices = st.lists(st.tuples(rates, st.one_of(st.just(0.0), st.floats(1.0, 1e5))), min_size=1, max_size=30)


@given(slices, st.floats(10.0, 1e6))
@example([(28467.89279604969, 33140.56347207714), (91184.36537836681, 0.0)], 5713.012694306313)
def test_what_arrives_is_served_or_turned_away_or_waits(todo: list[tuple[float, float]], most: float) -> None:
    queue, arrived, served, lost = FluidQueue(), 0.0, 0.0, 0.0
    for i, (rate, able) in enumerate(todo):
        left, away = queue.step(i * H, H, rate, able, most)
        arrived, lost = arrived + rate * H, lost + away
        done = sum(one.work for one in left)
        assert done <= able * H * (1 + 1e-9) + 1e-9
        assert all(min(one.first_s, one.last_s) > -1e-6 for one in left)
        assert queue.work <= most * (1 + 1e-9)
        served += done
    assert served + lost + queue.work == pytest.approx(arrived, rel=1e-9, abs=1e-6)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.floats(0.0, 1e4), st.floats(10.0, 1e4)), min_size=1, max_size=20))
def test_the_sum_of_all_waits_is_the_area_under_the_queue(todo: list[tuple[float, float]]) -> None:
    """Little's law, with the area worked out from the balance of the queue alone."""
    queue, waits, area, level = FluidQueue(), 0.0, 0.0, 0.0
    total = sum(rate * H for rate, _ in todo)
    drain = [(0.0, 1e4)] * (math.ceil(total / (1e4 * H)) + 1)
    for i, (rate, able) in enumerate([*todo, *drain]):
        left, _ = queue.step(i * H, H, rate, able, math.inf)
        waits += sum(one.work * 0.5 * (one.first_s + one.last_s) for one in left)
        empty_s = level / (able - rate) if able > rate else math.inf
        lasts_s = min(empty_s, H)
        area += lasts_s * (level + 0.5 * (rate - able) * lasts_s)
        level = 0.0 if empty_s <= H else level + (rate - able) * H
    assert queue.work == pytest.approx(0.0, abs=1e-6)
    assert waits == pytest.approx(area, rel=1e-6, abs=1e-3)


@given(st.floats(0.0, 20.0), st.floats(0.0, 20.0), st.floats(0.01, 20.0), st.floats(0.0, 1.0), st.floats(0.01, 10.0))
def test_the_share_in_time_is_the_mean_over_all_waits(
    first_s: float, last_s: float, limit_s: float, chance: float, tau_s: float
) -> None:
    room_s = limit_s - np.linspace(first_s, last_s, 20_001)
    expected = np.where(room_s >= 0, 1.0 - chance * np.exp(-np.maximum(room_s, 0.0) / tau_s), 0.0).mean()
    found = share_within(Departure(1.0, first_s, last_s), limit_s, chance, tau_s)
    assert found == pytest.approx(expected, abs=2e-3)
