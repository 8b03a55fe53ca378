"""Driver kubernetes on a real control plane: what it does is judged by what the cluster shows."""

import time
from typing import Any

import msgspec
import pytest
from tests.actuators.carry_out import carried_out, ended, submitted
from tests.actuators.samples import migrate, preempt, scale
from tests.kubernetes.cluster import SMALL, Cluster

from flyball_actuators.platforms import Done, Failed, Handle, Rejected, Running, Superseded
from flyball_actuators.platforms.kubernetes import migrate as migrations
from flyball_actuators.platforms.kubernetes.quantity import amount
from flyball_contracts.records import Resources, Scale

pytestmark = pytest.mark.integration


def now(**changes: Any) -> Any:
    """A Scale that was decided now."""
    return scale(time_ns=time.time_ns(), **changes)


def rejected(answer: Any, code: str, *words: str) -> None:
    assert isinstance(answer, Rejected), answer
    assert answer.code == code, answer
    for word in words:
        assert word in answer.detail


def test_replicas_come_and_go(cluster: Cluster) -> None:
    cluster.deploy("chat", 2, workload="chat", cold_start="1s")
    cluster.ready(cluster.deployments("chat"), 2)
    platform = cluster.platform()
    up = now(id_="up", before=2, after=5)
    handle = submitted(platform, up)
    assert isinstance(handle, Handle)
    assert "from 2 to 5 replicas (audit id " in handle.answer
    assert isinstance(platform.poll(handle), Running)  # a cold start takes a second
    done = ended(platform, handle)
    assert isinstance(done, Done)
    assert (done.observed.replicas, done.observed.ready) == (5, 5)
    assert len(cluster.pods("chat")) == 5
    assert isinstance(carried_out(platform, now(id_="down", before=5, after=1)), Done)
    assert len(cluster.pods("chat")) == 1


def test_what_still_ends_has_its_gpus(cluster: Cluster) -> None:
    cluster.deploy("chat", 2, workload="chat")
    cluster.ready(cluster.deployments("chat"), 2)
    held = [f"/api/v1/namespaces/{cluster.namespace}/pods/{p['metadata']['name']}" for p in cluster.pods("chat")]
    for path in held:
        cluster.hold(path, "it writes a checkpoint")
    platform = cluster.platform()
    handle = submitted(platform, now(before=2, after=1))
    assert isinstance(handle, Handle)
    cluster.until(lambda: len(cluster.pods("chat")) == 1, "one pod goes")

    def ending() -> bool:  # by now the controller counts it no more
        progress = platform.poll(handle)
        assert isinstance(progress, Running), progress
        return "1 pods are still ending" in progress.answer

    cluster.until(ending, "the pod that goes is waited for")
    for path in held:
        cluster.hold(path, None)
    assert isinstance(ended(platform, handle), Done)


def test_a_workload_may_go_by_its_namespace_and_name(cluster: Cluster) -> None:
    cluster.deploy("plain", 1, kind="StatefulSet")
    name = f"{cluster.namespace}/plain"
    assert isinstance(carried_out(cluster.platform(), now(workload=name, before=1, after=2)), Done)
    assert sorted(p["metadata"]["name"] for p in cluster.pods("plain")) == ["plain-0", "plain-1"]


def test_who_runs_a_workload_must_be_plain(cluster: Cluster) -> None:
    cluster.deploy("one", 1, workload="chat")
    cluster.deploy("two", 1, workload="chat")
    rejected(cluster.platform().observe(now()), "invalid", "Deployment", "/one", "/two", "flyball.dev/workload")
    rejected(cluster.platform().observe(now(workload="nobody")), "unknown_target", "flyball.dev/workload: nobody")
    foreign = cluster.platform().observe(now(workload="ml/chat"))
    rejected(foreign, "unknown_target", "name namespace ml in actuator.platforms")
    cluster.deploy("three", 1, workload="ml/chat")
    foreign = cluster.platform().observe(now(workload="ml/chat"))
    rejected(foreign, "unknown_target", "/three: flyball.dev/workload is 'ml/chat'", "choose one without '/'")


def test_what_somebody_changed_meanwhile_is_decided_again(cluster: Cluster) -> None:
    cluster.deploy("chat", 2, workload="chat")
    cluster.ready(cluster.deployments("chat"), 2)
    platform = cluster.platform()
    observed = platform.observe(now())
    assert not isinstance(observed, Rejected)
    cluster.deploy("chat", 3, workload="chat")
    rejected(platform.submit(now(before=2, after=8), observed, dry_run=False), "conflict", "changed since")
    assert cluster.plane.get(cluster.deployments("chat"))["spec"]["replicas"] == 3


