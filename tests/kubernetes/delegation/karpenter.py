"""Karpenter itself on the control plane, with a simulated cloud, from the binary of infra/karpenter/fetch."""

import json
import os
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from tests.actuators.samples import CELL
from tests.brokers.server import LOOPBACK, Server, free_ports
from tests.conftest import ROOT
from tests.kubernetes.cluster import Cluster, pod
from tests.kubernetes.controlplane import ADMIN, ControlPlane

from flyball_contracts.config import PlatformConfig, PoolConfig

VARIABLE = "FLYBALL_KARPENTER"
RIGHTS = [d for d in yaml.safe_load_all((ROOT / "infra" / "kubernetes" / "karpenter.yaml").read_text()) if d]
POOLS, CLAIMS = "/apis/karpenter.sh/v1/nodepools", "/apis/karpenter.sh/v1/nodeclaims"
TYPE = "p5.test"
_CLASS = {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}}


def karpenter_folder() -> Path | None:
    """Where the binary is, if it is."""
    built = sorted((ROOT / ".cache" / "karpenter").glob("*/karpenter"))
    folder = Path(os.environ.get(VARIABLE) or (built[-1].parent if built else ""))
    return folder if (folder / "karpenter").is_file() else None


class Karpenter:
    """Karpenter's controllers, in a cloud that has machines of one type, with 8 GPUs."""

    def __init__(self, plane: ControlPlane, folder: Path, work: Path) -> None:
        self.plane = plane
        types = work / "types.json"
        types.write_text(json.dumps([_machine()]))
        for path in sorted((folder / "crds").glob("*.yaml")):
            plane.apply(yaml.safe_load(path.read_text()))
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karpenter"}}
        plane.apply(space)
        self._health, metrics = free_ports(2)
        arguments = [
            str(folder / "karpenter"), "--disable-leader-election=true", f"--health-probe-port={self._health}",
            f"--metrics-port={metrics}", f"--instance-types-file-path={types}", "--batch-idle-duration=500ms",
        ]  # fmt: skip
        environment = {"HOME": str(work), "KUBECONFIG": str(plane.kubeconfig(ADMIN)), "SYSTEM_NAMESPACE": "karpenter"}
        self._server = Server("karpenter", arguments, work / "karpenter.log", environment=environment)
        self._server.wait_until(self._ready, 90.0)
        status, _ = plane.request("POST", "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses", _CLASS)
        assert status in (201, 409)

    def close(self) -> None:
        """End it, and take away the machines that it has not returned yet."""
        self._server.stop(5.0)
        for path in (CLAIMS, "/api/v1/nodes"):
            for obj in self.plane.get(f"{path}?labelSelector=karpenter.sh%2Fnodepool")["items"]:
                one = f"{path}/{obj['metadata']['name']}"
                free = {"metadata": {"finalizers": None}}
                self.plane.request("PATCH", one, free, content_type="application/merge-patch+json")
                self.plane.request("DELETE", one)

    def _ready(self) -> bool:
        address = f"http://{LOOPBACK}:{self._health}/readyz"
        with suppress(OSError), urllib.request.urlopen(address, timeout=2) as answer:
            return bool(answer.status == 200)
        return False


class Machines:
    """One NodePool, named after the namespace whose pods run on its machines."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.name = cluster, cluster.namespace
        self.path = f"{POOLS}/{self.name}"
        disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "1s"}
        budget = [{"nodes": "100%"}]
        requirement = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [TYPE]}
        reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
        template = {"spec": {"requirements": [requirement], "nodeClassRef": reference, "expireAfter": "Never"}}
        body = {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": self.name},
            "spec": {
                "template": template,
                "limits": {"nvidia.com/gpu": "0"},
                "disruption": {**disruption, "budgets": budget},
            },
        }
        cluster.plane.apply(body, *RIGHTS)
        role = {**cluster.binding["roleRef"], "name": "flyball-keeper"}
        metadata = {"name": "flyball-keeper", "namespace": self.name}
        cluster.plane.apply({**cluster.binding, "metadata": metadata, "roleRef": role})

    def configuration(self, *, keep_pods: bool = False, **pool: Any) -> PlatformConfig:
        """The platform's configuration."""
        settings: dict[str, Any] = {"max_machines": 4, "per_machine": {"nvidia.com/gpu": 8.0}, **pool}
        one = PoolConfig(
            name="gpu", kind="node_pool", resource=self.name, instance_type=TYPE, price_usd_per_hour=10.0, **settings
        )
        return PlatformConfig(
            cells=(CELL,), driver="karpenter", kubeconfig=str(self.cluster.plane.kubeconfig()), pools=(one,),
            budget_usd_per_hour=100.0, namespaces=(self.name,) if keep_pods else (), poll_s=0.02,
        )  # fmt: skip

    def deploy(self, replicas: int, notes: dict[str, str] | None = None) -> None:
        """Pods that take a machine each."""
        template = pod({"app": "train"}, 8, "200ms")
        template["spec"]["nodeSelector"] = {"karpenter.sh/nodepool": self.name}
        template["metadata"]["annotations"] |= {"flyball.dev/workload": "train", **(notes or {})}
        spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "train"}}, "template": template}
        metadata = self.cluster.named("train", "train")
        self.cluster.plane.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})

    def claims(self) -> list[dict[str, Any]]:
        """The machines that Karpenter has."""
        return list(self.cluster.plane.get(f"{CLAIMS}?labelSelector=karpenter.sh%2Fnodepool%3D{self.name}")["items"])

    def drop_idle(self) -> None:
        """Have Karpenter return the machines without pods now; by itself it takes half a minute over it."""
        busy = {one["spec"].get("nodeName") for one in self.cluster.pods("train")}
        for claim in self.claims():
            if claim.get("status", {}).get("nodeName") not in busy:
                self.cluster.plane.request("DELETE", f"{CLAIMS}/{claim['metadata']['name']}")

    def ready(self) -> int:
        """The pods that run."""
        status = self.cluster.plane.get(self.cluster.deployments("train")).get("status", {})
        return int(status.get("readyReplicas") or 0)

    def set(self, spec: dict[str, Any], by: str = "somebody") -> None:
        """Change the NodePool."""
        path = f"{self.path}?fieldManager={by}"
        self.cluster.plane.request("PATCH", path, {"spec": spec}, content_type="application/merge-patch+json")

    def remove(self) -> None:
        """Take the pods and the NodePool away; its machines go with it, in Karpenter's own time."""
        self.cluster.plane.request("DELETE", f"{self.cluster.deployments('train')}?propagationPolicy=Background")
        self.cluster.plane.request("DELETE", self.path)


def _machine() -> dict[str, Any]:
    def offering(zone: str) -> dict[str, Any]:
        pairs = {"karpenter.sh/capacity-type": "on-demand", "topology.kubernetes.io/zone": zone}
        chosen = [{"key": key, "operator": "In", "values": [value]} for key, value in pairs.items()]
        return {"Price": 10.0, "Available": True, "Requirements": chosen}

    return {
        "name": TYPE,
        "offerings": [offering(zone) for zone in ("test-zone-a", "test-zone-b")],
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {
            "cpu": "96",
            "memory": "768Gi",
            "pods": "110",
            "ephemeral-storage": "100Gi",
            "nvidia.com/gpu": "8",
        },
    }
