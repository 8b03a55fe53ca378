"""Stays are judged by how long comparable series stay: minutes for what never does, hours for what idles."""

from typing import Any

import numpy as np
import pytest

from flyball_models.anomaly import sojourn, tail
from flyball_streams.engine.budget import BUDGET_S

PERIOD_S, N = 60.0, 24
RATE = 1.0 / BUDGET_S
DAY = 1440
FLOOR = np.array([60.0, 60.0], np.float32)


class Series:
    """N series in two states: they are busy for a minute or two now and then, and idle for an hour."""

    def __init__(self, group: list[int] | None = None, unit: list[int] | None = None) -> None:
        self.state, self.tail = sojourn.init(N, 2), tail.init(4, RATE, sojourn.DEFAULT.sizes)
        groups = np.array(group or [0] * N, np.int32)
        self.peers = sojourn.arrange(groups, np.array(unit or range(N), np.int32))
        self.random, self.left = np.random.default_rng(5), np.zeros((2, N))

    def run(
        self, minutes: int, busy: tuple[int, ...] = (), unknown: tuple[int, ...] = ()
    ) -> list[tuple[int, int, int]]:
        """Minute, state and series of all reports; ``busy`` series stay busy, ``unknown`` ones have no value."""
        found: list[tuple[int, int, int]] = []
        for minute in range(minutes):
            begins = self.random.random((2, N)) < np.array([[0.1], [0.01]])
            lasts = np.stack([self.random.geometric(0.6, N), self.random.exponential(60.0, N)])
            self.left = np.where(begins & (self.left <= 0), lasts, self.left - 1.0)
            inside = self.left > 0
            inside[0, list(busy)] = True
            known = np.ones((2, N), np.bool_)
            known[:, list(unknown)] = False
            self.state, self.tail, out = sojourn.step(
                self.state, self.tail, inside, known, self.peers, FLOOR, PERIOD_S, RATE
            )
            found += [(minute, k, i) for k, i in np.argwhere(out.ratio).tolist()]
        return found


@pytest.fixture(scope="module")
def learned() -> dict[str, Any]:
    series = Series()
    assert series.run(DAY) == []
    return vars(series)


def again(learned: dict[str, Any]) -> Series:
    series = Series()
    vars(series).update(learned, random=np.random.default_rng(6), left=learned["left"].copy())
    return series


def test_one_that_stays_where_none_does_is_found_and_idling_for_hours_is_not(learned: dict[str, Any]) -> None:
    found = again(learned).run(120, busy=(3,))
    assert {(k, i) for _, k, i in found} == {(0, 3)}
    assert 5 <= found[0][0] <= 45
    assert found[1][0] - found[0][0] == 5, "it is reported again"


def test_two_do_not_hide_each_other_and_half_of_a_group_is_no_fault(learned: dict[str, Any]) -> None:
    assert {i for _, _, i in again(learned).run(120, busy=(3, 4))} == {3, 4}
    assert again(learned).run(120, busy=tuple(range(12))) == []


def test_devices_of_a_replica_count_once() -> None:
    series = Series(unit=[i // 4 for i in range(N)])
    series.run(DAY)
    assert {i for _, _, i in series.run(240, busy=(0, 1, 2, 3))} == {0, 1, 2, 3}


def test_what_is_not_known_goes_on_as_it_was(learned: dict[str, Any]) -> None:
    series = again(learned)
    series.run(1, busy=(3,))
    stays = float(series.state.stays_s[0, 3])
    assert series.run(120, unknown=(3,)) == []
    assert float(series.state.stays_s[0, 3]) == stays


def test_a_stay_that_began_before_a_series_was_known_is_not_judged() -> None:
    series = Series()
    assert series.run(600, busy=(3,)) == []


def test_a_stay_is_accepted_in_the_end_and_is_its_record_then(learned: dict[str, Any]) -> None:
    series = again(learned)
    assert series.run(300, busy=(3,))
    assert series.run(60, busy=(3,)) == []
    series.run(30)
    assert series.run(240, busy=(3,)) == []


def test_without_peers_nothing_is_judged_for_hours() -> None:
    alone = Series(group=[-1] * N)
    assert alone.run(200) == []
    assert 3 not in {i for _, k, i in alone.run(200, busy=(3,)) if k == 0}
    assert not alone.peers.peered.any()
    assert not alone.state.judged[0, 3], "it began before that"


def test_groups_of_fewer_than_three_have_no_peers() -> None:
    peers = sojourn.arrange(np.array([0, 0, 1, 1, 1, -1], np.int32), np.zeros(6, np.int32))
    assert peers.peered.tolist() == [False, False, True, True, True, False]
    none = sojourn.arrange(np.full(4, -1, np.int32), np.zeros(4, np.int32))
    assert not none.peered.any()
