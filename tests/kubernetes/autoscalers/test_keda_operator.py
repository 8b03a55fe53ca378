"""KEDA itself scales a Deployment by what Flyball decides; Flyball answers its questions, and writes nothing."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.actuators.loop import PARTITIONS, config_for, outcomes, publish, running
from tests.actuators.samples import scale, spec
from tests.brokers.embedded import EmbeddedBroker
from tests.brokers.server import LOOPBACK, free_ports
from tests.faults.testbed import wait_until
from tests.kubernetes.autoscalers.autoscaling import Ground
from tests.kubernetes.autoscalers.burst import BEFORE, CELL, serve_a_burst
from tests.kubernetes.autoscalers.keda import OBJECTS, Keda, keda_folder
from tests.kubernetes.cluster import DEADLINE_S, Cluster
from tests.kubernetes.controlplane import AUTOSCALER_USER, ControlPlane
from tests.kubernetes.reader import Reader
from tests.readme.blocks import lines

from flyball_contracts.config import ScalerConfig

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def ground(control_plane: ControlPlane) -> Ground:
    return Ground(control_plane)


@pytest.fixture(scope="module")
def keda(ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keda]:
    folder = keda_folder()
    if folder is None:
        pytest.skip("no KEDA; run infra/keda/fetch")
    made = Keda(ground.plane, folder, tmp_path_factory.mktemp("keda"))
    yield made
    made.close()


def test_the_readmes_lines_make_the_provider_and_its_autoscalers(control_plane: ControlPlane, tmp_path: Path) -> None:
    folder = keda_folder()
    if folder is None:
        pytest.skip("no KEDA; run infra/keda/fetch")
    for path in sorted((folder / "crds").glob("*.yaml")):  # the second line needs them
        control_plane.apply(yaml.safe_load(path.read_text()))
    reader = Reader(control_plane, tmp_path)
    reader.clear("infra/kubernetes/autoscaler.yaml")
    try:
        provider, examples = lines("kubectl apply -f infra/kubernetes/autoscaler.yaml")
        assert "deployment.apps/flyball-autoscaler created" in reader.run(provider)
        wait_until(
            lambda: control_plane.request("GET", f"/apis/{OBJECTS}/scaledobjects")[0] == 200, "KEDA's kinds", DEADLINE_S
        )
        assert "scaledobject.keda.sh/chat created" in reader.run(examples)
    finally:
        reader.undo()


def test_keda_scales_up_and_down_and_to_zero_by_decisions_alone(
    ground: Ground, keda: Keda, cluster: Cluster, embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path
) -> None:
    bootstrap = embedded_broker(PARTITIONS).bootstrap
    path = cluster.deployments("chat")
    cluster.deploy("chat", 2, workload="chat")
    cluster.ready(path, 2)
    address = f"{LOOPBACK}:{free_ports(1)[0]}"
    entry = ground.entry(cluster, scaler=ScalerConfig(keda=address))
    config = config_for(
        bootstrap, "keda", mode="live", ledger=str(tmp_path / "ledger"), platforms=(entry,), allow=("chat",),
        kill_switch=str(tmp_path / "stop"),
    )  # fmt: skip
    with running(config, clock=time.time_ns):
        autoscaler = keda.scale(cluster, "chat", address)
        cluster.until(lambda: _is_active(cluster, autoscaler), "KEDA's autoscaler has its metric")
        publish(bootstrap, spec())
        for ends, (before, after) in enumerate(((2, 3), (3, 2), (2, 0), (0, 1)), start=1):
            name = f"{before}-to-{after}"
            publish(bootstrap, scale(name, before=before, after=after, time_ns=time.time_ns()))
            wait_until(partial(_ended, bootstrap, ends), f"the final outcome on {name}", DEADLINE_S)
            last = next(o for o in outcomes(bootstrap) if o.final and o.decision == name)
            assert (last.status, last.driver) == ("done", "autoscaler"), last
            cluster.ready(path, after)
            assert len(cluster.pods("chat")) == after
        keda.drop(cluster, "chat")
    writes = cluster.plane.writes(f"{path}/scale")
    agents = {write["userAgent"].split("/")[0] for write in writes}
    assert agents == {"kube-controller-manager", "keda-operator"}, writes
    verbs = {call["verb"] for call in cluster.plane.calls(AUTOSCALER_USER)}
    assert verbs == {"get", "list"}


@pytest.mark.timeout(900)
def test_keda_serves_a_burst_by_what_is_forecast_alone(
    ground: Ground, keda: Keda, cluster: Cluster, embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path
) -> None:
    bootstrap = embedded_broker(PARTITIONS).bootstrap
    path = cluster.deployments("chat")
    cluster.deploy("chat", BEFORE, workload="chat", cold_start="4s")
    cluster.ready(path, BEFORE)
    address = f"{LOOPBACK}:{free_ports(1)[0]}"
    entry = ground.entry(cluster, cells=(CELL,), scaler=ScalerConfig(keda=address))
    config = config_for(
        bootstrap, "burst", mode="live", ledger=str(tmp_path / "ledger"), platforms=(entry,), allow=("chat",),
        kill_switch=str(tmp_path / "stop"),
    )  # fmt: skip
    keda.scale(cluster, "chat", address)
    try:
        serve_a_burst(cluster, tmp_path, config)
    finally:
        keda.drop(cluster, "chat")
    done = [one for one in outcomes(bootstrap) if one.status == "done"]
    assert done, outcomes(bootstrap)
    assert all(one.driver == "autoscaler" and one.observed and one.observed.ready for one in done)
    assert cluster.plane.get(path)["spec"]["replicas"] > BEFORE
    agents = {write["userAgent"].split("/")[0] for write in cluster.plane.writes(f"{path}/scale")}
    assert agents <= {"kube-controller-manager", "keda-operator"}
    assert {call["verb"] for call in cluster.plane.calls(AUTOSCALER_USER)} == {"get", "list"}


def _ended(bootstrap: str, decisions: int) -> bool:
    return sum(o.final for o in outcomes(bootstrap)) >= decisions


def _is_active(cluster: Cluster, autoscaler: str) -> bool:
    status, found = cluster.plane.request("GET", autoscaler)
    conditions: list[dict[str, Any]] = found.get("status", {}).get("conditions") or [] if status == 200 else []
    return any((one["type"], one["status"]) == ("ScalingActive", "True") for one in conditions)
