"""Detectors see means over five seconds, whatever a tick is, and no value counts for another device."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Tick
from flyball_streams.engine.node.window import BLOCK, Means, Window
from flyball_streams.engine.packing import pack, unpack

Values = NDArray[np.float32]
VALUES = st.one_of(st.just(float("nan")), st.floats(-1e6, 1e6, width=32))


def run(window: Window, rows: list[Values], first: int = 0, period_s: float = 1.0) -> list[Means]:
    found = list[Means]()
    for index, row in enumerate(rows, first):
        means = window.add(
            row, np.asarray(np.isfinite(row).any(axis=1)), Tick(index=index, period_ns=round(period_s * NS_PER_S))
        )
        found += [means] if means is not None else []
    return found


@given(st.lists(st.tuples(VALUES, VALUES), min_size=5, max_size=5))
def test_a_mean_is_taken_over_the_ticks_that_have_a_value(pairs: list[tuple[float, float]]) -> None:
    rows = [np.array([pair], np.float32) for pair in pairs]
    (found,) = run(Window(1, 2, phase=-4), rows)
    for column in range(2):
        known = [row[0, column] for row in rows if np.isfinite(row[0, column])]
        expected = np.mean(np.array(known, np.float64)) if known else np.nan
        assert found.values[0, column] == pytest.approx(expected, rel=1e-4, abs=1.0, nan_ok=True)
    assert found.mask[0] == any(np.isfinite(row).any() for row in rows)
    assert found.elapsed_s == 5.0


@pytest.mark.parametrize(("period_s", "ends"), [(1.0, 4), (2.0, 10), (5.0, 20), (10.0, 20)])
def test_a_window_is_five_seconds_or_one_tick_where_that_is_longer(period_s: float, ends: int) -> None:
    rows = [np.full((1, 1), float(i), np.float32) for i in range(20)]
    found = run(Window(1, 1), rows, period_s=period_s)
    assert len(found) == ends
    assert found[-1].elapsed_s == pytest.approx(max(period_s, round(5.0 / period_s) * period_s))


def test_windows_of_different_turns_end_in_different_ticks() -> None:
    rows = [np.ones((1, 1), np.float32)]
    at = [[i for i in range(5) if run(Window(1, 1, phase=turn), rows, first=i)] for turn in range(5)]
    assert sorted(at) == [[0], [1], [2], [3], [4]]


def test_a_window_goes_on_after_a_restart_and_forgets_who_left() -> None:
    rows = [np.arange(8, dtype=np.float32).reshape(4, 2) + i for i in range(5)]
    whole, window = Window(4, 2, phase=-4), Window(4, 2, phase=-4)
    run(window, rows[:3])
    restored = Window(4, 2, phase=-4)
    restored.load(unpack(pack(window.state())))
    (a,), (b,) = run(whole, rows), run(restored, rows[3:], first=3)
    assert a.values.tobytes() == b.values.tobytes()
    run(window, rows[3:4], first=3)
    window.forget([1])
    window.resize(6)
    (last,) = run(window, [np.vstack([rows[4], np.full((2, 2), np.nan, np.float32)])], first=4)
    assert last.values[1].tolist() == rows[4][1].tolist()
    assert last.values[0].tolist() == a.values[0].tolist()
    assert last.mask.tolist() == [True] * 4 + [False] * 2


def test_each_subject_of_a_large_table_has_the_mean_that_it_has_alone() -> None:
    random = np.random.default_rng(1)
    rows = [random.random((2 * BLOCK + 3, 2)).astype(np.float32) for _ in range(5)]
    for row in rows:
        row[random.random(row.shape) < 0.2] = np.nan
    (found,) = run(Window(2 * BLOCK + 8, 2, phase=-4), rows)
    for one in (0, BLOCK - 1, BLOCK, 2 * BLOCK + 2):
        (alone,) = run(Window(1, 2, phase=-4), [row[one : one + 1] for row in rows])
        assert found.values[one].tobytes() == alone.values[0].tobytes()
        assert found.mask[one] == alone.mask[0]
    assert not found.mask[2 * BLOCK + 3 :].any()
