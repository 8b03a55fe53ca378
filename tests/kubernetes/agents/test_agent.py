"""What an agent sees of its node through a real API server, with the rights that are shipped, and no others."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.actuators.carry_out import submitted
from tests.actuators.samples import migrate
from tests.conftest import ROOT
from tests.kubernetes.cluster import CORDON, Cluster
from tests.kubernetes.controlplane import AGENT, AGENT_USER
from tests.kubernetes.test_rights import right_of, rights_in

from flyball_actuators.platforms.base import Handle
from flyball_collectors.parameters import KubernetesParameters, WorkloadsParameters
from flyball_collectors.workload import WorkloadCollector

pytestmark = pytest.mark.integration
RIGHTS = [d for d in yaml.safe_load_all((ROOT / "infra" / "kubernetes" / "agent.yaml").read_text()) if d]
MERGE = "application/merge-patch+json"


def tainted(key: str) -> dict[str, str]:
    return {"key": key, "value": "x", "effect": "NoSchedule"}


def test_an_agent_sees_who_has_cordoned_its_node(cluster: Cluster, tmp_path: Path) -> None:
    plane = cluster.plane
    plane.apply(*(d for d in RIGHTS if d["kind"].startswith("ClusterRole")))
    cluster.deploy("chat", 1, workload="chat")
    cluster.ready(cluster.deployments("chat"), 1)
    (pod,) = cluster.pods("chat")
    node = pod["spec"]["nodeName"]
    path = f"/api/v1/nodes/{node}"
    (tmp_path / "token").write_text(AGENT)
    settings = KubernetesParameters(
        url=plane.url, period_s=0.1, token_file=str(tmp_path / "token"), ca_file=str(plane.authority)
    )
    collector = WorkloadCollector(WorkloadsParameters(discover=("kubernetes",), kubernetes=settings), node, environ={})

    def shows(schedulable: bool, cordon: str) -> Callable[[], bool]:
        return lambda: (collector.parts().schedulable, collector.parts().cordon) == (schedulable, cordon)

    def change(body: dict[str, Any], who: str) -> None:
        status, answer = plane.request("PATCH", f"{path}?fieldManager={who}", body, content_type=MERGE)
        assert status == 200, answer

    try:
        cluster.until(lambda: collector.problems()["kubernetes"] == "", "the agent may read its pods and its node")
        cluster.until(shows(True, ""), "an open node")
        change({"spec": {"unschedulable": True}}, "kubectl-cordon")
        cluster.until(shows(False, "other"), "a node that a person has cordoned")
        change({"spec": {"unschedulable": None}}, "kubectl-cordon")
        cluster.until(shows(True, ""), "the node is open again")
        move = migrate("m1", replica=pod["metadata"]["name"], from_node=node, from_device="GPU-1")
        assert isinstance(submitted(cluster.platform(), move), Handle)
        cluster.until(shows(False, "flyball"), "a node that Flyball has cordoned")
        change({"spec": {"unschedulable": None}}, "kubectl-cordon")
        cluster.until(shows(True, "lifted"), "a person has opened it")
        change({"spec": {"taints": [tainted("karpenter.sh/disrupted")]}}, "admin")
        cluster.until(shows(False, "lifted"), "a node that is about to leave")
        change({"spec": {"taints": [tainted("sku")]}}, "admin")
        cluster.until(shows(True, "lifted"), "a taint that reserves the node closes nothing")
    finally:
        change({"spec": {"taints": None}, "metadata": {"annotations": dict.fromkeys(CORDON)}}, "admin")
        collector.close()
    calls = [call["objectRef"] | {"verb": call["verb"]} for call in plane.calls(AGENT_USER)]
    assert {right_of(call) for call in calls} == rights_in(RIGHTS)