def test_a_dry_run_is_judged_by_the_server_and_changes_nothing(cluster: Cluster) -> None:
    cluster.deploy("chat", 2, workload="chat")
    cluster.ready(cluster.deployments("chat"), 2)
    before = cluster.plane.get(cluster.deployments("chat"))
    platform = cluster.platform()
    planned = submitted(platform, now(before=2, after=5), dry_run=True)
    assert isinstance(planned, Handle)
    assert planned.operation == ""
    assert "would be set from 2 to 5" in planned.answer
    moved = migrate(replica=(pod := cluster.pods("chat")[0])["metadata"]["name"], from_node=pod["spec"]["nodeName"])
    planned = submitted(platform, moved, dry_run=True)
    assert isinstance(planned, Handle)
    assert "would be" in planned.answer
    after = cluster.plane.get(cluster.deployments("chat"))
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert not cluster.plane.get(f"/api/v1/nodes/{pod['spec']['nodeName']}")["spec"].get("unschedulable")
    assert {p["metadata"]["uid"] for p in cluster.pods("chat")} >= {pod["metadata"]["uid"]}


def test_a_decision_is_found_again_by_another_process(cluster: Cluster) -> None:
    cluster.deploy("chat", 1, workload="chat", cold_start="500ms")
    cluster.ready(cluster.deployments("chat"), 1)
    first, other = now(id_="first", before=1, after=3), now(id_="other", before=1, after=4)
    claimed = cluster.platform().observe(first)
    assert not isinstance(claimed, Rejected)
    assert cluster.platform().find(first, claimed) is None
    assert isinstance(cluster.platform().submit(first, claimed, dry_run=False), Handle)  # here the actuator is killed
    found = cluster.platform().find(first, claimed)
    assert isinstance(found, Handle)
    assert isinstance(ended(cluster.platform(), found), Done)
    # A number that was written after a claim may have hidden the decision: nobody can tell, and nobody guesses.
    hidden = cluster.platform().find(other, claimed)
    assert isinstance(hidden, Handle)
    last = cluster.platform().poll(hidden)
    assert isinstance(last, Failed)
    assert "unknown outcome" in last.answer


def test_what_has_no_room_waits_and_somebody_elses_number_ends_it(cluster: Cluster) -> None:
    cluster.deploy("chat", 1, gpus=8, workload="chat")
    cluster.ready(cluster.deployments("chat"), 1)
    platform = cluster.platform()
    handle = submitted(platform, now(before=1, after=6))
    assert isinstance(handle, Handle)
    cluster.ready(cluster.deployments("chat"), 4)  # there are four nodes
    waits = platform.poll(handle)
    assert isinstance(waits, Running)
    assert "4 of 6 replicas ready" in waits.answer
    body = {"spec": {"replicas": 2}}
    path = f"{cluster.deployments('chat')}?fieldManager=kubectl-scale"
    assert cluster.plane.request("PATCH", path, body, content_type="application/merge-patch+json")[0] == 200
    last = platform.poll(handle)
    assert isinstance(last, Superseded)
    assert "2 replicas by 'kubectl-scale'" in last.answer


def test_two_autoscalers_do_not_fight(cluster: Cluster) -> None:
    cluster.deploy("chat", 1, workload="chat")
    cluster.ready(cluster.deployments("chat"), 1)
    body = {"spec": {"replicas": 3}}
    path = f"{cluster.deployments('chat')}/scale?fieldManager=kube-controller-manager"
    assert cluster.plane.request("PATCH", path, body, content_type="application/merge-patch+json")[0] == 200
    rejected(submitted(cluster.platform(), now(before=3, after=5)), "conflict", "HorizontalPodAutoscaler", "delete it")
    assert cluster.plane.get(cluster.deployments("chat"))["spec"]["replicas"] == 3


