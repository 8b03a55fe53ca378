"""Kueue itself on the control plane, from the binary of infra/kueue/fetch; see `Kueue`."""

import base64
import os
import signal
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml
from tests.brokers.server import LOOPBACK, Server, free_ports
from tests.conftest import ROOT
from tests.kubernetes.cluster import Cluster, pod
from tests.kubernetes.controlplane import ACTUATOR, ADMIN, ControlPlane

from flyball_actuators.platforms.kueue import KueuePlatform
from flyball_contracts.config import PlatformConfig

VARIABLE = "FLYBALL_KUEUE"
ZONE = "topology.kubernetes.io/zone"
RIGHTS = [d for d in yaml.safe_load_all((ROOT / "infra" / "kubernetes" / "kueue.yaml").read_text()) if d]
EXAMPLE = [d for d in yaml.safe_load_all((ROOT / "infra" / "examples" / "kueue.yaml").read_text()) if d]
GROUP = "kueue.x-k8s.io/v1beta2"
_SPACE, _SERVICE, _SECRET = "kueue-system", "kueue-webhook-service", "kueue-webhook-server-cert"
LABEL = "flyball.test/kueue"
_KINDS = ("workload", "clusterqueue", "cohort", "resourceflavor", "batch-v1-job", "jobset", "trainjob")
_JOBS = ("batch/job", "jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob")
_MERGE = "application/merge-patch+json"


def kueue_folder() -> Path | None:
    """Where the binary is, if it is."""
    built = sorted((ROOT / ".cache" / "kueue").glob("*/kueue"))
    folder = Path(os.environ.get(VARIABLE) or (built[-1].parent if built else ""))
    return folder if (folder / "kueue").is_file() else None


