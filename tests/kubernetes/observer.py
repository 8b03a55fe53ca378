"""A subscriber of the topics that `flyball controller` publishes, and a controller of its own beside it."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

import yaml
from tests.actuators.loop import read_keyed
from tests.conftest import ROOT
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.controlplane import CONTROLLER

from flyball_actuators.controller.service import ControllerReport, run_controller
from flyball_actuators.parameters import ControllerParameters
from flyball_contracts.codec import decode_record
from flyball_contracts.config import Config, KafkaConfig
from flyball_contracts.records import WorkloadSpec
from flyball_contracts.tables import Tables
from flyball_contracts.topics import INVENTORY, WORKLOADS

INFRA = ROOT / "infra" / "kubernetes"
RIGHTS = [d for d in yaml.safe_load_all((INFRA / "controller.yaml").read_text()) if "Role" in d["kind"]]


class Observer:
    """What a subscriber makes of the topics."""

    def __init__(self, cluster: Cluster, bootstrap: str) -> None:
        self.cluster, self.bootstrap = cluster, bootstrap

    def tables(self) -> Tables:
        found = Tables()
        for topic in (INVENTORY.name, WORKLOADS.name):
            for key, value, headers in read_keyed(self.bootstrap, topic):
                if value is None:
                    found.forget(topic, key)
                else:
                    found.apply(decode_record(topic, value, [*headers]))
        return found

    def removed(self, node: str) -> bool:
        """Whether the final outcome on a node is a tombstone."""
        return node not in self.tables().inventories

    def spec(self, name: str) -> WorkloadSpec | None:
        return self.tables().spec(name)

    def until_spec(self, name: str, true: Callable[[WorkloadSpec | None], bool]) -> WorkloadSpec:
        self.cluster.until(lambda: true(self.spec(name)), f"workload {name} is as it should be: {self.spec(name)}")
        found = self.spec(name)
        return found if found is not None else self.tables().workloads[name]

    def conditions(self, resource: str, name: str) -> dict[str, tuple[str, str]]:
        obj = self.cluster.plane.get(policies(self.cluster, resource, name))
        if obj.get("status", {}).get("observedGeneration") != obj["metadata"]["generation"]:
            return {}
        return {c["type"]: (c["status"], c["reason"]) for c in obj["status"]["conditions"]}

    def until(self, name: str, accepted: tuple[str, str], published: str, resource: str = "workloadpolicies") -> None:
        def so() -> bool:
            shown = self.conditions(resource, name)
            return shown.get("Accepted") == accepted and shown["Published"][0] == published

        self.cluster.until(so, f"{resource}/{name} shows {accepted}")


@contextmanager
def controlling(
    observer: Observer, ahead_s: float = 0.0, beside: tuple[str, ...] = (), *, whole: bool = False
) -> Generator[list[ControllerReport]]:
    """A controller of its own with the shipped rights, and a clock; its report comes when it has ended.

    It reads the observer's namespace and those ``beside`` it, or the ``whole`` cluster.
    """
    config = Config(
        kafka=KafkaConfig(bootstrap=observer.bootstrap),
        controller=ControllerParameters(
            cell="eu-1",
            kubeconfig=str(observer.cluster.plane.kubeconfig(CONTROLLER)),
            namespaces=() if whole else (observer.cluster.namespace, *beside),
            period_s=0.1,
        ),
    )
    stop, reports = threading.Event(), list[ControllerReport]()

    def clock() -> int:
        return time.time_ns() + round(ahead_s * 1e9)

    thread = threading.Thread(target=lambda: reports.append(run_controller(config, stop=stop, clock=clock)))
    thread.start()
    try:
        yield reports
    finally:
        stop.set()
        thread.join(20)
        assert not thread.is_alive()


def policies(cluster: Cluster, resource: str, name: str) -> str:
    return f"/apis/flyball.dev/v1alpha1/namespaces/{cluster.namespace}/{resource}/{name}"
