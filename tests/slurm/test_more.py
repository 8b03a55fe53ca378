"""Job arrays, room that is kept, and nodes that are turned off, on a real cluster."""

from typing import Any

import pytest
from tests.actuators.carry_out import carried_out, ended, submitted
from tests.actuators.samples import migrate, preempt, scale
from tests.slurm.cluster import GPUS, NODES, SlurmCluster

from flyball_actuators.platforms import Done, Failed, Handle, Rejected, Running, Superseded
from flyball_actuators.platforms.pools.platform import PoolPlatform
from flyball_actuators.platforms.slurm import effects, power_pools
from flyball_contracts.config import PlatformConfig, PoolConfig
from flyball_contracts.errors import ConfigError

pytestmark = pytest.mark.integration


def tasks(cluster: SlurmCluster) -> dict[str, str]:
    """State and comment of each task, `ARRAY_TASK`, as squeue shows them."""
    lines = cluster.run("squeue", "-h", "-r", "-o", "%i %T %k").replace(" (null)", "").splitlines()
    words = [line.partition(" ") for line in lines]
    return {key.partition("_")[2]: rest for key, _, rest in words}


def test_tasks_of_an_array_are_replicas(cluster: SlurmCluster) -> None:
    full = NODES * GPUS
    array = cluster.submit("sweep", f"--array=1-{full + 2}", waits=True)
    cluster.until(lambda: list(tasks(cluster).values()).count("RUNNING") == full, "as many tasks as there is room for")
    platform = cluster.platform()
    shown = platform.observe(scale(workload="sweep"))
    assert not isinstance(shown, Rejected)
    assert (shown.replicas, shown.ready) == (full + 2, full)
    fewer = carried_out(platform, scale("fewer", workload="sweep", before=full + 2, after=full + 1))
    assert isinstance(fewer, Done), fewer
    assert tasks(cluster)[str(full + 2)].startswith("PENDING flyball:fewer:stop"), "who waits goes first, and alone"
    assert tasks(cluster)[str(full + 1)] == "PENDING"
    victim = f"{array}_2"
    gone = carried_out(platform, preempt(workload="sweep", before=full + 1, after=full, victims=(victim,)))
    assert isinstance(gone, Done), gone
    assert tasks(cluster)["2"].startswith("PENDING flyball:p1:stop.0.1")
    cluster.until(lambda: tasks(cluster)[str(full + 1)] == "RUNNING", "the next one has its room")
    found = cluster.platform().find(preempt(workload="sweep", before=full + 1, after=full, victims=(victim,)), None)
    assert isinstance(found, Handle)
    assert isinstance(cluster.platform().poll(found), Done)
    cluster.run("scancel", f"{array}_3", f"{array}_4")
    node = cluster.run("squeue", "-h", "-j", f"{array}_1", "-o", "%N").strip()
    moved = carried_out(
        platform, migrate(workload="sweep", replica=f"{array}_1.{node}", from_node=node, from_device="")
    )
    assert isinstance(moved, Done), moved
    assert next(iter(moved.observed.nodes.values())) not in ("", node)
    back = carried_out(platform, scale("back", workload=f"slurm/{array}", before=full - 2, after=full - 1))
    assert isinstance(back, Done), back
    assert tasks(cluster)["2"].startswith("RUNNING")


