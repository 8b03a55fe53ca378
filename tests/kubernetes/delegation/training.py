"""Kubeflow Trainer and JobSet on the control plane, from the binaries of infra/training/fetch; Volcano, played.

The module of Volcano's own controllers is not served: what stands in for them here does what they document, on objects
of Volcano's own types; its pods are real to the cluster.
"""

import os
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from tests.brokers.server import LOOPBACK
from tests.conftest import ROOT
from tests.kubernetes.cluster import DEADLINE_S, Cluster, pod
from tests.kubernetes.controlplane import ControlPlane
from tests.kubernetes.operators import Operator

Object = dict[str, Any]
VARIABLE = "FLYBALL_TRAINING"
_LABEL = "flyball.test/training"
_API = "/apis/trainer.kubeflow.org/v1alpha1"
_MERGE = "application/merge-patch+json"
_EVERY_S = 0.1


def training_folder() -> Path | None:
    """Where the binaries are, if they are."""
    built = sorted((ROOT / ".cache" / "training").glob("*/crds"))
    folder = Path(os.environ.get(VARIABLE) or (built[-1].parent if built else ""))
    return folder if (folder / "crds").is_dir() else None


@contextmanager
def playing(play: Callable[[], None]) -> Generator[None]:
    """Do what a controller does, again and again, until the block ends; what goes wrong is raised there."""
    stop, errors = threading.Event(), list[BaseException]()

    def run() -> None:
        while not stop.wait(_EVERY_S) and not errors:
            try:
                play()
            except BaseException as error:
                errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not errors, errors


