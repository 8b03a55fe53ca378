"""LeaderWorkerSets and InferenceServices: found by annotation, scaled, moved, and what the cluster shows of it."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.actuators.carry_out import carried_out, submitted
from tests.actuators.loop import PARTITIONS, config_for, ended, of, publish, running
from tests.actuators.samples import migrate, preempt, scale, spec
from tests.brokers.embedded import EmbeddedBroker
from tests.kubernetes.cluster import RIGHTS, Cluster
from tests.kubernetes.controlplane import ACTUATOR_USER, CONTROLLER_USER
from tests.kubernetes.delegation.serving import KServe, Serving, group_set
from tests.kubernetes.delegation.training import playing
from tests.kubernetes.observer import RIGHTS as CONTROLLER_RIGHTS, Observer, controlling
from tests.kubernetes.test_rights import right_of, rights_in

from flyball_actuators.platforms import Done, Handle, Rejected
from flyball_contracts.config import PlatformConfig

pytestmark = pytest.mark.integration
GROUPS = {"leaderworkerset.x-k8s.io", "serving.kserve.io"}
SYSTEMS = ("lws", "kserve")


@pytest.fixture
def space(serving: Serving, cluster: Cluster) -> Cluster:
    serving.watch(cluster)
    return cluster


@contextmanager
def serves(space: Cluster, system: str) -> Generator[str]:
    """Workload `chat` with one ready replica: a group of two pods, or a pod; its path."""
    kserve = KServe(space)
    if system == "lws":
        path = group_set(space, "chat", 1, 2)
        yield path
    else:
        path = kserve.service("chat", 1, 2)
        with playing(kserve.play):
            yield path
    space.plane.request("DELETE", path)


def until_ready(space: Cluster, replicas: int) -> None:
    platform = space.platform()
    space.until(lambda: f"ready={replicas}" in str(platform.observe(scale())), f"{replicas} replicas serve")


@pytest.mark.parametrize("system", SYSTEMS)
def test_replicas_come_and_go(space: Cluster, system: str) -> None:
    with serves(space, system) as path:
        until_ready(space, 1)
        platform = space.platform()
        generation = space.plane.get(path)["metadata"]["generation"]
        plan = submitted(platform, scale("plan", before=1, after=3), dry_run=True)
        assert isinstance(plan, Handle)
        assert space.plane.get(path)["metadata"]["generation"] == generation
        up = scale("up", before=1, after=3)
        claimed = platform.observe(up)
        assert not isinstance(claimed, Rejected)
        assert space.platform().find(up, claimed) is None
        done = carried_out(platform, up)
        assert isinstance(done, Done), done
        assert (done.observed.replicas, done.observed.ready) == (3, 3)
        assert len(space.pods()) == (6 if system == "lws" else 3)
        assert isinstance(space.platform().find(up, claimed), Handle)
        done = carried_out(platform, preempt("down", before=3, after=1))
        assert isinstance(done, Done), done
        assert len(space.pods()) == (2 if system == "lws" else 1)


def test_a_group_moves_as_a_whole(space: Cluster) -> None:
    with serves(space, "lws"):
        until_ready(space, 1)
        space.until(lambda: all(one["spec"].get("nodeName") for one in space.pods()), "both have a node")
        before = {one["metadata"]["uid"] for one in space.pods()}
        (worker,) = (one for one in space.pods() if one["metadata"]["name"] == "chat-0-1")
        platform = space.platform()
        decision = migrate(replica="chat-0-1", from_node=worker["spec"]["nodeName"], from_device="")
        observed = platform.observe(decision)
        assert not isinstance(observed, Rejected), observed
        assert observed.nodes.keys() == {"chat-0", "chat-0-1"}, "the leader counts, and goes too"
        assert isinstance(carried_out(platform, decision), Done)
        space.until(lambda: len(space.pods()) == 2, "there is a new group")
        assert not before & {one["metadata"]["uid"] for one in space.pods()}


@pytest.mark.parametrize(
    ("autoscaler", "mode", "after", "code", "words"),
    [
        ("", "Standard", 0, "unsupported", "keeps one replica at least"),
        ("external", "Standard", 2, "conflict", "its bounds change nothing"),
        ("", "Knative", 2, "unsupported", "serving.kserve.io/deploymentMode: Standard"),
    ],
)
def test_bounds_that_would_not_fix_the_number_are_not_written(
    space: Cluster, autoscaler: str, mode: str, after: int, code: str, words: str
) -> None:
    kserve = KServe(space)
    path = kserve.service("chat", 1, 2, autoscaler)
    if mode == "Standard":
        kserve.play()
        space.until(lambda: len(space.pods()) == 1, "it runs")
    generation = space.plane.get(path)["metadata"]["generation"]
    problem = submitted(space.platform(), scale(before=1, after=after))
    assert isinstance(problem, Rejected), problem
    assert problem.code == code
    assert words in problem.detail
    assert space.plane.get(path)["metadata"]["generation"] == generation
    space.plane.request("DELETE", path)


def test_without_an_autoscaler_a_service_goes_to_none(space: Cluster) -> None:
    kserve = KServe(space)
    path = kserve.service("chat", 2, 2, "none")
    with playing(kserve.play):
        until_ready(space, 2)
        done = carried_out(space.platform(), preempt(before=2, after=0, checkpoint=False))
        assert isinstance(done, Done), done
        assert space.pods() == []
    space.plane.request("DELETE", path)


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_decision_ends_in_a_verified_outcome(
    space: Cluster, system: str, embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path
) -> None:
    bootstrap = embedded_broker(PARTITIONS).bootstrap
    platform = PlatformConfig(
        driver="kubernetes", kubeconfig=str(space.plane.kubeconfig()), namespaces=(space.namespace,), poll_s=0.1
    )
    config = config_for(
        bootstrap, "serving", mode="live", ledger=str(tmp_path / "ledger"), platforms=(platform,), allow=("chat",),
        kill_switch=str(tmp_path / "stop"),
    )  # fmt: skip
    with serves(space, system), running(config):
        until_ready(space, 1)
        publish(bootstrap, spec("chat"), scale("up", before=1, after=2))
        space.until(ended(bootstrap, 1), "it is done")
    shown = of(bootstrap, "up", "done").observed
    assert shown is not None
    assert (shown.replicas, shown.ready) == (2, 2)


@pytest.mark.parametrize("system", SYSTEMS)
def test_it_is_declared_and_its_pods_are_in_the_inventories(serving: Serving, observer: Observer, system: str) -> None:
    space = observer.cluster
    serving.watch(space)

    def of_chat() -> list[str]:
        nodes = observer.tables().inventories.values()
        return sorted(a.replica for node in nodes for a in node.allocations if a.workload == "chat")

    with serves(space, system), controlling(observer):
        declared = observer.until_spec("chat", lambda found: found is not None)
        assert (declared.kind, declared.gpus_per_replica) == ("inference", 2.0 if system == "lws" else 1.0)
        assert (declared.min_replicas, declared.max_replicas) == (1, 1)
        count = 2 if system == "lws" else 1
        space.until(lambda: len(of_chat()) == count, "its pods are in the inventories")
        assert of_chat() == sorted(one["metadata"]["name"] for one in space.pods())


def test_the_rights_that_are_shipped_are_the_calls_that_are_made(space: Cluster) -> None:
    for user, rights in ((ACTUATOR_USER, RIGHTS), (CONTROLLER_USER, CONTROLLER_RIGHTS)):
        calls = [c["objectRef"] | {"verb": c["verb"]} for c in space.plane.calls(user) if "objectRef" in c]
        used = {right for right in map(right_of, calls) if right[0] in GROUPS}
        assert used == {right for right in rights_in(rights) if right[0] in GROUPS}
