"""The fleet of the runs, and how it is governed: much to decide for a while, then nothing more."""

import random

import msgspec

from flyball_contracts.config import (
    ActuatorConfig,
    Batch,
    Burst,
    Config,
    FailingGpu,
    FleetConfig,
    GridZone,
    NodePool,
    Notebooks,
    Service,
    Training,
    WorkerConfig,
)

CALM_S = 20.0
"""Event seconds before the first burst: detectors and forecasts have something to go by."""
CAPACITY = 2_000.0
SERVICES = 6
BURST_S, EVERY_S = 45.0, 30.0
LAST_S = 30.0
"""Event seconds that a burst takes at most, and from one to the next, of another service;
before the end of the busy time, that from which on all have more to do than they may."""


def fleet(busy_s: float, seed: int) -> FleetConfig:
    """Nine nodes whose six services burst in turn for ``busy_s`` event seconds; then all have too much to do.

    A subject gets some sixty decisions in an hour at most, so there are many subjects with few bursts each. What is in
    the end follows from the specifications alone: services at their largest number of replicas (scaling in has
    hysteresis, so the least one would depend on the way there), the gang whole, the failing GPU cordoned and left.
    """
    zone = GridZone(name="DE", hour_at_start=19.0, carbon_g_per_kwh=380.0, price_usd_per_kwh=0.16, solar_share=0.4)
    usual = {
        "pools": ["h"], "tenant": "product", "priority": 100, "cold_start_s": 6.0, "capacity_tokens_per_s": CAPACITY,
        "wave_share": 0.0, "noise_share": 0.0, "random_bursts_per_hour": 0.0, "min_replicas": 2, "replicas": 2,
        "max_replicas": 6, "base_load": 0.05,
    }  # fmt: skip
    bursts = _bursts(random.Random(seed), busy_s)
    return FleetConfig(
        seed=seed,
        zones=(zone,),
        pools=(
            NodePool(name="h", sku="h100", nodes=7, zone="DE", region="eu", price_usd_per_hour=31.2),
            NodePool(name="a", sku="a100", nodes=2, zone="DE", region="eu", price_usd_per_hour=14.7),
        ),
        trainings=(Training(name="train", pools=("a",), replicas=4, gpus_per_replica=2, priority=80),),
        services=tuple(
            msgspec.convert({"name": f"service-{i + 1}", "bursts": bursts[i], **usual}, Service)
            for i in range(SERVICES)
        ),
        notebooks=(Notebooks(name="notes", pools=("h",), replicas=4, priority=10),),
        batches=(
            Batch(name="batch", pools=("h",), replicas=12, nominal_replicas=12, duration_s=36_000.0, priority=20),
        ),
        failing=(FailingGpu(workload="train", replica=2, from_s=CALM_S + 40.0),),
        straggling=(),
    )


def settings(speed: float) -> Config:
    """Worker and actuators: everything happens in minutes, and limits are no part of what is asked.

    What has the age of a second of the wall clock has come, at any speed.
    """
    worker = msgspec.convert(
        {
            "app": "faults",
            "snapshot_every_s": 5.0,
            "table_age_s": max(1.0, speed),
            "decision_interval_s": 0.0,
            "sizing": {"policy": "forecast_band", "reversal_cooldown_s": 20.0, "max_scale_in": 1.0},
        },
        WorkerConfig,
    )
    actuator = msgspec.convert(
        {
            "mode": "live", "clock": "event", "group": "faults-actuator",
            "per_target": {"actions": 10_000}, "per_cell": {"actions": 10_000},
            "blast_radius": {"share": 1.0, "replicas": 10_000, "most": 10_000},
        },
        ActuatorConfig,
    )  # fmt: skip
    return Config(worker=worker, actuator=actuator)


def _bursts(random_: random.Random, busy_s: float) -> list[list[Burst]]:
    """Bursts of each service: they take turns, so that two or three are at it at any time."""
    found: list[list[Burst]] = [[] for _ in range(SERVICES)]
    at_s, turn = CALM_S, 0
    while at_s + BURST_S <= busy_s - LAST_S:
        hold_s, factor = random_.uniform(0.5, 0.8) * BURST_S, random_.uniform(60, 110)
        found[turn % SERVICES].append(Burst(from_s=round(at_s, 1), rise_s=4.0, hold_s=round(hold_s, 1), factor=factor))
        at_s, turn = at_s + EVERY_S * random_.uniform(0.8, 1.2), turn + 1
    for own in found:
        own.append(Burst(from_s=busy_s - LAST_S, rise_s=4.0, hold_s=1e6, factor=120.0))
    return found
