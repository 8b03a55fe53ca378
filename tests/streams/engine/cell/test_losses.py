"""How often spot is lost, from what is told and what was seen."""

import math

import pytest

from flyball_streams.engine.cell.machines.losses import MEMORY_H, PRIOR_H, Losses

HOUR_NS = 3_600_000_000_000


def saw(losses: Losses, offer: str, hour: int, lost: float) -> None:
    losses.saw(offer, (hour + 1) * HOUR_NS, HOUR_NS, lost)


def test_without_own_spot_it_is_what_is_reported() -> None:
    assert Losses().per_hour("a", 0.05) == pytest.approx(0.05)
    assert Losses().per_hour("a", 0.0) == 0.0
    assert Losses().per_hour("a", 1.0) == 1.0


def test_as_much_own_spot_as_the_feed_weighs_is_half_of_the_answer() -> None:
    losses = Losses()
    for index in range(round(PRIOR_H)):
        saw(losses, "a", index, 0.5)
    reported = -math.expm1(-0.1)
    assert losses.per_hour("a", reported) == pytest.approx(-math.expm1(-0.3), rel=0.02)
    assert losses.per_hour("b", reported) == pytest.approx(reported)


def test_spot_that_is_never_lost_is_safer_than_it_is_reported_to_be_and_a_loss_is_forgotten() -> None:
    losses = Losses()
    saw(losses, "a", 0, 1.0)
    after = losses.per_hour("a", 0.05)
    assert after > 0.05
    for index in range(1, 100):
        saw(losses, "a", index, 0.0)
    assert losses.per_hour("a", 0.05) < 0.02
    saw(losses, "a", round(100 + 20 * MEMORY_H), 0.0)
    assert losses.per_hour("a", 0.05) == pytest.approx(0.05, rel=0.3)
