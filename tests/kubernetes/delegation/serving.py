"""LeaderWorkerSet on the control plane, with its controller from infra/serving/fetch; KServe, played.

Of KServe the custom resource alone is installed: what stands in for its controller does what it documents for
deployment mode Standard, on objects of KServe's own type; Deployments, autoscalers and pods are real to the cluster.
"""

import os
import time
from pathlib import Path
from typing import Any

import yaml
from tests.brokers.server import LOOPBACK
from tests.conftest import ROOT
from tests.kubernetes.cluster import DEADLINE_S, Cluster, pod
from tests.kubernetes.controlplane import ControlPlane
from tests.kubernetes.operators import Operator

Object = dict[str, Any]
VARIABLE = "FLYBALL_SERVING"
LWS = "/apis/leaderworkerset.x-k8s.io/v1"
KSERVE = "/apis/serving.kserve.io/v1beta1"
_LABEL = "flyball.test/serving"
_MERGE = "application/merge-patch+json"


def serving_folder() -> Path | None:
    """Where the binary and the custom resources are, if they are."""
    built = sorted((ROOT / ".cache" / "serving").glob("*/crds"))
    folder = Path(os.environ.get(VARIABLE) or (built[-1].parent if built else ""))
    return folder if (folder / "crds").is_dir() else None


class Serving:
    """LeaderWorkerSet's controller, with its webhooks, for namespaces with the label that `watch` gives them."""

    def __init__(self, plane: ControlPlane, folder: Path, work: Path) -> None:
        self.plane = plane
        self._made: list[Object] = [_plain(path) for path in sorted((folder / "crds").glob("*"))]
        plane.apply(*self._made)
        operator = Operator(plane, work / "lws", "lws-system")
        self._operator = operator
        try:
            for path in (f"{LWS}/leaderworkersets", f"{KSERVE}/inferenceservices"):
                _until_served(plane, path)
            config = operator.work / "config.yaml"
            config.write_text(yaml.safe_dump(_configuration(operator)))
            operator.start(folder / "lws", f"--config={config}")
            hooks = [document for document in yaml.safe_load_all((folder / "webhooks.yaml").read_text()) if document]
            self._made += [_answered(document, operator) for document in hooks]
            plane.apply(*self._made[-len(hooks) :])
        except BaseException:
            self.close()
            raise

    def watch(self, cluster: Cluster) -> None:
        """Have it asked about what a namespace gets."""
        body = {"metadata": {"labels": {_LABEL: "yes"}}}
        self.plane.request("PATCH", f"/api/v1/namespaces/{cluster.namespace}", body, content_type=_MERGE)

    def close(self) -> None:
        """End it, and take away what is its own."""
        self._operator.close()
        for document in reversed(self._made):
            kind, name = document["kind"].lower(), document["metadata"]["name"]
            self.plane.request("DELETE", f"/apis/{document['apiVersion']}/{kind}s/{name}")


