"""Jobs that can be put off wait for cheaper power, too, where its price is known."""

import msgspec
import pytest
from hypothesis import given, strategies as st
from tests.streams.engine.scene import CELL, START_NS, incoming_records
from tests.streams.engine.workload.timing.test_timing import BEGIN_NS, OFFSET, SLOT_NS, SLOT_S, SLOTS, Yard, curve, job

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Plan, Preempt, Scale, Signal
from flyball_streams.engine.workload.timing import schedule
from flyball_streams.engine.workload.timing.intensity import HOUR_NS, Week
from flyball_streams.engine.workload.timing.reasons import why_wait
from flyball_streams.engine.workload.timing.schedule import USD_PER_KG, Curve

CLEAN_LATE = [500.0, 500.0, 100.0, 100.0, 500.0, 500.0]


def prices(usd: list[float], published_ns: int = START_NS) -> Signal:
    return msgspec.structs.replace(curve(usd, published_ns), kind="electricity_price")


def planned(grams: list[float] | None, usd: list[float] | None, restart_s: float = 0.0) -> Plan:
    carbon = None if grams is None else Curve(curve(grams), Week())
    price = None if usd is None else Curve(prices(usd), Week())
    deferrable = schedule.Deferrable(job(2 * SLOT_S, SLOTS), 2 * SLOT_S, restart_s)
    return schedule.make_plan(deferrable, carbon, price, "z", BEGIN_NS, CELL, SLOT_S)


def slots(made: Plan) -> list[int]:
    return [i for i, run in enumerate(made.run[:SLOTS]) if run]


def test_price_and_carbon_count_together() -> None:
    assert slots(planned(CLEAN_LATE, None)) == [2, 3]
    dear_when_clean = [0.1, 0.1, 0.9, 0.9, 0.2, 0.2]
    both = planned(CLEAN_LATE, dear_when_clean)
    assert slots(both) == [0, 1], "0.4 kg/kWh less is worth 0.076 USD/kWh, and costs 0.8"
    assert (both.saving, both.price_saving) == (0.0, 0.0)
    a_little_dearer = [0.1, 0.1, 0.15, 0.15, 0.2, 0.2]
    both = planned(CLEAN_LATE, a_little_dearer)
    assert slots(both) == [2, 3]
    assert both.saving == pytest.approx(0.8)
    assert both.price_saving == pytest.approx(-0.5)
    assert both.price == tuple(a_little_dearer)


def test_a_price_alone_is_enough() -> None:
    made = planned(None, [0.3, 0.3, 0.3, 0.1, 0.1, 0.3])
    assert slots(made) == [3, 4]
    assert (made.zone, made.cost, made.saving) == ("z", (0.0,) * SLOTS, 0.0)
    assert made.price_saving == pytest.approx(2 / 3)


def test_a_price_that_is_not_known_to_the_deadline_goes_on_as_usual() -> None:
    week = Week()
    day = [0.1 if hour < 12 else 0.4 for hour in range(24)]
    start = (START_NS // HOUR_NS // 24 - 2) * 24 * HOUR_NS
    known = msgspec.structs.replace(prices(day * 2), start_ns=start, step_s=3600.0)
    week.note(known, start + 48 * HOUR_NS)
    now_ns = start + 47 * HOUR_NS
    workload = msgspec.structs.replace(job(3600.0, 1), deadline_ns=now_ns + 24 * HOUR_NS)
    deferrable = schedule.Deferrable(workload, 3600.0)
    made = schedule.make_plan(deferrable, None, Curve(known, week), "z", now_ns, CELL, 3600.0)
    assert made.run.index(True) == 1, "midnight, which the curve does not reach"


def test_a_price_below_zero_is_no_reason_to_start_often() -> None:
    made = planned(None, [-5.0, -5.0, -5.0, -5.0, -5.0, -5.0], restart_s=SLOT_S)
    assert slots(made) == [0, 1, 2]


@given(
    usd=st.lists(st.floats(-1.0, 2.0), min_size=SLOTS, max_size=SLOTS),
    grams=st.lists(st.floats(0.0, 900.0), min_size=SLOTS, max_size=SLOTS),
)
def test_no_other_slots_cost_less(usd: list[float], grams: list[float]) -> None:
    made = planned(grams, usd)
    cost = [max(0.0, u + g * USD_PER_KG / 1000) for u, g in zip(usd, grams, strict=True)]
    paid = sum(cost[i] for i in slots(made))
    assert paid == pytest.approx(sum(sorted(cost)[:2]), abs=1e-5)


def test_a_job_waits_for_cheaper_power_and_says_what_it_saves() -> None:
    usd = [0.4, 0.4, 0.1, 0.1, 0.4, 0.4]
    yard = Yard(job(2 * SLOT_S, SLOTS), curve([500.0, 500.0, 400.0, 400.0, 500.0, 500.0]), prices(usd))
    early = yard.until(int(2 * SLOT_S - OFFSET - 5))
    (pause,) = early.of(Preempt)
    assert pause.until_ns == BEGIN_NS + 2 * SLOT_NS
    assert "carbon is 500 g/kWh and power costs 0.400 USD/kWh in z now and 400 g/kWh and 0.100 USD/kWh" in pause.reason
    assert "waiting saves 14% of the carbon and 67% of the price, restarts included" in pause.reason
    (price,) = (e for e in pause.evidence if e.unit == "USD/kWh")
    assert (price.name, price.value) == ("electricity_price", 0.4)
    assert price.expected == pytest.approx(0.1)
    (start,) = yard.until(int(2 * SLOT_S - OFFSET + 5)).of(Scale)
    assert "at 400 g/kWh and 0.100 USD/kWh in z" in start.reason


def test_a_new_price_makes_a_new_plan() -> None:
    yard = Yard(job(2 * SLOT_S, SLOTS), prices([0.1] * SLOTS))
    yard.until(8)
    yard.cell.feed(incoming_records(prices([0.9, 0.9, 0.1, 0.1, 0.9, 0.9], published_ns=START_NS + NS_PER_S)))
    (made,) = yard.until(yard.time + 5).of(Plan)
    assert made.run[1:4] == (False, True, True)


@pytest.mark.parametrize(
    ("grams", "usd", "text"),
    [
        ([500.0, 100.0], [0.1, 0.15], "saves 80% of the carbon and costs 50% more"),
        ([100.0, 150.0], [0.4, 0.1], "saves 75% of the price and emits 50% more carbon"),
        ([500.0, 100.0], [0.4, 0.1], "saves 80% of the carbon and 75% of the price"),
        (None, [0.4, 0.1], "power costs 0.400 USD/kWh in z now and 0.100 USD/kWh in the slots planned before"),
        (None, [0.4, 0.1], "waiting saves 75%, restarts included"),
        ([500.0, 100.0], None, "waiting saves 80%, restarts included"),
    ],
)
def test_the_reason_names_what_waiting_saves_and_costs(
    grams: list[float] | None, usd: list[float] | None, text: str
) -> None:
    assert text in why_wait(planned(_day(grams), _day(usd)), 0)


def _day(now_then: list[float] | None) -> list[float] | None:
    return None if now_then is None else [now_then[0]] * 2 + [now_then[1]] * 2 + [now_then[0]] * 2
