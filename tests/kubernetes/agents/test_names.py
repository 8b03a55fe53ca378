"""Whose the name of a workload is: what pods of another namespace claim, judged by the rows that an agent sends."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.kubernetes.agents.test_agent import RIGHTS
from tests.kubernetes.cluster import Cluster, pod
from tests.kubernetes.controlplane import AGENT, CONTROLLER, ControlPlane
from tests.kubernetes.observer import Observer, controlling

from flyball_actuators.controller.names import NamesWriter
from flyball_actuators.controller.service import MANAGER
from flyball_actuators.platforms.kubernetes.api import Api
from flyball_collectors.parameters import KubernetesParameters, WorkloadsParameters
from flyball_collectors.workload import WorkloadCollector
from flyball_contracts.declared.names import NAMES_PATH

pytestmark = pytest.mark.integration
NODE = "gpu-2"


def deploy(cluster: Cluster, *, declared: bool) -> None:
    """A pod on the agent's node that claims workload chat, and perhaps a Deployment that declares it."""
    template = pod({"app": "chat"}, 1, "100ms")
    template["spec"]["nodeName"] = NODE
    template["metadata"]["annotations"] |= {"prometheus.io/scrape": "true", "flyball.dev/workload": "chat"}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "chat"}}, "template": template}
    metadata = cluster.named("server", "chat" if declared else "")
    cluster.plane.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
    cluster.ready(cluster.deployments("server"), 1)


def test_a_declared_name_belongs_to_pods_of_its_namespace(
    observer: Observer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster, other = observer.cluster, Cluster(observer.cluster.plane)
    plane = cluster.plane
    plane.apply(*(d for d in RIGHTS if d["kind"].startswith("ClusterRole")))
    (tmp_path / "token").write_text(AGENT)
    settings = KubernetesParameters(
        url=plane.url, period_s=0.1, token_file=str(tmp_path / "token"), ca_file=str(plane.authority)
    )
    collector = WorkloadCollector(WorkloadsParameters(discover=("kubernetes",), kubernetes=settings), NODE, environ={})

    def names() -> dict[str, Any]:
        status, found = plane.request("GET", NAMES_PATH)
        return found.get("spec", {}).get("names", {}) if status == 200 else {}

    def counts(*clusters: Cluster) -> Callable[[], bool]:
        def so() -> bool:
            collector.read(0, 1)
            counted = [one.labels["namespace"] for one in collector.parts().allocations if one.workload == "chat"]
            return sorted(counted) == sorted(one.namespace for one in clusters)

        return so

    try:
        other.grant()
        deploy(other, declared=False)
        cluster.until(counts(other), "a name that no object declares is free")
        deploy(cluster, declared=True)
        with controlling(observer, beside=(other.namespace,)):
            cluster.until(lambda: names().get("chat") == [cluster.namespace], "the controller says whose it is")
            cluster.until(counts(cluster), "the stranger's pod does not count")
            spec = observer.until_spec("chat", lambda spec: spec is not None)
            deploy(other, declared=True)
            cluster.until(
                lambda: f"belongs to namespace {cluster.namespace}" in caplog.text,
                "the stranger, whose object is older, is told",
            )
            assert (spec.tenant, names()["chat"]) == (cluster.namespace, [cluster.namespace])
            assert observer.spec("chat") == spec
            assert counts(cluster)()
            assert collector.problems()["kubernetes"] == ""
            plane.request("DELETE", f"{cluster.deployments('server')}?propagationPolicy=Foreground")
            cluster.until(lambda: names().get("chat") == [other.namespace], "the name is given away")
            cluster.until(counts(other), "and with it what its pods report")
        with controlling(observer):
            cluster.until(lambda: "chat" not in names(), "nobody declares it")
            cluster.until(counts(other), "so it is free")
    finally:
        collector.close()
        other.remove()


def test_controllers_of_several_cells_share_the_names(ruled: ControlPlane) -> None:
    api = Api(str(ruled.kubeconfig(CONTROLLER)), 10.0, "test")
    ruled.request("DELETE", NAMES_PATH)
    one, two = NamesWriter(api, f"{MANAGER}/eu-1"), NamesWriter(api, f"{MANAGER}/eu-2")

    def names() -> dict[str, set[str]]:
        return {name: set(spaces) for name, spaces in ruled.get(NAMES_PATH).get("spec", {}).get("names", {}).items()}

    for writer, homes, expected in (
        (one, {"chat": "ml", "ml/rank": "ml"}, {"chat": {"ml"}}),
        (two, {"chat": "web", "sort": "web"}, {"chat": {"ml", "web"}, "sort": {"web"}}),
        (one, {}, {"chat": {"web"}, "sort": {"web"}}),
        (one, {"rank": "ml"}, {"chat": {"web"}, "sort": {"web"}, "rank": {"ml"}}),
        (two, {}, {"rank": {"ml"}}),
        (one, {}, {}),
        (one, {"rank": "ml"}, {"rank": {"ml"}}),
    ):
        assert writer.write(homes)
        assert names() == expected
    ruled.request("DELETE", NAMES_PATH)
