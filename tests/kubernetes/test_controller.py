"""`flyball controller` on a real control plane: what is on the topics, and what its policies show."""

import time
from typing import Any

import pytest
from msgspec.structs import replace
from tests.actuators.loop import publish, read_all
from tests.actuators.samples import spec as declared_elsewhere
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.controlplane import ADMIN, CONTROLLER_USER, ControlPlane
from tests.kubernetes.observer import RIGHTS, Observer, controlling, policies
from tests.kubernetes.test_rights import OF_OTHERS, right_of, rights_in

from flyball_actuators.controller.machines import AGENT_SILENT_S
from flyball_actuators.controller.service import MANAGER, ControllerReport
from flyball_actuators.platforms.kubernetes.api import APPLY, Api, Expired
from flyball_contracts.codec import record_message
from flyball_contracts.records import Inventory
from flyball_contracts.topics import INVENTORY

pytestmark = [
    pytest.mark.integration,
    # What a log-in leaves open that a killed API server has cut off is the client library's.
    pytest.mark.filterwarnings("ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning"),
]


def change_node(cluster: Cluster, node: str, **spec: Any) -> None:
    path = f"/api/v1/nodes/{node}"
    status, answer = cluster.plane.request("PATCH", path, {"spec": spec}, content_type="application/merge-patch+json")
    assert status == 200, answer


