"""Driver kueue with Kueue itself: what it does is judged by what Kueue admits and the cluster runs."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.actuators.carry_out import carried_out, ended as end_of, submitted
from tests.actuators.loop import PARTITIONS, config_for, ended, of, publish, running, without_effect
from tests.actuators.rows import observed_row
from tests.actuators.samples import migrate, preempt, scale, spec
from tests.brokers.embedded import EmbeddedBroker
from tests.conftest import ROOT
from tests.faults.testbed import wait_until
from tests.kubernetes.cluster import DEADLINE_S, Cluster
from tests.kubernetes.controlplane import ControlPlane
from tests.kubernetes.delegation.kueue import LABEL, RIGHTS, ZONE, Kueue, Queues
from tests.kubernetes.reader import SPACE, Reader
from tests.kubernetes.test_rights import OF_OTHERS, Right, right_of
from tests.readme.blocks import lines

from flyball_actuators.platforms import Done, Failed, Handle, Rejected, Running, Superseded
from flyball_actuators.platforms.kueue import KueuePlatform
from flyball_contracts.config import PlatformConfig
from flyball_contracts.records import Portion, Scale

pytestmark = pytest.mark.integration
MERGE = "application/merge-patch+json"
INFRA = ROOT / "infra"


@pytest.fixture
def queues(kueue: Kueue, zones: None, control_plane: ControlPlane) -> Iterator[Queues]:
    cluster = Cluster(control_plane)
    made = Queues(cluster)
    yield made
    made.remove()
    cluster.remove()


def start(id_: str = "d1", *, pods: int = 4, offer: str = "any", zone: str = "", workload: str = "train") -> Scale:
    """A gang starts, on machines of an offer where one is named."""
    made = scale(id_, workload=workload, before=0, after=pods, time_ns=time.time_ns())
    mix = (Portion(offer=offer, replicas=pods, zone=zone),) if zone or offer != "any" else ()
    return msgspec.structs.replace(made, mix=mix)


def zones_of(queues: Queues, job: str) -> set[str]:
    """Zones in which the pods of a job are."""
    nodes = {one["metadata"]["name"]: one for one in queues.cluster.plane.get("/api/v1/nodes")["items"]}
    return {nodes[name]["metadata"]["labels"][ZONE] for name in queues.nodes(job)}


def rejected(answer: Any, *words: str) -> None:
    assert isinstance(answer, Rejected), answer
    for word in words:
        assert word in f"{answer.code}: {answer.detail}", answer


def test_a_gang_is_admitted_where_flyball_says_and_stops_and_comes_back_elsewhere(queues: Queues) -> None:
    east = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "east"}}
    queues.cluster.plane.apply({**east, "spec": {"nodeLabels": {ZONE: "a"}}})
    queues.job("train", 4, workload="train", priority="50")
    with queues.platform() as platform:
        done = carried_out(platform, first := start(zone="b"))
        assert isinstance(done, Done), done
        assert (done.observed.ready, done.observed.mix) == (4, first.mix)
        assert zones_of(queues, "train") == {"b"}
        assert queues.entry("train")["spec"]["priority"] == 50
        stopped = carried_out(platform, preempt(workload="train", before=4, after=0))
        assert isinstance(stopped, Done), stopped
        assert stopped.observed.suspended
        assert queues.nodes("train") == set()
        assert not queues.entry("train")["spec"]["active"]
        handle = submitted(platform, start("d2", offer="east"))  # an offer that is called like a flavor
    assert isinstance(handle, Handle), handle
    with queues.platform() as other:  # as the next process has it
        found = other.find(start("d2", offer="east"), None)
        assert found is not None
        assert isinstance(end_of(other, handle), Done)
    assert zones_of(queues, "train") == {"a"}


def test_a_gang_waits_whole_for_its_quota(queues: Queues) -> None:
    queues.job("first", 6, workload="first")
    queues.job("train", 4, workload="train")
    with queues.platform() as platform:
        assert isinstance(carried_out(platform, start("f", pods=6, workload="first")), Done)
        planned = submitted(platform, start(zone="b"), dry_run=True)
        assert isinstance(planned, Handle), planned
        assert (planned.operation, "once" in planned.answer) == ("", True)
        handle = submitted(platform, start(zone="b"))
        assert isinstance(handle, Handle), handle
        queues.cluster.until(lambda: "insufficient" in str(platform.poll(handle)), "Kueue says what is missing")
        assert queues.nodes("train") == set()
        assert isinstance(carried_out(platform, preempt("p", workload="first", before=6, after=0)), Done)
        done = end_of(platform, handle)
        assert isinstance(done, Done), done
    assert zones_of(queues, "train") == {"b"}


def test_what_cannot_be_is_given_up_and_left_as_it_was(queues: Queues) -> None:
    path = queues.job("train", 2, workload="train", zone="a")
    with queues.platform() as platform:
        assert isinstance(carried_out(platform, preempt(workload="train", before=0, after=0)), Done)
        last = carried_out(platform, start(pods=2, zone="b"))
        assert isinstance(last, Failed), last
        assert f"its pods require {ZONE}=a" in last.answer
        assert "it is inactive again" in last.answer
        assert not queues.entry("train")["spec"]["active"]
        handle = submitted(platform, start("d3", pods=2))
        assert isinstance(handle, Handle), handle
        entry = queues.entry("train")["metadata"]
        where = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{entry['namespace']}/workloads/{entry['name']}"
        url = f"{where}?fieldManager=somebody"
        queues.cluster.plane.request("PATCH", url, {"spec": {"active": False}}, content_type=MERGE)
        replaced = end_of(platform, handle)
        assert isinstance(replaced, Superseded), replaced
        assert "'somebody'" in replaced.answer
        hidden = platform.find(start("d4", pods=2), None)
        assert hidden is not None
        assert "unknown outcome" in str(platform.poll(hidden))
        queues.cluster.plane.request("DELETE", f"{path}?propagationPolicy=Background")
        queues.cluster.until(lambda: isinstance(platform.poll(handle), Failed), "it is gone")


def test_an_eviction_that_kueue_has_not_ended_is_waited_for(kueue: Kueue, queues: Queues) -> None:
    """While the controllers stand still, Kueue waits for a Job's status before it takes the quota back."""
    plane, path = queues.cluster.plane, queues.job("train", 4, workload="train")
    with queues.platform() as platform:
        assert isinstance(carried_out(platform, start(zone="b")), Done)
        # Before that, the Job says that none of its pods is active, and an eviction ends at once.
        queues.cluster.until(lambda: plane.get(path)["status"].get("active") == 4, "the Job counts its pods")
        with plane.controllers_paused():
            stop = submitted(platform, preempt(workload="train", before=4, after=0))
            assert isinstance(stop, Handle), stop
            queues.cluster.until(
                lambda: queues.is_true("train", "Evicted") and plane.get(path)["spec"]["suspend"], "it is evicted"
            )
            for one in queues.cluster.pods():  # as the Job's controller would
                where = f"/api/v1/namespaces/{queues.cluster.namespace}/pods/{one['metadata']['name']}"
                plane.request("PATCH", where, {"metadata": {"finalizers": None}}, content_type=MERGE)
                plane.request("DELETE", f"{where}?gracePeriodSeconds=0")
            queues.cluster.until(lambda: not queues.nodes("train"), "its pods are gone")
            with kueue.paused():
                for active in (0, 4):  # Kueue sees only the last
                    shown = {"status": {"active": active, "ready": active}}
                    answer = plane.request("PATCH", f"{path}/status", shown, content_type=MERGE)
                    assert answer[0] == 200, answer
                    assert isinstance(platform.poll(stop), Running), "its quota is not back"
            assert queues.is_true("train", "Admitted"), "its old admission"
            begun = submitted(platform, start("d2", zone="a"))
            assert isinstance(begun, Handle), begun
            assert isinstance(platform.poll(begun), Running), "what it shows is its old place"
        done = end_of(platform, begun)
        assert isinstance(done, Done), done
    assert zones_of(queues, "train") == {"a"}


