"""Faults in real pods, on a few made-up ones: a node that is lost is found, and what the series have already is not."""

import numpy as np
import pytest
from bench.anomalies.budget import POD_FLOORS, Course
from bench.anomalies.pods import real as real_pods
from bench.anomalies.pods.faults import FAULTS
from bench.anomalies.pods.real import Fleet
from tests.streams.engine.scene import CONFIG

TICKS, PODS, AT = 120, 5, 50


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    random = np.random.default_rng(1)
    x = np.stack(
        [
            random.uniform(0.0, 20.0, (TICKS, PODS)),
            random.uniform(20e3, 21e3, (TICKS, PODS)),
            random.uniform(0.5, 0.52, (TICKS, PODS)),
        ],
        axis=2,
    ).astype(np.float32)
    x[60:, 4] = np.nan  # the last pod is deleted
    group = np.zeros((TICKS, PODS), np.int32)
    latency_s = random.uniform(10.0, 20.0, (TICKS, PODS)).astype(np.float32)
    return Fleet(Course(x, group, np.array(list(POD_FLOORS.values()), np.float32), 57.0, {}), latency_s)


def test_a_lost_node_is_found_and_a_deleted_pod_is_no_incident(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_pods, "WORKER", CONFIG)  # the horizon for which all tests compile
    known = real_pods.clean(fleet, [AT])
    assert known.incidents == {}
    faults = {fault.name: fault for fault in FAULTS}
    random = np.random.default_rng(2)
    found = real_pods.story(fleet, known, faults["GPU and node lost"], AT, 2, random)
    assert found["delay_s"] is not None
    assert found["delay_s"] < 600.0
    assert found["false"] == 0
    told = real_pods.story(fleet, known, faults["GPU lost, the agent says so"], AT, 2, random)
    assert told["delay_s"] == 57.0
    assert (
        len(list(real_pods.lines([found | {"part": "real"}, told | {"part": "real"}]))) == 6
    )  # each fault, its part at work, and F1


def test_shares_have_intervals_and_f1_counts_false_incidents() -> None:
    low, high = real_pods.wilson(5, 10)
    assert low == pytest.approx(0.269, abs=1e-3)
    assert high == pytest.approx(0.731, abs=1e-3)
    assert real_pods.f1(8, 2, 10) == pytest.approx(0.8)
