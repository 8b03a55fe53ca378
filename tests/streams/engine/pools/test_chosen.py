"""A burst on a fleet that obeys: the cheap pool buys what it may, and the rest runs on what costs more."""

import msgspec
import pytest
from tests.streams.engine.closed_loop import ClosedLoop
from tests.streams.engine.scene import CONFIG

from flyball_contracts.config import FleetConfig, GridZone, NodePool, Offer, Service
from flyball_contracts.config.fleet import Burst
from flyball_contracts.records import Scale
from flyball_streams.engine.parameters import ChoiceParameters

H100 = "NVIDIA H100 80GB HBM3"
SIZING = msgspec.structs.replace(
    CONFIG.sizing, reversal_cooldown_s=10.0, cooldown_s=5.0, stabilization_window_s=20.0, max_scale_in=1.0
)
POOLS = msgspec.structs.replace(CONFIG.pools, buy_after_s=600.0, return_after_s=40.0)
OFFERS = (
    Offer(name="cheap", gpu_model=H100, instance_type="sim.cheap", gpus=8, price_usd_per_hour=16.0, start_s=30.0),
    Offer(name="dear", gpu_model=H100, instance_type="sim.dear", gpus=8, price_usd_per_hour=32.0, at_most=3),
)
CHOICE = ChoiceParameters(mode="act", offers=OFFERS, every_s=60.0, least_saving=0.05, retry_s=60.0)
WORKER = msgspec.structs.replace(CONFIG, sizing=SIZING, pools=POOLS, choice=CHOICE, decision_interval_s=5.0)
FLEET = FleetConfig(
    cell="mixed",
    zones=(GridZone(name="DE"),),
    pools=(
        NodePool(
            name="cheap", sku="h100", nodes=1, max_nodes=2, zone="DE", instance_type="sim.cheap",
            price_usd_per_hour=16.0, managed=True, provision_s=30.0,
        ),
        NodePool(name="dear", sku="h100", nodes=3, zone="DE", instance_type="sim.dear", price_usd_per_hour=32.0),
    ),
    services=(
        Service(
            name="chat", pools=("cheap", "dear"), replicas=6, max_replicas=32, base_load=0.6, cold_start_s=5.0,
            random_bursts_per_hour=0.0, bursts=(Burst(from_s=20.0, rise_s=5.0, hold_s=150.0, factor=4.0),),
        ),
    ),
    trainings=(), notebooks=(), batches=(), failing=(), straggling=(),
)  # fmt: skip


@pytest.fixture(scope="module")
def burst() -> ClosedLoop:
    loop = ClosedLoop(FLEET, WORKER)
    loop.run(420)
    return loop


def test_a_burst_takes_what_the_cheap_pool_can_buy_and_the_rest_of_what_costs_more(burst: ClosedLoop) -> None:
    mixes = [
        {part.offer: part.replicas for part in d.mix}
        for d in burst.decisions
        if isinstance(d, Scale) and d.workload == "chat" and d.mix
    ]
    assert all(mixed.get("cheap", 0) <= 16 and mixed.get("dear", 0) <= 24 for mixed in mixes)
    most = max(mixes, key=lambda mixed: sum(mixed.values()))
    assert most["cheap"] == 16
    assert most["dear"] > 0
    bought = [d for d in burst.decisions if d.workload == "pool:cheap" and isinstance(d, Scale) and d.replicas == 2]
    assert bought
    assert "cost least there" in bought[0].reason


def test_what_was_decided_came_true(burst: ClosedLoop) -> None:
    last = {o.decision: o.status for o in burst.outcomes}
    ends = [last[d.id] for d in burst.decisions]
    assert ends
    assert {end for end in ends if end != "superseded"} <= {"done", "accepted"}
    account = burst.fleet.account()
    assert account.in_time > 0.7 * account.requests, "all but what came while machines started"