def test_who_has_no_decision_is_let_in(queues: Queues) -> None:
    queues.job("theirs", 1)
    with queues.platform(hold_s=600.0):
        queues.cluster.until(lambda: queues.is_true("theirs", "Admitted"), "a job of nobody's is let in")
        queues.job("ours", 1, workload="ours")
        queues.cluster.until(lambda: queues.is_true("ours", "QuotaReserved"), "there is quota")
        time.sleep(0.5)
        assert not queues.is_true("ours", "Admitted")
    with queues.platform(hold_s=600.0, live=False):  # in dry run nothing is held back
        queues.cluster.until(lambda: queues.is_true("ours", "Admitted"), "it is let in")
    check = next(c for c in queues.entry("ours")["status"]["admissionChecks"] if c["name"] == "flyball")
    assert "Kueue chooses the place" in check["message"]
    queues.job("late", 1, workload="late")
    with queues.platform(hold_s=0.1) as platform:
        queues.cluster.until(lambda: queues.is_true("late", "Admitted"), "its time is over")
        decision = start(pods=1, workload="late", zone="b")
        queues.cluster.ready(queues.cluster.jobs("late"), 1)
        before = {one["metadata"]["uid"] for one in queues.cluster.pods()}
        moved = carried_out(platform, msgspec.structs.replace(decision, replicas_before=1))
        assert isinstance(moved, Done), moved  # it is stopped, queued again, and admitted there
        assert zones_of(queues, "late") == {"b"}
        again = carried_out(platform, msgspec.structs.replace(decision, id="again", replicas_before=1))
        assert isinstance(again, Done), again  # it is there already
        assert len({one["metadata"]["uid"] for one in queues.cluster.pods()} - before) == 1


