"""`bench/timing.py` on a synthetic grid: no policy beats the optimum, and ours keeps deadlines."""

from bench import timing
from bench.series.grids import made_up


def test_every_policy_has_its_row_and_none_beats_hindsight() -> None:
    zone = made_up(1, days=40)
    rows = list(timing.contests(zone, ((6, 24),), 2, 1200.0))
    captured = {(r["policy"], r["known"]): r for r in rows if r["part"] == "captured"}
    assert len(captured) == 1 + 3 * 3
    assert all(r["captured_share"] <= 1.0 + 1e-6 for r in captured.values())
    assert captured["at once", "actuals"]["captured_share"] == 0.0
    ours = captured["ours", "perfect"]
    assert ours["captured_share"] > 0.9
    assert ours["missed"] == 0