def policy(cluster: Cluster, kind: str, name: str, /, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": cluster.namespace}
    return {"apiVersion": "flyball.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def annotate(cluster: Cluster, name: str, **annotations: str | None) -> None:
    named = {f"flyball.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    status, answer = cluster.plane.request(
        "PATCH", cluster.deployments(name), {"metadata": {"annotations": named}},
        content_type="application/merge-patch+json",
    )  # fmt: skip
    assert status == 200, answer


def test_nodes_and_pods_are_inventories(observer: Observer) -> None:
    cluster = observer.cluster
    cluster.deploy("chat", 2, gpus=3, workload="chat")
    cluster.ready(cluster.deployments("chat"), 2)

    def of_chat() -> list[tuple[str, int]]:
        nodes = observer.tables().inventories.values()
        return [(a.replica, len(a.devices)) for node in nodes for a in node.allocations if a.workload == "chat"]

    with controlling(observer):
        cluster.until(lambda: len(of_chat()) == 2, "the pods are in the inventories")
        assert sorted(of_chat()) == sorted((pod["metadata"]["name"], 3) for pod in cluster.pods("chat"))
        node = observer.tables().inventories["gpu-0"]
        assert (node.cell, len(node.devices), node.cpu_count, node.memory_bytes) == ("eu-1", 8, 64, 512 << 30)
        assert node.agent == "none"
        change_node(cluster, "gpu-0", unschedulable=True)
        cluster.until(lambda: not observer.tables().inventories["gpu-0"].schedulable, "the cordon is seen")
        # An agent that speaks for its node is not contradicted.
        reported = Inventory(node="gpu-0", cell="eu-1", epoch=time.time_ns(), time_ns=time.time_ns())
        publish(observer.bootstrap, record_message(reported, "/agent/gpu-0"))
        cluster.deploy("chat", 4, gpus=3, workload="chat")
        cluster.ready(cluster.deployments("chat"), 4)
        elsewhere = [pod for pod in cluster.pods("chat") if pod["spec"]["nodeName"] != "gpu-0"]
        cluster.until(lambda: len(of_chat()) == len(elsewhere), "the other nodes' pods are in the inventories")
        assert observer.tables().inventories["gpu-0"] == reported


def test_a_node_is_reserved_until_a_declared_workload_tolerates_its_taint(observer: Observer) -> None:
    cluster = observer.cluster
    cluster.deploy("chat", 1, workload="chat")
    cluster.ready(cluster.deployments("chat"), 1)

    def is_open() -> bool:
        return observer.tables().inventories["gpu-1"].schedulable

    try:
        with controlling(observer):
            cluster.until(lambda: "gpu-1" in observer.tables().inventories and is_open(), "the node is there")
            change_node(cluster, "gpu-1", taints=[{"key": "sku", "value": "gpu", "effect": "NoSchedule"}])
            cluster.until(lambda: not is_open(), "no declared workload may start there")
            tolerations = [{"key": "sku", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}]
            body = {"spec": {"template": {"spec": {"tolerations": tolerations}}}}
            cluster.plane.request(
                "PATCH", cluster.deployments("chat"), body, content_type="application/strategic-merge-patch+json"
            )
            cluster.until(is_open, "a declared workload may")
    finally:
        change_node(cluster, "gpu-1", taints=None)


def test_an_agent_that_comes_back_speaks_for_its_node_again(observer: Observer) -> None:
    reported = Inventory(node="gpu-1", cell="eu-1", epoch=5, time_ns=5, agent="stopped")
    publish(observer.bootstrap, record_message(reported, "/agent/gpu-1"))

    def of_node() -> Inventory | None:
        return observer.tables().inventories.get("gpu-1")

    with controlling(observer, ahead_s=AGENT_SILENT_S + 60):  # long after the agent's final outcome
        observer.cluster.until(lambda: (now := of_node()) is not None and len(now.devices) == 8, "it is taken over")
        assert getattr(of_node(), "agent", "") == "stopped", "nobody sees its GPUs since"
        reported = replace(reported, epoch=6, agent="running")
    with controlling(observer):
        publish(observer.bootstrap, record_message(reported, "/agent/gpu-1"))
        observer.cluster.until(lambda: observer.removed("gpu-1"), "the agent is made room for")
        publish(observer.bootstrap, record_message(reported, "/agent/gpu-1"))  # which it repeats
        time.sleep(0.5)
    assert of_node() == reported


def test_a_node_that_goes_leaves_a_tombstone(observer: Observer) -> None:
    plane = observer.cluster.plane
    room = {"cpu": "8", "memory": "32Gi", "pods": "10", "nvidia.com/mig-3g.40gb": "2"}
    node = {"metadata": {"name": "passing"}, "status": {"capacity": room, "allocatable": room}}
    assert plane.request("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", **node})[0] == 201
    with controlling(observer):
        observer.cluster.until(lambda: "passing" in observer.tables().inventories, "the node is seen")
        (parent, *parts) = observer.tables().inventories["passing"].devices
        assert parent.mig_enabled
        assert [(part.mig_profile, part.parent) for part in parts] == [("3g.40gb", parent.id)] * 2
    plane.request("DELETE", "/api/v1/nodes/passing")
    with controlling(observer):  # it went while no controller was there
        observer.cluster.until(
            lambda: None in [value for value, _ in read_all(observer.bootstrap, INVENTORY.name)], "it goes"
        )


def test_annotations_declare_a_workload(observer: Observer) -> None:
    cluster = observer.cluster
    cluster.deploy("chat", 2, gpus=2, workload="chat")
    with controlling(observer):
        first = observer.until_spec("chat", lambda spec: spec is not None)
        assert (first.kind, first.tenant, first.gpus_per_replica) == ("inference", cluster.namespace, 2.0)
        assert (first.min_replicas, first.max_replicas) == (2, 2)
        annotate(cluster, "chat", max_replicas="12", priority="50", objective="{delay_s: 2, attainment: 0.95}")
        then = observer.until_spec("chat", lambda spec: spec is not None and spec.max_replicas == 12)
        assert then.objective is not None
        assert (then.min_replicas, then.priority, then.objective.delay_s) == (0, 50, 2.0)
        annotate(cluster, "chat", min_replicas="40")  # more than the most: it stays as it is
        annotate(cluster, "chat", priority="60")
        time.sleep(1)
        assert observer.spec("chat") == then
        annotate(cluster, "chat", min_replicas=None)
        observer.until_spec("chat", lambda spec: spec is not None and spec.priority == 60)
        annotate(cluster, "chat", workload=None)
        assert observer.until_spec("chat", lambda spec: spec is None).removed


def test_a_policy_says_what_became_of_it(observer: Observer) -> None:
    cluster, plane = observer.cluster, observer.cluster.plane
    cluster.deploy("chat", 2)
    cluster.job("train", 2)
    chat, train = {"kind": "Deployment", "name": "chat"}, {"kind": "Job", "name": "train"}
    name, job = f"{cluster.namespace}/chat", f"{cluster.namespace}/train"
    with controlling(observer):
        good = policy(
            cluster, "WorkloadPolicy", "good", targetRef=chat, kind="inference", minReplicas=1, maxReplicas=9,
            objective={"delaySeconds": 3},
        )  # fmt: skip
        plane.apply(good)
        observer.until("good", ("True", "Accepted"), "True")
        known = observer.until_spec(name, lambda spec: spec is not None)
        assert known.objective is not None
        assert (known.max_replicas, known.objective.delay_s) == (9, 3.0)
        time.sleep(1.1)  # which of two is older shows in whole seconds
        plane.apply(policy(cluster, "WorkloadPolicy", "second", targetRef=chat, maxReplicas=90))
        observer.until("second", ("False", "Conflicted"), "False")
        plane.apply(policy(cluster, "WorkloadPolicy", "lost", targetRef={"kind": "Job", "name": "nobody"}))
        observer.until("lost", ("False", "TargetNotFound"), "False")
        good["spec"] |= {"deadline": "tomorrow", "durationSeconds": 60, "maxReplicas": 20}
        plane.apply(good)
        observer.until("good", ("False", "Invalid"), "False")
        assert observer.spec(name) == known  # what is wrong changes nothing
        carbon = {"deadline": "8h", "durationSeconds": 3600, "checkpointSeconds": 30}
        plane.apply(policy(cluster, "WorkloadPolicy", "job", targetRef=train, maxReplicas=2, durationSeconds=1800))
        plane.apply(policy(cluster, "CarbonPolicy", "green", targetRefs=[train], **carbon))
        observer.until("green", ("True", "Accepted"), "True", "carbonpolicies")
        spec = observer.until_spec(job, lambda spec: spec is not None and spec.interruptible)
        assert (spec.duration_s, spec.checkpoint_s, spec.max_replicas) == (1800.0, 30.0, 2)
        assert spec.deadline_ns is not None
        plane.request("DELETE", f"{cluster.jobs('train')}?propagationPolicy=Background")
        assert observer.until_spec(job, lambda spec: spec is None).removed
        observer.until("green", ("False", "TargetNotFound"), "False", "carbonpolicies")


def test_the_status_of_a_policy_has_one_owner(observer: Observer, caplog: pytest.LogCaptureFixture) -> None:
    cluster, plane = observer.cluster, observer.cluster.plane
    cluster.deploy("chat", 2)
    document = policy(cluster, "WorkloadPolicy", "one", targetRef={"kind": "Deployment", "name": "chat"}, maxReplicas=9)
    plane.apply(document)
    path = f"{policies(cluster, 'workloadpolicies', 'one')}/status"

    def by_ann(**status: Any) -> None:
        body = {key: document[key] for key in ("apiVersion", "kind", "metadata")} | {"status": status}
        answer = plane.request("PATCH", f"{path}?fieldManager=ann&force=true", body, content_type=APPLY)
        assert answer[0] == 200, answer

    with controlling(observer) as reports:
        observer.until("one", ("True", "Accepted"), "True")
        (ours,) = (
            entry
            for entry in plane.get(path)["metadata"]["managedFields"]
            if entry["manager"] == MANAGER and entry["subresource"] == "status"
        )
        assert ours["operation"] == "Apply"
        by_ann(workloads=["mine"])
        cluster.until(lambda: 'conflict with "ann"' in caplog.text, "the conflict is told")
        document["spec"]["maxReplicas"] = 7
        plane.apply(document)
        time.sleep(1)
        shown = plane.get(path)
        assert shown["status"]["workloads"] == ["mine"], "nothing is forced"
        assert shown["status"]["observedGeneration"] < shown["metadata"]["generation"], "so it is seen to be old"
        by_ann()
        observer.until("one", ("True", "Accepted"), "True")
    assert plane.get(path)["status"]["workloads"] == [f"{cluster.namespace}/chat"]
    assert reports[0].conflicts == 1


def test_a_version_that_is_no_longer_kept_is_listed_anew(ruled: ControlPlane) -> None:
    api = Api(str(ruled.kubeconfig(ADMIN)), 10.0, "test")
    with pytest.raises(Expired):  # the server knows nothing of a kind from before it was defined
        list(api.watch("/apis/flyball.dev/v1alpha1/workloadpolicies", "1", (), 2.0))


def test_the_api_server_refuses_what_contradicts_itself(ruled: ControlPlane, cluster: Cluster) -> None:
    chat = {"kind": "Deployment", "name": "chat"}
    for kind, spec, words in (
        ("WorkloadPolicy", {"targetRef": chat, "minReplicas": 5, "maxReplicas": 2}, "minReplicas is more"),
        ("WorkloadPolicy", {"targetRef": {"kind": "Pod", "name": "x"}}, "Unsupported value"),
        ("WorkloadPolicy", {"targetRef": chat, "targetUtilization": 0}, "targetUtilization"),
        ("CarbonPolicy", {"interruptible": True}, "either selector or targetRefs"),
    ):
        document = policy(cluster, kind, "wrong", **spec)
        path = policies(cluster, f"{kind.lower().removesuffix('y')}ies", "").rstrip("/")
        status, answer = ruled.request("POST", path, document)
        assert (status, words in answer["message"]) == (422, True), answer


def test_who_declared_a_workload_first_keeps_it(observer: Observer) -> None:
    cluster = observer.cluster
    publish(observer.bootstrap, declared_elsewhere())
    cluster.deploy("chat", 2, workload="chat")
    target = {"kind": "Deployment", "name": "chat"}
    cluster.plane.apply(policy(cluster, "WorkloadPolicy", "chat", targetRef=target, maxReplicas=7))
    with controlling(observer):
        cluster.until(
            lambda: observer.conditions("workloadpolicies", "chat").get("Published") == ("False", "DeclaredElsewhere"),
            "the policy says who declared it",
        )
        assert observer.spec("chat") == declared_elsewhere()


def test_nothing_is_said_twice_and_nothing_is_lost(observer: Observer) -> None:
    cluster = observer.cluster
    cluster.deploy("chat", 2, workload="chat")
    cluster.ready(cluster.deployments("chat"), 2)
    with controlling(observer):
        cluster.until(lambda: {"gpu-0", "gpu-3"} <= observer.tables().inventories.keys(), "the nodes are seen")
        observer.until_spec("chat", lambda spec: spec is not None)
        time.sleep(0.5)
    with controlling(observer) as reports:
        time.sleep(2)
    assert reports == [ControllerReport()]
    with controlling(observer):
        cluster.plane.crash(1.0)
        annotate(cluster, "chat", max_replicas="6")
        observer.until_spec("chat", lambda spec: spec is not None and spec.max_replicas == 6)


def test_the_rights_that_are_shipped_are_the_calls_that_are_made(ruled: ControlPlane, observer: Observer) -> None:
    target = {"kind": "Deployment", "name": "chat"}
    ruled.apply(
        policy(observer.cluster, "WorkloadPolicy", "one", targetRef=target),
        policy(observer.cluster, "CarbonPolicy", "two", targetRefs=[target]),
    )
    with controlling(observer, whole=True):
        observer.until("one", ("False", "TargetNotFound"), "False")
        observer.until("two", ("False", "TargetNotFound"), "False", "carbonpolicies")
    granted = {right for right in rights_in(RIGHTS) if right[0] not in OF_OTHERS}
    calls = [call["objectRef"] | {"verb": call["verb"]} for call in ruled.calls(CONTROLLER_USER) if "objectRef" in call]
    used = {right_of(call) for call in calls if call.get("apiGroup", "") not in OF_OTHERS}
    # A patch that made its object needed the right to create it, too.
    made = [call for call in ruled.calls(CONTROLLER_USER) if call.get("responseStatus", {}).get("code") == 201]
    assert {call["verb"] for call in made} == {"patch"}
    used |= {right_of(call["objectRef"] | {"verb": "create"}) for call in made}
    assert used == granted