def test_what_kueue_cannot_do_is_refused_and_says_why(queues: Queues) -> None:
    queues.job("train", 4, workload="train")
    queues.cluster.job("alone", 2, workload="alone")
    with queues.platform(hold_s=600.0) as platform, queues.platform(check="absent") as plain:
        for decision, message in (
            (start(pods=3), "Kueue starts and stops Job"),
            (msgspec.structs.replace(start(), power_limit_w=300.0), "neither power nor resources"),
            (migrate(workload="train"), "cannot move one pod"),
            (start(offer="nowhere"), "names neither a zone nor an instance type"),
        ):
            rejected(submitted(platform, decision), message)
        two = (Portion(offer="x", replicas=2, zone="a"), Portion(offer="y", replicas=2, zone="b"))
        rejected(submitted(platform, msgspec.structs.replace(start(), mix=two)), "x and y; choose one")
        rejected(submitted(plain, start(zone="a")), "the cluster has no AdmissionCheck absent")
        rejected(platform.observe(start(workload="alone")), "no_platform", "is in no queue of Kueue")
        rejected(platform.observe(start(workload="nobody")), "unknown_target")
    queues.cluster.grant()
    stop = submitted(queues.cluster.platform(), preempt(workload="train", before=0, after=0))
    rejected(stop, "conflict", "Kueue starts and stops Job", "driver kueue")


