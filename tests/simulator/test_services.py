"""Demand and service: the same demand whoever serves it, and late where replicas lack."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from msgspec.structs import replace
from numpy.typing import NDArray
from tests.simulator.orders import CONFIG, START_NS, preempt, scale

from flyball_contracts.config import FleetConfig, StragglingGpu
from flyball_contracts.frame import decode_frame
from flyball_contracts.metrics import WORKLOAD
from flyball_contracts.topics import TELEMETRY
from flyball_simulator import Fleet
from flyball_simulator.cell.baseline import Baseline
from flyball_simulator.cell.plant import Plant
from flyball_simulator.loads.arrivals import Arrivals
from flyball_simulator.loads.base import Moment

SERVICES = [s.name for s in CONFIG.services]


def demand(config: FleetConfig, seconds: int) -> NDArray[np.float64]:
    """Work per second, for each second after tick 0 and each service."""
    arrivals, tick_s = Arrivals(config.services, config.seed), config.tick_s
    ticks = [arrivals.take(Moment(i, i * tick_s, tick_s, config.seed)) for i in range(round(seconds / tick_s) + 1)]
    return np.concatenate(ticks[1:])


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(SERVICES), st.integers(0, 14), st.integers(1, 12)), max_size=8))
def test_every_request_is_in_time_or_late_or_lost_or_waits(orders: list[tuple[str, int, int]]) -> None:
    fleet = Fleet(CONFIG, START_NS)
    services = fleet.plant.services
    for name, replicas, ticks in [*orders, ("chat-api", 5, 20)]:
        if replicas <= CONFIG.services[SERVICES.index(name)].max_replicas:
            fleet.apply(scale(name, replicas))
        for _ in range(ticks):
            fleet.tick(fleet.plant.index)
            known = services.in_time + services.late + services.lost + services.queued
            np.testing.assert_allclose(known, services.arrived, rtol=1e-9)
            assert (np.array([services.in_time, services.late, services.lost, services.queued]) >= 0).all()


def test_demand_is_the_same_whoever_serves_it() -> None:
    fleet, baseline, still = Fleet(CONFIG, START_NS), Baseline(CONFIG, START_NS), Plant(CONFIG, START_NS)
    for i in range(90):
        if i == 30:
            fleet.apply(preempt("synth-data", 0))
            fleet.apply(scale("chat-api", 36))
        fleet.tick(i)
        baseline.tick()
        still.begin()
        still.step()
        for plant in (baseline.plant, still):
            assert np.array_equal(plant.services.arrived, fleet.plant.services.arrived)
    assert fleet.plant.services.queued[0] < still.services.queued[0]


@pytest.mark.parametrize("tick_s", [2.0, 10.0, 60.0])
def test_demand_does_not_depend_on_the_length_of_a_tick(tick_s: float) -> None:
    fine, coarse = demand(CONFIG, 600), demand(replace(CONFIG, tick_s=tick_s), 600)
    # Only the noise before the first tick differs, and fades.
    np.testing.assert_allclose(fine[300:], coarse[300:], rtol=1e-3)
    np.testing.assert_allclose(fine.mean(axis=0), coarse.mean(axis=0), rtol=0.02)


def test_demand_has_a_day() -> None:
    calm = tuple(
        replace(s, bursts=(), random_bursts_per_hour=0.0, noise_share=0.0, wave_share=0.0) for s in CONFIG.services[:1]
    )
    day = demand(replace(CONFIG, services=calm, tick_s=600.0), 86_400)[:, 0]
    assert day[0] == pytest.approx(0.6 * 2_000 * 12, rel=1e-3)
    assert day.argmax() / 3600 == pytest.approx(8.0, abs=0.1)
    assert day.max() / day.min() == pytest.approx(1.4 / 0.6, rel=1e-3)


def test_a_recorded_series_is_the_demand_and_begins_anew() -> None:
    recorded = replace(CONFIG.services[0], arrivals=(10_000.0, 30_000.0, 0.0), arrivals_step_s=20.0)
    for tick_s in (1.0, 20.0):
        work = demand(replace(CONFIG, services=(recorded, *CONFIG.services[1:]), tick_s=tick_s), 100)
        assert work[:, 0].tolist() == [10_000.0] * 20 + [30_000.0] * 20 + [0.0] * 20 + [10_000.0] * 20 + [30_000.0] * 20
        assert (work[:, 1] > 0).all()


def test_the_share_in_time_follows_from_the_queue() -> None:
    """Constant demand of 10 replicas: with 8 the queue grows and all are late, with 12 next to none is."""
    steady = replace(CONFIG.services[0], arrivals=(20_000.0,), replicas=12)
    config = replace(CONFIG, services=(steady, *CONFIG.services[1:]))

    def share(replicas: int) -> float:
        fleet = Fleet(config, START_NS)
        fleet.apply(scale("chat-api", replicas))
        services = fleet.plant.services
        seen: list[tuple[float, float]] = []
        for i in range(100):
            fleet.tick(i)
            seen.append((float(services.in_time[0]), float(services.arrived[0])))
        return (seen[-1][0] - seen[40][0]) / (seen[-1][1] - seen[40][1])

    assert share(8) < 0.05
    assert share(12) > 0.95
    assert share(16) > share(12)


def test_a_replica_on_a_slow_gpu_takes_longer_for_its_requests() -> None:
    slow = (StragglingGpu(workload="chat-api", replica=2, from_s=5.0, clock_ratio=0.5),)
    fleet = Fleet(replace(CONFIG, failing=(), straggling=slow), START_NS)
    mean = WORKLOAD.column("flyball.workload.latency{stat=mean}")
    latencies: list[list[float]] = []
    for i in range(400):
        sent = fleet.tick(i)
        if i not in (4, 399):
            continue
        rows = {n.node: [a.workload == "chat-api" for a in n.allocations] for n in fleet.nodes}
        frames = [decode_frame(m.value or b"") for m in sent if m.topic == TELEMETRY.name]
        shown = [f.values[rows[f.node], mean] for f in frames if f.schema == WORKLOAD.schema]
        latencies.append(sorted(np.concatenate(shown).tolist()))
    before, after = latencies
    assert before[-1] == pytest.approx(before[0])
    *others, slowest = [x for x in after if np.isfinite(x)]
    assert others[-1] == pytest.approx(others[0])
    assert slowest - others[0] == pytest.approx(CONFIG.services[0].service_s, rel=0.1)
