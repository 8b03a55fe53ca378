"""Effective training time: all time is accounted for, and a fault costs what its time-out, restart and redo cost."""

import pytest
from bench.anomalies import effective
from bench.anomalies.effective import FLEET, PARTS, Strike


def strike(kind: str, at_s: float) -> Strike:
    return Strike(at_s, kind, rank=3, xid=79, clock=0.8, lasts_s=600.0, errors_per_s=5.0)


@pytest.mark.parametrize(
    ("kind", "detect_s", "restart_s"), [("gpu", 60, 120), ("program", 0, 180), ("host", 340, 120), ("slow", 0, 0)]
)
def test_each_fault_costs_its_time_out_and_a_restart(kind: str, detect_s: float, restart_s: float) -> None:
    ticks, tick_s = 150, FLEET.tick_s
    shares = effective.without(FLEET, [strike(kind, 403.0)], ticks)
    assert sum(shares.values()) == pytest.approx(1.0, abs=1e-3)
    assert shares["detect"] * ticks * tick_s == pytest.approx(detect_s, abs=tick_s)
    assert shares["restart"] * ticks * tick_s == pytest.approx(restart_s, abs=tick_s)
    assert (shares["redone"] > 0.0) == (kind != "slow")
    assert shares["slow"] * ticks * tick_s == pytest.approx(0.2 * 600.0 if kind == "slow" else 0.0, abs=tick_s)


def test_strikes_are_as_many_as_the_published_rate_says_and_the_same_for_a_seed() -> None:
    many = effective.strikes(16_384, 540.0, 7)
    kinds = {kind: sum(s.kind == kind for s in many) for kind in (*effective.COUNTS, "slow")}
    assert 4_190 * 0.95 < sum(kinds[kind] for kind in effective.COUNTS) < 4_190 * 1.05
    assert kinds["gpu"] > 5 * kinds["host"] > kinds["hang"]
    assert effective.strikes(9_600, 3.0, 1) == effective.strikes(9_600, 3.0, 1)


def test_the_table_has_medians_over_seeds() -> None:
    row = {"gpus": 9_600, "run": "without", "faults": {"gpu": 2, "slow": 1}} | dict.fromkeys(PARTS, 0.01)
    (line,) = effective.described([row | {"effective": share} for share in (0.9, 0.95, 0.97)])
    assert line[:4] == ("9,600", "without", "6, 3", "95.00% (90.00% to 97.00%)")