def test_from_a_decision_on_the_topic_to_a_verified_outcome(
    queues: Queues, embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path
) -> None:
    bootstrap = embedded_broker(PARTITIONS).bootstrap
    queues.job("train", 4, workload="train", zone="b")
    config = config_for(
        bootstrap, "queued", mode="live", ledger=str(tmp_path / "ledger"), platforms=(queues.configuration(),),
        allow=("train",), kill_switch=str(tmp_path / "stop"),
    )  # fmt: skip
    decision = start("begin", zone="b")
    stop = preempt("end", workload="train", before=4, after=0, time_ns=decision.time_ns + 1)
    before = queues.entry("train")["metadata"]["generation"]
    with running(without_effect(config), clock=time.time_ns):
        publish(bootstrap, spec("train"), msgspec.structs.replace(decision, id="plan"))
        wait_until(ended(bootstrap, 1), "it is planned", DEADLINE_S)
    assert queues.entry("train")["metadata"]["generation"] == before
    with running(config, clock=time.time_ns):
        publish(bootstrap, decision)
        wait_until(ended(bootstrap, 2), "the final outcome", DEADLINE_S)
        publish(bootstrap, stop)
        wait_until(ended(bootstrap, 3), "it is stopped", DEADLINE_S)
        publish(bootstrap, start("wrong", zone="a"))  # its pods want the other zone
        wait_until(ended(bootstrap, 4), "all final outcomes", DEADLINE_S)
    assert not queues.entry("train")["spec"]["active"]
    assert not queues.nodes("train")
    assert "it is inactive again" in of(bootstrap, "wrong", "failed").answer
    last, end = (of(bootstrap, one, "done") for one in ("begin", "end"))
    assert (last.driver, end.driver) == ("kueue", "kueue"), (last, end)
    assert last.observed is not None
    assert (last.observed.ready, last.observed.mix) == (4, decision.mix)
    row = observed_row(bootstrap, "kueue")
    assert row.verbs == {"Preempt": (1, 1), "Scale": (1, 2)}
    assert (row.gang, row.rollback, row.planned) == ((3, 3), (1, 1), 1)


def test_the_rights_that_are_shipped_are_the_calls_that_are_made(queues: Queues) -> None:
    queues.job("train", 1, workload="train")
    with queues.platform() as platform:
        for decision in (start(pods=1, offer="gpu", zone="a"), preempt(workload="train", before=1, after=0)):
            assert isinstance(carried_out(platform, decision), Done)
    granted: set[Right] = {
        (group, resource, verb)
        for document in RIGHTS
        if document["kind"] == "ClusterRole"
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if group not in OF_OTHERS
    }
    calls = [call["objectRef"] | {"verb": call["verb"]} for call in queues.cluster.plane.calls()]
    mine = [
        call
        for call in calls
        if call.get("namespace", "") in ("", queues.cluster.namespace)
        and (call.get("namespace") or call.get("apiGroup") == "kueue.x-k8s.io")
        and call.get("apiGroup", "") not in OF_OTHERS
    ]
    assert {right_of(call) for call in mine} == granted


def test_the_readmes_lines_make_a_queue_whose_job_flyball_starts(
    kueue: Kueue, zones: None, control_plane: ControlPlane, tmp_path: Path
) -> None:
    del kueue, zones
    reader, path = Reader(control_plane, tmp_path), f"/apis/batch/v1/namespaces/{SPACE}/jobs/train"
    queued = {"metadata": {"labels": {LABEL: "yes"}}}
    control_plane.request("PATCH", f"/api/v1/namespaces/{SPACE}", queued, content_type=MERGE)
    entry = PlatformConfig(
        driver="kueue", kubeconfig=str(control_plane.kubeconfig()), namespaces=(SPACE,), poll_s=0.2
    )  # fmt: skip
    try:
        rights, example = lines("kubectl apply -f infra/kubernetes/kueue.yaml")
        reader.run(rights)
        # "Then one RoleBinding in each namespace, as it says".
        comment = (INFRA / "kubernetes/kueue.yaml").read_text().replace("\\\n#", "")
        (binding,) = re.findall(r"^#   (kubectl -n ml create .*?)  +# in each", comment, re.MULTILINE)
        reader.run(binding)
        assert "job.batch/train created" in reader.run(example)
        wait_until(lambda: control_plane.get(path)["spec"].get("suspend") is True, "Kueue has queued it", DEADLINE_S)
        platform = KueuePlatform(entry, live=True)
        try:
            done = carried_out(platform, start(workload="train"))
        finally:
            platform.close()
        assert isinstance(done, Done), done
        assert control_plane.get(path)["status"]["ready"] == 4
    finally:
        reader.undo()
