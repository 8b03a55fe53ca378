"""Racks that lose power and leaf switches that fail: what agents behind them say, and what their work does."""

import numpy as np
import pytest
from msgspec.structs import replace
from tests.simulator.orders import START_NS, run

from flyball_contracts.config import Batch, FleetConfig, GridZone, LeafFault, NodePool, RackFault, Service, Training
from flyball_contracts.errors import ConfigError
from flyball_contracts.metrics import GPU, WORKLOAD
from flyball_simulator import Fleet

CLOCK = GPU.column("nvidia.gpu.clock.frequency{clock=sm}")
STEP = WORKLOAD.column("flyball.workload.step.time")
READY = WORKLOAD.column("flyball.workload.ready")
CONFIG = FleetConfig(
    zones=(GridZone(name="z"),),
    pools=(NodePool(name="n", sku="h100", nodes=6, zone="z", nodes_per_rack=2, racks_per_leaf=2),),
    services=(Service(name="api", pools=("n",), replicas=8, max_replicas=8),),
    trainings=(Training(name="train", pools=("n",), replicas=4, gpus_per_replica=8, checkpoint_s=0.0),),
    notebooks=(), batches=(), failing=(), straggling=(), pod_timeout_s=60.0, collective_timeout_s=60.0,
)  # fmt: skip
"""``api`` is on node 1, the gang on nodes 2 to 5; racks are nodes 1 and 2, 3 and 4, 5 and 6."""


def test_nodes_tell_their_racks_and_switches_by_their_numbers() -> None:
    told = {n.node: (n.rack, n.leaf) for n in Fleet(CONFIG, START_NS).nodes}
    assert told["n-001"] == told["n-002"] == ("n-rack-01", "n-leaf-01")
    assert told["n-004"] == ("n-rack-02", "n-leaf-01")
    assert told["n-005"] == ("n-rack-03", "n-leaf-02")
    (pool,) = CONFIG.pools
    for changes, expected in (({"nodes_per_rack": 0}, ("", "")), ({"racks_per_leaf": 0}, ("n-rack-01", ""))):
        other = Fleet(replace(CONFIG, pools=(replace(pool, **changes),)), START_NS)
        assert (other.nodes[0].rack, other.nodes[0].leaf) == expected
    default = Fleet(FleetConfig(), START_NS)
    assert {n.rack for n in default.nodes if n.node.startswith("gpu-a")} == {"gpu-a-rack-01", "gpu-a-rack-02"}


def test_a_rack_short_of_power_runs_at_half_its_clock_and_every_gpu_says_so() -> None:
    fleet = Fleet(replace(CONFIG, rack_faults=(RackFault(rack="n-rack-02", from_s=3.0, lasts_s=4.0),)), START_NS)
    before, during, after = run(fleet, 3), run(fleet, 4), run(fleet, 3)
    for node, share in (("n-003", 0.5), ("n-004", 0.5), ("n-002", 1.0)):
        slow = during.of(GPU.schema, node)[-1].values[:, CLOCK] / before.of(GPU.schema, node)[-1].values[:, CLOCK]
        assert np.abs(slow - share).max() < 0.05, node
        assert after.of(GPU.schema, node)[-1].values[:, CLOCK].min() > 1.9e9
    steps = [part.of(WORKLOAD.schema, "n-005")[-1].values[0, STEP] for part in (before, during)]
    assert 1.8 < steps[1] / steps[0] < 2.2, "the gang goes at the pace of its slowest"
    assert {(e.kind, e.severity, e.node) for e in during.events} == {
        ("power_brake", "warning", "n-003"), ("power_brake", "warning", "n-004"),
    }  # fmt: skip
    assert len({e.device for e in during.events}) == 16
    assert {(e.kind, e.severity) for e in after.events} == {("power_brake", "info")}


def test_a_rack_without_power_is_silent_and_boots_when_it_has_some_again() -> None:
    fault = RackFault(rack="n-rack-02", from_s=2.0, dark_after_s=2.0, lasts_s=6.0)
    fleet = Fleet(replace(CONFIG, rack_faults=(fault,)), START_NS)
    boots = {n.node: n.boot_id for n in fleet.nodes}
    run(fleet, 4)
    assert {f.node for f in run(fleet, 4).frames} == {"n-001", "n-002", "n-005", "n-006"}
    assert not fleet.node("n-003").schedulable
    back = run(fleet, 3)
    mine = [f for f in back.frames if f.node == "n-003"]
    assert [f.seq for f in mine] == list(range(len(mine)))
    assert {f.boot_id for f in mine} == {n.boot_id for n in back.inventories if n.node == "n-003"} != {boots["n-003"]}
    assert {f.epoch for f in mine} == {2}
    assert [e.node for e in back.events if e.kind == "agent_started"] == ["n-003", "n-004"]
    assert all(one.devices for one in back.inventories)
    assert fleet.node("n-003").schedulable, "the platform opens what is back"


def test_behind_a_dead_switch_work_that_needs_it_stands_still_and_what_agents_say_comes_late() -> None:
    fleet = Fleet(replace(CONFIG, leaf_faults=(LeafFault(leaf="n-leaf-01", from_s=2.0, lasts_s=5.0),)), START_NS)
    run(fleet, 2)
    during = run(fleet, 5)
    assert {f.node for f in during.frames} == {"n-005", "n-006"}
    assert np.isnan(during.of(WORKLOAD.schema, "n-005")[-1].values[0, STEP]), "its gang waits for ranks on the others"
    back = run(fleet, 1)
    mine = back.of(WORKLOAD.schema, "n-001")
    assert [(f.time_ns - START_NS) // 10**9 for f in mine] == [2, 3, 4, 5, 6, 7]
    numbers = [f.seq for f in back.frames if f.node == "n-001"]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "none is lost, and they are in order"
    assert [float(f.values[:, READY].max()) for f in mine] == [0.0] * 5 + [1.0], "nobody reached the service"
    assert not np.isnan(back.of(WORKLOAD.schema, "n-005")[-1].values[0, STEP])


def test_the_platform_starts_elsewhere_what_nobody_reaches_for_long() -> None:
    small = replace(CONFIG, trainings=(replace(CONFIG.trainings[0], replicas=1),))
    job = Batch(name="job", pools=("n",), replicas=2, nominal_replicas=2, duration_s=1e6, gpus_per_replica=4)
    faults = (LeafFault(leaf="n-leaf-01", from_s=2.0, lasts_s=90.0),)
    fleet = Fleet(replace(small, batches=(job,), leaf_faults=faults), START_NS)
    run(fleet, 90)
    held = {n.node for n in fleet.nodes if any(a.workload == "job" for a in n.allocations)}
    assert held <= {"n-005", "n-006"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rack_faults": (RackFault(rack="x", from_s=1.0),)}, r"rack_faults\[0\].rack: 'x' is not one of: n-rack-01, "),
        ({"leaf_faults": (LeafFault(leaf="n-rack-01", from_s=1.0),)}, r"leaf_faults\[0\].leaf: .*: n-leaf-01, n-leaf"),
    ],
)
def test_a_fault_of_what_is_not_there_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Fleet(replace(CONFIG, **changes), START_NS)
