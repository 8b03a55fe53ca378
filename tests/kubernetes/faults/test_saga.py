"""Sagas on a real control plane: a checkpoint that is confirmed, load that is off, gangs, a crash, and the way back."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.actuators.carry_out import ended, submitted
from tests.actuators.loop import PARTITIONS, of, outcomes, publish
from tests.actuators.samples import inventory, migrate, preempt, scale, spec
from tests.brokers.kafka import RealKafka
from tests.kubernetes.cluster import Cluster, pod
from tests.kubernetes.faults import trial

from flyball_actuators.platforms import Done, Failed, Handle, Rejected, Running, Superseded
from flyball_actuators.platforms.calls import StoppedError, recording_calls
from flyball_actuators.platforms.kubernetes import KubernetesPlatform, migrate as migrations, saga

pytestmark = pytest.mark.integration
MERGE = "application/merge-patch+json"
CHECKPOINT = {"flyball.dev/checkpoint": "on-request"}
SERVING = {"flyball.dev/serving": "true"}
Notes = dict[str, str]
NOTHING: Notes = {}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "AGAIN_S", 0.2)


def deploy(
    cluster: Cluster, name: str, replicas: int, *, notes: Notes = NOTHING, labels: Notes = NOTHING
) -> list[dict[str, Any]]:
    template = pod({"app": name, **labels}, 1, "100ms")
    template["metadata"]["annotations"] |= notes
    body = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    metadata = cluster.named(name, name)
    cluster.plane.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": body})
    cluster.ready(cluster.deployments(name), replicas)
    return cluster.pods(name)


def path_of(cluster: Cluster, one: dict[str, Any]) -> str:
    return f"/api/v1/namespaces/{cluster.namespace}/pods/{one['metadata']['name']}"


def moved(one: dict[str, Any], id_: str = "m1") -> Any:
    return migrate(
        id_, workload=one["metadata"]["labels"]["app"], replica=one["metadata"]["name"],
        from_node=one["spec"]["nodeName"], from_device="", time_ns=time.time_ns(),
    )  # fmt: skip


def confirm(cluster: Cluster, one: dict[str, Any]) -> None:
    """What a trainer does that has seen the request and written its checkpoint."""
    requested = cluster.plane.get(path_of(cluster, one))["metadata"]["annotations"]["flyball.dev/checkpoint-requested"]
    body = {"metadata": {"annotations": {"flyball.dev/checkpoint-done": requested}}}
    assert cluster.plane.request("PATCH", path_of(cluster, one), body, content_type=MERGE)[0] == 200


def waits(platform: KubernetesPlatform, handle: Handle, words: str) -> None:
    progress = platform.poll(handle)
    assert isinstance(progress, Running), progress
    assert words in progress.answer


def budget(cluster: Cluster, name: str, least: int) -> str:
    cluster.plane.apply(
        {
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": cluster.namespace},
            "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": name}}},
        }
    )  # fmt: skip
    path = f"/apis/policy/v1/namespaces/{cluster.namespace}/poddisruptionbudgets/{name}"
    cluster.until(lambda: cluster.plane.get(path).get("status", {}).get("currentHealthy", 0) >= least, "it counts")
    return path


def test_a_checkpoint_is_waited_for_by_whoever_goes_on(cluster: Cluster) -> None:
    one = deploy(cluster, "train", 2, notes=CHECKPOINT)[0]
    killed, decision = cluster.platform(), moved(one)
    claimed = killed.observe(decision)
    assert isinstance(submitted(killed, decision), Handle)
    other = cluster.platform()
    handle = other.find(decision, claimed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert handle is not None
    waits(other, handle, "0 of 1 checkpoints are confirmed")
    assert one["metadata"]["uid"] in {p["metadata"]["uid"] for p in cluster.pods("train")}
    confirm(cluster, one)
    stopping = recording_calls(lambda _: None, lambda: "ann stopped everything")
    with stopping, pytest.raises(StoppedError, match="ann stopped everything"):
        other.poll(handle)
    done = ended(other, handle)
    assert isinstance(done, Done), done
    assert one["metadata"]["uid"] not in {p["metadata"]["uid"] for p in cluster.pods("train")}
    assert not cluster.plane.get(f"/api/v1/nodes/{one['spec']['nodeName']}")["spec"].get("unschedulable")


def test_a_pod_that_left_by_itself_is_not_said_to_be_moved(cluster: Cluster) -> None:
    one = deploy(cluster, "train", 1)[0]
    killed, decision = cluster.platform(), moved(one)
    claimed = killed.observe(decision)
    assert not isinstance(claimed, Rejected)  # and the actuator is killed before its first call
    cluster.plane.request("DELETE", path_of(cluster, one))
    cluster.until(
        lambda: one["metadata"]["uid"] not in {p["metadata"]["uid"] for p in cluster.pods("train")}, "it goes"
    )
    handle = cluster.platform().find(decision, claimed)
    assert handle is not None
    unknown = cluster.platform().poll(handle)
    assert isinstance(unknown, Failed)
    assert "unknown outcome" in unknown.answer
    assert "nothing shows that this decision moved it" in unknown.answer
    assert not cluster.plane.get(f"/api/v1/nodes/{one['spec']['nodeName']}")["spec"].get("unschedulable")


def test_who_does_not_confirm_gets_sigterm_in_the_end(cluster: Cluster) -> None:
    one = deploy(cluster, "train", 1, notes={**CHECKPOINT, saga.TIMEOUT: "1"})[0]
    platform = cluster.platform()
    handle = submitted(platform, moved(one))
    assert isinstance(handle, Handle)
    waits(platform, handle, "is awaited")
    assert isinstance(ended(platform, handle), Done)


def test_load_is_off_before_a_pod_goes_and_back_where_it_stays(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = deploy(cluster, "chat", 2, labels=SERVING)
    for i, each in enumerate((one, two)):  # kwok gives its pods no address, and only those with one are endpoints
        address = {"status": {"podIP": f"10.9.0.{i + 1}", "podIPs": [{"ip": f"10.9.0.{i + 1}"}]}}
        assert cluster.plane.request("PATCH", f"{path_of(cluster, each)}/status", address, content_type=MERGE)[0] == 200
    service = {"selector": {"app": "chat", **SERVING}, "ports": [{"port": 80}]}
    metadata = {"name": "chat", "namespace": cluster.namespace}
    cluster.plane.apply({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service})

    def endpoints() -> set[str]:
        slices = cluster.plane.get(f"/apis/discovery.k8s.io/v1/namespaces/{cluster.namespace}/endpointslices")["items"]
        return {e["targetRef"]["name"] for s in slices for e in s.get("endpoints") or () if e["conditions"]["ready"]}

    name = one["metadata"]["name"]
    cluster.until(lambda: len(endpoints()) == 2, "both serve")
    path = budget(cluster, "chat", 2)
    monkeypatch.setattr(migrations, "GIVE_UP_S", 3.0)
    monkeypatch.setattr(saga, "DRAIN_S", 0.5)
    platform = cluster.platform()
    handle = submitted(platform, moved(one))
    assert isinstance(handle, Handle)
    cluster.until(lambda: endpoints() == {two["metadata"]["name"]}, "its load is off")
    failed = ended(platform, handle)
    assert isinstance(failed, Failed)
    assert "look at its disruption budget" in failed.answer
    left = cluster.plane.get(path_of(cluster, one))["metadata"]
    assert left["labels"]["flyball.dev/serving"] == "true"
    assert not [note for note in left["annotations"] if note.startswith("flyball.dev/")]
    cluster.until(lambda: name in endpoints(), "it serves again")
    cluster.plane.request("DELETE", path)
    monkeypatch.setattr(saga, "DRAIN_S", 30.0)
    monkeypatch.setattr(migrations, "GIVE_UP_S", 60.0)
    again = submitted(platform, moved(one, "m2"))
    assert isinstance(again, Handle)
    while (progress := platform.poll(again)) and isinstance(progress, Running) and "load is taken" in progress.answer:
        time.sleep(0.05)
    assert name not in endpoints()
    assert isinstance(ended(platform, again), Done)


def test_a_gang_goes_together_or_not_at_all(cluster: Cluster) -> None:
    pods = deploy(cluster, "gang", 3, labels={"flyball.dev/gang": "g"})
    path, before = budget(cluster, "gang", 2), {p["metadata"]["uid"] for p in pods}
    platform, decision = cluster.platform(), moved(pods[0])
    observed = platform.observe(decision)
    assert len(getattr(observed, "nodes", {})) == 3, "the guard counts all that go"
    handle = submitted(platform, decision)
    assert isinstance(handle, Handle)
    for _ in range(5):
        progress = platform.poll(handle)
        assert isinstance(progress, Running)
        time.sleep(0.15)
    assert {p["metadata"]["uid"] for p in cluster.pods("gang")} == before, "the budget has room for one alone"
    cluster.plane.request("DELETE", path)
    assert isinstance(ended(cluster.platform(), handle), Done)
    assert not before & {p["metadata"]["uid"] for p in cluster.pods("gang")}


def test_a_preemption_waits_for_its_checkpoints_and_can_be_taken_back(cluster: Cluster) -> None:
    pods = deploy(cluster, "train", 3, notes=CHECKPOINT)
    victims = tuple(p["metadata"]["name"] for p in pods[:2])
    platform = cluster.platform()
    stop = preempt(workload="train", before=3, after=1, victims=victims, time_ns=time.time_ns())
    claimed = platform.observe(stop)
    handle = submitted(platform, stop)
    assert isinstance(handle, Handle)
    waits(platform, handle, "0 of 2 checkpoints are confirmed")
    found = cluster.platform().find(stop, claimed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert found is not None
    confirm(cluster, pods[0])
    waits(platform, found, "1 of 2 checkpoints are confirmed")
    assert len(cluster.pods("train")) == 3
    confirm(cluster, pods[1])
    assert isinstance(ended(cluster.platform(), found), Done)
    assert [p["metadata"]["name"] for p in cluster.pods("train")] == [pods[2]["metadata"]["name"]]
    last = preempt("p2", workload="train", before=1, after=0, time_ns=time.time_ns())
    handle = submitted(platform, last)
    assert isinstance(handle, Handle)
    waits(platform, handle, "0 of 1 checkpoints are confirmed")
    body = {"spec": {"replicas": 2}}
    assert cluster.plane.request("PATCH", cluster.deployments("train"), body, content_type=MERGE)[0] == 200
    ends = platform.poll(handle)
    assert isinstance(ends, Superseded), ends
    notes = cluster.plane.get(path_of(cluster, pods[2]))["metadata"]["annotations"]
    assert not [note for note in notes if note.startswith(("flyball.dev/checkpoint-", "flyball.dev/moved"))]


def test_what_waits_for_a_checkpoint_is_taken_back_and_what_has_gone_is_not(cluster: Cluster) -> None:
    pods = deploy(cluster, "train", 3, notes=CHECKPOINT, labels=SERVING)
    uids = {p["metadata"]["uid"] for p in pods}
    platform = cluster.platform()
    move = submitted(platform, moved(pods[0]))
    stop = submitted(platform, preempt(workload="train", before=3, after=1, time_ns=time.time_ns()))
    grown = submitted(platform, scale("up", workload="train", before=3, after=3, time_ns=time.time_ns()))
    assert isinstance(move, Handle)
    assert isinstance(stop, Handle)
    assert isinstance(grown, Handle)
    waits(platform, move, "is awaited")
    waits(platform, stop, "is awaited")
    other = cluster.platform()
    for handle in (stop, move, move):  # whoever goes on may say it again
        ended_as = other.take_back(handle)
        assert isinstance(ended_as, Failed), ended_as
    assert other.take_back(grown) is None, "it prepares nothing"
    left = cluster.pods("train")
    assert {p["metadata"]["uid"] for p in left} == uids
    assert all(p["metadata"]["labels"]["flyball.dev/serving"] == "true" for p in left)
    notes = {note for p in left for note in p["metadata"]["annotations"] if note.startswith("flyball.dev/")}
    assert notes == set(CHECKPOINT)
    assert not cluster.plane.get(f"/api/v1/nodes/{pods[0]['spec']['nodeName']}")["spec"].get("unschedulable")
    again = submitted(platform, moved(pods[0], "m2"))
    assert isinstance(again, Handle)
    confirm(cluster, pods[0])
    while pods[0]["metadata"]["uid"] in {p["metadata"]["uid"] for p in cluster.pods("train")}:
        assert isinstance(platform.poll(again), Running)
        time.sleep(0.1)
    assert platform.take_back(again) is None, "it has gone"
    assert isinstance(ended(platform, again), Done)


@pytest.mark.timeout(180)
def test_one_actuator_is_killed_in_the_middle_and_the_other_ends_it(
    cluster: Cluster, kafka_jars: Path, tmp_path: Path
) -> None:
    one = deploy(cluster, "w1", 2, notes=CHECKPOINT)[0]
    with RealKafka(PARTITIONS, jars=kafka_jars) as broker:
        bootstrap = broker.bootstrap
        publish(bootstrap, spec("w1"), inventory(one["spec"]["nodeName"]))
        fleet = trial.Fleet(cluster, bootstrap, tmp_path)
        try:
            publish(bootstrap, moved(one, "half"))
            requested = "flyball.dev/checkpoint-requested"
            cluster.until(
                lambda: requested in cluster.plane.get(path_of(cluster, one))["metadata"]["annotations"], "it is asked"
            )
            cluster.until(lambda: any(o.status == "running" for o in outcomes(bootstrap)), "it is said to run")
            first = of(bootstrap, "half", "running").actuator
            os.kill(int(first.split("/")[1]), signal.SIGKILL)
            confirm(cluster, one)
            cluster.until(lambda: any(o.final for o in outcomes(bootstrap)), "the other ends it")
            last = next(o for o in outcomes(bootstrap) if o.final)
            assert (last.status, last.actuator != first) == ("done", True), last
        finally:
            fleet.stop()
    assert one["metadata"]["uid"] not in {p["metadata"]["uid"] for p in cluster.pods("w1")}
    evictions = [c for c in cluster.plane.calls() if c["objectRef"].get("subresource") == "eviction"]
    mine = [c for c in evictions if c["objectRef"].get("name") == one["metadata"]["name"]]
    assert sum(c["responseStatus"]["code"] == 201 for c in mine) == 1