class Volcano:
    """A Volcano Job is told by Commands: each is taken away when it is read, and then done."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.read: list[str] = []

    def job(self, name: str, pods: int, **more: Any) -> str:
        """A job in Volcano; its path."""
        tasks = [{"name": "main", "replicas": pods, "template": pod({}, 1, "200ms")}]
        body = {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": self._cluster.named(name, name),
            "spec": {"minAvailable": pods, "tasks": tasks, **more},
        }
        return _posted(
            self._cluster, f"/apis/batch.volcano.sh/v1alpha1/namespaces/{self._cluster.namespace}/jobs", body
        )

    def play(self) -> None:
        """One round."""
        plane, space = self._cluster.plane, self._cluster.namespace
        commands = f"/apis/bus.volcano.sh/v1alpha1/namespaces/{space}/commands"
        actions: dict[str, str] = {}
        for command in plane.get(commands)["items"]:
            plane.request("DELETE", f"{commands}/{command['metadata']['name']}")
            actions[command["target"]["name"]] = command["action"]
            self.read.append(command["action"])
        for job in plane.get(f"/apis/batch.volcano.sh/v1alpha1/namespaces/{space}/jobs")["items"]:
            self._reconcile(job, actions.get(job["metadata"]["name"], ""))

    def _reconcile(self, job: Object, action: str) -> None:
        plane, space, name = self._cluster.plane, self._cluster.namespace, job["metadata"]["name"]
        status: Object = job.get("status") or {}
        phase, retries = status.get("state", {}).get("phase", "Pending"), status.get("retryCount", 0)
        if action == "AbortJob" and phase in ("Pending", "Running"):
            phase = "Aborting"
        elif action == "ResumeJob" and phase in ("Aborting", "Aborted"):
            phase, retries = "Restarting", retries + 1  # a resume is a retry
        path = f"/api/v1/namespaces/{space}/pods"
        pods = plane.get(f"{path}?labelSelector=volcano.sh%2Fjob-name%3D{name}")["items"]
        stay = [one for one in pods if "deletionTimestamp" not in one["metadata"]]
        running = sum(one["status"]["phase"] == "Running" for one in stay)
        (task,) = job["spec"]["tasks"]
        if phase in ("Aborting", "Restarting"):
            for one in stay:
                plane.request("DELETE", f"{path}/{one['metadata']['name']}")
            stay, running = [], 0
            if phase == "Restarting" and retries >= job["spec"]["maxRetry"]:
                phase = "Failed"
            elif not pods:
                phase = {"Aborting": "Aborted", "Restarting": "Pending"}[phase]
        elif phase in ("Pending", "Running"):
            for i in range(task["replicas"] if not pods else 0):
                self._make(job, task, i)
            phase = "Running" if running >= job["spec"]["minAvailable"] else "Pending"
        shown = {
            "state": {"phase": phase},
            "running": running,
            "pending": len(stay) - running,
            "terminating": len(pods) - len(stay),
            "retryCount": retries,
        }
        where = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{space}/jobs/{name}/status"
        plane.request("PATCH", where, {"status": shown}, content_type=_MERGE)

    def _make(self, job: Object, task: Object, i: int) -> None:
        name, template = job["metadata"]["name"], task["template"]
        owner = {"apiVersion": job["apiVersion"], "kind": "Job", "name": name, "controller": True}
        metadata = {
            "name": f"{name}-main-{i}",
            "labels": {"volcano.sh/job-name": name},
            "annotations": template["metadata"]["annotations"],
            "ownerReferences": [{**owner, "uid": job["metadata"]["uid"]}],
        }
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        self._cluster.plane.request("POST", f"/api/v1/namespaces/{self._cluster.namespace}/pods", body)


class Training:
    """Trainer's controller and JobSet's, with their webhooks, for namespaces with the label that `watch` gives them."""

    def __init__(self, plane: ControlPlane, folder: Path, work: Path) -> None:
        self.plane = plane
        self._made: list[Object] = [yaml.safe_load(path.read_text()) for path in sorted((folder / "crds").glob("*"))]
        plane.apply(*self._made)
        self._running: list[Operator] = []
        try:
            _until(lambda: all(map(self._is_served, self._made)), "the kinds are served")
            for name in ("jobset", "trainer"):
                operator = Operator(plane, work / name, name)
                self._running.append(operator)
                config = operator.work / "config.yaml"
                config.write_text(yaml.safe_dump(_configuration(operator)))
                operator.start(folder / name, f"--config={config}")
                hooks = yaml.safe_load_all((folder / f"{name}-webhooks.yaml").read_text())
                self._made += [_answered(document, operator) for document in hooks if document]
                plane.apply(*self._made[-2:])
            self.runtime: Object = yaml.safe_load((folder / "runtime.yaml").read_text())
            plane.apply(self.runtime)
        except BaseException:
            self.close()
            raise

    def watch(self, cluster: Cluster) -> None:
        """Have them asked about what a namespace gets."""
        body = {"metadata": {"labels": {_LABEL: "yes"}}}
        self.plane.request("PATCH", f"/api/v1/namespaces/{cluster.namespace}", body, content_type=_MERGE)

    def close(self) -> None:
        """Take away what is theirs, as long as they let it go, and end them."""
        for kind in ("trainjobs", "clustertrainingruntimes"):
            self._empty(kind)
        for operator in self._running:
            operator.close()
        for document in reversed(self._made):
            kind, name = document["kind"].lower(), document["metadata"]["name"]
            self.plane.request("DELETE", f"/apis/{document['apiVersion']}/{kind}s/{name}")

    def _empty(self, kind: str) -> None:
        def empty() -> bool:
            status, answer = self.plane.request("GET", f"{_API}/{kind}")
            found: list[Object] = answer["items"] if status == 200 else []
            for one in found:
                metadata = one["metadata"]
                space = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
                self.plane.request("DELETE", f"{_API}{space}/{kind}/{metadata['name']}")
            return not found

        _until(empty, f"the {kind} are gone")

    def _is_served(self, crd: Object) -> bool:
        spec = crd["spec"]
        path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}"
        status, found = self.plane.request("GET", path)
        return status == 200 and any(one["name"] == spec["names"]["plural"] for one in found["resources"])


def _until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(_EVERY_S)


def train(cluster: Cluster, name: str, nodes: int, *, labels: Mapping[str, str] | None = None, **spec: Any) -> str:
    """A TrainJob of nodes with a GPU each; its path."""
    gpu = {"limits": {"nvidia.com/gpu": "1"}}
    body = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {**cluster.named(name, name), "labels": labels or {}},
        "spec": {
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": {"numNodes": nodes, "resourcesPerNode": gpu},
            **spec,
        },
    }
    return _posted(cluster, f"{_API}/namespaces/{cluster.namespace}/trainjobs", body)


def job_set(cluster: Cluster, name: str, pods: int, *, gpus: int = 1, labels: Mapping[str, str] | None = None) -> str:
    """A JobSet of two kinds of job; its path."""
    template = pod({}, gpus, "200ms")
    template["spec"]["restartPolicy"] = "Never"
    of_job = {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": template}
    parts = [
        {"name": part, "replicas": count, "template": {"spec": of_job}}
        for part, count in (("lead", 1), ("worker", pods - 1))
    ]
    body = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {**cluster.named(name, name), "labels": labels or {}},
        "spec": {"replicatedJobs": parts},
    }
    return _posted(cluster, f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{cluster.namespace}/jobsets", body)


def _posted(cluster: Cluster, path: str, body: Object) -> str:
    status, answer = cluster.plane.request("POST", path, body)
    assert status == 201, answer
    return f"{path}/{body['metadata']['name']}"


def _configuration(operator: Operator) -> Object:
    name = operator.name
    certificates = {"internalCertManagement": {"enable": False}}
    if name == "trainer":
        certificates = {"certManagement": {"enable": False}}
    return {
        "apiVersion": f"config.{'trainer.kubeflow.org' if name == 'trainer' else 'jobset.x-k8s.io'}/v1alpha1",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"{LOOPBACK}:{operator.health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": LOOPBACK, "port": operator.port},
        "leaderElection": {"leaderElect": False},
        **certificates,
    }


def _answered(document: Object, operator: Operator) -> Object:
    """A webhook's configuration, for the namespaces that are watched, answered by the controller itself."""
    for hook in document["webhooks"]:
        service = hook["clientConfig"]["service"] | {"namespace": operator.name, "name": operator.name}
        hook["clientConfig"] = {"service": {**service, "port": operator.port}, "caBundle": operator.bundle}
        if "clustertrainingruntime" not in service["path"]:
            hook["namespaceSelector"] = {"matchLabels": {_LABEL: "yes"}}
    return {**document, "metadata": {"name": f"{operator.name}-{document['metadata']['name']}"}}
