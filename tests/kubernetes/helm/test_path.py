"""The README's path from a cluster to advice, and to acting, as far as it goes without containers.

Helm installs on a real API server, which judges every pod. What the pods would run is run here: the commands and the
configuration are read from the server, and each part speaks with a token of its own service account.
"""

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from tests.actuators.loop import PARTITIONS, outcomes, read_keyed
from tests.brokers.embedded import EmbeddedBroker
from tests.brokers.server import LOOPBACK, free_ports
from tests.conftest import ROOT
from tests.faults.testbed import READY_S, Service, wait_until
from tests.kubernetes.autoscalers.burst import BEFORE, fleet
from tests.kubernetes.autoscalers.serving import Serving
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.controlplane import ADMIN, ControlPlane
from tests.kubernetes.helm.chart import AGENTS, NAMESPACE, Helm, helm_program

from flyball_contracts.config import Config, parse_config
from flyball_contracts.records import Outcome
from flyball_contracts.topics import INVENTORY, WORKLOADS

pytestmark = pytest.mark.integration
REGISTRY = "registry.example.org/gpu"
CELL = "eu-1"
ADVICE_S = 240.0
README = (ROOT / "README.md").read_text()
FIRST, MORE = re.findall(r"^```sh\n(.*?)^```$", README.partition("## Start on a cluster")[2], re.M | re.S)[:2]
SPEC = f"""
workload: chat
cell: {CELL}
kind: inference
min_replicas: {BEFORE}
max_replicas: 8
objective: {{delay_s: 2, attainment: 0.99}}
"""


@pytest.fixture
def installing(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Helm]:
    """Helm, on a control plane on which nobody has any right of Flyball's."""
    program = helm_program()
    if program is None:
        pytest.skip("no helm; run infra/helm/fetch")
    for kind in ("clusterroles", "clusterrolebindings"):
        path = f"/apis/rbac.authorization.k8s.io/v1/{kind}"
        for one in control_plane.get(path)["items"]:
            if one["metadata"]["name"].startswith("flyball-"):
                control_plane.request("DELETE", f"{path}/{one['metadata']['name']}")
    for one in control_plane.get(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts")["items"]:
        control_plane.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{one['metadata']['name']}")
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}
    control_plane.apply(space)
    helm = Helm(program, tmp_path, control_plane.kubeconfig(ADMIN))
    yield helm
    done = helm.run("uninstall", "flyball", "-n", NAMESPACE, "--ignore-not-found")
    assert done.returncode == 0, done.stderr
    control_plane.request("DELETE", f"/api/v1/namespaces/{AGENTS}")


