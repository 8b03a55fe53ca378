"""Moves that are overtaken, may not be followed for a moment, or end without the platform, give their node back."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.actuators.carry_out import ended, submitted
from tests.actuators.loop import PARTITIONS, config_for, ended as over, of, publish, running, statuses_of
from tests.actuators.samples import check, inventory, migrate, spec
from tests.brokers.embedded import EmbeddedBroker
from tests.kubernetes.cluster import CORDON, Cluster, pod as template
from tests.kubernetes.test_check import clear

from flyball_actuators.platforms import Done, Handle, Held, PlatformError, Running
from flyball_actuators.platforms.kubernetes import KubernetesPlatform, migrate as migrations
from flyball_contracts.config import CheckConfig, Config, PlatformConfig

MERGE = "application/merge-patch+json"

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


def held(platform: KubernetesPlatform) -> dict[str, Held]:
    return {thing.name.rpartition("/")[2]: thing for thing in platform.held()}


def patch(cluster: Cluster, node: str, by: str, *, closed: bool | None, **annotations: str | None) -> None:
    body = {"spec": {"unschedulable": closed}, "metadata": {"annotations": annotations}}
    path = f"/api/v1/nodes/{node}?fieldManager={by}"
    assert cluster.plane.request("PATCH", path, body, content_type=MERGE)[0] == 200


def test_a_node_that_a_move_has_left_closed_is_found_and_opened_once(cluster: Cluster, pod: tuple[str, str]) -> None:
    platform, (name, node) = cluster.platform(), pod
    assert not held(platform)
    begun_ns = time.time_ns()
    assert isinstance(submitted(platform, migrate("m", replica=name, from_node=node, from_device="")), Handle)
    thing = held(cluster.platform())[node]  # as another process sees it
    assert thing.decision == "m"
    assert abs(thing.since_ns - begun_ns) < 60e9
    assert not platform.give_back(thing._replace(decision="another"))
    assert not is_open(cluster, node)
    assert platform.give_back(thing)
    assert is_open(cluster, node)
    assert not cluster.plane.get(f"/api/v1/nodes/{node}")["metadata"].get("annotations", {}).keys() & {*CORDON}
    assert not platform.give_back(thing)
    assert not held(platform)


@pytest.mark.parametrize("by", ["kubectl-cordon", "cluster-autoscaler"])
def test_a_node_that_another_client_has_closed_since_stays_closed(
    cluster: Cluster, pod: tuple[str, str], by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "AGAIN_S", 0.2)
    platform, (name, node) = cluster.platform(), pod
    handle = submitted(platform, migrate("m", replica=name, from_node=node, from_device=""))
    assert isinstance(handle, Handle)
    thing = held(platform)[node]
    patch(cluster, node, "kubectl-uncordon", closed=None)
    patch(cluster, node, by, closed=True)
    assert not held(platform)
    assert not platform.give_back(thing)
    assert not is_open(cluster, node)
    cluster.plane.request("DELETE", budget(cluster))  # nor does the end of the move open it
    assert isinstance(ended(platform, handle), Done)
    assert not is_open(cluster, node)
    assert not cluster.plane.get(f"/api/v1/nodes/{node}")["metadata"].get("annotations", {}).keys() & {*CORDON}


def test_a_node_that_has_to_be_checked_is_not_given_back(cluster: Cluster, pod: tuple[str, str]) -> None:
    platform, (name, node) = cluster.platform(), pod
    plain = submitted(platform, migrate("plain", replica=name, from_node=node, from_device=""))
    assert isinstance(plain, Handle)
    thing = held(platform)[node]
    sick = submitted(platform, migrate("sick", replica=name, from_node=node, from_device="GPU-1"))
    assert isinstance(sick, Handle)
    assert not held(platform)
    assert not platform.give_back(thing)
    assert isinstance(platform.abandon(plain), Running)  # the older move ends, and opens nothing
    assert not is_open(cluster, node)
    cluster.plane.request("DELETE", budget(cluster))
    assert isinstance(ended(platform, sick), Done)
    assert not is_open(cluster, node)
    assert not held(platform)


def test_a_check_takes_over_a_node_that_a_move_has_left_closed(cluster: Cluster, pod: tuple[str, str]) -> None:
    clear(cluster)
    platform, (name, node) = cluster.platform(check=CheckConfig(image="flyball:test")), pod
    assert isinstance(submitted(platform, migrate("m", replica=name, from_node=node, from_device="")), Handle)
    assert isinstance(submitted(platform, check(node=node), dry_run=True), Handle)
    thing = held(platform)[node]
    assert isinstance(submitted(platform, check(node=node)), Handle)
    assert not held(platform)
    assert not platform.give_back(thing)
    assert not is_open(cluster, node)
    clear(cluster)


def test_pods_without_traffic_serve_again(cluster: Cluster) -> None:
    labels = {"app": "gang", "flyball.dev/serving": "true"}
    body = {"replicas": 1, "selector": {"matchLabels": {"app": "gang"}}, "template": template(labels, 1, "100ms")}
    metadata = cluster.named("gang", "gang")
    cluster.plane.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": body})
    cluster.plane.apply({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "gang", "namespace": cluster.namespace},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "gang"}}},
    })  # fmt: skip
    cluster.ready(cluster.deployments("gang"), 1)
    (pod,) = cluster.pods("gang")
    name, platform = pod["metadata"]["name"], cluster.platform()
    move = migrate("m", workload="gang", replica=name, from_node=pod["spec"]["nodeName"], from_device="")
    assert isinstance(submitted(platform, move), Handle)
    serving = cluster.pods("gang")[0]["metadata"]["labels"]["flyball.dev/serving"]
    assert serving == "draining"
    assert platform.give_back(held(platform)[name])
    (left,) = cluster.pods("gang")
    assert left["metadata"]["labels"]["flyball.dev/serving"] == "true"
    assert "flyball.dev/moved-for" not in left["metadata"]["annotations"]
    assert name not in held(platform)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_move_whose_outcome_stays_unknown_gives_its_node_back(
    cluster: Cluster,
    pod: tuple[str, str],
    embedded_broker: Callable[..., EmbeddedBroker],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    restarts: bool,
) -> None:
    monkeypatch.setattr("flyball_actuators.execution.carry_out.GIVE_UP_S", 1.0)
    monkeypatch.setattr("flyball_actuators.execution.giving_back.EVERY_S", 600.0 if restarts else 0.5)
    monkeypatch.setattr("flyball_actuators.execution.giving_back.AGAIN_S", 0.5)
    bootstrap, (name, node) = embedded_broker(PARTITIONS).bootstrap, pod
    publish(bootstrap, spec(), inventory(node))
    config = live(cluster, bootstrap, tmp_path)
    with running(config, clock=time.time_ns):
        publish(bootstrap, migrate("m", replica=name, from_node=node, from_device="", time_ns=time.time_ns()))
        cluster.until(lambda: not is_open(cluster, node), "the node is cordoned")
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{cluster.namespace}/rolebindings/flyball-actuator"
        assert cluster.plane.request("DELETE", path)[0] == 200
        cluster.until(over(bootstrap, 1), "its outcome is unknown")
        if not restarts:
            cluster.until(lambda: is_open(cluster, node), "the node is given back")
    cluster.grant()
    if restarts:
        assert not is_open(cluster, node)
        with running(config, clock=time.time_ns):
            cluster.until(lambda: is_open(cluster, node), "the node is given back by the next process")
    assert statuses_of(bootstrap, "m") == ["accepted", "running", "failed"]
    assert of(bootstrap, "m", "failed").unknown
    assert name in {one["metadata"]["name"] for one in cluster.pods("chat")}


def live(cluster: Cluster, bootstrap: str, folder: Path) -> Config:
    entry = PlatformConfig(
        driver="kubernetes",
        cells=("cell-a",),
        kubeconfig=str(cluster.plane.kubeconfig()),
        namespaces=(cluster.namespace,),
        poll_s=0.1,
    )
    return config_for(
        bootstrap, "hands", mode="live", ledger=str(folder / "ledger"), audit=str(folder / "audit"), platforms=(entry,),
        allow=("*",), kill_switch=str(folder / "stop"),
    )  # fmt: skip
