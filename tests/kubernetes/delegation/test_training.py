"""TrainJobs and Volcano's jobs, suspended and resumed by driver kubernetes, and what they are seen to do."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.actuators.carry_out import carried_out, submitted
from tests.actuators.loop import PARTITIONS, config_for, ended, of, publish, running
from tests.actuators.rows import observed_row
from tests.actuators.samples import NOW, S, preempt, scale, spec
from tests.brokers.embedded import EmbeddedBroker
from tests.kubernetes.cluster import RIGHTS, Cluster
from tests.kubernetes.delegation.kueue import ZONE, Kueue, Queues
from tests.kubernetes.delegation.test_kueue import start
from tests.kubernetes.delegation.training import Training, Volcano, job_set, playing, train
from tests.kubernetes.test_rights import right_of, rights_in

from flyball_actuators.platforms import Done, Handle, Rejected, Running
from flyball_contracts.config import PlatformConfig

pytestmark = pytest.mark.integration
MADE_BY: dict[str, Callable[..., str]] = {"trainer": train, "jobset": job_set}
GROUPS = {"trainer.kubeflow.org", "jobset.x-k8s.io", "batch.volcano.sh", "bus.volcano.sh"}


@pytest.fixture
def space(training: Training | None, cluster: Cluster) -> Cluster:
    if training is None:
        pytest.skip("no controllers of training jobs; run infra/training/fetch")
    training.watch(cluster)
    return cluster


@pytest.fixture
def queues(kueue: Kueue, zones: None, space: Cluster) -> Iterator[Queues]:
    made = Queues(space)
    yield made
    made.remove()


@pytest.mark.parametrize("system", ["trainer", "jobset", "volcano"])
def test_a_job_stops_and_goes_on(space: Cluster, system: str) -> None:
    volcano = Volcano(space)
    path = volcano.job("train", 3) if system == "volcano" else MADE_BY[system](space, "train", 3)
    platform = space.platform()
    with playing(volcano.play) if system == "volcano" else nullcontext():
        space.until(lambda: len(space.pods()) == 3, "its pods are there")
        space.until(lambda: "ready=3" in str(platform.observe(scale(workload="train"))), "they serve")
        stop = preempt("stop", workload="train", before=3, after=0)
        planned = submitted(platform, stop, dry_run=True)
        assert isinstance(planned, Handle), planned
        assert len(space.pods()) == 3
        done = carried_out(platform, stop)
        assert isinstance(done, Done), done
        assert (done.observed.replicas, done.observed.suspended) == (0, True)
        assert space.pods() == []
        go = scale("go", workload="train", before=0, after=3)
        done = carried_out(platform, go)
        assert isinstance(done, Done), done
        assert (done.observed.ready, done.observed.suspended) == (3, False)
        assert space.platform().find(go, None) is not None
        some = submitted(platform, preempt("some", workload="train", before=3, after=1))
        assert isinstance(some, Rejected), some
        assert "suspended and resumed, not resized" in some.detail
    space.plane.request("DELETE", path)
    used = {right_of(c["objectRef"] | {"verb": c["verb"]}) for c in space.plane.calls()}
    if system == "volcano":  # the last
        assert volcano.read == ["AbortJob", "ResumeJob"]
        granted = rights_in(RIGHTS)
        assert {right for right in used if right[0] in GROUPS} == {right for right in granted if right[0] in GROUPS}


@pytest.mark.parametrize("system", ["trainer", "volcano"])
def test_a_job_that_hangs_is_restarted_and_what_it_was_seen_to_do_is_published(
    space: Cluster, system: str, embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path
) -> None:
    bootstrap, volcano = embedded_broker(PARTITIONS).bootstrap, Volcano(space)
    path = volcano.job("train", 3) if system == "volcano" else train(space, "train", 3)
    platform = PlatformConfig(
        driver="kubernetes", kubeconfig=str(space.plane.kubeconfig()), namespaces=(space.namespace,), poll_s=0.1
    )
    config = config_for(
        bootstrap, "training", mode="live", ledger=str(tmp_path / "ledger"), platforms=(platform,), allow=("train",),
        kill_switch=str(tmp_path / "stop"),
    )  # fmt: skip
    watched = space.platform()
    with playing(volcano.play) if system == "volcano" else nullcontext(), running(config):
        space.until(lambda: "ready=3" in str(watched.observe(scale(workload="train"))), "they serve")
        pinned = replace(spec("train", interruptible=False, min_replicas=3), restart_hung_after_s=300.0)
        hangs = preempt("stop", workload="train", before=3, after=0, checkpoint=False, beneficiary="train")
        publish(bootstrap, pinned, hangs)
        space.until(ended(bootstrap, 1), "it is stopped")
        publish(bootstrap, scale("go", workload="train", before=0, after=3, time_ns=NOW + S))
        space.until(ended(bootstrap, 2), "it goes on")
    shown = [
        (one.replicas, one.ready, one.suspended)
        for id_ in ("stop", "go")
        if (one := of(bootstrap, id_, "done").observed)
    ]
    assert shown == [(0, 0, True), (3, 3, False)]
    assert observed_row(bootstrap, "kubernetes").gang == (2, 2)
    space.plane.request("DELETE", path)


@pytest.mark.parametrize("system", ["trainer", "jobset"])
def test_kueue_admits_a_job_of_many_where_flyball_says(queues: Queues, system: str) -> None:
    space = queues.cluster
    path = MADE_BY[system](space, "train", 3, labels={"kueue.x-k8s.io/queue-name": space.namespace})
    space.until(lambda: "suspend': True" in str(space.plane.get(path)["spec"]), "Kueue holds it")
    queues.entry("train")
    zone_of = {
        one["metadata"]["name"]: one["metadata"]["labels"][ZONE] for one in space.plane.get("/api/v1/nodes")["items"]
    }
    with queues.platform() as platform:
        done = carried_out(platform, start(pods=3, zone="b"))
        assert isinstance(done, Done), done
        assert done.observed.ready == 3
        assert [zone_of[one["spec"]["nodeName"]] for one in space.pods()] == ["b"] * 3
        done = carried_out(platform, preempt(workload="train", before=3, after=0))
        assert isinstance(done, Done), done
        assert (done.observed.suspended, space.pods()) == (True, [])
    space.plane.request("DELETE", path)


def test_a_job_of_volcano_is_not_stopped_if_it_could_not_go_on(space: Cluster) -> None:
    volcano = Volcano(space)
    path = volcano.job("train", 2, maxRetry=2)
    platform = space.platform()
    with playing(volcano.play):
        space.until(lambda: "ready=2" in str(platform.observe(scale(workload="train"))), "it serves")
        assert isinstance(carried_out(platform, preempt("stop", workload="train", before=2, after=0)), Done)
        assert isinstance(carried_out(platform, scale("go", workload="train", before=0, after=2)), Done)
        last = submitted(platform, preempt("last", workload="train", before=2, after=0))
    assert isinstance(last, Rejected), last
    assert last.detail.endswith("has 1 of 2 behind it; raise its spec.maxRetry"), last
    assert volcano.read == ["AbortJob", "ResumeJob"]
    space.plane.request("DELETE", path)


def test_a_job_whose_size_only_its_runtime_knows_is_not_touched(space: Cluster) -> None:
    path = train(space, "train", 1, trainer={})
    stop = preempt("stop", workload="train", before=1, after=0)
    problem = space.platform().observe(stop)
    assert isinstance(problem, Rejected), problem
    assert "spec.trainer.numNodes" in problem.detail
    space.plane.request("DELETE", path)


def test_a_command_that_nobody_reads_is_said_and_sent_once(space: Cluster) -> None:
    volcano = Volcano(space)
    volcano.job("train", 2)
    platform = space.platform()
    with playing(volcano.play):
        space.until(lambda: "ready=2" in str(platform.observe(scale(workload="train"))), "it serves")
    stop = preempt("stop", workload="train", before=2, after=0)
    handle = submitted(platform, stop)
    assert isinstance(handle, Handle), handle
    waits = platform.poll(handle)
    assert isinstance(waits, Running), waits
    assert "Volcano has the command" in waits.answer
    assert isinstance(submitted(space.platform(), stop), Handle)  # whoever takes over says it again
    commands = f"/apis/bus.volcano.sh/v1alpha1/namespaces/{space.namespace}/commands"
    (command,) = space.plane.get(commands)["items"]
    assert (command["action"], command["target"]["name"]) == ("AbortJob", "train")
    space.plane.request("DELETE", f"{commands}/{command['metadata']['name']}")
