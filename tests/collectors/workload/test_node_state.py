"""What platforms say of a node: whether work may start there, and who has closed it."""

from typing import Any

import msgspec
import pytest

from flyball_collectors.agent.identity import Identity
from flyball_collectors.agent.inventory import build_inventory
from flyball_collectors.base import Parts
from flyball_contracts.config import AgentConfig
from flyball_contracts.nodes.kubernetes import KubernetesNode
from flyball_contracts.nodes.slurm import node_of


def node(
    *,
    closed: bool = False,
    ready: str = "True",
    taints: tuple[tuple[str, str], ...] = (),
    mark: str = "",
    by: tuple[str, ...] = (),
) -> KubernetesNode:
    """A node with the fields that an API server shows; ``by`` are the field managers that have closed it."""
    spec: dict[str, Any] = {"unschedulable": True} if closed else {}
    if taints:
        spec["taints"] = [{"key": key, "effect": effect, "value": "x"} for key, effect in taints]
    fields: dict[str, Any] = {"f:spec": {".": {}, "f:unschedulable": {}}}
    metadata: dict[str, Any] = {"name": "gpu-0", "annotations": {"flyball.dev/cordoned-for": mark} if mark else {}}
    if by:
        metadata["managedFields"] = [
            {"manager": "kubelet", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}},
            *({"manager": one, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": fields} for one in by),
        ]
    conditions = [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": ready}]
    body = {"kind": "Node", "metadata": metadata, "spec": spec, "status": {"conditions": conditions}}
    assert msgspec.convert(body, KubernetesNode) == msgspec.json.decode(msgspec.json.encode(body), type=KubernetesNode)
    return msgspec.convert(body, KubernetesNode)


@pytest.mark.parametrize(
    ("shown", "takes"),
    [
        (node(), True),
        (node(closed=True), False),
        (node(ready="False"), False),
        (node(ready="Unknown"), False),
        (node(taints=(("nvidia.com/gpu", "NoSchedule"), ("sku", "NoSchedule"), ("team", "NoExecute"))), True),
        (node(taints=(("node.kubernetes.io/disk-pressure", "NoSchedule"),)), False),
        (node(taints=(("node.kubernetes.io/disk-pressure", "PreferNoSchedule"),)), True),
        (node(taints=(("ToBeDeletedByClusterAutoscaler", "NoSchedule"),)), False),
        (node(taints=(("karpenter.sh/disrupted", "NoSchedule"),)), False),
        (node(taints=(("aws-node-termination-handler/spot-itn", "NoSchedule"),)), False),
        (KubernetesNode(), True),
    ],
)
def test_where_gpu_pods_may_start(shown: KubernetesNode, takes: bool) -> None:
    assert shown.takes_pods is takes


def test_what_reserves_a_node() -> None:
    taints = (("nvidia.com/gpu", "NoSchedule"), ("sku", "NoSchedule"), ("team", "NoExecute"), ("x", "PreferNoSchedule"))
    shown = node(taints=(*taints, ("karpenter.sh/disrupted", "NoSchedule")))
    assert [taint.key for taint in shown.reserved] == ["sku", "team"]


@pytest.mark.parametrize(
    ("shown", "cordon"),
    [
        (node(), ""),
        (node(closed=True), "other"),
        (node(closed=True, by=("kubectl-cordon",)), "other"),
        (node(closed=True, mark="d1", by=("flyball-d1",)), "flyball"),
        (node(closed=True, mark="d1", by=("kubectl-cordon",)), "other"),
        (node(closed=True, mark="d1", by=("flyball-d1", "kubectl-cordon")), "other"),
        (node(closed=True, mark="d1"), "flyball"),
        (node(mark="d1"), "lifted"),
    ],
)
def test_who_has_cordoned_it(shown: KubernetesNode, cordon: str) -> None:
    assert shown.cordon == cordon


@pytest.mark.parametrize(
    ("output", "takes", "cordon"),
    [
        ("NodeName=n1 Arch=x86_64 State=IDLE ThreadsPerCore=1 Comment=(null)", True, ""),
        ("NodeName=n1 State=MIXED+PLANNED ThreadsPerCore=1", True, ""),
        ("NodeName=n1 State=IDLE+DRAIN Owner=N/A Reason=fan is loud [root@2026-01-01T00:00:00]", False, "other"),
        ("NodeName=n1 State=MIXED+DRAIN Reason=flyball m1 [slurm@2026-01-01T00:00:00] Comment=x", False, "flyball"),
        ("NodeName=n1 State=DOWN+NOT_RESPONDING Reason=Not responding [slurm@2026-01-01T00:00:00]", False, ""),
        ("NodeName=n1 State=IDLE+MAINT+RESERVED ThreadsPerCore=1", False, ""),
    ],
)
def test_where_jobs_may_start_and_who_has_drained_a_node(output: str, takes: bool, cordon: str) -> None:
    shown = node_of(output)
    assert shown is not None
    assert (shown.takes_jobs, shown.cordon) == (takes, cordon)


def test_no_node() -> None:
    assert node_of("") is None
    assert node_of("Node n1 not found") is None


def test_the_inventory_says_what_any_collector_is_told() -> None:
    parts = [Parts(), Parts(schedulable=False, cordon="other")]
    closed = build_inventory(AgentConfig(), Identity("n1", "b1", 1), parts, epoch=1, time_ns=1)
    assert (closed.schedulable, closed.cordon) == (False, "other")
    opened = build_inventory(AgentConfig(), Identity("n1", "b1", 1), [Parts()], epoch=1, time_ns=1)
    assert (opened.schedulable, opened.cordon) == (True, "")
