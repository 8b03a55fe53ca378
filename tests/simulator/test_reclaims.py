"""Spot machines that the cloud takes back: the notice, what is lost without a move, and what is kept with one."""

import pytest
from msgspec.structs import replace
from tests.simulator.orders import START_NS, run

from flyball_contracts.config import FleetConfig, GridZone, NodePool, Reclaim, Service, Training
from flyball_contracts.errors import ConfigError
from flyball_simulator import Fleet

SPOT = NodePool(name="s", sku="h100", nodes=3, zone="z", capacity_type="spot")
CONFIG = FleetConfig(
    zones=(GridZone(name="z"),),
    pools=(SPOT, NodePool(name="n", sku="h100", nodes=1, zone="z")),
    services=(Service(name="api", pools=("s", "n"), replicas=4, max_replicas=8, cold_start_s=2.0),),
    trainings=(
        Training(
            name="train", pools=("s",), replicas=2, gpus_per_replica=8, checkpoint_s=1.0, cold_start_s=2.0,
            checkpoint_every_s=1e6,
        ),
    ),
    notebooks=(), batches=(), failing=(), straggling=(),
    reclaims=(Reclaim(node="s-002", from_s=10.0, notice_s=20.0, lasts_s=15.0),),
)  # fmt: skip
"""``api`` is on node s-001; the gang on s-002 and s-003."""


def holders(fleet: Fleet, workload: str) -> set[str]:
    return {node.node for node in fleet.nodes if any(a.workload == workload for a in node.allocations)}


def test_a_machine_is_gone_after_its_notice_with_unsaved_work_and_comes_back_later() -> None:
    fleet = Fleet(CONFIG, START_NS)
    assert holders(fleet, "train") == {"s-002", "s-003"}
    first = run(fleet, 30)
    (notice,) = (e for e in first.events if e.kind == "spot_notice")
    assert (notice.node, notice.remedy, notice.time_ns) == ("s-002", "drain", START_NS + 10 * 10**9)
    lost = fleet.account().lost_gpu_h
    gone = run(fleet, 1)
    (tombstone,) = (n for n in gone.inventories if n.node == "s-002")
    assert tombstone.devices == ()
    assert [e.message for e in gone.events if e.node == "s-002"] == ["machine reclaimed"]
    assert "s-002" not in {f.node for f in gone.frames}
    assert fleet.account().lost_gpu_h - lost > 16 * 20.0 / 3600.0, "the gang has lost all since its start"
    away = run(fleet, 14)
    assert "s-002" not in {f.node for f in away.frames}
    back = run(fleet, 2)
    assert [e.message for e in back.events if e.node == "s-002"] == ["machine back after its reclaim"]
    assert "s-002" in {f.node for f in back.frames}
    run(fleet, 5)
    assert holders(fleet, "train") == {"s-002", "s-003"}


def test_a_machine_that_is_bought_again_after_a_reclaim_has_been_empty_only_since_then() -> None:
    pool = replace(SPOT, nodes=1, max_nodes=2, provision_s=2.0, return_after_s=100.0)
    api = replace(CONFIG.services[0], pools=("s",), replicas=1, gpus_per_replica=8)
    reclaim = Reclaim(node="s-002", from_s=60.0, notice_s=0.0, lasts_s=10.0)
    fleet = Fleet(replace(CONFIG, pools=(pool,), services=(api,), trainings=(), reclaims=(reclaim,)), START_NS)

    def buy() -> None:
        fleet.plant.scale(0, 2)
        run(fleet, 1)
        fleet.plant.scale(0, 1)  # nobody needs it any more by the time that it arrives
        run(fleet, 5)
        assert "s-002" in {node.node for node in fleet.nodes}

    buy()
    run(fleet, 60)
    assert "s-002" not in {node.node for node in fleet.nodes}
    run(fleet, 10)
    buy()
    run(fleet, 40)
    assert "s-002" in {node.node for node in fleet.nodes}, (
        "it has been empty for 46 s, and not since before the reclaim"
    )
    run(fleet, 70)
    assert "s-002" not in {node.node for node in fleet.nodes}


@pytest.mark.parametrize(
    ("reclaim", "words"),
    [
        (Reclaim(node="x", from_s=1.0), r"reclaims\[0\].node: 'x' is not one of: s-001, s-002, s-003, n-001"),
        (Reclaim(node="n-001", from_s=1.0), r"reclaims\[0\].node: 'n-001' is in pool n with capacity_type on_demand"),
    ],
)
def test_what_cannot_be_reclaimed_is_refused(reclaim: Reclaim, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Fleet(replace(CONFIG, reclaims=(reclaim,)), START_NS)