class KServe:
    """A Deployment and a HorizontalPodAutoscaler for each InferenceService, as KServe makes them in mode Standard."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def service(self, name: str, least: int, most: int, autoscaler: str = "") -> str:
        """An InferenceService; its path."""
        metadata = self._cluster.named(name, name)
        if autoscaler:
            metadata["annotations"]["serving.kserve.io/autoscalerClass"] = autoscaler
        model = {"modelFormat": {"name": "vllm"}, "resources": {"limits": {"nvidia.com/gpu": "1"}}}
        body = {
            "apiVersion": "serving.kserve.io/v1beta1",
            "kind": "InferenceService",
            "metadata": metadata,
            "spec": {"predictor": {"minReplicas": least, "maxReplicas": most, "model": model}},
        }
        return posted(self._cluster, f"{KSERVE}/namespaces/{self._cluster.namespace}/inferenceservices", body)

    def play(self) -> None:
        """One round."""
        path = f"{KSERVE}/namespaces/{self._cluster.namespace}/inferenceservices"
        for service in self._cluster.plane.get(path)["items"]:
            self._reconcile(service)

    def _reconcile(self, service: Object) -> None:
        plane, name = self._cluster.plane, service["metadata"]["name"]
        predictor: Object = service["spec"]["predictor"]
        least, most = predictor.get("minReplicas", 1), predictor.get("maxReplicas", 0)
        annotations: dict[str, str] = service["metadata"].get("annotations") or {}
        class_ = annotations.get("serving.kserve.io/autoscalerClass", "hpa")
        owner = {"apiVersion": service["apiVersion"], "kind": "InferenceService", "name": name, "controller": True}
        metadata = {
            "name": f"{name}-predictor",
            "namespace": self._cluster.namespace,
            "annotations": annotations,  # KServe hands them down
            "ownerReferences": [{**owner, "uid": service["metadata"]["uid"]}],
        }
        labels = {"serving.kserve.io/inferenceservice": name, "component": "predictor"}
        spec: Object = {
            "selector": {"matchLabels": {"serving.kserve.io/inferenceservice": name}},
            "template": pod(labels, 1, "200ms"),
        }
        if class_ == "none":
            spec["replicas"] = least
        plane.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
        if class_ == "hpa":
            reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": metadata["name"]}
            of_cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
            scaler = {
                "scaleTargetRef": reference,
                "minReplicas": max(1, least),
                "maxReplicas": max(1, least, most),
                "metrics": [{"type": "Resource", "resource": of_cpu}],
            }
            kind = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
            plane.apply({**kind, "metadata": metadata, "spec": scaler})


def group_set(cluster: Cluster, name: str, groups: int, size: int) -> str:
    """A LeaderWorkerSet of groups of so many pods with a GPU each; its path."""
    template = pod({"app": name}, 1, "200ms")
    body = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": cluster.named(name, name),
        "spec": {"replicas": groups, "leaderWorkerTemplate": {"size": size, "workerTemplate": template}},
    }
    return posted(cluster, f"{LWS}/namespaces/{cluster.namespace}/leaderworkersets", body)


def posted(cluster: Cluster, path: str, body: Object) -> str:
    """Make an object, once the webhooks of its kind answer; its path."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        status, answer = cluster.plane.request("POST", path, body)
        if status == 201:
            return f"{path}/{body['metadata']['name']}"
        assert status == 500, answer
        assert time.monotonic() < deadline, answer
        time.sleep(0.1)


def _plain(path: Path) -> Object:
    """A custom resource without its descriptions, which are most of it, and cost an API server seconds."""

    found: Object = yaml.load(path.read_text(), yaml.CSafeLoader)
    left: list[Any] = [found]
    while left:
        node = left.pop()
        if hasattr(node, "values"):
            if isinstance(node.get("description"), str):
                del node["description"]
            left.extend(node.values())
        elif hasattr(node, "append"):
            left.extend(node)
    return found


def _until_served(plane: ControlPlane, path: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while plane.request("GET", path)[0] != 200:
        assert time.monotonic() < deadline, f"{path} is not served"
        time.sleep(0.1)


def _configuration(operator: Operator) -> Object:
    return {
        "apiVersion": "config.lws.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"{LOOPBACK}:{operator.health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": LOOPBACK, "port": operator.port, "certDir": str(operator.certs)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
    }


def _answered(document: Object, operator: Operator) -> Object:
    """A webhook's configuration, for the namespaces that are watched, answered by the controller itself."""
    for hook in document["webhooks"]:
        service = hook["clientConfig"]["service"] | {"namespace": operator.name, "name": operator.name}
        hook["clientConfig"] = {"service": {**service, "port": operator.port}, "caBundle": operator.bundle}
        hook["namespaceSelector"] = {"matchLabels": {_LABEL: "yes"}}
    return {**document, "metadata": {"name": f"{operator.name}-{document['metadata']['name']}"}}