class Kueue:
    """Kueue's controllers, scheduler and webhooks, for namespaces with the label that `queues` gives them."""

    def __init__(self, plane: ControlPlane, folder: Path, work: Path) -> None:
        self._plane, self._work = plane, work
        (self._port, self._health) = free_ports(2)
        self._certs = work / "certs"
        self._certs.mkdir()
        plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _SPACE}})
        outside = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": self._port}]}
        plane.apply(_named("v1", "Service", _SERVICE, spec=outside), _named("v1", "Secret", _SECRET))
        for path in sorted((folder / "crds").glob("*.yaml")):
            plane.apply(self._converted(yaml.safe_load(path.read_text())))
        self._webhooks = [self._reduced(d) for d in yaml.safe_load_all((folder / "webhooks.yaml").read_text()) if d]
        config = work / "kueue.yaml"
        config.write_text(yaml.safe_dump(self._config()))
        arguments = [str(folder / "kueue"), f"--config={config}", f"--kubeconfig={plane.kubeconfig(ADMIN)}"]
        for document in self._webhooks:
            plane.apply(document)
        self._server = Server("kueue", arguments, work / "kueue.log", environment={"HOME": str(work)})
        try:
            self._server.wait_until(self._ready, 90.0)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End it; nobody asks its webhooks any more."""
        self._server.stop(5.0)
        for document in self._webhooks:
            path = f"/apis/admissionregistration.k8s.io/v1/{document['kind'].lower()}s/{document['metadata']['name']}"
            self._plane.request("DELETE", path)

    @contextmanager
    def paused(self) -> Generator[None]:
        """Let it stand still, and its webhooks with it."""
        self._server.send(signal.SIGSTOP)
        try:
            yield
        finally:
            self._server.send(signal.SIGCONT)

    def _ready(self) -> bool:
        """Play the kubelet, which mounts the certificate that Kueue makes; whether Kueue is ready then."""
        secret: dict[str, str] = self._plane.get(f"/api/v1/namespaces/{_SPACE}/secrets/{_SECRET}").get("data") or {}
        for name, value in secret.items():
            path = self._certs / name
            if not path.exists():
                path.write_bytes(base64.b64decode(value))
        address = f"http://{LOOPBACK}:{self._health}/readyz"
        with suppress(OSError), urllib.request.urlopen(address, timeout=2) as answer:
            return bool(answer.status == 200)
        return False

    def _config(self) -> dict[str, Any]:
        return {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": _SPACE,
            "health": {"healthProbeBindAddress": f"{LOOPBACK}:{self._health}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": LOOPBACK, "port": self._port, "certDir": str(self._certs)},
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {
                "enable": True,
                "webhookServiceName": _SERVICE,
                "webhookSecretName": _SECRET,
            },
            "integrations": {"frameworks": list(_JOBS)},
            "managedJobsNamespaceSelector": {"matchLabels": {LABEL: "yes"}},
            "featureGates": {"VisibilityOnDemand": False, "MultiKueue": False},
        }

    def _converted(self, crd: dict[str, Any]) -> dict[str, Any]:
        service = {"namespace": _SPACE, "name": _SERVICE, "path": "/convert", "port": self._port}
        webhook = {"clientConfig": {"service": service}, "conversionReviewVersions": ["v1"]}
        if any(name in crd["metadata"]["name"] for name in ("queues", "workloads", "cohorts", "multikueueclusters")):
            crd["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
        return crd

    def _reduced(self, document: dict[str, Any]) -> dict[str, Any]:
        """What Kueue asks to hear, of its own kinds and of jobs, in the namespaces that are its."""
        kept: list[dict[str, Any]] = []
        for hook in document["webhooks"]:
            service = hook["clientConfig"]["service"]
            if service["path"].endswith(_KINDS):
                service |= {"namespace": _SPACE, "name": _SERVICE, "port": self._port}
                kept.append({**hook, "namespaceSelector": {"matchLabels": {LABEL: "yes"}}})
        name = f"kueue-{document['metadata']['name']}"
        return {**document, "metadata": {"name": name}, "webhooks": kept}


class Queues:
    """A namespace whose jobs Kueue queues, with Flyball's check, two zones and room for some pods."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        plane, space = cluster.plane, cluster.namespace
        body = {"metadata": {"labels": {LABEL: "yes"}}}
        plane.request("PATCH", f"/api/v1/namespaces/{space}", body, content_type=_MERGE)
        for document in (*RIGHTS, *EXAMPLE):
            metadata = document["metadata"]
            if document["kind"] in ("ClusterQueue", "LocalQueue"):
                metadata = {**metadata, "name": space}
            if "namespace" in metadata and document["kind"] in ("LocalQueue", "RoleBinding"):
                metadata = {**metadata, "namespace": space}
            spec = document.get("spec")
            if document["kind"] == "LocalQueue":
                document = {**document, "spec": {"clusterQueue": space}}
            if document["kind"] == "ClusterQueue":
                chosen = {"matchLabels": {"kubernetes.io/metadata.name": space}}
                document = {**document, "spec": {**spec, "namespaceSelector": chosen}}
            if document["kind"] != "Job":
                plane.apply({**document, "metadata": metadata})
        binding = cluster.binding
        role = {**binding["roleRef"], "name": "flyball-kueue"}
        plane.apply({**binding, "metadata": {"name": "flyball-kueue", "namespace": space}, "roleRef": role})
        path = f"/apis/{GROUP}/namespaces/{space}/workloads"
        cluster.until(lambda: plane.request("GET", path, token=ACTUATOR)[0] == 200, "the role is bound")

    def configuration(self) -> PlatformConfig:
        """The platform's configuration."""
        return PlatformConfig(
            driver="kueue",
            kubeconfig=str(self.cluster.plane.kubeconfig()),
            namespaces=(self.cluster.namespace,),
            poll_s=0.2,
        )

    @contextmanager
    def platform(self, *, live: bool = True, **queue: Any) -> Generator[KueuePlatform]:
        """A platform of its own, as a process that has just started has it."""
        made = KueuePlatform(self.configuration(), live=live, **queue)
        yield made
        made.close()

    def job(self, name: str, pods: int, *, workload: str = "", zone: str = "", **notes: str) -> str:
        """A Job in the queue that Kueue has seen, whose pods ask for a zone where one is named; its path."""
        template = pod({"job": name}, 1, "200ms")
        template["spec"]["restartPolicy"] = "Never"
        if zone:
            template["spec"]["nodeSelector"] = {ZONE: zone}
        metadata = self.cluster.named(name, workload)
        metadata["labels"] = {"kueue.x-k8s.io/queue-name": self.cluster.namespace}
        metadata.setdefault("annotations", {}).update({f"flyball.dev/{key}": text for key, text in notes.items()})
        spec = {"parallelism": pods, "completions": pods, "template": template}
        self.cluster.plane.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
        self.entry(name)
        return self.cluster.jobs(name)

    def entry(self, job: str) -> dict[str, Any]:
        """What Kueue makes of a job."""
        found: list[dict[str, Any]] = []

        def made() -> bool:
            things = self.cluster.plane.get(f"/apis/{GROUP}/namespaces/{self.cluster.namespace}/workloads")["items"]
            found[:] = [one for one in things if one["metadata"]["ownerReferences"][0]["name"] == job]
            return bool(found)

        self.cluster.until(made, f"Kueue has an entry of {job}")
        return found[0]

    def is_true(self, job: str, condition: str) -> bool:
        """Whether a condition of a job's entry holds."""
        conditions = self.entry(job).get("status", {}).get("conditions", [])
        return any(one["type"] == condition and one["status"] == "True" for one in conditions)

    def nodes(self, job: str) -> set[str]:
        """Where the pods of a job are."""
        pods = [one for one in self.cluster.pods() if one["metadata"]["labels"].get("job") == job]
        return {one["spec"].get("nodeName", "") for one in pods}

    def remove(self) -> None:
        """Take the jobs away, so that their quota is free."""
        path = f"/apis/batch/v1/namespaces/{self.cluster.namespace}/jobs?propagationPolicy=Background"
        self.cluster.plane.request("DELETE", path)
        self.cluster.plane.request("DELETE", f"/apis/{GROUP}/clusterqueues/{self.cluster.namespace}")


def _named(version: str, kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": _SPACE}, **more}
