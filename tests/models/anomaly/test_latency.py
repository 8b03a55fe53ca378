"""Replicas are compared by what their requests show: how long they take, and whether they end at all."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays

from flyball_models.anomaly import latency, tail
from flyball_models.anomaly.latency import SLOWER, UNANSWERED
from flyball_streams.engine.budget import BUDGET_S
from flyball_streams.engine.workload.replica_latencies import TAIL

PERIOD_S, N, DAY = 60.0, 24, 720
RATE = 0.05 / BUDGET_S


class Service:
    """N replicas of one service that share its requests; each has an answer in most minutes."""

    def __init__(self, spread: float = 0.2, share: float = 0.8) -> None:
        self.state, self.tail = latency.init(N), tail.init(2, RATE, TAIL)
        self.random, self.spread = np.random.default_rng(3), spread
        self.share, self.speed = np.full(N, share), np.ones(N)
        self.group, self.idle = np.zeros(N, np.int32), np.zeros(N, np.bool_)
        self.found: latency.Found | None = None

    def run(self, minutes: int) -> list[tuple[int, int, int]]:
        """Minute, kind and replica of all reports."""
        reports: list[tuple[int, int, int]] = []
        for minute in range(minutes):
            values = 2.0 * np.exp(self.spread * self.random.standard_normal(N)) / self.speed
            values[self.random.random(N) >= self.share] = np.nan
            limit = self.tail.limit
            self.state, self.found = latency.step(
                self.state, values.astype(np.float32), self.idle, self.group, PERIOD_S, limit
            )
            kind, slot = self.found.ended.nonzero()
            self.tail = tail.step(
                self.tail, kind, self.found.ended[kind, slot].astype(np.float64),
                self.found.watched.sum(axis=1) * PERIOD_S, PERIOD_S, RATE, len(np.unique(slot)), TAIL,
            )  # fmt: skip
            reports += [(minute, k, i) for k, i in np.argwhere(self.found.ratio).tolist()]
        return reports


@pytest.fixture(scope="module")
def learned() -> dict[str, Any]:
    service = Service()
    assert service.run(DAY) == []
    return vars(service)


@pytest.fixture
def service(learned: dict[str, Any]) -> Service:
    again = Service()
    vars(again).update(learned, random=np.random.default_rng(4))
    for name in ("share", "speed", "group", "idle"):
        setattr(again, name, learned[name].copy())
    return again


def test_one_that_takes_half_as_long_again_is_named_and_no_other(service: Service) -> None:
    service.speed[5] = 1.0 / 1.5
    reports = service.run(60)
    assert {(kind, slot) for _, kind, slot in reports} == {(SLOWER, 5)}
    assert reports[0][0] <= 35
    assert service.found is not None
    assert service.found.slower[5] == pytest.approx(0.5, abs=0.15)
    assert service.found.expected_s[5] == pytest.approx(2.0, rel=0.2)


def test_what_the_whole_service_does_is_no_fault(service: Service) -> None:
    service.speed[:] = 0.4
    assert service.run(120) == []
    service.share[:] = 0.02
    assert service.run(360) == []
    service.share[:] = 0.8
    assert service.run(60) == []


def test_one_that_stops_answering_is_named_within_minutes(service: Service) -> None:
    service.share[7] = 0.0
    reports = service.run(60)
    assert {(kind, slot) for _, kind, slot in reports} == {(UNANSWERED, 7)}
    assert reports[0][0] <= 25


def test_one_without_requests_is_not_missed(service: Service) -> None:
    service.share[7], service.idle[7] = 0.0, True
    assert service.run(240) == []


def test_what_was_always_given_little_may_be_silent_for_longer() -> None:
    service = Service()
    service.share[3] = 0.05
    assert service.run(DAY) == []


def test_one_that_is_slow_from_the_start_is_named_where_its_peers_are_alike() -> None:
    service = Service(spread=0.05)
    service.speed[9] = 1.0 / 1.4
    assert {(kind, slot) for _, kind, slot in service.run(240)} == {(SLOWER, 9)}


def test_one_of_three_is_named_and_does_not_hide_itself() -> None:
    service = Service(spread=0.05)
    service.group[:] = np.arange(N) // 3
    service.speed[9] = 1.0 / 1.4
    assert {(kind, slot) for _, kind, slot in service.run(360)} == {(SLOWER, 9)}


def test_a_slowness_that_stays_is_accepted_and_a_further_one_is_not(service: Service) -> None:
    service.speed[5] = 1.0 / 1.5
    minutes = [minute for minute, _, _ in service.run(560)]
    assert max(minutes) < 60 + latency.DEFAULT.accept_s / PERIOD_S
    assert service.run(400) == []
    service.speed[5] = 1.0 / 4.0
    assert {slot for _, _, slot in service.run(90)} == {5}


def test_one_that_is_left_out_for_a_while_keeps_what_is_known_of_it(service: Service) -> None:
    service.group[5] = -1
    assert service.run(30) == []
    service.group[5], service.speed[5] = 0, 1.0 / 1.5
    assert {slot for _, _, slot in service.run(60)} == {5}


def test_one_that_is_left_out_after_four_blocks_counts_for_nothing() -> None:
    service = Service()
    while service.state.blocks[5] < latency.DEFAULT.prior_blocks:
        service.run(1)
    service.group[5] = -1
    assert service.run(5) == []


def test_two_replicas_are_no_peers() -> None:
    service = Service()
    service.group[:] = np.arange(N) // 2
    service.speed[5] = 0.2
    assert service.run(240) == []


@given(
    arrays.arrays(np.float32, (12, 6), elements=st.floats(width=32)),
    arrays.arrays(np.int32, 6, elements=st.integers(-1, 9)),
    arrays.arrays(np.bool_, 6),
)
def test_no_value_harms_the_state(values: Any, group: Any, idle: Any) -> None:
    state = latency.init(6)
    for row in values:
        state, found = latency.step(state, row, idle, group, PERIOD_S, np.array([2.0, 2.0]))
        assert np.isfinite(found.ratio).all()
        assert np.isfinite(found.ended).all()
        assert all(np.isfinite(part).all() for name, part in state._asdict().items() if name != "spread")
        assert not np.isinf(state.spread).any()


def test_more_room_and_another_order_change_nothing() -> None:
    """Slots are places, not meanings."""
    random = np.random.default_rng(8)
    order, mine, other = random.permutation(N), Service(), Service()
    other.state = latency.resize(latency.init(N // 2), N)
    for _ in range(120):
        values = np.exp(random.standard_normal(N)).astype(np.float32)
        values[random.random(N) < 0.3] = np.nan
        group = (np.arange(N) % 3).astype(np.int32)
        mine.state, found = latency.step(mine.state, values, mine.idle, group, PERIOD_S, mine.tail.limit)
        other.state, moved = latency.step(
            other.state, values[order], other.idle, group[order], PERIOD_S, other.tail.limit
        )
        assert all(np.array_equal(a[..., order], b, equal_nan=True) for a, b in zip(found, moved, strict=True))
    assert all(np.array_equal(a[..., order], b, equal_nan=True) for a, b in zip(mine.state, other.state, strict=True))
