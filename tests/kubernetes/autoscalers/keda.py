"""KEDA itself on the control plane, from the binaries of infra/keda/fetch; see `Keda`."""

import os
from pathlib import Path
from typing import Any

import yaml
from tests.brokers.server import LOOPBACK, free_ports
from tests.conftest import ROOT
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.controlplane import ADMIN, ControlPlane
from tests.kubernetes.operators import Operator

VARIABLE = "FLYBALL_KEDA"
OBJECTS = "keda.sh/v1alpha1"
_SERVED = "v1beta1.external.metrics.k8s.io"
_API = "/apis/apiregistration.k8s.io/v1/apiservices"
_EXAMPLE = list(yaml.safe_load_all((ROOT / "infra" / "examples" / "autoscaler.yaml").read_text()))[1]


def keda_folder() -> Path | None:
    """Where the binaries are, if they are."""
    built = sorted((ROOT / ".cache" / "keda").glob("*/keda-operator"))
    folder = Path(os.environ.get(VARIABLE) or (built[-1].parent if built else ""))
    return folder if (folder / "keda-operator").is_file() else None


class Keda(Operator):
    """KEDA's operator, and its metrics adapter, which is the cluster's provider of external metrics while it runs."""

    def __init__(self, plane: ControlPlane, folder: Path, work: Path) -> None:
        super().__init__(plane, work, "keda")
        for path in sorted((folder / "crds").glob("*.yaml")):
            plane.apply(yaml.safe_load(path.read_text()))
        answers, metrics = free_ports(2)
        self.start(
            folder / "keda-operator",
            "--metrics-bind-address=0",
            f"--health-probe-bind-address={LOOPBACK}:{self.health}",
            f"--metrics-service-bind-address={LOOPBACK}:{answers}",
            f"--cert-dir={self.certs}",
            KEDA_CLUSTER_OBJECT_NAMESPACE=self.name,
            POD_NAMESPACE=self.name,
            WATCH_NAMESPACE="",
        )
        service = {"name": self.name, "namespace": self.name, "port": self.port}
        served = {"group": "external.metrics.k8s.io", "version": "v1beta1", "service": service}
        more = {"caBundle": self.bundle, "groupPriorityMinimum": 100, "versionPriority": 100}
        body = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": _SERVED}}
        plane.apply({**body, "spec": {**served, **more}})
        config = plane.kubeconfig(ADMIN)
        self.start(
            folder / "keda-adapter",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={self.port}",
            f"--port={metrics}",
            f"--cert-dir={self.certs}",
            f"--tls-cert-file={self.certs / 'tls.crt'}",
            f"--tls-private-key-file={self.certs / 'tls.key'}",
            f"--metrics-service-address={LOOPBACK}:{answers}",
            "--metrics-service-grpc-authority=operator.keda.svc",
            f"--lister-kubeconfig={config}",
            f"--authentication-kubeconfig={config}",
            f"--authorization-kubeconfig={config}",
            ready=self._is_served,
            KEDA_CLUSTER_OBJECT_NAMESPACE=self.name,
            POD_NAMESPACE=self.name,
            WATCH_NAMESPACE="",
        )

    def close(self) -> None:
        """End it; nobody serves external metrics any more."""
        self.plane.request("DELETE", f"{_API}/{_SERVED}")
        super().close()

    def scale(self, cluster: Cluster, name: str, address: str, **changes: Any) -> str:
        """Give a Deployment the ScaledObject of the example; the path of the autoscaler that KEDA makes of it."""
        trigger = {**_EXAMPLE["spec"]["triggers"][0]["metadata"], "scalerAddress": address, "target": name}
        spec = {
            **_EXAMPLE["spec"],
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "maxReplicaCount": 8,
            "pollingInterval": 1,
            "triggers": [{"type": "external", "metadata": trigger}],
            **changes,
        }
        metadata = {"name": name, "namespace": cluster.namespace}
        cluster.plane.apply({"apiVersion": OBJECTS, "kind": "ScaledObject", "metadata": metadata, "spec": spec})
        return f"/apis/autoscaling/v2/namespaces/{cluster.namespace}/horizontalpodautoscalers/keda-hpa-{name}"

    def drop(self, cluster: Cluster, name: str) -> None:
        """Take a ScaledObject away, while KEDA is there to end it."""
        path = f"/apis/{OBJECTS}/namespaces/{cluster.namespace}/scaledobjects/{name}"
        self.plane.request("DELETE", path)
        cluster.until(lambda: self.plane.request("GET", path)[0] == 404, f"{path} is gone")

    def _is_served(self) -> bool:
        return self.plane.request("GET", "/apis/external.metrics.k8s.io/v1beta1")[0] == 200
