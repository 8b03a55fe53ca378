"""TrainJobs and Volcano's jobs, suspended and resumed by driver kubernetes, and what they are seen to do."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.actuators.carry_out import carried_out, submitted
from tests.actuators.samples import preempt, scale
from tests.kubernetes.cluster import RIGHTS, Cluster
from tests.kubernetes.controlplane import ControlPlane
from tests.kubernetes.delegation.kueue import kueue_folder
from tests.kubernetes.delegation.training import Trainer, Volcano, playing
from tests.kubernetes.test_rights import right_of

from flyball_actuators.platforms import Done, Handle, Rejected, Running

pytestmark = pytest.mark.integration
VOLCANO = Path(__file__).with_name("volcano.yaml")
GROUPS = {"trainer.kubeflow.org", "batch.volcano.sh", "bus.volcano.sh"}


@pytest.fixture(scope="module")
def kinds(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    folder = kueue_folder()
    if folder is None:
        pytest.skip("no definitions of TrainJob and JobSet; run infra/kueue/fetch")
    crds: list[Any] = [yaml.safe_load(path.read_text()) for path in sorted((folder / "jobs").glob("*.yaml"))]
    crds += yaml.safe_load_all(VOLCANO.read_text())
    for crd in crds:
        control_plane.apply(crd)
    yield control_plane
    for crd in crds:  # other tests are about clusters without these kinds
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}"
        control_plane.request("DELETE", path)


@pytest.fixture
def space(kinds: ControlPlane, cluster: Cluster) -> Cluster:
    paths = [f"/apis/{group}/v1alpha1" for group in GROUPS]
    cluster.until(lambda: all(kinds.request("GET", path)[0] == 200 for path in paths), "the kinds are served")
    return cluster


@pytest.mark.parametrize("system", ["trainer", "volcano"])
def test_a_job_stops_and_goes_on(space: Cluster, system: str) -> None:
    played = Trainer(space) if system == "trainer" else Volcano(space)
    path = played.job("train", 3)
    platform = space.platform()
    with playing(played.play):
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
    if isinstance(played, Volcano):
        assert played.read == ["AbortJob", "ResumeJob"]
        granted = {
            (group, resource, verb)
            for document in RIGHTS
            if document["kind"] == "ClusterRole"
            for rule in document["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
        assert {right for right in used if right[0] in GROUPS} == {right for right in granted if right[0] in GROUPS}


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