def test_room_is_kept_for_a_gang_until_it_runs(cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def reservations() -> str:
        return cluster.run("scontrol", "-o", "show", "reservation").replace("No reservations in the system", "")

    gang = cluster.submit("gang", "-N3", gpus=GPUS)
    platform = cluster.platform()
    assert isinstance(carried_out(platform, preempt("stop", workload="gang", before=1, after=0)), Done)
    monkeypatch.setattr(effects, "SETTLE_S", 5)
    release = scale("go", workload="gang", before=0, after=1)
    handle = submitted(platform, release)
    assert isinstance(handle, Handle)
    assert "3 nodes are kept for it" in handle.answer
    assert "ReservationName=flyball-" in reservations()
    rivals = [cluster.submit("rival", gpus=GPUS, waits=True) for _ in range(NODES)]
    assert isinstance(ended(cluster.platform(), handle), Done)
    states = [cluster.show(job)["JobState"] for job in rivals]
    assert states.count("RUNNING") == NODES - 3, "only what was not kept"
    assert reservations().strip() == "", "it is deleted once the gang runs"
    assert cluster.show(gang)["JobState"] == "RUNNING"
    second = cluster.submit("second", "-N2", "--hold", gpus=GPUS, waits=True)
    waits = submitted(platform, scale("later", workload="second", before=0, after=1))
    assert isinstance(waits, Handle)
    assert "kept" not in waits.answer, "nothing is free"
    assert reservations().strip() == ""
    assert cluster.show(second)["JobState"] == "PENDING"


def pools(cluster: SlurmCluster, **changes: Any) -> PoolPlatform:
    given: dict[str, Any] = {
        "name": "burst", "kind": "partition", "resource": "burst", "instance_type": "h100", "max_machines": 2,
        "price_usd_per_hour": 8.0,
    }  # fmt: skip
    entry = cluster.entry(cells=("cell-a",), pools=(PoolConfig(**(given | changes)),), budget_usd_per_hour=20.0)
    return power_pools(PlatformConfig(**entry), "platform")


def test_nodes_that_are_off_are_machines_that_come_back(cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    platform, node = pools(cluster), cluster.off[0]
    more = scale("more", workload="pool:burst", before=0, after=1)
    shown = platform.observe(more)
    assert not isinstance(shown, Rejected)
    assert (shown.replicas, shown.ready, shown.cost_usd_per_hour) == (0, 0, 0.0)
    planned = platform.submit(more, shown, dry_run=True)
    assert isinstance(planned, Handle)
    assert f"would be turned on: {node}" in planned.answer
    assert pools(cluster).observe(more) == shown
    handle = platform.submit(more, shown, dry_run=False)
    assert isinstance(handle, Handle)
    again = pools(cluster).find(more, shown)  # another process
    assert isinstance(again, Handle)
    assert again.operation.partition("until_ns")[0] == handle.operation.partition("until_ns")[0]
    done = ended(pools(cluster), again)
    assert isinstance(done, Done), done
    assert (done.observed.replicas, done.observed.ready) == (1, 1)
    job = cluster.submit("burst", "-p", "burst")
    assert cluster.show(job)["NodeList"] == node
    less = scale("less", workload="pool:burst", before=1, after=0)
    rejected = submitted(pools(cluster), less)
    assert isinstance(rejected, Rejected)
    assert "0 are idle; move their jobs first" in rejected.detail
    cluster.run("scancel", str(job))
    cluster.until(lambda: not cluster.run("squeue", "-h", "-p", "burst"), "an idle node")
    off = carried_out(pools(cluster), less)
    assert isinstance(off, Done), off
    assert (off.observed.replicas, off.observed.ready) == (0, 0)
    assert isinstance(platform.poll(handle), Superseded), "the old decision is not done again"
    with cluster.no_machines():
        begun = submitted(pools(cluster), scale("never", workload="pool:burst", before=0, after=1))
        assert isinstance(begun, Handle)
        assert isinstance(platform.poll(begun), Running)

        def burnt() -> bool:
            """Whether the reason is reported; Slurm writes its own over it, or removes it, while a node is late."""
            cluster.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=burnt")
            last = platform.poll(begun)
            return isinstance(last, Failed) and f"node {node} did not come: burnt" in last.answer

        cluster.until(burnt, "the operator's reason")
        cluster.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
        cluster.run("scontrol", "update", f"NodeName={node}", "State=POWER_DOWN")
        shown = platform.observe(more)
        assert not isinstance(shown, Rejected)
        assert shown.replicas == 0


def test_a_pool_that_is_no_partition_is_named(cluster: SlurmCluster) -> None:
    with pytest.raises(ConfigError, match=r"pools\[0\].kind: driver slurm has no fleet; set kind: partition"):
        pools(cluster, kind="fleet")
    answer = pools(cluster, resource="none").observe(scale(workload="pool:burst", before=0, after=1))
    assert isinstance(answer, Rejected)
    assert "partition 'none' has no nodes" in answer.detail
