"""Whose the name of a workload is: what pods of another namespace claim, judged by the rows that an agent sends."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.actuators.carry_out import carried_out
from tests.actuators.samples import scale
from tests.kubernetes.agents.test_agent import RIGHTS
from tests.kubernetes.cluster import Cluster, pod
from tests.kubernetes.controlplane import AGENT, CONTROLLER, ControlPlane
from tests.kubernetes.observer import Observer, controlling

from flyball_actuators.controller.names import NamesWriter
from flyball_actuators.controller.service import MANAGER
from flyball_actuators.platforms import Done, Rejected
from flyball_actuators.platforms.kubernetes.api import Api
from flyball_collectors.parameters import KubernetesParameters, WorkloadsParameters
from flyball_collectors.workload import WorkloadCollector
from flyball_contracts.declared.names import NAMES_PATH

pytestmark = pytest.mark.integration
NODE = "gpu-2"


def agent(plane: ControlPlane, folder: Path) -> WorkloadCollector:
    """An agent on the node, with the rights that are shipped."""
    plane.apply(*(d for d in RIGHTS if d["kind"].startswith("ClusterRole")))
    (folder / "token").write_text(AGENT)
    settings = KubernetesParameters(
        url=plane.url, period_s=0.1, token_file=str(folder / "token"), ca_file=str(plane.authority)
    )
    return WorkloadCollector(WorkloadsParameters(discover=("kubernetes",), kubernetes=settings), NODE, environ={})


def names_on(plane: ControlPlane) -> dict[str, list[str]]:
    """The namespaces of names, as everybody reads them."""
    status, found = plane.request("GET", NAMES_PATH)
    return dict(found.get("spec", {}).get("names", {})) if status == 200 else {}


def counting(collector: WorkloadCollector, *clusters: Cluster) -> Callable[[], bool]:
    """Whether the agent counts a pod of each of these namespaces, and no other, under the name chat."""

    def so() -> bool:
        collector.read(0, 1)
        counted = [one.labels["namespace"] for one in collector.parts().allocations if one.workload == "chat"]
        return sorted(counted) == sorted(one.namespace for one in clusters)

    return so


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
    plane, collector = cluster.plane, agent(cluster.plane, tmp_path)

    def names() -> dict[str, list[str]]:
        return names_on(plane)

    def counts(*clusters: Cluster) -> Callable[[], bool]:
        return counting(collector, *clusters)

    plane.request("DELETE", NAMES_PATH)
    try:
        other.grant()
        deploy(other, declared=False)
        refused = f"pod {other.namespace}/{other.pods('chat')[0]['metadata']['name']}: no rule lets it report for"
        cluster.until(lambda: counts()() and refused in caplog.text, "a name that nothing gives does not count")
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
            cluster.until(counts(), "so it counts for no pods: this controller does not read the whole cluster")
    finally:
        collector.close()
        other.remove()


def test_a_name_that_only_pods_bear_belongs_to_the_namespace_that_bore_it_first(
    observer: Observer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster, other = observer.cluster, Cluster(observer.cluster.plane)
    plane, collector = cluster.plane, agent(cluster.plane, tmp_path)
    plane.request("DELETE", NAMES_PATH)

    def belongs_to(home: Cluster) -> Callable[[], bool]:
        return lambda: names_on(plane).get("chat") == [home.namespace]

    try:
        other.grant()
        deploy(cluster, declared=False)
        with controlling(observer, whole=True):
            cluster.until(belongs_to(cluster), "it belongs to the namespace of its pod")
            assert plane.get(NAMES_PATH)["spec"]["complete"]
            deploy(other, declared=False)
            cluster.until(counting(collector, cluster), "the stranger's pod does not count")
            told = f"pods of namespace {other.namespace} that bear chat: workload chat belongs to namespace"
            cluster.until(lambda: told in caplog.text, "the stranger is told")
        (pod,) = cluster.pods("chat")
        plane.request("DELETE", f"/api/v1/namespaces/{cluster.namespace}/pods/{pod['metadata']['name']}")
        cluster.until(
            lambda: [one["metadata"]["uid"] for one in cluster.pods("chat")] not in ([], [pod["metadata"]["uid"]]),
            "its pod was replaced, and is younger than the stranger's",
        )
        with controlling(observer, whole=True):
            cluster.until(lambda: caplog.text.count(told) == 2, "a controller that was started again has looked")
            assert belongs_to(cluster)(), "and leaves the name there"
            assert counting(collector, cluster)()
            plane.request("DELETE", f"{cluster.deployments('server')}?propagationPolicy=Foreground")
            cluster.until(belongs_to(other), "no pod there bears it any more")
            cluster.until(counting(collector, other), "what its pods report counts from then on")
    finally:
        collector.close()
        other.remove()


def test_a_decision_goes_to_the_namespace_that_the_name_belongs_to(ruled: ControlPlane, cluster: Cluster) -> None:
    other = Cluster(ruled)
    ruled.request("DELETE", NAMES_PATH)
    spaces = (cluster.namespace, other.namespace)
    try:
        other.grant()
        for one in (cluster, other):
            one.deploy("server", 1, workload="chat")
        platform = cluster.platform(namespaces=spaces)
        unknown = platform.observe(scale(before=1, after=2))
        assert isinstance(unknown, Rejected)
        assert (unknown.code, "both claim workload 'chat'" in unknown.detail) == ("invalid", True)
        names = NamesWriter(Api(str(ruled.kubeconfig(CONTROLLER)), 10.0, "test"), f"{MANAGER}/eu-1", complete=False)
        for home in (cluster, other):
            assert names.write({"chat": home.namespace})
            assert isinstance(carried_out(platform, scale(home.namespace, before=1, after=2)), Done)
            assert ruled.get(home.deployments("server"))["spec"]["replicas"] == 2
        assert names.write({"chat": "elsewhere"})
        assert isinstance(platform.observe(scale("late", before=2, after=3)), Rejected)
    finally:
        other.remove()
        ruled.request("DELETE", NAMES_PATH)


def test_controllers_of_several_cells_share_the_names(ruled: ControlPlane) -> None:
    api = Api(str(ruled.kubeconfig(CONTROLLER)), 10.0, "test")
    ruled.request("DELETE", NAMES_PATH)
    one, two = (NamesWriter(api, f"{MANAGER}/{cell}", complete=cell == "eu-1") for cell in ("eu-1", "eu-2"))

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
        assert ruled.get(NAMES_PATH)["spec"]["complete"], "what the one says, the other leaves alone"
    narrower = NamesWriter(api, f"{MANAGER}/eu-1", complete=False)  # as after a change of its settings
    assert narrower.write({"rank": "ml"})
    assert "complete" not in ruled.get(NAMES_PATH)["spec"]
    ruled.request("DELETE", NAMES_PATH)
