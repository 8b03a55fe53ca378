"""The shipped rights are the calls that are made, no more and no fewer."""

import time
from collections.abc import Iterable
from typing import Any

import pytest
from tests.actuators.carry_out import carried_out, ended
from tests.actuators.samples import migrate, preempt, scale
from tests.kubernetes.cluster import RIGHTS, Cluster, pod
from tests.kubernetes.observer import RIGHTS as WITH_CONTROLLER
from tests.kubernetes.test_check import begun, clear, end

from flyball_actuators.platforms import Done, Rejected
from flyball_contracts.config import CheckConfig
from flyball_contracts.records import Resources

pytestmark = pytest.mark.integration
OF_OTHERS = {
    "leaderworkerset.x-k8s.io", "jobset.x-k8s.io", "trainer.kubeflow.org", "batch.volcano.sh", "bus.volcano.sh",
    "serving.kserve.io", "kueue.x-k8s.io", "karpenter.sh",
}  # fmt: skip
"""Groups of kinds that this cluster does not have."""
Right = tuple[str, str, str]


def rights_in(documents: Iterable[dict[str, Any]]) -> set[Right]:
    """What the roles among some documents grant."""
    return {
        (group, resource, verb)
        for document in documents
        if document["kind"] == "ClusterRole"
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def granted() -> set[Right]:
    of_names = [one for one in WITH_CONTROLLER if one["metadata"]["name"] == "flyball-names"]
    return {right for right in rights_in([*RIGHTS, *of_names]) if right[0] not in OF_OTHERS}


def right_of(call: dict[str, Any]) -> Right:
    resource = call["resource"] + (f"/{call['subresource']}" if "subresource" in call else "")
    return call.get("apiGroup", ""), resource, call["verb"]


def test_the_rights_that_are_shipped_are_the_calls_that_are_made(cluster: Cluster) -> None:
    cluster.deploy("chat", 2, workload="chat")
    cluster.deploy("rank", 1, workload="rank", kind="StatefulSet")
    cluster.job("train", 1, workload="train")
    template = pod({"app": "gang", "flyball.dev/gang": "g", "flyball.dev/serving": "true"}, 1, "100ms")
    gang = {"replicas": 2, "selector": {"matchLabels": {"app": "gang"}}, "template": template}
    metadata = cluster.named("gang", "gang")
    cluster.plane.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": gang})
    cluster.ready(cluster.deployments("chat"), 2)
    cluster.ready(cluster.deployments("gang"), 2)
    cluster.ready(cluster.jobs("train"), 1)
    platform, now_ns = cluster.platform(), time.time_ns()
    chosen = cluster.pods("chat")[0]
    name, node = chosen["metadata"]["name"], chosen["spec"]["nodeName"]
    of_gang = cluster.pods("gang")[0]
    for decision in (
        migrate("m", replica=name, from_node=node, from_device=""),
        migrate(
            "g",
            workload="gang",
            replica=of_gang["metadata"]["name"],
            from_node=of_gang["spec"]["nodeName"],
            from_device="",
        ),
        scale("s", before=2, after=3, time_ns=now_ns),
        scale("r", workload="rank", before=1, after=2, time_ns=now_ns),
        preempt("p", workload="train", before=1, after=0),
        scale("v", before=3, after=3, resources=Resources(cpu=0.5), time_ns=now_ns),
    ):
        assert isinstance(carried_out(platform, decision), Done), decision
    cordon = {"spec": {"unschedulable": True}, "metadata": {"annotations": {"flyball.dev/cordoned-for": "m"}}}
    path = f"/api/v1/nodes/{node}?fieldManager=flyball-m"
    cluster.plane.request("PATCH", path, cordon, content_type="application/merge-patch+json")
    assert not list(platform.held())
    checks = cluster.platform(check=CheckConfig(image="flyball:test"))
    checking, running = begun(cluster, checks, node, id_="rights", devices=("GPU-1",))
    end(cluster, running, 0, "")
    assert isinstance(ended(checks, checking), Done)
    clear(cluster)
    cluster.deploy("twin", 1, workload="chat")
    assert isinstance(cluster.platform().observe(scale("t", time_ns=now_ns)), Rejected)  # whose is the name?
    spaces = (cluster.namespace, "flyball-check")
    calls = [call["objectRef"] | {"verb": call["verb"]} for call in cluster.plane.calls()]
    mine = [
        call
        for call in calls
        if call.get("namespace", spaces[0]) in spaces and call.get("apiGroup", "") not in OF_OTHERS
    ]
    assert {right_of(call) for call in mine} == granted()


def test_flyball_deletes_nothing(cluster: Cluster) -> None:
    assert not [c for c in cluster.plane.calls() if c["verb"].startswith("delete")]
