"""`bench/choice.py` on a small market: every row is there, and none is cheaper than hindsight."""

import numpy as np
from bench import choice


def test_every_row_is_played_and_hindsight_is_the_bound() -> None:
    scores = choice.contest(choice.synthetic(ticks=30))
    ours = ["ours", "ours, carbon", "ours, survive"]
    assert list(scores) == ["on-demand", "cheapest spot", "spot + fallback", *ours, "hindsight"]
    base = scores["on-demand"]
    assert (base.late, base.lost) == (0.0, 0)
    assert scores["hindsight"].usd <= min(scores[name].usd for name in ("on-demand", "spot + fallback", "ours"))
    assert scores["ours"].usd < base.usd


def test_a_market_without_spot_is_served_on_demand() -> None:
    market = choice.synthetic(ticks=12)
    dry = market._replace(room=np.zeros_like(market.room))
    assert choice.play(dry, choice.Ours(dry)).late == 0.0
    assert choice.play(dry, choice.cheapest(dry, fallback=False)).started == 0


def test_the_halves_of_a_market_are_all_of_it() -> None:
    market = choice.synthetic(ticks=31)
    halves = [choice.part_of(market, name) for name in ("first", "second")]
    assert [len(half.need) for half in halves] == [15, 16]
    for field in ("room", "price", "carbon", "need"):
        both = np.concatenate([getattr(half, field) for half in halves])
        np.testing.assert_array_equal(both, getattr(choice.part_of(market, "all"), field))
