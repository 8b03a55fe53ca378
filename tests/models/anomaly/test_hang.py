"""Hangs: busy without work is said within half a minute; idleness, checkpoints and power limits are not hangs."""

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from flyball_models.anomaly import hang


def hung_after(
    utilization: float, activity: float, power_w: float, limit_w: float = 700.0, period_s: float = 1.0
) -> float | None:
    """Seconds until one that worked for five minutes, and then is as given, is said to hang."""

    def given(*values: float) -> hang.Inputs:
        return hang.Inputs(*(np.array([v], np.float32) for v in values))

    state = hang.init(1)
    for _ in range(round(300 / period_s)):
        state, found = hang.step(state, given(0.97, 0.8, 600.0, 700.0), period_s)
        assert not found.any()
    for i in range(round(120 / period_s)):
        state, found = hang.step(state, given(utilization, activity, power_w, limit_w), period_s)
        if found[0]:
            return (i + 1) * period_s
    return None


@pytest.mark.parametrize("period_s", [1.0, 5.0, 10.0])
def test_busy_without_work_is_published_in_half_a_minute(period_s: float) -> None:
    for activity in (0.01, np.nan):
        after = hung_after(1.0, activity, 150.0, period_s=period_s)
        assert after is not None
        assert after <= 30.0


@pytest.mark.parametrize(
    ("utilization", "activity", "power_w", "limit_w"),
    [(0.05, 0.02, 110.0, 700.0), (1.0, 0.8, 280.0, 300.0), (1.0, 0.7, 200.0, 700.0), (1.0, 0.6, 420.0, 700.0),
     (np.nan, 0.0, 90.0, 700.0), (1.0, 0.01, np.nan, 700.0)],
)  # fmt: skip
def test_what_is_no_hang(utilization: float, activity: float, power_w: float, limit_w: float) -> None:
    assert hung_after(utilization, activity, power_w, limit_w) is None


def test_who_was_never_seen_at_work_does_not_hang() -> None:
    state = hang.init(3)
    one = hang.Inputs(*(np.full(3, v, np.float32) for v in (1.0, 0.01, 100.0, 700.0)))
    for _ in range(600):
        state, found = hang.step(state, one, 1.0)
        assert not found.any()


def floats(*values: float) -> NDArray[np.float32]:
    return np.array(values, np.float32)


def test_work_that_is_known_from_elsewhere_hangs_at_its_start_if_that_lasts_for_minutes() -> None:
    state = hang.adopt(hang.init(3), np.array([0, 2]), floats(600.0, 600.0), floats(0.8, 0.0))
    one = hang.Inputs(np.ones(3, np.float32), floats(0.01, 0.01, np.nan), floats(*[150.0] * 3), floats(*[700.0] * 3))
    after = dict[int, int]()
    for i in range(400):
        state, found = hang.step(state, one, 1.0)
        for device in np.flatnonzero(found).tolist():
            after.setdefault(device, i + 1)
    assert after == {0: 300, 2: 300}, "device 1 has no work that is known"


def test_work_that_runs_again_is_judged_as_before() -> None:
    state = hang.adopt(hang.init(1), np.array([0]), floats(600.0), floats(0.8))
    spins = hang.Inputs(floats(1.0), floats(0.01), floats(150.0), floats(700.0))
    works = hang.Inputs(floats(0.97), floats(0.8), floats(590.0), floats(700.0))
    hung: list[bool] = []
    for x in [spins] * 100 + [works] * 149 + [spins] * 20:
        state, found = hang.step(state, x, 1.0)
        hung.append(bool(found[0]))
    assert hung == [False] * 263 + [True] * 6


def test_less_work_under_the_same_name_is_no_hang_if_it_uses_more_than_a_spinning_gpu() -> None:
    state = hang.adopt(hang.init(3), np.arange(3), floats(*[600.0] * 3), floats(*[0.8] * 3))
    power, active, limit = floats(290.0, 290.0, 200.0), floats(0.2, 0.2, 0.3), floats(700.0, np.nan, 700.0)
    hung = np.zeros(3, bool)
    for _ in range(400):
        state, found = hang.step(state, hang.Inputs(np.ones(3, np.float32), active, power, limit), 1.0)
        hung |= found
    assert hung.tolist() == [False, True, False], "without its limit it is not known what a spinning GPU uses"


def test_what_looks_hung_from_its_start_for_an_hour_is_other_work() -> None:
    state = hang.adopt(hang.init(1), np.array([0]), floats(600.0), floats(0.8))
    low = hang.Inputs(floats(1.0), floats(0.1), floats(150.0), floats(700.0))
    hung: list[bool] = []
    for _ in range(1000):
        state, found = hang.step(state, low, 10.0)
        hung.append(bool(found[0]))
    assert hung == [False] * 29 + [True] * 331 + [False] * 640
    worse = hang.Inputs(floats(1.0), floats(0.01), floats(70.0), floats(700.0))
    assert [bool(one[0]) for _, one in _steps(state, worse, 3)] == [False, False, True], "what it does now is its work"


def _steps(state: hang.State, x: hang.Inputs, count: int) -> Iterator[tuple[hang.State, NDArray[np.bool_]]]:
    for _ in range(count):
        state, found = hang.step(state, x, 10.0)
        yield state, found
