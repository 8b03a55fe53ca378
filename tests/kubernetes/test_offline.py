"""What needs no cluster: settings that cannot work, names of operations, and how each kind shows its replicas."""

import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, strategies as st
from tests.actuators.samples import scale

from flyball_actuators.platforms import PlatformError, Rejected, make_platforms
from flyball_actuators.platforms.kubernetes.kinds import BEHIND, BY_NAME
from flyball_actuators.platforms.kubernetes.operation import Operation, decode, manager
from flyball_actuators.platforms.kubernetes.quantity import amount, quantity
from flyball_actuators.platforms.kubernetes.replicas.count import count
from flyball_actuators.platforms.kubernetes.replicas.going import COST, chosen
from flyball_actuators.platforms.kubernetes.replicas.volcano import last_retry
from flyball_actuators.platforms.kubernetes.targets import Target
from flyball_contracts.config import ActuatorConfig, PlatformConfig
from flyball_contracts.errors import ConfigError

ANY = st.text(st.characters(codec="utf-8"), max_size=20)


@given(st.builds(Operation, decision=ANY, kind=ANY, namespace=ANY, name=ANY, uid=ANY, pod=ANY, pod_uid=ANY, node=ANY))
def test_an_operation_is_found_again_by_its_name(operation: Operation) -> None:
    assert decode(operation.encode()) == operation


@pytest.mark.parametrize("text", ["", "p1", "verb=dance&decision=d", "operations/7"])
def test_a_name_of_another_platform_is_none_of_ours(text: str) -> None:
    with pytest.raises(PlatformError, match="none of platform kubernetes"):
        decode(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("250m", 0.25),
        ("2", 2.0),
        ("1.5", 1.5),
        ("2Gi", 2**31),
        ("500M", 5e8),
        ("1e3", 1000.0),
        ("100n", 1e-7),
        ("1Ei", 2**60),
    ],
)
def test_quantities_are_numbers(text: str, number: float) -> None:
    assert amount(text) == pytest.approx(number)


@given(st.floats(0.001, 1e12))
@example(562949953422.3094)
def test_a_number_is_a_quantity_to_a_thousandth(value: float) -> None:
    assert amount(quantity(value)) == pytest.approx(value, abs=5.1e-4 + 2 * math.ulp(value))


def test_each_decision_writes_under_a_name_of_its_own() -> None:
    assert manager("a") != manager("b")
    assert len(manager("x" * 500)) == 128


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"driver": "kubernetes"}, "namespaces: none is named"),
        ({"driver": "kubernetes", "namespaces": ("ml",)}, "kubeconfig: none is named, and this is no pod"),
        ({"driver": "kubernetes", "namespaces": ("ml",), "kubeconfig": "/none"}, "kubeconfig: /none"),
        ({"driver": "kubernetes", "url": "http://a:1"}, "url: driver kubernetes does not use it"),
        ({"driver": "inventory", "namespaces": ("ml",)}, "namespaces: driver inventory does not use it"),
        ({"driver": "simulated", "url": "http://a:1", "conf": "x"}, "conf: driver simulated does not use it"),
    ],
)
def test_settings_that_cannot_work_are_named(entry: dict[str, Any], message: str) -> None:
    config = ActuatorConfig(platforms=(PlatformConfig(**entry),))
    with pytest.raises(ConfigError, match=r"^actuator.platforms\[0\]\." + message):
        make_platforms(config, lambda cell, workload: {})


def test_a_kubeconfig_without_a_current_context_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "clusters": [], "users": [], "contexts": []}))
    entry = PlatformConfig(driver="kubernetes", namespaces=("ml",), kubeconfig=str(path))
    with pytest.raises(ConfigError, match=r"kubeconfig: .*config: "):
        make_platforms(ActuatorConfig(platforms=(entry,)), lambda cell, workload: {})


SHOWN: list[tuple[str, Any, Any, tuple[int, int, int, bool]]] = [
    ("Deployment", {"replicas": 3}, {"readyReplicas": 2, "replicas": 4, "observedGeneration": 1}, (3, 2, 4, False)),
    ("Deployment", {}, {}, (1, 0, 0, False)),
    ("StatefulSet", {"replicas": 3}, {"readyReplicas": 3, "replicas": 3, "observedGeneration": 2}, (3, 3, 3, True)),
    ("LeaderWorkerSet", {"replicas": 2}, {"readyReplicas": 1, "replicas": 2}, (2, 1, 2, True)),
    ("Job", {"parallelism": 4}, {"active": 4, "ready": 3}, (4, 3, 4, True)),
    ("Job", {"parallelism": 4, "suspend": True}, {}, (0, 0, 0, True)),
    ("JobSet", {"replicatedJobs": [{"replicas": 2}, {}]}, {}, (3, 0, 0, True)),
    ("TrainJob", {"trainer": {"numNodes": 4}}, {"jobsStatus": [{"name": "node", "active": 1}]}, (4, 0, 4, True)),
    ("TrainJob", {"trainer": {"numNodes": 4}}, {"jobsStatus": [{"name": "node", "ready": 1}]}, (4, 4, 4, True)),
    ("TrainJob", {"suspend": True}, {}, (0, 0, 0, True)),
    ("VolcanoJob", {"tasks": [{"replicas": 2}, {}]}, {"running": 2, "pending": 1}, (3, 2, 3, True)),
    ("VolcanoJob", {"tasks": [{}]}, {"state": {"phase": "Aborting"}, "terminating": 1}, (0, 0, 1, False)),
    ("InferenceService", {"predictor": {"minReplicas": 2, "maxReplicas": 2}}, {}, (2, 0, 0, True)),
    ("InferenceService", {"predictor": {"minReplicas": 1, "maxReplicas": 5}}, {}, (1, 0, 0, True)),
    ("JobSet", {"replicatedJobs": [{}]}, {"replicatedJobsStatus": [{"ready": 1}]}, (1, 1, 1, True)),
]


