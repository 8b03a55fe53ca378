"""One control plane for all tests here, and a namespace with the shipped rights for each."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from tests.actuators.loop import PARTITIONS
from tests.brokers.embedded import EmbeddedBroker
from tests.conftest import NO_SKIP_VARIABLE, ROOT
from tests.kubernetes.autoscalers.keda import keda_folder
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.controlplane import CONTROLLER, ControlPlane, missing
from tests.kubernetes.delegation.karpenter import karpenter_folder
from tests.kubernetes.delegation.kueue import kueue_folder
from tests.kubernetes.delegation.serving import serving_folder
from tests.kubernetes.delegation.training import Training, training_folder
from tests.kubernetes.helm.chart import helm_program
from tests.kubernetes.observer import INFRA, RIGHTS, Observer

VARIABLE = "FLYBALL_CONTROLPLANE"
# Where CI could not build a control plane it says so; everywhere else these tests skip with the reason.
ABSENT = os.environ.get(NO_SKIP_VARIABLE) == "1" and not os.environ.get(VARIABLE)
REAL = (
    "autoscalers/test_autoscaler.py",
    "helm/test_chart.py",
    "helm/test_path.py",
    "agents/test_agent.py",
    "test_check.py",
    "test_controller.py",
    "agents/test_cordon.py",
    "agents/test_names.py",
    "autoscalers/test_keda.py",
    "autoscalers/test_keda_operator.py",
    "delegation/test_karpenter.py",
    "delegation/test_kueue.py",
    "autoscalers/test_loop.py",
    "test_platform.py",
    "test_readme.py",
    "test_rights.py",
    "faults/test_given_back.py",
    "faults/test_saga.py",
    "faults/test_scale_in.py",
    "test_service.py",
    "delegation/test_serving.py",
    "delegation/test_training.py",
    "faults/test_trial.py",
)
NO_SKIP = os.environ.get(NO_SKIP_VARIABLE) == "1"
NO_HELM = ["helm/test_chart.py", "helm/test_path.py"] if NO_SKIP and helm_program() is None else []
NO_KEDA = ["autoscalers/test_keda_operator.py"] if NO_SKIP and keda_folder() is None else []
NO_KUEUE = ["delegation/test_kueue.py"] if NO_SKIP and kueue_folder() is None else []
NO_KARPENTER = ["delegation/test_karpenter.py"] if NO_SKIP and karpenter_folder() is None else []
NO_TRAINING = ["delegation/test_training.py"] if NO_SKIP and None in (training_folder(), kueue_folder()) else []
NO_SERVING = ["delegation/test_serving.py"] if NO_SKIP and serving_folder() is None else []
# .ci/run says so where a machine lets nobody mount a file system.
NO_MOUNT = ["agents/test_cordon.py"] if os.environ.get("FLYBALL_NO_SMALL_DISK") == "1" else []
WITHOUT = [*NO_HELM, *NO_KEDA, *NO_KUEUE, *NO_KARPENTER, *NO_SERVING, *NO_TRAINING, *NO_MOUNT]
collect_ignore = [*REAL] if ABSENT else WITHOUT


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The binaries that `infra/controlplane/fetch` makes, running."""
    built = sorted((ROOT / ".cache" / "controlplane").glob("*"))
    folder = Path(os.environ.get(VARIABLE) or (built[-1] if built else ROOT / ".cache" / "controlplane"))
    reason = missing(folder)
    if reason is not None:
        pytest.skip(reason)
    with ControlPlane(folder, tmp_path_factory.mktemp("controlplane")) as plane:
        plane.nodes(4)
        yield plane


@pytest.fixture(scope="session")
def training(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Training | None]:
    """Controllers of training jobs, where they were built."""
    folder = training_folder()
    if folder is None:
        yield None
        return
    made = Training(control_plane, folder, tmp_path_factory.mktemp("training"))
    yield made
    made.close()


@pytest.fixture
def cluster(control_plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A namespace of its own, in which the actuator has the rights that are shipped."""
    made = Cluster(control_plane)
    made.grant()
    yield made
    made.remove()


@pytest.fixture
def ruled(control_plane: ControlPlane) -> ControlPlane:
    """The control plane with the policies and the rights that are shipped; tests of the chart take them away."""
    plane = control_plane
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "flyball"}}, *RIGHTS)
    plane.apply(*yaml.safe_load_all((INFRA / "crds.yaml").read_text()))
    path = "/apis/flyball.dev/v1alpha1/workloadpolicies"
    deadline = time.monotonic() + 30
    while plane.request("GET", path, token=CONTROLLER)[0] != 200 or plane.request("GET", path)[0] != 200:
        assert time.monotonic() < deadline, "the policies are not served"
        time.sleep(0.1)
    return plane


@pytest.fixture
def observer(ruled: ControlPlane, cluster: Cluster, embedded_broker: Callable[..., EmbeddedBroker]) -> Observer:
    return Observer(cluster, embedded_broker(PARTITIONS).bootstrap)