class Pod:
    """What a pod of the release would run, as a process of this machine with the rights of its account."""

    def __init__(self, plane: ControlPlane, folder: Path, bootstrap: str) -> None:
        self.plane, self.folder, self.bootstrap = plane, folder, bootstrap

    def start(self, path: str, **changes: Any) -> Service:
        """The one container of a Deployment, Job or DaemonSet."""
        owner = self.plane.get(path)
        spec = owner["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        name, space = container["name"], owner["metadata"]["namespace"]
        here = self.folder / f"{name}-{time.time_ns()}"
        here.mkdir()
        (volume,) = [one for one in spec["volumes"] if one["name"] == "config"]
        shown = self.plane.get(f"/api/v1/namespaces/{space}/configmaps/{volume['configMap']['name']}")
        text = shown["data"]["flyball.yaml"].replace("/var/lib/flyball", str(self.folder / "state"))
        config = parse_config(text, Config)
        replace = msgspec.structs.replace
        config = replace(config, kafka=replace(config.kafka, bootstrap=self.bootstrap))
        if spec.get("automountServiceAccountToken"):
            file = str(self._kubeconfig(space, spec["serviceAccountName"], here))
            entries = tuple(replace(one, kubeconfig=file) for one in config.actuator.platforms)
            config = replace(
                config,
                actuator=replace(config.actuator, platforms=entries),
                controller=replace(config.controller, kubeconfig=file),
            )
        config = replace(config, **{key: replace(getattr(config, key), **more) for key, more in changes.items()})
        (here / "flyball.yaml").write_bytes(msgspec.yaml.encode(config))
        program, *words = container["args"]
        assert program == "flyball"
        places = {"/etc/flyball/flyball.yaml": here / "flyball.yaml", "/tmp/health": here / "health"}
        service = Service(name, here, [str(places.get(word, word)) for word in words])
        service.start()
        return service

    def _kubeconfig(self, space: str, account: str, here: Path) -> Path:
        path = f"/api/v1/namespaces/{space}/serviceaccounts/{account}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        status, answer = self.plane.request("POST", path, body)
        assert status == 201, answer
        known = yaml.safe_load(self.plane.kubeconfig(ADMIN).read_text())
        known["users"][0]["user"] = {"token": answer["status"]["token"]}
        file = here / "kubeconfig"
        file.write_text(yaml.safe_dump(known))
        return file


def words(line: str, cluster: Cluster, bootstrap: str) -> list[str]:
    """A line of the README, with what stands for its reader's own."""
    line = line.replace("$REGISTRY", REGISTRY).replace("{ml}", f"{{{cluster.namespace}}}")
    return shlex.split(line.replace("$KAFKA", bootstrap))


def flyball(*arguments: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "flyball_cli", *arguments], cwd=cwd, capture_output=True, text=True, timeout=90,
        check=False, env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def let_in(plane: ControlPlane, path: str, replicas: int) -> Callable[[], bool]:
    return lambda: plane.get(path)["status"].get("updatedReplicas") == replicas


def planned(bootstrap: str) -> list[Outcome]:
    return [one for one in outcomes(bootstrap) if one.status == "planned" and one.type == "Scale"]


@pytest.mark.timeout(500)
def test_from_a_cluster_to_advice_and_to_acting(
    control_plane: ControlPlane, installing: Helm, embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path
) -> None:
    bootstrap, aside = embedded_broker(PARTITIONS).bootstrap, embedded_broker(PARTITIONS).bootstrap
    cluster = Cluster(control_plane)  # which makes the rights that are shipped: they go again, the chart brings its own
    for kind in ("clusterroles", "clusterrolebindings"):
        path = f"/apis/rbac.authorization.k8s.io/v1/{kind}"
        for one in control_plane.get(path)["items"]:
            if one["metadata"]["name"].startswith("flyball-"):
                control_plane.request("DELETE", f"{path}/{one['metadata']['name']}")
    control_plane.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/flyball-actuator")
    commands = [words(line, cluster, bootstrap) for line in FIRST.splitlines()]
    assert [command[0] for command in commands] == ["for", "helm", "flyball", "flyball"]
    assert len(MORE.splitlines()) == 1
    cluster.deploy("chat", BEFORE, workload="chat", cold_start="2s")
    cluster.ready(cluster.deployments("chat"), BEFORE)
    services: list[Service] = []
    try:
        # The images: what is built is what the chart asks for.
        loop = commands[0]
        image = loop[loop.index("-t") + 1]
        built = {name.rstrip(";"): image.replace("$image", name.rstrip(";")) for name in loop[3 : loop.index("do")]}
        assert set(built) == {"agent", "worker", "actuator"}
        done = installing.run(*commands[1][1:])
        assert done.returncode == 0, done.stderr
        deployments = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
        for name in ("worker", "actuator", "controller"):
            path = f"{deployments}/flyball-{name}"
            ready = 2 if name == "worker" else 1
            cluster.until(let_in(control_plane, path, ready), f"{name}'s pods are let in")
            (container,) = control_plane.get(path)["spec"]["template"]["spec"]["containers"]
            assert container["image"] == built["worker" if name == "worker" else "actuator"]
        daemon = f"/apis/apps/v1/namespaces/{AGENTS}/daemonsets/flyball-agent"
        assert control_plane.get(daemon)["spec"]["template"]["spec"]["containers"][0]["image"] == built["agent"]
        (tmp_path / "state").mkdir()
        pod = Pod(control_plane, tmp_path, bootstrap)
        topics = pod.start(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/flyball-topics-1")
        topics.terminate(60)
        # Simulated nodes have no GPU to measure: a fleet sends what agents would, and serves with the ready pods.
        (port,) = free_ports(1)
        described, seen = tmp_path / "fleet.yaml", tmp_path / "fleet-config.yaml"
        described.write_bytes(msgspec.yaml.encode(msgspec.structs.replace(fleet(), cell=CELL)))
        seen.write_text(f"kafka: {{bootstrap: '{bootstrap}'}}\n")
        listen = f"{LOOPBACK}:{port}"
        services.append(pod.start(f"{deployments}/flyball-worker"))
        services.append(pod.start(f"{deployments}/flyball-actuator", actuator={"group": "path"}))
        apart = Pod(control_plane, tmp_path, aside)  # its inventories would count the fleet's replicas twice
        services.append(apart.start(f"{deployments}/flyball-controller"))
        services.append(
            Service("fleet", tmp_path, ["fleet", str(described), "--listen", listen, "--config", str(seen)])
        )
        services[-1].start()
        (tmp_path / "workloads.yaml").write_text(SPEC)
        with Serving(cluster, "chat", f"http://{listen}", CELL):
            flyball(*commands[2][1:], cwd=tmp_path)
            wait_until(lambda: bool(planned(bootstrap)), f"advice: {services[0].tail()}{services[1].tail()}", ADVICE_S)
            # Where the machine is slow the latest may have been too late, and the next one is not.
            explained: list[str] = []

            def advised() -> bool:
                explained.append(flyball(*commands[3][1:], cwd=tmp_path))
                return "chat" in explained[-1] and "planned" in explained[-1]

            wait_until(advised, "the latest decision is planned", ADVICE_S)
            assert control_plane.get(cluster.deployments("chat"))["spec"]["replicas"] == BEFORE
            assert {o.driver for o in planned(bootstrap)} == {"kubernetes"}
            # The controller saw nodes and workloads with its own rights.
            wait_until(
                lambda: bool(read_keyed(aside, INVENTORY.name)) and bool(read_keyed(aside, WORKLOADS.name)),
                f"what the controller publishes: {services[2].tail()}", READY_S,
            )  # fmt: skip
            more = installing.run(*words(MORE, cluster, bootstrap)[1:])
            assert more.returncode == 0, more.stderr
            services[1].terminate()
            services.append(pod.start(f"{deployments}/flyball-actuator", actuator={"group": "path"}))
            wait_until(
                lambda: control_plane.get(cluster.deployments("chat"))["spec"]["replicas"] > BEFORE,
                f"the first act: {services[-1].tail()}", ADVICE_S,
            )  # fmt: skip
            wait_until(
                lambda: any(o.status == "done" and o.mode == "live" for o in outcomes(bootstrap)),
                "its effect",
                ADVICE_S,
            )
    finally:
        for service in services:
            service.terminate()
        cluster.remove()
