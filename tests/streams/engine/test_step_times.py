"""A gang that slows down as a whole is an anomaly of its workload, across node lanes and a restart."""

import numpy as np
import pytest
from tests.streams.engine.scene import CELL, START_NS, tick

from flyball_contracts.config import HealthConfig
from flyball_contracts.records import Anomaly, Demand
from flyball_streams.engine.packing import pack, unpack
from flyball_streams.engine.workload.merge import merge
from flyball_streams.engine.workload.step_times import DETECTOR, MOST_LIMIT, StepTimes

BEFORE, S = 700, 10**9


def gang(step_s: float | None, replicas: int = 8, workload: str = "train") -> Demand:
    return Demand(workload, replicas, replicas, 8 * replicas, step_s=step_s)


class Cell:
    """A lane's view of a gang and of a service that has no steps."""

    def __init__(self, seed: int = 1) -> None:
        self.step_times = StepTimes(CELL, HealthConfig())
        self.random = np.random.default_rng(seed)
        self.at = 0

    def run(self, ticks: int, step_s: float, replicas: int = 8) -> list[Anomaly]:
        found: list[Anomaly] = []
        for _ in range(ticks):
            noisy = step_s * float(1.0 + 0.01 * self.random.standard_normal())
            demands = {"chat": gang(None, workload="chat"), "train": gang(noisy, replicas)}
            found += self.step_times.step(tick(self.at), demands)
            self.at += 1
        return found


def test_the_onset_and_the_size_of_a_slowdown_are_reported_once_in_ten_minutes() -> None:
    cell = Cell()
    assert cell.run(BEFORE, 2.0) == []
    (first, *later) = cell.run(1000, 2.2)
    assert (first.detector, first.subject, first.workload) == (DETECTOR, "train", "train")
    assert first.time_ns - START_NS <= (BEFORE + 60) * S
    assert first.since_ns is not None
    assert abs(first.since_ns - START_NS - BEFORE * S) <= 30 * S
    now, slower, devices = first.evidence
    assert now.value == pytest.approx(2.2, rel=0.02)
    assert now.expected == pytest.approx(2.0, rel=0.01)
    assert slower.value == pytest.approx(0.1, abs=0.02)
    assert devices.value == 64
    assert 0.5 <= first.score < 1.0
    assert first.false_per_1000_gpu_days is not None
    assert first.false_per_1000_gpu_days <= 0.05
    assert [a.time_ns - first.time_ns for a in later] == [600 * S]


def test_a_gang_that_is_resized_takes_other_steps() -> None:
    cell = Cell()
    cell.run(BEFORE, 2.0)
    assert cell.run(BEFORE, 3.1, replicas=4) == []
    assert len(cell.run(120, 3.6, replicas=4)) == 1


def test_after_a_restart_the_same_is_found() -> None:
    whole, other = Cell(), Cell()
    whole.run(BEFORE + 20, 2.0)
    other.run(BEFORE + 20, 2.0)
    state = unpack(pack(other.step_times.state()))
    other.step_times = StepTimes(CELL, HealthConfig())
    other.step_times.load(state)
    assert whole.run(200, 2.3) == other.run(200, 2.3)


def test_a_larger_budget_is_quicker_and_no_limit_is_out_of_reach() -> None:
    def ticks(budget: float) -> int:
        cell = Cell()
        cell.step_times = StepTimes(CELL, HealthConfig(false_incidents_per_1000_gpu_days=budget))
        cell.run(BEFORE, 2.0)
        (first, *_) = cell.run(400, 2.3)
        return (first.time_ns - START_NS) // S - BEFORE

    assert ticks(1000.0) <= ticks(1.0) <= ticks(0.001) <= 300
    assert MOST_LIMIT < 100


def test_step_times_of_two_lanes_are_one() -> None:
    both = merge({"node/0": {"train": gang(2.0, 6)}, "node/1": {"train": gang(4.0, 2)}})["train"]
    assert both.step_s == 2.5
    assert merge({"node/0": {"train": gang(2.0, 6)}, "node/1": {"train": gang(None, 2)}})["train"].step_s == 2.0
