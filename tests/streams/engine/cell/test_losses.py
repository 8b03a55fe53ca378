"""How often spot is lost, from what is told and what was seen."""

import math

import pytest

from flyball_contracts.records import Tick
from flyball_streams.engine.workload.machines.losses import MEMORY_H, PRIOR_H, Losses

HOUR_NS = 3_600_000_000_000


def hour(index: int) -> Tick:
    return Tick(index=index, period_ns=HOUR_NS)


def test_without_own_spot_it_is_what_is_reported() -> None:
    assert Losses().per_hour("a", 0.05) == pytest.approx(0.05)
    assert Losses().per_hour("a", 0.0) == 0.0
    assert Losses().per_hour("a", 1.0) == 1.0


def test_as_much_own_spot_as_the_feed_weighs_is_half_of_the_answer() -> None:
    losses = Losses()
    for index in range(round(PRIOR_H)):
        losses.saw("a", hour(index), 0.5)
    reported = -math.expm1(-0.1)
    assert losses.per_hour("a", reported) == pytest.approx(-math.expm1(-0.3), rel=0.02)
    assert losses.per_hour("b", reported) == pytest.approx(reported)


def test_spot_that_is_never_lost_is_safer_than_it_is_reported_to_be_and_a_loss_is_forgotten() -> None:
    losses = Losses()
    losses.saw("a", hour(0), 1.0)
    after = losses.per_hour("a", 0.05)
    assert after > 0.05
    for index in range(1, 100):
        losses.saw("a", hour(index), 0.0)
    assert losses.per_hour("a", 0.05) < 0.02
    losses.saw("a", hour(round(100 + 20 * MEMORY_H)), 0.0)
    assert losses.per_hour("a", 0.05) == pytest.approx(0.05, rel=0.3)


def test_state_comes_back() -> None:
    losses, other = Losses(), Losses()
    losses.saw("a", hour(0), 0.5)
    other.load(losses.state())
    assert other.per_hour("a", 0.1) == losses.per_hour("a", 0.1)
