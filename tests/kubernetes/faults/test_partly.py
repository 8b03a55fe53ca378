"""Commands that a cluster obeys in part, and replicas that leave a sick device for nowhere; no cluster is needed."""

from typing import Any, cast

import msgspec
import pytest
from tests.actuators.samples import NOW, S, preempt

from flyball_actuators.platforms import Failed, Rejected, Running, Superseded
from flyball_actuators.platforms.kubernetes.api import Answer, Api
from flyball_actuators.platforms.kubernetes.cordon import UNTIL
from flyball_actuators.platforms.kubernetes.kinds import Object
from flyball_actuators.platforms.kubernetes.migrate import Migrations
from flyball_actuators.platforms.kubernetes.operation import Operation, manager
from flyball_actuators.platforms.kubernetes.replicas.going import COST, FIRST_TO_GO, pods_to_prepare
from flyball_actuators.platforms.kubernetes.replicas.write import set_replicas
from flyball_actuators.platforms.kubernetes.saga import CHECKPOINT, ON_REQUEST
from flyball_actuators.platforms.kubernetes.targets import Target
from flyball_contracts.nodes.kubernetes import CORDONED

UNTIL_NS = NOW + 900 * S
LEAVES = Operation(
    verb="migrate", decision="d", kind="Deployment", namespace="ml", name="chat", uid="u", pod="chat-1",
    pods="chat-1/p1", node="n1", keep_cordon=True, until_ns=UNTIL_NS,
)  # fmt: skip
WAITS: Object = {"status": {"observedGeneration": 1, "replicas": 2, "readyReplicas": 1}, "spec": {"replicas": 2}}
ENDED: Object = {"status": {"conditions": [{"type": "Complete", "status": "True"}]}, "spec": {"parallelism": 2}}


def pod(name: str, phase: str) -> Object:
    """A pod that promises a checkpoint."""
    owner = {"kind": "Job", "name": "train", "uid": "u", "controller": True}
    notes = {CHECKPOINT: ON_REQUEST}
    metadata: Object = {"name": name, "namespace": "ml", "uid": name, "annotations": notes, "ownerReferences": [owner]}
    return {"metadata": metadata, "spec": {"nodeName": "n1"}, "status": {"phase": phase}}


class Cluster:
    """A controller whose pod ``chat-1`` was evicted from node ``n1``, which its decision has cordoned."""

    def __init__(self, shown: Object) -> None:
        self.obj: Object = {"metadata": {"uid": "u", "generation": 1}, **shown}
        self.obj["spec"] = {**shown["spec"], "selector": {"matchLabels": {"app": "chat"}}}
        closed: Object = {"manager": manager("d"), "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}
        notes = {CORDONED: "d", UNTIL: "checked"}
        metadata: Object = {
            "name": "n1",
            "uid": "n",
            "resourceVersion": "1",
            "annotations": notes,
            "managedFields": [closed],
        }
        self.node: Object = {"metadata": metadata, "spec": {"unschedulable": True}}
        self.costs: dict[str, str | None] = {}
        self.pods: list[Object] = []

    def get(self, path: str) -> Answer:
        if "/pods/" in path:
            found = [one for one in self.pods if path.endswith(f"/{one['metadata']['name']}")]
            return Answer(200, found[0], "") if found else Answer(404, {"message": "not found"}, "")
        return Answer(200, self.node if "/nodes/" in path else self.obj, "")

    def listed(self, path: str, query: Any = ()) -> Answer:
        return Answer(200, self.pods, "")

    def call(self, method: str, path: str, body: Any, query: Any, kind: str, known: Any = ()) -> Answer:
        name = path.rpartition("/")[2]
        if name == "gone":
            return Answer(404, {"message": "not found"}, "")
        if "/pods/" in path:
            self.costs[name] = body["metadata"]["annotations"].get(COST)
        if "/nodes/" in path:
            self.node["spec"] |= body["spec"]
        return Answer(200, {}, "")

    @property
    def migrations(self) -> Migrations:
        return Migrations(cast(Api, self))


@pytest.mark.parametrize("device", [True, False])
def test_a_node_with_a_sick_device_stays_closed_though_the_replica_found_no_other(device: bool) -> None:
    cluster, operation = Cluster(WAITS), msgspec.structs.replace(LEAVES, keep_cordon=device)
    assert isinstance(cluster.migrations.poll(operation, UNTIL_NS - S), Running)
    progress = cluster.migrations.poll(operation, UNTIL_NS)
    assert isinstance(progress, Failed)
    assert bool(cluster.node["spec"]["unschedulable"]) is device
    assert ("node n1 stays cordoned until it has been checked" in progress.answer) is device


@pytest.mark.parametrize("named", [True, False])
def test_a_node_stays_closed_for_the_replica_that_left_it_not_for_others_of_its_gang(named: bool) -> None:
    cluster = Cluster(WAITS)
    cluster.pods = [pod("chat-1" if named else "chat-0", "Running")]
    operation = msgspec.structs.replace(LEAVES, pods="chat-0/chat-0 chat-1/chat-1")
    progress = cluster.migrations.poll(operation, UNTIL_NS)
    assert isinstance(progress, Failed)
    assert "1 of its gang have gone" in progress.answer
    assert bool(cluster.node["spec"]["unschedulable"]) is not named


def test_a_move_ends_with_its_job() -> None:
    cluster = Cluster(ENDED)
    progress = cluster.migrations.poll(msgspec.structs.replace(LEAVES, kind="Job"), NOW)
    assert isinstance(progress, Superseded)
    assert "Job ml/chat has ended by itself" in progress.answer
    assert cluster.node["spec"]["unschedulable"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_is_not_waited_for(phase: str) -> None:
    """It would never confirm its checkpoint."""
    cluster, target = Cluster(WAITS), Target("Job", "ml", "train")
    cluster.obj["spec"] = {"parallelism": 2, "selector": {"matchLabels": {"job": "train"}}}
    cluster.pods = [pod("train-0", "Running"), pod("train-1", phase)]
    stop = preempt(before=2, after=0)
    going = pods_to_prepare(cast(Api, cluster), target, cluster.obj, stop)
    assert not isinstance(going, Rejected)
    assert [one["metadata"]["name"] for one in going] == ["train-0"]


def test_pods_that_were_to_go_first_are_as_before_where_one_of_them_is_gone() -> None:
    cluster = Cluster(WAITS)
    target, victims = Target("Deployment", "ml", "chat"), ("chat-0", "gone", "chat-2")
    answer = set_replicas(cast(Api, cluster), target, cluster.obj, 0, victims, ())
    assert isinstance(answer, Rejected)
    assert FIRST_TO_GO not in cluster.costs.values()
    assert cluster.costs == {"chat-0": None}
