"""A namespace of the control plane, with workloads, and the platform that commands it."""

import time
import uuid
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import yaml
from tests.conftest import ROOT
from tests.kubernetes.controlplane import ACTUATOR, ControlPlane

from flyball_actuators.platforms.kubernetes import KubernetesPlatform
from flyball_contracts.config import PlatformConfig

DEADLINE_S = 180.0
CORDON = ("flyball.dev/cordoned-for", "flyball.dev/cordoned-until")
SMALL = {"cpu": "100m", "memory": "256Mi"}
RIGHTS = [d for d in yaml.safe_load_all((ROOT / "infra" / "kubernetes" / "actuator.yaml").read_text()) if d]


class Cluster:
    """What a test sees of the cluster; `platform` speaks with the actuator's own rights."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.namespace = f"ml-{uuid.uuid4().hex[:6]}"
        plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}, *RIGHTS)
        self.binding: dict[str, Any] = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "flyball-actuator", "namespace": self.namespace},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "flyball-actuator",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "flyball-actuator", "namespace": "flyball"}],
        }

    def grant(self) -> None:
        """Bind the shipped role in this namespace."""
        self.plane.apply(self.binding)
        deadline = time.monotonic() + DEADLINE_S
        while self.plane.request("GET", self.deployments(), token=ACTUATOR)[0] != 200:
            assert time.monotonic() < deadline, "the role was not bound"
            time.sleep(0.05)

    def remove(self) -> None:
        """Take everything away, nodes' cordons included."""
        self.plane.request("DELETE", f"/api/v1/namespaces/{self.namespace}")
        for node in self.plane.get("/api/v1/nodes")["items"]:
            if node["spec"].get("unschedulable"):
                body = {
                    "spec": {"unschedulable": None},
                    "metadata": {"annotations": dict.fromkeys(CORDON)},
                }
                path = f"/api/v1/nodes/{node['metadata']['name']}"
                self.plane.request("PATCH", path, body, content_type="application/merge-patch+json")
        for kind in (
            "apps/v1/namespaces/{}/deployments",
            "apps/v1/namespaces/{}/statefulsets",
            "jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets",
            "batch/v1/namespaces/{}/jobs",
        ):
            path = f"/apis/{kind.format(self.namespace)}?propagationPolicy=Background"
            self.plane.request("DELETE", path)
        self.until(lambda: not self.pods(), "all pods are gone")

    def platform(self, **changes: Any) -> KubernetesPlatform:
        """A platform of its own, as a process that has just started has it."""
        entry: dict[str, Any] = {
            "driver": "kubernetes",
            "kubeconfig": str(self.plane.kubeconfig()),
            "namespaces": (self.namespace,),
            **changes,
        }
        return KubernetesPlatform(PlatformConfig(**entry))

    def deployments(self, name: str = "") -> str:
        """Path of a Deployment."""
        return f"/apis/apps/v1/namespaces/{self.namespace}/deployments{'/' if name else ''}{name}"

    def jobs(self, name: str) -> str:
        """Path of a Job."""
        return f"/apis/batch/v1/namespaces/{self.namespace}/jobs/{name}"

    def deploy(
        self,
        name: str,
        replicas: int,
        gpus: int = 1,
        workload: str = "",
        cold_start: str = "200ms",
        kind: str = "Deployment",
        limits: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """A Deployment or StatefulSet of GPU pods that are ready after a cold start."""
        labels = {"app": name}
        spec: dict[str, Any] = {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": pod(labels, gpus, cold_start, limits),
        }
        if kind == "StatefulSet":
            spec |= {"serviceName": name, "podManagementPolicy": "Parallel"}
        self.plane.apply({"apiVersion": "apps/v1", "kind": kind, "metadata": self.named(name, workload), "spec": spec})

    def job(self, name: str, replicas: int, gpus: int = 1, workload: str = "") -> None:
        """A Job that runs so many pods at once, and never ends."""
        template = pod({"job": name}, gpus, "200ms")
        template["spec"]["restartPolicy"] = "Never"
        spec = {"parallelism": replicas, "template": template}
        self.plane.apply(
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": self.named(name, workload), "spec": spec}
        )

    def named(self, name: str, workload: str) -> dict[str, Any]:
        """Metadata of an object that runs a workload."""
        notes = {"annotations": {"flyball.dev/workload": workload}} if workload else {}
        return {"name": name, "namespace": self.namespace, **notes}

    def pods(self, app: str = "") -> list[dict[str, Any]]:
        """Pods that are not on their way out."""
        query = f"?labelSelector=app%3D{app}" if app else ""
        found = self.plane.get(f"/api/v1/namespaces/{self.namespace}/pods{query}")["items"]
        return [one for one in found if "deletionTimestamp" not in one["metadata"]]

    def hold(self, path: str, why: str | None) -> None:
        """Keep a pod on its node, also once it is deleted, or let it go."""
        body = {"metadata": {"annotations": {"flyball.test/held": why}}}
        self.plane.request("PATCH", path, body, content_type="application/merge-patch+json")

    def ready(self, path: str, replicas: int) -> None:
        """Wait until so many replicas are ready."""

        def enough() -> bool:
            status = self.plane.get(path).get("status", {})
            return (status.get("readyReplicas", status.get("ready")) or 0) == replicas

        self.until(enough, f"{path} has {replicas} ready replicas")

    def until(self, true: Callable[[], bool], what: str) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + DEADLINE_S
        while not true():
            assert time.monotonic() < deadline, f"waited in vain: {what}"
            time.sleep(0.05)


def pod(
    labels: dict[str, str], gpus: int, cold_start: str, limits: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """Template of a GPU pod, with limits of CPU and memory if they are given."""
    return {
        "metadata": {"labels": labels, "annotations": {"flyball.test/cold-start": cold_start}},
        "spec": {
            "containers": [
                {
                    "name": "model",
                    "image": "none",
                    "resources": {"limits": {"nvidia.com/gpu": str(gpus), **limits}, "requests": SMALL},
                }
            ],
            "terminationGracePeriodSeconds": 1,
        },
    }
