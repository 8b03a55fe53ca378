"""Sensors that are stuck and metrics that are missing are reported by their name, as one incident, and move nothing."""

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from tests.streams.engine.incident_harness import IncidentHarness, at
from tests.streams.engine.scene import CELL, cell_tick, tick
from tests.streams.engine.test_quarantine import conditions, sign

from flyball_contracts.metrics import GPU
from flyball_contracts.records import Anomaly, Tick
from flyball_streams.engine.cell.incidents.manager import QUIET_S
from flyball_streams.engine.node.detectors.stuck import COLUMNS, METRICS, MISSING, STUCK, StuckSensors
from flyball_streams.engine.node.table import SubjectTable
from flyball_streams.engine.node.window import Means
from flyball_streams.engine.packing import pack, unpack
from flyball_streams.engine.symptoms import symptom_of

PERIOD_S, FIRST = 30, 58_000_000
POWER, TEMPERATURE, USE, SM, MEMORY, CLOCK = METRICS
LEARNED, LONG = 90, 120
"""Samples in which a device is learned, and those after them."""


class Gpus:
    """Servers whose load goes up and down in a quarter of an hour; the last half is idle."""

    def __init__(self, count: int = 200) -> None:
        self.table = SubjectTable(GPU)
        self.detector = StuckSensors(self.table.capacity)
        self.table.models = (self.detector,)
        self.random = np.random.default_rng(3)
        self.at = 0
        self.add(count)

    def add(self, count: int) -> None:
        self.count = count
        self.table.rows(tuple(f"gpu-{i}" for i in range(count)), "node")

    def run(self, samples: int, **fixed: tuple[int, float]) -> list[Anomaly]:
        """``fixed``: metrics, by the name above, of one GPU that show one value only."""
        found: list[Anomaly] = []
        n = self.count
        for _ in range(samples):
            noise = self.random.standard_normal((3, n))
            use = np.clip(0.5 + 0.4 * np.sin(self.at / 5.0 + np.arange(n)) + 0.02 * noise[0], 0.0, 1.0)
            use[n // 2 :] = 0.0
            power = 80.0 + 420.0 * use + np.where(use > 0, 3.0 * noise[1], 0.0)
            x = np.empty((len(METRICS), n))
            x[0], x[1], x[2] = power, np.round(30.0 + 0.08 * power), np.round(use, 2)
            x[3], x[4], x[5] = 0.7 * use, np.where(use > 0, 0.8, 0.1), np.where(use > 0, 1.98e9, 2.1e8)
            for name, (slot, value) in fixed.items():
                x[METRICS.index(globals()[name]), slot] = value
            values = np.full((self.table.capacity, len(GPU)), np.nan, np.float32)
            values[:n, COLUMNS] = x.T
            mask = np.arange(self.table.capacity) < n
            self.table.means = Means(values, mask, float(PERIOD_S))
            found += self.detector.step(cell_tick(Tick(index=FIRST + self.at, period_ns=PERIOD_S * 10**9), self.table))
            self.at += 1
        return found

    def again(self) -> "Gpus":
        """The same after a restart."""
        other = Gpus(self.count)
        other.detector.load(unpack(pack(self.detector.state())), self.table.capacity)
        other.random.bit_generator.state, other.at = self.random.bit_generator.state, self.at
        return other


@pytest.fixture(scope="module")
def learned() -> Gpus:
    gpus = Gpus()
    assert gpus.run(LEARNED) == []
    return gpus


@pytest.mark.parametrize(
    ("name", "value", "mover"),
    [("POWER", 317.25, USE), ("TEMPERATURE", 58.0, POWER), ("USE", 0.57, POWER), ("SM", 0.31, POWER)],
)
def test_a_sensor_that_stands_still_while_others_move_is_one_open_incident(
    learned: Gpus, name: Any, value: float, mover: str
) -> None:
    gpus = learned.again()
    one, *more = gpus.run(LONG, **{name: (70, value)})
    assert (one.detector, one.subject, one.workload, one.score) == (STUCK, "gpu-70", "", 0.3)
    first, second = one.evidence[:2]
    assert first.name == globals()[name]
    assert first.value == pytest.approx(value)
    assert second.name == mover
    assert second.value > (second.expected or 0.0)
    assert one.since_ns is not None
    assert 600 <= (one.time_ns - one.since_ns) / 1e9 <= 1500
    assert {(other.detector, other.subject) for other in more} == {(STUCK, "gpu-70")}
    harness = IncidentHarness()
    for index, each in enumerate((one, *more)):
        harness.at(index, replace(symptom_of(each), time_ns=at(index)))
    assert len(harness.open()) == 1
    gaps_s = np.diff([other.time_ns for other in (one, *more)]) / 1e9
    assert gaps_s.max() < QUIET_S, "its incident would end"
    assert gpus.run(10) == [], "it ended"
    symptom = symptom_of(one)
    assert (symptom.cause, symptom.strength, symptom.severity, symptom.device) == (
        "telemetry", "effect", "warning", "gpu-70"
    )  # fmt: skip


def test_natural_constants_are_none(learned: Gpus) -> None:
    """A pinned clock, a metric that other SKUs do not have, a saturated GPU, and one that is idle."""
    gpus = learned.again()
    assert gpus.run(LONG, CLOCK=(3, 1.2e9), MEMORY=(4, 0.5), USE=(5, 1.0), SM=(6, 0.0), POWER=(150, 71.0)) == []
    never = Gpus()
    assert never.run(LEARNED + LONG, SM=(7, np.nan), POWER=(8, 100.0)) == [], "never delivered, never varied"


@pytest.mark.parametrize("name", ["POWER", "SM", "CLOCK", "MEMORY"])
@pytest.mark.parametrize("slot", [70, 190])
def test_a_metric_that_is_no_longer_delivered_is_reported_once(learned: Gpus, name: Any, slot: int) -> None:
    gpus = learned.again()
    assert gpus.run(29, **{name: (slot, np.nan)}) == []
    gpus = gpus.again()
    (one,) = gpus.run(LONG, **{name: (slot, np.nan)})
    assert (one.detector, one.subject, one.evidence[0].name) == (MISSING, f"gpu-{slot}", globals()[name])
    assert one.time_ns == (FIRST + LEARNED + 30) * PERIOD_S * 10**9
    assert gpus.run(19) == [] == gpus.run(35, **{name: (slot, np.nan)}), "it comes and goes"
    gpus.run(20)
    assert len(gpus.run(35, **{name: (slot, np.nan)})) == 1


def test_a_device_that_sends_nothing_misses_no_metric(learned: Gpus) -> None:
    gpus = learned.again()
    every = ("POWER", "TEMPERATURE", "USE", "SM", "MEMORY", "CLOCK")
    assert gpus.run(LONG, **dict.fromkeys(every, (70, np.nan))) == []


def test_other_work_starts_a_device_again_and_room_for_more_changes_nothing(learned: Gpus) -> None:
    gpus = learned.again()
    gpus.table.change_work({70: "batch"})
    assert gpus.run(LONG, POWER=(70, 317.25), SM=(70, np.nan)) == []
    gpus = Gpus(60)
    gpus.run(LEARNED)
    gpus.add(300)
    assert gpus.detector.model.last.shape == (len(METRICS), gpus.table.capacity)
    found = gpus.run(LONG, POWER=(20, 317.25), SM=(21, np.nan))
    assert sorted({(a.detector, a.subject) for a in found}) == [(MISSING, "gpu-21"), (STUCK, "gpu-20")]


def test_it_is_an_incident_of_telemetry_and_no_sign_against_the_node() -> None:
    harness = IncidentHarness()
    anomaly = Anomaly(
        id="a", subject="node-1/3", cell=CELL, node="node-1", time_ns=at(5), detector=STUCK, score=0.3, since_ns=at(1)
    )  # fmt: skip
    assert conditions(harness, 5, symptom_of(anomaly)) == []
    (incident,) = harness.open()
    assert (incident.cause, incident.level, incident.device) == ("telemetry", "gpu", "node-1/3")
    harness = IncidentHarness()
    one = sign("node-1", 3, 5, "straggling")
    alone = [c.condition for c in conditions(IncidentHarness(), 5, one)]
    assert [c.condition for c in conditions(harness, 5, one, symptom_of(anomaly))] == alone, "it is no second sign"
    assert list(harness.manager.conditions(tick(6))) == []
