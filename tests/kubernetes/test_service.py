"""From a decision on the topic to an effect that the cluster shows: broker, guard, ledger and driver together."""

import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.actuators.loop import PARTITIONS, config_for, ended, of, publish, running, statuses_of, without_effect
from tests.actuators.rows import observed_row
from tests.actuators.samples import NOW, inventory, migrate, preempt, scale, spec
from tests.brokers.embedded import EmbeddedBroker
from tests.kubernetes.cluster import Cluster

from flyball_contracts.config import PlatformConfig
from flyball_contracts.records import Allocation

pytestmark = pytest.mark.integration


def test_all_three_commands_reach_the_cluster(
    cluster: Cluster, embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path
) -> None:
    bootstrap = embedded_broker(PARTITIONS).bootstrap
    cluster.deploy("chat", 2, workload="chat")
    cluster.job("train", 2, workload="train")
    cluster.ready(cluster.deployments("chat"), 2)
    cluster.ready(cluster.jobs("train"), 2)
    pod = cluster.pods("chat")[0]
    name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
    placed = msgspec.structs.replace(inventory(node), allocations=(Allocation(workload="chat", replica=name),))
    publish(bootstrap, spec(), spec("train"), placed)
    platforms = (
        PlatformConfig(
            driver="kubernetes",
            kubeconfig=str(cluster.plane.kubeconfig()),
            namespaces=(cluster.namespace,),
            poll_s=0.1,
        ),
    )
    config = config_for(
        bootstrap, "hands", mode="live", ledger=str(tmp_path / "ledger"), platforms=platforms, allow=("*",),
        kill_switch=str(tmp_path / "stop"),
    )  # fmt: skip
    with running(without_effect(config)):
        publish(bootstrap, scale("plan", before=2, after=3))
        cluster.until(ended(bootstrap, 1), "it is planned")
    with running(config):
        publish(
            bootstrap,
            scale("up", before=2, after=4),
            preempt("stop", workload="train", before=2, after=0),
        )
        cluster.until(ended(bootstrap, 3), "both are over")
        publish(bootstrap, migrate("move", replica=name, from_node=node, time_ns=NOW + 1))
        cluster.until(ended(bootstrap, 4), "the migration is over")
        publish(bootstrap, scale("up", before=2, after=4))  # delivered twice
        time.sleep(0.5)
    for decision in ("up", "stop", "move"):
        assert statuses_of(bootstrap, decision)[:3] == ["accepted", "running", "done"]
    up = of(bootstrap, "up", "running")
    assert up.driver == "kubernetes"
    assert "audit id" in up.answer
    assert len(cluster.pods("chat")) == 4
    assert name not in {p["metadata"]["name"] for p in cluster.pods("chat")}
    assert not [p for p in cluster.pods() if p["metadata"]["labels"].get("job") == "train"]
    updates = [c for c in cluster.plane.calls() if c["verb"] == "update" and "dryRun" not in c["requestURI"]]
    writes = [c for c in updates if c["objectRef"]["namespace"] == cluster.namespace]
    assert len(writes) == 1  # delivered twice, done once
    row = observed_row(bootstrap, "kubernetes")
    assert (row.verbs, row.gang, row.planned) == ({"Migrate": (1, 1), "Preempt": (1, 1), "Scale": (1, 1)}, (1, 1), 1)
