"""A service that takes a course that it never took is an anomaly of it, and an ordinary day is none."""

import numpy as np
import pytest
from tests.streams.engine.scene import CELL

from flyball_contracts.config import HealthConfig
from flyball_contracts.records import Anomaly, Demand, Tick
from flyball_streams.engine.packing import pack, unpack
from flyball_streams.engine.workload.courses import DETECTOR, WINDOW_S, Courses

PERIOD_S, DAY = 100, 864
FIRST = 1_750_000_000 // PERIOD_S


class Service:
    """What a lane learns of a service whose requests follow the time of day, and of a gang that has none."""

    def __init__(self) -> None:
        self.courses = Courses(CELL, HealthConfig(false_incidents_per_1000_gpu_days=100.0))
        self.random = np.random.default_rng(3)
        self.at = 0

    def run(
        self, ticks: int, times: float = 1.0, latency_s: float = 0.2, missing: tuple[str, ...] = ()
    ) -> list[Anomaly]:
        found: list[Anomaly] = []
        for _ in range(ticks):
            tick = Tick(index=FIRST + self.at, period_ns=PERIOD_S * 10**9, missing=missing)
            day = 100.0 * (1.0 + 0.5 * np.sin(2 * np.pi * self.at / DAY))
            noise, slower = 1.0 + 0.03 * self.random.standard_normal(2)
            chat = Demand("chat", 4, 4, 8, request_rate=times * day * noise, latency_s=latency_s * slower)
            found += self.courses.step(tick, {"chat": chat, "train": Demand("train", 8, 8, 64)})
            self.at += 1
        return found


def test_what_a_service_never_did_is_reported_at_once_and_once() -> None:
    service = Service()
    assert service.run(3 * DAY) == []
    assert service.run(6, times=0.1, missing=("node/1",)) == [], "a lane is missing, and with it some of the sum"
    (first,) = service.run(30, times=15.0)
    assert (first.detector, first.subject, first.workload) == (DETECTOR, "chat", "chat")
    assert first.evidence[0].name == "flyball.workload.request.rate"
    assert first.evidence[0].value > 10 * (first.evidence[0].expected or 0.0) > 0
    assert first.time_ns - (FIRST + 3 * DAY + 6) * PERIOD_S * 10**9 <= 2 * WINDOW_S * 10**9
    assert 0.5 <= first.score < 1.0
    assert first.false_per_1000_gpu_days == pytest.approx(0.0, abs=5.0)


def test_a_restart_changes_nothing_and_more_services_no_course() -> None:
    service, again, beside = Service(), Service(), Service()
    service.run(2 * DAY)
    for other in (again, beside):
        other.courses.load(unpack(pack(service.courses.state())))
        other.random.bit_generator.state, other.at = service.random.bit_generator.state, service.at
    tick = Tick(index=FIRST + service.at - 1, period_ns=PERIOD_S * 10**9)
    for n in range(200):
        list(beside.courses.step(tick, {f"new-{n}": Demand(f"new-{n}", 1, 1, 1, request_rate=1.0)}))
    found = service.run(20, latency_s=9.0)
    assert {a.evidence[0].name for a in found} == {"flyball.workload.latency"}
    assert again.run(20, latency_s=9.0) == found
    assert [(a.id, a.evidence) for a in beside.run(20, latency_s=9.0)] == [(a.id, a.evidence) for a in found]