def test_a_migration_that_was_cut_short_goes_on_with_the_cordon(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.deploy("chat", 1, workload="chat")
    cluster.ready(cluster.deployments("chat"), 1)
    (pod,) = cluster.pods("chat")
    name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
    decision = migrate(replica=name, from_node=node)
    killed = cluster.platform()
    claimed = killed.observe(decision)
    assert not isinstance(claimed, Rejected)
    assert cluster.platform().find(decision, claimed) is None

    def cut(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(migrations, "cordon", cut)
    with pytest.raises(KeyboardInterrupt):  # after the mark on the pod, before anything else
        killed.submit(decision, claimed, dry_run=False)
    monkeypatch.undo()
    found = cluster.platform().find(decision, claimed)
    assert isinstance(found, Handle)
    assert isinstance(ended(cluster.platform(), found), Done)
    (new,) = cluster.pods("chat")
    assert new["spec"]["nodeName"] != node
    assert cluster.plane.get(f"/api/v1/nodes/{node}")["spec"]["unschedulable"]


def test_a_job_is_suspended_and_goes_on(cluster: Cluster) -> None:
    cluster.job("train", 4, workload="train")
    cluster.ready(cluster.jobs("train"), 4)
    platform = cluster.platform()
    stop = preempt(workload="train", before=4, after=0)
    observed = platform.observe(stop)
    assert not isinstance(observed, Rejected)
    assert (observed.replicas, observed.ready, observed.suspended) == (4, 4, False)
    done = carried_out(platform, stop)
    assert isinstance(done, Done)
    assert done.observed.suspended
    assert cluster.pods() == []
    assert isinstance(carried_out(platform, now(id_="go", workload="train", before=0, after=4)), Done)
    assert len(cluster.pods()) == 4


def test_the_victims_that_are_named_go(cluster: Cluster) -> None:
    cluster.deploy("chat", 4, workload="chat")
    cluster.ready(cluster.deployments("chat"), 4)
    names = sorted(p["metadata"]["name"] for p in cluster.pods("chat"))
    platform = cluster.platform()
    assert isinstance(carried_out(platform, preempt(before=4, after=2, victims=(names[0], names[3]))), Done)
    assert sorted(p["metadata"]["name"] for p in cluster.pods("chat")) == names[1:3]


def test_a_replica_of_another_workload_is_not_touched(cluster: Cluster) -> None:
    cluster.deploy("chat", 1, workload="chat")
    cluster.deploy("bank", 1, workload="bank")
    cluster.ready(cluster.deployments("bank"), 1)
    cluster.ready(cluster.deployments("chat"), 1)
    (theirs,) = cluster.pods("bank")
    name, node = theirs["metadata"]["name"], theirs["spec"]["nodeName"]
    platform = cluster.platform()
    rejected(platform.observe(preempt(before=1, after=0, victims=(name,))), "invalid", name, "not one of")
    rejected(platform.observe(migrate(replica=name, from_node=node)), "invalid", name)
    # A label that says otherwise makes it nobody else's.
    label = {"metadata": {"labels": {"app": "chat"}}}
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/{name}"
    cluster.plane.request("PATCH", path, label, content_type="application/merge-patch+json")
    rejected(platform.observe(migrate(replica=name, from_node=node)), "invalid", name)
    assert [p["metadata"]["uid"] for p in cluster.pods() if p["metadata"]["name"] == name] == [
        theirs["metadata"]["uid"]
    ]


@pytest.mark.parametrize("device", ["GPU-1", ""])
def test_a_replica_leaves_its_node(cluster: Cluster, device: str) -> None:
    cluster.deploy("chat", 2, gpus=4, workload="chat")
    cluster.ready(cluster.deployments("chat"), 2)
    before = {p["metadata"]["uid"] for p in cluster.pods("chat")}
    gone = cluster.pods("chat")[0]
    name, node = gone["metadata"]["name"], gone["spec"]["nodeName"]
    platform = cluster.platform()
    done = carried_out(platform, migrate(replica=name, from_node=node, from_device=device))
    assert isinstance(done, Done)
    assert done.observed.nodes.get(name) != node
    left = cluster.pods("chat")
    assert len(left) == 2
    assert gone["metadata"]["uid"] not in {p["metadata"]["uid"] for p in left}
    (new,) = [p for p in left if p["metadata"]["uid"] not in before]
    assert new["spec"]["nodeName"] != node
    cordoned = cluster.plane.get(f"/api/v1/nodes/{node}")["spec"].get("unschedulable", False)
    assert cordoned is bool(device)  # one with a sick device waits for somebody to look


def test_a_move_is_not_done_before_the_controller_has_seen_the_pod_go(cluster: Cluster) -> None:
    cluster.deploy("chat", 2, workload="chat")
    cluster.ready(cluster.deployments("chat"), 2)
    gone = cluster.pods("chat")[0]["metadata"]["name"]
    node = cluster.pods("chat")[0]["spec"]["nodeName"]
    platform = cluster.platform()
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/{gone}"
    with cluster.plane.controllers_paused():
        handle = submitted(platform, migrate(replica=gone, from_node=node))
        assert isinstance(handle, Handle)
        cluster.until(lambda: cluster.plane.request("GET", path)[0] == 404, "the pod is gone")
        assert cluster.plane.get(cluster.deployments("chat"))["status"]["readyReplicas"] == 2
        assert isinstance(platform.poll(handle), Running)
    assert isinstance(ended(platform, handle), Done)
    assert len(cluster.pods("chat")) == 2


def test_a_disruption_budget_is_waited_for(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "AGAIN_S", 0.2)
    cluster.deploy("chat", 2, workload="chat")
    cluster.ready(cluster.deployments("chat"), 2)
    budget = {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "chat", "namespace": cluster.namespace},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "chat"}}},
    }  # fmt: skip
    cluster.plane.apply(budget)
    path = f"/apis/policy/v1/namespaces/{cluster.namespace}/poddisruptionbudgets/chat"
    cluster.until(lambda: cluster.plane.get(path)["status"].get("currentHealthy") == 2, "the budget counts")
    gone = cluster.pods("chat")[0]
    platform = cluster.platform()
    handle = submitted(
        platform, migrate(replica=gone["metadata"]["name"], from_node=gone["spec"]["nodeName"], from_device="")
    )
    assert isinstance(handle, Handle)
    assert "disruption budget" in handle.answer
    for _ in range(5):
        assert isinstance(platform.poll(handle), Running)
        time.sleep(0.2)
    assert gone["metadata"]["uid"] in {p["metadata"]["uid"] for p in cluster.pods("chat")}
    cluster.plane.request("DELETE", path)
    assert isinstance(ended(cluster.platform(), handle), Done)  # by another process, which knows the name alone


