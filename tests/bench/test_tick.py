"""`bench/tick.py` at its smallest: the parts fit the whole."""

from bench import tick
from rich.console import Console


def test_lanes_are_parts_of_a_tick() -> None:
    figures = tick.run(1, 3, 7, Console(quiet=True))
    assert figures["gpus"] == tick.GOAL_GPUS
    assert 0 < figures["p50_ms"] <= figures["p90_ms"] <= figures["most_ms"]
    assert all(each > 0 for each in figures["lanes_mean_ms"].values())
    assert sum(figures["lanes_mean_ms"].values()) <= figures["mean_ms"]