@pytest.mark.parametrize(("suspended", "wanted"), [(True, 2), (False, 2), (True, 4)])
def test_a_jobset_goes_and_stops_as_a_whole(suspended: bool, wanted: int) -> None:
    spec = {"suspend": suspended, "replicatedJobs": [{"replicas": 2}, {}]}
    obj: dict[str, Any] = {"metadata": {"generation": 1, "uid": "u"}, "spec": spec}
    unasked: Any = None  # nothing is asked of the server
    answer = count(unasked, Target("JobSet", "ml", "train"), obj, scale(after=wanted), 0, dry_run=False)
    assert isinstance(answer, Rejected)
    assert "request all replicas or none" in answer.detail


@pytest.mark.parametrize(
    ("retries", "spec", "refused"),
    [(None, {}, False), (1, {}, False), (2, {}, True), (0, {"maxRetry": 1}, True), (2, {"maxRetry": 4}, False)],
)
def test_a_job_that_volcano_would_fail_is_not_resumed(retries: int | None, spec: Any, refused: bool) -> None:
    obj = {"metadata": {"uid": "u"}, "spec": spec, "status": {} if retries is None else {"retryCount": retries}}
    problem = last_retry(Target("VolcanoJob", "ml", "train"), obj)
    assert (problem is not None) == refused
    assert problem is None or "raise its spec.maxRetry" in problem.detail


def test_an_autoscaled_service_has_the_replicas_that_run() -> None:
    behind = {"metadata": {}, "spec": {"replicas": 3}, "status": {"replicas": 3, "readyReplicas": 2}}
    spec = {"predictor": {"minReplicas": 1, "maxReplicas": 5}}
    obj: dict[str, Any] = {"metadata": {}, "spec": spec, BEHIND: behind}
    assert BY_NAME["InferenceService"].status(obj)[:3] == (3, 2, 3)
    spec["predictor"] = {"minReplicas": 4, "maxReplicas": 4}
    assert BY_NAME["InferenceService"].status(obj)[:3] == (4, 2, 3)


def pod_like(name: str, node: str = "n1", *, ready: str = "True", cost: str = "", since: int = 0) -> dict[str, Any]:
    notes = {COST: cost} if cost else {}
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": f"2026-01-01T00:00:{since:02d}Z"}
    metadata = {"name": name, "labels": {"pod-template-hash": "h"}, "annotations": notes}
    return {
        "metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": "Running", "conditions": [condition]}
    }  # fmt: skip


def names_of(pods: list[dict[str, Any]]) -> list[str]:
    return [one["metadata"]["name"] for one in pods]


def test_those_go_first_that_a_replicaset_deletes_first() -> None:
    pods = [
        pod_like("old", "n2", since=1), pod_like("new", "n2", since=9), pod_like("alone", "n3", since=9),
        pod_like("cheap", "n4", cost="-1"), pod_like("broken", "n5", ready="False"), pod_like("nowhere", ""),
        pod_like("dear", "n2", cost="7"),
    ]  # fmt: skip
    target = Target("Deployment", "ml", "chat")
    obj: dict[str, Any] = {"spec": {}}
    assert names_of(chosen(target, obj, pods, 1)) == ["nowhere", "broken", "cheap", "new", "old", "alone"]
    pods[0]["metadata"]["labels"] = {"pod-template-hash": "other"}
    assert chosen(target, obj, pods, 1) == [], "in a rollout two ReplicaSets share the number"
    ranked = [pod_like(f"chat-{i}") for i in (0, 10, 2, 9)]
    assert names_of(chosen(Target("StatefulSet", "ml", "chat"), obj, ranked, 3)) == ["chat-10", "chat-9"]
    assert names_of(chosen(Target("StatefulSet", "ml", "chat"), {"spec": {"ordinals": {"start": 7}}}, ranked, 3)) == [
        "chat-10"
    ]
    assert chosen(Target("Job", "ml", "train"), obj, ranked, 3) == []
    assert chosen(Target("Job", "ml", "train"), obj, ranked, 0) == ranked


@pytest.mark.parametrize(("kind", "spec", "status", "shown"), SHOWN)
def test_each_kind_shows_its_replicas(kind: str, spec: Any, status: Any, shown: tuple[Any, ...]) -> None:
    obj = {"metadata": {"generation": 2}, "spec": spec, "status": status}
    assert BY_NAME[kind].status(obj)[:4] == shown
