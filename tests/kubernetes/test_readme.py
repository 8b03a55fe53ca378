"""The README's kubectl lines on a real API server: rights, policies, and the controller that answers them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.actuators.carry_out import carried_out
from tests.actuators.loop import PARTITIONS, read_keyed
from tests.actuators.samples import scale
from tests.brokers.embedded import EmbeddedBroker
from tests.kubernetes.cluster import Cluster, pod
from tests.kubernetes.controlplane import ACTUATOR, CONTROLLER, ControlPlane
from tests.kubernetes.reader import SPACE, Reader
from tests.readme.blocks import block, inline, lines, started

from flyball_actuators.platforms import Done
from flyball_contracts.topics import WORKLOADS

pytestmark = pytest.mark.integration


@pytest.fixture
def reader(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Reader]:
    made = Reader(control_plane, tmp_path)
    yield made
    made.undo()


def test_the_actuator_gets_its_rights_and_its_decision_is_named(cluster: Cluster, reader: Reader) -> None:
    plane, path = cluster.plane, f"/apis/apps/v1/namespaces/{SPACE}/deployments"
    assert plane.request("GET", path, token=ACTUATOR)[0] == 403
    for line in lines("kubectl apply -f infra/kubernetes/actuator.yaml"):
        reader.run(line)
    cluster.until(lambda: plane.request("GET", path, token=ACTUATOR)[0] == 200, "the role is bound")
    reader.run(f"{inline('kubectl apply -f infra/kubernetes/karpenter.yaml')[0]} --dry-run=server")
    cluster.deploy("chat", 2, workload="chat")
    cluster.ready(cluster.deployments("chat"), 2)
    assert isinstance(carried_out(cluster.platform(), scale("5f3c9a00", before=2, after=3)), Done)
    (managed,) = inline("kubectl get deployment chat")
    assert "5f3c9a00" in reader.run(f"{managed} -n {cluster.namespace}")


def test_policies_are_applied_and_answered(
    cluster: Cluster, reader: Reader, embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path
) -> None:
    bootstrap, plane = embedded_broker(PARTITIONS).bootstrap, cluster.plane
    applied, shown, names = lines("kubectl apply -f infra/kubernetes/crds.yaml")
    reader.run(applied)
    (tmp_path / "policies.yaml").write_text(block("apiVersion: flyball.dev/v1alpha1"))
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "chat"}}, "template": pod({"app": "chat"}, 1, "200ms")}
    plane.apply(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "chat", "namespace": SPACE}, "spec": spec}
    )
    reader.run(f"kubectl wait --for=condition=Established {CRDS}")
    reader.run(f"kubectl apply --filename {tmp_path / 'policies.yaml'}")
    (tmp_path / "flyball.yaml").write_text(
        f"kafka: {{bootstrap: '{bootstrap}'}}\n"
        f"controller: {{cell: eu-1, kubeconfig: '{plane.kubeconfig(CONTROLLER)}', namespaces: [{SPACE}]}}\n"
    )
    (line,) = set(inline("flyball controller"))
    with started(f"{line} --config flyball.yaml", tmp_path) as controller:
        controller.until(lambda: "chat" in str(read_keyed(bootstrap, WORKLOADS.name)), "the workload is declared")
        controller.until(lambda: "True" in reader.run(shown), "the policies say what became of them")
        assert controller.interrupt() == 0
        assert "Traceback" not in controller.output
    table = reader.run(shown)
    assert "chat" in table
    assert "nightly" in table
    assert "kind: WorkloadNames" in reader.run(names)


CRDS = "crd/workloadpolicies.flyball.dev crd/carbonpolicies.flyball.dev crd/workloadnames.flyball.dev"