def test_a_budget_that_never_allows_it_gives_the_node_back(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "AGAIN_S", 0.2)
    monkeypatch.setattr(migrations, "GIVE_UP_S", 1.0)
    cluster.deploy("chat", 1, workload="chat")
    cluster.ready(cluster.deployments("chat"), 1)
    budget = {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "chat", "namespace": cluster.namespace},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "chat"}}},
    }  # fmt: skip
    cluster.plane.apply(budget)
    (pod,) = cluster.pods("chat")
    node = pod["spec"]["nodeName"]
    last = carried_out(cluster.platform(), migrate(replica=pod["metadata"]["name"], from_node=node))
    assert isinstance(last, Failed)
    assert "look at its disruption budget" in last.answer
    assert not cluster.plane.get(f"/api/v1/nodes/{node}")["spec"].get("unschedulable")
    assert [p["metadata"]["uid"] for p in cluster.pods("chat")] == [pod["metadata"]["uid"]]


def test_pods_are_resized_in_place(cluster: Cluster) -> None:
    cluster.deploy("chat", 3, workload="chat")
    cluster.ready(cluster.deployments("chat"), 3)
    before = {p["metadata"]["uid"] for p in cluster.pods("chat")}
    platform = cluster.platform()
    decision = now(before=3, after=3, resources=Resources(cpu=0.75, memory_bytes=3 * 2**28))
    shown = platform.observe(decision)
    assert not isinstance(shown, Rejected)
    assert shown.resources == Resources(cpu=0.1, memory_bytes=2**28)
    assert cluster.platform().find(decision, shown) is None
    planned = platform.submit(decision, shown, dry_run=True)
    assert isinstance(planned, Handle)
    assert "3 pods" in planned.answer
    assert cluster.platform().find(decision, shown) is None
    assert isinstance(carried_out(platform, decision), Done)
    assert isinstance(cluster.platform().find(decision, shown), Handle)
    for one in cluster.pods("chat"):
        assert one["metadata"]["uid"] in before
        assert one["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "750m"
        assert one["spec"]["containers"][0]["resources"]["requests"]["memory"] == "805306368"
    more = now(id_="more", before=3, after=4)
    last = carried_out(platform, more)
    assert isinstance(last, Done)
    assert "1 new pods have the size of their siblings" in last.answer
    sizes = {one["spec"]["containers"][0]["resources"]["requests"]["cpu"] for one in cluster.pods("chat")}
    assert sizes == {"750m"}
    profile = now(id_="g", before=3, after=3, resources=Resources(gpu_profile="1g.10gb"))
    rejected(submitted(platform, profile), "unsupported", "in place")


@pytest.mark.parametrize(
    ("limits", "then"),
    [
        ({"cpu": "500m", "memory": "1Gi"}, {"cpu": "3750m", "memory": "1Gi"}),  # one grows, the other has room
        ({"cpu": "500m", "memory": "256Mi"}, {"cpu": "3750m", "memory": "512Mi"}),  # one grows, the other follows
        (SMALL, {"cpu": "750m", "memory": "512Mi"}),  # those of a guaranteed pod follow its requests
    ],
)
def test_a_resize_keeps_the_quality_of_service(cluster: Cluster, limits: dict[str, str], then: dict[str, str]) -> None:
    cluster.deploy("chat", 1, workload="chat", limits=limits)
    cluster.ready(cluster.deployments("chat"), 1)
    decision = now(before=1, after=1, resources=Resources(cpu=0.75, memory_bytes=2**29))
    assert isinstance(carried_out(cluster.platform(), decision), Done)
    (one,) = cluster.pods("chat")
    found = one["spec"]["containers"][0]["resources"]
    assert {name: amount(found["limits"][name]) for name in then} == {name: amount(text) for name, text in then.items()}
    assert amount(found["requests"]["memory"]) == 2**29


def test_a_resize_goes_batch_by_batch(cluster: Cluster) -> None:
    cluster.deploy("chat", 5, workload="chat")
    cluster.ready(cluster.deployments("chat"), 5)
    wanted = Resources(cpu=0.75)
    seen = list[tuple[int, Resources | None]]()
    for id_ in ("one", "two", "three", "four"):
        made = now(id_=id_, before=5, after=5, resources=wanted)
        last = carried_out(cluster.platform(), msgspec.structs.replace(made, batch_size=2))
        assert isinstance(last, Done), last
        requests = [one["spec"]["containers"][0]["resources"]["requests"]["cpu"] for one in cluster.pods("chat")]
        seen.append((requests.count("750m"), last.observed.resources))
    assert seen == [(2, None), (4, None), (5, wanted), (5, wanted)]
    (first, *_) = (one for one in cluster.pods("chat"))
    found = cluster.platform().find(now(id_="one", before=5, after=5, resources=wanted), None)
    assert isinstance(found, Handle)
    assert found.operation.count("chat-") == 2, "another process goes on with the pods of that batch"
    broken = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/{first['metadata']['name']}/status"
    cluster.plane.request("PATCH", path, broken, content_type="application/strategic-merge-patch+json")
    again = now(id_="five", before=5, after=5, resources=Resources(cpu=0.75, memory_bytes=2**28))
    rejected(submitted(cluster.platform(), again), "conflict", "does not serve yet")


def test_what_it_cannot_do_is_said_before_anything_is_done(cluster: Cluster) -> None:
    cluster.deploy("chat", 1, workload="chat")
    cluster.deploy("ranked", 3, workload="ranked", kind="StatefulSet")
    cluster.ready(cluster.deployments("chat"), 1)
    platform = cluster.platform()
    rejected(submitted(platform, now(before=1, after=1, power_limit_w=300.0)), "unsupported", "power limit")
    victims = preempt(workload="ranked", before=3, after=1, victims=("ranked-0",))
    cluster.until(lambda: len(cluster.pods("ranked")) == 3, "three pods")
    rejected(submitted(platform, victims), "unsupported", "chooses by itself")
    assert len(cluster.pods("ranked")) == 3


def test_without_rights_nothing_happens_and_the_remedy_is_named(cluster: Cluster) -> None:
    cluster.deploy("chat", 1, workload="chat")
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{cluster.namespace}/rolebindings/flyball-actuator"
    assert cluster.plane.request("DELETE", path)[0] == 200
    platform = cluster.platform()
    cluster.until(lambda: isinstance(platform.observe(now()), Rejected), "the rights are gone")
    rejected(platform.observe(now()), "platform", "is forbidden", "infra/kubernetes/actuator.yaml")


def test_a_status_that_changes_all_the_time_is_no_conflict(cluster: Cluster) -> None:
    cluster.deploy("chat", 1, workload="chat", cold_start="50ms")
    cluster.ready(cluster.deployments("chat"), 1)
    platform = cluster.platform()
    for i, wanted in enumerate([6, 2, 7, 3, 8, 1]):
        shown = platform.observe(now())
        assert not isinstance(shown, Rejected)
        decision: Scale = now(id_=f"d{i}", before=shown.replicas or 0, after=wanted)
        assert isinstance(platform.submit(decision, shown, dry_run=False), Handle)
    assert cluster.plane.get(cluster.deployments("chat"))["spec"]["replicas"] == 1
