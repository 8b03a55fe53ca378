"""Machines of the simulated fleet, from a decision on the topic to what the fleet shows."""

from pathlib import Path
from typing import Any

from tests.actuators.loop import config_for, ended, of, publish, read_all, running, wait_for
from tests.actuators.samples import NOW, S, scale

from flyball_contracts.codec import decode_message
from flyball_contracts.config import FleetConfig, NodePool, PlatformConfig, PoolConfig
from flyball_contracts.records import Pool, Scale
from flyball_contracts.topics import POOLS
from flyball_simulator import Fleet
from flyball_simulator.service.platform import Platform
from flyball_simulator.service.server import bound, serving

FLEET = FleetConfig(
    pools=(
        *FleetConfig().pools[:2],
        NodePool(
            name="gpu-c", sku="a100", nodes=4, max_nodes=9, zone="DE", instance_type="sim.a100.8",
            price_usd_per_hour=10.0, managed=True, provision_s=3.0,
        ),
    )
)  # fmt: skip
POOL = PoolConfig(
    name="gpu-c", kind="machines", resource="gpu-c", instance_type="sim.a100.8", min_machines=4, max_machines=8,
    price_usd_per_hour=10.0, gpus={"NVIDIA A100-SXM4-80GB": 8},
)  # fmt: skip


def order(before: int, after: int, name: str, at: int) -> Scale:
    return scale(name, cell="fleet", workload="pool:gpu-c", before=before, after=after, time_ns=NOW + at * S)


def test_machines_are_bought_within_the_budget_and_returned(bootstrap: str, unique: Any, tmp_path: Path) -> None:
    platform = Platform(Fleet(FLEET, NOW), 60.0)
    platform.tick(0)
    ticks = iter(range(1, 100_000))

    def passes(decisions: int) -> bool:
        platform.tick(next(ticks))
        return ended(bootstrap, decisions)()

    with bound(platform, "127.0.0.1:0") as server, serving(server) as url:
        entry = PlatformConfig(
            cells=("fleet",), driver="simulated", url=url, poll_s=0.02, pools=(POOL,), budget_usd_per_hour=65.0
        )
        config = config_for(
            bootstrap, unique("actuator"), mode="live", ledger=str(tmp_path / "ledger"), platforms=(entry,)
        )
        with running(config):
            publish(bootstrap, order(4, 6, "out", 0))
            wait_for(lambda: passes(1), "machines")
            assert platform.cell().nodes == 26
            publish(bootstrap, order(6, 7, "dear", 1))
            wait_for(lambda: passes(2), "a refusal")
            publish(bootstrap, order(6, 5, "in", 2))
            wait_for(lambda: passes(3), "their return")
    out, dear, back = of(bootstrap, "out", "done"), of(bootstrap, "dear", "refused"), of(bootstrap, "in", "done")
    assert out.observed is not None
    assert (out.observed.replicas, out.observed.ready) == (6, 6)
    assert out.effect is not None
    assert out.effect.cost_usd_per_hour == 20.0
    assert (dear.code, "budget_usd_per_hour of 65" in dear.detail) == ("limit", True)
    assert back.observed is not None
    assert back.observed.ready == 5
    assert platform.cell().nodes == 25
    (value, headers), *_ = read_all(bootstrap, POOLS.name)
    published = decode_message(POOLS.name, value, headers)
    assert isinstance(published, Pool)
    assert (published.pool, published.gpu_model, published.gpus) == ("gpu-c", "NVIDIA A100-SXM4-80GB", 8)
