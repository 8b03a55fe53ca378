"""From a decision on the topic to an effect that the cluster shows: broker, guard, ledger and driver together."""

import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.actuators.loop import PARTITIONS, config_for, ended, of, publish, running, statuses_of, without_effect
from tests.actuators.rows import observed_row
from tests.actuators.samples import NOW, S, check, inventory, migrate, preempt, scale, spec
from tests.brokers.embedded import EmbeddedBroker
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.test_check import clear, end, pods as checking, result

from flyball_actuators.platforms.kubernetes import migrate as migrations, saga
from flyball_contracts.config import CheckConfig, PlatformConfig
from flyball_contracts.records import Allocation

pytestmark = pytest.mark.integration


MERGE = "application/merge-patch+json"


def test_all_commands_reach_the_cluster(
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
            cells=("cell-a",),
            kubeconfig=str(cluster.plane.kubeconfig()),
            namespaces=(cluster.namespace,),
            poll_s=0.1,
            check=CheckConfig(image="flyball:test"),
        ),
    )
    config = config_for(
        bootstrap, "hands", mode="live", ledger=str(tmp_path / "ledger"), platforms=platforms, allow=("*", "node:*"),
        kill_switch=str(tmp_path / "stop"),
    )  # fmt: skip
    before = cluster.plane.get(cluster.deployments("chat"))["metadata"]["resourceVersion"]
    with running(without_effect(config)):
        publish(bootstrap, scale("plan", before=2, after=3))
        cluster.until(ended(bootstrap, 1), "it is planned")
    assert cluster.plane.get(cluster.deployments("chat"))["metadata"]["resourceVersion"] == before
    with running(config):
        publish(
            bootstrap,
            scale("up", before=2, after=4),
            preempt("stop", workload="train", before=2, after=0, checkpoint=False),
        )
        cluster.until(ended(bootstrap, 3), "both are over")
        publish(bootstrap, migrate("move", replica=name, from_node=node, time_ns=NOW + 1))
        cluster.until(ended(bootstrap, 4), "the migration is over")
        clear(cluster)
        publish(bootstrap, check("well", node=node, time_ns=NOW + 2))  # it has been closed for that
        cluster.until(lambda: [p["status"].get("phase") for p in checking(cluster)] == ["Running"], "it is checked")
        end(cluster, checking(cluster)[0], 0, result("GPU-1"))
        cluster.until(ended(bootstrap, 5), "the check is over")
        publish(bootstrap, scale("up", before=2, after=4))  # delivered twice
        time.sleep(0.5)
    clear(cluster)
    for decision in ("up", "stop", "move", "well"):
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
    assert row.verbs == {"Check": (1, 1), "Migrate": (1, 1), "Preempt": (1, 1), "Scale": (1, 1)}
    assert (row.gang, row.planned) == ((1, 1), 1)


def test_who_is_named_stops_after_a_checkpoint_and_what_fails_is_taken_back(
    cluster: Cluster,
    embedded_broker: Callable[..., EmbeddedBroker],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(migrations, "AGAIN_S", 0.2)
    monkeypatch.setattr(migrations, "GIVE_UP_S", 1.0)
    monkeypatch.setattr(saga, "DRAIN_S", 1.0)
    bootstrap = embedded_broker(PARTITIONS).bootstrap
    cluster.deploy("train", 3, workload="train")
    cluster.ready(cluster.deployments("train"), 3)
    pods = cluster.pods("train")
    going, named = pods[0]["metadata"]["name"], pods[1]["metadata"]["name"]
    node, base = pods[0]["spec"]["nodeName"], f"/api/v1/namespaces/{cluster.namespace}/pods"
    budget = {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "train", "namespace": cluster.namespace},
        "spec": {"minAvailable": 3, "selector": {"matchLabels": {"app": "train"}}},
    }  # fmt: skip
    cluster.plane.apply(budget)
    trains = {"metadata": {"annotations": {"flyball.dev/checkpoint": "on-request"}}}
    assert cluster.plane.request("PATCH", f"{base}/{named}", trains, content_type=MERGE)[0] == 200
    platform = PlatformConfig(
        driver="kubernetes", cells=("cell-a",), kubeconfig=str(cluster.plane.kubeconfig()),
        namespaces=(cluster.namespace,), poll_s=0.1,
    )  # fmt: skip
    config = config_for(
        bootstrap, "hands", mode="live", ledger=str(tmp_path / "ledger"), platforms=(platform,), allow=("*",),
        kill_switch=str(tmp_path / "stop"),
    )  # fmt: skip

    def notes(pod: str) -> dict[str, str]:
        found: dict[str, str] = cluster.plane.get(f"{base}/{pod}")["metadata"]["annotations"]
        return {key.removeprefix("flyball.dev/"): value for key, value in found.items() if "flyball.dev/" in key}

    with running(config):
        publish(bootstrap, spec("train"), inventory(node))
        publish(bootstrap, migrate("move", workload="train", replica=going, from_node=node, from_device=""))
        cluster.until(ended(bootstrap, 1), "it is given up: the budget has no room")
        assert {p["metadata"]["uid"] for p in cluster.pods("train")} == {p["metadata"]["uid"] for p in pods}
        assert not notes(going)
        assert not cluster.plane.get(f"/api/v1/nodes/{node}")["spec"].get("unschedulable")
        publish(bootstrap, preempt("less", workload="train", before=3, after=2, victims=(named,), time_ns=NOW + S))
        cluster.until(lambda: notes(named).get("checkpoint-requested") == "less", "it is asked for a checkpoint")
        assert len(cluster.pods("train")) == 3
        saved = {"metadata": {"annotations": {"flyball.dev/checkpoint-done": "less"}}}
        assert cluster.plane.request("PATCH", f"{base}/{named}", saved, content_type=MERGE)[0] == 200
        cluster.until(ended(bootstrap, 2), "it is stopped")
    left = {p["metadata"]["uid"] for p in pods} - {pods[1]["metadata"]["uid"]}
    assert {p["metadata"]["uid"] for p in cluster.pods("train")} == left
    assert "look at its disruption budget" in of(bootstrap, "move", "failed").answer
    row = observed_row(bootstrap, "kubernetes")
    assert (row.victims, row.checkpoints, row.rollback) == ((1, 1), 1, (1, 1))
