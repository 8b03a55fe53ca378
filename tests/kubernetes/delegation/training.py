"""What stands in for the controllers of Volcano and of Kubeflow Trainer: it does what they document, no more.

The objects are on the real API server, with Trainer's own definition and Volcano's documented fields; their pods are
real to the cluster. Neither controller can be had here as a program that runs.
"""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from tests.kubernetes.cluster import Cluster, pod

Object = dict[str, Any]
_MERGE = "application/merge-patch+json"
_EVERY_S = 0.1


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

    def job(self, name: str, pods: int) -> str:
        """A job in Volcano; its path."""
        template = pod({}, 1, "200ms")
        spec = {"queue": "default", "minAvailable": pods, "tasks": [{"replicas": pods, "template": template}]}
        path = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{self._cluster.namespace}/jobs"
        metadata = self._cluster.named(name, name)
        body = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": metadata, "spec": spec}
        status, answer = self._cluster.plane.request("POST", path, body)
        assert status == 201, answer
        return f"{path}/{name}"

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
        phase = job.get("status", {}).get("state", {}).get("phase", "Pending")
        if action == "AbortJob" and not phase.startswith("Abort"):
            phase = "Aborting"
        elif action == "ResumeJob" and phase == "Aborted":
            phase = "Pending"
        path = f"/api/v1/namespaces/{space}/pods"
        pods = plane.get(f"{path}?labelSelector=volcano.sh%2Fjob-name%3D{name}")["items"]
        stay = [one for one in pods if "deletionTimestamp" not in one["metadata"]]
        ready = sum(_is_ready(one) for one in stay)
        (task,) = job["spec"]["tasks"]
        if phase == "Aborting":
            for one in stay:
                plane.request("DELETE", f"{path}/{one['metadata']['name']}")
            phase, ready = ("Aborting" if pods else "Aborted"), 0
        elif phase in ("Pending", "Running"):
            for i in range(task["replicas"] if not pods else 0):
                self._make(job, task, i)
            phase = "Running" if ready >= job["spec"]["minAvailable"] else "Pending"
        shown = {
            "state": {"phase": phase},
            "running": ready,
            "pending": len(stay) - ready if not phase.startswith("Abort") else 0,
            "terminating": len(pods) - len(stay),
        }
        body = {"status": shown}
        where = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{space}/jobs/{name}/status"
        plane.request("PATCH", where, body, content_type=_MERGE)

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


class Trainer:
    """A TrainJob becomes a JobSet of its name, and that a Job; what is suspended above is suspended below."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def job(self, name: str, nodes: int) -> str:
        """A TrainJob; its path."""
        path = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{self._cluster.namespace}/trainjobs"
        spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": nodes}}
        metadata = self._cluster.named(name, name)
        body = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": metadata, "spec": spec}
        status, answer = self._cluster.plane.request("POST", path, body)
        assert status == 201, answer
        return f"{path}/{name}"

    def play(self) -> None:
        """One round."""
        plane, space = self._cluster.plane, self._cluster.namespace
        for train in plane.get(f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{space}/trainjobs")["items"]:
            name, suspend = train["metadata"]["name"], bool(train["spec"].get("suspend"))
            nodes = train["spec"]["trainer"]["numNodes"]
            sets = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{space}/jobsets/{name}"
            template = pod({"jobset.sigs.k8s.io/jobset-name": name}, 1, "200ms")
            template["spec"]["restartPolicy"] = "Never"
            of_job = {"parallelism": nodes, "completions": nodes, "completionMode": "Indexed", "template": template}
            one = {"name": "node", "replicas": 1, "template": {"spec": of_job}}
            made = self._made(
                sets, "jobset.x-k8s.io/v1alpha2", "JobSet", train, name, {"replicatedJobs": [one]}, suspend
            )
            jobs = f"/apis/batch/v1/namespaces/{space}/jobs/{name}-node-0"
            job = self._made(jobs, "batch/v1", "Job", made, f"{name}-node-0", of_job, suspend)
            self._write_status(train, job, nodes)

    def _made(
        self, path: str, version: str, kind: str, owner: Object, name: str, spec: Object, suspend: bool
    ) -> Object:
        """The object, made if it is not there, and as suspended as what is above it."""
        plane = self._cluster.plane
        status, found = plane.request("GET", path)
        if status == 404:
            reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
            of_owner = {**reference, "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
            metadata = {"name": name, "ownerReferences": [of_owner]}
            body = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": {**spec, "suspend": suspend}}
            status, found = plane.request("POST", path.rpartition("/")[0], body)
            assert status == 201, found
        elif bool(found["spec"].get("suspend")) != suspend:
            plane.request("PATCH", path, {"spec": {"suspend": suspend}}, content_type=_MERGE)
        return dict(found)

    def _write_status(self, train: Object, job: Object, nodes: int) -> None:
        status: Object = job.get("status") or {}
        ready = int((status.get("ready") or 0) >= nodes)
        active = int(bool(status.get("active")) and not ready)
        one = {"name": "node", "ready": ready, "active": active, "succeeded": 0, "failed": 0, "suspended": 0}
        suspended = {
            "type": "Suspended",
            "status": "True" if train["spec"].get("suspend") else "False",
            "reason": "Suspended" if train["spec"].get("suspend") else "Resumed",
            "message": "",
            "lastTransitionTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        space, name = self._cluster.namespace, train["metadata"]["name"]
        path = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{space}/trainjobs/{name}/status"
        body = {"status": {"jobsStatus": [one], "conditions": [suspended]}}
        self._cluster.plane.request("PATCH", path, body, content_type=_MERGE)


def _is_ready(one: Object) -> bool:
    conditions: list[Object] = one.get("status", {}).get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
