"""Operations on a number end, whatever became of the cluster; no cluster is needed for that."""

from datetime import UTC, datetime
from typing import Any, cast

import pytest
from tests.actuators.samples import NOW, S, scale

from flyball_actuators.platforms import Done, Failed, Progress, Running
from flyball_actuators.platforms.kubernetes.api import Answer, Api
from flyball_actuators.platforms.kubernetes.operation import Operation, decode, manager
from flyball_actuators.platforms.kubernetes.replicas import count
from flyball_actuators.platforms.kubernetes.replicas.undo import START_S
from flyball_actuators.platforms.kubernetes.targets import Target
from flyball_contracts.records import Scale

PATIENCE = round(START_S) * S
GRACE = 30 * S
KEPT = {"flyball.dev/rollback": "false"}


def when(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns / S, UTC).isoformat()


def ending(name: str, node: str, until_ns: int) -> dict[str, Any]:
    """A pod that is being deleted; its grace period ends at ``until_ns``."""
    owner = {"kind": "StatefulSet", "name": "chat", "uid": "u", "controller": True}
    metadata = {"name": name, "uid": name, "deletionTimestamp": when(until_ns), "ownerReferences": [owner]}
    return {"metadata": metadata, "spec": {"nodeName": node}}


class Cluster:
    """One controller as an API server shows it, with the pods that are being deleted."""

    def __init__(self, replicas: int, ready: int, *pods: dict[str, Any], present: int = -1, kind: str = "") -> None:
        self.pods = list(pods)
        self.target = Target(kind or "StatefulSet", "ml", "chat")
        self.obj: dict[str, Any] = {
            "metadata": {"name": "chat", "uid": "u", "generation": 1, "resourceVersion": "1"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "chat"}}},
            "status": {
                "observedGeneration": 1, "readyReplicas": ready, "replicas": ready if present < 0 else present
            },
        }  # fmt: skip

    def get(self, path: str) -> Answer:
        return Answer(200, self.obj, "")

    def listed(self, path: str, query: Any = ()) -> Answer:
        return Answer(200, self.pods, "")

    def begun(self, decision: Scale) -> Operation:
        """The operation of a decision that was submitted now, as another actuator reads it after a restart."""
        return decode(count.count_of(decision, self.target, self.obj, NOW).encode())

    def poll(self, operation: Operation, now_ns: int) -> Progress:
        return count.poll_count(cast(Api, self), operation, now_ns, rollback=True)


def failed(progress: Progress) -> str:
    assert isinstance(progress, Failed), progress
    return progress.answer


@pytest.mark.parametrize("present", [3, 4])
def test_a_pod_on_a_dead_machine_is_not_waited_for_without_end(present: int) -> None:
    """Some kinds count the pods that end, others do not."""
    cluster = Cluster(3, 3, ending("chat-3", "dead", NOW + GRACE), present=present)
    operation = cluster.begun(scale(before=4, after=3))
    assert isinstance(cluster.poll(operation, NOW + PATIENCE - S), Running)
    progress = cluster.poll(operation, NOW + PATIENCE)
    assert "chat-3 on dead" in failed(progress)
    assert "delete its Node object" in failed(progress)
    assert isinstance(progress, Failed)
    assert progress.observed is not None
    assert (progress.observed.replicas, progress.observed.ready) == (3, 3)


def test_a_few_of_many_pods_are_named() -> None:
    cluster = Cluster(1, 1, *(ending(f"chat-{i}", "dead", NOW) for i in range(1, 9)))
    answer = failed(cluster.poll(cluster.begun(scale(before=9, after=1)), NOW + PATIENCE))
    assert "chat-3 on dead and 5 more" in answer
    assert "chat-4" not in answer


def test_a_grace_period_may_last_longer() -> None:
    grace = NOW + 2 * PATIENCE
    cluster = Cluster(3, 3, ending("chat-3", "n1", grace))
    operation = cluster.begun(scale(before=4, after=3))
    assert isinstance(cluster.poll(operation, grace), Running)
    assert "chat-3 on n1" in failed(cluster.poll(operation, grace + 120 * S))
    cluster.pods.clear()
    assert isinstance(cluster.poll(operation, grace), Done)


def test_replicas_that_stay_and_are_not_ready_are_not_waited_for_without_end() -> None:
    cluster = Cluster(3, 2)
    operation = cluster.begun(scale(before=4, after=3))
    assert isinstance(cluster.poll(operation, NOW + PATIENCE - S), Running)
    assert "2 of 3 replicas ready: the others did not" in failed(cluster.poll(operation, NOW + PATIENCE))
    cluster = Cluster(3, 3, present=4)
    assert "4 exist; see its controller" in failed(cluster.poll(operation, NOW + PATIENCE))


def test_replicas_that_were_added_for_good_are_not_waited_for_without_end() -> None:
    cluster = Cluster(5, 2)
    cluster.obj["metadata"]["annotations"] = KEPT
    operation = cluster.begun(scale(before=2, after=5))
    assert isinstance(cluster.poll(operation, NOW + PATIENCE - S), Running)
    assert "2 of 5 replicas ready" in failed(cluster.poll(operation, NOW + PATIENCE))


def test_a_number_that_a_stop_held_up_has_its_time_from_the_write_on() -> None:
    cluster = Cluster(3, 3, present=4)
    decision, written = scale(before=4, after=3), NOW + 10 * PATIENCE
    operation = count.count_of(decision, cluster.target, cluster.obj, NOW)
    operation = decode(operation.encode().replace("verb=count", "verb=count&pods=chat-3%2Fp"))
    cluster.obj["metadata"]["managedFields"] = [{"manager": manager(decision.id), "time": when(written)}]
    assert isinstance(cluster.poll(operation, written + S), Running)
    assert "4 exist" in failed(cluster.poll(operation, written + PATIENCE))


def test_volcano_has_time_to_take_a_command_and_replicas_then_to_start() -> None:
    cluster = Cluster(3, 3, kind="VolcanoJob")
    cluster.obj["spec"] = {"tasks": [{"replicas": 3}], "selector": {}}
    cluster.obj["status"] = {"state": {"phase": "Pending"}, "pending": 3}
    operation = cluster.begun(scale(before=0, after=3))
    assert isinstance(cluster.poll(operation, NOW + PATIENCE), Running)
    assert "0 of 3 replicas ready" in failed(cluster.poll(operation, NOW + 2 * PATIENCE))
