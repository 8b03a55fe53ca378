"""Moves that are overtaken, or that may not be followed for a moment, give their node back."""

import time

import pytest
from tests.actuators.carry_out import ended, submitted
from tests.actuators.samples import migrate
from tests.kubernetes.cluster import Cluster

from flyball_actuators.platforms import Done, Handle, PlatformError, Running
from flyball_actuators.platforms.kubernetes import migrate as migrations

pytestmark = pytest.mark.integration


def is_open(cluster: Cluster, node: str) -> bool:
    return not cluster.plane.get(f"/api/v1/nodes/{node}")["spec"].get("unschedulable")


@pytest.fixture
def pod(cluster: Cluster) -> tuple[str, str]:
    """A pod that its disruption budget keeps, and its node."""
    cluster.deploy("chat", 2, workload="chat")
    cluster.ready(cluster.deployments("chat"), 2)
    cluster.plane.apply({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "chat", "namespace": cluster.namespace},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "chat"}}},
    })  # fmt: skip
    cluster.until(lambda: cluster.plane.get(budget(cluster))["status"].get("currentHealthy") == 2, "the budget counts")
    found = cluster.pods("chat")[0]
    return found["metadata"]["name"], found["spec"]["nodeName"]


def budget(cluster: Cluster) -> str:
    return f"/apis/policy/v1/namespaces/{cluster.namespace}/poddisruptionbudgets/chat"


@pytest.mark.parametrize("device", ["", "GPU-1"])
def test_a_move_that_is_overtaken_opens_its_node_for_the_newer_one_to_close(
    cluster: Cluster, pod: tuple[str, str], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "AGAIN_S", 0.2)
    platform, (name, node) = cluster.platform(), pod
    older = submitted(platform, migrate("older", replica=name, from_node=node, from_device=device))
    assert isinstance(older, Handle)
    newer = submitted(platform, migrate("newer", replica=name, from_node=node, from_device=""))
    assert isinstance(newer, Handle)
    assert isinstance(platform.abandon(older), Running)
    assert is_open(cluster, node) is not bool(device)  # where a device is sick the node waits for its check
    time.sleep(0.4)
    assert isinstance(platform.poll(newer), Running)
    assert not is_open(cluster, node)
    cluster.plane.request("DELETE", budget(cluster))
    assert isinstance(ended(platform, newer), Done)
    assert is_open(cluster, node) is not bool(device)


def test_what_may_not_be_read_for_a_moment_is_asked_for_again(cluster: Cluster, pod: tuple[str, str]) -> None:
    platform, (name, node) = cluster.platform(), pod
    handle = submitted(platform, migrate(replica=name, from_node=node, from_device=""))
    assert isinstance(handle, Handle)
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{cluster.namespace}/rolebindings/flyball-actuator"
    assert cluster.plane.request("DELETE", path)[0] == 200

    def refused() -> bool:
        try:
            assert isinstance(platform.poll(handle), Running)
        except PlatformError as error:
            return "is forbidden" in str(error)
        return False

    cluster.until(refused, "the rights are gone")
    with pytest.raises(PlatformError, match="is forbidden"):
        cluster.platform().find(migrate(replica=name, from_node=node, from_device=""), None)
    cluster.grant()
    cluster.plane.request("DELETE", budget(cluster))
    assert isinstance(ended(platform, handle), Done)
    assert is_open(cluster, node)
