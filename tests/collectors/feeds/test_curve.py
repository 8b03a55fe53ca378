"""One gapless curve from any answer."""

import math

import pytest
from hypothesis import given, strategies as st
from tests.collectors.feeds.feed_server import NOW_NS, S

from flyball_collectors.feeds.base import FeedError
from flyball_collectors.feeds.curve import MOST_SLOTS, Cut, Point, Shape, cut_curve, longer, smallest_step_s

STEP_S = 900.0
STEP_NS = 900 * S
SHAPE = Shape("DE", "test")


def cut(points: list[Point], shape: Shape = SHAPE, published_ns: int = NOW_NS) -> Cut:
    return cut_curve(points, shape, step_s=STEP_S, published_ns=published_ns, now_ns=NOW_NS, where="there")


def at(slot: int, value: float | None = 100.0) -> Point:
    return Point(NOW_NS + slot * STEP_NS, value)


values = st.one_of(st.none(), st.just(math.nan), st.floats(0, 5000), st.sampled_from([-1.0, 5001.0, math.inf]))
answers = st.dictionaries(st.integers(-20, 40), values, max_size=60)


@given(answers, st.randoms(use_true_random=False))
def test_the_longest_run_of_possible_values_and_the_rest_counted(
    answer: dict[int, float | None], random: object
) -> None:
    good = {slot for slot, v in answer.items() if slot >= 0 and v is not None and 0 <= v <= 5000}
    ahead = sum(slot >= 0 for slot in answer)
    points = [at(slot, value) for slot, value in answer.items()]
    random.shuffle(points)  # type: ignore[attr-defined]
    if not good:
        with pytest.raises(FeedError, match="there: none of the values is of now or later"):
            cut(points)
        return
    runs = [[s for s in range(first, 41) if set(range(first, s + 1)) <= good] for first in sorted(good)]
    longest = max(runs, key=len)
    found = cut(points)
    assert found.signal.start_ns == NOW_NS + longest[0] * STEP_NS
    assert found.signal.p50 == tuple(answer[s] for s in longest)
    assert found.left_out == ahead - len(longest)


def test_the_slot_that_holds_now_counts_and_the_one_that_ended_now_does_not() -> None:
    point = at(0)
    holds = point._replace(time_ns=NOW_NS - STEP_NS + 1)
    assert cut([holds]).signal.start_ns == holds.time_ns
    with pytest.raises(FeedError):
        cut([point._replace(time_ns=NOW_NS - STEP_NS)])


def test_quantiles_are_kept_only_where_all_slots_have_them_in_order() -> None:
    whole = [Point(NOW_NS + i * STEP_NS, 100.0, 90.0, 120.0) for i in range(3)]
    assert cut(whole).signal.p10 == (90.0,) * 3
    assert cut(whole).signal.p90 == (120.0,) * 3
    assert cut(whole).left_out == 0
    for odd in (whole[1]._replace(p10=101.0), whole[1]._replace(p90=None), whole[1]._replace(p90=math.nan)):
        found = cut([whole[0], odd, whole[2]])
        assert (found.signal.p10, found.signal.p90) == ((), ())
        assert len(found.signal.p50) == 3
        assert found.left_out >= 5


def test_a_time_that_occurs_twice_counts_once() -> None:
    found = cut([at(0, 1.0), at(1, 2.0), at(1, 3.0)])
    assert found.signal.p50 == (1.0, 3.0)
    assert found.left_out == 1


def test_prices_may_be_negative_and_carbon_may_not() -> None:
    assert cut([at(0, -0.05)], SHAPE._replace(kind="electricity_price")).signal.p50 == (-0.05,)
    with pytest.raises(FeedError):
        cut([at(0, -0.05)])


def test_a_curve_issued_in_the_future_is_refused() -> None:
    assert cut([at(0)], published_ns=NOW_NS + 299 * S).signal.published_ns == NOW_NS + 299 * S
    with pytest.raises(FeedError, match=r"there: issued 301 s in the future; set this host's clock"):
        cut([at(0)], published_ns=NOW_NS + 301 * S)


def test_a_year_is_reported_a_week_at_a_time() -> None:
    found = cut([at(i) for i in range(MOST_SLOTS + 5)])
    assert len(found.signal.p50) == MOST_SLOTS
    assert found.left_out == 0


def test_reports_more() -> None:
    old = cut([at(0, 1.0), at(1, 2.0)]).signal
    assert not longer(old, old)
    assert not longer(cut([at(1, 2.0)]).signal, old)
    assert longer(cut([at(1, 2.0), at(2, 2.0)]).signal, old)
    assert longer(cut([at(1, 2.5)]).signal, old)


def test_smallest_step() -> None:
    assert smallest_step_s([0, 3600 * S, 900 * S, 900 * S]) == 900.0
    assert smallest_step_s([5, 5]) is None
